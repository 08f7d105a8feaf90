//! Encodes messages as JSON through serde.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use crate::message::{Field, Label, Message, View};

/// The JSON of this message.
pub fn write(message: &dyn Message) -> Vec<u8> {
    let mut text = Vec::new();
    append(message, &mut text);
    text
}

/// Appends the JSON of this message.
pub(super) fn append(message: &dyn Message, text: &mut Vec<u8>) {
    // Cannot fail: it writes into memory, and all keys are texts.
    let _ = serde_json::to_writer(text, &Json(message));
}

/// A message as a part of a larger serde value.
#[derive(Clone, Copy, Debug)]
pub struct Json<'a>(pub &'a dyn Message);

struct Value<'a>(View<'a>);

struct Values<'a>(&'a dyn Field);

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        for entry in self.0.table() {
            let Some(field) = self.0.field(entry.number) else {
                continue;
            };
            if field.count() > 0 {
                object.serialize_entry(entry.name, &Values(field))?;
            } else if let Some(default) = entry.default {
                object.serialize_entry(entry.name, &Value(default))?;
            }
        }
        object.end()
    }
}

impl Serialize for Values<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let field = self.0;
        match field.label() {
            Label::Required | Label::Optional => {
                let mut serializer = Some(serializer);
                let mut written = None;
                field.each(&mut |_, view| {
                    written = serializer.take().map(|to| Value(view).serialize(to));
                });
                match (written, serializer) {
                    (Some(written), _) => written,
                    (None, Some(serializer)) => serializer.serialize_unit(),
                    (None, None) => Err(serde::ser::Error::custom("a field without a value")),
                }
            }
            Label::Repeated => {
                let mut list = serializer.serialize_seq(Some(field.count()))?;
                let mut written = Ok(());
                field.each(&mut |_, view| {
                    if written.is_ok() {
                        written = list.serialize_element(&Value(view));
                    }
                });
                written?;
                list.end()
            }
            Label::Map => {
                let mut map = serializer.serialize_map(Some(field.count()))?;
                let mut written = Ok(());
                field.each(&mut |key, view| {
                    if written.is_ok() {
                        written = map.serialize_entry(key, &Value(view));
                    }
                });
                written?;
                map.end()
            }
        }
    }
}

impl Serialize for Value<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            View::Bool(value) => serializer.serialize_bool(value),
            View::Signed(number) => serializer.serialize_i64(number),
            View::Unsigned(number) => serializer.serialize_u64(number),
            View::F64(number) if number.is_finite() => serializer.serialize_f64(number),
            View::F64(number) if number.is_nan() => serializer.serialize_str("NaN"),
            View::F64(number) if number > 0.0 => serializer.serialize_str("Infinity"),
            View::F64(_) => serializer.serialize_str("-Infinity"),
            View::Text(text) => serializer.serialize_str(text),
            View::Bytes(bytes) => serializer.serialize_str(&STANDARD.encode(bytes)),
            View::Enum(_, name) => serializer.serialize_str(name),
            View::Message(message) => Json(message).serialize(serializer),
            View::EmptyList => serializer.serialize_seq(Some(0))?.end(),
        }
    }
}
