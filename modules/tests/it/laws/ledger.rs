//! An independent ledger of facts and grants, which checks the properties of each grant from
//! scratch.
//!
//! Uses neither the allocator's state nor budgets or runs. Amounts are in thousandths.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use module_api::allocator::Grant;
use protocol::offers::wants::{Constraint, Predicate, Selector};
use protocol::{AgentId, Capability, Demand, FrameworkId, Quota, Unavailability};
use resources::{Name, Quantities, Resource, Resources, Role};
use runtime::Instant;

/// Shortest duration of a filter.
const INTERVAL: Duration = Duration::from_secs(1);
/// Amounts worth an offer, either of them, in thousandths.
const WORTH: [(Name, i64); 2] = [(Name::Cpus, 10), (Name::Mem, 32_000)];

#[derive(Clone, Debug, Default)]
pub struct Ledger {
    pub now: Instant,
    pub hosts: BTreeMap<AgentId, Host>,
    pub tenants: BTreeMap<FrameworkId, Tenant>,
    pub quotas: BTreeMap<Role, Quota>,
    pub weights: BTreeMap<String, f64>,
    /// The whitelisted hosts; `None` means all.
    pub whitelist: Option<BTreeSet<String>>,
}

/// An agent.
#[derive(Clone, Debug, Default)]
pub struct Host {
    pub active: bool,
    pub listed: bool,
    /// In another region than the master.
    pub remote: bool,
    pub total: Resources,
    pub lent: Resources,
    pub rack: Option<String>,
    /// Its planned downtime.
    pub departure: Option<Departure>,
    /// Allocations by framework and role.
    pub held: BTreeMap<(FrameworkId, Role), Resources>,
    pub refused: Vec<Refused>,
    /// Copies of shared volumes granted since the previous run: available to other frameworks, once
    /// per run.
    pub given: Resources,
}

#[derive(Clone, Debug)]
pub struct Refused {
    by: (FrameworkId, Role),
    what: Resources,
    until: Instant,
}

/// A planned downtime: frameworks with an outstanding inverse offer, and those with a filter and
/// its end.
#[derive(Clone, Debug)]
pub struct Departure {
    at: Unavailability,
    asked: BTreeSet<FrameworkId>,
    left_alone: BTreeMap<FrameworkId, Instant>,
}

impl Departure {
    pub fn of(at: Unavailability) -> Self {
        Self {
            at,
            asked: BTreeSet::new(),
            left_alone: BTreeMap::new(),
        }
    }

    pub fn answered(&mut self, framework: &FrameworkId, refuse: Option<Duration>, now: Instant) {
        self.asked.remove(framework);
        if let Some(refuse) = refuse.filter(|refuse| !refuse.is_zero()) {
            self.left_alone.insert(framework.clone(), now + refuse);
        }
    }
}

/// A framework.
#[derive(Clone, Debug, Default)]
pub struct Tenant {
    pub active: bool,
    pub roles: BTreeSet<Role>,
    pub suppressed: BTreeSet<Role>,
    pub can: BTreeSet<Capability>,
    /// It has reached its limit of offers.
    pub spent: bool,
    /// Its demand, the same in each of its roles.
    pub demand: Option<Demand>,
}

impl Tenant {
    fn wants(&self, role: &Role) -> bool {
        let is_suppressed = self.suppressed.contains(role);
        self.active && !self.spent && self.roles.contains(role) && !is_suppressed
    }

    /// The amounts of its demand.
    fn shape(&self) -> Option<&Demand> {
        let demand = self.demand.as_ref();
        demand.filter(|demand| demand.least.is_some())
    }

    /// Whether it has this capability.
    fn knows(&self, one: &Resource) -> bool {
        let can = |what| self.can.contains(&what);
        (one.reservations().len() < 2 || can(Capability::ReservationRefinement))
            && (!one.is_shared() || can(Capability::SharedResources))
    }

