//! `meros-lab bench oversubscription`: the work that lent CPUs do, and the latency that it costs.
//!
//! A server with a varying load has all CPUs of an agent. Best-effort tasks take what the agent
//! lends: nothing, a fixed amount, or the usage slack with the QoS controller `pressure`. Each
//! round measures all three, and lending nothing once more; the two without are the noise. The work
//! of best-effort tasks is their CPU time. Then the agent's own CPU time with many idle containers,
//! measured each second or not. Master and agent are real processes.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use protocol::{CommandInfo, TaskState};
use resources::{Resources, Revocable};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::server::Server;
use crate::bench::client::Connection;
use crate::bench::launch::Launches;
use crate::bench::{Figure, OutputFlags, Result, Times, cores, median, temporary};

const ISOLATORS: &str = "cgroups/cpu,cgroups/mem,namespaces/pid";
/// The memory of the server, most of which it does not use.
const MEMORY: &str = "mem:768";
/// The lent resources of one best-effort task: an offer has either lent resources or others.
const LENT: &str = "cpus:0.1;mem:32";
/// A best-effort task, and how many may run at once.
const WORK: &str = "while :; do :; done";
const TASKS_AT_ONCE: u32 = 4;
/// More than can be evicted.
const TASKS: u32 = 10_000;
/// How long the estimator may take before it lends, and the time before the measurement.
const LENDING_MAX: u32 = 60;
const WARM_UP: Duration = Duration::from_secs(3);
const SECOND: Duration = Duration::from_secs(1);
/// The shortest and the longest pause of the server's client between two requests.
const PAUSES: (f64, f64) = (0.001, 0.020);
/// About the time of one request.
const REQUEST: f64 = 0.001;
/// Goals beside the server alone.
const UTILIZATION_MIN: f64 = 90.0;
const COST_MAX: f64 = 1.0;
/// Idle containers that are measured each second, and for how long.
const CONTAINERS: u32 = 200;
const IDLE: Duration = Duration::from_secs(20);

/// What the agent lends.
struct Mode {
    name: &'static str,
    estimator: &'static str,
    parameters: &'static [(&'static str, &'static str)],
    controller: &'static str,
}

const OFF: Mode = Mode {
    name: "off",
    estimator: "noop",
    parameters: &[],
    controller: "noop",
};
const FIXED: Mode = Mode {
    name: "fixed",
    estimator: "fixed",
    parameters: &[("resources", "cpus:1;mem:256")],
    controller: "noop",
};
const SLACK: Mode = Mode {
    name: "usage_slack",
    estimator: "usage_slack",
    // The controller checks each second by default.
    parameters: &[
        ("warm_up", "5secs"),
        ("sampling_interval", "1secs"),
        ("memory", "true"),
    ],
    controller: "pressure",
};

/// Use of idle CPUs, and its price
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct OversubscriptionArgs {
    /// How often all are measured in turns
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds of each measurement: one wave of the server's load
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(4..=3600))]
    seconds: u32,
    /// Draw the last round over time into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    output: OutputFlags,
}

/// One second of a measurement.
#[derive(Clone, Copy, Debug, Default)]
struct Second {
    /// CPUs of the server and of all best-effort tasks.
    server: f64,
    best_effort: f64,
    /// CPUs that the agent lends.
    lent: f64,
}

/// One measurement.
#[derive(Clone, Debug, Default)]
struct Measured {
    p99_ms: f64,
    /// Part of the machine's CPU time that was used, in percent.
    utilization: f64,
    /// CPU seconds of best-effort tasks.
    work: f64,
    evicted: f64,
    seconds: Vec<Second>,
}

