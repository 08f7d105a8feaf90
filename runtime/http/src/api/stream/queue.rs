//! Queue: what waits to be read of one stream, in as little memory as it has bytes.
//!
//! Plain data: times are passed in. Where many wait, small events of one stream lie together in pieces, each of which is read at once, since an event by itself
//! costs as much again in memory as it has bytes. What many streams are told lies in memory that they share ([`Batch`]). What a connection has
//! taken and not sent yet is counted here until it lets go of it. It wakes nobody and cuts nobody off.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use runtime::Instant;

/// Events that are written one by one are put together in pieces of so many bytes at most; a larger one is a piece of its own. A connection holds up
/// to 16 pieces that it cannot send.
const PIECE_BYTES: usize = 4 << 10;
/// So many events wait each by itself before others are put together. Whoever reads well gets each in a chunk of its own, as from Mesos: RecordIO
/// promises that to nobody, and some clients rely on it.
const APART: usize = 64;
/// What a piece costs beside its bytes: its place in the queue, what the heap rounds it up to, and what a connection notes of it.
pub(super) const PIECE_COST: usize = 192;
/// Room for so many pieces is kept when all are read.
const PIECES_KEPT: usize = 8;

/// Pieces of whole records for several streams of one form, which all hold the same memory.
#[derive(Clone, Debug, Default)]
pub struct Batch(Arc<[Bytes]>);

impl Batch {
    /// The bytes of all of it.
    fn bytes(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// Its pieces.
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
    /// So many records of this stream alone, in one piece.
    Own(Vec<u8>, usize),
    /// The same memory as elsewhere.
    Shared(Bytes),
    /// The same, from this piece on.
    Batch(Batch, usize),
}

/// What waits, in the order it was written.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Each with the time its first record was written at.
    parts: VecDeque<(Instant, Part)>,
    records: usize,
    bytes: usize,
    /// Bytes that a connection has taken and still holds, with what each piece of them costs.
    taken: usize,
}

impl Queue {
    /// One more record, of this stream alone.
    pub fn push(&mut self, record: Vec<u8>, now: Instant) {
        self.records += 1;
        self.bytes += record.len();
        let together = self.parts.len() > APART;
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

    /// One more record, whose memory others hold too.
    pub fn push_shared(&mut self, record: Bytes, now: Instant) {
        self.records += 1;
        self.bytes += record.len();
        self.parts.push_back((now, Part::Shared(record)));
    }

    /// All of these; each piece counts as one record.
    pub fn push_batch(&mut self, batch: &Batch, now: Instant) {
        if !batch.0.is_empty() {
            self.records += batch.0.len();
            self.bytes += batch.bytes();
            self.parts.push_back((now, Part::Batch(batch.clone(), 0)));
        }
    }

    /// What is to be read next. It counts as taken until [`Queue::let_go`].
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

    /// A connection has sent a piece of so many bytes that it took, or has ended.
    pub fn let_go(&mut self, bytes: usize) {
        self.taken -= bytes + PIECE_COST;
    }

    /// What waits is dropped, with the memory of where it stood.
    pub fn clear(&mut self) {
        self.parts = VecDeque::new();
        self.records = 0;
        self.bytes = 0;
    }

    /// When the first that waits was written.
    pub fn since(&self) -> Option<Instant> {
        self.parts.front().map(|(since, _)| *since)
    }

    /// How many records wait.
    pub fn records(&self) -> usize {
        self.records
    }

    /// How many bytes wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How much memory is held by what waits, or is in the hands of a connection.
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

    /// The memory that is allocated for it, but for what is shared.
    fn memory(queue: &Queue) -> usize {
        let own = queue.parts.iter().map(|(_, part)| match part {
            Part::Own(piece, _) => piece.capacity(),
            Part::Shared(_) | Part::Batch(..) => 0,
        });
        own.sum::<usize>() + queue.parts.capacity() * size_of::<(Instant, Part)>()
    }

    /// W4.
    #[test]
    fn what_waits_costs_a_tenth_more_memory_than_it_has_bytes_and_what_is_dropped_costs_none() {
        let mut queue = Queue::default();
        for second in 0..10_000 {
            queue.push(vec![7; 268], at(second));
        }
        assert_eq!((queue.records(), queue.bytes()), (10_000, 2_680_000));
        assert!(memory(&queue) < 2_680_000 * 11 / 10, "{}", memory(&queue));
        // And that is what is counted.
        assert!((memory(&queue)..2_680_000 * 11 / 10).contains(&queue.held()));
        queue.clear();
        assert_eq!((queue.held(), queue.since(), memory(&queue)), (0, None, 0));
        // Nor does what was read.
        (0..10_000).for_each(|second| queue.push(vec![7; 268], at(second)));
        while let Some(piece) = queue.pop() {
            queue.let_go(piece.len());
        }
        assert_eq!((queue.held(), queue.records(), memory(&queue)), (0, 0, 0));
    }

    #[test]
    fn records_are_read_in_order_and_never_cut_however_they_were_written() {
        let mut queue = Queue::default();
        let (large, shared) = (vec![3; 2 * PIECE_BYTES], Bytes::from_static(b"shared"));
        let batch = Batch::from(vec![shared.clone(), Bytes::from_static(b"more")]);
        for _ in 0..APART {
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
        assert_eq!(queue.records(), APART + 8);
        for _ in 0..APART {
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

    /// W4: a connection that cannot send what it took holds memory too.
    #[test]
    fn what_a_connection_has_taken_counts_until_it_lets_go_of_it() {
        let mut queue = Queue::default();
        queue.push(vec![7; 100], at(1));
        let piece = queue.pop().unwrap();
        queue.push(vec![7; 10], at(2));
        assert_eq!((queue.bytes(), queue.held()), (10, 110 + 2 * PIECE_COST));
        queue.clear();
        assert_eq!((queue.bytes(), queue.held()), (0, 100 + PIECE_COST));
        queue.let_go(piece.len());
        assert_eq!(queue.held(), 0);
    }
}
