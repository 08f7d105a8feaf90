//! HTTP executors in virtual time: broken streams, events and calls (SPEC 2.5, 5.3).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers may fall like the test"
)]

mod common;
mod fixture;

use std::time::Duration;

use fixture::*;
use futures_util::{FutureExt, StreamExt};
use http::api::{Bounds, EventStreams};
use meros_agent::container::http_executors::stream::{ExecutorStream, HEARTBEAT};
use meros_agent::container::http_executors::{
    CallRejected, ExecutorCall, ExecutorCalled, ExecutorCaller, ExecutorToken, SubscribeStream,
};
use protocol::message::task::{EndExecutor, RunTasks, ShutDownFramework};
use protocol::{ExecutorId, FrameworkInfo, Reason, Source, TaskState, TaskStatus, Uuid};
use runtime::Timestamp;
use serde_json::Value;
use v1::recordio::Decoder;
use v1::schema::executor::Event;
use v1::{Content, Form};

/// The body of a subscription's answer.
type Body = std::pin::Pin<Box<dyn futures_util::Stream<Item = Value>>>;

/// Runs tasks of a custom executor, with or without checkpointing.
async fn run(world: &World, tasks: &[&str], checkpoint: bool) {
    world.master.tell(RunTasks {
        framework: FrameworkInfo {
            checkpoint,
            ..framework()
        },
        tasks: tasks.iter().map(|id| custom(id)).collect(),
    });
    world.settle().await;
}

/// The executor that was launched first, with its token.
fn caller(world: &World) -> ExecutorCaller {
    let request = world.launcher.launched.lock().unwrap()[0].clone();
    let token = &request.environment["MESOS_EXECUTOR_AUTHENTICATION_TOKEN"];
    ExecutorCaller {
        framework_id: framework_id(),
        executor_id: ExecutorId::new("own").unwrap(),
        token: Some(ExecutorToken::read(token).unwrap()),
    }
}

async fn try_subscribe(
    world: &World,
    caller: ExecutorCaller,
    updates: Vec<TaskStatus>,
) -> (Result<(), CallRejected>, Body) {
    let streams = EventStreams::new(&world.node);
    try_subscribe_within(world, caller, updates, (&streams, Bounds::default())).await
}

/// Like [`try_subscribe`], with streams of this buffer limit.
async fn try_subscribe_within(
    world: &World,
    caller: ExecutorCaller,
    updates: Vec<TaskStatus>,
    (streams, bounds): (&EventStreams, Bounds),
) -> (Result<(), CallRejected>, Body) {
    let (events, response) = streams.open(Content::One(Form::Json), bounds);
    let stream = world
        .node
        .spawn_unnamed("http_executor", ExecutorStream::new(events))
        .unwrap();
    let subscribe = SubscribeStream {
        caller,
        tasks: updates.iter().map(|one| one.task_id.clone()).collect(),
        updates,
        stream,
    };
    let received = world.agent.subscribe_stream(subscribe).await.unwrap();
    world.settle().await;
    let mut decoder = Decoder::new(1 << 20);
    let body = response.into_body().into_data_stream();
    let body = body.flat_map(move |piece| {
        let piece = piece.unwrap();
        let (mut rest, mut events) = (&piece[..], Vec::new());
        while let Some(record) = decoder.next(&mut rest).unwrap() {
            events.push(serde_json::from_slice(&record).unwrap());
        }
        futures_util::stream::iter(events)
    });
    (received, Box::pin(body))
}

async fn subscribe(world: &World, updates: Vec<TaskStatus>) -> Body {
    let (received, body) = try_subscribe(world, caller(world), updates).await;
    received.unwrap();
    body
}

/// The types of the waiting events, with the task of each.
fn received(body: &mut Body) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(Some(event)) = body.next().now_or_never() {
        let kind = event["type"].as_str().unwrap();
        let about = &event[kind.to_lowercase()];
        let task = about["task"]["task_id"]["value"].as_str();
        let task = task.or(about["task_id"]["value"].as_str());
        all.push(task.map_or(kind.to_owned(), |task| format!("{kind} {task}")));
    }
    all
}

