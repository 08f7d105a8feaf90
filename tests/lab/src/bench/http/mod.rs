//! `meros-lab bench http`: the cost of the HTTP APIs.
//!
//! Uses a real master with its HTTP listener in this process (`state`) or in a process of its own
//! (`subscribers`, `stalled`), or an embedded cluster (`launches`, `polled`). Measures the time of
//! `/state` of a large cluster, the slowdown of launches while many clients poll it, launches and
//! offers over HTTP compared with the native driver, and the cost of a subscriber, including one
//! that never reads.
//!
//! | module | contents |
//! |---|---|
//! | `bare` | the lower bound of an answer, measured in the same run |
//! | `client` | an HTTP client for measurements: pages, calls, and event streams |
//! | `launches` | launches over HTTP and by the native driver |
//! | `master_process` | a master in a process of its own |
//! | `offers` | offers over HTTP |
//! | `polled` | launches while clients poll `/state` of a large cluster |
//! | `raw` | the raw connection of a subscriber |
//! | `readers` | the hidden verb `readers-part`: readers in a process of their own |
//! | `scheduler` | a framework's scheduler over HTTP, like a client in another language |
//! | `stalled` | subscribers that never read |
//! | `state` | the time of `/state` of a large cluster |
//! | `subscribers` | the memory of a subscriber |

mod bare;
mod client;
mod launches;
mod master_process;
mod offers;
mod polled;
mod raw;
pub mod readers;
mod scheduler;
mod stalled;
mod state;
mod subscribers;

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{Figure, OutputFlags, report};
use meros::output::error::{CliError, Outcome};
use meros::output::print;
use meros::service::signals::Signals;

/// Mesos' own measurement of `/state` with 1,000 agents, 10,000 running and 10,000 completed tasks.
const MESOS_JSON: Duration = Duration::from_millis(80);
/// The same for `GET_STATE` in protobuf.
const MESOS_PROTOBUF: Duration = Duration::from_millis(46);
/// Goal: this many times faster.
const FASTER: u32 = 5;

/// Cost of the HTTP APIs
#[derive(Args, Clone, Debug)]
#[command(rename_all = "snake_case")]
pub struct HttpArgs {
    /// Measure only this [default: everything]
    #[arg(long, value_enum)]
    measure: Option<Measure>,
    /// Agents of the cluster whose `/state` is requested
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    agents: u32,
    /// Running tasks on each agent, and as many completed ones
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    tasks_each: u32,
    /// Clients that poll `/state` while tasks are launched
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=400))]
    pollers: u32,
    /// Polling interval of each client
    #[arg(long, default_value = "1secs", value_parser = meros::flags::duration, value_name = "DURATION")]
    poll_interval: Duration,
    /// Tasks of one load; with pollers, 28 loads without a pause
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    tasks: u32,
    /// Frameworks that decline all offers
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    frameworks: u32,
    /// Subscribers whose memory is measured
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    subscribers: u32,
    #[command(flatten)]
    output: OutputFlags,
}

/// The measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Measure {
    /// How long `/state` and `GET_STATE` take
    State,
    /// Launches while clients poll `/state`
    Polling,
    /// Launches and offers over HTTP, compared with the native driver
    Frameworks,
    /// Memory of a subscriber
    Subscribers,
    /// Memory for subscribers that never read, with far more events than their limits
    Stalled,
}

impl HttpArgs {
    fn say(&self, text: &str) {
        if !self.output.json {
            print::error_line(format_args!("{text}"));
        }
    }
}

/// `meros-lab bench http`.
pub async fn run(args: HttpArgs, signals: Signals) -> Outcome {
    match signals.unless_stopped(measure(&args)).await {
        Ok(measured) => report(&measured?, args.output),
        Err(code) => return Err(CliError::code(code)),
    }
    Ok(())
}

async fn measure(args: &HttpArgs) -> Outcome<Vec<Figure>> {
    let mut figures = Vec::new();
    let wanted = |measure| args.measure.is_none_or(|only| only == measure);
    if wanted(Measure::State) {
        figures.extend(state::measure(args).await?);
    }
    if wanted(Measure::Polling) {
        figures.extend(polled::measure(args).await?);
    }
    if wanted(Measure::Frameworks) {
        figures.push(launches::over_http(args).await?);
        figures.push(offers::beside_native(args).await?);
    }
    if wanted(Measure::Subscribers) {
        figures.extend(subscribers::measure(args).await?);
    }
    if wanted(Measure::Stalled) {
        figures.extend(stalled::measure(args).await?);
    }
    Ok(figures)
}
