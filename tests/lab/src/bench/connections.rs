//! `meros-lab bench connections`: the cost of an idle connection for a node, and the effect of many
//! simultaneous reconnects.
//!
//! Each part runs in its own process (the hidden verb `connections-part`): the measured host, which
//! is one node that accepts links and answers pings; a fleet of nodes that link to it, each with
//! its own socket and certificate; and linked pingers. The same is done with bare quinn endpoints
//! of the same certificates and settings, which exchange a short greeting. Memory and CPU time are
//! the system's figures.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::{Args, ValueEnum};
use futures_util::future::join_all;
use futures_util::{StreamExt, TryStreamExt};
use meros::certs::CertsFlag;
use meros::out;
use meros::service::raise_open_files;
use quinn::{Connecting, Connection, RecvStream, SendStream, TokioRuntime};
use rand::Rng;
use runtime::prelude::*;
use runtime::{Clock, ConnectError, Instant};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use transport::{Authority, Backoff, Endpoint, Identity, Options, config, server_name};

use super::agents::{agent_node, agent_socket, any_port, small_buffers};
use super::process::{Part, input};
use super::{Figure, OutputFlags, Result, Times, temporary};

/// Time to settle before a measurement; longer than a lost connection is remembered.
const SETTLE: Duration = Duration::from_secs(5);
/// Limit of an idle connection, in KiB.
const CONNECTION_MAX: f64 = 40.0;
/// Bounds of the peers' back-off, as agents have them.
const BACKOFF_FIRST: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// Interval of a pinger, and the patience of masters: a later answer counts as missed.
const PING_INTERVAL: Duration = Duration::from_millis(500);
const PING_PATIENCE: Duration = Duration::from_secs(15);
/// The host's actor that answers pings.
const GREETER: &str = "greeter";
/// A greeting of about the length of a hello.
const GREETING: [u8; 200] = [0x5a; 200];

/// Cost of many connections
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct ConnectionsArgs {
    /// Nodes that link to one host, each with a socket of its own
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=15_000))]
    connections: u32,
    /// Concurrent handshakes that the host allows
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    handshakes: u32,
    /// Linked nodes that ping the host twice a second while the others reconnect
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pingers: u32,
    /// Seconds for which the idle connections are measured
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    #[command(flatten)]
    output: OutputFlags,
}

/// One part of a measurement of connections
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct PartArgs {
    #[arg(long)]
    kind: Kind,
    #[arg(long, default_value = "127.0.0.1:1")]
    host: SocketAddr,
    #[arg(long, default_value_t = 1)]
    count: usize,
    #[arg(long, default_value_t = 256)]
    handshakes: usize,
    #[command(flatten)]
    certs: CertsFlag,
}

/// The kinds of parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// The node whose connections are measured.
    Host,
    /// Nodes that link to it.
    Crowd,
    /// Linked nodes that send pings.
    Pingers,
    /// A bare quinn endpoint instead of the host.
    BareHost,
    /// Bare connections instead of the nodes.
    BareCrowd,
}

