//! The receiver: unpacks numbered messages and passes each once and in order to the actor's
//! ordinary handlers.
//!
//! The actor embeds an [`DedupReceiver`] and handles [`Sequenced`]. A message is acknowledged after
//! its handler has returned, not before, so messages in the mailbox of an actor that panics are
//! resent to its next incarnation. The sender is verified only up to its node, and the actor's
//! [`RemoteHandlers`](crate::RemoteHandlers) apply.

use std::sync::Arc;

use super::dedup_receiver::Stream;
use super::{DedupReceiver, EncodedMessage, NotAcknowledged, SequenceAck, Sequenced};
use crate::actor::context::Context;
use crate::actor::process::{HandlerTable, Process};
use crate::link::Sender;

/// Passes the new messages of `numbered` to the actor's own handlers, and returns the
/// acknowledgement.
///
/// Call it from the actor's `Handler<Sequenced>`, with the accessor of its [`DedupReceiver`]; see
/// the [module](super). While a message is handled, `ctx.sender()` is the actor that gave it to the
/// reliable sender. The results of the handlers are dropped: use an ask for a message that needs a
/// reply.
///
/// A handler that panics ends the actor, as always. Its message has not been acknowledged, so it is
/// resent to the actor's next incarnation, until it expires.
pub fn take<A: Process>(
    actor: &mut A,
    incoming: fn(&mut A) -> &mut DedupReceiver,
    numbered: Sequenced,
    ctx: &mut Context<A>,
) -> Result<SequenceAck, NotAcknowledged> {
    take_some(actor, incoming, numbered, usize::MAX, ctx)
}

/// Sequenced messages with their sender, for an actor that does not handle them at once.
#[derive(Debug)]
pub struct HeldSequence {
    numbered: Sequenced,
    sender: Option<Arc<Sender>>,
}

impl HeldSequence {
    /// Call it while the envelope is being handled. If it is held for some seconds, the reliable
    /// sender resends it.
    pub fn new<A: Process>(numbered: Sequenced, ctx: &Context<A>) -> Self {
        let sender = ctx.sender.clone();
        Self { numbered, sender }
    }

    /// The held messages.
    pub fn numbered(&self) -> &Sequenced {
        &self.numbered
    }

    /// Handles it as [`take`] does, but at most `most` new messages. The others are resent.
    pub fn take<A: Process>(
        self,
        actor: &mut A,
        incoming: fn(&mut A) -> &mut DedupReceiver,
        most: usize,
        ctx: &mut Context<A>,
    ) -> Result<SequenceAck, NotAcknowledged> {
        let Self { numbered, sender } = self;
        let before = std::mem::replace(&mut ctx.sender, sender);
        let taken = take_some(actor, incoming, numbered, most, ctx);
        ctx.sender = before;
        taken
    }
}

fn take_some<A: Process>(
    actor: &mut A,
    incoming: fn(&mut A) -> &mut DedupReceiver,
    numbered: Sequenced,
    most: usize,
    ctx: &mut Context<A>,
) -> Result<SequenceAck, NotAcknowledged> {
    let sender = verified_sender(&numbered, ctx)?;
    let Some(handlers) = ctx.handlers() else {
        let reason = "the actor is ending".to_owned();
        return Err(NotAcknowledged::NotNow { reason });
    };
    let Sequenced {
        from,
        stream: number,
        floor,
        first,
        messages,
    } = numbered;
    let now = ctx.clock().now();
    let mut stream = incoming(actor).take_out(&from, number, floor, now)?;
    let parts = stream.classify(first, messages.len());
    let counts = ctx.node().clone();
    let counts = &counts.counts().delivery;
    counts.duplicates.add(parts.duplicates);
    counts.early.add(parts.early);
    let envelope_sender = std::mem::replace(&mut ctx.sender, sender);
    for message in messages[parts.fresh].iter().take(most) {
        if !stream.may_continue() || !ctx.may_continue() {
            break;
        }
        let Some(message) = message else {
            stream.handled();
            continue;
        };
        match open(actor, &handlers, message, &mut stream, ctx) {
            true => counts.handled.add(1),
            false => counts.refused.add(1),
        }
    }
    ctx.sender = envelope_sender;
    let taken = stream.taken();
    incoming(actor).put_back(from, number, stream);
    Ok(taken)
}

/// The sender, as the messages' handlers will see it; `None` for an actor of this node.
fn verified_sender<A: Process>(
    numbered: &Sequenced,
    ctx: &Context<A>,
) -> Result<Option<Arc<Sender>>, NotAcknowledged> {
    let sender = ctx.sender();
    let node = sender.map_or(ctx.node().id(), |sender| &sender.peer.node);
    if numbered.from.node() != node {
        let reason = format!(
            "from is {}: expected an actor of the sending node, {node}",
            numbered.from
        );
        return Err(NotAcknowledged::Never { reason });
    }
    Ok(sender.map(|sender| {
        Arc::new(Sender {
            peer: sender.peer.clone(),
            pid: Some(numbered.from.clone()),
        })
    }))
}

/// Handles or refuses the next expected message; true if it was handled.
fn open<A: Process>(
    actor: &mut A,
    handlers: &HandlerTable,
    message: &EncodedMessage,
    stream: &mut Stream,
    ctx: &mut Context<A>,
) -> bool {
    let role = ctx.sender().map(|sender| sender.peer.role);
    let refusal = match handlers.handler(message.id, message.version) {
        None => format!(
            "{} does not accept message {:08x} v{}",
            ctx.pid(),
            message.id,
            message.version
        ),
        Some(handler) => match role.filter(|role| !handler.roles.contains(*role)) {
            Some(role) => format!(
                "{} does not accept {} from role {role}",
                ctx.pid(),
                handler.name
            ),
            None => match handler.handle_now(actor, ctx, &message.body.0) {
                Ok(()) => {
                    stream.handled();
                    return true;
                }
                Err(garbled) => format!("{} v{} {}", handler.name, handler.version, garbled.reason),
            },
        },
    };
    tracing::warn!(reason = refusal, "refusing sequenced message");
    stream.refuse(refusal);
    false
}
