//! Current dominant shares, shown along with a reason. Some sorters decide by other criteria.

use std::collections::BTreeMap;

use module_api::sorter::{Client, Pool};
use resources::{Quantities, Role};

use crate::allocator::clients::{ClientRecord, Clients};
use crate::allocator::state::AllocatorState;

/// Allocations of each role in one pool, with total and weights.
pub struct Shares {
    pool: Pool,
    total: Quantities,
    weights: BTreeMap<Role, f64>,
    /// Including the roles below.
    held: BTreeMap<Role, Quantities>,
    /// Amounts that count for shares: includes idle reservations where they are charged, and the
    /// roles below.
    roles: BTreeMap<Role, Quantities>,
    /// The same without the roles below.
    records: BTreeMap<Role, Quantities>,
}

impl Shares {
    /// From the current state.
    pub fn of(state: &AllocatorState, pool: Pool) -> Self {
        let mut shares = Self {
            pool,
            total: state.total(pool).clone(),
            weights: state.weights.clone(),
            held: BTreeMap::new(),
            roles: BTreeMap::new(),
            records: BTreeMap::new(),
        };
        for (_, record) in state.clients.iter() {
            let held = record.held(pool);
            *shares.records.entry(record.role.clone()).or_default() += held;
            add(&mut shares.held, &record.role, held);
            add(&mut shares.roles, &record.role, held);
        }
        let charged = state.clients.charges();
        for (_, role, idle) in charged.filter(|_| pool == Pool::Regular) {
            *shares.records.entry(role.clone()).or_default() += idle;
            add(&mut shares.roles, role, idle);
        }
        shares
    }

    /// The dominant share of one client's allocation.
    pub fn of_client(&self, record: &ClientRecord) -> f64 {
        record.held(self.pool).dominant_share(&self.total)
    }

    /// The dominant share of a role and those below it, divided by its weight.
    pub fn of_role(&self, role: &Role) -> f64 {
        let weight = self.weights.get(role).copied().unwrap_or(1.0);
        let held = self.roles.get(role);
        held.map_or(0.0, |held| held.dominant_share(&self.total)) / weight
    }

    /// Allocations of a role and those below it.
    pub fn held_by(&self, role: &Role) -> Option<&Quantities> {
        self.held.get(role)
    }

    /// The roles with allocations or frameworks, each with its share.
    pub fn by_role(&self) -> impl Iterator<Item = (&Role, f64)> {
        self.roles.keys().map(|role| (role, self.of_role(role)))
    }

    /// The shares that decide between a member and another client: those of the highest roles in
    /// which they differ, or their own within one role.
    pub fn between(&self, clients: &Clients, one: &ClientRecord, other: Client) -> (f64, f64) {
        let Some(other) = clients.get(other) else {
            return (self.of_client(one), 0.0);
        };
        if one.role == other.role {
            return (self.of_client(one), self.of_client(other));
        }
        let (ways, other_ways) = (path(&one.role), path(&other.role));
        let parted = ways
            .iter()
            .zip(&other_ways)
            .position(|(one, other)| one != other);
        let parted = parted.unwrap_or(ways.len().min(other_ways.len()));
        let at = |way: &[Role]| match way.get(parted) {
            Some(role) => self.of_role(role),
            // The other client is below this role; it competes with the frameworks directly in the
            // role.
            None => {
                let own = way.last().and_then(|role| self.records.get(role));
                own.map_or(0.0, |held| held.dominant_share(&self.total))
            }
        };
        (at(&ways), at(&other_ways))
    }
}

/// Adds an amount to a role and to those above it.
fn add(sums: &mut BTreeMap<Role, Quantities>, role: &Role, amount: &Quantities) {
    for role in std::iter::successors(Some(role.clone()), Role::parent) {
        *sums.entry(role).or_default() += amount;
    }
}

/// A role and those above it, highest first.
fn path(role: &Role) -> Vec<Role> {
    let mut path: Vec<Role> = std::iter::successors(Some(role.clone()), Role::parent).collect();
    path.reverse();
    path
}
