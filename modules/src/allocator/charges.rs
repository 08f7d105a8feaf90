//! Idle reservations that count for the share of their role, presented to the sorter as allocations
//! of an inactive client.
//!
//! Keeps the idle amount of each role and the amount that the sorter assumes; the next slate
//! carries the difference. A role without idle reservations is dropped.

use std::collections::{BTreeMap, BTreeSet};

use module_api::sorter::{Change, Client, Pool};
use protocol::FrameworkId;
use resources::{Quantities, Role};

/// Framework id of the placeholder client. Names only break ties between active clients.
const HOLDER: &str = "what-is-reserved-and-idle";

/// Idle reservations by role.
#[derive(Clone, Debug, Default)]
pub struct IdleReservationCharges {
    by_role: BTreeMap<Role, RoleCharge>,
    changed: BTreeSet<Role>,
}

#[derive(Clone, Debug)]
struct RoleCharge {
    /// Its number among the clients.
    client: Client,
    idle: Quantities,
    /// The amount that the sorter assumes; `None` if it does not know the placeholder.
    assumed: Option<Quantities>,
}

impl IdleReservationCharges {
    /// The idle amount of each role, with the number of its placeholder.
    pub fn iter(&self) -> impl Iterator<Item = (Client, &Role, &Quantities)> {
        let all = self.by_role.iter();
        all.map(|(role, one)| (one.client, role, &one.idle))
    }

    /// Adjusts the idle amount of a role; a new role gets a placeholder `number`.
    pub fn change(
        &mut self,
        role: &Role,
        more: &Quantities,
        less: &Quantities,
        number: impl FnOnce() -> Client,
    ) {
        let charge = self
            .by_role
            .entry(role.clone())
            .or_insert_with(|| RoleCharge {
                client: number(),
                idle: Quantities::new(),
                assumed: None,
            });
        charge.idle += more;
        charge.idle -= less;
        self.changed.insert(role.clone());
    }

    /// Appends the changes that the sorter needs. Returns the numbers that are free again.
    pub fn push_changes(&mut self, changes: &mut Vec<Change>) -> Vec<Client> {
        let mut unused = Vec::new();
        for role in std::mem::take(&mut self.changed) {
            let Some(charge) = self.by_role.get_mut(&role) else {
                continue;
            };
            let client = charge.client;
            if charge.idle.is_empty() {
                changes.extend(charge.assumed.take().map(|_| Change::Left { client }));
                unused.push(client);
                self.by_role.remove(&role);
                continue;
            }
            charge.push_changes(&role, changes);
        }
        unused
    }

    /// Records that the sorter advised to give `less` of this role's reservations and assumes that
    /// they are in use.
    pub fn assume(&mut self, role: &Role, less: &Quantities) {
        let assumed = self.by_role.get_mut(role);
        if let Some(assumed) = assumed.and_then(|charge| charge.assumed.as_mut()) {
            *assumed = assumed.saturating_sub(less);
            self.changed.insert(role.clone());
        }
    }

    /// The sorter has lost its state.
    pub fn forget_sorter_view(&mut self) {
        self.by_role.values_mut().for_each(|one| one.assumed = None);
        self.changed.extend(self.by_role.keys().cloned());
    }
}

impl RoleCharge {
    fn push_changes(&mut self, role: &Role, changes: &mut Vec<Change>) {
        let (client, pool) = (self.client, Pool::Regular);
        if self.assumed.is_none()
            && let Ok(framework) = FrameworkId::new(HOLDER)
        {
            let role = role.clone();
            changes.push(Change::Joined {
                client,
                role,
                framework,
            });
            changes.push(Change::Idle { client });
        }
        let before = self.assumed.replace(self.idle.clone()).unwrap_or_default();
        let (more, less) = (
            self.idle.saturating_sub(&before),
            before.saturating_sub(&self.idle),
        );
        if !less.is_empty() {
            let amount = less;
            changes.push(Change::Freed {
                pool,
                client,
                amount,
            });
        }
        if !more.is_empty() {
            let amount = more;
            changes.push(Change::Allocated {
                pool,
                client,
                amount,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(amount: u32) -> Quantities {
        Quantities::parse(&format!("cpus:{amount}")).unwrap()
    }

    fn changes_of(charges: &mut IdleReservationCharges) -> (Vec<Change>, Vec<Client>) {
        let mut changes = Vec::new();
        let unused = charges.push_changes(&mut changes);
        (changes, unused)
    }

    #[test]
    fn slate_carries_changed_idle_reservations() {
        let (mut charges, role, none) = (
            IdleReservationCharges::default(),
            Role::new("a").unwrap(),
            cpus(0),
        );
        let (client, pool) = (7, Pool::Regular);
        charges.change(&role, &cpus(4), &none, || client);
        let (changes, unused) = changes_of(&mut charges);
        assert!(matches!(
            changes[..],
            [
                Change::Joined { client: 7, .. },
                Change::Idle { client: 7 },
                Change::Allocated { client: 7, .. }
            ]
        ));
        assert!(unused.is_empty());
        charges.change(&role, &cpus(1), &cpus(4), || 8);
        let amount = cpus(3);
        let freed = Change::Freed {
            pool,
            client,
            amount,
        };
        assert_eq!(changes_of(&mut charges), (vec![freed], vec![]));
        assert_eq!(changes_of(&mut charges), (vec![], vec![]));
        charges.forget_sorter_view();
        let (changes, _) = changes_of(&mut charges);
        assert_eq!(changes.len(), 3, "joined, and idle are 1: {changes:?}");
        charges.change(&role, &cpus(2), &none, || 8);
        assert_eq!(changes_of(&mut charges).0.len(), 1, "idle are 3");
        // The sorter assumed 2 in use; only 1 was granted, so the next slate corrects the other.
        charges.assume(&role, &cpus(2));
        charges.change(&role, &none, &cpus(1), || 8);
        let amount = cpus(1);
        let held = Change::Allocated {
            pool,
            client,
            amount,
        };
        assert_eq!(changes_of(&mut charges), (vec![held], vec![]));
        charges.assume(&role, &cpus(1));
        charges.change(&role, &none, &cpus(1), || 8);
        assert_eq!(changes_of(&mut charges), (vec![], vec![]), "it was right");
        charges.change(&role, &none, &cpus(1), || 8);
        let (left, unused) = changes_of(&mut charges);
        assert_eq!((left, unused), (vec![Change::Left { client }], vec![7]));
        assert_eq!(charges.iter().count(), 0);
    }

    #[test]
    fn transient_idle_reservations_are_not_reported() {
        let (mut charges, role, none) = (
            IdleReservationCharges::default(),
            Role::new("a").unwrap(),
            cpus(0),
        );
        charges.change(&role, &cpus(4), &none, || 7);
        charges.change(&role, &none, &cpus(4), || 8);
        assert_eq!(changes_of(&mut charges), (vec![], vec![7]));
    }
}
