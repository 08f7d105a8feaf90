//! Planted bugs in quotas, maintenance, and the leadership of a framework.

use std::time::Duration;

use protocol::message::scheduler::{OffersMade, SubscriptionRefused, TasksRevoked};
use protocol::message::standby::{SchedulerElected, StandbyReply};
use resources::{Resources, Role};
use simulator::checkers::{Maintenance, Quotas, Revocations, Standbys};
use simulator::{Fault, Forged, Scenario, Tampering};

use super::{calm, check};

fn under(fault: &str) -> Scenario {
    let fault: Fault = fault.parse().unwrap();
    Scenario {
        faults: Some(vec![fault]),
        ..calm()
    }
}

/// Quotas change, and some guarantees require revocations.
fn rationed() -> Scenario {
    Scenario {
        duration: Duration::from_secs(320),
        ..under("20secs+300secs change_quotas master")
    }
}

/// Offers exceed their roles' limits.
#[test]
fn offer_beyond_a_limit_is_found() {
    check(
        &rationed(),
        Quotas::default(),
        "is limited to",
        |observed| {
            let Some(made) = observed.is::<OffersMade>() else {
                return Tampering::Pass;
            };
            let mut more = made.clone();
            for offer in &mut more.offers {
                let role = Role::new(&offer.role).unwrap();
                offer.resources += &Resources::parse("cpus:100").unwrap().allocate(&role);
            }
            Tampering::Instead(Forged::new(more))
        },
    );
}

/// Frameworks never receive revocation warnings.
#[test]
fn unannounced_revocation_is_found() {
    let words = "was not warned";
    check(
        &rationed(),
        Revocations::default(),
        words,
        |observed| match observed.is::<TasksRevoked>() {
            Some(_) => Tampering::Drop,
            None => Tampering::Pass,
        },
    );
}

/// Offers of other agents are moved to the machine that is down.
#[test]
fn offer_of_a_down_machine_is_found() {
    let scenario = under("30secs+60secs maintain agent-2");
    check(&scenario, Maintenance::default(), "is away", |observed| {
        let Some(made) = observed.is::<OffersMade>() else {
            return Tampering::Pass;
        };
        let mut there = made.clone();
        for offer in &mut there.offers {
            "agent-2".clone_into(&mut offer.hostname);
        }
        Tampering::Instead(Forged::new(there))
    });
}

/// A scheduler of another framework is told to lead one that has its leader.
#[test]
fn second_leading_scheduler_is_found() {
    let mut leads = None;
    let words = "but the registry has appointed";
    check(&calm(), Standbys::default(), words, move |observed| {
        if observed.reply {
            let standing = observed.is::<Result<StandbyReply, SubscriptionRefused>>();
            if let Some(Ok(StandbyReply::Leads(subscribed))) = standing {
                leads = Some(subscribed.clone());
            }
            return Tampering::Pass;
        }
        match (&leads, observed.is::<OffersMade>()) {
            (Some(subscribed), Some(_)) if observed.to == "framework-2" => {
                let subscribed = subscribed.clone();
                Tampering::Also(Forged::new(SchedulerElected { subscribed }))
            }
            _ => Tampering::Pass,
        }
    });
}
