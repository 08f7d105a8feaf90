//! The protobuf of what is described, written straight: the same bytes that the message itself has.

use prost::encoding::{self, WireType};

use super::{put_length, write_message, write_value};
use crate::describe::{Describe, Fields, Output, Place};
use crate::message::{Entry, Message, Table, View};
use crate::pieces::Keeper;

/// How many places of messages are told apart when the room for a length is guessed.
const PLACES: usize = 64;
/// The room for the length of the outermost messages: those of a large answer have more than two megabytes, others are quick to move.
const OUTER: u8 = 4;

/// The bytes of what is the message `M` by its description.
pub fn describe<M: Table>(value: &impl Describe<M>, mut keeper: Option<&mut Keeper>) -> Vec<u8> {
    let mut wire = Wire {
        bytes: keeper
            .as_mut()
            .map_or_else(Vec::new, |keeper| keeper.room()),
        keeper,
        depth: 0,
        rooms: [1; PLACES],
    };
    // The first two levels.
    wire.rooms[..2 * 8].fill(OUTER);
    Fields::say_all(&mut wire, value);
    wire.bytes
}

struct Wire<'a> {
    bytes: Vec<u8>,
    /// What goes along.
    keeper: Option<&'a mut Keeper>,
    /// Messages around the one that is being written.
    depth: usize,
    /// How many bytes the length of the last message took, by its place: the next one's most likely takes as many, and what follows needs
    /// not be moved when it is known.
    rooms: [u8; PLACES],
}

impl Output for Wire<'_> {
    #[inline]
    fn leaf(&mut self, entry: &'static Entry, _: Place, value: View<'_>) {
        write_value(entry.number, value, &mut self.bytes);
    }

    #[inline]
    fn message<M: Table>(&mut self, entry: &'static Entry, _: Place, value: &impl Describe<M>) {
        encoding::encode_key(entry.number, WireType::LengthDelimited, &mut self.bytes);
        let at = self.bytes.len();
        let identity = value.identity();
        // The number belongs to where it stands.
        if let (Some(identity), Some(keeper)) = (identity, &mut self.keeper)
            && keeper.copy(identity, &mut self.bytes)
        {
            return;
        }
        let place = (self.depth * 8 + entry.number as usize % 8) % PLACES;
        let room = usize::from(self.rooms[place]);
        self.bytes.resize(at + room, 0);
        self.depth += 1;
        Fields::say_all(self, value);
        self.depth -= 1;
        let needed = put_length(&mut self.bytes, at, room);
        self.rooms[place] = needed as u8;
        if let Some(keeper) = &mut self.keeper {
            if needed != room {
                keeper.moved(at + room, needed as isize - room as isize);
            }
            if let Some(identity) = identity {
                keeper.note(identity, at, self.bytes.len());
            }
        }
    }

    #[inline]
    fn end_list(&mut self) {}

    #[inline]
    fn absent(&mut self, _: &'static Entry, _: View<'static>) {}

    fn whole(&mut self, message: &dyn Message) {
        write_message(message, &mut self.bytes);
    }
}
