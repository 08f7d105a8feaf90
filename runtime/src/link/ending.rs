//! The end of a link, and the notification of its watchers.
//!
//! Closing marks the link at once: nothing more is accepted for sending, and open asks fail. The
//! watchers of the peer are notified when no thread is in the inbox any more, by the last one to
//! leave it, so that no message of the peer is delivered after its end. Nothing here blocks: a link
//! may be closed from within its own inbox.

use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, MutexGuard, TryLockError};

use super::Connection;
use crate::link::inbox::Inbox;
use crate::link::send_buffer;
use crate::lock;
use crate::wire::message::Lane;

impl Connection {
    /// Closes and drops unsent frames; every watcher and caller is notified once.
    pub(crate) fn close(self: &Arc<Self>, reason: &str) {
        self.end(reason, true, true);
    }

    /// Closes, but lets the transport send the frames written before.
    pub(crate) fn close_after_sending(self: &Arc<Self>, reason: &str) {
        send_buffer::flush();
        self.end(reason, false, true);
    }

    /// Moves everything to another connection to the same node, if nothing was sent yet and no
    /// received message can be lost; returns whether it did. No thread may write to that connection
    /// meanwhile.
    pub(crate) fn hand_over(&self, to: &Connection) -> bool {
        let handed_over = !self.is_decoding() && to.outbox.inherit(&self.outbox);
        if handed_over {
            let questions = std::mem::take(&mut *lock(&self.questions));
            lock(&to.questions).extend(questions);
        }
        handed_over
    }

    /// Accepts no more frames.
    pub(crate) fn seal(&self) {
        self.outbox.end(false);
    }

    /// Closes because another connection to the same node has replaced it: watchers are not
    /// notified.
    pub(crate) fn end_superseded(self: &Arc<Self>) {
        self.end("superseded by another connection", true, false);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn end(self: &Arc<Self>, reason: &str, drop_unsent: bool, lost: bool) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        tracing::debug!(peer = %self.peer.node, reason, "link closed");
        *lock(&self.reason) = Some(reason.to_owned());
        *lock(&self.end_pending) = Some(lost);
        self.outbox.end(drop_unsent);
        self.fail_asks();
        // Either the inbox is free here, or the thread in it sees the flag when it leaves.
        fence(Ordering::SeqCst);
        self.notify_end();
        self.changed.notify_waiters();
    }

    /// Enters the inbox; `None` if the link is closed.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<InboxGuard<'_>> {
        let guard = InboxGuard {
            inbox: lock(&self.inbox),
            _leave: LeaveGuard(self),
        };
        (!self.is_closed()).then_some(guard)
    }

    /// Notifies the watchers of the peer, unless a thread is in the inbox: then that one does.
    fn notify_end(self: &Arc<Self>) {
        let mut inbox = match self.inbox.try_lock() {
            Ok(inbox) => inbox,
            Err(TryLockError::Poisoned(inbox)) => inbox.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        // From here on every thread that enters finds the link closed.
        let Some(lost) = lock(&self.end_pending).take() else {
            return;
        };
        let left = std::mem::replace(&mut *inbox, Inbox::new(&self.peer));
        drop(inbox);
        drop(left);
        if let Some(node) = self.node.upgrade() {
            let reason = self.reason().unwrap_or_default();
            node.unlinked(self, &reason, lost);
        }
    }

    pub(super) fn is_decoding(&self) -> bool {
        self.decoding.load(Ordering::Acquire) > 0
    }

    pub(super) fn is_crowded(&self, lane: Lane) -> bool {
        self.crowded[lane as usize].load(Ordering::Acquire)
    }

    /// Sets whether the transport should pause reading this lane.
    pub(crate) fn set_crowded(&self, lane: Lane, crowded: bool) {
        if self.crowded[lane as usize].swap(crowded, Ordering::AcqRel) && !crowded {
            self.changed.notify_waiters();
        }
    }

    /// Counts a bulk being decoded, or a mailbox watched for room, until the guard is dropped.
    pub(crate) fn begin_decoding(self: &Arc<Self>) -> Decoding {
        self.decoding.fetch_add(1, Ordering::AcqRel);
        Decoding(self.clone())
    }
}

/// Exclusive access to the inbox.
pub(crate) struct InboxGuard<'a> {
    // Dropped in this order: first the inbox is freed, then the end of the link is checked.
    pub(crate) inbox: MutexGuard<'a, Inbox>,
    _leave: LeaveGuard<'a>,
}

struct LeaveGuard<'a>(&'a Arc<Connection>);

impl Drop for LeaveGuard<'_> {
    fn drop(&mut self) {
        fence(Ordering::SeqCst);
        if self.0.is_closed() {
            self.0.notify_end();
        }
    }
}

/// A guard for a bulk being decoded, or a mailbox watched for room.
pub(crate) struct Decoding(Arc<Connection>);

impl Decoding {
    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.0
    }
}

impl Drop for Decoding {
    fn drop(&mut self) {
        if self.0.decoding.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.changed.notify_waiters();
        }
    }
}
