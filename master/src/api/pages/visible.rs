//! The visible state: accessors for pages and answers.
//!
//! Each page and answer takes agents, frameworks, tasks, executors, operations and roles from here,
//! so that filtered objects are hidden everywhere. The state is already filtered
//! ([`crate::api::visibility`]), except for agents' resources, which go through
//! [`VisibleState::resources`], and operations, which are visible if all their resources are.
//! Everything else of a visible framework is visible, including its roles. Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::view::RoleView;
use protocol::{AgentId, AgentInfo, ExecutorInfo, FrameworkId, InverseOffer, Offer};
use resources::{Resources, Role};
use v1::answer_cache::Identity;

use crate::agents::Agent;
use crate::api::view;
use crate::frameworks::{Completed, Framework};
use crate::operations::TrackedOperation;
use crate::state::{MasterState, sum};
use crate::tasks::{FrameworkTasks, Task};

/// The identity of a value that is shown without anything else.
pub(in crate::api) fn identity<T>(value: &Arc<T>) -> Option<Identity> {
    Some([place(value), 0, 0])
}

fn place<T>(value: &Arc<T>) -> usize {
    Arc::as_ptr(value).addr()
}

/// The state as its viewer sees it.
#[derive(Clone, Copy)]
pub(crate) struct VisibleState<'a> {
    /// For public values: the master's description and its counters.
    pub state: &'a MasterState,
}

/// The tasks of one framework.
#[derive(Clone, Copy)]
pub(crate) struct VisibleTasks<'a>(Option<&'a FrameworkTasks>);

/// A framework's own executor.
#[derive(Clone, Copy)]
pub(crate) struct VisibleExecutor<'a> {
    pub agent: &'a AgentId,
    pub framework: &'a FrameworkId,
    pub info: &'a ExecutorInfo,
}

impl<'a> VisibleState<'a> {
    /// All of this state.
    pub fn of(state: &'a MasterState) -> Self {
        Self { state }
    }

    /// Registered agents.
    pub fn agents(self) -> impl Iterator<Item = &'a Arc<Agent>> {
        self.state.agents.iter()
    }

    /// Agents in the registry that have not returned.
    pub fn awaited(self) -> impl Iterator<Item = (&'a AgentId, &'a AgentInfo)> {
        self.state.agents.recovered()
    }

    /// Frameworks that have not ended.
    pub fn frameworks(self) -> impl Iterator<Item = &'a Arc<Framework>> {
        self.state.frameworks.iter()
    }

    /// The newest ended frameworks, oldest first.
    pub fn completed(self) -> impl Iterator<Item = &'a Completed> {
        self.state.frameworks.completed()
    }

    /// The tasks of a framework that has not ended.
    pub fn tasks(self, framework: &FrameworkId) -> VisibleTasks<'a> {
        let of = self.state.tasks.of_framework(framework);
        VisibleTasks(of.map(Arc::as_ref))
    }

    /// The tasks of all frameworks, ended ones last.
    pub fn all_tasks(self) -> impl Iterator<Item = VisibleTasks<'a>> {
        let known = self.state.tasks.frameworks().map(|(_, of)| of);
        let completed = self.state.frameworks.completed().map(|one| &one.tasks);
        known
            .chain(completed)
            .map(|of| VisibleTasks(Some(of.as_ref())))
    }

    /// The frameworks' own executors. Those that agents show for commands are unknown to a master.
    pub fn executors(self) -> impl Iterator<Item = VisibleExecutor<'a>> {
        self.state.tasks.agents().flat_map(|(agent, on)| {
            on.executors()
                .map(move |(framework, info)| VisibleExecutor {
                    agent,
                    framework,
                    info,
                })
        })
    }

    /// The offers to a framework.
    pub fn offers(self, framework: &FrameworkId) -> impl Iterator<Item = &'a Arc<Offer>> {
        self.state.offers.of_framework(framework)
    }

    /// The identity of an agent with everything shown about it; `None` if that is more than an
    /// identity can hold.
    pub fn identity(self, agent: &Arc<Agent>) -> Option<Identity> {
        let on = self.state.tasks.on_agent(&agent.id).map_or(0, place);
        let mut offers = self.state.offers.of_agent(&agent.id);
        let offer = offers.next().map_or(0, place);
        offers.next().is_none().then(|| [place(agent), on, offer])
    }

    /// The inverse offers to a framework. A mirror has none.
    pub fn inverse_offers(self, framework: &FrameworkId) -> impl Iterator<Item = &'a InverseOffer> {
        let offers = self.state.inverse_offers.of_framework(framework);
        offers.map(Arc::as_ref)
    }

    /// Visible operations with an id.
    pub fn operations(self) -> impl Iterator<Item = (&'a FrameworkId, &'a TrackedOperation)> {
        let is_seen = move |framework: &FrameworkId, known: &TrackedOperation| {
            // Operations of invisible frameworks are hidden; ended frameworks have none.
            self.state.is_whole()
                || self.state.frameworks.get(framework).is_some()
                    && (self.shows(&known.status.converted)
                        && (known.conversion.as_ref())
                            .is_none_or(|conversion| self.shows(&conversion.named())))
        };
        let operations = self.state.operations.iter();
        operations.filter(move |(framework, known)| is_seen(framework, known))
    }

    /// Whether all of these resources belong to visible roles.
    fn shows(self, all: &Resources) -> bool {
        *self.resources(all) == *all
    }

    /// The roles.
    pub fn roles(self) -> Vec<RoleView> {
        view::roles(self.state)
    }

    /// The part of an agent's resources that belongs to visible roles, by reservation and
    /// allocation.
    pub fn resources<'r>(self, all: &'r Resources) -> Cow<'r, Resources> {
        self.state.visible_part(all)
    }

    /// Visible reservations of an agent, by role.
    pub fn reservations(self, all: &Resources) -> BTreeMap<Role, Resources> {
        self.resources(all).reservations()
    }

    /// Resources that tasks and executors hold on an agent.
    pub fn used_on(self, agent: &Agent) -> Resources {
        view::used(self.state, agent)
    }

    /// Offered resources of an agent.
    pub fn offered_of(self, agent: &Agent) -> Resources {
        view::offered(self.state, agent)
    }

    /// Resources that tasks and executors hold on all agents, by framework.
    pub fn held(self) -> BTreeMap<&'a FrameworkId, Resources> {
        let mut held: BTreeMap<&FrameworkId, Resources> = BTreeMap::new();
        for (framework, resources) in self
            .state
            .tasks
            .agents()
            .flat_map(|(_, on)| on.held().iter())
        {
            *held.entry(framework).or_default() += resources;
        }
        held
    }

    /// Resources that one framework's tasks and executors hold.
    pub fn held_by(self, framework: &FrameworkId) -> Resources {
        let agents = self.state.tasks.agents();
        sum(agents.filter_map(|(_, on)| on.held().of(framework)))
    }
}

