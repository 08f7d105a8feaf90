//! The oversubscription loop: gets estimates and sends the agent the total of oversubscribed
//! resources.
//!
//! Handles only its timers and answers; has no state. An estimator that never answers blocks only
//! this loop; a failed or invalid one costs a log line and one interval. Does not talk to the
//! master. `maximum` bounds the lent resources, `monitor` measures the usage for the modules,
//! `qos` applies the corrections of the QoS controller, `corrections` logs these, `trace` records
//! usage, and `view` shows the loop to operators.

pub mod corrections;
pub mod maximum;
pub mod monitor;
pub mod qos;
pub mod trace;
pub mod view;

use std::time::Duration;

use module_api::error::{Fault, ModuleError};
use module_api::resource_estimator::ResourceEstimatorRef;
use protocol::ResourceUsage;
use resources::Resources;
use runtime::prelude::*;

use crate::agent::Agent;
use crate::container::Containerizer;
use crate::container::events::{ListLiveContainers, LiveContainer};
use maximum::LendingMax;

const PATIENCE: Duration = Duration::from_secs(5);

/// A new estimate.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct Estimated {
    /// The estimator's answer.
    pub available: Resources,
    /// The oversubscribed resources, allocated and available together, within the upper bound.
    pub total: Resources,
}

/// An estimate was invalid.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct EstimateRejected;

/// Allocated revocable resources plus the estimate, which `max` may bound.
pub fn total(
    agent: Resources,
    live: &[LiveContainer],
    estimate: Resources,
    max: &LendingMax,
) -> Resources {
    let executors = live.iter().map(|one| one.usage.clone()).collect();
    let usage = ResourceUsage {
        total: agent,
        executors,
    };
    usage.allocated_revocable() + &max.apply(estimate, &usage)
}

/// Whether to continue: a full mailbox is tried again at the next round, only an ended agent stops
/// the loop.
fn should_continue(told: &Result<(), TellError>) -> bool {
    *told != Err(TellError::Gone)
}

/// The oversubscription actor.
pub struct Oversubscription {
    estimator: ResourceEstimatorRef,
    monitor: ActorRef,
    containerizer: Handle<Containerizer>,
    agent: Handle<Agent>,
    lending: Lending,
}

/// What an agent may lend.
#[derive(Clone, Debug)]
pub struct Lending {
    /// All resources of the agent.
    pub total: Resources,
    /// The upper bound.
    pub max: LendingMax,
    /// Time between an estimate and the next request.
    pub interval: Duration,
}

impl Oversubscription {
    /// Asks `estimator` for what to lend.
    pub fn new(
        estimator: ResourceEstimatorRef,
        monitor: ActorRef,
        containerizer: Handle<Containerizer>,
        agent: Handle<Agent>,
        lending: Lending,
    ) -> Self {
        Self {
            estimator,
            monitor,
            containerizer,
            agent,
            lending,
        }
    }

    fn ask(&mut self, ctx: &mut Context<Self>) {
        let estimator = self.estimator.clone();
        let (containerizer, monitor) = (self.containerizer.clone(), self.monitor.clone());
        let Lending {
            total: own, max, ..
        } = self.lending.clone();
        let asking = async move {
            let mut answer = estimator.oversubscribable().await;
            if let Err(ModuleError::Fault {
                fault: Fault::NotInitialized,
                ..
            }) = answer
            {
                // New, or restarted.
                estimator.initialize(monitor).await?;
                answer = estimator.oversubscribable().await;
            }
            let estimate = answer?;
            let kind = module_api::error::ModuleKind::ResourceEstimator;
            let live = containerizer.ask(ListLiveContainers, PATIENCE).await;
            let live = live.map_err(|error| ModuleError::of_ask(kind, error))?;
            let total = total(own, &live, estimate.clone(), &max);
            let available = estimate;
            Ok::<_, ModuleError>(Estimated { available, total })
        };
        ctx.then(asking, |this, answer, ctx| {
            let told = match answer {
                Ok(estimated) => {
                    let total = &estimated.total;
                    tracing::debug!(total = %total.brief(), "oversubscribed resources estimated");
                    this.agent.tell(estimated)
                }
                // All actors end together, in any order.
                Err(_) if ctx.node().is_shutting_down() => return,
                Err(error) => {
                    tracing::warn!(%error, "no resource estimate; retrying at the next interval");
                    match error {
                        ModuleError::Unusable { .. } => this.agent.tell(EstimateRejected),
                        _ => Ok(()),
                    }
                }
            };
            if should_continue(&told) {
                ctx.after(this.lending.interval, Self::ask);
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
    use protocol::usage::{ExecutorUsage, Throttle};
    use protocol::{ContainerId, ExecutorId, FrameworkId};
    use resources::{Revocable, Role};

    // Covers S6.
    #[test]
    fn estimation_continues_while_the_agent_is_busy() {
        let told = [Ok(()), Err(TellError::Full), Err(TellError::Gone)];
        assert_eq!(told.map(|told| should_continue(&told)), [true, true, false]);
    }

    /// S21, SPEC 5.7: with the `fixed` estimator, which returns the unallocated rest, the total
    /// stays constant.
    // Covers S21.
    #[test]
    fn total_is_allocated_plus_estimate() {
        let revocable = |text: &str| {
            Resources::parse(text)
                .unwrap()
                .to_revocable(Revocable::Throttleable)
                .unwrap()
        };
        let lent = revocable("cpus:4").allocate(&Role::new("ads").unwrap());
        let live_container = LiveContainer {
            usage: ExecutorUsage {
                framework_id: FrameworkId::new("f").unwrap(),
                executor_id: ExecutorId::new("e").unwrap(),
                executor_name: String::new(),
                is_command: false,
                container_id: ContainerId::new("c").unwrap(),
                allocated: lent + &Resources::parse("cpus:1;mem:32").unwrap(),
                tasks: Vec::new(),
                statistics: None,
                throttle: Throttle::default(),
                objectives: Vec::new(),
            },
            leader: None,
            resources: Default::default(),
            apart: Vec::new(),
        };
        let total = |live: &[LiveContainer], estimate| {
            let max = LendingMax::default();
            super::total(Resources::new(), live, revocable(estimate), &max)
        };
        assert_eq!(total(&[live_container], "cpus:10"), revocable("cpus:14"));
        assert_eq!(total(&[], "cpus:14"), revocable("cpus:14"));
    }
}
