//! Facts that a master may send, applied to the allocator's state and to the ledger.

use std::collections::BTreeMap;
use std::time::Duration;

use module_api::allocator::{
    AgentActivity, AgentOversubscribed, AgentRemoved, Begin, Converted, FrameworkActivity,
    FrameworkRemoved, InverseAnswered, OfferBudgetSpent, QuotasChanged, Recovered, Revived,
    Suppressed, UnavailabilityChanged, WeightsChanged, WhitelistChanged,
};
use modules::sorter::Order;
use proptest::prelude::*;
use protocol::{AgentId, FrameworkId, Quota, Unavailability};
use resources::{DiskInfo, Name, Quantities, Reservation, Resource, Resources, Revocable, Role};
use runtime::{NodeId, Pid, Timestamp};

use super::history::World;
use super::ledger::{Departure, Host, Refused};
use super::tenants::{Changed, changed, told};
use super::words::{REMOTE, Wish, attributes, demand, domain, labels, mount, on_disk, rack, wish};
use crate::cluster::{added, agent, framework, lent};

pub const AGENTS: u32 = 4;
pub const FRAMEWORKS: u32 = 4;
/// The roles of frameworks.
pub const ROLES: [&str; 6] = ["a", "a/b", "a/c", "c", "a,c", "a/b/d,c"];
/// The roles that may have a quota or a weight.
const RANKS: [&str; 5] = ["a", "a/b", "a/c", "a/b/d", "c"];

/// The facts.
#[derive(Clone, Debug)]
pub enum Fact {
    AgentAdded(u32, u32),
    /// An agent registers again, unchanged.
    AgentBack(u32),
    AgentRemoved(u32),
    AgentActivity(u32, bool),
    Lent(u32, u32),
    /// Its roles, capabilities and demand.
    FrameworkAdded(u32, usize, u8, Option<Wish>),
    /// A framework resubscribes or is updated, with only this change.
    FrameworkBack(u32, Option<Changed>),
    FrameworkRemoved(u32),
    FrameworkActivity(u32, bool),
    Suppressed(u32, Option<usize>),
    Revived(u32, Option<usize>),
    /// Recovers the nth allocation, in part or whole, possibly with a filter of some tenths of a
    /// second.
    Recovered(usize, bool, Option<u64>),
    /// Recovers all allocations of a framework, with a filter of some tenths of a second.
    Refused(u32, u64),
    /// Recovers resources that were never allocated.
    Invented(u32, u32, u32),
    /// The nth holder reserves the unreserved part of its allocation.
    Reserved(usize),
    /// The nth holder refines the reservations of its parent role for its own.
    Refined(usize),
    /// The nth holder unreserves its reservations.
    Unreserved(usize),
    /// The nth holder creates a persistent volume on its reserved disk; every other one is shared.
    Created(usize),
    /// The nth holder uses one more copy of its shared volumes.
    UsedAgain(usize),
    /// The nth holder destroys its volumes, unless other frameworks may use them.
    Destroyed(usize),
    /// Guarantee and limit of a role, in units of cpus and of 40 mem.
    Quota(usize, u32, Option<u32>),
    Weight(usize, u32),
    /// The agents on the whitelist, by bit, if there is one.
    Whitelist(Option<u8>),
    /// A framework reaches its limit of offers, or no longer has.
    Budget(u32, bool),
    /// Sets or clears the planned downtime of an agent.
    Away(u32, Option<u64>),
    /// An inverse offer ends, possibly with a filter of some tenths of a second.
    InverseAnswered(u32, u32, Option<u64>),
    /// A new `Begin` with the full state; earlier requests are obsolete.
    Begun,
}

