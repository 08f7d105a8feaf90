//! Events: everything observable in a simulated cluster, in the order of virtual time.
//!
//! They come from taps on every node (messages between nodes), from the machines (nodes and
//! processes that start and end), from around each master (its registry, and its member's log on
//! disk) and from the faults. A run's hash covers all of them. They never show an actor's inside.

use std::any::{Any, TypeId};
use std::collections::BTreeSet;
use std::time::Duration;

use consensus::log::{Loaded, Write};
use protocol::{ContainerId, FrameworkId, TaskId};
use runtime::{Pid, Role};

use crate::linear::{RegistryAnswer, RegistryRequest};
use crate::scenario::Fault;

/// One observed event.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// Virtual time since the start of the run.
    pub at: Duration,
    /// Its content.
    pub kind: EventKind<'a>,
}

/// A container with a command instead of an executor.
#[derive(Clone, Copy, Debug)]
pub struct CommandTask<'a> {
    /// The agent's node.
    pub agent: &'a str,
    /// The container.
    pub container: &'a ContainerId,
    /// The framework of its task.
    pub framework: &'a FrameworkId,
    /// Its task.
    pub task: &'a TaskId,
}

/// What an isolator did with a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsolationStep {
    /// It has prepared the container.
    Prepared,
    /// It was given other limits of the container.
    Updated,
    /// It has found a limit exceeded, and the agent is told.
    Limited,
    /// It has cleaned up after the container.
    CleanedUp,
}

/// The content of an event.
#[derive(Clone, Copy, Debug)]
pub enum EventKind<'a> {
    /// A node sent this message. It may still be lost.
    Sent(SeenMessage<'a>),
    /// A message from another node is about to be handled.
    Received(SeenMessage<'a>),
    /// A node's process started.
    NodeStarted {
        /// Its name.
        node: &'a str,
        /// Its role.
        role: Role,
    },
    /// A node's process ended.
    NodeEnded {
        /// Its name.
        node: &'a str,
        /// Whether it crashed, without a shutdown.
        crashed: bool,
    },
    /// A node's process exits by itself, without an order to stop; its end follows.
    NodeExited {
        /// Its name.
        node: &'a str,
        /// Its role.
        role: Role,
        /// Its message.
        words: &'a str,
        /// Whether its disk failed during this process' life.
        disk_failed: bool,
    },
    /// An actor has panicked. It may be restarted.
    ActorPanicked {
        /// Its node.
        node: &'a str,
        /// Its name.
        actor: &'a str,
        /// The panic's message.
        words: &'a str,
    },
    /// A fault has ended an agent's process but not its machine; its end follows.
    AgentCrashed {
        /// Its name.
        agent: &'a str,
    },
    /// A container's process started.
    ProcessStarted {
        /// The agent's node.
        agent: &'a str,
        /// The container.
        container: &'a ContainerId,
    },
    /// A container's command has outlived its agent's process, and the next one starts.
    CommandOutlived {
        /// The agent's node.
        agent: &'a str,
        /// The container.
        container: &'a ContainerId,
    },
    /// A container's command started.
    CommandStarted(CommandTask<'a>),
    /// A container's command ended, by itself or because it was asked to.
    CommandEnded(CommandTask<'a>),
    /// A container's process ended.
    ProcessEnded {
        /// The agent's node.
        agent: &'a str,
        /// The container.
        container: &'a ContainerId,
    },
    /// A fault has killed a container's process; its end follows.
    ExecutorKilled {
        /// The agent's node.
        agent: &'a str,
        /// The container.
        container: &'a ContainerId,
    },
    /// An isolator of an agent has handled a request about a container, or found its limit exceeded.
    Isolated {
        /// The agent's node.
        agent: &'a str,
        /// The isolator.
        isolator: &'a str,
        /// The container.
        container: &'a ContainerId,
        /// What it did.
        step: IsolationStep,
    },
    /// An isolator was told the containers that run since an earlier process of its agent, and has
    /// removed the remains of all others.
    IsolatorRecovered {
        /// The agent's node.
        agent: &'a str,
        /// The isolator.
        isolator: &'a str,
        /// The containers.
        containers: &'a BTreeSet<ContainerId>,
    },
    /// An agent's machine became busy with other work, or is no longer busy.
    MachineBusy {
        /// The agent's node.
        agent: &'a str,
        /// Whether it is busy now.
        busy: bool,
    },
    /// This node's master leads from now on.
    MasterBegan {
        /// The node.
        node: &'a str,
    },
    /// This node's master leads no more.
    MasterEnded {
        /// The node.
        node: &'a str,
    },
    /// The group's member on this node was elected in this term, by its own statement.
    Elected {
        /// The node.
        node: &'a str,
        /// The term.
        term: u64,
    },
    /// A registry request.
    RegistryRequested {
        /// The node of the master, or of the member.
        node: &'a str,
        /// The caller.
        by: RegistryCaller,
        /// The request's number in the run.
        call: u64,
        /// The request.
        request: &'a RegistryRequest,
    },
    /// A registry reply.
    RegistryAnswered {
        /// The node of the master, or of the member.
        node: &'a str,
        /// The request's number.
        call: u64,
        /// The answer; `None` guarantees that nothing was done. An unknown result has no such
        /// event.
        answer: Option<&'a RegistryAnswer>,
    },
    /// A member of the group has read its log.
    LogRead {
        /// Its node.
        node: &'a str,
        /// The whole log.
        loaded: &'a Loaded,
    },
    /// A member of the group has written to its log, and synced.
    LogWritten {
        /// Its node.
        node: &'a str,
        /// The write.
        write: &'a Write,
    },
    /// A node's disk was reset to an earlier copy; later writes are lost.
    DiskReset {
        /// The node.
        node: &'a str,
    },
    /// The state of a group member that has applied its log up to an index.
    MemberState {
        /// Its node.
        node: &'a str,
        /// The index.
        index: u64,
        /// A digest of the state.
        digest: u64,
    },
    /// A fault begins.
    FaultBegan(&'a Fault),
    /// A fault ends.
    FaultEnded(&'a Fault),
    /// No further fault follows: from now on recovery is required.
    FaultsOver,
}

/// The caller of a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistryCaller {
    /// The leading master on the node.
    Master,
    /// Another client of the group member on that node; no master receives the answer.
    Client,
}

/// A message between two nodes.
#[derive(Clone, Copy)]
pub struct SeenMessage<'a> {
    /// The sending node.
    pub from: &'a str,
    /// The receiving node.
    pub to: &'a str,
    /// The receiving actor; `None` for a reply.
    pub actor: Option<&'a Pid>,
    /// The message's stable name; a reply has its request's name.
    pub name: &'static str,
    /// Whether this is the reply to that request.
    pub reply: bool,
    /// The message, or the reply's value.
    pub body: &'a dyn Any,
    /// The body's type id, cached because every checker compares it.
    pub body_type: TypeId,
}

impl<'a> SeenMessage<'a> {
    /// The message, if it has this type.
    pub fn is<M: 'static>(&self) -> Option<&'a M> {
        match self.body_type == TypeId::of::<M>() {
            true => self.body.downcast_ref(),
            false => None,
        }
    }
}

impl std::fmt::Debug for SeenMessage<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.reply { " (reply)" } else { "" };
        write!(f, "{} -> {}: {}{kind}", self.from, self.to, self.name)
    }
}
