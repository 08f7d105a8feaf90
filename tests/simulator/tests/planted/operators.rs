//! Bugs in what follows from what operators want: quotas, and machines that are away; and in who leads a framework.

use std::time::Duration;

use protocol::message::scheduler::{OffersMade, SubscriptionRefused, TasksRevoked};
use protocol::message::standby::{Standing, YouLead};
use resources::{Resources, Role};
use simulator::checkers::{Maintenance, Quotas, Revocations, Standbys};
use simulator::{Fault, Forged, Meddling, Scenario};

use super::{calm, check};

fn under(fault: &str) -> Scenario {
    let fault: Fault = fault.parse().unwrap();
    Scenario {
        faults: Some(vec![fault]),
        ..calm()
    }
}

/// Quotas come and go, and some guarantees are so large that others have to make room.
fn rationed() -> Scenario {
    Scenario {
        duration: Duration::from_secs(320),
        ..under("20secs+300secs ration master")
    }
}

/// Offers have more than their roles may have.
#[test]
fn an_offer_beyond_a_limit_is_found() {
    check(&rationed(), Quotas::default(), "is limited to", |spoken| {
        let Some(made) = spoken.is::<OffersMade>() else {
            return Meddling::Pass;
        };
        let mut more = made.clone();
        for offer in &mut more.offers {
            let role = Role::new(&offer.role).unwrap();
            offer.resources += &Resources::parse("cpus:100").unwrap().allocate(&role);
        }
        Meddling::Instead(Forged::new(more))
    });
}

/// Frameworks never hear that their tasks must go.
#[test]
fn a_task_that_is_killed_without_a_warning_is_found() {
    let words = "was not warned";
    check(
        &rationed(),
        Revocations::default(),
        words,
        |spoken| match spoken.is::<TasksRevoked>() {
            Some(_) => Meddling::Drop,
            None => Meddling::Pass,
        },
    );
}

/// What is offered of other agents is on the machine that is away.
#[test]
fn an_offer_of_a_machine_that_is_away_is_found() {
    let scenario = under("30secs+60secs maintain agent-2");
    check(&scenario, Maintenance::default(), "is away", |spoken| {
        let Some(made) = spoken.is::<OffersMade>() else {
            return Meddling::Pass;
        };
        let mut there = made.clone();
        for offer in &mut there.offers {
            "agent-2".clone_into(&mut offer.hostname);
        }
        Meddling::Instead(Forged::new(there))
    });
}

/// A scheduler of another framework is told to lead one that has its leader.
#[test]
fn a_second_scheduler_that_is_told_to_lead_is_found() {
    let mut leads = None;
    let words = "but the registry has appointed";
    check(&calm(), Standbys::default(), words, move |spoken| {
        if spoken.reply {
            let standing = spoken.is::<Result<Standing, SubscriptionRefused>>();
            if let Some(Ok(Standing::Leads(subscribed))) = standing {
                leads = Some(subscribed.clone());
            }
            return Meddling::Pass;
        }
        match (&leads, spoken.is::<OffersMade>()) {
            (Some(subscribed), Some(_)) if spoken.to == "framework-2" => {
                let subscribed = subscribed.clone();
                Meddling::Also(Forged::new(YouLead { subscribed }))
            }
            _ => Meddling::Pass,
        }
    });
}
