//! Metrics of a master: of its state, its allocator, its registry, and of the process.
//!
//! The four are collected independently, so that a master that is busy with one long message still
//! shows its queue length, event subscribers and group status.

use std::collections::BTreeMap;

use ::http::CountersSource;
use authority::Throttle;
use module_api::AllocatorRef;
use runtime::Node;

use super::{EventStream, fresh, metrics};
use crate::api::pages::source;
use crate::api::v0::registrar;
use crate::leadership::LocalLeader;

/// The counters of the local master and its allocator. Without a local master they are the
/// leader's, from the mirror, with its age as `master/mirror_staleness_secs` and without the
/// allocator's; but `master/elected`, `master/term`, `master/uptime_secs` and `master/deposed` are
/// always this master's, as are the counters of each principal's calls
/// (`frameworks/<principal>/messages_*`).
pub fn counters(
    local: &LocalLeader,
    node: &Node,
    allocator: &AllocatorRef,
    events: &EventStream,
    throttle: &Throttle,
) -> CountersSource {
    let (of, on) = (local.clone(), node.clone());
    let state = CountersSource::new(move || of_state(of.clone(), on.clone()));
    let (of, measured) = (local.clone(), allocator.clone());
    let allocation = CountersSource::new(move || {
        // A mirror has no allocator; a late allocator, or one without metrics, is left out.
        let measured = of.master().map(|_| measured.measure());
        async move { measured?.await.ok() }
    });
    let (of, on) = (local.clone(), node.clone());
    let registry = CountersSource::new(move || of_registry(of.clone(), on.clone()));
    let (of, on, allocator) = (local.clone(), node.clone(), allocator.clone());
    let (events, throttle, hits) = (events.clone(), throttle.clone(), local.hits());
    let immediate = CountersSource::immediate(move || {
        let mut all = queues(&of, &on, &allocator);
        // Of this process, by its monotonic clock: the wall clock may be set.
        let uptime = on.clock().now().since_start();
        for (name, value) in [
            ("uptime_secs", uptime.as_secs_f64()),
            ("deposed", of.deposed() as f64),
            (
                "operator_event_stream_subscribers",
                events.subscribers() as f64,
            ),
            ("http_cache_hits", hits.count() as f64),
        ] {
            all.insert(format!("master/{name}"), value);
        }
        all.extend(events.cut_off());
        all.extend(::http::system::metrics::traffic(&throttle));
        all
    });
    state.and(allocation).and(registry).and(immediate)
}

/// Metrics of the state: the local master's or a mirror's.
async fn of_state(local: LocalLeader, node: Node) -> Option<BTreeMap<String, f64>> {
    let now = node.clock().wall();
    if let Some(master) = local.master() {
        let state = source::snapshot(&master).await?;
        return node.blocking(move || metrics(&state, now)).await.ok();
    }
    let mut all = BTreeMap::new();
    if let Some(mirrored) = fresh(&local, &node) {
        let staleness = mirrored.staleness(node.clock().now()).as_secs_f64();
        let made = node.blocking(move || metrics(&mirrored.state, now)).await;
        all = made.ok()?;
        all.insert("master/mirror_staleness_secs".to_owned(), staleness);
    }
    all.insert("master/elected".to_owned(), 0.0);
    all.insert("master/term".to_owned(), local.term() as f64);
    Some(all)
}

/// Metrics of the registry and of this node's member.
async fn of_registry(local: LocalLeader, node: Node) -> Option<BTreeMap<String, f64>> {
    let status = local.member()?.status();
    Some(registrar::look(&local.meter(), &node, status).await)
}

/// Queue lengths of the local master and its allocator.
fn queues(local: &LocalLeader, node: &Node, allocator: &AllocatorRef) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    let Some(master) = local.master() else {
        return all;
    };
    for process in node.processes() {
        // Each has one queue for all messages; pages bypass it.
        let name = match &process.name {
            name if *name == allocator.pid().name() => "allocator/mesos/event_queue_dispatches",
            name if *name == master.pid().name() => "master/event_queue_messages",
            _ => continue,
        };
        all.insert(name.to_owned(), process.depth as f64);
        if name.starts_with("allocator/") {
            // Mesos also has an older name for it.
            all.insert(
                "allocator/event_queue_dispatches".to_owned(),
                process.depth as f64,
            );
        }
    }
    for none in ["dispatches", "http_requests"] {
        all.insert(format!("master/event_queue_{none}"), 0.0);
    }
    all
}
