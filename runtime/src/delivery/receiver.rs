//! The receiver: opens what is numbered, and lets the actor's ordinary handlers hear each message once and in order.
//!
//! Hears [`Numbered`] by way of the actor that embeds an [`Incoming`]. A message is acknowledged after its handler has
//! returned, not before, so that what waits in the mailbox of an actor that falls is sent again to its next life. It
//! believes who speaks only as far as the node is proved, and lets through what the actor's [`Ears`](crate::Ears) list.

use std::sync::Arc;

use super::incoming::Stream;
use super::{Incoming, NotTaken, Numbered, Packed, Taken};
use crate::context::Context;
use crate::link::Sender;
use crate::process::{EarTable, Process};

/// Handles what is new in `numbered` by the actor's own handlers, and gives the answer to it.
///
/// To be called from the actor's `Handler<Numbered>`, with where it keeps its [`Incoming`]; see the [module](super).
/// While a message is handled, `ctx.sender()` names the actor that gave it to the courier. The handlers' results go
/// nowhere: what wants an answer is asked.
///
/// A handler that panics takes the actor with it, as always. Its message has not been acknowledged, so it is sent
/// again to the actor's next life, until it is too old.
pub fn take<A: Process>(
    actor: &mut A,
    incoming: fn(&mut A) -> &mut Incoming,
    numbered: Numbered,
    ctx: &mut Context<A>,
) -> Result<Taken, NotTaken> {
    take_some(actor, incoming, numbered, usize::MAX, ctx)
}

/// What is numbered, with who sent it: for an actor that does not handle it at once.
#[derive(Debug)]
pub struct Held {
    numbered: Numbered,
    sender: Option<Arc<Sender>>,
}

impl Held {
    /// To be called while the envelope is being handled. Whoever holds it for some seconds is sent it again.
    pub fn new<A: Process>(numbered: Numbered, ctx: &Context<A>) -> Self {
        let sender = ctx.sender.clone();
        Self { numbered, sender }
    }

    /// What is held.
    pub fn numbered(&self) -> &Numbered {
        &self.numbered
    }

    /// Handles it as [`take`] does, but at most so many messages that are new. The others are sent again.
    pub fn take<A: Process>(
        self,
        actor: &mut A,
        incoming: fn(&mut A) -> &mut Incoming,
        most: usize,
        ctx: &mut Context<A>,
    ) -> Result<Taken, NotTaken> {
        let Self { numbered, sender } = self;
        let before = std::mem::replace(&mut ctx.sender, sender);
        let taken = take_some(actor, incoming, numbered, most, ctx);
        ctx.sender = before;
        taken
    }
}

fn take_some<A: Process>(
    actor: &mut A,
    incoming: fn(&mut A) -> &mut Incoming,
    numbered: Numbered,
    most: usize,
    ctx: &mut Context<A>,
) -> Result<Taken, NotTaken> {
    let sender = speaker(&numbered, ctx)?;
    let Some(ears) = ctx.ears() else {
        let reason = "the actor is ending".to_owned();
        return Err(NotTaken::NotNow { reason });
    };
    let Numbered {
        from,
        stream: number,
        floor,
        first,
        messages,
    } = numbered;
    let now = ctx.clock().now();
    let mut stream = incoming(actor).take_out(&from, number, floor, now)?;
    let share = stream.share(first, messages.len());
    let counts = ctx.node().clone();
    let counts = &counts.counts().delivery;
    counts.duplicates.add(share.duplicates);
    counts.early.add(share.early);
    let envelope_sender = std::mem::replace(&mut ctx.sender, sender);
    for message in messages[share.fresh].iter().take(most) {
        if !stream.may_go_on() || !ctx.may_go_on() {
            break;
        }
        let Some(message) = message else {
            stream.handled();
            continue;
        };
        match open(actor, &ears, message, &mut stream, ctx) {
            true => counts.handled.add(1),
            false => counts.refused.add(1),
        }
    }
    ctx.sender = envelope_sender;
    let taken = stream.taken();
    incoming(actor).put_back(from, number, stream);
    Ok(taken)
}

/// Who speaks in it, as its messages' handlers will see it; `None` for an actor of this node.
fn speaker<A: Process>(
    numbered: &Numbered,
    ctx: &Context<A>,
) -> Result<Option<Arc<Sender>>, NotTaken> {
    let sender = ctx.sender();
    let node = sender.map_or(ctx.node().id(), |sender| &sender.peer.node);
    if numbered.from.node() != node {
        let reason = format!(
            "from is {}: expected an actor of the sending node, {node}",
            numbered.from
        );
        return Err(NotTaken::Never { reason });
    }
    Ok(sender.map(|sender| {
        Arc::new(Sender {
            peer: sender.peer.clone(),
            pid: Some(numbered.from.clone()),
        })
    }))
}

/// Handles the message wanted next, or refuses it; whether it was handled.
fn open<A: Process>(
    actor: &mut A,
    ears: &EarTable,
    message: &Packed,
    stream: &mut Stream,
    ctx: &mut Context<A>,
) -> bool {
    let role = ctx.sender().map(|sender| sender.peer.role);
    let refusal = match ears.ear(message.id, message.version) {
        None => format!(
            "{} does not hear message {:08x} v{}",
            ctx.pid(),
            message.id,
            message.version
        ),
        Some(ear) => match role.filter(|role| !ear.roles.contains(*role)) {
            Some(role) => format!("{} does not hear {} from role {role}", ctx.pid(), ear.name),
            None => match ear.hear_now(actor, ctx, &message.body.0) {
                Ok(()) => {
                    stream.handled();
                    return true;
                }
                Err(garbled) => format!("{} v{} {}", ear.name, ear.version, garbled.reason),
            },
        },
    };
    tracing::warn!(reason = refusal, "a numbered message is refused");
    stream.refuse(refusal);
    false
}
