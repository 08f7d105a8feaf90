//! Encodes a description as JSON, with the same text as the message itself.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::write::append;
use crate::answer_cache::AnswerWriter;
use crate::describe::{Describe, Fields, ListPosition, Output};
use crate::message::{FieldInfo, Message, Table, View};

/// The JSON of a value that describes the message `M`.
pub fn describe<M: Table>(
    value: &impl Describe<M>,
    mut writer: Option<&mut AnswerWriter>,
) -> Vec<u8> {
    let room = writer
        .as_mut()
        .map_or_else(Vec::new, |writer| writer.room());
    let mut text = Text(room, writer);
    text.object(value);
    text.0
}

/// The text so far, and the cache in use.
struct Text<'a>(Vec<u8>, Option<&'a mut AnswerWriter>);

impl Text<'_> {
    fn object<M: Table>(&mut self, value: &impl Describe<M>) {
        self.0.push(b'{');
        Fields::put_all(self, value);
        self.0.push(b'}');
    }

    /// Writes the key or comma before a value.
    #[inline]
    fn lead(&mut self, entry: &FieldInfo, position: ListPosition) {
        if position == ListPosition::Next {
            return self.0.push(b',');
        }
        let key = match self.0.last() {
            Some(b'{') => &entry.key[1..],
            _ => entry.key,
        };
        self.0.extend_from_slice(key);
        if position == ListPosition::First {
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
        // Without an early exit, so that the loop is vectorized.
        let is_special = |byte: u8| (byte < 0x20) | (byte == b'"') | (byte == b'\\');
        let has_special = text.bytes().fold(false, |has, byte| has | is_special(byte));
        match has_special {
            true => self.serde(text),
            false => self.quoted(text.as_bytes()),
        }
    }

    fn serde(&mut self, value: impl Serialize) {
        // Writing into memory cannot fail.
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
    fn leaf(&mut self, entry: &'static FieldInfo, position: ListPosition, value: View<'_>) {
        self.lead(entry, position);
        self.value(value);
    }

    #[inline]
    fn message<M: Table>(
        &mut self,
        entry: &'static FieldInfo,
        position: ListPosition,
        value: &impl Describe<M>,
    ) {
        self.lead(entry, position);
        let (Some(identity), true) = (value.identity(), self.1.is_some()) else {
            return self.object(value);
        };
        let from = self.0.len();
        if let Some(writer) = &mut self.1
            && writer.copy(identity, &mut self.0)
        {
            return;
        }
        self.object(value);
        if let Some(writer) = &mut self.1 {
            writer.note(identity, from, self.0.len());
        }
    }

    #[inline]
    fn end_list(&mut self) {
        self.0.push(b']');
    }

    fn absent(&mut self, entry: &'static FieldInfo, default: View<'static>) {
        self.leaf(entry, ListPosition::Alone, default);
    }

    fn whole(&mut self, message: &dyn Message) {
        // `append` writes braces of its own, so those of `object` are replaced.
        self.0.pop();
        append(message, &mut self.0);
        self.0.pop();
    }
}
