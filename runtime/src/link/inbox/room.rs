//! Backpressure: messages that found their actor's mailbox full wait in the inbox, in order, until
//! it has room.
//!
//! While any wait, one task per such actor watches its mailbox. When much waits, the link asks its
//! transport to stop reading the lane, so that the peer's outbox fills and its senders are refused.
//! A message is never dropped: a link whose messages find no room for [`ROOM_TIMEOUT`] is closed,
//! so that both sides are notified.

use std::time::Duration;

use super::*;
use crate::clock::{self, Clock};
use crate::link::Decoding;

/// Maximum wait for one mailbox without any progress; then the link is closed.
const ROOM_TIMEOUT: Duration = Duration::from_secs(30);

/// Waiting bytes above which the transport should stop reading a lane.
const CROWDED: usize = 1 << 20;

/// The progress of a queue.
enum Progress {
    /// No message in it waits for room any more.
    Done,
    /// After `count` deliveries, a message of `size` bytes waits for room in this actor's mailbox.
    Waiting {
        count: usize,
        entry: Arc<Entry>,
        size: usize,
    },
}

impl Inbox {
    /// Whether the transport should pause reading this lane.
    fn is_crowded(&self, lane: Lane) -> bool {
        self.held_bytes > CROWDED && self.full.iter().any(|(full, _)| *full == lane)
    }

    /// Delivers the messages of a queue for which there is room by now.
    fn release_waiting(connection: &Arc<Connection>, queue: Queue) -> Result<Progress, Garbled> {
        let Some(node) = connection.node.upgrade() else {
            return Ok(Progress::Done);
        };
        let Some(mut guard) = connection.enter() else {
            return Ok(Progress::Done);
        };
        let mut delivery = Delivery {
            connection,
            node,
            inbox: &mut guard.inbox,
            last: None,
        };
        let (count, blocked) = delivery.release_until_full(queue)?;
        delivery.release_exits()?;
        let inbox = &mut *guard.inbox;
        let progress = match blocked {
            Some((entry, size)) => Progress::Waiting { count, entry, size },
            None => {
                inbox.full.remove(&queue);
                Progress::Done
            }
        };
        for lane in [Lane::Ordinary, Lane::Ping] {
            connection.set_crowded(lane, inbox.is_crowded(lane));
        }
        Ok(progress)
    }
}

impl Delivery<'_> {
    /// The first message of this queue waits for room from now on; `size` is its encoded size.
    #[cold]
    pub(super) fn wait_for_room(&mut self, queue: Queue, entry: Arc<Entry>, size: usize) {
        if self.inbox.full.insert(queue) {
            tracing::debug!(peer = %self.connection.peer.node, to = %entry.pid, "messages wait for room in a mailbox");
            let (waiting, clock) = (self.connection.begin_decoding(), self.node.clock().clone());
            tokio::spawn(watch_mailbox(waiting, clock, queue, entry, size));
        }
    }

    /// Pauses or resumes the transport's reading.
    pub(super) fn note_crowding(&self) {
        if self.inbox.full.is_empty() {
            return; // `release_waiting` noted it when it emptied `full`
        }
        for lane in [Lane::Ordinary, Lane::Ping] {
            self.connection
                .set_crowded(lane, self.inbox.is_crowded(lane));
        }
    }
}

/// Delivers the messages of this queue whenever the mailbox has room, until none waits for it.
async fn watch_mailbox(
    waiting: Decoding,
    clock: Clock,
    queue: Queue,
    mut entry: Arc<Entry>,
    mut size: usize,
) {
    let connection = waiting.connection();
    let mut since = clock.now();
    loop {
        let freed = entry.meter.room_freed();
        entry.meter.request_room(queue.0, size);
        let left = since + ROOM_TIMEOUT - clock.now();
        if clock.timeout(left, freed).await.is_err() {
            let reason = format!(
                "the mailbox of {} had no room for {ROOM_TIMEOUT:?}",
                entry.pid.name()
            );
            return connection.close(&reason);
        }
        clock::moved();
        match Inbox::release_waiting(connection, queue) {
            Ok(Progress::Done) => return,
            Ok(Progress::Waiting {
                count,
                entry: blocked_at,
                size: blocked_by,
            }) => {
                if count > 0 {
                    since = clock.now();
                }
                (entry, size) = (blocked_at, blocked_by);
            }
            Err(garbled) => {
                connection.note_garbled(&garbled);
                return connection.close(&garbled.reason);
            }
        }
    }
}
