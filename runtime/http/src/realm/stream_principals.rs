//! The principals that frameworks declare, by stream.
//!
//! If frameworks need not authenticate, the declared principal of one decides its rate limit. The
//! subscribe endpoint inserts it here, and the [`Guard`](crate::Guard) looks it up for calls on
//! that stream. An entry proves nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::HeaderMap;
use v1::form::STREAM_ID;

/// The principal of each open stream that declared one. Clones share the table. Bounded by the
/// number of streams of the listener.
#[derive(Clone, Debug, Default)]
pub struct StreamPrincipals(Arc<Mutex<BTreeMap<String, String>>>);

impl StreamPrincipals {
    /// Records the principal of a stream that was opened.
    pub fn insert(&self, stream_id: &str, principal: &str) {
        self.change(|all| all.insert(stream_id.to_owned(), principal.to_owned()));
    }

    /// Removes a stream that has ended.
    pub fn remove(&self, stream_id: &str) {
        self.change(|all| all.remove(stream_id));
    }

    /// The declared principal of the stream that these headers name.
    pub fn of(&self, headers: &HeaderMap) -> Option<String> {
        let stream_id = headers.get(STREAM_ID)?.to_str().ok()?;
        self.change(|all| all.get(stream_id).cloned())
    }

    fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<String, String>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
