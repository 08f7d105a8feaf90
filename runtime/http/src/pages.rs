//! The pages of every service: `/health`, `/version`, `/metrics`, `/metrics/snapshot`,
//! `/system/stats.json`, `/logging/toggle`, `/__processes__`, `/help`.

use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use runtime::Node;
use serde::Deserialize;
use serde_json::json;
use v1::Invalid;
use v1::schema::DurationInfo;

use crate::api::Refusal;
use crate::build;
use crate::request::query::MesosQuery;
use crate::system::help::{self, Help, HelpQuery};
use crate::system::metrics::{CountersSource, collect, flat_json, prometheus_text};

/// Default of `?timeout=` on metrics pages.
const COUNTERS_PATIENCE: Duration = Duration::from_secs(5);

/// Changes the log level for some time.
pub(crate) const TOGGLE: &str = "/logging/toggle";

/// The service that the pages describe.
#[derive(Clone)]
pub struct ServiceInfo {
    /// Source of the shown actors and counters.
    pub node: Node,
    /// `master` or `agent`.
    pub service: &'static str,
    /// The version of Meros.
    pub version: &'static str,
    /// The service's own counters.
    pub counters: CountersSource,
    /// The service's own paths, for `/help`.
    pub help: Help,
}

/// The routes of every service, with and without Mesos' actor name in front.
pub fn common_routes(about: ServiceInfo) -> Router {
    let pages = Router::new()
        .route("/health", get(|| async { StatusCode::OK }))
        .route("/version", get(version))
        .route("/metrics/snapshot", get(snapshot))
        .route("/metrics", get(prometheus))
        .route("/system/stats.json", get(stats))
        .route("/help", get(help_page))
        .route(TOGGLE, get(toggle).post(toggle))
        .route("/__processes__", get(processes));
    let prefix = format!("/{}", actor(&about));
    Router::new()
        .merge(pages.clone())
        .nest(&prefix, pages)
        .fallback(not_found)
        .with_state(about)
}

/// The actor name in front of Mesos' paths.
fn actor(about: &ServiceInfo) -> &'static str {
    match about.service {
        "master" => "master",
        _ => "slave(1)",
    }
}

async fn stats() -> Response {
    let stats = flat_json(&crate::system::stats());
    ([(CONTENT_TYPE, "application/json")], stats).into_response()
}

async fn help_page(
    State(about): State<ServiceInfo>,
    MesosQuery(query): MesosQuery<HelpQuery>,
) -> Response {
    help::page(actor(&about), about.help, &query)
}

async fn version(State(about): State<ServiceInfo>) -> Response {
    Json(json!({
        "version": v1::MESOS_VERSION,
        "meros_version": about.version,
        "git_sha": "",
        "git_branch": "",
        "git_tag": "",
        "build_date": build::date(),
        "build_time": build::time() as f64,
        "build_user": "",
        "service": about.service,
        "node": about.node.id().to_string(),
    }))
    .into_response()
}

#[derive(Deserialize)]
struct SnapshotQuery {
    timeout: Option<String>,
}

async fn snapshot(
    State(about): State<ServiceInfo>,
    MesosQuery(query): MesosQuery<SnapshotQuery>,
) -> Response {
    let patience = match query.timeout.as_deref().map(parse_timeout).transpose() {
        Ok(patience) => patience.unwrap_or(COUNTERS_PATIENCE),
        Err(bad) => return Refusal::bad(bad).into_response(),
    };
    let counters = collect(&about.node, &about.counters, patience).await;
    ([(CONTENT_TYPE, "application/json")], flat_json(&counters)).into_response()
}

async fn prometheus(State(about): State<ServiceInfo>) -> Response {
    let counters = collect(&about.node, &about.counters, COUNTERS_PATIENCE).await;
    (
        [(CONTENT_TYPE, "text/plain; version=0.0.4")],
        prometheus_text(&counters),
    )
        .into_response()
}

