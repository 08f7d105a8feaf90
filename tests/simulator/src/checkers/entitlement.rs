//! Entitlement (invariant 3): revocable resources are offered only to frameworks that asked for them, and reserved ones only to the
//! role they are reserved for.
//!
//! Judged at each offer that a master makes, by what the framework said of itself when that master last subscribed it: an offer
//! is for a role that the framework has, bears nothing revocable without `REVOCABLE_RESOURCES`, nothing that is reserved for
//! another role, and never both kinds at once. Sound, because all of that is the master's own order: it subscribes and offers in
//! the same actor. Lent reservations (allocation slack) come with the operations that make them.

use std::time::Duration;

use protocol::message::scheduler::OffersMade;
use protocol::{Capability, FrameworkInfo, Offer};
use resources::{Resource, Role};

use super::broken;
use super::census::Frameworks;
use crate::checker::{Checker, Violation};
use crate::event::{Event, What};

const NAME: &str = "entitlement";

/// The checker.
#[derive(Default)]
pub struct Entitlement {
    frameworks: Frameworks,
    judgements: u64,
}

/// What is wrong with this offer to a framework that says this of itself.
fn wrong(offer: &Offer, to: &FrameworkInfo) -> Option<String> {
    let Offer { id, role, .. } = offer;
    if !to.roles.contains(role) {
        return Some(format!(
            "offer {id} is for role `{role}`, but the framework has {:?}",
            to.roles
        ));
    }
    let revocable = offer.resources.iter().filter(|one| one.is_revocable());
    let revocable: Vec<&Resource> = revocable.collect();
    if let Some(one) = revocable.first() {
        if !to.can(Capability::RevocableResources) {
            return Some(format!(
                "offer {id} bears {one}, but the framework has not asked for revocable resources"
            ));
        }
        if revocable.len() < offer.resources.len() {
            return Some(format!("offer {id} mixes revocable and regular resources"));
        }
    }
    let role = Role::new(role).ok()?;
    let foreign = offer.resources.iter();
    let foreign = foreign.filter(|one| one.is_reserved() && !one.is_allocatable_to(&role));
    foreign
        .map(|one| format!("offer {id} for role `{role}` bears {one}"))
        .next()
}

impl Entitlement {
    fn judge(&mut self, made: &OffersMade, node: &str, at: Duration) -> Result<(), Violation> {
        for offer in &made.offers {
            let newest = self.frameworks.get(&offer.framework_id);
            let newest = newest.map(|newest| &newest.info);
            // A subscription that is just being answered may count already.
            let said = newest.into_iter().chain(self.frameworks.asking(node));
            let mut verdicts = said.map(|info| wrong(offer, info)).peekable();
            if verdicts.peek().is_none() {
                continue;
            }
            self.judgements += 1;
            if let Ok(wrongs) = verdicts
                .map(|wrong| wrong.ok_or(()))
                .collect::<Result<Vec<_>, _>>()
            {
                let what = wrongs.join("; ");
                return broken(NAME, at, format!("{}: {what}", offer.framework_id));
            }
        }
        Ok(())
    }
}

impl Checker for Entitlement {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        self.frameworks.see(event);
        match event.what {
            What::Said(spoken) => match spoken.is::<OffersMade>() {
                Some(made) => self.judge(made, spoken.to, event.at),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn judgements(&self) -> u64 {
        self.judgements
    }
}

#[cfg(test)]
mod tests {
    use super::super::stage::{Stage, offer, resources};
    use super::*;
    use protocol::FrameworkInfo;
    use resources::{Resources, Revocable};

    fn offered(info: FrameworkInfo, role: &str, what: Resources) -> Stage<Entitlement> {
        let mut stage = Stage::new(Entitlement::default(), "cpus:4");
        let mut offer = offer("o", "f", &what);
        offer.role = role.to_owned();
        stage
            .subscribe("framework-1", info)
            .offers("framework-1", &[offer]);
        stage
    }

    fn lent(text: &str) -> Resources {
        resources(text)
            .to_revocable(Revocable::Throttleable)
            .unwrap()
    }

    fn of_role(role: &str) -> FrameworkInfo {
        let mut info = FrameworkInfo::new("user", "f");
        info.roles = [role.to_owned()].into();
        info
    }

    #[test]
    fn revocable_resources_are_for_those_who_asked_and_come_alone() {
        let mut info = FrameworkInfo::new("user", "f");
        offered(info.clone(), "*", lent("cpus:1")).is_broken("has not asked");
        info.capabilities.insert(Capability::RevocableResources);
        offered(info.clone(), "*", lent("cpus:1")).is_clean();
        offered(info, "*", lent("cpus:1") + resources("mem:1")).is_broken("mixes");
    }

    #[test]
    fn a_reserved_resource_is_for_its_role() {
        offered(of_role("ads"), "ads", resources("cpus(ads):1")).is_clean();
        offered(of_role("web"), "web", resources("cpus(ads):1")).is_broken("cpus(");
    }

    #[test]
    fn an_offer_is_for_a_role_that_the_framework_has() {
        offered(of_role("web"), "ads", resources("cpus:1")).is_broken("`ads`");
    }
}
