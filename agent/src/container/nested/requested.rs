//! Nested containers on request of the agent's API: sessions for `meros exec`, and containers of
//! custom executors.
//!
//! They run no task and end with their parent. Their ends are known until they are removed, or
//! their outermost container is. They do not outlive the agent.

use std::collections::BTreeMap;
use std::path::PathBuf;

use executor_driver::environment as variable;
use module_api::isolator::LaunchPlan;
use protocol::task::container::ContainerInfo;
use protocol::{CommandInfo, ContainerId, FrameworkId, Termination};
use runtime::prelude::*;
use v1::convert::operator::nested::NestedLaunch;

use crate::container::Containerizer;
use crate::container::machine::Phase;
use crate::container::machine::command::GRACE_DEFAULT;
use crate::container::nested::attached::SessionStreams;
use crate::launcher::{
    ContainerEnd, ContainerProgram, LaunchError, LaunchRequest, LauncherEvent, Session,
};
use crate::sandbox;

/// Maximum ends that are remembered.
const ENDED_MAX: usize = 1000;

/// Starts a container.
#[derive(Message)]
#[rtype(result = "Result<Launched, String>")]
pub(crate) struct LaunchNested(pub(crate) NestedLaunch);

/// The outcome of a launch.
pub(crate) enum Launched {
    /// It runs. A session has streams.
    Started(Option<SessionStreams>),
    /// There is a living one with this id.
    Known,
}

/// Waits for the end of a container: its status as from `wait`, if it ran. Fails if there is none.
#[derive(Message)]
#[rtype(result = "Result<Option<i32>, Unknown>")]
pub(crate) struct WaitNested(pub(crate) ContainerId);

/// There is no such container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unknown;

/// Sends a signal to a container. Fails if there is none that lives.
#[derive(Message)]
#[rtype(result = "Result<(), Unknown>")]
pub(crate) struct KillNested(pub(crate) ContainerId, pub(crate) i32);

/// Forgets an ended container.
#[derive(Message)]
#[rtype(result = "Result<(), String>")]
pub(crate) struct RemoveNested(pub(crate) ContainerId);

/// The containers on request.
#[derive(Default)]
pub(in crate::container) struct Requested {
    all: BTreeMap<ContainerId, RequestedContainer>,
    /// How many have ended.
    ends: u64,
}

impl Requested {
    /// The living ones, with their session leaders once they run.
    pub(in crate::container) fn living(&self) -> impl Iterator<Item = (&ContainerId, Option<i32>)> {
        let living = self.all.iter().filter(|(_, one)| one.lives());
        living.map(|(id, one)| (id, one.leader()))
    }

    fn lives(&self, id: &ContainerId) -> bool {
        self.all.get(id).is_some_and(RequestedContainer::lives)
    }

    /// Whether a living one has a terminal.
    pub(super) fn has_terminal(&self, id: &ContainerId) -> Option<bool> {
        let requested = self.all.get(id).filter(|one| one.lives());
        requested.map(|one| one.has_terminal)
    }

    /// One could not be started. Whether it was one.
    fn not_started(&mut self, id: &ContainerId, reason: &str) -> bool {
        let Some(mut requested) = self.all.remove(id) else {
            return false;
        };
        requested.ended(None, self.ends, reason);
        true
    }

    /// One has ended with all others.
    fn lost(&mut self, id: &ContainerId, reason: &str) {
        let requested = self.all.get_mut(id);
        if !requested.is_some_and(RequestedContainer::kill_unprepared) {
            self.ended(id, None, reason);
        }
    }

    /// One has ended. Beyond the bound, the oldest end is forgotten. Whether it was one.
    fn ended(&mut self, id: &ContainerId, status: Option<i32>, reason: &str) -> bool {
        let Some(requested) = self.all.get_mut(id) else {
            return false;
        };
        self.ends += 1;
        requested.ended(status, self.ends, reason);
        let ended = || {
            self.all.iter().filter_map(|(id, one)| match one.state {
                State::Ended(_, place) => Some((place, id)),
                _ => None,
            })
        };
        if ended().count() > ENDED_MAX {
            let oldest = ended().min().map(|(_, id)| id.clone());
            if let Some(oldest) = oldest {
                self.all.remove(&oldest);
            }
        }
        true
    }
}

