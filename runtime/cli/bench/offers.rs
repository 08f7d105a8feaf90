//! `meros bench offers`: offers through master, allocator and sorter, each of them declined.
//!
//! A real master with its allocator and sorter and a crowd of agents without anything behind them (see [`super::crowd::embedded`]), and real
//! drivers that decline whatever they are offered for an hour: so every agent is offered once to every framework, and then it is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use protocol::{Filters, FrameworkInfo, Offer, OfferId, TaskStatus};
use runtime::{Instant, Node};
use scheduler_driver::{Scheduler, SchedulerDriver, Verbs};
use serde_json::json;

use super::crowd::embedded::Embedded;
use super::{Figure, OutputFlags, report};
use crate::failure::{Failure, Outcome};
use crate::print;
use crate::signals::Signals;

/// What is asked of it.
const WANTED: f64 = 100_000.0;
/// How long nothing may come before it is given up.
const STALLED: Duration = Duration::from_secs(30);
/// How often it is looked whether all have come.
const LOOK: Duration = Duration::from_millis(5);
/// Longer than any measurement.
pub(super) const DECLINED: Filters = Filters {
    refuse_seconds: 3600.0,
};

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

/// Declines, and counts.
struct Decliner {
    heard: Arc<AtomicU64>,
}

impl Scheduler for Decliner {
    fn offers(&mut self, driver: &mut Verbs, offers: Vec<Offer>) {
        self.heard.fetch_add(offers.len() as u64, Ordering::Relaxed);
        let ids: Vec<OfferId> = offers.into_iter().map(|offer| offer.id).collect();
        driver.decline(ids, DECLINED);
    }

    fn status(&mut self, _: &mut Verbs, _: &TaskStatus) {}
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
    let cluster = Embedded::start(args.agents, 0).await?;
    say(args, &format!("{} frameworks decline", args.frameworks));
    let seconds = declined(&cluster, args.agents, args.frameworks).await?;
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

/// Seconds in which so many frameworks are offered each of the agents, and decline.
pub(super) async fn declined(cluster: &Embedded, agents: u32, frameworks: u32) -> Outcome<f64> {
    let heard = Arc::new(AtomicU64::new(0));
    let mut drivers = Vec::new();
    for number in 0..frameworks {
        let info = FrameworkInfo::new("nobody", format!("framework-{number}"));
        let decliner = Decliner {
            heard: heard.clone(),
        };
        let node = cluster.framework(&info);
        let driver = SchedulerDriver::new(["master"], info).start(&node, decliner);
        let driver = driver.map_err(|error| Failure::because("a framework", &error))?;
        drivers.push((driver, node));
    }
    let wanted = u64::from(agents) * u64::from(frameworks);
    let seconds = all_heard(&heard, wanted, &cluster.home).await?;
    for (driver, node) in drivers {
        drop(driver);
        node.shutdown().await;
    }
    Ok(seconds)
}

/// Seconds from the first offer to the last of so many.
pub(super) async fn all_heard(heard: &AtomicU64, wanted: u64, node: &Node) -> Outcome<f64> {
    let clock = node.clock();
    let mut begun: Option<Instant> = None;
    let mut last = (clock.now(), 0);
    loop {
        let (now, count) = (clock.now(), heard.load(Ordering::Relaxed));
        if count > 0 {
            begun.get_or_insert(now);
        }
        if count >= wanted {
            return Ok((now - begun.unwrap_or(now)).as_secs_f64());
        }
        if count > last.1 {
            last = (now, count);
        } else if now - last.0 > STALLED {
            return Err(Failure::new(format!(
                "stalled: {count} of {wanted} offers were made"
            )));
        }
        clock.sleep(LOOK).await;
    }
}

fn say(args: &OffersArgs, text: &str) {
    if !args.output.json {
        print::complain(format_args!("{text}"));
    }
}
