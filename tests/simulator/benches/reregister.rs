//! How long 20,000 agents with 100,000 tasks take to come back to a master within one process: one that knows nothing of their tasks, and
//! the next one, which has them from its mirror. What `meros bench failover --measure memory` measures, without the command line.
//!
//! Each round ends as one line of JSON. `ROUNDS` (3), `AGENTS` (20,000) and `TASKS_EACH` (5) change the size.

#[allow(
    dead_code,
    unused_imports,
    reason = "the command line says more of it, and its tests are there"
)]
#[path = "../../../runtime/cli/bench/failover/within.rs"]
mod within;

use tokio::task::LocalSet;

/// The binary's.
#[global_allocator]
static HEAP: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), within::Trouble> {
    let number = |name, otherwise| {
        let said = std::env::var(name).ok();
        said.and_then(|said| said.parse::<u32>().ok())
            .unwrap_or(otherwise)
    };
    let (agents, tasks_each) = (number("AGENTS", 20_000), number("TASKS_EACH", 5));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    for _ in 0..number("ROUNDS", 3) {
        let round = within::round(agents, tasks_each);
        let round = LocalSet::new().block_on(&runtime, round)?;
        println!(
            r#"{{"agents":{agents},"tasks":{},"reregister_full":{:.3},"reregister_digest":{:.3},"mesos":{}}}"#,
            agents.saturating_mul(tasks_each),
            round.full,
            round.digest,
            within::MESOS_SECONDS,
        );
    }
    Ok(())
}
