//! Frameworks of random histories: subscription, resubscription with or without changes, and
//! suppressed roles.

use std::collections::BTreeSet;

use module_api::allocator::FrameworkAdded;
use modules::sorter::Order;
use proptest::prelude::*;
use protocol::{Capability, Demand, FrameworkId};
use resources::Role;

use super::facts::{FRAMEWORKS, Fact, ROLES};
use super::history::{Step, World};
use super::ledger::Tenant;
use super::words::{Wish, demand, demand_in_each, wish};
use crate::cluster::{framework, subscribed};

/// Capabilities of a framework.
const CAPABILITIES: [Capability; 5] = [
    Capability::RevocableResources,
    Capability::GpuResources,
    Capability::RegionAware,
    Capability::ReservationRefinement,
    Capability::SharedResources,
];

/// Changes of a framework when it resubscribes or is updated.
#[derive(Clone, Debug)]
pub enum Changed {
    Roles(usize),
    /// Toggles this capability.
    Can(usize),
    Wish(Option<Wish>),
    /// Replaces the suppressed roles.
    Suppressed(Option<usize>),
    /// Changes whether it is connected.
    Active(bool),
}

pub fn changed() -> impl Strategy<Value = Changed> {
    prop_oneof![
        2 => (0..ROLES.len()).prop_map(Changed::Roles),
        2 => (0..CAPABILITIES.len()).prop_map(Changed::Can),
        2 => wish().prop_map(Changed::Wish),
        2 => proptest::option::of(0..ROLES.len()).prop_map(Changed::Suppressed),
        2 => any::<bool>().prop_map(Changed::Active),
    ]
}

/// The only interested framework refuses everything, is inactive for a moment or changes, and
/// returns: agents that nothing else marks must still be considered for it.
pub fn returning() -> impl Strategy<Value = Vec<Step>> {
    let (back, run) = (proptest::option::weighted(0.7, changed()), any::<bool>());
    (0..FRAMEWORKS, 0_u8..6, back, any::<bool>(), run).prop_map(|(f, how, back, refuses, runs)| {
        let others = (0..FRAMEWORKS).filter(|other| *other != f);
        let mut told: Vec<Fact> = others.map(|other| Fact::Suppressed(other, None)).collect();
        told.push(Fact::Revived(f, None));
        let mut steps: Vec<Step> = told.into_iter().map(Step::Tell).collect();
        steps.push(Step::Settle);
        let run = || Step::Honest(true, Vec::new());
        if refuses {
            steps.extend([Step::Tell(Fact::Refused(f, 1_000)), run()]);
        }
        let activity = |on| Fact::FrameworkBack(f, Some(Changed::Active(on)));
        let (leaves, comes) = match how {
            0 => (
                Fact::FrameworkActivity(f, false),
                Some(Fact::FrameworkActivity(f, true)),
            ),
            1 => (activity(false), Some(activity(true))),
            2 => (
                Fact::FrameworkRemoved(f),
                Some(Fact::FrameworkAdded(f, 4, 0, None)),
            ),
            3 => (Fact::Suppressed(f, None), Some(Fact::Revived(f, None))),
            4 => (Fact::Budget(f, true), Some(Fact::Budget(f, false))),
            _ => (Fact::FrameworkBack(f, back.clone()), None),
        };
        steps.push(Step::Tell(leaves));
        if runs {
            steps.extend([Step::Tell(Fact::Refused(f, 0)), run()]);
        }
        steps.extend(comes.map(Step::Tell));
        steps.push(Step::Tell(Fact::FrameworkBack(f, back)));
        steps.push(Step::Settle);
        steps
    })
}

/// The roles of that number; 0 means none.
fn roles(named: Option<usize>) -> BTreeSet<Role> {
    let named = named.map_or("", |n| ROLES[n]);
    let named = named.split(',').filter(|role| !role.is_empty());
    named.map(|role| Role::new(role).unwrap()).collect()
}

impl<O: Order> World<O> {
    pub fn framework_added(&mut self, n: u32, named: usize, can: u8, demand: Option<Demand>) {
        let known = (0..).zip(CAPABILITIES);
        let known = known.filter(|(bit, _)| can >> bit & 1 == 1);
        let id = framework(&format!("f{n}"));
        let tenant = Tenant {
            active: true,
            roles: roles(Some(named)),
            suppressed: BTreeSet::new(),
            can: known.map(|(_, one)| one).collect(),
            spent: self.ledger.tenants.get(&id).is_some_and(|one| one.spent),
            demand,
        };
        self.subscribes(id, tenant);
    }

    /// The framework resubscribes, or is updated.
    pub fn framework_back(&mut self, n: u32, changed: Option<Changed>) {
        let id = framework(&format!("f{n}"));
        let Some(mut tenant) = self.ledger.tenants.get(&id).cloned() else {
            return;
        };
        match changed {
            None => {}
            Some(Changed::Roles(n)) => tenant.roles = roles(Some(n)),
            Some(Changed::Can(n)) => {
                let other = BTreeSet::from([CAPABILITIES[n]]);
                tenant.can = &tenant.can ^ &other;
            }
            Some(Changed::Wish(wish)) => tenant.demand = wish.map(demand),
            Some(Changed::Suppressed(named)) => tenant.suppressed = roles(named),
            Some(Changed::Active(active)) => tenant.active = active,
        }
        let own = &tenant.roles;
        tenant.suppressed.retain(|role| own.contains(role));
        self.subscribes(id, tenant);
    }

    fn subscribes(&mut self, id: FrameworkId, tenant: Tenant) {
        let fact = told(&id, &tenant);
        let (now, active) = (tenant.clone(), tenant.active);
        let before = self.ledger.tenants.insert(id.clone(), tenant);
        let suppressed = before.map_or_else(BTreeSet::new, |before| before.suppressed);
        self.ledger.forget_filters(&id, |role| {
            let unsuppressed = suppressed.contains(role) && !now.suppressed.contains(role);
            !active || !now.roles.contains(role) || unsuppressed
        });
        self.state.framework_added(fact);
    }

    pub fn suppress(
        &mut self,
        n: u32,
        roles: Option<usize>,
        on: bool,
    ) -> (FrameworkId, BTreeSet<String>) {
        let id = framework(&format!("f{n}"));
        let named = roles.map_or("", |roles| ROLES[roles]);
        let named: BTreeSet<String> = named
            .split(',')
            .filter(|role| !role.is_empty())
            .map(str::to_owned)
            .collect();
        if let Some(tenant) = self.ledger.tenants.get_mut(&id) {
            for role in &tenant.roles {
                let meant = named.is_empty() || named.contains(role.as_str());
                match (meant, on) {
                    (true, true) => drop(tenant.suppressed.insert(role.clone())),
                    (true, false) => drop(tenant.suppressed.remove(role)),
                    (false, _) => {}
                }
            }
        }
        (id, named)
    }
}

/// The fact for a framework.
pub fn told(id: &FrameworkId, tenant: &Tenant) -> FrameworkAdded {
    let roles: Vec<&str> = tenant.roles.iter().map(Role::as_str).collect();
    let can: Vec<Capability> = tenant.can.iter().copied().collect();
    let mut fact = subscribed(id.as_str(), &roles.join(","), &can);
    let suppressed = tenant.suppressed.iter().map(Role::to_string);
    fact.wants.suppressed_roles = suppressed.collect();
    demand_in_each(&mut fact, tenant.demand.as_ref());
    fact.active = tenant.active;
    fact
}
