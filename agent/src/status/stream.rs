//! Status update streams: per task in order, one update in flight, resent until acknowledged.
//!
//! Pure. The acknowledgement of a terminal update closes a task's stream.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use protocol::{FrameworkId, StatusUpdate, TaskId, TaskState, TaskStatus, Uuid};
use runtime::Instant;

use protocol::task::labels_bytes;

/// The first wait for an acknowledgement.
pub const RESEND_MIN: Duration = Duration::from_secs(10);
/// The longest wait for an acknowledgement.
pub const RESEND_MAX: Duration = Duration::from_secs(600);
/// Updates waiting in one stream; further ones are refused, except a terminal one.
pub const WAITING_MAX: usize = 4096;
/// Bytes of a stream's waiting updates, likewise. The first update always fits:
/// [`STATUS_BYTES_MAX`] bounds it.
pub const WAITING_BYTES_MAX: usize = 4 << 20;
/// Bytes of one status: data, message and labels.
pub const STATUS_BYTES_MAX: usize = 4 << 20;

/// Bytes of the fields that an executor chooses.
pub fn status_bytes(status: &TaskStatus) -> usize {
    status.data.len() + status.message.len() + labels_bytes(&status.labels)
}

/// Framework and task of a stream.
pub type Key = (FrameworkId, TaskId);

/// The result of adding an update.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::large_enum_variant,
    reason = "it lives for one match, and a box would cost more"
)]
pub enum Accepted {
    /// Send it now.
    Send(StatusUpdate),
    /// Queued behind an update in flight.
    Queued,
    /// Already in the stream: only confirm it to its sender.
    Duplicate,
    /// The task has ended: do not send it.
    AfterEnd,
    /// Too many are waiting.
    Full,
}

/// The result of an acknowledgement.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::large_enum_variant,
    reason = "it lives for one match, and a box would cost more"
)]
pub enum Acknowledged {
    /// Not for the update in flight.
    Stale,
    /// Send the next update now.
    Next(StatusUpdate),
    /// No update is waiting.
    Quiet,
    /// The terminal update is acknowledged; the stream is closed.
    Closed,
}

#[derive(Debug)]
struct Stream {
    /// The first one is in flight.
    waiting: VecDeque<StatusUpdate>,
    /// Bytes of the waiting updates.
    bytes: usize,
    latest: TaskState,
    wait: Duration,
    due: Instant,
}

/// All streams of an agent.
#[derive(Debug, Default)]
pub struct Streams {
    open: BTreeMap<Key, Stream>,
}

impl Streams {
    /// Adds an update.
    pub fn accept(&mut self, update: StatusUpdate, now: Instant) -> Accepted {
        let key = (update.framework_id.clone(), update.status.task_id.clone());
        let stream = self.open.entry(key).or_insert_with(|| Stream {
            waiting: VecDeque::new(),
            bytes: 0,
            latest: update.status.state,
            wait: RESEND_MIN,
            due: now,
        });
        if stream
            .waiting
            .iter()
            .any(|waiting| waiting.status.uuid == update.status.uuid)
        {
            return Accepted::Duplicate;
        }
        if stream.latest.is_terminal() && !stream.waiting.is_empty() {
            return Accepted::AfterEnd;
        }
        // A terminal update is never refused: it is the last one, and its sender regards the task
        // as over.
        let bytes = status_bytes(&update.status);
        let is_full = stream.waiting.len() >= WAITING_MAX
            || (stream.bytes + bytes > WAITING_BYTES_MAX && !stream.waiting.is_empty());
        if is_full && !update.status.state.is_terminal() {
            return Accepted::Full;
        }
        stream.bytes += bytes;
        stream.latest = update.status.state;
        stream.waiting.push_back(update);
        if stream.waiting.len() > 1 {
            return Accepted::Queued;
        }
        stream.start(now).map_or(Accepted::Queued, Accepted::Send)
    }

    /// Whether this update is unacknowledged.
    pub fn has(&self, key: &Key, uuid: Uuid) -> bool {
        let stream = self.open.get(key);
        let mut waiting = stream.iter().flat_map(|stream| &stream.waiting);
        waiting.any(|update| update.status.uuid == Some(uuid))
    }

