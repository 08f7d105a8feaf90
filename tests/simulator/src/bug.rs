//! A planted software fault, to prove that a checker finds it.
//!
//! Most are in messages; a [`ContainerBug`] is in an agent. The former sees every message before the network does, and may drop, repeat, replace or add one. A
//! forged message has the same sender and receiver. Forged messages are not changed again.

use runtime::{Node, Pid, Remote};

use crate::event::SeenMessage;

/// A planted fault of the software.
pub struct Bug {
    name: &'static str,
    tamper: Box<dyn FnMut(&SeenMessage<'_>) -> Tampering + Send>,
    of_containers: Option<ContainerBug>,
}

/// A fault of agents that no message between nodes shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerBug {
    /// Isolators never clean up.
    MissedCleanUp,
    /// Nested containers go on when their parent ends.
    SurvivingNested,
}

impl Bug {
    /// A bug with this effect on messages.
    pub fn new(
        name: &'static str,
        tamper: impl FnMut(&SeenMessage<'_>) -> Tampering + Send + 'static,
    ) -> Self {
        Self {
            name,
            tamper: Box::new(tamper),
            of_containers: None,
        }
    }

    /// A bug of agents, with no effect on messages.
    pub fn of_containers(name: &'static str, bug: ContainerBug) -> Self {
        Self {
            of_containers: Some(bug),
            ..Self::new(name, |_| Tampering::Pass)
        }
    }

    /// Whether it is this bug of agents.
    pub fn is(&self, bug: ContainerBug) -> bool {
        self.of_containers == Some(bug)
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Decides about this message.
    pub fn tamper(&mut self, observed: &SeenMessage<'_>) -> Tampering {
        (self.tamper)(observed)
    }
}

impl std::fmt::Debug for Bug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bug({})", self.name)
    }
}

/// The effect on a message. A reply can only be dropped or passed.
#[derive(Debug)]
pub enum Tampering {
    /// No effect.
    Pass,
    /// It is not sent.
    Drop,
    /// It is sent twice.
    Twice,
    /// Another message is sent in its place.
    Instead(Forged),
    /// Another message is sent after it.
    Also(Forged),
}

/// A forged message for the receiver of the original.
pub struct Forged(Saying);

/// Sends the forged message from this node to this actor.
type Saying = Box<dyn FnOnce(&Node, &Pid) + Send>;

impl Forged {
    /// A forged message.
    pub fn new<M: Remote>(message: M) -> Self {
        Self(Box::new(move |node, to| {
            // It may be lost like any other message.
            let _ = node.tell(to, message);
        }))
    }

    /// An action on the node in place of a message.
    pub fn act(act: impl FnOnce(&Node) + Send + 'static) -> Self {
        Self(Box::new(move |node, _| act(node)))
    }

    /// Sends it from the node to that actor.
    pub fn say(self, node: &Node, to: &Pid) {
        (self.0)(node, to);
    }
}

impl std::fmt::Debug for Forged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Forged")
    }
}
