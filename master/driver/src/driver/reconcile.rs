//! Reconciliation of tasks: after each subscription and every 15 minutes, and repeatedly while
//! tasks are unanswered. The state is in the [`TaskTracker`].

use super::*;

impl<S: Scheduler> Driver<S> {
    pub(super) fn reconcile_all(&mut self, ctx: &mut Context<Self>) {
        let tasks = self.tasks.start_reconciliation();
        self.ask_about(&tasks);
        // All tasks that the master knows, including those of earlier schedulers.
        self.send_call(|framework_id| ReconcileTasks {
            framework_id,
            tasks: Vec::new(),
        });
        self.ask_again_after(RECONCILE_RETRY, ctx);
    }

    fn ask_about(&self, tasks: &[(TaskId, Option<AgentId>)]) {
        for chunk in tasks.chunks(RECONCILE_CHUNK) {
            self.send_call(|framework_id| ReconcileTasks {
                framework_id,
                tasks: chunk.to_vec(),
            });
        }
    }

    /// Repeats the question for unanswered tasks, with doubled waits, until the next full
    /// reconciliation.
    fn ask_again_after(&mut self, wait: Duration, ctx: &mut Context<Self>) {
        if wait >= RECONCILE_EVERY || self.tasks.unanswered().is_empty() {
            return;
        }
        let attempt = self.attempt;
        ctx.after(wait, move |driver: &mut Self, ctx| {
            if driver.attempt == attempt && matches!(driver.phase, Phase::Subscribed { .. }) {
                let unanswered = driver.tasks.unanswered();
                driver.ask_about(&unanswered);
                driver.ask_again_after(wait * 2, ctx);
            }
        });
    }
}
