//! The life of a container, told event by event.

use std::collections::BTreeSet;

use super::*;
use protocol::{AgentId, CommandInfo, ExecutorId, Source};
use runtime::{NodeId, Timestamp};

const GRACE: Duration = Duration::from_secs(5);

pub(super) fn task(id: &str) -> TaskInfo {
    TaskInfo {
        name: id.into(),
        task_id: TaskId::new(id).unwrap(),
        agent_id: AgentId::new("s").unwrap(),
        resources: Resources::parse("cpus:1;mem:32").unwrap(),
        command: Some(CommandInfo::shell("true")),
        executor: None,
        data: Vec::new(),
        kill_policy: None,
        labels: Default::default(),
    }
}

fn container() -> Container {
    let executor = ExecutorInfo {
        executor_id: ExecutorId::new("e").unwrap(),
        name: String::new(),
        command: CommandInfo::shell("executor"),
        resources: Resources::parse("cpus:0.1").unwrap(),
        data: Vec::new(),
        shutdown_grace_period: None,
        labels: Default::default(),
    };
    let id = ContainerId::new("c").unwrap();
    Container::new(
        id,
        FrameworkInfo::new("", "f"),
        executor,
        false,
        "secret".into(),
    )
}

pub(super) fn id(text: &str) -> TaskId {
    TaskId::new(text).unwrap()
}

pub(super) fn actor() -> Pid {
    Pid::new("executor", NodeId::new("executor-c", 1), 1)
}

fn running() -> Container {
    let mut container = container();
    container.add(task("a"));
    container.prepared(Ok(()));
    container.started(42);
    container.subscribe("secret", actor()).unwrap();
    container
}

pub(super) fn verdicts(effects: &[Effect]) -> Vec<(TaskId, TaskState, Reason)> {
    let verdict = |effect: &Effect| match effect {
        Effect::Report(verdict) => Some((verdict.task_id.clone(), verdict.state, verdict.reason)),
        _ => None,
    };
    effects.iter().filter_map(verdict).collect()
}

/// SPEC 3.2.
#[test]
fn draining_shortens_the_time_that_a_task_has_and_never_lengthens_it() {
    let within = |seconds| {
        let grace_period = Duration::from_secs(seconds);
        Some(KillPolicy { grace_period })
    };
    let mut container = running();
    let mut patient = task("b");
    patient.kill_policy = within(100);
    container.add(patient);
    let ends = |effects: Vec<Effect>| {
        let end = |effect| match effect {
            Effect::End(id, policy) => (id.to_string(), policy),
            other => panic!("{other:?}"),
        };
        effects.into_iter().map(end).collect::<Vec<_>>()
    };
    let told = |a, b| vec![("a".to_owned(), a), ("b".to_owned(), b)];
    assert_eq!(ends(container.drain(None)), told(None, within(100)));
    let max = Some(Duration::from_secs(10));
    assert_eq!(ends(container.drain(max)), told(within(3), within(10)));
    container.heard(&id("a"), TaskState::Killed);
    assert_eq!(ends(container.drain(max)).len(), 1);
}

/// SPEC 5.2.
#[test]
fn tasks_wait_for_the_executor_and_reach_it_in_their_order() {
    let mut container = container();
    assert_eq!(container.add(task("b")), []);
    assert_eq!(container.add(task("a")), []);
    assert_eq!(container.prepared(Ok(())), [Effect::Launch]);
    assert_eq!(container.started(42), [Effect::AwaitSubscription]);
    let effects = container.subscribe("secret", actor()).unwrap();
    assert_eq!(
        effects,
        [
            Effect::Run(Box::new(task("b"))),
            Effect::Run(Box::new(task("a")))
        ]
    );
    assert_eq!(container.add(task("c")), [Effect::Run(Box::new(task("c")))]);
    let another = Pid::new("executor", NodeId::new("executor-c", 2), 1);
    assert!(container.subscribe("secret", another).is_err(), "only once");
}

