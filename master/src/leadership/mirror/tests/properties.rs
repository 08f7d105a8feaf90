//! Properties of differences: for any events and any lost messages, a mirror with the last batch
//! shows the leader's state.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use protocol::digest::DigestKey;
use protocol::{
    AgentId, AgentInfo, CommandInfo, ExecutorId, ExecutorInfo, FrameworkId, FrameworkInfo, Offer,
    OfferId, Reason, Source, TaskId, TaskInfo, TaskState, TaskStatus, Uuid,
};
use resources::{Resources, Role as ResourceRole};
use runtime::NodeId;
use runtime::wire::codec;

use super::super::*;
use crate::agents::Agent;
use crate::api::view;
use crate::api::{PublishedFlags, metrics};
use crate::frameworks::Framework;
use crate::frameworks::counters::FrameworkCounter;
use crate::tasks::Task;

/// An event with its objects.
pub(crate) type Event = (u8, u8, u8, u8);

pub(crate) fn events() -> impl Strategy<Value = Vec<Vec<Event>>> {
    let event = (0..27_u8, 0..3_u8, 0..3_u8, 0..5_u8);
    let round = prop::collection::vec(event, 0..30);
    prop::collection::vec(round, 1..12)
}

fn config() -> Config {
    Config {
        max_completed_frameworks: 2,
        max_completed_tasks_per_framework: 3,
        max_unreachable_tasks_per_framework: 2,
        ..Config::default()
    }
}

pub(crate) fn state() -> MasterState {
    let master = MasterInfo {
        hostname: "leader".to_owned(),
        ..crate::state::measure::empty_state().master
    };
    MasterState::new(master, &config(), Timestamp::from_nanos(5))
}

fn resources(text: &str) -> Resources {
    let parsed: Resources = text.parse().unwrap();
    parsed.allocate(&ResourceRole::new("*").unwrap())
}

fn agent_id(n: u8) -> AgentId {
    AgentId::new(format!("a{n}")).unwrap()
}

fn info(n: u8) -> AgentInfo {
    AgentInfo {
        id: Some(agent_id(n)),
        ..AgentInfo::new(format!("host-{n}"), "cpus:8;mem(ads):100".parse().unwrap())
    }
}

/// An agent that may have grown since.
fn described(n: u8, much: u8) -> AgentInfo {
    let mut info = info(n);
    match much {
        1 => info.resources = "cpus:9;mem(ads):100".parse().unwrap(),
        2 => info.resources = "cpus:8;mem(ads):200".parse().unwrap(),
        3 => info.attributes = resources::Attributes::parse("rack:r1").unwrap(),
        4 => info.domain = Some("r/z".parse().unwrap()),
        _ => {}
    }
    info
}

fn pid(name: &str, n: u8) -> Pid {
    Pid::new(name, NodeId::new(format!("{name}-{n}"), 1), 1)
}

fn executor(n: u8) -> ExecutorInfo {
    ExecutorInfo {
        name: "executor".to_owned(),
        ..ExecutorInfo::new(
            ExecutorId::new(format!("e{n}")).unwrap(),
            CommandInfo {
                user: Some("carol".to_owned()),
                ..CommandInfo::shell("true")
            },
            resources("cpus:0.1"),
        )
    }
}

fn task(f: &FrameworkId, a: &AgentId, t: u8, state: TaskState) -> Task {
    let info = TaskInfo {
        name: format!("task {t}"),
        executor: (t == 4).then(|| executor(t)),
        labels: BTreeMap::from([("t".to_owned(), t.to_string())]),
        ..TaskInfo::new(
            TaskId::new(format!("t{t}")).unwrap(),
            a.clone(),
            resources("cpus:1;mem:10"),
        )
    };
    Task::placed(f.clone(), &info, info.resources.clone(), state)
}

