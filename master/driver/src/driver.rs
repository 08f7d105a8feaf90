//! The driver's actor: keeps one framework subscribed to whichever master takes it.
//!
//! Hears the master's events, the end of the master's actor, and verbs from [`DriverRef`]s. Remembers the framework's id and suppressed
//! roles, the tasks that have not ended ([`Ledger`]) and the newest updates ([`SeenUpdates`]). Never decides about offers: the
//! [`Scheduler`] does. Never writes to disk: a framework that shall survive its own restart keeps its id itself.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use protocol::message::scheduler::{
    AcceptOffers, AcknowledgeStatus, DeclineOffers, FrameworkFailed, FrameworkMessage, KillTask,
    Lost, OfferRescinded, OffersMade, ReconcileTasks, ReviveOffers, StatusChanged, Subscribe,
    Subscribed, SubscriptionRefused, SuppressOffers, TearDown,
};
use protocol::{
    Capability, FrameworkId, FrameworkInfo, Operation, Reason, Source, TaskState, TaskStatus,
};
use rand::Rng;
use runtime::prelude::*;
use runtime::{SpawnError, TellError};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::Acknowledgement;
use crate::ledger::{Ledger, RECONCILE_CHUNK, RECONCILE_EVERY, RECONCILE_RETRY};
use crate::policy::{Heard, SeenUpdates, UPDATES_REMEMBERED, backoff};
use crate::scheduler::Scheduler;
use crate::verbs::{DriverRef, Ended, Performs, Verb, Verbs};

mod reconcile;

/// How long one master may take to be found.
const FIND_PATIENCE: Duration = Duration::from_secs(5);
/// How long a master may take to answer a subscription: it may have to reach its registry first.
const SUBSCRIBE_PATIENCE: Duration = Duration::from_secs(15);
/// How long a master may take to say that it has heard of a tear-down.
const TEAR_DOWN_PATIENCE: Duration = Duration::from_secs(5);
/// Events that overtake the answer to the subscription; more are dropped (updates are sent again, offers time out).
const HELD_MAX: usize = 10_000;

/// A verb from outside a callback.
#[derive(Message)]
#[rtype(result = "()")]
struct Perform(Verb);

/// A task that could not be launched because no master was there to hear of it.
#[derive(Message)]
#[rtype(result = "()")]
struct Undelivered(TaskStatus);

/// What a master tells a subscribed framework.
enum Event {
    Offers(OffersMade),
    Rescinded(OfferRescinded),
    Status(Box<StatusChanged>),
    Message(FrameworkMessage),
    Lost(Lost),
    Failed(FrameworkFailed),
}

/// How far the driver is.
enum Phase {
    /// Looking for a master.
    Seeking,
    /// This one has been asked; what it tells meanwhile waits here.
    Subscribing { master: Pid, held: VecDeque<Event> },
    /// This one has us.
    Subscribed { master: Pid },
    /// Nothing more is to be done.
    Ending,
}

/// What a driver starts with.
pub(crate) struct Plan {
    pub masters: Vec<String>,
    pub framework: FrameworkInfo,
    pub suppressed: BTreeSet<String>,
    pub acknowledgement: Acknowledgement,
}

pub(crate) struct Driver<S> {
    scheduler: S,
    plan: Plan,
    phase: Phase,
    /// Counts tries, so that an answer to an old one is recognised.
    attempt: u64,
    /// Rounds through all masters since the last subscription.
    rounds: u32,
    ledger: Ledger,
    updates: SeenUpdates,
    reconciliation: Vec<Errand>,
    announce: Arc<watch::Sender<Option<Ended>>>,
    ended: watch::Receiver<Option<Ended>>,
}

