//! The clock: the source of all time in a node.
//!
//! Monotonic time ([`Instant`]) and wall time ([`Timestamp`]) are different types, so that they
//! cannot be subtracted from each other. Each node has its own clock and its own wall offset. In
//! simulations time stands still until everything is idle, and then jumps to the next timer. There
//! is no process-wide clock, and no other code in the workspace reads the machine's clocks.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::ops::{Add, Sub};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

/// Wall time at the start of every paused clock: 2026-01-01 00:00:00 UTC, in nanoseconds.
const SIMULATION_START: i64 = 1_767_225_600_000_000_000;
/// Consecutive yields without any movement after which the system counts as idle.
const QUIET_TURNS: u32 = 64;
/// Yields after which `settle` gives up on a system that never becomes idle.
const SETTLE_TURNS_MAX: u32 = 1_000_000;
/// Clock rates are counted in millionths.
const MILLION: i64 = 1_000_000;
/// A clock's rate is at most one and a half times the machine's, and at least half of it.
const DRIFT_MAX: i32 = 500_000;
/// The maximum distance of a deadline, where the machine's clock would overflow: thirty years.
const DEADLINE_MAX: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// The machine's monotonic time, or tokio's while it is paused.
#[allow(clippy::disallowed_types, reason = "what the machine's clock gives")]
type Machine = std::time::Instant;

/// tokio's clock costs more, and this runs for sampled messages and every ask with a patience.
#[allow(clippy::disallowed_methods, reason = "one of two readers of clocks")]
fn machine_now(paused: bool) -> Machine {
    match paused {
        true => tokio::time::Instant::now().into_std(),
        false => Machine::now(),
    }
}

/// The machine's date and time of day, in nanoseconds since 1970.
#[allow(clippy::disallowed_methods, reason = "the other reader of clocks")]
fn machine_wall() -> i64 {
    let since_epoch = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since_epoch.as_nanos()).unwrap_or(i64::MAX)
}

thread_local! {
    /// Number of movements on this thread: an actor ran, or a link carried a frame.
    static MOVED: Cell<u64> = const { Cell::new(0) };
}

/// Notes a movement, so that `settle` continues to wait.
pub(crate) fn moved() {
    MOVED.with(|count| count.set(count.get().wrapping_add(1)));
}

/// A node's source of time.
#[derive(Clone)]
pub struct Clock(Arc<Inner>);

struct Inner {
    start: Machine,
    wall_offset: AtomicI64,
    paused: bool,
    /// Whether the rate was ever set. Checked first, since hardly any clock drifts.
    drifts: AtomicBool,
    pace: Mutex<Pace>,
}

/// A clock's rate, and since when.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// The machine's time since the clock's start, when the rate was set.
    machine: Duration,
    /// The clock's own time then.
    own: Duration,
    /// Millionths by which it is faster than the machine; slower if negative.
    ppm: i32,
}

impl Pace {
    fn rate(self) -> u128 {
        u128::try_from(MILLION + i64::from(self.ppm)).unwrap_or(1)
    }

    /// The clock's time at this machine time, both since the clock's start.
    fn own(self, machine: Duration) -> Duration {
        let since = machine.saturating_sub(self.machine).as_nanos();
        self.own + nanos(since * self.rate() / MILLION as u128)
    }

    /// The machine's duration of this much of the clock's time, rounded up.
    fn machine_span(self, own: Duration) -> Duration {
        nanos((own.as_nanos() * MILLION as u128).div_ceil(self.rate()))
    }
}

