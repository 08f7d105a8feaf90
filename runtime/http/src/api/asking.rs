//! A call as it came, and its answer.
//!
//! Whatever the bytes are, reading them is bounded in size, in time and in memory, and ends in a call or in a [`Refusal`] that says the field, its
//! value and what was expected. Of calls that are [`large`](crate::large) a few are read at a time; so are bodies of pages ([`Whole`]).

use std::fmt::Display;
use std::sync::Arc;

use authority::Subject;
use axum::body::{Body, to_bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Request};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use runtime::Node;
use v1::media::{self, Refused};
use v1::recordio::Decoder;
use v1::{Content, Form, Invalid, Limits, Message};

use super::refusal::Refusal;
use crate::door::Source;
use crate::large::{Line, Turn};
use crate::methods;

/// The most bytes of a call.
pub const CALL_MAX: usize = 16 << 20;
/// A larger one is read beside the thread that serves all pages and streams, when it is its turn.
const LARGE: usize = 64 << 10;
/// As is one that takes more memory once it is read, however short.
const MEMORY: usize = 1 << 20;

/// What is said once in a call's headers.
const SINGLE: [&str; 3] = ["Content-Type", "Message-Content-Type", media::STREAM_ID];
/// What may be said in several lines, which are one list.
const LISTS: [&str; 2] = ["Accept", "Message-Accept"];

/// A call, and how its answer is wanted.
#[derive(Clone, Debug)]
pub struct Asked<C> {
    /// What was said.
    pub call: C,
    /// Who says it. Nobody in particular unless something before has found out.
    pub subject: Subject,
    /// Where it comes from; none without a connection, as in rehearsals.
    pub source: Option<Source>,
    /// How the call was written.
    pub form: Form,
    /// Whether it was the first of a stream of records.
    pub is_streamed: bool,
    /// Whether it is so long that it should not wait in memory once its request is answered.
    pub is_large: bool,
    headers: HeaderMap,
    turn: Option<Arc<Turn>>,
}

/// What is left of a call whose words are dropped: if it was large, the next one waits until this is dropped as well.
#[derive(Debug)]
#[must_use = "what was made of a call weighs about as much as its words"]
pub struct Heard(#[allow(dead_code, reason = "it is dropped")] Option<Arc<Turn>>);

impl<C: Message + Default + Send + 'static> Asked<C> {
    /// Reads the call of a request, whose body the listener bounds in time. Only `POST` has one.
    pub async fn read(node: &Node, request: Request) -> Result<Self, Refusal> {
        Self::read_body(node, request, false).await
    }

    /// The same where some calls begin a stream of records, as `ATTACH_CONTAINER_INPUT` does: the call is the first of them, and no other is read.
    pub async fn read_first(node: &Node, request: Request) -> Result<Self, Refusal> {
        Self::read_body(node, request, true).await
    }

    async fn read_body(node: &Node, request: Request, streams: bool) -> Result<Self, Refusal> {
        let (parts, body) = request.into_parts();
        if parts.method != Method::POST {
            let problem = methods::not_allowed(&parts.method, ["POST"].into_iter());
            return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, problem));
        }
        let headers = plain(parts.headers)?;
        let content = media::content_type(
            value(&headers, "Content-Type"),
            value(&headers, "Message-Content-Type"),
        )?;
        check_plain(&headers)?;
        let is_streamed = matches!(content, Content::Stream(_));
        let (form, bytes) = match content {
            Content::One(form) => (form, body_of(body).await?),
            Content::Stream(form) if streams => (form, first_record(body).await?),
            Content::Stream(_) => return Err(no_stream()),
        };
        let small = read_small(form, &bytes);
        let (is_large, mut turn) = (small.is_none(), None);
        let call = match small {
            Some(read) => read,
            None => {
                let read = move || form.read(&bytes, Limits::default());
                let read = in_turn(node, parts.extensions.get(), read).await?;
                turn = read.1;
                read.0
            }
        };
        Ok(Self {
            call: call.map_err(Refusal::bad)?,
            subject: parts.extensions.get().cloned().unwrap_or_default(),
            source: parts.extensions.get().copied(),
            form,
            is_streamed,
            is_large,
            headers,
            turn,
        })
    }
}

/// Does this beside the thread that serves all pages and streams, when it is its turn. Gives that, too.
async fn in_turn<T: Send + 'static>(
    node: &Node,
    line: Option<&Line>,
    read: impl FnOnce() -> T + Send + 'static,
) -> Result<(T, Option<Arc<Turn>>), Refusal> {
    let turn = match line.cloned() {
        Some(line) => Some(Arc::new(line.turn(node).await?)),
        None => None,
    };
    let read = node.blocking(read).await.map_err(Refusal::not_now)?;
    Ok((read, turn))
}

