//! What a framework links: an actor that finds the master, receives offers and launches tasks.
//!
//! A framework writes a [`Scheduler`], which is called back, and says what it wants done with [`Verbs`] inside a callback or a
//! [`DriverRef`] outside. The driver does the rest:
//!
//! - it tries its masters in turn, with jittered back-off up to 15 s, and subscribes again, under the same framework id, whenever the
//!   master is lost;
//! - it hands each status update over once and acknowledges it, again if the first acknowledgement was lost;
//! - it asks how its tasks are after each new subscription and every 15 minutes, so that a launch or a kill lost on the way comes out
//!   (W17); an answer that brings no news stays with the driver;
//! - it numbers its calls and says again, to the next master too, what no master has said that it heard; a master handles each call once
//!   and in order, and a call that cannot be delivered comes back as [`Scheduler::undelivered`] (S132);
//! - with [`SchedulerDriver::standing_by`] it is one of several schedulers of its framework, of which the master has one lead, and tells
//!   another when that one is gone (S134);
//! - it reads and changes the framework's state ([`Verbs::get`], [`DriverRef::compare_and_set`] and the like): small values in the masters'
//!   registry, which whoever leads next finds there;
//! - tasks launched while there is no master come back as lost, with reason `MASTER_DISCONNECTED`.
//!
//! A framework whose tasks read data that some agents hold may wait a little for those: see [`DelayScheduling`].
//!
//! # A framework that runs one command
//!
//! ```no_run
//! use std::path::Path;
//! use protocol::{CommandInfo, FrameworkInfo, Offer, TaskId, TaskInfo, TaskStatus};
//! use resources::Resources;
//! use runtime::Role;
//! use scheduler_driver::{Scheduler, SchedulerDriver, Verbs};
//!
//! struct Once { launched: bool }
//!
//! impl Scheduler for Once {
//!     fn offers(&mut self, driver: &mut Verbs, offers: Vec<Offer>) {
//!         let needed: Resources = "cpus:0.1;mem:32".parse().unwrap();
//!         for offer in offers {
//!             // The part of the offer that serves the need, with the role it is allocated to and its reservations.
//!             let Some(resources) = offer.resources.find(&needed).filter(|_| !self.launched) else {
//!                 driver.decline(vec![offer.id], Default::default());
//!                 continue;
//!             };
//!             self.launched = true;
//!             let task = TaskInfo {
//!                 name: "greeting".to_owned(),
//!                 task_id: TaskId::new("greeting").unwrap(),
//!                 agent_id: offer.agent_id.clone(),
//!                 resources,
//!                 command: Some(CommandInfo::shell("echo hello")),
//!                 executor: None,
//!                 data: Vec::new(),
//!                 kill_policy: None,
//!                 labels: Default::default(),
//!             };
//!             driver.launch(vec![offer.id], vec![task]);
//!         }
//!     }
//!
//!     fn status(&mut self, driver: &mut Verbs, status: &TaskStatus) {
//!         println!("{} is {}", status.task_id, status.state);
//!         if status.state.is_terminal() {
//!             driver.tear_down();
//!         }
//!     }
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! // `meros certs` has made this identity; `meros local` leaves one in its work directory.
//! let identity = transport::Identity::load(Path::new("certs"), Role::Framework)?;
//! let driver = SchedulerDriver::new(["127.0.0.1:5050"], FrameworkInfo::new("nobody", "once"))
//!     .connect(&identity, Once { launched: false })?;
//! println!("the driver ended: {:?}", driver.ended().await);
//! # Ok(())
//! # }
//! ```
//!
//! # A test without a cluster
//!
//! A scheduler is tried in memory and in paused time, against an actor that stands in for the master and says what the test
//! needs. How actors and rehearsals are written is told in [`runtime::guide`].
//!
//! ```
//! use protocol::message::scheduler::{AcceptOffers, OffersMade, Subscribe, Subscribed};
//! use protocol::{AgentId, FrameworkInfo, MasterId, MasterInfo, Offer, OfferId, TaskStatus};
//! use resources::Role as ResourceRole;
//! use runtime::delivery::{self, Incoming, Numbered};
//! use runtime::prelude::*;
//! use runtime::rehearsal::rehearse_network;
//! use scheduler_driver::{Scheduler, SchedulerDriver, Verbs};
//! use std::sync::{Arc, Mutex};
//!
//! /// The scheduler under test takes every offer and launches nothing.
//! struct Greedy;
//! impl Scheduler for Greedy {
//!     fn offers(&mut self, driver: &mut Verbs, offers: Vec<Offer>) {
//!         offers.into_iter().for_each(|offer| driver.launch(vec![offer.id], Vec::new()));
//!     }
//!     fn status(&mut self, _: &mut Verbs, _: &TaskStatus) {}
//! }
//!
//! /// Takes everybody in, and remembers which offers were accepted.
//! struct StandIn { incoming: Incoming, accepted: Arc<Mutex<Vec<OfferId>>> }
//! impl Actor for StandIn { type Context = Context<Self>; }
//! impl Process for StandIn {
//!     fn hears(ears: &mut Ears<Self>) {
//!         ears.hear::<Subscribe>(&[Role::Framework]);
//!         ears.hear::<Numbered>(&[Role::Framework]); // calls come numbered, so that each is handled once
//!         ears.hear::<AcceptOffers>(&[Role::Framework]);
//!     }
//! }
//! # fn master_info() -> MasterInfo {
//! #     let id = MasterId::new("m").unwrap();
//! #     MasterInfo { id, hostname: "host".into(), port: 5050, version: "test".into(), term: 0, address: None, domain: None }
//! # }
//! impl Handler<Subscribe> for StandIn {
//!     type Result = MessageResult<Subscribe>;
//!     fn handle(&mut self, _: Subscribe, _: &mut Context<Self>) -> Self::Result {
//!         MessageResult(Ok(Subscribed { framework_id: master_info().id.framework(0), master: master_info() }))
//!     }
//! }
//! impl Handler<Numbered> for StandIn {
//!     type Result = MessageResult<Numbered>;
//!     fn handle(&mut self, numbered: Numbered, ctx: &mut Context<Self>) -> Self::Result {
//!         MessageResult(delivery::take(self, |master| &mut master.incoming, numbered, ctx))
//!     }
//! }
//! impl Handler<AcceptOffers> for StandIn {
//!     type Result = ();
//!     fn handle(&mut self, accept: AcceptOffers, _: &mut Context<Self>) {
//!         self.accepted.lock().unwrap().extend(accept.offer_ids);
//!     }
//! }
//!
//! rehearse_network(|network| async move {
//!     let accepted = Arc::default();
//!     let master = network.node("master", Role::Master, &[Role::Framework]);
//!     let node = network.node("framework", Role::Framework, &[Role::Master]);
//!     let stand_in = StandIn { incoming: Incoming::default(), accepted: Arc::clone(&accepted) };
//!     master.spawn("master", stand_in).unwrap();
//!
//!     let framework = FrameworkInfo::new("nobody", "greedy");
//!     let driver = SchedulerDriver::new(["master"], framework).start(&node, Greedy).unwrap();
//!     node.clock().settle().await; // it has subscribed
//!
//!     let offer = Offer {
//!         id: OfferId::new("m-O1").unwrap(),
//!         framework_id: master_info().id.framework(0),
//!         agent_id: AgentId::new("m-S1").unwrap(),
//!         hostname: "host".to_owned(),
//!         role: "*".to_owned(),
//!         resources: "cpus:1".parse::<resources::Resources>().unwrap().allocate(&ResourceRole::STAR),
//!         attributes: Default::default(),
//!         executor_ids: Vec::new(),
//!         unavailability: None,
//!         domain: None,
//!         served: None,
//!     };
//!     let scheduler = node.whereis("scheduler").unwrap();
//!     master.tell(&scheduler, OffersMade { offers: vec![offer.clone()] }).unwrap();
//!     node.clock().settle().await;
//!     assert_eq!(*accepted.lock().unwrap(), [offer.id]);
//! #   drop(driver);
//! });
//! ```
//!
//! `tests/examples/framework.rs` is the first program at full length. Where the order of calls matters: callbacks come one at a time, and the
//! verbs of one callback reach the master before those of the next.

