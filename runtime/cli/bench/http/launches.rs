//! Tasks on an embedded cluster: launched while others poll `/state`, and launched over HTTP.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{Either, select};
use protocol::{FrameworkInfo, Offer, Operation, TaskId};
use runtime::Clock;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use v1::Form;

use super::super::Figure;
use super::super::launch::{self, Event, Launches, NO_FILTER};
use super::HttpArgs;
use super::client::Connection;
use super::scheduler::HttpScheduler;
use crate::failure::{Failure, Outcome};
use crate::flags::Threads;
use crate::local::LocalCluster;
use crate::on_this_thread;

/// How many tasks run side by side.
const WIDTH: u32 = 256;
/// Each figure is the mean of so many loads, taken in turns.
const ROUNDS: u32 = 3;

async fn native(cluster: &LocalCluster, tasks: u32) -> Outcome<f64> {
    let times = launch::measure(cluster, "native", tasks, WIDTH, false).await?;
    Ok(launch::rate(&times))
}

/// The mean of rates, each of as many tasks.
fn mean(rates: &[f64]) -> f64 {
    rates.len() as f64 / rates.iter().map(|rate| 1.0 / rate).sum::<f64>()
}

/// Loads of some kind, in turns with those of a framework on the native driver that nobody disturbs.
async fn beside_native(
    args: &HttpArgs,
    bench: &'static str,
    limit_is: &'static str,
    load: impl AsyncFn(&LocalCluster) -> Outcome<f64>,
    more: Value,
) -> Outcome<Figure> {
    let (_directory, options) = launch::cluster_for(WIDTH, Threads::default())?;
    let cluster = LocalCluster::start(options).await?;
    // What the first load warms is nobody's.
    native(&cluster, args.tasks.div_ceil(4)).await?;
    let (mut limits, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        limits.push(native(&cluster, args.tasks).await?);
        rates.push(load(&cluster).await?);
    }
    cluster.stop()?;
    let mut parameters = json!({
        "tasks": args.tasks, "side_by_side": WIDTH, "rounds": ROUNDS,
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
    });
    if let (Value::Object(all), Value::Object(more)) = (&mut parameters, more) {
        all.extend(more);
    }
    Ok(Figure {
        bench,
        figure: mean(&rates),
        unit: "tasks/s",
        limit: mean(&limits),
        limit_is,
        parameters,
    })
}

/// Launches while clients poll `/state`, beside launches while nobody does.
pub async fn polled(args: &HttpArgs) -> Outcome<Figure> {
    args.say(&format!(
        "{} tasks, alone and beside {} clients that poll /state every {:?}",
        args.tasks, args.pollers, args.poll_interval
    ));
    let load = async |cluster: &LocalCluster| {
        let pollers = Pollers::start(cluster.master(), args.pollers, args.poll_interval);
        let rate = native(cluster, args.tasks).await?;
        pollers.stop()?;
        Ok(rate)
    };
    let more = json!({ "pollers": args.pollers, "poll_interval_ms": args.poll_interval.as_millis() as u64 });
    let limit_is = "the same with nobody polling";
    beside_native(args, "launch_polled", limit_is, load, more).await
}

/// Launches by a framework over HTTP, beside those by one on the native driver.
pub async fn over_http(args: &HttpArgs) -> Outcome<Figure> {
    args.say(&format!(
        "{} tasks over HTTP and by the native driver",
        args.tasks
    ));
    let load = async |cluster: &LocalCluster| launched(&cluster.master(), args.tasks).await;
    let more = json!({ "form": "protobuf" });
    beside_native(args, "launch_http", "the native driver", load, more).await
}

/// Clients on a thread of their own.
struct Pollers {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Outcome>,
}

impl Pollers {
    fn start(address: String, count: u32, every: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = stop.clone();
        let poll = move || {
            on_this_thread(async move {
                let clients = (0..count).map(|number| {
                    // Spread over the interval, as clients that know nothing of each other are.
                    let first = every * number / count;
                    client(&address, first, every, &stopping)
                });
                futures_util::future::try_join_all(clients).await?;
                Ok(())
            })?
        };
        Self {
            stop,
            thread: std::thread::spawn(poll),
        }
    }

    fn stop(self) -> Outcome {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.join();
        ended.map_err(|_| Failure::new("a thread of pollers fell"))?
    }
}

async fn client(address: &str, first: Duration, every: Duration, stop: &AtomicBool) -> Outcome {
    let clock = Clock::real();
    let mut connection = Connection::open(address).await?;
    clock.sleep(first).await;
    while !stop.load(Ordering::Relaxed) {
        let begun = clock.now();
        connection.get("/state").await?;
        clock.sleep(every.saturating_sub(clock.now() - begun)).await;
    }
    Ok(())
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

/// Does what the native load does, until it is let go of or fails.
async fn schedule(
    scheduler: HttpScheduler,
    launches: Launches,
    events: UnboundedSender<Event>,
) -> Failure {
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
    let bad = |bad: resources::Invalid| Failure::because("an event", &bad);
    loop {
        let event = scheduler.next().await?;
        for offer in event.offers.iter().flat_map(|offers| &offers.offers) {
            let offer = Offer::try_from(offer).map_err(bad)?;
            let tasks = launches.on(&offer);
            let ids: Vec<TaskId> = tasks.iter().map(|task| task.task_id.clone()).collect();
            let at = clock.now();
            if !ids.is_empty() {
                let _ = events.send(Event::Accepted { tasks: ids, at }); // Nobody measures any more.
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
