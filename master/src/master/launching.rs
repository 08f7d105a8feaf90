//! Launches: each is confirmed by its agent as soon as that has heard of it, long before anything runs.
//!
//! Remembers those that are not confirmed. When the agent's process has ended, their tasks have never run: their framework is told so at
//! once. When only the link is lost, nobody can know; the agent tells when it registers again, or the health check gives it up. A task that
//! was told dropped is killed if its agent comes back with it.

use std::collections::{BTreeMap, VecDeque};

use protocol::message::task::RunTasks;
use runtime::prelude::*;
use runtime::{Exit, Patience};

use super::Master;
use crate::accept::Unsent;
use crate::effects::{Effect, Effects};

/// Launches that no agent has confirmed.
#[derive(Default)]
pub(super) struct Unconfirmed {
    by_agent: BTreeMap<Pid, BTreeMap<u64, Unsent>>,
    /// The number of the next one.
    next: u64,
}

impl Unconfirmed {
    /// This was sent to the agent there; gives its number.
    fn sent(&mut self, agent: &Pid, launch: Unsent) -> u64 {
        let number = self.next;
        self.next += 1;
        let of_agent = self.by_agent.entry(agent.clone()).or_default();
        of_agent.insert(number, launch);
        number
    }

    /// It need not be remembered any more; gives it, if it still was.
    fn take(&mut self, agent: &Pid, number: u64) -> Option<Unsent> {
        let of_agent = self.by_agent.get_mut(agent)?;
        let launch = of_agent.remove(&number);
        if of_agent.is_empty() {
            self.by_agent.remove(agent);
        }
        launch
    }

    /// Nothing is heard from the agent there any more; gives what it has not confirmed.
    fn take_all(&mut self, agent: &Pid) -> impl Iterator<Item = Unsent> {
        let of_agent = self.by_agent.remove(agent).unwrap_or_default();
        of_agent.into_values()
    }
}

impl Master {
    /// Tells an agent to run these tasks.
    pub(super) fn launch(
        &mut self,
        agent: &Pid,
        message: RunTasks,
        ctx: &mut Context<Self>,
        queue: &mut VecDeque<Effect>,
    ) {
        let launch = Unsent::of(&message);
        let confirmed = ctx.node().ask(agent, message, Patience::WhileLinked);
        if let Some(error) = confirmed.unsent() {
            self.dropped(agent, error);
            return self.not_launched(launch, ctx, queue);
        }
        let Some(launch) = launch else { return };
        let (agent, number) = (agent.clone(), self.unconfirmed.sent(agent, launch));
        ctx.then(confirmed, move |master, confirmed, ctx| {
            let is_linked = master.books.agents.at(&agent).is_some();
            if confirmed == Err(AskError::Gone) && is_linked {
                return; // Why the link has ended is heard next: see `end_launches`.
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

    /// Nothing is heard any more from the agent that was there.
    pub(super) fn end_launches(&mut self, agent: &Pid, end: &Exit, ctx: &mut Context<Self>) {
        let unconfirmed: Vec<Unsent> = self.unconfirmed.take_all(agent).collect();
        if end.is_end_of_process() && !unconfirmed.is_empty() {
            self.change(ctx, |books, now, out| {
                for launch in unconfirmed {
                    books.not_launched(launch, now, out);
                }
            });
        }
    }

    /// The message with these tasks did not reach its agent.
    pub(super) fn not_launched(
        &mut self,
        launch: Option<Unsent>,
        ctx: &mut Context<Self>,
        queue: &mut VecDeque<Effect>,
    ) {
        let Some(launch) = launch else { return };
        let (mut out, now) = (Effects::new(), ctx.clock().wall());
        self.books_mut().not_launched(launch, now, &mut out);
        queue.extend(out);
    }
}
