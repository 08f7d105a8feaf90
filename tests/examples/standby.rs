//! Example of a framework with two schedulers: one runs a job of several tasks, the other takes
//! over when the first exits. Each task runs exactly once.
//!
//! With a cluster from `meros local` and its certificates, in two terminals:
//!
//! ```text
//! cargo run --example standby -- 127.0.0.1:5050 ~/.local/state/meros/local/certs 20 'sleep 1; echo $MESOS_EXECUTOR_ID >> $HOME/done'
//! ```
//!
//! Kill the leading one, start it again, kill the other. They share one value of the framework's
//! state, with a character for each task: `.` not launched, `+` perhaps launched, `#` finished. It
//! is written before a task is launched and before its end is acknowledged, and only over the
//! version that was read, so the next leading scheduler resumes exactly there.
//!
//! It takes one step at a time; a real framework would write the states of several tasks at once.

use std::collections::{BTreeSet, VecDeque};
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use protocol::message::scheduler::Subscribed;
use protocol::message::standby::StandingBy;
use protocol::{
    AgentId, CommandInfo, Filters, FrameworkInfo, Offer, Reason, TaskId, TaskInfo, TaskState,
    TaskStatus,
};
use resources::Resources;
use runtime::Role;
use scheduler_driver::{
    Acknowledgement, Calls, Ended, Scheduler, SchedulerDriver, StateAnswer, StateCall, StateOutcome,
};

/// Key of the task states.
const PROGRESS: &str = "progress";
const TO_LAUNCH: u8 = b'.';
const LAUNCHED: u8 = b'+';
const FINISHED: u8 = b'#';

/// Action to take after the states are written.
enum Step {
    Launch(Box<Offer>, Resources, usize),
    Acknowledge(Box<TaskStatus>),
}

/// The scheduler.
struct Job {
    tasks: usize,
    command: String,
    needed: Resources,
    /// The task states with their version; `None` until they are read.
    progress: Option<(Vec<u8>, u64)>,
    /// Waits until the states are written.
    step: Option<Step>,
    /// Tasks that may have been launched before, with a pending reconciliation.
    reconciling: BTreeSet<TaskId>,
    /// Final statuses to be processed.
    ended: VecDeque<TaskStatus>,
}

impl Job {
    /// Reads the states again.
    fn load(&mut self, driver: &mut Calls) {
        (self.progress, self.step) = (None, None);
        driver.get(PROGRESS);
    }

    /// Writes the state of a task; `step` follows.
    fn save(&mut self, driver: &mut Calls, task: usize, state: u8, step: Step) {
        if let Some((states, version)) = &mut self.progress {
            states[task] = state;
            self.step = Some(step);
            driver.compare_and_set(PROGRESS, *version, states.clone());
        }
    }

    /// The states were read: reconciles the tasks that may have been launched.
    fn resume(&mut self, driver: &mut Calls, states: Vec<u8>, version: u64) {
        println!("progress {}", String::from_utf8_lossy(&states));
        let launched = states.iter().enumerate();
        let launched = launched.filter(|(_, state)| **state == LAUNCHED);
        let reconciling: Vec<_> = launched
            .filter_map(|(task, _)| Some((task_id(task)?, None)))
            .collect();
        self.reconciling = reconciling.iter().map(|(task, _)| task.clone()).collect();
        self.progress = Some((states, version));
        if !reconciling.is_empty() {
            driver.reconcile(reconciling);
        }
        self.advance(driver);
    }

    /// The states were written: takes the step.
    fn saved(&mut self, driver: &mut Calls, written: u64) {
        if let Some((_, version)) = &mut self.progress {
            *version = written;
        }
        match self.step.take() {
            Some(Step::Launch(offer, resources, task)) => {
                let info = self.task(task, offer.agent_id, resources);
                driver.launch(vec![offer.id], info.into_iter().collect());
            }
            Some(Step::Acknowledge(status)) => driver.acknowledge(&status),
            None => {}
        }
        self.advance(driver);
    }

    /// Processes the next final status, unless a write is pending. Ends the framework after the
    /// last one.
    fn advance(&mut self, driver: &mut Calls) {
        let Some((states, _)) = self.progress.as_ref().filter(|_| self.step.is_none()) else {
            return;
        };
        if states.iter().all(|state| *state == FINISHED) {
            println!("all {} tasks have finished", self.tasks);
            return driver.tear_down();
        }
        let Some(status) = self.ended.pop_front() else {
            return;
        };
        let known = number(&status.task_id).and_then(|task| Some((task, *states.get(task)?)));
        match known {
            Some((task, LAUNCHED)) => {
                println!("{} is {}", status.task_id, status.state);
                let finished = status.state == TaskState::Finished;
                // A task that failed or never started is launched again.
                let state = if finished { FINISHED } else { TO_LAUNCH };
                if !finished {
                    driver.revive(Default::default());
                }
                self.save(driver, task, state, Step::Acknowledge(Box::new(status)));
            }
            // This end is recorded already.
            _ => {
                driver.acknowledge(&status);
                self.advance(driver);
            }
        }
    }