pub fn fact() -> impl Strategy<Value = Fact> {
    let (a, f) = (0..AGENTS, 0..FRAMEWORKS);
    let role = || proptest::option::of(0..ROLES.len());
    prop_oneof![
        4 => (a.clone(), 1_u32..7).prop_map(|(a, n)| Fact::AgentAdded(a, n)),
        1 => a.clone().prop_map(Fact::AgentBack),
        1 => a.clone().prop_map(Fact::AgentRemoved),
        1 => (a.clone(), any::<bool>()).prop_map(|(a, on)| Fact::AgentActivity(a, on)),
        2 => (a.clone(), 0_u32..5).prop_map(|(a, n)| Fact::Lent(a, n)),
        4 => (f.clone(), 0..ROLES.len(), 0_u8..32, wish())
            .prop_map(|(f, r, c, wish)| Fact::FrameworkAdded(f, r, c, wish)),
        4 => (f.clone(), proptest::option::weighted(0.7, changed()))
            .prop_map(|(f, changed)| Fact::FrameworkBack(f, changed)),
        1 => f.clone().prop_map(Fact::FrameworkRemoved),
        2 => (f.clone(), any::<bool>()).prop_map(|(f, on)| Fact::FrameworkActivity(f, on)),
        1 => (f.clone(), role()).prop_map(|(f, r)| Fact::Suppressed(f, r)),
        2 => (f.clone(), role()).prop_map(|(f, r)| Fact::Revived(f, r)),
        6 => (any::<usize>(), any::<bool>(), proptest::option::of(0_u64..40))
            .prop_map(|(n, part, refuse)| Fact::Recovered(n, part, refuse)),
        1 => (a.clone(), f.clone(), 1_u32..9).prop_map(|(a, f, n)| Fact::Invented(a, f, n)),
        1 => (f.clone(), any::<bool>()).prop_map(|(f, spent)| Fact::Budget(f, spent)),
        2 => (a.clone(), proptest::option::weighted(0.8, 0_u64..9)).prop_map(|(a, at)| Fact::Away(a, at)),
        2 => (f, a, proptest::option::of(0_u64..40))
            .prop_map(|(f, a, refuse)| Fact::InverseAnswered(f, a, refuse)),
        2 => any::<usize>().prop_map(Fact::Refined),
        2 => any::<usize>().prop_map(Fact::Reserved),
        1 => any::<usize>().prop_map(Fact::Unreserved),
        2 => any::<usize>().prop_map(Fact::Created),
        1 => any::<usize>().prop_map(Fact::Destroyed),
        2 => any::<usize>().prop_map(Fact::UsedAgain),
        4 => (0..RANKS.len(), 0_u32..6, proptest::option::of(0_u32..9))
            .prop_map(|(r, guarantee, limit)| Fact::Quota(r, guarantee, limit)),
        1 => (0..RANKS.len(), 1_u32..4).prop_map(|(r, weight)| Fact::Weight(r, weight)),
        1 => proptest::option::of(0_u8..16).prop_map(Fact::Whitelist),
        1 => Just(Fact::Begun),
    ]
}

impl<O: Order> World<O> {
    /// The nth allocation in the cluster.
    fn holding(&self, n: usize) -> Option<(AgentId, (FrameworkId, Role), Resources)> {
        let hosts = self.ledger.hosts.iter();
        let all: Vec<_> = hosts
            .flat_map(|(agent, host)| host.held.iter().map(move |(who, held)| (agent, who, held)))
            .collect();
        let (agent, who, held) = all.get(n.checked_rem(all.len())?)?;
        Some(((*agent).clone(), (*who).clone(), (*held).clone()))
    }

