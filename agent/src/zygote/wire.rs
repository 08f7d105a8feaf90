//! What an agent and its zygote say to each other: JSON behind a length, over a pair of connected sockets.
//!
//! Pure: turns messages into bytes and back. The zygote answers every `Launch` with `Started` or `Failed`, and every
//! `Started` is followed by one `Exited`. An agent may be followed by another, be it of another version: what is in here changes
//! only together with [`FORM`].

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use protocol::{CommandInfo, ContainerId, Termination};
use serde::{Deserialize, Serialize};

/// The longest message, in bytes: a task's command and environment fit many times.
pub const LENGTH_MAX: usize = 8 * 1024 * 1024;

/// The form of these messages. A zygote outlives its agent, so the two may be of different versions.
pub const FORM: u32 = 1;

/// Where a zygote hears the next agent, in the work directory.
pub const SOCKET: &str = "launcher.sock";

/// What runs the tasks of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecutorProgram {
    /// Our own command executor, which runs one task's command.
    Command,
    /// The framework's own.
    Custom(CommandInfo),
}

/// An executor to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchRequest {
    /// The container it is the first process of.
    pub container_id: ContainerId,
    /// What to start.
    pub program: ExecutorProgram,
    /// Its directory, which exists; `stdout` and `stderr` in it are appended to.
    pub sandbox: PathBuf,
    /// Variables that the agent sets for it.
    pub environment: BTreeMap<String, String>,
    /// The user it runs as, if another than the agent's; for a command executor, the user of its task.
    pub user: Option<String>,
    /// Whether it lives on when its agent ends, until the next one comes.
    pub outlives: bool,
}

/// A container that an earlier agent has left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Which.
    pub container_id: ContainerId,
    /// Its first process; `None` if it has ended, which is told next.
    pub pid: Option<i32>,
}

/// What an agent wants of its zygote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Comes first: end what an earlier agent left behind in this work directory, then be ready.
    Serve {
        /// The agent's work directory.
        work_dir: PathBuf,
        /// How long what outlives the agent may be without one.
        patience: Duration,
    },
    /// Comes first from an agent that follows another: go on for me.
    Resume {
        /// The form in which the new agent speaks, [`FORM`].
        form: u32,
        /// How long what outlives the agent may be without one.
        patience: Duration,
    },
    /// Nothing outlives this agent: it leaves for good.
    KeepNothing,
    /// Start an executor.
    Launch(Box<LaunchRequest>),
    /// Kill all processes of a container.
    Kill {
        /// Which.
        container_id: ContainerId,
    },
}

/// What a zygote tells its agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// It can launch; nothing of an earlier agent runs any more.
    Ready,
    /// It goes on for the new agent; this is what it has, and what has ended meanwhile is told next.
    Resumed {
        /// Containers of the earlier agent.
        left: Vec<Left>,
    },
    /// It cannot do what comes first: work in this directory (then it ends), or understand this agent.
    Unable {
        /// Why.
        reason: String,
    },
    /// The executor runs.
    Started {
        /// In which container.
        container_id: ContainerId,
        /// Its process, which leads the container's session.
        pid: i32,
    },
    /// The executor could not be started; there is no process of it.
    Failed {
        /// In which container.
        container_id: ContainerId,
        /// The step and the system's answer.
        reason: String,
    },
    /// The executor has ended, and nothing it started is left.
    Exited {
        /// In which container.
        container_id: ContainerId,
        /// How.
        termination: Termination,
    },
}

/// Bytes that are no message.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The length is beyond [`LENGTH_MAX`].
    #[error("a message of {length} bytes, expected at most {LENGTH_MAX}")]
    TooLong {
        /// As announced.
        length: usize,
    },
    /// The body is not what was expected.
    #[error("a message that is not understood: {0}")]
    Garbled(#[from] serde_json::Error),
}

/// The message as bytes, with its length in front.
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

/// Takes the first whole message off the front of `bytes`; `None` while it is not whole.
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
    fn messages_cross_in_pieces_and_in_order() {
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

    /// The next agent may be of another version than this zygote: this much it must always be able to say.
    #[test]
    fn the_first_words_of_a_following_agent_stay_as_they_are() {
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
