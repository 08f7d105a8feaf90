//! Resource estimator: says how much of an agent may be lent out as revocable (SPEC 1.2, S20-S23).
//!
//! Hears [`InitializeEstimator`] once, then [`Oversubscribable`] again and again from the agent. It may answer at once, later, or never:
//! asking never blocks the agent. It never launches, kills or talks to the master.

use std::time::Duration;

use resources::Resources;
use runtime::{ActorRef, Patience, Pid, remote};
use serde::{Deserialize, Serialize};

use crate::error::{Fault, ModuleError, ModuleKind};

const KIND: ModuleKind = ModuleKind::ResourceEstimator;

/// Usage is to be asked of `monitor`. Must come first, and only once (S22).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InitializeEstimator {
    /// Who answers [`CurrentUsage`](crate::usage::CurrentUsage).
    pub monitor: Pid,
}

/// How much may be lent now beyond what is lent already? At most this much, all of it revocable; each answer replaces the one before (S23).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Oversubscribable;

remote! { InitializeEstimator = "resource_estimator/initialize" v1 -> Result<(), Fault> }
remote! { Oversubscribable = "resource_estimator/oversubscribable" v1 -> Result<Resources, Fault> }

/// The agent's hold on its estimator.
#[derive(Clone, Debug)]
pub struct ResourceEstimatorRef {
    actor: ActorRef,
    patience: Duration,
}

impl ResourceEstimatorRef {
    /// How long `initialize` waits for its answer.
    pub const PATIENCE: Duration = Duration::from_secs(5);

    /// Speaks to the estimator behind `actor`.
    pub fn new(actor: ActorRef) -> Self {
        Self {
            actor,
            patience: Self::PATIENCE,
        }
    }

    /// Whom it speaks to.
    pub fn pid(&self) -> &Pid {
        self.actor.pid()
    }

    /// Tells the estimator where usage comes from.
    pub async fn initialize(&self, monitor: ActorRef) -> Result<(), ModuleError> {
        let monitor = monitor.pid().clone();
        let answer = self
            .actor
            .ask(InitializeEstimator { monitor }, self.patience);
        settle(answer.await)
    }

    /// What may be lent now, beyond what is lent already. Waits as long as the estimator lives: ask beside the mailbox, never within it.
    /// An answer that is not revocable throughout is an error, so that it is never acted on (S23).
    pub async fn oversubscribable(&self) -> Result<Resources, ModuleError> {
        let answer = self.actor.ask(Oversubscribable, Patience::WhileLinked);
        revocable_only(settle(answer.await)?)
    }
}

fn settle<T>(answer: Result<Result<T, Fault>, runtime::AskError>) -> Result<T, ModuleError> {
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

    /// S23.
    #[test]
    fn an_estimate_that_is_not_revocable_throughout_is_refused() {
        let regular = Resources::parse("cpus:1").unwrap();
        let lent = regular.to_revocable(Revocable::Throttleable).unwrap();
        assert_eq!(revocable_only(lent.clone()), Ok(lent.clone()));
        let error = revocable_only(lent + &regular).unwrap_err();
        assert!(error.to_string().contains("is not revocable"), "{error}");
    }
}
