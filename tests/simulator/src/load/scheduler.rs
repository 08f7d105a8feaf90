//! The scheduler of a framework of the default load.
//!
//! Uses the real scheduler driver; one of two schedulers also follows who leads. Its state is in
//! its [`FrameworkRecord`], its randomness comes from its node's seed. It sees only what a real
//! framework would.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use executor_driver::environment;
use protocol::message::scheduler::{Lost, Subscribed};
use protocol::message::standby::StandingBy;
use protocol::{
    CommandInfo, ExecutorId, ExecutorInfo, ExecutorKind, Filters, Offer, Operation, OperationId,
    TaskId, TaskInfo, TaskState, TaskStatus,
};
use rand::Rng;
use rand::rngs::SmallRng;
use resources::{Resources, Revocable};
use runtime::{Clock, Instant};
use scheduler_driver::{Calls, DriverRef, Scheduler};

use super::record::FrameworkRecord;
use super::reservations;
use super::{KILL_EVERY, LAUNCH_EVERY, Manner};

/// A framework's state, which outlives its process.
pub type SharedRecord = Arc<Mutex<FrameworkRecord>>;

/// Maximum tasks of one accept.
const TASKS_AT_ONCE: u64 = 3;
/// One in this number of launches is a group, if the framework has any.
const GROUP_ONE_IN: u32 = 4;
/// Seconds of the filter of a declined offer.
const REFUSE_SECONDS: std::ops::RangeInclusive<u32> = 5..=60;

/// The scheduler.
pub struct LoadScheduler {
    name: String,
    manner: Manner,
    target: usize,
    record: SharedRecord,
    rng: SmallRng,
    clock: Clock,
    may_launch_at: Instant,
    life: Life,
}

/// The state of one life of a scheduler, shared with the tasks that revive and kill for it. Other
/// schedulers of the framework share the record, not this. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Life(Arc<Knows>);

#[derive(Debug, Default)]
struct Knows {
    leads: AtomicBool,
    /// Whether offers are suppressed.
    suppressed: AtomicBool,
}

impl Life {
    /// A standby until it is told to lead, or a single scheduler. Not suppressed.
    pub fn new(stands_by: bool) -> Self {
        let life = Self::default();
        life.0.leads.store(!stands_by, Ordering::Relaxed);
        life
    }

    /// It leads from now on, and wants offers.
    fn lead(&self) {
        self.0.leads.store(true, Ordering::Relaxed);
        self.suppress(false);
    }

    fn stand_by(&self) {
        self.0.leads.store(false, Ordering::Relaxed);
    }

    fn leads(&self) -> bool {
        self.0.leads.load(Ordering::Relaxed)
    }

    /// Returns whether offers were suppressed before.
    fn suppress(&self, suppressed: bool) -> bool {
        self.0.suppressed.swap(suppressed, Ordering::Relaxed)
    }
}

