//! Post-processing of answers: `?jsonp=` wraps JSON, and gzip compresses if the client accepts it.
//!
//! Only complete answers are changed: streams are neither wrapped nor compressed. An answer with
//! several readers is compressed once ([`SharedBody`]). Stateless.

use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::{BufMut, BytesMut};
use runtime::Node;
use v1::Invalid;

use crate::api::Refusal;
use crate::body::shared::SharedBody;
use crate::request::browsers::jsonp_is_off;
use crate::request::query::values;

/// Bodies up to this size are not compressed: it would save less than a packet.
const GZIP_MIN: u64 = 1024;
/// Maximum length of a JSONP function name.
const CALLBACK_MAX: usize = 128;

/// Settings of a listener's answers.
#[derive(Clone)]
pub(crate) struct Postprocess {
    /// Compresses long bodies off the thread that serves pages.
    pub node: Node,
    /// Whether `?jsonp=` is supported.
    pub jsonp: bool,
}

/// Serves a request, and wraps and compresses the answer as requested.
pub(crate) async fn postprocess(
    State(Postprocess { node, jsonp }): State<Postprocess>,
    request: Request,
    next: Next,
) -> Response {
    let callback = match (request.method(), callback(request.uri().query())) {
        (&Method::GET, Err(problem)) => {
            return Refusal::bad(problem).into_response();
        }
        (&Method::GET, Ok(Some(name))) if !jsonp => {
            return jsonp_is_off(&name).into_response();
        }
        (&Method::GET, Ok(callback)) => callback,
        _ => None,
    };
    let accepts_gzip = accepts_gzip(request.headers());
    let mut response = next.run(request).await;
    if let Some(callback) = callback
        && is_json(&response)
    {
        response = wrap(response, &callback).await;
    }
    match accepts_gzip && should_compress(&response) {
        true => compress(&node, response).await,
        false => response,
    }
}

