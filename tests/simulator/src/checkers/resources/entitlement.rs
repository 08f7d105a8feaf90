//! Entitlement: revocable resources are offered only to frameworks that asked for them, and
//! reserved ones only to their role.
//!
//! Judged at each offer, by the framework's description when that master last subscribed it. An
//! offer is for a role of the framework, has nothing revocable without `REVOCABLE_RESOURCES`,
//! nothing reserved for another role, and never both kinds. Sound, because the master subscribes
//! and offers in the same actor.

use std::time::Duration;

use protocol::message::scheduler::OffersMade;
use protocol::{Capability, FrameworkInfo, Offer};
use resources::{Resource, Role};

use crate::checkers::broken;
use crate::checkers::checker::{Checker, Violation};
use crate::checkers::masters::membership::Frameworks;
use crate::event::{Event, EventKind};

const NAME: &str = "entitlement";

/// The checker.
#[derive(Default)]
pub struct Entitlement {
    frameworks: Frameworks,
    judgements: u64,
}

/// The problem of this offer to a framework with this description.
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
            // A subscription whose answer is about to be sent may count already.
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
        match event.kind {
            EventKind::Sent(observed) => match observed.is::<OffersMade>() {
                Some(made) => self.judge(made, observed.to, event.at),
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
    use super::*;
    use crate::checkers::fixture::{Fixture, offer, resources};
    use protocol::FrameworkInfo;
    use resources::{Resources, Revocable};

    fn offered(info: FrameworkInfo, role: &str, what: Resources) -> Fixture<Entitlement> {
        let mut fixture = Fixture::new(Entitlement::default(), "cpus:4");
        let mut offer = offer("o", "f", &what);
        offer.role = role.to_owned();
        fixture
            .subscribe("framework-1", info)
            .offers("framework-1", &[offer]);
        fixture
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
    fn revocable_offers_need_the_capability() {
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
    fn offer_is_for_a_role_of_the_framework() {
        offered(of_role("web"), "ads", resources("cpus:1")).is_broken("`ads`");
    }
}
