//! Asking how tasks are (W17): after each subscription and every quarter of an hour, and again while there are tasks without an answer.
//!
//! Remembers nothing itself: what is unanswered stands in the ledger.

use super::*;

impl<S: Scheduler> Driver<S> {
    pub(super) fn reconcile_all(&mut self, ctx: &mut Context<Self>) {
        let tasks = self.ledger.ask_all();
        self.ask_about(&tasks);
        // The master's own list: tasks that an earlier scheduler of this framework has launched.
        self.say(|framework_id| ReconcileTasks {
            framework_id,
            tasks: Vec::new(),
        });
        self.ask_again_after(RECONCILE_RETRY, ctx);
    }

    fn ask_about(&self, tasks: &[(TaskId, Option<AgentId>)]) {
        for chunk in tasks.chunks(RECONCILE_CHUNK) {
            self.say(|framework_id| ReconcileTasks {
                framework_id,
                tasks: chunk.to_vec(),
            });
        }
    }

    /// While there are tasks without an answer: ask again, each time after twice the wait. Ends with the interval's next round.
    fn ask_again_after(&mut self, wait: Duration, ctx: &mut Context<Self>) {
        if wait >= RECONCILE_EVERY || self.ledger.unanswered().is_empty() {
            return;
        }
        let attempt = self.attempt;
        ctx.after(wait, move |driver: &mut Self, ctx| {
            if driver.attempt == attempt && matches!(driver.phase, Phase::Subscribed { .. }) {
                let unanswered = driver.ledger.unanswered();
                driver.ask_about(&unanswered);
                driver.ask_again_after(wait * 2, ctx);
            }
        });
    }
}
