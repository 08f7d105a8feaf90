//! Floods over real sockets: an endless sender before a stalled actor, and before a peer that reads
//! nothing.
//!
//! `runtime/tests/flood` shows that links and mailboxes are bounded. These tests show that the
//! transports between them are. A first flood fills the buffers; a second one, many times the
//! limit, must not grow resident memory.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use runtime::prelude::*;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use transport::unix::{Dialling, Listener};
use transport::{Authority, Endpoint, Options};

const MIB: usize = 1 << 20;
/// Maximum growth of memory in a flood of six times as much.
const GROWTH_MAX: usize = 8 * MIB;
/// Bytes of a message, and of a large one, which travels as a bulk. This flood stays below the 64
/// MiB of bulks that may be decoded at once.
const BODY: usize = 1 << 10;
const LARGE: usize = 600 << 10;
/// Bytes of the second flood.
const FLOOD: usize = 48 * MIB;
/// Maximum bytes queued for one peer.
const OUTGOING_MAX: usize = 4 * MIB;
const PATIENCE: Duration = Duration::from_secs(120);

/// Serializes the tests: each measures the memory of the whole process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<usize>().unwrap() << 10
}

/// Runs `flood` and checks the growth of memory.
async fn gauge<T>(flood: impl Future<Output = T>) -> T {
    let before = resident();
    let flooded = flood.await;
    let grown = resident().saturating_sub(before);
    assert!(grown < GROWTH_MAX, "{} MiB more", grown / MIB);
    flooded
}

/// Runs a test in real time on one thread, alone.
fn run_in_real_time<F: Future>(test: F) -> F::Output {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    testkit::recorder::run_in_real_time(test)
}

/// Plain bytes.
#[derive(Serialize, Deserialize)]
struct Load(Vec<u8>);
/// Plain bytes in the ping lane.
#[derive(Serialize, Deserialize)]
struct Beat(Vec<u8>);

/// Returns the number of handled loads.
#[derive(Serialize, Deserialize)]
struct Handled;

runtime::remote! {
    Handled = "flood-test/handled" v1 -> u64;
    Load = "flood-test/load" v1 -> usize;
    Beat = "flood-test/beat" v1 lane Ping;
}

/// Handles nothing.
struct Stalled;

impl Actor for Stalled {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        ctx.wait(fut::wrap_future::<_, Self>(std::future::pending::<()>()));
    }
}

impl Process for Stalled {
    const MAILBOX: u32 = 1000;
    const MAILBOX_BYTES: u64 = 4 << 20;

    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<Load>(&Role::ALL);
        handlers.accept::<Beat>(&Role::ALL);
    }
}

impl Handler<Load> for Stalled {
    type Result = usize;
    fn handle(&mut self, Load(bytes): Load, _: &mut Context<Self>) -> usize {
        bytes.len()
    }
}

impl Handler<Beat> for Stalled {
    type Result = ();
    fn handle(&mut self, Beat(_): Beat, _: &mut Context<Self>) {}
}

fn node(name: &str, role: Role) -> Node {
    let node = Node::builder(name).role(role).accepts(&Role::ALL);
    node.outgoing_max(OUTGOING_MAX).build()
}

/// Waits until `holds` is true.
async fn until(clock: &Clock, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            clock.sleep(Duration::from_millis(1)).await;
        }
    };
    clock.timeout(PATIENCE, waiting).await.unwrap();
}

/// Sends this many bytes of tells; returns the number of refused ones.
async fn tell(from: &Node, to: &Pid, bytes: usize) -> usize {
    let mut refused = 0;
    for number in 0..bytes / BODY {
        let told = match number % 8 {
            7 => from.tell(to, Beat(vec![7; BODY])),
            _ => from.tell(to, Load(vec![7; BODY])),
        };
        refused += usize::from(told.is_err());
        if number.is_multiple_of(100) {
            from.clock().sleep(Duration::from_millis(1)).await; // the link's tasks write
        }
    }
    refused
}

/// Floods a stalled actor of `near` from `far`: memory does not grow, and the sender is refused.
async fn flood_an_actor(near: &Node, far: &Node, address: &str) {
    near.spawn("stalled", Stalled).unwrap();
    let pid = far.find(address, "stalled", PATIENCE).await.unwrap();
    tell(far, &pid, 36 * MIB).await;
    let refused = gauge(tell(far, &pid, FLOOD)).await;
    assert!(refused > FLOOD / BODY / 2, "{refused} are refused");
    let stalled = near
        .processes()
        .into_iter()
        .find(|process| process.pid.name() == "stalled")
        .unwrap();
    assert!(stalled.depth <= 1000 + 1024, "{} wait", stalled.depth);
}

/// Counts its messages, slower than they arrive.
struct Slow {
    count: u64,
}

impl Actor for Slow {
    type Context = Context<Self>;
}

