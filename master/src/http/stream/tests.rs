//! The laws of the event stream: whoever hears a snapshot and all that follows knows what the master knows; and nobody costs it much.

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
use runtime::rehearsal::rehearse;
use v1::describe::made;
use v1::recordio::Decoder;
use v1::schema::TaskState;
use v1::schema::master::{Event, EventType, ResponseGetAgentsAgent, ResponseGetState};
use v1::{Form, Limits};

use super::super::operator::StateSeen;
use super::super::shown::Shown;
use super::super::tests::master;
use super::*;
use crate::master::{EndFramework, Master};
use crate::mirror::tests::laws::{Event as Random, books, events, happen};
use crate::permission::Asker;
use crate::tasks::{Noted, Task};

/// What somebody knows who hears a stream.
#[derive(Clone, Debug, Default, PartialEq)]
struct Known {
    /// With whether each is active, and deactivated, and how it is drained and described.
    agents: BTreeMap<String, (bool, Option<bool>, String)>,
    /// With whether each is connected, and its name.
    frameworks: BTreeMap<String, (bool, String)>,
    /// By framework and id.
    tasks: BTreeMap<(String, String), TaskState>,
}

/// Which agent that is, and what of it may change while it stays.
fn offered(agent: &ResponseGetAgentsAgent) -> (String, (bool, Option<bool>, String)) {
    let info = &agent.agent_info;
    let described = (&info.resources, &info.attributes, &info.domain);
    let place = (&info.hostname, info.port, &agent.pid, &agent.version);
    let times = (&agent.registered_time, &agent.reregistered_time);
    let words = format!("{:?} {described:?} {place:?} {times:?}", agent.drain_info);
    let id = info.id.as_ref().unwrap().value.clone();
    (id, (agent.active, agent.deactivated, words))
}

/// What somebody sees who is nobody in particular.
fn sight(acls: &str) -> Sight {
    Sight::of(&Acls::parse(acls).unwrap(), &Subject::default())
}

