//! Calls over HTTP: their sender, and parts that native drivers do not send.

use resources::Invalid;
use testkit::assert_contains;
use v1::convert::scheduler::{DecodedAccept, InvalidTask, OperationsWithoutId, SchedulerCall};

use crate::master::tests::*;

impl World {
    /// Sends this call for the framework's scheduler, like the page.
    async fn http(&self, scheduler: &Member, framework: &FrameworkId, call: SchedulerCall) {
        let call = HttpCall {
            scheduler: scheduler.pid.clone(),
            framework_id: framework.clone(),
            call,
        };
        self.master.tell(call).unwrap();
        self.settle().await;
    }
}

fn invalid() -> Invalid {
    Invalid::new("container.type", "DOCKER", "MESOS")
}

/// A task with an unsupported part, on that agent.
fn invalid_task(id: &str, agent: &str, reason: Reason) -> InvalidTask {
    InvalidTask {
        task_id: TaskId::new(id).unwrap(),
        name: format!("the {id} one"),
        agent_id: AgentId::new(agent).ok(),
        reason,
        message: invalid().to_string(),
    }
}

/// SPEC 2.2 ACCEPT: an unsupported task is TASK_ERROR, and the others proceed.
// Covers 2.2 ACCEPT.
#[test]
fn unsupported_task_is_an_error_and_the_rest_proceeds() {
    simulate_pair(|world, (agent, a), (scheduler, f)| async move {
        let offer = world.offer(&scheduler, &f, &a, "cpus:8;mem:8192").await;
        scheduler.received();
        let accepted = DecodedAccept {
            offers: accept(&f, &[&offer], vec![task("good", &a, "cpus:1;mem:64")]),
            tasks: vec![
                invalid_task("bad", a.as_str(), Reason::TaskInvalid),
                invalid_task("pod", "elsewhere", Reason::TaskGroupInvalid),
            ],
            operations: vec![(OperationId::new("disk").unwrap(), invalid())],
            without_id: Some(OperationsWithoutId {
                count: 3,
                first: invalid(),
            }),
            invalid_offer: None,
        };
        world
            .http(&scheduler, &f, SchedulerCall::Accept(accepted))
            .await;
        let ran = agent.received().pop().unwrap();
        assert!(ran.starts_with("run good="), "{ran}");
        assert_eq!(
            scheduler.received(),
            [
                "bad TASK_ERROR REASON_TASK_INVALID",
                "pod TASK_ERROR REASON_TASK_GROUP_INVALID",
                "disk OPERATION_ERROR"
            ]
        );
        let status = scheduler.statuses().pop().unwrap();
        assert_eq!(status.agent_id.as_ref(), Some(&a));
        assert_contains!(status.message, "container.type is `DOCKER`");
        assert_eq!(status.uuid, None, "nobody acknowledges it");
        let state = world.state().await;
        assert_eq!(state.counters.get("master/operations/error"), 1);
        assert_eq!(state.counters.get("master/operations_nameless"), 3);
        // It is remembered like any refused task, and reconciled the same.
        let of = state.tasks.of_framework(&f).unwrap();
        let completed = of.completed();
        let completed: Vec<_> = completed
            .map(|task| (&*task.name, &task.agent_id))
            .collect();
        assert_eq!(completed, [("the bad one", &a), ("the pod one", &a)]);
        let asked = reconcile(&f, vec![(TaskId::new("bad").unwrap(), Some(a.clone()))]);
        world
            .http(&scheduler, &f, SchedulerCall::Reconcile(asked))
            .await;
        scheduler.receives("bad TASK_ERROR REASON_RECONCILIATION");
    });
}

