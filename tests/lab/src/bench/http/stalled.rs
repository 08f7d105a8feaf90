//! Subscribers that never read: the memory that a master in a process of its own holds for them
//! while it sends far more than their limits.
//!
//! First frameworks that repeatedly reconcile unknown tasks and read no reply. Then operators that
//! watch frameworks come and go. One subscriber of each kind reads everything and must not be
//! disconnected. Sockets are real, with small kernel buffers.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{Either, join_all, select};
use http::api::Bounds;
use master::api::stream::BOUNDS;
use protocol::{FrameworkId, FrameworkInfo, TaskId};
use runtime::Clock;
use serde_json::json;
use v1::Form;
use v1::schema::{FrameworkID, TaskID, master as operator, scheduler};

use super::super::Figure;
use super::HttpArgs;
use super::client::Calls;
use super::master_process::MasterProcess;
use super::raw::Raw;
use super::scheduler::HttpScheduler;
use meros::output::error::{CliError, Outcome};
use meros::service::raise_open_files;

const SCHEDULER: &str = "/api/v1/scheduler";
const OPERATOR: &str = "/api/v1";
/// Tasks in one reconciliation: half a mebibyte of events.
const ASKED_FOR: usize = 2_000;
/// Reconciliations of each framework, unless it is disconnected: many times the limit of unread
/// bytes.
const ASKS: usize = 16;
/// Frameworks that subscribe and leave at the same time, while operators watch.
const COMING: usize = 50;
/// Number of such rounds: about 180 MiB of events for each operator.
const COMINGS: usize = 20;
/// Bytes of each framework's description. It is sent three times: on subscription, disconnection
/// and removal.
const DESCRIPTION: usize = 64 << 10;
/// Time for a change to be published.
const TELLING: Duration = Duration::from_millis(250);
/// Interval of memory samples.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time for memory to settle.
const SETTLING: Duration = Duration::from_secs(2);
/// Timeout for the reader to receive everything.
const HEARING: Duration = Duration::from_secs(60);
/// Limit of a subscriber's memory beside its queue, in KiB.
const COST: f64 = 64.0;
const MIB: f64 = (1 << 20) as f64;

/// Both figures.
pub async fn measure(args: &HttpArgs) -> Outcome<Vec<Figure>> {
    raise_open_files()?;
    let max = (args.subscribers + 1).to_string();
    let master = MasterProcess::start(&["--max_operator_event_stream_subscribers", &max]).await?;
    Ok(vec![
        schedulers(args, &master).await?,
        operators(args, &master).await?,
    ])
}

/// Results for stalled subscribers.
struct Seen {
    /// Number of subscribers, and of those disconnected.
    count: u32,
    cut_off: f64,
    /// Resident memory in MiB: before, at its highest, and after.
    before: f64,
    highest: f64,
    after: f64,
    /// The highest memory of the same work without them, if it can be measured.
    without: Option<f64>,
    /// Bytes received by the reader.
    heard: u64,
}

impl Seen {
    /// For `count` subscribers and one reader, of which `left` remain, with resident memory before,
    /// at its highest and after.
    fn of(count: u32, left: f64, [before, highest, after]: [f64; 3], heard: &Cell<u64>) -> Self {
        Self {
            count,
            cut_off: f64::from(count + 1) - left,
            before,
            highest,
            after,
            without: None,
            heard: heard.get(),
        }
    }

    fn figure(&self, bench: &'static str, bound: usize, more: (&str, f64)) -> Figure {
        let count = f64::from(self.count.max(1));
        let rounded = |mib: f64| (mib * 10.0).round() / 10.0;
        // Memory of the work itself does not count.
        let without = self.without.unwrap_or_default().max(self.before);
        let mut parameters = json!({
            "subscribers": self.count, "cut_off": self.cut_off, "form": "json",
            "before_mib": rounded(self.before), "highest_mib": rounded(self.highest), "after_mib": rounded(self.after),
            "bound_mib": bound >> 20, "one_who_reads_heard_mib": rounded(self.heard as f64 / MIB),
        });
        parameters[more.0] = json!(rounded(more.1));
        Figure {
            bench,
            figure: (self.highest - without).max(0.0) * 1024.0 / count,
            unit: "KiB",
            limit: (bound >> 10) as f64 / count + COST,
            limit_is: "a share of what all may leave unread, and 64 KiB: a bound, nothing that was measured",
            parameters,
        }
    }
}