#[derive(Deserialize)]
struct ToggleQuery {
    level: Option<String>,
    duration: Option<String>,
}

/// Changes the log level for a duration, like the call `SET_LOGGING_LEVEL`; without parameters,
/// shows it.
async fn toggle(
    State(about): State<ServiceInfo>,
    MesosQuery(query): MesosQuery<ToggleQuery>,
) -> Result<Response, Refusal> {
    let (level, duration) = match (&query.level, &query.duration) {
        (None, None) => return Ok(format!("{}\n", crate::system::logging::level()).into_response()),
        (Some(level), Some(duration)) => (level, duration),
        // The messages of Mesos, which clients compare.
        (Some(_), None) => return Err(Refusal::bad("Expecting 'duration=value' in query.\n")),
        (None, Some(_)) => return Err(Refusal::bad("Expecting 'level=value' in query.\n")),
    };
    let wrong = |field, value: &str, expected| Refusal::bad(Invalid::new(field, value, expected));
    let number = level.parse();
    let number = number.map_err(|_| match level.parse::<i64>() {
        Ok(negative) => Refusal::bad(format!("Invalid level '{negative}'.\n")),
        Err(_) => wrong("level", level, "a number, 0 or above"),
    })?;
    let nanoseconds = parse_duration(duration).map(|time| i64::try_from(time.as_nanos()));
    let Some(Ok(nanoseconds)) = nanoseconds else {
        return Err(wrong("duration", duration, "a time, as in `10mins`"));
    };
    crate::system::logging::change(&about.node, number, &DurationInfo { nanoseconds })?;
    Ok(StatusCode::OK.into_response())
}

/// Parses a time as Mesos writes it, as `5secs`, or a bare number of seconds.
fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let unit = match &text[digits..] {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 0.001,
        "" | "secs" => 1.0,
        "mins" => 60.0,
        "hrs" => 3600.0,
        "days" => 86_400.0,
        "weeks" => 604_800.0,
        _ => return None,
    };
    let seconds = text[..digits].parse::<f64>().ok()? * unit;
    Duration::try_from_secs_f64(seconds).ok()
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    let invalid = || {
        let text: String = text.chars().take(80).flat_map(char::escape_debug).collect();
        // It begins as in Mesos.
        format!("Invalid timeout '{text}': expected a time, as in `5secs` or `100ms`")
    };
    parse_duration(text).ok_or_else(invalid)
}

async fn processes(State(about): State<ServiceInfo>, headers: HeaderMap) -> Response {
    crate::system::processes::processes(&about.node, about.service, &headers)
}

