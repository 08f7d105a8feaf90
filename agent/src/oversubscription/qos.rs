//! The QoS loop: gets corrections from the controller and has them applied.
//!
//! Handles only its timers and answers; has no state. The wait for an answer is a future, so a
//! silent controller costs nothing and a failed one a log line. Does not validate corrections: the
//! containerizer ignores those that do not apply.

use std::time::Duration;

use module_api::error::{Fault, ModuleError};
use module_api::qos_controller::QosControllerRef;
use runtime::prelude::*;

use crate::container::Containerizer;
use crate::container::events::ApplyCorrections;

/// Minimum time between two rounds: an interval of zero must not become a busy loop.
pub const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// The most corrections of one round. The controller advises the others again while they apply.
pub const CORRECTIONS_MAX: usize = 4096;
/// The wait after a failed round.
pub const RETRY: Duration = Duration::from_secs(5);

/// The QoS actor.
pub struct Qos {
    controller: QosControllerRef,
    monitor: ActorRef,
    containerizer: Handle<Containerizer>,
    interval: Duration,
}

impl Qos {
    /// Asks `controller` again `interval` after each answer.
    pub fn new(
        controller: QosControllerRef,
        monitor: ActorRef,
        containerizer: Handle<Containerizer>,
        interval: Duration,
    ) -> Self {
        Self {
            controller,
            monitor,
            containerizer,
            interval: interval.max(INTERVAL_MIN),
        }
    }

    fn ask(&mut self, ctx: &mut Context<Self>) {
        let (controller, monitor) = (self.controller.clone(), self.monitor.clone());
        let asking = async move {
            let answer = controller.corrections().await;
            if let Err(ModuleError::Fault {
                fault: Fault::NotInitialized,
                ..
            }) = answer
            {
                // New, or restarted.
                controller.initialize(monitor).await?;
                return controller.corrections().await;
            }
            answer
        };
        ctx.then(asking, |this, answer, ctx| {
            let pause = match answer {
                Ok(mut corrections) => {
                    if corrections.len() > CORRECTIONS_MAX {
                        let count = corrections.len();
                        tracing::warn!(count, "too many QoS corrections; ignoring the last ones");
                        corrections.truncate(CORRECTIONS_MAX);
                    }
                    if !corrections.is_empty()
                        && let Err(error) = this.containerizer.tell(ApplyCorrections(corrections))
                    {
                        tracing::warn!(%error, "QoS corrections not applied");
                    }
                    this.interval
                }
                // All actors end together, in any order.
                Err(_) if ctx.node().is_shutting_down() => return,
                Err(error) => {
                    tracing::warn!(%error, "no QoS corrections; retrying later");
                    this.interval.max(RETRY)
                }
            };
            ctx.after(pause, Self::ask);
        });
    }
}

impl Actor for Qos {
    type Context = Context<Self>;
    fn started(&mut self, ctx: &mut Self::Context) {
        self.ask(ctx);
    }
}

impl Process for Qos {}