/// A framework that reconciles.
struct Asking {
    id: FrameworkId,
    /// `None` after it was rejected.
    calls: Option<Calls>,
}

impl Asking {
    /// Subscribes a framework.
    async fn begin(address: &str, number: u32) -> Outcome<(Self, Raw)> {
        let id = format!("stalled-{number}");
        let id = FrameworkId::new(&id).map_err(|bad| CliError::because(id, &bad))?;
        let mut info = FrameworkInfo::new("nobody", id.as_str());
        info.id = Some(id.clone());
        let call = scheduler::Call {
            r#type: Some(scheduler::CallType::Subscribe),
            framework_id: Some(FrameworkID::from(&id)),
            subscribe: Some(Box::new(scheduler::CallSubscribe {
                framework_info: (&info).into(),
                ..scheduler::CallSubscribe::default()
            })),
            ..scheduler::Call::default()
        };
        let events = Raw::subscribe(address, SCHEDULER, &call).await?;
        let calls = Calls::open(address, SCHEDULER, Form::Json, &events.stream_id()).await?;
        let calls = Some(calls);
        Ok((Self { id, calls }, events))
    }

    /// Reconciles these tasks. Returns when the call was accepted, so that calls do not outrun the
    /// master.
    async fn ask(&mut self, tasks: &[scheduler::CallReconcileTask]) {
        let Some(calls) = &mut self.calls else { return };
        let tasks = tasks.to_vec();
        let call = scheduler::Call {
            r#type: Some(scheduler::CallType::Reconcile),
            framework_id: Some(FrameworkID::from(&self.id)),
            reconcile: Some(scheduler::CallReconcile { tasks }),
            ..scheduler::Call::default()
        };
        if calls.accepted(&call).await.is_err() {
            self.calls = None;
        }
    }
}

async fn schedulers(args: &HttpArgs, master: &MasterProcess) -> Outcome<Figure> {
    let (count, address, clock) = (args.subscribers, &master.address, Clock::real());
    args.say(&format!(
        "{count} frameworks ask {ASKS} times for {ASKED_FOR} tasks each, and read nothing"
    ));
    clock.sleep(SETTLING).await;
    let before = master.resident()?;
    let (mut stalled, mut unread) = (Vec::new(), Vec::new());
    for number in 1..=count {
        let (asking, events) = Asking::begin(address, number).await?;
        stalled.push(asking);
        unread.push(events);
    }
    let (mut reader, events) = Asking::begin(address, 0).await?;
    let heard = events.follow();
    let tasks: Vec<_> = (0..ASKED_FOR).map(unknown).collect::<Outcome<_>>()?;
    let asking = async {
        for _ in 0..ASKS {
            reader.ask(&tasks).await;
            for one in &mut stalled {
                one.ask(&tasks).await;
            }
        }
        settled(&heard).await
    };
    let highest = watched(master, asking).await?;
    let connected = master.metric("master/frameworks_connected").await?;
    if reader.calls.is_none() {
        return Err(CliError::new("the framework that reads was cut off"));
    }
    let rests = join_all(unread.into_iter().map(Raw::rest)).await;
    let why = b"Disconnected: ";
    let told = |rest: &&Vec<u8>| rest.windows(why.len()).any(|words| words == why);
    let told_why = rests.iter().filter(told).count();
    drop((rests, reader, stalled));
    clock.sleep(SETTLING).await;
    let seen = Seen::of(
        count,
        connected,
        [before, highest, master.resident()?],
        &heard,
    );
    let bound = Bounds::default().common_max.unwrap_or(0);
    Ok(seen.figure(
        "http_stalled_framework",
        bound,
        ("told_why", told_why as f64),
    ))
}

