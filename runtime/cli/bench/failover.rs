//! `meros bench failover`: how soon the cluster is as it was when the leading master is killed, and how fast many agents come back.
//!
//! Three measurements, each of real masters with their default ticks and timeouts: a leader killed under a load of launches
//! (`kills`); a crowd of agents that comes back within this process, and over QUIC (`returns`).

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
use crate::failure::{Failure, Outcome};
use crate::flags::duration;
use crate::member::raise_open_files;
use crate::print;
use crate::signals::Signals;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// The leader is killed under load
    Kills,
    /// A crowd comes back within this process
    Memory,
    /// A crowd comes back over QUIC
    Quic,
}

/// How soon the cluster is as it was when the leading master is killed
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct FailoverArgs {
    /// What is measured
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "kills,memory,quic"
    )]
    measure: Vec<What>,
    /// Real agents, on machines without processes, that see the leader killed
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=5000))]
    agents: u32,
    /// Frameworks that launch tasks meanwhile
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    frameworks: u32,
    /// How often the leader is killed; the dead one is started again between
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    kills: u32,
    /// The wait before each kill
    #[arg(long, default_value = "10secs", value_parser = duration, value_name = "DURATION")]
    pause: Duration,
    /// Agents of the crowd within this process
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    crowd: u32,
    /// Agents of the crowd over QUIC
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=25_000))]
    crowd_quic: u32,
    /// How many of them share a socket and its connections; with 1 each has its own, as on as many machines
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    each_socket: u32,
    /// Tasks that each agent of a crowd says it runs
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=1000))]
    tasks_each: u32,
    /// Where everything is written for the while [default: the directory for temporary files]
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    #[command(flatten)]
    output: OutputFlags,
}

/// `meros bench failover`.
pub async fn run(args: FailoverArgs, signals: Signals) -> Outcome {
    match signals.unless_stopped(measure(&args)).await {
        Ok(measured) => measured,
        Err(code) => Err(Failure::code(code)),
    }
}

async fn measure(args: &FailoverArgs) -> Outcome {
    raise_open_files()?;
    for what in [What::Kills, What::Memory, What::Quic] {
        if args.measure.contains(&what) {
            let figures = match what {
                What::Kills => kills::measure(args).await?,
                What::Memory => returns::in_memory(args).await?,
                What::Quic => returns::over_quic(args).await?,
            };
            report(&figures, args.output); // Each as soon as it is there: the next one may fail.
        }
    }
    Ok(())
}

fn say(args: &FailoverArgs, what: &str) {
    if !args.output.json {
        print::complain(format_args!("{what}"));
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
    fn all_is_measured_as_the_issue_wants_it_unless_it_is_said_otherwise() {
        let all = args(&[]).unwrap();
        assert_eq!(all.measure, [What::Kills, What::Memory, What::Quic]);
        assert_eq!((all.agents, all.frameworks, all.kills), (1000, 20, 5));
        assert_eq!(
            (all.crowd, all.crowd_quic, all.each_socket, all.tasks_each),
            (20_000, 20_000, 10, 5)
        );
        let some = args(&["--measure", "memory,kills", "--pause", "1secs"]).unwrap();
        assert_eq!(some.measure, [What::Memory, What::Kills]);
        assert_eq!(some.pause, Duration::from_secs(1));
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
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
