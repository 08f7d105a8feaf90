//! Protocol between an agent and its zygote: length-prefixed JSON over a socket.
//!
//! Pure. Each `Launch` is answered by `Started`, `Failed` or `Exited`, and each `Started` is
//! followed by one `Exited`. The next agent may have another version, so any change here requires a
//! new [`FORM`].

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use module_api::isolator::LaunchPlan;
use protocol::{CommandInfo, ContainerId, Termination, Uuid};
use serde::{Deserialize, Serialize};

use crate::host::sys::Account;

/// Maximum message length in bytes, far above a task's command and environment.
pub const LENGTH_MAX: usize = 8 * 1024 * 1024;

/// Protocol version. A zygote outlives its agent, so the two may differ.
pub const FORM: u32 = 7;

/// Socket in the work directory where the next agent connects.
pub const SOCKET: &str = "launcher.sock";

/// What runs in a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerProgram {
    /// The command of a task.
    Command(CommandInfo),
    /// A custom executor.
    Executor(CommandInfo),
    /// None: it holds the containers of a task group until it is killed.
    Group,
}

/// A container to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchRequest {
    /// Its id. The init of its parent starts a nested one.
    pub container_id: ContainerId,
    /// The program.
    pub program: ContainerProgram,
    /// The working directory, which exists; `stdout` and `stderr` in it are appended to.
    pub sandbox: PathBuf,
    /// Environment variables set by the agent.
    pub environment: BTreeMap<String, String>,
    /// The user that it runs as, if not the agent's.
    pub user: Option<String>,
    /// Or the user of its image, which the host need not know.
    pub account: Option<Account>,
    /// Whether it is checkpointed and waits for the next agent.
    pub outlives: bool,
    /// How long it may take to stop after the end of its agent.
    pub grace: Duration,
    /// Its control groups, namespaces and the like. A nested one without control groups is in those
    /// of its parent.
    pub plan: LaunchPlan,
    /// What a session needs; `None` for other containers.
    pub session: Option<Session>,
    /// Whether its program has a terminal, which its init keeps. That of a session is another.
    pub has_terminal: bool,
}

/// A container that is nested in another to look at it. It is in its parent's sandbox, with its
/// environment, user and rights. Its standard input, output and error are descriptors that come
/// with the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Whether the descriptor is one terminal, otherwise there are three of pipes.
    pub has_terminal: bool,
}

impl Session {
    /// How many descriptors come with the request.
    pub fn descriptors(self) -> usize {
        if self.has_terminal { 1 } else { 3 }
    }
}

/// How a further program in a container ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProgramEnd {
    /// It ended; the processes of its group are gone.
    Ended(Termination),
    /// It could not be started.
    NotStarted(String),
}

/// How a container ended. None of its processes is left, unless the kernel cannot end one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerEnd {
    /// The command ended.
    Command {
        /// Exit status or signal of its main process.
        termination: Termination,
        /// Whether it was asked to stop before it ended.
        kill_wanted: bool,
    },
    /// The command could not be started, for example because its file does not exist.
    CommandNotStarted(String),
    /// The executor ended, or the container init without a report of the program's end.
    Leader(Termination),
}

/// A container of an earlier agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftContainer {
    /// The container.
    pub container_id: ContainerId,
    /// Its session leader; `None` if it is being started or has ended, which is reported later.
    pub pid: Option<i32>,
    /// The time since its start; zero if it has ended.
    pub age: Duration,
}

/// A request of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// The first request of a new agent: kill leftovers in this work directory, then report
    /// `Ready`.
    Serve {
        /// The agent's work directory.
        work_dir: PathBuf,
        /// How long checkpointed containers may run without an agent.
        patience: Duration,
    },
    /// The first request of a recovering agent: continue for it.
    Resume {
        /// The agent's protocol version, [`FORM`].
        form: u32,
        /// How long checkpointed containers may run without an agent.
        patience: Duration,
    },
    /// The agent leaves for good: treat no container as checkpointed.
    KeepNothing,
    /// Start a container.
    Launch(Box<LaunchRequest>),
    /// Send SIGTERM to all processes of a command, and SIGKILL to those that remain. A repeated
    /// request can only shorten the time.
    Terminate {
        /// The container.
        container_id: ContainerId,
        /// The time between the two signals.
        grace: Duration,
    },
    /// The agent has stored the end of a checkpointed container: report it no more.
    Forget {
        /// The container.
        container_id: ContainerId,
    },
    /// Kill all processes of a container.
    Kill {
        /// The container.
        container_id: ContainerId,
    },
    /// Send a signal to the program of a nested container.
    Signal {
        /// The container.
        container_id: ContainerId,
        /// Its number.
        signal: i32,
    },
    /// Attach a reader: the socket that comes with the request. The first byte comes with the
    /// terminal of the container, then follows its output. Closed at once if there is none.
    Attach {
        /// The container.
        container_id: ContainerId,
    },
    /// Start a further program in a container, as its user and with its environment. Its output is
    /// appended to `stderr`. `ProgramEnded` follows, unless the container ends. It does not outlive
    /// the agent.
    RunProgram {
        /// The container.
        container_id: ContainerId,
        /// Unique among all programs.
        program: Uuid,
        /// The program.
        command: CommandInfo,
    },
    /// Kill a further program.
    KillProgram {
        /// The container.
        container_id: ContainerId,
        /// The program.
        program: Uuid,
    },
}

