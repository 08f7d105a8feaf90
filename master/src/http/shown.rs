//! Shown: of the books, what whoever asks may see.
//!
//! Each page and each answer that names agents, frameworks, tasks, executors, operations or roles takes them from here, so that what is
//! hidden from somebody is hidden everywhere. What somebody may not see is not in the books that it is made of ([`crate::sight`]), but for
//! agents' resources: those that say whose they are go through [`Shown::resources`], and operations are shown where all that they name is. Of a
//! framework that is seen, all else that it says and holds is, its roles included. Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::view::RoleView;
use protocol::{AgentId, AgentInfo, ExecutorInfo, FrameworkId, InverseOffer, Offer};
use resources::{Resources, Role};
use v1::pieces::Identity;

use crate::agents::Agent;
use crate::books::{Books, sum};
use crate::frameworks::{Completed, Framework};
use crate::operations::Known;
use crate::tasks::{OfFramework, Task};
use crate::view;

/// What a value of the books is known by, of which nothing else is shown than what it says itself.
pub(super) fn identity<T>(value: &Arc<T>) -> Option<Identity> {
    Some([place(value), 0, 0])
}

fn place<T>(value: &Arc<T>) -> usize {
    Arc::as_ptr(value).addr()
}

/// The books as somebody sees them.
#[derive(Clone, Copy)]
pub(crate) struct Shown<'a> {
    /// For what anybody may see: who the master is, and what it counts.
    pub books: &'a Books,
}

/// The tasks of one framework.
#[derive(Clone, Copy)]
pub(crate) struct TasksShown<'a>(Option<&'a OfFramework>);

/// A framework's own executor.
#[derive(Clone, Copy)]
pub(crate) struct ExecutorShown<'a> {
    pub agent: &'a AgentId,
    pub framework: &'a FrameworkId,
    pub info: &'a ExecutorInfo,
}

impl<'a> Shown<'a> {
    /// All of these books.
    pub fn of(books: &'a Books) -> Self {
        Self { books }
    }

    /// The agents that are registered.
    pub fn agents(self) -> impl Iterator<Item = &'a Arc<Agent>> {
        self.books.agents.iter()
    }

    /// The agents that the registry knows and that have not come back yet.
    pub fn awaited(self) -> impl Iterator<Item = (&'a AgentId, &'a AgentInfo)> {
        self.books.agents.recovered()
    }

    /// The frameworks that have not ended.
    pub fn frameworks(self) -> impl Iterator<Item = &'a Arc<Framework>> {
        self.books.frameworks.iter()
    }

    /// The newest of those that have, oldest first.
    pub fn completed(self) -> impl Iterator<Item = &'a Completed> {
        self.books.frameworks.completed()
    }

    /// The tasks of a framework that has not ended.
    pub fn tasks(self, framework: &FrameworkId) -> TasksShown<'a> {
        let of = self.books.tasks.of_framework(framework);
        TasksShown(of.map(Arc::as_ref))
    }

    /// The tasks of all frameworks, the ones that have ended included: first those of each framework that has not.
    pub fn all_tasks(self) -> impl Iterator<Item = TasksShown<'a>> {
        let known = self.books.tasks.frameworks().map(|(_, of)| of);
        let completed = self.books.frameworks.completed().map(|one| &one.tasks);
        known
            .chain(completed)
            .map(|of| TasksShown(Some(of.as_ref())))
    }

    /// The frameworks' own executors. Those that the agents themselves start for a task's command are not known to a master.
    pub fn executors(self) -> impl Iterator<Item = ExecutorShown<'a>> {
        self.books.tasks.agents().flat_map(|(agent, on)| {
            on.executors().map(move |(framework, info)| ExecutorShown {
                agent,
                framework,
                info,
            })
        })
    }

    /// The offers to a framework.
    pub fn offers(self, framework: &FrameworkId) -> impl Iterator<Item = &'a Arc<Offer>> {
        self.books.offers.of_framework(framework)
    }

    /// What an agent is known by, with all that is shown of what it has; none if that is too much.
    pub fn identity(self, agent: &Arc<Agent>) -> Option<Identity> {
        let on = self.books.tasks.on_agent(&agent.id).map_or(0, place);
        let mut offers = self.books.offers.of_agent(&agent.id);
        let offer = offers.next().map_or(0, place);
        offers.next().is_none().then(|| [place(agent), on, offer])
    }

    /// The inverse offers to a framework. A mirror knows none.
    pub fn inverse_offers(self, framework: &FrameworkId) -> impl Iterator<Item = &'a InverseOffer> {
        let offers = self.books.inverse_offers.of_framework(framework);
        offers.map(Arc::as_ref)
    }

    /// The operations that frameworks want to hear about.
    pub fn operations(self) -> impl Iterator<Item = (&'a FrameworkId, &'a Known)> {
        let is_seen = move |framework: &FrameworkId, known: &Known| {
            // Those of a framework that is not seen are not either; a framework that has ended has none.
            self.books.is_whole()
                || self.books.frameworks.get(framework).is_some()
                    && (self.shows(&known.status.converted)
                        && (known.conversion.as_ref())
                            .is_none_or(|conversion| self.shows(&conversion.named())))
        };
        let operations = self.books.operations.iter();
        operations.filter(move |(framework, known)| is_seen(framework, known))
    }

    /// Whether all of these are of roles that are seen.
    fn shows(self, all: &Resources) -> bool {
        *self.resources(all) == *all
    }

    /// The roles.
    pub fn roles(self) -> Vec<RoleView> {
        view::roles(self.books)
    }

    /// Of an agent's resources, those of roles that are seen: what is reserved for others, or allocated to them, is left out.
    pub fn resources<'r>(self, all: &'r Resources) -> Cow<'r, Resources> {
        self.books.seen_of(all)
    }

    /// What of an agent's resources is reserved for each role that is seen.
    pub fn reservations(self, all: &Resources) -> BTreeMap<Role, Resources> {
        self.resources(all).reservations()
    }

    /// What tasks and executors hold on an agent.
    pub fn used_on(self, agent: &Agent) -> Resources {
        view::used(self.books, agent)
    }

    /// What is offered of an agent.
    pub fn offered_of(self, agent: &Agent) -> Resources {
        view::offered(self.books, agent)
    }

    /// What the tasks and executors of each framework hold, on all agents.
    pub fn held(self) -> BTreeMap<&'a FrameworkId, Resources> {
        let mut held: BTreeMap<&FrameworkId, Resources> = BTreeMap::new();
        for (framework, resources) in self
            .books
            .tasks
            .agents()
            .flat_map(|(_, on)| on.held().iter())
        {
            *held.entry(framework).or_default() += resources;
        }
        held
    }

    /// What those of one framework hold.
    pub fn held_by(self, framework: &FrameworkId) -> Resources {
        let agents = self.books.tasks.agents();
        sum(agents.filter_map(|(_, on)| on.held().of(framework)))
    }
}