    pub fn tell(&mut self, fact: Fact) {
        match fact {
            Fact::AgentAdded(n, size) => self.agent_added(n, size),
            Fact::AgentBack(n) => self.agent_back(n),
            Fact::AgentRemoved(n) => {
                let agent_id = agent(&format!("a{n}"));
                self.ledger.hosts.remove(&agent_id);
                self.state.agent_removed(&AgentRemoved { agent_id });
            }
            Fact::AgentActivity(n, active) => {
                let agent_id = agent(&format!("a{n}"));
                if let Some(host) = self.ledger.hosts.get_mut(&agent_id) {
                    host.active = active;
                }
                let activity = AgentActivity { agent_id, active };
                self.state.agent_activity(&activity);
            }
            Fact::Lent(n, size) => {
                let agent_id = agent(&format!("a{n}"));
                // Regular and revocable ones, separately.
                let plain = |size: u32| Resources::parse(&format!("cpus:{size}")).unwrap();
                let idle = |size| plain(size).to_revocable(Revocable::NonThrottleable);
                let total = match size {
                    0 => Resources::new(),
                    1 | 2 => lent(&format!("cpus:{size}")),
                    3 => idle(size).unwrap(),
                    _ => lent("cpus:2") + idle(2).unwrap(),
                };
                if let Some(host) = self.ledger.hosts.get_mut(&agent_id) {
                    host.lent = total.clone();
                }
                let fact = AgentOversubscribed { agent_id, total };
                self.state.agent_oversubscribed(fact);
            }
            Fact::FrameworkAdded(n, roles, can, shape) => {
                self.framework_added(n, roles, can, shape.map(demand));
            }
            Fact::FrameworkBack(n, changed) => self.framework_back(n, changed),
            Fact::FrameworkRemoved(n) => {
                let framework_id = framework(&format!("f{n}"));
                self.ledger.tenants.remove(&framework_id);
                self.ledger.forget_filters(&framework_id, |_| true);
                self.ledger.forget_answers(&framework_id, true);
                let fact = FrameworkRemoved { framework_id };
                self.state.framework_removed(&fact);
            }
            Fact::FrameworkActivity(n, active) => {
                let framework_id = framework(&format!("f{n}"));
                if let Some(tenant) = self.ledger.tenants.get_mut(&framework_id) {
                    tenant.active = active;
                }
                if !active {
                    self.ledger.forget_filters(&framework_id, |_| true);
                    self.ledger.forget_answers(&framework_id, false);
                }
                let activity = FrameworkActivity {
                    framework_id,
                    active,
                };
                self.state.framework_activity(&activity);
            }
            Fact::Suppressed(n, roles) => {
                let (framework_id, roles) = self.suppress(n, roles, true);
                self.state.suppressed(&Suppressed {
                    framework_id,
                    roles,
                });
            }
            Fact::Revived(n, roles) => {
                let (framework_id, roles) = self.suppress(n, roles, false);
                let named = |role: &Role| roles.is_empty() || roles.contains(role.as_str());
                self.ledger.forget_filters(&framework_id, named);
                self.ledger.forget_answers(&framework_id, false);
                self.state.revived(&Revived {
                    framework_id,
                    roles,
                });
            }
            Fact::Recovered(n, part, refuse) => {
                let Some((agent, who, held)) = self.holding(n) else {
                    return;
                };
                let cpus = held.filter(|one| one.name() == Name::Cpus);
                let given = if part { cpus } else { held };
                let refuse = refuse.map(|tenths| Duration::from_millis(tenths * 100));
                self.recovered(agent, who, &given, refuse);
            }
            Fact::Refused(n, tenths) => {
                let id = framework(&format!("f{n}"));
                let hosts = self.ledger.hosts.clone();
                let all = hosts.into_iter().flat_map(|(agent, host)| {
                    let held = host.held.into_iter();
                    held.map(move |(who, held)| (agent.clone(), who, held))
                });
                let refuse = Some(Duration::from_millis(tenths * 100));
                for (agent, who, held) in all.filter(|(_, who, _)| who.0 == id) {
                    self.recovered(agent, who, &held, refuse);
                }
            }
            Fact::Invented(n, m, size) => {
                let what = Resources::parse(&format!("cpus:{size};mem:7")).unwrap();
                let who = (framework(&format!("f{m}")), Role::new("a").unwrap());
                self.recovered(agent(&format!("a{n}")), who, &what, None);
            }
            Fact::Reserved(n) => self.convert(n, |role, held| {
                let plain = held.unreserved().non_revocable();
                let plain = plain.filter(|one| [Name::Cpus, Name::Disk].contains(&one.name()));
                let mut entry = Reservation::dynamic(role.clone(), Some("ops"));
                if n.is_multiple_of(3) {
                    entry.labels = labels();
                }
                let reserved = plain.push_reservation(&entry).unwrap();
                (plain, reserved)
            }),
            Fact::Refined(n) => self.convert(n, |role, held| {
                let above = held.all_reserved().filter(|one| {
                    role.is_strict_subrole_of(one.role()) && !one.is_persistent_volume()
                });
                let entry = Reservation::dynamic(role.clone(), Some("ops"));
                let refined = above.push_reservation(&entry).unwrap();
                (above, refined)
            }),
            Fact::Unreserved(n) => self.convert(n, |_, held| {
                let own = held
                    .all_reserved()
                    .filter(|one| !one.is_persistent_volume() && one.pop_reservation().is_ok());
                let plain = own.pop_reservation().unwrap();
                (own, plain)
            }),
            Fact::Created(n) => {
                self.volumes += 1;
                let id = self.volumes;
                self.convert(n, |_, held| {
                    let disk = held
                        .all_reserved()
                        .filter(|one| one.name() == Name::Disk && !one.is_persistent_volume());
                    let volume = |(at, one): (usize, &Resource)| {
                        let info = DiskInfo::persistent(format!("v{id}-{at}"), None, "data");
                        on_disk(one, Some(info), id.is_multiple_of(2))
                    };
                    let volumes = disk.iter().enumerate().map(volume).collect();
                    (disk, volumes)
                });
            }
            Fact::UsedAgain(n) => self.use_again(n),
            Fact::Destroyed(n) => self.convert(n, |_, held| {
                let volumes = held.persistent_volumes().non_shared();
                let disk = volumes
                    .iter()
                    .map(|one| on_disk(one, None, false))
                    .collect();
                (volumes, disk)
            }),
            Fact::Quota(rank, guarantee, limit) => self.quota(rank, guarantee, limit),
            Fact::Whitelist(hosts) => {
                let hosts = hosts.map(|bits| {
                    let listed = (0..AGENTS).filter(|n| bits >> n & 1 == 1);
                    listed.map(|n| format!("a{n}.example")).collect()
                });
                self.ledger.whitelist(hosts);
                self.tell_whitelist();
            }
            Fact::Budget(n, spent) => {
                let framework_id = framework(&format!("f{n}"));
                if let Some(tenant) = self.ledger.tenants.get_mut(&framework_id) {
                    tenant.spent = spent;
                }
                let most = spent.then_some(7);
                self.state
                    .offer_budget_spent(&OfferBudgetSpent { framework_id, most });
            }
            Fact::Away(n, start) => {
                let agent_id = agent(&format!("a{n}"));
                let unavailability = start.map(|start| Unavailability {
                    start: Timestamp::from_nanos(start),
                    duration: None,
                });
                if let Some(host) = self.ledger.hosts.get_mut(&agent_id) {
                    host.departure = unavailability.map(Departure::of);
                }
                self.state.unavailability_changed(&UnavailabilityChanged {
                    agent_id,
                    unavailability,
                });
            }
            Fact::InverseAnswered(n, m, refuse) => {
                let (framework_id, agent_id) =
                    (framework(&format!("f{n}")), agent(&format!("a{m}")));
                let refuse = refuse.map(|tenths| Duration::from_millis(tenths * 100));
                let now = self.ledger.now;
                let host = self.ledger.hosts.get_mut(&agent_id);
                if let Some(departure) = host.and_then(|host| host.departure.as_mut()) {
                    departure.answered(&framework_id, refuse, now);
                }
                let answered = InverseAnswered {
                    framework_id,
                    agent_id,
                    refuse,
                };
                self.state.inverse_answered(&answered, now);
            }
            Fact::Begun => self.begun(),
            Fact::Weight(rank, weight) => {
                let weights = BTreeMap::from([(RANKS[rank].to_owned(), f64::from(weight))]);
                self.ledger.weights.extend(weights.clone());
                self.state.weights_changed(&WeightsChanged { weights });
            }
        }
    }

