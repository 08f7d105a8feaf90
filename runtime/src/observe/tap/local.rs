//! The tap on mailboxes: messages between actors of one node, those received over a link, and
//! exits.
//!
//! A marked mailbox refuses the fast path, and the sender continues here. Delivery then ignores the
//! mark.

use std::any::{Any, TypeId};
use std::sync::Arc;

use actix::{Actor, Handler, Message};
use tokio::sync::oneshot;

use crate::actor::context::Context;
use crate::actor::exit::Exited;
use crate::actor::handle::Incarnation;
use crate::actor::mailbox::MailboxError;
use crate::actor::registry::Entry;
use crate::actor::supervise;
use crate::link::Sender;
use crate::node::Node;
use crate::observe::tap::delay_queue::{DelayQueue, HOLD_MAX, SwapSlot};
use crate::observe::tap::{
    Fate, Intercepted, Kind, Passing, Way, apply_fate, encode_any, swap_slot_of,
};
use crate::wire::message::Remote;

/// Shows a message from a reliable sender's envelope, just before its actor handles it.
#[cold]
pub(crate) fn show_sequenced<A, M>(ctx: &Context<A>, message: &M)
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
        kind: Kind::Sequenced,
        from: sender.and_then(|sender| sender.pid.as_ref()),
        to: Some(ctx.pid()),
        peer: sender.map(|sender| &sender.peer.node),
        name: M::NAME,
        body: message,
        encode: Some(encode_any::<M>),
    });
}

/// A message on its way into a mailbox, with its reply channel if it is an ask.
struct InboundMessage<A: Actor, M: Message> {
    to: Incarnation<A>,
    entry: Option<Arc<Entry>>,
    delay_queue: Arc<DelayQueue>,
    message: M,
    origin: Option<Arc<Sender>>,
    reply_to: Option<oneshot::Sender<M::Result>>,
}

impl<A, M> Intercepted for InboundMessage<A, M>
where
    A: Actor<Context = Context<A>> + Handler<M>,
    M: Message + Send + 'static,
    M::Result: Send,
{
    type Output = Result<(), (M, MailboxError)>;

    fn deliver(self) -> Self::Output {
        let Some(reply_to) = self.reply_to else {
            return self.to.tell_past_tap(self.message, self.origin);
        };
        let reply = self.to.ask_past_tap(self.message, self.origin)?;
        self.delay_queue.run(async move {
            if let Ok(reply) = reply.await {
                let _ = reply_to.send(reply); // The caller may have stopped waiting.
            }
            crate::clock::moved();
        });
        Ok(())
    }

    fn copy(&self, given: Option<Box<dyn Any + Send>>) -> Option<Self> {
        let copy = given.or_else(|| {
            let handlers = &self.entry.as_ref()?.handlers;
            handlers.ops(TypeId::of::<M>())?.1.copy(&self.message)
        })?;
        let message = *copy.downcast::<M>().ok()?;
        Some(Self {
            to: self.to.same(),
            entry: None,
            delay_queue: self.delay_queue.clone(),
            message,
            origin: self.origin.clone(),
            reply_to: None,
        })
    }

    fn lose(self, delay_queue: &Arc<DelayQueue>) {
        if let Some(reply_to) = self.reply_to {
            delay_queue.later(HOLD_MAX, move || drop(reply_to));
        }
    }
}

/// A mailbox, with its tapped node.
struct TappedMailbox<'a, A: Actor> {
    node: Node,
    entry: Option<Arc<Entry>>,
    to: &'a Incarnation<A>,
}

impl<'a, A: Actor<Context = Context<A>>> TappedMailbox<'a, A> {
    /// `None` if the tap does not observe messages from this sender.
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
    ) -> (SwapSlot, Fate) {
        let ops = self.entry.as_ref();
        let ops = ops.and_then(|entry| entry.handlers.ops(TypeId::of::<M>()));
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
                name: ops.map_or_else(std::any::type_name::<M>, |(name, _)| name),
                body: message,
                encode: ops.and_then(|(_, ops)| ops.encode()),
            };
            (swap_slot_of(&passing), self.node.0.taps.fate(&passing))
        })
    }

    fn inbound<M: Message>(
        self,
        message: M,
        origin: Option<Arc<Sender>>,
        reply_to: Option<oneshot::Sender<M::Result>>,
    ) -> InboundMessage<A, M> {
        InboundMessage {
            delay_queue: self.node.delay_queue().clone(),
            to: self.to.same(),
            entry: self.entry,
            message,
            origin,
            reply_to,
        }
    }
}

impl<A: Actor<Context = Context<A>>> Incarnation<A> {
    /// The mailbox refused the message: because it is tapped, or permanently.
    #[cold]
    pub(crate) fn tell_refused<M>(
        &self,
        message: M,
        origin: Option<Arc<Sender>>,
        error: MailboxError,
    ) -> Result<(), (M, MailboxError)>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        if error == MailboxError::Gone || !self.meter.is_tapped() {
            return Err((message, error));
        }
        let Some(mailbox) = TappedMailbox::of(self, origin.as_ref()) else {
            return self.tell_past_tap(message, origin);
        };
        let (slot, fate) = mailbox.show(Kind::Tell, &message, origin.as_ref());
        let delay_queue = mailbox.node.delay_queue().clone();
        if matches!(fate, Fate::Pass) {
            let result = self.tell_past_tap(message, origin);
            delay_queue.release(&slot);
            return result;
        }
        apply_fate(
            &delay_queue,
            slot,
            fate,
            mailbox.inbound(message, origin, None),
        )
        .unwrap_or(Ok(()))
    }

    /// The mailbox refused the ask: because it is tapped, or permanently.
    #[cold]
    pub(crate) fn ask_refused<M>(
        &self,
        message: M,
        origin: Option<Arc<Sender>>,
        error: MailboxError,
    ) -> Result<oneshot::Receiver<M::Result>, (M, MailboxError)>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        if error == MailboxError::Gone || !self.meter.is_tapped() {
            return Err((message, error));
        }
        let Some(mailbox) = TappedMailbox::of(self, origin.as_ref()) else {
            return self.ask_past_tap(message, origin);
        };
        let (slot, fate) = mailbox.show(Kind::Ask, &message, origin.as_ref());
        let delay_queue = mailbox.node.delay_queue().clone();
        if matches!(fate, Fate::Pass) {
            let asked = self.ask_past_tap(message, origin);
            delay_queue.release(&slot);
            return asked;
        }
        let (reply_to, reply) = oneshot::channel();
        let inbound = mailbox.inbound(message, origin, Some(reply_to));
        apply_fate(&delay_queue, slot, fate, inbound)
            .unwrap_or(Ok(()))
            .map(|()| reply)
    }

    /// Shows an exit to the tap, and applies its fate.
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
        let (slot, fate) = (swap_slot_of(&passing), node.0.taps.fate(&passing));
        let to = self.same();
        apply_fate(node.delay_queue(), slot, fate, InboundExit { to, exited });
    }
}

/// An exit on its way into a mailbox.
struct InboundExit<A: Actor> {
    to: Incarnation<A>,
    exited: Exited,
}

impl<A: Actor<Context = Context<A>> + Handler<Exited>> Intercepted for InboundExit<A> {
    type Output = ();

    fn deliver(self) {
        self.to.tell_always(self.exited);
    }

    fn copy(&self, _: Option<Box<dyn Any + Send>>) -> Option<Self> {
        Some(Self {
            to: self.to.same(),
            exited: self.exited.clone(),
        })
    }

    fn lose(self, _: &Arc<DelayQueue>) {}
}
