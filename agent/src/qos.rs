//! The QoS loop: waits for the controller's corrections and has them carried out (S24-S28, S34).
//!
//! Hears nothing but its own timers and answers; remembers nothing. The wait for an answer is a future beside the mailbox, so a
//! silent controller costs nothing, and a dead one a log line. It never judges a correction: the containerizer ignores what does
//! not fit.

use std::time::Duration;

use module_api::error::{Fault, ModuleError};
use module_api::qos_controller::QosControllerRef;
use runtime::prelude::*;

use crate::container::Containerizer;
use crate::container::events::Correct;

/// The least time between two rounds: an interval of zero must not make a busy loop of a controller that always has an answer.
pub const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// The wait after a failed round.
pub const RETRY: Duration = Duration::from_secs(5);

/// The actor.
pub struct Qos {
    controller: QosControllerRef,
    monitor: ActorRef,
    containerizer: Handle<Containerizer>,
    interval: Duration,
}

impl Qos {
    /// Asks `controller` each `interval` after its last answer.
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
                // It is new, or has been restarted.
                controller.initialize(monitor).await?;
                return controller.corrections().await;
            }
            answer
        };
        ctx.then(asking, |this, answer, ctx| {
            let pause = match answer {
                Ok(corrections) => {
                    if !corrections.is_empty()
                        && let Err(error) = this.containerizer.tell(Correct(corrections))
                    {
                        tracing::warn!(%error, "corrections are not carried out");
                    }
                    this.interval
                }
                // All end together then, in whatever order.
                Err(_) if ctx.node().is_shutting_down() => return,
                Err(error) => {
                    tracing::warn!(%error, "no corrections; asked again later");
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
