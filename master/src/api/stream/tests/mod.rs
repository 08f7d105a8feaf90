//! Properties of the event stream: a snapshot and its events reproduce the state, at a bounded
//! cost.

mod between;
mod cuts;
mod orders;

use std::collections::BTreeMap;

use authority::Subject;
use axum::body::{Body, BodyDataStream};
use futures_util::{FutureExt, StreamExt};
use proptest::prelude::*;
use protocol::message::scheduler::Subscribe as SubscribeFramework;
use protocol::{FrameworkId, FrameworkInfo, Source, TaskId, TaskStatus};
use runtime::testing::simulate;
use v1::describe::build;
use v1::recordio::Decoder;
use v1::schema::TaskState;
use v1::schema::master::{Event, EventType, ResponseGetAgentsAgent, ResponseGetState};
use v1::{Form, Limits};

use super::super::operator::DescribeState;
use super::super::tests::master;
use super::*;
use crate::api::pages::visible::VisibleState;
use crate::leadership::mirror::tests::properties::{Event as Random, events, happen, state};
use crate::master::{EndFramework, Master};
use crate::permission::Caller;
use crate::tasks::{Task, TaskNote};

/// A subscriber's knowledge.
#[derive(Clone, Debug, Default, PartialEq)]
struct Known {
    /// With whether each is active, and deactivated, and how it is drained and described.
    agents: BTreeMap<String, (bool, Option<bool>, String)>,
    /// With whether each is connected, and its name.
    frameworks: BTreeMap<String, (bool, String)>,
    /// By framework and id.
    tasks: BTreeMap<(String, String), TaskState>,
}

/// The agent's id and its changeable part.
fn offered(agent: &ResponseGetAgentsAgent) -> (String, (bool, Option<bool>, String)) {
    let info = &agent.agent_info;
    let described = (&info.resources, &info.attributes, &info.domain);
    let place = (&info.hostname, info.port, &agent.pid, &agent.version);
    let times = (&agent.registered_time, &agent.reregistered_time);
    let words = format!("{:?} {described:?} {place:?} {times:?}", agent.drain_info);
    let id = info.id.as_ref().unwrap().value.clone();
    (id, (agent.active, agent.deactivated, words))
}

/// The visibility of an unnamed caller.
fn visibility(acls: &str) -> Visibility {
    Visibility::of(&Acls::parse(acls).unwrap(), &Subject::default())
}

/// Sees everything; not the roles of others; not carol's tasks; not bob's frameworks; none of
/// these.
const SIGHTS: [&str; 5] = [
    "{}",
    r#"{"view_roles":[{"principals":{"type":"ANY"},"roles":{"values":["*"]}},
        {"principals":{"type":"ANY"},"roles":{"type":"NONE"}}]}"#,
    r#"{"view_tasks":[{"principals":{"type":"ANY"},"users":{"values":["nobody","bob"]}},
        {"principals":{"type":"ANY"},"users":{"type":"NONE"}}]}"#,
    r#"{"view_frameworks":[{"principals":{"type":"ANY"},"users":{"values":["nobody"]}},
        {"principals":{"type":"ANY"},"users":{"type":"NONE"}}]}"#,
    r#"{"view_tasks":[{"principals":{"type":"ANY"},"users":{"values":["nobody","bob"]}},
        {"principals":{"type":"ANY"},"users":{"type":"NONE"}}],
        "view_frameworks":[{"principals":{"type":"ANY"},"users":{"values":["nobody"]}},
        {"principals":{"type":"ANY"},"users":{"type":"NONE"}}]}"#,
];

fn is_over(state: TaskState) -> bool {
    protocol::TaskState::from(state).is_terminal()
}

impl Known {
    /// Everything in this state. Of several tasks with one id the active one counts.
    fn of(state: &MasterState) -> Self {
        let answer: ResponseGetState = build(&DescribeState(VisibleState::of(state)));
        let mut known = Self::default();
        for agent in &answer.get_agents.as_ref().unwrap().agents {
            let (id, offered) = offered(agent);
            known.agents.insert(id, offered);
        }
        for one in &answer.get_frameworks.as_ref().unwrap().frameworks {
            let info = &one.framework_info;
            let id = info.id.as_ref().unwrap().value.clone();
            known
                .frameworks
                .insert(id, (one.connected, info.name.clone()));
        }
        let tasks = answer.get_tasks.as_ref().unwrap();
        let over = tasks.completed_tasks.iter();
        for task in over.chain(&tasks.unreachable_tasks).chain(&tasks.tasks) {
            let id = (task.framework_id.value.clone(), task.task_id.value.clone());
            known.tasks.insert(id, task.state);
        }
        known
    }

