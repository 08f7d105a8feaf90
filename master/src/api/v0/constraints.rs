//! `/allocator/offer_constraints_debug`: the agents that each framework's offer constraints
//! exclude, by role, in Mesos' form.
//!
//! Runs the allocator's tests, off the thread of the pages. A role without constraints excludes
//! none. An answer is bounded; additional keys count the omitted agents and frameworks. Other
//! reasons are in `/explain`.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::http::MesosQuery;
use axum::Extension;
use axum::response::Response;
use module_api::demand::{AgentProperties, AgentTest};
use protocol::{AgentId, FrameworkId};
use serde::Serialize;

use super::state::text;
use crate::agents::Agent;
use crate::api::pages::source::Source;
use crate::api::pages::visible::VisibleState;
use crate::frameworks::Framework;

/// Maximum agents listed per answer.
const NAMED_MAX: usize = 10_000;
/// Maximum tests of agents for an answer about all frameworks; the last framework is finished.
const LOOKS_MAX: usize = 1_000_000;

pub(in crate::api) async fn page(
    Extension(source): Extension<Source>,
    MesosQuery(mut given): MesosQuery<BTreeMap<String, String>>,
) -> Response {
    // The id or the name of one framework. Other parameters are ignored, as in every page of Mesos.
    let framework = given.remove("framework");
    let page = source.asked(move |visible| {
        let mut room = Budget::new(NAMED_MAX, LOOKS_MAX);
        Ok(text(&match framework.as_deref() {
            None => Excluded::of_all(visible, &mut room),
            Some(called) => {
                // The source contains only what the caller may see.
                let found = visible.state.find_framework(called, None);
                let framework = found.map_err(|problem| problem.to_string())?;
                Excluded::of(visible, [framework].into_iter(), &mut room)
            }
        }))
    });
    page.await
}

/// The remaining budget of an answer.
struct Budget {
    named: usize,
    looks: usize,
}

impl Budget {
    fn new(named: usize, looks: usize) -> Self {
        Self { named, looks }
    }

    fn is_spent(&self) -> bool {
        self.named == 0 || self.looks == 0
    }
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// The excluded agents of visible frameworks.
#[derive(Serialize)]
struct Excluded<'a> {
    frameworks: BTreeMap<&'a FrameworkId, FrameworkExclusions<'a>>,
    /// Number of omitted frameworks.
    #[serde(skip_serializing_if = "is_zero")]
    frameworks_left_out: usize,
}

#[derive(Serialize)]
struct FrameworkExclusions<'a> {
    suppressed_roles: Vec<&'a str>,
    excluded_by_attribute_constraints: BTreeMap<&'a str, Vec<&'a AgentId>>,
    /// Number of excluded agents that are not listed, by role.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    agents_left_out: BTreeMap<&'a str, usize>,
}

impl<'a> Excluded<'a> {
    fn of_all(visible: VisibleState<'a>, room: &mut Budget) -> Self {
        let frameworks = visible.state.frameworks.iter().map(Arc::as_ref);
        Self::of(visible, frameworks, room)
    }

    /// The exclusions of these frameworks within the budget.
    fn of(
        visible: VisibleState<'a>,
        frameworks: impl Iterator<Item = &'a Framework>,
        room: &mut Budget,
    ) -> Self {
        let mut all = Self {
            frameworks: BTreeMap::new(),
            frameworks_left_out: 0,
        };
        for framework in frameworks {
            match room.is_spent() {
                true => all.frameworks_left_out += 1,
                false => {
                    let of = FrameworkExclusions::new(visible, framework, room);
                    all.frameworks.insert(&framework.id, of);
                }
            }
        }
        all
    }
}

