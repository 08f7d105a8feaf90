//! A load: a framework that launches short tasks as long as there is room, and remembers what it is told of each.
//!
//! Beside it an operator writes to the registry all the time. The driver is the real one, on a thread and a socket of its own. Each task appends its id to a file, so that the file says what ran and the
//! statuses what the framework was told; [`Load::finish`] compares the two. It disturbs nobody itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::message::scheduler::Subscribed;
use protocol::{Filters, Offer, Operation, TaskState, TaskStatus};
use resources::Resources;
use runtime::{Clock, Instant, Role};
use scheduler_driver::{Calls, DriverRef, Scheduler, SchedulerDriver, Undelivered};

use crate::puppet::{framework, task};
use crate::support::{Cluster, PATIENCE, eventually};
use crate::writes::Writes;

/// What a task takes: two fit on a CPU.
const SHARE: &str = "cpus:0.5;mem:16";

/// What is under way when a master falls may be told as lost: so many tasks each time at most, for no more fit at once.
const LOST_MAX: usize = 8;

/// What the framework was told so far.
#[derive(Default)]
struct Told {
    /// The ids it was given, and how often it was subscribed.
    ids: BTreeSet<String>,
    subscriptions: usize,
    /// Every task that was launched, with the ends it was told of.
    tasks: BTreeMap<u32, Vec<End>>,
    /// The longest time between two ends, and when the last was.
    gap: Duration,
    last: Option<Instant>,
    /// No more is launched.
    enough: bool,
    failed: Option<String>,
}

/// An end as the framework was told it.
#[derive(Debug)]
struct End {
    state: TaskState,
    /// Whether it was told as an update, or in answer to a question.
    is_update: bool,
    #[allow(dead_code, reason = "it is shown when something is wrong")]
    why: String,
}

struct Launcher {
    told: Arc<Mutex<Told>>,
    ran: PathBuf,
    clock: Clock,
}

impl Launcher {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As many tasks as this offer has room for.
    fn tasks(&self, mut offer: Offer) -> Vec<protocol::TaskInfo> {
        let wanted: Resources = SHARE.parse().expect("resources");
        let (mut told, mut tasks) = (self.told(), Vec::new());
        while !told.enough && offer.resources.find(&wanted).is_some() {
            let number = told.tasks.len() as u32;
            let line = format!("echo {number} >> {}; sleep 0.1", self.ran.display());
            let next = task(&number.to_string(), &offer, SHARE, &line);
            offer.resources = offer.resources.saturating_sub(&next.resources);
            told.tasks.insert(number, Vec::new());
            tasks.push(next);
        }
        tasks
    }
}

impl Scheduler for Launcher {
    fn subscribed(&mut self, _: &mut Calls, subscribed: &Subscribed) {
        let mut told = self.told();
        told.ids.insert(subscribed.framework_id.to_string());
        told.subscriptions += 1;
    }

    fn offers(&mut self, verbs: &mut Calls, offers: Vec<Offer>) {
        for offer in offers {
            let id = offer.id.clone();
            let tasks = self.tasks(offer);
            let operations = vec![Operation::Launch { tasks }];
            let no_filter = Filters {
                refuse_seconds: 0.0,
            };
            verbs.accept(vec![id], operations, no_filter);
        }
    }

    fn status(&mut self, _: &mut Calls, status: &TaskStatus) {
        if !status.state.is_terminal() {
            return;
        }
        let now = self.clock.now();
        let mut told = self.told();
        let gap = told.last.map_or(Duration::ZERO, |last| now - last);
        (told.gap, told.last) = (told.gap.max(gap), Some(now));
        let number = status.task_id.as_str().parse().expect("a number");
        told.tasks.entry(number).or_default().push(End {
            state: status.state,
            is_update: status.uuid.is_some(),
            why: format!("{:?}: {}", status.reason, status.message),
        });
    }

    fn undelivered(&mut self, _: &mut Calls, failed: &Undelivered) {
        self.told().failed = Some(format!("{failed:?}"));
    }

    fn failed(&mut self, _: &mut Calls, reason: &str) {
        self.told().failed = Some(reason.to_owned());
    }
}

