//! Scheduler driver: the library through which a framework receives offers and launches tasks.
//!
//! A framework implements [`Scheduler`] for its callbacks, and makes calls with [`Calls`] inside a
//! callback or with a [`DriverRef`] elsewhere. The driver is an actor that does the rest:
//!
//! - It finds the leading master, with a jittered back-off of up to 15 s, and subscribes again
//!   under the same framework id whenever the master is lost.
//! - It delivers each status update once and acknowledges it, and repeats a lost acknowledgement.
//! - It reconciles all tasks after each new subscription and every 15 minutes, so lost launches and
//!   kills become visible. Answers without news are not delivered.
//! - It numbers its calls and repeats unconfirmed ones, also to the next master. A master handles
//!   each call once and in order. Undeliverable calls are reported as [`Scheduler::undelivered`].
//! - It reports tasks that are launched without a master as lost, with reason
//!   `MASTER_DISCONNECTED`.
//! - With [`SchedulerDriver::standing_by`] several schedulers of a framework can run: the master
//!   elects one, and another when that one is gone.
//! - It reads and changes the framework's state ([`Calls::get`], [`DriverRef::compare_and_set`] and
//!   others): small values in the masters' registry, available to each later scheduler.
//!
//! Callbacks run one at a time. The calls of one callback reach the master before those of the
//! next.
//!
//! [`DelayScheduling`] helps frameworks whose tasks should run on the agents that have their data.
//!
//! | module | contents |
//! |---|---|
//! | `call` | calls of a framework to the master |
//! | `connect` | a driver with its own node and QUIC socket |
//! | `delay` | delay scheduling: waits a bounded time for the agent with a task's data |
//! | `driver` | the actor that keeps one framework subscribed to the leading master |
//! | `policy` | decisions of the driver as pure functions and values |
//! | `scheduler` | [`Scheduler`]: the callbacks that a framework implements |
//! | `state` | the framework's state in the registry: requests, answers and errors |
//! | `task_tracker` | the framework's active tasks as this driver knows them |
//!
//! # A framework that runs one command
//!
//! ```no_run
//! use std::path::Path;
//! use protocol::{CommandInfo, FrameworkInfo, Offer, TaskId, TaskInfo, TaskStatus};
//! use resources::Resources;
//! use runtime::Role;
//! use scheduler_driver::{Calls, Scheduler, SchedulerDriver};
//!
//! struct Once { launched: bool }
//!
//! impl Scheduler for Once {
//!     fn offers(&mut self, driver: &mut Calls, offers: Vec<Offer>) {
//!         let needed: Resources = "cpus:0.1;mem:32".parse().unwrap();
//!         for offer in offers {
//!             // A matching part of the offer, with its allocation role and reservations.
//!             let found = offer.resources.find(&needed);
//!             let Some(resources) = found.filter(|_| !self.launched) else {
//!                 driver.decline(vec![offer.id], Default::default());
//!                 continue;
//!             };
//!             self.launched = true;
//!             let task_id = TaskId::new("greeting").unwrap();
//!             let task = TaskInfo::new(task_id, offer.agent_id.clone(), resources)
//!                 .with_command(CommandInfo::shell("echo hello"));
//!             driver.launch(vec![offer.id], vec![task]);
//!         }
//!     }
//!
//!     fn status(&mut self, driver: &mut Calls, status: &TaskStatus) {
//!         println!("{} is {}", status.task_id, status.state);
//!         if status.state.is_terminal() {
//!             driver.tear_down();
//!         }
//!     }
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! // Made by `meros certs`; `meros local` leaves one in its work directory.
//! let identity = transport::Identity::load(Path::new("certs"), Role::Framework)?;
//! let driver = SchedulerDriver::new(["127.0.0.1:5050"], FrameworkInfo::new("nobody", "once"))
//!     .connect(&identity, Once { launched: false })?;
//! println!("the driver ended: {:?}", driver.ended().await);
//! # Ok(())
//! # }
//! ```
//!
//! `tests/examples/framework.rs` is the complete program.
//!
//! # A test without a cluster
//!
//! A scheduler can be tested in memory and in virtual time, against an actor in the role of the
//! master. [`runtime::guide`] describes actors and such tests.
//!
//! ```
//! use protocol::message::scheduler::{AcceptOffers, OffersMade, Subscribe, Subscribed};
//! use protocol::{AgentId, FrameworkInfo, MasterId, MasterInfo, Offer, OfferId, TaskStatus};
//! use resources::{Resources, Role as ResourceRole};
//! use runtime::delivery::{self, DedupReceiver, Sequenced};
//! use runtime::prelude::*;
//! use runtime::testing::simulate_network;
//! use scheduler_driver::{Calls, Scheduler, SchedulerDriver};
//! use std::sync::{Arc, Mutex};
//!
//! /// The scheduler under test accepts every offer and launches nothing.
//! struct Greedy;
//! impl Scheduler for Greedy {
//!     fn offers(&mut self, driver: &mut Calls, offers: Vec<Offer>) {
//!         offers.into_iter().for_each(|offer| driver.launch(vec![offer.id], Vec::new()));
//!     }
//!     fn status(&mut self, _: &mut Calls, _: &TaskStatus) {}
//! }
//!
//! /// Accepts every subscription and records the accepted offers.
//! struct TestMaster { incoming: DedupReceiver, accepted: Arc<Mutex<Vec<OfferId>>> }
//! impl Actor for TestMaster { type Context = Context<Self>; }
//! impl Process for TestMaster {
//!     fn accepts(handlers: &mut RemoteHandlers<Self>) {
//!         handlers.accept::<Subscribe>(&[Role::Framework]);
//!         handlers.accept::<Sequenced>(&[Role::Framework]); // each call is numbered
//!         handlers.accept::<AcceptOffers>(&[Role::Framework]);
//!     }
//! }
//! # fn master_info() -> MasterInfo {
//! #     let id = MasterId::new("m").unwrap();
//! #     let (hostname, version) = ("host".into(), "test".into());
//! #     MasterInfo { id, hostname, port: 5050, version, term: 0, address: None, domain: None }
//! # }
//! impl Handler<Subscribe> for TestMaster {
//!     type Result = MessageResult<Subscribe>;
//!     fn handle(&mut self, _: Subscribe, _: &mut Context<Self>) -> Self::Result {
//!         let (framework_id, master) = (master_info().id.framework(0), master_info());
//!         MessageResult(Ok(Subscribed { framework_id, master }))
//!     }
//! }
//! impl Handler<Sequenced> for TestMaster {
//!     type Result = MessageResult<Sequenced>;
//!     fn handle(&mut self, call: Sequenced, ctx: &mut Context<Self>) -> Self::Result {
//!         MessageResult(delivery::take(self, |master| &mut master.incoming, call, ctx))
//!     }
//! }
//! impl Handler<AcceptOffers> for TestMaster {
//!     type Result = ();
//!     fn handle(&mut self, accept: AcceptOffers, _: &mut Context<Self>) {
//!         self.accepted.lock().unwrap().extend(accept.offer_ids);
//!     }
//! }
//!
//! simulate_network(|network| async move {
//!     let accepted = Arc::default();
//!     let master = network.node("master", Role::Master, &[Role::Framework]);
//!     let node = network.node("framework", Role::Framework, &[Role::Master]);
//!     let incoming = DedupReceiver::default();
//!     let test_master = TestMaster { incoming, accepted: Arc::clone(&accepted) };
//!     master.spawn("master", test_master).unwrap();
//!
//!     let framework = FrameworkInfo::new("nobody", "greedy");
//!     let driver = SchedulerDriver::new(["master"], framework).start(&node, Greedy).unwrap();
//!     node.clock().settle().await; // subscribed
//!
//!     let offer = Offer {
//!         id: OfferId::new("m-O1").unwrap(),
//!         framework_id: master_info().id.framework(0),
//!         agent_id: AgentId::new("m-S1").unwrap(),
//!         hostname: "host".to_owned(),
//!         role: "*".to_owned(),
//!         resources: Resources::parse("cpus:1").unwrap().allocate(&ResourceRole::STAR),
//!         attributes: Default::default(),
//!         executor_ids: Vec::new(),
//!         unavailability: None,
//!         domain: None,
//!         endpoint: None,
//!     };
//!     let scheduler = node.whereis("scheduler").unwrap();
//!     master.tell(&scheduler, OffersMade { offers: vec![offer.clone()] }).unwrap();
//!     node.clock().settle().await;
//!     assert_eq!(*accepted.lock().unwrap(), [offer.id]);
//! #   drop(driver);
//! });
//! ```