#[test]
fn a_stranger_does_not_subscribe() {
    let mut container = container();
    container.prepared(Ok(()));
    assert!(container.subscribe("guess", actor()).is_err());
    assert!(
        container.subscribe("secret", actor()).is_ok(),
        "before its start was told"
    );
    assert_eq!(container.started(42), []);
}

/// SPEC 5.2.
#[test]
fn a_task_killed_before_its_executor_has_it_never_starts() {
    let killed = (id("a"), TaskState::Killed, Reason::TaskKilledDuringLaunch);
    let mut early = container();
    early.add(task("a"));
    assert_eq!(
        verdicts(&early.kill(&id("a"), None)),
        std::slice::from_ref(&killed)
    );
    assert_eq!(
        early.prepared(Ok(())),
        [Effect::Ended(None)],
        "nothing is launched for nobody"
    );

    let mut later = container();
    later.add(task("a"));
    later.prepared(Ok(()));
    let effects = later.kill(&id("a"), None);
    assert_eq!(verdicts(&effects), [killed]);
    assert_eq!(effects.last(), Some(&Effect::Destroy));
    assert_eq!(
        later.started(42),
        [Effect::Destroy],
        "also when it starts only now"
    );
    assert_eq!(later.exited(None), [Effect::Ended(None)]);

    let mut shared = container();
    shared.add(task("a"));
    shared.add(task("b"));
    shared.prepared(Ok(()));
    assert_eq!(
        shared.kill(&id("a"), None).len(),
        1,
        "the other task still wants the executor"
    );
    shared.started(42);
    assert_eq!(
        shared.subscribe("secret", actor()).unwrap(),
        [Effect::Run(Box::new(task("b")))]
    );
}

/// SPEC 5.2: only one that was never given a task ends with the last that waits for it.
#[test]
fn an_idle_executor_lives_on_when_a_task_is_killed_that_only_waited_for_it() {
    let killed = |name| (id(name), TaskState::Killed, Reason::TaskKilledDuringLaunch);
    let mut away = streamed();
    away.heard(&id("a"), TaskState::Finished);
    away.disconnected(GRACE);
    away.add(task("b"));
    let effects = away.kill(&id("b"), None);
    assert_eq!((verdicts(&effects), effects.len()), (vec![killed("b")], 1));
    away.add(task("c"));
    let effects = away.drain(None);
    assert_eq!((verdicts(&effects), effects.len()), (vec![killed("c")], 1));
    assert!(away.takes_tasks());

    let mut kept = container().keeping();
    kept.add(task("a"));
    kept.prepared(Ok(()));
    kept.started(42);
    kept.recorded(&id("a"));
    kept.subscribe("secret", actor()).unwrap();
    kept.heard(&id("a"), TaskState::Finished);
    kept.add(task("b"));
    assert_eq!(kept.kill(&id("b"), None).len(), 1, "not yet on the disk");
    kept.add(task("c"));
    kept.shut_down(GRACE);
    assert_eq!(kept.kill(&id("c"), None).len(), 1, "it has its time");

    let mut never = container().keeping();
    never.add(task("a"));
    never.prepared(Ok(()));
    never.started(42);
    never.subscribe("secret", actor()).unwrap();
    let effects = never.kill(&id("a"), None);
    assert_eq!(verdicts(&effects), [killed("a")]);
    assert_eq!(effects.last(), Some(&Effect::Destroy));
}

#[test]
fn a_running_task_is_killed_by_its_executor_with_the_tasks_policy_unless_another_is_given() {
    let own = KillPolicy {
        grace_period: Duration::from_secs(9),
    };
    let mut container = running();
    container.add(TaskInfo {
        kill_policy: Some(own),
        ..task("b")
    });
    let given = KillPolicy {
        grace_period: Duration::from_secs(1),
    };
    assert_eq!(
        container.kill(&id("b"), None),
        [Effect::End(id("b"), Some(own))]
    );
    assert_eq!(
        container.kill(&id("b"), Some(given)),
        [Effect::End(id("b"), Some(given))]
    );
    assert_eq!(container.kill(&id("zz"), None), []);
}

