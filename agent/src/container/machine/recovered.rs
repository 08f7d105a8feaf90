//! A container that outlives its agent: what is held back until it is on the disk, and how the next process of the agent goes on with it.
//!
//! Pure. The executor of a recovered container is given no time beyond a short deadline to subscribe again. What it was told and what it
//! knows is brought together as after a broken stream: it is told again what it may not know, and says again what may not have been heard.

use std::collections::BTreeSet;
use std::time::Duration;

use protocol::{Capability, Reason, TaskId, TaskInfo, TaskState, duration};

use super::{Container, Effect, Phase, Task};
use crate::ledger::plan::Lost;
use crate::ledger::record::{ContainerRecord, FoundContainer, StateRecord};

impl Container {
    /// The same container, which outlives the agent: none of its tasks is started before [`recorded`](Self::recorded) says so.
    pub fn keeping(mut self) -> Self {
        self.kept = true;
        self
    }

    /// Whether it outlives the agent.
    pub fn is_kept(&self) -> bool {
        self.kept
    }

    /// What it was when an earlier process of the agent ended. Its executor should subscribe again.
    pub fn recovered(
        id: protocol::ContainerId,
        found: FoundContainer,
        leader: Option<i32>,
    ) -> Self {
        let ContainerRecord {
            framework,
            executor,
            is_command,
            token,
        } = found.record;
        let mut container = Self::new(id, framework, executor, is_command, token).keeping();
        (container.phase, container.leader) = (Phase::Recovering, leader);
        container.has_served = true; // Its first task may have been given to it.
        let tasks = found.tasks.into_iter().map(|(info, state)| {
            let task = Task {
                state: state.state,
                given: state.given.into(),
                ..Task::new(info)
            };
            (task.info.task_id.clone(), task)
        });
        container.tasks = tasks.collect();
        container
    }

    /// What the next process of the agent must know of it.
    pub fn record(&self) -> ContainerRecord {
        ContainerRecord {
            framework: self.framework.clone(),
            executor: self.executor.clone(),
            is_command: self.is_command,
            token: self.token.clone(),
        }
    }

    /// What the next process of the agent must know of how one of its tasks is; `None` if that is nothing.
    pub fn state_record(&self, task_id: &TaskId) -> Option<StateRecord> {
        let task = self.tasks.get(task_id).filter(|_| self.kept)?;
        Some(StateRecord {
            state: task.state,
            given: task.given.iter().copied().collect(),
        })
    }

    /// Whether a task of it has ended that somebody still wants to hear of.
    pub fn owes_an_end(&self) -> bool {
        let mut tasks = self.tasks.values();
        tasks.any(|task| task.state.is_terminal() && !task.disowned)
    }

    /// This task is on the disk: the executor may have it.
    pub fn recorded(&mut self, task_id: &TaskId) -> Vec<Effect> {
        if !self.unwritten.remove(task_id) || !self.is_heard() {
            return Vec::new();
        }
        let Some(at) = self.queue.iter().position(|queued| queued == task_id) else {
            return Vec::new();
        };
        self.queue.remove(at);
        self.has_served = true;
        let task = self.tasks.get(task_id);
        let run = task.map(|task| Effect::Run(Box::new(task.info.clone())));
        run.into_iter().collect()
    }

    /// This task cannot be put on the disk, so it does not run.
    pub fn not_recorded(&mut self, task_id: &TaskId, problem: &str) -> Vec<Effect> {
        let Some(at) = self.queue.iter().position(|queued| queued == task_id) else {
            return Vec::new();
        };
        self.queue.remove(at);
        self.unwritten.remove(task_id);
        let message = format!("the agent cannot keep it: {problem}");
        let reason = Reason::ContainerUpdateFailed;
        let verdict = self.settle(task_id, TaskState::Failed, reason, message);
        verdict.into_iter().collect()
    }

    /// What an executor is told that has just subscribed and has the tasks that are `known`: tasks that it does not have, and kills.
    pub(super) fn catch_up(&mut self, known: &BTreeSet<TaskId>) -> Vec<Effect> {
        let unwritten = &self.unwritten;
        let (held, queued): (Vec<TaskId>, Vec<TaskId>) = std::mem::take(&mut self.queue)
            .into_iter()
            .partition(|id| unwritten.contains(id));
        self.queue = held.into();
        let untold = |id: &&TaskId| {
            !known.contains(*id) && !queued.contains(*id) && !unwritten.contains(*id)
        };
        // These were told, but it may not have heard.
        let staging = self.tasks.iter();
        let staging = staging.filter(|(_, task)| task.state == TaskState::Staging);
        let lost = staging.map(|(id, _)| id).filter(untold);
        let tasks = lost.chain(&queued).filter_map(|id| self.tasks.get(id));
        let run = |info: &TaskInfo| Effect::Run(Box::new(info.clone()));
        let mut effects: Vec<Effect> = tasks.map(|task| run(&task.info)).collect();
        self.has_served |= !effects.is_empty();
        let live = self.tasks.values().filter(|task| !task.state.is_terminal());
        effects.extend(live.filter_map(|task| {
            let policy = task.killing?.0.or(task.info.kill_policy);
            Some(Effect::End(task.info.task_id.clone(), policy))
        }));
        effects
    }

