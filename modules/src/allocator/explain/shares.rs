//! Dominant shares as they are now, to be named beside a reason (SPEC 4.8).
//!
//! Pure: sums of what clients hold, taken once. Whether a sorter decides by shares is its own affair; that they are what they are is a fact.

use std::collections::BTreeMap;

use module_api::sorter::{Client, Pool};
use resources::{Quantities, Role};

use crate::allocator::books::Books;
use crate::allocator::clients::{Clients, Member};

/// What each role holds in one pool, and what it is measured by.
pub struct Shares {
    pool: Pool,
    total: Quantities,
    weights: BTreeMap<Role, f64>,
    /// With the roles below.
    held: BTreeMap<Role, Quantities>,
    /// What counts, which is more where idle reservations are charged; with the roles below.
    roles: BTreeMap<Role, Quantities>,
    /// The same without them.
    members: BTreeMap<Role, Quantities>,
}

impl Shares {
    /// As the books are now.
    pub fn of(books: &Books, pool: Pool) -> Self {
        let mut shares = Self {
            pool,
            total: books.total(pool).clone(),
            weights: books.weights.clone(),
            held: BTreeMap::new(),
            roles: BTreeMap::new(),
            members: BTreeMap::new(),
        };
        for (_, member) in books.clients.iter() {
            let held = member.held(pool);
            *shares.members.entry(member.role.clone()).or_default() += held;
            add(&mut shares.held, &member.role, held);
            add(&mut shares.roles, &member.role, held);
        }
        let charged = books.clients.charges();
        for (_, role, idle) in charged.filter(|_| pool == Pool::Regular) {
            *shares.members.entry(role.clone()).or_default() += idle;
            add(&mut shares.roles, role, idle);
        }
        shares
    }

    /// The dominant share of what one client holds.
    pub fn of_member(&self, member: &Member) -> f64 {
        member.held(self.pool).dominant_share(&self.total)
    }

    /// The dominant share of a role and those below it, divided by its weight.
    pub fn of_role(&self, role: &Role) -> f64 {
        let weight = self.weights.get(role).copied().unwrap_or(1.0);
        let held = self.roles.get(role);
        held.map_or(0.0, |held| held.dominant_share(&self.total)) / weight
    }

    /// What a role and those below it hold.
    pub fn held_by(&self, role: &Role) -> Option<&Quantities> {
        self.held.get(role)
    }

    /// The roles that hold anything or have a framework, each with its share.
    pub fn by_role(&self) -> impl Iterator<Item = (&Role, f64)> {
        self.roles.keys().map(|role| (role, self.of_role(role)))
    }

    /// The shares that decide between a member and another client: of the highest roles in which they differ, or of the two
    /// themselves in one role.
    pub fn between(&self, clients: &Clients, one: &Member, other: Client) -> (f64, f64) {
        let Some(other) = clients.get(other) else {
            return (self.of_member(one), 0.0);
        };
        if one.role == other.role {
            return (self.of_member(one), self.of_member(other));
        }
        let (ways, other_ways) = (path(&one.role), path(&other.role));
        let parted = ways
            .iter()
            .zip(&other_ways)
            .position(|(one, other)| one != other);
        let parted = parted.unwrap_or(ways.len().min(other_ways.len()));
        let at = |way: &[Role]| match way.get(parted) {
            Some(role) => self.of_role(role),
            // The other is below it: the frameworks right in the role are what that is measured against.
            None => {
                let own = way.last().and_then(|role| self.members.get(role));
                own.map_or(0.0, |held| held.dominant_share(&self.total))
            }
        };
        (at(&ways), at(&other_ways))
    }
}

/// Adds this to the sums of a role and of those above it.
fn add(sums: &mut BTreeMap<Role, Quantities>, role: &Role, amount: &Quantities) {
    for role in std::iter::successors(Some(role.clone()), Role::parent) {
        *sums.entry(role).or_default() += amount;
    }
}

/// A role and those above it, the highest first.
fn path(role: &Role) -> Vec<Role> {
    let mut path: Vec<Role> = std::iter::successors(Some(role.clone()), Role::parent).collect();
    path.reverse();
    path
}