/// Starts the driver's actor on `node` under the name `scheduler`.
pub(crate) fn start<S: Scheduler>(
    node: &Node,
    plan: Plan,
    scheduler: S,
) -> Result<DriverRef, SpawnError> {
    let (sender, ended) = watch::channel(None);
    let driver = Driver {
        scheduler,
        plan,
        phase: Phase::Seeking,
        attempt: 0,
        rounds: 0,
        ledger: Ledger::default(),
        updates: SeenUpdates::new(UPDATES_REMEMBERED),
        reconciliation: Vec::new(),
        announce: Arc::new(sender),
        ended: ended.clone(),
    };
    let handle = node.spawn("scheduler", driver)?;
    Ok(DriverRef {
        actor: Arc::new(handle),
        ended,
    })
}

impl<S: Scheduler> Performs for Handle<Driver<S>> {
    fn perform(&self, verb: Verb) -> Result<(), TellError> {
        self.tell(Perform(verb))
    }
}

impl<S: Scheduler> Actor for Driver<S> {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        self.seek(0, ctx);
    }
}

impl<S: Scheduler> Process for Driver<S> {
    fn hears(ears: &mut Ears<Self>) {
        ears.hear::<OffersMade>(&[Role::Master]);
        ears.hear::<OfferRescinded>(&[Role::Master]);
        ears.hear::<StatusChanged>(&[Role::Master]);
        ears.hear::<FrameworkMessage>(&[Role::Master]);
        ears.hear::<Lost>(&[Role::Master]);
        ears.hear::<FrameworkFailed>(&[Role::Master]);
    }
}

// Finding a master and staying with it.
impl<S: Scheduler> Driver<S> {
    /// Tries the `index`th master, or waits if that was the last.
    fn seek(&mut self, index: usize, ctx: &mut Context<Self>) {
        if matches!(self.phase, Phase::Ending) {
            return;
        }
        self.phase = Phase::Seeking;
        self.attempt += 1;
        let attempt = self.attempt;
        let Some(address) = self.plan.masters.get(index).cloned() else {
            self.rounds = self.rounds.saturating_add(1);
            let wait = backoff(self.rounds, ctx.node().rng().random());
            ctx.after(wait, move |driver, ctx| {
                if driver.attempt == attempt {
                    driver.seek(0, ctx);
                }
            });
            return;
        };
        let node = ctx.node().clone();
        let search = {
            let address = address.clone();
            async move { node.find(&address, "master", FIND_PATIENCE).await }
        };
        ctx.then(search, move |driver: &mut Self, found, ctx| {
            if driver.attempt != attempt || matches!(driver.phase, Phase::Ending) {
                return;
            }
            match found {
                Ok(master) => driver.subscribe(master, index, address, ctx),
                Err(error) => {
                    warn!(master = %address, %error, "master not reached");
                    driver.seek(index + 1, ctx);
                }
            }
        });
    }

    fn subscribe(&mut self, master: Pid, index: usize, address: String, ctx: &mut Context<Self>) {
        let attempt = self.attempt;
        let question = Subscribe {
            framework: self.plan.framework.clone(),
            scheduler: ctx.pid().clone(),
            suppressed_roles: self.plan.suppressed.clone(),
        };
        let asking = ctx.node().ask(&master, question, SUBSCRIBE_PATIENCE);
        self.phase = Phase::Subscribing {
            master: master.clone(),
            held: VecDeque::new(),
        };
        ctx.then(asking, move |driver: &mut Self, answer, ctx| {
            if driver.attempt != attempt || matches!(driver.phase, Phase::Ending) {
                return;
            }
            match answer {
                Ok(Ok(subscribed)) => driver.subscribed(master, subscribed, ctx),
                Ok(Err(SubscriptionRefused::Never { reason })) => driver.fail(reason, ctx),
                Ok(Err(SubscriptionRefused::NotNow { reason })) => {
                    warn!(master = %address, %reason, "not subscribed yet");
                    driver.seek(index + 1, ctx);
                }
                Err(error) => {
                    warn!(master = %address, %error, "no answer to the subscription");
                    driver.seek(index + 1, ctx);
                }
            }
        });
    }

