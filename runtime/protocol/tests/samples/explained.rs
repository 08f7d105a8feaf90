//! A sample of an explanation.

use std::collections::BTreeMap;
use std::time::Duration;

use meros_protocol as protocol;
use protocol::Capability;
use protocol::view::explain::{
    Example, Explanation, NoOfferReason, OfferBlocker, OffersExplained, ReasonCount,
    ResourceHolder, RoleExplanation, UnmetConstraint,
};
use resources::Quantities;

use super::id;

/// With every reason and everything that may keep a framework from every agent.
pub fn explained() -> OffersExplained {
    let some = |text: &str| Quantities::parse(text).unwrap();
    let roles = vec!["ads".to_owned()];
    let reasons = [
        NoOfferReason::AgentInactive,
        NoOfferReason::NotListed,
        NoOfferReason::Capability(Capability::GpuResources),
        NoOfferReason::Constraint {
            unmet: vec![UnmetConstraint {
                constraint: "attribute rack is `r1`".to_owned(),
                has: Some("r7".to_owned()),
            }],
            more: 300,
        },
        NoOfferReason::Own {
            held: some("cpus:1"),
        },
        NoOfferReason::WentFirst {
            free: some("mem:1"),
            holders: vec![ResourceHolder {
                framework_id: id("m-0001"),
                role: "eng".to_owned(),
                held: some("cpus:4"),
                share: 0.125,
                against: 0.5,
            }],
            more: 2,
        },
        NoOfferReason::Reserved {
            roles: roles.clone(),
        },
        NoOfferReason::BelowMinimum {
            portion: some("mem:16"),
            minimum: vec![some("cpus:0.01"), some("mem:32")],
        },
        NoOfferReason::QuotaLimit {
            role: "eng".to_owned(),
            left: some("cpus:0.5"),
        },
        NoOfferReason::Headroom {
            roles,
            required: some("cpus:8"),
            free: some("cpus:7"),
        },
        NoOfferReason::Filtered {
            offer: some("cpus:1"),
            left: Duration::from_millis(4_231),
        },
        NoOfferReason::Open,
        NoOfferReason::RoomMade {
            role: "eng".to_owned(),
        },
    ];
    let tally = |reason| ReasonCount {
        revocable: false,
        agents: 300,
        examples: vec![Example {
            agent_id: id("m-S1"),
            hostname: "foobar".to_owned(),
            reason,
        }],
    };
    let spent = OfferBlocker::BudgetSpent { most: 7 };
    let paused = OfferBlocker::Paused {
        agents: 1,
        awaited: 300,
        left: Duration::from_secs(7),
    };
    let role = RoleExplanation {
        role: "eng/web".to_owned(),
        share: 0.25,
        role_share: 0.5,
        standing: vec![
            paused,
            OfferBlocker::Inactive,
            OfferBlocker::Suppressed,
            spent,
        ],
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