    fn tell_whitelist(&mut self) {
        let hosts = self.ledger.whitelist.clone();
        self.state.whitelist_changed(&WhitelistChanged { hosts });
    }

    pub fn begun(&mut self) {
        let quotas = self.ledger.quotas.iter();
        let quotas = quotas.map(|(role, quota)| (role.to_string(), quota.clone()));
        self.state.begin(&Begin {
            master: Pid::new("master", NodeId::new("master", 1), 0),
            allocation_interval: Duration::from_secs(1),
            weights: self.ledger.weights.clone(),
            quotas: quotas.collect(),
            region: Some("home".to_owned()),
            agents_expected: 0,
        });
        self.tell_whitelist();
        self.ledger
            .tenants
            .values_mut()
            .for_each(|tenant| tenant.spent = false);
        self.ledger
            .hosts
            .values_mut()
            .for_each(|host| host.departure = None);
        for (id, tenant) in self.ledger.tenants.clone() {
            self.ledger.forget_filters(&id, |_| true);
            self.state.framework_added(told(&id, &tenant));
        }
        for n in 0..AGENTS {
            let id = agent(&format!("a{n}"));
            let active = self.ledger.hosts.get(&id).is_none_or(|host| host.active);
            self.agent_back(n);
            if !active {
                self.tell(Fact::AgentActivity(n, active));
            }
        }
    }

