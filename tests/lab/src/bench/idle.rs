//! `meros-lab bench idle`: the cost of an idle agent, and of an idle master with many agents.
//!
//! Uses real processes: a master, an agent, and synthetic agents, each with its own node, socket
//! and certificate, that register and answer pings. Memory and CPU time are the system's figures
//! for all descendants of a process.

use std::time::Duration;

use clap::Args;
use runtime::{Clock, Role};
use serde_json::json;
use transport::Authority;

use super::part::Part;
use super::process::{Process, Usage};
use super::{Figure, OutputFlags, report};
use meros::certs::save_client_identities;
use meros::operator::Operator;
use meros::output::error::{CliError, Outcome};
use meros::output::print;
use meros::service::agent::own_program;
use meros::service::free_port;
use meros::service::signals::Signals;

/// Timeout for the start of processes and for registrations.
const UP_PATIENCE: Duration = Duration::from_secs(120);
/// Time to settle before a measurement.
const SETTLE: Duration = Duration::from_secs(5);
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
pub async fn run(args: IdleArgs, signals: Signals) -> Outcome {
    let figures = match signals.unless_stopped(figures(&args)).await {
        Ok(figures) => figures?,
        Err(code) => return Err(CliError::code(code)),
    };
    report(&figures, args.output);
    Ok(())
}

async fn figures(args: &IdleArgs) -> Outcome<Vec<Figure>> {
    let directory = tempfile::Builder::new().prefix("meros-idle-").tempdir();
    let directory = directory
        .map_err(|error| CliError::because("cannot make a temporary directory", &error))?;
    let path = directory.path();
    let failed = |error| CliError::because("cannot make certificates", &error);
    let authority = Authority::load_or_create(&path.join("certs")).map_err(failed)?;
    save_client_identities(&authority, &path.join("certs"))?;
    let (master_port, agent_port) = (free_port()?, free_port()?);
    let master_address = format!("127.0.0.1:{master_port}");
    let program = own_program()?;
    let text = |part: &str| path.join(part).display().to_string();

    let master = [
        "master",
        "--ip=127.0.0.1",
        "--port",
        &master_port.to_string(),
        "--work_dir",
        &text("m"),
    ];
    let master = Process::start(&program, &master, path)?;
    let agent = [
        "agent",
        "--ip=127.0.0.1",
        "--port",
        &agent_port.to_string(),
        "--work_dir",
        &text("a"),
        "--master",
        &master_address,
    ];
    let agent = Process::start(&program, &agent, path)?;
    let crowd = [
        ("--master", master_address.clone()),
        ("--agents", args.agents.to_string()),
    ];
    let _crowd = Part::start("crowd", "crowd-part", &crowd, &path.join("certs")).await?;

    let clock = Clock::real();
    let identity = authority.issue(Role::Operator, "bench").map_err(failed)?;
    registered(
        &identity,
        &master_address,
        args.agents as usize + 1,
        &clock,
        args.output,
    )
    .await?;
    clock.sleep(SETTLE).await;
    let (agent_before, master_before) = (agent.usage()?, master.usage()?);
    let begun = clock.now();
    clock.sleep(Duration::from_secs(args.seconds)).await;
    let (agent_after, master_after) = (agent.usage()?, master.usage()?);
    let seconds = (clock.now() - begun).as_secs_f64();
    let percent = |before: Usage, after: Usage| 100.0 * (after.cpu - before.cpu).max(0.0) / seconds;

    let memory = |bench, usage: Usage, limit, parameters| Figure {
        bench,
        figure: usage.resident,
        unit: "MiB",
        limit,
        limit_is: "the most it may be",
        parameters,
    };
    let cpu = |bench, figure, parameters| Figure {
        bench,
        figure,
        unit: "% of a core",
        limit: CPU_MAX,
        limit_is: "what is barely measurable",
        parameters,
    };
    // The rest are pages of the program's file, which all its processes share and the system can
    // drop.
    let agents = json!({
        "agents": args.agents + 1, "seconds": args.seconds, "processes": "the master's",
        "own_mib": master_after.anonymous,
    });
    let one = json!({
        "seconds": args.seconds, "processes": "the agent's and its executor launcher's",
        "own_mib": agent_after.anonymous,
    });
    Ok(vec![
        memory("idle_agent_memory", agent_after, AGENT_MAX, one.clone()),
        cpu("idle_agent_cpu", percent(agent_before, agent_after), one),
        memory(
            "idle_master_memory",
            master_after,
            MASTER_MAX,
            agents.clone(),
        ),
        cpu(
            "idle_master_cpu",
            percent(master_before, master_after),
            agents,
        ),
    ])
}

/// Waits until `count` agents have registered.
async fn registered(
    identity: &transport::Identity,
    master: &str,
    count: usize,
    clock: &Clock,
    flags: OutputFlags,
) -> Outcome {
    let begun = clock.now();
    let late = || clock.now() - begun > UP_PATIENCE;
    let operator = loop {
        match Operator::with(identity, master).await {
            Ok(operator) => break operator,
            Err(failure) if late() => return Err(failure),
            Err(_) => clock.sleep(Duration::from_millis(100)).await,
        }
    };
    let outcome = loop {
        let registered = operator.view().await?.agents.len();
        if registered >= count {
            break Ok(());
        }
        if late() {
            break Err(CliError::new(format!(
                "only {registered} of {count} agents have registered within {UP_PATIENCE:?}"
            )));
        }
        clock.sleep(Duration::from_millis(200)).await;
    };
    if !flags.json {
        print::error_line(format_args!(
            "{count} agents have registered within {:.1} s",
            (clock.now() - begun).as_secs_f64()
        ));
    }
    operator.close().await;
    outcome
}
