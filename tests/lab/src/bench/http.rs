//! `meros-lab bench http`: the cost of the HTTP APIs.
//!
//! Uses a real master with its HTTP listener in this process (`state`) or in a process of its own
//! (`subscribers`, `stalled`), or an embedded cluster (`frameworks`, and `polling`, which is in
//! `polled`). Measures the time of `/state` of a large cluster, the slowdown of launches while many
//! clients poll it, launches and offers over HTTP compared with the native driver, and the cost of
//! a subscriber, including one that never reads.

use std::cell::Cell;
use std::convert::Infallible;
use std::net::{Ipv4Addr, TcpListener};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::http::api::Bounds;
use clap::{Args, ValueEnum};
use futures_util::future::{Either, join_all, select};
use http_body_util::Full;
use hyper::Response;
use hyper::body::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use meros::flags::{Threads, duration};
use meros::on_this_thread;
use meros::service::local::LocalCluster;
use meros::service::{self, Pages, free_port, raise_open_files};
use protocol::message::registration::RegisterAgent;
use protocol::message::task::TaskUpdated;
use protocol::{
    FrameworkId, FrameworkInfo, Offer, Operation, Source, StatusUpdate, TaskId, TaskState,
    TaskStatus, Uuid,
};
use runtime::Clock;
use runtime::prelude::*;
use scheduler_driver::{Calls as DriverCalls, Scheduler, SchedulerDriver};
use serde_json::{Value, json};
use simulator::synthetic_agents::declining::{DECLINED, all_offered, declined};
use simulator::synthetic_agents::embedded::Embedded;
use tempfile::TempDir;
use transport::Authority;
use v1::Form;
use v1::schema::master as operator;
use v1::schema::scheduler::{Call, CallReconcile, CallReconcileTask, CallType};
use v1::schema::{FrameworkID, TaskID};

use super::client::{self, Calls, Connection, HttpScheduler, SCHEDULER, Subscription};
use super::launch::{self, Launches, NO_FILTER};
use super::process::{MIB, ServiceProcess};
use super::{Figure, OutputFlags, Result, cores, median, ms_since, polled, temporary};

/// Number of concurrent tasks.
pub const WIDTH: u32 = 256;

/// Cost of the HTTP APIs
#[derive(Args, Clone, Debug)]
#[command(rename_all = "snake_case")]
pub struct HttpArgs {
    /// Measure only this [default: everything]
    #[arg(long, value_enum)]
    measure: Option<Measure>,
    /// Agents of the cluster whose `/state` is requested
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub agents: u32,
    /// Running tasks on each agent, and as many completed ones
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub tasks_each: u32,
    /// Clients that poll `/state` while tasks are launched
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=400))]
    pub pollers: u32,
    /// Polling interval of each client
    #[arg(long, default_value = "1secs", value_parser = duration, value_name = "DURATION")]
    pub poll_interval: Duration,
    /// Tasks of one load; with pollers, 28 loads without a pause
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub tasks: u32,
    /// Frameworks that decline all offers
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    frameworks: u32,
    /// Subscribers whose memory is measured
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    subscribers: u32,
    #[command(flatten)]
    pub output: OutputFlags,
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

/// `meros-lab bench http`.
pub async fn run(args: &HttpArgs) -> Result {
    let mut figures = Vec::new();
    let wanted = |measure| args.measure.is_none_or(|only| only == measure);
    if wanted(Measure::State) {
        figures.extend(state(args).await?);
    }
    if wanted(Measure::Polling) {
        figures.extend(polled::measure(args).await?);
    }
    if wanted(Measure::Frameworks) {
        figures.push(launches(args).await?);
        figures.push(offers(args).await?);
    }
    if wanted(Measure::Subscribers) {
        figures.extend(subscribers(args).await?);
    }
    if wanted(Measure::Stalled) {
        figures.push(stalled(args).await?);
    }
    args.output.report(&figures);
    Ok(())
}

