//! Measures how many `/bin/true` tasks per second an agent launches, runs and reports, compared
//! with a loop that only forks, executes and reaps.
//!
//! `cargo run --release -p meros-agent --example launch_rate [TASKS]`. The master only receives and
//! acknowledges; it shares the agent's thread. Prints the rates and the agent's CPU time.

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Duration;

use common::{FakeModule, Master, MasterBehavior, eventually, start_agent, task};
use meros_agent::ZygoteLauncher;
use protocol::CommandInfo;
use runtime::prelude::*;
use runtime::testing::memory::Network;
use transport::unix::Listener;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tasks: usize = std::env::args()
        .nth(1)
        .map_or(Ok(2000), |tasks| tasks.parse())?;
    let zygote = std::env::current_exe()?.with_file_name("zygote");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async move {
        let clock = Clock::real();
        let work_dir = tempfile::tempdir()?;
        let network = Network::new();
        let node = |name: &str, role, accepts: &[Role]| {
            let node = Node::builder(name).role(role).accepts(accepts).build();
            network.join(&node, name);
            node
        };
        let master = Master::start(
            &node("master", Role::Master, &[Role::Agent]),
            MasterBehavior::default(),
        );
        let node = node("agent", Role::Agent, &[Role::Master, Role::Executor]);
        let _listener = Listener::bind(
            node.clone(),
            work_dir.path().join("executors.sock"),
            &[Role::Executor],
        )?;
        let launcher = Box::new(ZygoteLauncher::start(
            &zygote,
            &[],
            work_dir.path(),
            Duration::ZERO,
        )?);
        let agent = start_agent(
            &node,
            work_dir.path(),
            launcher,
            FakeModule::silent(),
            FakeModule::silent(),
        );
        eventually(&node, 10, "registered", || master.registrations() > 0).await;
        clock.sleep(Duration::from_millis(50)).await;

        let lone = |number: usize| format!("lone{number}");
        let mut waits = Vec::new();
        for number in 0..100 {
            let begun = clock.now();
            master.run(vec![task(
                &lone(number),
                CommandInfo::program("/bin/true", []),
            )]);
            while !master
                .states(&lone(number))
                .contains(&protocol::TaskState::Running)
            {
                tokio::task::yield_now().await;
            }
            waits.push((clock.now() - begun).as_secs_f64() * 1e3);
            while !master
                .states(&lone(number))
                .contains(&protocol::TaskState::Finished)
            {
                tokio::task::yield_now().await;
            }
        }
        waits.sort_by(f64::total_cmp);

        let begun = clock.now();
        let command = CommandInfo::program("/bin/true", []);
        master.run(
            (0..tasks)
                .map(|number| task(&format!("t{number}"), command.clone()))
                .collect(),
        );
        let finished = || {
            master
                .received
                .lock()
                .is_ok_and(|received| received.updates.len() >= 3 * (tasks + waits.len()))
        };
        eventually(&node, 300, "all finished", finished).await;
        let rate = tasks as f64 / (clock.now() - begun).as_secs_f64();
        let spent = cpu(tasks + waits.len());
        let begun = clock.now();
        for _ in 0..tasks {
            std::process::Command::new("/bin/true").status()?;
        }
        let bare = tasks as f64 / (clock.now() - begun).as_secs_f64();
        println!("bare fork, exec and reap  {bare:8.0} a second");
        println!(
            "tasks                     {rate:8.0} a second, {:.2} of that",
            rate / bare
        );
        println!(
            "RunTasks to RUNNING       {:8.2} ms at the median, {:.2} ms at the 95th",
            waits[50], waits[95]
        );
        println!("CPU                       {spent}");
        drop(agent);
        Ok(())
    })
}

/// CPU time per task of this process (agent and master), and of the zygote with its children.
fn cpu(tasks: usize) -> String {
    let own = std::process::id() as i32;
    let all = meros_agent::host::procfs::processes().unwrap_or_default();
    let spent = |wanted: &dyn Fn(&meros_agent::host::procfs::Process) -> bool| {
        let ticks: u64 = all
            .iter()
            .filter(|process| wanted(process))
            .map(|p| p.user_ticks + p.system_ticks)
            .sum();
        ticks as f64 * 1e3 / meros_agent::host::procfs::ticks_per_second() / tasks as f64
    };
    let (agent, zygote) = (
        spent(&|process| process.pid == own),
        spent(&|process| process.parent == own),
    );
    format!(
        "{agent:.2} ms a task in the agent and its listener, {zygote:.2} ms in zygote, executor and task"
    )
}
