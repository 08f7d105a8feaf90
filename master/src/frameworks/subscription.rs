//! Subscription: how frameworks register and return; [`super::ending`] has how they end.
//!
//! Pure decisions on [`MasterState`]. As with agents, the registry stands between `prepare_...` and
//! the other half. The newest scheduler of a framework replaces the previous one. Never waits.

use std::time::Duration;

use module_api::allocator::FrameworkAdded;
use protocol::message::scheduler::{FrameworkFailed, Subscribe, Subscribed, SubscriptionRefused};
use protocol::{FrameworkId, FrameworkInfo};
use resources::Invalid;
use runtime::Timestamp;

use crate::frameworks::Framework;
use crate::frameworks::counters::FrameworkCounter;
use crate::frameworks::ending::REMOVED;
use crate::registry::RegistryOperation;
use crate::state::MasterState;
use crate::state::effects::{Due, Effect, Effects, SendEffects, ToAllocator, ToScheduler};
use crate::validation;

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
}
