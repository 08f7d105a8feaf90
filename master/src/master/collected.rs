//! Collected: what waits for the end of the master's turn, so that whoever hears of it is woken once for all of it.
//!
//! When all agents come back at once, each admission is something for the allocator, for the links and for the agent that has asked. Each
//! alone wakes another thread, which costs more than what it is woken for. What is collected keeps its order, and never waits for
//! anything but the messages that are here already.

use std::future::ready;

use runtime::prelude::*;

use super::{Master, Phase};
use crate::effects::Effect;

/// Room for so many effects is kept for the next turn.
const SPARE_MAX: usize = 1024;

/// What waits for the end of the turn.
#[derive(Default)]
pub(super) struct Collected {
    /// For the allocator, about links, and about whom to ping.
    effects: Vec<Effect>,
    /// To agents that were admitted.
    answers: Vec<Box<dyn FnOnce() + Send>>,
    /// Whether the end of the turn is awaited.
    is_awaited: bool,
}

impl Master {
    /// Does this at the end of the turn.
    pub(super) fn collect(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        self.collected.effects.push(effect);
        self.await_turns_end(ctx);
    }

    /// Answers at the end of the turn.
    pub(super) fn answer_collected(
        &mut self,
        answer: impl FnOnce() + Send + 'static,
        ctx: &mut Context<Self>,
    ) {
        self.collected.answers.push(Box::new(answer));
        self.await_turns_end(ctx);
    }

    /// What has begun beside the mailbox gets its turn after those messages that the mailbox has given in one go.
    fn await_turns_end(&mut self, ctx: &mut Context<Self>) {
        if !std::mem::replace(&mut self.collected.is_awaited, true) {
            ctx.then(ready(()), |master, (), ctx| {
                master.collected.is_awaited = false;
                master.hand_in(ctx);
            });
        }
    }

    /// Does and says now what was collected: it comes before what is done next.
    pub(super) fn hand_in(&mut self, ctx: &mut Context<Self>) {
        let mut effects = std::mem::take(&mut self.collected.effects);
        let answers = std::mem::take(&mut self.collected.answers);
        if self.phase == Phase::Deposed {
            return; // Nothing is said in its name any more.
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
        if self.collected.effects.is_empty() && effects.capacity() <= SPARE_MAX {
            self.collected.effects = effects; // Its room serves the next turn.
        }
        answers.into_iter().for_each(|answer| answer());
    }
}
