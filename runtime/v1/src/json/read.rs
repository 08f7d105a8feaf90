//! Decodes messages from JSON through serde, without an intermediate tree.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use resources::Invalid;
use serde::de::{
    self, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::de::StrRead;

use crate::limits::{Allowance, Limits, Seen, place_of, within};
use crate::message::{Field, FieldInfo, Kind, Label, Leaf, Message, Single};

/// Base64 with or without its padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Decodes the message in this text.
pub fn read<M: Message + Default>(text: &[u8], limits: Limits) -> Result<M, Invalid> {
    let mut message = M::default();
    read_whole(text, limits, "an object in JSON", |json, reading| {
        let message = &mut message;
        Object { message, reading }.deserialize(json)
    })?;
    Ok(message)
}

/// Decodes a top-level list, which errors call `name`. A single message counts as a list of one.
pub fn read_list<M: Single + Message>(
    name: &str,
    text: &[u8],
    limits: Limits,
) -> Result<Vec<M>, Invalid> {
    let mut list = Vec::<M>::new();
    read_whole(text, limits, "a list in JSON", |json, reading| {
        let values = Values {
            field: &mut list,
            in_list: false,
            reading,
        };
        let read = values.deserialize(json);
        read.map(|_| ())
            .map_err(|error| reading.locate(error, name))
    })?;
    Ok(list)
}

/// Decodes a complete text with `read`.
fn read_whole<'a>(
    text: &'a [u8],
    limits: Limits,
    expected: &str,
    read: impl FnOnce(
        &mut serde_json::Deserializer<StrRead<'a>>,
        &mut Reading,
    ) -> Result<(), serde_json::Error>,
) -> Result<(), Invalid> {
    let mut reading = Reading {
        allowance: Allowance::new(limits),
        refused: None,
    };
    // The words of Mesos, which clients compare.
    let no_json =
        |error: String| Invalid::message(format!("Failed to parse body into JSON: {error}"));
    // serde does not validate skipped values, but invalid UTF-8 is never JSON.
    let text = std::str::from_utf8(text).map_err(|error| no_json(error.to_string()))?;
    let mut json = serde_json::Deserializer::from_str(text);
    let read = read(&mut json, &mut reading).and_then(|()| json.end());
    match (read, reading.refused) {
        (Ok(()), _) => Ok(()),
        (Err(_), Some(refused)) => Err(refused),
        (Err(error), None) if error.is_data() => Err(Invalid::new("body", error, expected)),
        (Err(error), None) => Err(no_json(error.to_string())),
    }
}

/// The state of one decoding.
struct Reading {
    allowance: Allowance,
    /// The reason of a failure, with its path so far; serde's errors have no room for it.
    refused: Option<Invalid>,
}

impl Reading {
    /// Records the reason and ends the decoding.
    fn refuse<E: Error>(&mut self, refused: Invalid) -> E {
        self.refused = Some(refused);
        E::custom("refused")
    }

    /// Adds the enclosing field to the path of the failure.
    fn locate<E>(&mut self, error: E, outer: &str) -> E {
        self.refused = self.refused.take().map(|bad| within(bad, outer));
        error
    }
}

/// An object that is decoded into a message.
struct Object<'a> {
    message: &'a mut dyn Message,
    reading: &'a mut Reading,
}

impl<'de> DeserializeSeed<'de> for Object<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        read_object(self.message, map, self.reading)
    }
}

fn read_object<'de, A: MapAccess<'de>>(
    message: &mut dyn Message,
    mut map: A,
    reading: &mut Reading,
) -> Result<(), A::Error> {
    let entered = reading.allowance.enter();
    entered.map_err(|bad| reading.refuse(bad))?;
    let table = message.table();
    let (mut present, mut seen) = (Seen::default(), Seen::default());
    while let Some(index) = map.next_key_seed(Key(table))? {
        let duplicate = index.filter(|index| present.has(*index));
        if let Some(index) = duplicate {
            let bad = Invalid::new(table[index].name, "there twice", "each field once");
            return Err(reading.refuse(bad));
        }
        let known = index.map(|index| (index, table[index].number));
        let field = known.and_then(|(index, number)| Some((index, message.field_mut(number)?)));
        let Some((index, field)) = field else {
            map.next_value::<IgnoredAny>()?;
            continue;
        };
        present.mark(index);
        let values = Values {
            field,
            in_list: false,
            reading,
        };
        match map.next_value_seed(values) {
            Ok(true) => seen.mark(index),
            Ok(false) => {}
            Err(error) => return Err(reading.locate(error, table[index].name)),
        }
    }
    seen.check(message).map_err(|bad| reading.refuse(bad))?;
    reading.allowance.leave();
    Ok(())
}

