//! A framework whose scheduler decides nothing: what it hears is kept for the test, and the test says what it does.
//!
//! The driver is the real one, on a thread and a socket of its own, with a certificate of its own. Nothing here asserts anything
//! about Meros; every wait has a bound.

use std::sync::mpsc::{Receiver, Sender, channel};

use protocol::message::scheduler::{Lost, Subscribed, TasksRevoked};
use protocol::{
    AgentId, CommandInfo, ExecutorId, FrameworkId, FrameworkInfo, Offer, OfferId, OperationStatus,
    TaskId, TaskInfo, TaskState, TaskStatus,
};
use resources::{Resources, Role as ResourceRole};
use runtime::{Clock, Role, Timestamp};
use scheduler_driver::{Calls, DriverRef, Scheduler, SchedulerDriver};

use crate::support::{Cluster, Deadline, PATIENCE};

/// What a scheduler was called back for.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "all of it is shown when a wait is in vain")]
pub enum Heard {
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

struct Ears(Sender<(Timestamp, Heard)>);

impl Ears {
    fn hear(&self, heard: Heard) {
        // The test may be over.
        let _ = self.0.send((Clock::real().wall(), heard));
    }
}

impl Scheduler for Ears {
    fn subscribed(&mut self, _: &mut Calls, subscribed: &Subscribed) {
        self.hear(Heard::Subscribed(subscribed.framework_id.clone()));
    }
    fn disconnected(&mut self, _: &mut Calls, reason: &str) {
        self.hear(Heard::Disconnected(reason.to_owned()));
    }
    fn offers(&mut self, _: &mut Calls, offers: Vec<Offer>) {
        self.hear(Heard::Offers(offers));
    }
    fn rescinded(&mut self, _: &mut Calls, offer: &OfferId) {
        self.hear(Heard::Rescinded(offer.clone()));
    }
    fn status(&mut self, _: &mut Calls, status: &TaskStatus) {
        self.hear(Heard::Status(Box::new(status.clone())));
    }
    fn operation_status(&mut self, _: &mut Calls, status: &OperationStatus) {
        self.hear(Heard::Operation(Box::new(status.clone())));
    }
    fn message(&mut self, _: &mut Calls, _: &AgentId, executor: &ExecutorId, data: &[u8]) {
        self.hear(Heard::Message(executor.clone(), data.to_vec()));
    }
    fn revoked(&mut self, _: &mut Calls, revoked: &TasksRevoked) {
        self.hear(Heard::Revoked(revoked.clone()));
    }
    fn lost(&mut self, _: &mut Calls, lost: &Lost) {
        self.hear(Heard::Lost(lost.clone()));
    }
    fn updated(&mut self, _: &mut Calls, outcome: Result<(), &str>) {
        self.hear(Heard::Updated(outcome.map_err(str::to_owned)));
    }
    fn failed(&mut self, _: &mut Calls, reason: &str) {
        self.hear(Heard::Failed(reason.to_owned()));
    }
}

/// A framework in the hands of a test. Torn down when the test is over.
pub struct Puppet {
    /// Does what it is told.
    pub driver: DriverRef,
    /// Its id.
    pub id: FrameworkId,
    heard: Receiver<(Timestamp, Heard)>,
    /// All that was heard so far and when, oldest first.
    pub past: Vec<(Timestamp, Heard)>,
    /// What [`standing_offer`](Self::standing_offer) has given away.
    taken: Vec<OfferId>,
    /// Offers come for ever.
    deadline: Deadline,
}

impl Puppet {
    /// Subscribes at the cluster's master and waits until it has.
    pub fn subscribe(cluster: &Cluster, info: FrameworkInfo) -> Self {
        let authority = transport::Authority::load(&cluster.certs()).expect("an authority");
        let identity = authority.issue(Role::Framework, &info.name);
        let identity = identity.expect("a certificate");
        let (master, (tell, heard)) = (cluster.master.clone(), channel());
        let (give, driver) = channel();
        std::thread::spawn(move || {
            meros::on_this_thread(async move {
                let driver = SchedulerDriver::new(master.split(','), info);
                let driver = driver.connect(&identity, Ears(tell));
                let driver = driver.expect("a driver on the network");
                let _ = give.send(driver.clone());
                driver.ended().await
            })
        });
        let mut puppet = Self {
            driver: driver.recv_timeout(PATIENCE).expect("a driver"),
            id: FrameworkId::new("none-yet").expect("an id"),
            heard,
            past: Vec::new(),
            taken: Vec::new(),
            deadline: Deadline::of_a_test(),
        };
        puppet.id = puppet.hear("its subscription", |heard| match heard {
            Heard::Subscribed(id) => Some(id.clone()),
            _ => None,
        });
        puppet
    }

