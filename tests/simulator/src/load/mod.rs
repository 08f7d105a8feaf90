//! The default load: what frameworks want and what agents have, from the scenario's seed and sizes alone.
//!
//! **Frameworks.** They come in five manners, one after the other, so that ten frameworks have each of them twice:
//!
//! | manner | role, weight | its tasks |
//! |---|---|---|
//! | `service` | `web`, 1 | run for 5 to 40 minutes; knows unreachable from lost |
//! | `batch` | `batch`, 0.5 | run for 10 to 120 seconds; one in 20 fails, some refuse to be killed politely |
//! | `spare` | `batch`, 0.5 | as batch, at least half of them on revocable resources |
//! | `own` | `ads`, 2 | with executors of its own that run several tasks; one in 50 takes its executor down |
//! | `picky` | `*` and `web/picky`, 1 | run for 1 to 5 minutes; it declines two of three offers, and sits on one in ten until it is rescinded |
//!
//! Each framework keeps a target of tasks that have not ended (a fair part of two tasks an agent, from [`TARGET_MIN`] to [`TARGET_MAX`]),
//! launches one to three tasks on an offer, at most half of its target every [`LAUNCH_EVERY`] (on revocable resources at any time), and so replaces what ends or is
//! lost. When it has launched, or has what it wants, it suppresses its offers, and revives them when it has no more than half of
//! its target; only `picky` never does. Every [`KILL_EVERY`] each kills one of its tasks with one chance in
//! three. It remembers its id and its tasks over its own crash, asks how they are when it is back, and has a failover timeout of
//! [`FAILOVER_TIMEOUT`].
//!
//! The executors of `service`, `spare` and `own` outlive the process of their agent, those of the others do not.
//!
//! A `service` has two schedulers, each on a machine of its own, of which one stands by for the other; what they remember is kept apart from
//! both. It also reserves a little on agents of even racks, makes volumes of it and lets tasks use them, and gives all of it up again (see [`estate`]).
//!
//! **Agents** have 4 to 16 cores, 8 to 32 GiB and ports; one in four has a core and a GiB reserved for `ads`; one in three lends
//! two cores and 2 GiB by a `fixed` estimator, and has a `load` controller: above a load of [`LOAD_THRESHOLD`], which only a machine reaches
//! that is busy with other work, what runs on them must yield.
//!
//! **The master** takes an unanswered offer back after [`OFFER_TIMEOUT`]. Its allocator revokes tasks for the sake of what is guaranteed, after
//! [`REVOKE_AFTER`] and with [`REVOCATION_GRACE`].

pub mod book;
pub mod estate;
pub mod rations;
pub mod scheduler;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use consensus::member::Settings;
use protocol::{Capability, FrameworkInfo, TaskInfo};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::command::{Command, Ending};
use crate::hash::derived;
use crate::scenario::{FaultKind, Scenario};

/// A framework launches in one go at most once in this time.
pub const LAUNCH_EVERY: Duration = Duration::from_secs(3);
/// A framework thinks of killing a task once in this time.
pub const KILL_EVERY: Duration = Duration::from_secs(20);
/// How long a framework may be away.
pub const FAILOVER_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// How long an offer may stay unanswered.
pub const OFFER_TIMEOUT: Duration = Duration::from_secs(30);
/// The load above which an agent that lends takes back what it has lent, as its operator writes it.
pub const LOAD_THRESHOLD: &str = "100";
/// A role that has lacked what is guaranteed to it for so long has it back from others.
pub const REVOKE_AFTER: Duration = Duration::from_secs(5);
/// How long their tasks have then.
pub const REVOCATION_GRACE: Duration = Duration::from_secs(10);
/// The fewest tasks one framework wants.
pub const TARGET_MIN: usize = 5;
/// The most tasks one framework wants.
pub const TARGET_MAX: usize = 100;

/// A leader that is silent for so many ticks, up to twice as many, is replaced.
const ELECTION_TICKS: usize = 10;

/// How a framework behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Long tasks.
    Service,
    /// Short tasks, some of which fail.
    Batch,
    /// Short tasks on what others do not use.
    Spare,
    /// Several tasks in executors of its own.
    Own,
    /// Declines much.
    Picky,
}

impl Manner {
    /// The manner of the framework with this number, counted from 1.
    pub fn of(number: u32) -> Self {
        match number % 5 {
            1 => Self::Service,
            2 => Self::Batch,
            3 => Self::Spare,
            4 => Self::Own,
            _ => Self::Picky,
        }
    }

    /// The roles it has.
    fn roles(self) -> BTreeSet<String> {
        let below = (self == Self::Picky).then_some("web/picky");
        let roles = std::iter::once(self.role()).chain(below);
        roles.map(str::to_owned).collect()
    }

