//! The driver's actor: keeps one framework subscribed to whichever master takes it.
//!
//! Hears the master's events, the end of the master's actor, and verbs from [`DriverRef`]s, which become calls to the master ([`calls`]).
//! Remembers the framework's id and suppressed roles, the tasks that have not ended ([`Ledger`]) and the newest updates
//! ([`SeenUpdates`]); what no master has heard yet is with its courier. One of several schedulers of its
//! framework may have to wait for its turn ([`standing`]). Never decides about offers: the
//! [`Scheduler`] does. Never writes to disk: a framework that shall survive its own restart keeps its id itself.

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
use protocol::message::standby::{Standing, YouLead};
use protocol::{
    AgentId, Capability, ExecutorId, Fence, FrameworkId, FrameworkInfo, KillPolicy, Operation,
    Reason, Source, TaskId, TaskState, TaskStatus,
};
use rand::Rng;
use runtime::delivery::{Bounds, Courier};
use runtime::prelude::*;
use runtime::{SpawnError, TellError};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::Acknowledgement;
use crate::ledger::{Ledger, RECONCILE_CHUNK, RECONCILE_EVERY, RECONCILE_RETRY};
use crate::policy::{Heard, SeenUpdates, UPDATES_REMEMBERED, backoff};
use crate::scheduler::Scheduler;
use crate::state::{StateCall, StateOutcome};
use crate::verbs::{DriverRef, Ended, Performs, Verb, Verbs};

mod calls;
mod operations;
mod reconcile;
mod standing;
mod state;
mod updating;
mod vigil;

/// How long one master may take to be found.
const FIND_PATIENCE: Duration = Duration::from_secs(5);
/// How long a master may take to answer a subscription: it may have to reach its registry first.
const SUBSCRIBE_PATIENCE: Duration = Duration::from_secs(15);
/// Events that overtake the answer to the subscription; more are dropped (updates are sent again, offers time out).
const HELD_MAX: usize = 10_000;

/// A verb from outside a callback.
#[derive(Message)]
#[rtype(result = "()")]
struct Perform(Verb);

/// What a master tells a subscribed framework.
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
    Lead(YouLead),
}

/// How far the driver is.
enum Phase {
    /// Looking for a master.
    Seeking,
    /// This one has been asked; what it tells meanwhile waits here.
    Subscribing { master: Pid, held: VecDeque<Event> },
    /// This one has us.
    Subscribed { master: Pid },
    /// This one has another scheduler lead, and says when it is our turn.
    StandingBy { master: Pid },
    /// Nothing more is to be done.
    Ending,
}

/// What a driver starts with.
pub(crate) struct Plan {
    pub masters: Vec<String>,
    pub framework: FrameworkInfo,
    pub wants: Wants,
    /// Whether other schedulers of the framework may lead in its stead.
    pub stands_by: bool,
    pub acknowledgement: Acknowledgement,
    pub calls: Bounds,
    /// Whether it becomes a new framework if its id is refused for good.
    pub begins_anew: bool,
    pub speak_previous: bool,
}

pub(crate) struct Driver<S> {
    scheduler: S,
    plan: Plan,
    phase: Phase,
    /// Counts tries, so that an answer to an old one is recognised.
    attempt: u64,
    /// Rounds through all masters since the last subscription.
    rounds: u32,
    /// How often the one that was announced is tried before any other: it may still be reading its registry.
    tries: u32,
    /// The terms of masters that were seen.
    fence: Fence,
    ledger: Ledger,
    updates: SeenUpdates,
    /// Counts what the framework wanted to become.
    updates_wanted: u64,
    reconciliation: Vec<Errand>,
    /// Sees to it that calls arrive; there from the start of the actor on.
    courier: Option<Courier>,
    /// What is asked of the framework's state and waits for a master.
    questions: VecDeque<state::Question>,
    /// Of one that may stand by: whether it was told to lead, and nothing else since.
    leads: bool,
    /// The roles for which the framework wants no offers when it begins to lead.
    suppressed_at_first: BTreeSet<String>,
    /// It is to end, and only waits for a master to hear so: the scheduler is called back no more.
    leaving: bool,
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
    let suppressed_at_first = plan.wants.suppressed_roles.clone();
    let driver = Driver {
        scheduler,
        plan,
        phase: Phase::Seeking,
        attempt: 0,
        rounds: 0,
        tries: 0,
        fence: Fence::default(),
        ledger: Ledger::default(),
        updates: SeenUpdates::new(UPDATES_REMEMBERED),
        updates_wanted: 0,
        reconciliation: Vec::new(),
        courier: None,
        questions: VecDeque::new(),
        leads: false,
        suppressed_at_first,
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

impl<S: Scheduler> Performs for Handle<Driver<S>> {
    fn perform(&self, verb: Verb) -> Result<(), TellError> {
        self.tell(Perform(verb))
    }

    fn state(&self, call: StateCall) -> BoxFuture<'static, StateOutcome> {
        state::ask(self, call)
    }
}

impl<S: Scheduler> Actor for Driver<S> {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        match ctx.courier(self.plan.calls) {
            Ok(courier) => self.courier = Some(courier),
            // Only a node that shuts down has none, and the driver ends with it.
            Err(error) => warn!(%error, "no calls can be made"),
        }
        self.seek(0, ctx);
    }
}

