//! The tap on mailboxes: messages between actors of one node, those that came in over a link, and exits.
//!
//! A marked mailbox refuses the quick way, and whoever was refused comes here. What passes is delivered past the mark.

use std::any::{Any, TypeId};
use std::sync::Arc;

use actix::{Actor, Handler, Message};
use tokio::sync::oneshot;

use crate::context::Context;
use crate::exit::Exited;
use crate::handle::Incarnation;
use crate::link::Sender;
use crate::mailbox::Unwanted;
use crate::message::Remote;
use crate::node::Node;
use crate::registry::Entry;
use crate::supervise;
use crate::tap::post::{HELD_AT_LONGEST, Post, Slot};
use crate::tap::{Fate, Freight, Kind, Passing, Way, conduct, encode_any, slot_of};

/// Shows a message that came in an envelope of a courier, just before its actor handles it.
#[cold]
pub(crate) fn show_numbered<A, M>(ctx: &Context<A>, message: &M)
where
    A: Actor<Context = Context<A>>,
    M: Remote,
{
    let (node, sender) = (ctx.node(), ctx.sender());
    if !node.0.taps.sees(sender.is_some()) {
        return;
    }
    node.0.taps.fate(&Passing {
        at: node.clock().now(),
        node: node.id(),
        way: sender.map_or(Way::Local, |_| Way::Incoming),
        kind: Kind::Numbered,
        from: sender.and_then(|sender| sender.pid.as_ref()),
        to: Some(ctx.pid()),
        peer: sender.map(|sender| &sender.peer.node),
        name: M::NAME,
        body: message,
        encode: Some(encode_any::<M>),
    });
}

/// A message on its way into a mailbox, and where its reply goes if it is a question.
struct Inward<A: Actor, M: Message> {
    to: Incarnation<A>,
    entry: Option<Arc<Entry>>,
    post: Arc<Post>,
    message: M,
    origin: Option<Arc<Sender>>,
    asker: Option<oneshot::Sender<M::Result>>,
}

impl<A, M> Freight for Inward<A, M>
where
    A: Actor<Context = Context<A>> + Handler<M>,
    M: Message + Send + 'static,
    M::Result: Send,
{
    type Told = Result<(), (M, Unwanted)>;

    fn deliver(self) -> Self::Told {
        let Some(asker) = self.asker else {
            return self.to.tell_past_tap(self.message, self.origin);
        };
        let reply = self.to.ask_past_tap(self.message, self.origin)?;
        self.post.run(async move {
            if let Ok(reply) = reply.await {
                let _ = asker.send(reply); // The asker may have lost patience.
            }
            crate::clock::moved();
        });
        Ok(())
    }

    fn copy(&self, given: Option<Box<dyn Any + Send>>) -> Option<Self> {
        let copy = given.or_else(|| {
            let ears = &self.entry.as_ref()?.ears;
            ears.words(TypeId::of::<M>())?.1.copy(&self.message)
        })?;
        let message = *copy.downcast::<M>().ok()?;
        Some(Self {
            to: self.to.same(),
            entry: None,
            post: self.post.clone(),
            message,
            origin: self.origin.clone(),
            asker: None,
        })
    }

    fn lose(self, post: &Arc<Post>) {
        if let Some(asker) = self.asker {
            post.later(HELD_AT_LONGEST, move || drop(asker));
        }
    }
}

/// A mailbox that someone was about to put a message into.
struct Door<'a, A: Actor> {
    node: Node,
    entry: Option<Arc<Entry>>,
    to: &'a Incarnation<A>,
}

impl<'a, A: Actor<Context = Context<A>>> Door<'a, A> {
    /// `None` if nobody looks at what comes there from this sender.
    fn of(to: &'a Incarnation<A>, origin: Option<&Arc<Sender>>) -> Option<Self> {
        let node = to.node.upgrade()?;
        if !node.0.taps.sees(origin.is_some()) {
            return None;
        }
        let entry = node.registry().find_pid(&to.pid);
        Some(Self { node, entry, to })
    }

