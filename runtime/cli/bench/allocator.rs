//! `meros bench allocator`: what the allocator costs, beside Mesos' own in the same cases.
//!
//! Books and sorter without mailboxes on one thread, in processor time as Mesos' figures are, which other work on the machine does not
//! lengthen. Mesos was measured on another day on a machine like the one that our figures come from: hold ratios against ratios.

pub mod sorter;

use std::time::Duration;

use clap::Args;
use modules::workload::{Shape, Workload};
use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use super::load::resident;
use super::{Figure, OutputFlags, report, rounded};
use crate::failure::Outcome;

/// Every cluster is made from this.
const SEED: u64 = 7;
/// Runs after which the work of one freed resource is known.
const INCREMENTAL_RUNS: usize = 2_000;

/// What a run of the allocator costs
#[derive(Args, Clone, Copy, Debug)]
#[command(rename_all = "snake_case")]
pub struct AllocatorArgs {
    /// How many agents, all free but for a little
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=200_000))]
    agents: u32,
    /// How many frameworks, each of which declines whatever it is offered
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    frameworks: u32,
    /// How many roles they are in, in turn; with none, all are in `*`
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    roles: u32,
    /// Guarantee each role half an agent, or one and a half
    #[arg(long, requires = "roles")]
    quotas: bool,
    /// How many reservations each agent has
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000), requires = "roles")]
    reservations: u32,
    /// How many labels each reservation has
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100), requires = "reservations")]
    labels: u32,
    /// Measure a run after one task has ended, too
    #[arg(long)]
    incremental: bool,
    /// Measure what it costs that the sorter is an actor, in this process and behind a link, too
    #[arg(long)]
    sorter: bool,
    /// How many runs; the one in the middle counts
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    #[command(flatten)]
    output: OutputFlags,
}

impl AllocatorArgs {
    fn shape(&self) -> Shape {
        Shape {
            agents: self.agents,
            frameworks: self.frameworks,
            roles: self.roles,
            quotas: self.quotas,
            reservations: self.reservations,
            labels: self.labels,
        }
    }

    fn parameters(&self) -> Value {
        json!({
            "agents": self.agents,
            "frameworks": self.frameworks,
            "roles": self.roles,
            "quotas": self.quotas,
            "reservations": self.reservations,
            "labels": self.labels,
            "rounds": self.rounds,
        })
    }
}

/// What Mesos took for one case, in milliseconds of one thread.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Mesos {
    full_run: f64,
    add_agents: f64,
    add_frameworks: f64,
}

/// One run, adding all agents and adding all frameworks, by agents and frameworks, all in role `*`.
const RECORDED: [(u32, u32, [f64; 3]); 9] = [
    (1_000, 50, [31.0, 48.0, 0.5]),
    (1_000, 200, [32.0, 55.0, 4.8]),
    (1_000, 1_000, [41.0, 63.0, 9.9]),
    (5_000, 50, [162.0, 297.0, 4.0]),
    (5_000, 200, [178.0, 315.0, 3.0]),
    (5_000, 1_000, [215.0, 341.0, 10.0]),
    (10_000, 50, [362.0, 579.0, 0.5]),
    (10_000, 200, [350.0, 585.0, 1.8]),
    (10_000, 1_000, [433.0, 687.0, 9.0]),
];

/// One run, by agents, roles and frameworks, and whether the roles have quotas.
const RECORDED_ROLES: [(u32, u32, u32, bool, f64); 3] = [
    (300, 300, 300, true, 53.0),
    (3_000, 3_000, 3_000, true, 6_150.0),
    (2_000, 1_000, 2_000, false, 107.0),
];

/// What it took for an agent in a case that nobody measured, in milliseconds: a run, and adding it; and for adding a framework.
const OTHERWISE: [f64; 3] = [0.035, 0.06, 0.01];

impl Mesos {
    fn of(shape: &Shape) -> (Self, &'static str) {
        let Shape {
            agents,
            frameworks,
            roles,
            quotas,
            ..
        } = *shape;
        let [run, agent, framework] = OTHERWISE;
        let mut guess = Self {
            full_run: run * f64::from(agents),
            add_agents: agent * f64::from(agents),
            add_frameworks: framework * f64::from(frameworks),
        };
        let plain = RECORDED.iter().find(|case| {
            (case.0, case.1) == (agents, frameworks) && roles == 0 && shape.reservations == 0
        });
        if let Some((_, _, [full_run, add_agents, add_frameworks])) = plain.copied() {
            let recorded = Self {
                full_run,
                add_agents,
                add_frameworks,
            };
            return (recorded, "Mesos in the same case, recorded");
        }
        let in_roles = RECORDED_ROLES.iter().find(|case| {
            (case.0, case.1, case.2, case.3) == (agents, roles, frameworks, quotas)
                && shape.reservations == 0
        });
        match in_roles {
            Some(case) => {
                guess.full_run = case.4;
                (guess, "Mesos in the same case, recorded (its run)")
            }
            None => (guess, "Mesos in like cases, 35 us an agent, recorded"),
        }
    }
}