fn open(record: &SharedRecord) -> MutexGuard<'_, FrameworkRecord> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LoadScheduler {
    /// A scheduler for the framework with this name, which keeps `target` tasks.
    pub fn new(
        name: &str,
        manner: Manner,
        target: usize,
        record: SharedRecord,
        rng: SmallRng,
        (clock, life): (Clock, Life),
    ) -> Self {
        Self {
            name: name.to_owned(),
            manner,
            target,
            record,
            rng,
            may_launch_at: clock.now(),
            clock,
            life,
        }
    }

    /// Handles the offers of one call: launches where useful, and declines the rest in one call.
    fn handle_offers(&mut self, driver: &mut Calls, offers: Vec<Offer>) {
        let record = self.record.clone();
        let mut record = open(&record);
        let now = self.clock.now();
        let missing = self.target.saturating_sub(record.at_work());
        let (picky, spare) = (self.manner == Manner::Picky, self.manner == Manner::Spare);
        let half = self.target / 2;
        let regular = match (now < self.may_launch_at, spare) {
            (true, _) => 0,
            (false, true) => missing.saturating_sub(half),
            (false, false) => missing.min(half + 1),
        };
        // Lent resources come in separate offers, after the others.
        let lent = match spare {
            true => (missing - regular).min(half + 1),
            false => 0,
        };
        let (mut regular, mut lent) = (regular as u64, lent as u64);
        let mut unwanted = Vec::new();
        for mut offer in offers {
            if picky && self.rng.random_range(0..10) == 0 {
                continue; // kept unanswered: the master will rescind it
            }
            let mut operations = match self.manner {
                Manner::Service => self.convert(&mut record, &mut offer),
                _ => Vec::new(),
            };
            let dislikes = picky && self.rng.random_range(0..3) > 0;
            let wanted = match offer.resources.revocable().is_empty() {
                true => &mut regular,
                false => &mut lent,
            };
            let launch = match *wanted == 0 || dislikes {
                true => None,
                false => {
                    let count = self.rng.random_range(1..=TASKS_AT_ONCE).min(*wanted);
                    self.launch(&mut record, &offer, count)
                }
            };
            if launch.is_none() && operations.is_empty() {
                unwanted.push(offer.id);
                continue;
            }
            if let Some(launch) = launch {
                *wanted -= launch.tasks().len() as u64;
                self.may_launch_at = now + LAUNCH_EVERY;
                for task in launch.tasks() {
                    record.launched(task.task_id.clone(), task.agent_id.clone());
                }
                operations.push(launch);
            }
            driver.accept(vec![offer.id], operations, Filters::default());
        }
        if !unwanted.is_empty() {
            let filters = Filters {
                refuse_seconds: self.rng.random_range(REFUSE_SECONDS).into(),
            };
            driver.decline(unwanted, filters);
        }
    }

    /// The operations for this offer, which is changed accordingly.
    fn convert(&mut self, record: &mut FrameworkRecord, offer: &mut Offer) -> Vec<Operation> {
        let number = record.next_number();
        let name = format!("{}-o{number}", self.name);
        let steps = reservations::steps(offer, &name, &mut self.rng).into_iter();
        let named = steps
            .enumerate()
            .map(|(step, conversion)| Operation::Convert {
                id: OperationId::new(format!("{name}-{step}")).ok(),
                conversion,
            });
        named.collect()
    }

    /// The launch of the tasks that are wanted and fit into the offer, several of them sometimes as
    /// a group. The first one gets its volumes.
    fn launch(
        &mut self,
        record: &mut FrameworkRecord,
        offer: &Offer,
        count: u64,
    ) -> Option<Operation> {
        let mut pool = offer.resources.clone();
        // Agents lend no disk, which a default executor needs.
        let is_regular = offer.resources.revocable().is_empty();
        let is_group = self.manner.has_groups() && is_regular && count > 1;
        let kind = match self.manner {
            Manner::Own => Some(ExecutorKind::Custom),
            _ if is_group && self.rng.random_ratio(1, GROUP_ONE_IN) => Some(ExecutorKind::Default),
            _ => None,
        };
        let executor = match kind {
            Some(kind) => Some(self.executor(record, offer, kind, &mut pool)?),
            None => None,
        };
        let mut tasks = Vec::new();
        for _ in 0..count {
            let (cpus, mem) = self.manner.size(&mut self.rng);
            let (whole, tenths) = (cpus / 10, cpus % 10);
            let needed = format!("cpus:{whole}.{tenths};mem:{mem}");
            let Some(mut resources) = take(&mut pool, &needed) else {
                break;
            };
            let volumes = pool.persistent_volumes();
            pool.saturating_sub_assign(&volumes);
            resources += &volumes;
            let command = self.manner.command(&mut self.rng).to_string();
            let number = record.next_number();
            let Ok(task_id) = TaskId::new(format!("{}-t{number}", self.name)) else {
                break;
            };
            let (command, data) = match kind {
                None => (Some(CommandInfo::shell(command)), Vec::new()),
                Some(ExecutorKind::Default) => (
                    Some(command_of_member(record, &task_id, command)),
                    Vec::new(),
                ),
                Some(ExecutorKind::Custom) => (None, command.into_bytes()),
            };
            tasks.push(TaskInfo {
                name: self.name.clone(),
                command,
                executor: executor.clone(),
                data,
                ..TaskInfo::new(task_id, offer.agent_id.clone(), resources)
            });
        }
        match executor.filter(|executor| executor.kind == ExecutorKind::Default) {
            _ if tasks.is_empty() => None,
            Some(executor) => Some(Operation::LaunchGroup {
                executor: Box::new(executor),
                tasks,
            }),
            None => Some(Operation::Launch { tasks }),
        }
    }

    /// The framework's executor on this agent: the running one, or a new one with its part of the
    /// offer.
    fn executor(
        &mut self,
        record: &mut FrameworkRecord,
        offer: &Offer,
        kind: ExecutorKind,
        pool: &mut Resources,
    ) -> Option<ExecutorInfo> {
        let known = record.executors.get(&offer.agent_id);
        if let Some(known) = known.filter(|own| offer.executor_ids.contains(&own.executor_id)) {
            return Some(known.clone());
        }
        let resources = match kind {
            ExecutorKind::Custom => take(pool, "cpus:0.1;mem:32")?,
            ExecutorKind::Default => take(pool, "cpus:0.1;mem:32;disk:1")?,
        };
        let number = record.next_number();
        let id = ExecutorId::new(format!("{}-e{number}", self.name)).ok()?;
        let executor = match kind {
            ExecutorKind::Custom => ExecutorInfo::new(id, CommandInfo::shell("own"), resources),
            ExecutorKind::Default => ExecutorInfo::default_kind(id, resources),
        };
        let executor = ExecutorInfo {
            name: self.name.clone(),
            ..executor
        };
        let agent = offer.agent_id.clone();
        record.executors.insert(agent, executor.clone());
        Some(executor)
    }

    /// Suppresses offers at the target, or after a launch.
    fn suppress_if_satisfied(&self, driver: &mut Calls) {
        let at_work = open(&self.record).at_work();
        let full = at_work >= self.target || self.clock.now() < self.may_launch_at;
        if full && self.manner != Manner::Picky && !self.life.suppress(true) {
            driver.suppress(BTreeSet::new());
        }
    }
}