/// `meros-lab bench connections`.
pub async fn run(args: &ConnectionsArgs) -> Result {
    let directory = temporary()?;
    let path = directory.path();
    Authority::load_or_create(path)?;
    let say = |what| {
        let connections = args.connections;
        args.output
            .say(format_args!("{connections} connections: {what}"));
    };
    say("bare quinn");
    let mut host = start(args, Kind::BareHost, path, None).await?;
    let mut crowd = start(args, Kind::BareCrowd, path, Some(&host)).await?;
    let bare = Idle::measure(args, &mut host, &mut crowd).await?;
    let bare_again = crowd.ask().await?;
    drop((crowd, host));

    say("nodes");
    let mut host = start(args, Kind::Host, path, None).await?;
    let mut crowd = start(args, Kind::Crowd, path, Some(&host)).await?;
    let ours = Idle::measure(args, &mut host, &mut crowd).await?;
    say("they come back at once");
    let mut pingers = start(args, Kind::Pingers, path, Some(&host)).await?;
    Clock::real().sleep(SETTLE).await;
    let quiet = pingers.ask().await?;
    let storm = crowd.ask().await?;
    let pings = pingers.ask().await?;
    let seen = host.ask().await?;
    drop((crowd, pingers, host));

    let number = |value: &Value| value.as_f64().unwrap_or_default();
    let idle = json!({ "connections": args.connections, "seconds": args.seconds });
    let storms = json!({
        "connections": args.connections, "handshakes": args.handshakes,
        "seconds_half": storm["seconds_half"], "dials": storm["dials"], "refused": seen["refused"],
        "first_seconds": ours.first, "first_seconds_bare": bare.first,
    });
    let same = "bare quinn with the same settings";
    let most = "the most it may be";
    let lost = number(&pings["missed"]) + number(&storm["failures"]);
    args.output.report(&[
        Figure::new("connection_memory", ours.memory, "KiB")
            .beside(CONNECTION_MAX, most)
            .with(idle.clone()),
        Figure::new("connection_memory_quinn", ours.memory, "KiB")
            .beside(bare.memory, same)
            .with(idle.clone()),
        Figure::new("connections_cpu", ours.cpu, "% of a core")
            .beside(bare.cpu, same)
            .with(idle),
        Figure::new("storm", number(&storm["seconds"]), "s")
            .beside(number(&bare_again["seconds"]), "bare quinn, 256 at once")
            .with(storms.clone()),
        Figure::new(
            "storm_handshakes",
            number(&seen["handshakes_most"]),
            "at once",
        )
        .beside(f64::from(args.handshakes), most)
        .with(storms.clone()),
        Figure::new("storm_ping_p99", number(&pings["p99_ms"]), "ms")
            .beside(number(&quiet["p99_ms"]), "the same before the storm")
            .with(json!({
                "pingers": args.pingers, "answered": pings["answered"],
                "p50_ms": pings["p50_ms"], "longest_ms": pings["longest_ms"],
            })),
        Figure::new("storm_lost", lost, "pings and links")
            .beside(0.0, "none")
            .with(storms),
    ]);
    Ok(())
}

/// Starts a part, for this host unless it is one.
async fn start(
    args: &ConnectionsArgs,
    kind: Kind,
    certs: &Path,
    host: Option<&Part>,
) -> Result<Part> {
    let name = kind.to_possible_value();
    let count = match kind {
        Kind::Pingers => args.pingers,
        _ => args.connections,
    };
    let mut arguments = vec![
        (
            "--kind",
            name.map_or_else(String::new, |name| name.get_name().to_owned()),
        ),
        ("--count", count.to_string()),
        ("--handshakes", args.handshakes.to_string()),
    ];
    if let Some(host) = host {
        let address = host.first["address"].as_str().unwrap_or_default();
        arguments.push(("--host", address.to_owned()));
    }
    Part::start("connections-part", &arguments, certs).await
}

/// Results for one kind of host.
struct Idle {
    /// KiB of the host for each connection.
    memory: f64,
    /// CPU of the host for all connections, in percent of one core.
    cpu: f64,
    /// Seconds until all were linked for the first time.
    first: f64,
}

impl Idle {
    /// Links all nodes, and measures the idle host.
    async fn measure(args: &ConnectionsArgs, host: &mut Part, crowd: &mut Part) -> Result<Self> {
        let clock = Clock::real();
        let empty = host.usage()?;
        let linking = crowd.ask().await?;
        clock.sleep(SETTLE).await;
        let links = host.ask().await?["links"].as_u64().unwrap_or_default();
        if links != u64::from(args.connections) {
            return Err(format!("{links} links, expected {}", args.connections).into());
        }
        let (before, begun) = (host.usage()?, clock.now());
        clock.sleep(Duration::from_secs(args.seconds)).await;
        let (after, seconds) = (host.usage()?, (clock.now() - begun).as_secs_f64());
        Ok(Self {
            memory: (after.resident - empty.resident) * 1024.0 / f64::from(args.connections),
            cpu: 100.0 * (after.cpu - before.cpu) / seconds,
            first: linking["seconds"].as_f64().unwrap_or_default(),
        })
    }
}