    /// Whether it accepts this agent.
    fn chooses(&self, agent: &AgentId, host: &Host) -> bool {
        let groups = self.demand.iter().flat_map(|demand| &demand.agents);
        let holds = |constraint: &Constraint| {
            let value = match constraint.selector {
                Selector::Hostname => Some(format!("{agent}.example")),
                _ => host.rack.clone(),
            };
            match &constraint.predicate {
                Predicate::TextEquals(text) => value.as_ref() == Some(text),
                Predicate::TextNotEquals(text) => value.as_ref() != Some(text),
                other => panic!("{other:?} is not in these histories"),
            }
        };
        let mut groups = groups.peekable();
        groups.peek().is_none() || groups.any(|group| group.iter().all(holds))
    }
}

impl Host {
    fn held(&self) -> Resources {
        let mut sum = Resources::new();
        self.held.values().for_each(|held| sum += held);
        sum
    }

    /// Free regular resources.
    pub fn free(&self) -> Resources {
        let held = self.held().non_revocable().non_shared();
        self.total.saturating_sub(&held).saturating_sub(&self.given)
    }

    /// Free oversubscribed resources.
    pub fn free_lent(&self) -> Resources {
        self.lent.saturating_sub(&self.held().revocable())
    }

    fn has_gpus(&self) -> bool {
        !self.total.gpus().is_zero()
    }

    fn is_offered(&self) -> bool {
        self.active && self.listed
    }

    /// Whether it is only for frameworks with this capability.
    fn is_for(&self, can: &BTreeSet<Capability>) -> bool {
        (!self.has_gpus() || can.contains(&Capability::GpuResources))
            && (!self.remote || can.contains(&Capability::RegionAware))
    }

    fn hold(&mut self, who: (FrameworkId, Role), what: &Resources) {
        *self.held.entry(who).or_default() += what;
    }
}

/// Measures that a grant must not worsen: for each name, the unmet guarantees beyond the cluster's
/// free resources, and, by role, beyond its remaining limit.
#[derive(Debug, PartialEq)]
struct Lacking {
    free: BTreeMap<Name, i64>,
    limits: BTreeMap<(Role, Name), i64>,
}

impl Lacking {
    fn is_worse_than(&self, before: &Self) -> bool {
        let more = |now: &i64, before: Option<&i64>| {
            *now > before.copied().unwrap_or(0).max(0) && *now > 0
        };
        self.free
            .iter()
            .any(|(key, now)| more(now, before.free.get(key)))
            || self
                .limits
                .iter()
                .any(|(key, now)| more(now, before.limits.get(key)))
    }
}

impl Ledger {
    /// Records a grant. Checks that it is free, its recipient is eligible, no limit is exceeded,
    /// and guarantees stay available.
    pub fn granted(&mut self, grant: &Grant) {
        let role = Role::new(&grant.role).unwrap();
        let what = grant.resources.unallocate();
        let host = &self.hosts[&grant.agent_id];
        let tenant = &self.tenants[&grant.framework_id];
        assert!(host.is_offered(), "the agent is not offered: {grant:?}");
        assert!(
            tenant.wants(&role),
            "the framework wants nothing: {grant:?}"
        );
        let (free, lent) = (host.free(), host.free_lent());
        let of = if what.revocable().is_empty() {
            free
        } else {
            lent
        };
        assert!(of.contains(&what), "of {of} is granted {what}");
        assert!(
            what.revocable().is_empty() || tenant.can.contains(&Capability::RevocableResources),
            "{grant:?}"
        );
        assert!(host.is_for(&tenant.can), "not for it: {grant:?}");
        let chosen = tenant.chooses(&grant.agent_id, host);
        assert!(chosen, "it wants others: {grant:?} for {tenant:?}");
        if let Some(demand) = tenant.shape() {
            let amount = what.quantities();
            let mut least = demand.least.iter().flatten();
            assert!(
                least.any(|least| amount.contains(least)),
                "too little: {grant:?}"
            );
            let most = demand.most.iter();
            for (name, most) in most {
                assert!(amount.get(name) <= most, "too much: {grant:?}");
            }
        }
        let own = |one: &Resource| !one.is_reserved() || role.is_within(one.role());
        assert!(what.iter().all(own), "reserved for others: {grant:?}");
        let known = what.iter().all(|one| tenant.knows(one));
        assert!(known, "it does not understand that: {grant:?}");
        let who = (grant.framework_id.clone(), role.clone());
        let refused = |refused: &Refused| {
            refused.by == who && refused.until > self.now && refused.what.contains(&what)
        };
        assert!(!host.refused.iter().any(refused), "was refused: {grant:?}");
        let broken = self.broken_by(&grant.agent_id, &who, &what);
        assert_eq!(broken, None, "{grant:?} in {self:#?}");
        let host = self.host(&grant.agent_id);
        host.given += what.shared();
        host.hold(who, &what);
    }

