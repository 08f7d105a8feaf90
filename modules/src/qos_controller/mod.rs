//! QoS controllers: decide which revocable executors must yield.
//!
//! Handles `InitializeQos` once and then `Corrections` from the agent, and replies once there is
//! something to correct. While a request is pending it checks at the policy's interval, and when a
//! pressure trigger of the kernel fires (`trigger`). Remembers recent kills to avoid a busy loop of
//! equal replies. Never kills or throttles. `load` decides by the system's load, `pressure` by how
//! long regular executors wait, `sla` by the objectives of regular tasks, `noop` corrects nothing.

mod load;
mod noop;
mod pressure;
mod sla;
mod steps;
mod trigger;

pub use load::{Load, LoadPolicy, LoadSource, proc_loadavg};
pub use noop::Noop;
pub use pressure::{PressurePolicy, PressureSettings};
pub use sla::{SlaPolicy, SlaSettings};
pub use trigger::Trigger;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use module_api::qos_controller::{Corrections, InitializeQos};
use module_api::{CurrentUsage, Fault};
use protocol::{QosCorrection, ResourceUsage};
use runtime::Instant;
use runtime::prelude::*;

use crate::kernel_event::KernelEvent;

/// Timeout of a usage request.
const USAGE_PATIENCE: Duration = Duration::from_secs(5);
/// Default interval of checks while a request is pending: the interval at which the kernel updates
/// its load averages.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Time before the same kill is advised again, since an executor takes time to end.
const REPEAT_AFTER: Duration = Duration::from_secs(10);
/// Pending requests that are kept; beyond this, the oldest are dropped.
const UNANSWERED_MAX: usize = 16;
/// Pressure files that are watched, each with a descriptor; others wait for the next check.
const WATCHED_MAX: usize = 768;
/// Time before a trigger that has fired is awaited again: that of a removed group fires all the
/// time.
const TRIGGER_PAUSE: Duration = Duration::from_millis(100);

/// The decision of a controller.
pub trait QosPolicy: Unpin + 'static {
    /// Whether corrections may be needed now. If not, no usage is requested. May read the machine's
    /// state, so it is called once per check.
    fn is_alarmed(&mut self) -> bool;

    /// The needed corrections under this usage, while alarmed. The time is for policies with a
    /// history.
    fn corrections(&mut self, usage: &ResourceUsage, now: Instant) -> Vec<QosCorrection>;

    /// The kernel's triggers that call for corrections before the next check.
    fn triggers(&self, _: &ResourceUsage) -> BTreeSet<Trigger> {
        BTreeSet::new()
    }

    /// The needed corrections after a trigger has fired.
    fn triggered(&mut self, _: &ResourceUsage, _: Instant) -> Vec<QosCorrection> {
        Vec::new()
    }

    /// Interval of checks while a request is pending.
    fn check_interval(&self) -> Duration {
        CHECK_INTERVAL
    }

    /// Whether there are ever corrections. If not, requests stay unanswered.
    fn has_corrections(&self) -> bool {
        true
    }
}

type Answer = Result<Vec<QosCorrection>, Fault>;

/// Recent kills, which are not advised again at once.
#[derive(Clone, Debug, Default)]
pub struct Advised(BTreeMap<String, Instant>);

impl Advised {
    /// Removes the kills that were advised recently, and records the others. Throttling is bounded
    /// by its policy, and advised again at the next check if it was not carried out.
    pub fn fresh(&mut self, corrections: Vec<QosCorrection>, now: Instant) -> Vec<QosCorrection> {
        self.0.retain(|_, at| now - *at < REPEAT_AFTER);
        let mut fresh = corrections;
        fresh.retain(|correction| {
            if !matches!(correction, QosCorrection::Kill { .. }) {
                return true;
            }
            match self.0.entry(format!("{correction:?}")) {
                Entry::Vacant(vacant) => {
                    vacant.insert(now);
                    true
                }
                Entry::Occupied(_) => false,
            }
        });
        fresh
    }
}

/// The actor around a policy.
pub struct QosController<P> {
    policy: P,
    monitor: Option<ActorRef>,
    pending: Vec<Promise<Answer>>,
    /// A check is running or scheduled.
    checking: bool,
    advised: Advised,
    /// The triggers that are awaited, or cannot be.
    watched: BTreeMap<Trigger, TimerHandle>,
    /// A trigger has fired while no request was pending.
    has_fired: bool,
    /// Triggers cannot be used here, which was logged.
    is_polling: bool,
}

impl<P: QosPolicy> QosController<P> {
    /// A controller with this policy.
    pub fn new(policy: P) -> Self {
        Self {
            policy,
            monitor: None,
            pending: Vec::new(),
            checking: false,
            advised: Advised::default(),
            watched: BTreeMap::new(),
            has_fired: false,
            is_polling: false,
        }
    }

    /// Checks for corrections, and schedules another check if there are none.
    fn check(&mut self, ctx: &mut Context<Self>) {
        self.pending.retain(Promise::is_awaited);
        let Some(monitor) = &self.monitor else {
            return;
        };
        self.checking = !self.pending.is_empty() && self.policy.has_corrections();
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
        ctx.after(self.policy.check_interval(), Self::check);
    }

