//! What the metrics pages say of a master (SPEC 3.10, 6.3): of its books, of its allocator, of its registry, and what is at hand.
//!
//! Each of the four is waited for by itself, so that a master which is at one long message is still seen to be: with how many wait for it, who
//! reads its events, and how it stands in its group.

use std::collections::BTreeMap;

use ::http::CountersSource;
use authority::Throttle;
use module_api::AllocatorRef;
use runtime::Node;

use super::{EventStream, fresh, metrics, registrar, source};
use crate::office::Front;

/// The master's own counters, for the metrics pages, and those of its allocator. Where no master acts they are the leader's, from the
/// mirror, with its age as `master/mirror_staleness_secs` and without what its allocator measures; but `master/elected`, `master/term`,
/// `master/uptime_secs` and `master/deposed` are always this master's, and so is what has come of each principal's calls (`frameworks/<principal>/messages_*`).
pub fn counters(
    front: &Front,
    node: &Node,
    allocator: &AllocatorRef,
    events: &EventStream,
    throttle: &Throttle,
) -> CountersSource {
    let (of, on) = (front.clone(), node.clone());
    let books = CountersSource::new(move || of_books(of.clone(), on.clone()));
    let (of, measured) = (front.clone(), allocator.clone());
    let allocation = CountersSource::new(move || {
        // A mirror knows nothing of it, and one that is late or has no metrics is left out.
        let measured = of.master().map(|_| measured.measure());
        async move { measured?.await.ok() }
    });
    let (of, on) = (front.clone(), node.clone());
    let registry = CountersSource::new(move || of_registry(of.clone(), on.clone()));
    let (of, on, allocator) = (front.clone(), node.clone(), allocator.clone());
    let (events, throttle, hits) = (events.clone(), throttle.clone(), front.hits());
    let at_hand = CountersSource::at_hand(move || {
        let mut all = queues(&of, &on, &allocator);
        // Of this process, and of its monotonic clock: the wall clock may be set.
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
        all.extend(::http::metrics::traffic(&throttle));
        all
    });
    books.and(allocation).and(registry).and(at_hand)
}

/// What the books say, be they those of the master that acts here or of a mirror.
async fn of_books(front: Front, node: Node) -> Option<BTreeMap<String, f64>> {
    let now = node.clock().wall();
    if let Some(master) = front.master() {
        let books = source::glance(&master).await?;
        return node.blocking(move || metrics(&books, now)).await.ok();
    }
    let mut all = BTreeMap::new();
    if let Some(mirrored) = fresh(&front, &node) {
        let staleness = mirrored.staleness(node.clock().now()).as_secs_f64();
        let made = node.blocking(move || metrics(&mirrored.books, now)).await;
        all = made.ok()?;
        all.insert("master/mirror_staleness_secs".to_owned(), staleness);
    }
    all.insert("master/elected".to_owned(), 0.0);
    all.insert("master/term".to_owned(), front.term() as f64);
    Some(all)
}

/// What is measured of the registry, and how this node's member stands. Only the books of a master that is alone say whether it was read.
async fn of_registry(front: Front, node: Node) -> Option<BTreeMap<String, f64>> {
    let standing = front.member().map(|member| member.status());
    let is_ready = match (&standing, front.master()) {
        (None, Some(master)) => source::glance(&master).await?.has_begun(),
        _ => false,
    };
    Some(registrar::look(&front.meter(), &node, standing, is_ready).await)
}

/// How many messages wait for the master that acts here, and for its allocator.
fn queues(front: &Front, node: &Node, allocator: &AllocatorRef) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    let Some(master) = front.master() else {
        return all;
    };
    for process in node.processes() {
        // Each has one queue for all that it hears; pages wait for none of them.
        let name = match &process.name {
            name if *name == allocator.pid().name() => "allocator/mesos/event_queue_dispatches",
            name if *name == master.pid().name() => "master/event_queue_messages",
            _ => continue,
        };
        all.insert(name.to_owned(), process.depth as f64);
        if name.starts_with("allocator/") {
            // Mesos has it by an older name, too.
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
