//! Changes that the registry must record before they are published. The schedule of pings is in
//! [`crate::master::agents::pings`].
//!
//! An operation that the registry refuses for now is retried every second; nothing is published
//! until it succeeds.

use protocol::{AgentId, FrameworkId};
use runtime::Timestamp;
use runtime::prelude::*;

use super::{Master, REGISTRY_RETRY};
use crate::agents::admission::Removal;
use crate::registry::{RegistryError, RegistryOperation};

impl Master {
    /// Records that an agent is unreachable, then acts on it.
    pub(super) fn mark_unreachable(
        &mut self,
        agent_id: AgentId,
        since: Timestamp,
        ctx: &mut Context<Self>,
    ) {
        self.leaving.insert(agent_id.clone());
        let operation = RegistryOperation::MarkAgentUnreachable {
            agent_id: agent_id.clone(),
            since,
        };
        let applied = self.registry.apply(operation);
        ctx.then(applied, move |master, applied, ctx| match applied {
            Ok(_) => {
                master.leaving.remove(&agent_id);
                master.pings.forget(&agent_id);
                master.change(ctx, |state, _, out| {
                    state.agent_unreachable(&agent_id, since, out);
                });
            }
            Err(RegistryError::NotNow { reason }) => {
                tracing::warn!(agent = %agent_id, %reason, "cannot record an agent as unreachable yet");
                ctx.after(REGISTRY_RETRY, move |master, ctx| {
                    master.mark_unreachable(agent_id, since, ctx);
                });
            }
            Err(error) => {
                master.leaving.remove(&agent_id);
                tracing::error!(agent = %agent_id, %error, "cannot record an agent as unreachable");
                master.step_down_if_over(&error, ctx);
            }
        });
    }

    /// Records that an agent is gone for good, then acts on it.
    pub(super) fn remove_agent(
        &mut self,
        agent_id: AgentId,
        why: Removal,
        ctx: &mut Context<Self>,
    ) {
        let since = ctx.clock().wall();
        if why == Removal::Maintenance {
            // Work sent to it while the registry writes would be lost.
            self.change(ctx, |state, _, out| state.suspend_agent(&agent_id, out));
        }
        self.record_removed_agent(agent_id, why, since, ctx);
    }

    /// The registry and the state use the same time on every attempt, because both forget the
    /// oldest above the bound.
    fn record_removed_agent(
        &mut self,
        agent_id: AgentId,
        why: Removal,
        since: Timestamp,
        ctx: &mut Context<Self>,
    ) {
        self.leaving.insert(agent_id.clone());
        let operation = match why {
            Removal::Gone | Removal::Maintenance => RegistryOperation::MarkAgentGone {
                agent_id: agent_id.clone(),
                since,
            },
            _ => RegistryOperation::RemoveAgent {
                agent_id: agent_id.clone(),
            },
        };
        let applied = self.registry.apply(operation);
        ctx.then(applied, move |master, applied, ctx| match applied {
            Ok(_) => {
                master.leaving.remove(&agent_id);
                master.pings.forget(&agent_id);
                master.change(ctx, |state, now, out| {
                    state.agent_removed(&agent_id, why, since, now, out);
                });
                let is_gone = master.state.agents.is_gone(&agent_id);
                let waiting = is_gone
                    .then(|| master.marking_gone.remove(&agent_id))
                    .flatten();
                for promise in waiting.unwrap_or_default() {
                    promise.answer(Ok(()));
                }
            }
            Err(RegistryError::NotNow { .. }) => {
                ctx.after(REGISTRY_RETRY, move |master, ctx| {
                    master.record_removed_agent(agent_id, why, since, ctx);
                });
            }
            Err(error) => {
                master.leaving.remove(&agent_id);
                // Waiting operators see that the request was dropped.
                master.marking_gone.remove(&agent_id);
                tracing::error!(agent = %agent_id, %error, "cannot record an agent as gone");
                master.step_down_if_over(&error, ctx);
            }
        });
    }

    /// Records that a framework is over, then acts on it.
    pub(super) fn remove_framework(&mut self, framework_id: FrameworkId, ctx: &mut Context<Self>) {
        // A scheduler that tears its framework down also closes its link: the second reason is
        // ignored.
        if self.removing.insert(framework_id.clone()) {
            self.record_removal(framework_id, ctx);
        }
    }

    fn record_removal(&mut self, framework_id: FrameworkId, ctx: &mut Context<Self>) {
        let operation = RegistryOperation::RemoveFramework {
            framework_id: framework_id.clone(),
        };
        let applied = self.registry.apply(operation);
        ctx.then(applied, move |master, applied, ctx| match applied {
            Ok(_) => {
                master.removing.remove(&framework_id);
                if let Some(timer) = master.failovers.remove(&framework_id) {
                    ctx.cancel(timer);
                }
                tracing::info!(framework = %framework_id, "framework removed");
                master.change(ctx, |state, now, out| {
                    state.remove_framework(&framework_id, now, out);
                });
                for promise in master.ending.remove(&framework_id).unwrap_or_default() {
                    promise.answer(Ok(()));
                }
            }
            Err(RegistryError::NotNow { .. }) => {
                ctx.after(REGISTRY_RETRY, move |master, ctx| {
                    master.record_removal(framework_id, ctx);
                });
            }
            Err(error) => {
                master.removing.remove(&framework_id);
                // Waiting operators see that the request was dropped.
                master.ending.remove(&framework_id);
                tracing::error!(framework = %framework_id, %error, "cannot record a framework as removed");
                master.step_down_if_over(&error, ctx);
            }
        });
    }

    /// The agents of the registry have had their time: those that have not returned are
    /// unreachable.
    pub(super) fn recovery_over(&mut self, ctx: &mut Context<Self>) {
        let since = ctx.clock().wall();
        let missing: Vec<AgentId> = self
            .state
            .agents
            .recovered()
            .map(|(id, _)| id.clone())
            .filter(|id| !self.leaving.contains(id))
            .collect();
        for id in missing {
            tracing::warn!(agent = %id, "agent has not returned after the master's restart");
            self.mark_unreachable(id, since, ctx);
        }
    }

    pub(super) fn step_down_if_over(&mut self, error: &RegistryError, ctx: &mut Context<Self>) {
        match error {
            RegistryError::LostLeadership | RegistryError::Broken { .. } => {
                self.step_down(error, ctx);
            }
            RegistryError::NotNow { .. }
            | RegistryError::Refused { .. }
            | RegistryError::Conflict { .. } => {}
        }
    }
}
