//! Subscription: how frameworks register, lose their schedulers, return and end.
//!
//! Pure decisions on [`MasterState`]. As with agents, the registry stands between `prepare_...` and
//! the other half. The newest scheduler of a framework replaces the previous one. Never waits.

use std::time::Duration;

use module_api::allocator::{FrameworkActivity, FrameworkAdded, FrameworkRemoved};
use protocol::message::scheduler::{FrameworkFailed, Subscribe, Subscribed, SubscriptionRefused};
use protocol::message::task::ShutDownFramework;
use protocol::{FrameworkId, FrameworkInfo, Reason, TaskState};
use resources::Invalid;
use runtime::{Pid, Timestamp};

use crate::frameworks::Framework;
use crate::frameworks::counters::FrameworkCounter;
use crate::registry::RegistryOperation;
use crate::state::effects::{Due, Effect, Effects, SendEffects, ToAgent, ToAllocator, ToScheduler};
use crate::state::{MasterState, master_status};
use crate::tasks::Task;
use crate::validation;

/// The error for the scheduler of a removed framework.
pub(crate) const REMOVED: &str = "Framework has been removed";
/// The error for a framework that subscribes with another principal than before.
pub(crate) const CHANGED_PRINCIPAL: &str = "Changing framework's principal is not allowed.";

/// The registry operation that admits a framework.
#[derive(Clone, Debug, PartialEq)]
pub struct FrameworkPrepared {
    /// Its description with its id, old or new, and without changes that are ignored.
    pub info: FrameworkInfo,
    /// Its id.
    pub framework_id: FrameworkId,
    /// The operation to record.
    pub operation: RegistryOperation,
}

impl FrameworkPrepared {
    /// An admission of the connected framework with that id and description.
    pub(crate) fn admission(framework_id: FrameworkId, mut info: FrameworkInfo) -> Self {
        info.id = Some(framework_id.clone());
        let operation = RegistryOperation::AdmitFramework {
            info: info.clone(),
            deadline: None,
        };
        Self {
            info,
            framework_id,
            operation,
        }
    }
}

impl MasterState {
    /// Checks a subscription; returns the operation to record first.
    pub fn prepare_framework(
        &mut self,
        message: &Subscribe,
    ) -> Result<FrameworkPrepared, SubscriptionRefused> {
        self.counters.count(match message.framework.id {
            None => "master/messages_register_framework",
            Some(_) => "master/messages_reregister_framework",
        });
        let never = |reason: String| SubscriptionRefused::Never { reason };
        validation::framework(&message.framework, &message.wants, &self.policy)
            .map_err(|invalid| never(invalid.to_string()))?;
        // A scheduler that asks again because the answer was lost gets the same id.
        let same = || self.frameworks.at(&message.scheduler).map(|f| f.id.clone());
        let known = message.framework.id.clone().or_else(same);
        let framework_id = known.unwrap_or_else(|| self.ids.framework());
        if self.frameworks.is_removed(&framework_id) {
            return Err(never(REMOVED.to_owned()));
        }
        self.frameworks
            .check_room(&framework_id, &message.framework, &message.wants)
            .map_err(|invalid| never(invalid.to_string()))?;
        let speaks_for = self.frameworks.at(&message.scheduler);
        if let Some(other) = speaks_for.filter(|other| other.id != framework_id) {
            let expected = format!("this scheduler's framework, `{}`", other.id);
            let invalid = Invalid::new("framework.id", &framework_id, expected);
            return Err(never(invalid.to_string()));
        }
        let mut info = message.framework.clone();
        if let Some(before) = self.frameworks.get(&framework_id) {
            if before.info.principal != info.principal {
                // Without the known principal, which is confidential.
                return Err(never(CHANGED_PRINCIPAL.to_owned()));
            }
            info.user = before.info.user.clone();
            info.checkpoint = before.info.checkpoint;
        }
        Ok(FrameworkPrepared::admission(framework_id, info))
    }