/// The body of a page that is no call, as long as its route takes them.
pub struct Whole {
    bytes: bytes::Bytes,
    line: Option<Line>,
}

impl<S: Send + Sync> FromRequest<S> for Whole {
    type Rejection = BytesRejection;

    async fn from_request(request: Request, state: &S) -> Result<Self, BytesRejection> {
        let line = request.extensions().get().cloned();
        let bytes = bytes::Bytes::from_request(request, state).await?;
        Ok(Self { bytes, line })
    }
}

impl Whole {
    /// What it says, by this. A large one is read as a large call is, and has its turn for as long as what was made of it is kept.
    pub async fn read<T, E>(
        self,
        node: &Node,
        read: impl FnOnce(&[u8]) -> Result<T, E> + Send + 'static,
    ) -> Result<(T, Heard), Refusal>
    where
        T: Send + 'static,
        E: Display + Send + 'static,
    {
        let Self { bytes, line } = self;
        let (said, turn) = match bytes.len() > LARGE {
            false => (read(&bytes), None),
            true => in_turn(node, line.as_ref(), move || read(&bytes)).await?,
        };
        Ok((said.map_err(Refusal::bad)?, Heard(turn)))
    }
}

/// What is one message came as a stream.
fn no_stream() -> Refusal {
    let (header, expected) = ("Content-Type", media::FORMS);
    Refused::Unsupported { header, expected }.into()
}

/// What these bytes say; none if that is large.
fn read_small<C: Message + Default>(form: Form, bytes: &[u8]) -> Option<Result<C, Invalid>> {
    if bytes.len() > LARGE {
        return None;
    }
    let limits = Limits {
        memory: MEMORY,
        ..Limits::default()
    };
    let read = form.read(bytes, limits);
    match &read {
        Err(bad) if limits.is_too_much(bad) => None,
        _ => Some(read),
    }
}

/// The same headers, of which those that are read here are text and each has one value.
fn plain(mut headers: HeaderMap) -> Result<HeaderMap, Refusal> {
    for name in SINGLE.into_iter().chain(LISTS) {
        let mut lines = Vec::new();
        for line in headers.get_all(name) {
            let text = line.to_str().map_err(|_| {
                let found = String::from_utf8_lossy(line.as_bytes());
                Refusal::bad(Invalid::new(name, found, "text in visible ASCII"))
            })?;
            lines.push(text);
        }
        if lines.len() < 2 {
            continue;
        }
        let whole = lines.join(", ");
        if SINGLE.contains(&name) {
            return Err(Refusal::bad(Invalid::new(name, whole, "one value")));
        }
        let whole = HeaderValue::try_from(whole).map_err(Refusal::bad)?;
        headers.insert(name, whole);
    }
    Ok(headers)
}

/// What is compressed is refused before it is read: a few bytes of it may be any number.
fn check_plain(headers: &HeaderMap) -> Result<(), Refusal> {
    let codings = headers.get_all(CONTENT_ENCODING).iter();
    let coded = codings.filter(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"));
    match coded
        .map(|coding| coding.to_str().unwrap_or("no text"))
        .next()
    {
        None => Ok(()),
        Some(found) => {
            let found: String = found.chars().take(80).collect();
            let bad = Invalid::new("Content-Encoding", found, "none, or identity");
            Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, bad))
        }
    }
}

/// How many bytes a body has by its sender's word, if that is given before it.
pub fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The first record of a body, of which no more is read.
async fn first_record(body: Body) -> Result<bytes::Bytes, Refusal> {
    let mut decoder = Decoder::new(CALL_MAX);
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| unreadable(&error))?;
        let found = decoder.next(&mut &piece[..]).map_err(Refusal::bad)?;
        if let Some(record) = found {
            return Ok(record);
        }
    }
    decoder.end().map_err(Refusal::bad)?;
    Err(Refusal::bad("the body has no record: expected a call"))
}

async fn body_of(body: Body) -> Result<bytes::Bytes, Refusal> {
    let bytes = to_bytes(body, CALL_MAX).await;
    bytes.map_err(|error| unreadable(&error))
}

/// Why a body could not be read. Of one that was cut the gate says why.
fn unreadable(error: &axum::Error) -> Refusal {
    let is_long = std::error::Error::source(error)
        .is_some_and(|source| source.to_string().contains("length limit"));
    match is_long {
        true => {
            let problem = format!(
                "the body is longer than {CALL_MAX} bytes, which is all that a call may have"
            );
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, problem)
        }
        false => Refusal::bad(format!("the body ended before it was whole: {error}")),
    }
}