    fn subscribed(&mut self, master: Pid, subscribed: Subscribed, ctx: &mut Context<Self>) {
        info!(framework = %subscribed.framework_id, master = %subscribed.master.id, "subscribed");
        let again = self
            .plan
            .framework
            .id
            .replace(subscribed.framework_id.clone())
            .is_some();
        self.rounds = 0;
        ctx.link(&master);
        let held = match std::mem::replace(&mut self.phase, Phase::Subscribed { master }) {
            Phase::Subscribing { held, .. } => held,
            _ => VecDeque::new(),
        };
        self.call(ctx, |scheduler, verbs| {
            scheduler.subscribed(verbs, &subscribed)
        });
        if again {
            for (task_id, kill_policy) in self.ledger.kills() {
                self.send(ctx, |framework_id| KillTask {
                    framework_id,
                    task_id,
                    kill_policy,
                });
            }
            self.reconcile_all(ctx);
        }
        let every = ctx.every(RECONCILE_EVERY, |driver, ctx| driver.reconcile_all(ctx));
        self.reconciliation.push(every);
        for event in held {
            self.deliver(event, ctx);
        }
    }

    /// The master is gone: offers are void, and the search begins anew.
    fn lose(&mut self, reason: &str, ctx: &mut Context<Self>) {
        self.reconciliation.drain(..).for_each(|timer| {
            ctx.cancel(timer);
        });
        self.phase = Phase::Seeking;
        self.call(ctx, |scheduler, verbs| {
            scheduler.disconnected(verbs, reason)
        });
        // Even the first try waits a little: all of this master's frameworks come at once.
        self.seek(usize::MAX, ctx);
    }

    fn fail(&mut self, reason: String, ctx: &mut Context<Self>) {
        self.call(ctx, |scheduler, verbs| scheduler.failed(verbs, &reason));
        self.end(Ended::Failed { reason }, ctx);
    }

    fn end(&mut self, how: Ended, ctx: &mut Context<Self>) {
        self.phase = Phase::Ending;
        // The first end is the one that counts: a scheduler may call stop() while it is told of a failure.
        self.announce
            .send_if_modified(|ended| ended.is_none() && ended.replace(how).is_none());
        ctx.stop();
    }
}

// Callbacks in, verbs out.
impl<S: Scheduler> Driver<S> {
    /// Calls the scheduler back and does what it writes down.
    fn call(&mut self, ctx: &mut Context<Self>, callback: impl FnOnce(&mut S, &mut Verbs)) {
        let reference = DriverRef {
            actor: Arc::new(ctx.handle()),
            ended: self.ended.clone(),
        };
        let mut verbs = Verbs::new(reference, self.plan.framework.id.clone());
        callback(&mut self.scheduler, &mut verbs);
        for verb in verbs.list {
            self.perform(verb, ctx);
        }
    }

    /// Tells the master, if there is one. Whether it was sent.
    fn send<M: Remote<Result = ()>>(
        &self,
        ctx: &Context<Self>,
        message: impl FnOnce(FrameworkId) -> M,
    ) -> bool {
        let (Phase::Subscribed { master }, Some(id)) = (&self.phase, &self.plan.framework.id)
        else {
            debug!(message = M::NAME, "no master to tell");
            return false;
        };
        match ctx.node().tell(master, message(id.clone())) {
            Ok(()) => true,
            Err(error) => {
                warn!(message = M::NAME, %error, "the master was not told");
                false
            }
        }
    }

