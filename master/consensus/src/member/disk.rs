//! A member's disk: one operation at a time, off the actor's thread.
//!
//! The store moves with the operation and returns with its result, so that two cannot run at once.
//! Any error ends the member.

use runtime::prelude::*;

use super::{Member, Phase, Replicated};
use crate::log::{LogError, LogStore};

impl<M: Replicated> Member<M> {
    /// Runs an operation on the log, then continues with its result. The store must be present.
    pub(super) fn on_disk<T: Send + 'static>(
        &mut self,
        ctx: &mut Context<Self>,
        work: impl FnOnce(&mut dyn LogStore) -> Result<T, LogError> + Send + 'static,
        then: impl FnOnce(&mut Self, T, &mut Context<Self>) + 'static,
    ) {
        let Some(mut store) = self.store.take() else {
            return self.fail("two operations on the log at once", ctx);
        };
        // Measuring costs as much as a small write, so once a tick.
        let measure = std::mem::replace(&mut self.disk_measured, self.ticks) != self.ticks;
        let worked = ctx.node().blocking(move || {
            let result = work(&mut *store);
            let bytes = measure.then(|| store.disk_bytes());
            (store, result, bytes)
        });
        ctx.then(worked, move |member, worked, ctx| match worked {
            // The member has ended; dropping the store closes its log.
            _ if matches!(member.phase, Phase::Ended) => {}
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
