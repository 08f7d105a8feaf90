//! Tests of the container state machine.

use std::collections::BTreeSet;

use super::*;
use protocol::{AgentId, CommandInfo, ExecutorId, Source};
use runtime::{NodeId, Timestamp};

const GRACE: Duration = Duration::from_secs(5);

pub(super) fn task(id: &str) -> TaskInfo {
    let resources = Resources::parse("cpus:1;mem:32").unwrap();
    let (id, agent_id) = (TaskId::new(id).unwrap(), AgentId::new("s").unwrap());
    TaskInfo::new(id, agent_id, resources).with_command(CommandInfo::shell("true"))
}

pub(super) fn container() -> Container {
    let executor = ExecutorInfo {
        executor_id: ExecutorId::new("e").unwrap(),
        kind: protocol::ExecutorKind::Custom,
        name: String::new(),
        command: CommandInfo::shell("executor"),
        resources: Resources::parse("cpus:0.1").unwrap(),
        data: Vec::new(),
        shutdown_grace_period: None,
        labels: Default::default(),
        container: None,
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

pub(super) fn terminals(effects: &[Effect]) -> Vec<(TaskId, TaskState, Reason)> {
    let terminal = |effect: &Effect| match effect {
        Effect::Report(report) => Some((report.task_id.clone(), report.state, report.reason?)),
        _ => None,
    };
    effects.iter().filter_map(terminal).collect()
}

/// SPEC 3.2.
#[test]
fn draining_only_shortens_grace_periods() {
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
    let expected = |a, b| vec![("a".to_owned(), a), ("b".to_owned(), b)];
    assert_eq!(ends(container.drain(None)), expected(None, within(100)));
    let max = Some(Duration::from_secs(10));
    assert_eq!(ends(container.drain(max)), expected(within(3), within(10)));
    container.on_update(&id("a"), TaskState::Killed);
    assert_eq!(ends(container.drain(max)).len(), 1);
}

/// SPEC 5.2.
#[test]
fn tasks_are_queued_and_delivered_in_order() {
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
fn wrong_token_does_not_subscribe() {
    let mut container = container();
    container.prepared(Ok(()));
    assert!(container.subscribe("guess", actor()).is_err());
    assert!(
        container.subscribe("secret", actor()).is_ok(),
        "before its start was reported"
    );
    assert_eq!(container.started(42), []);
}

/// SPEC 5.2.
// Covers 2.2 KILL; 3.13 Kill.
#[test]
fn task_killed_before_delivery_never_starts() {
    let killed = (id("a"), TaskState::Killed, Reason::TaskKilledDuringLaunch);
    let mut early = container();
    early.add(task("a"));
    assert_eq!(
        terminals(&early.kill(&id("a"), None)),
        std::slice::from_ref(&killed)
    );
    assert_eq!(
        early.prepared(Ok(())),
        [Effect::Ended(None)],
        "nothing is launched without a task"
    );

    let mut later = container();
    later.add(task("a"));
    later.prepared(Ok(()));
    let effects = later.kill(&id("a"), None);
    assert_eq!(terminals(&effects), [killed]);
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

/// SPEC 5.2: an executor that was never sent a task ends with its last queued task.
#[test]
fn idle_executor_survives_kill_of_a_queued_task() {
    let killed = |name| (id(name), TaskState::Killed, Reason::TaskKilledDuringLaunch);
    let mut disconnected = http_container();
    disconnected.on_update(&id("a"), TaskState::Finished);
    disconnected.disconnected(GRACE);
    disconnected.add(task("b"));
    let effects = disconnected.kill(&id("b"), None);
    assert_eq!((terminals(&effects), effects.len()), (vec![killed("b")], 1));
    disconnected.add(task("c"));
    let effects = disconnected.drain(None);
    assert_eq!((terminals(&effects), effects.len()), (vec![killed("c")], 1));
    assert!(disconnected.takes_tasks());

    let mut checkpointed = container().with_checkpoint();
    checkpointed.add(task("a"));
    checkpointed.prepared(Ok(()));
    checkpointed.started(42);
    checkpointed.release(&id("a"));
    checkpointed.subscribe("secret", actor()).unwrap();
    checkpointed.on_update(&id("a"), TaskState::Finished);
    checkpointed.add(task("b"));
    assert_eq!(
        checkpointed.kill(&id("b"), None).len(),
        1,
        "not yet on the disk"
    );
    checkpointed.add(task("c"));
    checkpointed.shut_down(GRACE);
    assert_eq!(
        checkpointed.kill(&id("c"), None).len(),
        1,
        "it has its time"
    );

    let mut never = container().with_checkpoint();
    never.add(task("a"));
    never.prepared(Ok(()));
    never.started(42);
    never.subscribe("secret", actor()).unwrap();
    let effects = never.kill(&id("a"), None);
    assert_eq!(terminals(&effects), [killed("a")]);
    assert_eq!(effects.last(), Some(&Effect::Destroy));
}

// Covers 2.2 KILL.
#[test]
fn kill_policy_of_the_call_overrides_the_tasks() {
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
fn live_tasks_fail_with_their_executor() {
    let mut container = running();
    container.add(task("b"));
    container.on_update(&id("b"), TaskState::Finished);
    let effects = container.exited(Some(Termination::Signaled(9)));
    assert_eq!(
        terminals(&effects),
        [(id("a"), TaskState::Failed, Reason::ExecutorTerminated)]
    );
    assert_eq!(
        effects.last(),
        Some(&Effect::Ended(Some(Termination::Signaled(9))))
    );
    assert_eq!(container.exited(None), [], "once");
    assert_eq!(
        container.on_update(&id("a"), TaskState::Running),
        UpdateOutcome::Late
    );
    assert!(!container.closed(&id("a")));
    assert!(container.closed(&id("b")), "all is acknowledged");
}

#[test]
fn launch_failure_and_registration_timeout_have_distinct_reasons() {
    let mut no_space = container();
    no_space.add(task("a"));
    let effects = no_space.prepared(Err("No space left on device".into()));
    assert_eq!(
        terminals(&effects),
        [(id("a"), TaskState::Failed, Reason::ContainerLaunchFailed)]
    );

    let mut silent = container();
    silent.add(task("a"));
    silent.prepared(Ok(()));
    silent.started(42);
    assert_eq!(silent.subscription_overdue(GRACE), [Effect::Destroy]);
    let effects = silent.exited(Some(Termination::Signaled(9)));
    assert_eq!(
        terminals(&effects),
        [(
            id("a"),
            TaskState::Failed,
            Reason::ExecutorRegistrationTimeout
        )]
    );
    assert_eq!(running().subscription_overdue(GRACE), []);
}

/// S27, SPEC 5.7.
// Covers 3.13 Oversubscribe in part: not with these amounts in one run.
#[test]
fn preempted_task_is_gone_if_partition_aware_else_lost() {
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
            terminals(&effects),
            [(id("a"), state, Reason::ContainerPreempted)]
        );
    }
}

#[test]
fn executor_that_ended_before_recovery_is_not_preempted() {
    let mut container = running();
    (container.phase, container.leader) = (Phase::Recovering, None);
    assert_eq!(container.preempt(), []);
    let effects = container.exited(Some(Termination::Signaled(9)));
    let end = (id("a"), TaskState::Failed, Reason::ExecutorTerminated);
    assert_eq!(terminals(&effects), [end]);
}

// Covers 2.2 SHUTDOWN.
#[test]
fn leaving_executor_with_live_tasks_is_killed() {
    let grace = GRACE;
    assert_eq!(running().disconnected(grace), [Effect::Destroy]);
    let mut done = running();
    done.on_update(&id("a"), TaskState::Finished);
    assert_eq!(done.disconnected(grace), [Effect::DestroyAfter(grace)]);
    assert!(!done.takes_tasks());
}

fn http_container() -> Container {
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
// Covers 2.5 SUBSCRIBE.
#[test]
fn new_stream_repeats_what_the_broken_one_may_have_lost() {
    let mut container = http_container();
    container.add(task("b"));
    container.on_update(&id("a"), TaskState::Running);
    container.kill(&id("a"), None);
    assert_eq!(container.disconnected(GRACE), [Effect::AwaitReturn]);
    assert!(container.takes_tasks());
    assert_eq!(container.add(task("c")), [], "it waits");
    let repeated = [
        Effect::Run(Box::new(task("b"))),
        Effect::Run(Box::new(task("c"))),
        Effect::End(id("a"), None),
    ];
    let effects = container.subscribe_stream(actor(), &knowing(&["a"]));
    assert_eq!(effects.unwrap(), repeated);
    let effects = container.subscribe_stream(actor(), &knowing(&["a", "b", "c"]));
    assert_eq!(effects.unwrap(), repeated[2..], "the newest stream wins");
    container.on_update(&id("a"), TaskState::Killed);
    let effects = container.subscribe_stream(actor(), &knowing(&["b", "c"]));
    assert_eq!(effects, Ok(Vec::new()));
}

/// SPEC 2.7, 3.12: statuses are for pages, a few per task, without the data.
// Covers 3.12 `/state` of agents.
#[test]
fn newest_statuses_are_kept_without_data() {
    let mut container = running();
    let record_status = |container: &mut Container, number: u64| {
        let state = [TaskState::Running, TaskState::Starting][number as usize % 2];
        let at = Timestamp::from_nanos(number);
        let mut status = TaskStatus::new(id("a"), state, Source::Executor, at);
        status.data = vec![1; 1 << 10];
        status.message = number.to_string();
        container.record_status(&mut status);
        assert_eq!(status.data.len(), 1 << 10);
    };
    let texts = |container: &Container| -> Vec<String> {
        let statuses = container.task(&id("a")).unwrap().statuses.iter();
        statuses
            .inspect(|status| assert!(status.data.is_empty()))
            .map(|status| status.message.clone())
            .collect()
    };
    for number in [1, 3, 4] {
        record_status(&mut container, number);
    }
    assert_eq!(texts(&container), ["3", "4"], "of one state the newest");
    (5..100).for_each(|number| record_status(&mut container, number));
    let newest: Vec<String> = (90..100).map(|number| number.to_string()).collect();
    assert_eq!(texts(&container), newest);
}

/// SPEC 2.5: executors repeat unacknowledged updates.
// Covers 2.5 UPDATE, MESSAGE, HEARTBEAT.
#[test]
fn repeated_status_is_recognized() {
    let mut container = http_container();
    let uuid = |number| Uuid([number; 16]);
    assert!(!container.repeats(&id("a"), uuid(1)));
    assert!(!container.repeats(&id("a"), uuid(2)));
    assert!(container.repeats(&id("a"), uuid(1)));
    assert!(!container.repeats(&id("zz"), uuid(1)), "of no task here");
}

/// SPEC 5.3.
#[test]
fn disconnected_executor_is_killed_unless_it_returns() {
    let mut gone = http_container();
    gone.disconnected(GRACE);
    assert_eq!(gone.return_overdue(GRACE), [Effect::Destroy]);
    assert_eq!(
        terminals(&gone.exited(Some(Termination::Signaled(9)))),
        [(
            id("a"),
            TaskState::Lost,
            Reason::ExecutorReregistrationTimeout
        )]
    );

    let mut back = http_container();
    back.disconnected(GRACE);
    back.subscribe_stream(actor(), &knowing(&["a"])).unwrap();
    assert_eq!(back.disconnected(GRACE), [], "one deadline is set already");
    assert_eq!(back.return_overdue(GRACE), [Effect::AwaitReturn]);
    back.subscribe_stream(actor(), &knowing(&["a"])).unwrap();
    assert_eq!(back.return_overdue(GRACE), []);
    assert_eq!(back.phase, Phase::Running);
}

// Covers 2.5 What an executor must do.
#[test]
fn disconnected_executor_keeps_its_shutdown_grace_period() {
    let mut container = http_container();
    container.disconnected(GRACE);
    assert_eq!(container.shut_down(GRACE), [Effect::DestroyAfter(GRACE)]);
    assert_eq!(
        container.return_overdue(GRACE),
        [],
        "its time is not cut short"
    );
    assert_eq!(container.shut_down(GRACE), [], "nor restarted");
    assert!(
        container
            .subscribe_stream(actor(), &knowing(&["a"]))
            .is_err(),
        "its container is being ended"
    );
    assert_eq!(container.destroy(), [Effect::Destroy], "when it is over");
}

/// SPEC 2.5: any repeated order, for example by a master that is asked about its statuses, keeps
/// the grace period.
// Covers 2.5 What an executor must do.
#[test]
fn second_shutdown_does_not_change_the_grace_period() {
    let mut stopping = running();
    assert_eq!(stopping.shut_down(GRACE), [Effect::ShutDown(GRACE)]);
    assert_eq!(stopping.shut_down(GRACE), []);
    assert_eq!(stopping.phase, Phase::Terminating);
    assert_eq!(stopping.destroy(), [Effect::Destroy], "when it is over");
    assert_eq!(stopping.shut_down(GRACE), []);
    let mut early = container();
    early.prepared(Ok(()));
    assert_eq!(
        early.shut_down(GRACE),
        [Effect::Destroy],
        "it is not connected"
    );
}

#[test]
fn subscribed_executor_cannot_change_its_transport() {
    assert!(
        running()
            .subscribe_stream(actor(), &BTreeSet::new())
            .is_err()
    );
    assert!(http_container().subscribe("secret", actor()).is_err());
    let container = container();
    assert!(container.token_matches("secret"));
    for guess in ["", "secre", "secret2", "Secret"] {
        assert!(!container.token_matches(guess), "{guess}");
    }
}

/// Clients compare these texts with those of Mesos.
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
    let mut disconnected = http_container();
    disconnected.disconnected(GRACE);
    disconnected.return_overdue(GRACE);
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
            "Executor terminated",
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
            ended(disconnected),
            lost,
            Reason::ExecutorReregistrationTimeout,
            "Executor did not reregister within 5secs",
        ),
    ] {
        let Some(Effect::Report(terminal)) = effects.first() else {
            panic!("{message}: {effects:?}")
        };
        assert_eq!(
            (terminal.state, terminal.reason),
            (state, Some(reason)),
            "{message}"
        );
        assert_eq!(terminal.message, message);
    }
}

// Covers 5.12 Isolation: the executor's share; S125 in part: the limits of a container.
#[test]
fn limits_of_a_container_add_up() {
    let with = |id: &str, cpus: Option<Limit>| TaskInfo {
        limits: TaskLimits { cpus, mem: None },
        resources: Resources::parse("cpus:0.5;mem:32").unwrap(),
        ..task(id)
    };
    let amount = |amount| Some(Limit::Amount(amount));
    let limit = |infos: &[TaskInfo]| {
        let mut container = container();
        for info in infos {
            container.add(info.clone());
        }
        container.resources().cpus_limit
    };
    let executor = container().executor.resources.cpus().as_f64();
    assert_eq!(limit(&[with("a", None)]), None);
    assert_eq!(limit(&[with("a", amount(2.0))]), amount(2.0 + executor));
    let both = [with("a", amount(2.0)), with("b", None)];
    assert_eq!(limit(&both), amount(2.5 + executor));
    let both = [with("a", amount(2.0)), with("b", Some(Limit::Infinite))];
    assert_eq!(limit(&both), Some(Limit::Infinite));
}
