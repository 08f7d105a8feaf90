//! The default load: the behaviour of frameworks and the resources of agents, from the scenario's
//! seed and sizes alone.
//!
//! | module | contents |
//! |---|---|
//! | `command` | the commands of simulated tasks |
//! | `quota_changes` | an operator's changes of quota and weights |
//! | `record` | a framework's state, which survives its crashes |
//! | `reservations` | operations of a framework |
//! | `scheduler` | the scheduler of a framework |
//! | `sorter` | a master's sorter, which may give invalid answers |
//!
//! **Frameworks.** There are five kinds in turn, so that ten frameworks have each of them twice:
//!
//! | kind | role, weight | tasks |
//! |---|---|---|
//! | `service` | `web`, 1 | run for 5 to 40 minutes; distinguishes unreachable from lost |
//! | `batch` | `batch`, 0.5 | run for 10 to 120 seconds; one in 20 fails, some ignore SIGTERM |
//! | `spare` | `batch`, 0.5 | as batch, at least half of them on revocable resources |
//! | `own` | `ads`, 2 | in its own executors of several tasks; one in 50 crashes its executor |
//! | `picky` | `*` and `web/picky`, 1 | run for 1 to 5 minutes; two of three offers are declined |
//!
//! `picky` also keeps one offer in ten until it is rescinded. `service`, `batch` and `spare` launch
//! one in four of their launches as a task group, in the default executor.
//!
//! Each framework has a target number of tasks (a fair part of two tasks an agent, from
//! [`TARGET_MIN`] to [`TARGET_MAX`]). It launches one to three tasks on an offer, at most half of
//! its target every [`LAUNCH_EVERY`] (on revocable resources at any time), and so replaces ended
//! and lost tasks. After a launch, or at its target, it suppresses its offers, and revives them at
//! half of its target; only `picky` never does. Every [`KILL_EVERY`] each kills one of its tasks
//! with a probability of one third. It keeps its id and its tasks across crashes, reconciles
//! afterwards, and has a failover timeout of [`FAILOVER_TIMEOUT`].
//!
//! The executors of `service`, `spare` and `own` outlive their agent's process, the others do not.
//!
//! A `service` has two schedulers, each on its own machine, one of which stands by; their state is
//! stored apart from both. It also reserves a little on agents of even racks, creates volumes on it
//! for tasks, and gives all of it up again (see [`reservations`]).
//!
//! **Agents** have 4 to 16 cores, 8 to 32 GiB and ports. One in four has a core and a GiB reserved
//! for `ads`. One in three lends two cores and 2 GiB by a `fixed` estimator, and has a `load`
//! controller: above a load of [`LOAD_THRESHOLD`], which only a machine with other work reaches,
//! its tenants must yield.
//!
//! **The master** rescinds an unanswered offer after [`OFFER_TIMEOUT`]. Its allocator revokes tasks
//! for guarantees after [`REVOKE_AFTER`], with [`REVOCATION_GRACE`].

pub mod command;
pub mod quota_changes;
pub mod record;
pub mod reservations;
pub mod scheduler;
pub(crate) mod sorter;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use consensus::member::Settings;
use protocol::{Capability, FrameworkInfo, TaskInfo};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::load::command::{Command, Ending};
use crate::report::hash::derived;
use crate::scenario::{FaultKind, Scenario};

/// Minimum interval between two rounds of launches of a framework.
pub const LAUNCH_EVERY: Duration = Duration::from_secs(3);
/// Interval at which a framework may kill a task.
pub const KILL_EVERY: Duration = Duration::from_secs(20);
/// Maximum time of a framework without a scheduler.
pub const FAILOVER_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Maximum time of an unanswered offer.
pub const OFFER_TIMEOUT: Duration = Duration::from_secs(30);
/// The load above which an agent takes lent resources back, in its operator's form.
pub const LOAD_THRESHOLD: &str = "100";
/// Time without its guarantee after which a role gets it back from others.
pub const REVOKE_AFTER: Duration = Duration::from_secs(5);
/// The grace period of revoked tasks.
pub const REVOCATION_GRACE: Duration = Duration::from_secs(10);
/// Minimum target of a framework.
pub const TARGET_MIN: usize = 5;
/// Maximum target of a framework.
pub const TARGET_MAX: usize = 100;

/// A leader is replaced after a silence of this number of ticks, up to twice as many.
const ELECTION_TICKS: usize = 10;

/// The kind of a framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Long tasks.
    Service,
    /// Short tasks, some of which fail.
    Batch,
    /// Short tasks on revocable resources.
    Spare,
    /// Several tasks in its own executors.
    Own,
    /// Declines most offers.
    Picky,
}

impl Manner {
    /// The kind of the framework with this number, counted from 1.
    pub fn of(number: u32) -> Self {
        match number % 5 {
            1 => Self::Service,
            2 => Self::Batch,
            3 => Self::Spare,
            4 => Self::Own,
            _ => Self::Picky,
        }
    }

