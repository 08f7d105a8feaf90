//! Protocol between an agent and its zygote: length-prefixed JSON over a socket.
//!
//! Pure. Each `Launch` is answered by `Started` or `Failed`, and each `Started` is followed by one
//! `Exited`. The next agent may have another version, so any change here requires a new [`FORM`].

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use protocol::{CommandInfo, ContainerId, Termination};
use serde::{Deserialize, Serialize};

/// Maximum message length in bytes, far above a task's command and environment.
pub const LENGTH_MAX: usize = 8 * 1024 * 1024;

/// Protocol version. A zygote outlives its agent, so the two may differ.
pub const FORM: u32 = 1;

/// Socket in the work directory where the next agent connects.
pub const SOCKET: &str = "launcher.sock";

/// The program of a container's executor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecutorProgram {
    /// The command executor, which runs one task's command.
    Command,
    /// A custom executor.
    Custom(CommandInfo),
}

/// An executor to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchRequest {
    /// The container that it leads.
    pub container_id: ContainerId,
    /// The program.
    pub program: ExecutorProgram,
    /// Its working directory, which exists; `stdout` and `stderr` in it are appended to.
    pub sandbox: PathBuf,
    /// Environment variables set by the agent.
    pub environment: BTreeMap<String, String>,
    /// The user it runs as, if not the agent's; for a command executor, the user of its task.
    pub user: Option<String>,
    /// Whether it is checkpointed and waits for the next agent.
    pub outlives: bool,
}

/// A container of an earlier agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftContainer {
    /// The container.
    pub container_id: ContainerId,
    /// Its session leader; `None` if it has ended, which is reported next.
    pub pid: Option<i32>,
}

/// A request of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// The first request of a new agent: kill leftovers in this work directory, then report
    /// `Ready`.
    Serve {
        /// The agent's work directory.
        work_dir: PathBuf,
        /// How long checkpointed executors may run without an agent.
        patience: Duration,
    },
    /// The first request of a recovering agent: continue for it.
    Resume {
        /// The agent's protocol version, [`FORM`].
        form: u32,
        /// How long checkpointed executors may run without an agent.
        patience: Duration,
    },
    /// The agent leaves for good: treat no executor as checkpointed.
    KeepNothing,
    /// Start an executor.
    Launch(Box<LaunchRequest>),
    /// Kill all processes of a container.
    Kill {
        /// The container.
        container_id: ContainerId,
    },
}

/// A report of a zygote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// Ready to launch; no process of an earlier agent runs.
    Ready,
    /// Continues for the new agent. Exits since the last agent follow.
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
    /// The executor was started.
    Started {
        /// Its container.
        container_id: ContainerId,
        /// Its process, which leads the container's session.
        pid: i32,
    },
    /// The executor could not be started.
    Failed {
        /// Its container.
        container_id: ContainerId,
        /// The failed step and the system error.
        reason: String,
    },
    /// The executor and all processes it started have ended.
    Exited {
        /// Its container.
        container_id: ContainerId,
        /// Its exit status or signal.
        termination: Termination,
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
        let expected = r#"{"Resume":{"form":1,"patience":{"secs":900,"nanos":0}}}"#;
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
