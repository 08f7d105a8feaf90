//! Checkpointed containers: tasks wait until they are on disk, and the next agent process continues
//! with them.
//!
//! Pure. The executor of a recovered container gets a short deadline to subscribe again. Then lost
//! messages are repeated in both directions, as after a broken stream. A command goes on at once,
//! and the launcher repeats its end until it is stored. That an executor is ending is not on disk,
//! as in Mesos: if its agent restarts within its grace period, it goes on. A command's grace period
//! goes on in the launcher.

use std::collections::BTreeSet;
use std::time::Duration;

use protocol::text::duration;
use protocol::{Capability, Reason, TaskId, TaskInfo, TaskState};

use super::{Container, Effect, Phase, Task};
use crate::ledger::plan::EndCause;
use crate::ledger::record::{ContainerRecord, StateRecord, StoredContainer};

impl Container {
    /// Makes it checkpointed: no task is started before [`release`](Self::release).
    pub fn with_checkpoint(mut self) -> Self {
        self.checkpointed = true;
        self
    }

    /// Whether it is checkpointed.
    pub fn is_checkpointed(&self) -> bool {
        self.checkpointed
    }

    /// Restores a container from its checkpoint. Its executor should subscribe again.
    pub fn recovered(
        id: protocol::ContainerId,
        found: StoredContainer,
        leader: Option<i32>,
    ) -> Self {
        let ContainerRecord {
            framework,
            executor,
            is_command,
            token,
        } = found.record;
        let mut container = Self::new(id, framework, executor, is_command, token).with_checkpoint();
        (container.phase, container.leader) = (Phase::Recovering, leader);
        container.has_run_tasks = true; // Its first task may have been sent.
        let tasks = found.tasks.into_iter().map(|(info, state)| {
            let settings = info.container.as_ref();
            let task = Task {
                lacks_secrets: settings.is_some_and(|settings| settings.has_secrets()),
                state: state.state,
                received: state.given.into(),
                is_throttled: state.is_throttled,
                ..Task::new(info)
            };
            (task.info.task_id.clone(), Box::new(task))
        });
        container.tasks = tasks.collect();
        container.forget_throttle();
        container
    }

    /// Sets the time since its start.
    pub fn with_age(mut self, age: Duration) -> Self {
        self.command.age = age;
        self
    }

    /// Continues after the restart of the agent. An executor must subscribe again; a command that
    /// lives need not, nor a container of task groups.
    pub fn resume(&mut self) -> Vec<Effect> {
        match self.leader.is_some() {
            true if self.is_command => self.command_started(),
            true if self.is_group() => self.group_started(),
            _ => Vec::new(),
        }
    }

    /// The checkpoint of the container.
    pub fn record(&self) -> ContainerRecord {
        ContainerRecord {
            framework: self.framework.clone(),
            executor: self.executor.clone(),
            is_command: self.is_command,
            token: self.token.clone(),
        }
    }

    /// The checkpoint of a task's state; `None` if the container is not checkpointed.
    pub fn state_record(&self, task_id: &TaskId) -> Option<StateRecord> {
        let task = self.tasks.get(task_id).filter(|_| self.checkpointed)?;
        Some(StateRecord {
            state: task.state,
            given: task.received.iter().copied().collect(),
            is_throttled: task.is_throttled,
        })
    }

    /// Whether the end of one of its tasks is unacknowledged.
    pub fn has_unacknowledged_end(&self) -> bool {
        let mut tasks = self.tasks.values();
        tasks.any(|task| task.state.is_terminal() && !task.disowned)
    }

    /// Nothing holds the task back any more: send it to the executor.
    pub fn release(&mut self, task_id: &TaskId) -> Vec<Effect> {
        if !self.held_back.remove(task_id) || !self.is_connected() {
            return Vec::new();
        }
        let Some(at) = self.queue.iter().position(|queued| queued == task_id) else {
            return Vec::new();
        };
        self.queue.remove(at);
        self.has_run_tasks = true;
        let task = self.tasks.get(task_id);
        let run = task.map(|task| Effect::Run(Box::new(task.info.clone())));
        run.into_iter().collect()
    }