    /// Its roles.
    fn roles(self) -> BTreeSet<String> {
        let below = (self == Self::Picky).then_some("web/picky");
        let roles = std::iter::once(self.role()).chain(below);
        roles.map(str::to_owned).collect()
    }

    /// Its first role.
    pub fn role(self) -> &'static str {
        match self {
            Self::Service => "web",
            Self::Batch | Self::Spare => "batch",
            Self::Own => "ads",
            Self::Picky => "*",
        }
    }

    /// Whether its executors outlive their agent's process.
    pub fn checkpoints(self) -> bool {
        matches!(self, Self::Service | Self::Spare | Self::Own)
    }

    /// Whether it launches some tasks as groups.
    pub fn has_groups(self) -> bool {
        matches!(self, Self::Service | Self::Batch | Self::Spare)
    }

    /// Whether it has a standby scheduler on another machine.
    pub fn has_standby(self) -> bool {
        self == Self::Service
    }

    fn capabilities(self) -> BTreeSet<Capability> {
        let all: &[Capability] = match self {
            Self::Service => &[Capability::PartitionAware, Capability::MultiRole],
            Self::Batch => &[Capability::MultiRole],
            Self::Spare => &[
                Capability::RevocableResources,
                Capability::MultiRole,
                Capability::PartitionAware,
            ],
            Self::Own => &[
                Capability::TaskKillingState,
                Capability::PartitionAware,
                Capability::MultiRole,
            ],
            Self::Picky => &[Capability::MultiRole],
        };
        all.iter().copied().collect()
    }

    /// Its description.
    pub fn framework(self, name: &str) -> FrameworkInfo {
        FrameworkInfo {
            failover_timeout: FAILOVER_TIMEOUT,
            roles: self.roles(),
            capabilities: self.capabilities(),
            hostname: name.to_owned(),
            checkpoint: self.checkpoints(),
            ..FrameworkInfo::new("nobody", name)
        }
    }

    /// The command of its next task.
    pub fn command(self, rng: &mut SmallRng) -> Command {
        let seconds = |rng: &mut SmallRng, from: u64, to: u64| {
            Duration::from_millis(rng.random_range(from * 1000..=to * 1000))
        };
        let (from, to) = match self {
            Self::Service => (300, 2400),
            Self::Batch | Self::Spare => (10, 120),
            Self::Own => (30, 300),
            Self::Picky => (60, 300),
        };
        let after = seconds(rng, from, to);
        let chance = rng.random_range(0..100);
        let (end, stubborn) = match self {
            Self::Batch | Self::Spare if chance < 5 => (Ending::Exits(1), false),
            Self::Batch | Self::Spare => (Ending::Exits(0), chance < 25),
            Self::Own if chance < 2 => (Ending::Crashes, false),
            _ => (Ending::Exits(0), chance < 10),
        };
        Command {
            end: Some((after, end)),
            stubborn,
        }
    }

    /// The cores, in tenths, and the memory in MiB of its next task.
    pub fn size(self, rng: &mut SmallRng) -> (u32, u32) {
        match self {
            Self::Service => (rng.random_range(5..=20), rng.random_range(256..=2048)),
            Self::Batch | Self::Spare => (rng.random_range(1..=10), rng.random_range(64..=512)),
            Self::Own => (rng.random_range(1..=5), rng.random_range(64..=256)),
            Self::Picky => (rng.random_range(1..=10), rng.random_range(64..=1024)),
        }
    }
}

/// Whether lent resources are used: there is a lending agent and a framework that accepts them.
pub fn lends_and_borrows(scenario: &Scenario) -> bool {
    let borrows = |number| Manner::of(number) == Manner::Spare;
    (1..=scenario.agents).any(lends) && (1..=scenario.frameworks).any(borrows)
}

/// Whether resources are reserved: there is a suitable agent and a framework that does so.
pub fn reserves(scenario: &Scenario) -> bool {
    scenario.agents > 1 && scenario.frameworks > 0
}

/// Whether any resource of a task or its executor is revocable, so that all of it must yield.
pub fn is_revocable(task: &TaskInfo) -> bool {
    let executor = task.executor.as_ref().map(|executor| &executor.resources);
    let mut given = std::iter::once(&task.resources).chain(executor);
    given.any(|resources| !resources.revocable().is_empty())
}

/// The target of each framework.
pub fn target(scenario: &Scenario) -> usize {
    let fair = scenario.agents as usize * 2 / (scenario.frameworks.max(1) as usize);
    fair.clamp(TARGET_MIN, TARGET_MAX)
}

/// The roles' weights, in the master's operator's form.
pub fn weights() -> BTreeMap<String, f64> {
    BTreeMap::from([("ads".to_owned(), 2.0), ("batch".to_owned(), 0.5)])
}

/// Maximum drift of explicit faults in a group with leases, in millionths: then no clock is half as
/// fast again as another.
const LEASE_DRIFT_MAX: u32 = 100_000;

