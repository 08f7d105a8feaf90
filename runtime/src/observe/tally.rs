//! Tallies: the number, rate and duration of the messages that an actor has handled, by type.
//!
//! Written by the actor alone, without a lock; read by other threads. One message in 64 of each
//! type is timed, including the first, and the last 32 timings of a type are kept.

use std::any::TypeId;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;

use crate::actor::mailbox::Meter;
use crate::clock::Instant;
use crate::lock;

/// One message in this many of its type is timed.
const SAMPLED: u64 = 64;
/// Number of timings kept per type.
const KEPT: usize = 32;
/// The minimum window of a rate, if the actor is that old.
const WINDOW: Duration = Duration::from_secs(5);

/// The statistics of one message type of an actor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MessageInfo {
    /// The type, with its path.
    pub message: String,
    /// Messages that the actor has handled or is handling, in all its incarnations.
    pub handled: u64,
    /// Messages per second: since the previous call, or over the last five to ten seconds if that
    /// is longer.
    pub per_second: f64,
    /// Median time in the handler, over the last 32 timed messages (one in 64); zero if there are
    /// none.
    pub handling_p50: Duration,
    /// 99th percentile of the same.
    pub handling_p99: Duration,
}

/// The counts of one type.
pub(crate) struct Tally {
    id: TypeId,
    name: &'static str,
    count: AtomicU64,
    timings: [AtomicU32; KEPT],
}

impl Tally {
    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The timings in nanoseconds, sorted.
    fn timings(&self) -> Vec<u32> {
        let taken = self.count().div_ceil(SAMPLED).min(KEPT as u64) as usize;
        let timings = self.timings[..taken].iter();
        let mut timings: Vec<u32> = timings
            .map(|timing| timing.load(Ordering::Relaxed))
            .filter(|timing| *timing > 0) // The one being timed now.
            .collect();
        timings.sort_unstable();
        timings
    }
}

/// All types of one actor.
#[derive(Default)]
pub(crate) struct Tallies {
    by_type: Mutex<Vec<Arc<Tally>>>,
    /// Counts at earlier calls of `look`; none until the first.
    looks: Mutex<Option<Box<Looks>>>,
}

/// The counts at one call.
#[derive(Clone)]
struct Look {
    at: Instant,
    counts: Vec<u64>,
}

#[derive(Clone)]
struct Looks {
    older: Look,
    newer: Look,
}

impl Looks {
    /// The base of the rates: counts at least a window old, or those of the birth.
    fn base(&mut self, now: Instant, counts: &[u64]) -> &Look {
        if now - self.newer.at >= WINDOW {
            let counts = counts.to_vec();
            self.older = std::mem::replace(&mut self.newer, Look { at: now, counts });
        }
        &self.older
    }
}

impl Tallies {
    /// All types including this one, which is added if it is new.
    fn with(&self, id: TypeId, name: &'static str) -> Vec<Arc<Tally>> {
        let mut by_type = lock(&self.by_type);
        if by_type.iter().all(|tally| tally.id != id) {
            by_type.push(Arc::new(Tally {
                id,
                name,
                count: AtomicU64::new(0),
                timings: [const { AtomicU32::new(0) }; KEPT],
            }));
        }
        by_type.clone()
    }

    /// A copy, for the actor's next incarnation.
    pub(crate) fn carry_over(&self) -> Self {
        Self {
            by_type: Mutex::new(lock(&self.by_type).clone()),
            looks: Mutex::new(lock(&self.looks).clone()),
        }
    }

    /// The name and count of the type with index `at`.
    pub(crate) fn at(&self, at: usize) -> Option<(&'static str, u64)> {
        let by_type = lock(&self.by_type);
        by_type.get(at).map(|tally| (tally.name, tally.count()))
    }

    /// All types as of now, in the order of their first message.
    pub(crate) fn look(&self, born: Instant, now: Instant) -> Vec<MessageInfo> {
        let by_type = lock(&self.by_type).clone();
        let counts: Vec<u64> = by_type.iter().map(|tally| tally.count()).collect();
        let mut looks = lock(&self.looks);
        let birth = || Look {
            at: born,
            counts: Vec::new(),
        };
        let looks = looks.get_or_insert_with(|| {
            Box::new(Looks {
                older: birth(),
                newer: birth(),
            })
        });
        let base = looks.base(now, &counts);
        let seconds = (now - base.at).as_secs_f64();
        let infos = by_type.iter().zip(&counts).enumerate();
        let infos = infos.map(|(at, (tally, count))| {
            let since = count - base.counts.get(at).copied().unwrap_or_default();
            let timings: Vec<_> = tally.timings().into_iter().map(|it| (it, 1.0)).collect();
            MessageInfo {
                message: tally.name.to_owned(),
                handled: *count,
                per_second: if seconds > 0.0 {
                    since as f64 / seconds
                } else {
                    0.0
                },
                handling_p50: percentile(&timings, 0.5),
                handling_p99: percentile(&timings, 0.99),
            }
        });
        infos.collect()
    }