#[test]
fn what_lives_when_its_executor_ends_has_failed() {
    let mut container = running();
    container.add(task("b"));
    container.heard(&id("b"), TaskState::Finished);
    let effects = container.exited(Some(Termination::Signaled(9)));
    assert_eq!(
        verdicts(&effects),
        [(id("a"), TaskState::Failed, Reason::ExecutorTerminated)]
    );
    assert_eq!(
        effects.last(),
        Some(&Effect::Ended(Some(Termination::Signaled(9))))
    );
    assert_eq!(container.exited(None), [], "once");
    assert_eq!(container.heard(&id("a"), TaskState::Running), Heard::Late);
    assert!(!container.closed(&id("a")));
    assert!(container.closed(&id("b")), "all is acknowledged");
}

#[test]
fn a_failed_launch_and_a_silent_executor_have_their_own_reasons() {
    let mut no_space = container();
    no_space.add(task("a"));
    let effects = no_space.prepared(Err("No space left on device".into()));
    assert_eq!(
        verdicts(&effects),
        [(id("a"), TaskState::Failed, Reason::ContainerLaunchFailed)]
    );

    let mut silent = container();
    silent.add(task("a"));
    silent.prepared(Ok(()));
    silent.started(42);
    assert_eq!(silent.subscription_overdue(GRACE), [Effect::Destroy]);
    let effects = silent.exited(Some(Termination::Signaled(9)));
    assert_eq!(
        verdicts(&effects),
        [(
            id("a"),
            TaskState::Failed,
            Reason::ExecutorRegistrationTimeout
        )]
    );
    assert_eq!(running().subscription_overdue(GRACE), []);
}

/// S27, SPEC 5.7.
#[test]
fn a_preempted_task_is_gone_for_those_who_know_the_word_and_lost_for_others() {
    for (capable, state) in [(true, TaskState::Gone), (false, TaskState::Lost)] {
        let mut container = running();
        if capable {
            container
                .framework
                .capabilities
                .insert(Capability::PartitionAware);
        }
        assert_eq!(container.preempt(), [Effect::Destroy]);
        let effects = container.exited(Some(Termination::Signaled(9)));
        assert_eq!(
            verdicts(&effects),
            [(id("a"), state, Reason::ContainerPreempted)]
        );
    }
}

#[test]
fn who_ended_while_the_agent_was_away_was_not_preempted() {
    let mut container = running();
    (container.phase, container.leader) = (Phase::Recovering, None);
    assert_eq!(container.preempt(), []);
    let effects = container.exited(Some(Termination::Signaled(9)));
    let end = (id("a"), TaskState::Failed, Reason::ExecutorTerminated);
    assert_eq!(verdicts(&effects), [end]);
}

#[test]
fn an_executor_that_leaves_with_live_tasks_is_killed_and_one_without_gets_time() {
    let grace = GRACE;
    assert_eq!(running().disconnected(grace), [Effect::Destroy]);
    let mut done = running();
    done.heard(&id("a"), TaskState::Finished);
    assert_eq!(done.disconnected(grace), [Effect::DestroyAfter(grace)]);
    assert!(!done.takes_tasks());
}

fn streamed() -> Container {
    let mut container = container();
    container.add(task("a"));
    container.prepared(Ok(()));
    container.started(42);
    let effects = container.subscribe_stream(actor(), &BTreeSet::new());
    assert_eq!(effects, Ok(vec![Effect::Run(Box::new(task("a")))]));
    container
}

fn knowing(ids: &[&str]) -> BTreeSet<TaskId> {
    ids.iter().map(|text| id(text)).collect()
}

