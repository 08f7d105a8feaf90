//! Invariants of the task tables: held sums follow the tasks, and a terminal state is final.

use proptest::prelude::*;
use protocol::digest::{Digest, DigestKey, Fingerprinter};
use protocol::{CommandInfo, Source, TaskInfo, TaskState, TaskStatus};
use runtime::Timestamp;

use super::*;

fn id(n: u8) -> TaskId {
    TaskId::new(format!("t{n}")).unwrap()
}

fn framework(n: u8) -> FrameworkId {
    FrameworkId::new(format!("f{n}")).unwrap()
}

fn agent(n: u8) -> AgentId {
    AgentId::new(format!("a{n}")).unwrap()
}

fn text(bytes: usize) -> BTreeMap<String, String> {
    BTreeMap::from([("k".to_owned(), "x".repeat(bytes))])
}

fn executor() -> ExecutorInfo {
    ExecutorInfo {
        data: vec![0; 3 * FREE_BYTES],
        ..ExecutorInfo::new(
            ExecutorId::new("own").unwrap(),
            CommandInfo::shell("true"),
            "cpus:0.1".parse().unwrap(),
        )
    }
}

fn placed(f: u8, t: u8, a: u8, own: bool) -> Task {
    let info = TaskInfo {
        name: String::new(),
        command: (!own).then(|| CommandInfo::shell("true")),
        executor: own.then(executor),
        labels: text(usize::from(t % 3) * FREE_BYTES),
        ..TaskInfo::new(id(t), agent(a), "cpus:1;mem:32".parse().unwrap())
    };
    let resources = info.resources.clone();
    Task::placed(framework(f), &info, resources, TaskState::Staging)
}

fn status(t: u8, state: TaskState) -> TaskStatus {
    let mut status = TaskStatus::new(id(t), state, Source::Executor, Timestamp::from_nanos(1));
    status.uuid = Some(Uuid([t; 16]));
    status.labels = text(2 * FREE_BYTES);
    status
}

/// All changes of tasks, with small numbers so that they interact.
#[derive(Clone, Debug)]
enum Step {
    Insert(u8, u8, u8, bool),
    Update(u8, u8, TaskState),
    Acknowledge(u8, u8),
    EndExecutor(u8, u8),
    SetAside(u8),
    ComeBack(u8, u8),
    EndAll(u8),
    RemoveFramework(u8),
    Rekey(u8, u8),
}

fn step() -> impl Strategy<Value = Step> {
    let (f, t, a) = (0..2_u8, 0..6_u8, 0..3_u8);
    let state = prop::sample::select(TaskState::ALL);
    prop_oneof![
        4 => (f.clone(), t.clone(), a.clone(), any::<bool>()).prop_map(|(f, t, a, own)| Step::Insert(f, t, a, own)),
        4 => (f.clone(), t.clone(), state).prop_map(|(f, t, s)| Step::Update(f, t, s)),
        2 => (f.clone(), t.clone()).prop_map(|(f, t)| Step::Acknowledge(f, t)),
        1 => (f.clone(), a.clone()).prop_map(|(f, a)| Step::EndExecutor(f, a)),
        1 => a.clone().prop_map(Step::SetAside),
        1 => (f.clone(), t).prop_map(|(f, t)| Step::ComeBack(f, t)),
        1 => a.clone().prop_map(Step::EndAll),
        1 => (a, any::<u8>()).prop_map(|(a, key)| Step::Rekey(a, key)),
        1 => f.prop_map(Step::RemoveFramework),
    ]
}

fn take(tasks: &mut Tasks, step: Step) {
    match step {
        Step::Insert(f, t, a, own) => {
            if !tasks.is_taken(&framework(f), &id(t)) {
                tasks.insert(placed(f, t, a, own), own.then(executor).as_ref());
            }
        }
        Step::Update(f, t, state) => {
            tasks.update(&framework(f), &id(t), |task| {
                task.observe(&status(t, state), state);
                // Some are to be killed, and some not any more.
                task.kill = (state == TaskState::Killing).then_some(None);
            });
        }
        Step::Acknowledge(f, t) => tasks.acknowledge(&framework(f), &id(t), Uuid([t; 16])),
        Step::EndExecutor(f, a) => {
            tasks.remove_executor(&agent(a), &framework(f), &executor().executor_id);
        }
        Step::SetAside(a) => {
            tasks.set_aside(&agent(a), |task| task.state = TaskState::Unreachable);
        }
        Step::ComeBack(f, t) => {
            if let Some(task) = tasks.take_unreachable(&framework(f), &id(t)) {
                tasks.insert(task, None);
            }
        }
        Step::Rekey(a, key) => tasks.rekey(&agent(a), DigestKey::new([key; 16])),
        Step::EndAll(a) => {
            tasks.end_all(&agent(a), |task| task.state = TaskState::Gone);
        }
        Step::RemoveFramework(f) => {
            tasks.remove_framework(&framework(f), |task| task.state = TaskState::Killed);
        }
    }
}

