//! Time in which 20,000 agents with 100,000 tasks reregister with a master in one process: one that
//! knows no tasks, and the next one, which has them from its mirror. The measurement of `meros-lab
//! bench failover --measure memory` without the command line.
//!
//! Each round prints one line of JSON. `ROUNDS` (3), `AGENTS` (20,000) and `TASKS_EACH` (5) change
//! the size. An error prints one line, and the process exits with 1.

use std::process::ExitCode;

use simulator::synthetic_agents::BenchError;
use simulator::synthetic_agents::returning::{MESOS_SECONDS, round};
use tokio::task::LocalSet;

/// The binary's allocator.
#[global_allocator]
static HEAP: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match measured() {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("{trouble}");
            ExitCode::FAILURE
        }
    }
}

/// The variable's value, or `otherwise`.
fn number(name: &str, otherwise: u32) -> Result<u32, BenchError> {
    let Ok(said) = std::env::var(name) else {
        return Ok(otherwise);
    };
    let number = said.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("{name} is `{said}`: expected a number of 1 or more").into())
}

fn measured() -> Result<(), BenchError> {
    let (agents, tasks_each) = (number("AGENTS", 20_000)?, number("TASKS_EACH", 5)?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    for _ in 0..number("ROUNDS", 3)? {
        let took = LocalSet::new().block_on(&runtime, round(agents, tasks_each))?;
        println!(
            r#"{{"agents":{agents},"tasks":{},"reregister_full":{:.3},"reregister_digest":{:.3},"mesos":{}}}"#,
            agents.saturating_mul(tasks_each),
            took.full,
            took.digest,
            MESOS_SECONDS,
        );
    }
    Ok(())
}