/// The command of a task in a group, which names its task: the agent does not.
fn command_of_member(record: &FrameworkRecord, task: &TaskId, command: String) -> CommandInfo {
    let framework = record.id.iter().map(ToString::to_string);
    let framework = framework.map(|id| (environment::FRAMEWORK_ID.to_owned(), id));
    let task = (environment::TASK_ID.to_owned(), task.to_string());
    CommandInfo {
        environment: framework.chain([task]).collect(),
        ..CommandInfo::shell(command)
    }
}

/// Takes these resources from the pool, revocable if the pool is.
fn take(pool: &mut Resources, needed: &str) -> Option<Resources> {
    let mut needed = Resources::parse(needed).ok()?;
    if !pool.revocable().is_empty() {
        needed = needed.to_revocable(Revocable::Throttleable).ok()?;
    }
    let found = pool.find(&needed)?;
    pool.saturating_sub_assign(&found);
    Some(found)
}

impl Scheduler for LoadScheduler {
    fn elected(&mut self, _: &mut Calls, _: &Subscribed) {
        self.life.lead();
    }

    fn standing_by(&mut self, _: &mut Calls, _: &StandingBy) {
        self.life.stand_by();
    }

    fn subscribed(&mut self, driver: &mut Calls, subscribed: &Subscribed) {
        let tasks = {
            let mut record = open(&self.record);
            record.id = Some(subscribed.framework_id.clone());
            let tasks = record.tasks().iter();
            tasks
                .map(|(id, entry)| (id.clone(), Some(entry.agent.clone())))
                .collect::<Vec<_>>()
        };
        if !tasks.is_empty() {
            driver.reconcile(tasks);
        }
        self.suppress_if_satisfied(driver);
    }

    fn offers(&mut self, driver: &mut Calls, offers: Vec<Offer>) {
        self.handle_offers(driver, offers);
        self.suppress_if_satisfied(driver);
    }

    fn status(&mut self, _: &mut Calls, status: &TaskStatus) {
        open(&self.record).on_status(status);
    }

    fn lost(&mut self, _: &mut Calls, lost: &Lost) {
        open(&self.record).executor_lost(&lost.agent_id, lost.executor_id.as_ref());
    }

    fn failed(&mut self, _: &mut Calls, reason: &str) {
        tracing::info!(framework = self.name, reason, "begins anew");
        open(&self.record).begin_anew();
        self.life.suppress(false);
    }
}

/// Revives offers when a framework has too few tasks, for as long as it is polled.
pub async fn revive(
    driver: DriverRef,
    (record, life): (SharedRecord, Life),
    target: usize,
    clock: Clock,
) {
    loop {
        clock.sleep(LAUNCH_EVERY).await;
        if !life.leads() {
            continue;
        }
        let few = open(&record).at_work() * 2 <= target;
        if few && life.suppress(false) && driver.revive(BTreeSet::new()).is_err() {
            return;
        }
    }
}

/// Kills one of the framework's tasks now and then, for as long as it is polled.
pub async fn kill_some(
    driver: DriverRef,
    (record, life): (SharedRecord, Life),
    mut rng: SmallRng,
    clock: Clock,
) {
    loop {
        clock
            .sleep(KILL_EVERY.mul_f64(rng.random_range(0.5..1.5)))
            .await;
        if rng.random_range(0..3) > 0 || !life.leads() {
            continue;
        }
        let victim = {
            let record = open(&record);
            let running: Vec<&TaskId> = record
                .tasks()
                .iter()
                .filter(|(_, entry)| entry.state == TaskState::Running)
                .map(|(id, _)| id)
                .collect();
            match running.is_empty() {
                true => None,
                false => Some(running[rng.random_range(0..running.len())].clone()),
            }
        };
        if let Some(victim) = victim {
            let grace_period = Duration::from_secs(rng.random_range(1..10));
            let policy = protocol::KillPolicy { grace_period };
            if driver.kill(victim, Some(policy)).is_err() {
                return;
            }
        }
    }
}
