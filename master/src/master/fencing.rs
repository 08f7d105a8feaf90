//! Fencing: what the master does when somebody knows of a leader of a later term than its own.
//!
//! An agent or a driver may be wrong, or lie, so a majority is asked: a deposed leader finds none, and ends. Until the answer is there
//! nothing is done for whoever said so. A leader whose group was begun anew, and counts its terms from the beginning, is confirmed.

use protocol::message::registration::TermSeen;
use runtime::prelude::*;

use super::{Master, REGISTRY_RETRY};
use crate::registry::RegistryError;

impl Handler<TermSeen> for Master {
    type Result = ();

    fn handle(&mut self, TermSeen { term }: TermSeen, ctx: &mut Context<Self>) {
        if term > self.books.master.term {
            self.change(ctx, |books, _, _| {
                books.counters.count("master/messages_term_seen");
            });
            let by = ctx.sender().map(|sender| sender.peer.node.clone());
            let by = by.map_or_else(|| "this node".to_owned(), |node| node.to_string());
            let own = self.books.master.term;
            tracing::warn!(%by, seen = term, own, "somebody knows of a leader of a later term");
            self.doubt(ctx);
        }
    }
}

impl Master {
    /// Goes on at once if nothing newer than this leadership was seen, else once a majority has been asked.
    pub(super) fn unless_deposed(
        &mut self,
        seen: u64,
        ctx: &mut Context<Self>,
        go_on: impl FnOnce(&mut Self, Result<(), RegistryError>, &mut Context<Self>) + 'static,
    ) {
        if seen <= self.books.master.term {
            return go_on(self, Ok(()), ctx);
        }
        let led = self.registry.still_leads();
        ctx.then(led, go_on);
    }

    /// Asks a majority whether this master still leads, unless it is being asked.
    fn doubt(&mut self, ctx: &mut Context<Self>) {
        if std::mem::replace(&mut self.in_doubt, true) {
            return;
        }
        let led = self.registry.still_leads();
        ctx.then(led, |master, led, ctx| {
            master.in_doubt = false;
            match led {
                Ok(()) => tracing::info!("a majority says that this master leads"),
                Err(RegistryError::NotNow { .. }) => drop(ctx.after(REGISTRY_RETRY, Self::doubt)),
                Err(error) => master.step_down_if_over(&error, ctx),
            }
        });
    }
}
