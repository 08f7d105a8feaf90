//! `meros-lab bench launch`: real tasks on an embedded cluster, compared with a bare loop that
//! launches the same program.
//!
//! Two figures: the rate of `/bin/true` tasks from the first accept to the last `TASK_FINISHED`,
//! and the time of a single task from its accept to `TASK_RUNNING`. The framework is an ordinary
//! scheduler on the driver. `bench http` launches the same load by other clients.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::Args;
use meros::flags::{Threads, ThreadsFlag};
use meros::service;
use meros::service::agent::own_program;
use meros::service::local::{LocalCluster, Options};
use protocol::task::container::{ContainerInfo, Image};
use protocol::{
    Capability, CommandInfo, Filters, FrameworkInfo, Offer, Operation, TaskId, TaskInfo, TaskState,
    TaskStatus,
};
use resources::Resources;
use runtime::{Clock, Instant, Role};
use scheduler_driver::{Calls, DriverRef, Scheduler, SchedulerDriver};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use transport::Identity;

use super::process::bare_launches;
use super::{Figure, OutputFlags, Result, cores, median, temporary};

/// Without any event for this long, the measurement fails.
const STALLED: Duration = Duration::from_secs(60);
/// Short allocation interval, so that the wait for the next offer does not dominate.
const INTERVAL: Duration = Duration::from_millis(5);
/// Resources of one task.
const NEEDS: &str = "cpus:0.01;mem:1";
/// Unused resources are wanted again as soon as there is room for more tasks.
pub const NO_FILTER: Filters = Filters {
    refuse_seconds: 0.0,
};

/// Rate of task launches
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct LaunchArgs {
    /// How many tasks
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    tasks: u32,
    /// Launch all of them in the accept of one offer
    #[arg(long)]
    at_once: bool,
    /// Without --at_once: number of concurrent tasks
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    side_by_side: u32,
    /// Number of single tasks that are measured
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    lone: u32,
    #[command(flatten)]
    threads: ThreadsFlag,
    #[command(flatten)]
    output: OutputFlags,
}

/// `meros-lab bench launch`.
pub async fn run(args: &LaunchArgs) -> Result {
    let (output, tasks) = (args.output, args.tasks);
    let width = match args.at_once {
        true => tasks,
        false => args.side_by_side.min(tasks),
    };
    let (directory, options) = cluster_for(width, args.threads.threads)?;
    output.say(format_args!("a bare loop runs /bin/true {tasks} times"));
    let before = bare_launches(tasks.div_ceil(2))?;
    output.say("an embedded cluster starts");
    let (cluster, clock) = (LocalCluster::start(options).await?, Clock::real());
    output.say(format_args!("{} lone tasks", args.lone));
    let lone = Launches::new("lone", args.lone, 1, false)?;
    let lone = measure(&cluster, lone, &clock).await?;
    output.say(format_args!("{tasks} tasks, {width} side by side"));
    let many = Launches::new("many", tasks, width, args.at_once)?;
    let many = measure(&cluster, many, &clock).await?;
    cluster.stop()?;
    drop(directory);
    let after = bare_launches(tasks.div_ceil(2))?;
    let bare = 2.0 / (1.0 / before + 1.0 / after);
    output.report(&[
        Figure::new("launch", rate(&many), "tasks/s")
            .beside(bare, "one bare loop: fork, exec, reap /bin/true")
            .with(json!({
                "tasks": tasks, "side_by_side": width, "at_once": args.at_once, "command": "/bin/true",
                "allocation_interval_ms": INTERVAL.as_millis() as u64, "cores": cores(),
            })),
        Figure::new("launch_latency", latency(&lone), "ms")
            .beside(1000.0 / bare, "one turn of the bare loop")
            .with(json!({
                "tasks": args.lone, "quantile": 0.5, "from": "accept", "to": "TASK_RUNNING", "cores": cores(),
            })),
    ]);
    Ok(())
}

