//! A worked framework with two schedulers: one runs a job of so many tasks, the other takes over when the first dies, and none of the
//! tasks runs twice or not at all.
//!
//! With a cluster from `meros local` and its certificates, in two terminals:
//!
//! ```text
//! cargo run --example standby -- 127.0.0.1:5050 ~/.local/state/meros/local/certs 20 'sleep 1; echo $MESOS_EXECUTOR_ID >> $HOME/done'
//! ```
//!
//! Kill the one that leads, start it again, kill the other. What they share is one value of the framework's state, a letter for each task: `.` is still to be
//! launched, `+` may have been, `#` has finished. It is written before a task is launched and before its end is acknowledged, and
//! only over the version that was read, so that whoever leads next begins where the last one stopped.
//!
//! One step is under way at a time: a real framework would write several tasks at once.

use std::collections::{BTreeSet, VecDeque};
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use protocol::message::scheduler::Subscribed;
use protocol::message::standby::StandingBy;
use protocol::{
    AgentId, CommandInfo, Filters, FrameworkInfo, Labels, Offer, Reason, TaskId, TaskInfo,
    TaskState, TaskStatus,
};
use resources::Resources;
use runtime::Role;
use scheduler_driver::{
    Acknowledgement, Ended, Scheduler, SchedulerDriver, StateAnswer, StateCall, StateOutcome, Verbs,
};

/// The key under which the letters are kept.
const PROGRESS: &str = "progress";
const TO_LAUNCH: u8 = b'.';
const LAUNCHED: u8 = b'+';
const FINISHED: u8 = b'#';

/// What is done as soon as the letters are written.
enum Step {
    Launch(Box<Offer>, Resources, usize),
    Acknowledge(Box<TaskStatus>),
}

/// The scheduler.
struct Job {
    tasks: usize,
    command: String,
    needed: Resources,
    /// The letters and their version; `None` until they have been read.
    progress: Option<(Vec<u8>, u64)>,
    /// Waits for the letters to be written.
    step: Option<Step>,
    /// Tasks that may have been launched before, of which the master has not answered yet.
    asked: BTreeSet<TaskId>,
    /// Ends that wait for their turn.
    ends: VecDeque<TaskStatus>,
}

impl Job {
    /// Reads the letters, whatever was thought of them before.
    fn read(&mut self, driver: &mut Verbs) {
        (self.progress, self.step) = (None, None);
        driver.get(PROGRESS);
    }

    /// Writes this letter for this task, and then takes the step.
    fn write(&mut self, driver: &mut Verbs, task: usize, letter: u8, step: Step) {
        if let Some((letters, version)) = &mut self.progress {
            letters[task] = letter;
            self.step = Some(step);
            driver.compare_and_set(PROGRESS, *version, letters.clone());
        }
    }

    /// The letters are known: asks how the tasks are that may have been launched.
    fn begin(&mut self, driver: &mut Verbs, letters: Vec<u8>, version: u64) {
        println!("progress {}", String::from_utf8_lossy(&letters));
        let launched = letters.iter().enumerate();
        let launched = launched.filter(|(_, letter)| **letter == LAUNCHED);
        let asked: Vec<_> = launched
            .filter_map(|(task, _)| Some((task_id(task)?, None)))
            .collect();
        self.asked = asked.iter().map(|(task, _)| task.clone()).collect();
        self.progress = Some((letters, version));
        if !asked.is_empty() {
            driver.reconcile(asked);
        }
        self.go_on(driver);
    }

    /// The letters are written.
    fn taken(&mut self, driver: &mut Verbs, written: u64) {
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
        self.go_on(driver);
    }

    /// The next end, if nothing is under way; the last of all ends the framework.
    fn go_on(&mut self, driver: &mut Verbs) {
        let Some((letters, _)) = self.progress.as_ref().filter(|_| self.step.is_none()) else {
            return;
        };
        if letters.iter().all(|letter| *letter == FINISHED) {
            println!("all {} tasks have finished", self.tasks);
            return driver.tear_down();
        }
        let Some(status) = self.ends.pop_front() else {
            return;
        };
        let known = number(&status.task_id).and_then(|task| Some((task, *letters.get(task)?)));
        match known {
            Some((task, LAUNCHED)) => {
                println!("{} is {}", status.task_id, status.state);
                let finished = status.state == TaskState::Finished;
                // One that failed, or never began, is launched again.
                let letter = if finished { FINISHED } else { TO_LAUNCH };
                if !finished {
                    driver.revive(Default::default());
                }
                self.write(driver, task, letter, Step::Acknowledge(Box::new(status)));
            }
            // This end is in the letters already.
            _ => {
                driver.acknowledge(&status);
                self.go_on(driver);
            }
        }
    }