/// Serves one part until its input ends.
pub async fn serve(args: &PartArgs) -> Result {
    raise_open_files()?;
    let authority = Authority::load(&args.certs.directory())?;
    let mut lines = input();
    match args.kind {
        Kind::Host => {
            let (node, endpoint) = host(&authority, args.handshakes)?;
            let _greeter = node.spawn(GREETER, Greeter)?;
            out!("{}", json!({ "address": endpoint.address()?.to_string() }));
            while lines.recv().await.is_some() {
                let seen = endpoint.handshakes();
                let answer = json!({
                    "links": endpoint.links(), "refused": seen.refused,
                    "handshakes_most": seen.under_way_most,
                });
                out!("{answer}");
            }
        }
        Kind::BareHost => {
            let links = Arc::new(AtomicUsize::new(0));
            let endpoint = bare_host(&authority, links.clone())?;
            out!(
                "{}",
                json!({ "address": endpoint.local_addr()?.to_string() })
            );
            while lines.recv().await.is_some() {
                out!("{}", json!({ "links": links.load(Ordering::Relaxed) }));
            }
        }
        Kind::Crowd => {
            let mut fleet = Fleet::new(&authority, args.host, args.count)?;
            out!("{}", json!({}));
            while lines.recv().await.is_some() {
                out!("{}", fleet.reconnect_all().await?);
            }
        }
        Kind::BareCrowd => {
            let mut fleet = BareFleet::new(&authority, args.host, args.count)?;
            out!("{}", json!({}));
            while lines.recv().await.is_some() {
                out!("{}", fleet.reconnect_all().await?);
            }
        }
        Kind::Pingers => {
            let pingers = Pingers::start(&authority, args.host, args.count).await?;
            out!("{}", json!({}));
            while lines.recv().await.is_some() {
                out!("{}", pingers.report()?);
            }
        }
    }
    Ok(())
}

/// A ping.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Alive;

runtime::remote! {
    Alive = "connections/alive" v1 lane Ping
}

struct Greeter;

impl Actor for Greeter {
    type Context = Context<Self>;
}

impl Process for Greeter {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<Alive>(&[Role::Agent]);
    }
}

impl Handler<Alive> for Greeter {
    type Result = ();
    fn handle(&mut self, _: Alive, _: &mut Context<Self>) {}
}

fn host(authority: &Authority, handshakes_max: usize) -> Result<(Node, Endpoint)> {
    let node = Node::builder("host")
        .role(Role::Master)
        .accepts(&[Role::Agent])
        .build();
    let identity = authority.issue(Role::Master, "host")?;
    let options = Options {
        handshakes_max,
        ..Options::default()
    };
    let endpoint = Endpoint::bind(node.clone(), &identity, any_port(), options)?;
    Ok((node, endpoint))
}

/// Progress of one reconnection.
struct Progress {
    clock: Clock,
    begun: Instant,
    count: usize,
    linked: Cell<usize>,
    half: Cell<Duration>,
    dials: Cell<u64>,
    failures: Cell<u64>,
}

impl Progress {
    fn new(count: usize) -> Self {
        let clock = Clock::real();
        Self {
            begun: clock.now(),
            clock,
            count,
            linked: Cell::new(0),
            half: Cell::default(),
            dials: Cell::default(),
            failures: Cell::default(),
        }
    }

    fn dial(&self) {
        self.dials.set(self.dials.get() + 1);
    }

    fn linked(&self) {
        self.linked.set(self.linked.get() + 1);
        if self.linked.get() == self.count.div_ceil(2) {
            self.half.set(self.clock.now() - self.begun);
        }
    }

