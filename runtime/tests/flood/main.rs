//! Floods: every place where messages wait is filled by a sender that does not stop, before a
//! receiver that does not move.
//!
//! What is measured is the memory that is resident in this process (`/proc/self/status`), since
//! counting it exactly would need an allocator of our own and with it `unsafe`. A first flood fills
//! the place, a second one is many times larger than the limit on what may come on top. So the
//! limits are generous, and yet a place without a bound would pass each of them many times over.
//! One flood at a time, or one would be measured in the other.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests"
)]

mod couriers;
mod helpers;
mod links;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use runtime::prelude::*;
use runtime::testing::{simulate, simulate_network};
use serde::{Deserialize, Serialize};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const MIB: usize = 1 << 20;
/// What memory may grow by in a flood of eight times as much.
const GROWTH_MAX: usize = 10 * MIB;
/// The bytes of one message.
const BODY: usize = 1 << 10;
/// Messages in the second flood: 80 MiB.
const FLOOD: usize = 80 * MIB / BODY;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Resident bytes of this process that are no file's: the code that a test is the first to run must
/// not count.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let kib: usize = line
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    kib << 10
}

/// How much memory grows in what comes between this and [`Gauge::check`].
struct Gauge(usize);

impl Gauge {
    fn begin() -> Self {
        Self(resident())
    }

    fn check(self) {
        let grown = resident().saturating_sub(self.0);
        assert!(
            grown < GROWTH_MAX,
            "{} MiB more than before the flood",
            grown / MIB
        );
    }
}

/// Hear nothing more until told.
#[derive(Serialize, Deserialize)]
struct Stall;
/// Remember nothing of this.
#[derive(Serialize, Deserialize)]
struct Load(String);
/// The same ahead of everything.
#[derive(Serialize, Deserialize)]
struct Beat(String);
/// Give so many bytes back.
#[derive(Serialize, Deserialize)]
struct Echo(usize);
/// Answer never.
#[derive(Serialize, Deserialize)]
struct Never(String);
/// A number whose newest values are worth most.
#[derive(Serialize, Deserialize)]
struct Sample(u32, String);
/// An event that nobody may miss.
#[derive(Serialize, Deserialize)]
struct Event(String);

remote! {
    Stall = "flood/stall" v1;
    Load = "flood/load" v1 -> usize;
    Beat = "flood/beat" v1 lane Ping -> usize;
    Echo = "flood/echo" v1 -> String;
    Never = "flood/never" v1 -> usize;
    Sample = "flood/sample" v1 -> u32;
    Event = "flood/event" v1 full CloseLink;
}

fn body() -> String {
    "x".repeat(BODY)
}

/// Stalls when told to.
#[derive(Default)]
struct Stalled {
    promises: Vec<Promise<usize>>,
}

impl Actor for Stalled {
    type Context = Context<Self>;
}

impl Process for Stalled {
    const MAILBOX: u32 = 1000;
    const MAILBOX_BYTES: u64 = 4 << 20;

    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<Stall>(&Role::ALL);
        handlers.accept::<Load>(&Role::ALL);
        handlers.accept::<Beat>(&Role::ALL);
        handlers.accept::<Echo>(&Role::ALL);
        handlers.accept::<Never>(&Role::ALL);
        handlers.accept::<Event>(&Role::ALL);
    }
}

impl Handler<Stall> for Stalled {
    type Result = ();
    fn handle(&mut self, Stall: Stall, ctx: &mut Context<Self>) {
        let hour = fut::wrap_future::<_, Self>(ctx.clock().sleep(HOUR));
        ctx.wait(hour);
    }
}

impl Handler<Load> for Stalled {
    type Result = usize;
    fn handle(&mut self, Load(text): Load, _: &mut Context<Self>) -> usize {
        text.len()
    }
}

impl Handler<Beat> for Stalled {
    type Result = usize;
    fn handle(&mut self, Beat(text): Beat, _: &mut Context<Self>) -> usize {
        text.len()
    }
}

impl Handler<Echo> for Stalled {
    type Result = String;
    fn handle(&mut self, Echo(length): Echo, _: &mut Context<Self>) -> String {
        "x".repeat(length)
    }
}

