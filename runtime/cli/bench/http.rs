//! `meros bench http`: what the HTTP APIs cost.
//!
//! Figures, each of a real master and its HTTP listener in this process (`state`) or in one of their own (`subscribers`, `stalled`), or of a
//! whole embedded cluster (`launches`, `polled`): how long `/state` of a large cluster takes, how much slower tasks are launched while many poll it,
//! how many tasks and offers a framework handles over HTTP beside one on the native driver, what a subscriber costs, and what one that never
//! reads.

mod alone;
mod bare;
mod client;
mod launches;
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
use crate::failure::{Failure, Outcome};
use crate::print;
use crate::signals::Signals;

/// Mesos' own measurement of `/state` with 1,000 agents, 10,000 running and 10,000 completed tasks, a fifth of which is wanted.
const MESOS_JSON: Duration = Duration::from_millis(80);
/// The same of `GET_STATE` in protobuf.
const MESOS_PROTOBUF: Duration = Duration::from_millis(46);
/// How many times faster it should be.
const FASTER: u32 = 5;

/// What the HTTP APIs cost
#[derive(Args, Clone, Debug)]
#[command(rename_all = "snake_case")]
pub struct HttpArgs {
    /// What is measured; all of it unless said
    #[arg(long, value_enum)]
    measure: Option<Measure>,
    /// Agents of the cluster whose `/state` is asked for
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    agents: u32,
    /// Running tasks on each of them, and as many that have ended
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    tasks_each: u32,
    /// Clients that poll `/state` while tasks are launched
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=400))]
    pollers: u32,
    /// How often each of them polls
    #[arg(long, default_value = "1secs", value_parser = crate::flags::duration, value_name = "DURATION")]
    poll_interval: Duration,
    /// Tasks that are launched in one load; beside pollers there are twenty-eight without a pause
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

/// One thing that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Measure {
    /// How long `/state` and `GET_STATE` take
    State,
    /// Launches while others poll `/state`
    Polling,
    /// Launches and offers over HTTP beside the native driver
    Frameworks,
    /// Memory of a subscriber
    Subscribers,
    /// Memory while subscribers never read, and far more happens than is kept for them
    Stalled,
}

impl HttpArgs {
    fn say(&self, text: &str) {
        if !self.output.json {
            print::complain(format_args!("{text}"));
        }
    }
}

/// `meros bench http`.
pub async fn run(args: HttpArgs, signals: Signals) -> Outcome {
    match signals.unless_stopped(measure(&args)).await {
        Ok(measured) => report(&measured?, args.output),
        Err(code) => return Err(Failure::code(code)),
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
