//! Seen from outside: what a node's actors and links are doing, for metrics and `/__processes__`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

use crate::delivery;
use crate::identity::Pid;
use crate::node::Node;

/// One living actor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessInfo {
    /// Its name.
    pub name: String,
    /// Its present pid.
    pub pid: Pid,
    /// Messages waiting in its mailbox.
    pub depth: u64,
    /// Messages this incarnation has handled, by type.
    pub handled: BTreeMap<String, u64>,
    /// How often it was restarted.
    pub restarts: u32,
    /// Median handling time of the messages sampled last (one in 64 is timed).
    pub handling_p50: Duration,
    /// 99th percentile of the same.
    pub handling_p99: Duration,
}

/// What links met that was not taken.
#[derive(Default)]
pub(crate) struct Counts {
    unknown_process: AtomicU64,
    unknown_message: AtomicU64,
    wrong_role: AtomicU64,
    mailbox_full: AtomicU64,
    garbled: AtomicU64,
    pub(crate) delivery: delivery::Counts,
}

impl Counts {
    pub(crate) fn unknown_process(&self) {
        self.unknown_process.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn unknown_message(&self) {
        self.unknown_message.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn wrong_role(&self) {
        self.wrong_role.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn mailbox_full(&self) {
        self.mailbox_full.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn garbled(&self) {
        self.garbled.fetch_add(1, Ordering::Relaxed);
    }
}

impl Node {
    /// Every living actor, by name.
    pub fn processes(&self) -> Vec<ProcessInfo> {
        let infos = self.registry().living().into_iter().map(|entry| {
            let mut handled = BTreeMap::new();
            for (name, count) in entry.meter.tallies() {
                *handled.entry(name.to_owned()).or_default() += count;
            }
            let (handling_p50, handling_p99) = entry.meter.timings();
            ProcessInfo {
                name: entry.pid.name().to_owned(),
                pid: entry.pid.clone(),
                depth: entry.meter.depth(),
                handled,
                restarts: entry.restarts,
                handling_p50,
                handling_p99,
            }
        });
        infos.collect()
    }

    /// The same and the links' counts, flat: `process/<name>/depth`, `link/<node>/queued_bytes` and so on.
    pub fn counters(&self) -> BTreeMap<String, f64> {
        let mut flat = BTreeMap::new();
        for info in self.processes() {
            let mut put = |what: &str, value: f64| {
                flat.insert(format!("process/{}/{what}", info.name), value)
            };
            put("depth", info.depth as f64);
            put("handled", info.handled.values().sum::<u64>() as f64);
            put("restarts", f64::from(info.restarts));
            put("handling_p50_secs", info.handling_p50.as_secs_f64());
            put("handling_p99_secs", info.handling_p99.as_secs_f64());
        }
        for connection in self.connections() {
            let mut put = |what: &str, value: f64| {
                flat.insert(format!("link/{}/{what}", connection.peer.node), value);
            };
            put("queued_bytes", connection.outbox.queued() as f64);
            put(
                "frames_delivered",
                connection.delivered.load(Ordering::Relaxed) as f64,
            );
        }
        let counts = self.counts();
        for (name, count) in [
            ("refused/unknown_process", &counts.unknown_process),
            ("refused/unknown_message", &counts.unknown_message),
            ("refused/wrong_role", &counts.wrong_role),
            ("refused/mailbox_full", &counts.mailbox_full),
            ("links/garbled", &counts.garbled),
        ] {
            flat.insert(name.to_owned(), count.load(Ordering::Relaxed) as f64);
        }
        counts.delivery.put(&mut flat);
        flat
    }
}