/// A framework that launches and launches.
pub struct Load {
    told: Arc<Mutex<Told>>,
    driver: DriverRef,
    ran: PathBuf,
    writes: Writes,
}

impl Load {
    /// Subscribes at the cluster's masters and waits until its first task has finished.
    pub fn start(cluster: &Cluster) -> Self {
        Self::start_as(cluster, "*")
    }

    /// The same in this role.
    pub fn start_as(cluster: &Cluster, role: &str) -> Self {
        let authority = transport::Authority::load(&cluster.certs()).expect("an authority");
        let identity = authority.issue(Role::Framework, "load");
        let identity = identity.expect("a certificate");
        let (told, ran) = (Arc::default(), cluster.directory().join("ran"));
        let launcher = Launcher {
            told: Arc::clone(&told),
            ran: ran.clone(),
            clock: Clock::real(),
        };
        let mut info = framework("load", role);
        info.failover_timeout = Duration::from_secs(300);
        let (master, (give, driver)) = (cluster.master.clone(), channel());
        std::thread::spawn(move || {
            meros::on_this_thread(async move {
                let driver = SchedulerDriver::new(master.split(','), info);
                let driver = driver.connect(&identity, launcher).expect("a driver");
                let _ = give.send(driver.clone()); // The test may be over.
                driver.ended().await
            })
        });
        let driver = driver.recv_timeout(PATIENCE).expect("a driver");
        let load = Self {
            told,
            driver,
            ran,
            writes: Writes::start(cluster),
        };
        load.goes_on();
        load
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until tasks have finished that are launched from now on, and a write was acknowledged that was begun from now on.
    pub fn goes_on(&self) {
        self.writes.go_on();
        let next = self.told().tasks.len() as u32;
        eventually("new tasks to be launched and to finish", || {
            let told = self.told();
            assert_eq!(told.failed, None);
            let mut new = told.tasks.range(next..).map(|(_, ends)| ends);
            new.any(|ends| ends.iter().any(|end| end.state == TaskState::Finished))
                .then_some(())
        });
    }

    /// Launches no more, waits until every task has ended, and looks at all: each has one end as its framework was told, be it as an
    /// update, in answer to a question of the driver, or both; each that finished ran once, none other ran at all, few were lost, and the framework
    /// had one id all the time; what operators were told that was written is there. Gives how often it was subscribed.
    pub fn finish(mut self) -> usize {
        self.writes.finish();
        self.told().enough = true;
        eventually("every task to have an end", || {
            let told = self.told();
            let open = told.tasks.values().filter(|ends| ends.is_empty()).count();
            (open == 0).then_some(())
        });
        let told = self.told();
        assert_eq!((told.ids.len(), &told.failed), (1, &None), "{:?}", told.ids);
        let ran = runs(&self.ran);
        let mut finished = 0;
        for (number, ends) in &told.tasks {
            let runs = ran.get(number).copied().unwrap_or_default();
            let state = ends[0].state;
            let agree = ends.iter().all(|end| end.state == state);
            let updates = ends.iter().filter(|end| end.is_update).count();
            let expected = match state {
                TaskState::Finished => 1,
                TaskState::Lost => 0,
                _ => panic!("task {number} ran {runs} times and ended {ends:?}"),
            };
            assert!(agree && updates <= 1, "task {number} ended {ends:?}");
            assert_eq!(runs, expected, "task {number} ended {ends:?}");
            finished += expected;
        }
        let launched = told.tasks.len();
        assert!(ran.keys().all(|number| told.tasks.contains_key(number)));
        let (lost, gap) = (launched - finished, told.gap);
        eprintln!(
            "{launched} tasks: {finished} ran, {lost} were lost before; none ended for {gap:?} at the most"
        );
        let most = told.subscriptions * LOST_MAX;
        assert!(lost <= most, "{lost} tasks were lost, expected {most}");
        told.subscriptions
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.driver.tear_down(); // It may be over already.
    }
}

/// How often each task ran, by what they wrote.
fn runs(file: &Path) -> BTreeMap<u32, usize> {
    let mut runs = BTreeMap::new();
    let text = std::fs::read_to_string(file).unwrap_or_default();
    for line in text.lines() {
        let number = line.parse().expect("a task's number");
        *runs.entry(number).or_default() += 1;
    }
    runs
}
