//! Events encoded for streams: once per form for all readers.
//!
//! Pure.

use bytes::Bytes;
use http::api::Batch;
use v1::describe::{Describe, Fields, Output};
use v1::schema::master::{Event, EventSubscribed, EventType};
use v1::{Form, recordio};

use super::super::operator::DescribeState;
use super::HEARTBEAT;
use crate::api::pages::visible::VisibleState;
use crate::state::MasterState;

/// Approximate maximum bytes of a piece that is written at once.
const PIECE_BYTES: usize = 64 * 1024;
/// Pieces per batch: each stream queues a batch as one item, and holds it until its last piece is
/// read.
const PIECES_TOGETHER: usize = 16;

/// One value per form.
#[derive(Clone, Debug, Default)]
pub(super) struct ByForm<T> {
    json: T,
    protobuf: T,
}

impl<T> ByForm<T> {
    /// Makes a value for each form.
    pub fn make(mut make: impl FnMut(Form) -> T) -> Self {
        Self {
            json: make(Form::Json),
            protobuf: make(Form::Protobuf),
        }
    }

    /// The value for this form.
    pub fn of(&self, form: Form) -> &T {
        match form {
            Form::Json => &self.json,
            Form::Protobuf => &self.protobuf,
        }
    }
}

/// Records of these events, several per piece.
pub(super) fn records(form: Form, events: &[Event]) -> Vec<Batch> {
    let (mut pieces, mut piece) = (Vec::new(), Vec::new());
    for event in events {
        piece.extend(recordio::encode(&form.write(event)));
        if piece.len() >= PIECE_BYTES {
            pieces.push(shrink(std::mem::take(&mut piece)));
        }
    }
    if !piece.is_empty() {
        pieces.push(shrink(piece));
    }
    let batches = pieces.chunks(PIECES_TOGETHER);
    batches.map(|pieces| Batch::from(pieces.to_vec())).collect()
}

/// Without spare capacity: the piece may be held for long, and bounds count bytes.
fn shrink(piece: Vec<u8>) -> Bytes {
    piece.into_boxed_slice().into()
}

/// The first event of a stream: the whole state.
pub(super) fn subscribed(form: Form, state: &MasterState) -> Bytes {
    let event = form.describe::<Event>(&First(VisibleState::of(state)));
    recordio::encode(&event).into()
}

struct First<'a>(VisibleState<'a>);

impl Describe<Event> for First<'_> {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, Event, O>) {
        let subscribed = Subscribed(self.0);
        fields
            .r#type(Some(EventType::Subscribed))
            .subscribed(Some(subscribed));
    }
}

struct Subscribed<'a>(VisibleState<'a>);

impl Describe<EventSubscribed> for Subscribed<'_> {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, EventSubscribed, O>) {
        fields
            .get_state(Some(DescribeState(self.0)))
            .heartbeat_interval_seconds(Some(HEARTBEAT.as_secs_f64()));
    }
}

/// A heartbeat event.
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
    fn events_are_batched_into_whole_records() {
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
        assert_eq!(Vec::from(shrink(grown)).capacity(), 10);
    }
}
