//! `meros bench allocator`: what the allocator costs, beside Mesos' own in the same cases.
//!
//! Books and sorter without mailboxes on one thread, in processor time as Mesos' figures are, which other work on the machine does not
//! lengthen. Mesos was measured on another day on a machine like the one that our figures come from: hold ratios against ratios.

pub mod sorter;

use std::time::Duration;

use clap::Args;
use modules::workload::measure::{Changing, Filling, FullRuns, Sorting, incremental_run};
use modules::workload::recorded::{Mesos, MesosSorter};
use modules::workload::{Shape, Workload};
use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use super::load::resident;
use super::{Figure, OutputFlags, report, rounded};
use crate::failure::Outcome;

/// Every cluster is made from this.
const SEED: u64 = 7;

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
    /// Have a persistent volume beside each reservation
    #[arg(long, requires = "reservations")]
    volumes: bool,
    /// Measure, too, that all agents are updated, and that frameworks suppress and revive one after the other
    #[arg(long)]
    changing: bool,
    /// Measure a run after one task has ended, too
    #[arg(long)]
    incremental: bool,
    /// Measure the sorter, too: by itself, and what it costs that it is an actor, in this process and behind a link
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

/// `meros bench allocator`.
pub fn run(args: AllocatorArgs) -> Outcome {
    let shape = args.shape();
    let mesos = Mesos::of(&shape);
    let figure = |bench, figure, limit| Figure {
        bench,
        figure,
        unit: "ms",
        limit,
        limit_is: mesos.are,
        parameters: args.parameters(),
    };
    // Memory first, while there is none that was let go of.
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
    full.parameters["least_ms"] = json!(rounded(runs.least));
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

/// What the sorter's tree takes by itself.
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
            ..figure("sorter_anew", ours.anew, mesos.sort)
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
        Self {
            agent: (all - with_frameworks) / f64::from(shape.agents),
            framework: (with_frameworks - empty) / f64::from(shape.frameworks),
        }
    }
}

/// Processor time of this thread.
fn spent() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map_or(Duration::ZERO, Duration::from)
}
