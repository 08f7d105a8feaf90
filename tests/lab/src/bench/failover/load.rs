//! The load: frameworks on the real driver that launch short tasks all the time.
//!
//! Each launches a few tasks of half a second on each offer and declines the rest for a second. Its
//! events go to the [`Ledger`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::message::scheduler::Subscribed;
use protocol::{
    CommandInfo, Filters, FrameworkInfo, Offer, Operation, TaskId, TaskInfo, TaskStatus,
};
use resources::Resources;
use runtime::{Clock, Role};
use scheduler_driver::{Calls, DriverRef, Scheduler, SchedulerDriver, Undelivered};

use super::super::launch::user;
use super::group::Group;
use super::ledger::Ledger;
use meros::output::error::{CliError, Outcome};
use meros::service::machine_name;

/// Resources and command of one task.
const NEEDS: &str = "cpus:0.1;mem:16";
const COMMAND: &str = "run 500ms";
/// Tasks of each framework per offer, and at most alive.
const AT_ONCE: usize = 2;
const LIVING_MAX: usize = 32;
/// Failover timeout of the frameworks.
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(600);

/// The ledger of all frameworks.
pub type SharedLedger = Arc<Mutex<Ledger>>;

/// Locks the ledger.
pub fn open(ledger: &SharedLedger) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Frameworks that run on this thread.
pub struct Load {
    drivers: Vec<DriverRef>,
    ledger: SharedLedger,
}

impl Load {
    /// Starts `frameworks` frameworks on this group's masters.
    pub fn start(group: &Group, frameworks: usize) -> Outcome<Self> {
        let ledger = Arc::new(Mutex::new(Ledger::new(frameworks)));
        let needs: Resources = NEEDS
            .parse()
            .map_err(|error| CliError::because("the load", &error))?;
        let mut drivers = Vec::new();
        for number in 0..frameworks {
            let name = format!("load-{number}");
            let identity = group.issue(Role::Framework, &name)?;
            let mut info = FrameworkInfo::new(user(), &name);
            info.hostname = machine_name();
            info.failover_timeout = FAILOVER_TIMEOUT;
            let launcher = Launching {
                number,
                ledger: ledger.clone(),
                clock: group.clock().clone(),
                needs: needs.clone(),
                launched: 0,
                living: 0,
            };
            let driver = SchedulerDriver::new(group.addresses().to_vec(), info)
                .connect(&identity, launcher)
                .map_err(|error| CliError::because("cannot start a framework", &error))?;
            drivers.push(driver);
        }
        Ok(Self { drivers, ledger })
    }

    /// The recorded events.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        open(&self.ledger)
    }

    /// Ends the frameworks.
    pub async fn stop(self) {
        for driver in &self.drivers {
            let _ = driver.tear_down(); // It may have ended already.
        }
        for driver in &self.drivers {
            driver.ended().await;
        }
    }
}

/// The scheduler of one framework.
struct Launching {
    number: usize,
    ledger: SharedLedger,
    clock: Clock,
    needs: Resources,
    launched: u64,
    living: usize,
}

impl Launching {
    /// The next task on this offer; `None` if the offer is too small.
    fn task(&mut self, offer: &Offer) -> Option<TaskInfo> {
        let resources = offer.resources.clone().find(&self.needs)?;
        let name = format!("load-{}.{}", self.number, self.launched);
        self.launched += 1;
        Some(
            TaskInfo::new(TaskId::new(&name).ok()?, offer.agent_id.clone(), resources)
                .with_command(CommandInfo::shell(COMMAND)),
        )
    }
}

impl Scheduler for Launching {
    fn subscribed(&mut self, _: &mut Calls, _: &Subscribed) {
        open(&self.ledger).subscribed(self.number, self.clock.now());
    }

    fn offers(&mut self, driver: &mut Calls, offers: Vec<Offer>) {
        let wanted = match open(&self.ledger).is_open() {
            true => AT_ONCE.min(LIVING_MAX.saturating_sub(self.living)),
            false => 0,
        };
        let (mut begun, mut unwanted) = (0, Vec::new());
        for offer in offers {
            let task = if begun < wanted {
                self.task(&offer)
            } else {
                None
            };
            let Some(task) = task else {
                unwanted.push(offer.id);
                continue;
            };
            begun += 1;
            self.living += 1;
            open(&self.ledger).accepted(task.task_id.clone(), self.clock.now());
            let tasks = vec![task];
            driver.accept(vec![offer.id], vec![Operation::Launch { tasks }], later());
        }
        if !unwanted.is_empty() {
            driver.decline(unwanted, later());
        }
    }

    fn status(&mut self, _: &mut Calls, status: &TaskStatus) {
        let ended = open(&self.ledger).status(status, self.clock.now());
        self.living -= usize::from(ended);
    }

    fn undelivered(&mut self, _: &mut Calls, failed: &Undelivered) {
        let (call, error) = (failed.call, &failed.error);
        open(&self.ledger).over(&format!("a call was not delivered: {call}: {error}"));
    }

    fn failed(&mut self, _: &mut Calls, reason: &str) {
        open(&self.ledger).over(reason);
    }
}

fn later() -> Filters {
    Filters {
        refuse_seconds: 1.0,
    }
}
