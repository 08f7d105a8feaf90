//! Normalizes the path and the method of a request as Mesos does: repeated slashes are ignored, and
//! some clients percent-encode the parentheses of `/slave(1)`. Some pages have an older name that
//! ends in `.json`, which older tools use. Most read-only pages answer every method alike.
//!
//! Pure. Guards and routes see one spelling, and a method that tells reads from changes.

use axum::http::uri::PathAndQuery;
use axum::http::{Method, Request, Uri};

use self::PageAccess::{Endpoint, Filtered, Open};
use self::Reads::{Any, Get};
use crate::pages::TOGGLE;
use crate::realm::bare;
use crate::request::query::values;

/// Pages with an older `.json` name; `/state` and `/tasks` have a route for each.
const LEGACY_JSON_PAGES: [&str; 6] = [
    "/roles",
    "/monitor/statistics",
    "/files/browse",
    "/files/read",
    "/files/download",
    "/files/debug",
];

/// The APIs, longer paths first. As in Mesos each also answers below its own path: some exporters
/// POST to `/api/v1/state`.
const APIS: [&str; 4] = [
    "/api/v1/scheduler",
    "/api/v1/executor",
    "/api/v1/resource_provider",
    "/api/v1",
];

/// The length of the API's own path, if this path is below it.
fn api(path: &str) -> Option<usize> {
    let page = bare(path);
    let is_below = |api: &str| {
        page.strip_prefix(api)
            .is_some_and(|rest| rest.starts_with('/'))
    };
    if APIS.contains(&page) {
        return None;
    }
    let api = APIS.iter().find(|api| is_below(api))?;
    Some(path.len() - page.len() + api.len())
}

/// Who may read a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageAccess {
    /// Everyone, for health checks.
    Open,
    /// Everyone; its content is filtered by its own ACLs.
    Filtered,
    /// Callers that `get_endpoints` allows.
    Endpoint,
}

/// Which methods read a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    /// Any, as in Mesos.
    Any,
    /// GET; others change something or are refused.
    Get,
}

/// The pages that are open, filtered, or read by any method.
const PAGES: [(&str, PageAccess, Reads); 26] = [
    ("/health", Open, Any),
    ("/version", Open, Any),
    ("/redirect", Open, Any),
    ("/metrics", Endpoint, Any),
    ("/metrics/snapshot", Endpoint, Any),
    ("/system/stats.json", Endpoint, Any),
    ("/help", Endpoint, Any),
    ("/__processes__", Endpoint, Any),
    ("/state", Filtered, Any),
    ("/state.json", Filtered, Any),
    ("/state-summary", Filtered, Any),
    ("/slaves", Filtered, Any),
    ("/frameworks", Filtered, Any),
    ("/tasks", Filtered, Any),
    ("/tasks.json", Filtered, Any),
    ("/roles", Filtered, Any),
    ("/allocator/offer_constraints_debug", Filtered, Any),
    ("/files/browse", Filtered, Any),
    ("/files/read", Filtered, Any),
    ("/files/download", Filtered, Any),
    ("/files/debug", Endpoint, Any),
    ("/flags", Filtered, Get),
    ("/weights", Filtered, Get),
    ("/quota", Filtered, Get),
    ("/maintenance/schedule", Filtered, Get),
    ("/maintenance/status", Filtered, Get),
];

/// Who may read this page, without the actor name in front.
pub(crate) fn access(page: &str) -> PageAccess {
    let known = PAGES.iter().find(|(path, ..)| *path == page);
    known.map_or(Endpoint, |(_, access, _)| *access)
}

fn is_read_by_any_method(page: &str) -> bool {
    let mut pages = PAGES.iter();
    pages.any(|(path, _, reads)| *path == page && *reads == Any)
}

/// Normalizes the path and the method of a request.
pub(crate) fn normalize<B>(request: &mut Request<B>) {
    if let Some(normalized) = normalized(request.uri()) {
        *request.uri_mut() = normalized;
    }
    if let Some(method) = normalized_method(request.method(), request.uri()) {
        *request.method_mut() = method;
    }
}

