//! The unread events of one stream, stored compactly.
//!
//! Plain data: times are passed in. If many events are unread, small ones are merged into chunks,
//! each of which is read at once, since a separate event costs as much overhead as its bytes.
//! Events for many streams share their memory ([`Batch`]). Chunks that a connection has taken and
//! not sent are counted until it releases them. Wakes no tasks and cuts off no readers.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use runtime::Instant;

/// Maximum bytes of a chunk of merged events; a larger event is a chunk of its own. A connection
/// holds up to 16 unsent chunks.
const PIECE_BYTES: usize = 4 << 10;
/// Unread events up to this number are not merged. So a reader that keeps up gets each event in a
/// chunk of its own, as from Mesos: RecordIO does not promise that, but some clients rely on it.
const SEPARATE_MAX: usize = 64;
/// Overhead of a chunk: its queue entry, allocator rounding, and the connection's bookkeeping.
pub(super) const PIECE_COST: usize = 192;
/// Capacity that is kept when the queue is empty.
const PIECES_KEPT: usize = 8;

/// Chunks of whole records for several streams of one encoding, which share the memory.
#[derive(Clone, Debug, Default)]
pub struct Batch(Arc<[Bytes]>);

impl Batch {
    /// The bytes of all chunks.
    fn bytes(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// Its chunks.
    pub fn pieces(&self) -> &[Bytes] {
        &self.0
    }
}

impl From<Vec<Bytes>> for Batch {
    fn from(pieces: Vec<Bytes>) -> Self {
        Self(pieces.into())
    }
}

#[derive(Debug)]
enum Part {
    /// Merged records of this stream, and their number.
    Own(Vec<u8>, usize),
    /// A record in shared memory.
    Shared(Bytes),
    /// A batch in shared memory, from this chunk on.
    Batch(Batch, usize),
}

/// Unread events in the order of writing.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Each with the time at which its first record was written.
    parts: VecDeque<(Instant, Part)>,
    records: usize,
    bytes: usize,
    /// Bytes that a connection has taken and not released, including overhead.
    taken: usize,
}

impl Queue {
    /// Adds a record of this stream alone.
    pub fn push(&mut self, record: Vec<u8>, now: Instant) {
        self.records += 1;
        self.bytes += record.len();
        let together = self.parts.len() > SEPARATE_MAX;
        if let Some((_, Part::Own(piece, records))) = self.parts.back_mut()
            && together
            && piece.len() + record.len() <= PIECE_BYTES
        {
            let wanted = piece.len() + record.len();
            if wanted > piece.capacity() {
                let room = wanted.max(2 * piece.len()).min(PIECE_BYTES);
                piece.reserve_exact(room - piece.len());
            }
            piece.extend(record);
            *records += 1;
        } else {
            self.parts.push_back((now, Part::Own(record, 1)));
        }
    }

    /// Adds a record in shared memory.
    pub fn push_shared(&mut self, record: Bytes, now: Instant) {
        self.records += 1;
        self.bytes += record.len();
        self.parts.push_back((now, Part::Shared(record)));
    }

    /// Adds a batch; each of its chunks counts as one record.
    pub fn push_batch(&mut self, batch: &Batch, now: Instant) {
        if !batch.0.is_empty() {
            self.records += batch.0.len();
            self.bytes += batch.bytes();
            self.parts.push_back((now, Part::Batch(batch.clone(), 0)));
        }
    }

    /// Takes the next chunk. It counts as taken until [`Queue::release`].
    pub fn pop(&mut self) -> Option<Bytes> {
        let (piece, records) = match self.parts.pop_front()? {
            (_, Part::Own(piece, records)) => (Bytes::from(piece), records),
            (_, Part::Shared(record)) => (record, 1),
            (since, Part::Batch(batch, next)) => {
                let piece = batch.0.get(next).cloned().unwrap_or_default();
                if next + 1 < batch.0.len() {
                    self.parts.push_front((since, Part::Batch(batch, next + 1)));
                }
                (piece, 1)
            }
        };
        if self.parts.is_empty() && self.parts.capacity() > PIECES_KEPT {
            self.parts = VecDeque::new();
        }
        self.records -= records;
        self.bytes -= piece.len();
        self.taken += piece.len() + PIECE_COST;
        Some(piece)
    }

    /// A connection has sent a chunk of this many bytes, or has ended.
    pub fn release(&mut self, bytes: usize) {
        self.taken -= bytes + PIECE_COST;
    }

