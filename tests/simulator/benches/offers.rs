//! Offers through master, allocator and sorter, each of them declined: `meros-lab bench offers`
//! without the binary.
//!
//! `cargo bench -p meros-simulator --bench offers -- [AGENTS [FRAMEWORKS [ROUNDS]]]`, by default
//! 1,000, 200 and 3. Each round is a separate cluster and prints one line of JSON: offers per
//! second, and the CPU time of all threads per offer. An error prints one line, and the process
//! exits with 1.
#![allow(missing_docs)]

use std::process::ExitCode;
use std::time::Duration;

use simulator::synthetic_agents::BenchError;
use simulator::synthetic_agents::declining::declined;
use simulator::synthetic_agents::embedded::Embedded;
use tokio::task::LocalSet;

/// The binary's allocator.
#[global_allocator]
static HEAP: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The required rate.
const WANTED: f64 = 100_000.0;

fn main() -> ExitCode {
    match measured() {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("{trouble}");
            ExitCode::FAILURE
        }
    }
}

fn measured() -> Result<(), BenchError> {
    let [agents, frameworks, rounds] = numbers([1_000, 200, 3])?;
    for _ in 0..rounds {
        println!("{}", round(agents, frameworks)?);
    }
    Ok(())
}

/// The numbers from the command line in place of these. Cargo adds a `--bench`.
fn numbers<const N: usize>(mut numbers: [u32; N]) -> Result<[u32; N], BenchError> {
    let said = std::env::args().skip(1).filter(|word| word != "--bench");
    for (place, word) in said.enumerate() {
        let expected = || format!("expected up to {N} numbers of 1 or more, found `{word}`");
        let number = word.parse().ok().filter(|number| *number > 0);
        *numbers.get_mut(place).ok_or_else(expected)? = number.ok_or_else(expected)?;
    }
    Ok(numbers)
}

fn round(agents: u32, frameworks: u32) -> Result<String, BenchError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let measured = async {
        let cluster = Embedded::start(agents, 0).await?;
        let before = cpu_time();
        let seconds = declined(&cluster, agents, frameworks).await?;
        let busy = cpu_time() - before;
        cluster.stop().await;
        Ok::<_, BenchError>((seconds, busy))
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

/// CPU time of all threads.
fn cpu_time() -> Duration {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID);
    time.map_or(Duration::ZERO, Duration::from)
}