    /// The quota rule that this allocation would violate.
    fn broken_by(
        &self,
        agent: &AgentId,
        who: &(FrameworkId, Role),
        what: &Resources,
    ) -> Option<String> {
        let before = self.lacking();
        let mut after = self.clone();
        after.host(agent).hold(who.clone(), what);
        for (role, quota) in &self.quotas {
            for (name, limit) in quota.limits.iter() {
                let (was, is) = (self.consumed(role, name), after.consumed(role, name));
                if is > was && is > limit.thousandths() {
                    return Some(format!("the limit of {role} for {name}: {was} became {is}"));
                }
            }
        }
        let lacking = after.lacking();
        let worse = lacking.is_worse_than(&before);
        worse.then(|| format!("guarantees lack {lacking:?} after {before:?}"))
    }

    /// Reserved and unallocated resources by role.
    pub fn idle_reservations(&self) -> BTreeMap<Role, Quantities> {
        let mut idle: BTreeMap<Role, Quantities> = BTreeMap::new();
        for host in self.hosts.values() {
            let free = host.total.saturating_sub(&host.held());
            for (role, own) in free.reservations() {
                *idle.entry(role).or_default() += &own.quantities();
            }
        }
        idle.retain(|_, idle| !idle.is_empty());
        idle
    }

    /// Consumption of a role: all reservations for it or below, used or not, and other allocations
    /// there.
    pub fn consumed(&self, role: &Role, name: &Name) -> i64 {
        let reserved_here = |one: &Resource| one.is_reserved() && one.role().is_within(role);
        let mut sum = 0;
        for host in self.hosts.values() {
            sum += amount(host.total.iter().filter(|one| reserved_here(one)), name);
            for ((_, holder), held) in &host.held {
                if holder.is_within(role) {
                    let counted = held.iter().filter(|one| !one.is_revocable());
                    sum += amount(counted.filter(|one| !reserved_here(one)), name);
                }
            }
        }
        sum
    }

    /// Unreserved free resources on agents that may be offered.
    pub fn idle(&self, name: &Name) -> i64 {
        let hosts = self.hosts.values().filter(|host| host.is_offered());
        hosts
            .map(|host| amount(host.free().iter().filter(|one| !one.is_reserved()), name))
            .sum()
    }

    /// The remaining limit, if there is one.
    fn left(&self, role: &Role, name: &Name) -> Option<i64> {
        let limits = &self.quotas[role].limits;
        let limit = limits.names(name).then(|| limits.get(name).thousandths());
        limit.map(|limit| (limit - self.consumed(role, name)).max(0))
    }

    /// The roles with a quota directly below this one, or at the top.
    fn below(&self, above: Option<&Role>) -> Vec<&Role> {
        let under = |role: &Role| above.is_none_or(|above| role.is_strict_subrole_of(above));
        let roles: Vec<&Role> = self.quotas.keys().filter(|role| under(role)).collect();
        let nearest = |role: &&&Role| !roles.iter().any(|other| role.is_strict_subrole_of(other));
        roles.iter().filter(nearest).copied().collect()
    }

    fn required_below(&self, above: Option<&Role>, name: &Name) -> i64 {
        let roles = self.below(above).into_iter();
        roles.map(|role| self.required_for(role, name)).sum()
    }

    fn required_for(&self, role: &Role, name: &Name) -> i64 {
        let guarantee = self.quotas[role].guarantees.get(name).thousandths();
        let unmet = guarantee - self.consumed(role, name);
        let required = self.required_below(Some(role), name).max(unmet).max(0);
        self.left(role, name)
            .map_or(required, |left| required.min(left))
    }