mod call;
mod connect;
mod delay;
mod driver;
mod policy;
mod scheduler;
mod state;
mod task_tracker;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::{Demand, FrameworkInfo, Wants};
use runtime::delivery::Bounds;
use runtime::{Node, SpawnError};

pub use call::{Call, Calls, DriverRef, Ended};
pub use connect::SchedulerConnectError;
pub use delay::DelayScheduling;
pub use policy::{BACKOFF_FIRST, BACKOFF_MAX, UPDATES_REMEMBERED};
pub use scheduler::{Scheduler, Undelivered};
pub use state::{STATE_PATIENCE, StateAnswer, StateCall, StateError, StateOutcome};
pub use task_tracker::{RECONCILE_EVERY, RECONCILE_RETRY};

/// Acknowledgement of status updates: by the driver or by the scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acknowledgement {
    /// The driver, when [`Scheduler::status`] returns.
    #[default]
    Implicit,
    /// The scheduler, with [`Calls::acknowledge`], for example after it has stored the status.
    /// Until then the agent holds back later updates of the task.
    Explicit,
}

/// Default bounds of the queue of calls.
const CALLS: Bounds = Bounds {
    messages: 131_072,
    bytes: 128 << 20,
    age: Duration::from_secs(15 * 60),
};

/// Configuration of a driver: the framework, its masters, and options.
pub struct SchedulerDriver {
    plan: driver::Plan,
}