/// An unknown task.
fn unknown(number: usize) -> Outcome<scheduler::CallReconcileTask> {
    let id = format!("nobody-has-this-task-{number}");
    let id = TaskId::new(&id).map_err(|bad| CliError::because(id, &bad))?;
    Ok(scheduler::CallReconcileTask {
        task_id: TaskID::from(&id),
        agent_id: None,
    })
}

async fn operators(args: &HttpArgs, master: &MasterProcess) -> Outcome<Figure> {
    let (count, address, clock) = (args.subscribers, &master.address, Clock::real());
    let many = COMING * COMINGS;
    args.say(&format!(
        "{many} frameworks come and go, twice; the second time {count} operators watch and read nothing"
    ));
    let call = operator::Call {
        r#type: Some(operator::CallType::Subscribe),
        ..operator::Call::default()
    };
    // Memory that the frameworks themselves leave behind is included in `before`.
    let without = watched(master, come_and_go(address)).await?;
    clock.sleep(SETTLING).await;
    let before = master.resident()?;
    let mut stalled = Vec::new();
    for _ in 0..count {
        stalled.push(Raw::subscribe(address, OPERATOR, &call).await?);
    }
    let heard = Raw::subscribe(address, OPERATOR, &call).await?.follow();
    let highest = watched(master, async {
        come_and_go(address).await?;
        settled(&heard).await
    });
    let highest = highest.await?;
    let metric = "master/operator_event_stream_subscribers";
    let left = master.metric(metric).await?;
    if left < 1.0 {
        return Err(CliError::new("the operator that reads was cut off"));
    }
    drop(stalled);
    clock.sleep(SETTLING).await;
    let seen = Seen {
        without: Some(without),
        ..Seen::of(count, left, [before, highest, master.resident()?], &heard)
    };
    let more = ("highest_without_them_mib", without);
    Ok(seen.figure("http_stalled_operator", BOUNDS.bytes_max, more))
}

/// Frameworks subscribe, many at once, and leave.
async fn come_and_go(address: &str) -> Outcome {
    let clock = Clock::real();
    for coming in 0..COMINGS {
        let subscribe = (0..COMING).map(async |number| {
            let mut info = FrameworkInfo::new("nobody", format!("guest-{coming}-{number}"));
            info.webui_url = Some("x".repeat(DESCRIPTION));
            HttpScheduler::subscribe(address, Form::Json, &info).await
        });
        let guests = join_all(subscribe).await;
        let guests: Vec<_> = guests.into_iter().collect::<Outcome<_>>()?;
        clock.sleep(TELLING).await;
        drop(guests);
        clock.sleep(TELLING).await;
    }
    Ok(())
}

/// Waits until a reader receives nothing more.
async fn settled(heard: &Rc<Cell<u64>>) -> Outcome {
    let clock = Clock::real();
    let (begun, mut before) = (clock.now(), None);
    while before != Some(heard.get()) {
        before = Some(heard.get());
        if clock.now() - begun > HEARING {
            return Err(CliError::new("stalled: a reader does not come to an end"));
        }
        clock.sleep(SETTLING).await;
    }
    Ok(())
}

/// Runs the work. Returns the highest resident memory meanwhile, in MiB.
async fn watched(master: &MasterProcess, work: impl Future<Output = Outcome>) -> Outcome<f64> {
    let (clock, highest) = (Clock::real(), Cell::new(0.0_f64));
    let look = async {
        loop {
            match master.resident() {
                Ok(now) => highest.set(highest.get().max(now)),
                Err(failure) => return failure,
            }
            clock.sleep(POLL_INTERVAL).await;
        }
    };
    match select(pin!(work), pin!(look)).await {
        Either::Left((done, _)) => done?,
        Either::Right((failure, _)) => return Err(failure),
    }
    Ok(highest.get())
}
