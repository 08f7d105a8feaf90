//! The receiver's ledger: what of each sender's stream has been handled (S132).
//!
//! Pure: no mailbox, clock or I/O. It remembers one number and the newest refusals for each stream, and no message: what
//! comes too early is asked for again. A stream it has not met begins at the lowest number that its sender still waits
//! for, so that a new receiver goes on where the old one ended. It never handles anything itself.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use super::{AGE_MAX, NotTaken, Numbered, Taken};
use crate::clock::Instant;
use crate::identity::{NodeId, Pid};

/// Streams remembered, about 200 bytes each beside what was refused. When all of them are in use, a new sender is told to come again.
const STREAMS_MAX: usize = 65_536;
/// Streams of one node. One more takes the place of the one of that node that was heard longest ago, so that no node shuts others out.
const OF_NODE_MAX: usize = 1_024;
/// Where all are in use, those that have been silent for so long are forgotten: a courier that still waits for something says so every ten
/// seconds, as long as it reaches this actor.
const SILENT_MAX: Duration = Duration::from_secs(600);
/// Between two looks for those.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long a stream is remembered after its sender's last word.
const REMEMBERED: Duration = Duration::from_secs(2 * AGE_MAX.as_secs());
/// Between two looks for streams to be forgotten.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Refusals kept for one stream until its sender has heard of them; then nothing more is taken.
const REFUSED_MAX: usize = 64;
/// Bytes of a refusal's reason.
const REASON_MAX: usize = 256;

/// The streams that an actor hears. A field of the actor: its life is the memory's.
#[derive(Debug, Default)]
pub struct Incoming {
    nodes: BTreeMap<NodeId, BTreeMap<(Pid, u64), Stream>>,
    /// Of all nodes together.
    count: usize,
    looked: Instant,
}

/// What is known of one stream.
#[derive(Debug)]
pub(super) struct Stream {
    /// The number wanted next: all below are over.
    next: u64,
    refused: BTreeMap<u64, String>,
    heard: Instant,
}

/// What is to be done with the messages of an envelope, by their places in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// So many at the beginning were over already.
    pub(super) duplicates: usize,
    /// So many at the end cannot be handled yet: one before them is missing.
    pub(super) early: usize,
    /// The others are to be handled.
    pub(super) fresh: Range<usize>,
}

impl Incoming {
    /// How many of these have not been handled yet and could be now.
    pub fn fresh(&self, numbered: &Numbered) -> usize {
        let Numbered {
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

    /// Takes a stream out of the book to work on it; [`put_back`](Self::put_back) returns it.
    pub(super) fn take_out(
        &mut self,
        from: &Pid,
        stream: u64,
        floor: u64,
        now: Instant,
    ) -> Result<Stream, NotTaken> {
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
                    heard: now,
                }
            }
        };
        stream.heard = now;
        // What its sender waits for no more will not come.
        stream.next = stream.next.max(floor);
        stream.refused = stream.refused.split_off(&floor);
        Ok(stream)
    }

    pub(super) fn put_back(&mut self, from: Pid, number: u64, stream: Stream) {
        let streams = self.nodes.entry(from.node().clone()).or_default();
        self.count += usize::from(streams.insert((from, number), stream).is_none());
    }

    /// Sees to it that one more stream of this node can be remembered.
    fn make_room(&mut self, node: &NodeId, now: Instant) -> Result<(), NotTaken> {
        let (every, since) = match self.count >= STREAMS_MAX {
            true => (LOOK_AGAIN, SILENT_MAX),
            false => (LOOK_EVERY, REMEMBERED),
        };
        if now - self.looked >= every {
            self.forget_silent(since, now);
        }
        if let Some(streams) = self.nodes.get_mut(node)
            && streams.len() >= OF_NODE_MAX
        {
            let oldest = streams.iter().min_by_key(|(_, stream)| stream.heard);
            if let Some(oldest) = oldest.map(|(oldest, _)| oldest.clone()) {
                streams.remove(&oldest);
                self.count -= 1;
            }
        }
        if self.count >= STREAMS_MAX {
            let reason = format!("{STREAMS_MAX} senders are heard already");
            return Err(NotTaken::NotNow { reason });
        }
        Ok(())
    }

    fn forget_silent(&mut self, since: Duration, now: Instant) {
        self.looked = now;
        self.nodes.retain(|_, streams| {
            streams.retain(|_, stream| now - stream.heard < since);
            !streams.is_empty()
        });
        self.count = self.nodes.values().map(BTreeMap::len).sum();
    }

    /// Streams remembered now.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.count
    }
}

impl Stream {
    /// Sorts `count` messages that are numbered from `first` on.
    pub(super) fn share(&self, first: u64, count: usize) -> Share {
        if first > self.next {
            return Share {
                duplicates: 0,
                early: count,
                fresh: count..count,
            };
        }
        let known = usize::try_from(self.next - first).unwrap_or(usize::MAX);
        let duplicates = known.min(count);
        Share {
            duplicates,
            early: 0,
            fresh: duplicates..count,
        }
    }

    /// Whether another message may be handled, or refused.
    pub(super) fn may_go_on(&self) -> bool {
        self.refused.len() < REFUSED_MAX && self.next < u64::MAX
    }

    /// The message wanted next has been handled.
    pub(super) fn handled(&mut self) {
        self.next += 1;
    }

    /// The message wanted next cannot be handled, now or later.
    pub(super) fn refuse(&mut self, mut reason: String) {
        let end = (0..=REASON_MAX)
            .rev()
            .find(|at| reason.is_char_boundary(*at));
        reason.truncate(end.unwrap_or(0));
        self.refused.insert(self.next, reason);
        self.next += 1;
    }

    /// What its sender is told.
    pub(super) fn taken(&self) -> Taken {
        let refused = self.refused.iter();
        Taken {
            next: self.next,
            refused: refused.map(|(at, why)| (*at, why.clone())).collect(),
        }
    }
}
