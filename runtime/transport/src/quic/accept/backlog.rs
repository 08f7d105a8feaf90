//! The backlog of accepted connections that wait because the maximum of handshakes is in progress.
//!
//! First in, first out, with a bounded length and a deadline for each entry. Pure: the caller
//! passes the time.

use std::collections::VecDeque;
use std::time::Duration;

use runtime::Instant;

/// The waiting entries.
pub(in crate::quic) struct AcceptBacklog<T> {
    entries: VecDeque<Entry<T>>,
    entries_max: usize,
    patience: Duration,
}

struct Entry<T> {
    until: Instant,
    item: T,
}

impl<T> AcceptBacklog<T> {
    /// At most `entries_max` entries, each for at most `patience`.
    pub(in crate::quic) fn new(entries_max: usize, patience: Duration) -> Self {
        Self {
            entries: VecDeque::new(),
            entries_max,
            patience,
        }
    }

    pub(in crate::quic) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(in crate::quic) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Appends an entry; returns it if the backlog is full.
    pub(in crate::quic) fn push(&mut self, now: Instant, item: T) -> Result<(), T> {
        if self.entries.len() >= self.entries_max {
            return Err(item);
        }
        let until = now + self.patience;
        self.entries.push_back(Entry { until, item });
        Ok(())
    }

    /// Removes the oldest entry.
    pub(in crate::quic) fn pop(&mut self) -> Option<T> {
        self.entries.pop_front().map(|entry| entry.item)
    }

    /// Removes the oldest entry, if its deadline has passed.
    pub(in crate::quic) fn pop_overdue(&mut self, now: Instant) -> Option<T> {
        self.deadline().filter(|deadline| *deadline <= now)?;
        self.pop()
    }

    /// The deadline of the oldest entry.
    pub(in crate::quic) fn deadline(&self) -> Option<Instant> {
        self.entries.front().map(|entry| entry.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn oldest_entry_is_popped_first() {
        let (mut backlog, now) = (AcceptBacklog::new(3, SECOND), Instant::default());
        for item in [7, 5, 6] {
            backlog.push(now, item).unwrap();
        }
        let order: Vec<u16> = std::iter::from_fn(|| backlog.pop()).collect();
        assert_eq!(order, [7, 5, 6]);
        assert!(backlog.is_empty());
    }

    #[test]
    fn full_backlog_rejects_new_entries() {
        let (mut backlog, now) = (AcceptBacklog::new(4, SECOND), Instant::default());
        let rejected = (0..1000).filter_map(|item| backlog.push(now, item).err());
        assert_eq!(rejected.collect::<Vec<_>>(), (4..1000).collect::<Vec<_>>());
        assert_eq!(backlog.pop(), Some(0));
        assert_eq!(backlog.push(now, 1000), Ok(()), "there is a place again");
        assert_eq!(backlog.len(), 4);
    }

    #[test]
    fn overdue_entries_are_popped() {
        let (mut backlog, start) = (AcceptBacklog::new(4, 5 * SECOND), Instant::default());
        backlog.push(start, 1).unwrap();
        backlog.push(start + SECOND, 2).unwrap();
        assert_eq!(backlog.deadline(), Some(start + 5 * SECOND));
        assert_eq!(backlog.pop_overdue(start + 4 * SECOND), None);
        assert_eq!(backlog.pop_overdue(start + 5 * SECOND), Some(1));
        assert_eq!(backlog.pop_overdue(start + 5 * SECOND), None);
        assert_eq!(backlog.pop_overdue(start + 9 * SECOND), Some(2));
        assert_eq!(backlog.deadline(), None);
    }
}
