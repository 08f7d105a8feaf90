//! The receiver's state: the progress of each sender's stream.
//!
//! Pure: no mailbox, clock or I/O. It holds one number and the newest refusals per stream, and no
//! messages: a message that arrives too early must be resent. An unknown stream starts at its
//! sender's lowest unacknowledged number, so a new receiver continues where the old one ended.
//! Handling is left to the caller.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use super::{AGE_MAX, NotAcknowledged, SequenceAck, Sequenced};
use crate::clock::Instant;
use crate::identity::{NodeId, Pid};

/// Maximum number of streams, about 200 bytes each plus refusals. When all are in use, a new sender
/// must retry.
const STREAMS_MAX: usize = 65_536;
/// Maximum number of streams of one node. A further one replaces that node's least recently active
/// stream, so that no node can exclude others.
const STREAMS_PER_NODE_MAX: usize = 1_024;
/// When all are in use, streams idle for this long are forgotten. A reliable sender with
/// unacknowledged messages resends at least every ten seconds while it reaches this actor.
const IDLE_MAX: Duration = Duration::from_secs(600);
/// Minimum time between two searches for those.
const CROWDED_SEARCH_INTERVAL: Duration = Duration::from_secs(1);
/// How long a stream is remembered after its last message.
const REMEMBERED: Duration = Duration::from_secs(2 * AGE_MAX.as_secs());
/// Minimum time between two searches for expired streams.
const SEARCH_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of refusals per stream until its sender has acknowledged them; then no more
/// messages are handled.
const REFUSED_MAX: usize = 64;
/// Maximum bytes of a refusal's reason.
const REASON_MAX: usize = 256;

/// The streams to an actor. A field of the actor, with the same lifetime.
#[derive(Debug, Default)]
pub struct DedupReceiver {
    nodes: BTreeMap<NodeId, BTreeMap<(Pid, u64), Stream>>,
    /// The number of streams of all nodes.
    count: usize,
    last_search: Instant,
}

/// The state of one stream.
#[derive(Debug)]
pub(super) struct Stream {
    /// The next expected number: all below are done.
    next: u64,
    refused: BTreeMap<u64, String>,
    last_seen: Instant,
}

/// The messages of an envelope, classified by position.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Classified {
    /// Messages at the beginning that were already done.
    pub(super) duplicates: usize,
    /// Messages at the end that cannot be handled yet, because an earlier one is missing.
    pub(super) early: usize,
    /// Messages to handle now.
    pub(super) fresh: Range<usize>,
}

impl DedupReceiver {
    /// How many of these messages are new and could be handled now.
    pub fn fresh(&self, numbered: &Sequenced) -> usize {
        let Sequenced {
            from,
            stream,
            floor,
            first,
            messages,
        } = numbered;
        let known = self.nodes.get(from.node());
        let known = known.and_then(|streams| streams.get(&(from.clone(), *stream)));
        let next = known.map_or(*floor, |stream| stream.next.max(*floor));
        let handled = usize::try_from(next.saturating_sub(*first));
        match *first > next {
            true => 0,
            false => messages.len().saturating_sub(handled.unwrap_or(usize::MAX)),
        }
    }

    /// Removes a stream to work on it; [`put_back`](Self::put_back) returns it.
    pub(super) fn take_out(
        &mut self,
        from: &Pid,
        stream: u64,
        floor: u64,
        now: Instant,
    ) -> Result<Stream, NotAcknowledged> {
        let known = self.nodes.get_mut(from.node());
        let mut stream = match known.and_then(|streams| streams.remove(&(from.clone(), stream))) {
            Some(stream) => {
                self.count -= 1;
                stream
            }
            None => {
                self.make_room(from.node(), now)?;
                Stream {
                    next: floor,
                    refused: BTreeMap::new(),
                    last_seen: now,
                }
            }
        };
        stream.last_seen = now;
        // Its sender has given up everything below the floor.
        stream.next = stream.next.max(floor);
        stream.refused = stream.refused.split_off(&floor);
        Ok(stream)
    }

    pub(super) fn put_back(&mut self, from: Pid, number: u64, stream: Stream) {
        let streams = self.nodes.entry(from.node().clone()).or_default();
        self.count += usize::from(streams.insert((from, number), stream).is_none());
    }

    /// Ensures that one more stream of this node can be added.
    fn make_room(&mut self, node: &NodeId, now: Instant) -> Result<(), NotAcknowledged> {
        let (every, since) = match self.count >= STREAMS_MAX {
            true => (CROWDED_SEARCH_INTERVAL, IDLE_MAX),
            false => (SEARCH_INTERVAL, REMEMBERED),
        };
        if now - self.last_search >= every {
            self.forget_idle(since, now);
        }
        if let Some(streams) = self.nodes.get_mut(node)
            && streams.len() >= STREAMS_PER_NODE_MAX
        {
            let oldest = streams.iter().min_by_key(|(_, stream)| stream.last_seen);
            if let Some(oldest) = oldest.map(|(oldest, _)| oldest.clone()) {
                streams.remove(&oldest);
                self.count -= 1;
            }
        }
        if self.count >= STREAMS_MAX {
            let reason = format!("too many senders, expected at most {STREAMS_MAX}");
            return Err(NotAcknowledged::NotNow { reason });
        }
        Ok(())
    }

    fn forget_idle(&mut self, since: Duration, now: Instant) {
        self.last_search = now;
        self.nodes.retain(|_, streams| {
            streams.retain(|_, stream| now - stream.last_seen < since);
            !streams.is_empty()
        });
        self.count = self.nodes.values().map(BTreeMap::len).sum();
    }

    /// The number of streams.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.count
    }
}

impl Stream {
    /// Classifies `count` messages that are numbered from `first` on.
    pub(super) fn classify(&self, first: u64, count: usize) -> Classified {
        if first > self.next {
            return Classified {
                duplicates: 0,
                early: count,
                fresh: count..count,
            };
        }
        let known = usize::try_from(self.next - first).unwrap_or(usize::MAX);
        let duplicates = known.min(count);
        Classified {
            duplicates,
            early: 0,
            fresh: duplicates..count,
        }
    }

    /// Whether another message may be handled or refused.
    pub(super) fn may_continue(&self) -> bool {
        self.refused.len() < REFUSED_MAX && self.next < u64::MAX
    }

    /// The next expected message has been handled.
    pub(super) fn handled(&mut self) {
        self.next += 1;
    }

    /// The next expected message can never be handled.
    pub(super) fn refuse(&mut self, mut reason: String) {
        let end = (0..=REASON_MAX)
            .rev()
            .find(|at| reason.is_char_boundary(*at));
        reason.truncate(end.unwrap_or(0));
        self.refused.insert(self.next, reason);
        self.next += 1;
    }

    /// The acknowledgement for its sender.
    pub(super) fn taken(&self) -> SequenceAck {
        let refused = self.refused.iter();
        SequenceAck {
            next: self.next,
            refused: refused.map(|(at, why)| (*at, why.clone())).collect(),
        }
    }
}
