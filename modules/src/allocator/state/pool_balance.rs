//! The resources of one agent in one pool: total, allocations and free resources.
//!
//! The free resources are cached, and recomputed only when they cannot be updated by a sum.

use module_api::sorter::Client;
use resources::{Quantities, Resource, Resources};

use super::shared::add_held;
use crate::allocator::by_client::ByClient;

/// One pool of one agent.
#[derive(Clone, Debug, Default)]
pub struct PoolBalance {
    /// The total.
    pub total: Resources,
    /// Allocations by client, offered or launched. May exceed the total after the agent has shrunk.
    pub holders: ByClient<Resources>,
    /// The free resources; computed on first use.
    available: Option<Resources>,
    /// Whether allocations exceed the total, so that freed resources are not simply available
    /// again.
    over: bool,
    /// If there are shared volumes, the copies granted in this run. A volume stays available while
    /// in use, but each run grants one copy only.
    given: Option<Box<Resources>>,
}

impl PoolBalance {
    pub(super) fn of(total: Resources) -> Self {
        let mut balance = Self::default();
        balance.set_total(total);
        balance
    }

    /// All allocations.
    pub fn held(&self) -> Resources {
        self.holders.iter().map(|(_, held)| held).sum()
    }

    /// The resources that can be granted.
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

    /// Whether this run has granted copies of shared volumes.
    pub(super) fn is_sharing(&self) -> bool {
        self.given.as_ref().is_some_and(|given| !given.is_empty())
    }

    /// Begins a run: one copy of each shared volume can be granted again.
    pub(super) fn begin_run(&mut self) {
        if let Some(given) = self.given.as_mut().filter(|given| !given.is_empty()) {
            **given = Resources::new();
            self.available = None;
        }
    }

    /// Grants `part`, or all available resources. Returns the growth of the client's allocation,
    /// and whether it had none before.
    pub(super) fn grant(
        &mut self,
        client: Client,
        part: Option<Resources>,
        amount: Quantities,
    ) -> (Quantities, bool) {
        let available = self.available.get_or_insert_default();
        let granted = match part {
            Some(part) => {
                // Moves only the granted part.
                available.saturating_sub_assign(&part);
                part
            }
            None => std::mem::take(available),
        };
        if let Some(given) = &mut self.given {
            **given += granted.shared();
        }
        self.book(client, granted, amount)
    }

    /// Records an allocation, whether or not the resources are available. Returns the same.
    pub(super) fn hold(&mut self, client: Client, held: Resources) -> (Quantities, bool) {
        self.available = None;
        let amount = held.quantities();
        self.book(client, held, amount)
    }

    fn book(&mut self, client: Client, held: Resources, amount: Quantities) -> (Quantities, bool) {
        let (holding, first) = self.holders.admit(client, Resources::new);
        (add_held(holding, held, amount), first)
    }

    /// Frees resources, which must have been allocated.
    pub(super) fn free(&mut self, freed: &Resources) {
        match &mut self.available {
            Some(available) if !self.over && self.given.is_none() => *available += freed,
            _ => self.available = None,
        }
    }

    /// Sets the total.
    pub(super) fn set_total(&mut self, total: Resources) {
        let sharing = total.iter().any(Resource::is_shared);
        let given = self.given.take().unwrap_or_default();
        self.given = sharing.then_some(given);
        self.total = total;
        self.available = None;
    }
}

/// The part of `free` that remains after `held` is deducted by amount, ignoring reservations and
/// volumes. If an agent could not apply an operation, or returned with other reservations,
/// resources may be in use under another form, and must not be granted twice.
fn beside(free: &Resources, total: &Resources, held: &Resources) -> Resources {
    let bare = |some: &Resources| some.without_operations().to_unreserved();
    let mut left = bare(total).saturating_sub(&bare(held));
    free.filter(|own| left.subtract(&bare(&own.clone().into())).is_ok())
}

#[cfg(test)]
mod tests {
    use resources::{Reservation, Role};

    use super::*;

    /// The free resources of four cores, one of them reserved by an operation, and of eight ports.
    fn free_beside(held: &str) -> String {
        let parsed = |text: &str| Resources::parse(text).unwrap();
        let operated = Reservation::dynamic(Role::new("ads").unwrap(), None);
        let reserved = parsed("cpus:1").push_reservation(&operated).unwrap();
        let mut balance = PoolBalance::of(parsed("cpus:3;ports:[1-8]") + &reserved);
        balance.hold(Client::default(), parsed(held));
        let free = balance.available();
        format!("{};{}", free.cpus(), free.ports())
    }

    /// After a failed unreserve, the resources were briefly offered to all roles, so tasks may use
    /// them.
    #[test]
    fn resources_in_use_are_not_free_in_another_form() {
        assert_eq!(free_beside("cpus:3;ports:[1-2]"), "1;[3-8]");
        assert_eq!(free_beside("cpus:3.6;ports:[1-2]"), "0;[3-8]");
        assert_eq!(free_beside("cpus:5"), "0;[1-8]");
        assert_eq!(
            free_beside("cpus(web):3;ports:[1-9]"),
            "1;[]",
            "configured before"
        );
    }
}
