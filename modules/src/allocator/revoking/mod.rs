//! Revocation in the allocator's actor: requests the running tasks from the master and names the
//! tasks to revoke. Also sends the bound on long tasks.
//!
//! Handles [`TasksListed`]. Sends [`TasksWanted`], [`VictimsNamed`], [`StillLacking`] and
//! [`module_api::allocator::LongTasksBounded`]. Only [`VictimsNamed`] ends tasks; if it cannot be
//! sent, the tasks are named again at the next check. Does nothing unless configured.

pub(in crate::allocator) mod revoker;
pub(in crate::allocator) mod victims;

use module_api::allocator::{StillLacking, TasksListed, TasksWanted, VictimsNamed};
use resources::Role;
use runtime::prelude::*;

use super::Allocator;
use crate::allocator::revoking::revoker::TaskListing;

impl Allocator {
    /// Sends the bound on long tasks, before any grant.
    pub(super) fn send_long_task_bound(&self) {
        let (Some(bound), Some(master)) = (self.long_tasks, &self.master) else {
            return;
        };
        if let Err(error) = master.tell(bound) {
            tracing::warn!(%error, "cannot send the bound on long tasks to the master");
        }
    }

    /// Requests the tasks of agents where revocation could help, if a guarantee has been unmet for
    /// long enough.
    pub(super) fn check_guarantees(&mut self, ctx: &Context<Self>) {
        let (Some(revoker), Some(master)) = (&mut self.revoker, &self.master) else {
            return;
        };
        let now = ctx.clock().now();
        revoker.retain_agents(|slot| self.state.is_kept(slot));
        let shortage = self.state.shortage(now);
        let short = shortage.roles();
        if let Some(lacking) = revoker.still_lacking(&short, now) {
            let roles = lacking.iter().map(ToString::to_string).collect();
            if let Err(error) = master.tell(StillLacking { roles }) {
                tracing::warn!(%error, "cannot send the roles with unmet guarantees to the master");
            }
        }
        let roles = revoker.due(short, now);
        self.state.keep(revoker.kept_agents());
        if roles.is_empty() {
            return;
        }
        let (agents, last) = self.state.occupied(&shortage, &roles, revoker.last_slot());
        if agents.is_empty() {
            return;
        }
        let wanted = TasksWanted {
            agents,
            roles: roles.iter().map(ToString::to_string).collect(),
            names: shortage.names(&roles),
            number: revoker.record_request(roles, last, now),
        };
        if let Err(error) = master.tell(wanted) {
            tracing::warn!(%error, "cannot request tasks from the master");
        }
    }
}

impl Handler<TasksListed> for Allocator {
    type Result = ();

    fn handle(&mut self, listed: TasksListed, ctx: &mut Context<Self>) {
        let (Some(revoker), Some(master)) = (&mut self.revoker, &self.master) else {
            return;
        };
        let Some(listing) = revoker.receive(listed) else {
            return;
        };
        let now = ctx.clock().now();
        let TaskListing {
            roles,
            tasks,
            consumed,
        } = listing;
        let victims = self.state.victims(&roles, &tasks, &consumed, now);
        if victims.is_empty() {
            return revoker.record_no_victims(now);
        }
        let places = victims.iter().filter_map(|victim| {
            let role = Role::new(&victim.role).ok()?;
            Some((self.state.slot_of(&victim.agent_id)?, role))
        });
        revoker.retain_agents(|slot| self.state.is_kept(slot));
        revoker.record_victims(places, now);
        self.state.keep(revoker.kept_agents());
        let grace = revoker.grace();
        tracing::info!(
            tasks = victims.len(),
            ?roles,
            "revoking tasks for unmet guarantees"
        );
        if let Err(error) = master.tell(VictimsNamed { victims, grace }) {
            tracing::warn!(%error, "cannot send the tasks to revoke to the master");
        }
    }
}
