//! The verb `meros-lab bench`: measures Meros, each figure together with a limit for this machine.
//!
//! Every figure is measured in the same run and with the same count as its limit, unless the limit
//! is called recorded. Prints a table, then one line of JSON for each figure. Keeps nothing between
//! runs.
//!
//! | module | contents |
//! |---|---|
//! | `agents` | the hidden verb `crowd-part`: synthetic agents in their own process |
//! | `allocator` | the cost of the allocator, beside Mesos' figures |
//! | `client` | an HTTP client: pages, calls, and event streams |
//! | `connections` | the cost of idle connections, and of many reconnects |
//! | `containers` | isolated containers and images, beside peers |
//! | `failover` | the recovery after the loss of the leader |
//! | `http` | the cost of the HTTP APIs |
//! | `idle` | the cost of an idle agent, and of an idle master |
//! | `launch` | real tasks, beside a bare loop of process launches |
//! | `messages` | messages between actors, on one thread and over QUIC |
//! | `modules` | questions to modules in other processes |
//! | `offers` | the rate of offers |
//! | `polled` | launches while clients poll a page, and the hidden verb `readers-part` |
//! | `process` | the processes of a measurement and their usage |
//! | `registry` | the commit rate of the registry, beside etcd |

mod agents;
mod allocator;
mod client;
mod connections;
mod containers;
mod failover;
mod http;
mod idle;
mod launch;
mod messages;
pub mod modules;
mod offers;
mod polled;
mod process;
mod registry;

use std::error::Error;
use std::time::Duration;

use clap::{Args, Subcommand};
use hdrhistogram::Histogram;
use meros::output::error::{CliError, Outcome};
use meros::output::{print, table};
use meros::service::signals::Signals;
use meros::{on_this_thread, out};
use runtime::{Clock, Instant};
use serde_json::{Value, json};

/// The result of a measurement. Any error ends it.
type Result<T = ()> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Measure Meros on this machine
#[derive(Subcommand, Debug)]
pub enum BenchArgs {
    /// Rate of task launches
    Launch(launch::LaunchArgs),
    /// Cost of isolated containers
    Containers(containers::ContainersArgs),
    /// Time of a pull
    Images(containers::images::ImagesArgs),
    /// Latency beside best-effort work
    Isolation(containers::isolation::IsolationArgs),
    /// Use of idle CPUs, and its price
    Oversubscription(containers::oversubscription::OversubscriptionArgs),
    /// Time from a step of load to its correction
    Corrections(containers::corrections::CorrectionsArgs),
    /// Rate of messages between actors
    Messages(messages::MessagesArgs),
    /// Time of a question to a foreign module
    Modules(modules::ModulesArgs),
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
    ConnectionsPart(connections::PartArgs),
    /// Synthetic agents
    #[command(hide = true, name = "crowd-part")]
    CrowdPart(agents::CrowdArgs),
    /// A server in its container, and its client
    #[command(hide = true, name = "server-part")]
    ServerPart(containers::server::ServerArgs),
    /// Clients that poll a page
    #[command(hide = true, name = "readers-part")]
    ReadersPart(polled::ReadersArgs),
}

/// The flags of every measurement.
#[derive(Args, Clone, Copy, Debug)]
#[command(rename_all = "snake_case")]
pub struct OutputFlags {
    /// Print only the lines of JSON
    #[arg(long)]
    json: bool,
}

impl OutputFlags {
    /// Prints progress, except with `--json`.
    fn say(self, text: impl std::fmt::Display) {
        if !self.json {
            print::error_line(format_args!("{text}"));
        }
    }

    /// Prints the figures as a table and as lines of JSON.
    fn report(self, figures: &[Figure]) {
        if !self.json {
            let header = ["BENCH", "FIGURE", "UNIT", "LIMIT", "RATIO", "THE LIMIT IS"];
            let rows: Vec<_> = figures.iter().map(Figure::row).collect();
            table::lines(header, &rows)
                .iter()
                .for_each(|line| out!("{line}"));
        }
        figures.iter().for_each(|figure| out!("{}", figure.json()));
    }
}

/// A measured figure with its limit.
#[derive(Clone, Debug)]
struct Figure {
    bench: &'static str,
    figure: f64,
    unit: &'static str,
    limit: f64,
    limit_is: &'static str,
    /// Conditions of the measurement.
    parameters: Value,
}

impl Figure {
    fn new(bench: &'static str, figure: f64, unit: &'static str) -> Self {
        let (limit, limit_is, parameters) = (0.0, "none: stated", json!({}));
        Self {
            bench,
            figure,
            unit,
            limit,
            limit_is,
            parameters,
        }
    }

    /// Sets the value for comparison, with its description for the table.
    fn beside(self, limit: f64, limit_is: &'static str) -> Self {
        Self {
            limit,
            limit_is,
            ..self
        }
    }

    fn with(self, parameters: Value) -> Self {
        Self { parameters, ..self }
    }

    fn ratio(&self) -> f64 {
        match self.limit > 0.0 {
            true => self.figure / self.limit,
            false => 0.0,
        }
    }

