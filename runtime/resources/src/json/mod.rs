//! The JSON forms: resource objects of the v1 API, and the flat objects of v0.
//!
//! Separate from the serde form of the types, which is the wire's. Reading is lenient (the old
//! `role` and the new `reservations`, a single object for a list, `8` for `{"value": 8}`, trailing
//! commas) and writing is strict. Errors contain the path, e.g. `[2].scalar.value`; for a duplicate
//! field its name. A lender is never written: it is for accounting only.

mod attributes;
mod read;
mod unique_fields;
mod v0;
mod write;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

use crate::error::{Invalid, ParseError};

use unique_fields::UniqueFields;

pub use v0::{ResourcesObject, attributes_object, resources_object};

/// Resources as a JSON array of resource objects, for fields of larger JSON structs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Resources(pub crate::Resources);

/// One resource as a JSON object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resource(pub crate::Resource);

/// Attributes as a JSON array of attribute objects.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Attributes(pub crate::Attributes);

/// Quantities as a JSON object: `{"cpus": {"value": 4}}`; also read as `{"cpus": 4}`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Quantities(pub crate::Quantities);

const RESOURCES_HINT: &str =
    r#"JSON like [{"name":"cpus","type":"SCALAR","scalar":{"value":4},"role":"role1"}]"#;
const ATTRIBUTES_HINT: &str =
    r#"JSON like [{"name":"rack","type":"TEXT","text":{"value":"rack-2"}}]"#;

/// Reads a JSON array of resource objects, or a single object.
pub fn parse_resources(text: &str) -> Result<crate::Resources, ParseError> {
    let value = parse(text, "resources", RESOURCES_HINT)?;
    Ok(resources_from(&value)?)
}

/// Reads resource objects from a JSON value.
pub fn resources_from(value: &serde_json::Value) -> Result<crate::Resources, Invalid> {
    let all = read::At::top(value).many().into_iter();
    let all: crate::Resources = all
        .map(|one| read::resource(&one))
        .collect::<Result<_, _>>()?;
    Ok(all.share_notes())
}

/// Reads a JSON array of attribute objects, or a single object.
pub fn parse_attributes(text: &str) -> Result<crate::Attributes, ParseError> {
    let value = parse(text, "attributes", ATTRIBUTES_HINT)?;
    Ok(attributes_from(&value)?)
}

/// Reads attribute objects from a JSON value.
pub fn attributes_from(value: &serde_json::Value) -> Result<crate::Attributes, Invalid> {
    let all = read::At::top(value).many().into_iter();
    all.map(|one| attributes::read(&one))
        .collect::<Result<_, _>>()
        .map(crate::Attributes::new)
}

/// Any JSON without duplicate fields. A duplicate is a data error, not a syntax error.
pub fn parse_unique_fields(text: &[u8]) -> Result<serde_json::Value, serde_json::Error> {
    serde_json::from_slice(text).map(|UniqueFields(value)| value)
}

/// Parses JSON with trailing commas. An error has the position and an example.
fn parse(text: &str, field: &str, hint: &str) -> Result<serde_json::Value, ParseError> {
    parse_unique_fields(without_trailing_commas(text).as_bytes()).map_err(|error| {
        if error.is_data() {
            return Invalid::new(field, error, "each field once").into();
        }
        let lines = text
            .split_inclusive('\n')
            .take(error.line().saturating_sub(1));
        let at = lines.map(str::len).sum::<usize>() + error.column().saturating_sub(1);
        let from = (0..=at.min(text.len()))
            .rev()
            .find(|at| text.is_char_boundary(*at))
            .unwrap_or(0);
        ParseError::at(text, at, Invalid::new(field, &text[from..], hint))
    })
}

/// Replaces each comma before a closing bracket by a blank, outside of strings.
fn without_trailing_commas(text: &str) -> String {
    let mut bytes: Vec<u8> = text.bytes().collect();
    let (mut comma, mut quoted, mut escaped) = (None, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => (quoted, comma) = (!quoted, None),
            _ if quoted || byte.is_ascii_whitespace() => {}
            b',' => comma = Some(at),
            b']' | b'}' => {
                if let Some(comma) = comma.take() {
                    bytes[comma] = b' ';
                }
            }
            _ => comma = None,
        }
    }
    // Only single ASCII bytes were replaced.
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

impl Serialize for Resources {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let copies = |own| std::iter::repeat_n(own, crate::Resource::copies(own) as usize);
        serializer.collect_seq(
            self.0
                .iter()
                .flat_map(copies)
                .map(write::ResourceObject::from),
        )
    }
}

impl Serialize for Resource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write::ResourceObject::from(&self.0).serialize(serializer)
    }
}

impl Serialize for Attributes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(attributes::AttributeObject::from))
    }
}

impl Serialize for Quantities {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use ser::SerializeMap;
        let mut map = serializer.serialize_map(None)?;
        for (name, amount) in self.0.iter() {
            map.serialize_entry(
                name.as_str(),
                &write::NumberObject {
                    value: amount.as_f64(),
                },
            )?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Resources {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let UniqueFields(value) = UniqueFields::deserialize(deserializer)?;
        resources_from(&value).map(Self).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Resource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let UniqueFields(value) = UniqueFields::deserialize(deserializer)?;
        read::resource(&read::At::top(&value))
            .map(Self)
            .map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Attributes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let UniqueFields(value) = UniqueFields::deserialize(deserializer)?;
        attributes_from(&value).map(Self).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Quantities {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let UniqueFields(value) = UniqueFields::deserialize(deserializer)?;
        read::quantities(&read::At::top(&value))
            .map(Self)
            .map_err(de::Error::custom)
    }
}