/// A container on request.
struct RequestedContainer {
    has_terminal: bool,
    preparation: Preparation,
    state: State,
    waiting: Vec<Promise<Result<Option<i32>, Unknown>>>,
}

/// The making of its sandbox.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Preparation {
    Runs,
    /// It was killed meanwhile, and ends instead of its start.
    Killed,
    Done,
}

enum State {
    Starting(Promise<Result<Launched, String>>, Option<SessionStreams>),
    /// With its session leader.
    Running(i32),
    /// With its status, and its place in the order of all ends.
    Ended(Option<i32>, u64),
}

impl RequestedContainer {
    fn lives(&self) -> bool {
        !matches!(self.state, State::Ended(..))
    }

    /// Its session leader, while it runs.
    fn leader(&self) -> Option<i32> {
        match self.state {
            State::Running(leader) => Some(leader),
            _ => None,
        }
    }

    /// Kills it while its sandbox is being made. Whether it is.
    fn kill_unprepared(&mut self) -> bool {
        let is_preparing = self.preparation != Preparation::Done;
        if is_preparing {
            self.preparation = Preparation::Killed;
        }
        is_preparing
    }

    fn ended(&mut self, status: Option<i32>, place: u64, reason: &str) {
        let before = std::mem::replace(&mut self.state, State::Ended(status, place));
        if let State::Starting(caller, _) = before {
            caller.answer(Err(reason.to_owned()));
        }
        for waiting in self.waiting.drain(..) {
            waiting.answer(Ok(status));
        }
    }
}

/// The executor of a parent, and its user.
struct Parent {
    framework_id: FrameworkId,
    executor_id: protocol::ExecutorId,
    /// The user of its task, or of its framework.
    user: Option<String>,
}

impl Containerizer {
    /// Checks that this container runs, and finds its executor.
    fn parent_of_request(&self, id: &ContainerId) -> Result<Parent, String> {
        let unknown = || format!("Parent container {id} does not exist");
        let outermost = id.outermost();
        let (framework_id, outer) = self.containers.entry(&outermost).ok_or_else(unknown)?;
        let runs = match self.containers.get(id) {
            Some(container) => {
                !matches!(container.phase, Phase::Terminated) && container.leader.is_some()
            }
            None => {
                let requested = self.requested.all.get(id).ok_or_else(unknown)?;
                requested.leader().is_some()
            }
        };
        match runs {
            true => Ok(Parent {
                framework_id: framework_id.clone(),
                executor_id: outer.executor.executor_id.clone(),
                user: {
                    let own = self.containers.get(id).unwrap_or(outer);
                    let task = own.tasks().next().map(|task| &task.info);
                    let user = task.map(|task| task.user_in(&own.framework));
                    let user = user.unwrap_or(&own.framework.user);
                    Some(user.to_owned()).filter(|user| !user.is_empty())
                },
            }),
            false => Err(format!("Parent container {id} does not run")),
        }
    }

    /// Launches a container after its sandbox is made, unless a kill came before.
    fn sandbox_made(&mut self, request: LaunchRequest) {
        let id = request.container_id.clone();
        let Some(requested) = self.requested.all.get_mut(&id) else {
            return;
        };
        let made = Preparation::Done;
        if std::mem::replace(&mut requested.preparation, made) == Preparation::Killed {
            let reason = "Container destroyed during preparing";
            self.requested.ended(&id, None, reason);
            return;
        }
        let sent = self.launcher.launch(request);
        self.launch_sent(&id, sent);
    }

    fn launch_sent(&mut self, id: &ContainerId, sent: Result<(), LaunchError>) {
        if let Err(error) = sent {
            self.attached.ended(id);
            self.requested.not_started(id, &error.reason);
        }
    }

