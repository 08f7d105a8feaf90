//! Resource estimators: decide which resources of this agent can be lent.
//!
//! Handles `InitializeEstimator` once and then `Oversubscribable` from the agent; requests usage
//! from the monitor before each estimate. Its only state is the monitor's address. A reply may come
//! at once, later or never. `fixed` lends a constant amount, `noop` nothing.

mod fixed;
mod noop;

pub use fixed::Fixed;
pub use noop::Noop;

use std::collections::VecDeque;
use std::time::Duration;

use module_api::resource_estimator::{InitializeEstimator, Oversubscribable};
use module_api::{CurrentUsage, Fault};
use protocol::ResourceUsage;
use resources::Resources;
use runtime::prelude::*;

/// Timeout of a usage request.
const USAGE_PATIENCE: Duration = Duration::from_secs(5);
/// Pending requests that are kept; beyond this, the oldest are dropped.
const UNANSWERED_MAX: usize = 16;

/// The decision of an estimator.
pub trait EstimatorPolicy: Unpin + 'static {
    /// Whether there are ever estimates. If not, requests stay unanswered and no usage is
    /// requested.
    fn has_estimates(&self) -> bool {
        true
    }

    /// The resources that can be lent in addition to those already lent, all revocable.
    fn estimate(&self, usage: &ResourceUsage) -> Resources;
}

type Estimate = Result<Resources, Fault>;

/// The actor around a policy.
pub struct ResourceEstimator<P> {
    policy: P,
    monitor: Option<ActorRef>,
    unanswered: VecDeque<Promise<Estimate>>,
}

impl<P: EstimatorPolicy> ResourceEstimator<P> {
    /// An estimator with this policy.
    pub fn new(policy: P) -> Self {
        Self {
            policy,
            monitor: None,
            unanswered: VecDeque::new(),
        }
    }
}

impl<P: EstimatorPolicy> Actor for ResourceEstimator<P> {
    type Context = Context<Self>;
}

impl<P: EstimatorPolicy> Process for ResourceEstimator<P> {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<InitializeEstimator>(&[Role::Agent]);
        handlers.accept::<Oversubscribable>(&[Role::Agent]);
    }
}

impl<P: EstimatorPolicy> Handler<InitializeEstimator> for ResourceEstimator<P> {
    type Result = Result<(), Fault>;

    fn handle(&mut self, initialize: InitializeEstimator, ctx: &mut Context<Self>) -> Self::Result {
        if self.monitor.is_some() {
            return Err(Fault::InitializedTwice);
        }
        self.monitor = Some(ctx.node().refer(initialize.monitor));
        Ok(())
    }
}

impl<P: EstimatorPolicy> Handler<Oversubscribable> for ResourceEstimator<P> {
    type Result = Reply<Estimate>;

    fn handle(&mut self, _: Oversubscribable, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        let Some(monitor) = &self.monitor else {
            promise.answer(Err(Fault::NotInitialized));
            return reply;
        };
        if !self.policy.has_estimates() {
            self.unanswered.push_back(promise);
            if self.unanswered.len() > UNANSWERED_MAX {
                self.unanswered.pop_front();
            }
            return reply;
        }
        let usage = monitor.ask(CurrentUsage, USAGE_PATIENCE);
        ctx.then(usage, move |this, usage, _| {
            let usage = crate::usage_or_fault(usage);
            promise.answer(usage.map(|usage| this.policy.estimate(&usage)));
        });
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Monitor, executor, usage};
    use module_api::{ModuleError, ModuleKind, ResourceEstimatorRef};
    use runtime::testing::simulate;

    fn lent(text: &str) -> Resources {
        Fixed::parse(text).unwrap().total().clone()
    }

    fn start<P: EstimatorPolicy + Send>(node: &Node, policy: P) -> ResourceEstimatorRef {
        let actor = node
            .spawn("resource_estimator", ResourceEstimator::new(policy))
            .unwrap();
        ResourceEstimatorRef::new(actor.refer())
    }

    // Covers S22.
    #[test]
    fn an_estimator_is_initialized_before_its_use_and_only_once() {
        simulate(|node| async move {
            let monitor = node
                .spawn("monitor", Monitor::of(usage("")))
                .unwrap()
                .refer();
            let estimator = start(&node, Fixed::parse("cpus:14").unwrap());
            let kind = ModuleKind::ResourceEstimator;
            let fault = Fault::NotInitialized;
            assert_eq!(
                estimator.oversubscribable().await,
                Err(ModuleError::Fault { kind, fault })
            );
            assert_eq!(estimator.initialize(monitor.clone()).await, Ok(()));
            let fault = Fault::InitializedTwice;
            assert_eq!(
                estimator.initialize(monitor).await,
                Err(ModuleError::Fault { kind, fault })
            );
        });
    }

    /// S21, S23, S37: every call is answered; with the lent resources, the total is constant.
    // Covers S21; S23; S37 in part: read and estimated, not offered.
    #[test]
    fn fixed_estimator_returns_the_part_not_yet_lent() {
        simulate(|node| async move {
            let monitor = node.spawn("monitor", Monitor::of(usage(""))).unwrap();
            let estimator = start(&node, Fixed::parse("cpus:14").unwrap());
            estimator.initialize(monitor.refer()).await.unwrap();
            assert_eq!(estimator.oversubscribable().await, Ok(lent("cpus:14")));
            assert_eq!(estimator.oversubscribable().await, Ok(lent("cpus:14")));
            let busy = usage("web:cpus:2 batch:cpus*:4");
            monitor.tell(crate::testing::SetUsage(busy)).unwrap();
            assert_eq!(estimator.oversubscribable().await, Ok(lent("cpus:10")));
            monitor
                .tell(crate::testing::SetUsage(usage("batch:cpus*:20")))
                .unwrap();
            assert_eq!(estimator.oversubscribable().await, Ok(Resources::new()));
        });
    }

    /// S20: the agent's request stays pending without harm.
    // Covers S20 in part: all but that it is the default.
    #[test]
    fn noop_estimator_never_replies() {
        simulate(|node| async move {
            let monitor = node.spawn("monitor", Monitor::of(usage(""))).unwrap();
            let estimator = start(&node, Noop);
            estimator.initialize(monitor.refer()).await.unwrap();
            let hour = Duration::from_secs(3600);
            assert!(
                node.clock()
                    .timeout(hour, estimator.oversubscribable())
                    .await
                    .is_err()
            );
            assert!(
                estimator.initialize(monitor.refer()).await.is_err(),
                "it still hears"
            );
            node.stop(estimator.pid());
        });
    }

    #[test]
    fn missing_usage_is_an_error() {
        simulate(|node| async move {
            let monitor = node.spawn("monitor", Monitor::broken()).unwrap();
            let estimator = start(&node, Fixed::parse("cpus:14").unwrap());
            estimator.initialize(monitor.refer()).await.unwrap();
            let error = estimator.oversubscribable().await.unwrap_err();
            assert!(
                error.to_string().contains("no usage to judge from"),
                "{error}"
            );
            monitor.stop();
            node.ended(&monitor.pid()).await;
            assert!(estimator.oversubscribable().await.is_err());
        });
    }

    #[test]
    fn usage_is_read_as_written() {
        let usage = usage("web:cpus:2 batch:cpus*:4");
        assert_eq!(usage.executors.len(), 2);
        assert!(executor(&usage, "batch").is_revocable());
        assert!(!executor(&usage, "web").is_revocable());
    }
}
