//! The message of a 405, as in Mesos, since clients read it.
//!
//! Runs outside of the routes, where the answer has its `Allow` header. A body that a page has
//! written itself stays.

use axum::body::{Body, HttpBody};
use axum::http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::Response;

/// The message for this method, where others are expected.
pub(crate) fn not_allowed<'a>(method: &Method, expected: impl Iterator<Item = &'a str>) -> String {
    let expected: Vec<&str> = expected.collect();
    let expected = expected.join("', '");
    format!("405 Method Not Allowed. Expecting one of {{ '{expected}' }}, but received '{method}'.")
}

/// Adds the message to a 405 without a body. `HEAD` is omitted, as in Mesos.
pub(crate) fn explain(method: &Method, mut response: Response) -> Response {
    let is_silent = response.body().size_hint().exact() == Some(0);
    if response.status() != StatusCode::METHOD_NOT_ALLOWED || !is_silent {
        return response;
    }
    let allowed = response.headers().get(ALLOW);
    let allowed = allowed.and_then(|allowed| allowed.to_str().ok());
    let Some(allowed) = allowed else {
        return response;
    };
    let expected = allowed.split(',').map(str::trim);
    let message = not_allowed(method, expected.filter(|name| *name != "HEAD"));
    let headers = response.headers_mut();
    headers.remove(CONTENT_LENGTH);
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    headers.insert(CONTENT_TYPE, plain);
    *response.body_mut() = Body::from(message);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::body::to_bytes;
    use axum::routing::{any, get, post};

    // Covers 2.1 405.
    #[tokio::test]
    async fn an_unsupported_method_gets_the_message_of_mesos() {
        let own = async || {
            let allow = [(ALLOW, "POST")];
            (StatusCode::METHOD_NOT_ALLOWED, allow, "own words")
        };
        let routes = Router::new()
            .route("/page", get(async || "page"))
            .route("/both", get(async || "page").put(async || "page"))
            .route("/call", post(async || "done"))
            .route("/own", any(own));
        let before = "405 Method Not Allowed. Expecting one of";
        for (method, path, words) in [
            ("POST", "/page", "{ 'GET' }, but received 'POST'."),
            (
                "DELETE",
                "/both",
                "{ 'GET', 'PUT' }, but received 'DELETE'.",
            ),
            ("GET", "/call", "{ 'POST' }, but received 'GET'."),
            ("PUT", "/own", ""),
        ] {
            let asked = crate::testing::request(method, path, "", "");
            let answer = crate::testing::send(&routes, asked).await;
            assert_eq!(answer.status(), 405, "{path}");
            assert!(answer.headers().contains_key(ALLOW), "{path}");
            let body = to_bytes(answer.into_body(), 1000).await.unwrap();
            match words {
                "" => assert_eq!(body, "own words"),
                words => assert_eq!(body, format!("{before} {words}")),
            }
        }
    }
}
