//! Measurements of a registry, under the names of Mesos' registrar metrics.
//!
//! [`Metered`] wraps a registry with a clock: forwards requests, and records the time to the
//! answers in a [`RegistryMeter`], which is shared with the metrics page. Does not change or delay
//! anything.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use protocol::FrameworkId;
use protocol::message::state::StateValue;
use runtime::{Clock, Instant, TimeSeries};

use super::{Applied, Registry, RegistryError, RegistryOperation, RegistryState};

/// The window of the measurements, as in Mesos, and the maximum number of operations in it.
const WINDOW: Duration = Duration::from_secs(24 * 3600);
const OPERATIONS_MAX: usize = 1000;

/// Measurements of a registry, shared by clones.
#[derive(Clone, Debug, Default)]
pub struct RegistryMeter(Arc<Mutex<Figures>>);

#[derive(Debug)]
struct Figures {
    /// Operations without an answer.
    queued: u64,
    /// Milliseconds of the last full read.
    fetched: Option<f64>,
    /// Milliseconds of operations, until they are synced to a majority's disks.
    stored: TimeSeries<f64>,
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            queued: 0,
            fetched: None,
            stored: TimeSeries::new(WINDOW, OPERATIONS_MAX),
        }
    }
}

impl RegistryMeter {
    /// All measurements by name.
    pub fn metrics(&self) -> BTreeMap<String, f64> {
        self.change(|figures| {
            let mut all = BTreeMap::new();
            let mut put = |name: &str, value: f64| {
                all.insert(format!("registrar/{name}"), value);
            };
            put("queued_operations", figures.queued as f64);
            let stored = figures.stored.latest();
            put("state_store_ms", stored.map_or(0.0, |(_, took)| took));
            for (name, value) in figures
                .stored
                .statistics()
                .iter()
                .flat_map(|all| all.flat("state_store_ms"))
            {
                put(&name, value);
            }
            if let Some(took) = figures.fetched {
                put("state_fetch_ms", took);
            }
            all
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Figures) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// An operation under way: counted until it is answered or its caller has gone.
struct Queued(RegistryMeter);

impl Queued {
    fn new(meter: &RegistryMeter) -> Self {
        meter.change(|figures| figures.queued += 1);
        Self(meter.clone())
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.0
            .change(|figures| figures.queued = figures.queued.saturating_sub(1));
    }
}

/// A measured registry.
pub(crate) struct Metered {
    registry: Box<dyn Registry>,
    clock: Clock,
    meter: RegistryMeter,
}

impl Metered {
    /// Wraps a registry, measured with this clock.
    pub fn new(registry: Box<dyn Registry>, clock: Clock) -> (Self, RegistryMeter) {
        let meter = RegistryMeter::default();
        let metered = Self {
            registry,
            clock,
            meter: meter.clone(),
        };
        (metered, meter)
    }
}

fn milliseconds(since: Instant, clock: &Clock) -> f64 {
    (clock.now() - since).as_secs_f64() * 1000.0
}

impl Registry for Metered {
    fn apply(
        &mut self,
        operation: RegistryOperation,
    ) -> BoxFuture<'static, Result<Applied, RegistryError>> {
        let queued = Queued::new(&self.meter);
        let (clock, began) = (self.clock.clone(), self.clock.now());
        let applied = self.registry.apply(operation);
        async move {
            let applied = applied.await;
            if applied.is_ok() {
                let took = milliseconds(began, &clock);
                queued
                    .0
                    .change(|figures| figures.stored.record(clock.now(), took));
            }
            applied
        }
        .boxed()
    }

    fn read(&mut self) -> BoxFuture<'static, Result<RegistryState, RegistryError>> {
        let (clock, began) = (self.clock.clone(), self.clock.now());
        let (read, meter) = (self.registry.read(), self.meter.clone());
        async move {
            let read = read.await;
            if read.is_ok() {
                let took = milliseconds(began, &clock);
                meter.change(|figures| figures.fetched = Some(took));
            }
            read
        }
        .boxed()
    }

    fn still_leads(&mut self) -> BoxFuture<'static, Result<(), RegistryError>> {
        self.registry.still_leads()
    }

    fn framework_state(
        &mut self,
        framework_id: &FrameworkId,
        key: &str,
    ) -> BoxFuture<'static, Result<Option<StateValue>, RegistryError>> {
        self.registry.framework_state(framework_id, key)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use runtime::testing::simulate;

    use super::*;
    use crate::registry::MemoryRegistry;

    fn weights() -> RegistryOperation {
        let weights = BTreeMap::from([("ads".to_owned(), Some(2.0))]);
        RegistryOperation::UpdateWeights { weights }
    }

    /// SPEC 3.1.
    #[test]
    fn pending_operations_are_counted_and_stored_ones_timed() {
        simulate(|node| async move {
            let clock = node.clock().clone();
            let (mut registry, meter) =
                Metered::new(Box::new(MemoryRegistry::new()), clock.clone());
            let names = |metrics: BTreeMap<String, f64>| metrics.into_keys().collect::<Vec<_>>();
            assert_eq!(
                names(meter.metrics()),
                ["registrar/queued_operations", "registrar/state_store_ms"]
            );
            let waits = registry.apply(weights());
            let given_up = registry.apply(weights());
            assert_eq!(meter.metrics()["registrar/queued_operations"], 2.0);
            clock.advance(Duration::from_millis(20)).await;
            waits.await.unwrap();
            drop(given_up);
            let metrics = meter.metrics();
            assert_eq!(metrics["registrar/queued_operations"], 0.0);
            assert_eq!(metrics["registrar/state_store_ms"], 20.0);
            clock.advance(Duration::from_millis(1)).await;
            registry.apply(weights()).await.unwrap();
            let metrics = meter.metrics();
            assert_eq!(metrics["registrar/state_store_ms/count"], 2.0);
            assert_eq!(metrics["registrar/state_store_ms/max"], 20.0);
            assert_eq!(metrics["registrar/state_store_ms/p50"], 10.0);
            assert!(!metrics.contains_key("registrar/state_fetch_ms"));
            registry.read().await.unwrap();
            assert_eq!(meter.metrics()["registrar/state_fetch_ms"], 0.0);
        });
    }
}
