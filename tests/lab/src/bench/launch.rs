//! `meros-lab bench launch`: real tasks on an embedded cluster, compared with a bare loop that
//! launches the same program.
//!
//! Two figures: the rate of `/bin/true` tasks from the first accept to the last `TASK_FINISHED`,
//! and the time of a single task from its accept to `TASK_RUNNING`. The framework is an ordinary
//! scheduler on the driver.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use protocol::{
    CommandInfo, Filters, FrameworkInfo, Offer, TaskId, TaskInfo, TaskState, TaskStatus,
};
use resources::Resources;
use runtime::{Clock, Instant, Role};
use scheduler_driver::{Calls, Scheduler, SchedulerDriver};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::process::bare_launches;
use super::{Figure, OutputFlags, report};
use meros::flags::{Threads, ThreadsFlag};
use meros::output::error::{CliError, Outcome};
use meros::output::print;
use meros::service;
use meros::service::agent::own_program;
use meros::service::local::{LocalCluster, Options};
use meros::service::signals::Signals;

/// Without any event for this long, the measurement fails.
const STALLED: Duration = Duration::from_secs(60);
/// Short allocation interval, so that the wait for the next offer does not dominate.
const INTERVAL: Duration = Duration::from_millis(5);
/// Resources of one task.
const NEEDS: &str = "cpus:0.01;mem:1";

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

/// Events for the measuring side.
pub(super) enum Event {
    Accepted {
        tasks: Vec<TaskId>,
        at: Instant,
    },
    Changed {
        task: TaskId,
        state: TaskState,
        at: Instant,
        message: String,
    },
    Over(String),
}

/// Selects the tasks to launch on offers.
pub(super) struct Launches {
    needs: Resources,
    name: &'static str,
    waiting: u32,
    living: u32,
    /// Largest number of tasks alive at once.
    width: u32,
    /// Whether to leave an offer that is too small for all of them.
    whole: bool,
}

impl Launches {
    /// `tasks` tasks of this name, at most `width` of them alive at once.
    pub(super) fn new(name: &'static str, tasks: u32, width: u32, whole: bool) -> Outcome<Self> {
        let needs = NEEDS
            .parse()
            .map_err(|error| CliError::because("the load", &error))?;
        Ok(Self {
            needs,
            name,
            waiting: tasks,
            living: 0,
            width,
            whole,
        })
    }

    /// The tasks to launch on this offer.
    pub(super) fn on(&mut self, offer: &Offer) -> Vec<TaskInfo> {
        let (mut room, mut tasks) = (offer.resources.clone(), Vec::new());
        while self.waiting > 0 && self.living < self.width {
            let Some(resources) = room
                .find(&self.needs)
                .filter(|part| room.subtract(part).is_ok())
            else {
                break;
            };
            let Some(task) = self.task(offer, resources) else {
                break;
            };
            self.waiting -= 1;
            self.living += 1;
            tasks.push(task);
        }
        if self.whole && self.waiting > 0 && self.living < self.width {
            self.waiting += tasks.len() as u32;
            self.living -= tasks.len() as u32;
            tasks.clear();
        }
        tasks
    }

    /// Records a task's new state.
    pub(super) fn heard(&mut self, state: TaskState) {
        self.living -= u32::from(state.is_terminal());
    }

    fn task(&self, offer: &Offer, resources: Resources) -> Option<TaskInfo> {
        let task_id = TaskId::new(format!("{}.{}", self.name, self.waiting)).ok()?;
        Some(TaskInfo {
            name: self.name.to_owned(),
            ..TaskInfo::new(task_id, offer.agent_id.clone(), resources)
                .with_command(CommandInfo::program("/bin/true", []))
        })
    }
}

/// Unused resources are wanted again as soon as there is room for more tasks.
pub(super) const NO_FILTER: Filters = Filters {
    refuse_seconds: 0.0,
};

/// Launches tasks through the driver.
struct Load {
    clock: Clock,
    launches: Launches,
    events: UnboundedSender<Event>,
}

