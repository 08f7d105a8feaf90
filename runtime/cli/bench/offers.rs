//! `meros bench offers`: offers through master, allocator and sorter, each of them declined.
//!
//! A real master with its allocator and sorter, each on a thread of its own, a crowd of agents without anything behind them (see
//! [`super::crowd`]), and real drivers that decline whatever they are offered for an hour: so every agent is offered once to every
//! framework, and then it is over. All in one process; nothing is carried over a network, but every message is encoded, sent and decoded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use master::measure::Crowd;
use master::registry::MemoryRegistry;
use protocol::{Filters, FrameworkInfo, Offer, OfferId, TaskStatus};
use runtime::memory::Network;
use runtime::prelude::*;
use runtime::{Instant, Placement};
use scheduler_driver::{Scheduler, SchedulerDriver, Verbs};
use serde_json::json;
use tokio::sync::watch;

use super::crowd::{self, StandIn, Tally};
use super::{Figure, OutputFlags, report};
use crate::failure::{Failure, Outcome};
use crate::print;
use crate::signals::Signals;

/// What is asked of it.
const WANTED: f64 = 100_000.0;
/// All agents share one link.
const OUTGOING_MAX: usize = 1 << 30;
/// How long nothing may come before it is given up.
const STALLED: Duration = Duration::from_secs(30);
/// How often it is looked whether all have come.
const LOOK: Duration = Duration::from_millis(5);
/// Longer than any measurement.
const REFUSE_SECONDS: f64 = 3600.0;

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
        let filters = Filters {
            refuse_seconds: REFUSE_SECONDS,
        };
        driver.decline(ids, filters);
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
    let failed = |error: &dyn std::error::Error| Failure::because("a cluster in memory", error);
    let network = Network::new();
    let join = |name: &str, role, accepts: &[Role]| {
        let builder = Node::builder(name).role(role).accepts(accepts);
        let builder = builder.placement(Placement::services());
        let node = builder.outgoing_max(OUTGOING_MAX).build();
        network.join(&node, name);
        node
    };
    let master = join("master", Role::Master, &[Role::Agent, Role::Framework]);
    let home = join("agents", Role::Agent, &[Role::Master]);
    let started = crowd::lead(&master, Box::new(MemoryRegistry::new()))?;

    say(args, &format!("{} agents register", args.agents));
    let crowd = Crowd::new(args.agents, 0).map_err(|error| failed(&error))?;
    let (tally, _watched) = watch::channel(Tally::default());
    let mut agents = Vec::new();
    for (number, report) in crowd.reports.into_iter().enumerate() {
        let stand_in = StandIn::new(report, vec!["master".to_owned()], tally.clone());
        let agent = home.spawn(&format!("agent-{number}"), stand_in);
        agents.push(agent.map_err(|error| failed(&error))?);
    }
    crowd::register(&agents).await?;

    say(args, &format!("{} frameworks decline", args.frameworks));
    let heard = Arc::new(AtomicU64::new(0));
    let mut drivers = Vec::new();
    for number in 0..args.frameworks {
        let info = FrameworkInfo::new("nobody", format!("framework-{number}"));
        let decliner = Decliner {
            heard: heard.clone(),
        };
        let node = join(&info.name, Role::Framework, &[Role::Master]);
        let driver = SchedulerDriver::new(["master"], info).start(&node, decliner);
        drivers.push((driver.map_err(|error| failed(&error))?, node));
    }
    let wanted = u64::from(args.agents) * u64::from(args.frameworks);
    let seconds = all_heard(&heard, wanted, &home).await?;
    for (driver, node) in drivers {
        drop(driver);
        node.shutdown().await;
    }
    // The master before its agents and its allocator, whose ends would alarm it.
    let pid = started.master.pid();
    master.stop_now(&pid);
    master.ended(&pid).await;
    home.shutdown().await;
    master.shutdown().await;
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

/// Seconds from the first offer to the last of so many.
async fn all_heard(heard: &AtomicU64, wanted: u64, node: &Node) -> Outcome<f64> {
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