    /// The registry has recorded the framework: subscribes this scheduler.
    pub fn subscribe(
        &mut self,
        prepared: FrameworkPrepared,
        message: Subscribe,
        now: Timestamp,
        out: &mut Effects,
    ) -> Result<Subscribed, SubscriptionRefused> {
        let FrameworkPrepared {
            info, framework_id, ..
        } = prepared;
        if self.frameworks.is_removed(&framework_id) {
            let reason = REMOVED.to_owned();
            return Err(SubscriptionRefused::Never { reason });
        }
        self.standbys.subscribed(&framework_id, &message.scheduler);
        let before = self.frameworks.get(&framework_id).cloned();
        let old = before.as_ref().and_then(|before| before.scheduler.as_ref());
        if let Some(old) = old.filter(|old| **old != message.scheduler) {
            // This is the old scheduler's last event, so its offers are not rescinded to it.
            self.frameworks.disconnect(&framework_id);
            let failed = FrameworkFailed {
                message: "Framework failed over".to_owned(),
            };
            out.scheduler(Some(old), ToScheduler::Failed(failed));
            // Counted here, because the receiver no longer is the framework's scheduler.
            self.frameworks
                .count(&framework_id, FrameworkCounter::Error, 1);
            out.push(Effect::Unlink(old.clone()));
        }
        self.rescind_of_framework(&framework_id, out);
        out.push(Effect::Link(message.scheduler.clone()));
        out.allocator(ToAllocator::FrameworkAdded(Box::new(FrameworkAdded {
            framework_id: framework_id.clone(),
            info: info.clone(),
            wants: message.wants.clone(),
            active: true,
        })));
        self.frameworks.insert(Framework {
            id: framework_id.clone(),
            info,
            scheduler: Some(message.scheduler),
            session: 0,
            registered: before.as_ref().map_or(now, |before| before.registered),
            reregistered: before.is_some().then_some(now),
            unregistered: None,
            wants: message.wants,
            recovered: false,
        });
        let known = self.frameworks.get(&framework_id);
        let is_other = |before: &Framework| known.is_some_and(|now| now.info != before.info);
        match before.as_ref().map(is_other) {
            Some(true) => self.send_change(&framework_id, out),
            Some(false) => self.send_on_return(&framework_id, out),
            None => {}
        }
        self.frameworks
            .count(&framework_id, FrameworkCounter::Subscribe, 1);
        self.frameworks
            .count(&framework_id, FrameworkCounter::Subscribed, 1);
        Ok(Subscribed {
            framework_id,
            master: self.master.clone(),
        })
    }

    /// The link to a scheduler broke: the framework gets no offers until it returns within its
    /// failover timeout. A standby replaces the scheduler at once.
    pub fn framework_disconnected(&mut self, scheduler: &Pid, out: &mut Effects) {
        let Some(framework) = self.frameworks.at(scheduler) else {
            return;
        };
        let (id, timeout) = (framework.id.clone(), framework.info.failover_timeout);
        let Some(session) = self.frameworks.disconnect(&id) else {
            return;
        };
        out.allocator(ToAllocator::FrameworkActivity(FrameworkActivity {
            framework_id: id.clone(),
            active: false,
        }));
        self.rescind_of_framework(&id, out);
        let chosen = self.standbys.has(&id);
        if chosen {
            out.push(Effect::Choose(id.clone()));
        }
        if timeout.is_zero() && !chosen {
            out.push(Effect::RemoveFramework(id));
        } else if !timeout.is_zero() {
            if !chosen {
                out.push(Effect::RecordDeadline(id.clone()));
            }
            out.push(Effect::Later(timeout, Due::FailoverExpired(id, session)));
        }
    }