    /// The times since the first dial, and the counts: all dials, and those that were refused for
    /// good, of which none are expected.
    fn end(&self) -> Value {
        json!({
            "nodes": self.count, "seconds": (self.clock.now() - self.begun).as_secs_f64(),
            "seconds_half": self.half.get().as_secs_f64(),
            "dials": self.dials.get(), "failures": self.failures.get(),
        })
    }
}

/// Many nodes on this thread that all dial one host at the same moment, and retry until each has
/// its link.
struct Fleet {
    host: String,
    members: Vec<(Identity, Node, Option<Endpoint>)>,
}

impl Fleet {
    fn new(authority: &Authority, host: SocketAddr, count: usize) -> Result<Self> {
        let member = |number| {
            let identity = authority.issue(Role::Agent, &format!("fleet-{number}"))?;
            let node = agent_node(&identity);
            Ok((identity, node, None))
        };
        Ok(Self {
            host: host.to_string(),
            members: (0..count).map(member).collect::<Result<_>>()?,
        })
    }

    /// Closes all links, gives each node a new socket, and lets all dial at once until each has its
    /// link.
    async fn reconnect_all(&mut self) -> Result<Value> {
        // A machine has too few sockets for both.
        let old = self.members.iter_mut().filter_map(|(.., old)| old.take());
        join_all(old.map(Endpoint::close)).await;
        for (identity, node, endpoint) in &mut self.members {
            while !node.peers().is_empty() {
                node.clock().sleep(Duration::from_millis(1)).await;
            }
            *endpoint = Some(agent_socket(node, identity)?);
        }
        let progress = Progress::new(self.members.len());
        let nodes = self.members.iter().map(|(_, node, _)| node);
        join_all(nodes.map(|node| link(node, &self.host, &progress))).await;
        Ok(progress.end())
    }
}

async fn link(node: &Node, host: &str, progress: &Progress) {
    let (clock, mut chance) = (node.clock(), node.rng());
    let mut backoff = Backoff::new(BACKOFF_FIRST, BACKOFF_MAX);
    loop {
        progress.dial();
        match node.connect(host).await {
            Ok(_) => return progress.linked(),
            Err(ConnectError::Unreachable { .. }) => {}
            Err(error) => {
                tracing::warn!(node = %node.id(), %error, "dial refused");
                progress.failures.set(progress.failures.get() + 1);
            }
        }
        clock.sleep(backoff.next(&mut chance)).await;
    }
}

/// Linked nodes that ping the host at an interval and record the time of each answer. They never
/// dial again: a lost link counts as missed pings.
struct Pingers {
    _endpoints: Vec<Endpoint>,
    samples: Rc<RefCell<(Vec<Duration>, u64)>>,
}

impl Pingers {
    async fn start(authority: &Authority, host: SocketAddr, count: usize) -> Result<Self> {
        let (samples, mut endpoints) = (Rc::default(), Vec::new());
        for number in 0..count {
            let identity = authority.issue(Role::Agent, &format!("pinger-{number}"))?;
            let node = agent_node(&identity);
            endpoints.push(agent_socket(&node, &identity)?);
            let greeter = node.find(&host.to_string(), GREETER, PING_PATIENCE).await?;
            tokio::task::spawn_local(ping(node, greeter, Rc::clone(&samples)));
        }
        Ok(Self {
            _endpoints: endpoints,
            samples,
        })
    }

    /// The results since the last call.
    fn report(&self) -> Result<Value> {
        let (answers, missed) = self.samples.take();
        let (answered, times) = (answers.len(), Times::of(answers)?);
        Ok(json!({
            "answered": answered, "missed": missed, "p50_ms": times.ms(0.5),
            "p99_ms": times.ms(0.99), "longest_ms": times.ms(1.0),
        }))
    }
}

