//! The state page of 1,000 agents with 10,000 running and 10,000 ended tasks in JSON, and both
//! forms of the operator API: milliseconds of processor time and bytes, first and again without a
//! change. Mesos needs 80 ms for the page, and 46 ms for GET_STATE in protobuf.
//!
//! Plain functions: no mailbox, no wire. Each figure is one line of JSON.

use std::fmt::Write;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion};
use meros_master as master;

use master::agents::comparison::Arrival;
use master::api::RenderedAnswer;
use master::state::measure::{SyntheticAgents, decide, end_some};
use v1::answer_cache::AnswerWriter;

const AGENTS: u32 = 1000;
const TASKS_EACH: u32 = 20;
const ENDED: usize = 10_000;

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_secs(1))
        .configure_from_args();
    let synthetic = match SyntheticAgents::new(AGENTS, TASKS_EACH) {
        Ok(synthetic) => synthetic,
        Err(error) => return eprintln!("no crowd: {error}"),
    };
    let Ok(mut state) = SyntheticAgents::empty_state() else {
        return eprintln!("cannot build an empty state");
    };
    let reports = synthetic.reports.iter().cloned().map(Arrival::from);
    assert_eq!(decide(&mut state, reports).registered, AGENTS as usize);
    assert_eq!(end_some(&mut state, ENDED), ENDED);

    let mut lines = String::new();
    for written in [
        RenderedAnswer::StatePage,
        RenderedAnswer::StateAsJson,
        RenderedAnswer::StateAsProtobuf,
    ] {
        let mut writer = AnswerWriter::default();
        let text = written.of(&state, Some(&mut writer));
        let (parts, kept) = writer.done(text);
        for again in [false, true] {
            let mut fastest = f64::INFINITY;
            let name = format!("{written:?}{}", if again { "Again" } else { "" });
            criterion.bench_function(&name, |bencher| {
                bencher.iter_batched(
                    || AnswerWriter::of(kept.clone()),
                    |mut writer| {
                        let started = cpu_time();
                        match again {
                            true => {
                                let text = written.of(&state, Some(&mut writer));
                                black_box(writer.done(text));
                            }
                            false => drop(black_box(written.of(&state, None))),
                        }
                        fastest = fastest.min((cpu_time() - started).as_secs_f64());
                    },
                    BatchSize::PerIteration,
                );
            });
            if fastest.is_finite() {
                let _ = writeln!(
                    lines,
                    r#"{{"bench":"{name}","agents":{AGENTS},"tasks":{},"milliseconds":{:.3},"bytes":{}}}"#,
                    AGENTS * TASKS_EACH,
                    fastest * 1e3,
                    parts.len(),
                );
            }
        }
    }
    print!("{lines}");
    criterion.final_summary();
}

/// Processor time of this thread.
fn cpu_time() -> Duration {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map_or(Duration::ZERO, Duration::from)
}
