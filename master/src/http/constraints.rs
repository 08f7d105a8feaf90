//! `/allocator/offer_constraints_debug`: which agents each framework's offer constraints keep from it, by role, in Mesos' form (SPEC 2.4).
//!
//! Pure, and asks the same tests as the allocator. Of a role that demands nothing of agents no agent is excluded. Why else there is no offer
//! `/explain` says.

use std::collections::BTreeMap;
use std::sync::Arc;

use module_api::demand::{AgentTest, Looks};
use protocol::{AgentId, FrameworkId};
use serde::Serialize;

use super::shown::Shown;
use crate::agents::Agent;
use crate::frameworks::Framework;

/// What is excluded for all frameworks that are seen.
#[derive(Serialize)]
pub(super) struct Excluded<'a> {
    frameworks: BTreeMap<&'a FrameworkId, OfFramework<'a>>,
}

#[derive(Serialize)]
struct OfFramework<'a> {
    suppressed_roles: Vec<&'a str>,
    excluded_by_attribute_constraints: BTreeMap<&'a str, Vec<&'a AgentId>>,
}

impl<'a> Excluded<'a> {
    /// What these books say.
    pub fn of(shown: Shown<'a>) -> Self {
        let frameworks = shown.books.frameworks.iter();
        let of = |framework: &'a Arc<Framework>| {
            let roles = framework.info.roles.iter();
            let excluded = roles.map(|role| (role.as_str(), excluded(shown, framework, role)));
            let suppressed = framework.wants.suppressed_roles.iter();
            let of = OfFramework {
                suppressed_roles: suppressed.map(String::as_str).collect(),
                excluded_by_attribute_constraints: excluded.collect(),
            };
            (&framework.id, of)
        };
        Self {
            frameworks: frameworks.map(of).collect(),
        }
    }
}

fn excluded<'a>(shown: Shown<'a>, framework: &'a Framework, role: &str) -> Vec<&'a AgentId> {
    // The master has let in nothing that cannot be understood.
    let demand = framework.wants.demands.get(role);
    let test = demand.and_then(|demand| AgentTest::new(role, demand).ok());
    let Some(test) = test.filter(|test| !test.is_open()) else {
        return Vec::new();
    };
    let is_excluded = |agent: &Agent| {
        !test.passes(Looks {
            hostname: &agent.info.hostname,
            attributes: &agent.info.attributes,
            domain: agent.info.domain.as_ref(),
        })
    };
    let agents = shown.books.agents.iter();
    let excluded = agents.filter(|agent| is_excluded(agent));
    excluded.map(|agent| &agent.id).collect()
}

#[cfg(test)]
mod tests {
    use ::http::api::Streams;
    use ::http::rehearsal::{request, said};
    use protocol::message::scheduler::Subscribe;
    use protocol::{Capability, Demand, FrameworkInfo, Wants};
    use runtime::rehearsal::rehearse;
    use serde_json::{Value, json};

    use super::super::tests::{master, pages};
    use super::super::{PATIENCE, routes};
    use crate::config::Config;
    use crate::master::TakeSnapshot;

    /// SPEC 2.4.
    #[test]
    fn agents_that_constraints_exclude_are_listed_by_framework_and_role() {
        rehearse(|node| async move {
            let master = master(&node).await;
            let pages = pages(&node, &master);
            let streams = Streams::new(&node);
            let (front, events) = (&pages.front, &pages.events);
            let config = Config::default();
            let routes = routes(
                front,
                &node,
                &config,
                pages.counters.clone(),
                events,
                &streams,
            );
            let mut framework = FrameworkInfo::new("nobody", "choosy");
            framework.capabilities.insert(Capability::MultiRole);
            framework.roles = ["here", "there", "anywhere"].map(str::to_owned).into();
            let demand = |role: &str, host: &str| (role.to_owned(), Demand::on_hosts([host]));
            let wants = Wants {
                suppressed_roles: ["there".to_owned()].into(),
                demands: [demand("here", "Host-1"), demand("there", "host-9")].into(),
            };
            let books = master.ask(TakeSnapshot, PATIENCE).await.unwrap();
            let agent = books.agents.iter().next().unwrap();
            let subscribe = Subscribe {
                framework,
                scheduler: agent.pid.clone(),
                wants,
            };
            let subscribed = master.ask(subscribe, PATIENCE).await.unwrap().unwrap();
            let path = "/allocator/offer_constraints_debug";
            let (status, text) = said(&routes, request("GET", path, "", "")).await;
            assert_eq!(status, 200, "{text}");
            let page: Value = serde_json::from_str(&text).unwrap();
            let found = &page["frameworks"][subscribed.framework_id.as_str()];
            let excluded = json!({ "here": [], "there": [agent.id], "anywhere": [] });
            assert_eq!(
                *found,
                json!({ "suppressed_roles": ["there"], "excluded_by_attribute_constraints": excluded })
            );
        });
    }
}