/// Options of a cluster for `width` concurrent tasks, with its temporary directory.
pub fn cluster_for(width: u32, threads: Threads) -> Result<(tempfile::TempDir, Options)> {
    let directory = temporary()?;
    // One task more than needed, so that the rounding of resources does not matter.
    let (cpus, mem) = (f64::from(width + 1) * 0.01, width + 1);
    let resources = format!("cpus:{cpus};mem:{mem};disk:1000;ports:[31000-32000]");
    let mut options = Options::new(own_program()?, directory.path()).resources(&resources);
    options.master.allocation_interval = Some(INTERVAL);
    options.threads = threads;
    Ok((directory, options))
}

/// Selects the tasks to launch on offers, and records their times.
pub struct Launches {
    needs: Resources,
    pub name: &'static str,
    waiting: u32,
    living: u32,
    /// Largest number of tasks alive at once.
    width: u32,
    /// Whether to leave an offer that is too small for all of them.
    whole: bool,
    command: CommandInfo,
    container: Option<Box<ContainerInfo>>,
    /// Whether its tasks survive a restart of their agent.
    checkpoint: bool,
    shape: fn(&mut TaskInfo),
    events: Option<UnboundedSender<Event>>,
}

enum Event {
    Accepted(Vec<TaskId>, Instant),
    Changed(TaskStatus, Instant),
    Over(String),
}

/// Events of a load that runs.
pub struct Following {
    events: UnboundedReceiver<Event>,
    tasks: u32,
}

impl Launches {
    /// `tasks` tasks of this name, at most `width` of them alive at once.
    pub fn new(name: &'static str, tasks: u32, width: u32, whole: bool) -> Result<Self> {
        Ok(Self {
            needs: NEEDS.parse()?,
            name,
            waiting: tasks,
            living: 0,
            width,
            whole,
            command: CommandInfo::program("/bin/true", []),
            container: None,
            checkpoint: false,
            shape: |_| {},
            events: None,
        })
    }

    /// Tasks of `sleep`, which survive a restart of their agent.
    pub fn sleeping(mut self) -> Self {
        self.command = CommandInfo::program("/bin/sleep", ["100000".to_owned()]);
        self.checkpoint = true;
        self
    }

    /// Tasks with this command and these resources.
    pub fn of(mut self, command: CommandInfo, needs: Resources) -> Self {
        (self.command, self.needs) = (command, needs);
        self
    }

    /// Tasks that are changed in this way before their launch.
    pub fn shaped(mut self, shape: fn(&mut TaskInfo)) -> Self {
        self.shape = shape;
        self
    }

    /// Tasks with the root file system of this image.
    pub fn in_image(mut self, name: &str) -> Self {
        self.container = Some(Box::new(ContainerInfo {
            image: Some(Image {
                name: name.to_owned(),
                is_cached: true,
            }),
            ..ContainerInfo::default()
        }));
        self
    }

    /// The events of this load, for [`Following::end`].
    pub fn follow(&mut self) -> Following {
        let (sender, events) = unbounded_channel();
        self.events = Some(sender);
        let tasks = self.waiting;
        Following { events, tasks }
    }

    fn send(&self, event: Event) {
        if let Some(events) = &self.events {
            let _ = events.send(event); // The measurement may have ended.
        }
    }

    /// The tasks to launch on this offer, which is accepted `at` this time.
    pub fn on(&mut self, offer: &Offer, at: Instant) -> Vec<TaskInfo> {
        let (mut room, mut tasks) = (offer.resources.clone(), Vec::new());
        while self.waiting > 0 && self.living < self.width {
            let part = room.find(&self.needs);
            let Some(resources) = part.filter(|part| room.subtract(part).is_ok()) else {
                break;
            };
            let Ok(task_id) = TaskId::new(format!("{}.{}", self.name, self.waiting)) else {
                break;
            };
            self.waiting -= 1;
            self.living += 1;
            let mut task = TaskInfo::new(task_id, offer.agent_id.clone(), resources);
            task.name = self.name.to_owned();
            task.container.clone_from(&self.container);
            let mut task = task.with_command(self.command.clone());
            (self.shape)(&mut task);
            tasks.push(task);
        }
        if self.whole && self.waiting > 0 && self.living < self.width {
            self.waiting += tasks.len() as u32;
            self.living -= tasks.len() as u32;
            tasks.clear();
        }
        let ids = tasks.iter().map(|task| task.task_id.clone()).collect();
        self.send(Event::Accepted(ids, at));
        tasks
    }

