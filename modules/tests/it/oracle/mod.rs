//! The real allocator state and sorter compared with a naive implementation of SPEC 4.5, on small
//! clusters in random states: each run grants the same, in the same order.
//!
//! A history covers SPEC 4.5: agents with reservations, ports, GPUs, in another region, not on the
//! whitelist, inactive, and with oversubscribed resources; frameworks in nested roles, suppressed
//! or inactive, some with constraints on hosts; weights; and either quotas of top-level roles and
//! reservations, or filters, since filters on offers cut by quota follow additional rules (`laws`).

mod naive;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use module_api::allocator::{
    AgentActivity, AgentOversubscribed, Begin, FrameworkActivity, Grant, QuotasChanged, Recovered,
    Revived, Suppressed, WeightsChanged, WhitelistChanged,
};
use module_api::sorter::Stage;
use modules::allocator::AllocatorState;
use modules::sorter::Drf;
use proptest::prelude::*;
use protocol::{Capability, Demand, Quota};
use resources::{Name, Quantities, Resources};
use runtime::{Instant, NodeId, Pid};

use crate::cluster::{added, agent, framework, lent, subscribed};
use naive::{Amounts, Client, Host, Naive, add};

const AGENTS: usize = 4;
const FRAMEWORKS: u32 = 5;
/// The roles of frameworks; `a,b` are two of one framework.
const ROLES: [&str; 7] = ["a", "a/b", "a/c/d", "b", "b/e", "*", "a,b"];
/// The roles that may have a quota, and those that may have a weight.
const TOPS: [&str; 3] = ["a", "b", "absent"];
const RANKS: [&str; 4] = ["a", "b", "a/b", "a/c"];
const REFUSE: Duration = Duration::from_secs(3600);

#[derive(Clone, Debug)]
enum Step {
    Agent(usize, u32),
    Framework(u32, usize, u8),
    /// Sets an agent's oversubscribed resources to its allocated ones plus this.
    Lends(usize, u32),
    AgentActivity(usize, bool),
    FrameworkActivity(u32, bool),
    Suppressed(u32),
    Revived(u32),
    /// The whitelisted hosts, by bit.
    Whitelist(Option<u8>),
    /// The guarantee, and the difference to the limit.
    Quota(usize, u32, Option<u32>),
    Weight(usize, u32),
    /// Recovers the nth grant with a filter.
    End(usize),
    Decline(usize),
    /// A run with this order of agents.
    Run(Vec<usize>),
}

fn step() -> impl Strategy<Value = Step> {
    let (a, f) = (0..AGENTS, 0..FRAMEWORKS);
    let order: Vec<usize> = (0..AGENTS).collect();
    prop_oneof![
        5 => (a.clone(), 0_u32..12).prop_map(|(a, n)| Step::Agent(a, n)),
        5 => (f.clone(), 0..ROLES.len(), 0_u8..16).prop_map(|(f, r, c)| Step::Framework(f, r, c)),
        3 => (a.clone(), 0_u32..5).prop_map(|(a, n)| Step::Lends(a, n)),
        1 => (a, any::<bool>()).prop_map(|(a, on)| Step::AgentActivity(a, on)),
        1 => (f.clone(), any::<bool>()).prop_map(|(f, on)| Step::FrameworkActivity(f, on)),
        1 => f.clone().prop_map(Step::Suppressed),
        2 => f.prop_map(Step::Revived),
        1 => proptest::option::of(0_u8..16).prop_map(Step::Whitelist),
        3 => (0..TOPS.len(), 0_u32..9, proptest::option::of(0_u32..6))
            .prop_map(|(r, guarantee, more)| Step::Quota(r, guarantee, more)),
        2 => (0..RANKS.len(), 1_u32..4).prop_map(|(r, weight)| Step::Weight(r, weight)),
        5 => any::<usize>().prop_map(Step::End),
        5 => any::<usize>().prop_map(Step::Decline),
        6 => Just(order).prop_shuffle().prop_map(Step::Run),
    ]
}

/// Both implementations, with the same facts.
struct Both {
    /// Filters, and neither quotas nor reservations.
    refuses: bool,
    state: AllocatorState,
    sorter: Drf,
    naive: Naive,
    held: Vec<Grant>,
    /// Grants so far.
    grants: usize,
}