    /// Applies an event; repeated events, and events about unknown objects, are errors.
    fn apply(&mut self, event: &Event) -> Result<(), String> {
        let fault = |words: &str| Err(format!("{words}: {event:?}"));
        match event.r#type.unwrap() {
            EventType::AgentAdded => {
                let agent = &event.agent_added.as_ref().unwrap().agent;
                let (id, offered) = offered(agent);
                if self.agents.insert(id, offered.clone()) == Some(offered) {
                    return fault("an agent is told twice");
                }
            }
            EventType::AgentRemoved => {
                let id = &event.agent_removed.as_ref().unwrap().agent_id.value;
                if self.agents.remove(id).is_none() {
                    return fault("an agent that nobody was told of");
                }
            }
            EventType::FrameworkAdded => {
                let framework = &event.framework_added.as_ref().unwrap().framework;
                let info = &framework.framework_info;
                let id = info.id.as_ref().unwrap().value.clone();
                let told = self
                    .frameworks
                    .insert(id, (framework.connected, info.name.clone()));
                if told.is_some() {
                    return fault("a framework is told twice");
                }
            }
            EventType::FrameworkUpdated => {
                let framework = &event.framework_updated.as_ref().unwrap().framework;
                let info = &framework.framework_info;
                let id = &info.id.as_ref().unwrap().value;
                let Some(known) = self.frameworks.get_mut(id) else {
                    return fault("a framework that nobody was told of");
                };
                *known = (framework.connected, info.name.clone());
            }
            EventType::FrameworkRemoved => {
                let info = &event.framework_removed.as_ref().unwrap().framework_info;
                if self
                    .frameworks
                    .remove(&info.id.as_ref().unwrap().value)
                    .is_none()
                {
                    return fault("a framework that nobody was told of");
                }
            }
            EventType::TaskAdded => {
                let task = &event.task_added.as_ref().unwrap().task;
                let id = (task.framework_id.value.clone(), task.task_id.value.clone());
                self.tasks.insert(id, task.state);
            }
            EventType::TaskUpdated => {
                let updated = event.task_updated.as_ref().unwrap();
                let id = (
                    updated.framework_id.value.clone(),
                    updated.status.task_id.value.clone(),
                );
                let Some(known) = self.tasks.get_mut(&id) else {
                    return fault("a task that nobody was told of");
                };
                *known = updated.state;
            }
            other => return fault(other.name()),
        }
        Ok(())
    }
}