    fn perform(&mut self, verb: Verb, ctx: &mut Context<Self>) {
        match verb {
            Verb::Accept {
                offers,
                operations,
                filters,
            } => self.accept(offers, operations, filters, ctx),
            Verb::Decline {
                offers: offer_ids,
                filters,
            } => {
                self.send(ctx, |framework_id| DeclineOffers {
                    framework_id,
                    offer_ids,
                    filters,
                });
            }
            Verb::Kill {
                task: task_id,
                policy: kill_policy,
            } => {
                self.ledger.kill(&task_id, kill_policy);
                self.send(ctx, |framework_id| KillTask {
                    framework_id,
                    task_id,
                    kill_policy,
                });
            }
            Verb::Revive { roles } => {
                match roles.is_empty() {
                    true => self.plan.suppressed.clear(),
                    false => self.plan.suppressed.retain(|role| !roles.contains(role)),
                }
                self.send(ctx, |framework_id| ReviveOffers {
                    framework_id,
                    roles,
                });
            }
            Verb::Suppress { roles } => {
                let named = if roles.is_empty() {
                    &self.plan.framework.roles
                } else {
                    &roles
                };
                self.plan.suppressed.extend(named.iter().cloned());
                self.send(ctx, |framework_id| SuppressOffers {
                    framework_id,
                    roles,
                });
            }
            Verb::Reconcile { tasks } => {
                self.ledger.asked_by_scheduler(&tasks);
                self.send(ctx, |framework_id| ReconcileTasks {
                    framework_id,
                    tasks,
                });
            }
            Verb::Acknowledge { status } => self.acknowledge(&status, ctx),
            Verb::Message {
                agent: agent_id,
                executor: executor_id,
                data,
            } => {
                self.send(ctx, |framework_id| FrameworkMessage {
                    framework_id,
                    agent_id,
                    executor_id,
                    data,
                });
            }
            Verb::TearDown | Verb::Stop { failover: false } => self.tear_down(ctx),
            Verb::Stop { failover: true } => self.end(Ended::LeftForFailover, ctx),
        }
    }

    fn accept(
        &mut self,
        offer_ids: Vec<protocol::OfferId>,
        operations: Vec<Operation>,
        filters: protocol::Filters,
        ctx: &mut Context<Self>,
    ) {
        let mut tasks = Vec::new();
        for Operation::Launch { tasks: launched } in &operations {
            tasks.extend(
                launched
                    .iter()
                    .map(|task| (task.task_id.clone(), task.agent_id.clone())),
            );
        }
        if self.send(ctx, |framework_id| AcceptOffers {
            framework_id,
            offer_ids,
            operations,
            filters,
        }) {
            tasks
                .iter()
                .for_each(|(task, agent)| self.ledger.launched(task, agent));
            return;
        }
        let state = TaskState::Dropped.as_told(self.plan.framework.can(Capability::PartitionAware));
        for (task, agent) in tasks {
            let status = TaskStatus::new(task, state, Source::Master, ctx.clock().wall())
                .because(
                    Reason::MasterDisconnected,
                    "the driver had no master to tell of the launch",
                )
                .on(&agent);
            // By way of the mailbox: a scheduler that launches again at once shall not keep the driver from finding a master.
            ctx.notify(Undelivered(status));
        }
    }

    fn tear_down(&mut self, ctx: &mut Context<Self>) {
        let (Phase::Subscribed { master }, Some(framework_id)) =
            (&self.phase, self.plan.framework.id.clone())
        else {
            return self.end(Ended::TornDown { confirmed: false }, ctx);
        };
        // Asked, not told, so that the process may end as soon as the driver has.
        let asking = ctx
            .node()
            .ask(master, TearDown { framework_id }, TEAR_DOWN_PATIENCE);
        self.phase = Phase::Ending;
        ctx.then(asking, |driver: &mut Self, heard, ctx| {
            driver.end(
                Ended::TornDown {
                    confirmed: heard.is_ok(),
                },
                ctx,
            );
        });
    }

    fn acknowledge(&mut self, status: &TaskStatus, ctx: &Context<Self>) {
        let (Some(uuid), Some(agent_id)) = (status.uuid, status.agent_id.clone()) else {
            return;
        };
        self.updates.acknowledge(uuid);
        let task_id = status.task_id.clone();
        self.send(ctx, |framework_id| AcknowledgeStatus {
            framework_id,
            agent_id,
            task_id,
            uuid,
        });
    }