impl Both {
    fn new(refuses: bool) -> Self {
        let mut state = AllocatorState::default();
        state.begin(&Begin {
            master: Pid::new("master", NodeId::new("master", 1), 0),
            allocation_interval: Duration::from_secs(1),
            weights: BTreeMap::new(),
            quotas: BTreeMap::new(),
            region: Some("home".to_owned()),
            agents_expected: 0,
        });
        Self {
            refuses,
            state,
            sorter: Drf::default(),
            naive: Naive::default(),
            held: Vec::new(),
            grants: 0,
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Agent(n, size) => self.agent(n, size),
            Step::Framework(n, roles, can) => self.framework(n, roles, can),
            Step::Lends(n, more) => self.lends(n, more),
            Step::AgentActivity(n, active) => {
                if let Some(host) = self.naive.hosts.get_mut(&format!("a{n}")) {
                    host.active = active;
                }
                let agent_id = agent(&format!("a{n}"));
                let activity = AgentActivity { agent_id, active };
                self.state.agent_activity(&activity);
            }
            Step::FrameworkActivity(n, active) => {
                self.each_role(n, |client| client.active = active);
                if !active {
                    self.forget_refusals(n);
                }
                let framework_id = framework(&format!("f{n}"));
                let activity = FrameworkActivity {
                    framework_id,
                    active,
                };
                self.state.framework_activity(&activity);
            }
            Step::Suppressed(n) => {
                self.each_role(n, |client| client.suppressed = true);
                let (framework_id, roles) = (framework(&format!("f{n}")), BTreeSet::new());
                self.state.suppressed(&Suppressed {
                    framework_id,
                    roles,
                });
            }
            Step::Revived(n) => {
                self.each_role(n, |client| client.suppressed = false);
                self.forget_refusals(n);
                let (framework_id, roles) = (framework(&format!("f{n}")), BTreeSet::new());
                self.state.revived(&Revived {
                    framework_id,
                    roles,
                });
            }
            Step::Whitelist(hosts) => self.whitelist(hosts),
            Step::Quota(..) if self.refuses => {}
            Step::Quota(top, guarantee, more) => self.quota(top, guarantee, more),
            Step::Weight(rank, weight) => {
                let weights = BTreeMap::from([(RANKS[rank].to_owned(), f64::from(weight))]);
                self.naive.weights.extend(weights.clone());
                self.state.weights_changed(&WeightsChanged { weights });
            }
            Step::End(n) => self.give_back(n, false),
            Step::Decline(n) => self.give_back(n, self.refuses),
            Step::Run(order) => self.run(&order),
        }
    }

    fn agent(&mut self, n: usize, size: u32) {
        let name = format!("a{n}");
        if self.naive.hosts.contains_key(&name) {
            return;
        }
        let mut total = format!(
            "cpus:{}.{n};mem:{};disk:{};ports:[1-9]",
            size + 1,
            90 * (size % 5 + 1) + n as u32,
            size % 3
        );
        if size % 4 == 1 {
            total.push_str(";gpus:2");
        }
        if !self.refuses && size.is_multiple_of(2) {
            total.push_str(&format!(";cpus(a):{};mem(a/b):80", size % 3 + 1));
        }
        if !self.refuses && size.is_multiple_of(5) {
            total.push_str(";mem(a/c/d):33;cpus(b):0.5;disk(a):4");
        }
        let mut fact = added(&name, &total, vec![]);
        let remote = size % 6 == 3;
        fact.info.domain = remote.then(|| "far/away".parse().unwrap());
        let Parts {
            free,
            reserved,
            ports,
            ..
        } = split(&fact.info.resources);
        let mut all = free.clone();
        reserved.values().for_each(|part| add(&mut all, part, 1));
        let host = Host {
            total: all,
            idle: reserved.clone(),
            has_gpus: free.contains_key("gpus"),
            active: true,
            listed: true,
            refused: Vec::new(),
            reserved,
            free,
            ports,
            remote,
            lends: Amounts::new(),
            lent_free: Amounts::new(),
        };
        self.naive.hosts.insert(name, host);
        self.state.agent_added(fact);
        self.whitelist(None); // The model does not apply a whitelist to new agents.
    }

    fn framework(&mut self, n: u32, roles: usize, can: u8) {
        let name = format!("f{n}");
        if self.naive.clients.keys().any(|(own, _)| *own == name) {
            return;
        }
        let client = Client {
            active: true,
            takes_gpus: can & 1 > 0,
            takes_remote: can & 2 > 0,
            takes_revocable: can & 4 > 0,
            hosts: (can > 10).then(|| ["a0", "a1", "a3"].map(str::to_owned).into()),
            ..Client::default()
        };
        let capabilities = [
            (client.takes_gpus, Capability::GpuResources),
            (client.takes_remote, Capability::RegionAware),
            (client.takes_revocable, Capability::RevocableResources),
        ];
        let can = capabilities.iter().filter(|(can, _)| *can);
        let can: Vec<Capability> = can.map(|(_, what)| *what).collect();
        let mut fact = subscribed(&name, ROLES[roles], &can);
        if let Some(hosts) = &client.hosts {
            let demand = Demand::on_hosts(hosts.iter().map(|host| format!("{host}.example")));
            let roles = fact.info.roles.iter().cloned();
            fact.wants.demands = roles.map(|role| (role, demand.clone())).collect();
        }
        for role in ROLES[roles].split(',') {
            let who = (name.clone(), role.to_owned());
            self.naive.clients.insert(who, client.clone());
        }
        self.state.framework_added(fact);
    }

