//! Attribute objects in the form of the v1 API.

use serde::Serialize;

use super::read::At;
use super::write::{NumberObject, RangesObject, SetObject, TextObject};
use crate::attributes::{Attribute, AttributeValue, Number};
use crate::error::Invalid;

#[derive(Serialize)]
pub(super) struct AttributeObject<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    scalar: Option<NumberObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ranges: Option<RangesObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    set: Option<SetObject<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<TextObject<'a>>,
}

impl<'a> From<&'a Attribute> for AttributeObject<'a> {
    fn from(own: &'a Attribute) -> Self {
        let mut object = Self {
            name: own.name(),
            kind: "TEXT",
            scalar: None,
            ranges: None,
            set: None,
            text: None,
        };
        match own.value() {
            AttributeValue::Scalar(number) => {
                object.kind = "SCALAR";
                object.scalar = Some(NumberObject {
                    value: number.get(),
                });
            }
            AttributeValue::Ranges(ranges) => {
                object.kind = "RANGES";
                object.ranges = Some(ranges.into());
            }
            AttributeValue::Set(set) => {
                object.kind = "SET";
                object.set = Some(set.into());
            }
            AttributeValue::Text(text) => object.text = Some(TextObject { value: text }),
        }
        object
    }
}

/// Reads one attribute object.
pub(super) fn read(at: &At) -> Result<Attribute, Invalid> {
    let name = at.need("name")?;
    let kind = at.need("type")?;
    let value = match kind.text()?.to_ascii_uppercase().as_str() {
        "SCALAR" => {
            let number = at.need("scalar")?;
            let finite =
                Number::new(number.number()?).map_err(|bad| number.expected(&bad.expected))?;
            AttributeValue::Scalar(finite)
        }
        "RANGES" => AttributeValue::Ranges(at.need("ranges")?.ranges()?),
        "SET" => AttributeValue::Set(at.need("set")?.set()?),
        "TEXT" => AttributeValue::Text(at.need("text")?.text()?.to_owned()),
        _ => return Err(kind.expected("SCALAR, RANGES, SET or TEXT")),
    };
    Attribute::new(name.text()?, value).map_err(|bad| name.expected(&bad.expected))
}