    fn judge(&mut self, usage: Result<ResourceUsage, Fault>, ctx: &mut Context<Self>) {
        let now = ctx.clock().now();
        if let Ok(usage) = &usage {
            self.watch(self.policy.triggers(usage), ctx);
        }
        let corrections = usage.map(|usage| self.policy.corrections(&usage, now));
        let answer = corrections.map(|corrections| self.advised.fresh(corrections, now));
        match answer {
            Ok(none) if none.is_empty() => self.check_later(ctx),
            Err(fault) => {
                tracing::warn!(%fault, "cannot get usage, no corrections for now");
                self.check_later(ctx);
            }
            Ok(some) => {
                self.checking = false;
                self.answer(&some);
            }
        }
    }

    fn answer(&mut self, corrections: &[QosCorrection]) {
        for pending in self.pending.drain(..) {
            pending.answer(Ok(corrections.to_vec()));
        }
    }

    /// Awaits these triggers, and no others.
    fn watch(&mut self, wanted: BTreeSet<Trigger>, ctx: &mut Context<Self>) {
        let watched = std::mem::take(&mut self.watched);
        for (trigger, waiting) in watched {
            match wanted.contains(&trigger) {
                true => _ = self.watched.insert(trigger, waiting),
                false => ctx.cancel(waiting),
            }
        }
        for trigger in wanted {
            if self.watched.len() >= WATCHED_MAX {
                break;
            }
            if !self.watched.contains_key(&trigger) {
                self.wait(trigger, None, ctx);
            }
        }
    }

    /// Awaits the next event of a trigger, which may be registered already.
    fn wait(&mut self, trigger: Trigger, event: Option<KernelEvent>, ctx: &mut Context<Self>) {
        let (node, file) = (ctx.node().clone(), trigger.clone());
        let is_new = event.is_none();
        let waiting = async move {
            let event = match event {
                Some(event) => {
                    node.clock().sleep(TRIGGER_PAUSE).await;
                    event
                }
                None => {
                    let opened = node.blocking(move || file.open()).await;
                    opened.map_err(std::io::Error::other)??
                }
            };
            event.next().await
        };
        let watched = trigger.clone();
        let timer = ctx.then(waiting, move |this, event, ctx| match event {
            Ok(event) => {
                tracing::debug!(file = %trigger.file.display(), "pressure trigger");
                this.wait(trigger, Some(event), ctx);
                this.fired(ctx);
            }
            // Stays among the watched ones, so that it is not opened at each check.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {} // Its container has ended.
            Err(error) => {
                if is_new && !std::mem::replace(&mut this.is_polling, true) {
                    let file = trigger.file.display();
                    tracing::warn!(%file, %error, "no pressure trigger; polling");
                }
            }
        });
        self.watched.insert(watched, timer);
    }

    fn fired(&mut self, ctx: &mut Context<Self>) {
        self.pending.retain(Promise::is_awaited);
        self.has_fired = self.pending.is_empty();
        let Some(monitor) = self.monitor.as_ref().filter(|_| !self.has_fired) else {
            return;
        };
        let usage = monitor.ask(CurrentUsage, USAGE_PATIENCE);
        ctx.then(usage, |this, usage, ctx| {
            let now = ctx.clock().now();
            // The next check logs that there is no usage.
            let usage = crate::usage_or_fault(usage).unwrap_or_default();
            let corrections = this.policy.triggered(&usage, now);
            let corrections = this.advised.fresh(corrections, now);
            if !corrections.is_empty() {
                this.answer(&corrections);
            }
        });
    }
}

impl<P: QosPolicy> Actor for QosController<P> {
    type Context = Context<Self>;
}

impl<P: QosPolicy> Process for QosController<P> {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<InitializeQos>(&[Role::Agent]);
        handlers.accept::<Corrections>(&[Role::Agent]);
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
        if self.pending.len() == UNANSWERED_MAX {
            self.pending.remove(0);
        }
        self.pending.push(promise);
        if !self.checking {
            self.checking = true;
            // After the reply is returned; until then the promise does not count as awaited.
            ctx.then(std::future::ready(()), |this, (), ctx| this.check(ctx));
        }
        if self.has_fired {
            ctx.then(std::future::ready(()), |this, (), ctx| this.fired(ctx));
        }
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Monitor, SetUsage, killed, usage};
    use module_api::{ModuleError, ModuleKind, QosControllerRef};
    use runtime::testing::simulate;
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

    // Covers S24.
    #[test]
    fn a_controller_is_initialized_before_its_use_and_only_once() {
        simulate(|node| async move {
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
    // Covers S16 in part: killing for the machine's load, in two halves.
    // Covers S29 in part: what it advises.
    // Covers S38 in part: what is read and advised, not the 20 seconds.
    #[test]
    fn corrections_wait_for_high_load() {
        simulate(|node| async move {
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
    fn equal_corrections_are_not_repeated_at_once() {
        simulate(|node| async move {
            let measured: Measured = Arc::new(Mutex::new(load(7.0, 0.0)));
            let monitor = node
                .spawn("monitor", Monitor::of(usage("batch:cpus*:4")))
                .unwrap();
            let controller = start(&node, &measured);
            controller.initialize(monitor.refer()).await.unwrap();
            assert_eq!(killed(&controller.corrections().await.unwrap()), ["batch"]);
            let asked = node.clock().now();
            monitor
                .tell(SetUsage(usage("batch:cpus*:4 late:cpus*:1")))
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
    // Covers S25.
    #[test]
    fn broken_monitor_does_not_block_the_controller() {
        simulate(|node| async move {
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
            monitor.tell(SetUsage(usage("batch:cpus*:4"))).unwrap();
            assert_eq!(killed(&controller.corrections().await.unwrap()), ["batch"]);
        });
    }

    // Covers S28.
    #[test]
    fn the_noop_controller_never_answers() {
        simulate(|node| async move {
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