    fn lends(&mut self, n: usize, more: u32) {
        let Some(host) = self.naive.hosts.get_mut(&format!("a{n}")) else {
            return;
        };
        let mut total = host.lends.clone();
        add(&mut total, &host.lent_free, -1);
        let free = Amounts::from([("cpus".to_owned(), i64::from(more) * 1000)]);
        add(&mut total, &free, 1);
        host.lent_free = free.into_iter().filter(|(_, amount)| *amount > 0).collect();
        host.lends = total;
        let cpus = host.lends.get("cpus").copied().unwrap_or_default();
        let total = match cpus {
            0 => Resources::new(),
            _ => lent(&format!("cpus:{}", cpus / 1000)),
        };
        let agent_id = agent(&format!("a{n}"));
        self.state
            .agent_oversubscribed(AgentOversubscribed { agent_id, total });
    }

    fn each_role(&mut self, n: u32, act: impl Fn(&mut Client)) {
        let name = format!("f{n}");
        let clients = self.naive.clients.iter_mut();
        let own = clients.filter(|((own, _), _)| *own == name);
        own.for_each(|(_, client)| act(client));
    }

    fn forget_refusals(&mut self, n: u32) {
        let name = format!("f{n}");
        for host in self.naive.hosts.values_mut() {
            host.refused.retain(|((own, _), ..)| *own != name);
        }
    }

    fn whitelist(&mut self, hosts: Option<u8>) {
        let listed = |n: usize| hosts.is_none_or(|hosts| hosts >> n & 1 == 1);
        for n in 0..AGENTS {
            if let Some(host) = self.naive.hosts.get_mut(&format!("a{n}")) {
                host.listed = listed(n);
            }
        }
        let hosts = hosts.map(|_| {
            let listed = (0..AGENTS).filter(|n| listed(*n));
            listed.map(|n| format!("A{n}.Example")).collect()
        });
        self.state.whitelist_changed(&WhitelistChanged { hosts });
    }

    fn quota(&mut self, top: usize, guarantee: u32, more: Option<u32>) {
        let amounts = |n: u32| Quantities::parse(&format!("cpus:{n}.3;mem:{}", n * 70)).unwrap();
        let quota = Quota {
            guarantees: match guarantee {
                0 => Quantities::new(),
                _ => amounts(guarantee),
            },
            limits: more.map_or_else(Quantities::new, |more| amounts(guarantee + more)),
        };
        let own = naive::Quota {
            guarantee: plain(&quota.guarantees),
            limit: more.map(|_| plain(&quota.limits)),
        };
        self.naive.quotas.insert(TOPS[top].to_owned(), own);
        let quotas = BTreeMap::from([(TOPS[top].to_owned(), quota)]);
        self.state.quotas_changed(&QuotasChanged { quotas });
    }

    fn give_back(&mut self, n: usize, refused: bool) {
        let Some(n) = n.checked_rem(self.held.len()) else {
            return;
        };
        let grant = self.held.swap_remove(n);
        let own = in_plain(&grant);
        self.naive.give_back(&own);
        let host = self.naive.hosts.get_mut(&own.host).unwrap();
        if refused {
            let revocable = !own.revocable.is_empty();
            let refused = if revocable { own.revocable } else { own.free };
            host.refused.push((own.who, revocable, refused));
        }
        let recovered = Recovered {
            framework_id: grant.framework_id,
            agent_id: grant.agent_id,
            resources: grant.resources,
            refuse: refused.then_some(REFUSE),
            beside_offer: false,
        };
        self.state.recovered(&recovered, Instant::default());
    }

    /// One run of each.
    fn run(&mut self, order: &[usize]) {
        let names = order.iter().map(|n| format!("a{n}"));
        let names: Vec<String> = names
            .filter(|name| self.naive.hosts.contains_key(name))
            .collect();
        let expected = self.naive.run(&names);
        let now = Instant::default();
        self.state.candidates(now, true);
        let slots = names.iter().map(|name| self.state.slot_of(&agent(name)));
        let slots: Vec<u32> = slots.map(Option::unwrap).collect();
        let mut granted = Vec::new();
        for stage in Stage::ALL {
            let slate = self.state.slate(stage, &slots, &BTreeSet::new(), now);
            let Some((slate, asked)) = slate else {
                continue;
            };
            let advice = self.sorter.advise(slate).unwrap();
            let booked = self.state.book(asked, &advice, now);
            assert_eq!(
                (&booked.refusals[..], &booked.again[..]),
                (&[][..], &[][..])
            );
            granted.extend(booked.grants.into_iter().map(|(_, grant)| grant));
        }
        let ours: Vec<naive::Grant> = granted.iter().map(in_plain).collect();
        assert_eq!(ours, expected, "before: {:#?}", self.naive);
        self.grants += granted.len();
        self.held.extend(granted);
    }
}

