//! QoS controllers: which revocable executors must yield (SPEC 1.2, S24-S31).
//!
//! Hears `InitializeQos` once and then `Corrections` from the agent, and answers once there is something to correct. While somebody waits it
//! looks again every `CHECK_INTERVAL`. Remembers what it advised a while ago, so that the same advice is not given in a hot loop. Never
//! kills, and never blocks the agent.

mod load;
mod noop;

pub use load::{Load, LoadPolicy, LoadSource, proc_loadavg};
pub use noop::Noop;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use module_api::qos_controller::{Corrections, InitializeQos};
use module_api::{CurrentUsage, Fault};
use protocol::{QosCorrection, ResourceUsage};
use runtime::Instant;
use runtime::prelude::*;

/// How long a controller waits for the agent's usage.
const USAGE_PATIENCE: Duration = Duration::from_secs(5);
/// How often it looks again while somebody waits for corrections: as often as the kernel works out its load averages.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// For how long the same correction is not advised again: an executor takes its time to end.
const REPEAT_AFTER: Duration = Duration::from_secs(10);
/// How many questions are kept unanswered; of more, the oldest are let go.
const UNANSWERED_MAX: usize = 16;

/// The decision behind a controller.
pub trait QosPolicy: Unpin + 'static {
    /// Whether anything could need correcting now. If not, no usage is asked for. May look at the machine, so it is asked once a check.
    fn is_alarmed(&mut self) -> bool;

    /// What should be corrected, judged from this usage, while alarmed.
    fn corrections(&self, usage: &ResourceUsage) -> Vec<QosCorrection>;

    /// Whether it ever has corrections. If not, its answers never come.
    fn has_corrections(&self) -> bool {
        true
    }
}

type Answer = Result<Vec<QosCorrection>, Fault>;

/// What was advised lately, so that it is not advised again at once.
#[derive(Clone, Debug, Default)]
pub struct Advised(BTreeMap<String, Instant>);

impl Advised {
    /// Those corrections that were not advised lately; from now on they were.
    pub fn fresh(&mut self, corrections: Vec<QosCorrection>, now: Instant) -> Vec<QosCorrection> {
        self.0.retain(|_, at| now - *at < REPEAT_AFTER);
        let mut fresh = corrections;
        fresh.retain(|correction| match self.0.entry(format!("{correction:?}")) {
            Entry::Vacant(unsaid) => {
                unsaid.insert(now);
                true
            }
            Entry::Occupied(_) => false,
        });
        fresh
    }
}

/// The actor around a policy.
pub struct QosController<P> {
    policy: P,
    monitor: Option<ActorRef>,
    waiting: Vec<Promise<Answer>>,
    /// A check is under way or planned.
    checking: bool,
    advised: Advised,
}

impl<P: QosPolicy> QosController<P> {
    /// A controller that judges by `policy`.
    pub fn new(policy: P) -> Self {
        Self {
            policy,
            monitor: None,
            waiting: Vec::new(),
            checking: false,
            advised: Advised::default(),
        }
    }

    /// Looks whether there is something to correct, and looks again later if there is not.
    fn check(&mut self, ctx: &mut Context<Self>) {
        self.waiting.retain(Promise::is_awaited);
        let Some(monitor) = &self.monitor else {
            return;
        };
        self.checking = !self.waiting.is_empty() && self.policy.has_corrections();
        if !self.checking {
            return;
        }
        if !self.policy.is_alarmed() {
            self.check_later(ctx);
            return;
        }
        let usage = monitor.ask(CurrentUsage, USAGE_PATIENCE);
        ctx.then(usage, |this, usage, ctx| {
            this.judge(crate::usage_or_fault(usage), ctx)
        });
    }

    fn check_later(&mut self, ctx: &mut Context<Self>) {
        ctx.after(CHECK_INTERVAL, Self::check);
    }

    fn judge(&mut self, usage: Result<ResourceUsage, Fault>, ctx: &mut Context<Self>) {
        let now = ctx.clock().now();
        let answer = usage.map(|usage| self.advised.fresh(self.policy.corrections(&usage), now));
        match answer {
            Ok(none) if none.is_empty() => self.check_later(ctx),
            Err(fault) => {
                tracing::warn!(%fault, "no corrections for now");
                self.check_later(ctx);
            }
            Ok(some) => {
                self.checking = false;
                for waiting in self.waiting.drain(..) {
                    waiting.answer(Ok(some.clone()));
                }
            }
        }
    }
}

impl<P: QosPolicy> Actor for QosController<P> {
    type Context = Context<Self>;
}

impl<P: QosPolicy> Process for QosController<P> {
    fn hears(ears: &mut Ears<Self>) {
        ears.hear::<InitializeQos>(&[Role::Agent]);
        ears.hear::<Corrections>(&[Role::Agent]);
    }
}

impl<P: QosPolicy> Handler<InitializeQos> for QosController<P> {
    type Result = Result<(), Fault>;

    fn handle(&mut self, initialize: InitializeQos, ctx: &mut Context<Self>) -> Self::Result {
        if self.monitor.is_some() {
            return Err(Fault::InitializedTwice);
        }
        self.monitor = Some(ctx.node().refer(initialize.monitor));
        Ok(())
    }
}

impl<P: QosPolicy> Handler<Corrections> for QosController<P> {
    type Result = Reply<Answer>;

