//! The master's side of its allocator: what it is told, and how it is told everything anew.
//!
//! Whenever the allocator falls, or has missed a fact because its mailbox was full, its books begin anew: what is only offered is taken
//! back, agents are told to it under other sessions than before, and grants that bear the old ones are void. The master never waits for it.

use std::collections::BTreeMap;
use std::time::Duration;

use module_api::allocator::{Begin, WhitelistChanged};
use runtime::prelude::*;

use super::{Master, Phase};
use crate::effects::ToAllocator;

/// How long the master waits before it speaks to an allocator that fell, or is drowned.
const ALLOCATOR_RETRY: Duration = Duration::from_millis(200);

impl Master {
    pub(super) fn is_allocator(&self, pid: &Pid) -> bool {
        let allocator = self.allocator.pid();
        pid.name() == allocator.name() && pid.node() == allocator.node()
    }

    /// Tells the allocator all that there is, from the beginning.
    pub(super) fn begin_allocation(&mut self, ctx: &mut Context<Self>) {
        if self.phase != Phase::Leading {
            return;
        }
        // Books that begin anew know nothing of what is only offered.
        self.begins_anew = true;
        self.change(ctx, |books, _, out| books.rescind_all(out));
        self.hand_in(ctx);
        self.begins_anew = false;
        let begin = Begin {
            master: ctx.pid().clone(),
            allocation_interval: self.config.allocation_interval,
            weights: BTreeMap::clone(&self.books.weights),
            quotas: BTreeMap::clone(&self.books.quotas),
            region: self
                .config
                .domain
                .as_ref()
                .map(|domain| domain.region.clone()),
            agents_expected: self.books.agents.known() as u64,
        };
        // Before it is told anything: of one that falls in between, the next one would be watched, which was never told to begin.
        ctx.link(self.allocator.pid());
        if let Err(error) = self.allocator.tell(begin) {
            tracing::warn!(%error, "the allocator cannot be told to begin");
            return self.begin_allocation_later(ctx);
        }
        if self.config.whitelist.is_some() {
            self.tell_whitelist(ctx);
        }
        self.change(ctx, |books, _, out| {
            books.agents.begin_epoch();
            books.retell_allocator(out);
        });
    }

    /// The same after a while, once.
    pub(super) fn begin_allocation_later(&mut self, ctx: &mut Context<Self>) {
        if !std::mem::replace(&mut self.begins_anew, true) {
            ctx.after(ALLOCATOR_RETRY, Self::begin_allocation);
        }
    }

    pub(super) fn tell_whitelist(&mut self, ctx: &mut Context<Self>) {
        self.hand_in(ctx);
        let hosts = self.config.whitelist.clone();
        if let Err(error) = self.allocator.tell(WhitelistChanged { hosts }) {
            tracing::warn!(%error, "the allocator cannot be told the whitelist yet");
            ctx.after(ALLOCATOR_RETRY, Self::tell_whitelist);
        }
    }

    /// Tells it a fact. One that it misses because it is drowned would be missing in its books for ever: they begin anew.
    pub(super) fn tell_allocator(&mut self, fact: ToAllocator, ctx: &mut Context<Self>) {
        let told = match fact {
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
        if let Err(error) = told {
            self.dropped(&self.allocator.pid().clone(), &error.clone().into());
            // One that fell is told everything anew when its link says so.
            if error == TellError::Full {
                self.begin_allocation_later(ctx);
            }
        }
    }
}
