//! Negotiates content types: `Content-Type`, `Accept`, and the stream id.
//!
//! Pure functions of header values. Errors name the header, the expected value and the HTTP status.

use resources::Invalid;

use crate::answer_cache::AnswerWriter;
use crate::describe::Describe;
use crate::limits::Limits;
use crate::message::{Message, Table};
use crate::{json, protobuf};

/// The header with a scheduler's stream id.
pub const STREAM_ID: &str = "Mesos-Stream-Id";

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/x-protobuf";
const RECORDIO: &str = "application/recordio";
/// The supported types, for error messages.
const FORMS: &str = "application/json or application/x-protobuf";
/// Where requests and answers may be streams.
const FORMS_OR_STREAM: &str = "application/json or application/x-protobuf or application/recordio";
/// In an unsupported `Accept`.
const ACCEPTABLE: &str = "'application/x-protobuf' or 'application/json'";

/// Encoding of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `application/json`.
    Json,
    /// `application/x-protobuf`.
    Protobuf,
}

impl Form {
    /// Its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => JSON,
            Self::Protobuf => PROTOBUF,
        }
    }

    /// Decodes a message.
    pub fn read<M: Message + Default>(self, bytes: &[u8], limits: Limits) -> Result<M, Invalid> {
        match self {
            Self::Json => json::read(bytes, limits),
            Self::Protobuf => protobuf::read(bytes, limits),
        }
    }

    /// Encodes a message.
    pub fn write(self, message: &dyn Message) -> Vec<u8> {
        match self {
            Self::Json => json::write(message),
            Self::Protobuf => protobuf::write(message),
        }
    }

    /// Encodes a value that describes the message `M`, with the bytes of that message.
    pub fn describe<M: Table>(self, value: &impl Describe<M>) -> Vec<u8> {
        self.describe_cached(value, None)
    }

    /// Same, with cached values from `writer`.
    pub fn describe_cached<M: Table>(
        self,
        value: &impl Describe<M>,
        writer: Option<&mut AnswerWriter>,
    ) -> Vec<u8> {
        match self {
            Self::Json => json::describe(value, writer),
            Self::Protobuf => protobuf::describe(value, writer),
        }
    }
}

/// The content of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// One message.
    One(Form),
    /// `application/recordio`: a stream of messages.
    Stream(Form),
}

impl Content {
    /// The encoding of its messages.
    pub fn form(self) -> Form {
        match self {
            Self::One(form) | Self::Stream(form) => form,
        }
    }
}

/// Unsupported headers, with the messages of Mesos.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// 400: a header is missing.
    #[error("Expecting '{header}' to be {expected}")]
    Absent {
        /// Its name.
        header: &'static str,
        /// The expected value.
        expected: &'static str,
    },
    /// 406: no accepted type is supported.
    #[error("Expecting '{header}' to allow {expected}")]
    NotAcceptable {
        /// Its name.
        header: &'static str,
        /// The supported types.
        expected: &'static str,
    },
    /// 415: the body's type is not supported.
    #[error("Expecting '{header}' of {expected}")]
    Unsupported {
        /// Its name.
        header: &'static str,
        /// The supported types.
        expected: &'static str,
    },
}

impl HeaderError {
    /// The HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Self::Absent { .. } => 400,
            Self::NotAcceptable { .. } => 406,
            Self::Unsupported { .. } => 415,
        }
    }
}

/// The content of a request with these values of `Content-Type` and `Message-Content-Type`, which
/// may be a stream if the API has such requests.
pub fn content_type(
    whole: Option<&str>,
    message: Option<&str>,
    streams: bool,
) -> Result<Content, HeaderError> {
    if streams && whole.is_some_and(|whole| is(media_type(whole), RECORDIO)) {
        let (header, expected) = ("Message-Content-Type", "set for streaming requests");
        let message = message.ok_or(HeaderError::Absent { header, expected })?;
        return form_of(header, message, FORMS).map(Content::Stream);
    }
    let (header, expected) = ("Content-Type", "present");
    let whole = whole.ok_or(HeaderError::Absent { header, expected })?;
    let expected = if streams { FORMS_OR_STREAM } else { FORMS };
    form_of(header, whole, expected).map(Content::One)
}

fn form_of(header: &'static str, value: &str, expected: &'static str) -> Result<Form, HeaderError> {
    let form = [Form::Json, Form::Protobuf]
        .into_iter()
        .find(|form| is(media_type(value), form.media_type()));
    form.ok_or(HeaderError::Unsupported { header, expected })
}

/// The encoding that this value of `Accept` selects for one message; JSON by default. `streams`:
/// whether the API has answers that are streams of records.
pub fn accept(value: Option<&str>, streams: bool) -> Result<Form, HeaderError> {
    let expected = if streams { FORMS_OR_STREAM } else { ACCEPTABLE };
    accept_form("Accept", value, expected)
}

/// The encoding, and whether to stream, for these values of `Accept` and `Message-Accept`.
pub fn accept_stream(whole: Option<&str>, message: Option<&str>) -> Result<Content, HeaderError> {
    let stream = whole.map_or(0.0, |whole| weight(whole, RECORDIO));
    let one = [JSON, PROTOBUF].map(|media| whole.map_or(1.0, |whole| weight(whole, media)));
    if stream > 0.0 && stream > one[0].max(one[1]) {
        return accept_form("Message-Accept", message, FORMS).map(Content::Stream);
    }
    accept_form("Accept", whole, ACCEPTABLE).map(Content::One)
}