/// Held resources, recomputed from the tasks and executors.
fn counted(tasks: &Tasks, a: &AgentId) -> BTreeMap<FrameworkId, Resources> {
    let mut held: BTreeMap<FrameworkId, Resources> = BTreeMap::new();
    for (framework, of) in tasks.frameworks() {
        for task in of.active().filter(|task| task.agent_id == *a) {
            if !task.state.is_terminal() {
                *held.entry(framework.clone()).or_default() += &task.resources;
            }
        }
    }
    for (framework, info) in tasks.on_agent(a).iter().flat_map(|on| on.executors()) {
        *held.entry(framework.clone()).or_default() += &info.resources;
    }
    held
}

/// Active bytes, recomputed from the tasks and executors.
fn counted_bytes(tasks: &Tasks, f: &FrameworkId) -> usize {
    let of = tasks.of_framework(f).into_iter();
    let active = of.flat_map(|of| of.active());
    let of_tasks: usize = active.map(|task| super::counted(task.text_bytes())).sum();
    let executors = tasks.agents().flat_map(|(_, on)| on.executors());
    let own = executors.filter(|(whose, _)| *whose == f);
    let of_executors: usize = own
        .map(|(_, info)| super::counted(executor_bytes(info)))
        .sum();
    of_tasks + of_executors
}

/// The digest, recomputed from the tasks and executors.
fn digested(tasks: &Tasks, a: &AgentId, on: &AgentTasks) -> Digest {
    let mut printer = Fingerprinter::new(on.key().unwrap_or(DigestKey::new([0; 16])));
    let mut prints = Vec::new();
    for (framework, of) in tasks.frameworks() {
        for task in of.active().filter(|task| task.agent_id == *a) {
            prints.push(printer.task(framework, &task.id, task.sketch()));
        }
    }
    for (framework, info) in on.executors() {
        prints.push(printer.executor(framework, info));
    }
    Digest::of(prints, on.digest().buckets().len())
}

proptest! {
    #[test]
    fn indexes_and_sums_agree_after_any_events(steps in prop::collection::vec(step(), 0..120)) {
        let mut tasks = Tasks::new(Limits { completed: 3, unreachable: 2 });
        for step in steps {
            take(&mut tasks, step);
            for a in (0..3).map(agent) {
                let on = tasks.on_agent(&a).cloned().unwrap_or_default();
                prop_assert!(on.held().iter().eq(&counted(&tasks, &a)));
                prop_assert_eq!(on.digest(), &digested(&tasks, &a, &on));
                for (framework, task) in on.tasks() {
                    prop_assert_eq!(&tasks.get(framework, task).unwrap().agent_id, &a);
                }
            }
            for f in (0..2).map(framework) {
                prop_assert_eq!(tasks.active_bytes(&f), counted_bytes(&tasks, &f));
            }
            let active = tasks.frameworks().flat_map(|(_, of)| of.active());
            prop_assert_eq!(tasks.kills(), active.filter(|task| task.kill.is_some()).count());
            for (framework, of) in tasks.frameworks() {
                let ended = of.active().filter(|task| task.state.is_terminal()).count();
                prop_assert_eq!(tasks.unacknowledged(framework), ended);
                let running = of.active().filter(|task| !task.state.is_terminal());
                prop_assert_eq!(of.used(), &crate::state::sum(running.map(|task| &task.resources)));
                prop_assert!(of.completed().count() <= 3 && of.unreachable().count() <= 2);
                for task in of.active() {
                    let on = tasks.on_agent(&task.agent_id).unwrap();
                    let key = (framework.clone(), task.id.clone());
                    prop_assert!(on.tasks().any(|other| *other == key));
                }
            }
        }
    }

    #[test]
    fn terminal_state_is_final(states in prop::collection::vec(prop::sample::select(TaskState::ALL), 1..20)) {
        let mut task = placed(0, 0, 0, false);
        let mut end = None;
        for state in states {
            task.observe(&status(0, state), state);
            let (told, last) = (task.told, task.last);
            if told.is_terminal() {
                prop_assert_eq!(*end.get_or_insert((told, last)), (told, last));
            }
        }
        prop_assert!(task.statuses.len() <= 13);
    }
}