fn status(task: &str, state: TaskState, number: u8) -> TaskStatus {
    let mut status = TaskStatus::new(task_id(task), state, Source::Executor, Timestamp::default());
    status.uuid = Some(Uuid([number; 16]));
    status
}

async fn say(world: &World, call: ExecutorCall) -> Result<(), CallRejected> {
    let caller = caller(world);
    let message = world
        .agent
        .executor_called(ExecutorCalled { caller, call })
        .await
        .unwrap();
    world.settle().await;
    message
}

async fn give(world: &World, status: TaskStatus) -> Result<(), CallRejected> {
    say(world, ExecutorCall::Update(Box::new(status))).await
}

// Covers 2.5 UPDATE, MESSAGE, HEARTBEAT.
// Covers 2.5 SUBSCRIBED, LAUNCH, KILL, ACKNOWLEDGED, MESSAGE, ERROR, SHUTDOWN, HEARTBEAT.
#[test]
fn http_executor_receives_events_and_sends_calls() {
    world(FixtureOptions::default(), |world| async move {
        run(&world, &["a", "b"], false).await;
        let early = give(&world, status("a", TaskState::Running, 1)).await;
        assert!(matches!(early, Err(CallRejected::NotAllowed { .. })));
        let mut stranger = caller(&world);
        stranger.token = ExecutorToken::read("c.guess");
        let (refused, mut body) = try_subscribe(&world, stranger, Vec::new()).await;
        assert!(matches!(refused, Err(CallRejected::Unauthenticated { .. })));
        assert_eq!(received(&mut body), Vec::<String>::new());

        let mut body = subscribe(&world, Vec::new()).await;
        assert_eq!(received(&mut body), ["SUBSCRIBED", "LAUNCH a", "LAUNCH b"]);
        give(&world, status("a", TaskState::Running, 1))
            .await
            .unwrap();
        say(&world, ExecutorCall::Message(b"hello".to_vec()))
            .await
            .unwrap();
        say(&world, ExecutorCall::Heartbeat).await.unwrap();
        world.master.kill("a");
        world.settle().await;
        assert_eq!(received(&mut body), ["ACKNOWLEDGED a", "KILL a"]);
        let update = world.master.last("a").unwrap().status;
        assert_eq!(
            update.executor_id.unwrap().as_str(),
            "own",
            "filled in, as the container and the time"
        );
        assert!(update.container_id.is_some() && update.timestamp.as_nanos() > 0);
        let messages = world.master.received.lock().unwrap().messages.clone();
        assert_eq!(messages[0].data, b"hello");
        world.node.clock().advance(HEARTBEAT).await;
        assert_eq!(received(&mut body), ["HEARTBEAT"]);
    });
}

/// W4: even if nothing more is written to it.
// Covers 2.5 SUBSCRIBED, LAUNCH, KILL, ACKNOWLEDGED, MESSAGE, ERROR, SHUTDOWN, HEARTBEAT.
#[test]
fn slow_executor_stream_is_disconnected() {
    world(FixtureOptions::default(), |world| async move {
        run(&world, &["a", "b"], false).await;
        let bounds = Bounds {
            common_max: Some(100),
            ..Bounds::default()
        };
        let streams = EventStreams::new(&world.node);
        let within = (&streams, bounds);
        let subscribed = try_subscribe_within(&world, caller(&world), Vec::new(), within);
        let (heard_of, mut body) = subscribed.await;
        heard_of.unwrap();
        world.node.clock().advance(Duration::from_secs(1)).await;
        world.settle().await;
        assert_eq!(received(&mut body), ["ERROR"]);
        assert!(body.next().await.is_none(), "nothing comes after it");
    });
}

