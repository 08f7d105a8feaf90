//! Errors about values, texts and subtractions, with the field, an excerpt of the value and the
//! expected form.
//!
//! Excerpts are short, since the values come from untrusted peers.

use crate::resource::Resource;

/// Maximum characters of a bad value in an error.
const EXCERPT: usize = 80;
/// Maximum characters of a field's path, which may contain an excerpt of an untrusted key.
const FIELD: usize = 3 * EXCERPT;

/// An invalid value, and the expected one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[error("{}", message(.field, .value, .expected))]
pub struct Invalid {
    /// The field, e.g. `cpus` or `[2].scalar.value`.
    pub field: String,
    /// An excerpt of the invalid value.
    pub value: String,
    /// The expected form.
    pub expected: String,
}

impl Invalid {
    /// An error about `field`, whose `value` is not as `expected`.
    pub fn new(
        field: impl Into<String>,
        value: impl std::fmt::Display,
        expected: impl Into<String>,
    ) -> Self {
        Self {
            field: shortened(&field.into(), FIELD),
            value: excerpt(&value.to_string()),
            expected: expected.into(),
        }
    }

    /// An error with a fixed message, where clients compare it with Mesos' text. It has no field.
    pub fn message(message: impl Into<String>) -> Self {
        Self {
            field: String::new(),
            value: String::new(),
            expected: message.into(),
        }
    }

    /// The same error with the path of the enclosing value.
    pub(crate) fn within(mut self, outer: &str) -> Self {
        self.field = if self.field.starts_with('[') || outer.is_empty() {
            format!("{outer}{}", self.field)
        } else {
            format!("{outer}.{}", self.field)
        };
        self
    }
}

fn message(field: &str, value: &str, expected: &str) -> String {
    match field.is_empty() && value.is_empty() {
        true => expected.to_owned(),
        false => format!("{field} is `{value}`: expected {expected}"),
    }
}

/// An excerpt of a text for an error; control characters are escaped.
pub fn excerpt(text: &str) -> String {
    shortened(text, EXCERPT)
}

/// Like [`excerpt`], with a maximum of `most` characters.
pub fn shortened(text: &str, most: usize) -> String {
    let (mut cut, mut shown) = (String::new(), 0);
    for c in text.chars() {
        if shown >= most {
            cut.push_str("...");
            break;
        }
        if c.is_control() {
            cut.extend(c.escape_default());
            shown += c.escape_default().len();
        } else {
            cut.push(c);
            shown += 1;
        }
    }
    cut
}

/// A text that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[error("{}{cause}", position.map_or(String::new(), |at| format!("at character {at}: ")))]
pub struct ParseError {
    /// The first wrong character, counted from 1. None for well-formed JSON with an invalid value:
    /// the cause then has the path to it.
    pub position: Option<usize>,
    /// The error at that position.
    #[source]
    pub cause: Invalid,
}

impl ParseError {
    /// An error at the byte offset `at` of `text`.
    pub(crate) fn at(text: &str, at: usize, cause: Invalid) -> Self {
        let before = text
            .char_indices()
            .take_while(|(byte, _)| *byte < at)
            .count();
        Self {
            position: Some(before + 1),
            cause,
        }
    }
}

impl From<Invalid> for ParseError {
    fn from(cause: Invalid) -> Self {
        Self {
            position: None,
            cause,
        }
    }
}

/// A failed subtraction, which changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{lacking} is not contained")]
pub struct Shortage {
    /// The first requested resource that is not contained.
    pub lacking: Box<Resource>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_contain_only_excerpts() {
        let long = "\n".repeat(1 << 20);
        let bad = Invalid::new(long.clone(), &long, "less");
        let escaped = |shown: usize| "\\n".repeat(shown / 2) + "...";
        assert_eq!((bad.field, bad.value), (escaped(FIELD), escaped(EXCERPT)));
        assert_eq!(excerpt("[a].b"), "[a].b");
    }
}
