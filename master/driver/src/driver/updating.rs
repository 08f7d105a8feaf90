//! Updating: the framework becomes something else, or wants other offers, while it is subscribed.
//!
//! What it wants to be counts from the moment the scheduler said so: it is what the driver subscribes with if it must. A master that
//! refuses it has the last word, and the scheduler hears either. Never waits for an answer.

use protocol::FrameworkInfo;
use protocol::message::scheduler::UpdateFramework;

use super::*;

/// What a framework was before it wanted to become something else.
type Before = (FrameworkInfo, Wants, BTreeSet<String>);

impl<S: Scheduler> Driver<S> {
    /// The framework would be this from now on.
    pub(super) fn update(&mut self, info: FrameworkInfo, wants: Wants, ctx: &mut Context<Self>) {
        let suppressed = std::mem::replace(
            &mut self.suppressed_at_first,
            wants.suppressed_roles.clone(),
        );
        let framework = self.plan.framework.clone();
        let before = (framework, self.plan.wants.clone(), suppressed);
        let id = self.plan.framework.id.clone();
        self.plan.framework = FrameworkInfo { id, ..info };
        self.plan.wants = wants;
        self.updates_wanted += 1;
        self.ask_to_update(before, 0, ctx);
    }

    /// Asks the master, if there is one: who subscribes says it anyway.
    fn ask_to_update(&mut self, before: Before, tries: u32, ctx: &mut Context<Self>) {
        let (Phase::Subscribed { master }, Some(framework_id)) =
            (&self.phase, self.plan.framework.id.clone())
        else {
            return;
        };
        let (wanted, attempt) = (self.updates_wanted, self.attempt);
        let question = UpdateFramework {
            framework_id,
            framework: self.plan.framework.clone(),
            wants: self.plan.wants.clone(),
        };
        let asked = ctx.node().ask(master, question, SUBSCRIBE_PATIENCE);
        ctx.then(asked, move |driver: &mut Self, answer, ctx| {
            if driver.updates_wanted != wanted || driver.attempt != attempt {
                return; // Something newer is wanted, or the next master is told when the framework subscribes.
            }
            let outcome = match answer {
                Ok(Ok(())) => Ok(()),
                Ok(Err(SubscriptionRefused::Never { reason })) => {
                    let plan = &mut driver.plan;
                    (plan.framework, plan.wants, driver.suppressed_at_first) = before;
                    Err(reason)
                }
                Ok(Err(SubscriptionRefused::NotNow { reason })) => {
                    warn!(%reason, "the framework is not updated yet");
                    let wait = backoff(tries, ctx.node().rng().random());
                    ctx.after(wait, move |driver, ctx| {
                        if driver.updates_wanted == wanted && driver.attempt == attempt {
                            driver.ask_to_update(before, tries.saturating_add(1), ctx);
                        }
                    });
                    return;
                }
                Err(error) => {
                    warn!(%error, "no answer to the update of the framework");
                    return;
                }
            };
            driver.call(ctx, |scheduler, verbs| {
                scheduler.updated(verbs, outcome.as_ref().copied().map_err(String::as_str));
            });
        });
    }
}
