//! A received call and its answer.
//!
//! Decoding is bounded in size, time and memory. It ends in a call or in a [`Refusal`] with the
//! field, its value and the expected value. [`Large`](crate::body::large_calls) calls and page
//! bodies ([`PageBody`]) are decoded a few at a time.

use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

use authority::Subject;
use axum::body::{Body, BodyDataStream, to_bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Request};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use runtime::Node;
use v1::form;
use v1::recordio::Decoder;
use v1::{Content, Form, Invalid, Limits, Message};

use super::refusal::Refusal;
use crate::admission::RequestSlot;
use crate::body::bounded::StreamedBody;
use crate::body::large_calls::{DecodePermit, DecodeQueue};
use crate::connections::Source;
use crate::request::methods;

/// Maximum bytes of a call.
pub const CALL_MAX: usize = 16 << 20;
/// Larger calls are decoded off the thread that serves pages and streams, once they have a permit.
const LARGE_BYTES: usize = 64 << 10;
/// So are calls that take more memory once decoded, however short.
const SMALL_MEMORY: usize = 1 << 20;

/// Headers that may occur once.
const SINGLE_HEADERS: [&str; 3] = ["Content-Type", "Message-Content-Type", form::STREAM_ID];
/// List headers; several lines are joined.
const LIST_HEADERS: [&str; 2] = ["Accept", "Message-Accept"];

/// A received call and the headers that select its answer.
#[derive(Debug)]
pub struct ReceivedCall<C> {
    /// The decoded call.
    pub call: C,
    /// The caller; without a principal unless the request was authenticated.
    pub subject: Subject,
    /// The source address; none without a connection, as in tests.
    pub source: Option<Source>,
    /// The encoding of the call.
    pub form: Form,
    /// Whether it was the first record of a stream.
    pub is_streamed: bool,
    /// Whether calls and answers of this API may be streams of records.
    streams: bool,
    /// Whether it is too large to be kept after its request is answered.
    pub is_large: bool,
    headers: HeaderMap,
    permit: Option<Arc<DecodePermit>>,
    slot: Option<RequestSlot>,
    /// The records after the call, if it was the first of a stream. The lock makes it shareable.
    records: Option<Mutex<Records>>,
}

/// Keeps the permit of a large call after its decoded form is dropped: the next large call waits
/// until this is dropped too.
#[derive(Debug)]
#[must_use = "what was made of a call weighs about as much as its words"]
pub struct CallPermit(#[allow(dead_code, reason = "it is dropped")] Option<Arc<DecodePermit>>);

impl<C: Message + Default + Send + 'static> ReceivedCall<C> {
    /// Decodes the call of a request, whose body the listener bounds in time. Only `POST` is
    /// allowed.
    pub async fn read(node: &Node, request: Request) -> Result<Self, Refusal> {
        Self::read_body(node, request, false).await
    }

    /// Same, for APIs where a call may begin a stream of records, as `ATTACH_CONTAINER_INPUT` does:
    /// decodes the first record; the others are read from [`take_records`](Self::take_records).
    pub async fn read_first(node: &Node, request: Request) -> Result<Self, Refusal> {
        Self::read_body(node, request, true).await
    }

    async fn read_body(node: &Node, request: Request, streams: bool) -> Result<Self, Refusal> {
        let (parts, body) = request.into_parts();
        if parts.method != Method::POST {
            let problem = methods::not_allowed(&parts.method, ["POST"].into_iter());
            return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, problem));
        }
        let headers = single_headers(parts.headers)?;
        let content = form::content_type(
            value(&headers, "Content-Type"),
            value(&headers, "Message-Content-Type"),
            streams,
        )?;
        check_not_compressed(&headers)?;
        let is_streamed = matches!(content, Content::Stream(_));
        let mut records = None;
        let (form, bytes) = match content {
            Content::One(form) => (form, body_of(body).await?),
            Content::Stream(form) => {
                let streamed = parts.extensions.get().cloned();
                let records = records.insert(Records::of(body, streamed));
                let none = || Refusal::bad("the body has no record: expected a call");
                (form, records.next().await?.ok_or_else(none)?)
            }
        };
        let small = read_small(form, &bytes);
        let (is_large, mut permit) = (small.is_none(), None);
        let call = match small {
            Some(read) => read,
            None => {
                let read = move || form.read(&bytes, Limits::default());
                let read = with_permit(node, parts.extensions.get(), read).await?;
                permit = read.1;
                read.0
            }
        };
        Ok(Self {
            call: call.map_err(|bad| undecodable(form, streams, &bad))?,
            subject: parts.extensions.get().cloned().unwrap_or_default(),
            source: parts.extensions.get().copied(),
            form,
            is_streamed,
            streams,
            is_large,
            headers,
            permit,
            slot: parts.extensions.get().cloned(),
            records: records.map(Mutex::new),
        })
    }
}

