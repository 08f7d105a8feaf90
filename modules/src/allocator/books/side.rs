//! One pool of one agent: all there is, who holds what of it, and what is free.
//!
//! Pure, like all of the books. What is free is remembered, and worked out anew only where a sum would not do.

use module_api::sorter::Client;
use resources::{Quantities, Resource, Resources};

use super::shared::add_held;
use crate::allocator::by_client::ByClient;

/// One pool of one agent.
#[derive(Clone, Debug, Default)]
pub struct Side {
    /// All there is.
    pub total: Resources,
    /// Who holds what, offered or launched. May exceed the total when the agent has shrunk.
    pub holders: ByClient<Resources>,
    /// What nobody holds; computed when it is first needed.
    available: Option<Resources>,
    /// Whether more is held than there is, so that what is freed is not simply available again.
    over: bool,
    /// Where there are shared volumes, the copies that were given since the run before this one: volumes stay available whoever uses them,
    /// but each run gives one copy only (SPEC 4.5).
    given: Option<Box<Resources>>,
}

impl Side {
    pub(super) fn of(total: Resources) -> Self {
        let mut side = Self::default();
        side.set_total(total);
        side
    }

    /// What is offered or launched.
    pub fn held(&self) -> Resources {
        self.holders.iter().map(|(_, held)| held).sum()
    }

    /// What may be granted.
    pub fn available(&mut self) -> &Resources {
        if self.available.is_none() {
            let held = self.held();
            let free = match &self.given {
                None => {
                    self.over = !self.total.contains(&held);
                    self.total.saturating_sub(&held)
                }
                Some(given) => {
                    let held = held.non_shared();
                    self.over = !self.total.contains(&held);
                    self.total.saturating_sub(&held).saturating_sub(given)
                }
            };
            self.available = Some(match self.over {
                true => beside(&free, &self.total, &held),
                false => free,
            });
        }
        self.available.get_or_insert_default()
    }

    /// Whether copies of shared volumes were given since the run before this one.
    pub(super) fn is_sharing(&self) -> bool {
        self.given.as_ref().is_some_and(|given| !given.is_empty())
    }

    /// A run begins: of each shared volume there is a copy to give again.
    pub(super) fn begin_run(&mut self) {
        if let Some(given) = self.given.as_mut().filter(|given| !given.is_empty()) {
            **given = Resources::new();
            self.available = None;
        }
    }

    /// All that is available or, if it is not all, this part of it is granted, and the rest remains available. Says by how much what the
    /// client holds has grown, and whether it held nothing before.
    pub(super) fn grant(
        &mut self,
        client: Client,
        part: Option<Resources>,
        amount: Quantities,
    ) -> (Quantities, bool) {
        let available = self.available.get_or_insert_default();
        let granted = match part {
            Some(part) => {
                // Of very much only what goes is moved.
                available.subtract_what_is_there(&part);
                part
            }
            None => std::mem::take(available),
        };
        if let Some(given) = &mut self.given {
            **given += granted.shared();
        }
        self.book(client, granted, amount)
    }

    /// The client holds this, whether or not it was available. Says the same.
    pub(super) fn hold(&mut self, client: Client, held: Resources) -> (Quantities, bool) {
        self.available = None;
        let amount = held.quantities();
        self.book(client, held, amount)
    }

    fn book(&mut self, client: Client, held: Resources, amount: Quantities) -> (Quantities, bool) {
        let (holding, first) = self.holders.admit(client, Resources::new);
        (add_held(holding, held, amount), first)
    }

    /// This is held by nobody any more. It must have been held.
    pub(super) fn free(&mut self, freed: &Resources) {
        match &mut self.available {
            Some(available) if !self.over && self.given.is_none() => *available += freed,
            _ => self.available = None,
        }
    }

    /// There is this much now.
    pub(super) fn set_total(&mut self, total: Resources) {
        let sharing = total.iter().any(Resource::is_shared);
        let given = self.given.take().unwrap_or_default();
        self.given = sharing.then_some(given);
        self.total = total;
        self.available = None;
    }
}

/// Of what is free, what there is beside what is held if it is not asked what anything is called: an agent that could not do an operation has what
/// others use by now under another name, and it must not be used twice.
fn beside(free: &Resources, total: &Resources, held: &Resources) -> Resources {
    let held = held.before_operations();
    let mut left = total.before_operations().saturating_sub(&held);
    free.filter(|own| {
        let bare = Resources::from(own.clone()).before_operations();
        left.subtract(&bare).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use resources::{Reservation, Role};

    use super::*;

    /// What is free of four cores one of which is reserved by an operation, and of eight ports.
    fn free_beside(held: &str) -> String {
        let parsed = |text: &str| Resources::parse(text).unwrap();
        let operated = Reservation::dynamic(Role::new("ads").unwrap(), None);
        let reserved = parsed("cpus:1").push_reservation(&operated).unwrap();
        let mut side = Side::of(parsed("cpus:3;ports:[1-8]") + &reserved);
        side.hold(Client::default(), parsed(held));
        let free = side.available();
        format!("{};{}", free.cpus(), free.ports())
    }

    /// DESIGN 10.2: what an agent could not unreserve was on offer to everybody for a moment, and tasks may run on it.
    #[test]
    fn what_is_used_under_one_name_is_not_free_under_another() {
        assert_eq!(free_beside("cpus:3;ports:[1-2]"), "1;[3-8]");
        assert_eq!(free_beside("cpus:3.6;ports:[1-2]"), "0;[3-8]");
        assert_eq!(free_beside("cpus:5"), "0;[1-8]");
    }
}
