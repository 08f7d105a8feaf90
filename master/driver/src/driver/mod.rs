//! The driver's actor: keeps one framework subscribed to the leading master.
//!
//! Handles the master's events, the end of the master's actor, and calls from [`DriverRef`]s, which
//! it sends to the master ([`calls`]). Owns the framework's id and suppressed roles, its active
//! tasks ([`TaskTracker`]) and the newest updates ([`SeenUpdates`]); undelivered calls are in its
//! reliable sender. As one of several schedulers it may be a standby ([`standby`]). Never decides
//! about offers: the [`Scheduler`] does. Never writes to disk: a framework that should survive its
//! own restart must store its id.
//!
//! | module | contents |
//! |---|---|
//! | `calls` | calls to the master, and their reliable delivery |
//! | `leader_watch` | announcements of a new leader by other masters |
//! | `operations` | status updates of operations and their acknowledgements |
//! | `reconcile` | reconciliation after each subscription and every 15 minutes |
//! | `standby` | a scheduler that waits to be elected as the leader of its framework |
//! | `state` | requests for the framework's state |
//! | `updating` | updates of the framework's description and offer preferences |

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use protocol::Wants;
use protocol::message::registration::TermSeen;
use protocol::message::scheduler::{
    AcceptOffers, AcknowledgeStatus, DeclineOffers, FrameworkFailed, FrameworkMessage,
    InverseOfferRescinded, InverseOffersMade, KillTask, Lost, OfferRescinded, OffersMade,
    OperationChanged, ReconcileTasks, ReviveOffers, StatusChanged, Subscribe, Subscribed,
    SubscriptionRefused, SuppressOffers, TasksRevoked, TearDown,
};
use protocol::message::standby::{SchedulerElected, StandbyReply};
use protocol::{
    AgentId, Capability, ExecutorId, Fence, FrameworkId, FrameworkInfo, KillPolicy, Operation,
    Reason, Source, TaskId, TaskState, TaskStatus,
};
use rand::Rng;
use runtime::delivery::{Bounds, ReliableSender};
use runtime::prelude::*;
use runtime::{SpawnError, TellError};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::Acknowledgement;
use crate::call::{Call, Calls, DriverRef, Ended, PerformCalls};
use crate::policy::{DeliveryState, SeenUpdates, UPDATES_REMEMBERED, backoff};
use crate::scheduler::Scheduler;
use crate::state::{StateCall, StateOutcome};
use crate::task_tracker::{RECONCILE_CHUNK, RECONCILE_EVERY, RECONCILE_RETRY, TaskTracker};

mod calls;
mod leader_watch;
mod operations;
mod reconcile;
mod standby;
mod state;
mod updating;

/// Time limit to find one master.
const FIND_PATIENCE: Duration = Duration::from_secs(5);
/// Time limit of a subscription, which may have to reach the registry first.
const SUBSCRIBE_PATIENCE: Duration = Duration::from_secs(15);
/// Maximum number of events before the answer to a subscription. More are dropped: updates are
/// repeated, offers expire.
const EARLY_EVENTS_MAX: usize = 10_000;

/// A call from outside a callback.
#[derive(Message)]
#[rtype(result = "()")]
struct Perform(Call);

/// A message from the master.
enum Event {
    Offers(OffersMade),
    Rescinded(OfferRescinded),
    Inverse(InverseOffersMade),
    InverseRescinded(InverseOfferRescinded),
    Status(Box<StatusChanged>),
    Revoked(TasksRevoked),
    Operation(Box<OperationChanged>),
    Message(FrameworkMessage),
    Lost(Lost),
    Failed(FrameworkFailed),
    Lead(SchedulerElected),
}

/// State of the connection to a master.
enum Phase {
    /// Looking for a master.
    Searching,
    /// Subscribing; events that arrive before the answer wait in `early`.
    Subscribing { master: Pid, early: VecDeque<Event> },
    /// Subscribed with this master.
    Subscribed { master: Pid },
    /// Standby with this master, until it elects this scheduler.
    StandingBy { master: Pid },
    /// The driver has ended.
    Ending,
}