impl<C> Asked<C> {
    /// What the call means, by this. A large one is dwelt upon beside the thread that serves all pages and streams.
    pub async fn meaning<T: Send + 'static, E: Display + Send + 'static>(
        self,
        node: &Node,
        meaning: impl FnOnce(&C) -> Result<T, E> + Send + 'static,
    ) -> Result<(Self, T), Refusal>
    where
        C: Send + 'static,
    {
        let is_large = self.is_large;
        let dwell = move || (meaning(&self.call), self);
        let (meant, asked) = match is_large {
            false => dwell(),
            true => node.blocking(dwell).await.map_err(Refusal::not_now)?,
        };
        Ok((asked, meant.map_err(Refusal::bad)?))
    }

    /// Drops the words, and keeps the turn of one that is large for as long as what was made of it is kept.
    pub fn heard(self) -> Heard {
        Heard(self.turn)
    }

    /// Refuses a call of this name if it came as the first of a stream: it is one message.
    pub fn expect_one(&self, name: impl Display) -> Result<(), Refusal> {
        match self.is_streamed {
            true => {
                let problem = format!(
                    "Streaming 'Content-Type' application/recordio is not supported for {name} call"
                );
                Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, problem))
            }
            false => Ok(()),
        }
    }

    /// In which form one message is wanted.
    pub fn accept(&self) -> Result<Form, Refusal> {
        Ok(media::accept(self.header("Accept"))?)
    }

    /// In which form messages are wanted by who asks for a stream, or for what may be one.
    pub fn accept_stream(&self) -> Result<Content, Refusal> {
        let whole = self.header("Accept");
        Ok(media::accept_stream(whole, self.header("Message-Accept"))?)
    }

    /// Which stream this call belongs to.
    pub fn stream_id(&self) -> Option<&str> {
        self.header(media::STREAM_ID)
    }

    /// A header's value, of those that are read here.
    pub fn header(&self, name: &str) -> Option<&str> {
        value(&self.headers, name)
    }
}

