//! Test support: sends requests to a service's routes without a connection.
//!
//! Only the normalization of paths and methods and the message of a 405 are applied: no connection
//! limits, no timeouts, and no bounds on bodies but those of the routes. Not used in production.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

use crate::api::CALL_MAX;

/// Room for the text around a long list in a call.
const AROUND: usize = 1 << 10;
/// Maximum bytes of an answer that are read.
const ANSWER_MAX: usize = 16 << 20;
/// Maximum bytes of a refusal: it stays in memory until the client reads it, so it must not repeat
/// the request.
pub const REFUSAL_MAX: usize = 5 << 10;

/// Sends a request to these routes. The body is not read yet, since it may be a stream.
pub async fn send(routes: &Router, mut request: Request) -> Response {
    let method = request.method().clone();
    crate::request::path::normalize(&mut request);
    match TowerToHyperService::new(routes.clone()).call(request).await {
        Ok(response) => crate::request::methods::explain(&method, response),
        Err(never) => match never {},
    }
}

/// Sends a request and returns status and text of the answer. The body must end; invalid UTF-8 is
/// replaced.
pub async fn fetch(routes: &Router, request: Request) -> (u16, String) {
    let response = send(routes, request).await;
    let status = response.status().as_u16();
    // A longer or broken answer is read as empty.
    let body = to_bytes(response.into_body(), ANSWER_MAX).await;
    let body = body.unwrap_or_default();
    (status, String::from_utf8_lossy(&body).into_owned())
}

/// A request with this body and content type.
///
/// # Panics
/// If the method, the path or the type is invalid.
#[allow(
    clippy::expect_used,
    reason = "a malformed request is a bug in the test"
)]
pub fn request(method: &str, path: &str, content_type: &str, body: impl Into<Body>) -> Request {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("Content-Type", content_type);
    request.body(body.into()).expect("a request")
}

/// A body that every endpoint must refuse.
#[derive(Debug)]
pub struct Hostile {
    /// A description of the defect.
    pub what: &'static str,
    /// The declared content type.
    pub content_type: &'static str,
    /// The bytes.
    pub body: Body,
}

impl Hostile {
    fn new(what: &'static str, content_type: &'static str, body: impl Into<Body>) -> Self {
        Self {
            what,
            content_type,
            body: body.into(),
        }
    }
}

/// Invalid bodies for endpoints that read this content type. `list` has the texts before and after
/// a list, which is filled with a million invalid entries.
pub fn hostile(content_type: &'static str, list: [&str; 2]) -> Vec<Hostile> {
    let wrong = |what, body: Vec<u8>| Hostile::new(what, content_type, body);
    let [before, after] = list;
    let long = "\\u0001".repeat(1 << 17);
    let around = |entries: &str| format!("{before}{entries}{after}").into_bytes();
    let mut all = vec![
        wrong("nothing", Vec::new()),
        wrong("a cut object", b"{\"".to_vec()),
        wrong("a number", b"7".to_vec()),
        wrong("a text", b"\"text\"".to_vec()),
        wrong("invalid UTF-8", b"{\"type\":\"\xff\xfe\"}".to_vec()),
        wrong("zeros", vec![0; 4096]),
        wrong("a deep list", "[".repeat(1 << 20).into_bytes()),
        wrong("a deep object", "{\"a\":".repeat(1 << 18).into_bytes()),
        wrong("an entry that is none", around("1")),
        wrong("a deep entry", around(&"[".repeat(1 << 20))),
        wrong("a number that is none", around("1e999999")),
        wrong("a long name", around(&format!(r#"{{"{long}":1}}"#))),
        wrong("a long text", around(&format!("\"{long}\""))),
        wrong("a list that is cut", format!("{before}1,").into_bytes()),
        wrong(
            "a million entries",
            around(&format!("{}1", "1,".repeat(999_999))),
        ),
    ];
    all.push(Hostile::new("no end", content_type, endless()));
    all
}

/// A million valid entries between these two texts, or as many as a call may hold; `entry` makes
/// each from its number.
pub fn long_list(list: [&str; 2], entry: impl Fn(u32) -> String) -> String {
    long_list_within(CALL_MAX - AROUND, list, entry)
}

/// Same, for a body of at most `bytes_max` bytes.
pub fn long_list_within(
    bytes_max: usize,
    list: [&str; 2],
    entry: impl Fn(u32) -> String,
) -> String {
    let [before, after] = list;
    let mut text = before.to_owned();
    for number in 0..1_000_000 {
        let entry = entry(number);
        if text.len() + entry.len() + after.len() >= bytes_max {
            break;
        }
        if number > 0 {
            text.push(',');
        }
        text.push_str(&entry);
    }
    text + after
}

/// A body that declares this length and breaks before the first byte.
pub fn cut_body(bytes: u64) -> Body {
    Body::new(CutBody(bytes))
}

struct CutBody(u64);

impl HttpBody for CutBody {
    type Data = bytes::Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<bytes::Bytes>, std::io::Error>>> {
        Poll::Ready(Some(Err(std::io::Error::other("it broke"))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0)
    }
}

/// Spaces without end, which a parser may skip forever.
fn endless() -> Body {
    let piece = bytes::Bytes::from(vec![b' '; 64 << 10]);
    let pieces = futures_util::stream::repeat_with(move || Ok::<_, std::io::Error>(piece.clone()));
    Body::from_stream(pieces)
}

/// Invalid bodies for v1 API endpoints: those of [`hostile`], and others that only these encodings
/// have. `list` has the texts around a list in a call.
pub fn hostile_calls(list: [&str; 2]) -> Vec<Hostile> {
    let (protobuf, recordio) = ("application/x-protobuf", "application/recordio");
    let mut all = hostile("application/json", list);
    all.extend([
        Hostile::new("no type of content", "", "{}"),
        Hostile::new("another type of content", "text/plain", "{}"),
        Hostile::new("a number without end", protobuf, vec![0xff; 64]),
        Hostile::new(
            "a field longer than all memory",
            protobuf,
            &b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"[..],
        ),
        Hostile::new("a group, which nobody has", protobuf, &b"\x0b\x0b\x0b"[..]),
        Hostile::new(
            "a record of 2^63 bytes",
            recordio,
            "9223372036854775808\n{}",
        ),
        Hostile::new("a record that is cut", recordio, "5\n{"),
        Hostile::new("a length that is none", recordio, "+1\n{"),
    ]);
    all
}

/// Sends these bodies and returns a description of each wrong answer: all but a short 4xx with a
/// reason. Empty if all are right.
pub async fn wrong_answers(
    routes: &Router,
    method: &str,
    path: &str,
    bodies: Vec<Hostile>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for hostile in bodies {
        let request = request(method, path, hostile.content_type, hostile.body);
        let (status, text) = fetch(routes, request).await;
        let has_reason = (10..=REFUSAL_MAX).contains(&text.len());
        if !(400..500).contains(&status) || matches!(status, 401 | 403..=405) || !has_reason {
            let what = hostile.what;
            let text: String = text.chars().take(200).collect();
            wrong.push(format!("{method} {path}, {what}: {status} `{text}`"));
        }
    }
    wrong
}