    /// The task cannot be checkpointed, or its limits cannot be set: it fails.
    pub fn refuse(&mut self, task_id: &TaskId, problem: String) -> Vec<Effect> {
        let Some(at) = self.queue.iter().position(|queued| queued == task_id) else {
            return Vec::new();
        };
        self.queue.remove(at);
        self.held_back.remove(task_id);
        let reason = Reason::ContainerUpdateFailed;
        let terminal = self.report_end(task_id, TaskState::Failed, reason, problem);
        terminal.into_iter().collect()
    }

    /// Messages for an executor that has just subscribed and has the tasks in `known`: missing
    /// tasks, and kills.
    pub(super) fn resend_lost(&mut self, known: &BTreeSet<TaskId>) -> Vec<Effect> {
        let held_back = &self.held_back;
        let (held, queued): (Vec<TaskId>, Vec<TaskId>) = std::mem::take(&mut self.queue)
            .into_iter()
            .partition(|id| held_back.contains(id));
        self.queue = held.into();
        let unreported_exits = |id: &&TaskId| {
            !known.contains(*id) && !queued.contains(*id) && !held_back.contains(*id)
        };
        // Already sent, but perhaps lost.
        let staging = self.tasks.iter();
        let staging = staging.filter(|(_, task)| task.state == TaskState::Staging);
        let lost = staging.map(|(id, _)| id).filter(unreported_exits);
        let (incomplete, lost): (Vec<TaskId>, Vec<TaskId>) = lost
            .cloned()
            .partition(|id| self.tasks.get(id).is_some_and(|task| task.lacks_secrets));
        let tasks = lost.iter().chain(&queued);
        let tasks = tasks.filter_map(|id| self.tasks.get(id));
        let run = |info: &TaskInfo| Effect::Run(Box::new(info.clone()));
        let mut effects: Vec<Effect> = tasks.map(|task| run(&task.info)).collect();
        self.has_run_tasks |= !effects.is_empty();
        for id in incomplete {
            let message = "The agent restarted before the executor reported the task, and its \
                           secrets are not checkpointed. Launch it again";
            let reason = Reason::AgentRestarted;
            let failed = self.report_end(&id, TaskState::Failed, reason, message.to_owned());
            effects.extend(failed);
            // A native executor may have it.
            effects.push(Effect::End(id, None));
        }
        let live = self.tasks.values().filter(|task| !task.state.is_terminal());
        effects.extend(live.filter_map(|task| {
            let policy = task.kill_request?.0.or(task.info.kill_policy);
            Some(Effect::End(task.info.task_id.clone(), policy))
        }));
        effects
    }

    /// Its processes ended while no agent was watching.
    pub fn lost(&mut self, lost: EndCause) -> Vec<Effect> {
        let (state, reason, message) = match lost {
            EndCause::Ended => (
                TaskState::Failed,
                Reason::ExecutorTerminated,
                "Executor terminated",
            ),
            EndCause::Rebooted => {
                let aware = self.framework.can(Capability::PartitionAware);
                let gone = TaskState::Gone.for_framework(aware);
                (gone, Reason::AgentRestarted, "the machine was started anew")
            }
        };
        self.end_status = Some((state, reason, message.to_owned()));
        self.end(None, message)
    }