/// Applies an event, sensible or not: the state stays consistent.
pub(crate) fn happen(state: &mut MasterState, (what, a, f, t): Event, now: u64) {
    let at = Timestamp::from_nanos(now);
    let (agent, framework_id) = (agent_id(a), FrameworkId::new(format!("f{f}")).unwrap());
    let task_id = TaskId::new(format!("t{t}")).unwrap();
    let offer_id = OfferId::new(format!("o{t}")).unwrap();
    let (agents, frameworks) = (&mut state.agents, &mut state.frameworks);
    let (tasks, offers) = (&mut state.tasks, &mut state.offers);
    let lost = |task: &mut Task| task.state = TaskState::Lost;
    match what {
        0 | 1 => drop(agents.register(Agent {
            id: agent,
            info: described(a, t),
            described: described(a, t).resources,
            resources_version: (t > 0).then_some(Uuid([t; 16])),
            pid: pid("agent", a),
            version: now.to_string(),
            connected: true,
            session: 0,
            registered: at,
            reregistered: Some(at),
            oversubscribed: Resources::default(),
            ip: None,
            unavailability: None,
            orders: Default::default(),
        })),
        2 => agents.update(&agent, |agent| {
            agent.connected = t > 2;
            agent.orders.deactivated = t == 1;
            agent.oversubscribed = resources("cpus:2");
        }),
        3 => drop(agents.mark_unreachable(&agent, at)),
        4 => drop(agents.forget(&agent)),
        5 => {
            let known = BTreeMap::from([(agent_id(a), info(a)), (agent_id(2), info(2))]);
            agents.recover(known, BTreeMap::from([(agent_id(t), at)]));
        }
        6 | 7 => drop(frameworks.insert(Framework {
            id: framework_id.clone(),
            info: FrameworkInfo {
                id: Some(framework_id),
                ..FrameworkInfo::new(
                    ["nobody", "nobody", "bob"][usize::from(f)],
                    format!("framework {t}"),
                )
            },
            scheduler: (t > 0).then(|| pid("scheduler", f)),
            session: 0,
            registered: at,
            reregistered: None,
            unregistered: None,
            wants: Default::default(),
            recovered: false,
        })),
        8 => drop(frameworks.disconnect(&framework_id)),
        9 => {
            if frameworks.get(&framework_id).is_some() {
                let (of, _, _) = tasks.remove_framework(&framework_id, lost);
                frameworks.complete(&framework_id, of, at);
            }
        }
        10..=13 => {
            let task_state = TaskState::ALL[usize::from(t) % TaskState::ALL.len()];
            let own = executor(t);
            tasks.insert(
                task(&framework_id, &agent, t, task_state),
                (t == 4).then_some(&own),
            );
        }
        14 | 15 => {
            let task_state = match what {
                14 => TaskState::Running,
                _ => TaskState::Finished,
            };
            let mut status = TaskStatus::new(task_id.clone(), task_state, Source::Executor, at);
            status.uuid = Some(Uuid([t; 16]));
            tasks.update(&framework_id, &task_id, |task| {
                task.observe(&status, task_state)
            });
        }
        16 => tasks.acknowledge(&framework_id, &task_id, Uuid([t; 16])),
        17 => drop(tasks.complete(&framework_id, &task_id)),
        18 => drop(tasks.set_aside(&agent, |task| task.state = TaskState::Unreachable)),
        19 => drop(tasks.end_all(&agent, lost)),
        20 => drop(tasks.take_unreachable(&framework_id, &task_id)),
        21 => tasks.insert_executor(&agent, &framework_id, &executor(t)),
        22 => drop(tasks.remove_executor(&agent, &framework_id, &executor(t).executor_id)),
        23 => match t {
            0 => tasks.rekey(&agent, DigestKey::new([a; 16])),
            // Ids are given once; here they are given again when the offer is not out any more.
            _ if offers.get(&offer_id).is_none() => offers.insert(Arc::new(Offer {
                id: offer_id.clone(),
                framework_id,
                role: "*".to_owned(),
                agent_id: agent,
                hostname: format!("host-{a}"),
                resources: resources("cpus:1"),
                attributes: Default::default(),
                executor_ids: Default::default(),
                unavailability: None,
                domain: None,
                endpoint: None,
            })),
            _ => {}
        },
        24 => drop(offers.remove(&offer_id)),
        25 => frameworks.count(&framework_id, FrameworkCounter::Kill, usize::from(t)),
        _ => {
            let status = TaskStatus::new(task_id, TaskState::Failed, Source::Executor, at);
            let reason = Reason::CommandExecutorFailed;
            state.counters.task_ended(&status.with_reason(reason, ""));
            state.counters.add("master/offers_made", usize::from(t));
        }
    }
}

