//! The wire form of resources: separate serde structs, validated on input.
//!
//! Each struct always has the same fields, as a format without schema requires. Resources from a
//! peer are brought into canonical order, and rejected if invalid.

use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::Invalid;
use crate::resource::Resource;
use crate::resource::annotation::Annotations;
use crate::resources::{Items, Resources};
use crate::value::Value;
use crate::value::name::Name;

/// Capacity reserved before the first entry is read: a peer's length is not trusted.
const CAPACITY_MAX: usize = 64;

/// Maximum copies of one resource on the wire. A large cluster has fewer of one disk, and JSON,
/// which has no count of copies, writes each of them.
const COPIES_MAX: u32 = 100_000;

#[derive(Serialize)]
#[serde(rename = "Resource")]
struct Outgoing<'a> {
    name: &'a str,
    value: &'a Value,
    copies: u32,
    annotations: Option<&'a Annotations>,
}

#[derive(Deserialize)]
#[serde(rename = "Resource")]
struct Incoming {
    name: Name,
    value: Value,
    copies: u32,
    annotations: Option<Annotations>,
}

impl Serialize for Resource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let annotations = (!self.is_plain()).then(|| self.annotations());
        Outgoing {
            name: self.name_str(),
            value: self.value(),
            copies: self.copies(),
            annotations,
        }
        .serialize(serializer)
    }
}

impl Incoming {
    /// The resource, if it is valid. It may share the note of `before`.
    fn resource(self, before: Option<&Resource>) -> Result<Resource, Invalid> {
        let Self {
            name,
            value,
            copies,
            annotations,
        } = self;
        if copies > COPIES_MAX {
            let expected = format!("at most {COPIES_MAX}");
            return Err(Invalid::new("copies", copies, expected));
        }
        let annotations = annotations.unwrap_or_default();
        Resource::annotated_like(name, value, annotations, before)?.counted(copies)
    }
}

impl<'de> Deserialize<'de> for Resource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let incoming = Incoming::deserialize(deserializer)?;
        incoming.resource(None).map_err(D::Error::custom)
    }
}

impl Resource {
    /// Sets the number of copies; other than one only for an indivisible resource.
    pub fn counted(mut self, copies: u32) -> Result<Self, Invalid> {
        if copies == 0 || (copies != 1 && !self.is_indivisible()) {
            return Err(Invalid::new(
                "copies",
                copies,
                "at least 1, and exactly 1 of a divisible resource",
            ));
        }
        self.copies = copies;
        Ok(self)
    }
}

impl Serialize for Resources {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Resources {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Resources;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("resources")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Resources, A::Error> {
                let room = entries.size_hint().unwrap_or(0).min(CAPACITY_MAX);
                let mut items = Items::with_capacity(room);
                while let Some(entry) = entries.next_element::<Incoming>()? {
                    let resource = entry.resource(items.last()).map_err(A::Error::custom)?;
                    items.push(resource);
                }
                Ok(Resources::canonical(items).share_notes())
            }
        }

        deserializer.deserialize_seq(Entries)
    }
}

/// Reads a text with a syntax without copying it.
pub(crate) struct TextVisitor<T>(pub &'static str, pub fn(&str) -> Result<T, Invalid>);

impl<T> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.1)(text).map_err(E::custom)
    }
}