async fn not_found(uri: Uri) -> Response {
    let known = "/health /version /state /metrics /metrics/snapshot /__processes__ /help";
    (
        StatusCode::NOT_FOUND,
        format!("{} is not here; try one of {known}\n", uri.path()),
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SPEC 3.9.
    // Covers 6.3 introspection.
    // Covers 3.9 `/__processes__`, `/system/stats.json`, `/help`, `/logging/toggle`.
    #[test]
    fn changing_the_log_needs_level_and_duration() {
        runtime::testing::run_simulated(async {
            let about = ServiceInfo {
                node: runtime::testing::node("node").build(),
                service: "agent",
                version: "1",
                counters: CountersSource::default(),
                help: &[],
            };
            let ask = async |level: Option<&str>, duration: Option<&str>| {
                let (level, duration) = (level.map(str::to_owned), duration.map(str::to_owned));
                let query = MesosQuery(ToggleQuery { level, duration });
                let answer = toggle(State(about.clone()), query).await;
                let answer = answer.unwrap_or_else(IntoResponse::into_response);
                let status = answer.status().as_u16();
                let body = axum::body::to_bytes(answer.into_body(), 4096)
                    .await
                    .unwrap();
                (status, String::from_utf8(body.to_vec()).unwrap())
            };
            assert_eq!(ask(None, None).await.0, 200);
            for (level, duration, words) in [
                (Some("1"), None, "Expecting 'duration=value' in query.\n"),
                (None, Some("1mins"), "Expecting 'level=value' in query.\n"),
                (Some("-1"), Some("1mins"), "Invalid level '-1'.\n"),
                (Some("1"), Some("long"), "duration is `long`"),
                (Some("1"), Some("1e9hrs"), "duration is `1e9hrs`"),
            ] {
                let (status, text) = ask(level, duration).await;
                assert!(status == 400 && text.contains(words), "{status} {text}");
            }
        });
    }

    /// SPEC 3.9: whatever the method, and however the query is written, as by Mesos.
    // Covers 3.9 Whatever stands behind a path.
    #[test]
    fn pages_answer_every_method_and_every_query() {
        runtime::testing::run_simulated(async {
            let node = runtime::testing::node("node").build();
            let find = |_, _| {
                let nothing = Err(Refusal::new(StatusCode::NOT_FOUND, "not here"));
                Box::pin(std::future::ready(nothing)) as futures_util::future::BoxFuture<'static, _>
            };
            let files = crate::files::routes(&node, std::sync::Arc::new(find));
            let about = ServiceInfo {
                node,
                service: "agent",
                version: "1",
                counters: CountersSource::default(),
                help: &[],
            };
            let routes = common_routes(about).merge(files);
            let ask = async |method: &str, path: &str| {
                let request = crate::testing::request(method, path, "text/plain", "");
                crate::testing::fetch(&routes, request).await
            };
            for (path, expected) in [
                ("/health", 200),
                ("/version", 200),
                ("/help?format=html", 200),
                ("/help?format=json&format=%ff", 200),
                ("/metrics", 200),
                ("/metrics/snapshot", 200),
                ("/metrics/snapshot?timeout=soon&timeout=2mins", 200),
                ("/metrics/snapshot?timeout=soon", 400),
                ("/system/stats.json", 200),
                ("/__processes__", 200),
                (TOGGLE, 200),
                ("/logging/toggle?level=abc&duration=1mins", 400),
                ("/logging/toggle?level=1", 400),
                ("/files/browse?path=a&path=b", 404),
                ("/files/read?path=a%ff", 404),
                ("/files/read?path=a&offset=x", 400),
                ("/files/read?path=a&offset=-2", 400),
                ("/files/download", 400),
            ] {
                for method in ["GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"] {
                    let (status, text) = ask(method, path).await;
                    assert_eq!(status, expected, "{method} {path}: {text}");
                }
            }
            for method in ["GET", "POST"] {
                assert_eq!(ask(method, "/slave(1)/logging/toggle").await.1, "0\n");
            }
            let (_, version) = ask("POST", "/version").await;
            let version: serde_json::Value = serde_json::from_str(&version).unwrap();
            assert_eq!(
                (&version["version"], &version["meros_version"]),
                (&json!("1.11.0"), &json!("1"))
            );
        });
    }

    // Covers 6.3 Metrics.
    #[test]
    fn timeouts_are_parsed_as_by_mesos() {
        for (text, timeout) in [
            ("7ns", Duration::from_nanos(7)),
            ("7us", Duration::from_micros(7)),
            ("100ms", Duration::from_millis(100)),
            ("5secs", Duration::from_secs(5)),
            ("0.5mins", Duration::from_secs(30)),
            ("2hrs", Duration::from_secs(7200)),
            ("2days", Duration::from_secs(172_800)),
            ("5weeks", Duration::from_secs(3_024_000)),
            ("2", Duration::from_secs(2)),
        ] {
            assert_eq!(parse_timeout(text), Ok(timeout));
        }
        for text in ["", "soon", "-1secs", "5years", "1e9", "\u{e9}"] {
            let words =
                format!("Invalid timeout '{text}': expected a time, as in `5secs` or `100ms`");
            let refused = parse_timeout(text).unwrap_err();
            assert_eq!(refused.to_string(), words);
        }
    }
}
