//! Bug: a fault of the software itself, planted from outside to prove that a checker would find it.
//!
//! It sees every message that a node gives to the network, before the network does, and may drop, repeat, replace or add one.
//! What it forges is said by the same node to the same actor. It never meddles with what it has forged itself.

use runtime::{Node, Pid, Remote};

use crate::event::Spoken;

/// A planted fault of the software.
pub struct Bug {
    name: &'static str,
    meddle: Box<dyn FnMut(&Spoken<'_>) -> Meddling + Send>,
}

impl Bug {
    /// A bug that does this with messages.
    pub fn new(
        name: &'static str,
        meddle: impl FnMut(&Spoken<'_>) -> Meddling + Send + 'static,
    ) -> Self {
        Self {
            name,
            meddle: Box::new(meddle),
        }
    }

    /// What it is called.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What becomes of this message.
    pub fn meddle(&mut self, spoken: &Spoken<'_>) -> Meddling {
        (self.meddle)(spoken)
    }
}

impl std::fmt::Debug for Bug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bug({})", self.name)
    }
}

/// What a bug does with a message. Replies can be dropped only; everything else lets them pass.
#[derive(Debug)]
pub enum Meddling {
    /// Nothing.
    Pass,
    /// It is never said.
    Drop,
    /// It is said twice.
    Twice,
    /// Another is said in its place.
    Instead(Forged),
    /// Another is said after it.
    Also(Forged),
}

/// A forged message for the actor that the original is for.
pub struct Forged(Saying);

/// Says the forged message, by this node to this actor.
type Saying = Box<dyn FnOnce(&Node, &Pid) + Send>;

impl Forged {
    /// A forged message.
    pub fn new<M: Remote>(message: M) -> Self {
        Self(Box::new(move |node, to| {
            // It is as lossy as any other message.
            let _ = node.tell(to, message);
        }))
    }

    /// Not a message, but something that happens on the node.
    pub fn act(act: impl FnOnce(&Node) + Send + 'static) -> Self {
        Self(Box::new(move |node, _| act(node)))
    }

    /// The node says it to that actor.
    pub fn say(self, node: &Node, to: &Pid) {
        (self.0)(node, to);
    }
}

impl std::fmt::Debug for Forged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Forged")
    }
}
