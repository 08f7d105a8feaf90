//! A time series: values by time, recent ones in full and older ones thinned out.
//!
//! It holds the values of a window, up to its capacity. When it is full, each new value removes one
//! of the older half: every other value from the oldest on, starting over once the middle is
//! reached. So the newer half is always complete. It reads no clock: the caller passes the time.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Instant;

/// The default window: two weeks.
pub(crate) const WINDOW: Duration = Duration::from_secs(14 * 24 * 3600);
/// The default capacity.
pub(crate) const CAPACITY: usize = 1000;

/// Values by time, in a window and up to a capacity.
///
/// ```
/// use std::time::Duration;
/// use runtime::{Instant, TimeSeries};
///
/// let mut depths = TimeSeries::default();
/// let start = Instant::default();
/// depths.record(start, 3.0);
/// depths.record(start + Duration::from_secs(1), 5.0);
/// assert_eq!(depths.latest().map(|(_, depth)| depth), Some(5.0));
/// assert_eq!(depths.statistics().map(|statistics| statistics.p50), Some(4.0));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct TimeSeries<T> {
    window: Duration,
    capacity: usize,
    values: VecDeque<(Instant, T)>,
    /// The next to be removed by thinning.
    thinning: usize,
}

impl<T> Default for TimeSeries<T> {
    fn default() -> Self {
        Self::new(WINDOW, CAPACITY)
    }
}

impl<T> TimeSeries<T> {
    /// Keeps values of this window, at most `capacity` (at least four).
    pub fn new(window: Duration, capacity: usize) -> Self {
        Self {
            window,
            capacity: capacity.max(4),
            values: VecDeque::new(),
            thinning: 1,
        }
    }

    /// Records a value. Of two values at the same time the last is kept; a time before the newest
    /// counts as the newest.
    pub fn record(&mut self, at: Instant, value: T) {
        match self.values.back_mut() {
            Some((newest, kept)) if at <= *newest => *kept = value,
            _ => self.values.push_back((at, value)),
        }
        self.expire(at);
        self.thin();
    }

    /// Removes values outside the window that ends now.
    pub fn expire(&mut self, now: Instant) {
        let Some(oldest) = now.since_start().checked_sub(self.window) else {
            return;
        };
        while let Some((at, _)) = self.values.front()
            && at.since_start() < oldest
        {
            self.values.pop_front();
            self.thinning = self.thinning.saturating_sub(1).max(1);
        }
    }

    fn thin(&mut self) {
        while self.values.len() > self.capacity {
            self.values.remove(self.thinning);
            self.thinning += 1;
            if self.thinning >= self.values.len() / 2 {
                self.thinning = 1;
            }
        }
    }

    /// All values, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Instant, &T)> {
        self.values.iter().map(|(at, value)| (*at, value))
    }

    /// The values from one time to another, both included.
    pub fn between(&self, from: Instant, to: Instant) -> impl Iterator<Item = (Instant, &T)> {
        let first = self.values.partition_point(|(at, _)| *at < from);
        let kept = self.values.range(first..);
        kept.take_while(move |(at, _)| *at <= to)
            .map(|(at, value)| (*at, value))
    }

    /// The newest value.
    pub fn latest(&self) -> Option<(Instant, T)>
    where
        T: Copy,
    {
        self.values.back().copied()
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

impl TimeSeries<f64> {
    /// Statistics of all values; `None` for fewer than two.
    pub fn statistics(&self) -> Option<Statistics> {
        Statistics::of(self.values.iter().map(|(_, value)| *value))
    }
}

/// Statistics of several values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statistics {
    /// The number of values.
    pub count: usize,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
    /// The median; like every percentile, interpolated between its two neighbours.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    /// The 99.99th percentile.
    pub p9999: f64,
}

impl Statistics {
    /// Of these values; `None` for fewer than two. NaN is ignored.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().filter(|value| !value.is_nan()).collect();
        if sorted.len() < 2 {
            return None;
        }
        sorted.sort_unstable_by(f64::total_cmp);
        Some(Self::by(sorted.len(), |part| percentile(&sorted, part)))
    }

    /// Of `count` values, where `at` returns the value at a fraction of the way from the minimum
    /// (0) to the maximum (1).
    pub fn by(count: usize, at: impl Fn(f64) -> f64) -> Self {
        Self {
            count,
            min: at(0.0),
            max: at(1.0),
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
        }
    }

    /// The values under their Mesos names: `<name>/count`, `<name>/min`, `<name>/p50` and so on.
    pub fn flat(&self, name: &str) -> [(String, f64); 9] {
        [
            ("count", self.count as f64),
            ("min", self.min),
            ("max", self.max),
            ("p50", self.p50),
            ("p90", self.p90),
            ("p95", self.p95),
            ("p99", self.p99),
            ("p999", self.p999),
            ("p9999", self.p9999),
        ]
        .map(|(which, value)| (format!("{name}/{which}"), value))
    }
}

