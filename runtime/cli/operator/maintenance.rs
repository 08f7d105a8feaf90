//! The verbs for maintenance: `meros maintenance show | schedule | cancel | down | up` for
//! machines, and `drain | undrain | deactivate
//! | reactivate | gone` for single agents.
//!
//! Requests go to the leader. A schedule is changed by reading and rewriting the whole, so if two
//! operators change it at once, one may have to repeat the command. The master validates all
//! changes.

use std::time::Duration;

use clap::{Args, Subcommand};
use protocol::maintenance::{InverseAnswer, Window};
use protocol::message::operator::{
    CancelDrain, DeactivateAgent, DrainAgent, MarkAgentGone, ReactivateAgent, StartMaintenance,
    StopMaintenance, UpdateMaintenanceSchedule, UpdateRefused, ViewMaintenanceSchedule,
    ViewMaintenanceStatus,
};
use protocol::text::duration;
use protocol::{AgentId, MachineId, Unavailability};
use runtime::prelude::Message;
use runtime::{Remote, Timestamp};
use serde_json::{Value, json};
use v1::convert::maintenance::schedule as as_mesos;

use super::list::{print, print_json};
use super::{ClusterFlags, ListArgs, Operator};
use crate::output::error::{CliError, Outcome};
use crate::{flags, out};

const HELP: &str = "\
Example:
  meros maintenance schedule host-1 host-2 --in 30mins --for 2hrs
  meros maintenance down host-1 host-2
  meros maintenance up host-1 host-2
Frameworks on a scheduled machine get inverse offers, and accept or decline them. Nothing happens automatically at the start:
`down` takes a machine down; then its agents stop and their tasks are lost.";

/// Schedule maintenance of machines, take them down and up again; drain and remove agents
#[derive(Subcommand, Debug)]
#[command(after_help = HELP)]
pub enum MaintenanceArgs {
    /// Show the machines in maintenance or scheduled for it, and the frameworks' answers
    Show(ListArgs),
    /// Schedule maintenance of machines, replacing earlier schedules for them
    #[command(after_help = HELP)]
    Schedule(ScheduleArgs),
    /// Remove machines from the schedule; they must not be down
    Cancel(MachinesArgs),
    /// Take scheduled machines down: their agents stop, and none can register
    Down(MachinesArgs),
    /// Bring machines up again
    Up(MachinesArgs),
    /// End an agent's tasks, and offer none of its resources
    Drain(DrainArgs),
    /// Cancel the drain of an agent before it is drained and offer its resources again, also if it
    /// was deactivated before; tasks that are being killed still end. Requires permission to
    /// reactivate agents
    Undrain(AgentArgs),
    /// Offer none of an agent's resources; its tasks continue
    Deactivate(AgentArgs),
    /// Offer the resources of a deactivated or drained agent again
    Reactivate(AgentArgs),
    /// Remove an agent permanently: its tasks are lost, and it cannot reregister
    Gone(AgentArgs),
}

