//! The verb `meros-lab bench`: measures Meros, each figure together with a limit for this machine.
//!
//! Every figure is measured in the same run and with the same count as its limit. Prints a table,
//! then one line of JSON for each figure. Keeps nothing between runs.
//!
//! | module | contents |
//! |---|---|
//! | `allocator` | the cost of the allocator, beside Mesos' figures |
//! | `connections` | the cost of idle connections, and of many reconnects |
//! | `crowd_part` | the hidden verb `crowd-part`: synthetic agents in their own process |
//! | `failover` | the recovery after the loss of the leader |
//! | `http` | the cost of the HTTP APIs |
//! | `idle` | the cost of an idle agent, and of an idle master |
//! | `launch` | real tasks, beside a bare loop of process launches |
//! | `messages` | messages between actors, on one thread and over QUIC |
//! | `offers` | the rate of offers |
//! | `part` | one side of a measurement in a process of its own |
//! | `process` | the processes of a measurement and their usage |
//! | `registry` | the commit rate of the registry, beside the disk and etcd |

pub mod allocator;
pub mod connections;
pub mod crowd_part;
pub mod failover;
pub mod http;
pub mod idle;
pub mod launch;
pub mod messages;
pub mod offers;
mod part;
mod process;
pub mod registry;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use simulator::synthetic_agents::BenchError;

use meros::output::error::{CliError, Outcome};
use meros::output::table;
use meros::service::signals::Signals;
use meros::{on_this_thread, out};

/// Measure Meros on this machine
#[derive(Subcommand, Debug)]
pub enum BenchArgs {
    /// Rate of task launches
    Launch(launch::LaunchArgs),
    /// Rate of messages between actors
    Messages(messages::MessagesArgs),
    /// Cost of an idle cluster
    Idle(idle::IdleArgs),
    /// Cost of many connections
    Connections(connections::ConnectionsArgs),
    /// Rate of replicated operations
    Registry(registry::RegistryArgs),
    /// Time to recover after the leading master is killed
    Failover(failover::FailoverArgs),
    /// Cost of an allocation run
    Allocator(allocator::AllocatorArgs),
    /// Rate of offers and declines
    Offers(offers::OffersArgs),
    /// Cost of the HTTP APIs
    Http(http::HttpArgs),
    /// One part of a measurement of connections
    #[command(hide = true, name = "connections-part")]
    ConnectionsPart(connections::part::PartArgs),
    /// Synthetic agents
    #[command(hide = true, name = "crowd-part")]
    CrowdPart(crowd_part::CrowdArgs),
    /// Clients that poll a page
    #[command(hide = true, name = "readers-part")]
    ReadersPart(http::readers::ReadersArgs),
}

/// The flags of every measurement.
#[derive(Args, Clone, Copy, Debug)]
#[command(rename_all = "snake_case")]
pub struct OutputFlags {
    /// Print only the lines of JSON
    #[arg(long)]
    json: bool,
}

/// A measured figure with its limit.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Name of the measurement.
    pub bench: &'static str,
    /// The measured value.
    pub figure: f64,
    /// Its unit.
    pub unit: &'static str,
    /// The value for comparison, measured in the same run or set.
    pub limit: f64,
    /// Description of the limit, for the table.
    pub limit_is: &'static str,
    /// Conditions of the measurement.
    pub parameters: Value,
}

impl Figure {
    fn ratio(&self) -> f64 {
        if self.limit > 0.0 {
            self.figure / self.limit
        } else {
            0.0
        }
    }

    fn json(&self) -> Value {
        json!({
            "bench": self.bench,
            "figure": rounded(self.figure),
            "unit": self.unit,
            "limit": rounded(self.limit),
            "ratio": rounded(self.ratio()),
            "parameters": self.parameters,
        })
    }
}

/// Converts a failure of the synthetic agents.
#[allow(
    clippy::needless_pass_by_value,
    reason = "made for `map_err`, which gives it away"
)]
fn of_crowd(trouble: BenchError) -> CliError {
    CliError::because("a crowd of agents", &*trouble)
}

/// Rounds to four significant digits; measurements are no more precise.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

fn shown(value: f64) -> String {
    match value {
        value if value >= 1000.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.3}"),
    }
}

/// Prints the figures as a table and as lines of JSON.
pub fn report(figures: &[Figure], flags: OutputFlags) {
    if !flags.json {
        let row = |figure: &Figure| {
            [
                figure.bench.to_owned(),
                shown(figure.figure),
                figure.unit.to_owned(),
                shown(figure.limit),
                format!("{:.2}", figure.ratio()),
                figure.limit_is.to_owned(),
            ]
        };
        let rows: Vec<_> = figures.iter().map(row).collect();
        for line in table::lines(
            ["BENCH", "FIGURE", "UNIT", "LIMIT", "RATIO", "THE LIMIT IS"],
            &rows,
        ) {
            out!("{line}");
        }
    }
    for figure in figures {
        out!("{}", figure.json());
    }
}

/// `meros-lab bench`.
pub fn run(args: BenchArgs, signals: Signals) -> Outcome {
    match args {
        BenchArgs::Launch(args) => on_this_thread(launch::run(args, signals))?,
        BenchArgs::Messages(args) => messages::run(args),
        BenchArgs::Idle(args) => on_this_thread(idle::run(args, signals))?,
        BenchArgs::Connections(args) => on_this_thread(connections::run(args, signals))?,
        BenchArgs::Registry(args) => on_this_thread(registry::run(args, signals))?,
        BenchArgs::ConnectionsPart(args) => on_this_thread(connections::part::run(args, signals))?,
        BenchArgs::Failover(args) => on_this_thread(failover::run(args, signals))?,
        BenchArgs::Allocator(args) => allocator::run(args),
        BenchArgs::Offers(args) => on_this_thread(offers::run(args, signals))?,
        BenchArgs::Http(args) => on_this_thread(http::run(args, signals))?,
        BenchArgs::CrowdPart(args) => on_this_thread(crowd_part::run(args, signals))?,
        BenchArgs::ReadersPart(args) => on_this_thread(http::readers::run(args, signals))?,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_is_one_line_of_json() {
        let parameters = json!({ "tasks": 2 });
        let figure = Figure {
            bench: "launch",
            figure: 600.0,
            unit: "tasks/s",
            limit: 1700.4,
            limit_is: "",
            parameters,
        };
        let expected = r#"{"bench":"launch","figure":600.0,"limit":1700.0,"parameters":{"tasks":2},"ratio":0.3529,"unit":"tasks/s"}"#;
        assert_eq!(figure.json().to_string(), expected);
    }
}