    /// Amounts that must stay free for guarantees.
    pub fn required(&self, name: &Name) -> i64 {
        self.required_below(None, name)
    }

    fn lacking(&self) -> Lacking {
        let all = self.quotas.values();
        let names = all.flat_map(|quota| quota.limits.iter().chain(quota.guarantees.iter()));
        let names: BTreeSet<Name> = names.map(|(name, _)| name.clone()).collect();
        let free = |name: &Name| (name.clone(), self.required(name) - self.idle(name));
        let mut limits = BTreeMap::new();
        for role in self.quotas.keys() {
            for name in &names {
                if let Some(left) = self.left(role, name) {
                    let below = self.required_below(Some(role), name);
                    limits.insert((role.clone(), name.clone()), below - left);
                }
            }
        }
        Lacking {
            free: names.iter().map(free).collect(),
            limits,
        }
    }

    /// Checks that no free resources worth an offer are withheld: granting them to any framework
    /// would violate a rule.
    pub fn nothing_is_withheld(&self) {
        for (agent, host) in self.hosts.iter().filter(|(_, host)| host.is_offered()) {
            for (framework, tenant) in &self.tenants {
                for role in tenant.roles.iter().filter(|role| tenant.wants(role)) {
                    let who = (framework.clone(), role.clone());
                    let mute = |refused: &Refused| refused.by == who && refused.until > self.now;
                    let takes = host.is_for(&tenant.can) && tenant.chooses(agent, host);
                    if !takes || host.refused.iter().any(mute) {
                        continue;
                    }
                    let brave = tenant.can.contains(&Capability::RevocableResources);
                    let lent = if brave {
                        host.free_lent()
                    } else {
                        Resources::new()
                    };
                    let free = host.free().allocatable_to(role);
                    let free = free.filter(|one| tenant.knows(one));
                    let parts: Vec<Resources> = match tenant.shape() {
                        None => free.iter().chain(&lent).filter_map(worthwhile).collect(),
                        Some(demand) => {
                            // Amounts for a guarantee are not granted together with reservations of
                            // a parent role (SPEC 4.5).
                            let own = |one: &Resource| !one.is_reserved() || one.role() == role;
                            let free = match self.quotas.is_empty() {
                                true => free,
                                false => free.filter(own),
                            };
                            let of = |all: &Resources| demanded(demand, all);
                            of(&free).into_iter().chain(of(&lent)).collect()
                        }
                    };
                    for part in parts {
                        let broken = self.broken_by(agent, &who, &part);
                        assert!(
                            broken.is_some(),
                            "{part} of {agent} is withheld from {who:?} in {self:#?}"
                        );
                    }
                }
            }
        }
    }

    pub fn recovered(
        &mut self,
        agent: &AgentId,
        who: (FrameworkId, Role),
        what: &Resources,
        refuse: Option<Duration>,
    ) {
        let subscribed = self.tenants.get(&who.0);
        let subscribed = subscribed.is_some_and(|tenant| tenant.roles.contains(&who.1));
        let until = refuse.filter(|refuse| !refuse.is_zero());
        let until = until.map(|refuse| self.now + refuse.max(INTERVAL));
        let Some(host) = self.hosts.get_mut(agent) else {
            return;
        };
        if let Some(held) = host.held.get_mut(&who) {
            held.saturating_sub_assign(what);
            if held.is_empty() {
                host.held.remove(&who);
            }
        }
        if let Some(until) = until.filter(|_| subscribed) {
            let what = what.clone();
            host.refused.push(Refused {
                by: who,
                what,
                until,
            });
        }
    }

    /// Sets the whitelist.
    pub fn whitelist(&mut self, hosts: Option<BTreeSet<String>>) {
        self.whitelist = hosts;
        for (id, host) in &mut self.hosts {
            let hostname = format!("{id}.example");
            let listed = self.whitelist.as_ref();
            host.listed = listed.is_none_or(|hosts| hosts.contains(&hostname));
        }
    }

