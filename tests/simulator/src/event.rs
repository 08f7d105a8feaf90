//! Events: what is seen from outside while a cluster is rehearsed, one after the other in virtual time.
//!
//! They come from taps on every node (messages between nodes), from the machines (nodes and processes that start and end), from
//! around each master (its registry as it uses it, its member's log as the disk has it) and from the faults. A run's hash is taken over all of them. They never show an actor's inside.

use std::any::{Any, TypeId};
use std::time::Duration;

use consensus::log::{Loaded, Write};
use protocol::ContainerId;
use runtime::{Pid, Role};

use crate::linear::{RegistryAnswer, RegistryRequest};
use crate::scenario::Fault;

/// One thing that was seen.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// Virtual time since the start of the run.
    pub at: Duration,
    /// What it was.
    pub what: What<'a>,
}

/// What was seen.
#[derive(Clone, Copy, Debug)]
pub enum What<'a> {
    /// A node gave this message to the network. It may still be lost.
    Said(Spoken<'a>),
    /// A message from another node is about to be handled.
    Heard(Spoken<'a>),
    /// A node's process began.
    NodeStarted {
        /// Its name.
        node: &'a str,
        /// What it is.
        role: Role,
    },
    /// A node's process ended.
    NodeEnded {
        /// Its name.
        node: &'a str,
        /// Whether it had no time for farewells.
        crashed: bool,
    },
    /// A node's process ends by itself, though nobody has told it to; its end follows.
    NodeGaveUp {
        /// Its name.
        node: &'a str,
        /// What it is.
        role: Role,
        /// What it said.
        words: &'a str,
        /// Whether its disk has failed it in this life.
        disk_failed: bool,
    },
    /// An actor has panicked. It may be made anew.
    ActorFell {
        /// Its node.
        node: &'a str,
        /// Its name.
        actor: &'a str,
        /// What it said.
        words: &'a str,
    },
    /// A fault has ended the process of an agent, and not its machine; its end follows.
    AgentFell {
        /// Its name.
        agent: &'a str,
    },
    /// The process of a container runs.
    ProcessStarted {
        /// The agent's node.
        agent: &'a str,
        /// Which container.
        container: &'a ContainerId,
    },
    /// The process of a container is no more.
    ProcessEnded {
        /// The agent's node.
        agent: &'a str,
        /// Which container.
        container: &'a ContainerId,
    },
    /// A fault has killed the process of a container; its end follows.
    ExecutorKilled {
        /// The agent's node.
        agent: &'a str,
        /// Which container.
        container: &'a ContainerId,
    },
    /// An agent's machine has become busy with other work, or is so no more.
    MachineBusy {
        /// The agent's node.
        agent: &'a str,
        /// Whether it is now.
        busy: bool,
    },
    /// A master acts on this node from now on.
    MasterBegan {
        /// The node.
        node: &'a str,
    },
    /// The master on this node acts no more.
    MasterEnded {
        /// The node.
        node: &'a str,
    },
    /// The group's member on this node leads in this term, as it says.
    Elected {
        /// The node.
        node: &'a str,
        /// The term.
        term: u64,
    },
    /// A registry is asked.
    RegistryAsked {
        /// The node of the master, or of the member.
        node: &'a str,
        /// Who asks there.
        by: Asker,
        /// Which question it is, of all in the run.
        call: u64,
        /// For what.
        request: &'a RegistryRequest,
    },
    /// A registry has answered.
    RegistryAnswered {
        /// The node of the master, or of the member.
        node: &'a str,
        /// Which question.
        call: u64,
        /// With what; `None` is the promise that nothing was done. Where nobody knows there is no such event.
        answer: Option<&'a RegistryAnswer>,
    },
    /// A member of the group has found this in its log.
    LogRead {
        /// Its node.
        node: &'a str,
        /// All of it.
        loaded: &'a Loaded,
    },
    /// A member of the group has written this to its log, and it is synced.
    LogWritten {
        /// Its node.
        node: &'a str,
        /// What.
        write: &'a Write,
    },
    /// A node's disk is from now on what it was some time ago: what was written since then is forgotten.
    DiskPutBack {
        /// The node.
        node: &'a str,
    },
    /// What a member of the group holds now, having applied its log up to an index.
    Holds {
        /// Its node.
        node: &'a str,
        /// The index.
        index: u64,
        /// A digest of the content.
        digest: u64,
    },
    /// A fault begins.
    FaultBegan(&'a Fault),
    /// A fault is over.
    FaultEnded(&'a Fault),
    /// No further fault comes: from now on recovery is demanded.
    FaultsOver,
}

/// Who asks a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// The master that acts on the node.
    Master,
    /// Anybody else, of the member of the group on that node: what is answered, no master hears.
    Client,
}

/// A message between two nodes.
#[derive(Clone, Copy)]
pub struct Spoken<'a> {
    /// The node that says it.
    pub from: &'a str,
    /// The node that hears it.
    pub to: &'a str,
    /// The actor it is for; `None` for a reply.
    pub actor: Option<&'a Pid>,
    /// The message's stable name; a reply has the name of its question.
    pub name: &'static str,
    /// Whether this is the reply to that question.
    pub reply: bool,
    /// The message, or the reply's value.
    pub body: &'a dyn Any,
    /// The body's own type: every checker asks for a few.
    pub body_type: TypeId,
}

impl<'a> Spoken<'a> {
    /// The message, if it is of this type.
    pub fn is<M: 'static>(&self) -> Option<&'a M> {
        match self.body_type == TypeId::of::<M>() {
            true => self.body.downcast_ref(),
            false => None,
        }
    }
}

impl std::fmt::Debug for Spoken<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.reply { " (reply)" } else { "" };
        write!(f, "{} -> {}: {}{kind}", self.from, self.to, self.name)
    }
}
