//! `meros-lab bench isolation`: the latency of a server in a container, with a revocable container
//! of 256 busy processes beside it, compared with the server alone.
//!
//! A round measures alone, beside the busy ones, and alone again; the two alone are the noise. The
//! last round is on an agent without isolators.

use std::time::Duration;

use clap::Args;
use protocol::{CommandInfo, TaskId, TaskState};
use resources::{Resources, Revocable};
use serde_json::json;

use super::cluster::Cluster;
use super::server::Server;
use crate::bench::launch::Launches;
use crate::bench::{Figure, OutputFlags, Result, Times, cores, median, temporary};

/// The isolators of both containers, and none.
const ISOLATED: &str = "cgroups/cpu,cgroups/mem,namespaces/pid";
const BARE: &str = "posix/cpu,posix/mem";
/// The resources of the agent, and those that it lends.
const RESOURCES: &str = "cpus:2;mem:512;disk:1000;ports:[31000-32000]";
const LENT: &str = "cpus:1;mem:256";
const MODULES: &str = r#"{"libraries":[{"file":"libfixed_resource_estimator.so",
"modules":[{"name":"org_apache_mesos_FixedResourceEstimator",
"parameters":[{"key":"resources","value":"cpus:1;mem:256"}]}]}]}"#;
/// The resources of the server.
const NEEDS: &str = "cpus:1;mem:128";
/// The revocable task.
const HOG: &str = "i=0; while [ $i -lt 256 ]; do (while :; do :; done) & i=$((i + 1)); done; wait";
/// Time from one request to the next.
const PAUSE: Duration = Duration::from_millis(5);
/// How long the busy ones run before the measurement.
const WARM_UP: Duration = Duration::from_secs(1);

/// Latency beside best-effort work
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct IsolationArgs {
    /// How often alone and beside the busy ones are measured in turns
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Requests of each measurement
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    requests: u32,
    #[command(flatten)]
    output: OutputFlags,
}

/// The 99th percentiles of one round, in milliseconds.
#[derive(Default)]
struct Rounds {
    alone: Vec<f64>,
    beside: Vec<f64>,
    again: Vec<f64>,
}

/// `meros-lab bench isolation`. Needs root.
pub async fn run(args: &IsolationArgs) -> Result {
    let isolated = measure(args, ISOLATED, args.rounds).await?;
    let bare = measure(args, BARE, 1).await?;
    let alone = median(&isolated.alone);
    let noise = median(&isolated.again) / alone;
    let conditions = json!({
        "isolators": ISOLATED, "rounds": args.rounds, "requests": args.requests, "quantile": 0.99,
        "noise": noise, "alone": isolated.alone, "beside": isolated.beside, "alone_again": isolated.again,
        "busy_processes": 256, "cores": cores(),
    });
    args.output.report(&[
        Figure::new("isolation", median(&isolated.beside), "ms")
            .beside(alone, "alone in the same rounds, p99")
            .with(conditions),
        Figure::new("isolation_noise", median(&isolated.again), "ms")
            .beside(alone, "alone in the same rounds, p99"),
        Figure::new("isolation_without", median(&bare.beside), "ms")
            .beside(median(&bare.alone), "alone, without isolators, p99"),
    ]);
    Ok(())
}

async fn measure(args: &IsolationArgs, isolators: &str, rounds: u32) -> Result<Rounds> {
    let directory = temporary()?;
    let flags = [
        ("isolation", isolators.to_owned()),
        ("resources", RESOURCES.to_owned()),
        ("modules", MODULES.to_owned()),
        (
            "resource_estimator",
            "org_apache_mesos_FixedResourceEstimator".to_owned(),
        ),
    ];
    let cluster = Cluster::start(directory.path(), &flags).await?;
    let mut server = Server::start(&cluster, NEEDS.parse()?).await?;
    let mut all = Rounds::default();
    for round in 1..=rounds {
        let output = args.output;
        output.say(format_args!("{isolators}: round {round} of {rounds}"));
        all.alone.push(p99(&mut server, args.requests).await?);
        let command = CommandInfo::shell(HOG);
        let lent: Resources = LENT.parse()?;
        let lent = lent.to_revocable(Revocable::Throttleable)?;
        let (driver, mut hog) =
            cluster.begin(Launches::new("hog", 1, 1, false)?.of(command, lent))?;
        hog.all(TaskState::Running, &cluster.clock).await?;
        cluster.clock.sleep(WARM_UP).await;
        all.beside.push(p99(&mut server, args.requests).await?);
        driver.kill(TaskId::new("hog.1")?, None)?;
        hog.all(TaskState::Killed, &cluster.clock).await?;
        driver.tear_down()?;
        driver.ended().await;
        all.again.push(p99(&mut server, args.requests).await?);
    }
    server.end().await?;
    Ok(all)
}

/// The 99th percentile of the latency of so many requests, in milliseconds.
async fn p99(server: &mut Server, requests: u32) -> Result<f64> {
    let latencies = server.latencies(requests, PAUSE).await?;
    Ok(Times::of(latencies)?.ms(0.99))
}
