//! The cases of Mesos' own allocator benchmark, compared with its recorded figures: CPU time of
//! this thread, and the ratio to Mesos.
//!
//! For work on the allocator, without a release build of the workspace: `cargo bench -p
//! meros-modules --bench cases -- NAME ROUNDS` measures the cases whose names contain `NAME`.
//! `meros-lab bench allocator` measures the same and more, by its flags.
//!
//! Does not use criterion, unlike `allocator.rs`: it must measure with the same code as `meros-lab
//! bench allocator`, in CPU time, and print recorded figures and goals, which criterion does not
//! support.

use std::time::Duration;

use modules::workload::measure::{Filling, FullRuns, Sorting, incremental_run};
use modules::workload::recorded::{Mesos, MesosSorter, RECORDED_SORTS};
use modules::workload::{Shape, Workload};
use nix::time::{ClockId, clock_gettime};

const SEED: u64 = 7;
/// Runs of a case, whose median counts. A cluster is filled at most five times.
const ROUNDS: u32 = 15;

/// A cluster with a goal for its run: a ratio to Mesos, or a time in milliseconds.
struct Case {
    name: &'static str,
    shape: Shape,
    asked: Asked,
}

#[derive(Clone, Copy)]
enum Asked {
    Times(f64),
    Milliseconds(f64),
    Nothing,
}

const fn plain(name: &'static str, agents: u32, frameworks: u32) -> Case {
    case(name, Shape::of(agents, frameworks), Asked::Times(10.0))
}

const fn case(name: &'static str, shape: Shape, asked: Asked) -> Case {
    Case { name, shape, asked }
}

const fn roles(agents: u32, frameworks: u32, roles: u32, quotas: bool) -> Shape {
    Shape {
        roles,
        quotas,
        ..Shape::of(agents, frameworks)
    }
}

const fn reserved(shape: Shape, reservations: u32, labels: u32) -> Shape {
    Shape {
        reservations,
        labels,
        ..shape
    }
}

const CASES: [Case; 15] = [
    plain("1000x50", 1_000, 50),
    plain("1000x200", 1_000, 200),
    plain("1000x1000", 1_000, 1_000),
    plain("5000x50", 5_000, 50),
    plain("5000x200", 5_000, 200),
    plain("5000x1000", 5_000, 1_000),
    plain("10000x50", 10_000, 50),
    plain("10000x200", 10_000, 200),
    plain("10000x1000", 10_000, 1_000),
    case(
        "2000x2000-roles",
        roles(2_000, 2_000, 1_000, false),
        Asked::Times(10.0),
    ),
    case(
        "300x300-quotas",
        roles(300, 300, 300, true),
        Asked::Times(10.0),
    ),
    case(
        "3000x3000-quotas",
        roles(3_000, 3_000, 3_000, true),
        Asked::Times(50.0),
    ),
    case(
        "50000x200",
        Shape::of(50_000, 200),
        Asked::Milliseconds(200.0),
    ),
    case(
        "1000x50-labels",
        reserved(roles(1_000, 50, 50, false), 4, 10),
        Asked::Nothing,
    ),
    case(
        "1x50-4000-reserved",
        reserved(roles(1, 50, 50, false), 4_000, 1),
        Asked::Nothing,
    ),
];

fn main() {
    // Cargo adds flags of its own.
    let mut asked = std::env::args().skip(1).filter(|arg| !arg.starts_with('-'));
    let name = asked.next().unwrap_or_default();
    let rounds = asked.next().and_then(|rounds| rounds.parse().ok());
    let rounds: u32 = rounds.unwrap_or(ROUNDS).max(1);
    println!(
        "{:>18}  {:<15} {:>10} {:>10} {:>8}  asked",
        "case", "milliseconds of", "ours", "Mesos", "times"
    );
    for case in CASES.iter().filter(|case| case.name.contains(&name)) {
        measure(case, rounds);
    }
    for (clients, _) in RECORDED_SORTS {
        let case = format!("sorter-{clients}");
        if case.contains(&name) {
            sort(&case, clients, rounds);
        }
    }
}

fn measure(Case { name, shape, asked }: &Case, rounds: u32) {
    let mesos = Mesos::of(shape);
    let recorded = |figure| Some(figure).filter(|_| mesos.label.contains("same case"));
    let runs = FullRuns::of(Workload::of(shape, SEED), shape, rounds, spent);
    let peer = (shape.agents < 50_000).then_some(mesos.full_run);
    row(name, "a run", runs.run, peer, *asked);
    row(name, "the least run", runs.shortest, peer, Asked::Nothing);
    row(name, "declining it", runs.decline, None, Asked::Nothing);
    let filling = Filling::of(shape, SEED, rounds.min(5), spent);
    let peer = recorded(mesos.add_agents).filter(|_| shape.roles == 0);
    row(
        name,
        "adding agents",
        filling.add_agents,
        peer,
        Asked::Nothing,
    );
    let peer = recorded(mesos.add_frameworks).filter(|_| shape.roles == 0);
    let frameworks = filling.add_frameworks;
    row(name, "frameworks", frameworks, peer, Asked::Nothing);
    let freed = incremental_run(shape, SEED, spent);
    row(
        name,
        "after one task",
        freed,
        None,
        Asked::Milliseconds(1.0),
    );
}

fn sort(case: &str, clients: u32, rounds: u32) {
    let (ours, mesos) = (
        Sorting::of(clients, rounds, spent),
        MesosSorter::of(clients),
    );
    row(
        case,
        "a full sort",
        ours.sort,
        Some(mesos.sort),
        Asked::Nothing,
    );
    let added = Some(mesos.added);
    row(case, "10,000 added", ours.added, added, Asked::Nothing);
    let removed = Some(mesos.removed);
    row(
        case,
        "10,000 removed",
        ours.removed,
        removed,
        Asked::Nothing,
    );
    row(case, "anew", ours.recompute, None, Asked::Nothing);
}

/// Prints one figure with Mesos' figure, their ratio, and the goal.
fn row(case: &str, what: &str, ours: f64, mesos: Option<f64>, asked: Asked) {
    let times = mesos.map(|mesos| mesos / ours);
    let missed = |missed: bool| if missed { ", missed" } else { "" };
    let asked = match asked {
        Asked::Times(asked) => {
            let missed = missed(times.is_none_or(|times| times < asked));
            format!("{asked} times{missed}")
        }
        Asked::Milliseconds(asked) => format!("{asked} ms{}", missed(ours > asked)),
        Asked::Nothing => String::new(),
    };
    let or_none = |figure: Option<f64>, digits| {
        figure.map_or_else(String::new, |figure| format!("{figure:.digits$}"))
    };
    println!(
        "{case:>18}  {what:<15} {ours:>10.4} {:>10} {:>8}  {asked}",
        or_none(mesos, 3),
        or_none(times, 1)
    );
}

/// CPU time of this thread.
fn spent() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map_or(Duration::ZERO, Duration::from)
}