    /// Records a task's new status.
    pub fn changed(&mut self, status: TaskStatus, at: Instant) {
        self.living -= u32::from(status.state.is_terminal());
        self.send(Event::Changed(status, at));
    }
}

/// Launches tasks through the driver.
struct Load {
    clock: Clock,
    launches: Launches,
}

impl Scheduler for Load {
    fn offers(&mut self, driver: &mut Calls, offers: Vec<Offer>) {
        for offer in offers {
            let tasks = self.launches.on(&offer, self.clock.now());
            driver.accept(vec![offer.id], vec![Operation::Launch { tasks }], NO_FILTER);
        }
    }

    fn status(&mut self, _: &mut Calls, status: &TaskStatus) {
        self.launches.changed(status.clone(), self.clock.now());
    }

    fn failed(&mut self, _: &mut Calls, reason: &str) {
        self.launches.send(Event::Over(reason.to_owned()));
    }
}

/// Times of a task's accept, start and end.
#[derive(Clone, Copy)]
pub struct TaskTimes {
    accepted: Instant,
    running: Option<Instant>,
    /// The end.
    pub ended: Option<Instant>,
}

impl TaskTimes {
    /// When its offer was accepted.
    pub fn accepted(&self) -> Instant {
        self.accepted
    }

    /// Milliseconds from the accept to `TASK_RUNNING`.
    pub fn start(&self) -> Option<f64> {
        Some((self.running? - self.accepted).as_secs_f64() * 1e3)
    }
}

impl Following {
    /// Follows the load to its end. Fails if one of its tasks does not finish.
    pub async fn end(mut self, clock: &Clock) -> Result<Vec<TaskTimes>> {
        let mut times = BTreeMap::<TaskId, TaskTimes>::new();
        let mut ended = 0;
        while ended < self.tasks {
            let event = clock.timeout(STALLED, self.events.recv()).await;
            let event = event.map_err(|_| format!("stalled: {ended} of {} ended", self.tasks))?;
            match event.ok_or("the framework has ended")? {
                Event::Over(reason) => return Err(reason.into()),
                Event::Accepted(tasks, accepted) => {
                    let new = TaskTimes {
                        accepted,
                        running: None,
                        ended: None,
                    };
                    times.extend(tasks.into_iter().map(|task| (task, new)));
                }
                Event::Changed(status, at) => {
                    let Some(times) = times.get_mut(&status.task_id) else {
                        continue;
                    };
                    match status.state {
                        TaskState::Running => _ = times.running.get_or_insert(at),
                        TaskState::Finished => {
                            times.ended = Some(at);
                            ended += 1;
                        }
                        state if state.is_terminal() => {
                            let (task, message) = (status.task_id, status.message);
                            return Err(format!("{task} is {state}: {message}").into());
                        }
                        _ => {}
                    }
                }
            }
        }
        Ok(times.into_values().collect())
    }

    /// Follows the load until a task gets such a status. Returns its time.
    pub async fn until(
        &mut self,
        is_wanted: impl Fn(&TaskStatus) -> bool,
        clock: &Clock,
    ) -> Result<Instant> {
        loop {
            let event = clock.timeout(STALLED, self.events.recv()).await;
            let event = event.map_err(|_| "no task got the status that was waited for")?;
            match event.ok_or("the framework has ended")? {
                Event::Over(reason) => return Err(reason.into()),
                Event::Changed(status, at) if is_wanted(&status) => return Ok(at),
                Event::Changed(..) | Event::Accepted(..) => {}
            }
        }
    }