impl<'a> TasksShown<'a> {
    /// Of a framework that has ended.
    pub fn of(completed: &'a Completed) -> Self {
        Self(Some(&completed.tasks))
    }

    /// What its lists are known by, as long as no task is another.
    pub fn identity(self) -> Option<Identity> {
        self.0.map(|of| [std::ptr::from_ref(of).addr(), 0, 0])
    }

    /// Those that have not ended.
    pub fn running(self) -> impl Iterator<Item = &'a Arc<Task>> {
        self.0.into_iter().flat_map(OfFramework::running)
    }

    /// Those that have, oldest first, and then those of which the framework has not acknowledged it yet.
    pub fn ended(self) -> impl Iterator<Item = &'a Arc<Task>> {
        let ended = self.0.into_iter().flat_map(OfFramework::ended);
        let completed = self.0.into_iter().flat_map(OfFramework::completed);
        completed.chain(ended)
    }

    /// What those use that have not ended; none if there never was one.
    pub fn used(self) -> Option<&'a Resources> {
        self.0.map(OfFramework::used)
    }

    /// Those whose agents cannot be reached, oldest first.
    pub fn unreachable(self) -> impl Iterator<Item = &'a Arc<Task>> {
        self.0.into_iter().flat_map(OfFramework::unreachable)
    }

    /// All of them.
    pub fn all(self) -> impl Iterator<Item = &'a Arc<Task>> {
        let over = self.0.into_iter().flat_map(OfFramework::completed);
        self.active().chain(self.unreachable()).chain(over)
    }

    fn active(self) -> impl Iterator<Item = &'a Arc<Task>> {
        self.0.into_iter().flat_map(OfFramework::active)
    }
}

#[cfg(test)]
mod tests {
    use authority::{Acls, Subject};
    use protocol::{MasterId, MasterInfo};
    use runtime::Timestamp;

    use super::*;
    use crate::config::Config;
    use crate::sight::Sight;

    /// Empty books, shown to somebody who sees this role only.
    fn shown_to(role: Option<&str>) -> Arc<Books> {
        let master = MasterInfo {
            id: MasterId::new("m").unwrap(),
            hostname: "localhost".into(),
            port: 5050,
            version: "1".into(),
            term: 0,
            address: None,
            domain: None,
        };
        let books = Books::new(master, &Config::default(), Timestamp::from_nanos(1));
        let acls = role.map_or("{}".to_owned(), |role| {
            format!(
                r#"{{"view_roles":[{{"principals":{{"type":"ANY"}},"roles":{{"values":["{role}"]}}}},
                    {{"principals":{{"type":"ANY"}},"roles":{{"type":"NONE"}}}}]}}"#
            )
        });
        Sight::of(&Acls::parse(&acls).unwrap(), &Subject::named("p")).books(&Arc::new(books))
    }

    /// SPEC 3.7, as Mesos: each role of the stack must be seen, and the one that it is allocated to.
    #[test]
    fn of_an_agents_resources_those_of_roles_that_are_not_seen_are_left_out() {
        let all = resources::json::parse_resources(
            r#"[{"name":"cpus","type":"SCALAR","scalar":{"value":1}},
                {"name":"cpus","type":"SCALAR","scalar":{"value":2},"reservations":[{"type":"STATIC","role":"x"}]},
                {"name":"cpus","type":"SCALAR","scalar":{"value":4},"reservations":[{"type":"STATIC","role":"y"}]},
                {"name":"cpus","type":"SCALAR","scalar":{"value":8},
                 "reservations":[{"type":"STATIC","role":"y"},{"type":"DYNAMIC","role":"y/z"}]}]"#,
        )
        .unwrap();
        let held = all.allocate(&"y".parse().unwrap());
        for (role, seen, seen_held, reserved) in [
            (None, 15.0, 15.0, 3),
            (Some("x"), 3.0, 0.0, 1),
            (Some("y"), 5.0, 5.0, 1),
            (Some("y/z"), 1.0, 0.0, 0),
        ] {
            let books = shown_to(role);
            let shown = Shown::of(&books);
            let cpus = |resources| shown.resources(resources).cpus().as_f64();
            let found = (cpus(&all), cpus(&held), shown.reservations(&all).len());
            assert_eq!(found, (seen, seen_held, reserved), "{role:?}");
        }
    }
}