    /// Drops the unread events and frees the queue's memory.
    pub fn clear(&mut self) {
        self.parts = VecDeque::new();
        self.records = 0;
        self.bytes = 0;
    }

    /// When the oldest unread event was written.
    pub fn since(&self) -> Option<Instant> {
        self.parts.front().map(|(since, _)| *since)
    }

    /// Number of unread records.
    pub fn records(&self) -> usize {
        self.records
    }

    /// Number of unread bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Memory of unread and taken events, in bytes.
    pub fn held(&self) -> usize {
        self.bytes + PIECE_COST * self.parts.len() + self.taken
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::default() + Duration::from_secs(seconds)
    }

    /// The allocated memory, without shared memory.
    fn memory(queue: &Queue) -> usize {
        let own = queue.parts.iter().map(|(_, part)| match part {
            Part::Own(piece, _) => piece.capacity(),
            Part::Shared(_) | Part::Batch(..) => 0,
        });
        own.sum::<usize>() + queue.parts.capacity() * size_of::<(Instant, Part)>()
    }

    /// W4.
    #[test]
    fn unread_events_cost_little_overhead() {
        let mut queue = Queue::default();
        for second in 0..10_000 {
            queue.push(vec![7; 268], at(second));
        }
        assert_eq!((queue.records(), queue.bytes()), (10_000, 2_680_000));
        assert!(memory(&queue) < 2_680_000 * 11 / 10, "{}", memory(&queue));
        // The count agrees with it.
        assert!((memory(&queue)..2_680_000 * 11 / 10).contains(&queue.held()));
        queue.clear();
        assert_eq!((queue.held(), queue.since(), memory(&queue)), (0, None, 0));
        // Reading frees it too.
        (0..10_000).for_each(|second| queue.push(vec![7; 268], at(second)));
        while let Some(piece) = queue.pop() {
            queue.release(piece.len());
        }
        assert_eq!((queue.held(), queue.records(), memory(&queue)), (0, 0, 0));
    }

    #[test]
    fn records_are_read_in_order_and_whole() {
        let mut queue = Queue::default();
        let (large, shared) = (vec![3; 2 * PIECE_BYTES], Bytes::from_static(b"shared"));
        let batch = Batch::from(vec![shared.clone(), Bytes::from_static(b"more")]);
        for _ in 0..SEPARATE_MAX {
            queue.push(b"apart".to_vec(), at(0));
        }
        queue.push(b"one".to_vec(), at(1));
        queue.push(b"two".to_vec(), at(2));
        queue.push(large.clone(), at(3));
        queue.push(b"three".to_vec(), at(4));
        queue.push_batch(&batch, at(5));
        queue.push_batch(&Batch::default(), at(5));
        queue.push_shared(shared.clone(), at(6));
        queue.push(b"four".to_vec(), at(7));
        assert_eq!(queue.records(), SEPARATE_MAX + 8);
        for _ in 0..SEPARATE_MAX {
            assert_eq!(queue.pop().as_deref(), Some(&b"apart"[..]));
        }
        let mut read = Vec::new();
        while let Some(since) = queue.since() {
            let piece = queue.pop().unwrap();
            read.push((since, piece));
        }
        let large = Bytes::from(large);
        let of = |second, bytes: &'static [u8]| (at(second), Bytes::from_static(bytes));
        let expected = [
            of(1, b"onetwo"),
            (at(3), large),
            of(4, b"three"),
            of(5, b"shared"),
            of(5, b"more"),
            of(6, b"shared"),
            of(7, b"four"),
        ];
        assert_eq!(read, expected);
        assert_eq!(read[3].1.as_ptr(), shared.as_ptr(), "the same memory");
        assert_eq!(read[5].1.as_ptr(), shared.as_ptr());
        assert_eq!((queue.records(), queue.bytes()), (0, 0));
    }

    /// W4: a connection that cannot send its chunks holds memory too.
    #[test]
    fn taken_chunks_count_until_released() {
        let mut queue = Queue::default();
        queue.push(vec![7; 100], at(1));
        let piece = queue.pop().unwrap();
        queue.push(vec![7; 10], at(2));
        assert_eq!((queue.bytes(), queue.held()), (10, 110 + 2 * PIECE_COST));
        queue.clear();
        assert_eq!((queue.bytes(), queue.held()), (0, 100 + PIECE_COST));
        queue.release(piece.len());
        assert_eq!(queue.held(), 0);
    }
}
