//! The allocator's part on revocation: it asks the master what runs, and names the tasks that must make room (S122, S123). It also says how
//! much of each agent is for long tasks (S121).
//!
//! Hears [`TasksListed`]. Says [`TasksWanted`], [`VictimsNamed`], [`StillLacking`] and [`module_api::allocator::LongTasksBounded`], and nothing
//! else ever ends a task; one that is not told of is named again at the next look. Does nothing unless the allocator was told to.

use module_api::allocator::{StillLacking, TasksListed, TasksWanted, VictimsNamed};
use resources::Role;
use runtime::prelude::*;

use super::Allocator;
use super::revoker::Heard;

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
        revoker.room_is_made_on(|slot| self.books.is_kept(slot));
        let shortage = self.books.shortage(now);
        let short = shortage.roles();
        if let Some(lacking) = revoker.spares(&short, now) {
            let roles = lacking.iter().map(ToString::to_string).collect();
            if let Err(error) = master.tell(StillLacking { roles }) {
                tracing::warn!(%error, "the master cannot be told which tasks may stay");
            }
        }
        let roles = revoker.due(short, now);
        self.books.keep(revoker.kept());
        if roles.is_empty() {
            return;
        }
        let (agents, last) = self.books.occupied(&shortage, &roles, revoker.turn());
        if agents.is_empty() {
            return;
        }
        let wanted = TasksWanted {
            agents,
            roles: roles.iter().map(ToString::to_string).collect(),
            names: shortage.names(&roles),
            number: revoker.ask(roles, last, now),
        };
        if let Err(error) = master.tell(wanted) {
            tracing::warn!(%error, "the master cannot be asked what runs");
        }
    }
}

impl Handler<TasksListed> for Allocator {
    type Result = ();

    fn handle(&mut self, listed: TasksListed, ctx: &mut Context<Self>) {
        let (Some(revoker), Some(master)) = (&mut self.revoker, &self.master) else {
            return;
        };
        let Some(heard) = revoker.hear(listed) else {
            return;
        };
        let now = ctx.clock().now();
        let Heard {
            roles,
            tasks,
            consumed,
        } = heard;
        let victims = self.books.victims(&roles, &tasks, &consumed, now);
        if victims.is_empty() {
            return revoker.named_nobody(now);
        }
        let places = victims.iter().filter_map(|victim| {
            let role = Role::new(&victim.role).ok()?;
            Some((self.books.slot_of(&victim.agent_id)?, role))
        });
        revoker.room_is_made_on(|slot| self.books.is_kept(slot));
        revoker.named(places, now);
        self.books.keep(revoker.kept());
        let grace = revoker.grace();
        tracing::info!(
            tasks = victims.len(),
            ?roles,
            "tasks must make room for what is guaranteed"
        );
        if let Err(error) = master.tell(VictimsNamed { victims, grace }) {
            tracing::warn!(%error, "the master cannot be told which tasks must make room");
        }
    }
}
