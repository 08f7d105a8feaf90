//! What becomes of an answer on its way out: words for a method that a page has not, `?jsonp=` around what is JSON, and gzip for who reads it
//! (SPEC 2.1, 3.9).
//!
//! Only answers that are whole are touched: a stream is neither wrapped nor compressed. What is large is compressed off the thread that
//! serves pages, and what several readers get once for all of them ([`Shared`]). A pure choice of headers and lengths; nothing else is
//! remembered.

use std::io::Write;
use std::sync::Arc;

use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::{BufMut, Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use runtime::Node;
use tokio::sync::OnceCell;

use crate::api::Refusal;

/// A body that is not longer is sent as it is: compressing it saves less than a packet.
const GZIP_MIN: u64 = 1024;
/// A longer one is compressed off this thread.
const INLINE_MAX: usize = 16 * 1024;
/// The longest name of a function that an answer is wrapped into.
const CALLBACK_MAX: usize = 128;

/// What a body is compressed to that several readers get: made for the first of them who reads gzip. It is among the extensions of each
/// response that has this body.
#[derive(Clone, Debug, Default)]
pub struct Shared(Arc<OnceCell<Option<Bytes>>>);

/// Serves a request, and wraps and compresses the answer as the request says.
pub(crate) async fn outgoing(State(node): State<Node>, request: Request, next: Next) -> Response {
    let callback = match (request.method(), callback(request.uri().query())) {
        (&Method::GET, Err(problem)) => {
            return (StatusCode::BAD_REQUEST, problem).into_response();
        }
        (&Method::GET, Ok(callback)) => callback,
        _ => None,
    };
    let reads_gzip = reads_gzip(request.headers());
    let method = request.method().clone();
    let mut response = in_words(&method, next.run(request).await);
    if let Some(callback) = callback
        && is_json(&response)
    {
        response = wrap(response, &callback).await;
    }
    match reads_gzip && is_worth_it(&response) {
        true => compress(&node, response).await,
        false => response,
    }
}

/// A 405 that says nothing says what was wrong. Which methods there are is put into its head further out.
fn in_words(method: &Method, mut response: Response) -> Response {
    let is_silent = response.body().size_hint().exact() == Some(0);
    if response.status() == StatusCode::METHOD_NOT_ALLOWED && is_silent {
        let problem =
            format!("{method} is not served here: expected a method that `Allow` names\n");
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, plain);
        response.headers_mut().remove(CONTENT_LENGTH);
        *response.body_mut() = Body::from(problem);
    }
    response
}

/// The function that the answer is to be wrapped into, percent-encoding aside: names that may stand in a script have none.
fn callback(query: Option<&str>) -> Result<Option<String>, String> {
    let pairs = query.unwrap_or_default().split('&');
    let Some(name) = pairs.filter_map(|pair| pair.strip_prefix("jsonp=")).next() else {
        return Ok(None);
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$');
    match name.chars().all(is_plain) && (1..=CALLBACK_MAX).contains(&name.len()) {
        true => Ok(Some(name.to_owned())),
        false => {
            let name: String = name.chars().take(CALLBACK_MAX).collect();
            Err(format!(
                "jsonp is `{name}`: expected the name of a function, of at most {CALLBACK_MAX} letters, digits, `_`, `.` and `$`\n"
            ))
        }
    }
}

fn is_json(response: &Response) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE);
    response.body().size_hint().exact().is_some()
        && content_type.is_some_and(|content_type| content_type == "application/json")
}

async fn wrap(response: Response, callback: &str) -> Response {
    let (mut head, body) = response.into_parts();
    let body = match to_bytes(body, usize::MAX).await {
        Ok(body) => body,
        Err(broken) => return cut(&broken),
    };
    let mut script = BytesMut::with_capacity(callback.len() + body.len() + 3);
    script.put_slice(callback.as_bytes());
    script.put_slice(b"(");
    script.put_slice(&body);
    script.put_slice(b");");
    let script_type = HeaderValue::from_static("text/javascript");
    head.headers.insert(CONTENT_TYPE, script_type);
    head.headers.remove(CONTENT_LENGTH);
    // This script is the reader's own.
    head.extensions.remove::<Shared>();
    Response::from_parts(head, Body::from(script.freeze()))
}