#[test]
fn only_the_newest_completed_tasks_are_remembered() {
    let mut tasks = Tasks::new(Limits {
        completed: 2,
        unreachable: 2,
    });
    for t in 0..4 {
        tasks.insert(placed(0, t, 0, false), None);
        tasks.complete(&framework(0), &id(t));
    }
    let of = tasks.of_framework(&framework(0)).unwrap();
    let ids: Vec<_> = of.completed().map(|task| task.id.clone()).collect();
    assert_eq!(ids, [id(2), id(3)]);
    assert!(tasks.on_agent(&agent(0)).is_none());
}

/// A framework chooses how many bytes its tasks have, so not only their number is bounded.
#[test]
fn completed_tasks_are_bounded_in_bytes() {
    let mut tasks = Tasks::new(Limits {
        completed: 100,
        unreachable: 100,
    });
    for t in 0..40 {
        let mut large = placed(0, t, 0, false);
        large.labels = BTreeMap::from([("k".to_owned(), "x".repeat(1 << 20))]);
        tasks.insert(large, None);
        tasks.complete(&framework(0), &id(t));
    }
    let of = tasks.of_framework(&framework(0)).unwrap();
    assert_eq!(of.completed().count(), 15);
    assert!(of.remembered_bytes() <= recent::BYTES_MAX);
    let newest = of.completed().last().unwrap();
    assert_eq!(newest.id, id(39));
}

/// The same sum after a failover of the master, when agents confirm the mirror.
#[test]
fn confirmed_tasks_and_executors_count_as_active_bytes() {
    let limits = Limits {
        completed: 3,
        unreachable: 3,
    };
    let (mut before, mut after) = (Tasks::new(limits), Tasks::new(limits));
    before.insert(placed(0, 1, 0, true), Some(&executor()));
    let key = DigestKey::new([7; 16]);
    let mut printer = Fingerprinter::new(key);
    let of = before.of_framework(&framework(0)).unwrap();
    let task = of.active().next().unwrap().clone();
    let print = printer.task(&task.framework_id, &task.id, task.sketch());
    let info = Arc::new(executor());
    let executor_print = printer.executor(&framework(0), &info);
    let confirmed = Confirmed {
        tasks: vec![(task, print)],
        executors: vec![(framework(0), info, executor_print)],
    };
    after.take_over(&agent(0), key, confirmed);
    let bytes = before.active_bytes(&framework(0));
    assert!(bytes > 2 * FREE_BYTES, "{bytes}");
    assert_eq!(after.active_bytes(&framework(0)), bytes);
    after.end_all(&agent(0), |_| ());
    assert_eq!(after.active_bytes(&framework(0)), 0);
}

/// Executors choose the bytes of statuses after the launch.
#[test]
fn statuses_beyond_the_active_bytes_lose_their_texts() {
    let mut tasks = Tasks::new(Limits {
        completed: 3,
        unreachable: 3,
    });
    let mut large = placed(0, 0, 0, false);
    large.labels = text(ACTIVE_BYTES_MAX);
    tasks.insert(large, None);
    tasks.insert(placed(0, 1, 0, false), None);
    let before = tasks.active_bytes(&framework(0));
    tasks.update(&framework(0), &id(1), |task| {
        task.observe(&status(1, TaskState::Running), TaskState::Running);
    });
    let statuses = &tasks.get(&framework(0), &id(1)).unwrap().statuses;
    assert_eq!(statuses.len(), 1);
    assert!(statuses[0].labels.is_empty());
    assert_eq!(tasks.active_bytes(&framework(0)), before);
}

#[test]
fn long_texts_of_statuses_are_not_remembered() {
    let mut task = placed(0, 0, 0, false);
    let mut long = status(0, TaskState::Running);
    long.message = "\u{e9}".repeat(1 << 20);
    long.labels = BTreeMap::from([("k".to_owned(), "x".repeat(1 << 20))]);
    task.observe(&long, TaskState::Running);
    assert!(task.bytes() < 32 << 10, "{}", task.bytes());
}

/// A refused task may have any size; its status can be reconciled.
#[test]
fn a_refused_task_is_remembered_without_its_bytes() {
    let mut task = placed(0, 0, 0, false);
    task.labels = BTreeMap::from([("k".to_owned(), "x".repeat(8 << 20))]);
    task.shorten();
    assert!(task.bytes() < 32 << 10, "{}", task.bytes());
}
