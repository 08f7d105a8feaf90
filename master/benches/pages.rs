//! The state page of 1,000 agents with 10,000 running tasks and 10,000 that have ended, in JSON, and the same in the operator API's two
//! forms: milliseconds of processor time and bytes, the first time and again while nothing has changed. Mesos needs 80 ms for the page, and
//! 46 ms for GET_STATE in protobuf.
//!
//! Plain functions: no mailbox, no wire. Each figure ends as one line of JSON.

use std::fmt::Write;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion};
use meros_master as master;

use master::comparison::Arrival;
use master::http::Written;
use master::measure::{Crowd, decide, end_some};
use v1::pieces::Keeper;

const AGENTS: u32 = 1000;
const TASKS_EACH: u32 = 20;
const ENDED: usize = 10_000;

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_secs(1))
        .configure_from_args();
    let crowd = match Crowd::new(AGENTS, TASKS_EACH) {
        Ok(crowd) => crowd,
        Err(error) => return eprintln!("no crowd: {error}"),
    };
    let Ok(mut books) = Crowd::empty_books() else {
        return eprintln!("no books");
    };
    let reports = crowd.reports.iter().cloned().map(Arrival::from);
    assert_eq!(decide(&mut books, reports).registered, AGENTS as usize);
    assert_eq!(end_some(&mut books, ENDED), ENDED);

    let mut lines = String::new();
    for written in [
        Written::StatePage,
        Written::StateAsJson,
        Written::StateAsProtobuf,
    ] {
        let mut keeper = Keeper::default();
        let text = written.of(&books, Some(&mut keeper));
        let (parts, kept) = keeper.done(text);
        for again in [false, true] {
            let mut fastest = f64::INFINITY;
            let name = format!("{written:?}{}", if again { "Again" } else { "" });
            criterion.bench_function(&name, |bencher| {
                bencher.iter_batched(
                    || Keeper::of(kept.clone()),
                    |mut keeper| {
                        let started = cpu_time();
                        match again {
                            true => {
                                let text = written.of(&books, Some(&mut keeper));
                                black_box(keeper.done(text));
                            }
                            false => drop(black_box(written.of(&books, None))),
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