impl Handler<Never> for Stalled {
    type Result = Reply<usize>;
    fn handle(&mut self, _: Never, _: &mut Context<Self>) -> Reply<usize> {
        let (promise, reply) = promise();
        self.promises.push(promise);
        reply
    }
}

impl Handler<Event> for Stalled {
    type Result = ();
    fn handle(&mut self, Event(_): Event, _: &mut Context<Self>) {}
}

/// Answers each question in a future that never ends.
struct Distracted;

impl Actor for Distracted {
    type Context = Context<Self>;
}

impl Process for Distracted {
    const MAILBOX: u32 = 1000;
    const PENDING_MAX: u32 = 500;
}

impl Handler<Load> for Distracted {
    type Result = ResponseFuture<usize>;
    fn handle(&mut self, Load(text): Load, _: &mut Context<Self>) -> Self::Result {
        Box::pin(async move {
            std::future::pending::<()>().await;
            text.len()
        })
    }
}

/// One that hears nothing.
async fn stalled(node: &Node) -> Handle<Stalled> {
    let handle = node.spawn("stalled", Stalled::default()).unwrap();
    handle.tell(Stall).unwrap();
    node.clock().settle().await;
    handle
}

/// A node on the network whose link holds little before it refuses.
fn sender(network: &runtime::testing::memory::Network) -> Node {
    let node = runtime::testing::node("far").role(Role::Agent);
    let node = node.accepts(&[Role::Master]).outgoing_max(MIB).build();
    network.join(&node, "far");
    node
}

fn refused(node: &Node) -> (u64, u64) {
    let info = &node.processes()[0];
    (info.depth, info.refused)
}

// Covers 6.1 Mailbox.
#[test]
fn a_mailbox_is_flooded_by_tells_and_asks_of_its_own_node() {
    let _alone = alone();
    simulate(|node| async move {
        let actor = stalled(&node).await;
        let flood = |count: usize| {
            for number in 0..count {
                match number % 3 {
                    0 => drop(actor.tell(Load(body()))),
                    1 => drop(actor.ask(Load(body()), SECOND)),
                    _ => drop(node.tell(&actor.pid(), Load(body()))),
                }
            }
        };
        flood(2000);
        assert_eq!(refused(&node), (1000, 1000));
        let gauge = Gauge::begin();
        flood(FLOOD);
        gauge.check();
        assert_eq!(refused(&node), (1000, 1000 + FLOOD as u64));
        assert_eq!(actor.tell(Load(body())), Err(TellError::Full));
        assert_eq!(actor.ask(Load(body()), SECOND).await, Err(AskError::Full));
    });
}

// Covers 6.1 Mailbox.
#[test]
fn futures_that_handlers_return_are_flooded_and_then_the_mailbox_behind_them() {
    let _alone = alone();
    simulate(|node| async move {
        let actor = node.spawn("distracted", Distracted).unwrap();
        let flood = async |count: usize| {
            for number in 0..count {
                drop(actor.ask(Load(body()), SECOND));
                if number % 500 == 0 {
                    node.clock().settle().await;
                }
            }
        };
        flood(4000).await;
        let gauge = Gauge::begin();
        flood(FLOOD).await;
        gauge.check();
        let info = &node.processes()[0];
        assert_eq!((info.errands, info.depth), (500, 1000));
        assert_eq!(info.refused, 2500 + FLOOD as u64);
    });
}

// Covers 6.1 Mailbox.
#[test]
fn a_mailbox_is_flooded_over_a_link_by_runs_and_by_questions() {
    let _alone = alone();
    simulate_network(|network| async move {
        let near = network.node("near", Role::Master, &[Role::Agent]);
        let far = sender(&network);
        let actor = stalled(&near).await;
        let pid = far.find("near", "stalled", SECOND).await.unwrap();
        let flood = async |count: usize| {
            let mut refused = 0;
            for number in 0..count {
                if number % 1000 == 0 {
                    drop(far.ask(&pid, Load(body()), SECOND));
                }
                refused += usize::from(far.tell(&pid, Load(body())) == Err(TellError::Full));
                if number % 500 == 0 {
                    near.clock().settle().await; // Let the link carry what was written.
                }
            }
            near.clock().settle().await;
            refused
        };
        flood(8000).await;
        let gauge = Gauge::begin();
        assert_eq!(flood(FLOOD).await, FLOOD, "the sender is refused");
        gauge.check();
        assert_eq!(refused(&near).0, 1000);
        let full = far.ask(&pid, Load(body()), SECOND).await;
        assert_eq!(full, Err(AskError::Full), "and so is the asker");
        assert!(actor.is_alive());
        assert_eq!(near.peers().len(), 1);
    });
}