/// Runs `read` off the thread that serves pages and streams, with a permit, and returns that too.
async fn with_permit<T: Send + 'static>(
    node: &Node,
    queue: Option<&DecodeQueue>,
    read: impl FnOnce() -> T + Send + 'static,
) -> Result<(T, Option<Arc<DecodePermit>>), Refusal> {
    let permit = match queue.cloned() {
        Some(queue) => Some(Arc::new(queue.permit(node).await?)),
        None => None,
    };
    let read = node.blocking(read).await.map_err(Refusal::not_now)?;
    Ok((read, permit))
}

/// The body of a page that is not a v1 call, bounded by its route.
pub struct PageBody {
    bytes: bytes::Bytes,
    queue: Option<DecodeQueue>,
}

impl<S: Send + Sync> FromRequest<S> for PageBody {
    type Rejection = BytesRejection;

    async fn from_request(request: Request, state: &S) -> Result<Self, BytesRejection> {
        let queue = request.extensions().get().cloned();
        let bytes = bytes::Bytes::from_request(request, state).await?;
        Ok(Self { bytes, queue })
    }
}

impl PageBody {
    /// Parses the body with `read`. A large one needs a permit like a large call, and keeps it as
    /// long as the returned [`CallPermit`].
    pub async fn read<T, E>(
        self,
        node: &Node,
        read: impl FnOnce(&[u8]) -> Result<T, E> + Send + 'static,
    ) -> Result<(T, CallPermit), Refusal>
    where
        T: Send + 'static,
        E: Display + Send + 'static,
    {
        let Self { bytes, queue } = self;
        let (parsed, permit) = match bytes.len() > LARGE_BYTES {
            false => (read(&bytes), None),
            true => with_permit(node, queue.as_ref(), move || read(&bytes)).await?,
        };
        Ok((parsed.map_err(Refusal::bad)?, CallPermit(permit)))
    }
}

/// The refusal of bytes that are no call. It begins with the words of Mesos, which clients compare;
/// the operator API of agents (`streams`) has words of its own.
fn undecodable(form: Form, streams: bool, bad: &Invalid) -> Refusal {
    let prefix = match (form, streams) {
        // Bytes that are no JSON: the message has the words.
        (Form::Json, _) if bad.field.is_empty() => "",
        (Form::Json, true) => "",
        (Form::Json, false) => "Failed to convert JSON into Call protobuf: ",
        (Form::Protobuf, true) => "Failed to parse body into a protobuf object: ",
        (Form::Protobuf, false) => "Failed to parse body into Call protobuf: ",
    };
    Refusal::bad(format!("{prefix}{bad}"))
}

/// Decodes a small call; none if it is large.
fn read_small<C: Message + Default>(form: Form, bytes: &[u8]) -> Option<Result<C, Invalid>> {
    if bytes.len() > LARGE_BYTES {
        return None;
    }
    let limits = Limits {
        memory: SMALL_MEMORY,
        ..Limits::default()
    };
    let read = form.read(bytes, limits);
    match &read {
        Err(bad) if limits.is_too_much(bad) => None,
        _ => Some(read),
    }
}

/// The headers with text values, each single-valued one once and list headers joined.
fn single_headers(mut headers: HeaderMap) -> Result<HeaderMap, Refusal> {
    for name in SINGLE_HEADERS.into_iter().chain(LIST_HEADERS) {
        let mut lines = Vec::new();
        for queue in headers.get_all(name) {
            let text = queue.to_str().map_err(|_| {
                let found = String::from_utf8_lossy(queue.as_bytes());
                Refusal::bad(Invalid::new(name, found, "text in visible ASCII"))
            })?;
            lines.push(text);
        }
        if lines.len() < 2 {
            continue;
        }
        let whole = lines.join(", ");
        if SINGLE_HEADERS.contains(&name) {
            return Err(Refusal::bad(Invalid::new(name, whole, "one value")));
        }
        let whole = HeaderValue::try_from(whole).map_err(Refusal::bad)?;
        headers.insert(name, whole);
    }
    Ok(headers)
}

