//! `meros-lab bench failover`: the time to recover after the leading master is killed, and the rate
//! at which many agents reregister.
//!
//! Three measurements with real masters and their default timeouts: a leader killed under a load of
//! launches (`kills`), and synthetic agents that reregister within this process and over QUIC
//! (`returns`).
//!
//! | module | contents |
//! |---|---|
//! | `agents` | real agents, many in one process |
//! | `group` | three masters in processes of their own |
//! | `kills` | a leader killed under load, several times |
//! | `ledger` | launched tasks and their reported states |
//! | `load` | frameworks on the real driver that launch short tasks all the time |
//! | `machine` | a launcher without processes |
//! | `page` | requests a page of a master over HTTP |
//! | `probe` | measures when the registry accepts an operation again |
//! | `returns` | agents with tasks that all reregister with a new leader |

mod agents;
mod group;
mod kills;
mod ledger;
mod load;
mod machine;
mod page;
mod probe;
mod returns;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{OutputFlags, report};
use meros::flags::duration;
use meros::output::error::{CliError, Outcome};
use meros::output::print;
use meros::service::raise_open_files;
use meros::service::signals::Signals;

/// The measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Measurement {
    /// The leader is killed under load
    Kills,
    /// Synthetic agents reregister within this process
    Memory,
    /// Synthetic agents reregister over QUIC
    Quic,
}

/// Time to recover after the leading master is killed
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct FailoverArgs {
    /// Measure only these
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "kills,memory,quic"
    )]
    measure: Vec<Measurement>,
    /// Real agents, on machines without processes, during the kills
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=5000))]
    agents: u32,
    /// Frameworks that launch tasks during the kills
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    frameworks: u32,
    /// Number of kills of the leader; a killed master is restarted before the next one
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    kills: u32,
    /// The wait before each kill
    #[arg(long, default_value = "10secs", value_parser = duration, value_name = "DURATION")]
    pause: Duration,
    /// Synthetic agents within this process
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    crowd: u32,
    /// Synthetic agents over QUIC
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=25_000))]
    crowd_quic: u32,
    /// Agents that share a socket and its connections; with 1 each has its own, as on separate
    /// machines
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    each_socket: u32,
    /// Tasks that each synthetic agent reports
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=1000))]
    tasks_each: u32,
    /// Directory for all files of the measurement [default: the directory for temporary files]
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    #[command(flatten)]
    output: OutputFlags,
}

/// `meros-lab bench failover`.
pub async fn run(args: FailoverArgs, signals: Signals) -> Outcome {
    match signals.unless_stopped(measure(&args)).await {
        Ok(measured) => measured,
        Err(code) => Err(CliError::code(code)),
    }
}

async fn measure(args: &FailoverArgs) -> Outcome {
    raise_open_files()?;
    for measurement in [Measurement::Kills, Measurement::Memory, Measurement::Quic] {
        if args.measure.contains(&measurement) {
            let figures = match measurement {
                Measurement::Kills => kills::measure(args).await?,
                Measurement::Memory => returns::in_memory(args).await?,
                Measurement::Quic => returns::over_quic(args).await?,
            };
            report(&figures, args.output); // Each at once, since the next one may fail.
        }
    }
    Ok(())
}

fn say(args: &FailoverArgs, what: &str) {
    if !args.output.json {
        print::error_line(format_args!("{what}"));
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: FailoverArgs,
    }

    /// The arguments of this command line.
    pub fn args(words: &[&str]) -> Result<FailoverArgs, clap::Error> {
        let line = Line::try_parse_from(["failover"].iter().chain(words));
        line.map(|line| line.args)
    }

    #[test]
    fn default_arguments_match_the_goals() {
        let all = args(&[]).unwrap();
        assert_eq!(
            all.measure,
            [Measurement::Kills, Measurement::Memory, Measurement::Quic]
        );
        assert_eq!((all.agents, all.frameworks, all.kills), (1000, 20, 5));
        assert_eq!(
            (all.crowd, all.crowd_quic, all.each_socket, all.tasks_each),
            (20_000, 20_000, 10, 5)
        );
        let some = args(&["--measure", "memory,kills", "--pause", "1secs"]).unwrap();
        assert_eq!(some.measure, [Measurement::Memory, Measurement::Kills]);
        assert_eq!(some.pause, Duration::from_secs(1));
    }

    #[test]
    fn invalid_arguments_are_rejected() {
        for wrong in [
            ["--kills", "0"],
            ["--agents", "0"],
            ["--measure", "all"],
            ["--crowd_quic", "60000"],
            ["--each_socket", "0"],
        ] {
            let refused = args(&wrong).unwrap_err().to_string();
            assert!(refused.contains(wrong[1]), "{refused}");
        }
    }
}