// Covers 6.1 Mailbox.
#[test]
fn a_mailbox_is_flooded_with_large_messages_long_before_it_is_full_of_them() {
    let _alone = alone();
    for length in [8 << 10, MIB] {
        simulate_network(|network| async move {
            let near = network.node("near", Role::Master, &[Role::Agent]);
            let far = sender(&network);
            let actor = stalled(&near).await;
            let pid = far.find("near", "stalled", SECOND).await.unwrap();
            let flood = async |bytes: usize| {
                for number in 0..bytes / length {
                    match number % 2 {
                        0 => drop(far.ask(&pid, Load("x".repeat(length)), SECOND)),
                        _ => drop(far.tell(&pid, Load("x".repeat(length)))), // mostly refused
                    }
                    if number.is_multiple_of(8) {
                        near.clock().settle().await; // Let the link carry what was written.
                    }
                }
                near.clock().settle().await;
            };
            flood(16 * MIB).await;
            let gauge = Gauge::begin();
            flood(80 * MIB).await;
            gauge.check();
            let depth = refused(&near).0;
            let fit = (Stalled::MAILBOX_BYTES / length as u64).saturating_sub(1);
            assert!(depth.abs_diff(fit) <= 1, "{depth} of {length} bytes wait");
            assert_eq!(
                far.tell(&pid, Load("x".repeat(length))),
                Err(TellError::Full)
            );
            near.clock().advance(HOUR).await;
            assert_eq!(near.processes()[0].depth, 0);
            assert!(
                near.peers().is_empty(),
                "the mailbox had no room for too long"
            );
            let pid = far.find("near", "stalled", SECOND).await.unwrap();
            let heard = far.ask(&pid, Load("x".repeat(length)), SECOND).await;
            assert_eq!(heard, Ok(length), "and then there is room again");
            drop(actor);
        });
    }
}

// Covers 6.1 Mailbox.
#[test]
fn the_lane_of_pings_is_flooded() {
    let _alone = alone();
    simulate_network(|network| async move {
        let near = network.node("near", Role::Master, &[Role::Agent]);
        let far = sender(&network);
        let actor = stalled(&near).await;
        let pid = far.find("near", "stalled", SECOND).await.unwrap();
        let flood = async |count: usize| {
            for number in 0..count {
                match number % 3 {
                    0 => drop(actor.tell(Beat(body()))),
                    1 => drop(actor.ask(Beat(body()), SECOND)),
                    _ => drop(far.tell(&pid, Beat(body()))),
                }
                if number % 1000 == 0 {
                    near.clock().settle().await;
                }
            }
            near.clock().settle().await;
        };
        flood(16_000).await;
        let gauge = Gauge::begin();
        flood(FLOOD).await;
        gauge.check();
        let (depth, refused) = refused(&near);
        assert!(
            depth == 1024 && refused > FLOOD as u64 / 2,
            "{depth} wait, {refused} refused"
        );
        assert_eq!(far.tell(&pid, Beat(body())), Err(TellError::Full));
        let full = far.ask(&pid, Beat(body()), SECOND).await;
        assert_eq!(full, Err(AskError::Full));
        actor.tell(Load(body())).unwrap(); // The mailbox has its own bound.
    });
}

/// Keeps the newest hundred samples, once it is no longer stalled.
#[derive(Default)]
struct Sampler {
    heard: Vec<u32>,
}

impl Actor for Sampler {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        let hour = fut::wrap_future::<_, Self>(ctx.clock().sleep(HOUR));
        ctx.wait(hour);
    }
}

impl Process for Sampler {
    const MAILBOX: u32 = 100;
    const WHEN_FULL: WhenFull = WhenFull::DropOldest;

    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<Sample>(&Role::ALL);
    }
}