    fn handle(&mut self, _: Corrections, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        if self.monitor.is_none() {
            promise.answer(Err(Fault::NotInitialized));
            return reply;
        }
        if self.waiting.len() == UNANSWERED_MAX {
            self.waiting.remove(0);
        }
        self.waiting.push(promise);
        if !self.checking {
            self.checking = true;
            // Once the reply is on its way, so that it counts as awaited.
            ctx.then(std::future::ready(()), |this, (), ctx| this.check(ctx));
        }
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Monitor, Now, killed, usage};
    use module_api::{ModuleError, ModuleKind, QosControllerRef};
    use runtime::rehearsal::rehearse;
    use std::sync::{Arc, Mutex};

    type Measured = Arc<Mutex<Option<Load>>>;

    fn load(five: f64, fifteen: f64) -> Option<Load> {
        Some(Load { five, fifteen })
    }

    fn start(node: &Node, measured: &Measured) -> QosControllerRef {
        let measured = measured.clone();
        let source: LoadSource = Box::new(move || *measured.lock().unwrap());
        let policy = LoadPolicy::new(Some(6.0), Some(4.0), source);
        let actor = node
            .spawn("qos_controller", QosController::new(policy))
            .unwrap();
        QosControllerRef::new(actor.refer())
    }

    /// S24.
    #[test]
    fn a_controller_is_initialized_before_its_use_and_only_once() {
        rehearse(|node| async move {
            let monitor = node
                .spawn("monitor", Monitor::of(usage("")))
                .unwrap()
                .refer();
            let controller = start(&node, &Measured::default());
            let kind = ModuleKind::QosController;
            let fault = Fault::NotInitialized;
            assert_eq!(
                controller.corrections().await,
                Err(ModuleError::Fault { kind, fault })
            );
            assert_eq!(controller.initialize(monitor.clone()).await, Ok(()));
            let fault = Fault::InitializedTwice;
            assert_eq!(
                controller.initialize(monitor).await,
                Err(ModuleError::Fault { kind, fault })
            );
        });
    }

    /// S25, S29, S38: the answer comes once there is something to correct, and not before.
    #[test]
    fn corrections_come_when_the_load_rises_and_not_before() {
        rehearse(|node| async move {
            let measured: Measured = Arc::new(Mutex::new(load(6.0, 4.0)));
            let monitor = node
                .spawn("monitor", Monitor::of(usage("web:cpus:2 batch:cpus*:4")))
                .unwrap();
            let controller = start(&node, &measured);
            controller.initialize(monitor.refer()).await.unwrap();
            let clock = node.clock().clone();
            let asked = clock.now();
            let rise = {
                let (clock, measured) = (clock.clone(), measured.clone());
                async move {
                    clock.sleep(Duration::from_secs(90)).await;
                    *measured.lock().unwrap() = load(6.01, 0.0);
                }
            };
            let (corrections, ()) =
                futures_util::future::join(controller.corrections(), rise).await;
            assert_eq!(killed(&corrections.unwrap()), ["batch"]);
            let waited = clock.now() - asked;
            assert!(
                waited >= Duration::from_secs(90)
                    && waited <= Duration::from_secs(90) + CHECK_INTERVAL,
                "{waited:?}"
            );
        });
    }

    #[test]
    fn the_same_correction_is_not_advised_again_at_once_but_a_new_one_is() {
        rehearse(|node| async move {
            let measured: Measured = Arc::new(Mutex::new(load(7.0, 0.0)));
            let monitor = node
                .spawn("monitor", Monitor::of(usage("batch:cpus*:4")))
                .unwrap();
            let controller = start(&node, &measured);
            controller.initialize(monitor.refer()).await.unwrap();
            assert_eq!(killed(&controller.corrections().await.unwrap()), ["batch"]);
            let asked = node.clock().now();
            monitor
                .tell(Now(usage("batch:cpus*:4 late:cpus*:1")))
                .unwrap();
            assert_eq!(killed(&controller.corrections().await.unwrap()), ["late"]);
            assert!(node.clock().now() - asked <= CHECK_INTERVAL);
            assert_eq!(
                killed(&controller.corrections().await.unwrap()),
                ["batch", "late"]
            );
            let waited = node.clock().now() - asked;
            assert!(
                waited >= REPEAT_AFTER && waited <= REPEAT_AFTER + CHECK_INTERVAL,
                "{waited:?}"
            );
        });
    }

    /// S25: neither the controller's mailbox nor the asker is blocked.
    #[test]
    fn a_monitor_that_is_slow_or_broken_costs_nothing_but_the_correction() {
        rehearse(|node| async move {
            let measured: Measured = Arc::new(Mutex::new(load(7.0, 0.0)));
            let monitor = node.spawn("monitor", Monitor::broken()).unwrap();
            let controller = start(&node, &measured);
            controller.initialize(monitor.refer()).await.unwrap();
            let minute = Duration::from_secs(60);
            assert!(
                node.clock()
                    .timeout(minute, controller.corrections())
                    .await
                    .is_err()
            );
            monitor.tell(Now(usage("batch:cpus*:4"))).unwrap();
            assert_eq!(killed(&controller.corrections().await.unwrap()), ["batch"]);
        });
    }

    /// S28.
    #[test]
    fn the_noop_controller_never_answers() {
        rehearse(|node| async move {
            let monitor = node
                .spawn("monitor", Monitor::of(usage("batch:cpus*:4")))
                .unwrap();
            let actor = node
                .spawn("qos_controller", QosController::new(Noop))
                .unwrap();
            let controller = QosControllerRef::new(actor.refer());
            controller.initialize(monitor.refer()).await.unwrap();
            let hour = Duration::from_secs(3600);
            assert!(
                node.clock()
                    .timeout(hour, controller.corrections())
                    .await
                    .is_err()
            );
        });
    }
}