/// Excludes events that a master never allows but a random history contains: a task with the id of
/// an unreachable one, events of ended frameworks, and a task with the id of a remembered finished
/// one (if the newer task is forgotten while unreachable, only the older one remains, and the truth
/// is undefined).
fn is_impossible(state: &MasterState, (what, _, framework, task): Random) -> bool {
    let framework = FrameworkId::new(format!("f{framework}")).unwrap();
    let of = state.tasks.of_framework(&framework);
    let is = |one: &Arc<Task>| one.id.as_str() == format!("t{task}");
    let is_namesake = of.is_some_and(|of| of.unreachable().chain(of.completed()).any(is));
    match what {
        6 | 7 => state.frameworks.is_removed(&framework),
        10..=13 => is_namesake || state.frameworks.is_removed(&framework),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// For any changes between two snapshots, and any visibility.
    // Covers 2.6 Events of agents and tasks.
    #[test]
    fn snapshot_plus_events_equals_the_visible_state(rounds in events(), sees in 0..SIGHTS.len()) {
        let visibility = visibility(SIGHTS[sees]);
        let seen = |state: &MasterState| visibility.filter(&Arc::new(state.clone()));
        let mut now = state();
        now.tasks.take_noted();
        let (mut known, mut time) = (Known::of(&seen(&now)), 10);
        for round in rounds {
            let before = now.clone();
            for event in round {
                time += 1;
                if !is_impossible(&now, event) {
                    happen(&mut now, event, time);
                }
            }
            let noted = now.tasks.take_noted().unwrap();
            let sees = |one: &&TaskNote| visibility.sees(&one.task, &before) || visibility.sees(&one.task, &now);
            let noted: Vec<&TaskNote> = noted.iter().filter(sees).collect();
            let at = Timestamp::from_nanos(time);
            for event in changes::changes(&seen(&before), &seen(&now), &noted, at) {
                if let Err(fault) = known.apply(&event) {
                    prop_assert!(false, "{}", fault);
                }
            }
            let truth = Known::of(&seen(&now));
            prop_assert_eq!(&known.agents, &truth.agents);
            prop_assert_eq!(&known.frameworks, &truth.frameworks);
            let seen = seen(&now);
            let is_live = |(framework, task): &(String, String)| {
                let of = seen.tasks.of_framework(&framework.parse().unwrap());
                let mut live = of.into_iter().flat_map(|of| of.active().chain(of.unreachable()));
                live.any(|one| one.id.as_str() == task)
            };
            for (id, task_state) in &truth.tasks {
                let found = known.tasks.get(id);
                // Tasks of an unknown framework are visible only to viewers that see everything;
                // some are over when it appears.
                let was_hidden = !visibility.is_whole() && found.is_none() && !is_live(id);
                prop_assert!(found == Some(task_state) || was_hidden, "{:?} {:?}", id, found);
            }
            // Forgotten tasks had ended, or were unreachable.
            known
                .tasks
                .retain(|id, task_state| truth.tasks.contains_key(id) || is_over(*task_state));
        }
    }
}

/// SPEC 2.6: a task whose health changes to and fro.
#[test]
fn each_status_is_sent_even_with_equal_states() {
    let mut now = state();
    for event in [(6, 0, 0, 1), (0, 0, 0, 0), (10, 0, 0, 2)] {
        happen(&mut now, event, 5);
    }
    now.tasks.take_noted();
    let before = now.clone();
    let (framework, task): (FrameworkId, TaskId) = ("f0".parse().unwrap(), "t2".parse().unwrap());
    let told = [true, false, true];
    for (second, healthy) in told.into_iter().enumerate() {
        let (task_state, at) = (
            protocol::TaskState::Running,
            Timestamp::from_nanos(second as u64),
        );
        let mut status = TaskStatus::new(task.clone(), task_state, Source::Executor, at);
        status.healthy = Some(healthy);
        now.tasks
            .update(&framework, &task, |task| task.observe(&status, task_state));
    }
    let noted = now.tasks.take_noted().unwrap();
    let noted: Vec<&TaskNote> = noted.iter().collect();
    let events = changes::changes(&before, &now, &noted, Timestamp::from_nanos(9));
    let healthy = |event: &Event| event.task_updated.as_ref()?.status.healthy;
    assert_eq!(events.iter().filter_map(healthy).collect::<Vec<_>>(), told);
    assert_eq!(events.len(), 3);
}

/// The end of a stream that a test reads.
struct Reader {
    body: BodyDataStream,
    form: Form,
    decoder: Decoder,
}

impl Reader {
    fn of(body: Body, form: Form) -> Self {
        Self {
            body: body.into_data_stream(),
            form,
            decoder: Decoder::new(16 << 20),
        }
    }

    /// The events so far; `None` at the end of the stream.
    fn read(&mut self) -> Option<Vec<Event>> {
        let mut events = Vec::new();
        loop {
            match self.body.next().now_or_never() {
                None => return Some(events),
                Some(None) => return (!events.is_empty()).then_some(events),
                Some(Some(piece)) => {
                    let piece = piece.unwrap();
                    let mut piece = &piece[..];
                    while let Some(record) = self.decoder.next(&mut piece).unwrap() {
                        events.push(self.form.read(&record, Limits::default()).unwrap());
                    }
                }
            }
        }
    }

    fn types(&mut self) -> Option<Vec<EventType>> {
        let events = self.read()?;
        Some(events.iter().map(|event| event.r#type.unwrap()).collect())
    }
}

fn open_for(node: &Node, master: &Handle<Master>, max: usize) -> EventStream {
    open_by(node, master, max, &Reloadable::default())
}

fn open_by(
    node: &Node,
    master: &Handle<Master>,
    max: usize,
    acls: &Reloadable<Acls>,
) -> EventStream {
    let config = Config {
        max_operator_event_stream_subscribers: max,
        acls: acls.clone(),
        ..Config::default()
    };
    open(
        node,
        &LocalLeader::of(master),
        &config,
        &EventStreams::new(node),
    )
    .unwrap()
}

/// How many were cut off, by reason.
fn cut_off(stream: &EventStream) -> Vec<String> {
    let counts = stream.cut_off().filter(|(_, count)| *count > 0.0);
    let last = |(name, count): (String, f64)| {
        let reason = name.rsplit('/').next().unwrap();
        format!("{reason} {count}")
    };
    counts.map(last).collect()
}

async fn subscribe(stream: &EventStream, form: Form) -> Reader {
    subscribe_seeing(stream, form, "{}").await
}

async fn subscribe_seeing(stream: &EventStream, form: Form, acls: &str) -> Reader {
    let subscribed = stream.subscribe(Content::One(form), visibility(acls)).await;
    Reader::of(subscribed.unwrap().into_body(), form)
}

async fn framework(node: &Node, master: &Handle<Master>, name: &str) -> FrameworkId {
    let message = SubscribeFramework {
        framework: FrameworkInfo::new("nobody", name),
        scheduler: Pid::new(name, node.id().clone(), 1),
        wants: Default::default(),
    };
    let subscribed = master.ask(message, PATIENCE).await.unwrap().unwrap();
    subscribed.framework_id
}

/// SPEC 2.6.
#[test]
fn subscriber_gets_a_snapshot_then_changes_in_its_form() {
    simulate(|node| async move {
        let master = master(&node).await;
        let stream = open_for(&node, &master, 1000);
        let mut first = subscribe(&stream, Form::Json).await;
        let events = first.read().unwrap();
        let subscribed = events[0].subscribed.as_ref().unwrap();
        assert_eq!(subscribed.heartbeat_interval_seconds, Some(15.0));
        let state = subscribed.get_state.as_ref().unwrap();
        assert_eq!(state.get_agents.as_ref().unwrap().agents.len(), 1);
        let frameworks = state.get_frameworks.as_ref().unwrap();
        assert_eq!(frameworks.frameworks.len(), 1);

        let framework_id = framework(&node, &master, "second").await;
        node.clock().advance(INTERVAL).await;
        assert!(first.types().unwrap().contains(&EventType::FrameworkAdded));
        let mut late = subscribe(&stream, Form::Protobuf).await;
        let events = late.read().unwrap();
        let state = events[0].subscribed.as_ref().unwrap().get_state.clone();
        let frameworks = state.unwrap().get_frameworks.unwrap().frameworks;
        assert_eq!((events.len(), frameworks.len()), (1, 2));
        assert_eq!(stream.subscribers(), 2);

        let end = EndFramework { framework_id };
        master.ask(end, PATIENCE).await.unwrap().unwrap();
        node.clock().advance(INTERVAL).await;
        for reader in [&mut first, &mut late] {
            assert_eq!(reader.types(), Some(vec![EventType::FrameworkRemoved]));
        }
        node.clock().advance(HEARTBEAT).await;
        for reader in [&mut first, &mut late] {
            assert_eq!(reader.types(), Some(vec![EventType::Heartbeat]));
        }
    });
}

/// SPEC 2.6, 3.7.
#[test]
fn subscribers_with_equal_visibility_share_events() {
    simulate(|node| async move {
        let master = master(&node).await;
        let stream = open_for(&node, &master, 3);
        let blind =
            r#"{"view_frameworks":[{"principals":{"type":"ANY"},"users":{"type":"NONE"}}]}"#;
        let mut all = subscribe(&stream, Form::Json).await;
        let mut readers = Vec::new();
        for form in [Form::Json, Form::Protobuf] {
            let mut reader = subscribe_seeing(&stream, form, blind).await;
            let events = reader.read().unwrap();
            let state = events[0].subscribed.as_ref().unwrap().get_state.clone();
            let frameworks = state.unwrap().get_frameworks.unwrap().frameworks;
            assert_eq!((events.len(), frameworks.len()), (1, 0));
            readers.push(reader);
        }
        framework(&node, &master, "second").await;
        node.clock().advance(INTERVAL).await;
        assert!(all.types().unwrap().contains(&EventType::FrameworkAdded));
        for reader in &mut readers {
            assert_eq!(reader.types(), Some(vec![]));
        }
        // The oldest subscriber gives way, whatever its visibility.
        readers.push(subscribe_seeing(&stream, Form::Json, blind).await);
        assert_eq!(
            all.cut_because(),
            "Disconnected: replaced by a newer subscriber: at most 3 are allowed"
        );
        assert_eq!(stream.subscribers(), 3);
        assert_eq!(cut_off(&stream), ["too_many 1"]);
    });
}

/// SPEC 3.7: the ACL file is read again at SIGHUP.
#[test]
fn changed_acls_cut_off_the_subscriber() {
    simulate(|node| async move {
        let master = master(&node).await;
        let acls = Reloadable::default();
        let stream = open_by(&node, &master, 9, &acls);
        let subscribe = async |name: &str| {
            let caller = Caller::new(&acls.current(), Subject::named(name));
            let subscribed = stream.subscribe(Content::One(Form::Json), caller).await;
            Reader::of(subscribed.unwrap().into_body(), Form::Json)
        };
        let (mut ann, mut bob) = (subscribe("ann").await, subscribe("bob").await);
        // A subscriber without an identity.
        let mut nobody = subscribe_seeing(&stream, Form::Json, "{}").await;
        for reader in [&mut ann, &mut bob, &mut nobody] {
            assert_eq!(reader.types(), Some(vec![EventType::Subscribed]));
        }
        // The same ACLs again have no effect.
        acls.replace(Acls::parse("{}").unwrap());
        node.clock().advance(INTERVAL * 2).await;
        assert_eq!(stream.subscribers(), 3);

        let text =
            r#"{"view_frameworks":[{"principals":{"values":["bob"]},"users":{"type":"NONE"}}]}"#;
        acls.replace(Acls::parse(text).unwrap());
        framework(&node, &master, "second").await;
        node.clock().advance(INTERVAL * 2).await;
        assert!(ann.types().unwrap().contains(&EventType::FrameworkAdded));
        for reader in [&mut bob, &mut nobody] {
            let because = reader.cut_because();
            assert_eq!(because, "Disconnected: its visibility has changed");
        }
        assert_eq!(stream.subscribers(), 1);
        assert_eq!(cut_off(&stream), ["other_acls 2"]);

        let events = subscribe("bob").await.read().unwrap();
        let state = events[0].subscribed.as_ref().unwrap().get_state.clone();
        assert!(state.unwrap().get_frameworks.unwrap().frameworks.is_empty());
    });
}

/// Each subscription postpones the next beat.
#[test]
fn heartbeats_continue_while_subscribers_come_and_go() {
    simulate(|node| async move {
        let master = master(&node).await;
        let stream = open_for(&node, &master, 9999);
        let mut reader = subscribe(&stream, Form::Json).await;
        assert_eq!(reader.types(), Some(vec![EventType::Subscribed]));
        let began = node.clock().now();
        while node.clock().now() - began < HEARTBEAT {
            node.clock().advance(INTERVAL / 2).await;
            drop(subscribe(&stream, Form::Json).await);
        }
        assert_eq!(reader.types(), Some(vec![EventType::Heartbeat]));
        assert!(stream.subscribers() <= 3, "{}", stream.subscribers());
    });
}

/// W15: how often the master is asked for its state.
// Covers W15 in part: that no page waits behind the mailbox, the snapshots, the batches and what is
// kept.
#[test]
fn idle_master_is_not_polled() {
    simulate(|node| async move {
        let master = master(&node).await;
        let stream = open_for(&node, &master, 9);
        let mut reader = subscribe(&stream, Form::Json).await;
        node.clock().advance(INTERVAL * 3).await;
        let handled = || {
            let processes = node.processes().into_iter();
            let of_master = processes.filter(|one| one.name == "master");
            of_master
                .flat_map(|one| one.handled.into_values())
                .sum::<u64>()
        };
        let before = handled();
        node.clock().advance(HEARTBEAT * 4).await;
        assert_eq!(handled(), before);
        framework(&node, &master, "second").await;
        let subscribed = handled();
        node.clock().advance(INTERVAL).await;
        assert!(reader.types().unwrap().contains(&EventType::FrameworkAdded));
        assert!(handled() > subscribed);
    });
}

/// SPEC 2.6: a stream belongs to one master.
#[test]
fn operator_streams_end_with_their_master() {
    simulate(|node| async move {
        let master = master(&node).await;
        let stream = open_for(&node, &master, 1000);
        let mut reader = subscribe(&stream, Form::Json).await;
        assert_eq!(reader.types(), Some(vec![EventType::Subscribed]));
        master.stop();
        node.clock().settle().await;
        let refused = stream
            .subscribe(Content::One(Form::Json), visibility("{}"))
            .await;
        assert_eq!(refused.map(drop), Err(NotNow::Late));
        // The content of a late answer is lost: streams end.
        let because = reader.cut_because();
        assert!(because.contains("another master leads"), "{because}");
        assert_eq!(stream.subscribers(), 0);
        assert_eq!(cut_off(&stream), ["missed_changes 1"]);

        let none = open(
            &runtime::testing::node("other").build(),
            &LocalLeader::default(),
            &Config::default(),
            &EventStreams::new(&node),
        );
        let subscribed = none.unwrap();
        let refused = subscribed
            .subscribe(Content::One(Form::Json), visibility("{}"))
            .await;
        assert_eq!(refused.map(drop), Err(NotNow::NoMaster));
    });
}