    fn row(&self) -> [String; 6] {
        let shown = |value: f64| match value {
            value if value >= 1000.0 => format!("{value:.0}"),
            value if value >= 10.0 => format!("{value:.1}"),
            value => format!("{value:.3}"),
        };
        [
            self.bench.to_owned(),
            shown(self.figure),
            self.unit.to_owned(),
            shown(self.limit),
            format!("{:.2}", self.ratio()),
            self.limit_is.to_owned(),
        ]
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

/// Rounds to four significant digits; measurements are no more precise.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// Durations of a measurement. Percentiles are exact to 0.1 %.
struct Times(Histogram<u64>);

impl Times {
    fn new() -> Result<Self> {
        Ok(Self(Histogram::new(3)?))
    }

    fn of(times: impl IntoIterator<Item = Duration>) -> Result<Self> {
        let mut all = Self::new()?;
        times.into_iter().try_for_each(|time| all.record(time))?;
        Ok(all)
    }

    fn record(&mut self, time: Duration) -> Result {
        Ok(self.0.record(time.as_nanos() as u64)?)
    }

    fn count(&self) -> u64 {
        self.0.len()
    }

    /// A quantile from 0 to 1, in milliseconds; 0 without any time.
    fn ms(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e6
    }
}

/// The middle one, or the upper of two; 0 of an empty list.
fn median(each: &[f64]) -> f64 {
    quantile(each, 0.5)
}

/// The value that this part of the others, from 0 to 1, does not exceed; 0 of an empty list.
fn quantile(each: &[f64], part: f64) -> f64 {
    let mut sorted = each.to_vec();
    sorted.sort_by(f64::total_cmp);
    let position = (sorted.len() as f64 * part) as usize;
    sorted.get(position).copied().unwrap_or(0.0)
}

fn ms_since(clock: &Clock, begun: Instant) -> f64 {
    (clock.now() - begun).as_secs_f64() * 1e3
}

/// Number of processors.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(0, usize::from)
}

fn temporary() -> Result<tempfile::TempDir> {
    Ok(tempfile::Builder::new().prefix("meros-bench-").tempdir()?)
}

/// Runs on a thread of its own.
fn join<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let joined = std::thread::spawn(work).join();
    joined.map_err(|_| "a thread panicked")?
}

/// `meros-lab bench`.
pub fn run(args: BenchArgs, signals: Signals) -> Outcome {
    let work = async {
        match args {
            BenchArgs::Launch(args) => launch::run(&args).await,
            BenchArgs::Containers(args) => containers::run(&args).await,
            BenchArgs::Images(args) => containers::images::run(&args).await,
            BenchArgs::Isolation(args) => containers::isolation::run(&args).await,
            BenchArgs::Oversubscription(args) => containers::oversubscription::run(&args).await,
            BenchArgs::Corrections(args) => containers::corrections::run(&args).await,
            // Its runtimes are on threads of its own.
            BenchArgs::Messages(args) => join(move || messages::run(&args)),
            BenchArgs::Modules(args) => join(move || modules::run(&args)),
            BenchArgs::Idle(args) => idle::run(&args).await,
            BenchArgs::Connections(args) => connections::run(&args).await,
            BenchArgs::Registry(args) => registry::run(&args).await,
            BenchArgs::Failover(args) => failover::run(&args).await,
            BenchArgs::Allocator(args) => allocator::run(&args),
            BenchArgs::Offers(args) => offers::run(&args).await,
            BenchArgs::Http(args) => http::run(&args).await,
            BenchArgs::ConnectionsPart(args) => connections::serve(&args).await,
            BenchArgs::CrowdPart(args) => agents::serve(&args).await,
            BenchArgs::ServerPart(args) => containers::server::serve(&args).await,
            BenchArgs::ReadersPart(args) => polled::serve(&args).await,
        }
    };
    match on_this_thread(signals.unless_stopped(work))? {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error.downcast().map_or_else(
            |other| CliError::because("the measurement failed", &*other),
            |own| *own,
        )),
        Err(code) => Err(CliError::code(code)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_is_one_line_of_json() {
        let figure = Figure::new("launch", 600.0, "tasks/s").beside(1700.4, "");
        let figure = figure.with(json!({ "tasks": 2 }));
        let expected = r#"{"bench":"launch","figure":600.0,"limit":1700.0,"parameters":{"tasks":2},"ratio":0.3529,"unit":"tasks/s"}"#;
        assert_eq!(figure.json().to_string(), expected);
    }

    #[test]
    fn percentiles_are_in_milliseconds() {
        let times = Times::of((1..=100).map(Duration::from_millis)).unwrap();
        assert!((times.ms(0.5) / 50.0 - 1.0).abs() < 1e-3);
        assert!((times.ms(0.99) / 99.0 - 1.0).abs() < 1e-3);
        assert_eq!(Times::of([]).unwrap().ms(0.5), 0.0);
        assert_eq!((median(&[]), median(&[3.0, 1.0, 2.0])), (0.0, 2.0));
    }
}