    fn agent_added(&mut self, n: u32, size: u32) {
        let mut total = format!("cpus:{size};mem:{};disk:100;ports:[1-{size}]", size * 40);
        if !size.is_multiple_of(3) {
            total.push_str(&format!(";cpus(a):{}", size % 3));
        }
        if size == 5 {
            total.push_str(";mem(a/b):80");
        }
        if size == 6 {
            total.push_str(";gpus:1");
        }
        let mut added = added(&format!("a{n}"), &total, vec![]);
        if size == 4 {
            added.info.resources += mount(50);
        }
        (added.info.domain, added.info.attributes) = (domain(n), attributes(n));
        let before = self.ledger.hosts.get(&added.agent_id);
        let host = Host {
            rack: rack(n),
            departure: before.and_then(|before| before.departure.clone()),
            active: true,
            listed: self.ledger.lists(&added.info.hostname),
            remote: n == REMOTE,
            total: added.info.resources.clone(),
            refused: self.refused_of(&added.agent_id),
            ..Host::default()
        };
        self.ledger.hosts.insert(added.agent_id.clone(), host);
        self.state.agent_added(added);
    }

    /// Filters of an unchanged agent stay.
    fn refused_of(&self, id: &AgentId) -> Vec<Refused> {
        let before = self.ledger.hosts.get(id);
        before.map_or_else(Vec::new, |before| before.refused.clone())
    }

    fn agent_back(&mut self, n: u32) {
        let name = format!("a{n}");
        let Some(before) = self.ledger.hosts.get(&agent(&name)).cloned() else {
            return;
        };
        let mut used: BTreeMap<FrameworkId, Resources> = BTreeMap::new();
        for ((framework, role), held) in &before.held {
            *used.entry(framework.clone()).or_default() += &held.allocate(role);
        }
        let mut added = added(&name, "cpus:1", used.into_iter().collect());
        (added.info.resources, added.oversubscribed) = (before.total.clone(), before.lent.clone());
        (added.info.domain, added.info.attributes) = (domain(n), attributes(n));
        let host = Host {
            active: true,
            given: Resources::new(),
            ..before
        };
        self.ledger.hosts.insert(agent(&name), host);
        self.state.agent_added(added);
    }

    fn recovered(
        &mut self,
        agent_id: AgentId,
        who: (FrameworkId, Role),
        what: &Resources,
        refuse: Option<Duration>,
    ) {
        self.ledger.recovered(&agent_id, who.clone(), what, refuse);
        let fact = Recovered {
            framework_id: who.0,
            agent_id,
            resources: what.allocate(&who.1),
            refuse,
            beside_offer: false,
        };
        self.state.recovered(&fact, self.ledger.now);
    }

    fn use_again(&mut self, n: usize) {
        let Some((agent_id, who, held)) = self.holding(n) else {
            return;
        };
        let one = |own: &Resource| {
            let amount = own.amount().unwrap();
            Resource::annotated(own.name(), amount, own.annotations().clone()).unwrap()
        };
        let copy: Resources = held.shared().iter().map(one).collect();
        if copy.is_empty() {
            return;
        }
        *self.ledger.host(&agent_id).held.get_mut(&who).unwrap() += copy.clone();
        let (framework_id, role) = who;
        self.state.converted(&Converted {
            framework_id,
            agent_id,
            consumed: Resources::new(),
            converted: copy.allocate(&role),
        });
    }

    fn convert(&mut self, n: usize, change: impl Fn(&Role, &Resources) -> (Resources, Resources)) {
        let Some((agent_id, who, held)) = self.holding(n) else {
            return;
        };
        let (consumed, converted) = change(&who.1, &held);
        if consumed.is_empty() {
            return;
        }
        let host = self.ledger.host(&agent_id);
        host.total = host.total.checked_sub(&consumed).unwrap() + converted.clone();
        let held = host.held.get_mut(&who).unwrap();
        *held = held.checked_sub(&consumed).unwrap() + converted.clone();
        let (framework_id, role) = who;
        self.state.converted(&Converted {
            framework_id,
            agent_id,
            consumed: consumed.allocate(&role),
            converted: converted.allocate(&role),
        });
    }

    fn quota(&mut self, rank: usize, guarantee: u32, limit: Option<u32>) {
        let amounts = |n: u32| Quantities::parse(&format!("cpus:{n};mem:{}", n * 40)).unwrap();
        let mut quota = Quota::default();
        if guarantee > 0 {
            quota.guarantees = amounts(guarantee);
        }
        if let Some(limit) = limit {
            quota.limits = amounts(limit);
        }
        let role = Role::new(RANKS[rank]).unwrap();
        match quota.is_default() {
            true => drop(self.ledger.quotas.remove(&role)),
            false => drop(self.ledger.quotas.insert(role, quota.clone())),
        }
        let quotas = BTreeMap::from([(RANKS[rank].to_owned(), quota)]);
        self.state.quotas_changed(&QuotasChanged { quotas });
    }
}