    /// Median and 99th percentile over all types; each timing is weighted by the number of messages
    /// that it represents.
    pub(crate) fn timings(&self) -> (Duration, Duration) {
        let by_type = lock(&self.by_type).clone();
        let mut weighed: Vec<(u32, f64)> = Vec::new();
        for tally in by_type {
            let timings = tally.timings();
            let weight = tally.count() as f64 / timings.len().max(1) as f64;
            weighed.extend(timings.iter().map(|timing| (*timing, weight)));
        }
        weighed.sort_unstable_by_key(|(timing, _)| *timing);
        (percentile(&weighed, 0.5), percentile(&weighed, 0.99))
    }
}

/// The weighted percentile of sorted timings: the first at which the cumulated weight reaches this
/// part of the total; zero if there are none.
fn percentile(sorted: &[(u32, f64)], part: f64) -> Duration {
    let all: f64 = sorted.iter().map(|(_, weight)| weight).sum();
    let mut below = 0.0;
    let found = sorted.iter().find(|(_, weight)| {
        below += weight;
        below >= all * part
    });
    let found = found.or(sorted.last());
    Duration::from_nanos(found.map_or(0, |(timing, _)| u64::from(*timing)))
}

/// The actor's own view of its tallies, without a lock.
#[derive(Default)]
pub(crate) struct Counts {
    /// A copy of the tallies' list, with the same indices, renewed at the first message of a type.
    by_type: Vec<Arc<Tally>>,
    last: usize,
}

/// A message to be timed, by its number within its type.
pub(crate) struct Sample(u64);

impl Counts {
    /// Counts one message.
    #[inline]
    pub(crate) fn count<M: 'static>(&mut self, meter: &Meter) -> Option<Sample> {
        let id = TypeId::of::<M>();
        if self.by_type.get(self.last).is_none_or(|last| last.id != id) {
            self.last = self.find::<M>(id, &meter.tallies);
            meter.is_handling(self.last);
        }
        let count = &self.by_type[self.last].count;
        let before = count.load(Ordering::Relaxed);
        count.store(before + 1, Ordering::Relaxed);
        before.is_multiple_of(SAMPLED).then_some(Sample(before))
    }

    /// Records the duration of the message counted last.
    pub(crate) fn record(&self, Sample(before): Sample, took: Duration) {
        if let Some(tally) = self.by_type.get(self.last) {
            let nanos = u32::try_from(took.as_nanos()).unwrap_or(u32::MAX);
            let at = (before / SAMPLED) as usize % KEPT;
            tally.timings[at].store(nanos, Ordering::Relaxed);
        }
    }

    /// The index of the last message's type.
    pub(crate) fn last(&self) -> usize {
        self.last
    }

    fn find<M>(&mut self, id: TypeId, tallies: &Tallies) -> usize {
        let at = |known: &[Arc<Tally>]| known.iter().position(|tally| tally.id == id);
        at(&self.by_type).unwrap_or_else(|| {
            self.by_type = tallies.with(id, std::any::type_name::<M>());
            at(&self.by_type).unwrap_or_default() // It is there now.
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct One;
    struct Other;

    fn at(seconds: u64) -> Instant {
        Instant::default() + Duration::from_secs(seconds)
    }

    fn handle<M: 'static>(counts: &mut Counts, meter: &Meter, times: u64, nanos: u64) {
        for _ in 0..times {
            if let Some(sample) = counts.count::<M>(meter) {
                counts.record(sample, Duration::from_nanos(nanos));
            }
        }
    }

    #[test]
    fn percentiles_weight_types_by_message_count() {
        let (meter, mut counts) = (Meter::for_tests(1), Counts::default());
        assert_eq!(meter.tallies.timings(), Default::default());
        handle::<One>(&mut counts, &meter, 64_000, 9999);
        handle::<One>(&mut counts, &meter, 64 * 32, 100);
        handle::<Other>(&mut counts, &meter, 200, 5000);
        let infos = meter.tallies.look(at(0), at(1));
        let nanos =
            |info: &MessageInfo| (info.handling_p50.as_nanos(), info.handling_p99.as_nanos());
        assert_eq!(
            [nanos(&infos[0]), nanos(&infos[1])],
            [(100, 100), (5000, 5000)]
        );
        let (p50, p99) = meter.tallies.timings();
        assert_eq!(
            (p50.as_nanos(), p99.as_nanos()),
            (100, 100),
            "the other is one in 330"
        );
        handle::<Other>(&mut counts, &meter, 64_000, 5000);
        let (p50, p99) = meter.tallies.timings();
        assert_eq!(
            (p50.as_nanos(), p99.as_nanos()),
            (100, 5000),
            "now it is every second one"
        );
    }

    #[test]
    fn rates_cover_at_least_five_seconds() {
        let (meter, mut counts) = (Meter::for_tests(1), Counts::default());
        let rate = |now| {
            let infos = meter.tallies.look(at(100), at(now));
            infos.first().map_or(0.0, |info| info.per_second)
        };
        assert_eq!(rate(100), 0.0, "just born");
        handle::<One>(&mut counts, &meter, 600, 1);
        assert_eq!(rate(160), 10.0, "since the birth");
        handle::<One>(&mut counts, &meter, 60, 1);
        assert_eq!(rate(220), 1.0, "since the last look");
        assert_eq!(rate(220), 1.0, "asked again at once");
        for now in 221..=230 {
            handle::<One>(&mut counts, &meter, 5, 1);
            let rate = rate(now);
            assert!(rate > 0.9 && rate <= 5.0, "{rate} at {now}");
        }
        assert_eq!(rate(230), 5.0, "two who look do not disturb each other");
    }
}