/// All visible content of the state.
fn seen(state: &MasterState) -> (String, String) {
    let view = view::cluster(state);
    let pages = crate::api::tests::everything(state, &PublishedFlags::default());
    let metrics = metrics(state, Timestamp::from_nanos(10));
    (format!("{view:?}"), format!("{pages} {metrics:?}"))
}

fn words(state: &MasterState) -> LeaderInfo {
    LeaderInfo {
        master: state.master.clone(),
        elected: state.elected,
        started: state.started,
        published: PublishedFlags::default(),
    }
}

/// A batch as it comes over the wire, in small pieces.
fn batch(order: &Order, state: &MasterState) -> Vec<MirrorUpdate> {
    let (base, changes) = match &order.base {
        Some((number, before)) => (Base::Batch(*number), difference::changes(before, state)),
        None => {
            let nothing = MasterState::new(state.master.clone(), &Config::default(), state.started);
            let all = difference::changes(&nothing, state);
            (Base::Nothing(Box::new(words(state))), all)
        }
    };
    let mut pieces = size::in_pieces(changes, 2000);
    pieces.resize_with(pieces.len().max(1), Vec::new);
    let count = u32::try_from(pieces.len()).unwrap();
    let said = (0..).zip(pieces).map(|(piece, changes)| MirrorUpdate {
        term: 1,
        sequence: order.sequence,
        base: base.clone(),
        piece,
        pieces: count,
        age: Duration::ZERO,
        changes,
    });
    said.map(|said| codec::decode(&codec::encode(&said).unwrap()).unwrap())
        .collect()
}

/// The fate of one batch.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Arrives,
    /// Some piece of it is lost, and the rest never sent.
    IsCut,
    /// The last answer is lost.
    Unanswered,
    /// It is still under way when the next snapshots are taken.
    Slow,
    /// The follower forgets all it has.
    Forgotten,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        4 => Just(Fate::Arrives),
        1 => Just(Fate::IsCut),
        1 => Just(Fate::Unanswered),
        1 => Just(Fate::Slow),
        1 => Just(Fate::Forgotten),
    ]
}