    /// Handles an event of a container on request. Whether it was one.
    pub(in crate::container) fn requested_event(&mut self, event: &LauncherEvent) -> bool {
        match event {
            LauncherEvent::Started { container_id, pid } => {
                let Some(requested) = self.requested.all.get_mut(container_id) else {
                    return false;
                };
                let started = std::mem::replace(&mut requested.state, State::Running(*pid));
                if let State::Starting(caller, streams) = started {
                    caller.answer(Ok(Launched::Started(streams)));
                }
                true
            }
            LauncherEvent::Failed {
                container_id,
                reason,
            } => self.requested.not_started(container_id, reason),
            LauncherEvent::Exited { container_id, end } => {
                let (status, reason) = match end {
                    ContainerEnd::Command { termination, .. }
                    | ContainerEnd::Leader(termination) => (Some(*termination), "it has ended"),
                    ContainerEnd::CommandNotStarted(reason) => (None, reason.as_str()),
                };
                let status = status.map(wait_status);
                self.requested.ended(container_id, status, reason)
            }
            LauncherEvent::Lost { reason } => {
                let living = self.requested.living().map(|(id, _)| id.clone());
                for id in living.collect::<Vec<_>>() {
                    self.requested.lost(&id, reason);
                }
                false
            }
            LauncherEvent::ProgramEnded { .. } => false,
        }
    }

    /// An outermost container is removed: so are those in it.
    pub(in crate::container) fn forget_requests_in(&mut self, id: &ContainerId) {
        self.requested.all.retain(|nested, _| !nested.is_inside(id));
    }
}

/// The status that `wait` returns.
fn wait_status(termination: Termination) -> i32 {
    match termination {
        Termination::Exited(code) => code << 8,
        Termination::Signaled(signal) => signal,
    }
}

impl Handler<LaunchNested> for Containerizer {
    type Result = Reply<Result<Launched, String>>;

    fn handle(
        &mut self,
        LaunchNested(launch): LaunchNested,
        ctx: &mut Context<Self>,
    ) -> Self::Result {
        let (promise, reply) = promise();
        let id = launch.container_id.clone();
        if self.requested.lives(&id) || self.containers.get(&id).is_some() {
            promise.answer(Ok(Launched::Known));
            return reply;
        }
        let settings = launch.container.unwrap_or_default();
        let has_terminal = settings.has_terminal;
        let plain = ContainerInfo {
            has_terminal,
            ..ContainerInfo::default()
        };
        let parent = match id.parent() {
            _ if settings != plain => Err(
                "container: expected no settings but `tty_info`, for a container without a task"
                    .to_owned(),
            ),
            None => Err("container_id.parent: expected the id of a container".to_owned()),
            Some(parent) => self.parent_of_request(&parent),
        };
        let parent = match parent {
            Ok(parent) => parent,
            Err(problem) => {
                promise.answer(Err(problem));
                return reply;
            }
        };
        let Some(command) = launch.command else {
            promise.answer(Err(
                "command: expected one, since it has no image".to_owned()
            ));
            return reply;
        };
        let runs = self.runs(&parent.framework_id, &parent.executor_id);
        let session = launch.is_session.then_some(Session { has_terminal });
        let mut request = request(&id, command, sandbox::path(&runs, &id), session);
        // A session without a user has that of its parent.
        let inherited = parent.user.filter(|_| session.is_none());
        let user = request.user.take().or(inherited);
        request.user = user.filter(|_| self.config.settings.switch_user);
        request.has_terminal = has_terminal && session.is_none();
        if session.is_some() {
            let (descriptors, streams) = match self.attached.connect(&id, has_terminal) {
                Ok(connected) => connected,
                Err(error) => {
                    promise.answer(Err(format!("cannot connect the session: {error}")));
                    return reply;
                }
            };
            let requested = RequestedContainer {
                has_terminal,
                preparation: Preparation::Done,
                state: State::Starting(promise, Some(streams)),
                waiting: Vec::new(),
            };
            self.requested.all.insert(id.clone(), requested);
            let sent = self.launcher.launch_session(request, descriptors);
            self.launch_sent(&id, sent);
            return reply;
        }
        let requested = RequestedContainer {
            has_terminal,
            preparation: Preparation::Runs,
            state: State::Starting(promise, None),
            waiting: Vec::new(),
        };
        self.requested.all.insert(id.clone(), requested);
        let (sandboxes, user) = (self.sandboxes.clone(), request.user.clone());
        let made = {
            let id = id.clone();
            let make = move || sandboxes.create_nested(&runs, &id, None, user.as_deref());
            ctx.node().blocking(make)
        };
        ctx.then(made, move |this, made, _| {
            let made = made.map_err(|interrupted| interrupted.to_string());
            match made.and_then(|made| made) {
                Ok(()) => this.sandbox_made(request),
                Err(problem) => {
                    this.requested.not_started(&id, &problem);
                }
            }
        });
        reply
    }
}

