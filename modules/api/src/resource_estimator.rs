//! Resource estimator: states which resources of an agent can be lent as revocable.
//!
//! The agent sends [`InitializeEstimator`] once, then one [`Oversubscribable`] after the other. The
//! estimator may reply at once, later or never; the pending request does not block the agent. An
//! estimator never launches, kills or talks to the master.

use std::time::Duration;

use resources::Resources;
use runtime::{ActorRef, Patience, Pid, remote};
use serde::{Deserialize, Serialize};

use crate::error::{Fault, ModuleError, ModuleKind};

const KIND: ModuleKind = ModuleKind::ResourceEstimator;

/// Sets the source of usage data. Must come first, and only once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InitializeEstimator {
    /// The actor that answers [`CurrentUsage`](crate::usage::CurrentUsage).
    pub monitor: Pid,
}

/// Requests an estimate: the most that may be lent now in addition to the resources already lent,
/// all of it revocable. Each reply replaces the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Oversubscribable;

remote! { InitializeEstimator = "resource_estimator/initialize" v1 -> Result<(), Fault> }
remote! { Oversubscribable = "resource_estimator/oversubscribable" v1 -> Result<Resources, Fault> }

/// The agent's handle of its estimator.
#[derive(Clone, Debug)]
pub struct ResourceEstimatorRef {
    actor: ActorRef,
    patience: Duration,
}

impl ResourceEstimatorRef {
    /// Timeout of [`initialize`](Self::initialize).
    pub const PATIENCE: Duration = Duration::from_secs(5);

    /// A handle of the estimator behind `actor`.
    pub fn new(actor: ActorRef) -> Self {
        Self {
            actor,
            patience: Self::PATIENCE,
        }
    }

    /// The estimator's address.
    pub fn pid(&self) -> &Pid {
        self.actor.pid()
    }

    /// Sets the source of usage data.
    pub async fn initialize(&self, monitor: ActorRef) -> Result<(), ModuleError> {
        let monitor = monitor.pid().clone();
        let answer = self
            .actor
            .ask(InitializeEstimator { monitor }, self.patience);
        flatten_reply(answer.await)
    }

    /// Waits for an estimate as long as the estimator lives. Await it in a separate future, never
    /// in a message handler. Returns [`ModuleError::Unusable`] if any resource of the estimate is
    /// not revocable.
    pub async fn oversubscribable(&self) -> Result<Resources, ModuleError> {
        let answer = self.actor.ask(Oversubscribable, Patience::WhileLinked);
        revocable_only(flatten_reply(answer.await)?)
    }
}

fn flatten_reply<T>(answer: Result<Result<T, Fault>, runtime::AskError>) -> Result<T, ModuleError> {
    answer
        .map_err(|error| ModuleError::of_ask(KIND, error))?
        .map_err(|fault| ModuleError::Fault { kind: KIND, fault })
}

fn revocable_only(estimate: Resources) -> Result<Resources, ModuleError> {
    match estimate.iter().find(|resource| !resource.is_revocable()) {
        None => Ok(estimate),
        Some(regular) => Err(ModuleError::Unusable {
            kind: KIND,
            reason: format!("`{regular}` is not revocable"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use resources::Revocable;

    // Covers S23.
    #[test]
    fn an_estimate_that_is_not_revocable_throughout_is_refused() {
        let regular = Resources::parse("cpus:1").unwrap();
        let lent = regular.to_revocable(Revocable::Throttleable).unwrap();
        assert_eq!(revocable_only(lent.clone()), Ok(lent.clone()));
        let error = revocable_only(lent + &regular).unwrap_err();
        assert!(error.to_string().contains("is not revocable"), "{error}");
    }
}