    fn status(&mut self, status: TaskStatus, ctx: &mut Context<Self>) {
        match status.uuid.map(|uuid| self.updates.hear(uuid)) {
            Some(Heard::Acknowledged) => return self.acknowledge(&status, ctx),
            Some(Heard::Waiting) => return,
            None | Some(Heard::New) => {}
        }
        if self.ledger.heard(&status) {
            self.call(ctx, |scheduler, verbs| scheduler.status(verbs, &status));
        }
        if self.plan.acknowledgement == Acknowledgement::Implicit {
            self.acknowledge(&status, ctx);
        }
    }

    /// An event from a master: now, later, or never, as the phase has it.
    fn hear(&mut self, event: Event, ctx: &mut Context<Self>) {
        let node = ctx.sender().map(|sender| sender.peer.node.clone());
        let current = |master: &Pid| node.as_ref().is_none_or(|node| node == master.node());
        match &mut self.phase {
            Phase::Subscribed { master } if current(master) => self.deliver(event, ctx),
            Phase::Subscribing { master, held } if current(master) && held.len() < HELD_MAX => {
                held.push_back(event)
            }
            _ => debug!("an event of a master that does not have us is dropped"),
        }
    }

    fn deliver(&mut self, event: Event, ctx: &mut Context<Self>) {
        if matches!(self.phase, Phase::Ending) {
            return;
        }
        match event {
            Event::Offers(OffersMade { offers }) => {
                self.call(ctx, |scheduler, verbs| scheduler.offers(verbs, offers))
            }
            Event::Rescinded(OfferRescinded { offer_id }) => {
                self.call(ctx, |scheduler, verbs| {
                    scheduler.rescinded(verbs, &offer_id)
                });
            }
            Event::Status(changed) => self.status(changed.status, ctx),
            Event::Message(message) => self.call(ctx, |scheduler, verbs| {
                scheduler.message(
                    verbs,
                    &message.agent_id,
                    &message.executor_id,
                    &message.data,
                );
            }),
            Event::Lost(lost) => self.call(ctx, |scheduler, verbs| scheduler.lost(verbs, &lost)),
            Event::Failed(FrameworkFailed { message }) => self.fail(message, ctx),
        }
    }
}

impl<S: Scheduler> Handler<Exited> for Driver<S> {
    type Result = ();
    fn handle(&mut self, exited: Exited, ctx: &mut Context<Self>) {
        if matches!(&self.phase, Phase::Subscribed { master } if *master == exited.pid) {
            warn!(reason = %exited.reason, "the master is lost");
            self.lose(&exited.reason.to_string(), ctx);
        }
    }
}

impl<S: Scheduler> Handler<Perform> for Driver<S> {
    type Result = ();
    fn handle(&mut self, Perform(verb): Perform, ctx: &mut Context<Self>) {
        if !matches!(self.phase, Phase::Ending) {
            self.perform(verb, ctx);
        }
    }
}

impl<S: Scheduler> Handler<Undelivered> for Driver<S> {
    type Result = ();
    fn handle(&mut self, Undelivered(status): Undelivered, ctx: &mut Context<Self>) {
        if !matches!(self.phase, Phase::Ending) {
            self.status(status, ctx);
        }
    }
}

macro_rules! hears {
    ($($message:ty => $event:expr),*) => {$(
        impl<S: Scheduler> Handler<$message> for Driver<S> {
            type Result = ();
            fn handle(&mut self, message: $message, ctx: &mut Context<Self>) {
                self.hear($event(message), ctx);
            }
        }
    )*};
}
hears! {
    OffersMade => Event::Offers,
    OfferRescinded => Event::Rescinded,
    StatusChanged => |changed| Event::Status(Box::new(changed)),
    FrameworkMessage => Event::Message,
    Lost => Event::Lost,
    FrameworkFailed => Event::Failed
}