    /// The deadline for subscribing after an agent restart has passed.
    pub fn reregistration_overdue(&mut self, patience: Duration) -> Vec<Effect> {
        if self.phase != Phase::Recovering {
            return Vec::new();
        }
        if self.is_command || self.is_group() {
            // Its init still isolates itself, and has as long as after any launch. The agent does
            // not wait for that.
            self.phase = Phase::Launching;
            return vec![Effect::AwaitSubscription];
        }
        let patience = duration::format(patience);
        self.end_status = Some((
            TaskState::Gone.for_framework(self.framework.can(Capability::PartitionAware)),
            Reason::ExecutorReregistrationTimeout,
            format!("Executor did not reregister within {patience}"),
        ));
        self.destroy()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{actor, id, task, terminals};
    use super::*;
    use crate::ledger::record::tests as records;
    use protocol::task::container::{ContainerInfo, SecretData, Volume, VolumeSource};
    use protocol::{FrameworkInfo, Uuid};
    use runtime::{NodeId, Pid};

    const PATIENCE: Duration = Duration::from_secs(2);

    fn recovered(tasks: &[(&str, TaskState)]) -> Container {
        let tasks = tasks.iter().map(|&(name, state)| {
            let given = vec![Uuid([1; 16])];
            (
                task(name),
                StateRecord {
                    state,
                    given,
                    is_throttled: false,
                },
            )
        });
        let found = StoredContainer {
            record: records::container(),
            tasks: tasks.collect(),
        };
        Container::recovered(records::id("c"), found, Some(42))
    }

    fn described(effects: &[Effect]) -> Vec<String> {
        let words = |effect: &Effect| match effect {
            Effect::Run(info) => format!("run {}", info.task_id),
            Effect::End(id, _) => format!("end {id}"),
            other => format!("{other:?}"),
        };
        effects.iter().map(words).collect()
    }

    /// SPEC 5.3: written before it is acted upon.
    #[test]
    fn checkpointed_task_waits_for_the_disk() {
        let container = records::container();
        let mut container = Container::new(
            records::id("c"),
            container.framework,
            container.executor,
            false,
            "secret".into(),
        )
        .with_checkpoint();
        container.add(task("a"));
        container.prepared(Ok(()));
        container.started(42);
        container.release(&id("a"));
        container.add(task("b"));
        let effects = container.subscribe("secret", actor()).unwrap();
        assert_eq!(described(&effects), ["run a"], "b is not on the disk");
        assert_eq!(described(&container.release(&id("b"))), ["run b"]);
        assert_eq!(container.release(&id("b")), []);
        container.add(task("c"));
        let effects = container.refuse(&id("c"), "the disk is full".into());
        let failed = (id("c"), TaskState::Failed, Reason::ContainerUpdateFailed);
        assert_eq!(terminals(&effects), [failed]);
        container.add(task("d"));
        let effects = container.kill(&id("d"), None);
        assert_eq!(terminals(&effects).len(), 1, "it never ran");
        assert_eq!(container.release(&id("d")), []);
    }

    /// SPEC 2.5, 5.3.
    #[test]
    fn returning_executor_gets_lost_tasks_and_kills() {
        let all = [
            ("lost", TaskState::Staging),
            ("running", TaskState::Running),
            ("known", TaskState::Staging),
            ("ended", TaskState::Finished),
        ];
        let mut over_http = recovered(&all);
        assert_eq!(over_http.leader, Some(42));
        assert!(over_http.has_live_tasks() && over_http.takes_tasks());
        assert_eq!(over_http.kill(&id("running"), None), [], "it is not there");
        let known = BTreeSet::from([id("known"), id("running")]);
        let effects = over_http.subscribe_stream(actor(), &known).unwrap();
        assert_eq!(described(&effects), ["run lost", "end running"]);
        assert!(over_http.repeats(&id("running"), Uuid([1; 16])));
        assert!(!over_http.repeats(&id("running"), Uuid([2; 16])));
        over_http.forget_update(&id("running"), Uuid([2; 16]));
        assert!(!over_http.repeats(&id("running"), Uuid([2; 16])));
        assert_eq!(over_http.reregistration_overdue(PATIENCE), []);

        let mut native = recovered(&all);
        assert!(native.subscribe("wrong", actor()).is_err());
        let effects = native.subscribe("secret", actor()).unwrap();
        assert_eq!(described(&effects), ["run known", "run lost"]);
        // The answer was late and the executor retries; others are refused.
        assert!(native.subscribe("wrong", actor()).is_err());
        let other = Pid::new("executor", NodeId::new("executor-c", 2), 1);
        assert!(native.subscribe("secret", other).is_err());
        let effects = native.subscribe("secret", actor()).unwrap();
        assert_eq!(described(&effects), ["run known", "run lost"]);
    }

    #[test]
    fn lost_task_without_its_secrets_fails() {
        let mut info = task("t");
        let settings = ContainerInfo {
            volumes: vec![Volume {
                container_path: "key".into(),
                is_read_only: false,
                source: VolumeSource::Secret(SecretData::default()),
            }],
            ..ContainerInfo::default()
        };
        info.container = Some(Box::new(settings));
        let (state, given) = (TaskState::Staging, Vec::new());
        let found = StoredContainer {
            record: records::container(),
            tasks: vec![(
                info,
                StateRecord {
                    state,
                    given,
                    is_throttled: false,
                },
            )],
        };
        let recovered = || Container::recovered(records::id("c"), found.clone(), Some(42));
        let mut over_http = recovered();
        let known = BTreeSet::from([id("t")]);
        let effects = over_http.subscribe_stream(actor(), &known).unwrap();
        assert_eq!(effects, [], "it has the task");
        let mut native = recovered();
        let effects = native.subscribe("secret", actor()).unwrap();
        let failed = (id("t"), TaskState::Failed, Reason::AgentRestarted);
        assert_eq!(terminals(&effects), [failed]);
        assert_eq!(described(&effects[1..]), ["end t"]);
    }

    /// SPEC 2.5, 5.3: like an HTTP executor whose stream breaks.
    // Covers 2.5 What an executor must do.
    #[test]
    fn native_executor_with_live_tasks_may_reconnect() {
        let grace = std::time::Duration::from_secs(5);
        let back = |all: &[(&str, TaskState)]| {
            let mut container = recovered(all);
            container.subscribe("secret", actor()).unwrap();
            container
        };
        let mut cut_off = back(&[("lost", TaskState::Staging), ("runs", TaskState::Running)]);
        assert_eq!(cut_off.disconnected(grace), [Effect::AwaitReturn]);
        assert!(cut_off.takes_tasks());
        cut_off.add(task("late"));
        assert_eq!(cut_off.release(&id("late")), [], "it waits");
        cut_off.kill(&id("runs"), None);
        assert!(cut_off.subscribe("wrong", actor()).is_err());
        let effects = cut_off.subscribe("secret", actor()).unwrap();
        assert_eq!(described(&effects), ["run lost", "run late", "end runs"]);
        assert_eq!(
            cut_off.disconnected(grace),
            [],
            "one deadline is set already"
        );
        assert_eq!(cut_off.return_overdue(PATIENCE), [Effect::AwaitReturn]);
        assert_eq!(cut_off.return_overdue(PATIENCE), [Effect::Destroy]);
        assert!(cut_off.subscribe("secret", actor()).is_err());
        let effects = cut_off.exited(None);
        let Some(Effect::Report(terminal)) = effects.first() else {
            panic!("{effects:?}")
        };
        assert_eq!(terminal.reason, Some(Reason::ExecutorReregistrationTimeout));
        assert!(
            terminal.message.ends_with("within 2secs"),
            "{}",
            terminal.message
        );

        // An executor with no live tasks that disconnects has ended.
        let mut idle = back(&[("ended", TaskState::Finished)]);
        assert_eq!(idle.disconnected(grace), [Effect::DestroyAfter(grace)]);
        assert!(!idle.takes_tasks());
        // An ended process is not waited for.
        let mut ended = back(&[("runs", TaskState::Running)]);
        ended.disconnected(grace);
        let effects = ended.exited(Some(protocol::Termination::Signaled(9)));
        let reason = Reason::ExecutorTerminated;
        assert_eq!(
            terminals(&effects),
            [(id("runs"), TaskState::Failed, reason)]
        );
        assert_eq!(ended.return_overdue(PATIENCE), []);
    }

    /// SPEC 5.3.
    #[test]
    fn executor_is_killed_after_reregistration_timeout() {
        let mut container = recovered(&[("t", TaskState::Running), ("u", TaskState::Killed)]);
        assert_eq!(
            container.reregistration_overdue(PATIENCE),
            [Effect::Destroy]
        );
        assert_eq!(container.reregistration_overdue(PATIENCE), []);
        assert!(container.subscribe("secret", actor()).is_err());
        let effects = container.exited(Some(protocol::Termination::Signaled(9)));
        let reason = Reason::ExecutorReregistrationTimeout;
        assert_eq!(terminals(&effects), [(id("t"), TaskState::Lost, reason)]);
        let Some(Effect::Report(terminal)) = effects.first() else {
            panic!("{effects:?}")
        };
        assert_eq!(terminal.message, "Executor did not reregister within 2secs");
    }

    /// Its init may hang, and an agent that waited for it would not register.
    #[test]
    fn command_that_is_being_started_is_not_awaited_for_long() {
        let state = StateRecord::default();
        let record = ContainerRecord {
            is_command: true,
            ..records::container()
        };
        let tasks = vec![(task("t"), state)];
        let found = StoredContainer { record, tasks };
        let mut container = Container::recovered(records::id("c"), found, None);
        assert_eq!(container.resume(), [], "it does not run");
        let overdue = container.reregistration_overdue(PATIENCE);
        assert_eq!(overdue, [Effect::AwaitSubscription]);
        assert_eq!(container.phase, Phase::Launching);
        assert_eq!(container.reregistration_overdue(PATIENCE), []);
        container.started(42);
        assert_eq!(container.phase, Phase::Running);
        let state = container.tasks().next().map(|task| task.state);
        assert_eq!(state, Some(TaskState::Running));
    }

    /// SPEC 5.2.
    #[test]
    fn recovering_executor_survives_kill_of_a_queued_task() {
        let mut container = recovered(&[("ended", TaskState::Finished)]);
        container.add(task("late"));
        let effects = container.kill(&id("late"), None);
        let killed = (
            id("late"),
            TaskState::Killed,
            Reason::TaskKilledDuringLaunch,
        );
        assert_eq!((terminals(&effects), effects.len()), (vec![killed], 1));
        assert!(container.subscribe("secret", actor()).is_ok());
    }

    #[test]
    fn exit_during_recovery_fails_tasks() {
        let mut container = recovered(&[("t", TaskState::Running)]);
        let effects = container.exited(Some(protocol::Termination::Exited(3)));
        let Some(Effect::Report(terminal)) = effects.first() else {
            panic!("{effects:?}")
        };
        assert_eq!(terminal.reason, Some(Reason::ExecutorTerminated));
        assert_eq!(terminal.message, "Executor terminated");
    }

    #[test]
    fn reboot_makes_tasks_gone_and_exit_makes_them_failed() {
        let end = |lost, aware: bool| {
            let mut container = recovered(&[("t", TaskState::Running)]);
            if aware {
                let capabilities = [Capability::PartitionAware].into();
                container.framework = FrameworkInfo {
                    capabilities,
                    ..container.framework
                };
            }
            let (_, state, reason) = terminals(&container.lost(lost)).remove(0);
            (state, reason)
        };
        let ended = (TaskState::Failed, Reason::ExecutorTerminated);
        assert_eq!(end(EndCause::Ended, true), ended);
        let gone = (TaskState::Gone, Reason::AgentRestarted);
        assert_eq!(end(EndCause::Rebooted, true), gone);
        let lost = (TaskState::Lost, Reason::AgentRestarted);
        assert_eq!(end(EndCause::Rebooted, false), lost);
    }
}