/// SPEC 2.5, 5.4.
#[test]
fn who_subscribes_over_another_stream_is_told_what_the_broken_one_may_have_lost() {
    let mut container = streamed();
    container.add(task("b"));
    container.heard(&id("a"), TaskState::Running);
    container.kill(&id("a"), None);
    assert_eq!(container.disconnected(GRACE), [Effect::AwaitReturn]);
    assert!(container.takes_tasks());
    assert_eq!(container.add(task("c")), [], "it waits");
    let told_again = [
        Effect::Run(Box::new(task("b"))),
        Effect::Run(Box::new(task("c"))),
        Effect::End(id("a"), None),
    ];
    let effects = container.subscribe_stream(actor(), &knowing(&["a"]));
    assert_eq!(effects.unwrap(), told_again);
    let effects = container.subscribe_stream(actor(), &knowing(&["a", "b", "c"]));
    assert_eq!(effects.unwrap(), told_again[2..], "the newest stream wins");
    container.heard(&id("a"), TaskState::Killed);
    let effects = container.subscribe_stream(actor(), &knowing(&["b", "c"]));
    assert_eq!(effects, Ok(Vec::new()));
}

/// SPEC 2.7, 3.12: statuses for people, a few of each task, and nothing that only frameworks read.
#[test]
fn of_what_is_told_of_a_task_the_newest_few_are_remembered_without_their_data() {
    let mut container = running();
    let note = |container: &mut Container, number: u64| {
        let state = [TaskState::Running, TaskState::Starting][number as usize % 2];
        let at = Timestamp::from_nanos(number);
        let mut status = TaskStatus::new(id("a"), state, Source::Executor, at);
        status.data = vec![1; 1 << 10];
        status.message = number.to_string();
        container.note(&mut status);
        assert_eq!(status.data.len(), 1 << 10);
    };
    let said = |container: &Container| -> Vec<String> {
        let told = container.task(&id("a")).unwrap().told.iter();
        told.inspect(|status| assert!(status.data.is_empty()))
            .map(|status| status.message.clone())
            .collect()
    };
    for number in [1, 3, 4] {
        note(&mut container, number);
    }
    assert_eq!(said(&container), ["3", "4"], "of one state the newest");
    (5..100).for_each(|number| note(&mut container, number));
    let newest: Vec<String> = (90..100).map(|number| number.to_string()).collect();
    assert_eq!(said(&container), newest);
}

/// SPEC 2.5: an executor says again what was not acknowledged.
#[test]
fn a_status_that_is_given_twice_is_known_again() {
    let mut container = streamed();
    let uuid = |number| Uuid([number; 16]);
    assert!(!container.repeats(&id("a"), uuid(1)));
    assert!(!container.repeats(&id("a"), uuid(2)));
    assert!(container.repeats(&id("a"), uuid(1)));
    assert!(!container.repeats(&id("zz"), uuid(1)), "of no task here");
}

/// SPEC 5.3.
#[test]
fn an_executor_that_does_not_come_back_is_killed_and_one_that_comes_and_goes_gets_its_time() {
    let mut gone = streamed();
    gone.disconnected(GRACE);
    assert_eq!(gone.return_overdue(GRACE), [Effect::Destroy]);
    assert_eq!(
        verdicts(&gone.exited(Some(Termination::Signaled(9)))),
        [(
            id("a"),
            TaskState::Lost,
            Reason::ExecutorReregistrationTimeout
        )]
    );

    let mut back = streamed();
    back.disconnected(GRACE);
    back.subscribe_stream(actor(), &knowing(&["a"])).unwrap();
    assert_eq!(back.disconnected(GRACE), [], "one deadline is set already");
    assert_eq!(back.return_overdue(GRACE), [Effect::AwaitReturn]);
    back.subscribe_stream(actor(), &knowing(&["a"])).unwrap();
    assert_eq!(back.return_overdue(GRACE), []);
    assert_eq!(back.phase, Phase::Running);
}

