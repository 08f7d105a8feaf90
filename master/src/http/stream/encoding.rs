//! Events as they stand in streams: encoded once for each form, whoever reads it.
//!
//! Pure.

use bytes::Bytes;
use v1::describe::{Describe, Fields, Output};
use v1::schema::master::{Event, EventSubscribed, EventType};
use v1::{Form, recordio};

use super::super::operator::StateSeen;
use super::super::shown::Shown;
use super::HEARTBEAT;
use crate::books::Books;

/// A piece that is written at once has about so many bytes at most.
const PIECE_BYTES: usize = 64 * 1024;

/// One for each form.
#[derive(Clone, Debug, Default)]
pub(super) struct ByForm<T> {
    json: T,
    protobuf: T,
}

impl<T> ByForm<T> {
    /// Made for each form.
    pub fn make(mut make: impl FnMut(Form) -> T) -> Self {
        Self {
            json: make(Form::Json),
            protobuf: make(Form::Protobuf),
        }
    }

    /// That for this form.
    pub fn of(&self, form: Form) -> &T {
        match form {
            Form::Json => &self.json,
            Form::Protobuf => &self.protobuf,
        }
    }
}

/// Records of these events, several in a piece.
pub(super) fn records(form: Form, events: &[Event]) -> Vec<Bytes> {
    let (mut pieces, mut piece) = (Vec::new(), Vec::new());
    for event in events {
        piece.extend(recordio::encode(&form.write(event)));
        if piece.len() >= PIECE_BYTES {
            pieces.push(Bytes::from(std::mem::take(&mut piece)));
        }
    }
    if !piece.is_empty() {
        pieces.push(piece.into());
    }
    pieces
}

/// The first event of a stream: how all is.
pub(super) fn subscribed(form: Form, books: &Books) -> Bytes {
    let event = form.describe::<Event>(&First(Shown::of(books)));
    recordio::encode(&event).into()
}

struct First<'a>(Shown<'a>);

impl Describe<Event> for First<'_> {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, Event, O>) {
        let subscribed = Subscribed(self.0);
        fields
            .r#type(Some(EventType::Subscribed))
            .subscribed(Some(subscribed));
    }
}

struct Subscribed<'a>(Shown<'a>);

impl Describe<EventSubscribed> for Subscribed<'_> {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, EventSubscribed, O>) {
        fields
            .get_state(Some(StateSeen(self.0)))
            .heartbeat_interval_seconds(Some(HEARTBEAT.as_secs_f64()));
    }
}

/// The master lives.
pub(super) fn heartbeat() -> Event {
    Event {
        r#type: Some(EventType::Heartbeat),
        ..Event::default()
    }
}
