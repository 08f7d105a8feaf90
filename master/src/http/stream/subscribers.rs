//! Who has subscribed to the operator API's events, oldest first.
//!
//! Plain data over the ends that are written to. Never waits and never asks anybody: who reads too slowly, or is one too many, is cut off.

use bytes::Bytes;
use http::api::Events;
use v1::Form;

use super::encoding::ByForm;

/// All of them.
#[derive(Debug)]
pub(super) struct Subscribers {
    all: Vec<Events>,
    max: usize,
}

impl Subscribers {
    /// None yet; so many at most.
    pub fn new(max: usize) -> Self {
        Self {
            all: Vec::new(),
            max: max.max(1),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether one of them reads this form.
    pub fn reads(&self, form: Form) -> bool {
        self.all.iter().any(|events| events.form() == form)
    }

    /// One more, who has been told all that there is; if that is one too many the oldest is closed.
    pub fn add(&mut self, events: Events) {
        self.all.push(events);
        if self.all.len() > self.max {
            tracing::info!(
                max = self.max,
                "the oldest subscriber of operator events makes room for a newer one"
            );
            self.all.remove(0).cut(None);
        }
    }

    /// All are told these records; those that have gone are forgotten, and those that lag behind cut off.
    pub fn tell(&mut self, records: &ByForm<Vec<Bytes>>) {
        self.all.retain(|events| {
            // What was unread before: nobody can have read these records yet.
            if let Some(reason) = events.lag() {
                tracing::info!(%reason, "a subscriber of operator events is cut off");
                events.cut(None);
                return false;
            }
            let mut records = records.of(events.form()).iter();
            records.all(|record| events.write_record(record.clone()).is_ok()) && !events.is_closed()
        });
    }

    /// All of them are cut off.
    pub fn end(&mut self) {
        for events in self.all.drain(..) {
            events.cut(None);
        }
    }
}
