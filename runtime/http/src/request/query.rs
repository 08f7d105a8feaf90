//! Parses the query of a page and form bodies: names with values.
//!
//! Queries are as lenient as in Mesos, so that no Mesos client is refused: the last value of a name
//! counts, and invalid UTF-8 is replaced. A form changes state, so an ambiguous one is refused.

use std::collections::BTreeMap;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use percent_encoding::percent_decode;
use serde::de::DeserializeOwned;
use serde_json::Value;
use v1::Invalid;

use crate::api::Refusal;

/// Maximum names of a form; no page has as many.
const NAMES_MAX: usize = 100;

/// The query of a page, parsed as Mesos does. All fields of `T` are optional texts.
#[derive(Clone, Copy, Debug)]
pub struct MesosQuery<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for MesosQuery<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let query = parts.uri.query().unwrap_or_default();
        let given = values(query).into_iter();
        let given = given.map(|(name, value)| (name, Value::from(value)));
        let read = serde_json::from_value(Value::Object(given.collect()));
        // Cannot fail: all fields are optional texts.
        read.map(Self)
            .map_err(|_| Refusal::bad(Invalid::new("query", shown(query.as_bytes()), "texts")))
    }
}

/// The values of a query by name. Bounded by the length of a request's head.
pub(crate) fn values(query: &str) -> BTreeMap<String, String> {
    let text = |part: &str| decoded(part.as_bytes()).unwrap_or_else(|replaced| replaced);
    let pairs = query.split(['&', ';']).filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs
        .map(|(name, value)| (text(name), text(value)))
        .collect()
}

/// The values of a form by name.
pub fn fields(text: &[u8]) -> Result<BTreeMap<String, String>, Invalid> {
    let mut fields = BTreeMap::new();
    for pair in text
        .split(|byte| *byte == b'&')
        .filter(|pair| !pair.is_empty())
    {
        let mut sides = pair.splitn(2, |byte| *byte == b'=');
        let name = decoded(sides.next().unwrap_or_default());
        let name =
            name.map_err(|found| Invalid::new("form", found, "names that are text in UTF-8"))?;
        let value = decoded(sides.next().unwrap_or_default());
        let value = value.map_err(|found| Invalid::new(&name, found, "text in UTF-8"))?;
        if fields.insert(name, value).is_some() {
            return Err(Invalid::new("form", shown(text), "each name once"));
        }
        if fields.len() > NAMES_MAX {
            let expected = format!("at most {NAMES_MAX} names");
            return Err(Invalid::new("form", shown(text), expected));
        }
    }
    Ok(fields)
}

/// The part of it that an error may quote.
fn shown(text: &[u8]) -> String {
    let end = text.len().min(1 << 10);
    String::from_utf8_lossy(&text[..end]).into_owned()
}

/// Decodes a name or a value as browsers encode them. The error is a printable form of text that is
/// not UTF-8.
fn decoded(written: &[u8]) -> Result<String, String> {
    let spaced = written.iter().map(|byte| match byte {
        b'+' => b' ',
        other => *other,
    });
    let spaced: Vec<u8> = spaced.collect();
    let bytes = percent_decode(&spaced).collect();
    String::from_utf8(bytes).map_err(|error| shown(error.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SPEC 2.1, 3.9.
    #[test]
    fn names_and_values_are_parsed_as_browsers_encode_them() {
        for (text, expected) in [
            ("", vec![]),
            ("&&", vec![]),
            ("a=1&b=%5B%22x%22%5D", vec![("a", "1"), ("b", "[\"x\"]")]),
            ("a+b=c+d%2B&e", vec![("a b", "c d+"), ("e", "")]),
            ("a=b=c&x=%C3%a9", vec![("a", "b=c"), ("x", "\u{e9}")]),
            (
                "a=100%&b=%2&c=%zz",
                vec![("a", "100%"), ("b", "%2"), ("c", "%zz")],
            ),
        ] {
            for found in [fields(text.as_bytes()).unwrap(), values(text)] {
                let found = found.iter().map(|(name, value)| (&**name, &**value));
                assert_eq!(found.collect::<Vec<_>>(), expected, "{text}");
            }
        }
    }

    /// SPEC 3.9: no client of Mesos is refused for how it writes a query.
    #[test]
    fn a_query_is_parsed_as_leniently_as_by_mesos() {
        for (query, expected) in [
            ("limit=1&limit=2", vec![("limit", "2")]),
            ("limit=1;order=asc", vec![("limit", "1"), ("order", "asc")]),
            ("id=%ff", vec![("id", "\u{fffd}")]),
            ("%ff=1", vec![("\u{fffd}", "1")]),
        ] {
            let found = values(query);
            let found = found.iter().map(|(name, value)| (&**name, &**value));
            assert_eq!(found.collect::<Vec<_>>(), expected, "{query}");
        }
        let many: String = (0..=NAMES_MAX).map(|n| format!("a{n}&")).collect();
        assert_eq!(values(&many).len(), NAMES_MAX + 1);
    }

    /// SPEC 2.1, 3.9.
    // Covers 3.9 Whatever stands behind a path.
    #[test]
    fn invalid_and_duplicate_form_values_are_refused() {
        for (text, words) in [
            (
                &b"a=1&role=ads%FF"[..],
                "role is `ads\u{fffd}`: expected text in UTF-8",
            ),
            (
                b"role=ads\xff",
                "role is `ads\u{fffd}`: expected text in UTF-8",
            ),
            (b"role=%c3", "role is `\u{fffd}`: expected text in UTF-8"),
            (
                b"r%ff=1",
                "form is `r\u{fffd}`: expected names that are text in UTF-8",
            ),
            (b"a=1&%61=2", "form is `a=1&%61=2`: expected each name once"),
        ] {
            let refused = fields(text).unwrap_err();
            assert_eq!(refused.to_string(), words);
        }
        let many: String = (0..=NAMES_MAX).map(|n| format!("a{n}&")).collect();
        let refused = fields(many.as_bytes()).unwrap_err().to_string();
        assert!(refused.ends_with("expected at most 100 names"), "{refused}");
        let long = fields(&[0xff; 1 << 20]).unwrap_err().to_string();
        assert!(long.len() < 500, "{long}");
    }
}