/// `meros-lab bench oversubscription`. Needs root.
pub async fn run(args: &OversubscriptionArgs) -> Result {
    let modes = [
        ("off", &OFF),
        ("fixed", &FIXED),
        ("slack", &SLACK),
        ("again", &OFF),
    ];
    let mut all: BTreeMap<&str, Vec<Measured>> = BTreeMap::new();
    for round in 1..=args.rounds {
        for (name, mode) in modes {
            let output = args.output;
            output.say(format_args!(
                "{}: round {round} of {}",
                mode.name, args.rounds
            ));
            let measured = measure(args, mode).await?;
            all.entry(name).or_default().push(measured);
        }
    }
    let middle = |name: &str, of: fn(&Measured) -> f64| {
        median(&all[name].iter().map(of).collect::<Vec<f64>>())
    };
    let p99: fn(&Measured) -> f64 = |one| one.p99_ms;
    let noise = middle("again", p99) / middle("off", p99);
    let latency = |bench, name: &str, mode: &Mode| {
        let each = |of: fn(&Measured) -> f64| -> Vec<f64> { all[name].iter().map(of).collect() };
        Figure::new(bench, middle(name, p99), "ms")
            .beside(middle("off", p99), "lending nothing in the same rounds, p99")
            .with(json!({
                "estimator": mode.estimator, "qos_controller": mode.controller, "noise": noise,
                "each": each(p99), "rounds": args.rounds, "seconds": args.seconds,
                "best_effort_cpu_secs": middle(name, |one| one.work), "evicted": each(|one| one.evicted),
                "isolators": ISOLATORS, "cores": cores(),
            }))
    };
    let utilization = |bench, name: &str| {
        Figure::new(bench, middle(name, |one| one.utilization), "%")
            .beside(UTILIZATION_MIN, "the goal on 2 cores")
    };
    args.output
        .say(format_args!("{CONTAINERS} idle containers"));
    let (without, with) = (cost(&OFF).await?, cost(&SLACK).await?);
    args.output.report(&[
        latency("oversubscription_noise", "again", &OFF),
        latency("oversubscription_fixed", "fixed", &FIXED),
        latency("oversubscription_slack", "slack", &SLACK),
        utilization("utilization_off", "off"),
        utilization("utilization_fixed", "fixed"),
        utilization("utilization_slack", "slack"),
        Figure::new("oversubscription_cost", with - without, "% of a core")
            .beside(COST_MAX, "the most it may be, with 200 containers")
            .with(json!({"containers": CONTAINERS, "with": with, "without": without})),
    ]);
    if let Some(path) = &args.svg {
        let last = modes.map(|(name, mode)| (mode.name, all[name].last()));
        std::fs::write(path, svg(&last, args.seconds))?;
    }
    Ok(())
}

/// An agent with so many CPUs that lends by this mode, with its master.
async fn cluster(directory: &Path, mode: &Mode, cpus: f64) -> Result<Cluster> {
    let parameters = mode.parameters.iter();
    let parameters: Vec<Value> = parameters
        .map(|(key, value)| json!({"key": key, "value": value}))
        .collect();
    let modules =
        json!({"libraries": [{"modules": [{"name": mode.estimator, "parameters": parameters}]}]});
    let flags = [
        ("isolation", ISOLATORS.to_owned()),
        (
            "resources",
            format!("cpus:{cpus};mem:1024;disk:1000;ports:[31000-32000]"),
        ),
        ("modules", modules.to_string()),
        ("resource_estimator", mode.estimator.to_owned()),
        ("qos_controller", mode.controller.to_owned()),
        ("oversubscribed_resources_interval", "1secs".to_owned()),
    ];
    Cluster::start(directory, &flags).await
}

/// The CPU time of an agent with many idle containers that lends by this mode, in percent of a core.
async fn cost(mode: &Mode) -> Result<f64> {
    let directory = temporary()?;
    let cpus = f64::from(CONTAINERS + 1) * 0.01;
    let cluster = cluster(directory.path(), mode, cpus).await?;
    let sleeping = Launches::new("sleep", CONTAINERS, CONTAINERS, false)?.sleeping();
    let (driver, mut following) = cluster.begin(sleeping)?;
    following.all(TaskState::Running, &cluster.clock).await?;
    // The ends of the launches.
    cluster.clock.sleep(WARM_UP).await;
    let (begun, before) = (cluster.clock.now(), cluster.agent()?.own_cpu()?);
    cluster.clock.sleep(IDLE).await;
    let used = cluster.agent()?.own_cpu()? - before;
    let part = used / (cluster.clock.now() - begun).as_secs_f64();
    driver.tear_down()?;
    driver.ended().await;
    Ok(100.0 * part)
}

