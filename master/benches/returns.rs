//! The cost of decisions on 20,000 agents with 100,000 tasks that register again at once: with
//! digests equal to the master's state or the next master's mirror, and with full reports to a
//! master that knows nothing.
//!
//! From the decoded message to the effects: no mailbox, no registry, no wire. Mesos needs 3.9 s for
//! the same, with messages inside one process. Each figure is one line of JSON: seconds for all
//! agents, and agents per second.

use std::fmt::Write;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion};
use meros_master as master;

use master::agents::comparison::Arrival;
use master::state::measure::{SyntheticAgents, decide};

const AGENTS: u32 = 20_000;
const TASKS_EACH: u32 = 5;

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_secs(1))
        .configure_from_args();
    let synthetic = match SyntheticAgents::new(AGENTS, TASKS_EACH) {
        Ok(synthetic) => synthetic,
        Err(error) => return eprintln!("no crowd: {error}"),
    };
    let Ok(empty) = SyntheticAgents::empty_state() else {
        return eprintln!("cannot build an empty state");
    };
    let reports = || synthetic.reports.iter().cloned().map(Arrival::from);
    let summaries = || synthetic.summaries.iter().cloned().map(Arrival::from);
    let mut known = empty.clone();
    assert_eq!(decide(&mut known, reports()).registered, AGENTS as usize);

    let Ok(next) = synthetic.state_after(&known) else {
        return eprintln!("cannot build the next master's state");
    };

    let mut lines = String::new();
    let mut measure = |name: &str,
                       state: &master::state::MasterState,
                       arrivals: &dyn Fn() -> Vec<Arrival>| {
        let mut fastest = f64::INFINITY;
        criterion.bench_function(name, |bencher| {
            bencher.iter_batched(
                || (state.clone(), arrivals()),
                |(mut state, arrivals)| {
                    let started = cpu_time();
                    let decided = decide(&mut state, arrivals);
                    fastest = fastest.min((cpu_time() - started).as_secs_f64());
                    assert_eq!(decided.registered, AGENTS as usize);
                    black_box(state)
                },
                BatchSize::PerIteration,
            );
        });
        if fastest.is_finite() {
            let rate = f64::from(AGENTS) / fastest;
            let _ = writeln!(
                lines,
                r#"{{"bench":"{name}","agents":{AGENTS},"tasks":{},"seconds":{fastest:.4},"agents_per_second":{rate:.0},"mesos_seconds":3.9}}"#,
                AGENTS * TASKS_EACH
            );
        }
    };
    measure("returns_equal_digests", &known, &|| summaries().collect());
    measure("returns_to_the_next_master", &next, &|| {
        summaries().collect()
    });
    measure("returns_full_reports", &empty, &|| reports().collect());
    print!("{lines}");
    criterion.final_summary();
}

/// Processor time of this thread.
fn cpu_time() -> Duration {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map_or(Duration::ZERO, Duration::from)
}