/// Whether the reader takes gzip: named, or meant by `*`, and not with a weight of nothing.
fn reads_gzip(headers: &HeaderMap) -> bool {
    let texts = headers.get_all(ACCEPT_ENCODING).iter();
    let texts = texts.filter_map(|value| value.to_str().ok());
    let mut wildcard = false;
    for coding in texts.flat_map(|text| text.split(',')) {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q="));
        let wanted =
            weight.is_none_or(|weight| weight.parse().is_ok_and(|weight: f32| weight > 0.0));
        match name {
            name if name.eq_ignore_ascii_case("gzip") => return wanted,
            "*" => wildcard = wanted,
            _ => {}
        }
    }
    wildcard
}

/// Whether an answer is whole, long enough, and not encoded yet.
fn is_worth_it(response: &Response) -> bool {
    let length = response.body().size_hint().exact();
    length.is_some_and(|length| length > GZIP_MIN)
        && !response.headers().contains_key(CONTENT_ENCODING)
}

/// An answer that ended before it was whole.
fn cut(broken: &axum::Error) -> Response {
    let problem = format!("the answer was cut while it was made: {broken}");
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, problem).into_response()
}

async fn compress(node: &Node, response: Response) -> Response {
    let (mut head, body) = response.into_parts();
    let body = match to_bytes(body, usize::MAX).await {
        Ok(body) => body,
        Err(broken) => return cut(&broken),
    };
    let shared = head.extensions.remove::<Shared>().unwrap_or_default();
    let compressed = shared
        .0
        .get_or_init(|| compressed(node, &body))
        .await
        .clone();
    head.headers
        .append(VARY, HeaderValue::from_static("accept-encoding"));
    let Some(compressed) = compressed else {
        return Response::from_parts(head, Body::from(body));
    };
    let encoding = HeaderValue::from_static("gzip");
    head.headers.insert(CONTENT_ENCODING, encoding);
    head.headers.remove(CONTENT_LENGTH);
    Response::from_parts(head, Body::from(compressed))
}

/// The body in short; none if that cannot be.
async fn compressed(node: &Node, body: &Bytes) -> Option<Bytes> {
    if body.len() <= INLINE_MAX {
        return gzip(body);
    }
    let body = body.clone();
    let compressed = node.blocking_behind(move || gzip(&body)).await;
    compressed.unwrap_or(None)
}