/// A wave of load on an agent of its own that lends by this mode.
async fn measure(args: &OversubscriptionArgs, mode: &Mode) -> Result<Measured> {
    let directory = temporary()?;
    let cluster = cluster(directory.path(), mode, cores() as f64 + 0.1).await?;
    let whole: Resources = format!("cpus:{};{MEMORY}", cores()).parse()?;
    let mut server = Server::start(&cluster, whole).await?;
    let lent: Resources = LENT.parse()?;
    let needs = lent.to_revocable(Revocable::Throttleable)?;
    let work = Launches::new("work", TASKS, TASKS_AT_ONCE, false)?;
    let (driver, _events) = cluster.begin(work.of(CommandInfo::shell(WORK), needs))?;
    let mut watch = Watch::new(&cluster).await?;
    for _ in 0..LENDING_MAX {
        if mode.estimator == OFF.estimator || watch.lent().await? > 0.0 {
            break;
        }
        // The estimator learns from a server in use.
        one_second(&mut server, PAUSES.1).await?;
    }
    cluster.clock.sleep(WARM_UP).await;
    let mut measured = Measured::default();
    let (machine, _) = (machine_cpu()?, watch.next().await?);
    let evicted = watch.evicted().await?;
    let mut latencies = Times::new()?;
    for second in 0..args.seconds {
        let begun = cluster.clock.now();
        for latency in one_second(&mut server, pause(second, args.seconds)).await? {
            latencies.record(latency)?;
        }
        let (server, best_effort) = watch.next().await?;
        let took = (cluster.clock.now() - begun).as_secs_f64();
        measured.work += best_effort;
        measured.seconds.push(Second {
            server: server / took,
            best_effort: best_effort / took,
            lent: watch.lent().await?,
        });
    }
    let (busy, all) = machine_cpu()?;
    measured.utilization = 100.0 * (busy - machine.0) / (all - machine.1);
    measured.evicted = watch.evicted().await? - evicted;
    measured.p99_ms = latencies.ms(0.99);
    driver.tear_down()?;
    driver.ended().await;
    server.end().await?;
    Ok(measured)
}

/// Requests for about a second.
async fn one_second(server: &mut Server, pause: f64) -> Result<Vec<Duration>> {
    let requests = (SECOND.as_secs_f64() / (pause + REQUEST)).ceil() as u32;
    server
        .latencies(requests, Duration::from_secs_f64(pause))
        .await
}

/// The pause between two requests in this second of a wave: long at its ends, short in the middle.
fn pause(second: u32, seconds: u32) -> f64 {
    let part = f64::from(second) / f64::from(seconds);
    let load = 0.5 - 0.5 * (std::f64::consts::TAU * part).cos();
    PAUSES.1 + (PAUSES.0 - PAUSES.1) * load
}

/// CPU seconds of the machine since its boot: those in use, and all.
fn machine_cpu() -> Result<(f64, f64)> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().ok_or("/proc/stat is empty")?;
    let ticks: Vec<f64> = { line.split_whitespace().skip(1).take(8) }
        .map(str::parse)
        .collect::<std::result::Result<_, _>>()?;
    let [.., idle, io_wait, _, _, _] = ticks[..] else {
        return Err(format!("/proc/stat has the line {line}").into());
    };
    let all: f64 = ticks.iter().sum();
    let tick = agent::host::procfs::ticks_per_second();
    Ok(((all - idle - io_wait) / tick, all / tick))
}

/// Reads the pages of the agent.
struct Watch {
    page: Connection,
    /// CPU seconds of each container as last read.
    seen: BTreeMap<String, f64>,
}

impl Watch {
    async fn new(cluster: &Cluster) -> Result<Self> {
        let page = Connection::open(&cluster.agent_at).await?;
        let seen = BTreeMap::new();
        Ok(Self { page, seen })
    }

    async fn metric(&mut self, name: &str) -> Result<f64> {
        let all: Value = serde_json::from_slice(&self.page.get("/metrics/snapshot").await?)?;
        all[name]
            .as_f64()
            .ok_or_else(|| format!("no metric {name}").into())
    }