/// Configuration of a driver.
pub(crate) struct Plan {
    pub masters: Vec<String>,
    pub framework: FrameworkInfo,
    pub wants: Wants,
    /// Whether this is one of several schedulers of the framework.
    pub stands_by: bool,
    pub acknowledgement: Acknowledgement,
    pub calls: Bounds,
    /// Whether to subscribe as a new framework if the id is refused for good.
    pub resubscribe_as_new: bool,
}

pub(crate) struct Driver<S> {
    scheduler: S,
    plan: Plan,
    phase: Phase,
    /// Number of subscription attempts; identifies stale answers and timers.
    attempt: u64,
    /// Rounds through all masters since the last subscription.
    rounds: u32,
    /// Remaining attempts at an announced master before any other is tried: it may still be reading
    /// its registry.
    tries: u32,
    /// Terms of masters seen so far.
    fence: Fence,
    tasks: TaskTracker,
    updates: SeenUpdates,
    /// Number of updates of the framework; identifies stale answers.
    update_number: u64,
    reconciliation: Vec<TimerHandle>,
    /// Delivers calls reliably. Set when the actor starts.
    reliable_sender: Option<ReliableSender>,
    /// State requests that wait for a master.
    requests: VecDeque<state::StateRequest>,
    /// Whether a scheduler with standbys was elected and not replaced since.
    leads: bool,
    /// Suppressed roles at the start of each leadership.
    suppressed_initially: BTreeSet<String>,
    /// The driver is about to end and only waits for the master to confirm; no more callbacks.
    leaving: bool,
    announce: Arc<watch::Sender<Option<Ended>>>,
    ended: watch::Receiver<Option<Ended>>,
}

/// Starts the driver's actor on `node` as `scheduler`.
pub(crate) fn start<S: Scheduler>(
    node: &Node,
    plan: Plan,
    scheduler: S,
) -> Result<DriverRef, SpawnError> {
    let (sender, ended) = watch::channel(None);
    let suppressed_initially = plan.wants.suppressed_roles.clone();
    let driver = Driver {
        scheduler,
        plan,
        phase: Phase::Searching,
        attempt: 0,
        rounds: 0,
        tries: 0,
        fence: Fence::default(),
        tasks: TaskTracker::default(),
        updates: SeenUpdates::new(UPDATES_REMEMBERED),
        update_number: 0,
        reconciliation: Vec::new(),
        reliable_sender: None,
        requests: VecDeque::new(),
        leads: false,
        suppressed_initially,
        leaving: false,
        announce: Arc::new(sender),
        ended: ended.clone(),
    };
    let handle = node.spawn("scheduler", driver)?;
    Ok(DriverRef {
        actor: Arc::new(handle),
        ended,
    })
}

impl<S: Scheduler> PerformCalls for Handle<Driver<S>> {
    fn perform(&self, call: Call) -> Result<(), TellError> {
        self.tell(Perform(call))
    }

    fn state(&self, call: StateCall) -> BoxFuture<'static, StateOutcome> {
        state::ask(self, call)
    }
}

impl<S: Scheduler> Actor for Driver<S> {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        match ctx.reliable_sender(self.plan.calls) {
            Ok(courier) => self.reliable_sender = Some(courier),
            // Fails only while the node shuts down, and the driver ends with it.
            Err(error) => warn!(%error, "cannot create the courier for calls"),
        }
        self.find_master(0, ctx);
    }
}

impl<S: Scheduler> Process for Driver<S> {
    /// Offers and losses are sent only once. A scheduler that is too slow to receive them
    /// resubscribes, so its offers are rescinded and its tasks reconciled.
    const WHEN_FULL: WhenFull = WhenFull::CloseLink;

    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<OffersMade>(&[Role::Master]);
        handlers.accept::<OfferRescinded>(&[Role::Master]);
        handlers.accept::<InverseOffersMade>(&[Role::Master]);
        handlers.accept::<InverseOfferRescinded>(&[Role::Master]);
        handlers.accept::<StatusChanged>(&[Role::Master]);
        handlers.accept::<TasksRevoked>(&[Role::Master]);
        handlers.accept::<OperationChanged>(&[Role::Master]);
        handlers.accept::<FrameworkMessage>(&[Role::Master]);
        handlers.accept::<Lost>(&[Role::Master]);
        handlers.accept::<FrameworkFailed>(&[Role::Master]);
        handlers.accept::<SchedulerElected>(&[Role::Master]);
    }
}

