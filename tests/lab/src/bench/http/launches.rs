//! Tasks on an embedded cluster, launched over HTTP and by the native driver.

use std::convert::Infallible;
use std::pin::pin;

use futures_util::future::{Either, select};
use protocol::{FrameworkInfo, Offer, Operation, TaskId};
use runtime::Clock;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use v1::Form;

use super::super::Figure;
use super::super::launch::{self, Event, Launches, NO_FILTER};
use super::HttpArgs;
use super::scheduler::HttpScheduler;
use meros::flags::Threads;
use meros::output::error::{CliError, Outcome};
use meros::service::local::LocalCluster;

/// Number of concurrent tasks.
pub const WIDTH: u32 = 256;
/// Each figure is the mean of this many loads, with both kinds in turn.
const ROUNDS: u32 = 3;

/// Tasks per second of a framework on the native driver.
pub async fn native(cluster: &LocalCluster, tasks: u32) -> Outcome<f64> {
    let launches = Launches::new("native", tasks, WIDTH, false)?;
    let times = launch::measure(cluster, launches, &Clock::real()).await?;
    Ok(launch::rate(&times))
}

/// The mean of rates over equal numbers of tasks.
fn mean(rates: &[f64]) -> f64 {
    rates.len() as f64 / rates.iter().map(|rate| 1.0 / rate).sum::<f64>()
}

/// Launches by a framework over HTTP, alternating with an undisturbed one on the native driver.
pub async fn over_http(args: &HttpArgs) -> Outcome<Figure> {
    args.say(&format!(
        "{} tasks over HTTP and by the native driver",
        args.tasks
    ));
    let (_directory, options) = launch::cluster_for(WIDTH, Threads::default())?;
    let cluster = LocalCluster::start(options).await?;
    // Warms up; not counted.
    native(&cluster, args.tasks.div_ceil(4)).await?;
    let (mut limits, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        limits.push(native(&cluster, args.tasks).await?);
        rates.push(launched(&cluster.master(), args.tasks).await?);
    }
    cluster.stop()?;
    Ok(Figure {
        bench: "launch_http",
        figure: mean(&rates),
        unit: "tasks/s",
        limit: mean(&limits),
        limit_is: "the native driver",
        parameters: json!({
            "tasks": args.tasks, "side_by_side": WIDTH, "rounds": ROUNDS, "form": "protobuf",
            "cores": std::thread::available_parallelism().map_or(0, usize::from),
        }),
    })
}

async fn launched(master: &str, tasks: u32) -> Outcome<f64> {
    let info = FrameworkInfo::new(launch::user(), "http");
    let scheduler = HttpScheduler::subscribe(master, Form::Protobuf, &info).await?;
    let (events, heard) = unbounded_channel();
    let launches = Launches::new("http", tasks, WIDTH, false)?;
    let clock = Clock::real();
    let following = pin!(launch::follow(heard, tasks, &clock));
    let scheduling = pin!(schedule(scheduler, launches, events));
    match select(following, scheduling).await {
        Either::Left((all, _)) => Ok(launch::rate(&all?)),
        Either::Right((failure, _)) => Err(failure),
    }
}

/// Does the same as the native load, until it is dropped or fails.
async fn schedule(
    scheduler: HttpScheduler,
    launches: Launches,
    events: UnboundedSender<Event>,
) -> CliError {
    match try_schedule(scheduler, launches, events).await {
        Ok(never) => match never {},
        Err(failure) => failure,
    }
}

async fn try_schedule(
    mut scheduler: HttpScheduler,
    mut launches: Launches,
    events: UnboundedSender<Event>,
) -> Outcome<Infallible> {
    let clock = Clock::real();
    let bad = |bad: resources::Invalid| CliError::because("an event", &bad);
    loop {
        let event = scheduler.next().await?;
        for offer in event.offers.iter().flat_map(|offers| &offers.offers) {
            let offer = Offer::try_from(offer).map_err(bad)?;
            let tasks = launches.on(&offer);
            let ids: Vec<TaskId> = tasks.iter().map(|task| task.task_id.clone()).collect();
            let at = clock.now();
            if !ids.is_empty() {
                // The measurement may have ended.
                let _ = events.send(Event::Accepted { tasks: ids, at });
            }
            let operation = Operation::Launch { tasks };
            scheduler.accept(&offer.id, &operation, &NO_FILTER).await?;
        }
        if let Some(update) = event.update {
            let status = protocol::TaskStatus::try_from(&update.status).map_err(bad)?;
            launches.heard(status.state);
            let (task, state, at) = (status.task_id, status.state, clock.now());
            let message = status.message;
            let _ = events.send(Event::Changed {
                task,
                state,
                at,
                message,
            }); // As above.
            scheduler.acknowledge(&update.status).await?;
        }
    }
}