#[test]
fn an_executor_that_is_away_has_its_grace_period_to_come_back_and_hear_that_it_should_stop() {
    let mut container = streamed();
    container.disconnected(GRACE);
    assert_eq!(container.shut_down(GRACE), [Effect::DestroyAfter(GRACE)]);
    assert_eq!(
        container.return_overdue(GRACE),
        [],
        "its time is not cut short"
    );
    assert_eq!(container.shut_down(GRACE), [], "nor begun anew");
    assert!(
        container
            .subscribe_stream(actor(), &knowing(&["a"]))
            .is_err(),
        "its container is being ended"
    );
    assert_eq!(container.destroy(), [Effect::Destroy], "when it is over");
}

/// SPEC 2.5: it has its grace period whoever says it again, a master that is asked about one of its statuses above all.
#[test]
fn an_executor_that_is_told_twice_to_stop_keeps_its_grace_period() {
    let mut told = running();
    assert_eq!(told.shut_down(GRACE), [Effect::ShutDown(GRACE)]);
    assert_eq!(told.shut_down(GRACE), []);
    assert_eq!(told.phase, Phase::Terminating);
    assert_eq!(told.destroy(), [Effect::Destroy], "when it is over");
    assert_eq!(told.shut_down(GRACE), []);
    let mut early = container();
    early.prepared(Ok(()));
    assert_eq!(early.shut_down(GRACE), [Effect::Destroy], "it cannot hear");
}

#[test]
fn who_is_subscribed_over_its_socket_does_not_subscribe_over_http_nor_the_other_way() {
    assert!(
        running()
            .subscribe_stream(actor(), &BTreeSet::new())
            .is_err()
    );
    assert!(streamed().subscribe("secret", actor()).is_err());
    let container = container();
    assert!(container.is_proved_by("secret"));
    for guess in ["", "secre", "secret2", "Secret"] {
        assert!(!container.is_proved_by(guess), "{guess}");
    }
}

/// The words are Mesos', since clients compare them.
#[test]
fn statuses_have_mesos_states_reasons_and_messages() {
    let fresh = || {
        let mut container = container();
        container.add(task("a"));
        container
    };
    let registering = || {
        let mut container = fresh();
        container.prepared(Ok(()));
        container.started(42);
        container
    };
    let ended = |mut container: Container| container.exited(Some(Termination::Exited(3)));
    let mut overdue = registering();
    overdue.subscription_overdue(GRACE);
    let mut preempted = registering();
    preempted.preempt();
    let mut away = streamed();
    away.disconnected(GRACE);
    away.return_overdue(GRACE);
    let (failed, lost) = (TaskState::Failed, TaskState::Lost);
    for (effects, state, reason, message) in [
        (
            fresh().prepared(Err("no room".to_owned())),
            failed,
            Reason::ContainerLaunchFailed,
            "Failed to launch container: no room",
        ),
        (
            registering().kill(&id("a"), None),
            TaskState::Killed,
            Reason::TaskKilledDuringLaunch,
            "Killed before delivery to the executor",
        ),
        (
            ended(registering()),
            failed,
            Reason::ExecutorTerminated,
            "Executor terminated; exited with status 3",
        ),
        (
            registering().exited(None),
            failed,
            Reason::ExecutorTerminated,
            "Executor terminated",
        ),
        (
            ended(overdue),
            failed,
            Reason::ExecutorRegistrationTimeout,
            "Executor did not register within 5secs",
        ),
        (
            ended(preempted),
            lost,
            Reason::ContainerPreempted,
            "Container preempted by QoS correction",
        ),
        (
            ended(away),
            lost,
            Reason::ExecutorReregistrationTimeout,
            "Executor did not reregister within 5secs",
        ),
    ] {
        let Some(Effect::Report(verdict)) = effects.first() else {
            panic!("{message}: {effects:?}")
        };
        assert_eq!(
            (verdict.state, verdict.reason),
            (state, reason),
            "{message}"
        );
        assert_eq!(verdict.message, message);
    }
}
