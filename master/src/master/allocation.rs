//! The master's side of the allocator: facts for it, and its restart with the whole state.
//!
//! If the allocator crashes, or misses a fact because its mailbox is full, it starts over: offers
//! are rescinded, agents get new sessions, and grants with old sessions are invalid. Filters and
//! answers to inverse offers are lost with the old allocator; that costs a round of declined
//! offers, as after a failover. The master never waits for it.

use std::collections::BTreeMap;
use std::time::Duration;

use module_api::allocator::{Begin, WhitelistChanged};
use runtime::prelude::*;

use super::{Master, Phase};
use crate::state::effects::ToAllocator;

/// Pause before the master contacts an allocator that crashed or whose mailbox was full.
const ALLOCATOR_RETRY: Duration = Duration::from_millis(200);

impl Master {
    pub(super) fn is_allocator(&self, pid: &Pid) -> bool {
        let allocator = self.allocator.pid();
        pid.name() == allocator.name() && pid.node() == allocator.node()
    }

    /// Sends the allocator the whole state from the beginning.
    pub(super) fn begin_allocation(&mut self, ctx: &mut Context<Self>) {
        if self.phase != Phase::Leading {
            return;
        }
        // A fresh allocator knows no offers.
        self.allocator_restarting = true;
        self.change(ctx, |state, _, out| state.rescind_all(out));
        self.flush_turn(ctx);
        self.allocator_restarting = false;
        let begin = Begin {
            master: ctx.pid().clone(),
            allocation_interval: self.config.allocation_interval,
            weights: BTreeMap::clone(&self.state.weights),
            quotas: BTreeMap::clone(&self.state.quotas),
            region: self
                .config
                .domain
                .as_ref()
                .map(|domain| domain.region.clone()),
            agents_expected: self.state.agents.known() as u64,
        };
        // Before the first message: otherwise, after a crash in between, the link would watch a
        // successor that was never sent `Begin`.
        ctx.link(self.allocator.pid());
        if let Err(error) = self.allocator.tell(begin) {
            tracing::warn!(%error, "cannot send the allocator its start");
            return self.begin_allocation_later(ctx);
        }
        if self.config.whitelist.is_some() {
            self.tell_whitelist(ctx);
        }
        self.change(ctx, |state, _, out| {
            state.agents.begin_epoch();
            state.resend_to_allocator(out);
        });
    }

    /// The same after a pause, at most once.
    pub(super) fn begin_allocation_later(&mut self, ctx: &mut Context<Self>) {
        if !std::mem::replace(&mut self.allocator_restarting, true) {
            ctx.after(ALLOCATOR_RETRY, Self::begin_allocation);
        }
    }

    pub(super) fn tell_whitelist(&mut self, ctx: &mut Context<Self>) {
        self.flush_turn(ctx);
        let hosts = self.config.whitelist.clone();
        if let Err(error) = self.allocator.tell(WhitelistChanged { hosts }) {
            tracing::warn!(%error, "cannot send the allocator the whitelist yet");
            ctx.after(ALLOCATOR_RETRY, Self::tell_whitelist);
        }
    }

    /// Sends it a fact. A fact lost to a full mailbox would be missing for ever, so the allocator
    /// starts over.
    pub(super) fn tell_allocator(&mut self, fact: ToAllocator, ctx: &mut Context<Self>) {
        let sent = match fact {
            ToAllocator::QuotasChanged(fact) => self.allocator.tell(fact),
            ToAllocator::WeightsChanged(fact) => self.allocator.tell(fact),
            ToAllocator::AgentAdded(fact) => self.allocator.tell(*fact),
            ToAllocator::AgentRemoved(fact) => self.allocator.tell(fact),
            ToAllocator::AgentActivity(fact) => self.allocator.tell(fact),
            ToAllocator::UnavailabilityChanged(fact) => self.allocator.tell(fact),
            ToAllocator::InverseAnswered(fact) => self.allocator.tell(fact),
            ToAllocator::AgentOversubscribed(fact) => self.allocator.tell(fact),
            ToAllocator::FrameworkAdded(fact) => self.allocator.tell(*fact),
            ToAllocator::FrameworkRemoved(fact) => self.allocator.tell(fact),
            ToAllocator::FrameworkActivity(fact) => self.allocator.tell(fact),
            ToAllocator::OfferBudgetSpent(fact) => self.allocator.tell(fact),
            ToAllocator::Recovered(fact) => self.allocator.tell(fact),
            ToAllocator::Converted(fact) => self.allocator.tell(fact),
            ToAllocator::Suppressed(fact) => self.allocator.tell(fact),
            ToAllocator::Revived(fact) => self.allocator.tell(fact),
            ToAllocator::TasksListed(fact) => self.allocator.tell(fact),
        };
        if let Err(error) = sent {
            self.dropped(&self.allocator.pid().clone(), &error.clone().into());
            // If it crashed, its link reports that, and it is sent everything again.
            if error == TellError::Full {
                self.begin_allocation_later(ctx);
            }
        }
    }
}
