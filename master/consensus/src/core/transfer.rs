//! The transfer of a snapshot from the leader to a follower, in chunks. Both ends are pure state
//! machines.
//!
//! The sender keeps a window of unacknowledged chunks, and restarts from the last acknowledgement
//! after a timeout or a lost connection. The receiver accepts only the next chunk and reports its
//! progress; so a transfer resumes, also from another sender. A complete snapshot is accepted only
//! if its crc32c matches.

use bytes::Bytes;

use super::settings::Settings;
use crate::log::Snapshot;
use crate::wire::{Chunk, Received, SnapshotHead};

/// The state of a transfer, seen by the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransferState {
    Underway,
    Done,
    Failed,
}

/// Sends one snapshot to one follower.
pub(crate) struct Sender {
    leader_term: u64,
    head: SnapshotHead,
    data: Bytes,
    acknowledged: u64,
    /// The highest acknowledgement since the follower began.
    best: u64,
    sent: u64,
    began: bool,
    last_sent: u64,
    last_progress: u64,
    /// The earliest tick for the next chunk.
    not_before: u64,
}

impl Sender {
    pub fn new(snapshot: &Snapshot, leader_term: u64, now: u64) -> Self {
        Self {
            leader_term,
            head: head(snapshot),
            data: snapshot.data.clone(),
            acknowledged: 0,
            best: 0,
            sent: 0,
            began: false,
            last_sent: now,
            last_progress: now,
            not_before: now,
        }
    }

    /// The chunks to send now.
    pub fn pump(&mut self, now: u64, settings: &Settings) -> Vec<Chunk> {
        if now < self.not_before {
            return Vec::new();
        }
        if self.began && now.saturating_sub(self.last_sent) >= settings.chunk_resend_ticks {
            self.rewind();
        }
        let window = (settings.chunk_bytes * settings.chunk_window) as u64;
        let mut chunks = Vec::new();
        while (self.sent < self.head.total && self.sent - self.acknowledged < window) || !self.began
        {
            let end = self.head.total.min(self.sent + settings.chunk_bytes as u64);
            chunks.push(Chunk {
                leader_term: self.leader_term,
                head: self.head.clone(),
                offset: self.sent,
                data: self.data.slice(self.sent as usize..end as usize).to_vec(),
            });
            self.sent = end;
            self.began = true;
        }
        if !chunks.is_empty() {
            self.last_sent = now;
        }
        chunks
    }

    /// A chunk could not be sent. All unacknowledged chunks are sent again at the next tick; an
    /// immediate retry would loop while the follower is unreachable.
    pub fn unsent(&mut self, now: u64) {
        self.rewind();
        self.not_before = now + 1;
    }

    /// Treats the unacknowledged chunks as lost.
    fn rewind(&mut self) {
        self.sent = self.acknowledged;
        self.began = false;
    }

    /// Handles the follower's progress.
    pub fn handle(&mut self, received: &Received, now: u64) -> TransferState {
        if (received.index, received.term, received.crc)
            != (self.head.index, self.head.term, self.head.crc)
        {
            return TransferState::Underway;
        }
        if received.refused || received.bytes > self.head.total {
            return TransferState::Failed;
        }
        if received.bytes == self.head.total {
            return TransferState::Done;
        }
        if received.bytes < self.acknowledged {
            // The follower restarted and lost its data; or this report is old, and the next one
            // corrects it.
            (self.sent, self.best) = (received.bytes, received.bytes);
        }
        self.acknowledged = received.bytes;
        self.sent = self.sent.max(received.bytes);
        if received.bytes > self.best {
            self.best = received.bytes;
            self.last_progress = now;
        }
        TransferState::Underway
    }

    /// Whether there was no progress for too long.
    pub fn stalled(&self, now: u64, settings: &Settings) -> bool {
        now.saturating_sub(self.last_progress) >= settings.transfer_ticks_max
    }

    /// The acknowledged and the total bytes.
    pub fn progress(&self) -> (u64, u64) {
        (self.acknowledged, self.head.total)
    }
}

/// Identifies a snapshot.
pub(crate) fn head(snapshot: &Snapshot) -> SnapshotHead {
    SnapshotHead {
        index: snapshot.index,
        term: snapshot.term,
        members: snapshot.members.clone(),
        total: snapshot.data.len() as u64,
        crc: crc32c::crc32c(&snapshot.data),
    }
}

/// The snapshot that a follower is receiving.
#[derive(Default)]
pub(crate) struct Receiver {
    part: Option<Part>,
}

struct Part {
    leader_term: u64,
    head: SnapshotHead,
    data: Vec<u8>,
    last_progress: u64,
}

impl Receiver {
    /// Handles a chunk. Returns the answer to its sender, and the snapshot once it is complete.
    pub fn take(
        &mut self,
        chunk: Chunk,
        now: u64,
        settings: &Settings,
    ) -> (Received, Option<Snapshot>) {
        let Chunk {
            leader_term,
            head,
            offset,
            data,
        } = chunk;
        let older = self
            .part
            .as_ref()
            .is_some_and(|part| part.leader_term > leader_term && part.head != head);
        if head.total > settings.snapshot_bytes_max || older {
            return (answer(&head, 0, true), None);
        }
        let mut part = match self.part.take() {
            Some(part) if part.head == head => part,
            _ => Part {
                leader_term,
                head,
                data: Vec::new(),
                last_progress: now,
            },
        };
        part.leader_term = part.leader_term.max(leader_term);
        if offset == part.data.len() as u64
            && part.data.len() as u64 + data.len() as u64 <= part.head.total
        {
            part.data.extend_from_slice(&data);
            part.last_progress = now;
        }
        let bytes = part.data.len() as u64;
        if bytes < part.head.total {
            let received = answer(&part.head, bytes, false);
            self.part = Some(part);
            return (received, None);
        }
        if crc32c::crc32c(&part.data) != part.head.crc {
            return (answer(&part.head, 0, true), None);
        }
        let received = answer(&part.head, bytes, false);
        let whole = Snapshot {
            index: part.head.index,
            term: part.head.term,
            members: part.head.members,
            data: part.data.into(),
        };
        (received, Some(whole))
    }