impl<'a> FrameworkExclusions<'a> {
    fn new(visible: VisibleState<'a>, framework: &'a Framework, room: &mut Budget) -> Self {
        let suppressed = framework.wants.suppressed_roles.iter();
        let mut of = Self {
            suppressed_roles: suppressed.map(String::as_str).collect(),
            excluded_by_attribute_constraints: BTreeMap::new(),
            agents_left_out: BTreeMap::new(),
        };
        for role in &framework.info.roles {
            let mut named = Vec::new();
            let mut left_out = 0;
            if let Some(test) = test(framework, role) {
                for agent in visible.agents() {
                    room.looks = room.looks.saturating_sub(1);
                    match (is_excluded(&test, agent), room.named) {
                        (false, _) => {}
                        (true, 0) => left_out += 1,
                        (true, _) => {
                            room.named -= 1;
                            named.push(&agent.id);
                        }
                    }
                }
            }
            of.excluded_by_attribute_constraints.insert(role, named);
            if left_out > 0 {
                of.agents_left_out.insert(role, left_out);
            }
        }
        of
    }
}

/// The test of a role's constraints, if it has any.
fn test(framework: &Framework, role: &str) -> Option<AgentTest> {
    // The master has admitted only valid constraints.
    let demand = framework.wants.demands.get(role)?;
    let test = AgentTest::new(role, demand).ok();
    test.filter(|test| !test.is_open())
}

fn is_excluded(test: &AgentTest, agent: &Agent) -> bool {
    !test.passes(AgentProperties {
        hostname: &agent.info.hostname,
        attributes: &agent.info.attributes,
        domain: agent.info.domain.as_ref(),
    })
}

#[cfg(test)]
mod tests {
    use ::http::api::EventStreams;
    use ::http::testing::{fetch, request};
    use axum::Router;
    use protocol::message::scheduler::Subscribe;
    use protocol::{Capability, Demand, FrameworkInfo, Wants};
    use runtime::prelude::*;
    use runtime::testing::simulate;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::tests::{master, pages};
    use crate::api::{PATIENCE, routes};
    use crate::config::Config;
    use crate::master::{Master, TakeSnapshot};
    use crate::state::MasterState;

    /// A scheduler that ignores its messages.
    struct SilentScheduler;

    impl Actor for SilentScheduler {
        type Context = Context<Self>;
    }

    impl Process for SilentScheduler {
        fn accepts(_: &mut RemoteHandlers<Self>) {}
    }

    const PATH: &str = "/allocator/offer_constraints_debug";

    fn all_routes(node: &Node, master: &Handle<Master>) -> Router {
        let pages = pages(node, master);
        let streams = EventStreams::new(node);
        let (local, events) = (&pages.local, &pages.events);
        let (config, counters) = (Config::default(), pages.counters.clone());
        routes(local, node, &config, counters, events, &streams)
    }

    async fn state(master: &Handle<Master>) -> Arc<MasterState> {
        master.ask(TakeSnapshot, PATIENCE).await.unwrap()
    }

    /// A framework with constraints on host names.
    async fn subscribe(
        node: &Node,
        master: &Handle<Master>,
        name: &str,
        demands: &[(&str, &str)],
    ) -> FrameworkId {
        let mut framework = FrameworkInfo::new("nobody", name);
        framework.capabilities.insert(Capability::MultiRole);
        framework.roles = ["here", "there", "anywhere"].map(str::to_owned).into();
        let demand = |(role, host): &(&str, &str)| ((*role).to_owned(), Demand::on_hosts([*host]));
        let wants = Wants {
            suppressed_roles: ["there".to_owned()].into(),
            demands: demands.iter().map(demand).collect(),
        };
        let scheduler = node.spawn(name, SilentScheduler).unwrap().pid();
        let subscribe = Subscribe {
            framework,
            scheduler,
            wants,
        };
        let subscribed = master.ask(subscribe, PATIENCE).await.unwrap().unwrap();
        subscribed.framework_id
    }

    async fn get(routes: &Router, query: &str) -> (u16, String) {
        let asked = request("GET", &format!("{PATH}{query}"), "", "");
        fetch(routes, asked).await
    }

