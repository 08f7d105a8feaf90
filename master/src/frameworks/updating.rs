//! Framework updates without a new subscription (UPDATE_FRAMEWORK), and their distribution to
//! agents.
//!
//! Pure decisions on [`MasterState`]. As with a subscription, the registry stands between
//! `prepare_update` and the other half. Immutable fields (user, principal, checkpointing) stay;
//! open offers stay, except for roles that the framework has left.

use std::collections::BTreeSet;

use module_api::allocator::FrameworkAdded;
use protocol::message::scheduler::{SubscriptionRefused, UpdateFramework};
use protocol::message::task::FrameworkChanged;
use protocol::{AgentId, FrameworkId, FrameworkInfo};
use resources::excerpt;
use runtime::Pid;
use v1::convert::scheduler::UNKNOWN_FRAMEWORK;

use crate::frameworks::counters::FrameworkCounter;
use crate::frameworks::subscription::{CHANGED_PRINCIPAL, FrameworkPrepared};
use crate::state::MasterState;
use crate::state::effects::{Effects, SendEffects, ToAgent, ToAllocator};
use crate::validation::{self, FrameworkInvalid};

impl MasterState {
    /// Checks an update; returns the operation to record first.
    pub fn prepare_update(
        &mut self,
        message: &UpdateFramework,
    ) -> Result<FrameworkPrepared, SubscriptionRefused> {
        self.counters.count("master/messages_update_framework");
        let never = |reason: String| SubscriptionRefused::Never { reason };
        let framework_id = message.framework_id.clone();
        self.frameworks
            .count(&framework_id, FrameworkCounter::Update, 1);
        let Some(known) = self.frameworks.get(&framework_id) else {
            return Err(never(UNKNOWN_FRAMEWORK.to_owned()));
        };
        let info = message.framework.clone();
        let valid = validation::framework(&info, &message.wants, &self.policy);
        valid.map_err(|invalid| {
            never(match invalid {
                FrameworkInvalid::Info(problem) => {
                    format!("Supplied FrameworkInfo is not valid: {problem}")
                }
                FrameworkInvalid::Options(problem) => {
                    format!("'UpdateFramework.offer_constraints' are not valid: {problem}")
                }
                FrameworkInvalid::Unauthorized(problem) => problem,
            })
        })?;
        if let Some(problem) = immutable_change(&framework_id, &known.info, &info) {
            return Err(never(format!(
                "FrameworkInfo update is not valid: {problem}"
            )));
        }
        self.frameworks
            .check_room(&framework_id, &info, &message.wants)
            .map_err(|invalid| never(invalid.to_string()))?;
        Ok(FrameworkPrepared::admission(framework_id, info))
    }

    /// The registry has recorded the update: applies it.
    pub fn update(
        &mut self,
        prepared: FrameworkPrepared,
        message: UpdateFramework,
        out: &mut Effects,
    ) -> Result<(), SubscriptionRefused> {
        let FrameworkPrepared {
            info, framework_id, ..
        } = prepared;
        let known = self.frameworks.get(&framework_id);
        let changes = known.is_some_and(|known| known.info != info);
        let Some(active) = self.frameworks.update(&framework_id, &info, &message.wants) else {
            let reason = "the framework was removed meanwhile".to_owned();
            return Err(SubscriptionRefused::Never { reason });
        };
        if changes {
            self.send_change(&framework_id, out);
        }
        self.rescind_of_roles_left(&framework_id, out);
        out.allocator(ToAllocator::FrameworkAdded(Box::new(FrameworkAdded {
            framework_id,
            info,
            wants: message.wants,
            active,
        })));
        Ok(())
    }

    /// Sends a changed description to the agents with tasks or executors of the framework;
    /// otherwise they would use the old one until the next launch. Disconnected agents get it when
    /// they return.
    pub(crate) fn send_change(&mut self, id: &FrameworkId, out: &mut Effects) {
        self.frameworks.note_change(id);
        self.send_on_return(id, out);
    }

    /// The framework has a scheduler again: its agents get the description and resend
    /// unacknowledged updates at once, as in Mesos; otherwise they might wait for minutes.
    pub(crate) fn send_on_return(&self, id: &FrameworkId, out: &mut Effects) {
        for agent in self.tasks.agents_of(id) {
            if let Some(agent) = self.agents.connected(agent) {
                self.send_description(id, &agent.pid, out);
            }
        }
    }

    /// An agent has returned: sends it the descriptions of its frameworks that differ from its own,
    /// or have changed under this master. A change under an earlier master that it missed, and did
    /// not report, reaches it with the next subscription or launch.
    pub(crate) fn send_missed_changes(
        &self,
        agent_id: &AgentId,
        pid: &Pid,
        mut otherwise: BTreeSet<FrameworkId>,
        out: &mut Effects,
    ) {
        let on = self.tasks.on_agent(agent_id).into_iter();
        let there = on.flat_map(|on| on.frameworks());
        otherwise.extend(self.frameworks.changed(there).cloned());
        for id in otherwise {
            self.send_description(&id, pid, out);
        }
    }

    fn send_description(&self, id: &FrameworkId, agent: &Pid, out: &mut Effects) {
        if let Some(framework) = self.frameworks.get(id) {
            let framework = framework.info.clone();
            let changed = Box::new(FrameworkChanged { framework });
            out.agent(agent, ToAgent::FrameworkChanged(changed));
        }
    }

    fn rescind_of_roles_left(&mut self, id: &FrameworkId, out: &mut Effects) {
        let Some(framework) = self.frameworks.get(id) else {
            return;
        };
        let roles = &framework.info.roles;
        let offers = self.offers.of_framework(id);
        let left = offers.filter(|offer| !roles.contains(&offer.role));
        let left = left.map(|offer| offer.id.clone()).collect();
        self.rescind(left, out);
    }
}

/// The update of an immutable field, with Mesos' message.
fn immutable_change(id: &FrameworkId, old: &FrameworkInfo, new: &FrameworkInfo) -> Option<String> {
    let changed = |field: &str, old: &str, new: &str| {
        let problem = || {
            let (old, new) = (excerpt(old), excerpt(new));
            format!(
                "Updating 'FrameworkInfo.{field}' is unsupported; attempted to update from '{old}' to '{new}'"
            )
        };
        (old != new).then(problem)
    };
    if old.principal != new.principal {
        return Some(CHANGED_PRINCIPAL.to_owned());
    }
    let new_id = new.id.as_ref().unwrap_or(id);
    let (was, is) = (old.checkpoint.to_string(), new.checkpoint.to_string());
    changed("id", id.as_str(), new_id.as_str())
        .or_else(|| changed("user", &old.user, &new.user))
        .or_else(|| changed("checkpoint", &was, &is))
}
