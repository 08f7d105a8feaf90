//! `meros-lab bench corrections`: the time from a step of load until best-effort work is corrected.
//!
//! A best-effort task runs on lent CPUs. Then a regular task begins: more busy processes than CPUs,
//! or one that misses its objective. The time from its `TASK_RUNNING` until the framework of the
//! best-effort task knows the correction holds everything in between: the kernel's window or load
//! average, the controller, the agent's isolators, and the messages.

use std::time::Duration;

use clap::Args;
use protocol::task::check::{CheckKind, CheckTiming};
use protocol::text::reserved_labels::{SLA, THROTTLE};
use protocol::{CheckInfo, CommandInfo, TaskInfo, TaskState, TaskStatus};
use resources::{Resources, Revocable};
use serde_json::{Value, json};

use super::cluster::Cluster;
use crate::bench::launch::{Following, Launches};
use crate::bench::{Figure, OutputFlags, Result, cores, median, quantile, temporary};

const ISOLATORS: &str = "cgroups/cpu,cgroups/mem,namespaces/pid";
const RESOURCES: &str = "cpus:3;mem:512;disk:1000;ports:[31000-32000]";
const NEEDS: &str = "cpus:1;mem:64";
/// An offer has either lent resources or others.
const LENT: &str = "cpus:1;mem:64";
/// A busy process, and several.
const BUSY: &str = "while :; do :; done";
const SURGE: &str = "i=0; while [ $i -lt 64 ]; do (while :; do :; done) & i=$((i + 1)); done; wait";
/// Goal for the controller by pressure: the kernel's windows are two seconds.
const PRESSURE_MAX: f64 = 3000.0;
/// Rise of the load average over five minutes that is too much.
const LOAD_RISE: f64 = 1.0;

/// Time from a step of load to its correction
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct CorrectionsArgs {
    /// How many steps for each controller; one for `load`, whose average falls slowly
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    steps: u32,
    #[command(flatten)]
    output: OutputFlags,
}

/// A controller with its parameters, and the regular task against which it protects.
struct Step {
    controller: &'static str,
    parameters: Vec<(&'static str, String)>,
    command: &'static str,
    shape: fn(&mut TaskInfo),
}

/// `meros-lab bench corrections`. Needs root.
pub async fn run(args: &CorrectionsArgs) -> Result {
    let averages = std::fs::read_to_string("/proc/loadavg")?;
    let five = averages.split_whitespace().nth(1);
    let load: f64 = five.ok_or("/proc/loadavg has no second average")?.parse()?;
    let threshold = format!("{:.2}", load + LOAD_RISE);
    let restored = ("restore_after", "1secs".to_owned());
    let steps = [
        Step {
            controller: "pressure",
            parameters: vec![restored.clone(), ("kill_after", "1hrs".to_owned())],
            command: SURGE,
            shape: |_| {},
        },
        Step {
            controller: "sla",
            parameters: vec![
                ("settle", "1secs".to_owned()),
                ("retry_after", "1secs".to_owned()),
            ],
            command: BUSY,
            shape: with_objective,
        },
        Step {
            controller: "load",
            parameters: vec![("load_threshold_5min", threshold)],
            command: SURGE,
            shape: |_| {},
        },
    ];
    let mut figures = Vec::new();
    for step in &steps {
        let times = measure(args, step).await?;
        let figure = Figure::new("correction", median(&times), "ms");
        let figure = match step.controller {
            "pressure" => figure.beside(PRESSURE_MAX, "the most its p99 may be"),
            _ => figure,
        };
        figures.push(figure.with(json!({
            "qos_controller": step.controller, "p99_ms": quantile(&times, 0.99), "each": times,
            "isolators": ISOLATORS, "cores": cores(),
        })));
    }
    args.output.report(&figures);
    Ok(())
}

/// An objective that no task meets.
fn with_objective(task: &mut TaskInfo) {
    let objective = (SLA.to_owned(), "latency:0.001".to_owned());
    task.labels.extend([objective]);
    task.check = Some(Box::new(CheckInfo {
        kind: CheckKind::Command(CommandInfo::program("/bin/true", [])),
        timing: CheckTiming {
            delay: Duration::ZERO,
            interval: Duration::from_secs(1),
            ..CheckTiming::default()
        },
    }));
}

async fn measure(args: &CorrectionsArgs, step: &Step) -> Result<Vec<f64>> {
    let directory = temporary()?;
    let given = |all: &[(&str, String)]| -> Vec<Value> {
        all.iter()
            .map(|(key, value)| json!({"key": key, "value": value}))
            .collect()
    };
    let modules = json!({"libraries": [{"modules": [
        {"name": "fixed", "parameters": given(&[("resources", LENT.to_owned())])},
        {"name": step.controller, "parameters": given(&step.parameters)},
    ]}]});
    let flags = [
        ("isolation", ISOLATORS.to_owned()),
        ("resources", RESOURCES.to_owned()),
        ("modules", modules.to_string()),
        ("resource_estimator", "fixed".to_owned()),
        ("qos_controller", step.controller.to_owned()),
        ("oversubscribed_resources_interval", "1secs".to_owned()),
    ];
    let cluster = Cluster::start(directory.path(), &flags).await?;
    let lent = LENT.parse::<Resources>()?;
    let needs = lent.to_revocable(Revocable::Throttleable)?;
    let work = Launches::new("work", args.steps, 1, false)?;
    let work = work.of(CommandInfo::shell(BUSY), needs);
    let (work_driver, mut work) = cluster.begin(work)?;
    work.until(is_running, &cluster.clock).await?;
    let is_kill = step.controller == "load";
    let steps = if is_kill { 1 } else { args.steps };
    let mut times = Vec::new();
    for number in 1..=steps {
        let output = args.output;
        output.say(format_args!(
            "{}: step {number} of {steps}",
            step.controller
        ));
        let surge = Launches::new("surge", 1, 1, false)?.shaped(step.shape);
        let surge = surge.of(CommandInfo::shell(step.command), NEEDS.parse()?);
        let (driver, mut surge) = cluster.begin(surge)?;
        let begun = surge.until(is_running, &cluster.clock).await?;
        let corrected: fn(&TaskStatus) -> bool = match is_kill {
            true => |status| status.state.is_terminal(),
            false => is_throttled,
        };
        let at = work.until(corrected, &cluster.clock).await?;
        times.push((at - begun).as_secs_f64() * 1e3);
        driver.tear_down()?;
        driver.ended().await;
        if !is_kill {
            until_restored(&mut work, &cluster).await?;
        }
    }
    work_driver.tear_down()?;
    work_driver.ended().await;
    Ok(times)
}

async fn until_restored(work: &mut Following, cluster: &Cluster) -> Result {
    let is_restored = |status: &TaskStatus| is_running(status) && !is_throttled(status);
    work.until(is_restored, &cluster.clock).await?;
    Ok(())
}

fn is_running(status: &TaskStatus) -> bool {
    status.state == TaskState::Running
}

fn is_throttled(status: &TaskStatus) -> bool {
    status.labels.contains_key(THROTTLE)
}