impl SchedulerDriver {
    /// A driver for `framework`, which tries `masters` (`host:port` each) in this order, again and
    /// again.
    ///
    /// If `framework` has an id, the driver replaces that framework's earlier scheduler.
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
                resubscribe_as_new: false,
            },
        }
    }

    /// Selects the acknowledgement of status updates; by default the driver does it.
    pub fn acknowledgement(mut self, acknowledgement: Acknowledgement) -> Self {
        self.plan.acknowledgement = acknowledgement;
        self
    }

    /// Sets the bounds of the queue of undelivered calls: number, bytes and age. Default: 131,072
    /// calls, 128 MiB, 15 minutes, enough for the acknowledgements of a large launch and for the
    /// reconciliation of 500,000 tasks. Lower bounds save memory while there is no master, but more
    /// calls fail.
    pub fn call_bounds(mut self, bounds: Bounds) -> Self {
        self.plan.calls = bounds;
        self
    }

    /// Subscribes without offers for these roles, until [`Calls::revive`].
    pub fn suppressed(mut self, roles: BTreeSet<String>) -> Self {
        self.plan.wants.suppressed_roles = roles;
        self
    }

    /// Subscribes with demands: by role, the agents and the shape of wanted offers (see
    /// [`Demand`]).
    pub fn demands(mut self, demands: BTreeMap<String, Demand>) -> Self {
        self.plan.wants.demands = demands;
        self
    }

    /// Makes this scheduler one of several of its framework, one of which leads.
    ///
    /// Start several with the same name and principal in [`FrameworkInfo`], or with the same id if
    /// the framework has one, and call this on each. The first one leads and gets
    /// [`Scheduler::elected`]; up to eight others get [`Scheduler::standing_by`] and wait in the
    /// order of their arrival. When the leading scheduler stops without a tear-down, or its link is
    /// lost, the master elects the next one. All share the framework's state ([`Calls::get`],
    /// [`DriverRef::get`]); only the leading one may change it.
    ///
    /// After a failover of the master, it waits ten seconds for the previous leading scheduler. The
    /// driver of a standby ends when the framework is torn down.
    pub fn standing_by(mut self) -> Self {
        self.plan.stands_by = true;
        self
    }

    /// Subscribes as a new framework if the master refuses the framework's id for good, as after
    /// its failover timeout. [`Scheduler::subscribed`] then has the new id.
    ///
    /// Without this, a scheduler that keeps such an id is locked out until someone deletes the id.
    /// Tasks of the old framework are over, without further statuses; its undelivered calls are
    /// reported as [`undelivered`](Scheduler::undelivered). Does not apply to a framework that was
    /// torn down, or to a scheduler that was replaced by a newer one.
    pub fn resubscribe_as_new(mut self) -> Self {
        self.plan.resubscribe_as_new = true;
        self
    }

    /// Starts the driver as actor `scheduler` on an existing node, which must have role framework
    /// and accept masters.
    pub fn start(self, node: &Node, scheduler: impl Scheduler) -> Result<DriverRef, SpawnError> {
        driver::start(node, self.plan, scheduler)
    }

    /// Starts the driver on its own node and socket, with the certificate of `identity`. Both are
    /// closed when the driver ends.
    ///
    /// Call it within an actix system or a `LocalSet`: the driver and its connection run on the
    /// calling thread.
    pub fn connect(
        self,
        identity: &transport::Identity,
        scheduler: impl Scheduler,
    ) -> Result<DriverRef, SchedulerConnectError> {
        connect::connect(self, identity, scheduler)
    }
}
