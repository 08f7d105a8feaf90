//! `meros-lab bench allocator`: the cost of the allocator, compared with that of Mesos in the same
//! cases.
//!
//! State and sorter without mailboxes on one thread, in CPU time like Mesos' figures, which other
//! work on the machine does not affect. Mesos was measured on another day on a comparable machine:
//! compare ratios only.

#[allow(
    dead_code,
    reason = "a fixture of several crates, which each use a part of it"
)]
#[path = "../../../../modules/tests/it/workload.rs"]
mod workload;

use std::time::Duration;

use clap::Args;
use nix::time::{ClockId, clock_gettime};
use serde_json::json;

use super::process::own_resident;
use super::{Figure, OutputFlags, Result, median, rounded};
use workload::{Shape, Workload};

/// Seed of every cluster.
const SEED: u64 = 7;
/// Runs for the figure of one freed resource.
const INCREMENTAL_RUNS: usize = 2_000;

/// Cost of an allocation run
#[derive(Args, Clone, Copy, Debug)]
#[command(rename_all = "snake_case")]
pub struct AllocatorArgs {
    /// Number of agents, almost all of their resources free
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=200_000))]
    agents: u32,
    /// Number of frameworks, each of which declines all offers
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    frameworks: u32,
    /// Number of roles of the frameworks, in turn; with 0, all are in `*`
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    roles: u32,
    /// Guarantee each role half an agent, or one and a half, in turn
    #[arg(long, requires = "roles")]
    quotas: bool,
    /// Reservations of each agent
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000), requires = "roles")]
    reservations: u32,
    /// Labels of each reservation
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100), requires = "reservations")]
    labels: u32,
    /// Add a persistent volume to each reservation
    #[arg(long, requires = "reservations")]
    volumes: bool,
    /// Also measure a run after the end of one task
    #[arg(long)]
    incremental: bool,
    /// Number of runs; the median counts
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    #[command(flatten)]
    output: OutputFlags,
}

/// `meros-lab bench allocator`.
pub fn run(args: &AllocatorArgs) -> Result {
    let shape = Shape {
        agents: args.agents,
        frameworks: args.frameworks,
        roles: args.roles,
        quotas: args.quotas,
        reservations: args.reservations,
        labels: args.labels,
        volumes: args.volumes,
    };
    let mesos = Mesos::of(&shape);
    let figure = |bench, figure, limit| {
        let figure = Figure::new(bench, figure, "ms").beside(limit, mesos.label);
        figure.with(json!({
            "agents": args.agents, "frameworks": args.frameworks, "roles": args.roles,
            "quotas": args.quotas, "reservations": args.reservations, "labels": args.labels,
            "volumes": args.volumes, "rounds": args.rounds,
        }))
    };
    // Memory first, before the heap contains freed blocks.
    let memory = memory(&shape);
    let (frameworks, agents) = filling(&shape, args.rounds.min(5));
    let mut figures = vec![
        figure("add_frameworks", frameworks, mesos.add_frameworks),
        figure("add_agents", agents, mesos.add_agents),
    ];
    for (bench, bytes) in ["framework_memory", "agent_memory"].into_iter().zip(memory) {
        figures.push(Figure {
            unit: "KiB",
            limit_is: "none: what one costs the allocator and the sorter",
            ..figure(bench, bytes / 1024.0, 0.0)
        });
    }
    let runs = FullRuns::of(&shape, args.rounds);
    let mut full = figure("full_run", median(&runs.runs), mesos.full_run);
    full.parameters["decline_all_ms"] = json!(rounded(median(&runs.declines)));
    let least = runs.runs.iter().copied().reduce(f64::min);
    full.parameters["least_ms"] = json!(rounded(least.unwrap_or_default()));
    full.parameters["grants"] = json!(runs.grants);
    figures.push(full);
    if args.incremental {
        let run = figure("incremental_run", incremental_run(&shape), 1.0);
        let limit_is = "the most it may be; Mesos waits for the next batch, up to a second";
        figures.push(run.beside(1.0, limit_is));
    }
    args.output.report(&figures);
    Ok(())
}

/// Milliseconds of this thread's CPU time for this work.
fn spent(work: impl FnOnce()) -> f64 {
    let time = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    let time = || time().map_or(Duration::ZERO, Duration::from);
    let begun = time();
    work();
    time().saturating_sub(begun).as_secs_f64() * 1e3
}

/// Resident bytes for each framework and for each agent.
fn memory(shape: &Shape) -> [f64; 2] {
    let empty = own_resident();
    let mut all = Workload::empty(SEED);
    shape
        .frameworks()
        .for_each(|added| all.state.framework_added(added));
    let with_frameworks = own_resident();
    shape
        .agents()
        .for_each(|added| all.state.agent_added(added));
    [
        (with_frameworks - empty) / f64::from(shape.frameworks),
        (own_resident() - with_frameworks) / f64::from(shape.agents),
    ]
}

/// Milliseconds of adding all frameworks, and of adding all agents: medians of the rounds.
fn filling(shape: &Shape, rounds: u32) -> (f64, f64) {
    let (mut adding_frameworks, mut adding_agents) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (frameworks, agents): (Vec<_>, Vec<_>) =
            (shape.frameworks().collect(), shape.agents().collect());
        let state = &mut Workload::empty(SEED).state;
        adding_frameworks.push(spent(|| {
            let mut added = frameworks.into_iter();
            added.by_ref().for_each(|one| state.framework_added(one));
        }));
        adding_agents.push(spent(|| {
            agents.into_iter().for_each(|one| state.agent_added(one));
        }));
    }
    (median(&adding_frameworks), median(&adding_agents))
}

