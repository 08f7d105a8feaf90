//! The end of a link: who learns of it, and when.
//!
//! Whoever closes it marks it as closed at once: nothing more is taken to send, and questions are answered. Those who watch the peer are
//! told when nobody is in its inbox any more, by whoever leaves it last, so that nothing is heard of the peer after its end. Remembers
//! nothing but that, and what is being decoded. Never waits: a link may be closed from within its own inbox.

use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, MutexGuard, TryLockError};

use super::Connection;
use crate::inbox::Inbox;
use crate::message::Lane;
use crate::{desk, lock};

impl Connection {
    /// Closes and throws away what was not sent; every watcher and asker learns of it, once.
    pub(crate) fn close(self: &Arc<Self>, reason: &str) {
        self.end(reason, true, true);
    }

    /// Closes, but lets the transport send what was written before.
    pub(crate) fn close_after_sending(self: &Arc<Self>, reason: &str) {
        desk::hand_in();
        self.end(reason, false, true);
    }

    /// Gives everything to another connection to the same node, if nothing was sent yet and nothing that came can be lost; says whether
    /// it did. Nobody may write to that one meanwhile.
    pub(crate) fn hand_over(&self, to: &Connection) -> bool {
        let handed_over = !self.is_decoding() && to.outbox.inherit(&self.outbox);
        if handed_over {
            let questions = std::mem::take(&mut *lock(&self.questions));
            lock(&to.questions).extend(questions);
        }
        handed_over
    }

    /// Takes no more to send.
    pub(crate) fn seal(&self) {
        self.outbox.end(false);
    }

    /// Closes because another connection to the same node has taken over: watchers are not told.
    pub(crate) fn end_superseded(self: &Arc<Self>) {
        self.end("superseded by another connection", true, false);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn end(self: &Arc<Self>, reason: &str, throw_away: bool, lost: bool) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        tracing::debug!(peer = %self.peer.node, reason, "link closed");
        *lock(&self.reason) = Some(reason.to_owned());
        *lock(&self.untold) = Some(lost);
        self.outbox.end(throw_away);
        self.leave_unanswered();
        // Either we find the inbox free, or whoever is in it finds this when it leaves.
        fence(Ordering::SeqCst);
        self.tell_end();
        self.changed.notify_waiters();
    }

    /// The way into the inbox; `None` if the link has been closed.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<Visit<'_>> {
        let visit = Visit {
            inbox: lock(&self.inbox),
            _leaving: Leaving(self),
        };
        (!self.is_closed()).then_some(visit)
    }

    /// Tells all who watch the peer that the link has ended, unless somebody is in the inbox: then they do.
    fn tell_end(self: &Arc<Self>) {
        let mut inbox = match self.inbox.try_lock() {
            Ok(inbox) => inbox,
            Err(TryLockError::Poisoned(inbox)) => inbox.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        // From here on whoever comes in finds the link closed.
        let Some(lost) = lock(&self.untold).take() else {
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

    /// Whether the transport should read no more of this lane.
    pub(crate) fn set_crowded(&self, lane: Lane, crowded: bool) {
        if self.crowded[lane as usize].swap(crowded, Ordering::AcqRel) && !crowded {
            self.changed.notify_waiters();
        }
    }

    /// One more bulk is being decoded, or one more mailbox watched for room, until what is returned is dropped.
    pub(crate) fn begin_decoding(self: &Arc<Self>) -> Decoding {
        self.decoding.fetch_add(1, Ordering::AcqRel);
        Decoding(self.clone())
    }
}

/// Somebody is in the inbox.
pub(crate) struct Visit<'a> {
    // Dropped in this order: first the inbox is free, then it is looked whether the link has ended meanwhile.
    pub(crate) inbox: MutexGuard<'a, Inbox>,
    _leaving: Leaving<'a>,
}

struct Leaving<'a>(&'a Arc<Connection>);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        fence(Ordering::SeqCst);
        if self.0.is_closed() {
            self.0.tell_end();
        }
    }
}

/// A bulk is being decoded, or a mailbox watched for room.
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