/// Refuses compressed bodies: a few bytes may expand without bound.
fn check_not_compressed(headers: &HeaderMap) -> Result<(), Refusal> {
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

/// The body's length, if the client declares it.
pub fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The records of a streamed body after those that were read.
pub struct Records {
    decoder: Decoder,
    piece: bytes::Bytes,
    pieces: BodyDataStream,
    streamed: Option<StreamedBody>,
}

impl std::fmt::Debug for Records {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Records").finish_non_exhaustive()
    }
}

impl Records {
    fn of(body: Body, streamed: Option<StreamedBody>) -> Self {
        Self {
            decoder: Decoder::new(CALL_MAX),
            piece: bytes::Bytes::new(),
            pieces: body.into_data_stream(),
            streamed,
        }
    }

    /// Lets the rest take any time.
    pub fn take_any_time(&self) {
        if let Some(streamed) = &self.streamed {
            streamed.allow();
        }
    }

    /// The next record; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<bytes::Bytes>, Refusal> {
        loop {
            let mut rest = &self.piece[..];
            let found = self.decoder.next(&mut rest).map_err(Refusal::bad)?;
            let read = self.piece.len() - rest.len();
            self.piece = self.piece.slice(read..);
            if found.is_some() {
                return Ok(found);
            }
            match self.pieces.next().await {
                Some(piece) => self.piece = piece.map_err(|error| unreadable(&error))?,
                None => {
                    self.decoder.end().map_err(Refusal::bad)?;
                    return Ok(None);
                }
            }
        }
    }
}

async fn body_of(body: Body) -> Result<bytes::Bytes, Refusal> {
    let bytes = to_bytes(body, CALL_MAX).await;
    bytes.map_err(|error| unreadable(&error))
}

/// The refusal for a body that cannot be read. For one that was cut off, admission control replaces
/// it.
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

impl<C: Default> ReceivedCall<C> {
    /// Drops the decoded call, and releases the permit of a large one and the request's slot: the
    /// answer may take any time.
    pub fn answer_any_time(&mut self) {
        self.drop_call();
        if let Some(slot) = &self.slot {
            slot.leave();
        }
    }

    /// Drops the decoded call, and releases the permit of a large one.
    pub fn drop_call(&mut self) {
        self.call = C::default();
        self.permit = None;
    }
}

impl<C> ReceivedCall<C> {
    /// Applies `meaning` to the call, off the thread that serves pages and streams if it is large.
    pub async fn meaning<T: Send + 'static, E: Display + Send + 'static>(
        self,
        node: &Node,
        meaning: impl FnOnce(&C) -> Result<T, E> + Send + 'static,
    ) -> Result<(Self, T), Refusal>
    where
        C: Send + 'static,
    {
        let is_large = self.is_large;
        let convert = move || (meaning(&self.call), self);
        let (converted, asked) = match is_large {
            false => convert(),
            true => node.blocking(convert).await.map_err(Refusal::not_now)?,
        };
        Ok((asked, converted.map_err(Refusal::bad)?))
    }

    /// Drops the decoded call and keeps the permit of a large one.
    pub fn into_permit(self) -> CallPermit {
        CallPermit(self.permit)
    }

    /// Refuses this call if it came as the first record of a stream.
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

    /// Takes the records after the call, if it was the first of a stream.
    pub fn take_records(&mut self) -> Option<Records> {
        let records = self.records.take()?.into_inner();
        Some(records.unwrap_or_else(PoisonError::into_inner))
    }

    /// The encoding of an answer that is a stream of records in any case.
    pub fn accept_output(&self) -> Result<Content, Refusal> {
        let streamed = self.accept_stream();
        match streamed {
            Ok(content) => Ok(content),
            // As in Mesos: the records go under the name of their form.
            Err(refusal) => self.accept().map(Content::One).map_err(|_| refusal),
        }
    }

    /// The encoding of an answer of one message.
    pub fn accept(&self) -> Result<Form, Refusal> {
        Ok(form::accept(self.header("Accept"), self.streams)?)
    }

    /// The encoding of the messages, if the answer may be a stream.
    pub fn accept_stream(&self) -> Result<Content, Refusal> {
        let whole = self.header("Accept");
        Ok(form::accept_stream(whole, self.header("Message-Accept"))?)
    }

    /// The stream to which this call belongs.
    pub fn stream_id(&self) -> Option<&str> {
        self.header(form::STREAM_ID)
    }

