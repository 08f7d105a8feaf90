//! What one run costs in the large cases of Mesos' own benchmarks: processor time of this thread, beside the goal of each.
//!
//! For work on the allocator itself, without the release build of everything: `cargo bench -p meros-modules --bench cases -- NAME ROUNDS`, where
//! a case is measured if its name contains `NAME`. `meros bench allocator` measures the same by its flags, and more.

use std::time::Duration;

use modules::workload::{Shape, Workload};
use nix::time::{ClockId, clock_gettime};

const SEED: u64 = 7;
/// Runs of a case, of which the one in the middle counts.
const ROUNDS: usize = 15;
/// Runs after which the work of one freed resource is known.
const FREED: usize = 2_000;

/// A cluster and the milliseconds that a run may take.
struct Case {
    name: &'static str,
    shape: Shape,
    goal: f64,
}

const fn case(name: &'static str, shape: Shape, goal: f64) -> Case {
    Case { name, shape, goal }
}

const fn roles(agents: u32, frameworks: u32, roles: u32, quotas: bool) -> Shape {
    Shape {
        roles,
        quotas,
        ..Shape::of(agents, frameworks)
    }
}

const CASES: [Case; 8] = [
    case("1000x50", Shape::of(1_000, 50), 3.1),
    case("10000x50", Shape::of(10_000, 50), 36.2),
    case("10000x200", Shape::of(10_000, 200), 35.0),
    case("2000x2000-roles", roles(2_000, 2_000, 1_000, false), 10.7),
    case("300x300-quotas", roles(300, 300, 300, true), 5.3),
    case("3000x3000-quotas", roles(3_000, 3_000, 3_000, true), 123.0),
    case("50000x200", Shape::of(50_000, 200), 200.0),
    case(
        "1000x50-labels",
        Shape {
            reservations: 4,
            labels: 10,
            ..roles(1_000, 50, 50, false)
        },
        f64::INFINITY,
    ),
];

fn main() {
    // Cargo adds flags of its own.
    let mut asked = std::env::args().skip(1).filter(|arg| !arg.starts_with('-'));
    let name = asked.next().unwrap_or_default();
    let rounds = asked.next().and_then(|rounds| rounds.parse().ok());
    let rounds: usize = rounds.unwrap_or(ROUNDS);
    for case in CASES.iter().filter(|case| case.name.contains(&name)) {
        measure(case, rounds.max(1));
    }
}

fn measure(Case { name, shape, goal }: &Case, rounds: usize) {
    let mut all = Workload::of(shape, SEED);
    let (mut runs, mut declines) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let begun = spent();
        let grants = all.run(true);
        runs.push(spent() - begun);
        let begun = spent();
        all.decline(grants);
        declines.push(spent() - begun);
    }
    let (least, run, declined) = (
        runs.iter().min().copied(),
        middle(&mut runs),
        middle(&mut declines),
    );
    let least = milliseconds(least.unwrap_or_default());
    let freed = freed(shape);
    println!(
        "{name:>18}: a run {run:8.2} ms (least {least:8.2}, goal {goal:6.1}), declining it all {declined:7.2} ms, a run after one task {freed:.4} ms"
    );
}

/// From the end of one task in a full cluster until what it had is granted again.
fn freed(shape: &Shape) -> f64 {
    let mut all = Workload::of(shape, SEED);
    let mut held = all.run(true);
    let mut taken = Vec::with_capacity(FREED);
    for n in 0..FREED {
        let ended = held.swap_remove(n * 7919 % held.len());
        let begun = spent();
        all.end(ended);
        let granted = all.run(false);
        taken.push(spent() - begun);
        held.extend(granted);
    }
    middle(&mut taken)
}

/// The one in the middle, in milliseconds.
fn middle(taken: &mut [Duration]) -> f64 {
    taken.sort_unstable();
    milliseconds(taken.get(taken.len() / 2).copied().unwrap_or_default())
}

fn milliseconds(taken: Duration) -> f64 {
    taken.as_secs_f64() * 1e3
}

/// Processor time of this thread.
fn spent() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map_or(Duration::ZERO, Duration::from)
}
