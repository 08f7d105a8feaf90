//! QoS controller: advises the agent which revocable executors must yield.
//!
//! The agent sends [`InitializeQos`] once, then one [`Corrections`] after the other. The controller
//! replies when there is something to correct, possibly never; the pending request does not block
//! the agent. A controller never kills: only the agent acts, and repeating the same advice is
//! harmless.

use std::time::Duration;

use protocol::QosCorrection;
use runtime::{ActorRef, Patience, Pid, remote};
use serde::{Deserialize, Serialize};

use crate::error::{Fault, ModuleError, ModuleKind};

const KIND: ModuleKind = ModuleKind::QosController;

/// Sets the source of usage data. Must come first, and only once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InitializeQos {
    /// The actor that answers [`CurrentUsage`](crate::usage::CurrentUsage).
    pub monitor: Pid,
}

/// Requests corrections. Answered once there are any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Corrections;

remote! { InitializeQos = "qos_controller/initialize" v1 -> Result<(), Fault> }
remote! { Corrections = "qos_controller/corrections" v1 -> Result<Vec<QosCorrection>, Fault> }

/// The agent's handle of its QoS controller.
#[derive(Clone, Debug)]
pub struct QosControllerRef {
    actor: ActorRef,
    patience: Duration,
}

impl QosControllerRef {
    /// Timeout of [`initialize`](Self::initialize).
    pub const PATIENCE: Duration = Duration::from_secs(5);

    /// A handle of the controller behind `actor`.
    pub fn new(actor: ActorRef) -> Self {
        Self {
            actor,
            patience: Self::PATIENCE,
        }
    }

    /// The controller's address.
    pub fn pid(&self) -> &Pid {
        self.actor.pid()
    }

    /// Sets the source of usage data.
    pub async fn initialize(&self, monitor: ActorRef) -> Result<(), ModuleError> {
        let monitor = monitor.pid().clone();
        flatten_reply(
            self.actor
                .ask(InitializeQos { monitor }, self.patience)
                .await,
        )
    }

    /// Waits for corrections as long as the controller lives. Await it in a separate future, never
    /// in a message handler.
    pub async fn corrections(&self) -> Result<Vec<QosCorrection>, ModuleError> {
        flatten_reply(self.actor.ask(Corrections, Patience::WhileLinked).await)
    }
}

fn flatten_reply<T>(answer: Result<Result<T, Fault>, runtime::AskError>) -> Result<T, ModuleError> {
    answer
        .map_err(|error| ModuleError::of_ask(KIND, error))?
        .map_err(|fault| ModuleError::Fault { kind: KIND, fault })
}