    pub fn lists(&self, hostname: &str) -> bool {
        let listed = self.whitelist.as_ref();
        listed.is_none_or(|hosts| hosts.contains(hostname))
    }

    /// Drops the framework's filters in these roles.
    pub fn forget_filters(&mut self, framework: &FrameworkId, which: impl Fn(&Role) -> bool) {
        for host in self.hosts.values_mut() {
            host.refused
                .retain(|one| one.by.0 != *framework || !which(&one.by.1));
        }
    }

    /// Drops the framework's filters on inverse offers; with its removal also outstanding ones.
    pub fn forget_answers(&mut self, framework: &FrameworkId, is_gone: bool) {
        let departures = self.hosts.values_mut();
        for departure in departures.filter_map(|host| host.departure.as_mut()) {
            departure.left_alone.remove(framework);
            if is_gone {
                departure.asked.remove(framework);
            }
        }
    }

    /// The expected inverse offers: one for each active framework with resources there, until it
    /// answers (SPEC 4.7).
    pub fn asked_to_leave(&mut self) -> BTreeSet<(AgentId, FrameworkId, Unavailability)> {
        let mut asked = BTreeSet::new();
        let now = self.now;
        for (agent, host) in self.hosts.iter_mut().filter(|(_, host)| host.active) {
            let Some(departure) = host.departure.as_mut() else {
                continue;
            };
            for (framework, _) in host.held.keys() {
                let is_active = self.tenants.get(framework).is_some_and(|one| one.active);
                let until = departure.left_alone.get(framework);
                if is_active
                    && until.is_none_or(|until| *until <= now)
                    && departure.asked.insert(framework.clone())
                {
                    asked.insert((agent.clone(), framework.clone(), departure.at));
                }
            }
        }
        asked
    }

    pub fn host(&mut self, agent: &AgentId) -> &mut Host {
        self.hosts.get_mut(agent).unwrap()
    }

    /// Remaining and lacking amounts of a role, without zeros.
    pub fn budget(&self, role: &Role) -> (Quantities, Quantities) {
        let quota = &self.quotas[role];
        let left = quota.limits.iter().map(|(name, _)| {
            let left = self.left(role, name).unwrap_or_default();
            (name.clone(), scalar(left))
        });
        let unmet = quota.guarantees.iter().map(|(name, guarantee)| {
            let unmet = guarantee.thousandths() - self.consumed(role, name);
            (name.clone(), scalar(unmet.max(0)))
        });
        (left.collect(), unmet.collect())
    }
}

/// The smallest demanded amounts, from reserved resources first, if available.
fn demanded(demand: &Demand, all: &Resources) -> Option<Resources> {
    let least = demand.least.as_ref()?.first()?;
    let mut part = Resources::new();
    for (name, amount) in least.iter() {
        let mut missing = amount;
        let mut own: Vec<&Resource> = all.iter().filter(|own| own.is(name)).collect();
        own.sort_by_key(|own| !own.is_reserved());
        for own in own.into_iter().filter(|own| !own.is_indivisible()) {
            let mut piece = own.clone();
            let amount = piece.amount()?;
            if amount <= missing || piece.shrink(missing) {
                missing = missing.saturating_sub(piece.amount()?);
                part += Resources::from(piece);
            }
        }
        if !missing.is_zero() {
            return None;
        }
    }
    Some(part)
}

/// The smallest amount of a resource that is worth an offer, if available.
fn worthwhile(one: &Resource) -> Option<Resources> {
    let (_, least) = WORTH.iter().find(|(name, _)| *name == one.name())?;
    let mut part = one.clone();
    let enough = one.amount()?.thousandths() >= *least && part.shrink(scalar(*least));
    enough.then(|| Resources::from(part))
}

fn amount<'a>(all: impl Iterator<Item = &'a Resource>, name: &Name) -> i64 {
    let named = all.filter(|one| one.is(name));
    named
        .filter_map(Resource::amount)
        .map(|amount| amount.thousandths())
        .sum()
}

pub fn scalar(thousandths: i64) -> resources::Scalar {
    resources::Scalar::from_thousandths(thousandths).unwrap()
}
