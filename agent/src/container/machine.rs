//! One container: an executor process, the actor in it, and its tasks, from the first task to the last acknowledgement.
//!
//! Pure: each event gives the effects that follow from it, in order. It knows no process and no clock, and never decides which
//! tasks come here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use protocol::duration;
use protocol::message::executor::ExecutorRefused;
use protocol::{
    Capability, ContainerId, ExecutorInfo, FrameworkInfo, KillPolicy, Reason, TaskId, TaskInfo,
    TaskState, TaskStatus, Termination, Uuid,
};
use resources::Resources;
use runtime::Pid;

use self::away::Absence;
use super::history::without_data;
use crate::command::outcome::GRACE_DEFAULT;

/// Where a container is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its sandbox is being made.
    Preparing,
    /// Its executor is being started.
    Launching,
    /// Its executor runs but has not subscribed.
    Registering,
    /// Its executor has outlived an earlier process of the agent and has not subscribed again.
    Recovering,
    /// Its executor has subscribed.
    Running,
    /// It is on its way out.
    Terminating,
    /// Nothing of it runs; some tasks may wait for their acknowledgement.
    Terminated,
}

/// What a container wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Start its executor.
    Launch,
    /// Expect its executor to subscribe before long.
    AwaitSubscription,
    /// Give the executor this task.
    Run(Box<TaskInfo>),
    /// Tell the executor to end this task.
    End(TaskId, Option<KillPolicy>),
    /// Tell the executor to stop, and kill the container after this time.
    ShutDown(Duration),
    /// Kill it after this time unless it ends by itself.
    DestroyAfter(Duration),
    /// Expect its executor to subscribe again before long.
    AwaitReturn,
    /// Kill all its processes.
    Destroy,
    /// The agent itself gives a task a state.
    Report(Verdict),
    /// The executor has ended; its name may be used again.
    Ended(Option<Termination>),
}

/// A task's state as the agent itself decides it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whose.
    pub task_id: TaskId,
    /// The state; always terminal.
    pub state: TaskState,
    /// Why.
    pub reason: Reason,
    /// A sentence for people.
    pub message: String,
}

/// What is to be done with a status from the executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Pass it on.
    New,
    /// The task has ended already: confirm it, so that the executor lets go of it, and no more.
    Late,
    /// There is no such task here.
    Unknown,
}

/// How many tasks of one executor are shown that have ended and are acknowledged, as by Mesos.
const COMPLETED_MAX: usize = 200;

/// How many statuses of one task are shown.
const TOLD_MAX: usize = 10;

/// A task in a container.
#[derive(Clone, Debug)]
pub struct Task {
    /// What it is.
    pub info: TaskInfo,
    /// Its newest state.
    pub state: TaskState,
    /// Whether nobody wants to hear of it any more.
    pub disowned: bool,
    /// How it is to be killed, once it is.
    killing: Option<Killing>,
    /// The newest statuses that an executor has given it which may give them twice.
    given: VecDeque<Uuid>,
    /// What was last told of it by this process of the agent, for people: of each state the newest status, without its data.
    pub told: VecDeque<Arc<TaskStatus>>,
}

impl Task {
    fn new(info: TaskInfo) -> Self {
        Self {
            info,
            state: TaskState::Staging,
            disowned: false,
            killing: None,
            given: VecDeque::new(),
            told: VecDeque::new(),
        }
    }

    /// This was told of it; its data is for its framework alone, and is not copied. What is said again in the same state takes the place of
    /// what was said before.
    pub fn note(&mut self, status: &mut TaskStatus) {
        if self
            .told
            .back()
            .is_some_and(|last| last.state == status.state)
        {
            self.told.pop_back();
        }
        let data = std::mem::take(&mut status.data);
        self.told.push_back(Arc::new(status.clone()));
        status.data = data;
        if self.told.len() > TOLD_MAX {
            self.told.pop_front();
        }
    }
}

/// A kill; its policy is the framework's wish, if it had one.
#[derive(Clone, Copy, Debug)]
struct Killing(Option<KillPolicy>);