impl<S: Scheduler> Process for Driver<S> {
    /// Offers and losses are told once. A scheduler that is so slow that one is lost subscribes anew: its offers are taken back, and
    /// it asks about its tasks.
    const WHEN_FULL: WhenFull = WhenFull::CloseLink;

    fn hears(ears: &mut Ears<Self>) {
        ears.hear::<OffersMade>(&[Role::Master]);
        ears.hear::<OfferRescinded>(&[Role::Master]);
        ears.hear::<InverseOffersMade>(&[Role::Master]);
        ears.hear::<InverseOfferRescinded>(&[Role::Master]);
        ears.hear::<StatusChanged>(&[Role::Master]);
        ears.hear::<TasksRevoked>(&[Role::Master]);
        ears.hear::<OperationChanged>(&[Role::Master]);
        ears.hear::<FrameworkMessage>(&[Role::Master]);
        ears.hear::<Lost>(&[Role::Master]);
        ears.hear::<FrameworkFailed>(&[Role::Master]);
        ears.hear::<YouLead>(&[Role::Master]);
    }
}

// Finding a master and staying with it.
impl<S: Scheduler> Driver<S> {
    /// Looks for the master that leads among those from the `index`th on, and where they say that it is, or waits if there are none; one
    /// that was announced is looked for alone.
    fn seek(&mut self, index: usize, ctx: &mut Context<Self>) {
        if matches!(self.phase, Phase::Ending) {
            return;
        }
        self.phase = Phase::Seeking;
        self.attempt += 1;
        let attempt = self.attempt;
        let alone = self.tries > 0;
        let asked = vigil::asked(&self.plan.masters, index, alone);
        if asked.is_empty() {
            self.rounds = self.rounds.saturating_add(1);
            let wait = backoff(self.rounds, ctx.node().rng().random());
            ctx.after(wait, move |driver, ctx| {
                if driver.attempt == attempt {
                    driver.seek(0, ctx);
                }
            });
            return;
        }
        let patience = match alone {
            true => vigil::ANNOUNCED_PATIENCE,
            false => FIND_PATIENCE,
        };
        let search = vigil::search(ctx.node(), asked.to_vec(), patience, alone);
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
                        // Announced and silent: it may have died since. The others know who leads.
                        AskError::Late { .. } if alone => {
                            driver.tries = 0;
                            driver.seek(0, ctx);
                        }
                        _ => driver.seek_after(last, ctx),
                    }
                }
            }
        });
    }

    /// Asks the master at `address` to have us. The `index`th of those that are known has led there, or is that one.
    fn subscribe(&mut self, master: Pid, index: usize, address: String, ctx: &mut Context<Self>) {
        let attempt = self.attempt;
        let asking = self.ask_to_be_had(&master, ctx);
        // A subscription is taken by a majority of the masters, and so after this was asked.
        let asked_with = self.fence.seen();
        self.phase = Phase::Subscribing {
            master: master.clone(),
            held: VecDeque::new(),
        };
        ctx.then(asking, move |driver: &mut Self, answer, ctx| {
            if driver.attempt != attempt || matches!(driver.phase, Phase::Ending) {
                return;
            }
            match answer {
                Ok(Ok(standing)) if !driver.fence.binds(standing.term(), asked_with) => {
                    warn!(master = %address, term = standing.term(), "a master of an earlier term is not believed");
                    driver.seek_after(index, ctx);
                }
                Ok(Ok(standing)) => {
                    match standing {
                        Standing::Leads(subscribed) => driver.subscribed(master, subscribed, ctx),
                        Standing::StandsBy(standing) => driver.stand_by(master, standing, ctx),
                    }
                    let index = driver.place_of(&address);
                    driver.begin_vigil(index, &address, ctx);
                }
                Ok(Err(SubscriptionRefused::Never { reason })) => {
                    match driver.plan.framework.id.take_if(|_| driver.plan.begins_anew) {
                        Some(id) if !driver.leaving => {
                            warn!(framework = %id, reason, "refused under its id, it becomes a new framework");
                            driver.begin_anew(ctx);
                            driver.subscribe(master, index, address, ctx);
                        }
                        _ => driver.fail(reason, ctx),
                    }
                }
                Ok(Err(SubscriptionRefused::NotNow { reason })) => {
                    warn!(master = %address, %reason, "not subscribed yet");
                    driver.seek_after(index, ctx);
                }
                Err(error) => {
                    warn!(master = %address, %error, "no answer to the subscription");
                    driver.seek_after(index, ctx);
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
        if let Some(courier) = &self.courier {
            courier.retarget(&master);
        }
        let held = match std::mem::replace(&mut self.phase, Phase::Subscribed { master }) {
            Phase::Subscribing { held, .. } => held,
            _ => VecDeque::new(),
        };
        self.begin_to_lead(&subscribed, ctx);
        self.call(ctx, |scheduler, verbs| {
            scheduler.subscribed(verbs, &subscribed)
        });
        self.put_questions(ctx);
        if again {
            self.kill_again(ctx);
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
        if let Some(courier) = &self.courier {
            courier.pause();
        }
        self.call(ctx, |scheduler, verbs| {
            scheduler.disconnected(verbs, reason)
        });
        // Even the first try waits a little: all of this master's frameworks come at once.
        self.seek(usize::MAX, ctx);
    }

    fn fail(&mut self, reason: String, ctx: &mut Context<Self>) {
        if self.leaving {
            // Its tear-down may have been heard, but not confirmed, by a master before this one.
            warn!(
                reason,
                "the framework is refused while it is being torn down"
            );
            return self.end(Ended::TornDown { confirmed: false }, ctx);
        }
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
    /// Calls the scheduler back and does what it writes down, unless it is done with.
    fn call(&mut self, ctx: &mut Context<Self>, callback: impl FnOnce(&mut S, &mut Verbs)) {
        if self.leaving || matches!(self.phase, Phase::Ending) {
            return;
        }
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

    fn status(&mut self, status: TaskStatus, ctx: &mut Context<Self>) {
        match status.uuid.map(|uuid| self.updates.hear(uuid)) {
            Some(Heard::Acknowledged) => return self.acknowledge(&status),
            Some(Heard::Waiting) => return,
            None | Some(Heard::New) => {}
        }
        if self.ledger.heard(&status) {
            self.call(ctx, |scheduler, verbs| scheduler.status(verbs, &status));
        }
        if self.plan.acknowledgement == Acknowledgement::Implicit {
            self.acknowledge(&status);
        }
    }

    /// An event from a master: now, later, or never, as the phase has it.
    fn hear(&mut self, event: Event, ctx: &mut Context<Self>) {
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
            Phase::Subscribing { master, held } if current(master) && held.len() < HELD_MAX => {
                held.push_back(event)
            }
            _ => self.refuse(ctx),
        }
    }

    /// An event of a master that does not have us is dropped. One that was deposed is told so.
    fn refuse(&mut self, ctx: &Context<Self>) {
        let Some(sender) = ctx.sender() else { return };
        let node = &sender.peer.node;
        let Some(term) = self.fence.refuse(node) else {
            return;
        };
        let refused = self.fence.refused();
        warn!(peer = %node, term, refused, "events of a master that does not have us are dropped");
        // Whichever actor there spoke, the one that may have to end has this name.
        let master = Pid::new("master", node.clone(), 0);
        if let Err(error) = ctx.node().tell(&master, TermSeen { term }) {
            debug!(%error, "it is not told");
        }
    }

    fn deliver(&mut self, event: Event, ctx: &mut Context<Self>) {
        if self.leaving || matches!(self.phase, Phase::Ending) {
            return;
        }
        if matches!(self.phase, Phase::StandingBy { .. }) {
            return self.deliver_standing_by(event, ctx);
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
            Event::Inverse(InverseOffersMade { inverse_offers }) => {
                self.call(ctx, |scheduler, verbs| {
                    scheduler.inverse_offers(verbs, inverse_offers);
                });
            }
            Event::InverseRescinded(InverseOfferRescinded { inverse_offer_id }) => {
                self.call(ctx, |scheduler, verbs| {
                    scheduler.inverse_rescinded(verbs, &inverse_offer_id);
                });
            }
            Event::Status(changed) => self.status(changed.status, ctx),
            Event::Revoked(revoked) => {
                self.call(ctx, |scheduler, verbs| scheduler.revoked(verbs, &revoked));
            }
            Event::Operation(changed) => self.operation(changed.status, ctx),
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
            Event::Lead(_) => debug!("it leads already"),
        }
    }
}

impl<S: Scheduler> Handler<Exited> for Driver<S> {
    type Result = ();
    fn handle(&mut self, exited: Exited, ctx: &mut Context<Self>) {
        if matches!(&self.phase, Phase::Subscribed { master } | Phase::StandingBy { master } if *master == exited.pid)
        {
            warn!(reason = %exited.reason, "the master is lost");
            self.lose(&exited.reason.to_string(), ctx);
        }
    }
}

impl<S: Scheduler> Handler<Perform> for Driver<S> {
    type Result = ();
    fn handle(&mut self, Perform(verb): Perform, ctx: &mut Context<Self>) {
        self.perform(verb, ctx);
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
    InverseOffersMade => Event::Inverse,
    InverseOfferRescinded => Event::InverseRescinded,
    StatusChanged => |changed| Event::Status(Box::new(changed)),
    TasksRevoked => Event::Revoked,
    OperationChanged => |changed| Event::Operation(Box::new(changed)),
    FrameworkMessage => Event::Message,
    Lost => Event::Lost,
    FrameworkFailed => Event::Failed,
    YouLead => Event::Lead
}
