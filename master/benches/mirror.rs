//! The cost of a mirror for a leader of 20,000 agents with 100,000 tasks, of which 100 (some of
//! each framework) have changed since the last second: the difference of the two snapshots, and the
//! master's copy on a change while a snapshot exists. Also the full batch for a new follower: built
//! by the leader, and applied by the follower.
//!
//! Plain functions: no mailbox, no wire. Each figure is one line of JSON.

use std::fmt::Write;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion};
use meros_master as master;

use master::agents::comparison::Arrival;
use master::leadership::mirror::change::Change;
use master::leadership::mirror::difference::changes;
use master::state::MasterState;
use master::state::measure::{SyntheticAgents, decide};
use protocol::{FrameworkId, TaskId, TaskState};

const AGENTS: u32 = 20_000;
const TASKS_EACH: u32 = 5;
const CHANGED: usize = 100;

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_secs(1))
        .configure_from_args();
    let synthetic = match SyntheticAgents::new(AGENTS, TASKS_EACH) {
        Ok(synthetic) => synthetic,
        Err(error) => return eprintln!("no crowd: {error}"),
    };
    let (Ok(empty), Ok(mut known)) = (
        SyntheticAgents::empty_state(),
        SyntheticAgents::empty_state(),
    ) else {
        return eprintln!("cannot build an empty state");
    };
    let reports = synthetic.reports.iter().cloned().map(Arrival::from);
    assert_eq!(decide(&mut known, reports).registered, AGENTS as usize);
    let some = some(&known);
    let now = changed(known.clone(), &some);
    let (few, all) = (changes(&known, &now), changes(&empty, &now));

    let mut lines = String::new();
    let mut measure = |name: &str, told: &[Change], work: &mut dyn FnMut() -> usize| {
        let mut fastest = f64::INFINITY;
        criterion.bench_function(name, |bencher| {
            bencher.iter_batched(
                || (),
                |()| {
                    let started = cpu_time();
                    black_box(work());
                    fastest = fastest.min((cpu_time() - started).as_secs_f64());
                },
                BatchSize::PerIteration,
            );
        });
        if fastest.is_finite() {
            let bytes: usize = told.iter().map(bytes).sum();
            let _ = writeln!(
                lines,
                r#"{{"bench":"{name}","agents":{AGENTS},"tasks":{},"milliseconds":{:.3},"changes":{},"bytes":{bytes}}}"#,
                AGENTS * TASKS_EACH,
                fastest * 1e3,
                told.len()
            );
        }
    };
    measure("mirror_difference", &few, &mut || {
        changes(&known, &now).len()
    });
    measure("mirror_copy", &few, &mut || {
        changed(known.clone(), &some).agents.iter().count()
    });
    measure("mirror_nothing_changed", &[], &mut || {
        changes(&known, &known).len()
    });
    measure("mirror_whole", &all, &mut || changes(&empty, &now).len());
    measure("mirror_take_whole", &all, &mut || {
        let mut state = empty.clone();
        all.iter()
            .for_each(|change| change.clone().apply(&mut state));
        state.agents.iter().count()
    });
    print!("{lines}");
    criterion.final_summary();
}

/// Some tasks, equally many per framework.
fn some(state: &MasterState) -> Vec<(FrameworkId, TaskId)> {
    let frameworks = state.tasks.frameworks().count().max(1);
    let of = state.tasks.frameworks().flat_map(|(_, of)| {
        let each = of.active().step_by(100);
        each.take(CHANGED / frameworks)
    });
    of.map(|task| (task.framework_id.clone(), task.id.clone()))
        .collect()
}

/// Changes the state of these tasks.
fn changed(mut state: MasterState, some: &[(FrameworkId, TaskId)]) -> MasterState {
    for (framework, task) in some {
        state
            .tasks
            .update(framework, task, |task| task.state = TaskState::Killing);
    }
    state
}

fn bytes(change: &Change) -> usize {
    runtime::wire::codec::encode(change).map_or(0, |bytes| bytes.len())
}

/// Processor time of this thread.
fn cpu_time() -> Duration {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map_or(Duration::ZERO, Duration::from)
}
