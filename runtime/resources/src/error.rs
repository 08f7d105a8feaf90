//! What is wrong with a value, a text or a subtraction, said so that its author can mend it.
//!
//! Remembers the field, an excerpt of the value and what was expected. Never carries more than a
//! short excerpt of what a stranger sent.

use crate::resource::Resource;

/// Longest excerpt of a bad value that an error repeats, in characters.
const EXCERPT: usize = 80;
/// Longest name of a field, likewise: ours are shorter, with an excerpt of a stranger's key in them.
const FIELD: usize = 3 * EXCERPT;

/// A value that the algebra does not take, and what it would have taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[error("{}", message(.field, .value, .expected))]
pub struct Invalid {
    /// The field in question, e.g. `cpus` or `[2].scalar.value`.
    pub field: String,
    /// What stood there, cut to a short excerpt.
    pub value: String,
    /// What would have been taken.
    pub expected: String,
}

impl Invalid {
    /// An error about `field`, which is `value` and ought to be `expected`.
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

    /// An error that is a message of its own, as where clients compare it with that of another system. It names no field.
    pub fn message(message: impl Into<String>) -> Self {
        Self {
            field: String::new(),
            value: String::new(),
            expected: message.into(),
        }
    }

    /// The same error, seen from the thing that holds the field.
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

/// Cuts a text to what an error may repeat, and shows control characters escaped.
pub fn excerpt(text: &str) -> String {
    shortened(text, EXCERPT)
}

/// The same of a text of which so many characters may be shown.
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

/// A text that is neither of the forms the parser knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[error("{}{cause}", position.map_or(String::new(), |at| format!("at character {at}: ")))]
pub struct ParseError {
    /// Where the trouble starts, in characters, the first being 1. None where well-formed JSON
    /// says something wrong: the cause then names the path to it.
    pub position: Option<usize>,
    /// What is wrong there.
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

/// What was to be taken away is not all there: nothing was taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{lacking} is not contained")]
pub struct Shortage {
    /// The first resource asked for that is not contained.
    pub lacking: Box<Resource>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_repeats_no_more_than_an_excerpt_of_what_a_stranger_sent() {
        let long = "\n".repeat(1 << 20);
        let bad = Invalid::new(long.clone(), &long, "less");
        let escaped = |shown: usize| "\\n".repeat(shown / 2) + "...";
        assert_eq!((bad.field, bad.value), (escaped(FIELD), escaped(EXCERPT)));
        assert_eq!(excerpt("[a].b"), "[a].b");
    }
}