/// Number of requests of each kind, and of times that a document is written for comparison.
const REQUESTS: usize = 30;
const WRITTEN: usize = 5;
/// Mesos' own measurements of `/state` with 1,000 agents, 10,000 running and 10,000 completed
/// tasks, and of `GET_STATE` in protobuf. The goal is a fifth.
const MESOS_MS: [(&str, f64); 2] = [("state_json", 80.0), ("state_protobuf", 46.0)];
/// Timeout for finding a master, and for the end of all tasks.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time of a request for the state of a large cluster: `/state` in JSON, and `GET_STATE` in
/// protobuf. The cluster has synthetic agents with running tasks, and as many completed tasks.
async fn state(args: &HttpArgs) -> Result<Vec<Figure>> {
    let (agents, each, clock) = (args.agents, args.tasks_each, Clock::real());
    args.output.say(format_args!(
        "{agents} agents with {each} running tasks each and as many that have ended"
    ));
    let cluster = Embedded::start(agents, 2 * each).await?;
    let (pages, address) = serve(&cluster).await?;
    let mut frameworks = Vec::new();
    for info in owners(&cluster.reports) {
        let node = cluster.framework(&info);
        let driver = SchedulerDriver::new(["master"], info).start(&node, DecliningScheduler)?;
        frameworks.push((driver, node));
    }
    end_half(&cluster.home, "master", &cluster.reports, each).await?;
    let mut connection = Connection::open(&address).await?;
    let ended = agents as usize * each as usize;
    all_finished(&mut connection, ended).await?;
    let get_state = operator::Call {
        r#type: Some(operator::CallType::GetState),
        ..operator::Call::default()
    };
    let mut figures = Vec::new();
    for (bench, mesos) in MESOS_MS {
        let (mut taken, mut page) = (Vec::new(), Bytes::new());
        for _ in 0..REQUESTS {
            let begun = clock.now();
            page = match bench {
                "state_json" => connection.get("/state").await?,
                _ => {
                    connection
                        .call("/api/v1", Form::Protobuf, &get_state)
                        .await?
                }
            };
            taken.push(ms_since(&clock, begun));
        }
        let (median, bytes) = (median(&taken), page.len());
        let mut parameters = json!({
            "agents": agents, "running": ended, "completed": ended, "times": REQUESTS, "bytes": bytes,
            "bytes_per_second": (bytes as f64 / median * 1000.0).round(), "first_ms": taken[0],
            "slowest_ms": taken.iter().copied().fold(0.0, f64::max), "mesos_recorded_ms": mesos,
            "cores": cores(),
        });
        if bench == "state_json" {
            parameters["serde_json_writes_it_in_ms"] = json!(written(&page)?);
        }
        parameters["bare_hyper_copies_it_in_ms"] = json!(copied(page).await?);
        let figure = Figure::new(bench, median, "ms").with(parameters);
        figures.push(figure.beside(mesos / 5.0, "recorded: a fifth of what Mesos took"));
    }
    drop(connection);
    for (driver, node) in frameworks {
        drop(driver);
        node.shutdown().await;
    }
    pages.stop(&clock).await;
    cluster.stop().await;
    Ok(figures)
}

/// Median time in milliseconds for serde_json to write this document, which is parsed first.
fn written(document: &[u8]) -> Result<f64> {
    let (value, clock): (Value, _) = (serde_json::from_slice(document)?, Clock::real());
    let mut taken = Vec::new();
    for _ in 0..WRITTEN {
        let begun = clock.now();
        let text = serde_json::to_vec(&value)?;
        taken.push(ms_since(&clock, begun));
        drop(std::hint::black_box(text));
    }
    Ok(median(&taken))
}

/// Median time in milliseconds until a client has received this page from plain hyper, which serves
/// it on its own thread.
async fn copied(page: Bytes) -> Result<f64> {
    let (length, clock) = (page.len(), Clock::real());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?.to_string();
    std::thread::spawn(move || {
        on_this_thread(async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let (connection, _) = listener.accept().await?;
            connection.set_nodelay(true)?;
            let answer = service_fn(|_| {
                let page = page.clone();
                async move { Ok::<_, Infallible>(Response::new(Full::new(page))) }
            });
            let io = TokioIo::new(connection);
            Ok::<_, std::io::Error>(http1::Builder::new().serve_connection(io, answer).await)
        })
    });
    let (mut connection, mut taken) = (Connection::open(&address).await?, Vec::new());
    for _ in 0..REQUESTS {
        let begun = clock.now();
        let got = connection.get("/").await?.len();
        taken.push(ms_since(&clock, begun));
        if got != length {
            return Err(format!("{got} bytes of {length} have come").into());
        }
    }
    Ok(median(&taken))
}

