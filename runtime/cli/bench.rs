//! The verb `meros bench`: how fast the cluster is, each figure beside what this machine could do at best.
//!
//! Every figure is measured together with its limit, in the same run and with the same count. Prints a table, and ends with one line of
//! JSON for each figure. Remembers nothing between runs.

pub mod actors;
pub mod allocator;
pub mod connections;
pub mod crowd_part;
pub mod failover;
pub mod fairness;
mod frames;
pub mod http;
pub mod idle;
pub mod launch;
mod load;
pub mod messages;
pub mod offers;
mod part;
mod process;
pub mod registry;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use simulator::crowd::Trouble;

use crate::failure::{Failure, Outcome};
use crate::signals::Signals;
use crate::{on_this_thread, out, table};

/// Measure this machine and what Meros makes of it
#[derive(Subcommand, Debug)]
pub enum BenchArgs {
    /// How fast tasks are launched and reaped
    Launch(launch::LaunchArgs),
    /// How many messages actors exchange
    Messages(messages::MessagesArgs),
    /// What actors cost: spawning, memory, many senders to one, a ring
    Actors(actors::ActorsArgs),
    /// What an idle cluster costs
    Idle(idle::IdleArgs),
    /// What many connections cost
    Connections(connections::ConnectionsArgs),
    /// How fast replicated operations commit
    Registry(registry::RegistryArgs),
    /// How soon the cluster is as it was when the leading master is killed
    Failover(failover::FailoverArgs),
    /// What a run of the allocator costs
    Allocator(allocator::AllocatorArgs),
    /// How near shares come to exact dominant resource fairness
    Fairness(fairness::FairnessArgs),
    /// How many offers are made and declined
    Offers(offers::OffersArgs),
    /// What the HTTP APIs cost
    Http(http::HttpArgs),
    /// One part of a measurement of connections
    #[command(hide = true, name = "connections-part")]
    ConnectionsPart(connections::part::PartArgs),
    /// A crowd of agents with nothing behind them
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

/// One measured thing beside its limit.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Which measurement.
    pub bench: &'static str,
    /// What was measured.
    pub figure: f64,
    /// In what.
    pub unit: &'static str,
    /// What it is held against, measured in the same run or set.
    pub limit: f64,
    /// What the limit is, for the table.
    pub limit_is: &'static str,
    /// How it was measured.
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

/// What became of a crowd of agents.
#[allow(
    clippy::needless_pass_by_value,
    reason = "made for `map_err`, which gives it away"
)]
fn of_crowd(trouble: Trouble) -> Failure {
    Failure::because("a crowd of agents", &*trouble)
}

/// Four significant digits say all that a measurement knows.
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

/// `meros bench`.
pub fn run(args: BenchArgs, signals: Signals) -> Outcome {
    match args {
        BenchArgs::Launch(args) => on_this_thread(launch::run(args, signals))?,
        BenchArgs::Messages(args) => messages::run(args),
        BenchArgs::Actors(args) => actors::run(args),
        BenchArgs::Idle(args) => on_this_thread(idle::run(args, signals))?,
        BenchArgs::Connections(args) => on_this_thread(connections::run(args, signals))?,
        BenchArgs::Registry(args) => on_this_thread(registry::run(args, signals))?,
        BenchArgs::ConnectionsPart(args) => on_this_thread(connections::part::run(args, signals))?,
        BenchArgs::Failover(args) => on_this_thread(failover::run(args, signals))?,
        BenchArgs::Allocator(args) => allocator::run(args),
        BenchArgs::Fairness(args) => fairness::run(args),
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
    fn a_figure_is_one_line_of_json_with_its_limit_and_ratio() {
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
