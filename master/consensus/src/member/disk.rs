//! A member's disk: one piece of work at a time, away from its thread.
//!
//! The store itself travels with the work and comes back with the result, so that two pieces at once cannot be written by mistake. Any
//! error ends the member.

use runtime::prelude::*;

use super::{Member, Phase, Replicated};
use crate::log::{LogError, LogStore};

impl<M: Replicated> Member<M> {
    /// Does this with the log and goes on with what came of it. The log must be here.
    pub(super) fn on_disk<T: Send + 'static>(
        &mut self,
        ctx: &mut Context<Self>,
        work: impl FnOnce(&mut dyn LogStore) -> Result<T, LogError> + Send + 'static,
        then: impl FnOnce(&mut Self, T, &mut Context<Self>) + 'static,
    ) {
        let Some(mut store) = self.store.take() else {
            return self.fail("the log was written twice at once", ctx);
        };
        // To ask costs as much as a small write.
        let measure = std::mem::replace(&mut self.disk_measured, self.ticks) != self.ticks;
        let worked = ctx.node().blocking(move || {
            let result = work(&mut *store);
            let bytes = measure.then(|| store.disk_bytes());
            (store, result, bytes)
        });
        ctx.then(worked, move |member, worked, ctx| match worked {
            // Its log is closed with it.
            _ if matches!(member.phase, Phase::Over) => {}
            Ok((store, Ok(value), bytes)) => {
                member.store = Some(store);
                member.disk_bytes = bytes.unwrap_or(member.disk_bytes);
                then(member, value, ctx);
            }
            Ok((_, Err(error), _)) => member.fail(&error.to_string(), ctx),
            Err(interrupted) => member.fail(&interrupted.to_string(), ctx),
        });
    }
}