/// Serves the pages and APIs of this cluster's master on a free port. Returns the address.
async fn serve(cluster: &Embedded) -> Result<(Pages, String)> {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?.to_string();
    let node = &cluster.node;
    let leader = master::leadership::LocalLeader::of(&cluster.master.master);
    let streams = ::http::api::EventStreams::new(node);
    let config = master::Config::default();
    let events = master::api::stream::open(node, &leader, &config, &streams)?;
    // Metrics are not requested.
    let counters = ::http::CountersSource::default();
    let routes = master::api::routes(&leader, node, &config, counters, &events, &streams);
    let options = ::http::HttpOptions::default();
    Ok((
        service::serve(node, listener, routes, options, streams)?,
        address,
    ))
}

/// Ignores the ends of its tasks.
pub struct DecliningScheduler;

impl Scheduler for DecliningScheduler {
    fn offers(&mut self, driver: &mut DriverCalls, offers: Vec<Offer>) {
        let ids = offers.into_iter().map(|offer| offer.id).collect();
        driver.decline(ids, DECLINED);
    }

    fn status(&mut self, _: &mut DriverCalls, _: &TaskStatus) {}
}

/// The frameworks of these tasks.
pub fn owners(reports: &[RegisterAgent]) -> Vec<FrameworkInfo> {
    let mut infos: Vec<FrameworkInfo> = Vec::new();
    for info in reports.iter().flat_map(|report| &report.held.frameworks) {
        if infos.iter().all(|known| known.id != info.id) {
            infos.push(info.clone());
        }
    }
    infos
}