/// A key, as the index of its field in the table.
struct Key(&'static [FieldInfo]);

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Key {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a field's name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|entry| entry.name == name))
    }
}

/// A key of a map.
struct MapKey;

impl<'de> DeserializeSeed<'de> for MapKey {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        de::Deserialize::deserialize(deserializer)
    }
}

/// Decodes the values of a field; returns whether there was one.
struct Values<'a> {
    field: &'a mut dyn Field,
    in_list: bool,
    reading: &'a mut Reading,
}

impl Values<'_> {
    fn take<E: Error>(self, leaf: Leaf<'_>, found: impl std::fmt::Display) -> Result<bool, E> {
        let length = match leaf {
            Leaf::Text(text) => text.len(),
            Leaf::Bytes(bytes) => bytes.len(),
            _ => 0,
        };
        let taken = match self.reading.allowance.charge(self.field, length) {
            Ok(()) => {
                let taken = self.field.take(leaf);
                taken.map_err(|expected| Invalid::new("", found, expected))
            }
            Err(bad) => Err(bad),
        };
        taken.map_err(|bad| self.reading.refuse(bad))
    }
}

impl<'de> DeserializeSeed<'de> for Values<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Values<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<bool, E> {
        self.take(Leaf::Bool(value), value)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<bool, E> {
        self.take(Leaf::Signed(number), number)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<bool, E> {
        self.take(Leaf::Unsigned(number), number)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<bool, E> {
        self.take(Leaf::F64(number), number)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<bool, E> {
        if self.field.kind() != Kind::Bytes {
            return self.take(Leaf::Text(text), text);
        }
        let read = BASE64.decode(text).or_else(|_| {
            // Some tools break it into lines, which Mesos accepts.
            BASE64.decode(text.split_ascii_whitespace().collect::<String>())
        });
        match read {
            Ok(bytes) => self.take(Leaf::Bytes(&bytes), text),
            Err(_) => {
                let bad = Invalid::new("", text, "bytes in base64");
                Err(self.reading.refuse(bad))
            }
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<bool, A::Error> {
        let Self {
            field,
            in_list,
            reading,
        } = self;
        if in_list || field.label() != Label::Repeated {
            let bad = Invalid::new("", "a list", "a single value");
            return Err(reading.refuse(bad));
        }
        for index in 0_usize.. {
            let next = Values {
                field: &mut *field,
                in_list: true,
                reading: &mut *reading,
            };
            match list.next_element_seed(next) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => {
                    return Err(reading.locate(error, &format!("[{index}]")));
                }
            }
        }
        Ok(true)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let Self { field, reading, .. } = self;
        if field.label() == Label::Map {
            while let Some(key) = map.next_key_seed(MapKey)? {
                let charged = reading.allowance.charge(field, key.len());
                charged.map_err(|bad| reading.refuse(bad))?;
                let Some(value) = field.entry(&key) else {
                    continue;
                };
                let values = Values {
                    field: value,
                    in_list: false,
                    reading: &mut *reading,
                };
                if let Err(error) = map.next_value_seed(values) {
                    return Err(reading.locate(error, &place_of(&key)));
                }
            }
            return Ok(true);
        }
        let charged = reading.allowance.charge(field, 0);
        charged.map_err(|bad| reading.refuse(bad))?;
        match field.open() {
            Some(message) => read_object(message, map, reading).map(|()| true),
            None => {
                let found = field.kind();
                let bad = Invalid::new("", "an object", expected(found));
                Err(reading.refuse(bad))
            }
        }
    }
}

/// The expected form of a value of this kind.
fn expected(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "true or false",
        Kind::I32 | Kind::I64 | Kind::U32 | Kind::U64 => "a whole number",
        Kind::F64 => "a number",
        Kind::Text => "text",
        Kind::Bytes => "bytes in base64",
        Kind::Enum => "the name of an enum's value",
        Kind::Message => "an object",
    }
}