/// One run of one executor.
#[derive(Debug)]
pub struct Container {
    /// Its id.
    pub id: ContainerId,
    /// Whose.
    pub framework: FrameworkInfo,
    /// Its executor.
    pub executor: ExecutorInfo,
    /// Whether the executor is our own command executor.
    pub is_command: bool,
    /// What its executor must show to subscribe.
    pub token: String,
    /// Where its executor hears, once subscribed.
    pub actor: Option<Pid>,
    /// The first process, once started.
    pub leader: Option<i32>,
    /// Where it is in its life.
    pub phase: Phase,
    /// Set once its executor has subscribed over HTTP.
    streamed: bool,
    absence: Absence,
    /// Whether it outlives the agent.
    kept: bool,
    tasks: BTreeMap<TaskId, Task>,
    /// The newest of its tasks that nobody waits for any more, oldest first: for people.
    completed: VecDeque<Task>,
    /// Tasks that the executor has not been given.
    queue: VecDeque<TaskId>,
    /// Those of them that must be on the disk first.
    unwritten: BTreeSet<TaskId>,
    /// Whether its executor was ever given a task, be it by an earlier process of the agent.
    has_served: bool,
    /// What its live tasks become when it ends, if something else than failed.
    fate: Option<(TaskState, Reason, String)>,
}

impl Container {
    /// A container whose sandbox is about to be made.
    pub fn new(
        id: ContainerId,
        framework: FrameworkInfo,
        executor: ExecutorInfo,
        is_command: bool,
        token: String,
    ) -> Self {
        Self {
            id,
            framework,
            executor,
            is_command,
            token,
            actor: None,
            leader: None,
            phase: Phase::Preparing,
            streamed: false,
            absence: Absence::default(),
            kept: false,
            tasks: BTreeMap::new(),
            completed: VecDeque::new(),
            queue: VecDeque::new(),
            unwritten: BTreeSet::new(),
            has_served: false,
            fate: None,
        }
    }

