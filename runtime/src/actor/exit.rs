//! Exits: how an actor ended, sent once to every actor that linked to it.

use actix::Message;

use crate::identity::Pid;

/// The actor with this pid has ended, or can no longer be reached. Delivered exactly once per link,
/// after the last message that was received from it.
#[derive(Message, Clone, Debug, PartialEq, Eq)]
#[rtype(result = "()")]
pub struct Exited {
    /// The pid as it was linked.
    pub pid: Pid,
    /// How it ended.
    pub reason: Exit,
}

/// How an actor ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exit {
    /// It stopped by itself or on request.
    #[error("stopped")]
    Stopped,
    /// A handler, timer or future of it panicked with this message.
    #[error("panicked: {0}")]
    Panicked(String),
    /// Its node died or the connection broke, for this reason; the actor itself may still live.
    #[error("node lost: {0}")]
    NodeLost(String),
    /// There was no such actor when the link was made.
    #[error("no such process")]
    NoProcess,
}

impl Exit {
    /// Whether its node's process has certainly ended, and the actor with it: the peer's machine
    /// refuses packets to its port.
    pub fn is_end_of_process(&self) -> bool {
        matches!(self, Self::NodeLost(why) if why == PROCESS_ENDED)
    }
}

/// The reason with which a transport closes a link whose peer's process has ended, as the peer's
/// machine reported.
pub const PROCESS_ENDED: &str = "the peer's port is closed: its process has ended";
