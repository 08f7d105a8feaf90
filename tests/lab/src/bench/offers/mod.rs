//! `meros-lab bench offers`: offers through master, allocator and sorter, all of them declined.
//!
//! A real master with allocator and sorter, synthetic agents (see
//! [`simulator::synthetic_agents::embedded`]), and real drivers that decline each offer for an
//! hour: every agent is offered once to every framework. Also measures the time from a single
//! decline, and from the end of a task, to the next offer of the same resources. The limit is that
//! of bare actors on as many threads (`bare`).

mod bare;

use std::time::Duration;

use clap::Args;
use runtime::{Clock, Statistics};
use serde_json::json;
use simulator::synthetic_agents::declining::declined;
use simulator::synthetic_agents::embedded::Embedded;
use simulator::synthetic_agents::reoffered::{Freed, reoffered};

use self::bare::Bare;
use super::{Figure, OutputFlags, of_crowd, report, rounded};
use meros::output::error::{CliError, Outcome};
use meros::output::print;
use meros::service::signals::Signals;

/// Goal of the offer rate.
const WANTED: f64 = 100_000.0;
/// For single declines: the number of frameworks, and of agents that each of them may decline.
const KEEPERS: u32 = 5;
const KEPT_MAX: u32 = 1_000;
/// Pause between single declines of the bare actors.
const PAUSE: Duration = Duration::from_millis(5);

/// Rate of offers and declines
#[derive(Args, Clone, Debug)]
#[command(rename_all = "snake_case")]
pub struct OffersArgs {
    /// Number of agents
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    agents: u32,
    /// Number of frameworks, each of which is offered each agent once
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    frameworks: u32,
    /// Single declines, and single ends of tasks, for the time until the same resources are offered
    /// again
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    reoffers: u32,
    #[command(flatten)]
    output: OutputFlags,
}

/// `meros-lab bench offers`.
pub async fn run(args: OffersArgs, signals: Signals) -> Outcome {
    let figures = match signals.unless_stopped(measure(&args)).await {
        Ok(figures) => figures?,
        Err(code) => return Err(CliError::code(code)),
    };
    report(&figures, args.output);
    Ok(())
}

async fn measure(args: &OffersArgs) -> Outcome<Vec<Figure>> {
    let (clock, bare) = (Clock::real(), Bare::start().await?);
    let mut figures = vec![offers(args, &clock, &bare).await?];
    if args.reoffers > 0 {
        figures.push(reoffers(args, &clock, &bare, Freed::Declined).await?);
        figures.push(reoffers(args, &clock, &bare, Freed::Ended).await?);
    }
    Ok(figures)
}

async fn offers(args: &OffersArgs, clock: &Clock, bare: &Bare) -> Outcome<Figure> {
    say(args, &format!("{} agents register", args.agents));
    let cluster = Embedded::start(args.agents, 0).await.map_err(of_crowd)?;
    say(args, &format!("{} frameworks decline", args.frameworks));
    let seconds = declined(&cluster, args.agents, args.frameworks).await;
    let seconds = seconds.map_err(of_crowd)?;
    cluster.stop().await;
    say(args, "bare actors pass on as many messages");
    let limit = bare.offers(clock, args.agents, args.frameworks).await;
    let wanted = u64::from(args.agents) * u64::from(args.frameworks);
    Ok(Figure {
        bench: "offers",
        figure: wanted as f64 / seconds.max(f64::EPSILON),
        unit: "offers/s",
        limit,
        limit_is: "bare actix: a message for each offer and decline, as many threads",
        parameters: json!({
            "agents": args.agents, "frameworks": args.frameworks, "offers": wanted,
            "asked_for": WANTED, "cores": cores(),
        }),
    })
}

async fn reoffers(args: &OffersArgs, clock: &Clock, bare: &Bare, freed: Freed) -> Outcome<Figure> {
    let agents = args.agents.min(KEPT_MAX);
    say(args, &format!("{agents} agents register"));
    let cluster = Embedded::start(agents, 0).await.map_err(of_crowd)?;
    let (bench, what, from, to) = match freed {
        Freed::Declined => (
            "reoffer_latency",
            "offers are declined",
            "a decline",
            "the offer of it to another framework",
        ),
        Freed::Ended => (
            "reoffer_ended_latency",
            "tasks end",
            "the end of a task, at its agent",
            "the next offer of what it used",
        ),
    };
    say(args, &format!("{what} one at a time"));
    let times = reoffered(&cluster, agents, KEEPERS, args.reoffers, freed).await;
    let times = times.map_err(of_crowd)?;
    cluster.stop().await;
    let bare = bare.reoffers(clock, args.reoffers, PAUSE).await;
    let (ours, limit) = (statistics(&times)?, statistics(&bare)?);
    Ok(Figure {
        bench,
        figure: ours.p50,
        unit: "ms, p50",
        limit: limit.p50,
        limit_is: "bare actix: six hops between as many threads",
        parameters: json!({
            "agents": agents, "frameworks": KEEPERS, "times": times.len(),
            "p99": rounded(ours.p99), "p99_limit": rounded(limit.p99),
            "from": from, "to": to, "cores": cores(),
        }),
    })
}

/// Statistics in milliseconds.
fn statistics(times: &[Duration]) -> Outcome<Statistics> {
    let times = times.iter().map(|time| time.as_secs_f64() * 1e3);
    Statistics::of(times).ok_or_else(|| CliError::new("fewer than two offers were timed"))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(0, usize::from)
}

fn say(args: &OffersArgs, text: &str) {
    if !args.output.json {
        print::error_line(format_args!("{text}"));
    }
}