/// Milliseconds of runs that offer every agent, and of declining all offers of one run.
struct FullRuns {
    runs: Vec<f64>,
    declines: Vec<f64>,
    /// Grants of the last run.
    grants: usize,
}

impl FullRuns {
    /// Offers the whole cluster and declines the offers, `rounds` times. Filters persist between
    /// rounds, as in Mesos' benchmark, except with reservations: those could go to no other
    /// framework, so each round begins with the initial cluster.
    fn of(shape: &Shape, rounds: u32) -> Self {
        let mut all = Workload::of(shape, SEED);
        let fresh = (shape.reservations > 0).then(|| all.clone());
        let (mut runs, mut declines, mut count) = (Vec::new(), Vec::new(), 0);
        for _ in 0..rounds {
            if let Some(fresh) = &fresh {
                all = fresh.clone();
            }
            let mut grants = Vec::new();
            runs.push(spent(|| grants = all.run(true)));
            count = grants.len();
            declines.push(spent(|| all.decline(grants)));
        }
        Self {
            runs,
            declines,
            grants: count,
        }
    }
}

/// Median milliseconds from the end of one task in a full cluster until its resources are granted
/// again.
fn incremental_run(shape: &Shape) -> f64 {
    let mut all = Workload::of(shape, SEED);
    let mut held = all.run(true);
    let mut each = Vec::with_capacity(INCREMENTAL_RUNS);
    for n in 0..INCREMENTAL_RUNS {
        if held.is_empty() {
            break;
        }
        let ended = held.swap_remove(n * 7919 % held.len());
        let mut granted = Vec::new();
        each.push(spent(|| {
            all.end(ended);
            granted = all.run(false);
        }));
        held.extend(granted);
    }
    median(&each)
}

/// Recorded cost in Mesos for one cluster, in milliseconds of its single allocator thread.
#[derive(Clone, Copy)]
struct Mesos {
    /// One run that offers every agent, with all offers declined.
    full_run: f64,
    add_agents: f64,
    add_frameworks: f64,
    label: &'static str,
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
/// Cost for each agent in unmeasured cases: a run, and adding it; and for adding a framework.
const UNMEASURED_COSTS: [f64; 3] = [0.035, 0.06, 0.01];
/// One `total += r` of 4,000 reserved resources. A run adds each agent's resources at least once.
const ADDITION_OF_4000: f64 = 35.0;

impl Mesos {
    /// Cost for a cluster of this shape, or for a similar one.
    fn of(shape: &Shape) -> Self {
        let (agents, frameworks, roles) = (shape.agents, shape.frameworks, shape.roles);
        let [run, agent, framework] = UNMEASURED_COSTS;
        let like = Self {
            full_run: run * f64::from(agents),
            add_agents: agent * f64::from(agents),
            add_frameworks: framework * f64::from(frameworks),
            label: "Mesos in like cases, 35 us an agent, recorded",
        };
        if shape.reservations >= 4_000 {
            return Self {
                full_run: ADDITION_OF_4000 * f64::from(agents),
                label: "Mesos adding 4,000 reserved resources once an agent, recorded",
                ..like
            };
        }
        if shape.reservations > 0 {
            return like;
        }
        let mut plain = RECORDED.iter().copied();
        let plain = plain.find(|case| (case.0, case.1) == (agents, frameworks) && roles == 0);
        if let Some((_, _, [full_run, add_agents, add_frameworks])) = plain {
            return Self {
                full_run,
                add_agents,
                add_frameworks,
                label: "Mesos in the same case, recorded",
            };
        }
        let key = (agents, roles, frameworks, shape.quotas);
        let mut in_roles = RECORDED_ROLES.iter();
        let in_roles = in_roles.find(|case| (case.0, case.1, case.2, case.3) == key);
        in_roles.map_or(like, |case| Self {
            full_run: case.4,
            label: "Mesos in the same case, recorded (its run)",
            ..like
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_figure_is_of_a_similar_case() {
        let same = Mesos::of(&Shape::of(10_000, 200));
        assert_eq!((same.full_run, same.add_agents), (350.0, 585.0));
        assert!(same.label.contains("same case"), "{}", same.label);
        let quotas = Shape {
            roles: 3_000,
            quotas: true,
            ..Shape::of(3_000, 3_000)
        };
        assert_eq!(Mesos::of(&quotas).full_run, 6_150.0);
        let like = Mesos::of(&Shape::of(2_000, 200));
        assert!((like.full_run - 70.0).abs() < 1e-9);
        assert!(like.label.contains("like cases"), "{}", like.label);
        let reserved = Shape {
            roles: 50,
            reservations: 4_000,
            ..Shape::of(1, 50)
        };
        assert_eq!(Mesos::of(&reserved).full_run, 35.0);
    }

    #[test]
    fn rounds_with_reservations_start_afresh() {
        let plain = Shape::of(30, 5);
        let reserved = Shape {
            roles: 5,
            reservations: 5,
            ..plain
        };
        for (shape, grants) in [(plain, 30), (reserved, 150)] {
            for rounds in [1, 4] {
                assert_eq!(FullRuns::of(&shape, rounds).grants, grants, "{shape:?}");
            }
        }
    }
}
