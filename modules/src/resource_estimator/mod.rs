//! Resource estimators: decide which resources of this agent can be lent.
//!
//! Handles `InitializeEstimator` once and then `Oversubscribable` from the agent; requests usage
//! from the monitor before each estimate, and at the policy's interval if it has one. Its state is
//! the monitor's address and the policy's history, which a restart loses. A reply may come at once,
//! later or never.
//!
//! | estimator | lends |
//! |---|---|
//! | `noop` | nothing |
//! | `fixed` | a constant amount |
//! | `usage_slack` | allocated resources that are not used |
//! | `allocation_slack` | resources that are not allocated |
//! | `pressure_aware` | the estimates of others, while regular tasks do not wait |

mod allocation_slack;
mod fixed;
mod noop;
mod pressure_aware;
mod usage_slack;

pub use allocation_slack::AllocationSlack;
pub use fixed::Fixed;
pub use noop::Noop;
pub use pressure_aware::{PressureAware, PressureAwarePlan};
pub use usage_slack::{SlackSettings, UsageSlack};

use std::collections::VecDeque;
use std::time::Duration;

use module_api::resource_estimator::{InitializeEstimator, Oversubscribable};
use module_api::{CurrentUsage, Fault, ModuleError, Parameters};
use protocol::ResourceUsage;
use resources::{Name, Quantities, Resources, Revocable, Scalar};
use runtime::prelude::*;

/// Timeout of a usage request.
const USAGE_PATIENCE: Duration = Duration::from_secs(5);
/// Pending requests that are kept; beyond this, the oldest are dropped.
const UNANSWERED_MAX: usize = 16;
/// Granularity of estimates: CPUs, and MB of memory. Coarse, since each change rescinds offers.
const CPUS_STEP: f64 = 0.1;
const MEGABYTES_STEP: f64 = 32.0;

/// The decision of an estimator, made from the history of usage that it has observed.
pub trait EstimatorPolicy: Unpin + 'static {
    /// Whether there are ever estimates. If not, requests stay unanswered and no usage is
    /// requested.
    fn has_estimates(&self) -> bool {
        true
    }

    /// The interval of measurements between estimates; `None` if estimates need no history.
    fn sampling_interval(&self) -> Option<Duration> {
        None
    }

    /// Learns from a measurement. The one for an estimate is observed too.
    fn observe(&mut self, _: &ResourceUsage) {}

    /// All the resources that can be lent under this usage, also those already lent; all revocable.
    fn lendable(&self, usage: &ResourceUsage) -> Resources;
}

/// The resources that can be lent in addition to those already lent.
fn estimate(policy: &mut impl EstimatorPolicy, usage: &ResourceUsage) -> Resources {
    policy.observe(usage);
    let lent = usage.allocated_revocable();
    policy.lendable(usage).saturating_sub(&lent)
}

/// Adds an amount, if there is one.
fn add(amounts: &mut Quantities, name: Name, amount: f64) {
    amounts.add(name, Scalar::new(amount.max(0.0)).unwrap_or_default());
}

/// These amounts as lent resources, rounded down.
fn lend(amounts: &Quantities) -> Resources {
    let mut rounded = Quantities::new();
    for (name, amount) in amounts.iter() {
        let step = match name {
            Name::Cpus => CPUS_STEP,
            Name::Mem | Name::Disk => MEGABYTES_STEP,
            _ => 1.0,
        };
        // Tolerates rounding errors just below a step.
        let steps = (amount.as_f64() / step + 1e-6).floor();
        let amount = Scalar::new(steps * step).unwrap_or_default();
        if !amount.is_zero() {
            rounded.add(name.clone(), amount);
        }
    }
    let resources = Resources::parse(&rounded.to_string()).unwrap_or_default();
    let lent = resources.to_revocable(Revocable::Throttleable);
    lent.unwrap_or_default()
}

/// A parameter that is a part of something.
fn part(given: &Parameters, key: &str, default: f64) -> Result<f64, ModuleError> {
    let part = given.optional(key, "a part such as `0.1`, from 0 to 1", |text| {
        let part: f64 = text.parse().ok()?;
        (0.0..=1.0).contains(&part).then_some(part)
    })?;
    Ok(part.unwrap_or(default))
}

/// The parameter `memory`.
fn lends_memory(given: &Parameters) -> Result<bool, ModuleError> {
    let key = usage_slack::MEMORY;
    let lends = given.optional(key, "true or false", |text| text.parse().ok())?;
    Ok(lends.unwrap_or(false))
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

    /// Measures now, and again after the policy's interval.
    fn sample(&mut self, ctx: &mut Context<Self>) {
        let Some((monitor, interval)) = self.monitor.as_ref().zip(self.policy.sampling_interval())
        else {
            return;
        };
        let usage = monitor.ask(CurrentUsage, USAGE_PATIENCE);
        ctx.then(usage, move |this, usage, ctx| {
            // A missing one shows in the next estimate.
            if let Ok(usage) = crate::usage_or_fault(usage) {
                this.policy.observe(&usage);
            }
            ctx.after(interval, Self::sample);
        });
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
        self.sample(ctx);
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
            promise.answer(usage.map(|usage| estimate(&mut this.policy, &usage)));
        });
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Monitor, executor, usage};
    use module_api::{ModuleKind, ResourceEstimatorRef};
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
    fn history_is_measured_between_estimates() {
        simulate(|node| async move {
            let busy = |at: f64, cpu_secs| {
                let mut usage = usage("web:cpus:10");
                crate::testing::measure(&mut usage, "web", at, cpu_secs);
                crate::testing::SetUsage(usage)
            };
            let monitor = node.spawn("monitor", Monitor::of(usage(""))).unwrap();
            let settings = SlackSettings {
                warm_up: Duration::from_secs(10),
                ..SlackSettings::default()
            };
            let estimator = start(&node, UsageSlack::new(settings));
            monitor.tell(busy(0.0, 0.0)).unwrap();
            estimator.initialize(monitor.refer()).await.unwrap();
            // A peak of 8 CPUs between two estimates, which their average would hide.
            for (at, cpu_secs) in [(5.0, 40.0), (10.0, 40.0), (15.0, 40.0)] {
                node.clock().sleep(Duration::from_secs(5)).await;
                monitor.tell(busy(at, cpu_secs)).unwrap();
            }
            let estimate = estimator.oversubscribable().await.unwrap();
            let lent = estimate.cpus().as_f64();
            assert!((1.0..2.0).contains(&lent), "{lent}");
        });
    }

    #[test]
    fn lent_amounts_are_rounded_down() {
        let lent = |text: &str| {
            lend(&Quantities::parse(text).unwrap())
                .quantities()
                .to_string()
        };
        assert_eq!(lent("cpus:1.299;mem:95;gpus:1.5"), "cpus:1.2;mem:64;gpus:1");
        assert_eq!(lent("cpus:0.3"), "cpus:0.3");
        assert_eq!(lent("cpus:0.09;mem:31"), "");
    }

    #[test]
    fn usage_is_read_as_written() {
        let usage = usage("web:cpus:2 batch:cpus*:4");
        assert_eq!(usage.executors.len(), 2);
        assert!(executor(&usage, "batch").is_revocable());
        assert!(!executor(&usage, "web").is_revocable());
    }
}