mod connect;
mod delay;
mod driver;
mod ledger;
mod policy;
mod scheduler;
mod state;
mod verbs;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::{Demand, FrameworkInfo, Wants};
use runtime::delivery::Bounds;
use runtime::{Node, SpawnError};

pub use connect::ConnectError;
pub use delay::DelayScheduling;
pub use ledger::{RECONCILE_EVERY, RECONCILE_RETRY};
pub use policy::{BACKOFF_FIRST, BACKOFF_MAX, UPDATES_REMEMBERED};
pub use scheduler::{Scheduler, Undelivered};
pub use state::{STATE_PATIENCE, StateAnswer, StateCall, StateError, StateOutcome};
pub use verbs::{DriverRef, Ended, Verb, Verbs};

/// Who acknowledges status updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acknowledgement {
    /// The driver, when [`Scheduler::status`] has returned.
    #[default]
    Implicit,
    /// The scheduler, with the verb `acknowledge`, for example once it has written the status down. Until then the task's later
    /// updates wait at the agent.
    Explicit,
}

/// What may wait for a master, unless it is said otherwise.
const CALLS: Bounds = Bounds {
    messages: 131_072,
    bytes: 128 << 20,
    age: Duration::from_secs(15 * 60),
};

/// A driver that has not been started: which framework it speaks for, and which masters it tries.
pub struct SchedulerDriver {
    plan: driver::Plan,
}

