//! The JSON of what is described, written straight: the same text that the message itself has.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::write::append;
use crate::describe::{Describe, Fields, Output, Place};
use crate::message::{Entry, Message, Table, View};
use crate::pieces::Keeper;

/// The text of what is the message `M` by its description.
pub fn describe<M: Table>(value: &impl Describe<M>, mut keeper: Option<&mut Keeper>) -> Vec<u8> {
    let room = keeper
        .as_mut()
        .map_or_else(Vec::new, |keeper| keeper.room());
    let mut text = Text(room, keeper);
    text.object(value);
    text.0
}

/// What is written, and what goes along.
struct Text<'a>(Vec<u8>, Option<&'a mut Keeper>);

impl Text<'_> {
    fn object<M: Table>(&mut self, value: &impl Describe<M>) {
        self.0.push(b'{');
        Fields::say_all(self, value);
        self.0.push(b'}');
    }

    /// What stands before a value.
    #[inline]
    fn lead(&mut self, entry: &Entry, place: Place) {
        if place == Place::Next {
            return self.0.push(b',');
        }
        let key = match self.0.last() {
            Some(b'{') => &entry.key[1..],
            _ => entry.key,
        };
        self.0.extend_from_slice(key);
        if place == Place::First {
            self.0.push(b'[');
        }
    }

    #[inline]
    fn quoted(&mut self, text: &[u8]) {
        self.0.reserve(text.len() + 2);
        self.0.push(b'"');
        self.0.extend_from_slice(text);
        self.0.push(b'"');
    }

    #[inline]
    fn text(&mut self, text: &str) {
        // Looks at all of it, so that many bytes are looked at in one step.
        let is_special = |byte: u8| (byte < 0x20) | (byte == b'"') | (byte == b'\\');
        let has_special = text.bytes().fold(false, |has, byte| has | is_special(byte));
        match has_special {
            true => self.serde(text),
            false => self.quoted(text.as_bytes()),
        }
    }

    fn serde(&mut self, value: impl Serialize) {
        // Writing into memory does not fail.
        let _ = serde_json::to_writer(&mut self.0, &value);
    }

    #[inline]
    fn value(&mut self, value: View<'_>) {
        match value {
            View::Bool(value) => self.serde(value),
            View::Signed(number) => self.serde(number),
            View::Unsigned(number) => self.serde(number),
            View::F64(number) if number.is_finite() => self.serde(number),
            View::F64(number) if number.is_nan() => self.quoted(b"NaN"),
            View::F64(number) if number > 0.0 => self.quoted(b"Infinity"),
            View::F64(_) => self.quoted(b"-Infinity"),
            View::Text(text) => self.text(text),
            View::Bytes(bytes) => self.quoted(STANDARD.encode(bytes).as_bytes()),
            View::Enum(_, name) => self.quoted(name.as_bytes()),
            View::Message(message) => append(message, &mut self.0),
            View::EmptyList => self.0.extend_from_slice(b"[]"),
        }
    }
}

impl Output for Text<'_> {
    #[inline]
    fn leaf(&mut self, entry: &'static Entry, place: Place, value: View<'_>) {
        self.lead(entry, place);
        self.value(value);
    }

    #[inline]
    fn message<M: Table>(&mut self, entry: &'static Entry, place: Place, value: &impl Describe<M>) {
        self.lead(entry, place);
        let (Some(identity), true) = (value.identity(), self.1.is_some()) else {
            return self.object(value);
        };
        let from = self.0.len();
        if let Some(keeper) = &mut self.1
            && keeper.copy(identity, &mut self.0)
        {
            return;
        }
        self.object(value);
        if let Some(keeper) = &mut self.1 {
            keeper.note(identity, from, self.0.len());
        }
    }

    #[inline]
    fn end_list(&mut self) {
        self.0.push(b']');
    }

    fn absent(&mut self, entry: &'static Entry, default: View<'static>) {
        self.leaf(entry, Place::Alone, default);
    }

    fn whole(&mut self, message: &dyn Message) {
        // It comes with braces, and those of this object are `object`'s.
        self.0.pop();
        append(message, &mut self.0);
        self.0.pop();
    }
}