    /// Waits until something is heard that `wanted` takes; what comes before it is only kept.
    pub fn hear<T>(&mut self, what: &str, mut wanted: impl FnMut(&Heard) -> Option<T>) -> T {
        loop {
            self.deadline.check(what);
            let Ok((at, heard)) = self.heard.recv_timeout(PATIENCE) else {
                panic!("not within {PATIENCE:?}: {what}; heard {:#?}", self.past);
            };
            let found = wanted(&heard);
            self.past.push((at, heard));
            if let Some(found) = found {
                return found;
            }
        }
    }

    /// The next offers.
    pub fn offers(&mut self) -> Vec<Offer> {
        self.hear("an offer", |heard| match heard {
            Heard::Offers(offers) => Some(offers.clone()),
            _ => None,
        })
    }

    /// The next offer, which must come alone.
    pub fn offer(&mut self) -> Offer {
        let mut offers = self.offers();
        assert_eq!(offers.len(), 1, "{offers:?}");
        offers.remove(0)
    }

    /// An offer that was neither taken back nor given by this before: the newest that has come, also while something else was waited for, or
    /// the next. It may be taken back before it is used all the same.
    pub fn standing_offer(&mut self) -> Offer {
        self.past.extend(self.heard.try_iter());
        let mut gone = self.taken.clone();
        let newest = self.past.iter().rev().find_map(|(_, heard)| {
            if let Heard::Rescinded(id) = heard {
                gone.push(id.clone());
            }
            let Heard::Offers(offers) = heard else {
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

    /// An offer that has come already, if there is one; those that come together must be one.
    pub fn offer_if_any(&mut self) -> Option<Offer> {
        while let Ok((at, heard)) = self.heard.try_recv() {
            self.past.push((at, heard.clone()));
            if let Heard::Offers(mut offers) = heard {
                assert_eq!(offers.len(), 1, "{offers:?}");
                return offers.pop();
            }
        }
        None
    }

    /// The next status of this task.
    pub fn status(&mut self, task: &str) -> TaskStatus {
        self.hear(&format!("a status of {task}"), |heard| match heard {
            Heard::Status(status) if status.task_id.as_str() == task => Some((**status).clone()),
            _ => None,
        })
    }

    /// Waits until this task has been heard in this state, be it in the past.
    pub fn state(&mut self, task: &str, state: TaskState) -> TaskStatus {
        let wanted = |heard: &Heard| match heard {
            Heard::Status(status) if status.task_id.as_str() == task && status.state == state => {
                Some((**status).clone())
            }
            _ => None,
        };
        let past = self.past.iter().find_map(|(_, heard)| wanted(heard));
        past.unwrap_or_else(|| self.hear(&format!("{task} as {state}"), wanted))
    }

    /// The states that this task was heard in so far.
    pub fn states(&self, task: &str) -> Vec<TaskState> {
        let of_task = |(_, heard): &(Timestamp, Heard)| match heard {
            Heard::Status(status) if status.task_id.as_str() == task => Some(status.state),
            _ => None,
        };
        self.past.iter().filter_map(of_task).collect()
    }
}

impl Drop for Puppet {
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
    TaskInfo {
        name: id.to_owned(),
        task_id: TaskId::new(id).expect("an id"),
        agent_id: offer.agent_id.clone(),
        resources: offer
            .resources
            .find(&wanted)
            .unwrap_or_else(|| wanted.allocate(&role)),
        command: Some(CommandInfo::shell(line)),
        executor: None,
        data: Vec::new(),
        kill_policy: None,
        labels: Default::default(),
    }
}

/// What is offered, without the mark of the role it is allocated to, as text.
pub fn text(offer: &Offer) -> String {
    offer.resources.unallocate().to_string()
}