/// Who sees all, not the roles of others, not the tasks of carol, not the frameworks of bob, and neither of these two.
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
    /// All that these books have. Of several tasks with one id the one counts that is still there.
    fn of(books: &Books) -> Self {
        let state: ResponseGetState = made(&StateSeen(Shown::of(books)));
        let mut known = Self::default();
        for agent in &state.get_agents.as_ref().unwrap().agents {
            let (id, offered) = offered(agent);
            known.agents.insert(id, offered);
        }
        for one in &state.get_frameworks.as_ref().unwrap().frameworks {
            let info = &one.framework_info;
            let id = info.id.as_ref().unwrap().value.clone();
            known
                .frameworks
                .insert(id, (one.connected, info.name.clone()));
        }
        let tasks = state.get_tasks.as_ref().unwrap();
        let over = tasks.completed_tasks.iter();
        for task in over.chain(&tasks.unreachable_tasks).chain(&tasks.tasks) {
            let id = (task.framework_id.value.clone(), task.task_id.value.clone());
            known.tasks.insert(id, task.state);
        }
        known
    }

    /// One more event; what is told twice, or of something that was never told, is a fault.
    fn hear(&mut self, event: &Event) -> Result<(), String> {
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

/// What no master lets happen, but a random history does: a task whose namesake cannot be reached, or anything of a framework that has ended.
/// Nor a task whose namesake is over and still remembered: when the newer one is forgotten out of reach, only the older is left of the id,
/// and nobody can say what is true of it.
fn is_impossible(books: &Books, (what, _, framework, task): Random) -> bool {
    let framework = FrameworkId::new(format!("f{framework}")).unwrap();
    let of = books.tasks.of_framework(&framework);
    let is = |one: &Arc<Task>| one.id.as_str() == format!("t{task}");
    let is_namesake = of.is_some_and(|of| of.unreachable().chain(of.completed()).any(is));
    match what {
        6 | 7 => books.frameworks.is_removed(&framework),
        10..=13 => is_namesake || books.frameworks.is_removed(&framework),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// Whatever happens between two looks at the books, and whatever of them somebody may see.
    #[test]
    fn a_snapshot_and_all_that_is_told_after_it_is_what_is_seen(rounds in events(), sees in 0..SIGHTS.len()) {
        let sight = sight(SIGHTS[sees]);
        let seen = |books: &Books| sight.books(&Arc::new(books.clone()));
        let mut now = books();
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
            let sees = |one: &&Noted| sight.sees(&one.task, &before) || sight.sees(&one.task, &now);
            let noted: Vec<&Noted> = noted.iter().filter(sees).collect();
            let at = Timestamp::from_nanos(time);
            for event in changes::changes(&seen(&before), &seen(&now), &noted, at) {
                if let Err(fault) = known.hear(&event) {
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
            for (id, state) in &truth.tasks {
                let found = known.tasks.get(id);
                // Tasks of a framework that nobody knows are seen by those only who see everything; when it comes some are over.
                let was_hidden = !sight.is_whole() && found.is_none() && !is_live(id);
                prop_assert!(found == Some(state) || was_hidden, "{:?} {:?}", id, found);
            }
            // What a master forgets had ended before it was forgotten, or could not be reached.
            known
                .tasks
                .retain(|id, state| truth.tasks.contains_key(id) || is_over(*state));
        }
    }
}

/// SPEC 2.6: a task whose health changes to and fro.
#[test]
fn each_status_is_told_also_where_the_next_has_the_same_state() {
    let mut now = books();
    for event in [(6, 0, 0, 1), (0, 0, 0, 0), (10, 0, 0, 2)] {
        happen(&mut now, event, 5);
    }
    now.tasks.take_noted();
    let before = now.clone();
    let (framework, task): (FrameworkId, TaskId) = ("f0".parse().unwrap(), "t2".parse().unwrap());
    let told = [true, false, true];
    for (second, healthy) in told.into_iter().enumerate() {
        let (state, at) = (
            protocol::TaskState::Running,
            Timestamp::from_nanos(second as u64),
        );
        let mut status = TaskStatus::new(task.clone(), state, Source::Executor, at);
        status.healthy = Some(healthy);
        now.tasks
            .update(&framework, &task, |task| task.observe(&status, state));
    }
    let noted = now.tasks.take_noted().unwrap();
    let noted: Vec<&Noted> = noted.iter().collect();
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

    /// What has come by now; none if the stream is at its end.
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
    open_by(node, master, max, &Shared::default())
}

fn open_by(node: &Node, master: &Handle<Master>, max: usize, acls: &Shared<Acls>) -> EventStream {
    let config = Config {
        max_operator_event_stream_subscribers: max,
        acls: acls.clone(),
        ..Config::default()
    };
    open(node, &Front::of(master), &config, &Streams::new(node)).unwrap()
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
    let subscribed = stream.subscribe(Content::One(form), sight(acls)).await;
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
fn a_subscriber_is_told_how_all_is_and_then_what_changes_in_its_own_form() {
    rehearse(|node| async move {
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
fn each_is_told_what_it_may_see_and_those_who_see_the_same_share_it() {
    rehearse(|node| async move {
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
        // Whoever is one too many is the oldest of all, whatever it sees.
        readers.push(subscribe_seeing(&stream, Form::Json, blind).await);
        assert_eq!(
            all.cut_because(),
            "Disconnected: a newer one has come, and 3 are the most"
        );
        assert_eq!(stream.subscribers(), 3);
        assert_eq!(cut_off(&stream), ["too_many 1"]);
    });
}

/// SPEC 3.7: the ACL file is read again at SIGHUP.
#[test]
fn who_sees_something_else_by_new_acls_is_cut_off_and_told_that_when_it_subscribes_again() {
    rehearse(|node| async move {
        let master = master(&node).await;
        let acls = Shared::default();
        let stream = open_by(&node, &master, 9, &acls);
        let subscribe = async |name: &str| {
            let asker = Asker::new(&acls.now(), Subject::named(name));
            let subscribed = stream.subscribe(Content::One(Form::Json), asker).await;
            Reader::of(subscribed.unwrap().into_body(), Form::Json)
        };
        let (mut ann, mut bob) = (subscribe("ann").await, subscribe("bob").await);
        // One of whom only its sight is known.
        let mut nobody = subscribe_seeing(&stream, Form::Json, "{}").await;
        for reader in [&mut ann, &mut bob, &mut nobody] {
            assert_eq!(reader.types(), Some(vec![EventType::Subscribed]));
        }
        // The same is said again: nobody notices.
        acls.renew(Acls::parse("{}").unwrap());
        node.clock().advance(INTERVAL * 2).await;
        assert_eq!(stream.subscribers(), 3);

        let text =
            r#"{"view_frameworks":[{"principals":{"values":["bob"]},"users":{"type":"NONE"}}]}"#;
        acls.renew(Acls::parse(text).unwrap());
        framework(&node, &master, "second").await;
        node.clock().advance(INTERVAL * 2).await;
        assert!(ann.types().unwrap().contains(&EventType::FrameworkAdded));
        for reader in [&mut bob, &mut nobody] {
            let because = reader.cut_because();
            assert_eq!(because, "Disconnected: it sees something else now");
        }
        assert_eq!(stream.subscribers(), 1);
        assert_eq!(cut_off(&stream), ["other_acls 2"]);

        let events = subscribe("bob").await.read().unwrap();
        let state = events[0].subscribed.as_ref().unwrap().get_state.clone();
        assert!(state.unwrap().get_frameworks.unwrap().frameworks.is_empty());
    });
}

/// Each who joins makes the next beat a later one.
#[test]
fn a_heartbeat_comes_also_while_others_join_and_leave_at_every_moment() {
    rehearse(|node| async move {
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

/// W15: how often the master is asked what it knows.
#[test]
fn a_master_in_which_nothing_happens_is_not_asked() {
    rehearse(|node| async move {
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

/// SPEC 2.6: a stream tells of one master's books.
#[test]
fn streams_end_with_the_master_whose_books_they_tell_of_and_none_begins_without_one() {
    rehearse(|node| async move {
        let master = master(&node).await;
        let stream = open_for(&node, &master, 1000);
        let mut reader = subscribe(&stream, Form::Json).await;
        assert_eq!(reader.types(), Some(vec![EventType::Subscribed]));
        master.stop();
        node.clock().settle().await;
        let refused = stream
            .subscribe(Content::One(Form::Json), sight("{}"))
            .await;
        assert_eq!(refused.map(drop), Err(NotNow::Late));
        // What a late answer told is lost: no stream goes on without it.
        let because = reader.cut_because();
        assert!(because.contains("another master leads"), "{because}");
        assert_eq!(stream.subscribers(), 0);
        assert_eq!(cut_off(&stream), ["missed_changes 1"]);

        let none = open(
            &runtime::rehearsal::node("other").build(),
            &Front::default(),
            &Config::default(),
            &Streams::new(&node),
        );
        let subscribed = none.unwrap();
        let refused = subscribed
            .subscribe(Content::One(Form::Json), sight("{}"))
            .await;
        assert_eq!(refused.map(drop), Err(NotNow::NoMaster));
    });
}
