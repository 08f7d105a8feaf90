//! A framework under a test's control: it records every callback, and the test makes the calls.
//!
//! The driver is the real one, on its own thread and socket and with its own certificate. Nothing
//! here asserts anything about Meros; every wait has a bound.

use std::sync::mpsc::{Receiver, Sender, channel};

use protocol::message::scheduler::{Lost, Subscribed, TasksRevoked};
use protocol::{
    AgentId, CommandInfo, ExecutorId, Filters, FrameworkId, FrameworkInfo, Offer, OfferId,
    Operation, OperationStatus, TaskId, TaskInfo, TaskState, TaskStatus,
};
use resources::{Resources, Role as ResourceRole};
use runtime::{Clock, Role, Timestamp};
use scheduler_driver::{Calls, DriverRef, Scheduler, SchedulerDriver};

use crate::support::{Cluster, Deadline, PATIENCE};

/// A recorded scheduler callback.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "all of it is shown when a wait is in vain")]
pub enum Callback {
    Subscribed(FrameworkId),
    Disconnected(String),
    Offers(Vec<Offer>),
    Rescinded(OfferId),
    Status(Box<TaskStatus>),
    Operation(Box<OperationStatus>),
    Message(ExecutorId, Vec<u8>),
    Revoked(TasksRevoked),
    Lost(Lost),
    Updated(Result<(), String>),
    Failed(String),
}

struct CallbackRecorder(Sender<(Timestamp, Callback)>);

impl CallbackRecorder {
    fn record(&self, callback: Callback) {
        // The test may be over.
        let _ = self.0.send((Clock::real().wall(), callback));
    }
}

impl Scheduler for CallbackRecorder {
    fn subscribed(&mut self, _: &mut Calls, subscribed: &Subscribed) {
        self.record(Callback::Subscribed(subscribed.framework_id.clone()));
    }
    fn disconnected(&mut self, _: &mut Calls, reason: &str) {
        self.record(Callback::Disconnected(reason.to_owned()));
    }
    fn offers(&mut self, _: &mut Calls, offers: Vec<Offer>) {
        self.record(Callback::Offers(offers));
    }
    fn rescinded(&mut self, _: &mut Calls, offer: &OfferId) {
        self.record(Callback::Rescinded(offer.clone()));
    }
    fn status(&mut self, _: &mut Calls, status: &TaskStatus) {
        self.record(Callback::Status(Box::new(status.clone())));
    }
    fn operation_status(&mut self, _: &mut Calls, status: &OperationStatus) {
        self.record(Callback::Operation(Box::new(status.clone())));
    }
    fn message(&mut self, _: &mut Calls, _: &AgentId, executor: &ExecutorId, data: &[u8]) {
        self.record(Callback::Message(executor.clone(), data.to_vec()));
    }
    fn revoked(&mut self, _: &mut Calls, revoked: &TasksRevoked) {
        self.record(Callback::Revoked(revoked.clone()));
    }
    fn lost(&mut self, _: &mut Calls, lost: &Lost) {
        self.record(Callback::Lost(lost.clone()));
    }
    fn updated(&mut self, _: &mut Calls, outcome: Result<(), &str>) {
        self.record(Callback::Updated(outcome.map_err(str::to_owned)));
    }
    fn failed(&mut self, _: &mut Calls, reason: &str) {
        self.record(Callback::Failed(reason.to_owned()));
    }
}

/// A framework under a test's control. It is torn down when the test ends.
pub struct ScriptedFramework {
    /// Sends calls to the master.
    pub driver: DriverRef,
    /// Its id.
    pub id: FrameworkId,
    callback: Receiver<(Timestamp, Callback)>,
    /// All callbacks so far with their times, oldest first.
    pub past: Vec<(Timestamp, Callback)>,
    /// Offers that [`standing_offer`](Self::standing_offer) has returned.
    taken: Vec<OfferId>,
    /// Bounds the whole test, because offers never stop.
    deadline: Deadline,
}

impl ScriptedFramework {
    /// Subscribes at the cluster's master and waits for the subscription.
    pub fn subscribe(cluster: &Cluster, info: FrameworkInfo) -> Self {
        let authority = transport::Authority::load(&cluster.certs()).expect("an authority");
        let identity = authority.issue(Role::Framework, &info.name);
        let identity = identity.expect("a certificate");
        let (master, (tell, callback)) = (cluster.master.clone(), channel());
        let (give, driver) = channel();
        std::thread::spawn(move || {
            meros::on_this_thread(async move {
                let driver = SchedulerDriver::new(master.split(','), info);
                let driver = driver.connect(&identity, CallbackRecorder(tell));
                let driver = driver.expect("a driver on the network");
                let _ = give.send(driver.clone());
                driver.ended().await
            })
        });
        let mut scripted = Self {
            driver: driver.recv_timeout(PATIENCE).expect("a driver"),
            id: FrameworkId::new("none-yet").expect("an id"),
            callback,
            past: Vec::new(),
            taken: Vec::new(),
            deadline: Deadline::of_a_test(),
        };
        scripted.id = scripted.wait_for("its subscription", |callback| match callback {
            Callback::Subscribed(id) => Some(id.clone()),
            _ => None,
        });
        scripted
    }

