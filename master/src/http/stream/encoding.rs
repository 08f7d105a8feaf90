//! Events as they stand in streams: encoded once for each form, whoever reads it.
//!
//! Pure.

use bytes::Bytes;
use http::api::Batch;
use v1::describe::{Describe, Fields, Output};
use v1::schema::master::{Event, EventSubscribed, EventType};
use v1::{Form, recordio};

use super::super::operator::StateSeen;
use super::super::shown::Shown;
use super::HEARTBEAT;
use crate::books::Books;

/// A piece that is written at once has about so many bytes at most.
const PIECE_BYTES: usize = 64 * 1024;
/// So many pieces are told together: each stream notes them as one, and holds all of them until it has read the last.
const PIECES_TOGETHER: usize = 16;

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
pub(super) fn records(form: Form, events: &[Event]) -> Vec<Batch> {
    let (mut pieces, mut piece) = (Vec::new(), Vec::new());
    for event in events {
        piece.extend(recordio::encode(&form.write(event)));
        if piece.len() >= PIECE_BYTES {
            pieces.push(exactly(std::mem::take(&mut piece)));
        }
    }
    if !piece.is_empty() {
        pieces.push(exactly(piece));
    }
    let batches = pieces.chunks(PIECES_TOGETHER);
    batches.map(|pieces| Batch::from(pieces.to_vec())).collect()
}

/// Without the room that it grew by: it may wait for long, and bounds are about bytes.
fn exactly(piece: Vec<u8>) -> Bytes {
    piece.into_boxed_slice().into()
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

#[cfg(test)]
mod tests {
    use v1::Limits;
    use v1::recordio::Decoder;
    use v1::schema::AgentID;
    use v1::schema::master::EventAgentRemoved;

    use super::*;

    #[test]
    fn many_events_are_few_batches_of_whole_records_in_no_more_memory_than_they_need() {
        let event = |number: usize| {
            let value = format!("{number}-{}", "x".repeat(40 << 10));
            Event {
                r#type: Some(EventType::AgentRemoved),
                agent_removed: Some(EventAgentRemoved {
                    agent_id: AgentID { value },
                }),
                ..Event::default()
            }
        };
        let events: Vec<Event> = (0..41).map(event).collect();
        let batches = records(Form::Json, &events);
        let pieces: Vec<usize> = batches.iter().map(|one| one.pieces().len()).collect();
        assert_eq!(pieces, [16, 5], "two events a piece");
        let mut read = Vec::new();
        for piece in batches.iter().flat_map(Batch::pieces) {
            let (mut decoder, mut rest) = (Decoder::new(1 << 20), &piece[..]);
            while let Some(record) = decoder.next(&mut rest).unwrap() {
                let event: Event = Form::Json.read(&record, Limits::default()).unwrap();
                read.push(event);
            }
            assert!(decoder.end().is_ok(), "a piece ends with a record");
        }
        assert_eq!(read, events);
        let mut grown = Vec::with_capacity(100);
        grown.extend([7; 10]);
        assert_eq!(Vec::from(exactly(grown)).capacity(), 10);
    }
}
