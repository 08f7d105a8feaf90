//! A server in a container, whose latency is measured.
//!
//! The server and its only client are threads of the hidden verb `server-part`, which runs in the
//! container: both have the container's weight, as a server and the rest of its machine would.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use clap::Args;
use meros::service::agent::own_program;
use meros::service::free_port;
use protocol::{CommandInfo, TaskState};
use resources::Resources;
use runtime::Clock;
use scheduler_driver::DriverRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::cluster::Cluster;
use crate::bench::Result;
use crate::bench::launch::Launches;

/// Rounds of the server's work for a request: about a millisecond.
const WORK: u64 = 2_000_000;
/// Time between two attempts to connect.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Timeout of the server's start and of its answers.
const PATIENCE: Duration = Duration::from_secs(120);

/// A connection to the server in its container, which ends with it.
pub struct Server {
    stream: BufReader<TcpStream>,
    clock: Clock,
    driver: DriverRef,
}

impl Server {
    /// Starts the server as a task with these resources.
    pub async fn start(cluster: &Cluster, needs: Resources) -> Result<Self> {
        let address = format!("127.0.0.1:{}", free_port()?);
        let arguments = ["bench", "server-part", "--address", &address];
        let command = own_program()?.display().to_string();
        let command = CommandInfo::program(command, arguments.map(str::to_owned));
        let server = Launches::new("server", 1, 1, false)?.of(command, needs);
        let (driver, mut following) = cluster.begin(server)?;
        following.all(TaskState::Running, &cluster.clock).await?;
        let clock = cluster.clock.clone();
        let connecting = async {
            loop {
                match TcpStream::connect(&address).await {
                    Ok(stream) => return BufReader::new(stream),
                    Err(_) => clock.sleep(POLL_INTERVAL).await, // It has just been started.
                }
            }
        };
        let stream = clock.timeout(PATIENCE, connecting).await?;
        Ok(Self {
            stream,
            clock,
            driver,
        })
    }

    /// The latencies of so many requests, with this pause before each.
    pub async fn latencies(&mut self, requests: u32, pause: Duration) -> Result<Vec<Duration>> {
        self.stream.write_u32(requests).await?;
        let pause = u32::try_from(pause.as_micros())?;
        self.stream.write_u32(pause).await?;
        let stream = &mut self.stream;
        let answers = async {
            let mut all = Vec::new();
            for _ in 0..requests {
                all.push(Duration::from_micros(stream.read_u32().await?.into()));
            }
            Result::Ok(all)
        };
        self.clock.timeout(PATIENCE, answers).await?
    }

    /// Ends the server's task.
    pub async fn end(self) -> Result {
        self.driver.tear_down()?;
        self.driver.ended().await;
        Ok(())
    }
}

/// The server in its container, and its client
#[derive(Args, Debug)]
pub struct ServerArgs {
    #[arg(long)]
    address: SocketAddr,
}

/// The hidden verb `server-part`: reads a number of requests and the microseconds between them,
/// makes them, and answers with the latency of each in microseconds.
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
        let pause = Duration::from_micros(stream.read_u32().await?.into());
        let mut answers = Vec::new();
        for _ in 0..requests {
            clock.sleep(pause).await;
            let begun = clock.now();
            client.write_u8(0).await?;
            client.read_u8().await?;
            let took = u32::try_from((clock.now() - begun).as_micros()).unwrap_or(u32::MAX);
            answers.extend(took.to_be_bytes());
        }
        stream.write_all(&answers).await?;
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