    /// A header's value. Only the headers listed above are validated.
    pub fn header(&self, name: &str) -> Option<&str> {
        value(&self.headers, name)
    }
}

fn value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Encodes one message as an answer.
pub fn answer(form: Form, message: &dyn Message) -> Response {
    ([(CONTENT_TYPE, form.media_type())], form.write(message)).into_response()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;
    use testkit::rows;

    use axum::http::header::ALLOW;
    use runtime::testing::run_simulated;
    use v1::schema::scheduler::{Call, CallType};

    use super::*;

    fn request(method: &str, content: Option<&str>, body: impl Into<Body>) -> Request {
        let mut request = Request::builder().method(method).uri("/api/v1/scheduler");
        if let Some(content) = content {
            request = request.header(CONTENT_TYPE, content);
        }
        request.body(body.into()).unwrap()
    }

    async fn read(request: Request) -> Result<ReceivedCall<Call>, Refusal> {
        let node = runtime::testing::node("node").build();
        ReceivedCall::read(&node, request).await
    }

    /// SPEC 2.1.
    #[test]
    fn a_call_is_decoded_with_its_caller() {
        run_simulated(async {
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

    /// Neither decoding nor conversion of a large call delays other pages.
    #[test]
    fn only_large_calls_leave_the_page_thread() {
        run_simulated(async {
            let node = runtime::testing::node("node").build();
            node.slow_blocking(Duration::from_secs(2));
            let takes = async |padding: usize| {
                let begun = node.clock().now();
                let body = format!(r#"{{"type":"REVIVE"}}{}"#, " ".repeat(padding));
                let asked = request("POST", Some("application/json"), body);
                let asked = ReceivedCall::<Call>::read(&node, asked).await.unwrap();
                let converted = asked
                    .meaning(&node, |call| Ok::<_, String>(call.r#type))
                    .await;
                assert_eq!(converted.unwrap().1, Some(CallType::Revive));
                node.clock().now() - begun
            };
            assert_eq!(takes(0).await, Duration::ZERO);
            assert_eq!(takes(LARGE_BYTES).await, Duration::from_secs(4));
        });
    }

    /// SPEC 2.1: each status and message.
    #[test]
    fn invalid_calls_are_refused_with_status_and_reason() {
        run_simulated(async {
            let json = Some("application/json");
            let refused = async |request: Request, status: u16, words: &str| {
                let refusal = read(request).await.unwrap_err();
                assert_eq!(refusal.status.as_u16(), status, "{refusal}");
                assert!(refusal.problem.contains(words), "{refusal}");
            };
            for [method, content, body, status, words] in rows(
                r#"
                GET | application/json |  | 405 | 405 Method Not Allowed. Expecting one of { 'POST' }, but received 'GET'.
                POST |  | {} | 400 | Expecting 'Content-Type' to be present
                POST | text/plain | {} | 415 | Expecting 'Content-Type' of application/json or application/x-protobuf
                POST | application/json | { | 400 | Failed to parse body into JSON:
                POST | application/json | [] | 400 | Failed to convert JSON into Call protobuf:
                POST | application/json | {"kill":{"task_id":1}} | 400 | Failed to convert JSON into Call protobuf: kill.task_id
                POST | application/x-protobuf | no call | 400 | Failed to parse body into Call protobuf:
            "#,
            ) {
                let content = Some(content).filter(|content| !content.is_empty());
                let request = request(method, content, body);
                refused(request, status.parse().unwrap(), words).await;
            }
            let huge = request("POST", json, vec![b' '; CALL_MAX + 1]);
            refused(huge, 413, "longer than 16777216 bytes").await;
            let node = runtime::testing::node("node").build();
            for [content, body, words] in rows(
                r#"
                application/json | { | Failed to parse body into JSON:
                application/json | {"kill":{"task_id":1}} | kill.task_id
                application/x-protobuf | no call | Failed to parse body into a protobuf object:
            "#,
            ) {
                let request = request("POST", Some(content), body);
                let refusal = ReceivedCall::<Call>::read_first(&node, request).await;
                let refusal = refusal.unwrap_err().to_string();
                assert!(refusal.starts_with(words), "{refusal}");
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

    /// SPEC 2.1: a header that is not text, or occurs twice, is neither ignored nor reduced to its
    /// first value.
    // Covers 2.1 400.
    #[test]
    fn invalid_and_duplicate_headers_are_refused_by_name() {
        run_simulated(async {
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
            // Lines of a list header are joined.
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
