//! The `meros-lab` command, for developers: simulates clusters under faults, measures Meros, and
//! replays usage traces, recorded or made.
//!
//! Separate from the operators' binary `meros`, which thus contains neither the simulator nor
//! benchmarks. Clusters started by a measurement use the same library and memory allocator as
//! `meros`, so the figures apply to `meros`.

mod bench;
mod day;
mod huge;
mod replay;
mod simulate;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use meros::flags;
use meros::heap::Heap;
use meros::output::error::{Outcome, USAGE};
use meros::output::{logging, print};
use meros::service::signals::{Hangup, Signals};

#[global_allocator]
static HEAP: Heap = Heap;

/// Simulate clusters and measure Meros
#[derive(Parser, Debug)]
#[command(
    name = "meros-lab",
    version,
    max_term_width = 110,
    after_help = "Try it: meros-lab simulate --seed 7 --for 10mins"
)]
struct Cli {
    /// Log filter for standard error: a level, or `target=level` pairs [default: off for simulate,
    /// warn for bench]
    #[arg(long, global = true, env = "MEROS_LOG", value_name = "FILTER")]
    log: Option<String>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    Simulate(Box<simulate::SimulateArgs>),
    Replay(replay::ReplayArgs),
    Day(day::DayArgs),
    #[command(subcommand)]
    Bench(bench::BenchArgs),
    /// Starts executors on behalf of an agent of this process
    #[command(hide = true, name = "executor-zygote")]
    ExecutorZygote,
    /// The foreign module of `bench modules`
    #[command(hide = true, name = bench::modules::MODULE)]
    BenchModule {
        program: std::path::PathBuf,
    },
}

fn main() -> ExitCode {
    let cli = match read(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => {
            let printed = error.print();
            return match error.use_stderr() || printed.is_err() {
                true => ExitCode::from(USAGE),
                false => ExitCode::SUCCESS,
            };
        }
    };
    if let Verb::ExecutorZygote = cli.verb {
        return agent::zygote::main();
    }
    if let Verb::BenchModule { .. } = cli.verb {
        return bench::modules::serve();
    }
    match perform(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => print::report(&failure).into(),
    }
}

fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(flags::underscored(arguments))
}

fn perform(cli: Cli) -> Outcome {
    let default = match cli.verb {
        Verb::Simulate(_) => "off", // The cluster logs faults that are injected on purpose.
        _ => "warn",
    };
    logging::start(cli.log.as_deref().unwrap_or(default))?;
    match cli.verb {
        Verb::Simulate(args) => simulate::run(*args), // No handler: a signal ends it at once.
        Verb::Replay(args) => replay::run(args),
        Verb::Day(args) => day::run(args),
        Verb::Bench(args) => {
            meros::restrict_umask();
            bench::run(args, Signals::take(Hangup::Stops)?)
        }
        // Handled before any thread began.
        Verb::ExecutorZygote | Verb::BenchModule { .. } => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