    /// Launches tasks with this offer.
    pub fn launch(&self, offer: &Offer, tasks: Vec<TaskInfo>) {
        let launched = self.driver.launch(vec![offer.id.clone()], tasks);
        launched.expect("the driver hears");
    }

    /// Accepts offers with these operations.
    pub fn accept(&self, offers: Vec<OfferId>, operations: Vec<Operation>, filters: Filters) {
        let accepted = self.driver.accept(offers, operations, filters);
        accepted.expect("the driver hears");
    }

    /// Declines offers.
    pub fn decline(&self, offers: Vec<OfferId>, filters: Filters) {
        let declined = self.driver.decline(offers, filters);
        declined.expect("the driver hears");
    }

    /// Kills a task.
    pub fn kill(&self, task: TaskId) {
        self.driver.kill(task, None).expect("the driver hears");
    }

    /// Waits for a callback that `wanted` accepts. Earlier callbacks are only recorded.
    pub fn wait_for<T>(&mut self, what: &str, mut wanted: impl FnMut(&Callback) -> Option<T>) -> T {
        loop {
            self.deadline.check(what);
            let Ok((at, callback)) = self.callback.recv_timeout(PATIENCE) else {
                panic!("not within {PATIENCE:?}: {what}; callback {:#?}", self.past);
            };
            let found = wanted(&callback);
            self.past.push((at, callback));
            if let Some(found) = found {
                return found;
            }
        }
    }

    /// The next offers.
    pub fn offers(&mut self) -> Vec<Offer> {
        self.wait_for("an offer", |callback| match callback {
            Callback::Offers(offers) => Some(offers.clone()),
            _ => None,
        })
    }

    /// The next offer. Panics if it arrives together with others.
    pub fn offer(&mut self) -> Offer {
        let mut offers = self.offers();
        assert_eq!(offers.len(), 1, "{offers:?}");
        offers.remove(0)
    }

    /// The newest received offer that was neither rescinded nor returned by this before, or else
    /// the next one. It may still be rescinded before it is used.
    pub fn standing_offer(&mut self) -> Offer {
        self.past.extend(self.callback.try_iter());
        let mut gone = self.taken.clone();
        let newest = self.past.iter().rev().find_map(|(_, callback)| {
            if let Callback::Rescinded(id) = callback {
                gone.push(id.clone());
            }
            let Callback::Offers(offers) = callback else {
                return None;
            };
            offers
                .iter()
                .find(|offer| !gone.contains(&offer.id))
                .cloned()
        });
        let offer = newest.unwrap_or_else(|| self.offer());
        self.taken.push(offer.id.clone());
        offer
    }

    /// An offer that has already arrived, if any. Panics if it arrived together with others.
    pub fn offer_if_any(&mut self) -> Option<Offer> {
        while let Ok((at, callback)) = self.callback.try_recv() {
            self.past.push((at, callback.clone()));
            if let Callback::Offers(mut offers) = callback {
                assert_eq!(offers.len(), 1, "{offers:?}");
                return offers.pop();
            }
        }
        None
    }

    /// The next status of this task.
    pub fn status(&mut self, task: &str) -> TaskStatus {
        self.wait_for(&format!("a status of {task}"), |callback| match callback {
            Callback::Status(status) if status.task_id.as_str() == task => Some((**status).clone()),
            _ => None,
        })
    }

    /// Waits for this state of this task. Recorded callbacks count.
    pub fn state(&mut self, task: &str, state: TaskState) -> TaskStatus {
        let wanted = |callback: &Callback| match callback {
            Callback::Status(status)
                if status.task_id.as_str() == task && status.state == state =>
            {
                Some((**status).clone())
            }
            _ => None,
        };
        let past = self.past.iter().find_map(|(_, callback)| wanted(callback));
        past.unwrap_or_else(|| self.wait_for(&format!("{task} as {state}"), wanted))
    }

    /// The states of this task reported so far.
    pub fn states(&self, task: &str) -> Vec<TaskState> {
        let of_task = |(_, callback): &(Timestamp, Callback)| match callback {
            Callback::Status(status) if status.task_id.as_str() == task => Some(status.state),
            _ => None,
        };
        self.past.iter().filter_map(of_task).collect()
    }
}

impl Drop for ScriptedFramework {
    fn drop(&mut self) {
        let _ = self.driver.tear_down(); // It may be over already.
    }
}

/// A framework of this name and role.
pub fn framework(name: &str, role: &str) -> FrameworkInfo {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid());
    let user = user.ok().flatten().map_or("root".to_owned(), |u| u.name);
    let mut info = FrameworkInfo::new(user, name);
    info.roles = [role.to_owned()].into();
    info
}

/// A task that runs this shell line on these resources out of `offer`.
pub fn task(id: &str, offer: &Offer, resources: &str, line: &str) -> TaskInfo {
    let wanted: Resources = resources.parse().expect("resources");
    let role = ResourceRole::new(&offer.role).expect("a role");
    TaskInfo::new(
        TaskId::new(id).expect("an id"),
        offer.agent_id.clone(),
        offer
            .resources
            .find(&wanted)
            .unwrap_or_else(|| wanted.allocate(&role)),
    )
    .with_command(CommandInfo::shell(line))
}

/// The offered resources as text, without their allocation role.
pub fn text(offer: &Offer) -> String {
    offer.resources.unallocate().to_string()
}