/// `meros bench allocator`.
pub fn run(args: AllocatorArgs) -> Outcome {
    let shape = args.shape();
    let (mesos, limit_is) = Mesos::of(&shape);
    let figure = |bench, figure, limit| Figure {
        bench,
        figure,
        unit: "ms",
        limit,
        limit_is,
        parameters: args.parameters(),
    };
    let filled = Filled::measure(&shape, args.rounds.min(5));
    let mut figures = vec![
        figure(
            "add_frameworks",
            filled.add_frameworks,
            mesos.add_frameworks,
        ),
        figure("add_agents", filled.add_agents, mesos.add_agents),
    ];
    for (bench, bytes) in [
        ("framework_memory", filled.framework_bytes),
        ("agent_memory", filled.agent_bytes),
    ] {
        figures.push(Figure {
            unit: "KiB",
            limit: 0.0,
            limit_is: "none: what one costs the allocator and the sorter",
            ..figure(bench, bytes / 1024.0, 0.0)
        });
    }
    let mut all = filled.workload;
    let (run, decline) = full_run(&mut all, args.rounds);
    let mut full = figure("full_run", run, mesos.full_run);
    full.parameters["decline_all_ms"] = json!(rounded(decline));
    figures.push(full);
    if args.incremental {
        figures.push(Figure {
            limit: 1.0,
            limit_is: "the most it may be; Mesos waits for the next batch, up to a second",
            ..figure("incremental_run", incremental_run(&shape), 1.0)
        });
    }
    if args.sorter {
        figures.extend(sorter::figures(&shape, args.rounds, &args.parameters())?);
    }
    report(&figures, args.output);
    Ok(())
}

/// A cluster, and what it took to fill it.
struct Filled {
    workload: Workload,
    /// Milliseconds.
    add_agents: f64,
    add_frameworks: f64,
    /// Resident bytes for each.
    agent_bytes: f64,
    framework_bytes: f64,
}

impl Filled {
    fn measure(shape: &Shape, rounds: u32) -> Self {
        // Memory first, while there is none that was let go of.
        let empty = resident();
        let mut workload = Workload::empty(SEED);
        shape
            .frameworks()
            .for_each(|added| workload.books.framework_added(added));
        let with_frameworks = resident();
        shape
            .agents()
            .for_each(|added| workload.books.agent_added(added));
        let all = resident();
        drop(workload);
        let (agents, frameworks): (Vec<_>, Vec<_>) =
            (shape.agents().collect(), shape.frameworks().collect());
        let (mut adding_agents, mut adding_frameworks) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let (agents, frameworks) = (agents.clone(), frameworks.clone());
            let mut workload = Workload::empty(SEED);
            let watch = Watch::start();
            for added in frameworks {
                workload.books.framework_added(added);
            }
            adding_frameworks.push(watch.milliseconds());
            let watch = Watch::start();
            for added in agents {
                workload.books.agent_added(added);
            }
            adding_agents.push(watch.milliseconds());
        }
        Self {
            workload: Workload::of(shape, SEED),
            add_agents: middle(&mut adding_agents),
            add_frameworks: middle(&mut adding_frameworks),
            agent_bytes: (all - with_frameworks) / f64::from(shape.agents),
            framework_bytes: (with_frameworks - empty) / f64::from(shape.frameworks),
        }
    }
}

/// Milliseconds of a run in which every agent is offered, and of declining it all; so many times.
fn full_run(all: &mut Workload, rounds: u32) -> (f64, f64) {
    let (mut runs, mut declines) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let watch = Watch::start();
        let grants = all.run(true);
        runs.push(watch.milliseconds());
        let watch = Watch::start();
        all.decline(grants);
        declines.push(watch.milliseconds());
    }
    (middle(&mut runs), middle(&mut declines))
}

/// Milliseconds from the end of one task in a full cluster until what it had is granted again.
fn incremental_run(shape: &Shape) -> f64 {
    let mut all = Workload::of(shape, SEED);
    let mut held = all.run(true);
    let mut taken = Vec::with_capacity(INCREMENTAL_RUNS);
    for n in 0..INCREMENTAL_RUNS {
        if held.is_empty() {
            break;
        }
        let ended = held.swap_remove(n * 7919 % held.len());
        let watch = Watch::start();
        all.end(ended);
        let granted = all.run(false);
        taken.push(watch.milliseconds());
        held.extend(granted);
    }
    middle(&mut taken)
}

/// The one in the middle.
fn middle(taken: &mut [f64]) -> f64 {
    taken.sort_by(f64::total_cmp);
    taken.get(taken.len() / 2).copied().unwrap_or(0.0)
}

/// Measures this thread's processor time.
struct Watch(Duration);

impl Watch {
    fn start() -> Self {
        Self(Self::spent())
    }

    fn milliseconds(&self) -> f64 {
        Self::spent().saturating_sub(self.0).as_secs_f64() * 1e3
    }

    fn spent() -> Duration {
        let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
        time.map_or(Duration::ZERO, Duration::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_stands_beside_what_mesos_took_for_it_or_for_one_like_it() {
        let (same, limit_is) = Mesos::of(&Shape::of(10_000, 200));
        assert_eq!((same.full_run, same.add_agents), (350.0, 585.0));
        assert!(limit_is.contains("same case"), "{limit_is}");
        let quotas = Shape {
            roles: 3_000,
            quotas: true,
            ..Shape::of(3_000, 3_000)
        };
        assert_eq!(Mesos::of(&quotas).0.full_run, 6_150.0);
        let (like, limit_is) = Mesos::of(&Shape::of(2_000, 200));
        assert!((like.full_run - 70.0).abs() < 1e-9);
        assert!(limit_is.contains("like cases"), "{limit_is}");
    }

    #[test]
    fn the_middle_of_nothing_is_nothing() {
        assert_eq!(middle(&mut []), 0.0);
        assert_eq!(middle(&mut [3.0, 1.0, 2.0]), 2.0);
    }
}