    /// The framework has acknowledged this update.
    pub fn acknowledge(&mut self, key: &Key, uuid: Uuid, now: Instant) -> Acknowledged {
        let Some(stream) = self.open.get_mut(key) else {
            return Acknowledged::Stale;
        };
        match stream.waiting.front() {
            Some(front) if front.status.uuid == Some(uuid) => {}
            _ => return Acknowledged::Stale,
        }
        let acknowledged = stream.waiting.pop_front().map(|update| update.status);
        stream.bytes -= acknowledged.as_ref().map_or(0, status_bytes);
        if acknowledged.is_some_and(|status| status.state.is_terminal()) {
            self.open.remove(key);
            return Acknowledged::Closed;
        }
        stream
            .start(now)
            .map_or(Acknowledged::Quiet, Acknowledged::Next)
    }

    /// Updates with an overdue acknowledgement, to resend; their wait doubles.
    pub fn overdue(&mut self, now: Instant) -> Vec<StatusUpdate> {
        let late = self
            .open
            .values_mut()
            .filter(|stream| !stream.waiting.is_empty() && stream.due <= now);
        late.filter_map(|stream| {
            stream.wait = (stream.wait * 2).min(RESEND_MAX);
            stream.due = now + stream.wait;
            stream.front()
        })
        .collect()
    }

    /// All updates in flight, to send to a new master; the waits restart.
    pub fn all_in_flight(&mut self, now: Instant) -> Vec<StatusUpdate> {
        let all = self.open.values_mut();
        all.filter_map(|stream| stream.start(now)).collect()
    }

    /// A framework's updates in flight, to send to a new scheduler; the waits restart.
    pub fn in_flight_of(&mut self, framework: &FrameworkId, now: Instant) -> Vec<StatusUpdate> {
        let own = self.open.iter_mut();
        let own = own.filter(|((owner, _), _)| owner == framework);
        own.filter_map(|(_, stream)| stream.start(now)).collect()
    }

    /// The earliest resend time.
    pub fn next_due(&self) -> Option<Instant> {
        self.open
            .values()
            .filter(|stream| !stream.waiting.is_empty())
            .map(|stream| stream.due)
            .min()
    }

    /// Drops a framework's streams.
    pub fn forget_framework(&mut self, framework: &FrameworkId) {
        self.open.retain(|(owner, _), _| owner != framework);
    }

    /// Drops a task's stream.
    pub fn forget(&mut self, key: &Key) {
        self.open.remove(key);
    }

    /// Number of unacknowledged updates.
    pub fn waiting(&self) -> usize {
        self.open.values().map(|stream| stream.waiting.len()).sum()
    }
}

impl Stream {
    /// Puts the first update in flight.
    fn start(&mut self, now: Instant) -> Option<StatusUpdate> {
        self.wait = RESEND_MIN;
        self.due = now + self.wait;
        self.front()
    }