impl<'a> VisibleTasks<'a> {
    /// The tasks of an ended framework.
    pub fn of(completed: &'a Completed) -> Self {
        Self(Some(&completed.tasks))
    }

    /// The identity of its lists, which changes with any task.
    pub fn identity(self) -> Option<Identity> {
        self.0.map(|of| [std::ptr::from_ref(of).addr(), 0, 0])
    }

    /// Tasks that have not ended.
    pub fn running(self) -> impl Iterator<Item = &'a Arc<Task>> {
        self.0.into_iter().flat_map(FrameworkTasks::running)
    }

    /// Ended tasks: acknowledged ones, oldest first, then the others.
    pub fn ended(self) -> impl Iterator<Item = &'a Arc<Task>> {
        let ended = self.0.into_iter().flat_map(FrameworkTasks::ended);
        let completed = self.0.into_iter().flat_map(FrameworkTasks::completed);
        completed.chain(ended)
    }

    /// Resources of the running tasks; `None` if there never was a task.
    pub fn used(self) -> Option<&'a Resources> {
        self.0.map(FrameworkTasks::used)
    }

    /// Tasks on unreachable agents, oldest first.
    pub fn unreachable(self) -> impl Iterator<Item = &'a Arc<Task>> {
        self.0.into_iter().flat_map(FrameworkTasks::unreachable)
    }

    /// All tasks.
    pub fn all(self) -> impl Iterator<Item = &'a Arc<Task>> {
        let over = self.0.into_iter().flat_map(FrameworkTasks::completed);
        self.active().chain(self.unreachable()).chain(over)
    }

    fn active(self) -> impl Iterator<Item = &'a Arc<Task>> {
        self.0.into_iter().flat_map(FrameworkTasks::active)
    }
}

#[cfg(test)]
mod tests {
    use authority::{Acls, Subject};
    use runtime::Timestamp;

    use super::*;
    use crate::api::visibility::Visibility;
    use crate::config::Config;

    /// An empty state, for a viewer of this role only.
    fn shown_to(role: Option<&str>) -> Arc<MasterState> {
        let master = testkit::values::master();
        let state = MasterState::new(master, &Config::default(), Timestamp::from_nanos(1));
        let acls = role.map_or("{}".to_owned(), |role| {
            format!(
                r#"{{"view_roles":[{{"principals":{{"type":"ANY"}},"roles":{{"values":["{role}"]}}}},
                    {{"principals":{{"type":"ANY"}},"roles":{{"type":"NONE"}}}}]}}"#
            )
        });
        Visibility::of(&Acls::parse(&acls).unwrap(), &Subject::named("p")).filter(&Arc::new(state))
    }

    /// SPEC 3.7, as Mesos: each role of the stack must be seen, and the one that it is allocated
    /// to.
    #[test]
    fn resources_of_invisible_roles_are_left_out() {
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
            let state = shown_to(role);
            let visible = VisibleState::of(&state);
            let cpus = |resources| visible.resources(resources).cpus().as_f64();
            let found = (cpus(&all), cpus(&held), visible.reservations(&all).len());
            assert_eq!(found, (seen, seen_held, reserved), "{role:?}");
        }
    }
}
