//! `meros-lab bench idle`: the cost of an idle agent, and of an idle master with many agents.
//!
//! Uses real processes: a master, an agent, and synthetic agents, each with its own node, socket
//! and certificate, that register and answer pings. Memory and CPU time are the system's figures
//! for all descendants of a process.

use std::time::Duration;

use clap::Args;
use meros::certs::save_client_identities;
use meros::operator::Operator;
use meros::service::free_port;
use runtime::{Clock, Role};
use serde_json::{Value, json};
use transport::{Authority, Identity};

use super::process::{Part, ServiceProcess, Usage};
use super::{Figure, OutputFlags, Result, temporary};

/// Timeout for the start of processes and for registrations.
const UP_PATIENCE: Duration = Duration::from_secs(120);
/// Time to settle before a measurement.
const SETTLE: Duration = Duration::from_secs(5);
/// Interval of polls.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Goals: MiB of an agent and of a master with 1,000 agents; CPU in percent of one core, a value
/// that is barely measurable.
const AGENT_MAX: f64 = 30.0;
const MASTER_MAX: f64 = 300.0;
const CPU_MAX: f64 = 1.0;

/// Cost of an idle cluster
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct IdleArgs {
    /// Simulated agents of the master
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    agents: u32,
    /// Seconds for which it is measured
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    #[command(flatten)]
    output: OutputFlags,
}

/// `meros-lab bench idle`.
pub async fn run(args: &IdleArgs) -> Result {
    let directory = temporary()?;
    let (path, certs) = (directory.path(), directory.path().join("certs"));
    let authority = Authority::load_or_create(&certs)?;
    save_client_identities(&authority, &certs)?;
    let address = || free_port().map(|port| format!("127.0.0.1:{port}"));
    let (at, agent_at) = (address()?, address()?);
    let master = ServiceProcess::start("master", &at, path, &[])?;
    let agent = ServiceProcess::start("agent", &agent_at, path, &["--master", &at])?;
    let crowd = [
        ("--master", at.clone()),
        ("--agents", args.agents.to_string()),
    ];
    let _crowd = Part::start("crowd-part", &crowd, &certs).await?;
    let operator = authority.issue(Role::Operator, "bench")?;
    registered(args, &operator, &at).await?;

    let clock = Clock::real();
    clock.sleep(SETTLE).await;
    let (agent_before, master_before) = (agent.usage()?, master.usage()?);
    let begun = clock.now();
    clock.sleep(Duration::from_secs(args.seconds)).await;
    let (agent_after, master_after) = (agent.usage()?, master.usage()?);
    let seconds = (clock.now() - begun).as_secs_f64();
    let percent = |before: Usage, after: Usage| 100.0 * (after.cpu - before.cpu).max(0.0) / seconds;
    let memory = |bench, usage: Usage, limit, parameters: &Value| {
        let figure = Figure::new(bench, usage.resident, "MiB").with(parameters.clone());
        figure.beside(limit, "the most it may be")
    };
    let cpu = |bench, percent, parameters| {
        let figure = Figure::new(bench, percent, "% of a core").with(parameters);
        figure.beside(CPU_MAX, "what is barely measurable")
    };
    // The rest are pages of the program's file, which all its processes share and the system can
    // drop.
    let one = json!({
        "seconds": args.seconds, "processes": "the agent's and its executor launcher's",
        "own_mib": agent_after.anonymous,
    });
    let all = json!({
        "agents": args.agents + 1, "seconds": args.seconds, "processes": "the master's",
        "own_mib": master_after.anonymous,
    });
    args.output.report(&[
        memory("idle_agent_memory", agent_after, AGENT_MAX, &one),
        cpu("idle_agent_cpu", percent(agent_before, agent_after), one),
        memory("idle_master_memory", master_after, MASTER_MAX, &all),
        cpu("idle_master_cpu", percent(master_before, master_after), all),
    ]);
    Ok(())
}

/// Waits until all agents have registered.
async fn registered(args: &IdleArgs, identity: &Identity, master: &str) -> Result {
    let (clock, count) = (Clock::real(), args.agents as usize + 1);
    let begun = clock.now();
    loop {
        let registered = match Operator::with(identity, master).await {
            Ok(operator) => {
                let registered = operator.view().await.map(|view| view.agents.len());
                operator.close().await;
                registered
            }
            Err(failure) => Err(failure),
        };
        match registered {
            Ok(registered) if registered >= count => break,
            registered if clock.now() - begun > UP_PATIENCE => {
                let problem = format!("within {UP_PATIENCE:?}: {registered:?} of {count} agents");
                return Err(problem.into());
            }
            _ => clock.sleep(POLL_INTERVAL).await,
        }
    }
    let seconds = (clock.now() - begun).as_secs_f64();
    args.output.say(format_args!(
        "{count} agents have registered within {seconds:.1} s"
    ));
    Ok(())
}