    /// SPEC 2.4.
    // Covers 2.4 Offer constraints.
    #[test]
    fn excluded_agents_are_listed_by_framework_and_role() {
        simulate(|node| async move {
            let master = master(&node).await;
            let routes = all_routes(&node, &master);
            let demands = [("here", "Host-1"), ("there", "host-9")];
            let id = subscribe(&node, &master, "choosy", &demands).await;
            let agent = state(&master)
                .await
                .agents
                .iter()
                .next()
                .unwrap()
                .id
                .clone();
            let excluded = json!({ "here": [], "there": [agent], "anywhere": [] });
            let choosy = json!({ "suppressed_roles": ["there"], "excluded_by_attribute_constraints": excluded });
            let (status, text) = get(&routes, "").await;
            assert_eq!(status, 200, "{text}");
            let page: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(page["frameworks"][id.as_str()], choosy);
            assert_eq!(page["frameworks"].as_object().map(|all| all.len()), Some(2));
            // By id and by name.
            let alone = json!({ "frameworks": { id.as_str(): choosy } });
            let (status, all) = get(&routes, "?_=1792000000").await;
            assert_eq!((status, serde_json::from_str(&all).ok()), (200, Some(page)));
            for called in [id.as_str(), "choosy"] {
                let (status, text) = get(&routes, &format!("?framework={called}")).await;
                assert_eq!(status, 200, "{text}");
                assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), alone);
            }
            for (query, words) in [
                ("?framework=nobody", "framework is `nobody`"),
                ("?framework=", "framework is ``"),
                (
                    "?framework=choosy&framework=nobody",
                    "framework is `nobody`",
                ),
                ("?framework=web%ff", "framework is `web\u{fffd}`"),
            ] {
                let (status, text) = get(&routes, query).await;
                assert!(
                    status == 400 && text.contains(words),
                    "{query}: {status} {text}"
                );
                assert!(text.contains("expected"), "{query}: {text}");
            }
        });
    }

    /// SPEC 2.4: bounded, with omissions counted.
    // Covers 2.4 Offer constraints.
    #[test]
    fn answer_lists_bounded_agents_and_counts_the_rest() {
        simulate(|node| async move {
            let master = master(&node).await;
            let elsewhere = [("here", "host-8"), ("there", "host-9")];
            for name in ["first", "second", "third"] {
                subscribe(&node, &master, name, &elsewhere).await;
            }
            let state = state(&master).await;
            let agent = state.agents.iter().next().unwrap().id.clone();
            let check =
                |named: usize, looks: usize, expected: &[Value], left_out: Option<usize>| {
                    let visible = VisibleState::of(&state);
                    let wanted = visible.frameworks().filter(|one| one.info.name != "web");
                    let all = Excluded::of(
                        visible,
                        wanted.map(Arc::as_ref),
                        &mut Budget::new(named, looks),
                    );
                    let all = serde_json::to_value(&all).unwrap();
                    let found: Vec<&Value> =
                        all["frameworks"].as_object().unwrap().values().collect();
                    assert_eq!(
                        found,
                        expected.iter().collect::<Vec<_>>(),
                        "{named} {looks}"
                    );
                    assert_eq!(
                        all.get("frameworks_left_out"),
                        left_out.map(|count| json!(count)).as_ref()
                    );
                };
            let of = |here: &[&AgentId], there: &[&AgentId]| {
                json!({
                    "suppressed_roles": ["there"],
                    "excluded_by_attribute_constraints": { "here": here, "there": there, "anywhere": [] },
                })
            };
            let whole = of(&[&agent], &[&agent]);
            let mut half = of(&[&agent], &[]);
            half["agents_left_out"] = json!({ "there": 1 });
            let all = [whole.clone(), whole.clone(), whole.clone()];
            check(6, 100, &all, None);
            check(3, 100, &[whole.clone(), half], Some(1));
            check(2, 100, &all[..1], Some(2));
            check(100, 3, &all[..2], Some(1));
        });
    }
}