    /// The update in flight, with the newest state so that the master frees resources early.
    fn front(&self) -> Option<StatusUpdate> {
        let mut update = self.waiting.front()?.clone();
        update.latest_state = self.latest;
        Some(update)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{Source, TaskStatus};
    use runtime::Timestamp;

    fn at(seconds: u64) -> Instant {
        Instant::default() + Duration::from_secs(seconds)
    }

    fn key() -> Key {
        (FrameworkId::new("f").unwrap(), TaskId::new("t").unwrap())
    }

    fn update(state: TaskState, number: u8) -> StatusUpdate {
        let (framework_id, task_id) = key();
        let mut status = TaskStatus::new(task_id, state, Source::Executor, Timestamp::default());
        status.uuid = Some(Uuid([number; 16]));
        StatusUpdate {
            framework_id,
            status,
            latest_state: state,
        }
    }

    fn states(updates: &[StatusUpdate]) -> Vec<(TaskState, TaskState)> {
        updates
            .iter()
            .map(|update| (update.status.state, update.latest_state))
            .collect()
    }

    /// SPEC 5.3.
    #[test]
    fn one_update_is_in_flight_with_the_newest_state() {
        let mut streams = Streams::default();
        let now = at(0);
        assert!(matches!(
            streams.accept(update(TaskState::Starting, 1), now),
            Accepted::Send(_)
        ));
        assert_eq!(
            streams.accept(update(TaskState::Running, 2), now),
            Accepted::Queued
        );
        assert_eq!(
            streams.accept(update(TaskState::Finished, 3), now),
            Accepted::Queued
        );
        assert_eq!(
            streams.accept(update(TaskState::Running, 2), now),
            Accepted::Duplicate
        );
        assert_eq!(
            streams.accept(update(TaskState::Failed, 4), now),
            Accepted::AfterEnd
        );
        let Acknowledged::Next(next) = streams.acknowledge(&key(), Uuid([1; 16]), now) else {
            panic!()
        };
        assert_eq!(
            (next.status.state, next.latest_state),
            (TaskState::Running, TaskState::Finished)
        );
        assert_eq!(
            streams.acknowledge(&key(), Uuid([1; 16]), now),
            Acknowledged::Stale
        );
        assert!(matches!(
            streams.acknowledge(&key(), Uuid([2; 16]), now),
            Acknowledged::Next(_)
        ));
        assert_eq!(
            streams.acknowledge(&key(), Uuid([3; 16]), now),
            Acknowledged::Closed
        );
        assert_eq!(streams.waiting(), 0);
        assert_eq!(streams.next_due(), None);
    }

    /// SPEC 5.3: 10 s doubling to 10 min.
    #[test]
    fn resend_wait_doubles_from_ten_seconds_to_ten_minutes() {
        let mut streams = Streams::default();
        streams.accept(update(TaskState::Running, 1), at(0));
        let mut sent = Vec::new();
        for second in 1..=2600 {
            if !streams.overdue(at(second)).is_empty() {
                sent.push(second);
            }
        }
        assert_eq!(sent, [10, 30, 70, 150, 310, 630, 1230, 1830, 2430]);
    }

    // Covers S132.
    #[test]
    fn new_master_or_scheduler_gets_updates_at_once() {
        let mut streams = Streams::default();
        streams.accept(update(TaskState::Running, 1), at(0));
        streams.accept(update(TaskState::Finished, 2), at(0));
        streams.overdue(at(10));
        let again = streams.all_in_flight(at(15));
        assert_eq!(states(&again), [(TaskState::Running, TaskState::Finished)]);
        assert_eq!(streams.next_due(), Some(at(25)));
        // Likewise for a new scheduler, with its own updates.
        let other = FrameworkId::new("other").unwrap();
        assert_eq!(streams.in_flight_of(&other, at(16)), []);
        assert_eq!(streams.next_due(), Some(at(25)));
        let again = streams.in_flight_of(&key().0, at(17));
        assert_eq!(states(&again), [(TaskState::Running, TaskState::Finished)]);
        assert_eq!(streams.next_due(), Some(at(27)));
    }

    /// SPEC 5.3: a refused end would be lost, because its executor has been told that the task is
    /// over.
    #[test]
    fn a_full_stream_refuses_all_but_the_end() {
        let mut streams = Streams::default();
        let numbered = |state, number: usize| {
            let mut update = update(state, 0);
            update.status.uuid = Some(Uuid((number as u128).to_be_bytes()));
            update
        };
        for number in 0..WAITING_MAX {
            streams.accept(numbered(TaskState::Running, number), at(0));
        }
        let more = numbered(TaskState::Running, WAITING_MAX);
        assert_eq!(streams.accept(more, at(0)), Accepted::Full);
        let end = numbered(TaskState::Finished, WAITING_MAX + 1);
        assert_eq!(streams.accept(end, at(0)), Accepted::Queued);
        assert_eq!(streams.waiting(), WAITING_MAX + 1);
    }

    /// An executor chooses the size of its updates, so their bytes are bounded too.
    #[test]
    fn stream_is_bounded_by_bytes() {
        let mut streams = Streams::default();
        let large = |state, number| {
            let mut update = update(state, number);
            update.status.data = vec![0; WAITING_BYTES_MAX / 2];
            update
        };
        let running = TaskState::Running;
        let first = streams.accept(large(running, 1), at(0));
        assert!(matches!(first, Accepted::Send(_)));
        assert_eq!(streams.accept(large(running, 2), at(0)), Accepted::Queued);
        assert_eq!(streams.accept(large(running, 3), at(0)), Accepted::Full);
        let next = streams.acknowledge(&key(), Uuid([1; 16]), at(0));
        assert!(matches!(next, Acknowledged::Next(_)));
        assert_eq!(streams.accept(large(running, 4), at(0)), Accepted::Queued);
        let end = large(TaskState::Finished, 5);
        assert_eq!(streams.accept(end, at(0)), Accepted::Queued);
    }

    #[test]
    fn a_removed_framework_leaves_no_stream() {
        let mut streams = Streams::default();
        streams.accept(update(TaskState::Running, 1), at(0));
        streams.forget_framework(&key().0);
        assert_eq!((streams.waiting(), streams.next_due()), (0, None));
    }
}
