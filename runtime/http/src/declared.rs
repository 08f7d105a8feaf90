//! Declared: as whose scheduler each stream was opened, in its own word (SPEC 3.3, W29).
//!
//! Where frameworks need not prove who they are the principal that one declares is whose limit it has: the page that opens its stream writes it
//! down here, and the [`Guard`](crate::Guard) looks here whose turn a call on that stream is. Proves nothing to anybody.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::HeaderMap;
use v1::media::STREAM_ID;

/// The principal of each open stream that has one. Clones are the same table; a listener has only so many streams.
#[derive(Clone, Debug, Default)]
pub struct Declared(Arc<Mutex<BTreeMap<String, String>>>);

impl Declared {
    /// This stream was opened for a framework of this principal.
    pub fn write_down(&self, stream_id: &str, principal: &str) {
        self.change(|all| all.insert(stream_id.to_owned(), principal.to_owned()));
    }

    /// This stream has ended.
    pub fn strike_off(&self, stream_id: &str) {
        self.change(|all| all.remove(stream_id));
    }

    /// The principal of the stream that a call is on.
    pub fn of(&self, headers: &HeaderMap) -> Option<String> {
        let stream_id = headers.get(STREAM_ID)?.to_str().ok()?;
        self.change(|all| all.get(stream_id).cloned())
    }

    fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<String, String>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
