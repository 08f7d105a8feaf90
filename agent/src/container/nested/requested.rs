//! Nested containers on request of the agent's API: sessions for `meros exec`, and containers of
//! custom executors.
//!
//! They run no task and end with their parent. Their ends are known until they are removed, or
//! their outermost container is. They do not outlive the agent.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use executor_driver::environment as variable;
use module_api::isolator::LaunchPlan;
use nix::fcntl::OFlag;
use protocol::{CommandInfo, ContainerId, FrameworkId, Termination};
use runtime::prelude::*;
use v1::convert::operator::nested::NestedLaunch;

use crate::container::Containerizer;
use crate::container::machine::Phase;
use crate::container::machine::command::GRACE_DEFAULT;
use crate::launcher::{ContainerEnd, ContainerProgram, LaunchRequest, LauncherEvent, Session};
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

/// The input of a session.
#[derive(Message)]
#[rtype(result = "Result<Arc<SessionInput>, NoInput>")]
pub(crate) struct InputOf(pub(crate) ContainerId);

/// Why there is no input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoInput {
    /// There is no such container.
    Unknown,
    /// It is no session.
    NotConnected,
}

/// The agent's ends of a session's streams.
pub(crate) struct SessionStreams {
    /// Its output; of a terminal, all of it.
    pub(crate) output: OwnedFd,
    /// Its error output, without a terminal.
    pub(crate) error: Option<OwnedFd>,
}

/// The agent's end of a session's input, which one caller at a time uses.
pub(crate) struct SessionInput {
    /// Whether it is a terminal.
    pub(crate) has_terminal: bool,
    end: Mutex<InputEnd>,
}

enum InputEnd {
    Free(OwnedFd),
    InUse,
    Closed,
}

/// Why the input cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InputRefused {
    /// Another caller uses it.
    InUse,
    /// It was closed.
    Closed,
}

impl SessionInput {
    /// Takes it; to be given back.
    pub(crate) fn take(&self) -> Result<OwnedFd, InputRefused> {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *end, InputEnd::InUse) {
            InputEnd::Free(descriptor) => Ok(descriptor),
            InputEnd::InUse => Err(InputRefused::InUse),
            InputEnd::Closed => {
                *end = InputEnd::Closed;
                Err(InputRefused::Closed)
            }
        }
    }

    /// Gives it back, or closes it.
    pub(crate) fn give_back(&self, descriptor: Option<OwnedFd>) {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        *end = descriptor.map_or(InputEnd::Closed, InputEnd::Free);
    }
}

/// The containers on request.
pub(in crate::container) type Requested = BTreeMap<ContainerId, RequestedContainer>;

/// A container on request.
pub(in crate::container) struct RequestedContainer {
    input: Option<Arc<SessionInput>>,
    state: State,
    waiting: Vec<Promise<Result<Option<i32>, Unknown>>>,
}

enum State {
    Starting(Promise<Result<Launched, String>>, Option<SessionStreams>),
    Running,
    Ended(Option<i32>),
}

impl RequestedContainer {
    fn lives(&self) -> bool {
        !matches!(self.state, State::Ended(_))
    }

