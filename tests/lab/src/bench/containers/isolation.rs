//! `meros-lab bench isolation`: the latency of a server in a container, with a revocable container
//! of 256 busy processes beside it, compared with the server alone.
//!
//! The server and its only client are threads of the hidden verb `server-part`, which runs in the
//! container: both have the container's weight, as a server and the rest of its machine would. A
//! round measures alone, beside the busy ones, and alone again; the two alone are the noise. The
//! last round is on an agent without isolators.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use clap::Args;
use meros::service::agent::own_program;
use meros::service::free_port;
use protocol::{CommandInfo, TaskId, TaskState};
use resources::{Resources, Revocable};
use runtime::Clock;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::cluster::Cluster;
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
/// Rounds of the server's work for a request: some milliseconds.
const WORK: u64 = 2_000_000;
/// How long the busy ones run before the measurement.
const WARM_UP: Duration = Duration::from_secs(1);
/// Timeout of the server's start and of its answers.
const PATIENCE: Duration = Duration::from_secs(120);

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
    let address = format!("127.0.0.1:{}", free_port()?);
    let arguments = ["bench", "server-part", "--address", &address];
    let command = own_program()?.display().to_string();
    let command = CommandInfo::program(command, arguments.map(str::to_owned));
    let server = Launches::new("server", 1, 1, false)?.of(command, NEEDS.parse()?);
    let (server_driver, mut server) = cluster.begin(server)?;
    server.all(TaskState::Running, &cluster.clock).await?;
    let mut connection = Server::connect(&address, &cluster.clock).await?;
    let mut all = Rounds::default();
    for round in 1..=rounds {
        let output = args.output;
        output.say(format_args!("{isolators}: round {round} of {rounds}"));
        all.alone.push(connection.measure(args.requests).await?);
        let command = CommandInfo::shell(HOG);
        let lent: Resources = LENT.parse()?;
        let lent = lent.to_revocable(Revocable::Throttleable)?;
        let (driver, mut hog) =
            cluster.begin(Launches::new("hog", 1, 1, false)?.of(command, lent))?;
        hog.all(TaskState::Running, &cluster.clock).await?;
        cluster.clock.sleep(WARM_UP).await;
        all.beside.push(connection.measure(args.requests).await?);
        driver.kill(TaskId::new("hog.1")?, None)?;
        hog.all(TaskState::Killed, &cluster.clock).await?;
        driver.tear_down()?;
        driver.ended().await;
        all.again.push(connection.measure(args.requests).await?);
    }
    server_driver.tear_down()?;
    server_driver.ended().await;
    Ok(all)
}

/// A connection to the server in its container.
struct Server {
    stream: BufReader<TcpStream>,
    clock: Clock,
}

impl Server {
    async fn connect(address: &str, clock: &Clock) -> Result<Self> {
        let connecting = async {
            loop {
                match TcpStream::connect(address).await {
                    Ok(stream) => return BufReader::new(stream),
                    Err(_) => clock.sleep(PAUSE).await, // It has just been started.
                }
            }
        };
        let stream = clock.timeout(PATIENCE, connecting).await?;
        let clock = clock.clone();
        Ok(Self { stream, clock })
    }

    /// The 99th percentile of the latency of so many requests, in milliseconds.
    async fn measure(&mut self, requests: u32) -> Result<f64> {
        self.stream.write_u32(requests).await?;
        let answer = self.stream.read_f64();
        Ok(self.clock.timeout(PATIENCE, answer).await??)
    }
}

/// The server in its container, and its client
#[derive(Args, Debug)]
pub struct ServerArgs {
    #[arg(long)]
    address: SocketAddr,
}

/// The hidden verb `server-part`: reads a number of requests, makes them, and answers with the
/// 99th percentile of their latency in milliseconds.
pub async fn serve(args: &ServerArgs) -> Result {
    let clock = Clock::real();
    let listener = TcpListener::bind(args.address).await?;
    let (mut stream, _) = listener.accept().await?;
    let (client, server) = UnixStream::pair()?;
    std::thread::spawn(|| answer(server));
    client.set_nonblocking(true)?;
    let mut client = tokio::net::UnixStream::from_std(client)?;
    // Ends with the measurement.
    while let Ok(requests) = stream.read_u32().await {
        let mut times = Times::new()?;
        for _ in 0..requests {
            clock.sleep(PAUSE).await;
            let begun = clock.now();
            client.write_u8(0).await?;
            client.read_u8().await?;
            times.record(clock.now() - begun)?;
        }
        stream.write_f64(times.ms(0.99)).await?;
    }
    Ok(())
}

/// Does some work for each byte.
fn answer(mut stream: UnixStream) {
    let mut byte = [0];
    while stream.read_exact(&mut byte).is_ok() {
        let sum = (0..WORK).fold(1u64, |sum, each| {
            std::hint::black_box(sum.rotate_left(5) ^ each)
        });
        byte[0] = sum as u8;
        if stream.write_all(&byte).is_err() {
            return;
        }
    }
}
