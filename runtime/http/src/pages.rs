//! The pages every service has: `/health`, `/version`, `/metrics`, `/metrics/snapshot`, `/__processes__` (SPEC 3.9).

use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use runtime::Node;
use serde::Deserialize;
use serde_json::json;

use crate::metrics::{CountersSource, collect, flat_json, prometheus_text};

/// How long a metrics page waits for a service's counters unless `?timeout=` says otherwise.
const COUNTERS_PATIENCE: Duration = Duration::from_secs(5);

/// What the pages say of the service they belong to.
#[derive(Clone)]
pub struct About {
    /// The node whose actors and counters are shown.
    pub node: Node,
    /// What it is: `master` or `agent`.
    pub service: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The service's own counters.
    pub counters: CountersSource,
}

/// The routes every service has, each also below the name of the actor that Mesos has in front of it.
pub fn common_routes(about: About) -> Router {
    let pages = Router::new()
        .route("/health", get(|| async { StatusCode::OK }))
        .route("/version", get(version))
        .route("/metrics/snapshot", get(snapshot))
        .route("/metrics", get(prometheus))
        .route("/__processes__", get(processes));
    let prefix = match about.service {
        "master" => "/master",
        _ => "/slave(1)",
    };
    Router::new()
        .merge(pages.clone())
        .nest(prefix, pages)
        .fallback(not_found)
        .with_state(about)
}

async fn version(State(about): State<About>) -> Response {
    Json(json!({ "version": about.version, "service": about.service, "node": about.node.id().to_string() })).into_response()
}

#[derive(Deserialize)]
struct SnapshotQuery {
    timeout: Option<String>,
}

async fn snapshot(State(about): State<About>, Query(query): Query<SnapshotQuery>) -> Response {
    let patience = match query.timeout.as_deref().map(parse_timeout).transpose() {
        Ok(patience) => patience.unwrap_or(COUNTERS_PATIENCE),
        Err(problem) => return (StatusCode::BAD_REQUEST, problem).into_response(),
    };
    let counters = collect(&about.node, &about.counters, patience).await;
    ([(CONTENT_TYPE, "application/json")], flat_json(&counters)).into_response()
}

async fn prometheus(State(about): State<About>) -> Response {
    let counters = collect(&about.node, &about.counters, COUNTERS_PATIENCE).await;
    (
        [(CONTENT_TYPE, "text/plain; version=0.0.4")],
        prometheus_text(&counters),
    )
        .into_response()
}

/// Reads `5secs`, `100ms`, or a bare number of seconds; at most a minute.
fn parse_timeout(text: &str) -> Result<Duration, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let unit = match &text[digits..] {
        "" | "secs" => 1.0,
        "ms" => 0.001,
        "mins" => 60.0,
        _ => f64::NAN,
    };
    let seconds = text[..digits].parse::<f64>().unwrap_or(f64::NAN) * unit;
    match Duration::try_from_secs_f64(seconds) {
        Ok(timeout) if timeout <= crate::metrics::PATIENCE_MAX => Ok(timeout),
        _ => Err(format!(
            "timeout `{text}` is invalid: expected at most a minute, as in `5secs` or `100ms`\n"
        )),
    }
}

async fn processes(State(about): State<About>, headers: HeaderMap) -> Response {
    crate::processes::processes(&about.node, about.service, &headers)
}

async fn not_found(uri: Uri) -> Response {
    let known = "/health /version /state /metrics /metrics/snapshot /__processes__";
    (
        StatusCode::NOT_FOUND,
        format!("{} is not here; try one of {known}\n", uri.path()),
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_read_as_mesos_writes_it_and_bounded() {
        assert_eq!(parse_timeout("5secs"), Ok(Duration::from_secs(5)));
        assert_eq!(parse_timeout("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(parse_timeout("2"), Ok(Duration::from_secs(2)));
        for text in ["", "soon", "-1secs", "2mins", "5weeks", "1e9", "\u{e9}"] {
            assert!(
                parse_timeout(text).is_err_and(|problem| problem.contains(text)),
                "{text}"
            );
        }
    }
}
