//! `meros bench offers`: offers through master, allocator and sorter, each of them declined.
//!
//! A real master with its allocator and sorter and a crowd of agents without anything behind them (see [`simulator::crowd::embedded`]), and real
//! drivers that decline whatever they are offered for an hour: so every agent is offered once to every framework, and then it is over.

use clap::Args;
use serde_json::json;
use simulator::crowd::declining::declined;
use simulator::crowd::embedded::Embedded;

use super::{Figure, OutputFlags, of_crowd, report};
use crate::failure::{Failure, Outcome};
use crate::print;
use crate::signals::Signals;

/// What is asked of it.
const WANTED: f64 = 100_000.0;

/// How many offers are made and declined
#[derive(Args, Clone, Debug)]
#[command(rename_all = "snake_case")]
pub struct OffersArgs {
    /// How many agents
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    agents: u32,
    /// How many frameworks, each of which is offered each agent once
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    frameworks: u32,
    #[command(flatten)]
    output: OutputFlags,
}

/// `meros bench offers`.
pub async fn run(args: OffersArgs, signals: Signals) -> Outcome {
    let figure = match signals.unless_stopped(measure(&args)).await {
        Ok(figure) => figure?,
        Err(code) => return Err(Failure::code(code)),
    };
    report(&[figure], args.output);
    Ok(())
}

async fn measure(args: &OffersArgs) -> Outcome<Figure> {
    say(args, &format!("{} agents register", args.agents));
    let cluster = Embedded::start(args.agents, 0).await.map_err(of_crowd)?;
    say(args, &format!("{} frameworks decline", args.frameworks));
    let seconds = declined(&cluster, args.agents, args.frameworks).await;
    let seconds = seconds.map_err(of_crowd)?;
    cluster.stop().await;
    let wanted = u64::from(args.agents) * u64::from(args.frameworks);
    Ok(Figure {
        bench: "offers",
        figure: wanted as f64 / seconds.max(f64::EPSILON),
        unit: "offers/s",
        limit: WANTED,
        limit_is: "the least it may be",
        parameters: json!({
            "agents": args.agents, "frameworks": args.frameworks, "offers": wanted,
            "cores": std::thread::available_parallelism().map_or(0, usize::from),
        }),
    })
}

fn say(args: &OffersArgs, text: &str) {
    if !args.output.json {
        print::complain(format_args!("{text}"));
    }
}