    /// The framework's failover deadline, to be recorded; none while it is connected.
    pub fn deadline(&self, id: &FrameworkId, now: Timestamp) -> Option<RegistryOperation> {
        let framework = self.frameworks.get(id)?;
        let deadline = now + framework.info.failover_timeout;
        Some(RegistryOperation::AdmitFramework {
            info: framework.info.clone(),
            deadline: (!framework.is_connected()).then_some(deadline),
        })
    }

    /// The failover timeout of that session is over: removes the framework if no scheduler has
    /// connected since.
    pub fn failover_expired(&mut self, id: FrameworkId, session: u64, out: &mut Effects) {
        let late =
            |framework: &Framework| framework.session == session && !framework.is_connected();
        if self.frameworks.get(&id).is_some_and(late) {
            out.push(Effect::RemoveFramework(id));
        }
    }

    /// Adds a framework that is known from the registry or a returning agent, without a scheduler.
    /// It is kept for its failover timeout, and at least for the reregistration timeout of agents.
    pub(crate) fn recover_framework(
        &mut self,
        id: FrameworkId,
        info: FrameworkInfo,
        deadline: Option<Timestamp>,
        now: Timestamp,
        out: &mut Effects,
    ) {
        let left = deadline.map_or(info.failover_timeout, |at| at.saturating_since(now));
        let patience: Duration = left.max(self.policy.agent_reregister_timeout);
        out.allocator(ToAllocator::FrameworkAdded(Box::new(FrameworkAdded {
            framework_id: id.clone(),
            info: info.clone(),
            wants: Default::default(),
            active: false,
        })));
        let session = self.frameworks.insert(Framework {
            id: id.clone(),
            info,
            scheduler: None,
            session: 0,
            registered: now,
            reregistered: None,
            unregistered: None,
            wants: Default::default(),
            recovered: true,
        });
        out.push(Effect::Later(patience, Due::FailoverExpired(id, session)));
    }

    /// The framework is removed from the registry: its agents end its tasks. Its scheduler gets an
    /// error and nothing else, as in Mesos.
    pub fn remove_framework(&mut self, id: &FrameworkId, now: Timestamp, out: &mut Effects) {
        let Some(framework) = self.frameworks.get(id).cloned() else {
            return;
        };
        self.frameworks.disconnect(id);
        self.rescind_of_framework(id, out);
        let status = |task: &Task| {
            let (state, reason) = (TaskState::Killed, Reason::FrameworkRemoved);
            let message = format!("Framework {id} removed");
            master_status(Some(&framework), &task.id, state, reason, message, now)
                .on(&task.agent_id)
        };
        let mut killed = Vec::new();
        self.operations.remove_framework(id);
        let (tasks, freed, agents) = self.tasks.remove_framework(id, |task| {
            let status = status(task);
            task.observe(&status, status.state);
            killed.push(status);
        });
        for status in killed {
            self.task_ended(id, &status);
            self.tell_status(id, status, out);
        }
        for freed in freed {
            self.recovered(freed, None, out);
        }
        for agent in agents {
            if let Some(agent) = self.agents.connected(&agent) {
                let framework_id = id.clone();
                let gone = ToAgent::ShutDownFramework(ShutDownFramework { framework_id });
                out.agent(&agent.pid, gone);
            }
        }
        self.forget_answers_by(id);
        self.early_kills.retain(|(framework, _), _| framework != id);
        self.revocations.retain(|(framework, _), _| framework != id);
        self.dismiss_standbys(id, out);
        out.allocator(ToAllocator::FrameworkRemoved(FrameworkRemoved {
            framework_id: id.clone(),
        }));
        if let Some(scheduler) = framework.scheduler {
            let message = REMOVED.to_owned();
            let failed = ToScheduler::Failed(FrameworkFailed { message });
            out.scheduler(Some(&scheduler), failed);
            out.push(Effect::Unlink(scheduler));
        }
        self.frameworks.complete(id, tasks, now);
        self.offers.forget(id);
    }
}
