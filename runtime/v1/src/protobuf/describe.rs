//! Encodes a description as protobuf, with the same bytes as the message itself.

use prost::encoding::{self, WireType};

use super::{put_length, write_message, write_value};
use crate::answer_cache::AnswerWriter;
use crate::describe::{Describe, Fields, ListPosition, Output};
use crate::message::{FieldInfo, Message, Table, View};

/// Number of message positions with a separate guess of the length's size.
const POSITIONS: usize = 64;
/// The reserved bytes for the length of the outermost messages: those of a large answer exceed two
/// megabytes, and small ones are cheap to move.
const OUTER: u8 = 4;

/// The protobuf of a value that describes the message `M`.
pub fn describe<M: Table>(
    value: &impl Describe<M>,
    mut writer: Option<&mut AnswerWriter>,
) -> Vec<u8> {
    let mut wire = Wire {
        bytes: writer
            .as_mut()
            .map_or_else(Vec::new, |writer| writer.room()),
        writer,
        depth: 0,
        rooms: [1; POSITIONS],
    };
    // The first two levels.
    wire.rooms[..2 * 8].fill(OUTER);
    Fields::put_all(&mut wire, value);
    wire.bytes
}

struct Wire<'a> {
    bytes: Vec<u8>,
    /// The cache in use.
    writer: Option<&'a mut AnswerWriter>,
    /// Nesting depth of the current message.
    depth: usize,
    /// The size of the last length at each position. The next length there probably has the same
    /// size, so the bytes need not be moved.
    rooms: [u8; POSITIONS],
}

impl Output for Wire<'_> {
    #[inline]
    fn leaf(&mut self, entry: &'static FieldInfo, _: ListPosition, value: View<'_>) {
        write_value(entry.number, value, &mut self.bytes);
    }

    #[inline]
    fn message<M: Table>(
        &mut self,
        entry: &'static FieldInfo,
        _: ListPosition,
        value: &impl Describe<M>,
    ) {
        encoding::encode_key(entry.number, WireType::LengthDelimited, &mut self.bytes);
        let at = self.bytes.len();
        let identity = value.identity();
        // The key is not part of the cached bytes.
        if let (Some(identity), Some(writer)) = (identity, &mut self.writer)
            && writer.copy(identity, &mut self.bytes)
        {
            return;
        }
        let position = (self.depth * 8 + entry.number as usize % 8) % POSITIONS;
        let room = usize::from(self.rooms[position]);
        self.bytes.resize(at + room, 0);
        self.depth += 1;
        Fields::put_all(self, value);
        self.depth -= 1;
        let needed = put_length(&mut self.bytes, at, room);
        self.rooms[position] = needed as u8;
        if let Some(writer) = &mut self.writer {
            if needed != room {
                writer.moved(at + room, needed as isize - room as isize);
            }
            if let Some(identity) = identity {
                writer.note(identity, at, self.bytes.len());
            }
        }
    }

    #[inline]
    fn end_list(&mut self) {}

    #[inline]
    fn absent(&mut self, _: &'static FieldInfo, _: View<'static>) {}

    fn whole(&mut self, message: &dyn Message) {
        write_message(message, &mut self.bytes);
    }
}