/// The value at this fraction of the way from the minimum to the maximum, interpolated between its
/// two neighbours.
fn percentile(sorted: &[f64], part: f64) -> f64 {
    let position = part * (sorted.len() - 1) as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    let rest = position - below as f64;
    match rest == 0.0 || sorted[below] == sorted[above] {
        true => sorted[below],
        false => sorted[below] + rest * (sorted[above] - sorted[below]),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(secs: u64) -> Instant {
        Instant::default() + Duration::from_secs(secs)
    }

    // Covers 6.3 Metrics.
    #[test]
    fn percentiles_lie_between_their_neighbours_and_need_two_values() {
        assert_eq!(Statistics::of([1.0]), None);
        assert_eq!(Statistics::of([1.0, f64::NAN]), None);
        let eleven = Statistics::of((0..=10).rev().map(f64::from)).unwrap();
        assert_eq!((eleven.min, eleven.p50, eleven.max), (0.0, 5.0, 10.0));
        let four = Statistics::of([4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((four.p50, four.p90, four.count), (2.5, 3.7, 4));
        let names = four.flat("allocator/run_ms").map(|(name, _)| name);
        assert_eq!(names[0], "allocator/run_ms/count");
        assert_eq!(names[8], "allocator/run_ms/p9999");
    }

    // Covers 6.3 TimeSeries.
    #[test]
    fn long_series_thins_out_older_values() {
        let mut series = TimeSeries::new(WINDOW, 100);
        (0..10_000).for_each(|second| series.record(at(second), second));
        let kept: Vec<u64> = series.iter().map(|(_, second)| *second).collect();
        assert_eq!((kept[0], kept[99], kept.len()), (0, 9999, 100));
        let gaps: Vec<u64> = kept.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let spans = [0..25, 25..50, 75..99].map(|part| gaps[part].iter().sum::<u64>());
        assert!(
            spans.is_sorted_by(|older, newer| older > newer),
            "{spans:?}"
        );
    }

    #[test]
    fn the_values_between_two_times_are_found() {
        let mut series = TimeSeries::default();
        (0..10).for_each(|second| series.record(at(2 * second), second));
        let found: Vec<u64> = series
            .between(at(3), at(8))
            .map(|(_, value)| *value)
            .collect();
        assert_eq!(found, [2, 3, 4]);
        assert_eq!(series.between(at(9), at(3)).count(), 0);
    }

    proptest! {
        // Covers 6.3 TimeSeries.
        #[test]
        fn series_is_bounded_ordered_and_complete_in_newer_half(
            capacity in 4..50_usize,
            window in 1..500_u64,
            steps in prop::collection::vec(0..5_u64, 1..400),
        ) {
            let mut series = TimeSeries::new(Duration::from_secs(window), capacity);
            let mut all: Vec<(Instant, usize)> = Vec::new();
            let mut now = 0;
            for (number, step) in steps.into_iter().enumerate() {
                now += step;
                series.record(at(now), number);
                if all.last().is_some_and(|(last, _)| *last == at(now)) {
                    all.pop();
                }
                all.push((at(now), number));
                all.retain(|(time, _)| *time + Duration::from_secs(window) >= at(now));
                let kept: Vec<(Instant, usize)> = series.iter().map(|(time, value)| (time, *value)).collect();
                prop_assert!(kept.len() <= capacity && kept.is_sorted_by(|one, next| one.0 < next.0));
                prop_assert!(kept.iter().all(|value| all.contains(value)));
                let newer = (capacity / 2).min(all.len());
                prop_assert_eq!(&kept[kept.len() - newer..], &all[all.len() - newer..]);
                if all.len() <= 4 {
                    prop_assert_eq!(&kept, &all);
                }
                prop_assert_eq!(series.latest(), all.last().copied());
            }
        }

        #[test]
        fn percentiles_rise_from_the_least_to_the_greatest(values in prop::collection::vec(-1e9..1e9_f64, 2..100)) {
            let found = Statistics::of(values.iter().copied()).unwrap();
            let rising = [found.min, found.p50, found.p90, found.p95, found.p99, found.p999, found.p9999, found.max];
            prop_assert!(rising.is_sorted());
            prop_assert!(values.contains(&found.min) && values.contains(&found.max));
        }
    }
}