// Finding a master, and staying subscribed.
impl<S: Scheduler> Driver<S> {
    /// Finds the leading master through the addresses from `index` on; waits for the next round if
    /// there are none. An announced master is tried alone.
    fn find_master(&mut self, index: usize, ctx: &mut Context<Self>) {
        if matches!(self.phase, Phase::Ending) {
            return;
        }
        self.phase = Phase::Searching;
        self.attempt += 1;
        let attempt = self.attempt;
        let alone = self.tries > 0;
        let asked = leader_watch::addresses_to_ask(&self.plan.masters, index, alone);
        if asked.is_empty() {
            self.rounds = self.rounds.saturating_add(1);
            let wait = backoff(self.rounds, ctx.node().rng().random());
            ctx.after(wait, move |driver, ctx| {
                if driver.attempt == attempt {
                    driver.find_master(0, ctx);
                }
            });
            return;
        }
        let patience = match alone {
            true => leader_watch::ANNOUNCED_PATIENCE,
            false => FIND_PATIENCE,
        };
        let search = leader_watch::search(ctx.node(), asked.to_vec(), patience, alone);
        let last = index + asked.len() - 1;
        ctx.then(search, move |driver: &mut Self, found, ctx| {
            if driver.attempt != attempt || matches!(driver.phase, Phase::Ending) {
                return;
            }
            match found {
                Ok(found) => driver.subscribe(found.pid, index + found.place, found.address, ctx),
                Err(error) => {
                    let asked = driver.plan.masters.get(index..=last);
                    warn!(masters = ?asked, %error, "no master reached");
                    match error {
                        // An announced master without an answer may have died since. The others
                        // know the leader.
                        AskError::Late { .. } if alone => {
                            driver.tries = 0;
                            driver.find_master(0, ctx);
                        }
                        _ => driver.find_master_after(last, ctx),
                    }
                }
            }
        });
    }