    fn task(&self, task: usize, agent_id: AgentId, resources: Resources) -> Option<TaskInfo> {
        let task_id = task_id(task)?;
        Some(
            TaskInfo::new(task_id, agent_id, resources)
                .with_command(CommandInfo::shell(self.command.clone())),
        )
    }
}

fn task_id(task: usize) -> Option<TaskId> {
    TaskId::new(format!("task-{task}")).ok()
}

fn number(task: &TaskId) -> Option<usize> {
    task.as_str().strip_prefix("task-")?.parse().ok()
}

impl Scheduler for Job {
    fn elected(&mut self, driver: &mut Calls, subscribed: &Subscribed) {
        println!("leading {}", subscribed.framework_id);
        self.load(driver);
    }

    fn standing_by(&mut self, _: &mut Calls, standing: &StandingBy) {
        println!("standing by for {}", standing.framework_id);
        (self.progress, self.step) = (None, None);
        self.ended.clear();
    }

    fn state(&mut self, driver: &mut Calls, call: &StateCall, outcome: &StateOutcome) {
        match (call, outcome) {
            (StateCall::Get { .. }, Ok(StateAnswer::Found(Some(found)))) => {
                self.resume(driver, found.value.clone(), found.version);
            }
            (StateCall::Get { .. }, Ok(_)) => self.resume(driver, vec![TO_LAUNCH; self.tasks], 0),
            (_, Ok(StateAnswer::Written { version })) => self.saved(driver, *version),
            (_, Ok(StateAnswer::Found(_))) => {}
            (_, Err(error)) => {
                println!("cannot read or write the progress: {error}");
                // The write may have been applied or not; the states are read again.
                if let Some(Step::Acknowledge(status)) = self.step.take() {
                    self.ended.push_front(*status);
                }
                self.load(driver);
            }
        }
    }

    fn offers(&mut self, driver: &mut Calls, offers: Vec<Offer>) {
        // A short filter, because the next step follows soon.
        let refuse_seconds = 0.1;
        for offer in offers {
            let free = self.progress.as_ref().filter(|_| self.step.is_none());
            let next = free.and_then(|(states, _)| states.iter().position(|l| *l == TO_LAUNCH));
            match next.zip(offer.resources.find(&self.needed)) {
                Some((task, resources)) => {
                    self.save(
                        driver,
                        task,
                        LAUNCHED,
                        Step::Launch(Box::new(offer), resources, task),
                    );
                }
                None => driver.decline(vec![offer.id], Filters { refuse_seconds }),
            }
        }
    }

    fn status(&mut self, driver: &mut Calls, status: &TaskStatus) {
        if !status.state.is_terminal() {
            return driver.acknowledge(status);
        }
        // A second reconciliation answer must not end a task that was launched again
        // after the first.
        let answer = status.reason == Some(Reason::Reconciliation);
        if answer && !self.reconciling.remove(&status.task_id) {
            return;
        }
        self.ended.push_back(status.clone());
        self.advance(driver);
    }

    fn disconnected(&mut self, _: &mut Calls, reason: &str) {
        println!("master lost: {reason}");
    }

    fn failed(&mut self, _: &mut Calls, reason: &str) {
        println!("framework failed: {reason}");
    }
}

async fn run(
    masters: &str,
    certs: &Path,
    tasks: &str,
    command: &str,
) -> Result<bool, Box<dyn Error>> {
    let user = std::env::var("USER").unwrap_or_else(|_| "root".to_owned());
    // Both schedulers have the same name, which identifies the framework.
    let mut framework = FrameworkInfo::new(user, "job");
    framework.failover_timeout = Duration::from_secs(600);
    let job = Job {
        tasks: tasks.parse()?,
        command: command.to_owned(),
        needed: "cpus:0.1;mem:16".parse()?,
        progress: None,
        step: None,
        reconciling: BTreeSet::new(),
        ended: VecDeque::new(),
    };
    let identity = transport::Identity::load(certs, Role::Framework)?;
    let driver = SchedulerDriver::new(masters.split(','), framework)
        .standing_by()
        .acknowledgement(Acknowledgement::Explicit)
        .connect(&identity, job)?;
    Ok(matches!(
        driver.ended().await,
        Ended::TornDown { confirmed: true }
    ))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [masters, certs, tasks, command] = arguments.as_slice() else {
        eprintln!("usage: standby HOST:PORT[,HOST:PORT...] CERTS TASKS COMMAND");
        return ExitCode::from(2);
    };
    match meros::on_this_thread(run(masters, Path::new(certs), tasks, command)) {
        Ok(Ok(true)) => ExitCode::SUCCESS,
        Ok(Ok(false)) => ExitCode::FAILURE,
        Ok(Err(error)) => {
            eprintln!("standby: {error}");
            ExitCode::FAILURE
        }
        Err(failure) => {
            eprintln!("standby: {failure}");
            ExitCode::FAILURE
        }
    }
}