    fn task(&self, task: usize, agent_id: AgentId, resources: Resources) -> Option<TaskInfo> {
        let task_id = task_id(task)?;
        Some(TaskInfo {
            name: task_id.to_string(),
            task_id,
            agent_id,
            resources,
            command: Some(CommandInfo::shell(self.command.clone())),
            executor: None,
            data: Vec::new(),
            kill_policy: None,
            labels: Labels::default(),
        })
    }
}

fn task_id(task: usize) -> Option<TaskId> {
    TaskId::new(format!("task-{task}")).ok()
}

fn number(task: &TaskId) -> Option<usize> {
    task.as_str().strip_prefix("task-")?.parse().ok()
}

impl Scheduler for Job {
    fn you_lead(&mut self, driver: &mut Verbs, subscribed: &Subscribed) {
        println!("leading {}", subscribed.framework_id);
        self.read(driver);
    }

    fn standing_by(&mut self, _: &mut Verbs, standing: &StandingBy) {
        println!("standing by for {}", standing.framework_id);
        (self.progress, self.step) = (None, None);
        self.ends.clear();
    }

    fn state(&mut self, driver: &mut Verbs, call: &StateCall, outcome: &StateOutcome) {
        match (call, outcome) {
            (StateCall::Get { .. }, Ok(StateAnswer::Found(Some(found)))) => {
                self.begin(driver, found.value.clone(), found.version);
            }
            (StateCall::Get { .. }, Ok(_)) => self.begin(driver, vec![TO_LAUNCH; self.tasks], 0),
            (_, Ok(StateAnswer::Written { version })) => self.taken(driver, *version),
            (_, Ok(StateAnswer::Found(_))) => {}
            (_, Err(error)) => {
                println!("the progress is not known: {error}");
                // Whether it was written or not: what stands there now is right.
                if let Some(Step::Acknowledge(status)) = self.step.take() {
                    self.ends.push_front(*status);
                }
                self.read(driver);
            }
        }
    }

    fn offers(&mut self, driver: &mut Verbs, offers: Vec<Offer>) {
        // Soon again: the next step is near.
        let refuse_seconds = 0.1;
        for offer in offers {
            let free = self.progress.as_ref().filter(|_| self.step.is_none());
            let next = free.and_then(|(letters, _)| letters.iter().position(|l| *l == TO_LAUNCH));
            match next.zip(offer.resources.find(&self.needed)) {
                Some((task, resources)) => {
                    self.write(
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

    fn status(&mut self, driver: &mut Verbs, status: &TaskStatus) {
        if !status.state.is_terminal() {
            return driver.acknowledge(status);
        }
        // A second answer that a task is not known must not undo its launch after the first.
        let answer = status.reason == Some(Reason::Reconciliation);
        if answer && !self.asked.remove(&status.task_id) {
            return;
        }
        self.ends.push_back(status.clone());
        self.go_on(driver);
    }

    fn disconnected(&mut self, _: &mut Verbs, reason: &str) {
        println!("the master is lost: {reason}");
    }

    fn failed(&mut self, _: &mut Verbs, reason: &str) {
        println!("the framework cannot go on: {reason}");
    }
}

async fn run(
    masters: &str,
    certs: &Path,
    tasks: &str,
    command: &str,
) -> Result<bool, Box<dyn Error>> {
    let user = std::env::var("USER").unwrap_or_else(|_| "root".to_owned());
    // Both have the same name, and by it the same framework.
    let mut framework = FrameworkInfo::new(user, "job");
    framework.failover_timeout = Duration::from_secs(600);
    let job = Job {
        tasks: tasks.parse()?,
        command: command.to_owned(),
        needed: "cpus:0.1;mem:16".parse()?,
        progress: None,
        step: None,
        asked: BTreeSet::new(),
        ends: VecDeque::new(),
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