    /// Its tasks, ended ones included until they are acknowledged.
    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.tasks.values()
    }

    /// The newest of those that have ended and are acknowledged, oldest first.
    pub fn completed(&self) -> impl Iterator<Item = &Task> {
        self.completed.iter()
    }

    /// This was told of one of its tasks.
    pub fn note(&mut self, status: &mut TaskStatus) {
        if let Some(task) = self.tasks.get_mut(&status.task_id) {
            task.note(status);
        }
    }

    /// One of its tasks.
    pub fn task(&self, id: &TaskId) -> Option<&Task> {
        self.tasks.get(id)
    }

    /// Whether some task has not ended.
    pub fn has_live_tasks(&self) -> bool {
        self.tasks.values().any(|task| !task.state.is_terminal())
    }

    /// What the executor and its live tasks were given.
    pub fn allocated(&self) -> Resources {
        let mut sum = self.executor.resources.clone();
        for task in self.tasks.values().filter(|task| !task.state.is_terminal()) {
            sum += &task.info.resources;
        }
        sum
    }

    /// Whether it takes further tasks.
    pub fn takes_tasks(&self) -> bool {
        !matches!(self.phase, Phase::Terminating | Phase::Terminated)
    }

    /// Whether its executor hears what it is told.
    fn is_heard(&self) -> bool {
        self.phase == Phase::Running && self.actor.is_some()
    }

    /// A further task.
    pub fn add(&mut self, info: TaskInfo) -> Vec<Effect> {
        let id = info.task_id.clone();
        let at_once = self.is_heard() && !self.kept;
        let run = at_once.then(|| Effect::Run(Box::new(info.clone())));
        self.has_served |= at_once;
        if run.is_none() {
            self.queue.push_back(id.clone());
        }
        if self.kept {
            self.unwritten.insert(id.clone());
        }
        self.tasks.insert(id, Task::new(info));
        run.into_iter().collect()
    }

    /// The sandbox is there, or cannot be made.
    pub fn prepared(&mut self, sandbox: Result<(), String>) -> Vec<Effect> {
        match (self.phase, sandbox) {
            (Phase::Preparing, Ok(())) => {
                self.phase = Phase::Launching;
                vec![Effect::Launch]
            }
            (_, Err(problem)) => self.launch_failed(&problem),
            // Everything in it was killed meanwhile: nothing was ever started.
            (_, Ok(())) => self.end(None, "the executor was not started"),
        }
    }

    /// Its turn to be launched has come, if it still wants that.
    pub fn launch(&mut self) -> Vec<Effect> {
        let wanted = self.phase == Phase::Launching;
        wanted.then_some(Effect::Launch).into_iter().collect()
    }

    /// The executor could not be started.
    pub fn launch_failed(&mut self, problem: &str) -> Vec<Effect> {
        let fate = (
            TaskState::Failed,
            Reason::ContainerLaunchFailed,
            format!("Failed to launch container: {problem}"),
        );
        self.fate.get_or_insert(fate);
        self.end(None, problem)
    }

    /// The executor's process runs.
    pub fn started(&mut self, leader: i32) -> Vec<Effect> {
        self.leader = Some(leader);
        match self.phase {
            Phase::Launching => {
                self.phase = Phase::Registering;
                vec![Effect::AwaitSubscription]
            }
            Phase::Terminating => vec![Effect::Destroy],
            // It subscribed before its start was told.
            _ => Vec::new(),
        }
    }

    /// The executor subscribes from `actor`.
    pub fn subscribe(&mut self, token: &str, actor: Pid) -> Result<Vec<Effect>, ExecutorRefused> {
        let refused = |reason: &str| {
            Err(ExecutorRefused {
                reason: reason.to_owned(),
            })
        };
        if !self.is_proved_by(token) {
            return refused("the token is not the one it was given");
        }
        match self.phase {
            Phase::Launching | Phase::Registering | Phase::Recovering => {}
            // The answer was late, or its link broke, and it asks again.
            Phase::Running
                if !self.is_streamed() && self.actor.as_ref().is_none_or(|is| *is == actor) => {}
            Phase::Running => return refused("it is subscribed already"),
            _ => return refused("its container is being ended"),
        }
        self.phase = Phase::Running;
        self.actor = Some(actor);
        // One that is back knows itself which tasks it has.
        Ok(self.catch_up(&BTreeSet::new()))
    }

    /// The executor gives a task a state.
    pub fn heard(&mut self, task_id: &TaskId, state: TaskState) -> Heard {
        match self.tasks.get_mut(task_id) {
            None => Heard::Unknown,
            Some(task) if task.state.is_terminal() => Heard::Late,
            Some(task) => {
                task.state = state;
                Heard::New
            }
        }
    }

    /// A task should end.
    pub fn kill(&mut self, task_id: &TaskId, policy: Option<KillPolicy>) -> Vec<Effect> {
        let Some(task) = self
            .tasks
            .get_mut(task_id)
            .filter(|task| !task.state.is_terminal())
        else {
            return Vec::new();
        };
        let Some(at) = self.queue.iter().position(|queued| queued == task_id) else {
            // Its executor has it. One that is on its way out ends it anyway, and one that is away hears it when it is back.
            task.killing = Some(Killing(policy));
            let end = || Effect::End(task.info.task_id.clone(), policy.or(task.info.kill_policy));
            return (self.phase == Phase::Running)
                .then(end)
                .into_iter()
                .collect();
        };
        self.queue.remove(at);
        self.unwritten.remove(task_id);
        let message = "Killed before delivery to the executor".to_owned();
        let mut effects = Vec::from_iter(self.settle(
            task_id,
            TaskState::Killed,
            Reason::TaskKilledDuringLaunch,
            message,
        ));
        // Who has served before waits for its next task, and who is told to stop has its time.
        if !self.has_served && self.takes_tasks() && !self.has_live_tasks() {
            effects.extend(self.destroy());
        }
        effects
    }

    /// All its tasks should end, each within its own grace period or this one if that is shorter.
    pub fn drain(&mut self, max: Option<Duration>) -> Vec<Effect> {
        let live = self.tasks.values().filter(|task| !task.state.is_terminal());
        let policy = |task: &Task| {
            let own = task
                .info
                .kill_policy
                .map_or(GRACE_DEFAULT, |policy| policy.grace_period);
            max.map(|max| KillPolicy {
                grace_period: own.min(max),
            })
        };
        let kills: Vec<_> = live
            .map(|task| (task.info.task_id.clone(), policy(task)))
            .collect();
        let kills = kills.into_iter();
        kills
            .flat_map(|(id, policy)| self.kill(&id, policy))
            .collect()
    }

    /// Nobody wants to hear of this task any more.
    pub fn disown(&mut self, task_id: &TaskId) {
        if let Some(task) = self.tasks.get_mut(task_id) {
            task.disowned = true;
        }
    }

    /// The executor should stop by itself, and is killed if it does not.
    pub fn shut_down(&mut self, grace: Duration) -> Vec<Effect> {
        match self.phase {
            Phase::Running if self.actor.is_some() => {
                self.phase = Phase::Terminating;
                vec![Effect::ShutDown(grace)]
            }
            // It is told when it subscribes again, and is killed if it does not.
            Phase::Running if self.is_streamed() => {
                self.phase = Phase::Terminating;
                vec![Effect::DestroyAfter(grace)]
            }
            // It has been told, or will be, or is being killed: its time goes on.
            Phase::Terminating => Vec::new(),
            _ => self.destroy(),
        }
    }

    /// The QoS controller wants it gone at once (S27). One that has ended while the agent was away was not preempted: its end is being told.
    pub fn preempt(&mut self) -> Vec<Effect> {
        let is_over = self.phase == Phase::Recovering && self.leader.is_none();
        if self.phase == Phase::Terminated || is_over {
            return Vec::new();
        }
        let aware = self.framework.can(Capability::PartitionAware);
        let message = "Container preempted by QoS correction".to_owned();
        self.fate = Some((
            TaskState::Gone.as_told(aware),
            Reason::ContainerPreempted,
            message,
        ));
        self.destroy()
    }

    /// The executor has not subscribed within `patience`.
    pub fn subscription_overdue(&mut self, patience: Duration) -> Vec<Effect> {
        if !matches!(self.phase, Phase::Launching | Phase::Registering) {
            return Vec::new();
        }
        let patience = duration::format(patience);
        let message = format!("Executor did not register within {patience}");
        self.fate = Some((
            TaskState::Failed,
            Reason::ExecutorRegistrationTimeout,
            message,
        ));
        self.destroy()
    }

    /// The grace period in which it should have ended is over.
    pub fn grace_over(&mut self, _: Duration) -> Vec<Effect> {
        self.destroy()
    }

    /// Kills everything in it; its end follows when the processes are gone.
    pub fn destroy(&mut self) -> Vec<Effect> {
        match self.phase {
            Phase::Terminated => Vec::new(),
            // Nothing runs yet; the answer to what is under way ends it.
            Phase::Preparing => {
                self.phase = Phase::Terminating;
                Vec::new()
            }
            _ => {
                self.phase = Phase::Terminating;
                vec![Effect::Destroy]
            }
        }
    }

    /// The executor's process has ended, with everything it started.
    pub fn exited(&mut self, termination: Option<Termination>) -> Vec<Effect> {
        let how = match termination {
            Some(termination) => format!("Executor terminated; {termination}"),
            None => "Executor terminated".to_owned(),
        };
        self.end(termination, &how)
    }

    /// The end of a task has been acknowledged. `true` when the container can be forgotten.
    pub fn closed(&mut self, task_id: &TaskId) -> bool {
        if self
            .tasks
            .get(task_id)
            .is_some_and(|task| task.state.is_terminal())
            && let Some(mut task) = self.tasks.remove(task_id)
        {
            without_data(&mut task.info);
            self.completed.push_back(task);
            if self.completed.len() > COMPLETED_MAX {
                self.completed.pop_front();
            }
        }
        self.is_over()
    }

    /// Whether nothing of it is left to do.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Terminated && self.tasks.values().all(|task| task.disowned)
    }

    fn end(&mut self, termination: Option<Termination>, how: &str) -> Vec<Effect> {
        if self.phase == Phase::Terminated {
            return Vec::new();
        }
        self.phase = Phase::Terminated;
        self.actor = None;
        self.leader = None;
        self.queue.clear();
        self.unwritten.clear();
        let fate = self.fate.clone();
        let (state, reason, message) = fate.unwrap_or_else(|| {
            (
                TaskState::Failed,
                Reason::ExecutorTerminated,
                how.to_owned(),
            )
        });
        let live = self
            .tasks
            .iter()
            .filter(|(_, task)| !task.state.is_terminal());
        let live: Vec<TaskId> = live.map(|(id, _)| id.clone()).collect();
        let mut effects: Vec<Effect> = live
            .iter()
            .filter_map(|id| self.settle(id, state, reason, message.clone()))
            .collect();
        effects.push(Effect::Ended(termination));
        effects
    }

    fn settle(
        &mut self,
        task_id: &TaskId,
        state: TaskState,
        reason: Reason,
        message: String,
    ) -> Option<Effect> {
        self.tasks.get_mut(task_id)?.state = state;
        Some(Effect::Report(Verdict {
            task_id: task_id.clone(),
            state,
            reason,
            message,
        }))
    }
}

mod away;
mod recovered;
mod streamed;
#[cfg(test)]
mod tests;