impl SchedulerDriver {
    /// A driver for `framework`, which tries `masters` (`host:port` each) in this order, again and again.
    ///
    /// With an id in `framework` it takes over from that framework's earlier scheduler.
    pub fn new(
        masters: impl IntoIterator<Item = impl Into<String>>,
        framework: FrameworkInfo,
    ) -> Self {
        let masters = masters.into_iter().map(Into::into).collect();
        Self {
            plan: driver::Plan {
                masters,
                framework,
                wants: Wants::default(),
                stands_by: false,
                acknowledgement: Acknowledgement::default(),
                calls: CALLS,
                begins_anew: false,
                speak_previous: false,
            },
        }
    }

    /// Says who acknowledges status updates; the driver by default.
    pub fn acknowledgement(mut self, acknowledgement: Acknowledgement) -> Self {
        self.plan.acknowledgement = acknowledgement;
        self
    }

    /// How many calls, of how many bytes, may wait for a master, and for how long (S132). By default 131,072 of 128 MiB for a
    /// quarter of an hour, which is enough for the acknowledgements of a large launch, and for questions about half a million
    /// tasks. With less, a framework needs less memory while it has no master, and more of what it says then fails.
    pub fn call_bounds(mut self, bounds: Bounds) -> Self {
        self.plan.calls = bounds;
        self
    }

    /// Subscribes without wanting offers for these roles until they are revived.
    pub fn suppressed(mut self, roles: BTreeSet<String>) -> Self {
        self.plan.wants.suppressed_roles = roles;
        self
    }

    /// Subscribes for offers of some agents only, or of some shape, by role (see [`Demand`]).
    pub fn demands(mut self, demands: BTreeMap<String, Demand>) -> Self {
        self.plan.wants.demands = demands;
        self
    }

    /// Lets other schedulers of the same framework lead in this one's stead (S134): start several with the same name and principal in
    /// [`FrameworkInfo`] (or, if the framework has one already, the same id), each with this. The first to come leads and hears
    /// [`Scheduler::you_lead`]; the others hear [`Scheduler::standing_by`] and wait, up to eight of them, in the order in which they
    /// came. When the leading one stops without a tear-down, or its link is lost, the master tells the next. What they share is in
    /// the framework's state ([`Verbs::get`], [`DriverRef::get`]); only the leading one may change it.
    ///
    /// After a failover of the master the one that led is waited for, for ten seconds. A standby's driver ends when the
    /// framework is torn down.
    pub fn standing_by(mut self) -> Self {
        self.plan.stands_by = true;
        self
    }

    /// Begins anew where the framework's id is refused for good, as that of one whose failover timeout has passed is: it subscribes as a new
    /// framework, and [`Scheduler::subscribed`] brings the new id. Without this, a scheduler that keeps its id would be locked out until somebody
    /// deletes it (W14). What the old framework had launched is over, and no status tells of it; what was said and not heard comes back as
    /// [`undelivered`](Scheduler::undelivered). A framework that is torn down, or replaced by a newer scheduler, does not begin anew.
    pub fn or_anew(mut self) -> Self {
        self.plan.begins_anew = true;
        self
    }

    /// Speaks as the driver before this one did, if it gets a node of its own: to rehearse an upgrade.
    #[doc(hidden)]
    pub fn speak_previous(mut self, previous: bool) -> Self {
        self.plan.speak_previous = previous;
        self
    }

    /// Starts on a node that is on the network already, as its actor `scheduler`. The node must have role framework and accept masters.
    pub fn start(self, node: &Node, scheduler: impl Scheduler) -> Result<DriverRef, SpawnError> {
        driver::start(node, self.plan, scheduler)
    }

    /// Starts on a node and a socket of its own, shown to others with `identity`; both are closed when the driver ends.
    ///
    /// To be called in an actix system or a `LocalSet`: the driver and its connection live on the calling thread.
    pub fn connect(
        self,
        identity: &transport::Identity,
        scheduler: impl Scheduler,
    ) -> Result<DriverRef, ConnectError> {
        connect::connect(self, identity, scheduler)
    }
}
