//! Updates of the framework's description and offer preferences while it is subscribed.
//!
//! A new description is used at once, also for the next subscription. If the master refuses it, the
//! previous one is restored. The scheduler gets either result. Nothing blocks.

use protocol::FrameworkInfo;
use protocol::message::scheduler::UpdateFramework;

use super::*;

/// Description, preferences and initial suppression before an update.
type Previous = (FrameworkInfo, Wants, BTreeSet<String>);

impl<S: Scheduler> Driver<S> {
    /// Updates the framework.
    pub(super) fn update(&mut self, info: FrameworkInfo, wants: Wants, ctx: &mut Context<Self>) {
        let suppressed = std::mem::replace(
            &mut self.suppressed_initially,
            wants.suppressed_roles.clone(),
        );
        let framework = self.plan.framework.clone();
        let before = (framework, self.plan.wants.clone(), suppressed);
        let id = self.plan.framework.id.clone();
        self.plan.framework = FrameworkInfo { id, ..info };
        self.plan.wants = wants;
        self.update_number += 1;
        self.request_update(before, 0, ctx);
    }

    /// Sends the update if there is a master; otherwise the next subscription contains it.
    fn request_update(&mut self, before: Previous, tries: u32, ctx: &mut Context<Self>) {
        let (Phase::Subscribed { master }, Some(framework_id)) =
            (&self.phase, self.plan.framework.id.clone())
        else {
            return;
        };
        let (wanted, attempt) = (self.update_number, self.attempt);
        let request = UpdateFramework {
            framework_id,
            framework: self.plan.framework.clone(),
            wants: self.plan.wants.clone(),
        };
        let asked = ctx.node().ask(master, request, SUBSCRIBE_PATIENCE);
        ctx.then(asked, move |driver: &mut Self, answer, ctx| {
            if driver.update_number != wanted || driver.attempt != attempt {
                return; // Outdated: the next update or subscription contains the new description.
            }
            let outcome = match answer {
                Ok(Ok(())) => Ok(()),
                Ok(Err(SubscriptionRefused::Never { reason })) => {
                    let plan = &mut driver.plan;
                    (plan.framework, plan.wants, driver.suppressed_initially) = before;
                    Err(reason)
                }
                Ok(Err(SubscriptionRefused::NotNow { reason })) => {
                    warn!(%reason, "framework not updated yet; retrying");
                    let wait = backoff(tries, ctx.node().rng().random());
                    ctx.after(wait, move |driver, ctx| {
                        if driver.update_number == wanted && driver.attempt == attempt {
                            driver.request_update(before, tries.saturating_add(1), ctx);
                        }
                    });
                    return;
                }
                Err(error) => {
                    warn!(%error, "no answer to the framework update");
                    return;
                }
            };
            driver.call_back(ctx, |scheduler, calls| {
                scheduler.updated(calls, outcome.as_ref().copied().map_err(String::as_str));
            });
        });
    }
}