impl Process for Slow {
    const MAILBOX: u32 = 100;

    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<Load>(&Role::ALL);
        handlers.accept::<Handled>(&Role::ALL);
    }
}

impl Handler<Load> for Slow {
    type Result = usize;
    fn handle(&mut self, Load(bytes): Load, ctx: &mut Context<Self>) -> usize {
        self.count += 1;
        if self.count.is_multiple_of(1000) {
            let pause = ctx.clock().sleep(Duration::from_millis(1));
            ctx.wait(fut::wrap_future::<_, Self>(pause));
        }
        bytes.len()
    }
}

impl Handler<Handled> for Slow {
    type Result = u64;
    fn handle(&mut self, Handled: Handled, _: &mut Context<Self>) -> u64 {
        self.count
    }
}

/// Every accepted tell is handled before the ask that follows it.
async fn outrun_an_actor(near: &Node, far: &Node, address: &str) {
    near.spawn("slow", Slow { count: 0 }).unwrap();
    let pid = far.find(address, "slow", PATIENCE).await.unwrap();
    let mut sent = 0;
    for _ in 0..20 {
        for number in 0..2000 {
            let length = if number == 1000 { LARGE } else { 20 };
            sent += u64::from(far.tell(&pid, Load(vec![7; length])).is_ok());
        }
        tokio::task::yield_now().await;
    }
    let handled = loop {
        match far.ask(&pid, Handled, PATIENCE).await {
            // Refused at the sender, whose link is full.
            Err(AskError::Full) => far.clock().sleep(Duration::from_millis(5)).await,
            handled => break handled,
        }
    };
    assert_eq!(handled, Ok(sent));
    assert!(sent > 20_000, "{sent} were sent");
}

// Covers 6.1 Mailbox.
#[test]
fn flooded_actor_is_bounded_over_a_unix_socket() {
    run_in_real_time(async {
        let directory = tempfile::tempdir().unwrap();
        let (near, far) = (
            node("agent-1", Role::Agent),
            node("executor-1", Role::Executor),
        );
        let path = directory.path().join("agent");
        let listener = Listener::bind(near.clone(), path, &[Role::Executor]).unwrap();
        let _dialling = Dialling::install(&far);
        outrun_an_actor(&near, &far, &listener.address()).await;
        flood_an_actor(&near, &far, &listener.address()).await;
    });
}

// Covers 6.1 Mailbox.
#[test]
fn flooded_actor_is_bounded_over_quic() {
    run_in_real_time(async {
        let authority = Authority::create().unwrap();
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let member = |name: &str, role| {
            let node = node(name, role);
            let identity = authority.issue(role, name).unwrap();
            let endpoint = Endpoint::bind(node.clone(), &identity, here, Options::default());
            (node, endpoint.unwrap())
        };
        let (near, listening) = member("master-1", Role::Master);
        let (far, _dialling) = member("agent-1", Role::Agent);
        let address = listening.address().unwrap().to_string();
        outrun_an_actor(&near, &far, &address).await;
        flood_an_actor(&near, &far, &address).await;
    });
}

// Covers 6.1 Mailbox.
#[test]
fn flooded_silent_unix_peer_is_bounded() {
    run_in_real_time(async {
        let directory = tempfile::tempdir().unwrap();
        let near = node("agent-1", Role::Agent);
        let path = directory.path().join("agent");
        let _listener = Listener::bind(near.clone(), path.clone(), &[Role::Executor]).unwrap();
        let deaf = node("executor-1", Role::Executor);
        let mut stream = UnixStream::connect(&path).await.unwrap();
        let hello = deaf.hello();
        let length = (hello.len() as u32).to_be_bytes();
        let greeting = [&[1][..], &length, &hello].concat();
        stream.write_all(&greeting).await.unwrap();
        until(near.clock(), || !near.peers().is_empty()).await;
        let pid = Pid::new("deaf", deaf.id().clone(), 1);
        for length in [BODY, LARGE] {
            let flood = async |bytes: usize| {
                let mut refused = 0;
                for number in 0..bytes / length {
                    let told = match number % 8 {
                        7 => near.tell(&pid, Beat(vec![7; length])),
                        _ => near.tell(&pid, Load(vec![7; length])),
                    };
                    refused += usize::from(told == Err(TellError::Full));
                    if number.is_multiple_of(100) {
                        // Lets the link's tasks write as much as the socket accepts.
                        near.clock().sleep(Duration::from_millis(1)).await;
                    }
                }
                refused
            };
            assert!(flood(12 * MIB).await > 0);
            let refused = gauge(flood(FLOOD)).await;
            assert!(refused > 3 * FLOOD / length / 4, "{refused} are refused");
        }
        let waiting = near.links()[0].queued_bytes as usize;
        assert!(waiting <= OUTGOING_MAX + LARGE, "{waiting} bytes wait");
        drop(stream);
        until(near.clock(), || near.peers().is_empty()).await;
    });
}