/// At the cheapest level: pages shrink to a tenth, and a higher one would cost more time than it saves on the way.
fn gzip(body: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 8), Compression::fast());
    encoder.write_all(body).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use axum::Router;
    use axum::http::header::{ALLOW, CONTENT_TYPE};
    use axum::middleware::from_fn_with_state;
    use axum::routing::{any, get};
    use flate2::read::GzDecoder;
    use futures_util::{FutureExt, StreamExt};
    use runtime::rehearsal::rehearse;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::rehearsal::cut_body;

    fn routes(node: &Node) -> Router {
        let json = |length: usize| {
            let text = format!("\"{}\"", "x".repeat(length));
            ([(CONTENT_TYPE, "application/json")], text)
        };
        let stream = || async {
            let pieces = futures_util::stream::iter([Ok::<_, std::io::Error>("y".repeat(5000))]);
            Body::from_stream(pieces)
        };
        Router::new()
            .route("/small", get(move || async move { json(10) }))
            .route("/page", get(move || async move { json(5000) }))
            .route("/large", get(move || async move { json(300_000) }))
            .route("/stream", get(stream))
            .route(
                "/cut",
                get(|| async { ([(CONTENT_TYPE, "application/json")], cut_body(5000)) }),
            )
            .layer(from_fn_with_state(node.clone(), outgoing))
    }

    /// The head and the body of the answer to this, over a connection in memory.
    async fn ask(node: &Node, path: &str, header: &str) -> (String, Vec<u8>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::task::spawn_local({
            let routes = routes(node);
            async move { axum::serve(listener, routes).await }
        });
        let mut connection = tokio::net::TcpStream::connect(address).await.unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{header}\r\n");
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).await.unwrap();
        serving.abort();
        let end = answer
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .unwrap();
        let body = answer.split_off(end + 4);
        (String::from_utf8(answer).unwrap().to_lowercase(), body)
    }

    fn unzipped(body: &[u8]) -> String {
        let mut text = String::new();
        GzDecoder::new(body).read_to_string(&mut text).unwrap();
        text
    }

    /// SPEC 2.1: for answers that are no streams.
    #[test]
    fn whole_answers_above_a_kibibyte_are_compressed_for_who_reads_that() {
        rehearse(|node| async move {
            for (path, length) in [("/page", 5002), ("/large", 300_002)] {
                let (head, body) =
                    ask(&node, path, "Accept-Encoding: deflate, GZIP;q=0.5\r\n").await;
                assert!(head.contains("content-encoding: gzip"), "{head}");
                assert!(head.contains("vary: accept-encoding"), "{head}");
                assert!(body.len() < length / 10);
                assert_eq!(unzipped(&body).len(), length);
            }
            for (path, header) in [
                ("/page", ""),
                ("/page", "Accept-Encoding: gzip;q=0, *\r\n"),
                ("/small", "Accept-Encoding: gzip\r\n"),
                ("/stream", "Accept-Encoding: gzip\r\n"),
            ] {
                let (head, _) = ask(&node, path, header).await;
                assert!(!head.contains("content-encoding"), "{path} {header} {head}");
            }
        });
    }

    /// W15: a page that is made for many is compressed for many.
    #[test]
    fn what_several_readers_get_is_compressed_for_the_first_of_them() {
        rehearse(|node| async move {
            let (body, shared) = (Bytes::from("x".repeat(300_000)), Shared::default());
            let response = |shared: &Shared| {
                let mut response = Response::new(Body::from(body.clone()));
                response.extensions_mut().insert(shared.clone());
                compress(&node, response)
            };
            // The first goes before it has it.
            let _ = response(&shared).now_or_never();
            let (one, other) = futures_util::join!(response(&shared), response(&shared));
            let alone = response(&Shared::default()).await;
            let mut pieces = Vec::new();
            for response in [one, other, alone] {
                let mut body = response.into_body().into_data_stream();
                pieces.push(body.next().await.unwrap().unwrap());
            }
            assert_eq!(pieces[0].as_ptr(), pieces[1].as_ptr());
            assert_ne!(pieces[0].as_ptr(), pieces[2].as_ptr());
            assert_eq!(unzipped(&pieces[0]).len(), body.len());
        });
    }

    /// SPEC 2.1: each status has a body that says what was wrong.
    #[test]
    fn a_method_that_a_page_has_not_is_refused_with_those_that_it_has() {
        rehearse(|node| async move {
            let told = || async {
                let own = [(ALLOW, "POST")];
                (StatusCode::METHOD_NOT_ALLOWED, own, "own words")
            };
            let routes = routes(&node).route("/told", any(told));
            let routes = routes.layer(from_fn_with_state(node.clone(), outgoing));
            for (method, path, allowed, words) in [
                (
                    "POST",
                    "/small",
                    "GET,HEAD",
                    "POST is not served here: expected a method that `Allow` names\n",
                ),
                ("PUT", "/told", "POST", "own words"),
            ] {
                let asked = crate::rehearsal::request(method, path, "", "");
                let answer = crate::rehearsal::answer(&routes, asked).await;
                assert_eq!(answer.status(), 405, "{path}");
                assert_eq!(answer.headers()[ALLOW], allowed, "{path}");
                let body = to_bytes(answer.into_body(), 1000).await.unwrap();
                assert_eq!(body, words, "{path}");
            }
        });
    }

    /// SPEC 3.9.
    #[test]
    fn json_is_wrapped_into_the_function_that_is_named_and_into_no_script() {
        rehearse(|node| async move {
            let (head, body) = ask(&node, "/small?a=1&jsonp=angular.callbacks._0", "").await;
            assert!(head.contains("content-type: text/javascript"), "{head}");
            assert_eq!(body, b"angular.callbacks._0(\"xxxxxxxxxx\");");
            let (head, body) = ask(&node, "/page?jsonp=f", "Accept-Encoding: *\r\n").await;
            assert!(head.contains("content-encoding: gzip"), "{head}");
            assert!(unzipped(&body).starts_with("f(\"x"));
            for name in ["", "alert(1)//", "a%3Cb", &"f".repeat(129)] {
                let (head, body) = ask(&node, &format!("/small?jsonp={name}"), "").await;
                assert!(head.starts_with("http/1.1 400"), "{head}");
                assert!(body.starts_with(b"jsonp is"), "{name}");
            }
            let (head, _) = ask(&node, "/stream?jsonp=f", "").await;
            assert!(!head.contains("javascript"), "{head}");
        });
    }

    #[test]
    fn an_answer_that_is_cut_while_it_is_made_says_so() {
        rehearse(|node| async move {
            for (query, coding) in [("", "gzip"), ("?jsonp=f", "identity")] {
                let request = axum::extract::Request::get(format!("/cut{query}"));
                let request = request.header(ACCEPT_ENCODING, coding).body(Body::empty());
                let told = crate::rehearsal::said(&routes(&node), request.unwrap()).await;
                let words = "the answer was cut while it was made: it broke\n";
                assert_eq!(told, (500, words.to_owned()), "{query}");
            }
        });
    }
}
