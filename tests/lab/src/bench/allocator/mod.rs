//! `meros-lab bench allocator`: the cost of the allocator, compared with that of Mesos in the same
//! cases.
//!
//! State and sorter without mailboxes on one thread, in CPU time like Mesos' figures, which other
//! work on the machine does not affect. Mesos was measured on another day on a comparable machine:
//! compare ratios only.

pub mod sorter;

use std::time::Duration;

use clap::Args;
use modules::workload::measure::{Changing, Filling, FullRuns, Sorting, incremental_run};
use modules::workload::recorded::{Mesos, MesosSorter};
use modules::workload::{Shape, Workload};
use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use super::process::own_resident;
use super::{Figure, OutputFlags, report, rounded};
use meros::output::error::Outcome;

/// Seed of every cluster.
const SEED: u64 = 7;

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
    /// Also measure an update of all agents, and suppress and revive of one framework after the
    /// other
    #[arg(long)]
    changing: bool,
    /// Also measure a run after the end of one task
    #[arg(long)]
    incremental: bool,
    /// Also measure the sorter: by itself, as an actor in this process, and as one behind a link
    #[arg(long)]
    sorter: bool,
    /// Number of runs; the median counts
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
            volumes: self.volumes,
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
            "volumes": self.volumes,
            "rounds": self.rounds,
        })
    }
}

/// `meros-lab bench allocator`.
pub fn run(args: AllocatorArgs) -> Outcome {
    let shape = args.shape();
    let mesos = Mesos::of(&shape);
    let figure = |bench, figure, limit| Figure {
        bench,
        figure,
        unit: "ms",
        limit,
        limit_is: mesos.label,
        parameters: args.parameters(),
    };
    // Memory first, before the heap contains freed blocks.
    let memory = Memory::of(&shape);
    let filling = Filling::of(&shape, SEED, args.rounds.min(5), spent);
    let mut figures = vec![
        figure(
            "add_frameworks",
            filling.add_frameworks,
            mesos.add_frameworks,
        ),
        figure("add_agents", filling.add_agents, mesos.add_agents),
    ];
    for (bench, bytes) in [
        ("framework_memory", memory.framework),
        ("agent_memory", memory.agent),
    ] {
        figures.push(Figure {
            unit: "KiB",
            limit: 0.0,
            limit_is: "none: what one costs the allocator and the sorter",
            ..figure(bench, bytes / 1024.0, 0.0)
        });
    }
    let runs = FullRuns::of(Workload::of(&shape, SEED), &shape, args.rounds, spent);
    let mut full = figure("full_run", runs.run, mesos.full_run);
    full.parameters["decline_all_ms"] = json!(rounded(runs.decline));
    full.parameters["least_ms"] = json!(rounded(runs.shortest));
    full.parameters["grants"] = json!(runs.grants);
    figures.push(full);
    if args.incremental {
        figures.push(Figure {
            limit: 1.0,
            limit_is: "the most it may be; Mesos waits for the next batch, up to a second",
            ..figure("incremental_run", incremental_run(&shape, SEED, spent), 1.0)
        });
    }
    if args.changing {
        let changing = Changing::of(&shape, SEED, args.rounds.min(5), spent);
        figures.push(Figure {
            limit: mesos.add_agents + mesos.full_run,
            limit_is: "Mesos adding all agents and one run, recorded apart",
            ..figure("update_agents", changing.update_agents, 0.0)
        });
        let revivals = f64::from(args.frameworks.div_ceil(2));
        figures.push(Figure {
            limit: revivals * mesos.full_run,
            limit_is: "Mesos' run once for each that revives, recorded alone",
            ..figure("suppress_revive", changing.suppress_revive, 0.0)
        });
    }
    if args.sorter {
        figures.extend(sorting(&args));
        figures.extend(sorter::figures(&shape, args.rounds, &args.parameters())?);
    }
    report(&figures, args.output);
    Ok(())
}

/// The sorter's tree by itself.
fn sorting(args: &AllocatorArgs) -> [Figure; 4] {
    let ours = Sorting::of(args.frameworks, args.rounds, spent);
    let mesos = MesosSorter::of(args.frameworks);
    let figure = |bench, figure, limit| Figure {
        bench,
        figure,
        unit: "ms",
        limit,
        limit_is: "Mesos' sorter with 10,000 agents, recorded",
        parameters: json!({ "clients": args.frameworks, "rounds": args.rounds }),
    };
    [
        figure("sorter_sort", ours.sort, mesos.sort),
        figure("sorter_added", ours.added, mesos.added),
        figure("sorter_removed", ours.removed, mesos.removed),
        Figure {
            limit_is: "Mesos' sorter, whose clients are in order before it sorts, recorded",
            ..figure("sorter_anew", ours.recompute, mesos.sort)
        },
    ]
}

/// Resident bytes for each of them.
struct Memory {
    agent: f64,
    framework: f64,
}

impl Memory {
    fn of(shape: &Shape) -> Self {
        let empty = own_resident();
        let mut workload = Workload::empty(SEED);
        shape
            .frameworks()
            .for_each(|added| workload.state.framework_added(added));
        let with_frameworks = own_resident();
        shape
            .agents()
            .for_each(|added| workload.state.agent_added(added));
        let all = own_resident();
        Self {
            agent: (all - with_frameworks) / f64::from(shape.agents),
            framework: (with_frameworks - empty) / f64::from(shape.frameworks),
        }
    }
}

/// CPU time of this thread.
fn spent() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map_or(Duration::ZERO, Duration::from)
}
