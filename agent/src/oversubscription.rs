//! The oversubscription loop: asks the estimator again and again, and tells the agent what may be lent in all (S6, S7, S23).
//!
//! Hears nothing but its own timers and answers. Remembers nothing. An estimator that never answers parks the loop; one that is
//! down or answers nonsense costs a log line and the wait for the next round. It never talks to the master.

use std::time::Duration;

use module_api::error::{Fault, ModuleError};
use module_api::resource_estimator::ResourceEstimatorRef;
use protocol::ResourceUsage;
use resources::Resources;
use runtime::prelude::*;

use crate::agent::Agent;
use crate::container::Containerizer;
use crate::container::events::{Occupant, Occupants};

const PATIENCE: Duration = Duration::from_secs(5);

/// This is what may be lent now, allocated and available together.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct Estimated(pub Resources);

/// An estimate could not be used.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct EstimateRejected;

/// What is lent already and what may be lent beyond it, together (SPEC 5.7).
pub fn total(occupants: Vec<Occupant>, estimate: &Resources) -> Resources {
    let executors = occupants
        .into_iter()
        .map(|occupant| occupant.usage)
        .collect();
    ResourceUsage {
        total: Resources::new(),
        executors,
    }
    .allocated_revocable()
        + estimate
}

/// Whether there is another round. An agent that is too busy to hear of this one hears of the next; only one that has ended does not.
fn goes_on(told: &Result<(), TellError>) -> bool {
    *told != Err(TellError::Gone)
}

/// The actor.
pub struct Oversubscription {
    estimator: ResourceEstimatorRef,
    monitor: ActorRef,
    containerizer: Handle<Containerizer>,
    agent: Handle<Agent>,
    interval: Duration,
}

impl Oversubscription {
    /// Asks `estimator` each `interval` after its last answer.
    pub fn new(
        estimator: ResourceEstimatorRef,
        monitor: ActorRef,
        containerizer: Handle<Containerizer>,
        agent: Handle<Agent>,
        interval: Duration,
    ) -> Self {
        Self {
            estimator,
            monitor,
            containerizer,
            agent,
            interval,
        }
    }

    fn ask(&mut self, ctx: &mut Context<Self>) {
        let estimator = self.estimator.clone();
        let (containerizer, monitor) = (self.containerizer.clone(), self.monitor.clone());
        let asking = async move {
            let mut answer = estimator.oversubscribable().await;
            if let Err(ModuleError::Fault {
                fault: Fault::NotInitialized,
                ..
            }) = answer
            {
                // It is new, or has been restarted.
                estimator.initialize(monitor).await?;
                answer = estimator.oversubscribable().await;
            }
            let estimate = answer?;
            let kind = module_api::error::ModuleKind::ResourceEstimator;
            let occupants = containerizer.ask(Occupants, PATIENCE).await;
            let occupants = occupants.map_err(|error| ModuleError::of_ask(kind, error))?;
            Ok::<_, ModuleError>(total(occupants, &estimate))
        };
        ctx.then(asking, |this, answer, ctx| {
            let told = match answer {
                Ok(total) => {
                    tracing::debug!(total = %total.brief(), "what may be lent is estimated");
                    this.agent.tell(Estimated(total))
                }
                // All end together then, in whatever order.
                Err(_) if ctx.node().is_shutting_down() => return,
                Err(error) => {
                    tracing::warn!(%error, "no estimate of what may be lent; asked again at the next interval");
                    match error {
                        ModuleError::Unusable { .. } => this.agent.tell(EstimateRejected),
                        _ => Ok(()),
                    }
                }
            };
            if goes_on(&told) {
                ctx.after(this.interval, Self::ask);
            }
        });
    }
}

impl Actor for Oversubscription {
    type Context = Context<Self>;
    fn started(&mut self, ctx: &mut Self::Context) {
        self.ask(ctx);
    }
}

impl Process for Oversubscription {}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::usage::ExecutorUsage;
    use protocol::{ContainerId, ExecutorId, FrameworkId};
    use resources::{Revocable, Role};

    /// S6.
    #[test]
    fn the_estimator_is_asked_as_long_as_there_is_an_agent_however_busy() {
        let told = [Ok(()), Err(TellError::Full), Err(TellError::Gone)];
        assert_eq!(told.map(|told| goes_on(&told)), [true, true, false]);
    }

    /// S21, SPEC 5.7: with `fixed`, which answers what is left, the total stays the same.
    #[test]
    fn the_total_is_what_is_lent_already_and_the_estimate() {
        let revocable = |text: &str| {
            Resources::parse(text)
                .unwrap()
                .to_revocable(Revocable::Throttleable)
                .unwrap()
        };
        let lent = revocable("cpus:4").allocate(&Role::new("ads").unwrap());
        let occupant = Occupant {
            usage: ExecutorUsage {
                framework_id: FrameworkId::new("f").unwrap(),
                executor_id: ExecutorId::new("e").unwrap(),
                container_id: ContainerId::new("c").unwrap(),
                allocated: lent + &Resources::parse("cpus:1;mem:32").unwrap(),
                tasks: Vec::new(),
                statistics: None,
            },
            leader: None,
        };
        assert_eq!(
            total(vec![occupant], &revocable("cpus:10")),
            revocable("cpus:14")
        );
        assert_eq!(
            total(Vec::new(), &revocable("cpus:14")),
            revocable("cpus:14")
        );
    }
}