    /// CPUs that the agent lends.
    async fn lent(&mut self) -> Result<f64> {
        self.metric("slave/cpus_revocable_total").await
    }

    async fn evicted(&mut self) -> Result<f64> {
        self.metric("slave/executors_preempted").await
    }

    /// CPU seconds of the server, and of best-effort tasks, since the last call.
    async fn next(&mut self) -> Result<(f64, f64)> {
        let usage: Vec<Value> =
            serde_json::from_slice(&self.page.get("/monitor/statistics").await?)?;
        let mut used = (0.0, 0.0);
        for one in usage {
            let of = |key: &str| one["statistics"][key].as_f64().unwrap_or_default();
            let cpu = of("cpus_user_time_secs") + of("cpus_system_time_secs");
            let text = |key: &str| one[key].as_str().unwrap_or_default().to_owned();
            let before = self.seen.insert(text("container_id"), cpu);
            let more = cpu - before.unwrap_or_default();
            match text("executor_id").starts_with("server") {
                true => used.0 += more,
                false => used.1 += more,
            }
        }
        Ok(used)
    }
}

/// One panel for each measurement: CPUs of the server (grey), of best-effort work (blue) on top of
/// it, and those lent (a line).
fn svg(all: &[(&str, Option<&Measured>)], seconds: u32) -> String {
    const WIDTH: f64 = 300.0;
    const HEIGHT: f64 = 160.0;
    let most = cores() as f64;
    let mut panels = String::new();
    for (index, (name, measured)) in all.iter().enumerate() {
        let Some(measured) = measured else { continue };
        let left = index as f64 * (WIDTH + 20.0);
        let bar = WIDTH / f64::from(seconds);
        _ = write!(
            panels,
            "<g transform=\"translate({left:.0},20)\"><text y=\"-5\" font-size=\"12\">{name}: p99 {:.2} ms, \
             {:.0} % used</text>",
            measured.p99_ms, measured.utilization
        );
        let mut line = String::new();
        for (at, second) in measured.seconds.iter().enumerate() {
            let (x, server) = (at as f64 * bar, HEIGHT * second.server / most);
            let work = HEIGHT * second.best_effort / most;
            let top = HEIGHT - server;
            _ = write!(
                panels,
                "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{bar:.1}\" height=\"{server:.1}\" fill=\"#888\"/>\
                 <rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{bar:.1}\" height=\"{work:.1}\" fill=\"#6ad\"/>",
                top - work
            );
            let lent = HEIGHT * (1.0 - second.lent / most);
            _ = write!(line, "{:.1},{lent:.1} ", x + bar / 2.0);
        }
        _ = writeln!(
            panels,
            "<polyline fill=\"none\" stroke=\"#c30\" points=\"{}\"/></g>",
            line.trim_end()
        );
    }
    let width = all.len() as f64 * (WIDTH + 20.0);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {}\" font-family=\"sans-serif\">\n\
         {panels}</svg>\n",
        HEIGHT + 30.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_rises_and_falls_once() {
        let pauses: Vec<f64> = (0..20).map(|second| pause(second, 20)).collect();
        assert_eq!(pauses[0], PAUSES.1);
        assert!((pauses[10] - PAUSES.0).abs() < 1e-9);
        assert!(pauses[..11].is_sorted_by(|a, b| a > b));
        assert!(pauses[10..].is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn picture_has_a_panel_for_each_measurement() {
        let measured = Measured {
            p99_ms: 1.5,
            utilization: 97.0,
            seconds: vec![Second {
                server: 0.5,
                best_effort: 0.25,
                lent: 0.0,
            }],
            ..Measured::default()
        };
        let drawn = svg(&[("off", Some(&measured)), ("fixed", None)], 4);
        assert!(drawn.contains("off: p99 1.50 ms, 97 % used"), "{drawn}");
        assert!(drawn.contains("points=\"37.5,160.0\""), "{drawn}");
        assert!(!drawn.contains("fixed"), "{drawn}");
    }
}
