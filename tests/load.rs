//! A load: a framework that launches short tasks while there is room, beside an operator who writes
//! to the registry.
//!
//! The driver is the real one, on its own thread and socket. Each task appends its id to a file,
//! and [`Load::finish`] compares that file with the received statuses.

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

use crate::scripted_framework::{framework, task};
use crate::support::{Cluster, PATIENCE, eventually};
use crate::writes::Writes;

/// Resources of a task: two fit on a CPU.
const SHARE: &str = "cpus:0.5;mem:16";

/// Maximum number of tasks that may be lost per leader failure: those that fit at once.
const LOST_MAX: usize = 8;

/// Callbacks received so far.
#[derive(Default)]
struct Observed {
    /// Framework ids received, and number of subscriptions.
    ids: BTreeSet<String>,
    subscriptions: usize,
    /// Every launched task with its reported ends.
    tasks: BTreeMap<u32, Vec<End>>,
    /// The longest time between two ends, and the time of the last.
    gap: Duration,
    last: Option<Instant>,
    /// Stops launching.
    enough: bool,
    failed: Option<String>,
}

/// A terminal status.
#[derive(Debug)]
struct End {
    state: TaskState,
    /// A status update, as opposed to a reconciliation answer.
    is_update: bool,
    #[allow(dead_code, reason = "it is shown when something is wrong")]
    why: String,
}

struct Launcher {
    observed: Arc<Mutex<Observed>>,
    ran: PathBuf,
    clock: Clock,
}

impl Launcher {
    fn observed(&self) -> MutexGuard<'_, Observed> {
        self.observed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As many tasks as fit into this offer.
    fn tasks(&self, mut offer: Offer) -> Vec<protocol::TaskInfo> {
        let wanted: Resources = SHARE.parse().expect("resources");
        let (mut observed, mut tasks) = (self.observed(), Vec::new());
        while !observed.enough && offer.resources.find(&wanted).is_some() {
            let number = observed.tasks.len() as u32;
            let line = format!("echo {number} >> {}; sleep 0.1", self.ran.display());
            let next = task(&number.to_string(), &offer, SHARE, &line);
            offer.resources = offer.resources.saturating_sub(&next.resources);
            observed.tasks.insert(number, Vec::new());
            tasks.push(next);
        }
        tasks
    }
}

impl Scheduler for Launcher {
    fn subscribed(&mut self, _: &mut Calls, subscribed: &Subscribed) {
        let mut observed = self.observed();
        observed.ids.insert(subscribed.framework_id.to_string());
        observed.subscriptions += 1;
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
        let mut observed = self.observed();
        let gap = observed.last.map_or(Duration::ZERO, |last| now - last);
        (observed.gap, observed.last) = (observed.gap.max(gap), Some(now));
        let number = status.task_id.as_str().parse().expect("a number");
        observed.tasks.entry(number).or_default().push(End {
            state: status.state,
            is_update: status.uuid.is_some(),
            why: format!("{:?}: {}", status.reason, status.message),
        });
    }

    fn undelivered(&mut self, _: &mut Calls, failed: &Undelivered) {
        self.observed().failed = Some(format!("{failed:?}"));
    }

    fn failed(&mut self, _: &mut Calls, reason: &str) {
        self.observed().failed = Some(reason.to_owned());
    }
}

/// A framework that launches tasks continuously.
pub struct Load {
    observed: Arc<Mutex<Observed>>,
    driver: DriverRef,
    ran: PathBuf,
    writes: Writes,
}

impl Load {
    /// Subscribes at the cluster's masters and waits until its first task has finished.
    pub fn start(cluster: &Cluster) -> Self {
        Self::start_as(cluster, "*")
    }

    /// Like [`start`](Self::start), in this role.
    pub fn start_as(cluster: &Cluster, role: &str) -> Self {
        let authority = transport::Authority::load(&cluster.certs()).expect("an authority");
        let identity = authority.issue(Role::Framework, "load");
        let identity = identity.expect("a certificate");
        let (observed, ran) = (Arc::default(), cluster.directory().join("ran"));
        let launcher = Launcher {
            observed: Arc::clone(&observed),
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
            observed,
            driver,
            ran,
            writes: Writes::start(cluster),
        };
        load.wait_for_progress();
        load
    }

    fn observed(&self) -> MutexGuard<'_, Observed> {
        self.observed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a task launched after this call has finished and a write started after it is
    /// acknowledged.
    pub fn wait_for_progress(&self) {
        self.writes.wait_for_write();
        let next = self.observed().tasks.len() as u32;
        eventually("new tasks to be launched and to finish", || {
            let observed = self.observed();
            assert_eq!(observed.failed, None);
            let mut new = observed.tasks.range(next..).map(|(_, ends)| ends);
            new.any(|ends| ends.iter().any(|end| end.state == TaskState::Finished))
                .then_some(())
        });
    }

    /// Stops launching, waits for every task's end and checks: the statuses of each task agree;
    /// each finished task ran once and no other task ran; few tasks were lost; the framework kept
    /// its id; acknowledged writes are present. Returns the number of subscriptions.
    pub fn finish(mut self) -> usize {
        self.writes.finish();
        self.observed().enough = true;
        eventually("every task to have an end", || {
            let observed = self.observed();
            let open = observed
                .tasks
                .values()
                .filter(|ends| ends.is_empty())
                .count();
            (open == 0).then_some(())
        });
        let observed = self.observed();
        assert_eq!(
            (observed.ids.len(), &observed.failed),
            (1, &None),
            "{:?}",
            observed.ids
        );
        let ran = runs(&self.ran);
        let mut finished = 0;
        for (number, ends) in &observed.tasks {
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
        let launched = observed.tasks.len();
        assert!(ran.keys().all(|number| observed.tasks.contains_key(number)));
        let (lost, gap) = (launched - finished, observed.gap);
        eprintln!(
            "{launched} tasks: {finished} ran, {lost} were lost before; none ended for {gap:?} at the most"
        );
        let most = observed.subscriptions * LOST_MAX;
        assert!(lost <= most, "{lost} tasks were lost, expected {most}");
        observed.subscriptions
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.driver.tear_down(); // It may be over already.
    }
}

/// How often each task ran, from the file that tasks write.
fn runs(file: &Path) -> BTreeMap<u32, usize> {
    let mut runs = BTreeMap::new();
    let text = std::fs::read_to_string(file).unwrap_or_default();
    for line in text.lines() {
        let number = line.parse().expect("a task's number");
        *runs.entry(number).or_default() += 1;
    }
    runs
}
