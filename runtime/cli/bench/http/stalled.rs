//! Subscribers that never read (W4): what a master in a process of its own holds for them while far more happens than their bounds hold.
//!
//! First frameworks, each of which asks again and again how tasks are that nobody knows, and reads no answer. Then operators, who hear of
//! frameworks that come and go. Beside them one of each kind reads everything, and must not be cut off. Their sockets are real, with little
//! room in the kernel.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{Either, join_all, select};
use http::api::Bounds;
use master::http::stream::BOUNDS;
use protocol::{FrameworkId, FrameworkInfo, TaskId};
use runtime::Clock;
use serde_json::json;
use v1::Form;
use v1::schema::{FrameworkID, TaskID, master as operator, scheduler};

use super::super::Figure;
use super::HttpArgs;
use super::alone::Alone;
use super::client::Calls;
use super::raw::Raw;
use super::scheduler::HttpScheduler;
use crate::failure::{Failure, Outcome};
use crate::member::raise_open_files;

const SCHEDULER: &str = "/api/v1/scheduler";
const OPERATOR: &str = "/api/v1";
/// How many tasks a framework asks for at once: half a mebibyte of events.
const ASKED_FOR: usize = 2_000;
/// How often each framework asks, unless it is cut off: many times what each may leave unread where so many do.
const ASKS: usize = 16;
/// How many frameworks come at once, and go, while operators watch.
const COMING: usize = 50;
/// How often they do: operators hear about 180 MiB of it.
const COMINGS: usize = 20;
/// How long each of them describes itself. It is told three times: when it comes, when it is away, and when it is removed.
const DESCRIPTION: usize = 64 << 10;
/// Time in which a change is told.
const TELLING: Duration = Duration::from_millis(250);
/// How often memory is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How long memory may settle.
const SETTLING: Duration = Duration::from_secs(2);
/// How long a reader may take to have heard everything.
const HEARING: Duration = Duration::from_secs(60);
/// What a subscriber may cost beside what waits for it, in KiB.
const COST: f64 = 64.0;
const MIB: f64 = (1 << 20) as f64;

/// Both figures.
pub async fn measure(args: &HttpArgs) -> Outcome<Vec<Figure>> {
    raise_open_files()?;
    let max = (args.subscribers + 1).to_string();
    let master = Alone::start(&["--max_operator_event_stream_subscribers", &max]).await?;
    Ok(vec![
        schedulers(args, &master).await?,
        operators(args, &master).await?,
    ])
}

/// What was seen of stalled subscribers.
struct Seen {
    /// How many there were, and how many of them were cut off.
    count: u32,
    cut_off: f64,
    /// Resident memory in MiB: before they came, at its highest, and when they had gone.
    before: f64,
    highest: f64,
    after: f64,
    /// At its highest while the same was done without them, where that can be.
    without: Option<f64>,
    /// What one who reads has heard, in bytes.
    heard: u64,
}

impl Seen {
    /// Of so many and one who reads, of whom some are left; with what was resident before, at the highest and after, and what that one has heard.
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
        // What the work itself takes is not theirs.
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

/// How a framework asks.
struct Asking {
    id: FrameworkId,
    /// None once it is refused.
    calls: Option<Calls>,
}

impl Asking {
    /// A framework subscribes.
    async fn begin(address: &str, number: u32) -> Outcome<(Self, Raw)> {
        let id = format!("stalled-{number}");
        let id = FrameworkId::new(&id).map_err(|bad| Failure::because(id, &bad))?;
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

    /// How are all these tasks? Comes back when that was taken, so that nobody asks faster than the master takes it.
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

async fn schedulers(args: &HttpArgs, master: &Alone) -> Outcome<Figure> {
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
        return Err(Failure::new("the framework that reads was cut off"));
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
    let bound = Bounds::default().together_max.unwrap_or(0);
    Ok(seen.figure(
        "http_stalled_framework",
        bound,
        ("told_why", told_why as f64),
    ))
}

/// A task that nobody has.
fn unknown(number: usize) -> Outcome<scheduler::CallReconcileTask> {
    let id = format!("nobody-has-this-task-{number}");
    let id = TaskId::new(&id).map_err(|bad| Failure::because(id, &bad))?;
    Ok(scheduler::CallReconcileTask {
        task_id: TaskID::from(&id),
        agent_id: None,
    })
}

async fn operators(args: &HttpArgs, master: &Alone) -> Outcome<Figure> {
    let (count, address, clock) = (args.subscribers, &master.address, Clock::real());
    let many = COMING * COMINGS;
    args.say(&format!(
        "{many} frameworks come and go, twice; the second time {count} operators watch and read nothing"
    ));
    let call = operator::Call {
        r#type: Some(operator::CallType::Subscribe),
        ..operator::Call::default()
    };
    // What the frameworks themselves leave behind is there before.
    let alone = watched(master, come_and_go(address)).await?;
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
        return Err(Failure::new("the operator that reads was cut off"));
    }
    drop(stalled);
    clock.sleep(SETTLING).await;
    let seen = Seen {
        without: Some(alone),
        ..Seen::of(count, left, [before, highest, master.resident()?], &heard)
    };
    let more = ("highest_without_them_mib", alone);
    Ok(seen.figure("http_stalled_operator", BOUNDS.bytes_max, more))
}

/// Frameworks come, many at once, and go again.
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

/// Waits until a reader hears nothing more.
async fn settled(heard: &Rc<Cell<u64>>) -> Outcome {
    let clock = Clock::real();
    let (begun, mut before) = (clock.now(), None);
    while before != Some(heard.get()) {
        before = Some(heard.get());
        if clock.now() - begun > HEARING {
            return Err(Failure::new("stalled: a reader does not come to an end"));
        }
        clock.sleep(SETTLING).await;
    }
    Ok(())
}

/// Does this, and gives the highest resident memory in MiB meanwhile.
async fn watched(master: &Alone, work: impl Future<Output = Outcome>) -> Outcome<f64> {
    let (clock, highest) = (Clock::real(), Cell::new(0.0_f64));
    let look = async {
        loop {
            match master.resident() {
                Ok(now) => highest.set(highest.get().max(now)),
                Err(failure) => return failure,
            }
            clock.sleep(LOOK).await;
        }
    };
    match select(pin!(work), pin!(look)).await {
        Either::Left((done, _)) => done?,
        Either::Right((failure, _)) => return Err(failure),
    }
    Ok(highest.get())
}
