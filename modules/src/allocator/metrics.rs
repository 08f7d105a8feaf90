//! Metrics of the allocator under Mesos' names.
//!
//! Computed on request from the allocator's state; only the durations of runs are recorded as they
//! happen.

use std::collections::BTreeMap;
use std::time::Duration;

use module_api::sorter::Pool;
use resources::{Name, Quantities};
use runtime::{Instant, TimeSeries};

use super::explain::Shares;
use super::state::AllocatorState;

/// Window of the statistics of runs, and their largest number.
const WINDOW: Duration = Duration::from_secs(3600);
const RUNS_MAX: usize = 1000;

/// Durations of runs.
pub struct Runs {
    count: u64,
    planned: Option<Instant>,
    began: Instant,
    /// In milliseconds.
    took: TimeSeries<f64>,
    waited: TimeSeries<f64>,
}

impl Default for Runs {
    fn default() -> Self {
        let series = || TimeSeries::new(WINDOW, RUNS_MAX);
        Self {
            count: 0,
            planned: None,
            began: Instant::default(),
            took: series(),
            waited: series(),
        }
    }
}

impl Runs {
    /// An event requires a run.
    pub fn plan(&mut self, now: Instant) {
        self.planned.get_or_insert(now);
    }

    /// A run begins, for all events before it.
    pub fn begin(&mut self, now: Instant) {
        self.count += 1;
        self.began = now;
        let waited = self.planned.take().map(|planned| now - planned);
        self.waited
            .record(now, milliseconds(waited.unwrap_or_default()));
    }

    /// The run ends.
    pub fn end(&mut self, now: Instant) {
        self.took.record(now, milliseconds(now - self.began));
    }
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// All metrics by name.
pub fn metrics(state: &AllocatorState, runs: &Runs) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    let mut put = |name: &str, value: f64| {
        all.insert(format!("allocator/mesos/{name}"), value);
    };
    put("allocation_runs", runs.count as f64);
    for (name, series) in [
        ("allocation_run_ms", &runs.took),
        ("allocation_run_latency_ms", &runs.waited),
    ] {
        put(name, series.latest().map_or(0.0, |(_, value)| value));
        let statistics = series.statistics();
        let flat = statistics.iter().flat_map(|all| all.flat(name));
        flat.for_each(|(name, value)| put(&name, value));
    }
    for (pool, suffix) in [(Pool::Regular, ""), (Pool::Revocable, "_revocable")] {
        let mut held = Quantities::new();
        let records = state.clients.iter();
        records.for_each(|(_, record)| held += record.held(pool));
        let total = state.total(pool);
        let known = [Name::Cpus, Name::Gpus, Name::Mem, Name::Disk];
        let names = total
            .iter()
            .chain(held.iter())
            .map(|(name, _)| name.clone());
        for name in names.chain(known) {
            let of = |what| format!("resources/{name}{suffix}/{what}");
            put(&of("total"), total.get(&name).as_f64());
            put(&of("offered_or_allocated"), held.get(&name).as_f64());
        }
    }
    let shares = Shares::of(state, Pool::Regular);
    for (role, share) in shares.by_role() {
        put(&format!("roles/{role}/shares/dominant"), share);
    }
    let mut filters: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, record) in state.clients.iter().filter(|(_, one)| one.subscribed) {
        *filters.entry(record.role.as_str()).or_default() += record.filtered.len();
    }
    for (role, count) in filters {
        put(&format!("offer_filters/roles/{role}/active"), count as f64);
    }
    for (role, names) in state.quota_names() {
        let held = shares.held_by(role);
        for name in names {
            let what = format!("quota/roles/{role}/resources/{name}/offered_or_allocated");
            put(&what, held.map_or(0.0, |held| held.get(&name).as_f64()));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_counted_with_latency_and_duration() {
        let at = |ms| Instant::default() + Duration::from_millis(ms);
        let mut runs = Runs::default();
        for (planned, begun, ended) in [(Some(10), 12, 15), (None, 1000, 1009)] {
            if let Some(planned) = planned {
                runs.plan(at(planned));
                runs.plan(at(planned + 1));
            }
            runs.begin(at(begun));
            runs.end(at(ended));
        }
        let all = metrics(&AllocatorState::default(), &runs);
        for (name, value) in [
            ("allocation_runs", 2.0),
            ("allocation_run_ms", 9.0),
            ("allocation_run_ms/count", 2.0),
            ("allocation_run_ms/p50", 6.0),
            ("allocation_run_latency_ms", 0.0),
            ("allocation_run_latency_ms/max", 2.0),
            ("resources/cpus/total", 0.0),
            ("resources/mem_revocable/offered_or_allocated", 0.0),
        ] {
            let name = format!("allocator/mesos/{name}");
            assert_eq!(all.get(&name), Some(&value), "{name}");
        }
    }
}