    /// Its processes are gone, which nobody saw.
    pub fn lost(&mut self, lost: Lost) -> Vec<Effect> {
        let (state, reason, message) = match lost {
            Lost::Ended => (
                TaskState::Failed,
                Reason::ExecutorTerminated,
                "Executor terminated while its agent was away",
            ),
            Lost::Rebooted => {
                let aware = self.framework.can(Capability::PartitionAware);
                let gone = TaskState::Gone.as_told(aware);
                (gone, Reason::AgentRestarted, "the machine was started anew")
            }
        };
        self.fate = Some((state, reason, message.to_owned()));
        self.end(None, message)
    }

    /// The time in which an executor that outlived an agent should have subscribed again is over.
    pub fn reregistration_overdue(&mut self, patience: Duration) -> Vec<Effect> {
        if self.phase != Phase::Recovering {
            return Vec::new();
        }
        let patience = duration::format(patience);
        self.fate = Some((
            TaskState::Gone.as_told(self.framework.can(Capability::PartitionAware)),
            Reason::ExecutorReregistrationTimeout,
            format!("Executor did not reregister within {patience}"),
        ));
        self.destroy()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{actor, id, task, verdicts};
    use super::*;
    use crate::ledger::record::tests as records;
    use protocol::{FrameworkInfo, Uuid};
    use runtime::{NodeId, Pid};

    const PATIENCE: Duration = Duration::from_secs(2);

    fn recovered(tasks: &[(&str, TaskState)]) -> Container {
        let tasks = tasks.iter().map(|&(name, state)| {
            let given = vec![Uuid([1; 16])];
            (task(name), StateRecord { state, given })
        });
        let found = FoundContainer {
            record: records::container(),
            tasks: tasks.collect(),
        };
        Container::recovered(records::id("c"), found, Some(42))
    }

    fn told(effects: &[Effect]) -> Vec<String> {
        let words = |effect: &Effect| match effect {
            Effect::Run(info) => format!("run {}", info.task_id),
            Effect::End(id, _) => format!("end {id}"),
            other => format!("{other:?}"),
        };
        effects.iter().map(words).collect()
    }

    /// SPEC 5.3: written before it is acted upon.
    #[test]
    fn a_task_that_is_to_be_kept_waits_for_the_disk() {
        let container = records::container();
        let mut container = Container::new(
            records::id("c"),
            container.framework,
            container.executor,
            false,
            "secret".into(),
        )
        .keeping();
        container.add(task("a"));
        container.prepared(Ok(()));
        container.started(42);
        container.recorded(&id("a"));
        container.add(task("b"));
        let effects = container.subscribe("secret", actor()).unwrap();
        assert_eq!(told(&effects), ["run a"], "b is not on the disk");
        assert_eq!(told(&container.recorded(&id("b"))), ["run b"]);
        assert_eq!(container.recorded(&id("b")), []);
        container.add(task("c"));
        let effects = container.not_recorded(&id("c"), "the disk is full");
        let failed = (id("c"), TaskState::Failed, Reason::ContainerUpdateFailed);
        assert_eq!(verdicts(&effects), [failed]);
        container.add(task("d"));
        let effects = container.kill(&id("d"), None);
        assert_eq!(verdicts(&effects).len(), 1, "it never ran");
        assert_eq!(container.recorded(&id("d")), []);
    }

    /// SPEC 2.5, 5.3.
    #[test]
    fn an_executor_that_is_back_is_told_what_it_may_not_know() {
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
        assert_eq!(told(&effects), ["run lost", "end running"]);
        assert!(over_http.repeats(&id("running"), Uuid([1; 16])));
        assert!(!over_http.repeats(&id("running"), Uuid([2; 16])));
        over_http.not_taken(&id("running"), Uuid([2; 16]));
        assert!(!over_http.repeats(&id("running"), Uuid([2; 16])));
        assert_eq!(over_http.reregistration_overdue(PATIENCE), []);

        let mut native = recovered(&all);
        assert!(native.subscribe("wrong", actor()).is_err());
        let effects = native.subscribe("secret", actor()).unwrap();
        assert_eq!(told(&effects), ["run known", "run lost"]);
        // Its answer was late, and it asks again; anybody else is refused.
        assert!(native.subscribe("wrong", actor()).is_err());
        let other = Pid::new("executor", NodeId::new("executor-c", 2), 1);
        assert!(native.subscribe("secret", other).is_err());
        let effects = native.subscribe("secret", actor()).unwrap();
        assert_eq!(told(&effects), ["run known", "run lost"]);
    }

    /// SPEC 2.5, 5.3: as one over HTTP whose stream broke.
    #[test]
    fn a_native_executor_whose_link_breaks_is_expected_back_while_it_has_something_to_do() {
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
        assert_eq!(cut_off.recorded(&id("late")), [], "it waits");
        cut_off.kill(&id("runs"), None);
        assert!(cut_off.subscribe("wrong", actor()).is_err());
        let effects = cut_off.subscribe("secret", actor()).unwrap();
        assert_eq!(told(&effects), ["run lost", "run late", "end runs"]);
        assert_eq!(
            cut_off.disconnected(grace),
            [],
            "one deadline is set already"
        );
        assert_eq!(cut_off.return_overdue(PATIENCE), [Effect::AwaitReturn]);
        assert_eq!(cut_off.return_overdue(PATIENCE), [Effect::Destroy]);
        assert!(cut_off.subscribe("secret", actor()).is_err());
        let effects = cut_off.exited(None);
        let Some(Effect::Report(verdict)) = effects.first() else {
            panic!("{effects:?}")
        };
        assert_eq!(verdict.reason, Reason::ExecutorReregistrationTimeout);
        assert!(
            verdict.message.ends_with("within 2secs"),
            "{}",
            verdict.message
        );

        // It has ended, as executors do that have nothing more to do.
        let mut idle = back(&[("ended", TaskState::Finished)]);
        assert_eq!(idle.disconnected(grace), [Effect::DestroyAfter(grace)]);
        assert!(!idle.takes_tasks());
        // A process that has ended is none to wait for.
        let mut ended = back(&[("runs", TaskState::Running)]);
        ended.disconnected(grace);
        let effects = ended.exited(Some(protocol::Termination::Signaled(9)));
        let reason = Reason::ExecutorTerminated;
        assert_eq!(
            verdicts(&effects),
            [(id("runs"), TaskState::Failed, reason)]
        );
        assert_eq!(ended.return_overdue(PATIENCE), []);
    }

    /// SPEC 5.3.
    #[test]
    fn an_executor_that_does_not_come_back_in_time_is_killed_and_its_tasks_have_failed() {
        let mut container = recovered(&[("t", TaskState::Running), ("u", TaskState::Killed)]);
        assert_eq!(
            container.reregistration_overdue(PATIENCE),
            [Effect::Destroy]
        );
        assert_eq!(container.reregistration_overdue(PATIENCE), []);
        assert!(container.subscribe("secret", actor()).is_err());
        let effects = container.exited(Some(protocol::Termination::Signaled(9)));
        let reason = Reason::ExecutorReregistrationTimeout;
        assert_eq!(verdicts(&effects), [(id("t"), TaskState::Lost, reason)]);
        let Some(Effect::Report(verdict)) = effects.first() else {
            panic!("{effects:?}")
        };
        assert_eq!(verdict.message, "Executor did not reregister within 2secs");
    }

    /// SPEC 5.2.
    #[test]
    fn an_executor_that_is_not_back_yet_lives_on_when_a_task_is_killed_that_only_waited_for_it() {
        let mut container = recovered(&[("ended", TaskState::Finished)]);
        container.add(task("late"));
        let effects = container.kill(&id("late"), None);
        let killed = (
            id("late"),
            TaskState::Killed,
            Reason::TaskKilledDuringLaunch,
        );
        assert_eq!((verdicts(&effects), effects.len()), (vec![killed], 1));
        assert!(container.subscribe("secret", actor()).is_ok());
    }

    #[test]
    fn an_executor_that_ended_meanwhile_ends_its_tasks_as_it_did() {
        let mut container = recovered(&[("t", TaskState::Running)]);
        let effects = container.exited(Some(protocol::Termination::Exited(3)));
        let Some(Effect::Report(verdict)) = effects.first() else {
            panic!("{effects:?}")
        };
        assert_eq!(verdict.reason, Reason::ExecutorTerminated);
        assert!(verdict.message.contains("status 3"), "{}", verdict.message);
    }

    #[test]
    fn what_was_lost_with_the_machine_is_gone_and_what_just_ended_has_failed() {
        let end = |lost, aware: bool| {
            let mut container = recovered(&[("t", TaskState::Running)]);
            if aware {
                let capabilities = [Capability::PartitionAware].into();
                container.framework = FrameworkInfo {
                    capabilities,
                    ..container.framework
                };
            }
            let (_, state, reason) = verdicts(&container.lost(lost)).remove(0);
            (state, reason)
        };
        let ended = (TaskState::Failed, Reason::ExecutorTerminated);
        assert_eq!(end(Lost::Ended, true), ended);
        let gone = (TaskState::Gone, Reason::AgentRestarted);
        assert_eq!(end(Lost::Rebooted, true), gone);
        let lost = (TaskState::Lost, Reason::AgentRestarted);
        assert_eq!(end(Lost::Rebooted, false), lost);
    }
}