/// Whether this group answers reads from leases: one seed in four, unless a fault is of a kind that
/// leases cannot tolerate. Clocks drift and jump as everywhere, but no master is paused.
pub fn reads_from_leases(scenario: &Scenario) -> bool {
    let bears = |kind: &FaultKind| match kind {
        FaultKind::Pause { .. } => false,
        FaultKind::Drift { ppm, .. } => ppm.unsigned_abs() <= LEASE_DRIFT_MAX,
        _ => true,
    };
    let mut faults = scenario.faults.iter().flatten();
    derived(scenario.seed, "leases", 0).is_multiple_of(4) && faults.all(|fault| bears(&fault.kind))
}

/// The settings of the group member at this address. Most groups have slow ticks, which cost less;
/// one in eight has real ones. Snapshots are frequent.
pub fn of_group(seed: u64, leases: bool, address: String, masters: &[String]) -> Settings {
    let masters: Vec<&str> = masters.iter().map(String::as_str).collect();
    let tick = match derived(seed, "ticks", 0) % 8 {
        0 => 30,
        1 => 100,
        _ => 300,
    };
    let mut settings = Settings::new(address, &masters)
        .with_elections(Duration::from_millis(tick), ELECTION_TICKS);
    settings = settings.with_lease_reads(leases);
    settings.policy.snapshot_entries = 30;
    settings.policy.keep_entries = 10;
    settings
}

/// An agent's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Equipment {
    /// Its resources, in its operator's form.
    pub resources: String,
    /// Its attributes, in its operator's form.
    pub attributes: String,
    /// The resources that its estimator lends, if any.
    pub lends: Option<String>,
}

/// Whether the agent with this number lends, counted from 1.
pub fn lends(number: u32) -> bool {
    number.is_multiple_of(3)
}

/// The configuration of the agent with this number, counted from 1.
pub fn equipment(seed: u64, number: u32) -> Equipment {
    let mut rng = SmallRng::seed_from_u64(derived(seed, "equipment", number.into()));
    let cpus = rng.random_range(4..=16);
    let mem = cpus * 2048;
    let mut resources = format!("cpus:{cpus};mem:{mem};disk:102400;gpus:0;ports:[31000-32000]");
    if number.is_multiple_of(4) {
        resources.push_str(";cpus(ads):1;mem(ads):1024");
    }
    Equipment {
        resources,
        attributes: format!("rack:r{}", number % 10),
        lends: lends(number).then(|| "cpus:2;mem:2048".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Profile, Wiring};

    #[test]
    fn ten_frameworks_have_every_kind_twice() {
        let manners: Vec<Manner> = (1..=10).map(Manner::of).collect();
        let roles: BTreeSet<&str> = manners.iter().map(|manner| manner.role()).collect();
        assert_eq!(roles, BTreeSet::from(["*", "ads", "batch", "web"]));
        for manner in &manners {
            assert_eq!(manners.iter().filter(|other| *other == manner).count(), 2);
        }
        let revocable = manners
            .iter()
            .filter(|manner| manner.framework("f").can(Capability::RevocableResources));
        assert_eq!(revocable.count(), 2);
    }

    #[test]
    fn command_text_round_trips() {
        let mut rng = SmallRng::seed_from_u64(7);
        for number in 1..500 {
            let command = Manner::of(number).command(&mut rng);
            assert_eq!(Command::parse(&command.to_string()), Ok(command));
        }
    }

    #[test]
    fn one_group_in_four_uses_leases() {
        let scenario = |seed, fault: Option<&str>| Scenario {
            seed,
            masters: 3,
            agents: 3,
            frameworks: 2,
            duration: Duration::from_secs(60),
            profile: Profile::All,
            wiring: Wiring::Memory,
            faults: fault.map(|fault| vec![fault.parse().unwrap()]),
        };
        let leased = |fault| {
            let seeds = 0..400_u64;
            let of = move |seed: &u64| reads_from_leases(&scenario(*seed, fault));
            seeds.filter(of).count()
        };
        assert!((70..130).contains(&leased(None)), "{}", leased(None));
        assert_eq!(leased(Some("1secs+1secs drift leader 50000")), leased(None));
        assert_eq!(leased(Some("1secs+1secs drift leader -400000")), 0);
        assert_eq!(leased(Some("1secs+1secs pause leader")), 0);
        let seeds = (0..400).map(|seed| scenario(seed, None));
        for leased in seeds.filter(reads_from_leases) {
            let plan = crate::scenario::faults::plan(&leased);
            assert!(plan.iter().all(|fault| fault.kind.name() != "pause"));
        }
    }

    #[test]
    fn target_is_a_fair_part_of_two_tasks_per_agent() {
        let scenario = |agents, frameworks| Scenario {
            seed: 1,
            masters: 1,
            agents,
            frameworks,
            duration: Duration::from_secs(60),
            profile: Profile::None,
            wiring: Wiring::Memory,
            faults: None,
        };
        assert_eq!(target(&scenario(100, 10)), 20);
        assert_eq!(target(&scenario(1, 10)), TARGET_MIN);
        assert_eq!(target(&scenario(5000, 1)), TARGET_MAX);
        assert_eq!(target(&scenario(5, 0)), 10);
    }
}