fn accept_form(
    header: &'static str,
    value: Option<&str>,
    expected: &'static str,
) -> Result<Form, HeaderError> {
    let Some(value) = value else {
        return Ok(Form::Json);
    };
    let (json, protobuf) = (weight(value, JSON), weight(value, PROTOBUF));
    if json <= 0.0 && protobuf <= 0.0 {
        return Err(HeaderError::NotAcceptable { header, expected });
    }
    Ok(if protobuf > json {
        Form::Protobuf
    } else {
        Form::Json
    })
}

/// The weight of a media type in a list, from 0 to 1. Its most specific range counts.
fn weight(list: &str, media: &str) -> f32 {
    let group = media.split('/').next().unwrap_or_default();
    let exactness = |range: &str| match range {
        _ if is(range, media) => 3,
        _ if range
            .strip_suffix("/*")
            .is_some_and(|whole| is(whole, group)) =>
        {
            2
        }
        "*/*" => 1,
        _ => 0,
    };
    let ranges = list
        .split(',')
        .map(|range| (exactness(media_type(range)), range));
    // Of equally specific ranges the first counts.
    let best = ranges.rev().max_by_key(|(exactness, _)| *exactness);
    match best {
        Some((1.., range)) => quality(range),
        _ => 0.0,
    }
}

/// The `q` of a range; 1 by default, 0 if it is not a number from 0 to 1.
fn quality(range: &str) -> f32 {
    let parameters = range
        .split(';')
        .skip(1)
        .filter_map(|one| one.split_once('='));
    let given = parameters
        .map(|(name, value)| (name.trim(), value.trim()))
        .find(|(name, _)| is(name, "q"));
    match given {
        None => 1.0,
        Some((_, value)) => {
            let quality = value.parse().unwrap_or(0.0);
            if (0.0..=1.0).contains(&quality) {
                quality
            } else {
                0.0
            }
        }
    }
}

/// A media type without its parameters.
fn media_type(value: &str) -> &str {
    value.split(';').next().unwrap_or_default().trim()
}

fn is(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SPEC 2.1.
    #[test]
    fn content_types_select_json_protobuf_or_recordio() {
        let one = |value| content_type(Some(value), None, false);
        assert_eq!(one("application/json"), Ok(Content::One(Form::Json)));
        assert_eq!(
            one("Application/JSON; charset=utf-8"),
            Ok(Content::One(Form::Json))
        );
        assert_eq!(
            one("application/x-protobuf"),
            Ok(Content::One(Form::Protobuf))
        );
        let (whole, message) = (Some("application/recordio"), Some("application/x-protobuf"));
        let stream = content_type(whole, message, true);
        assert_eq!(stream, Ok(Content::Stream(Form::Protobuf)));
        let refused = content_type(whole, message, false).unwrap_err();
        let words = "Expecting 'Content-Type' of application/json or application/x-protobuf";
        assert_eq!(refused.to_string(), words);
    }

    #[test]
    fn other_content_types_are_refused() {
        for (whole, message, status, words) in [
            (None, None, 400, "Expecting 'Content-Type' to be present"),
            (
                Some("text/plain"),
                None,
                415,
                "Expecting 'Content-Type' of application/json or application/x-protobuf or application/recordio",
            ),
            (
                Some("application/recordio"),
                None,
                400,
                "Expecting 'Message-Content-Type' to be set for streaming requests",
            ),
            (
                Some("application/recordio"),
                Some("application/recordio"),
                415,
                "Expecting 'Message-Content-Type' of application/json or application/x-protobuf",
            ),
        ] {
            let refused = content_type(whole, message, true).unwrap_err();
            assert_eq!(
                (refused.status(), refused.to_string().as_str()),
                (status, words)
            );
        }
    }

    #[test]
    fn the_preferred_encoding_wins_and_json_is_the_default() {
        for (value, form) in [
            (None, Form::Json),
            (Some("*/*"), Form::Json),
            (Some("application/*"), Form::Json),
            (Some("application/json"), Form::Json),
            (Some("application/x-protobuf"), Form::Protobuf),
            (
                Some("text/html, application/x-protobuf;q=0.5"),
                Form::Protobuf,
            ),
            (
                Some("application/json;q=0.4,application/x-protobuf;q=0.5"),
                Form::Protobuf,
            ),
            (Some("*/*;q=0.9, application/json;q=0"), Form::Protobuf),
            (Some("application/x-protobuf, */*"), Form::Json),
        ] {
            assert_eq!(accept(value, false), Ok(form), "{value:?}");
        }
        for value in [
            "",
            "text/html",
            "application/json;q=0",
            "application/json;q=x",
            "*/*;q=2",
        ] {
            for (streams, expected) in [
                (false, "'application/x-protobuf' or 'application/json'"),
                (
                    true,
                    "application/json or application/x-protobuf or application/recordio",
                ),
            ] {
                let refused = accept(Some(value), streams).unwrap_err();
                assert_eq!(refused.status(), 406, "{value}");
                let words = format!("Expecting 'Accept' to allow {expected}");
                assert_eq!(refused.to_string(), words);
            }
        }
    }

    #[test]
    fn streams_are_chosen_by_weight() {
        let accept = accept_stream;
        let recordio = Some("application/recordio");
        assert_eq!(accept(recordio, None), Ok(Content::Stream(Form::Json)));
        let protobuf = Some("application/x-protobuf");
        assert_eq!(
            accept(recordio, protobuf),
            Ok(Content::Stream(Form::Protobuf))
        );
        assert_eq!(accept(protobuf, None), Ok(Content::One(Form::Protobuf)));
        assert_eq!(accept(None, None), Ok(Content::One(Form::Json)));
        assert_eq!(accept(Some("*/*"), None), Ok(Content::One(Form::Json)));
        assert_eq!(
            accept(recordio, Some("text/html")).unwrap_err().status(),
            406
        );
    }
}
