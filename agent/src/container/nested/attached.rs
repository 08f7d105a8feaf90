//! Input and output of containers to which callers of the agent's API attach: of sessions, and of
//! containers with a terminal.
//!
//! The agent holds the streams of a session. A terminal is held by the init of its container, which
//! hands it out also after a restart of the agent: the calls get it from there, and only its input,
//! which one caller at a time uses, is kept here.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::fcntl::OFlag;
use protocol::ContainerId;
use runtime::prelude::*;
use tokio::sync::watch;

use crate::container::Containerizer;
use crate::container::machine::Phase;
use crate::host::readers::Readers;
use crate::host::sys;

/// The input of a container.
#[derive(Message)]
#[rtype(result = "Result<Option<AttachedInput>, NotAttached>")]
pub(crate) struct InputOf(pub(crate) ContainerId);

/// Keeps the input of a container with a terminal, unless there is one already.
#[derive(Message)]
#[rtype(result = "Result<AttachedInput, NotAttached>")]
pub(crate) struct KeepInput(pub(crate) ContainerId, pub(crate) OwnedFd);

/// The output of a container, from now on.
#[derive(Message)]
#[rtype(result = "Result<AttachedOutput, NotAttached>")]
pub(crate) struct OutputOf(pub(crate) ContainerId);

/// An input.
#[derive(Clone)]
pub(crate) struct AttachedInput {
    /// The agent's end.
    pub(crate) input: Arc<ContainerInput>,
    /// Closed when the container ends.
    pub(crate) container: watch::Receiver<()>,
}

/// Sockets with output.
pub(crate) enum AttachedOutput {
    /// The output and the error output of a session; of a terminal only the former.
    Session(OwnedFd, Option<OwnedFd>),
    /// Perhaps of a terminal. Its init sends a byte with the terminal first, or closes it if there
    /// is none.
    Terminal(OwnedFd),
}

/// Why there is no input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotAttached {
    /// The outermost container is not here.
    NotFound,
    /// This container does not live.
    Unknown,
    /// It is neither a session nor has a terminal.
    Disabled,
    /// The system error.
    Failed(String),
}

impl From<io::Error> for NotAttached {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// The agent's ends of a session's streams.
pub(crate) struct SessionStreams {
    /// Its output; of a terminal, all of it.
    pub(crate) output: OwnedFd,
    /// Its error output, without a terminal.
    pub(crate) error: Option<OwnedFd>,
    /// Those that have attached to it.
    pub(crate) readers: Arc<SessionReaders>,
}

/// Further readers of a session's output.
#[derive(Default)]
pub(crate) struct SessionReaders {
    output: Mutex<Readers>,
    error: Mutex<Readers>,
}

impl SessionReaders {
    /// Those of the output, or of the error output.
    pub(crate) fn of(&self, is_error: bool) -> MutexGuard<'_, Readers> {
        let readers = match is_error {
            true => &self.error,
            false => &self.output,
        };
        readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The agent's end of a container's input, which one caller at a time uses.
pub(crate) struct ContainerInput {
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

impl ContainerInput {
    fn new(end: OwnedFd, has_terminal: bool) -> Self {
        let end = Mutex::new(InputEnd::Free(end));
        Self { has_terminal, end }
    }

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

/// The inputs, and the further readers of sessions.
#[derive(Default)]
pub(in crate::container) struct Attached(BTreeMap<ContainerId, Streams>);

struct Streams {
    input: AttachedInput,
    /// `None` for a terminal that its init holds.
    readers: Option<Arc<SessionReaders>>,
    /// Closes [`AttachedInput::container`].
    _lives: watch::Sender<()>,
}

impl Attached {
    /// Connects a session. Returns the container's ends of its streams, and the agent's.
    pub(super) fn connect(
        &mut self,
        id: &ContainerId,
        has_terminal: bool,
    ) -> io::Result<(Vec<OwnedFd>, SessionStreams)> {
        let (theirs, input, streams) = connect(has_terminal)?;
        self.add(id, input, Some(streams.readers.clone()));
        Ok((theirs, streams))
    }

