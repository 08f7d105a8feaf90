//! Updating: a framework becomes something else, or wants other offers, without subscribing anew (SPEC 2.2 UPDATE_FRAMEWORK); and how its agents hear of that.
//!
//! Pure decisions on [`Books`]. The registry stands between `prepare_update` and the other half, as with a subscription. What may never
//! change (user, principal, checkpointing) stays; offers that are out stay, but for those of roles that were left.

use std::collections::BTreeSet;

use module_api::allocator::FrameworkAdded;
use protocol::message::scheduler::{SubscriptionRefused, UpdateFramework};
use protocol::message::task::FrameworkChanged;
use protocol::{AgentId, FrameworkId, FrameworkInfo};
use resources::excerpt;
use runtime::Pid;
use v1::convert::scheduler::UNKNOWN_FRAMEWORK;

use crate::books::Books;
use crate::dealings::Dealing;
use crate::effects::{Effects, Tell, ToAgent, ToAllocator};
use crate::subscription::{CHANGED_PRINCIPAL, FrameworkPrepared};
use crate::validation::{self, FrameworkInvalid};

impl Books {
    /// Whether the framework may become this, and what must be recorded first.
    pub fn prepare_update(
        &mut self,
        message: &UpdateFramework,
    ) -> Result<FrameworkPrepared, SubscriptionRefused> {
        self.counters.count("master/messages_update_framework");
        let never = |reason: String| SubscriptionRefused::Never { reason };
        let framework_id = message.framework_id.clone();
        self.frameworks.dealt(&framework_id, Dealing::Update, 1);
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
                    format!("'UpdateFramework' call is not valid: {problem}")
                }
                FrameworkInvalid::Unauthorized(problem) => problem,
            })
        })?;
        if let Some(problem) = changes_more_than_it_may(&framework_id, &known.info, &info) {
            return Err(never(format!(
                "FrameworkInfo update is not valid: {problem}"
            )));
        }
        self.frameworks
            .check_room(&framework_id, &info, &message.wants)
            .map_err(|invalid| never(invalid.to_string()))?;
        Ok(FrameworkPrepared::admission(framework_id, info))
    }

    /// The registry knows what the framework is now.
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
            self.tell_of_change(&framework_id, out);
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

    /// The framework has become something else: the agents that have something of it are told, or would go by what it was until they launch something
    /// for it (SPEC 3.2). One that is away is told when it is back.
    pub(crate) fn tell_of_change(&mut self, id: &FrameworkId, out: &mut Effects) {
        self.frameworks.note_change(id);
        self.tell_of_return(id, out);
    }

    /// The framework has a scheduler again: the agents that have something of it are told what it is, and tell at once what it has not acknowledged, as
    /// those of Mesos do; they may wait for minutes else.
    pub(crate) fn tell_of_return(&self, id: &FrameworkId, out: &mut Effects) {
        for agent in self.tasks.agents_of(id) {
            if let Some(agent) = self.agents.connected(agent) {
                self.tell_what_it_is(id, &agent.pid, out);
            }
        }
    }

    /// An agent is back: it is told what those of its frameworks are that it knew otherwise, or that have changed under this master. Of a change
    /// that it missed under an earlier one, and has not told itself, it hears when a scheduler subscribes again, or with the next launch.
    pub(crate) fn tell_of_changes(
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
            self.tell_what_it_is(&id, pid, out);
        }
    }

    fn tell_what_it_is(&self, id: &FrameworkId, agent: &Pid, out: &mut Effects) {
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

/// The change of a field that cannot change, in the words of Mesos.
fn changes_more_than_it_may(
    id: &FrameworkId,
    old: &FrameworkInfo,
    new: &FrameworkInfo,
) -> Option<String> {
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
