//! Charges: what is reserved for a role and idle, told to the sorter as if a client held it that never takes part (SPEC 4.8, W24).
//!
//! Pure. Remembers by role what is idle and what the sorter believes of it, so that the next slate tells the difference, as it does of clients. A
//! role without anything idle is forgotten. How much is idle is for the books to say, and to grant to whoever has the reservation.

use std::collections::{BTreeMap, BTreeSet};

use module_api::sorter::{Change, Client, Pool};
use protocol::FrameworkId;
use resources::{Quantities, Role};

/// Whom the sorter takes for the holder: names settle nothing between those who take part.
const HOLDER: &str = "what-is-reserved-and-idle";

/// What is idle by role.
#[derive(Clone, Debug, Default)]
pub struct Charges {
    by_role: BTreeMap<Role, Charge>,
    changed: BTreeSet<Role>,
}

#[derive(Clone, Debug)]
struct Charge {
    /// Its number among the clients.
    client: Client,
    idle: Quantities,
    /// What the sorter believes, if it has heard of it.
    told: Option<Quantities>,
}

impl Charges {
    /// What is idle now by role, each with the number that the sorter knows it by.
    pub fn iter(&self) -> impl Iterator<Item = (Client, &Role, &Quantities)> {
        let all = self.by_role.iter();
        all.map(|(role, one)| (one.client, role, &one.idle))
    }

    /// Of what is reserved for this role so much more is idle, and so much less; a role that is new here is given a `number`.
    pub fn change(
        &mut self,
        role: &Role,
        more: &Quantities,
        less: &Quantities,
        number: impl FnOnce() -> Client,
    ) {
        let charge = self.by_role.entry(role.clone()).or_insert_with(|| Charge {
            client: number(),
            idle: Quantities::new(),
            told: None,
        });
        charge.idle += more;
        charge.idle -= less;
        self.changed.insert(role.clone());
    }

    /// What the sorter must be told so that it believes what is true. Gives the numbers that nobody has any more.
    pub fn tell(&mut self, changes: &mut Vec<Change>) -> Vec<Client> {
        let mut unused = Vec::new();
        for role in std::mem::take(&mut self.changed) {
            let Some(charge) = self.by_role.get_mut(&role) else {
                continue;
            };
            let client = charge.client;
            if charge.idle.is_empty() {
                changes.extend(charge.told.take().map(|_| Change::Left { client }));
                unused.push(client);
                self.by_role.remove(&role);
                continue;
            }
            charge.tell(&role, changes);
        }
        unused
    }

    /// The sorter has advised to give so much of what is reserved for this role, and believes that it is idle no more.
    pub fn presume(&mut self, role: &Role, less: &Quantities) {
        let told = self.by_role.get_mut(role);
        if let Some(told) = told.and_then(|charge| charge.told.as_mut()) {
            *told = told.saturating_sub(less);
            self.changed.insert(role.clone());
        }
    }

    /// The sorter knows nothing any more.
    pub fn forget_told(&mut self) {
        self.by_role.values_mut().for_each(|one| one.told = None);
        self.changed.extend(self.by_role.keys().cloned());
    }
}

impl Charge {
    fn tell(&mut self, role: &Role, changes: &mut Vec<Change>) {
        let (client, pool) = (self.client, Pool::Regular);
        if self.told.is_none()
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
        let before = self.told.replace(self.idle.clone()).unwrap_or_default();
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
            changes.push(Change::Held {
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

    fn told(charges: &mut Charges) -> (Vec<Change>, Vec<Client>) {
        let mut changes = Vec::new();
        let unused = charges.tell(&mut changes);
        (changes, unused)
    }

    #[test]
    fn the_sorter_is_told_what_has_changed_and_a_role_without_anything_idle_leaves() {
        let (mut charges, role, none) = (Charges::default(), Role::new("a").unwrap(), cpus(0));
        let (client, pool) = (7, Pool::Regular);
        charges.change(&role, &cpus(4), &none, || client);
        let (changes, unused) = told(&mut charges);
        assert!(matches!(
            changes[..],
            [
                Change::Joined { client: 7, .. },
                Change::Idle { client: 7 },
                Change::Held { client: 7, .. }
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
        assert_eq!(told(&mut charges), (vec![freed], vec![]));
        assert_eq!(told(&mut charges), (vec![], vec![]));
        charges.forget_told();
        let (changes, _) = told(&mut charges);
        assert_eq!(changes.len(), 3, "joined, and idle are 1: {changes:?}");
        charges.change(&role, &cpus(2), &none, || 8);
        assert_eq!(told(&mut charges).0.len(), 1, "idle are 3");
        // It advised to give 2 of them, of which 1 was given, and corrects itself of that one.
        charges.presume(&role, &cpus(2));
        charges.change(&role, &none, &cpus(1), || 8);
        let amount = cpus(1);
        let held = Change::Held {
            pool,
            client,
            amount,
        };
        assert_eq!(told(&mut charges), (vec![held], vec![]));
        charges.presume(&role, &cpus(1));
        charges.change(&role, &none, &cpus(1), || 8);
        assert_eq!(told(&mut charges), (vec![], vec![]), "it was right");
        charges.change(&role, &none, &cpus(1), || 8);
        let (left, unused) = told(&mut charges);
        assert_eq!((left, unused), (vec![Change::Left { client }], vec![7]));
        assert_eq!(charges.iter().count(), 0);
    }

    #[test]
    fn of_what_came_and_went_between_two_slates_the_sorter_hears_nothing() {
        let (mut charges, role, none) = (Charges::default(), Role::new("a").unwrap(), cpus(0));
        charges.change(&role, &cpus(4), &none, || 7);
        charges.change(&role, &none, &cpus(4), || 8);
        assert_eq!(told(&mut charges), (vec![], vec![7]));
    }
}