    fn add(
        &mut self,
        id: &ContainerId,
        input: ContainerInput,
        readers: Option<Arc<SessionReaders>>,
    ) -> AttachedInput {
        let (lives, container) = watch::channel(());
        let input = AttachedInput {
            input: Arc::new(input),
            container,
        };
        let streams = Streams {
            input: input.clone(),
            readers,
            _lives: lives,
        };
        self.0.insert(id.clone(), streams);
        input
    }

    /// A container has ended.
    pub(in crate::container) fn ended(&mut self, id: &ContainerId) {
        self.0.remove(id);
    }

    /// All containers have ended.
    pub(in crate::container) fn all_ended(&mut self) {
        self.0.clear();
    }
}

/// Makes the two ends of a session's streams: those of the container, and the agent's.
fn connect(has_terminal: bool) -> io::Result<(Vec<OwnedFd>, ContainerInput, SessionStreams)> {
    let readers = Arc::default();
    if has_terminal {
        let terminal = sys::open_terminal()?;
        let streams = SessionStreams {
            output: terminal.master.try_clone()?,
            error: None,
            readers,
        };
        let input = ContainerInput::new(terminal.master, true);
        return Ok((vec![terminal.slave], input, streams));
    }
    let pipe = || nix::unistd::pipe2(OFlag::O_CLOEXEC);
    let ((their_input, our_input), (our_output, their_output), (our_error, their_error)) =
        (pipe()?, pipe()?, pipe()?);
    let streams = SessionStreams {
        output: our_output,
        error: Some(our_error),
        readers,
    };
    let theirs = vec![their_input, their_output, their_error];
    Ok((theirs, ContainerInput::new(our_input, false), streams))
}

impl Containerizer {
    /// Checks that a container lives and has a terminal, or is a session. Returns its streams, as
    /// far as they are here.
    fn streams_of(&self, id: &ContainerId) -> Result<Option<&Streams>, NotAttached> {
        if self.containers.get(&id.outermost()).is_none() {
            return Err(NotAttached::NotFound);
        }
        let of_task = self.containers.get(id);
        let of_task = of_task.filter(|one| one.phase != Phase::Terminated);
        let has_terminal = match of_task {
            Some(container) => container.executor.has_terminal(),
            None => self
                .requested
                .has_terminal(id)
                .ok_or(NotAttached::Unknown)?,
        };
        match self.attached.0.get(id) {
            None if !has_terminal => Err(NotAttached::Disabled),
            streams => Ok(streams),
        }
    }
}

impl Handler<InputOf> for Containerizer {
    type Result = Result<Option<AttachedInput>, NotAttached>;

    fn handle(&mut self, InputOf(id): InputOf, _: &mut Context<Self>) -> Self::Result {
        let streams = self.streams_of(&id)?;
        Ok(streams.map(|one| one.input.clone()))
    }
}

impl Handler<KeepInput> for Containerizer {
    type Result = Result<AttachedInput, NotAttached>;

    fn handle(&mut self, KeepInput(id, end): KeepInput, _: &mut Context<Self>) -> Self::Result {
        Ok(match self.streams_of(&id)? {
            Some(known) => known.input.clone(),
            None => {
                let input = ContainerInput::new(end, true);
                self.attached.add(&id, input, None)
            }
        })
    }
}

impl Handler<OutputOf> for Containerizer {
    type Result = Result<AttachedOutput, NotAttached>;

    fn handle(&mut self, OutputOf(id): OutputOf, _: &mut Context<Self>) -> Self::Result {
        let streams = self.streams_of(&id)?;
        let Some((input, readers)) =
            streams.and_then(|one| Some((&one.input, one.readers.as_ref()?)))
        else {
            let (writer, reader) = Readers::connect()?;
            self.launcher.attach_reader(&id, writer);
            return Ok(AttachedOutput::Terminal(reader));
        };
        let add = |is_error| -> io::Result<OwnedFd> {
            let (writer, reader) = Readers::connect()?;
            readers.of(is_error).add(writer);
            Ok(reader)
        };
        let error = (!input.input.has_terminal).then(|| add(true)).transpose()?;
        Ok(AttachedOutput::Session(add(false)?, error))
    }
}
