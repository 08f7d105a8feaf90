//! Fencing: the reaction to a peer that has seen a leader of a later term.
//!
//! The peer may be wrong or lie, so a majority of the group is asked: a deposed leader gets none,
//! and ends. Until then nothing is done for that peer. A leader whose group was bootstrapped again,
//! with terms from the beginning, is confirmed.

use protocol::message::registration::TermSeen;
use runtime::prelude::*;

use super::{Master, REGISTRY_RETRY};
use crate::registry::RegistryError;

impl Handler<TermSeen> for Master {
    type Result = ();

    fn handle(&mut self, TermSeen { term }: TermSeen, ctx: &mut Context<Self>) {
        if term > self.state.master.term {
            self.change(ctx, |state, _, _| {
                state.counters.count("master/messages_term_seen");
            });
            let by = ctx.sender().map(|sender| sender.peer.node.clone());
            let by = by.map_or_else(|| "this node".to_owned(), |node| node.to_string());
            let own = self.state.master.term;
            tracing::warn!(%by, seen = term, own, "a peer has seen a leader of a later term");
            self.verify_leadership(ctx);
        }
    }
}

impl Master {
    /// Continues at once if `seen` is not newer than this leadership, else after a majority has
    /// confirmed it.
    pub(super) fn unless_deposed(
        &mut self,
        seen: u64,
        ctx: &mut Context<Self>,
        go_on: impl FnOnce(&mut Self, Result<(), RegistryError>, &mut Context<Self>) + 'static,
    ) {
        if seen <= self.state.master.term {
            return go_on(self, Ok(()), ctx);
        }
        let led = self.registry.still_leads();
        ctx.then(led, go_on);
    }

    /// Asks a majority whether this master still leads, unless a request is pending.
    fn verify_leadership(&mut self, ctx: &mut Context<Self>) {
        if std::mem::replace(&mut self.verifying_leadership, true) {
            return;
        }
        let led = self.registry.still_leads();
        ctx.then(led, |master, led, ctx| {
            master.verifying_leadership = false;
            match led {
                Ok(()) => tracing::info!("a majority confirms that this master leads"),
                Err(RegistryError::NotNow { .. }) => {
                    ctx.after(REGISTRY_RETRY, Self::verify_leadership);
                }
                Err(error) => master.step_down_if_over(&error, ctx),
            }
        });
    }
}
