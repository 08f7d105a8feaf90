//! Attributes: properties of an agent for frameworks to interpret.
//!
//! They are only passed on: never added, compared or rounded.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

use crate::error::{Invalid, ParseError};
use crate::value::name::check_name;
use crate::value::ranges::Ranges;
use crate::value::set::Set;
use crate::value::text::{At, Parsed, parse_value, split_pair, tokens};

/// A finite number, kept unchanged.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Serialize)]
pub struct Number(f64);

impl Number {
    /// The number, if it is finite.
    pub fn new(number: f64) -> Result<Self, Invalid> {
        if number.is_finite() {
            Ok(Self(number + 0.0))
        } else {
            Err(Invalid::new("scalar", number, "a finite number"))
        }
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl Eq for Number {} // never NaN

impl Hash for Number {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(f64::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// An attribute's value.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum AttributeValue {
    /// A number.
    Scalar(Number),
    /// Ranges of numbers.
    Ranges(Ranges),
    /// A set of items.
    Set(Set),
    /// Any other text.
    Text(String),
}

/// A name and a value.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize)]
pub struct Attribute {
    name: String,
    value: AttributeValue,
}

impl Attribute {
    /// The attribute `name` with this value.
    pub fn new(name: &str, value: AttributeValue) -> Result<Self, Invalid> {
        check_name(name)?;
        Ok(Self {
            name: name.to_owned(),
            value,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its value.
    pub fn value(&self) -> &AttributeValue {
        &self.value
    }
}

impl<'de> Deserialize<'de> for Attribute {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename = "Attribute")]
        struct Incoming {
            name: String,
            value: AttributeValue,
        }
        let Incoming { name, value } = Incoming::deserialize(deserializer)?;
        Self::new(&name, value).map_err(serde::de::Error::custom)
    }
}

/// Attributes in their original order; a name may occur several times.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Attributes(Vec<Attribute>);

impl Attributes {
    /// These attributes.
    pub fn new(attributes: Vec<Attribute>) -> Self {
        Self(attributes)
    }

    /// Parses a text such as `rack:rack-2;os:ubuntuv14.4` (`--attributes`), or a JSON array of
    /// attribute objects.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        if text.trim_start().starts_with(['[', '{']) {
            return crate::json::parse_attributes(text);
        }
        let parsed = tokens(text).map(|(at, token)| parse_attribute(at, token));
        parsed
            .collect::<Result<_, At>>()
            .map(Self)
            .map_err(|(at, cause)| ParseError::at(text, at, cause))
    }

    /// The attributes in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Attribute> {
        self.0.iter()
    }

    /// The first one called `name`.
    pub fn get(&self, name: &str) -> Option<&AttributeValue> {
        self.0
            .iter()
            .find(|own| own.name == name)
            .map(Attribute::value)
    }

    /// The number of attributes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no attributes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn as_text(&self) -> String {
        let all: Vec<String> = self
            .0
            .iter()
            .map(|own| format!("{}:{}", own.name, own.value))
            .collect();
        all.join(";")
    }
}

fn parse_attribute(at: usize, token: &str) -> Result<Attribute, At> {
    let (name, value_at, value) = split_pair(at, token, "name:value, e.g. rack:rack-2")?;
    let value = match parse_value(value_at, value)? {
        Parsed::Number(number) => {
            AttributeValue::Scalar(Number::new(number).map_err(|bad| (value_at, bad))?)
        }
        Parsed::Ranges(ranges) => AttributeValue::Ranges(ranges),
        Parsed::Set(set) => AttributeValue::Set(set),
        Parsed::Text(text) => AttributeValue::Text(text.into_owned()),
    };
    Attribute::new(name, value).map_err(|bad| (at, bad))
}

impl FromStr for Attributes {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::parse(text)
    }
}

impl<'a> IntoIterator for &'a Attributes {
    type Item = &'a Attribute;
    type IntoIter = std::slice::Iter<'a, Attribute>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for AttributeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scalar(number) => number.0.fmt(f),
            Self::Ranges(ranges) => ranges.fmt(f),
            Self::Set(set) => set.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for Attributes {
    /// A text that parses back to the same value: JSON if the text form cannot express it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.as_text();
        if Self::parse(&text).as_ref() == Ok(self) {
            return f.write_str(&text);
        }
        let json = serde_json::to_string(&crate::json::Attributes(self.clone()));
        f.write_str(&json.map_err(|_| fmt::Error)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S96, the seed's exact text.
    // Covers S96.
    #[test]
    fn rack_datacenter_and_os_are_texts() {
        let text = "rack:rack-2;datacenter:europe;os:ubuntuv14.4";
        let attributes = Attributes::parse(text).unwrap();
        let said: Vec<(&str, &AttributeValue)> = attributes
            .iter()
            .map(|own| (own.name(), own.value()))
            .collect();
        let value = |text: &str| AttributeValue::Text(text.to_owned());
        assert_eq!(
            said,
            [
                ("rack", &value("rack-2")),
                ("datacenter", &value("europe")),
                ("os", &value("ubuntuv14.4")),
            ]
        );
        assert_eq!(attributes.to_string(), text);
    }

    #[test]
    fn attribute_types_are_recognised() {
        let attributes =
            Attributes::parse("a:1.23456;b:[1-2];c:{x,y};d:-1;e:nan;f:http://x:80;a:2").unwrap();
        let get = |name| attributes.get(name).unwrap();
        assert_eq!(
            get("a"),
            &AttributeValue::Scalar(Number::new(1.23456).unwrap())
        );
        assert!(
            matches!(get("b"), AttributeValue::Ranges(_))
                && matches!(get("c"), AttributeValue::Set(_))
        );
        assert_eq!(get("d"), &AttributeValue::Text("-1".to_owned()));
        assert_eq!(get("e"), &AttributeValue::Text("nan".to_owned()));
        assert_eq!(get("f"), &AttributeValue::Text("http://x:80".to_owned()));
        assert_eq!(
            attributes.to_string(),
            "a:1.23456;b:[1-2];c:{x,y};d:-1;e:nan;f:http://x:80;a:2"
        );
    }

    #[test]
    fn a_bad_attribute_is_named_with_its_place() {
        let error = Attributes::parse("rack:1;europe").unwrap_err();
        assert_eq!(
            error.to_string(),
            "at character 8: item is `europe`: expected name:value, e.g. rack:rack-2"
        );
    }
}
