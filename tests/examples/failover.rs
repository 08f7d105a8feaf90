//! Example of a framework that survives its own exit: started again, it resumes its task.
//!
//! With a cluster from `meros local` and its certificates:
//!
//! ```text
//! cargo run --example failover -- 127.0.0.1:5050 ~/.local/state/meros/local/certs keeper.id 60 'sleep 1000'
//! ```
//!
//! It runs one command and stores its framework id in a file. If it is killed and started again
//! with this file within the given number of seconds, the master treats it as the same framework,
//! and its task keeps running. After that time the master kills the task and refuses the framework.
//!
//! It stores only its id on disk, and asks the master for the state of its task.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use protocol::message::scheduler::Subscribed;
use protocol::{
    CommandInfo, Filters, FrameworkId, FrameworkInfo, Offer, TaskId, TaskInfo, TaskStatus,
};
use resources::Resources;
use runtime::Role;
use scheduler_driver::{Calls, Ended, Scheduler, SchedulerDriver};

/// The scheduler, with the file of its id and the command to launch.
struct Keeper {
    file: PathBuf,
    /// Whether an earlier process may have launched the task.
    resumed: bool,
    command: Option<String>,
    needed: Resources,
    task: TaskId,
}

impl Scheduler for Keeper {
    fn subscribed(&mut self, driver: &mut Calls, subscribed: &Subscribed) {
        let id = &subscribed.framework_id;
        // The id is stored before the launch, so that a task can always be resumed.
        if let Err(error) = std::fs::write(&self.file, id.as_str()) {
            println!("{} cannot be written: {error}", self.file.display());
            driver.tear_down();
            return;
        }
        println!("subscribed as {id}");
        if self.resumed {
            // An empty list reconciles all tasks that the master knows.
            driver.reconcile(Vec::new());
        }
    }

    fn offers(&mut self, driver: &mut Calls, offers: Vec<Offer>) {
        for offer in offers {
            let found = offer.resources.find(&self.needed);
            let found = found.and_then(|resources| Some((resources, self.command.take()?)));
            let Some((resources, command)) = found else {
                driver.decline(vec![offer.id], Filters::default());
                continue;
            };
            let task = TaskInfo::new(self.task.clone(), offer.agent_id, resources)
                .with_command(CommandInfo::shell(command));
            driver.launch(vec![offer.id], vec![task]);
        }
    }

    fn status(&mut self, driver: &mut Calls, status: &TaskStatus) {
        println!("{} is {} {}", status.task_id, status.state, status.message);
        if status.state.is_terminal() {
            let _ = std::fs::remove_file(&self.file); // Nothing is left to take over.
            driver.tear_down();
        }
    }

    fn disconnected(&mut self, _: &mut Calls, reason: &str) {
        println!("master lost: {reason}");
    }

    fn failed(&mut self, _: &mut Calls, reason: &str) {
        println!("framework failed: {reason}");
    }
}

/// The id that an earlier process stored in `file`.
fn stored_id(file: &Path) -> Result<Option<FrameworkId>, Box<dyn Error>> {
    match std::fs::read_to_string(file) {
        Ok(id) => Ok(Some(FrameworkId::new(id)?)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn run(
    master: &str,
    certs: &Path,
    file: &Path,
    seconds: &str,
    command: &str,
) -> Result<bool, Box<dyn Error>> {
    let user = std::env::var("USER").unwrap_or_else(|_| "root".to_owned());
    let mut framework = FrameworkInfo::new(user, "keeper");
    framework.failover_timeout = Duration::from_secs(seconds.parse()?);
    framework.id = stored_id(file)?;
    let resumed = framework.id.is_some();
    let keeper = Keeper {
        file: file.to_owned(),
        resumed,
        command: (!resumed).then(|| command.to_owned()),
        needed: "cpus:0.1;mem:16".parse()?,
        task: TaskId::new("kept")?,
    };
    let identity = transport::Identity::load(certs, Role::Framework)?;
    let driver = SchedulerDriver::new([master], framework).connect(&identity, keeper)?;
    Ok(matches!(
        driver.ended().await,
        Ended::TornDown { confirmed: true }
    ))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [master, certs, file, seconds, command] = arguments.as_slice() else {
        eprintln!("usage: failover HOST:PORT CERTS FILE SECONDS COMMAND");
        return ExitCode::from(2);
    };
    let running = run(master, Path::new(certs), Path::new(file), seconds, command);
    match meros::on_this_thread(running) {
        Ok(Ok(true)) => ExitCode::SUCCESS,
        Ok(Ok(false)) => ExitCode::FAILURE,
        Ok(Err(error)) => {
            eprintln!("failover: {error}");
            ExitCode::FAILURE
        }
        Err(failure) => {
            eprintln!("failover: {failure}");
            ExitCode::FAILURE
        }
    }
}
