//! The allocator's part on revocation: it asks the master what runs, and names the tasks that must make room (S122, S123). It also says how
//! much of each agent is for long tasks (S121).
//!
//! Hears [`TasksListed`]. Says [`TasksWanted`], [`VictimsNamed`] and [`module_api::allocator::LongTasksBounded`], and nothing else ever ends a
//! task; one that is not told of is named again at the next look. Does nothing unless the allocator was told to.

use module_api::allocator::{TasksListed, TasksWanted, VictimsNamed};
use runtime::prelude::*;

use super::Allocator;

impl Allocator {
    /// Says how much of each agent is for long tasks, before anything is granted.
    pub(super) fn tell_of_long_tasks(&self) {
        let (Some(bound), Some(master)) = (self.long_tasks, &self.master) else {
            return;
        };
        if let Err(error) = master.tell(bound) {
            tracing::warn!(%error, "the master cannot be told what long tasks may use");
        }
    }

    /// Asks what runs where tasks could make room, if somebody has lacked what is guaranteed to it for long enough.
    pub(super) fn look_for_room(&mut self, ctx: &Context<Self>) {
        let (Some(revoker), Some(master)) = (&mut self.revoker, &self.master) else {
            return;
        };
        let now = ctx.clock().now();
        let roles = revoker.due(self.books.short_roles(), now);
        if roles.is_empty() {
            return;
        }
        let (agents, last) = self.books.occupied(&roles, revoker.turn());
        if agents.is_empty() {
            return;
        }
        let lacking = roles.iter().map(ToString::to_string).collect();
        let wanted = TasksWanted {
            number: revoker.ask(roles, last, now),
            agents,
            roles: lacking,
        };
        if let Err(error) = master.tell(wanted) {
            tracing::warn!(%error, "the master cannot be asked what runs");
        }
    }
}

impl Handler<TasksListed> for Allocator {
    type Result = ();

    fn handle(&mut self, listed: TasksListed, _: &mut Context<Self>) {
        let (Some(revoker), Some(master)) = (&mut self.revoker, &self.master) else {
            return;
        };
        let Some(heard) = revoker.hear(listed) else {
            return;
        };
        let grace = revoker.grace();
        let victims = self
            .books
            .victims(&heard.roles, &heard.tasks, &heard.consumed);
        if victims.is_empty() {
            return;
        }
        tracing::info!(tasks = victims.len(), roles = ?heard.roles, "tasks must make room for what is guaranteed");
        if let Err(error) = master.tell(VictimsNamed { victims, grace }) {
            tracing::warn!(%error, "the master cannot be told which tasks must make room");
        }
    }
}
