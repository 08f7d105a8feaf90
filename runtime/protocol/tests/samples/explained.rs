//! A sample of an explanation.

use std::collections::BTreeMap;
use std::time::Duration;

use meros_protocol as protocol;
use protocol::Capability;
use protocol::explain::{
    Example, Explanation, Holder, OffersExplained, Reason, RoleExplanation, Standing, Tally, Unmet,
};
use resources::Quantities;

use super::id;

/// With every reason and everything that may keep a framework from every agent.
pub fn explained() -> OffersExplained {
    let some = |text: &str| Quantities::parse(text).unwrap();
    let roles = vec!["ads".to_owned()];
    let reasons = [
        Reason::AgentInactive,
        Reason::NotListed,
        Reason::Capability(Capability::GpuResources),
        Reason::Constraint {
            unmet: vec![Unmet {
                constraint: "attribute rack is `r1`".to_owned(),
                has: Some("r7".to_owned()),
            }],
            more: 300,
        },
        Reason::Own {
            held: some("cpus:1"),
        },
        Reason::WentFirst {
            free: some("mem:1"),
            holders: vec![Holder {
                framework_id: id("m-0001"),
                role: "eng".to_owned(),
                held: some("cpus:4"),
                share: 0.125,
                against: 0.5,
            }],
            more: 2,
        },
        Reason::Reserved {
            roles: roles.clone(),
        },
        Reason::BelowMinimum {
            portion: some("mem:16"),
            minimum: vec![some("cpus:0.01"), some("mem:32")],
        },
        Reason::QuotaLimit {
            role: "eng".to_owned(),
            left: some("cpus:0.5"),
        },
        Reason::Headroom {
            roles,
            required: some("cpus:8"),
            free: some("cpus:7"),
        },
        Reason::Filtered {
            offer: some("cpus:1"),
            left: Duration::from_millis(4_231),
        },
        Reason::Open,
        Reason::RoomMade {
            role: "eng".to_owned(),
        },
    ];
    let tally = |reason| Tally {
        revocable: false,
        agents: 300,
        examples: vec![Example {
            agent_id: id("m-S1"),
            hostname: "foobar".to_owned(),
            reason,
        }],
    };
    let spent = Standing::BudgetSpent { most: 7 };
    let paused = Standing::Paused {
        agents: 1,
        awaited: 300,
        left: Duration::from_secs(7),
    };
    let role = RoleExplanation {
        role: "eng/web".to_owned(),
        share: 0.25,
        role_share: 0.5,
        standing: vec![paused, Standing::Inactive, Standing::Suppressed, spent],
        agents: 3_900,
        reasons: reasons.map(tally).into(),
        untold: 1,
    };
    OffersExplained {
        name: "web".to_owned(),
        explanation: Explanation {
            framework_id: id("m-0000"),
            roles: vec![role],
        },
        unanswered: BTreeMap::from([("eng/web".to_owned(), 2)]),
    }
}