/// The normalized method; `None` if it is the same. `/logging/toggle` changes the level if the
/// query has one, with any method.
fn normalized_method(method: &Method, uri: &Uri) -> Option<Method> {
    let page = bare(uri.path());
    let normalized = match page {
        TOGGLE => {
            let query = values(uri.query().unwrap_or_default());
            let changes = query.contains_key("level") || query.contains_key("duration");
            if changes { Method::POST } else { Method::GET }
        }
        page if is_read_by_any_method(page) => Method::GET,
        _ => return None,
    };
    let is_head_of_page = *method == Method::HEAD && normalized == Method::GET;
    (*method != normalized && !is_head_of_page).then_some(normalized)
}

/// The path without an older name's `.json`.
fn without_json_suffix(path: &str) -> Option<&str> {
    let without_json_suffix = path.strip_suffix(".json")?;
    LEGACY_JSON_PAGES
        .contains(&bare(without_json_suffix))
        .then_some(without_json_suffix)
}

/// The URI with its path normalized; `None` if it is the same.
fn normalized(uri: &Uri) -> Option<Uri> {
    let path = uri.path();
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let first = parts.next().unwrap_or_default();
    let mut normalized = format!("/{}", first.replace("%28", "(").replace("%29", ")"));
    for part in parts {
        normalized.push('/');
        normalized.push_str(part);
    }
    if let Some(length) = without_json_suffix(&normalized).map(str::len) {
        normalized.truncate(length);
    }
    if let Some(length) = api(&normalized) {
        normalized.truncate(length);
    }
    if normalized == path {
        return None;
    }
    if let Some(query) = uri.query() {
        normalized.push('?');
        normalized.push_str(query);
    }
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(normalized).ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_only_pages_treat_every_method_as_get() {
        for (method, path, meant) in [
            ("POST", "/metrics/snapshot", "GET"),
            ("OPTIONS", "/health", "GET"),
            ("PUT", "/master/state", "GET"),
            ("DELETE", "/slave(1)/files/read?path=/a", "GET"),
            ("HEAD", "/state", "HEAD"),
            ("POST", "/weights", "POST"),
            ("POST", "/flags", "POST"),
            ("POST", "/api/v1", "POST"),
            ("POST", "/teardown", "POST"),
            ("GET", "/logging/toggle", "GET"),
            ("POST", "/master/logging/toggle?jsonp=f", "GET"),
            ("GET", "/logging/toggle?level=1&duration=1mins", "POST"),
            ("HEAD", "/logging/toggle?level=1", "POST"),
            ("PUT", "/logging/toggle?duration=1mins", "POST"),
        ] {
            let mut request = Request::builder().method(method).uri(path);
            request = request.header("Content-Type", "text/plain");
            let mut request = request.body(()).unwrap();
            normalize(&mut request);
            assert_eq!(request.method(), meant, "{method} {path}");
        }
    }

    // Covers 3.9 Paths.
    #[test]
    fn paths_with_extra_slashes_and_encoded_parentheses_are_normalized() {
        for (written, meant) in [
            ("/state", None),
            ("/", None),
            ("/slave(1)/state?a=//b/", None),
            ("//state", Some("/state")),
            ("/master//state/", Some("/master/state")),
            ("///", Some("/")),
            ("/slave%281%29/state", Some("/slave(1)/state")),
            (
                "//slave%281%29//flags/?jsonp=f",
                Some("/slave(1)/flags?jsonp=f"),
            ),
            ("/roles.json", Some("/roles")),
            ("/master/roles.json?jsonp=f", Some("/master/roles?jsonp=f")),
            (
                "/slave%281%29/monitor/statistics.json",
                Some("/slave(1)/monitor/statistics"),
            ),
            (
                "/files/read.json?path=/a.json",
                Some("/files/read?path=/a.json"),
            ),
            ("/api/v1/state?_ts=1", Some("/api/v1?_ts=1")),
            (
                "/slave(1)/api/v1/executor/a/b",
                Some("/slave(1)/api/v1/executor"),
            ),
            ("/api/v1/scheduler", None),
            ("/api/v1", None),
            ("/api/v10/state", None),
            // Only pages that have such a name.
            ("/state.json", None),
            ("/quota/roles.json", None),
            ("/weights.json", None),
            ("/.json", None),
            // Only in the name of an actor.
            ("/quota/a%28b%29", None),
            ("/%2573tate", None),
        ] {
            let found = super::normalized(&written.parse().unwrap());
            let found = found.map(|uri| uri.to_string());
            assert_eq!(found.as_deref(), meant, "{written}");
        }
    }
}