fn deliver(receiver: &mut Receiver, said: Vec<MirrorUpdate>) -> Option<UpdateReply> {
    let mut answer = None;
    for said in said {
        answer = Some(receiver.receive(said, 1, Instant::default()));
        if answer != Some(UpdateReply::Taken) {
            break;
        }
    }
    answer
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn updates_in_order_reproduce_the_leaders_pages(rounds in events()) {
        let addresses = BTreeSet::from(["b".to_owned()]);
        let (mut leader, mut time) = (Arc::new(state()), 10);
        let (mut followers, mut receiver) = (Followers::default(), Receiver::new(config()));
        for round in rounds {
            for event in round {
                time += 1;
                happen(Arc::make_mut(&mut leader), event, time);
            }
            let order = followers.next(&addresses, &leader).pop().unwrap();
            let answer = deliver(&mut receiver, batch(&order, &leader));
            prop_assert_eq!(answer, Some(UpdateReply::Taken));
            followers.answered(&order, leader.clone(), None, answer);
            let mirrored = receiver.latest().unwrap();
            prop_assert_eq!(seen(&mirrored.state), seen(&leader));
        }
    }

    /// The batch after next, at the latest, has all of it.
    #[test]
    fn lost_updates_are_repaired_by_the_whole(rounds in events(), fates in prop::collection::vec(fate(), 12)) {
        let addresses = BTreeSet::from(["b".to_owned()]);
        let (mut leader, mut time) = (Arc::new(state()), 10);
        let (mut followers, mut receiver) = (Followers::default(), Receiver::new(config()));
        let mut slow: Vec<(Order, Arc<MasterState>)> = Vec::new();
        let mut shown = None;
        for (round, fate) in rounds.into_iter().zip(fates) {
            for event in round {
                time += 1;
                happen(Arc::make_mut(&mut leader), event, time);
            }
            let orders = followers.next(&addresses, &leader);
            prop_assert_eq!(orders.len() + slow.len(), 1, "one batch under way, never more");
            slow.extend(orders.into_iter().map(|order| (order, leader.clone())));
            if let Fate::Slow = fate {
                continue;
            }
            let (order, state) = slow.pop().unwrap();
            let mut said = batch(&order, &state);
            match fate {
                Fate::IsCut => said.truncate(said.len() - 1),
                Fate::Forgotten => receiver = Receiver::new(config()),
                _ => {}
            }
            let answer = deliver(&mut receiver, said);
            let answer = answer.filter(|_| !matches!(fate, Fate::IsCut | Fate::Unanswered));
            if matches!(fate, Fate::Forgotten) {
                shown = None;
            }
            let latest = receiver.latest().map(|mirrored| seen(&mirrored.state));
            // The visible content changes by whole batches only.
            prop_assert!(latest == shown || latest == Some(seen(&state)));
            shown = latest;
            followers.answered(&order, state, Some(pid("mirror", 0)), answer);
        }
        if let Some((order, state)) = slow.pop() {
            let answer = deliver(&mut receiver, batch(&order, &state));
            followers.answered(&order, state, Some(pid("mirror", 0)), answer);
        }
        for _ in 0..2 {
            let order = followers.next(&addresses, &leader).pop().unwrap();
            let answer = deliver(&mut receiver, batch(&order, &leader));
            followers.answered(&order, leader.clone(), Some(pid("mirror", 0)), answer);
        }
        let mirrored = receiver.latest().unwrap();
        prop_assert_eq!(seen(&mirrored.state), seen(&leader));
    }
}

#[test]
fn unchanged_state_costs_one_empty_piece() {
    let leader = Arc::new(state());
    assert_eq!(cut(Some(&leader), &leader), [vec![]]);
    assert!(difference::changes(&leader, &MasterState::clone(&leader)).is_empty());
}

#[test]
fn update_from_another_term_is_refused() {
    let leader = Arc::new(state());
    let mut followers = Followers::default();
    let addresses = BTreeSet::from(["b".to_owned()]);
    let order = followers.next(&addresses, &leader).pop().unwrap();
    let said = batch(&order, &leader);
    let mut receiver = Receiver::new(config());
    for (term, heard) in [
        (2, UpdateReply::Refused { term: 2 }),
        (0, UpdateReply::Refused { term: 0 }),
        (1, UpdateReply::Taken),
    ] {
        assert_eq!(
            receiver.receive(said[0].clone(), term, Instant::default()),
            heard
        );
        assert_eq!(receiver.latest().is_some(), heard == UpdateReply::Taken);
    }
    let endless = MirrorUpdate {
        pieces: PIECES_MAX + 1,
        ..said[0].clone()
    };
    let heard = receiver.receive(endless, 1, Instant::default());
    assert_eq!(heard, UpdateReply::Refused { term: 1 });
}

/// Within one term too: it is another master, with another id.
#[test]
fn restarted_master_sends_the_whole_state() {
    let addresses = BTreeSet::from(["b".to_owned()]);
    let (mut followers, first) = (Followers::default(), Arc::new(state()));
    let order = followers.next(&addresses, &first).pop().unwrap();
    followers.answered(&order, first.clone(), None, Some(UpdateReply::Taken));
    let mut second = MasterState::clone(&first);
    second.elected = Timestamp::from_nanos(99);
    let order = followers.next(&addresses, &second).pop().unwrap();
    assert!(order.base.is_none() && order.sequence == 2);
}