fn request(
    id: &ContainerId,
    command: CommandInfo,
    sandbox: PathBuf,
    session: Option<Session>,
) -> LaunchRequest {
    let own = (variable::SANDBOX.to_owned(), sandbox.display().to_string());
    LaunchRequest {
        container_id: id.clone(),
        user: command.user.clone(),
        program: ContainerProgram::Command(command),
        // A session has the environment of its parent.
        environment: match session {
            Some(_) => BTreeMap::new(),
            None => {
                let id = (variable::CONTAINER_ID.to_owned(), id.to_string());
                BTreeMap::from([own, id])
            }
        },
        sandbox,
        account: None,
        outlives: false,
        grace: GRACE_DEFAULT,
        plan: LaunchPlan::default(),
        session,
        has_terminal: false,
    }
}

impl Handler<WaitNested> for Containerizer {
    type Result = Reply<Result<Option<i32>, Unknown>>;

    fn handle(&mut self, WaitNested(id): WaitNested, _: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        match self.requested.all.get_mut(&id) {
            None => promise.answer(Err(Unknown)),
            Some(requested) => match &requested.state {
                State::Ended(status, _) => promise.answer(Ok(*status)),
                _ => {
                    // Their callers may have gone, and its end may be far away.
                    requested.waiting.retain(Promise::is_awaited);
                    requested.waiting.push(promise);
                }
            },
        }
        reply
    }
}

impl Handler<KillNested> for Containerizer {
    type Result = Result<(), Unknown>;

    fn handle(&mut self, kill: KillNested, _: &mut Context<Self>) -> Self::Result {
        let KillNested(id, signal) = kill;
        let requested = self.requested.all.get_mut(&id);
        let requested = requested.filter(|one| one.lives()).ok_or(Unknown)?;
        if requested.kill_unprepared() {
            return Ok(());
        }
        match signal {
            nix::libc::SIGKILL => self.launcher.kill(&id),
            _ => self.launcher.signal(&id, signal),
        }
        Ok(())
    }
}

impl Handler<RemoveNested> for Containerizer {
    type Result = Result<(), String>;

    fn handle(&mut self, RemoveNested(id): RemoveNested, _: &mut Context<Self>) -> Self::Result {
        if self.requested.lives(&id) || self.containers.get(&id).is_some() {
            return Err("Nested container has not terminated yet".to_owned());
        }
        if self.containers.get(&id.outermost()).is_none() {
            return Err("Unknown root container".to_owned());
        }
        // Its sandbox goes with that of its executor.
        self.requested.all.remove(&id);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: impl std::fmt::Display) -> ContainerId {
        ContainerId::new(format!("p.{name}")).unwrap()
    }

    #[test]
    fn oldest_end_is_forgotten_first() {
        let mut requested = Requested::default();
        let running = || RequestedContainer {
            has_terminal: false,
            preparation: Preparation::Done,
            state: State::Running(1),
            waiting: Vec::new(),
        };
        requested.all.insert(id("lives"), running());
        // The order of their ids is the opposite.
        for number in (0..=ENDED_MAX).rev() {
            requested.all.insert(id(number), running());
            requested.ended(&id(number), Some(0), "");
        }
        assert_eq!(requested.all.len(), ENDED_MAX + 1);
        assert!(requested.lives(&id("lives")));
        assert!(!requested.all.contains_key(&id(ENDED_MAX)));
        assert!(requested.all.contains_key(&id(0)));
        // Another one with a known id has an end of its own.
        requested.all.insert(id(ENDED_MAX - 1), running());
        requested.ended(&id(ENDED_MAX - 1), Some(0), "");
        requested.all.insert(id("next"), running());
        requested.ended(&id("next"), Some(0), "");
        assert!(requested.all.contains_key(&id(ENDED_MAX - 1)));
        assert!(!requested.all.contains_key(&id(ENDED_MAX - 2)));
    }
}
