//! Metrics as Mesos' flat JSON and as Prometheus text.
//!
//! A [`CountersSource`] is read on demand. A part that is late is left out, as Mesos leaves out
//! slow gauges; the others are unaffected.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use authority::Throttle;
use futures_util::future::{BoxFuture, join_all};
use runtime::Node;
use v1::schema::DurationInfo;

/// Values by Mesos' metric names (`master/slaves_active`).
pub type Counters = BTreeMap<String, f64>;

/// Longest wait for counters, whatever a request asks for.
const PATIENCE_MAX: Duration = Duration::from_secs(60);

/// One part of a service's counters. `None`: unavailable.
type Part = Arc<dyn Fn() -> BoxFuture<'static, Option<Counters>> + Send + Sync>;

/// Sources of a service's counters, each with its own timeout. If two have the same name the later
/// one counts.
#[derive(Clone, Default)]
pub struct CountersSource(Vec<Part>);

impl CountersSource {
    /// A source that is read asynchronously; `None` if unavailable.
    pub fn new<F>(look: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Option<Counters>> + Send + 'static,
    {
        Self(vec![Arc::new(move || Box::pin(look()))])
    }

    /// A source that is read immediately.
    pub fn immediate(look: impl Fn() -> Counters + Send + Sync + 'static) -> Self {
        Self::new(move || std::future::ready(Some(look())))
    }

    /// Adds the counters of another source.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// The counters of all parts that answer in time.
    async fn within(&self, node: &Node, patience: Duration) -> Counters {
        let parts = self.0.iter().map(|part| part());
        let in_time = parts.map(|part| node.clock().timeout(patience, part));
        let values = join_all(in_time).await.into_iter();
        values.flatten().flatten().flatten().collect()
    }
}

/// The timeout of `GET_METRICS`, if given. As in Mesos any time is valid; a negative one is zero.
pub fn timeout(requested: Option<&DurationInfo>) -> Option<Duration> {
    requested.map(|timeout| Duration::try_from(timeout).unwrap_or_default())
}

/// The node's and the machine's counters, and those of `own` that arrive in time.
pub async fn collect(node: &Node, own: &CountersSource, patience: Duration) -> Counters {
    let patience = patience.min(PATIENCE_MAX);
    let mut counters = node.counters();
    counters.extend(crate::system::counters());
    counters.extend(own.within(node, patience).await);
    counters
}

/// Calls by principal, as `frameworks/<principal>/messages_*`.
pub fn traffic(throttle: &Throttle) -> Counters {
    let mut counters = Counters::new();
    for (principal, traffic) in throttle.traffic() {
        for (what, value) in [
            ("received", traffic.received),
            ("processed", traffic.processed),
            ("dropped", traffic.dropped),
        ] {
            let name = format!("frameworks/{principal}/messages_{what}");
            counters.insert(name, value as f64);
        }
    }
    counters
}

/// Adds the calls by principal to `own`.
pub fn with_traffic(own: CountersSource, throttle: &Throttle) -> CountersSource {
    let throttle = throttle.clone();
    own.and(CountersSource::immediate(move || traffic(&throttle)))
}

/// Flat JSON, as in `/metrics/snapshot`. PageBody numbers have a `.0`, as in Mesos.
pub fn flat_json(counters: &Counters) -> String {
    let finite: BTreeMap<_, _> = counters
        .iter()
        .filter(|(_, value)| value.is_finite())
        .collect();
    serde_json::to_string(&finite).unwrap_or_else(|_| "{}".to_owned())
}

/// Prometheus text: `master/slaves_active` becomes `meros_master_slaves_active`.
pub fn prometheus_text(counters: &Counters) -> String {
    let mut text = String::new();
    for (name, value) in counters {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{} {value}", prometheus_name(name));
    }
    text
}

fn prometheus_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    format!("meros_{}", name.chars().map(plain).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::testing::simulate;

    fn sample() -> Counters {
        Counters::from([
            ("master/slaves_active".to_owned(), 3.0),
            ("process/rate-limiter(1)/depth".to_owned(), 0.5),
        ])
    }

    // Covers 6.3 Metrics.
    #[test]
    fn the_snapshot_is_flat_and_keeps_mesos_names() {
        assert_eq!(
            flat_json(&sample()),
            r#"{"master/slaves_active":3.0,"process/rate-limiter(1)/depth":0.5}"#
        );
    }

    /// SPEC 6.3: a slow gauge is left out after the requested timeout; the others are unaffected.
    // Covers 6.3 Metrics.
    #[test]
    fn late_metrics_are_omitted() {
        simulate(|node| async move {
            let named = |name: &str| Counters::from([(name.to_owned(), 1.0)]);
            let after = |wait: u64| {
                let clock = node.clock().clone();
                CountersSource::new(move || {
                    let late = clock.sleep(Duration::from_secs(wait));
                    async move {
                        late.await;
                        Some(sample())
                    }
                })
            };
            for (wait, told) in [(2, true), (4, false)] {
                let cannot = CountersSource::new(|| async { None });
                let own = after(wait)
                    .and(cannot)
                    .and(CountersSource::immediate(move || named("at/hand")));
                let asked = node.clock().now();
                let counters = collect(&node, &own, Duration::from_secs(3)).await;
                let took = node.clock().now() - asked;
                assert_eq!(took, Duration::from_secs(wait.min(3)));
                assert_eq!(counters.contains_key("master/slaves_active"), told);
                assert!(counters.contains_key("at/hand"), "{counters:?}");
                assert!(counters.contains_key("system/cpus_total"), "{counters:?}");
            }
        });
    }

    // Covers 6.3 Metrics.
    #[test]
    fn prometheus_names_are_valid() {
        assert_eq!(
            prometheus_text(&sample()),
            "meros_master_slaves_active 3\nmeros_process_rate_limiter_1__depth 0.5\n"
        );
    }

    #[test]
    fn the_snapshot_omits_non_finite_counters() {
        assert_eq!(
            flat_json(&Counters::from([("a".to_owned(), f64::NAN)])),
            "{}"
        );
    }
}