/// Amounts by kind, in thousandths.
#[derive(Default)]
struct Parts {
    free: Amounts,
    reserved: BTreeMap<String, Amounts>,
    revocable: Amounts,
    ports: bool,
}

fn split(resources: &Resources) -> Parts {
    let mut parts = Parts::default();
    for one in resources {
        let Some(amount) = one.amount() else {
            parts.ports |= one.is(&Name::Ports);
            continue;
        };
        let part = match (one.is_reserved(), one.is_revocable()) {
            (true, _) => parts.reserved.entry(one.role().to_string()).or_default(),
            (false, true) => &mut parts.revocable,
            (false, false) => &mut parts.free,
        };
        let amount = Amounts::from([(one.name().to_string(), amount.thousandths())]);
        add(part, &amount, 1);
    }
    parts
}

fn in_plain(grant: &Grant) -> naive::Grant {
    let parts = split(&grant.resources.unallocate());
    naive::Grant {
        who: (grant.framework_id.to_string(), grant.role.clone()),
        host: grant.agent_id.to_string(),
        free: parts.free,
        reserved: parts.reserved,
        ports: parts.ports,
        revocable: parts.revocable,
    }
}

fn plain(amounts: &Quantities) -> Amounts {
    let each = amounts.iter();
    each.map(|(name, amount)| (name.to_string(), amount.thousandths()))
        .collect()
}

fn play(refuses: bool, steps: Vec<Step>) -> Both {
    let mut both = Both::new(refuses);
    steps.into_iter().for_each(|step| both.take(step));
    both.run(&[0, 1, 2, 3]);
    both
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) })]

    /// SPEC 4.5, all stages, with quotas and reservations.
    // Covers S46; S52; W11.
    #[test]
    fn runs_match_the_written_algorithm_with_quota(steps in proptest::collection::vec(step(), 8..60)) {
        play(false, steps);
    }

    /// SPEC 4.6, with filters and without quota.
    // Covers S52.
    #[test]
    fn runs_match_the_written_algorithm_with_filters(steps in proptest::collection::vec(step(), 8..60)) {
        play(true, steps);
    }
}

/// Checks that the comparison is meaningful: a guarantee met up to a limit, a limit that cuts, a
/// parent's reservation, and the rest.
#[test]
fn oracle_applies_guarantees_shares_and_limits() {
    let steps = vec![
        Step::Framework(0, 3, 0),
        Step::Framework(1, 1, 0),
        Step::Quota(0, 2, Some(1)),
        Step::Quota(1, 0, Some(1)),
        Step::Agent(0, 8),
        Step::Run(vec![0, 1, 2, 3]),
        Step::Framework(2, 5, 0),
    ];
    let both = play(false, steps);
    let granted = |n: u32| {
        let own = both.held.iter();
        let own = own.filter(|grant| grant.framework_id == framework(&format!("f{n}")));
        let own = own.map(|grant| {
            let what = grant.resources.unallocate();
            what.filter(|one| one.is(&Name::Cpus)).to_string()
        });
        own.collect::<Vec<_>>()
    };
    assert_eq!(granted(0), ["cpus:1.3"]);
    assert_eq!(granted(1), ["cpus:0.3", "cpus(a):3"]);
    assert_eq!(granted(2), ["cpus:7.4"]);
    assert_eq!(both.grants, 4);
}

/// The same for oversubscribed resources: only for frameworks with the capability, by separate
/// shares.
// Covers S52.
#[test]
fn oracle_shares_revocable_resources_separately() {
    let everybody = || Step::Run(vec![0, 1, 2, 3]);
    let steps = vec![
        Step::Agent(0, 0),
        Step::Framework(0, 0, 4),
        everybody(),
        Step::Framework(1, 3, 4),
        Step::Framework(2, 5, 0),
        Step::Lends(0, 2),
        everybody(),
        Step::Lends(0, 3),
    ];
    let both = play(false, steps);
    let lent = both.held.iter().map(in_plain);
    let lent = lent.filter(|grant| !grant.revocable.is_empty());
    let lent = lent.map(|grant| format!("{} {}", grant.who.0, grant.revocable["cpus"]));
    // The client with all regular resources has the same revocable share as the other.
    assert_eq!(lent.collect::<Vec<_>>(), ["f0 2000", "f1 3000"]);
}
