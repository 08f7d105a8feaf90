//! The right to answer one question of a peer: carried with the question to its actor, and back as the reply.
//!
//! Counted, so that a peer cannot have more under way than a link allows. Never keeps a reply: a question without one
//! is answered with why there is none.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::Serialize;
use tokio::sync::oneshot;

use crate::ask::AskError;
use crate::clock;
use crate::identity::Pid;
use crate::link::{Connection, QUESTIONS_MAX, Sender};
use crate::message::Lane;
use crate::tap::wire::ReplyRoute;

/// The right to answer one question of the peer.
pub(crate) struct Answer {
    pub(crate) connection: Arc<Connection>,
    /// The lane that the question came in, and the reply goes in.
    pub(crate) lane: Lane,
    pub(crate) correlation: u64,
    /// A tap wants to see the reply.
    pub(crate) tapped: Option<Box<ReplyRoute>>,
}

impl Answer {
    /// Lets the node's tap see the reply.
    #[cold]
    pub(crate) fn show_to_tap(&mut self, from: &Pid, asker: &Sender, name: &'static str) {
        self.tapped = Some(Box::new(ReplyRoute {
            lane: self.lane,
            from: from.clone(),
            to: asker.pid.clone(),
            name,
        }));
    }

    /// Sends the reply once the actor gives it; if it never will, says so.
    pub(crate) fn when_ready<R, W>(self, reply: oneshot::Receiver<R>)
    where
        R: Send + 'static,
        W: From<R> + Serialize + Send + 'static,
    {
        let Answer {
            connection,
            lane,
            correlation,
            tapped,
        } = self;
        if connection.answering.fetch_add(1, Ordering::Relaxed) >= QUESTIONS_MAX {
            connection.answering.fetch_sub(1, Ordering::Relaxed);
            return connection.fail(correlation, AskError::Full);
        }
        tokio::spawn(async move {
            match reply.await {
                Ok(value) => match tapped {
                    None => connection.answer(lane, correlation, &W::from(value)),
                    Some(route) => route.answer(connection.clone(), correlation, W::from(value)),
                },
                Err(_) => connection.fail(correlation, AskError::Gone),
            }
            clock::moved();
            connection.answering.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

impl Connection {
    /// Whether one more question of the peer may be under way.
    pub(crate) fn may_answer(&self) -> bool {
        self.answering.load(Ordering::Relaxed) < QUESTIONS_MAX
    }
}