/// What have you heard?
#[derive(Message)]
#[rtype(result = "Vec<u32>")]
struct Heard;

impl Handler<Sample> for Sampler {
    type Result = u32;
    fn handle(&mut self, Sample(number, _): Sample, _: &mut Context<Self>) -> u32 {
        self.heard.push(number);
        number
    }
}

impl Handler<Heard> for Sampler {
    type Result = Vec<u32>;
    fn handle(&mut self, Heard: Heard, _: &mut Context<Self>) -> Vec<u32> {
        self.heard.clone()
    }
}

// Covers 6.1 Mailbox.
#[test]
fn an_actor_that_wants_the_newest_is_flooded_and_loses_the_oldest_but_no_question() {
    let _alone = alone();
    simulate_network(|network| async move {
        let near = network.node("near", Role::Master, &[Role::Agent]);
        let far = network.node("far", Role::Agent, &[Role::Master]);
        let sampler = near.spawn("sampler", Sampler::default()).unwrap();
        let pid = far.find("near", "sampler", SECOND).await.unwrap();
        let asked = sampler.ask(Sample(0, body()), 2 * HOUR);
        let flood = async |numbers: std::ops::RangeInclusive<usize>| {
            for number in numbers {
                let sample = Sample(number as u32, body());
                match number % 2 {
                    0 => sampler.tell(sample).unwrap(),
                    _ => near.tell(&pid, sample).unwrap(),
                }
            }
            near.clock().settle().await;
        };
        flood(1..=1000).await;
        let gauge = Gauge::begin();
        flood(1001..=FLOOD).await;
        gauge.check();
        let dropped = near.processes()[0].dropped;
        assert_eq!(dropped, FLOOD as u64 - 99);
        (1..=50).for_each(|number| far.tell(&pid, Sample(number, body())).unwrap());
        near.clock().settle().await;
        let heard = sampler.ask(Heard, 2 * HOUR); // Takes the place of one sample more.
        near.clock().advance(2 * HOUR).await;
        assert_eq!(asked.await, Ok(0), "a question is kept");
        let newest = (FLOOD - 47..=FLOOD).map(|number| number as u32);
        let expected: Vec<u32> = std::iter::once(0).chain(newest).chain(1..=50).collect();
        assert_eq!(heard.await.unwrap(), expected);
        // A flood of questions finds no tell to throw away, and is refused.
        let mut asked: Vec<_> = Vec::new();
        sampler.tell(Sample(7, body())).unwrap();
        (0..150).for_each(|number| asked.push(sampler.ask(Sample(number, body()), SECOND)));
        let mut full = 0;
        for reply in asked {
            full += usize::from(reply.await == Err(AskError::Full));
        }
        assert_eq!(full, 50);
    });
}

/// Starts a timer for each load.
struct Winder;

impl Actor for Winder {
    type Context = Context<Self>;
}

impl Process for Winder {
    const MAILBOX: u32 = 1000;
    const PENDING_MAX: u32 = 500;
}

impl Handler<Load> for Winder {
    type Result = usize;
    fn handle(&mut self, Load(text): Load, ctx: &mut Context<Self>) -> usize {
        let length = text.len();
        ctx.after(HOUR, move |_, _| drop(text));
        length
    }
}

// Covers 6.1 Mailbox.
#[test]
fn timers_are_flooded_and_the_actor_hears_nothing_more_until_one_is_over() {
    let _alone = alone();
    simulate(|node| async move {
        let winder = node.spawn("winder", Winder).unwrap();
        let flood = async |count: usize| {
            for number in 0..count {
                drop(winder.tell(Load(body())));
                if number % 100 == 0 {
                    node.clock().settle().await;
                }
            }
        };
        flood(3000).await;
        let gauge = Gauge::begin();
        flood(FLOOD / 10).await;
        gauge.check();
        let info = &node.processes()[0];
        let handled = || node.processes()[0].handled.values().sum::<u64>();
        assert_eq!((info.errands, info.depth, handled()), (500, 1000, 500));
        node.clock().advance(HOUR).await;
        assert_eq!(handled(), 1000, "and then as many again");
        node.clock().advance(3 * HOUR).await;
        assert_eq!((handled(), node.processes()[0].errands), (1500, 0));
    });
}