    /// The first role it has.
    pub fn role(self) -> &'static str {
        match self {
            Self::Service => "web",
            Self::Batch | Self::Spare => "batch",
            Self::Own => "ads",
            Self::Picky => "*",
        }
    }

    /// Whether its executors outlive the process of their agent.
    pub fn checkpoints(self) -> bool {
        matches!(self, Self::Service | Self::Spare | Self::Own)
    }

    /// Whether another scheduler of it stands by on a machine of its own.
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

    /// What it says of itself.
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

    /// What its next task does.
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

/// Whether something of what agents lend will be used: there is an agent that lends, and a framework that wants such.
pub fn lends_and_borrows(scenario: &Scenario) -> bool {
    let borrows = |number| Manner::of(number) == Manner::Spare;
    (1..=scenario.agents).any(lends) && (1..=scenario.frameworks).any(borrows)
}

/// Whether something will be reserved: there is an agent where frameworks do so, and a framework that does.
pub fn reserves(scenario: &Scenario) -> bool {
    scenario.agents > 1 && scenario.frameworks > 0
}

/// Whether anything of what a task or its executor is given is revocable, so that all of it must yield.
pub fn is_revocable(task: &TaskInfo) -> bool {
    let executor = task.executor.as_ref().map(|executor| &executor.resources);
    let mut given = std::iter::once(&task.resources).chain(executor);
    given.any(|resources| !resources.revocable().is_empty())
}

/// How many tasks each framework wants to have.
pub fn target(scenario: &Scenario) -> usize {
    let fair = scenario.agents as usize * 2 / (scenario.frameworks.max(1) as usize);
    fair.clamp(TARGET_MIN, TARGET_MAX)
}

/// The weights of the roles, as the master's operator gives them.
pub fn weights() -> BTreeMap<String, f64> {
    BTreeMap::from([("ads".to_owned(), 2.0), ("batch".to_owned(), 0.5)])
}

/// No clock of a lease's group drifts by more millionths, by hand: then two of them are never half as fast again as each other.
const LEASE_DRIFT_MAX: u32 = 100_000;

/// Whether the masters of this group answer reads from leases: those of one seed in four, where no fault is of the kind that leases do not
/// bear. Their clocks drift and jump like all others, but no master stands still.
pub fn reads_from_leases(scenario: &Scenario) -> bool {
    let bears = |kind: &FaultKind| match kind {
        FaultKind::Pause { .. } => false,
        FaultKind::Drift { ppm, .. } => ppm.unsigned_abs() <= LEASE_DRIFT_MAX,
        _ => true,
    };
    let mut faults = scenario.faults.iter().flatten();
    derived(scenario.seed, "leases", 0).is_multiple_of(4) && faults.all(|fault| bears(&fault.kind))
}

/// How the member of a group at this address behaves. Most groups have slow ticks, which cost less; one in eight is as fast as real ones
/// are. Snapshots come often.
pub fn of_group(seed: u64, leases: bool, address: String, masters: &[String]) -> Settings {
    let masters: Vec<&str> = masters.iter().map(String::as_str).collect();
    let tick = match derived(seed, "ticks", 0) % 8 {
        0 => 30,
        1 => 100,
        _ => 300,
    };
    let mut settings =
        Settings::new(address, &masters).electing(Duration::from_millis(tick), ELECTION_TICKS);
    settings = settings.reading(leases);
    settings.policy.snapshot_entries = 30;
    settings.policy.keep_entries = 10;
    settings
}

/// What an agent has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Equipment {
    /// Its resources, as its operator writes them.
    pub resources: String,
    /// Its attributes, as its operator writes them.
    pub attributes: String,
    /// What its estimator lends, if it has one that lends.
    pub lends: Option<String>,
}

/// Whether the agent with this number lends, counted from 1.
pub fn lends(number: u32) -> bool {
    number.is_multiple_of(3)
}

/// What the agent with this number has, counted from 1.
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
    fn ten_frameworks_have_every_manner_twice_and_three_roles_beside_the_common_one() {
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
    fn what_a_task_does_can_be_written_and_read() {
        let mut rng = SmallRng::seed_from_u64(7);
        for number in 1..500 {
            let command = Manner::of(number).command(&mut rng);
            assert_eq!(Command::parse(&command.to_string()), Ok(command));
        }
    }

    #[test]
    fn one_group_in_four_reads_from_leases_and_none_that_is_paused() {
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
            let plan = crate::faults::plan(&leased);
            assert!(plan.iter().all(|fault| fault.kind.name() != "pause"));
        }
    }

    #[test]
    fn the_target_is_a_fair_part_of_two_tasks_an_agent() {
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