/// Reports to the master that all but the first `each` tasks of every agent have ended, from the
/// node of these agents.
pub async fn end_half(home: &Node, master: &str, reports: &[RegisterAgent], each: u32) -> Result {
    let clock = home.clock();
    let master = home.find(master, "master", PATIENCE).await?;
    for report in reports {
        for task in report.held.tasks.iter().skip(each as usize) {
            let (agent_id, state) = (task.info.agent_id.clone(), TaskState::Finished);
            let id = task.info.task_id.clone();
            let status = TaskStatus::new(id, state, Source::Executor, clock.wall());
            let mut status = status.on(&agent_id);
            status.uuid = Some(Uuid(home.fresh_uuid()));
            let update = StatusUpdate {
                framework_id: task.framework_id.clone(),
                status,
                latest_state: state,
            };
            home.tell(&master, TaskUpdated { agent_id, update })?;
        }
        // The master's mailbox is bounded.
        clock.sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// Waits until `count` tasks have finished, through a page that is not measured, since the first
/// request of a page counts.
pub async fn all_finished(connection: &mut Connection, count: usize) -> Result {
    let clock = Clock::real();
    let begun = clock.now();
    while finished(&connection.get("/state-summary").await?)? < count as u64 {
        if clock.now() - begun > PATIENCE {
            return Err("stalled: not all tasks have finished".into());
        }
        clock.sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Number of finished tasks in the summary.
fn finished(summary: &[u8]) -> Result<u64> {
    let summary: Value = serde_json::from_slice(summary)?;
    let frameworks = summary["frameworks"].as_array().into_iter().flatten();
    let finished = frameworks.filter_map(|framework| framework["TASK_FINISHED"].as_u64());
    Ok(finished.sum())
}

/// Each figure of launches is the mean of this many loads, with both kinds in turn.
const ROUNDS: u32 = 3;

/// Tasks per second of a framework on the native driver.
pub async fn native(cluster: &LocalCluster, tasks: u32) -> Result<f64> {
    let launches = Launches::new("native", tasks, WIDTH, false)?;
    let times = launch::measure(cluster, launches, &Clock::real()).await?;
    Ok(launch::rate(&times))
}

/// Launches by a framework over HTTP, alternating with one on the native driver.
async fn launches(args: &HttpArgs) -> Result<Figure> {
    let tasks = args.tasks;
    args.output.say(format_args!(
        "{tasks} tasks over HTTP and by the native driver"
    ));
    let (_directory, options) = launch::cluster_for(WIDTH, Threads::default())?;
    let cluster = LocalCluster::start(options).await?;
    native(&cluster, tasks.div_ceil(4)).await?; // Warms up; not counted.
    let (mut limits, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        limits.push(native(&cluster, tasks).await?);
        rates.push(launched(&cluster.master(), tasks).await?);
    }
    cluster.stop()?;
    // Of rates over equal numbers of tasks.
    let mean =
        |rates: &[f64]| rates.len() as f64 / rates.iter().map(|rate| 1.0 / rate).sum::<f64>();
    Ok(Figure::new("launch_http", mean(&rates), "tasks/s")
        .beside(mean(&limits), "the native driver")
        .with(json!({
            "tasks": tasks, "side_by_side": WIDTH, "rounds": ROUNDS, "form": "protobuf",
            "cores": cores(),
        })))
}

async fn launched(master: &str, tasks: u32) -> Result<f64> {
    let info = FrameworkInfo::new(launch::user(), "http");
    let scheduler = HttpScheduler::subscribe(master, Form::Protobuf, &info).await?;
    let mut launches = Launches::new("http", tasks, WIDTH, false)?;
    let (following, clock) = (launches.follow(), Clock::real());
    let scheduling = pin!(schedule(scheduler, launches, &clock));
    match select(pin!(following.end(&clock)), scheduling).await {
        Either::Left((all, _)) => Ok(launch::rate(&all?)),
        Either::Right((failure, _)) => failure.map(|never| match never {}),
    }
}

/// Does the same as the native load, until it is dropped or fails.
async fn schedule(
    mut scheduler: HttpScheduler,
    mut launches: Launches,
    clock: &Clock,
) -> Result<Infallible> {
    loop {
        let event = scheduler.next().await?;
        for offer in event.offers.iter().flat_map(|offers| &offers.offers) {
            let offer = Offer::try_from(offer)?;
            let tasks = launches.on(&offer, clock.now());
            let operation = Operation::Launch { tasks };
            scheduler.accept(&offer.id, &operation, &NO_FILTER).await?;
        }
        if let Some(update) = event.update {
            launches.changed(TaskStatus::try_from(&update.status)?, clock.now());
            scheduler.acknowledge(&update.status).await?;
        }
    }
}

/// Every agent is offered once to every framework, first over HTTP and then by the driver.
async fn offers(args: &HttpArgs) -> Result<Figure> {
    let (agents, frameworks) = (args.agents, args.frameworks);
    args.output.say(format_args!(
        "{frameworks} frameworks decline {agents} agents over HTTP, and as many by the native driver"
    ));
    let cluster = Embedded::start(agents, 0).await?;
    let (pages, address) = serve(&cluster).await?;
    let offered = Arc::new(AtomicU64::new(0));
    let decline = (0..frameworks)
        .map(|number| tokio::task::spawn_local(decline(address.clone(), number, offered.clone())));
    let declining: Vec<_> = decline.collect();
    let wanted = u64::from(agents) * u64::from(frameworks);
    let http = all_offered(&offered, wanted, &cluster.home).await;
    declining.iter().for_each(tokio::task::JoinHandle::abort);
    let http = http?;
    pages.stop(cluster.node.clock()).await;
    let native = declined(&cluster, agents, frameworks).await?;
    cluster.stop().await;
    let rate = |seconds: f64| wanted as f64 / seconds.max(f64::EPSILON);
    Ok(Figure::new("offers_http", rate(http), "offers/s")
        .beside(rate(native), "the native driver")
        .with(json!({
            "agents": agents, "frameworks": frameworks, "form": "protobuf", "cores": cores(),
        })))
}

/// A framework that declines all offers, until it is dropped.
async fn decline(address: String, number: u32, offered: Arc<AtomicU64>) -> Result {
    let info = FrameworkInfo::new("nobody", format!("http-{number}"));
    let mut scheduler = HttpScheduler::subscribe(&address, Form::Protobuf, &info).await?;
    loop {
        let event = scheduler.next().await?;
        let offers = event.offers.map(|offers| offers.offers).unwrap_or_default();
        offered.fetch_add(offers.len() as u64, Ordering::Relaxed);
        let ids: Vec<_> = offers.into_iter().map(|offer| offer.id).collect();
        if !ids.is_empty() {
            scheduler.decline(ids, &DECLINED).await?;
        }
    }
}

/// Time for memory to settle.
const SETTLING: Duration = Duration::from_secs(2);
/// Limit of a subscriber's memory beside its queue, in KiB.
const SUBSCRIBER_MAX: f64 = 64.0;

/// A master with an empty cluster in a process of its own. Dropping it ends the process.
struct MasterProcess {
    process: ServiceProcess,
    address: String,
    /// Dropped last.
    _directory: TempDir,
}

impl MasterProcess {
    /// Starts a master and waits until it answers.
    async fn start() -> Result<Self> {
        let (directory, clock) = (temporary()?, Clock::real());
        Authority::load_or_create(&directory.path().join("certs"))?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let process = ServiceProcess::start("master", &address, directory.path(), &[])?;
        let begun = clock.now();
        while client::status(&clock, &address, "/state").await != Some(200) {
            if clock.now() - begun > PATIENCE {
                return Err(format!("no master answers at {address}").into());
            }
            clock.sleep(Duration::from_millis(50)).await;
        }
        Ok(Self {
            process,
            address,
            _directory: directory,
        })
    }

    /// Its resident memory in MiB.
    fn resident(&self) -> Result<f64> {
        Ok(self.process.usage()?.resident)
    }

    /// The same after a while.
    async fn settled(&self) -> Result<f64> {
        Clock::real().sleep(SETTLING).await;
        self.resident()
    }
}

/// The memory of a subscriber: first frameworks that read their events, then operators that read
/// nothing.
async fn subscribers(args: &HttpArgs) -> Result<Vec<Figure>> {
    raise_open_files()?;
    let count = args.subscribers;
    args.output.say(format_args!(
        "{count} frameworks and {count} operators subscribe"
    ));
    let master = MasterProcess::start().await?;
    let before = master.settled().await?;
    let mut frameworks = Vec::new();
    for number in 0..count {
        let info = FrameworkInfo::new("nobody", format!("framework-{number}"));
        frameworks.push(HttpScheduler::subscribe(&master.address, Form::Json, &info).await?);
    }
    let with_frameworks = master.settled().await?;
    let subscribe = operator::Call {
        r#type: Some(operator::CallType::Subscribe),
        ..operator::Call::default()
    };
    let mut operators = Vec::new();
    for _ in 0..count {
        let connection = Connection::open(&master.address).await?;
        operators.push(
            connection
                .subscribe("/api/v1", Form::Json, &subscribe)
                .await?,
        );
    }
    // All of them leave: the operators do not read these events.
    drop(frameworks);
    master.settled().await?;
    let with_operators = master.settled().await?;
    drop(operators);
    let figure = |bench, mib: f64, reads| {
        Figure::new(bench, mib * 1024.0 / f64::from(count), "KiB")
            .beside(
                SUBSCRIBER_MAX,
                "the most it may be: a goal, nothing that was measured",
            )
            .with(json!({ "subscribers": count, "form": "json", "reads": reads }))
    };
    Ok(vec![
        figure("http_framework", with_frameworks - before, true),
        figure("http_operator", with_operators - with_frameworks, false),
    ])
}

/// Tasks in one reconciliation: half a mebibyte of events.
const RECONCILED: usize = 2_000;
/// Reconciliations of each framework, unless it is disconnected: many times the limit of unread
/// bytes.
const RECONCILIATIONS: usize = 16;
/// Receive buffer of a stalled subscriber in bytes.
const BUFFER: u32 = 4096;

/// The memory for frameworks that repeatedly reconcile unknown tasks and read no reply. One
/// framework reads everything and must not be disconnected.
async fn stalled(args: &HttpArgs) -> Result<Figure> {
    raise_open_files()?;
    let (count, clock) = (args.subscribers, Clock::real());
    args.output.say(format_args!(
        "{count} frameworks reconcile {RECONCILED} tasks {RECONCILIATIONS} times, and read nothing"
    ));
    let master = MasterProcess::start().await?;
    let before = master.settled().await?;
    let (mut stalled, mut unread) = (Vec::new(), Vec::new());
    for number in 1..=count {
        let (framework, events) = Reconciling::begin(&master.address, number).await?;
        stalled.push(framework);
        unread.push(events);
    }
    let (mut reader, events) = Reconciling::begin(&master.address, 0).await?;
    let received = events.follow();
    let tasks: Vec<_> = (0..RECONCILED).map(unknown).collect::<Result<_>>()?;
    let reconciling = async {
        for _ in 0..RECONCILIATIONS {
            reader.reconcile(&tasks).await;
            for framework in &mut stalled {
                framework.reconcile(&tasks).await;
            }
        }
        settled(&received).await
    };
    let highest = Cell::new(0.0_f64);
    let watching = async {
        loop {
            highest.set(highest.get().max(master.resident()?));
            clock.sleep(Duration::from_millis(50)).await;
        }
    };
    match select(pin!(reconciling), pin!(watching)).await {
        Either::Left((done, _)) => done?,
        Either::Right((failure, _)) => return failure,
    }
    let mut connection = Connection::open(&master.address).await?;
    let metrics: Value = serde_json::from_slice(&connection.get("/metrics/snapshot").await?)?;
    let connected = metrics["master/frameworks_connected"].as_f64();
    let connected = connected.ok_or("no metric of connected frameworks")?;
    if reader.calls.is_none() {
        return Err("the framework that reads was disconnected".into());
    }
    let rests = join_all(unread.into_iter().map(Subscription::rest)).await;
    let reason = b"Disconnected: ";
    let told = |rest: &&Vec<u8>| rest.windows(reason.len()).any(|words| words == reason);
    let told_why = rests.iter().filter(told).count();
    drop((rests, reader, stalled));
    let after = master.settled().await?;
    let bound = Bounds::default().common_max.unwrap_or(0);
    let each = |bytes: f64| bytes / f64::from(count);
    let tenths = |mib: f64| (mib * 10.0).round() / 10.0;
    let kib = each((highest.get() - before).max(0.0) * 1024.0);
    Ok(Figure::new("http_stalled_framework", kib, "KiB")
        .beside(
            each((bound >> 10) as f64) + SUBSCRIBER_MAX,
            "a share of what all may leave unread, and 64 KiB: a bound, nothing that was measured",
        )
        .with(json!({
            "subscribers": count, "cut_off": f64::from(count + 1) - connected, "form": "json",
            "before_mib": tenths(before), "highest_mib": tenths(highest.get()), "after_mib": tenths(after),
            "bound_mib": bound >> 20, "one_who_reads_heard_mib": tenths(received.get() as f64 / MIB),
            "told_why": told_why,
        })))
}

/// A framework that reconciles.
struct Reconciling {
    id: FrameworkId,
    /// `None` after it was rejected.
    calls: Option<Calls>,
}

impl Reconciling {
    /// Subscribes a framework.
    async fn begin(address: &str, number: u32) -> Result<(Self, Subscription)> {
        let id = FrameworkId::new(format!("stalled-{number}"))?;
        let mut info = FrameworkInfo::new("nobody", id.as_str());
        info.id = Some(id.clone());
        let connection = Connection::with_buffer(address, BUFFER).await?;
        let call = client::subscribe(&info);
        let events = connection.subscribe(SCHEDULER, Form::Json, &call).await?;
        let calls = Calls::open(address, SCHEDULER, Form::Json, &events.id).await?;
        let calls = Some(calls);
        Ok((Self { id, calls }, events))
    }

    /// Reconciles these tasks. Returns when the call was accepted, so that calls do not outrun the
    /// master.
    async fn reconcile(&mut self, tasks: &[CallReconcileTask]) {
        let Some(calls) = &mut self.calls else { return };
        let tasks = tasks.to_vec();
        let call = Call {
            r#type: Some(CallType::Reconcile),
            framework_id: Some(FrameworkID::from(&self.id)),
            reconcile: Some(CallReconcile { tasks }),
            ..Call::default()
        };
        if calls.accepted(&call).await.is_err() {
            self.calls = None;
        }
    }
}

/// An unknown task.
fn unknown(number: usize) -> Result<CallReconcileTask> {
    let id = TaskId::new(format!("nobody-has-this-task-{number}"))?;
    Ok(CallReconcileTask {
        task_id: TaskID::from(&id),
        agent_id: None,
    })
}

/// Waits until a reader receives nothing more.
async fn settled(received: &Rc<Cell<u64>>) -> Result {
    let clock = Clock::real();
    let (begun, mut before) = (clock.now(), None);
    while before != Some(received.get()) {
        before = Some(received.get());
        if clock.now() - begun > PATIENCE {
            return Err("stalled: a reader does not come to an end".into());
        }
        clock.sleep(SETTLING).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_tasks_are_counted_over_all_frameworks() {
        let summary =
            br#"{"frameworks":[{"TASK_FINISHED":2,"TASK_RUNNING":7},{"TASK_FINISHED":1},{}]}"#;
        assert_eq!(finished(summary).unwrap(), 3);
        assert!(finished(b"x").is_err());
    }

    #[test]
    fn a_page_is_copied_and_a_document_written() {
        let page = Bytes::from_static(b"{\"a\":[1,2,3]}");
        let copied = on_this_thread(copied(page.clone())).unwrap().unwrap();
        assert!(copied > 0.0 && written(&page).unwrap() > 0.0);
        assert!(written(b"{").is_err());
    }
}