fn nanos(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

impl Clock {
    /// The machine's time, from now on.
    pub fn real() -> Self {
        Self::starting_now(false)
    }

    /// Virtual time, which moves only when the system is idle. Needs a runtime whose time is
    /// paused, as [`simulate`](crate::testing::simulate) builds it. Every such clock starts at
    /// the same wall time.
    pub fn paused() -> Self {
        Self::starting_now(true)
    }

    fn starting_now(paused: bool) -> Self {
        let (start, wall_offset) = (machine_now(paused), AtomicI64::new(0));
        Self(Arc::new(Inner {
            start,
            wall_offset,
            paused,
            drifts: AtomicBool::new(false),
            pace: Mutex::default(),
        }))
    }

    /// Whether this is virtual time.
    pub fn is_paused(&self) -> bool {
        self.0.paused
    }

    /// Monotonic time since this clock was made.
    pub fn now(&self) -> Instant {
        self.at(machine_now(self.0.paused))
    }

    /// This clock's time at this machine time.
    fn at(&self, machine: Machine) -> Instant {
        let machine = machine.saturating_duration_since(self.0.start);
        match self.drifting() {
            Some(pace) => Instant(pace.own(machine)),
            None => Instant(machine),
        }
    }

    fn drifting(&self) -> Option<Pace> {
        let drifts = self.0.drifts.load(Ordering::Relaxed);
        drifts.then(|| *self.0.pace.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The machine's duration of this much of this clock's time.
    fn machine_span(&self, own: Duration) -> Duration {
        self.drifting().map_or(own, |pace| pace.machine_span(own))
    }

    /// Sets this clock's rate: faster than the machine by this many millionths, slower if negative,
    /// at most half a million; its wall time drifts with it. No time is skipped or repeated, and a
    /// timer never fires early by this clock. Only in simulations: a real clock runs at the
    /// machine's rate.
    pub fn set_drift(&self, ppm: i32) {
        debug_assert!(self.0.paused, "only a simulated clock can drift");
        if !self.0.paused {
            return;
        }
        let own = self.now().0;
        let pace = Pace {
            machine: machine_now(true).saturating_duration_since(self.0.start),
            own,
            ppm: ppm.clamp(-DRIFT_MAX, DRIFT_MAX),
        };
        *self.0.pace.lock().unwrap_or_else(PoisonError::into_inner) = pace;
        self.0.drifts.store(true, Ordering::Relaxed);
    }

    /// Milliseconds from an arbitrary start; cheap, with steps of 25 ms in real time. Wraps around
    /// after 49 days.
    #[inline]
    pub(crate) fn coarse_millis(&self) -> u32 {
        match self.0.paused {
            true => self.now().0.as_millis() as u32,
            false => crate::observe::watchdog::millis(),
        }
    }

    /// The date and time of day, with this node's offset.
    pub fn wall(&self) -> Timestamp {
        let true_wall = match self.0.paused {
            true => SIMULATION_START
                .saturating_add(i64::try_from(self.now().0.as_nanos()).unwrap_or(i64::MAX)),
            false => machine_wall(),
        };
        let nanos = true_wall.saturating_add(self.0.wall_offset.load(Ordering::Relaxed));
        Timestamp::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }

    /// Sets the offset of this node's wall time in nanoseconds. Monotonic time is not affected.
    pub fn set_wall_offset(&self, nanos: i64) {
        self.0.wall_offset.store(nanos, Ordering::Relaxed);
    }

    /// Resolves after this long.
    #[allow(clippy::disallowed_methods, reason = "the one place that makes timers")]
    pub fn sleep(&self, duration: Duration) -> Sleep {
        let span = self.machine_span(duration);
        if !self.0.paused {
            let timer = Box::pin(tokio::time::sleep(span));
            return Sleep { timer, until: None };
        }
        // Reading the clock costs as much as all the rest.
        let now = machine_now(true);
        let deadline = now.checked_add(span).unwrap_or(now + DEADLINE_MAX);
        let timer = Box::pin(tokio::time::sleep_until(deadline.into()));
        let until = Some((self.clone(), self.at(now) + duration));
        Sleep { timer, until }
    }

    /// Resolves at this time, or at once if it has passed.
    pub fn sleep_until(&self, at: Instant) -> Sleep {
        self.sleep(at - self.now())
    }

    /// The deadline this far from now.
    pub(crate) fn deadline(&self, after: Duration) -> Deadline {
        let now = machine_now(self.0.paused);
        let after = self.machine_span(after);
        Deadline(now.checked_add(after).unwrap_or(now + DEADLINE_MAX).into())
    }

    /// The output of the future, or [`Late`] after this long.
    pub async fn timeout<F: Future>(
        &self,
        duration: Duration,
        future: F,
    ) -> Result<F::Output, Late> {
        let future = std::pin::pin!(future);
        match futures_util::future::select(future, self.sleep(duration)).await {
            futures_util::future::Either::Left((output, _)) => Ok(output),
            futures_util::future::Either::Right(_) => Err(Late { after: duration }),
        }
    }

    /// Advances virtual time: every timer due on the way fires in order, and all its consequences
    /// run before the next timer; then settles. Only in simulations: real time passes by itself.
    pub async fn advance(&self, duration: Duration) {
        debug_assert!(self.0.paused, "only paused time can be advanced");
        self.settle().await;
        self.sleep(duration).await;
        self.settle().await;
    }

    /// Waits until the system is idle, without advancing time. Only in simulations.
    pub async fn settle(&self) {
        debug_assert!(self.0.paused, "only paused time can settle");
        let mut seen = MOVED.with(Cell::get);
        let mut quiet = 0;
        for _ in 0..SETTLE_TURNS_MAX {
            tokio::task::yield_now().await;
            let now = MOVED.with(Cell::get);
            quiet = if now == seen { quiet + 1 } else { 0 };
            seen = now;
            if quiet >= QUIET_TURNS {
                return;
            }
        }
        tracing::warn!(turns = SETTLE_TURNS_MAX, "the simulation never became idle");
    }

    /// Notes a movement outside the actors (a simulated packet, for example), so that
    /// [`settle`](Self::settle) waits for its consequences.
    pub fn note_movement(&self) {
        moved();
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock")
            .field("now", &self.now())
            .field("paused", &self.0.paused)
            .finish()
    }
}

/// A point in monotonic time, counted from the start of its node's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(Duration);

impl Instant {
    /// The time since the clock's start.
    pub fn since_start(self) -> Duration {
        self.0
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_add(duration))
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;

    /// Zero if `earlier` is actually later.
    fn sub(self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    fn sub(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_sub(duration))
    }
}

/// A date and time of day: nanoseconds since 1970-01-01 UTC.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The time this many nanoseconds after 1970-01-01 UTC.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since 1970-01-01 UTC.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since 1970-01-01 UTC, as Mesos writes times in its JSON.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The time since `earlier`; zero if that is later, since wall time may jump back.
    pub fn saturating_since(self, earlier: Timestamp) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;

    fn add(self, duration: Duration) -> Timestamp {
        Timestamp(
            self.0
                .saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

/// The end of a patience.
#[derive(Clone, Copy)]
pub(crate) struct Deadline(tokio::time::Instant);

impl Deadline {
    /// Resolves at the deadline.
    #[allow(clippy::disallowed_methods, reason = "the one place that makes timers")]
    pub(crate) fn sleep(self) -> Sleep {
        Sleep {
            timer: Box::pin(tokio::time::sleep_until(self.0)),
            until: None,
        }
    }
}

/// A running timer; dropping it cancels it.
#[must_use = "a timer does nothing unless awaited"]
pub struct Sleep {
    timer: Pin<Box<tokio::time::Sleep>>,
    /// In simulations, the earliest time of completion: the clock may have become slower meanwhile.
    until: Option<(Clock, Instant)>,
}

impl Future for Sleep {
    type Output = ();

    #[allow(clippy::disallowed_methods, reason = "the one place that makes timers")]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let Some((clock, until)) = &self.until else {
                return Poll::Ready(());
            };
            let left = *until - clock.now();
            if left.is_zero() {
                return Poll::Ready(());
            }
            self.timer = Box::pin(tokio::time::sleep(clock.machine_span(left)));
        }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sleep")
    }
}

/// The future did not complete in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("timed out after {after:?}")]
pub struct Late {
    /// The time allowed.
    pub after: Duration,
}