impl Scheduler for Load {
    fn offers(&mut self, driver: &mut Calls, offers: Vec<Offer>) {
        for offer in offers {
            let tasks = self.launches.on(&offer);
            let ids: Vec<_> = tasks.iter().map(|task| task.task_id.clone()).collect();
            let at = self.clock.now();
            driver.accept(
                vec![offer.id],
                vec![protocol::Operation::Launch { tasks }],
                NO_FILTER,
            );
            if !ids.is_empty() {
                // The measurement may have ended.
                let _ = self.events.send(Event::Accepted { tasks: ids, at });
            }
        }
    }

    fn status(&mut self, _: &mut Calls, status: &TaskStatus) {
        self.launches.heard(status.state);
        let (task, state, at) = (status.task_id.clone(), status.state, self.clock.now());
        let message = status.message.clone();
        let _ = self.events.send(Event::Changed {
            task,
            state,
            at,
            message,
        }); // As above.
    }

    fn failed(&mut self, _: &mut Calls, reason: &str) {
        let _ = self.events.send(Event::Over(reason.to_owned())); // As above.
    }
}

/// Times of a task's accept, start and end.
#[derive(Clone, Copy)]
pub(super) struct Times {
    accepted: Instant,
    running: Option<Instant>,
    ended: Option<Instant>,
}

/// Follows `tasks` tasks to their end. Fails if one of them does not finish.
pub(super) async fn follow(
    mut events: UnboundedReceiver<Event>,
    tasks: u32,
    clock: &Clock,
) -> Outcome<Vec<Times>> {
    let mut times = BTreeMap::<TaskId, Times>::new();
    let mut ended = 0;
    while ended < tasks {
        let event = clock.timeout(STALLED, events.recv()).await;
        let event = event
            .map_err(|_| CliError::new(format!("stalled: {ended} of {tasks} tasks have ended")))?;
        match event.unwrap_or_else(|| Event::Over("the framework has ended".to_owned())) {
            Event::Over(reason) => return Err(CliError::new(reason)),
            Event::Accepted { tasks, at } => {
                times.extend(tasks.into_iter().map(|task| {
                    (
                        task,
                        Times {
                            accepted: at,
                            running: None,
                            ended: None,
                        },
                    )
                }));
            }
            Event::Changed {
                task,
                state,
                at,
                message,
            } => {
                let Some(times) = times.get_mut(&task) else {
                    continue;
                };
                match state {
                    TaskState::Running => _ = times.running.get_or_insert(at),
                    TaskState::Finished => {
                        times.ended = Some(at);
                        ended += 1;
                    }
                    state if state.is_terminal() => {
                        return Err(CliError::new(format!("{task} is {state}: {message}")));
                    }
                    _ => {}
                }
            }
        }
    }
    Ok(times.into_values().collect())
}

/// Options of a cluster for `width` concurrent tasks, with its temporary directory.
pub(super) fn cluster_for(width: u32, threads: Threads) -> Outcome<(tempfile::TempDir, Options)> {
    let directory = tempfile::Builder::new().prefix("meros-bench-").tempdir();
    let directory = directory
        .map_err(|error| CliError::because("cannot make a temporary directory", &error))?;
    // One task more than needed, so that the rounding of resources does not matter.
    let resources = format!(
        "cpus:{};mem:{};disk:1000;ports:[31000-32000]",
        f64::from(width + 1) * 0.01,
        width + 1
    );
    let mut options = Options::new(own_program()?, directory.path()).resources(&resources);
    options.master.allocation_interval = Some(INTERVAL);
    options.threads = threads;
    Ok((directory, options))
}

/// Runs one load on a framework of its own. Times are those of this clock.
pub(super) async fn measure(
    cluster: &LocalCluster,
    launches: Launches,
    clock: &Clock,
) -> Outcome<Vec<Times>> {
    let (name, tasks) = (launches.name, launches.waiting);
    let (events, heard) = unbounded_channel();
    let load = Load {
        clock: clock.clone(),
        launches,
        events,
    };
    let identity = cluster.issue(Role::Framework, name)?;
    let mut framework = FrameworkInfo::new(user(), name);
    framework.hostname = service::machine_name();
    let driver = SchedulerDriver::new([cluster.master()], framework)
        .connect(&identity, load)
        .map_err(|error| CliError::because("cannot start the framework", &error))?;
    let times = follow(heard, tasks, clock).await;
    let _ = driver.tear_down(); // It may have ended already.
    driver.ended().await;
    times
}