    /// Subscribes with the master at `address`, which is the known master `index` or was found
    /// through it.
    fn subscribe(&mut self, master: Pid, index: usize, address: String, ctx: &mut Context<Self>) {
        let attempt = self.attempt;
        let asking = self.request_subscription(&master, ctx);
        // A majority of the masters confirms a subscription, and does so after this request.
        let asked_with = self.fence.newest_term();
        self.phase = Phase::Subscribing {
            master: master.clone(),
            early: VecDeque::new(),
        };
        ctx.then(asking, move |driver: &mut Self, answer, ctx| {
            if driver.attempt != attempt || matches!(driver.phase, Phase::Ending) {
                return;
            }
            match answer {
                Ok(Ok(standing)) if !driver.fence.try_bind(standing.term(), asked_with) => {
                    warn!(master = %address, term = standing.term(), "rejecting a master of an older term");
                    driver.find_master_after(index, ctx);
                }
                Ok(Ok(standing)) => {
                    match standing {
                        StandbyReply::Leads(subscribed) => driver.subscribed(master, subscribed, ctx),
                        StandbyReply::StandsBy(standing) => driver.become_standby(master, standing, ctx),
                    }
                    let index = driver.index_of(&address);
                    driver.watch_for_leader(index, &address, ctx);
                }
                Ok(Err(SubscriptionRefused::Never { reason })) => {
                    match driver.plan.framework.id.take_if(|_| driver.plan.resubscribe_as_new) {
                        Some(id) if !driver.leaving => {
                            warn!(framework = %id, reason, "framework id refused; subscribing as a new framework");
                            driver.start_anew(ctx);
                            driver.subscribe(master, index, address, ctx);
                        }
                        _ => driver.fail(reason, ctx),
                    }
                }
                Ok(Err(SubscriptionRefused::NotNow { reason })) => {
                    warn!(master = %address, %reason, "not subscribed yet");
                    driver.find_master_after(index, ctx);
                }
                Err(error) => {
                    warn!(master = %address, %error, "no answer to the subscription");
                    driver.find_master_after(index, ctx);
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
        (self.rounds, self.tries) = (0, 0);
        ctx.link(&master);
        if let Some(courier) = &self.reliable_sender {
            courier.retarget(&master);
        }
        let early = match std::mem::replace(&mut self.phase, Phase::Subscribed { master }) {
            Phase::Subscribing { early, .. } => early,
            _ => VecDeque::new(),
        };
        self.start_leading(&subscribed, ctx);
        self.call_back(ctx, |scheduler, calls| {
            scheduler.subscribed(calls, &subscribed)
        });
        self.resume_requests(ctx);
        if again {
            self.resend_kills(ctx);
            self.reconcile_all(ctx);
        }
        let every = ctx.every(RECONCILE_EVERY, |driver, ctx| driver.reconcile_all(ctx));
        self.reconciliation.push(every);
        for event in early {
            self.deliver(event, ctx);
        }
    }

    /// The master is lost: offers are void, and the search starts again.
    fn lose_master(&mut self, reason: &str, ctx: &mut Context<Self>) {
        self.reconciliation.drain(..).for_each(|timer| {
            ctx.cancel(timer);
        });
        self.phase = Phase::Searching;
        if let Some(courier) = &self.reliable_sender {
            courier.pause();
        }
        self.call_back(ctx, |scheduler, calls| {
            scheduler.disconnected(calls, reason)
        });
        // The search starts with a pause, because all frameworks of this master search now.
        self.find_master(usize::MAX, ctx);
    }

    fn fail(&mut self, reason: String, ctx: &mut Context<Self>) {
        if self.leaving {
            // A previous master may have handled the tear-down without a confirmation.
            warn!(reason, "framework refused during its tear-down");
            return self.end(Ended::TornDown { confirmed: false }, ctx);
        }
        self.call_back(ctx, |scheduler, calls| scheduler.failed(calls, &reason));
        self.end(Ended::Failed { reason }, ctx);
    }

    fn end(&mut self, how: Ended, ctx: &mut Context<Self>) {
        self.phase = Phase::Ending;
        // The first end counts: a scheduler may call `stop` while it handles a failure.
        self.announce
            .send_if_modified(|ended| ended.is_none() && ended.replace(how).is_none());
        ctx.stop();
    }
}

// Callbacks and calls.
impl<S: Scheduler> Driver<S> {
    /// Runs a callback and performs its calls, unless the driver is ending.
    fn call_back(&mut self, ctx: &mut Context<Self>, callback: impl FnOnce(&mut S, &mut Calls)) {
        if self.leaving || matches!(self.phase, Phase::Ending) {
            return;
        }
        let reference = DriverRef {
            actor: Arc::new(ctx.handle()),
            ended: self.ended.clone(),
        };
        let mut calls = Calls::new(reference, self.plan.framework.id.clone());
        callback(&mut self.scheduler, &mut calls);
        for call in calls.list {
            self.perform(call, ctx);
        }
    }

    fn status(&mut self, status: TaskStatus, ctx: &mut Context<Self>) {
        match status.uuid.map(|uuid| self.updates.record(uuid)) {
            Some(DeliveryState::Acknowledged) => return self.acknowledge(&status),
            Some(DeliveryState::Waiting) => return,
            None | Some(DeliveryState::New) => {}
        }
        if self.tasks.record_status(&status) {
            self.call_back(ctx, |scheduler, calls| scheduler.status(calls, &status));
        }
        if self.plan.acknowledgement == Acknowledgement::Implicit {
            self.acknowledge(&status);
        }
    }

    /// Delivers an event of the current master, keeps it until the subscription is answered, or
    /// rejects it.
    fn receive(&mut self, event: Event, ctx: &mut Context<Self>) {
        let sender = ctx.sender().cloned();
        let current = |master: &Pid| {
            sender.as_ref().is_none_or(|sender| {
                let own = |pid: &Pid| pid == master;
                sender.peer.node == *master.node() && sender.pid.as_ref().is_none_or(own)
            })
        };
        match &mut self.phase {
            Phase::Subscribed { master } | Phase::StandingBy { master } if current(master) => {
                self.deliver(event, ctx);
            }
            Phase::Subscribing { master, early }
                if current(master) && early.len() < EARLY_EVENTS_MAX =>
            {
                early.push_back(event)
            }
            _ => self.reject_event(ctx),
        }
    }

    /// Drops an event of another master, and informs a deposed one.
    fn reject_event(&mut self, ctx: &Context<Self>) {
        let Some(sender) = ctx.sender() else { return };
        let node = &sender.peer.node;
        let Some(term) = self.fence.reject(node) else {
            return;
        };
        let refused = self.fence.rejected_count();
        warn!(peer = %node, term, refused, "dropping events of another master");
        // Only the actor of this name may have to exit, independent of the actual sender.
        let master = Pid::new("master", node.clone(), 0);
        if let Err(error) = ctx.node().tell(&master, TermSeen { term }) {
            debug!(%error, "cannot inform the deposed master");
        }
    }

    fn deliver(&mut self, event: Event, ctx: &mut Context<Self>) {
        if self.leaving || matches!(self.phase, Phase::Ending) {
            return;
        }
        if matches!(self.phase, Phase::StandingBy { .. }) {
            return self.deliver_to_standby(event, ctx);
        }
        match event {
            Event::Offers(OffersMade { offers }) => {
                self.call_back(ctx, |scheduler, calls| scheduler.offers(calls, offers))
            }
            Event::Rescinded(OfferRescinded { offer_id }) => {
                self.call_back(ctx, |scheduler, calls| {
                    scheduler.rescinded(calls, &offer_id)
                });
            }
            Event::Inverse(InverseOffersMade { inverse_offers }) => {
                self.call_back(ctx, |scheduler, calls| {
                    scheduler.inverse_offers(calls, inverse_offers);
                });
            }
            Event::InverseRescinded(InverseOfferRescinded { inverse_offer_id }) => {
                self.call_back(ctx, |scheduler, calls| {
                    scheduler.inverse_rescinded(calls, &inverse_offer_id);
                });
            }
            Event::Status(changed) => self.status(changed.status, ctx),
            Event::Revoked(revoked) => {
                self.call_back(ctx, |scheduler, calls| scheduler.revoked(calls, &revoked));
            }
            Event::Operation(changed) => self.operation(changed.status, ctx),
            Event::Message(message) => self.call_back(ctx, |scheduler, calls| {
                scheduler.message(
                    calls,
                    &message.agent_id,
                    &message.executor_id,
                    &message.data,
                );
            }),
            Event::Lost(lost) => {
                self.call_back(ctx, |scheduler, calls| scheduler.lost(calls, &lost))
            }
            Event::Failed(FrameworkFailed { message }) => self.fail(message, ctx),
            Event::Lead(_) => debug!("already leading"),
        }
    }
}

impl<S: Scheduler> Handler<Exited> for Driver<S> {
    type Result = ();
    fn handle(&mut self, exited: Exited, ctx: &mut Context<Self>) {
        if matches!(&self.phase, Phase::Subscribed { master } | Phase::StandingBy { master } if *master == exited.pid)
        {
            warn!(reason = %exited.reason, "master lost");
            self.lose_master(&exited.reason.to_string(), ctx);
        }
    }
}

impl<S: Scheduler> Handler<Perform> for Driver<S> {
    type Result = ();
    fn handle(&mut self, Perform(call): Perform, ctx: &mut Context<Self>) {
        self.perform(call, ctx);
    }
}

macro_rules! receives {
    ($($message:ty => $event:expr),*) => {$(
        impl<S: Scheduler> Handler<$message> for Driver<S> {
            type Result = ();
            fn handle(&mut self, message: $message, ctx: &mut Context<Self>) {
                self.receive($event(message), ctx);
            }
        }
    )*};
}
receives! {
    OffersMade => Event::Offers,
    OfferRescinded => Event::Rescinded,
    InverseOffersMade => Event::Inverse,
    InverseOfferRescinded => Event::InverseRescinded,
    StatusChanged => |changed| Event::Status(Box::new(changed)),
    TasksRevoked => Event::Revoked,
    OperationChanged => |changed| Event::Operation(Box::new(changed)),
    FrameworkMessage => Event::Message,
    Lost => Event::Lost,
    FrameworkFailed => Event::Failed,
    SchedulerElected => Event::Lead
}