    /// Discards an abandoned transfer, to free its memory.
    pub fn tick(&mut self, now: u64, settings: &Settings) {
        let limit = settings.transfer_ticks_max.saturating_mul(4);
        if self
            .part
            .as_ref()
            .is_some_and(|part| now.saturating_sub(part.last_progress) >= limit)
        {
            self.part = None;
        }
    }

    /// Bytes that are held.
    #[cfg(test)]
    pub fn held(&self) -> usize {
        self.part.as_ref().map_or(0, |part| part.data.len())
    }
}

pub(crate) fn answer(head: &SnapshotHead, bytes: u64, refused: bool) -> Received {
    Received {
        index: head.index,
        term: head.term,
        crc: head.crc,
        bytes,
        refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(bytes: usize) -> Snapshot {
        Snapshot {
            index: 9,
            term: 2,
            members: Default::default(),
            data: (0..bytes).map(|nth| nth as u8).collect::<Vec<u8>>().into(),
        }
    }

    fn settings() -> Settings {
        Settings {
            chunk_bytes: 10,
            chunk_window: 3,
            ..Settings::default()
        }
    }

    #[test]
    fn chunks_are_sent_by_window() {
        for bytes in [0, 1, 10, 29, 30, 31, 95] {
            let whole = snapshot(bytes);
            let (mut sender, mut receiver) = (Sender::new(&whole, 3, 0), Receiver::default());
            let mut arrived = None;
            for now in 0..20 {
                let chunks = sender.pump(now, &settings());
                assert!(chunks.len() <= 3);
                let mut state = TransferState::Underway;
                for chunk in chunks {
                    let (received, complete) = receiver.take(chunk, now, &settings());
                    state = sender.handle(&received, now);
                    arrived = complete.or(arrived);
                }
                if state == TransferState::Done {
                    break;
                }
            }
            assert_eq!(arrived, Some(whole), "{bytes} bytes");
        }
    }

    #[test]
    fn only_the_next_chunk_is_accepted() {
        let whole = snapshot(40);
        let mut receiver = Receiver::default();
        let chunks = Sender::new(&whole, 3, 0).pump(0, &settings());
        let (received, _) = receiver.take(chunks[1].clone(), 0, &settings());
        assert_eq!((received.bytes, receiver.held()), (0, 0));
        for _ in 0..2 {
            let (received, _) = receiver.take(chunks[0].clone(), 0, &settings());
            assert_eq!((received.bytes, receiver.held()), (10, 10));
        }
    }

    #[test]
    fn damaged_or_oversized_content_is_refused() {
        let settings = Settings {
            snapshot_bytes_max: 50,
            ..settings()
        };
        let mut receiver = Receiver::default();
        let mut chunks = Sender::new(&snapshot(20), 3, 0).pump(0, &settings);
        chunks[1].data[3] ^= 1;
        assert!(!receiver.take(chunks[0].clone(), 0, &settings).0.refused);
        let (received, whole) = receiver.take(chunks[1].clone(), 0, &settings);
        assert!(received.refused && whole.is_none());
        assert_eq!(receiver.held(), 0);
        let large = Sender::new(&snapshot(51), 3, 0).pump(0, &settings);
        assert!(receiver.take(large[0].clone(), 0, &settings).0.refused);
        assert_eq!(receiver.held(), 0);
    }

    #[test]
    fn lost_chunks_are_resent_and_silence_fails() {
        let whole = snapshot(100);
        let (mut sender, mut receiver) = (Sender::new(&whole, 3, 0), Receiver::default());
        let first = sender.pump(0, &settings());
        let (received, _) = receiver.take(first[0].clone(), 0, &settings());
        sender.handle(&received, 1);
        let resend = settings().chunk_resend_ticks;
        assert_eq!(
            sender.pump(1, &settings()).len(),
            1,
            "the window moved by one piece"
        );
        let again = sender.pump(1 + resend, &settings());
        assert_eq!(
            again.iter().map(|chunk| chunk.offset).collect::<Vec<_>>(),
            [10, 20, 30]
        );
        sender.unsent(1 + resend);
        assert_eq!(sender.pump(1 + resend, &settings()), []);
        assert_eq!(
            sender.pump(2 + resend, &settings())[0].offset,
            10,
            "a lost connection: at the next tick"
        );
        let limit = settings().transfer_ticks_max;
        assert!(!sender.stalled(limit, &settings()));
        assert!(sender.stalled(1 + limit, &settings()));
    }

    #[test]
    fn abandoned_transfer_is_discarded() {
        let mut receiver = Receiver::default();
        let chunk = Sender::new(&snapshot(40), 3, 0)
            .pump(0, &settings())
            .remove(0);
        receiver.take(chunk, 0, &settings());
        receiver.tick(4 * settings().transfer_ticks_max - 1, &settings());
        assert_eq!(receiver.held(), 10);
        receiver.tick(4 * settings().transfer_ticks_max, &settings());
        assert_eq!(receiver.held(), 0);
    }
}
