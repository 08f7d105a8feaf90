//! Metrics in two forms: Mesos' flat JSON and Prometheus text (SPEC 3.10, 6.3).
//!
//! A [`CountersSource`] is asked when someone looks and not before; of its parts one that is late is left out, as Mesos leaves slow gauges
//! out, and costs nobody the others.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use authority::Throttle;
use futures_util::future::{BoxFuture, join_all};
use runtime::Node;
use v1::schema::DurationInfo;

/// Names as Mesos has them (`master/slaves_active`), each with its value now.
pub type Counters = BTreeMap<String, f64>;

/// The longest wait for counters, whatever a request asks for: no gauge takes so long.
const PATIENCE_MAX: Duration = Duration::from_secs(60);

/// One part of a service's counters. `None`: it could not say.
type Part = Arc<dyn Fn() -> BoxFuture<'static, Option<Counters>> + Send + Sync>;

/// Where a service's counters come from: parts, each of which is waited for by itself. Where two tell the same name the later part counts.
#[derive(Clone, Default)]
pub struct CountersSource(Vec<Part>);

impl CountersSource {
    /// What this tells, if it can and does in time.
    pub fn new<F>(look: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Option<Counters>> + Send + 'static,
    {
        Self(vec![Arc::new(move || Box::pin(look()))])
    }

    /// What costs nothing to tell.
    pub fn at_hand(look: impl Fn() -> Counters + Send + Sync + 'static) -> Self {
        Self::new(move || std::future::ready(Some(look())))
    }

    /// These, and those of another one.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// What its parts tell in time.
    async fn within(&self, node: &Node, patience: Duration) -> Counters {
        let parts = self.0.iter().map(|part| part());
        let in_time = parts.map(|part| node.clock().timeout(patience, part));
        let told = join_all(in_time).await.into_iter();
        told.flatten().flatten().flatten().collect()
    }
}

/// How long `GET_METRICS` waits for counters, if it says so. As by Mesos any time is taken; a negative one is none.
pub fn patience(asked: Option<&DurationInfo>) -> Option<Duration> {
    asked.map(|timeout| Duration::try_from(timeout).unwrap_or_default())
}

/// The runtime's counters of this node, the machine's, and of the service's own those that come in time.
pub async fn collect(node: &Node, own: &CountersSource, patience: Duration) -> Counters {
    let patience = patience.min(PATIENCE_MAX);
    let mut counters = node.counters();
    counters.extend(crate::system::counters());
    counters.extend(own.within(node, patience).await);
    counters
}

/// What has come of each principal's calls, as `frameworks/<principal>/messages_*` (SPEC 3.3).
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

/// A source that tells that too.
pub fn with_traffic(own: CountersSource, throttle: &Throttle) -> CountersSource {
    let throttle = throttle.clone();
    own.and(CountersSource::at_hand(move || traffic(&throttle)))
}

/// Flat JSON, as `/metrics/snapshot` has it. Whole numbers are printed with `.0`, as Mesos prints them.
pub fn flat_json(counters: &Counters) -> String {
    let finite: BTreeMap<_, _> = counters
        .iter()
        .filter(|(_, value)| value.is_finite())
        .collect();
    serde_json::to_string(&finite).unwrap_or_else(|_| "{}".to_owned())
}

/// Prometheus' text form: `master/slaves_active` becomes `meros_master_slaves_active`.
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
    use runtime::rehearsal::rehearse;

    fn sample() -> Counters {
        Counters::from([
            ("master/slaves_active".to_owned(), 3.0),
            ("process/rate-limiter(1)/depth".to_owned(), 0.5),
        ])
    }

    #[test]
    fn the_snapshot_is_flat_and_keeps_mesos_names() {
        assert_eq!(
            flat_json(&sample()),
            r#"{"master/slaves_active":3.0,"process/rate-limiter(1)/depth":0.5}"#
        );
    }

    /// SPEC 6.3: a slow gauge is left out when the time that was asked for is over, and costs nobody the others.
    #[test]
    fn what_is_late_is_left_out_and_the_rest_is_told_in_time() {
        rehearse(|node| async move {
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
                    .and(CountersSource::at_hand(move || named("at/hand")));
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

    #[test]
    fn prometheus_gets_names_it_accepts() {
        assert_eq!(
            prometheus_text(&sample()),
            "meros_master_slaves_active 3\nmeros_process_rate_limiter_1__depth 0.5\n"
        );
    }

    #[test]
    fn a_counter_that_is_no_number_does_not_spoil_the_snapshot() {
        assert_eq!(
            flat_json(&Counters::from([("a".to_owned(), f64::NAN)])),
            "{}"
        );
    }
}