/// The user that runs the tasks.
pub fn user() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid())
        .ok()
        .flatten();
    user.map_or_else(|| "root".to_owned(), |user| user.name)
}

/// Tasks per second from the first accept to the last end.
pub(super) fn rate(times: &[Times]) -> f64 {
    let first = times.iter().map(|times| times.accepted).min();
    let last = times.iter().filter_map(|times| times.ended).max();
    match (first, last) {
        (Some(first), Some(last)) => {
            times.len() as f64 / (last - first).as_secs_f64().max(f64::EPSILON)
        }
        _ => 0.0,
    }
}

/// The times of all ends.
pub(super) fn ends(times: &[Times]) -> Vec<Instant> {
    times.iter().filter_map(|times| times.ended).collect()
}

/// The median time from accept to `TASK_RUNNING`, in milliseconds.
fn latency(times: &[Times]) -> f64 {
    let waits = times
        .iter()
        .filter_map(|times| Some((times.running? - times.accepted).as_secs_f64() * 1000.0));
    let mut waits: Vec<f64> = waits.collect();
    waits.sort_by(f64::total_cmp);
    waits.get(waits.len() / 2).copied().unwrap_or(f64::NAN)
}

/// `meros-lab bench launch`.
pub async fn run(args: LaunchArgs, signals: Signals) -> Outcome {
    let figures = match signals.unless_stopped(figures(&args)).await {
        Ok(figures) => figures?,
        Err(code) => return Err(CliError::code(code)),
    };
    report(&figures, args.output);
    Ok(())
}

async fn figures(args: &LaunchArgs) -> Outcome<Vec<Figure>> {
    let say = |text: &str| {
        if !args.output.json {
            print::error_line(format_args!("{text}"));
        }
    };
    let width = if args.at_once {
        args.tasks
    } else {
        args.side_by_side.min(args.tasks)
    };
    let (directory, options) = cluster_for(width, args.threads.threads)?;

    say(&format!("a bare loop runs /bin/true {} times", args.tasks));
    let before = bare_launches(args.tasks.div_ceil(2))?;
    say("an embedded cluster starts");
    let (cluster, clock) = (LocalCluster::start(options).await?, Clock::real());
    say(&format!("{} lone tasks", args.lone));
    let lone = Launches::new("lone", args.lone, 1, false)?;
    let lone = measure(&cluster, lone, &clock).await?;
    say(&format!("{} tasks, {width} side by side", args.tasks));
    let many = Launches::new("many", args.tasks, width, args.at_once)?;
    let many = measure(&cluster, many, &clock).await?;
    cluster.stop()?;
    drop(directory);
    let after = bare_launches(args.tasks.div_ceil(2))?;
    let bare = 2.0 / (1.0 / before + 1.0 / after);

    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    Ok(vec![
        Figure {
            bench: "launch",
            figure: rate(&many),
            unit: "tasks/s",
            limit: bare,
            limit_is: "one bare loop: fork, exec, reap /bin/true",
            parameters: json!({
                "tasks": args.tasks, "side_by_side": width, "at_once": args.at_once, "command": "/bin/true",
                "allocation_interval_ms": INTERVAL.as_millis() as u64, "cores": cores,
            }),
        },
        Figure {
            bench: "launch_latency",
            figure: latency(&lone),
            unit: "ms",
            limit: 1000.0 / bare,
            limit_is: "one turn of the bare loop",
            parameters: json!({ "tasks": args.lone, "quantile": 0.5, "from": "accept", "to": "TASK_RUNNING", "cores": cores }),
        },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_medians_come_from_the_times() {
        let at = |millis: u64| Instant::default() + Duration::from_millis(millis);
        let times = |running, ended| Times {
            accepted: at(0),
            running: Some(at(running)),
            ended: Some(at(ended)),
        };
        let all = [times(1, 100), times(3, 500), times(2, 200)];
        assert_eq!((rate(&all), latency(&all)), (6.0, 2.0));
    }
}