async fn ping(node: Node, greeter: Pid, samples: Rc<RefCell<(Vec<Duration>, u64)>>) {
    let clock = node.clock();
    clock
        .sleep(PING_INTERVAL.mul_f64(node.rng().random()))
        .await; // Not all at once.
    loop {
        let begun = clock.now();
        let answer = node.ask(&greeter, Alive, PING_PATIENCE).await;
        let took = clock.now() - begun;
        match answer {
            Ok(()) => samples.borrow_mut().0.push(took),
            Err(_) => samples.borrow_mut().1 += 1,
        }
        clock.sleep(PING_INTERVAL.saturating_sub(took)).await;
    }
}

/// The host without a node: it refuses no handshake, and counts the connections that have exchanged
/// greetings.
fn bare_host(authority: &Authority, links: Arc<AtomicUsize>) -> Result<quinn::Endpoint> {
    let options = Options::default();
    let identity = authority.issue(Role::Master, "host")?;
    let server = config::server(&identity, &options, &Clock::real(), &config::provider())?;
    let socket = config::socket(any_port(), options.socket_buffer)?;
    let setup = config::endpoint(&identity, [0; 32])?;
    let endpoint = quinn::Endpoint::new(setup, Some(server), socket, Arc::new(TokioRuntime))?;
    let accepting = endpoint.clone();
    tokio::spawn(async move {
        while let Some(incoming) = accepting.accept().await {
            if let Ok(connecting) = incoming.accept() {
                tokio::spawn(greet(connecting, links.clone()));
            }
        }
    });
    Ok(endpoint)
}

async fn greet(connecting: Connecting, links: Arc<AtomicUsize>) -> Result {
    let connection = connecting.await?;
    let mut received = connection.accept_uni().await?;
    received.read_exact(&mut [0; GREETING.len()]).await?;
    let mut sent = connection.open_uni().await?;
    sent.write_all(&GREETING).await?;
    links.fetch_add(1, Ordering::Relaxed);
    connection.closed().await;
    links.fetch_sub(1, Ordering::Relaxed);
    Ok(())
}

/// Connections of one endpoint to one host, at most the default of [`Options::handshakes_max`] at
/// once.
struct BareFleet {
    endpoint: quinn::Endpoint,
    client: quinn::ClientConfig,
    host: SocketAddr,
    count: usize,
    open: Vec<(Connection, SendStream, RecvStream)>,
}

impl BareFleet {
    fn new(authority: &Authority, host: SocketAddr, count: usize) -> Result<Self> {
        let identity = authority.issue(Role::Agent, "crowd")?;
        let client = config::client(
            &identity,
            &small_buffers(),
            &Clock::real(),
            &config::provider(),
        )?;
        let socket = config::socket(any_port(), Options::default().socket_buffer)?;
        let setup = config::endpoint(&identity, [1; 32])?;
        let endpoint = quinn::Endpoint::new(setup, None, socket, Arc::new(TokioRuntime))?;
        Ok(Self {
            endpoint,
            client,
            host,
            count,
            open: Vec::new(),
        })
    }

    async fn reconnect_all(&mut self) -> Result<Value> {
        self.open = Vec::new();
        let progress = Progress::new(self.count);
        let connecting = (0..self.count).map(|_| async {
            progress.dial();
            let opened = self.connect().await?;
            progress.linked();
            Result::Ok(opened)
        });
        let opened = futures_util::stream::iter(connecting)
            .buffer_unordered(Options::default().handshakes_max)
            .try_collect::<Vec<_>>()
            .await?;
        self.open = opened;
        Ok(progress.end())
    }

    async fn connect(&self) -> Result<(Connection, SendStream, RecvStream)> {
        let (client, name) = (self.client.clone(), server_name(Role::Master));
        let connection = self
            .endpoint
            .connect_with(client, self.host, &name)?
            .await?;
        let mut sent = connection.open_uni().await?;
        sent.write_all(&GREETING).await?;
        let mut received = connection.accept_uni().await?;
        received.read_exact(&mut [0; GREETING.len()]).await?;
        Ok((connection, sent, received))
    }
}
