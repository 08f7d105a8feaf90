//! QoS controller: advises the agent which revocable executors must yield (SPEC 1.2, S24-S31).
//!
//! Hears [`InitializeQos`] once, then [`Corrections`] again and again from the agent. It answers when there is something to correct, be
//! it never: asking never blocks the agent. It never kills: the agent alone acts, and the same advice given twice is harmless.

use std::time::Duration;

use protocol::QosCorrection;
use runtime::{ActorRef, Patience, Pid, remote};
use serde::{Deserialize, Serialize};

use crate::error::{Fault, ModuleError, ModuleKind};

const KIND: ModuleKind = ModuleKind::QosController;

/// Usage is to be asked of `monitor`. Must come first, and only once (S24).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InitializeQos {
    /// Who answers [`CurrentUsage`](crate::usage::CurrentUsage).
    pub monitor: Pid,
}

/// What is to be corrected? Answered once there is something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Corrections;

remote! { InitializeQos = "qos_controller/initialize" v1 -> Result<(), Fault> }
remote! { Corrections = "qos_controller/corrections" v1 -> Result<Vec<QosCorrection>, Fault> }

/// The agent's hold on its QoS controller.
#[derive(Clone, Debug)]
pub struct QosControllerRef {
    actor: ActorRef,
    patience: Duration,
}

impl QosControllerRef {
    /// How long `initialize` waits for its answer.
    pub const PATIENCE: Duration = Duration::from_secs(5);

    /// Speaks to the controller behind `actor`.
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

    /// Tells the controller where usage comes from.
    pub async fn initialize(&self, monitor: ActorRef) -> Result<(), ModuleError> {
        let monitor = monitor.pid().clone();
        settle(
            self.actor
                .ask(InitializeQos { monitor }, self.patience)
                .await,
        )
    }

    /// What is to be corrected. Waits as long as the controller lives: ask beside the mailbox, never within it (S25).
    pub async fn corrections(&self) -> Result<Vec<QosCorrection>, ModuleError> {
        settle(self.actor.ask(Corrections, Patience::WhileLinked).await)
    }
}

fn settle<T>(answer: Result<Result<T, Fault>, runtime::AskError>) -> Result<T, ModuleError> {
    answer
        .map_err(|error| ModuleError::of_ask(KIND, error))?
        .map_err(|fault| ModuleError::Fault { kind: KIND, fault })
}