/// A report of a zygote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// Ready to launch; no process of an earlier agent runs.
    Ready,
    /// Continues for the new agent. Ends that no agent has stored follow.
    Resumed {
        /// Containers of the earlier agent.
        left: Vec<LeftContainer>,
    },
    /// The first request failed: the work directory cannot be used (then the zygote ends), or the
    /// version differs.
    Unable {
        /// The reason.
        reason: String,
    },
    /// The executor was started, or the command.
    Started {
        /// Its container.
        container_id: ContainerId,
        /// The process that leads the container's session.
        pid: i32,
    },
    /// The container could not be started.
    Failed {
        /// The container.
        container_id: ContainerId,
        /// The failed step and the system error.
        reason: String,
    },
    /// The container has ended.
    Exited {
        /// The container.
        container_id: ContainerId,
        /// How.
        end: ContainerEnd,
    },
    /// A further program has ended.
    ProgramEnded {
        /// The container.
        container_id: ContainerId,
        /// The program.
        program: Uuid,
        /// How.
        end: ProgramEnd,
    },
}

/// A request of the zygote to a container init: one JSON object in one datagram.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InitRequest {
    /// The container of that init; its parents' inits pass the request on.
    pub to: ContainerId,
    /// What to do.
    pub order: InitOrder,
}

/// What a container init is asked to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InitOrder {
    /// Start a nested container.
    Launch(Box<LaunchRequest>),
    /// End this nested container: SIGTERM to all processes of a command. Others get it as a signal.
    Terminate,
    /// Kill all processes of this nested container. Others get it as a signal.
    KillContainer,
    /// Send this signal to the program.
    Signal(i32),
    /// Attach a reader to its terminal.
    Attach,
    /// Start a further program.
    Run {
        /// Its id.
        program: Uuid,
        /// The program.
        command: CommandInfo,
    },
    /// Kill a further program.
    Kill(Uuid),
    /// Kill all further programs.
    KillAll,
}

/// A report of a container init to its zygote: one JSON object in one datagram.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InitReport {
    /// The container.
    pub container_id: ContainerId,
    /// The event.
    pub event: InitEvent,
}

/// An event of a container init.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InitEvent {
    /// The program was started.
    Started,
    /// The container could not be isolated; the init ends. The failed step and the system error.
    NotIsolated(String),
    /// The program could not be started; the init ends. The failed step and the system error.
    NotStarted(String),
    /// The program has ended; the init ends.
    Ended {
        /// Exit status or signal of its main process.
        termination: Termination,
        /// Whether it was asked to stop before it ended.
        kill_wanted: bool,
        /// Whether all processes that it started have ended too.
        is_clean: bool,
    },
    /// The init of a nested container has ended. Reported by the init of its parent.
    Gone(Termination),
    /// A further program has ended.
    ProgramEnded {
        /// Its id.
        program: Uuid,
        /// How.
        end: ProgramEnd,
    },
}

/// An invalid message.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// Longer than [`LENGTH_MAX`].
    #[error("message of {length} bytes: expected at most {LENGTH_MAX}")]
    TooLong {
        /// The announced length.
        length: usize,
    },
    /// The body cannot be decoded.
    #[error("invalid message: {0}")]
    Garbled(#[from] serde_json::Error),
}

/// Encodes a message with its length prefix.
pub fn encode<M: Serialize>(message: &M) -> Result<Vec<u8>, WireError> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = bytes.len() - 4;
    match u32::try_from(length) {
        Ok(prefix) if length <= LENGTH_MAX => bytes[..4].copy_from_slice(&prefix.to_le_bytes()),
        _ => return Err(WireError::TooLong { length }),
    }
    Ok(bytes)
}

/// Removes the first complete message from `bytes`; `None` if it is incomplete.
pub fn decode<M: for<'de> Deserialize<'de>>(bytes: &mut Vec<u8>) -> Result<Option<M>, WireError> {
    let Some(prefix) = bytes.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_le_bytes(*prefix) as usize;
    if length > LENGTH_MAX {
        return Err(WireError::TooLong { length });
    }
    let Some(body) = bytes.get(4..4 + length) else {
        return Ok(None);
    };
    let message = serde_json::from_slice(body)?;
    bytes.drain(..4 + length);
    Ok(Some(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_decoded_from_pieces_in_order() {
        let first = Request::Serve {
            work_dir: "/w".into(),
            patience: Duration::from_secs(900),
        };
        let second = Request::Kill {
            container_id: ContainerId::new("c1").unwrap(),
        };
        let mut bytes = encode(&first).unwrap();
        bytes.extend(encode(&second).unwrap());
        let mut arrived = Vec::new();
        let mut read = Vec::new();
        for byte in bytes {
            arrived.push(byte);
            read.extend(decode::<Request>(&mut arrived).unwrap());
        }
        assert_eq!(read, [first, second]);
    }

    /// The next agent may have another version; these two messages must stay readable.
    #[test]
    fn handshake_encoding_is_stable() {
        let resume = Request::Resume {
            form: FORM,
            patience: Duration::from_secs(900),
        };
        let text = serde_json::to_string(&resume).unwrap();
        let expected = r#"{"Resume":{"form":7,"patience":{"secs":900,"nanos":0}}}"#;
        assert_eq!(text, expected);
        let unable = Report::Unable { reason: "r".into() };
        let text = serde_json::to_string(&unable).unwrap();
        assert_eq!(text, r#"{"Unable":{"reason":"r"}}"#);
    }

    #[test]
    fn garbage_and_overlong_messages_are_errors() {
        assert!(matches!(
            decode::<Request>(&mut vec![255; 8]),
            Err(WireError::TooLong { .. })
        ));
        assert!(matches!(
            decode::<Request>(&mut vec![1, 0, 0, 0, b'!']),
            Err(WireError::Garbled(_))
        ));
    }
}