/// SPEC 2.2 ACCEPT, 3.13: one bad offer rejects the whole call, regardless of other errors.
// Covers 2.2 ACCEPT.
#[test]
fn unsupported_parts_of_a_rejected_accept_are_rejected() {
    simulate_pair(|world, (_agent, a), (scheduler, f)| async move {
        let offer = world.offer(&scheduler, &f, &a, "cpus:8;mem:8192").await;
        scheduler.received();
        let mut gone = offer.clone();
        gone.id = protocol::OfferId::new(format!("{}0", offer.id)).unwrap();
        let tasks = vec![task("good", &a, "cpus:1;mem:64")];
        let accepted = DecodedAccept {
            offers: accept(&f, &[&offer, &gone], tasks),
            tasks: vec![
                invalid_task("bad", a.as_str(), Reason::TaskInvalid),
                invalid_task("nowhere", "", Reason::TaskInvalid),
            ],
            operations: Vec::new(),
            without_id: None,
            invalid_offer: None,
        };
        world
            .http(&scheduler, &f, SchedulerCall::Accept(accepted))
            .await;
        let heard = scheduler.received();
        let told = |task: &str| {
            let line = heard.iter().find_map(|line| line.strip_prefix(task));
            line.unwrap_or_else(|| panic!("{heard:?}")).to_owned()
        };
        assert_eq!(told("bad "), told("good "));
        assert!(told("bad ").ends_with("REASON_INVALID_OFFERS"), "{heard:?}");
        assert_eq!(told("nowhere "), told("good "));
        // Tasks that name an agent get it in their status.
        let agents = scheduler.statuses().into_iter();
        let agents: Vec<_> = agents.map(|status| status.agent_id).collect();
        assert_eq!(agents, [Some(a.clone()), Some(a), None]);
    });
}

/// SPEC 2.2 SHUTDOWN.
// Covers 2.2 SHUTDOWN.
#[test]
fn executor_is_ended_by_its_connected_agent() {
    simulate_pair(|world, (agent, a), (scheduler, f)| async move {
        let executor = || ExecutorId::new("e").unwrap();
        agent.received();
        let call = SchedulerCall::Shutdown(a.clone(), executor());
        world.http(&scheduler, &f, call).await;
        agent.receives("end e");
        let nowhere = AgentId::new("nowhere").unwrap();
        world
            .http(&scheduler, &f, SchedulerCall::Shutdown(nowhere, executor()))
            .await;
        agent.receives("");
        let state = world.state().await;
        assert_eq!(state.counters.get("master/dropped_messages"), 1);
    });
}

/// SPEC 3.13, scheduler failover.
// Covers 3.13 Scheduler failover.
#[test]
fn replaced_http_scheduler_is_ignored() {
    simulate_world(|world| async move {
        let (old, f) = world
            .framework("web", |info| info.failover_timeout = PATIENCE)
            .await;
        let mut info = FrameworkInfo::new("nobody", "web");
        info.id = Some(f.clone());
        let new = world.member("web-2", "scheduler", Role::Framework).await;
        subscribe(&new, info).await.unwrap();
        let tear_down = || {
            SchedulerCall::TearDown(TearDown {
                framework_id: f.clone(),
            })
        };
        world.http(&old, &f, tear_down()).await;
        let state = world.state().await;
        assert!(state.frameworks.get(&f).is_some());
        assert_eq!(state.counters.get("master/dropped_messages"), 1);
        let update = HttpUpdate {
            scheduler: old.pid.clone(),
            update: UpdateFramework {
                framework_id: f.clone(),
                framework: state.frameworks.get(&f).unwrap().info.clone(),
                wants: Default::default(),
            },
            on_updated: Box::new(|| panic!("it is not that")),
        };
        let late = world.master.ask(update, PATIENCE).await.unwrap();
        let expected = "this scheduler's framework, not yet removed";
        let words = format!("framework_id is `{f}`: expected {expected}");
        assert_eq!(late, Err(NotUpdated::Overtaken(words)));
        world.http(&new, &f, tear_down()).await;
        assert!(world.state().await.frameworks.get(&f).is_none());
        assert_eq!(
            new.received().pop().unwrap(),
            "failed Framework has been removed"
        );
    });
}
