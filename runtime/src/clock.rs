//! The clock: all time in a node comes from here.
//!
//! Monotonic time ([`Instant`]) and wall time ([`Timestamp`]) are different types, so that nobody
//! subtracts one from the other. Each node has a clock of its own and with it a wall offset of its own.
//! In rehearsals time stands still until everything is quiet, and then jumps to the next timer.
//! It never reads a process-wide static, and nothing else in the house reads the machine's clocks.

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
const REHEARSAL_START: i64 = 1_767_225_600_000_000_000;
/// Turns without any movement after which everything counts as quiet.
const QUIET_TURNS: u32 = 64;
/// Turns after which `settle` gives up on a system that never becomes quiet.
const SETTLE_TURNS_MAX: u32 = 1_000_000;
/// A pace is counted in millionths.
const MILLION: i64 = 1_000_000;
/// No clock runs twice as fast as the machine's, or half as fast.
const DRIFT_MAX: i32 = 500_000;
/// A deadline further away than the machine can count is this far away: thirty years.
const DEADLINE_MAX: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// The machine's monotonic time, or what tokio says it is while it is paused.
#[allow(clippy::disallowed_types, reason = "what the machine's clock gives")]
type Machine = std::time::Instant;

/// Asking tokio costs more, and this runs for timed messages and every patient question.
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
    /// How often anything moved on this thread: an actor ran or a link carried something.
    static MOVED: Cell<u64> = const { Cell::new(0) };
}

/// Notes that something moved, so that `settle` goes on waiting.
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
    /// Whether the pace was ever set: looked at first, since hardly any clock drifts.
    drifts: AtomicBool,
    pace: Mutex<Pace>,
}

/// How fast a clock runs, since when.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// The machine's time since the clock's start, when the pace was set.
    machine: Duration,
    /// The clock's own time then.
    own: Duration,
    /// So many millionths faster than the machine's; slower if negative.
    ppm: i32,
}

impl Pace {
    fn rate(self) -> u128 {
        u128::try_from(MILLION + i64::from(self.ppm)).unwrap_or(1)
    }

    /// The clock's own time when the machine's is this, both since the clock's start.
    fn own(self, machine: Duration) -> Duration {
        let since = machine.saturating_sub(self.machine).as_nanos();
        self.own + nanos(since * self.rate() / MILLION as u128)
    }

    /// How long the machine takes for this much of the clock's time; never too short.
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

    /// Virtual time, which moves only when all is quiet. Needs a runtime whose time is paused, as
    /// [`rehearse`](crate::rehearsal::rehearse) builds it. Every such clock starts at the same wall time.
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

    /// This clock's time when the machine's is this.
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

    /// How long the machine takes for this much of this clock's time.
    fn machine_span(&self, own: Duration) -> Duration {
        self.drifting().map_or(own, |pace| pace.machine_span(own))
    }

    /// Lets this clock run so many millionths faster than the machine's from now on, slower if negative, at most
    /// half a million; its wall time drifts with it. No time is lost or repeated, and a timer never fires before its
    /// time by this clock. Only in rehearsals: a real clock runs as the machine's does.
    pub fn set_drift(&self, ppm: i32) {
        debug_assert!(self.0.paused, "only a clock of a rehearsal can drift");
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

    /// Milliseconds from some start, exact only to 25 of them in real time but cheap; wraps around after 49 days.
    #[inline]
    pub(crate) fn coarse_millis(&self) -> u32 {
        match self.0.paused {
            true => self.now().0.as_millis() as u32,
            false => crate::watchdog::millis(),
        }
    }

    /// The date and time of day, with this node's offset.
    pub fn wall(&self) -> Timestamp {
        let true_wall = match self.0.paused {
            true => REHEARSAL_START
                .saturating_add(i64::try_from(self.now().0.as_nanos()).unwrap_or(i64::MAX)),
            false => machine_wall(),
        };
        let nanos = true_wall.saturating_add(self.0.wall_offset.load(Ordering::Relaxed));
        Timestamp::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }

    /// Makes this node's wall time jump to this many nanoseconds from the true one. Monotonic time goes on.
    pub fn set_wall_offset(&self, nanos: i64) {
        self.0.wall_offset.store(nanos, Ordering::Relaxed);
    }

    /// Ready after this long.
    #[allow(clippy::disallowed_methods, reason = "the one place that makes timers")]
    pub fn sleep(&self, duration: Duration) -> Sleep {
        let span = self.machine_span(duration);
        if !self.0.paused {
            let timer = Box::pin(tokio::time::sleep(span));
            return Sleep { timer, until: None };
        }
        // Asking what time it is costs as much as all the rest.
        let now = machine_now(true);
        let deadline = now.checked_add(span).unwrap_or(now + DEADLINE_MAX);
        let timer = Box::pin(tokio::time::sleep_until(deadline.into()));
        let until = Some((self.clone(), self.at(now) + duration));
        Sleep { timer, until }
    }

    /// Ready at this time; at once if it has passed.
    pub fn sleep_until(&self, at: Instant) -> Sleep {
        self.sleep(at - self.now())
    }

    /// The time this far from now, as timers take it.
    pub(crate) fn deadline(&self, after: Duration) -> Deadline {
        let now = machine_now(self.0.paused);
        let after = self.machine_span(after);
        Deadline(now.checked_add(after).unwrap_or(now + DEADLINE_MAX).into())
    }

    /// What the future gives, or [`Late`] if it gives nothing within this long.
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

    /// Lets this much virtual time pass: every timer due on the way fires in order, with everything it
    /// sets in motion done before the next; then settles. Only in rehearsals: real time passes by itself.
    pub async fn advance(&self, duration: Duration) {
        debug_assert!(self.0.paused, "only paused time can be advanced");
        self.settle().await;
        self.sleep(duration).await;
        self.settle().await;
    }

    /// Waits, without any time passing, until nothing moves any more. Only in rehearsals.
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
        tracing::warn!(turns = SETTLE_TURNS_MAX, "the rehearsal never became quiet");
    }

    /// Notes that something outside the actors moved (a simulated packet, say), so that
    /// [`settle`](Self::settle) waits for what follows from it.
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
    /// How long after the clock's start this is.
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

    /// Zero if `earlier` is in truth later.
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

    /// How long after the other this is; zero if it is not, since wall time may jump back.
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

/// A time at which patience ends.
#[derive(Clone, Copy)]
pub(crate) struct Deadline(tokio::time::Instant);

impl Deadline {
    /// Ready then.
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
    /// In rehearsals, whose time it must be at least: a clock may have become slower meanwhile.
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

/// Nothing came within the time allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing came within {after:?}")]
pub struct Late {
    /// The time allowed.
    pub after: Duration,
}
