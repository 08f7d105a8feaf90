//! The cost of each layer that the runtime adds to a local tell: small copies of the layers, put
//! one by one around raw actix.
//!
//! Each copy does the work of the runtime for a message in that layer (`actor/handle.rs`,
//! `actor/mailbox/mod.rs`, `actor/mailbox/envelope.rs`, `observe/tally.rs`), on an actor that is
//! otherwise raw actix. So the difference between two neighbours is the cost of one layer. "The
//! rest" is the difference between the last copy and the real actor: turns, timers and futures,
//! watchdog, tap and panics.

use std::any::TypeId;
use std::cell::Cell;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use actix::prelude::{Actor, Addr, Handler, Message};

/// Nothing but actix, reached by its address.
pub const RAW: u8 = 0;
/// Reached through a handle that knows a name and survives restarts.
pub const NAME: u8 = 1;
/// One more is refused when the mailbox is full; the depth is known.
pub const BOUND: u8 = 2;
/// An envelope that says where a message came from and who asks.
pub const ENVELOPE: u8 = 3;
/// Counted by type, one in 64 timed; the age of the oldest is known.
pub const METRICS: u8 = 4;

const MAILBOX: u64 = 65_536;
const SAMPLED: u64 = 64;

#[repr(align(64))]
#[derive(Default)]
struct Line(AtomicU64);

#[derive(Default)]
struct Meter {
    sent: Line,
    stamps: [AtomicU64; 7],
    handled: Line,
    coarse_millis: AtomicU32,
}

impl Meter {
    #[inline]
    fn reserve(&self, stamped: bool) -> bool {
        let before = self.sent.0.fetch_add(1, Ordering::AcqRel);
        let depth = before.wrapping_sub(self.handled.0.load(Ordering::Relaxed));
        if depth >= MAILBOX {
            self.sent.0.fetch_sub(1, Ordering::AcqRel);
            return false;
        }
        if stamped && (depth == 0 || before.is_multiple_of(SAMPLED)) {
            let millis = u64::from(self.coarse_millis.load(Ordering::Relaxed));
            let mark = (before / SAMPLED).trailing_zeros() as usize / 2;
            self.stamps[mark.min(6)].store(before << 32 | millis, Ordering::Relaxed);
        }
        true
    }

    #[inline]
    fn taken(&self) {
        let handled = self.handled.0.load(Ordering::Relaxed);
        self.handled.0.store(handled + 1, Ordering::Relaxed);
    }
}

thread_local! {
    static POSTMARK: Cell<u8> = const { Cell::new(0) };
}

/// A message with the layers that travel in its envelope.
#[derive(Message)]
#[rtype(result = "u64")]
pub struct Packed<const LAYERS: u8> {
    more: u64,
    counted: bool,
    origin: Option<Arc<str>>,
}

struct Tally {
    id: TypeId,
    count: AtomicU64,
    timings: [AtomicU32; 32],
}

/// The actor of the bench, with these layers.
pub struct Layered<const LAYERS: u8> {
    total: u64,
    meter: Arc<Meter>,
    tallies: Vec<Arc<Tally>>,
}

impl<const LAYERS: u8> Actor for Layered<LAYERS> {
    type Context = actix::Context<Self>;
}

impl<const LAYERS: u8> Handler<Packed<LAYERS>> for Layered<LAYERS> {
    type Result = u64;

    fn handle(&mut self, message: Packed<LAYERS>, _: &mut Self::Context) -> u64 {
        if LAYERS >= BOUND && message.counted {
            self.meter.taken();
        }
        if LAYERS >= ENVELOPE {
            drop(message.origin);
        }
        if LAYERS < METRICS {
            self.total = self.total.wrapping_add(message.more);
            return self.total;
        }
        let id = TypeId::of::<Packed<LAYERS>>();
        if self.tallies.first().is_none_or(|tally| tally.id != id) {
            self.tallies.push(Arc::new(Tally {
                id,
                count: AtomicU64::new(0),
                timings: Default::default(),
            }));
        }
        let tally = &self.tallies[0];
        let before = tally.count.load(Ordering::Relaxed);
        tally.count.store(before + 1, Ordering::Relaxed);
        let start = before.is_multiple_of(SAMPLED).then(Instant::now);
        self.total = self.total.wrapping_add(message.more);
        if let Some(start) = start {
            let nanos = start.elapsed().as_nanos() as u32;
            tally.timings[(before / SAMPLED) as usize % 32].store(nanos, Ordering::Relaxed);
        }
        self.total
    }
}

/// One life, and the place where the next would be.
struct Seat<const LAYERS: u8> {
    first: Arc<Life<LAYERS>>,
}

struct Life<const LAYERS: u8> {
    name: Arc<str>,
    meter: Arc<Meter>,
    address: Addr<Layered<LAYERS>>,
}

/// What a sender holds: a raw address, or a handle to a seat.
pub struct Held<const LAYERS: u8> {
    address: Addr<Layered<LAYERS>>,
    seat: Arc<Seat<LAYERS>>,
}

impl<const LAYERS: u8> Held<LAYERS> {
    /// Starts the actor on this thread.
    pub fn start() -> Self {
        let meter = Arc::new(Meter::default());
        let actor = Layered {
            total: 0,
            meter: meter.clone(),
            tallies: Vec::new(),
        };
        let address = actor.start();
        let name = black_box("name").into();
        let first = Arc::new(Life {
            name,
            meter,
            address: address.clone(),
        });
        Self {
            address,
            seat: Arc::new(Seat { first }),
        }
    }

    /// Tells it a number.
    #[inline]
    pub fn tell(&self, more: u64) {
        let mut message = Packed {
            more,
            counted: false,
            origin: None,
        };
        if LAYERS == RAW {
            return self.address.do_send(message);
        }
        let life = &self.seat.first;
        if LAYERS >= BOUND {
            assert!(
                life.meter.reserve(LAYERS >= METRICS),
                "{} is full",
                life.name
            );
            message.counted = true;
        }
        if LAYERS >= ENVELOPE {
            POSTMARK.set(1);
            message.counted = POSTMARK.replace(0) == 1;
        }
        life.address.do_send(message);
    }

    /// Waits until it has handled everything told before.
    pub async fn caught_up(&self) -> u64 {
        let last = Packed {
            more: 0,
            counted: false,
            origin: None,
        };
        self.address.send(last).await.unwrap_or_default()
    }
}