/// The function that wraps the answer, if any.
fn callback(query: Option<&str>) -> Result<Option<String>, Invalid> {
    let Some(query) = query.filter(|query| query.contains("jsonp")) else {
        return Ok(None);
    };
    let Some(name) = values(query).remove("jsonp") else {
        return Ok(None);
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$');
    match name.chars().all(is_plain) && (1..=CALLBACK_MAX).contains(&name.len()) {
        true => Ok(Some(name)),
        false => {
            let expected = format!(
                "the name of a function, of at most {CALLBACK_MAX} letters, digits, `_`, `.` and `$`"
            );
            Err(Invalid::new("jsonp", name, expected))
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
        Err(broken) => return broken_response(&broken),
    };
    let mut script = BytesMut::with_capacity(callback.len() + body.len() + 3);
    script.put_slice(callback.as_bytes());
    script.put_slice(b"(");
    script.put_slice(&body);
    script.put_slice(b");");
    let script_type = HeaderValue::from_static("text/javascript");
    head.headers.insert(CONTENT_TYPE, script_type);
    head.headers.remove(CONTENT_LENGTH);
    // The script is for this reader only.
    head.extensions.remove::<SharedBody>();
    Response::from_parts(head, Body::from(script.freeze()))
}

/// Whether the client accepts gzip: by name or by `*`, with a weight above zero.
fn accepts_gzip(headers: &HeaderMap) -> bool {
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

/// Whether an answer is complete, long enough, and not yet encoded.
fn should_compress(response: &Response) -> bool {
    let length = response.body().size_hint().exact();
    length.is_some_and(|length| length > GZIP_MIN)
        && !response.headers().contains_key(CONTENT_ENCODING)
}

/// The answer in place of one that broke while it was made.
fn broken_response(broken: &axum::Error) -> Response {
    let problem = format!("the response broke off while it was built: {broken}");
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, problem).into_response()
}

async fn compress(node: &Node, response: Response) -> Response {
    let (mut head, body) = response.into_parts();
    let shared = match head.extensions.remove::<SharedBody>() {
        Some(shared) => shared,
        None => match to_bytes(body, usize::MAX).await {
            Ok(body) => SharedBody::from(body),
            Err(broken) => return broken_response(&broken),
        },
    };
    head.headers
        .append(VARY, HeaderValue::from_static("accept-encoding"));
    let Some(compressed) = shared.gzip(node).await else {
        return Response::from_parts(head, shared.body());
    };
    let encoding = HeaderValue::from_static("gzip");
    head.headers.insert(CONTENT_ENCODING, encoding);
    head.headers.remove(CONTENT_LENGTH);
    Response::from_parts(head, compressed)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use axum::Router;
    use axum::http::header::CONTENT_TYPE;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use flate2::read::GzDecoder;
    use runtime::testing::simulate;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use v1::body_parts::{BodyPart, BodyParts};

    use super::*;
    use crate::testing::cut_body;

    fn state(node: &Node, jsonp: bool) -> Postprocess {
        let node = node.clone();
        Postprocess { node, jsonp }
    }

    fn routes(node: &Node) -> Router {
        let json = |length: usize| {
            let text = format!("\"{}\"", "x".repeat(length));
            ([(CONTENT_TYPE, "application/json")], text)
        };
        let stream = || async {
            let pieces = futures_util::stream::iter([Ok::<_, std::io::Error>("y".repeat(5000))]);
            Body::from_stream(pieces)
        };
        let parts = || async {
            let parts = ["\"", &"z".repeat(5000), "\""].map(|part| BodyPart::new(part.to_owned()));
            let parts: BodyParts = parts.into_iter().collect();
            (
                [(CONTENT_TYPE, "application/json")],
                SharedBody::from(parts),
            )
        };
        Router::new()
            .route("/small", get(move || async move { json(10) }))
            .route("/page", get(move || async move { json(5000) }))
            .route("/large", get(move || async move { json(300_000) }))
            .route("/stream", get(stream))
            .route("/parts", get(parts))
            .route(
                "/cut",
                get(|| async { ([(CONTENT_TYPE, "application/json")], cut_body(5000)) }),
            )
            .layer(from_fn_with_state(state(node, true), postprocess))
    }

    /// Head and body of the answer, over an in-memory connection.
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

    /// SPEC 2.1: except streams.
    #[test]
    fn complete_answers_above_a_kibibyte_are_compressed() {
        simulate(|node| async move {
            for (path, length) in [("/page", 5002), ("/large", 300_002), ("/parts", 5002)] {
                let (head, body) =
                    ask(&node, path, "Accept-Encoding: deflate, GZIP;q=0.5\r\n").await;
                assert!(head.contains("content-encoding: gzip"), "{head}");
                assert!(head.contains("vary: accept-encoding"), "{head}");
                assert!(body.len() < length / 10);
                assert_eq!(unzipped(&body).len(), length);
            }
            for (path, header) in [
                ("/page", ""),
                ("/parts", ""),
                ("/page", "Accept-Encoding: gzip;q=0, *\r\n"),
                ("/small", "Accept-Encoding: gzip\r\n"),
                ("/stream", "Accept-Encoding: gzip\r\n"),
            ] {
                let (head, _) = ask(&node, path, header).await;
                assert!(!head.contains("content-encoding"), "{path} {header} {head}");
            }
        });
    }

    /// SPEC 3.9.
    #[test]
    fn jsonp_wraps_only_valid_function_names() {
        simulate(|node| async move {
            for name in ["angular.callbacks._0", "angular%2Ecallbacks%2e_0"] {
                let (head, body) = ask(&node, &format!("/small?a=1&jsonp={name}"), "").await;
                assert!(head.contains("content-type: text/javascript"), "{head}");
                assert_eq!(body, b"angular.callbacks._0(\"xxxxxxxxxx\");");
            }
            for (page, script) in [("/page", "f(\"xx"), ("/parts", "f(\"zz")] {
                let asked = format!("{page}?jsonp=f");
                let (head, body) = ask(&node, &asked, "Accept-Encoding: *\r\n").await;
                assert!(head.contains("content-encoding: gzip"), "{head}");
                assert!(unzipped(&body).starts_with(script), "{page}");
            }
            for name in ["", "alert(1)//", "a%3Cb", "%ff", &"f".repeat(129)] {
                let (head, body) = ask(&node, &format!("/small?jsonp={name}"), "").await;
                assert!(head.starts_with("http/1.1 400"), "{head}");
                assert!(body.starts_with(b"jsonp is"), "{name}");
            }
            let (_, body) = ask(&node, "/small?jsonp=f&jsonp=g", "").await;
            assert!(body.starts_with(b"g("), "the last counts");
            let (head, _) = ask(&node, "/stream?jsonp=f", "").await;
            assert!(!head.contains("javascript"), "{head}");
        });
    }

    #[test]
    fn jsonp_is_refused_unless_it_is_on() {
        simulate(|node| async move {
            let page = || async { axum::Json("secret") };
            let routes = Router::new()
                .route("/state", get(page))
                .layer(from_fn_with_state(state(&node, false), postprocess));
            for (query, status, words) in [
                ("?jsonp=f", 403, "--jsonp"),
                ("?a=1&jsonp=f", 403, "--jsonp"),
                ("?a=jsonp", 200, "secret"),
                ("", 200, "secret"),
            ] {
                let request = axum::extract::Request::get(format!("/state{query}"));
                let request = request.body(Body::empty()).unwrap();
                let (found, text) = crate::testing::fetch(&routes, request).await;
                assert_eq!(found, status, "{query}");
                assert!(text.contains(words), "{query}: {text}");
            }
        });
    }

    #[test]
    fn a_broken_answer_is_a_server_error() {
        simulate(|node| async move {
            for (query, coding) in [("", "gzip"), ("?jsonp=f", "identity")] {
                let request = axum::extract::Request::get(format!("/cut{query}"));
                let request = request.header(ACCEPT_ENCODING, coding).body(Body::empty());
                let told = crate::testing::fetch(&routes(&node), request.unwrap()).await;
                let words = "the response broke off while it was built: it broke";
                assert_eq!(told, (500, words.to_owned()), "{query}");
            }
        });
    }
}
