//! End-of-turn work: effects and answers that are sent together, so that each receiver wakes once.
//!
//! When all agents return at once, each admission causes work for the allocator, the links and the
//! agent. Waking another thread for each costs more than the work itself. Collected items keep
//! their order and wait only for messages that are already in the mailbox.

use std::future::ready;

use runtime::prelude::*;

use super::{Master, Phase};
use crate::state::effects::Effect;

/// Maximum capacity, in effects, that is kept for the next turn.
const SPARE_MAX: usize = 1024;

/// Work for the end of the turn.
#[derive(Default)]
pub(super) struct EndOfTurn {
    /// For the allocator, links and pings.
    effects: Vec<Effect>,
    /// Answers to admitted agents.
    answers: Vec<Box<dyn FnOnce() + Send>>,
    /// Whether the end of the turn is awaited.
    is_awaited: bool,
}

impl Master {
    /// Queues an effect for the end of the turn.
    pub(super) fn at_end_of_turn(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        self.end_of_turn.effects.push(effect);
        self.schedule_flush(ctx);
    }

    /// Queues an answer for the end of the turn.
    pub(super) fn answer_at_end_of_turn(
        &mut self,
        answer: impl FnOnce() + Send + 'static,
        ctx: &mut Context<Self>,
    ) {
        self.end_of_turn.answers.push(Box::new(answer));
        self.schedule_flush(ctx);
    }

    /// A ready future runs after the messages that the mailbox has delivered in one batch.
    fn schedule_flush(&mut self, ctx: &mut Context<Self>) {
        if !std::mem::replace(&mut self.end_of_turn.is_awaited, true) {
            ctx.then(ready(()), |master, (), ctx| {
                master.end_of_turn.is_awaited = false;
                master.flush_turn(ctx);
            });
        }
    }

    /// Carries out the collected work now: it comes before later effects.
    pub(super) fn flush_turn(&mut self, ctx: &mut Context<Self>) {
        let mut effects = std::mem::take(&mut self.end_of_turn.effects);
        let answers = std::mem::take(&mut self.end_of_turn.answers);
        if self.phase == Phase::Deposed {
            return; // A deposed master sends nothing.
        }
        for effect in effects.drain(..) {
            match effect {
                Effect::ToAllocator(fact) => self.tell_allocator(fact, ctx),
                Effect::Link(pid) => ctx.link(&pid),
                Effect::Unlink(pid) => ctx.unlink(&pid),
                Effect::Watch(agent, session) => self.watch(agent, session, ctx),
                other => self.perform(vec![other], ctx),
            }
        }
        if self.end_of_turn.effects.is_empty() && effects.capacity() <= SPARE_MAX {
            self.end_of_turn.effects = effects; // Keeps the capacity for the next turn.
        }
        answers.into_iter().for_each(|answer| answer());
    }
}