    /// Follows the load until all of its tasks have been in this state. Fails if one ends in
    /// another. Returns the time since the first accept, or since now without any.
    pub async fn all(&mut self, wanted: TaskState, clock: &Clock) -> Result<Duration> {
        let (mut first, mut last) = (None, clock.now());
        let begun = last;
        let mut reached = BTreeSet::new();
        while reached.len() < self.tasks as usize {
            let event = clock.timeout(STALLED, self.events.recv()).await;
            let count = reached.len();
            let event =
                event.map_err(|_| format!("stalled: {count} of {} {wanted}", self.tasks))?;
            match event.ok_or("the framework has ended")? {
                Event::Over(reason) => return Err(reason.into()),
                Event::Accepted(_, accepted) => _ = first.get_or_insert(accepted),
                Event::Changed(status, at) if status.state == wanted => {
                    last = at;
                    reached.insert(status.task_id);
                }
                Event::Changed(status, _) if status.state.is_terminal() => {
                    let (task, state, message) = (status.task_id, status.state, status.message);
                    return Err(format!("{task} is {state}: {message}").into());
                }
                Event::Changed(..) => {}
            }
        }
        Ok(last - first.unwrap_or(begun))
    }
}

/// Runs one load on a framework of its own. Times are those of this clock.
pub async fn measure(
    cluster: &LocalCluster,
    mut launches: Launches,
    clock: &Clock,
) -> Result<Vec<TaskTimes>> {
    let following = launches.follow();
    let identity = cluster.issue(Role::Framework, launches.name)?;
    let driver = begin(&cluster.master(), &identity, launches, clock)?;
    let times = following.end(clock).await;
    let _ = driver.tear_down(); // It may have ended already.
    driver.ended().await;
    times
}

/// Starts the framework of a load.
pub fn begin(
    master: &str,
    identity: &Identity,
    launches: Launches,
    clock: &Clock,
) -> Result<DriverRef> {
    let mut framework = FrameworkInfo::new(user(), launches.name);
    framework.hostname = service::machine_name();
    framework.checkpoint = launches.checkpoint;
    if !launches.needs.revocable().is_empty() {
        let revocable = Capability::RevocableResources;
        framework.capabilities = [revocable].into_iter().collect();
    }
    let load = Load {
        clock: clock.clone(),
        launches,
    };
    Ok(SchedulerDriver::new([master.to_owned()], framework).connect(identity, load)?)
}

/// The user that runs the tasks.
pub fn user() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid());
    let user = user.ok().flatten();
    user.map_or_else(|| "root".to_owned(), |user| user.name)
}

/// Tasks per second from the first accept to the last end.
pub fn rate(times: &[TaskTimes]) -> f64 {
    let first = times.iter().map(|times| times.accepted).min();
    let last = times.iter().filter_map(|times| times.ended).max();
    match (first, last) {
        (Some(first), Some(last)) => {
            times.len() as f64 / (last - first).as_secs_f64().max(f64::EPSILON)
        }
        _ => 0.0,
    }
}

/// The median time from accept to `TASK_RUNNING`, in milliseconds.
fn latency(times: &[TaskTimes]) -> f64 {
    median(
        &times
            .iter()
            .filter_map(TaskTimes::start)
            .collect::<Vec<_>>(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_medians_come_from_the_times() {
        let at = |millis: u64| Instant::default() + Duration::from_millis(millis);
        let times = |running, ended| TaskTimes {
            accepted: at(0),
            running: Some(at(running)),
            ended: Some(at(ended)),
        };
        let all = [times(1, 100), times(3, 500), times(2, 200)];
        assert_eq!((rate(&all), latency(&all)), (6.0, 2.0));
    }
}