    fn show<M: 'static>(
        &self,
        kind: Kind,
        message: &M,
        origin: Option<&Arc<Sender>>,
    ) -> (Slot, Fate) {
        let words = self.entry.as_ref();
        let words = words.and_then(|entry| entry.ears.words(TypeId::of::<M>()));
        supervise::with_current(|current| {
            let passing = Passing {
                at: self.node.clock().now(),
                node: self.node.id(),
                way: match origin {
                    Some(_) => Way::Incoming,
                    None => Way::Local,
                },
                kind,
                from: match origin {
                    Some(sender) => sender.pid.as_ref(),
                    None => current,
                },
                to: Some(&self.to.pid),
                peer: origin.map(|sender| &sender.peer.node),
                name: words.map_or_else(std::any::type_name::<M>, |(name, _)| name),
                body: message,
                encode: words.and_then(|(_, words)| words.encode()),
            };
            (slot_of(&passing), self.node.0.taps.fate(&passing))
        })
    }

    fn inward<M: Message>(
        self,
        message: M,
        origin: Option<Arc<Sender>>,
        asker: Option<oneshot::Sender<M::Result>>,
    ) -> Inward<A, M> {
        Inward {
            post: self.node.post().clone(),
            to: self.to.same(),
            entry: self.entry,
            message,
            origin,
            asker,
        }
    }
}

impl<A: Actor<Context = Context<A>>> Incarnation<A> {
    /// The mailbox did not take the message: because it is tapped, or for good.
    #[cold]
    pub(crate) fn tell_refused<M>(
        &self,
        message: M,
        origin: Option<Arc<Sender>>,
        unwanted: Unwanted,
    ) -> Result<(), (M, Unwanted)>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        if unwanted == Unwanted::Gone || !self.meter.is_tapped() {
            return Err((message, unwanted));
        }
        let Some(door) = Door::of(self, origin.as_ref()) else {
            return self.tell_past_tap(message, origin);
        };
        let (slot, fate) = door.show(Kind::Tell, &message, origin.as_ref());
        let post = door.node.post().clone();
        if matches!(fate, Fate::Pass) {
            let told = self.tell_past_tap(message, origin);
            post.release(&slot);
            return told;
        }
        conduct(&post, slot, fate, door.inward(message, origin, None)).unwrap_or(Ok(()))
    }

    /// The mailbox did not take the question: because it is tapped, or for good.
    #[cold]
    pub(crate) fn ask_refused<M>(
        &self,
        message: M,
        origin: Option<Arc<Sender>>,
        unwanted: Unwanted,
    ) -> Result<oneshot::Receiver<M::Result>, (M, Unwanted)>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        if unwanted == Unwanted::Gone || !self.meter.is_tapped() {
            return Err((message, unwanted));
        }
        let Some(door) = Door::of(self, origin.as_ref()) else {
            return self.ask_past_tap(message, origin);
        };
        let (slot, fate) = door.show(Kind::Ask, &message, origin.as_ref());
        let post = door.node.post().clone();
        if matches!(fate, Fate::Pass) {
            let asked = self.ask_past_tap(message, origin);
            post.release(&slot);
            return asked;
        }
        let (asker, reply) = oneshot::channel();
        let inward = door.inward(message, origin, Some(asker));
        conduct(&post, slot, fate, inward)
            .unwrap_or(Ok(()))
            .map(|()| reply)
    }

    /// Shows an exit to the tap, and gives it back if it goes on as it is.
    #[cold]
    pub(crate) fn show_exited(&self, exited: Exited)
    where
        A: Handler<Exited>,
    {
        let Some(node) = self.node.upgrade() else {
            return self.tell_always(exited);
        };
        let elsewhere = exited.pid.node() != node.id();
        if !node.0.taps.sees(elsewhere) {
            return self.tell_always(exited);
        }
        let passing = Passing {
            at: node.clock().now(),
            node: node.id(),
            way: if elsewhere { Way::Incoming } else { Way::Local },
            kind: Kind::Exited,
            from: Some(&exited.pid),
            to: Some(&self.pid),
            peer: elsewhere.then(|| exited.pid.node()),
            name: std::any::type_name::<Exited>(),
            body: &exited,
            encode: None,
        };
        let (slot, fate) = (slot_of(&passing), node.0.taps.fate(&passing));
        let to = self.same();
        conduct(node.post(), slot, fate, End { to, exited });
    }
}

/// An exit on its way into a mailbox.
struct End<A: Actor> {
    to: Incarnation<A>,
    exited: Exited,
}

impl<A: Actor<Context = Context<A>> + Handler<Exited>> Freight for End<A> {
    type Told = ();

    fn deliver(self) {
        self.to.tell_always(self.exited);
    }

    fn copy(&self, _: Option<Box<dyn Any + Send>>) -> Option<Self> {
        Some(Self {
            to: self.to.same(),
            exited: self.exited.clone(),
        })
    }

    fn lose(self, _: &Arc<Post>) {}
}