fn value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// One message as an answer.
pub fn answer(form: Form, message: &dyn Message) -> Response {
    ([(CONTENT_TYPE, form.media_type())], form.write(message)).into_response()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::http::header::ALLOW;
    use runtime::rehearsal::stage;
    use v1::schema::scheduler::{Call, CallType};

    use super::*;

    fn request(method: &str, content: Option<&str>, body: impl Into<Body>) -> Request {
        let mut request = Request::builder().method(method).uri("/api/v1/scheduler");
        if let Some(content) = content {
            request = request.header(CONTENT_TYPE, content);
        }
        request.body(body.into()).unwrap()
    }

    async fn read(request: Request) -> Result<Asked<Call>, Refusal> {
        let node = runtime::rehearsal::node("node").build();
        Asked::read(&node, request).await
    }

    /// SPEC 2.1.
    #[test]
    fn a_call_is_read_in_its_form_with_who_says_it() {
        stage(async {
            let mut json = request("POST", Some("application/json"), r#"{"type":"REVIVE"}"#);
            json.extensions_mut().insert(Subject::named("ops"));
            json.headers_mut()
                .insert("Mesos-Stream-Id", "s1".parse().unwrap());
            let asked = read(json).await.unwrap();
            assert_eq!(asked.call.r#type, Some(CallType::Revive));
            assert_eq!(asked.subject, Subject::named("ops"));
            assert_eq!(
                (asked.stream_id(), asked.accept()),
                (Some("s1"), Ok(Form::Json))
            );
            let bytes = Form::Protobuf.write(&asked.call);
            let protobuf = request("POST", Some("application/x-protobuf"), bytes);
            assert_eq!(read(protobuf).await.unwrap().call, asked.call);
        });
    }

    /// Reading a large one and finding out what it means are both done where they hold up nobody's page.
    #[test]
    fn a_large_call_leaves_the_thread_that_serves_all_pages_twice_and_a_small_one_never() {
        stage(async {
            let node = runtime::rehearsal::node("node").build();
            node.slow_blocking(Duration::from_secs(2));
            let takes = async |padding: usize| {
                let begun = node.clock().now();
                let body = format!(r#"{{"type":"REVIVE"}}{}"#, " ".repeat(padding));
                let asked = request("POST", Some("application/json"), body);
                let asked = Asked::<Call>::read(&node, asked).await.unwrap();
                let meant = asked
                    .meaning(&node, |call| Ok::<_, String>(call.r#type))
                    .await;
                assert_eq!(meant.unwrap().1, Some(CallType::Revive));
                node.clock().now() - begun
            };
            assert_eq!(takes(0).await, Duration::ZERO);
            assert_eq!(takes(LARGE).await, Duration::from_secs(4));
        });
    }

    /// SPEC 2.1: each status, and the words that say what was wrong.
    #[test]
    fn what_is_no_call_is_refused_with_its_status_and_in_words() {
        stage(async {
            let json = Some("application/json");
            for (request, status, words) in [
                (
                    request("GET", json, ""),
                    405,
                    "405 Method Not Allowed. Expecting one of { 'POST' }, but received 'GET'.",
                ),
                (
                    request("POST", None, "{}"),
                    400,
                    "Expecting 'Content-Type' to be present",
                ),
                (
                    request("POST", Some("text/plain"), "{}"),
                    415,
                    "Expecting 'Content-Type' of application/json or application/x-protobuf",
                ),
                (request("POST", json, "{"), 400, "expected"),
                (
                    request("POST", json, vec![b' '; CALL_MAX + 1]),
                    413,
                    "longer than 16777216 bytes",
                ),
            ] {
                let refusal = read(request).await.unwrap_err();
                assert_eq!(refusal.status.as_u16(), status, "{refusal}");
                assert!(refusal.problem.contains(words), "{refusal}");
            }
            for (coding, status) in [("gzip", 415), ("identity, gzip", 415), ("Identity", 200)] {
                let mut coded = request("POST", json, r#"{"type":"REVIVE"}"#);
                let value = coding.parse().unwrap();
                coded.headers_mut().insert(CONTENT_ENCODING, value);
                let read = read(coded).await;
                let found = read.map_or_else(|refusal| refusal.status.as_u16(), |_| 200);
                assert_eq!(found, status, "{coding}");
            }
            let mut stream = request("POST", Some("application/recordio"), "2\n{}");
            stream
                .headers_mut()
                .insert("Message-Content-Type", "application/json".parse().unwrap());
            assert_eq!(read(stream).await.unwrap_err().status.as_u16(), 415);
            let refused = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "no").into_response();
            assert_eq!(refused.headers()[ALLOW], "POST");
        });
    }

    /// SPEC 2.1: a header that is no text, or says two things, is not taken for one that is absent, nor for the first of them.
    #[test]
    fn a_header_that_is_no_text_or_comes_twice_is_refused_by_its_name() {
        stage(async {
            let with = |lines: &[(&'static str, &[u8])]| {
                let mut call = request("POST", None, r#"{"type":"REVIVE"}"#);
                for (name, value) in lines {
                    let value = HeaderValue::from_bytes(value).unwrap();
                    call.headers_mut().append(*name, value);
                }
                call
            };
            let line = |name: &'static str, value: &'static [u8]| (name, value);
            let json = || line("content-type", b"application/json");
            for (lines, words) in [
                (
                    vec![line("content-type", b"application/json\xff")],
                    "Content-Type is `application/json\u{fffd}`: expected text in visible ASCII",
                ),
                (
                    vec![json(), json()],
                    "Content-Type is `application/json, application/json`: expected one value",
                ),
                (
                    vec![
                        json(),
                        line("message-content-type", b"a"),
                        line("message-content-type", b"b"),
                    ],
                    "Message-Content-Type is `a, b`: expected one value",
                ),
                (
                    vec![json(), line("mesos-stream-id", b"\xff")],
                    "Mesos-Stream-Id is `\u{fffd}`: expected text in visible ASCII",
                ),
                (
                    vec![
                        json(),
                        line("mesos-stream-id", b"s1"),
                        line("mesos-stream-id", b"s2"),
                    ],
                    "Mesos-Stream-Id is `s1, s2`: expected one value",
                ),
                (
                    vec![json(), line("accept", b"*/*"), line("accept", b"\xff")],
                    "Accept is `\u{fffd}`: expected text in visible ASCII",
                ),
                (
                    vec![json(), line("message-accept", b"\xff")],
                    "Message-Accept is `\u{fffd}`: expected text in visible ASCII",
                ),
            ] {
                let refusal = read(with(&lines)).await.unwrap_err();
                assert_eq!((refusal.status.as_u16(), &*refusal.problem), (400, words));
            }
            // Lines of a list are one list.
            let both = [
                json(),
                line("accept", b"text/html, application/json;q=0.5"),
                line("accept", b"application/x-protobuf"),
            ];
            let asked = read(with(&both)).await.unwrap();
            assert_eq!(asked.accept(), Ok(Form::Protobuf));
        });
    }
}