/// One agent.
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct AgentArgs {
    /// The agent's id, as `meros agents` shows it
    #[arg(value_name = "AGENT")]
    agent_id: AgentId,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// `meros maintenance drain`.
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct DrainArgs {
    #[command(flatten)]
    of: AgentArgs,
    /// Maximum grace period of each task, for example `30secs` [default: each task's own]
    #[arg(long, value_name = "DURATION", value_parser = flags::duration)]
    max_grace_period: Option<Duration>,
    /// Remove the agent permanently once it is drained
    #[arg(long)]
    mark_gone: bool,
    /// Kill at most this many tasks of each framework at a time, and wait; until the last one
    /// `reactivate` cancels the drain. Requires permission to deactivate and drain agents, and to
    /// tear down these frameworks [default: all at once]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "max_grace_period")]
    at_a_time: Option<u32>,
}

/// Several machines.
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct MachinesArgs {
    /// Machines: host name, address, or HOST/ADDRESS
    #[arg(required = true, value_name = "MACHINE", value_parser = machine)]
    machines: Vec<MachineId>,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// `meros maintenance schedule`.
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct ScheduleArgs {
    #[command(flatten)]
    of: MachinesArgs,
    /// Start of the maintenance from now, for example `30mins`
    #[arg(long = "in", value_name = "DURATION", value_parser = flags::duration, default_value = "0secs")]
    after: Duration,
    /// Duration, for example `2hrs` [default: until they are brought up]
    #[arg(long = "for", value_name = "DURATION", value_parser = flags::duration)]
    length: Option<Duration>,
}

/// Parses `HOST`, `ADDRESS` or `HOST/ADDRESS`.
fn machine(text: &str) -> Result<MachineId, String> {
    let is_address = |text: &str| text.parse::<std::net::IpAddr>().is_ok();
    let (hostname, ip) = match text.split_once('/') {
        Some(both) => both,
        None if is_address(text) => ("", text),
        None => (text, ""),
    };
    MachineId::new(hostname, ip).map_err(|invalid| invalid.to_string())
}

/// `meros maintenance`.
pub async fn run(args: MaintenanceArgs) -> Outcome {
    match args {
        MaintenanceArgs::Show(args) => show(args).await,
        MaintenanceArgs::Schedule(args) => {
            let (after, duration) = (args.after, args.length);
            let plan = move |windows: Vec<Window>, machines: &[MachineId], now: Timestamp| {
                let start = now + after;
                let unavailability = Unavailability { start, duration };
                let mut windows = without(windows, machines);
                windows.push(Window {
                    machines: machines.to_vec(),
                    unavailability,
                });
                windows
            };
            change(&args.of, plan).await?;
            let names = listed(&args.of.machines);
            out!("will be away {}: {names}", away(after, duration));
            Ok(())
        }
        MaintenanceArgs::Cancel(args) => {
            change(&args, |windows, machines, _| without(windows, machines)).await?;
            out!("not scheduled any more: {}", listed(&args.machines));
            Ok(())
        }
        MaintenanceArgs::Down(args) => {
            let machines = args.machines.clone();
            send(&args.cluster, StartMaintenance { machines }).await?;
            out!("down: {}", listed(&args.machines));
            Ok(())
        }
        MaintenanceArgs::Up(args) => {
            let machines = args.machines.clone();
            send(&args.cluster, StopMaintenance { machines }).await?;
            out!("up: {}", listed(&args.machines));
            Ok(())
        }
        MaintenanceArgs::Drain(args) => {
            let drain = DrainAgent {
                agent_id: args.of.agent_id.clone(),
                max_grace_period: args.max_grace_period,
                mark_gone: args.mark_gone,
            };
            match args.at_a_time {
                Some(at_a_time) => gradually(&args.of, drain, at_a_time).await,
                None => order(&args.of, drain, "is being drained").await,
            }
        }
        MaintenanceArgs::Undrain(args) => {
            let agent_id = args.agent_id.clone();
            order(&args, CancelDrain { agent_id }, "is offered again").await
        }
        MaintenanceArgs::Deactivate(args) => {
            let agent_id = args.agent_id.clone();
            order(&args, DeactivateAgent { agent_id }, "is deactivated").await
        }
        MaintenanceArgs::Reactivate(args) => {
            let agent_id = args.agent_id.clone();
            order(&args, ReactivateAgent { agent_id }, "is offered again").await
        }
        MaintenanceArgs::Gone(args) => {
            let agent_id = args.agent_id.clone();
            order(&args, MarkAgentGone { agent_id }, "is gone for good").await
        }
    }
}

async fn gradually(args: &AgentArgs, drain: DrainAgent, at_a_time: u32) -> Outcome {
    super::drain::drain(&args.cluster, drain, at_a_time).await?;
    out!(
        "nothing is left on agent {}, which is being drained",
        args.agent_id
    );
    Ok(())
}

async fn order<M>(args: &AgentArgs, order: M, done: &str) -> Outcome
where
    M: Remote + Message<Result = Result<(), UpdateRefused>>,
{
    send(&args.cluster, order).await?;
    out!("agent {} {done}", args.agent_id);
    Ok(())
}

/// The schedule without these machines.
fn without(windows: Vec<Window>, machines: &[MachineId]) -> Vec<Window> {
    let mut windows = windows;
    for window in &mut windows {
        window.machines.retain(|id| !machines.contains(id));
    }
    windows.retain(|window| !window.machines.is_empty());
    windows
}

async fn change(
    args: &MachinesArgs,
    plan: impl FnOnce(Vec<Window>, &[MachineId], Timestamp) -> Vec<Window>,
) -> Outcome {
    let operator = Operator::connect(&args.cluster).await?;
    let changed = async {
        let windows = done(operator.ask(ViewMaintenanceSchedule).await?)?;
        let now = operator.node().clock().wall();
        let windows = plan(windows, &args.machines, now);
        done(operator.ask(UpdateMaintenanceSchedule { windows }).await?)
    };
    let changed = changed.await;
    operator.close().await;
    changed
}

async fn send<M>(cluster: &ClusterFlags, question: M) -> Outcome
where
    M: Remote + Message<Result = Result<(), UpdateRefused>>,
{
    let operator = Operator::connect(cluster).await?;
    let answer = operator.ask(question).await;
    operator.close().await;
    done(answer?)
}

fn done<T>(answer: Result<T, UpdateRefused>) -> Outcome<T> {
    answer.map_err(|refused| {
        CliError::because("nothing was changed", &refused)
            .next("`meros maintenance show` shows what is planned")
    })
}

fn listed(machines: &[MachineId]) -> String {
    let machines: Vec<String> = machines.iter().map(ToString::to_string).collect();
    machines.join(", ")
}

fn away(after: Duration, length: Option<Duration>) -> String {
    let from = match after.is_zero() {
        true => "from now on".to_owned(),
        false => format!("in {}", duration::format(after)),
    };
    match length {
        Some(length) => format!("{from}, for {}", duration::format(length)),
        None => from,
    }
}

async fn show(args: ListArgs) -> Outcome {
    let operator = Operator::connect(&args.cluster).await?;
    let asked = async {
        let windows = done(operator.ask(ViewMaintenanceSchedule).await?)?;
        let status = done(operator.ask(ViewMaintenanceStatus).await?)?;
        Ok((windows, status, operator.node().clock().wall()))
    };
    let asked: Outcome<_> = asked.await;
    operator.close().await;
    let (windows, status, now) = asked?;
    if args.json {
        let schedule: Value = parsed(&v1::json::write(&as_mesos(&windows)))?;
        let status = v1::schema::maintenance::ClusterStatus::from(&status);
        let status: Value = parsed(&v1::json::write(&status))?;
        return print_json(&json!({ "schedule": schedule, "status": status }));
    }
    let mut rows = Vec::new();
    for window in &windows {
        let Unavailability { start, duration } = window.unavailability;
        for id in &window.machines {
            let mode = match status.down.contains(id) {
                true => "down",
                false => "draining",
            };
            let machine = status.draining.iter().find(|one| one.id == *id);
            let answers = machine.map_or(&[][..], |machine| &machine.answers);
            rows.push([
                id.to_string(),
                mode.to_owned(),
                when(start, now),
                duration.map_or_else(|| "until up".to_owned(), duration::format),
                answer_summary(answers),
            ]);
        }
    }
    let headings = ["MACHINE", "MODE", "FROM", "FOR", "FRAMEWORKS SAY"];
    print(headings, &rows, "no machine is scheduled for maintenance");
    Ok(())
}

fn parsed(text: &[u8]) -> Outcome<Value> {
    serde_json::from_slice(text).map_err(|error| CliError::because("cannot print JSON", &error))
}

/// A time relative to now, in seconds.
pub(super) fn when(start: Timestamp, now: Timestamp) -> String {
    let seconds = |duration: Duration| duration::format(Duration::from_secs(duration.as_secs()));
    match start > now {
        true => format!("in {}", seconds(start.saturating_since(now))),
        false => format!("{} ago", seconds(now.saturating_since(start))),
    }
}

fn answer_summary(answers: &[InverseAnswer]) -> String {
    let accepted = answers.iter().filter(|answer| answer.accepted).count();
    match (accepted, answers.len() - accepted) {
        (0, 0) => String::new(),
        (yes, no) => format!("{yes} will leave, {no} will not"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_parsed_and_scheduled_once() {
        for (text, hostname, ip) in [
            ("host-1", "host-1", ""),
            ("10.0.0.7", "", "10.0.0.7"),
            ("Host-1/10.0.0.7", "host-1", "10.0.0.7"),
        ] {
            let machine = machine(text).unwrap();
            assert_eq!((machine.hostname(), machine.ip()), (hostname, ip));
        }
        assert!(machine("").is_err() && machine("host/there").is_err());
        let machines = |names: &str| -> Vec<MachineId> {
            names
                .split(' ')
                .map(|name| machine(name).unwrap())
                .collect()
        };
        let window = |names: &str| Window {
            machines: machines(names),
            unavailability: Unavailability {
                start: Timestamp::from_nanos(5),
                duration: None,
            },
        };
        let left = without(vec![window("a b"), window("c")], &machines("c a"));
        assert_eq!(left, [window("b")]);
    }

    #[test]
    fn times_are_told_from_now_on() {
        let at = |seconds: u64| Timestamp::from_nanos(seconds * 1_000_000_000 + 7);
        assert_eq!(when(at(90), at(30)), "in 1mins");
        assert_eq!(when(at(30), at(90)), "1mins ago");
        let hour = Duration::from_secs(3600);
        assert_eq!(away(hour, Some(2 * hour)), "in 1hrs, for 2hrs");
        assert_eq!(away(Duration::ZERO, None), "from now on");
    }
}
