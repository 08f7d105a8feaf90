//! What `meros bench offers` measures, without the binary `meros`: offers through master, allocator and sorter, each of them declined.
//!
//! `cargo bench -p meros-simulator --bench offers -- [AGENTS [FRAMEWORKS [ROUNDS]]]`, by default 1,000, 200 and 3. Each round is a
//! cluster of its own and ends as one line of JSON: offers a second, and the processor's time that all threads took for one.
#![allow(missing_docs)]
#![allow(
    dead_code,
    unused_imports,
    reason = "of what the verbs share a part is used here, and without its tests"
)]

#[path = "../../../runtime/cli/failure.rs"]
mod failure;

#[path = "../../../runtime/cli/bench"]
mod bench {
    pub mod crowd;
}

use std::time::Duration;

use bench::crowd::declining::declined;
use bench::crowd::embedded::Embedded;
use failure::{Failure, Outcome};
use tokio::task::LocalSet;

/// The binary's.
#[global_allocator]
static HEAP: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What is asked of it.
const WANTED: f64 = 100_000.0;

fn main() {
    let numbers = std::env::args().skip(1);
    let numbers: Vec<u32> = numbers.filter_map(|number| number.parse().ok()).collect();
    let number = |at: usize, default| numbers.get(at).copied().unwrap_or(default);
    let (agents, frameworks) = (number(0, 1_000), number(1, 200));
    for _ in 0..number(2, 3) {
        match round(agents, frameworks) {
            Ok(line) => println!("{line}"),
            Err(failure) => {
                eprintln!("{failure}");
                return;
            }
        }
    }
}

fn round(agents: u32, frameworks: u32) -> Outcome<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::because("cannot start", &error))?;
    let measured = async {
        let cluster = Embedded::start(agents, 0).await?;
        let before = cpu_time();
        let seconds = declined(&cluster, agents, frameworks).await?;
        let busy = cpu_time() - before;
        cluster.stop().await;
        Ok((seconds, busy))
    };
    let (seconds, busy) = LocalSet::new().block_on(&runtime, measured)?;
    let offers = f64::from(agents) * f64::from(frameworks);
    let rate = offers / seconds.max(f64::EPSILON);
    let each = busy.as_secs_f64() * 1e6 / offers;
    let ratio = rate / WANTED;
    Ok(format!(
        r#"{{"bench":"offers","agents":{agents},"frameworks":{frameworks},"figure":{rate:.0},"limit":{WANTED:.0},"ratio":{ratio:.2},"cpu_us":{each:.2}}}"#
    ))
}

/// Processor time of all threads.
fn cpu_time() -> Duration {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID);
    time.map_or(Duration::ZERO, Duration::from)
}