/// W4: it gets no more events while other streams fill up.
#[test]
fn stream_lag_is_checked_when_others_lag() {
    world(FixtureOptions::default(), |world| async move {
        run(&world, &["a", "b"], false).await;
        let bounds = Bounds {
            common_max: Some(10_000),
            ..Bounds::default()
        };
        let streams = EventStreams::new(&world.node);
        let within = (&streams, bounds);
        let subscribed = try_subscribe_within(&world, caller(&world), Vec::new(), within);
        let (heard_of, mut body) = subscribed.await;
        heard_of.unwrap();
        assert!(streams.waiting() > 100, "{}", streams.waiting());
        let others: Vec<_> = (0..100)
            .map(|_| streams.open(Content::One(Form::Json), bounds))
            .collect();
        world.node.clock().advance(Duration::from_secs(1)).await;
        world.settle().await;
        others[0].0.write(&Event::message(vec![7; 20_000])).unwrap();
        world.settle().await;
        assert_eq!(received(&mut body), ["ERROR"]);
    });
}

/// SPEC 2.5: repeated shutdown orders do not change the grace period.
// Covers 2.5 What an executor must do.
#[test]
fn http_executor_is_killed_after_its_grace_period() {
    world(FixtureOptions::default(), |world| async move {
        run(&world, &["a"], false).await;
        let mut body = subscribe(&world, Vec::new()).await;
        let (framework_id, executor_id) = (framework_id(), ExecutorId::new("own").unwrap());
        let end = EndExecutor {
            framework_id: framework_id.clone(),
            executor_id,
        };
        world.master.tell(end.clone());
        world.settle().await;
        assert_eq!(received(&mut body), ["SUBSCRIBED", "LAUNCH a", "SHUTDOWN"]);
        world.advance(2).await;
        world.master.tell(end);
        world.master.tell(ShutDownFramework { framework_id });
        world.advance(2).await;
        assert_eq!(received(&mut body), Vec::<String>::new());
        assert!(world.launcher.killed.lock().unwrap().is_empty());
        world.advance(2).await;
        assert_eq!(world.launcher.killed.lock().unwrap().len(), 1);
    });
}

/// SPEC 2.5: its stream may have broken just before or after the SHUTDOWN event.
// Covers 2.5 What an executor must do.
#[test]
fn resubscription_during_shutdown_keeps_the_deadline() {
    for is_away in [false, true] {
        world(FixtureOptions::default(), move |world| async move {
            run(&world, &["a"], true).await;
            let mut body = Some(subscribe(&world, Vec::new()).await);
            if is_away {
                body = None;
                world.settle().await;
            }
            world.master.tell(EndExecutor {
                framework_id: framework_id(),
                executor_id: ExecutorId::new("own").unwrap(),
            });
            world.settle().await;
            drop(body);
            world.advance(4).await;
            let unacknowledged = vec![status("a", TaskState::Killed, 1)];
            let mut body = subscribe(&world, unacknowledged).await;
            assert_eq!(received(&mut body), ["SHUTDOWN"]);
            assert!(body.next().await.is_none(), "nothing comes after it");
            assert_eq!(world.master.states("a"), [TaskState::Killed]);
            assert!(world.launcher.killed.lock().unwrap().is_empty());
            world.advance(2).await;
            assert_eq!(world.launcher.killed.lock().unwrap().len(), 1);
            let mut stranger = caller(&world);
            stranger.token = ExecutorToken::read("c.guess");
            let (refused, _) = try_subscribe(&world, stranger, Vec::new()).await;
            assert!(matches!(refused, Err(CallRejected::Unauthenticated { .. })));
        });
    }
}