    /// It has ended, or could not be started.
    fn ended(&mut self, status: Option<i32>, reason: &str) {
        if let State::Starting(caller, _) = std::mem::replace(&mut self.state, State::Ended(status))
        {
            caller.answer(Err(reason.to_owned()));
        }
        self.input = None;
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
                let requested = self.requested.get(id).ok_or_else(unknown)?;
                matches!(requested.state, State::Running)
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

    /// Launches a container; its sandbox, if it has one, exists.
    fn launch_requested(&mut self, request: LaunchRequest, descriptors: Vec<OwnedFd>) {
        let id = request.container_id.clone();
        let launched = match request.session {
            Some(_) => self.launcher.launch_session(request, descriptors),
            None => self.launcher.launch(request),
        };
        if let (Err(error), Some(requested)) = (launched, self.requested.get_mut(&id)) {
            requested.ended(None, &error.reason);
            self.requested.remove(&id);
        }
    }

    /// Handles an event of a container on request. Whether it was one.
    pub(in crate::container) fn requested_event(&mut self, event: &LauncherEvent) -> bool {
        match event {
            LauncherEvent::Started { container_id, .. } => {
                let Some(requested) = self.requested.get_mut(container_id) else {
                    return false;
                };
                let started = std::mem::replace(&mut requested.state, State::Running);
                if let State::Starting(caller, streams) = started {
                    caller.answer(Ok(Launched::Started(streams)));
                }
                true
            }
            LauncherEvent::Failed {
                container_id,
                reason,
            } => match self.requested.remove(container_id) {
                Some(mut requested) => {
                    requested.ended(None, reason);
                    true
                }
                None => false,
            },
            LauncherEvent::Exited { container_id, end } => {
                let Some(requested) = self.requested.get_mut(container_id) else {
                    return false;
                };
                let (status, reason) = match end {
                    ContainerEnd::Command { termination, .. }
                    | ContainerEnd::Leader(termination) => (Some(*termination), "it has ended"),
                    ContainerEnd::CommandNotStarted(reason) => (None, reason.as_str()),
                };
                requested.ended(status.map(wait_status), reason);
                self.forget_old_requests();
                true
            }
            LauncherEvent::Lost { reason } => {
                for requested in self.requested.values_mut().filter(|one| one.lives()) {
                    requested.ended(None, reason);
                }
                false
            }
            LauncherEvent::ProgramEnded { .. } => false,
        }
    }

    fn forget_old_requests(&mut self) {
        let ended = self.requested.iter().filter(|(_, one)| !one.lives());
        let ended: Vec<ContainerId> = ended.map(|(id, _)| id.clone()).collect();
        let surplus = ended.len().saturating_sub(ENDED_MAX);
        for id in &ended[..surplus] {
            self.requested.remove(id);
        }
    }

    /// An outermost container is removed: so are those in it.
    pub(in crate::container) fn forget_requests_in(&mut self, id: &ContainerId) {
        self.requested.retain(|nested, _| !nested.is_inside(id));
    }
}

/// The status that `wait` returns.
fn wait_status(termination: Termination) -> i32 {
    match termination {
        Termination::Exited(code) => code << 8,
        Termination::Signaled(signal) => signal,
    }
}

/// Makes the two ends of a session's streams: those of the container, and the agent's.
fn connect(has_terminal: bool) -> io::Result<(Vec<OwnedFd>, SessionInput, SessionStreams)> {
    let input = |end, has_terminal| SessionInput {
        has_terminal,
        end: Mutex::new(InputEnd::Free(end)),
    };
    if has_terminal {
        let terminal = nix::pty::openpty(None, None)?;
        let close = nix::fcntl::FdFlag::FD_CLOEXEC;
        for end in [&terminal.master, &terminal.slave] {
            nix::fcntl::fcntl(end, nix::fcntl::FcntlArg::F_SETFD(close))?;
        }
        let streams = SessionStreams {
            output: terminal.master.try_clone()?,
            error: None,
        };
        return Ok((vec![terminal.slave], input(terminal.master, true), streams));
    }
    let pipe = || nix::unistd::pipe2(OFlag::O_CLOEXEC);
    let ((their_input, our_input), (our_output, their_output), (our_error, their_error)) =
        (pipe()?, pipe()?, pipe()?);
    let streams = SessionStreams {
        output: our_output,
        error: Some(our_error),
    };
    let theirs = vec![their_input, their_output, their_error];
    Ok((theirs, input(our_input, false), streams))
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
        let is_known = self
            .requested
            .get(&id)
            .is_some_and(RequestedContainer::lives);
        if is_known || self.containers.get(&id).is_some() {
            promise.answer(Ok(Launched::Known));
            return reply;
        }
        let settings = launch.container.as_ref();
        let has_settings = settings.is_some_and(|settings| *settings != Default::default());
        let parent = match id.parent() {
            _ if has_settings => Err(
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
        let has_terminal = launch.has_terminal;
        let session = launch.is_session.then_some(Session { has_terminal });
        let mut request = request(&id, command, sandbox::path(&runs, &id), session);
        // A session without a user has that of its parent.
        let inherited = parent.user.filter(|_| session.is_none());
        let user = request.user.take().or(inherited);
        request.user = user.filter(|_| self.config.settings.switch_user);
        let mut requested = RequestedContainer {
            input: None,
            state: State::Starting(promise, None),
            waiting: Vec::new(),
        };
        if session.is_some() {
            let descriptors = match connect(has_terminal) {
                Ok((theirs, input, streams)) => {
                    requested.input = Some(Arc::new(input));
                    if let State::Starting(_, ours) = &mut requested.state {
                        *ours = Some(streams);
                    }
                    theirs
                }
                Err(error) => {
                    requested.ended(None, &format!("cannot connect the session: {error}"));
                    return reply;
                }
            };
            self.requested.insert(id, requested);
            self.launch_requested(request, descriptors);
            return reply;
        }
        self.requested.insert(id.clone(), requested);
        let (sandboxes, user) = (self.sandboxes.clone(), request.user.clone());
        let made = {
            let id = id.clone();
            let make = move || sandboxes.create_nested(&runs, &id, None, user.as_deref());
            ctx.node().blocking(make)
        };
        ctx.then(made, move |this, made, _| {
            let made = made.map_err(|interrupted| interrupted.to_string());
            match made.and_then(|made| made) {
                Ok(()) => this.launch_requested(request, Vec::new()),
                Err(problem) => {
                    if let Some(mut requested) = this.requested.remove(&id) {
                        requested.ended(None, &problem);
                    }
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
    }
}

impl Handler<WaitNested> for Containerizer {
    type Result = Reply<Result<Option<i32>, Unknown>>;

    fn handle(&mut self, WaitNested(id): WaitNested, _: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        match self.requested.get_mut(&id) {
            None => promise.answer(Err(Unknown)),
            Some(requested) => match &requested.state {
                State::Ended(status) => promise.answer(Ok(*status)),
                _ => requested.waiting.push(promise),
            },
        }
        reply
    }
}

impl Handler<KillNested> for Containerizer {
    type Result = Result<(), Unknown>;

    fn handle(&mut self, kill: KillNested, _: &mut Context<Self>) -> Self::Result {
        let KillNested(id, signal) = kill;
        let requested = self.requested.get(&id).filter(|one| one.lives());
        requested.ok_or(Unknown)?;
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
        let lives = self
            .requested
            .get(&id)
            .is_some_and(RequestedContainer::lives);
        if lives || self.containers.get(&id).is_some() {
            return Err("Nested container has not terminated yet".to_owned());
        }
        if self.containers.get(&id.outermost()).is_none() {
            return Err("Unknown root container".to_owned());
        }
        // Its sandbox goes with that of its executor.
        self.requested.remove(&id);
        Ok(())
    }
}

impl Handler<InputOf> for Containerizer {
    type Result = Result<Arc<SessionInput>, NoInput>;

    fn handle(&mut self, InputOf(id): InputOf, _: &mut Context<Self>) -> Self::Result {
        match self.requested.get(&id) {
            Some(requested) => requested.input.clone().ok_or(NoInput::NotConnected),
            None if self.containers.get(&id).is_some() => Err(NoInput::NotConnected),
            None => Err(NoInput::Unknown),
        }
    }
}
