//! Launches: an agent confirms each as soon as it has received it, long before the tasks run.
//!
//! Keeps the unconfirmed ones. If the agent's process has ended, their tasks never ran, and their
//! frameworks are notified at once. If only the link is lost, nobody can know: the agent reports
//! when it registers again, or the health check gives up. A task that was reported as dropped is
//! killed if its agent returns with it.

use std::collections::{BTreeMap, VecDeque};

use protocol::message::task::RunTasks;
use runtime::prelude::*;
use runtime::{Exit, Patience};

use super::Master;
use crate::offers::accept::UnsentTasks;
use crate::state::effects::{Effect, Effects};

/// Launches without a confirmation.
#[derive(Default)]
pub(super) struct Unconfirmed {
    by_agent: BTreeMap<Pid, BTreeMap<u64, UnsentTasks>>,
    /// The next launch's number.
    next: u64,
}

impl Unconfirmed {
    /// Adds a launch that was sent to the agent; returns its number.
    fn sent(&mut self, agent: &Pid, launch: UnsentTasks) -> u64 {
        let number = self.next;
        self.next += 1;
        let of_agent = self.by_agent.entry(agent.clone()).or_default();
        of_agent.insert(number, launch);
        number
    }

    /// Removes a launch; returns it if it was there.
    fn take(&mut self, agent: &Pid, number: u64) -> Option<UnsentTasks> {
        let of_agent = self.by_agent.get_mut(agent)?;
        let launch = of_agent.remove(&number);
        if of_agent.is_empty() {
            self.by_agent.remove(agent);
        }
        launch
    }

    /// Removes all launches of an agent that is disconnected.
    fn take_all(&mut self, agent: &Pid) -> impl Iterator<Item = UnsentTasks> {
        let of_agent = self.by_agent.remove(agent).unwrap_or_default();
        of_agent.into_values()
    }
}

impl Master {
    /// Sends tasks to an agent.
    pub(super) fn launch(
        &mut self,
        agent: &Pid,
        message: RunTasks,
        ctx: &mut Context<Self>,
        queue: &mut VecDeque<Effect>,
    ) {
        let launch = UnsentTasks::of(&message);
        let confirmed = ctx.node().ask(agent, message, Patience::WhileLinked);
        if let Some(error) = confirmed.unsent() {
            self.dropped(agent, error);
            return self.not_launched(launch, ctx, queue);
        }
        let Some(launch) = launch else { return };
        let (agent, number) = (agent.clone(), self.unconfirmed.sent(agent, launch));
        ctx.then(confirmed, move |master, confirmed, ctx| {
            let is_linked = master.state.agents.at(&agent).is_some();
            if confirmed == Err(AskError::Gone) && is_linked {
                return; // The reason for the link's end arrives next, see `end_launches`.
            }
            let launch = master.unconfirmed.take(&agent, number);
            match confirmed {
                Ok(()) | Err(AskError::Gone) => {}
                Err(error) => {
                    master.dropped(&agent, &error);
                    let mut queue = VecDeque::new();
                    master.not_launched(launch, ctx, &mut queue);
                    master.perform(queue.into(), ctx);
                    master.changed();
                }
            }
        });
    }

    /// Handles the end of an agent's process or link.
    pub(super) fn end_launches(&mut self, agent: &Pid, end: &Exit, ctx: &mut Context<Self>) {
        let unconfirmed: Vec<UnsentTasks> = self.unconfirmed.take_all(agent).collect();
        if end.is_end_of_process() && !unconfirmed.is_empty() {
            self.change(ctx, |state, now, out| {
                for launch in unconfirmed {
                    state.not_launched(launch, now, out);
                }
            });
        }
    }

    /// The message with these tasks did not reach its agent.
    pub(super) fn not_launched(
        &mut self,
        launch: Option<UnsentTasks>,
        ctx: &mut Context<Self>,
        queue: &mut VecDeque<Effect>,
    ) {
        let Some(launch) = launch else { return };
        let (mut out, now) = (Effects::new(), ctx.clock().wall());
        self.state_mut().not_launched(launch, now, &mut out);
        queue.extend(out);
    }
}