/// SPEC 2.5: an executor without checkpoint is expected to end with its connection.
// Covers 2.5 What an executor must do.
#[test]
fn executor_without_checkpoint_has_its_grace_period_to_return() {
    world(FixtureOptions::default(), |world| async move {
        run(&world, &["a"], false).await;
        drop(subscribe(&world, Vec::new()).await);
        world.advance(4).await;
        assert!(world.launcher.killed.lock().unwrap().is_empty());
        let mut body = subscribe(&world, Vec::new()).await;
        assert_eq!(
            received(&mut body),
            ["SUBSCRIBED", "LAUNCH a"],
            "the task it does not name was lost on the way"
        );
        world.advance(10).await;
        assert!(world.launcher.killed.lock().unwrap().is_empty());
        drop(body);
        world.advance(6).await;
        assert_eq!(world.launcher.killed.lock().unwrap().len(), 1);
        let update = world.master.last("a").unwrap().status;
        assert_eq!(
            (update.state, update.reason),
            (TaskState::Lost, Some(Reason::ExecutorReregistrationTimeout))
        );
    });
}

/// SPEC 2.5, 5.3.
// Covers 2.5 What an executor must do.
#[test]
fn checkpointed_executor_reconnects_within_recovery_timeout() {
    world(FixtureOptions::default(), |world| async move {
        run(&world, &["a"], true).await;
        let body = subscribe(&world, Vec::new()).await;
        give(&world, status("a", TaskState::Running, 1))
            .await
            .unwrap();
        drop(body);
        // Sent while it is disconnected, and not confirmed.
        give(&world, status("a", TaskState::Running, 2))
            .await
            .unwrap();
        for _ in 0..14 {
            world.advance(60).await;
        }
        world.master.kill("a");
        world.settle().await;
        let unacknowledged = vec![
            status("a", TaskState::Running, 1),
            status("a", TaskState::Running, 2),
        ];
        let mut body = subscribe(&world, unacknowledged).await;
        assert_eq!(
            received(&mut body),
            ["SUBSCRIBED", "KILL a", "ACKNOWLEDGED a", "ACKNOWLEDGED a"]
        );
        let mut newest = subscribe(&world, vec![status("a", TaskState::Running, 2)]).await;
        assert!(
            matches!(body.next().now_or_never(), Some(None)),
            "the newest stream wins"
        );
        give(&world, status("a", TaskState::Killed, 3))
            .await
            .unwrap();
        let told = received(&mut newest);
        assert_eq!(told.last().unwrap(), "ACKNOWLEDGED a", "{told:?}");
        assert_eq!(
            world.master.states("a"),
            [TaskState::Running, TaskState::Running, TaskState::Killed]
        );

        // The next executor does not return.
        run(&world, &["b"], true).await;
        drop(newest);
        world.advance(899).await;
        assert!(world.launcher.killed.lock().unwrap().is_empty());
        world.node.clock().advance(Duration::from_secs(900)).await;
        assert_eq!(world.launcher.killed.lock().unwrap().len(), 1);
        assert_eq!(world.master.states("b"), [TaskState::Lost]);
    });
}

/// SPEC 2.5, 5.11: a repetition of an unacknowledged update is not an error.
// Covers 5.11 Metrics of agents.
#[test]
fn repeated_status_counts_as_valid() {
    world(FixtureOptions::default(), |world| async move {
        run(&world, &["a"], false).await;
        let mut body = subscribe(&world, Vec::new()).await;
        let running = status("a", TaskState::Running, 1);
        give(&world, running.clone()).await.unwrap();
        give(&world, running.clone()).await.unwrap();
        drop(body);
        body = subscribe(&world, vec![running]).await;
        assert_eq!(received(&mut body), ["SUBSCRIBED", "ACKNOWLEDGED a"]);
        let counted = async || {
            let counters = world.agent.counters().await.unwrap();
            ["valid", "invalid"].map(|kind| counters[&format!("slave/{kind}_status_updates")])
        };
        assert_eq!(counted().await, [3.0, 0.0]);
        give(&world, status("b", TaskState::Running, 2))
            .await
            .unwrap();
        assert_eq!(received(&mut body), ["ACKNOWLEDGED b"]);
        assert_eq!(counted().await, [3.0, 1.0]);
        assert!(world.master.last("b").is_none());
    });
}
