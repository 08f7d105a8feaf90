//! The path and the method of a request as Mesos reads them: slashes that say nothing are passed over, and some clients percent-encode
//! the parentheses of `/slave(1)` (SPEC 3.9). Some of its pages have an older name that ends in `.json`, by which older tools still ask.
//! Most pages that only show something answer every method alike.
//!
//! Pure. Guards and routes see one spelling, and a method that says whether something changes.

use axum::http::uri::PathAndQuery;
use axum::http::{Method, Request, Uri};

use crate::pages::TOGGLE;
use crate::query::values;
use crate::realm::bare;

/// Pages that have an older name, too; `/state` and `/tasks` are served by both.
const OLDER: [&str; 6] = [
    "/roles",
    "/monitor/statistics",
    "/files/browse",
    "/files/read",
    "/files/download",
    "/files/debug",
];

/// The APIs, the longer paths first. As in Mesos each answers below its own path too: some exporters POST to `/api/v1/state`.
const APIS: [&str; 4] = [
    "/api/v1/scheduler",
    "/api/v1/executor",
    "/api/v1/resource_provider",
    "/api/v1",
];

/// The length of the API's own path, if this one is below it.
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

/// Pages that show something whatever the method is, as by Mesos. `/flags`, `/weights`, `/quota`, `/maintenance/*`, `/containers` and
/// `/monitor/statistics` look at the method there, too.
const SHOWN_BY_ANY_METHOD: [&str; 21] = [
    "/health",
    "/version",
    "/redirect",
    "/metrics",
    "/metrics/snapshot",
    "/system/stats.json",
    "/help",
    "/__processes__",
    "/state",
    "/state.json",
    "/state-summary",
    "/slaves",
    "/frameworks",
    "/tasks",
    "/tasks.json",
    "/roles",
    "/allocator/offer_constraints_debug",
    "/files/browse",
    "/files/read",
    "/files/download",
    "/files/debug",
];

/// Gives a request the path and the method that are meant.
pub(crate) fn normalize<B>(request: &mut Request<B>) {
    if let Some(meant) = meant(request.uri()) {
        *request.uri_mut() = meant;
    }
    if let Some(method) = meant_method(request.method(), request.uri()) {
        *request.method_mut() = method;
    }
}

/// The method that is meant; `None` if that is the one it has. The log's level is shown, or changed where the query says how, by any method.
fn meant_method(method: &Method, uri: &Uri) -> Option<Method> {
    let page = bare(uri.path());
    let meant = match page {
        TOGGLE => {
            let query = values(uri.query().unwrap_or_default());
            let changes = query.contains_key("level") || query.contains_key("duration");
            if changes { Method::POST } else { Method::GET }
        }
        page if SHOWN_BY_ANY_METHOD.contains(&page) => Method::GET,
        _ => return None,
    };
    let is_head_of_a_shown_page = *method == Method::HEAD && meant == Method::GET;
    (*method != meant && !is_head_of_a_shown_page).then_some(meant)
}

/// The same path without what the older names end in.
fn newer(path: &str) -> Option<&str> {
    let newer = path.strip_suffix(".json")?;
    OLDER.contains(&bare(newer)).then_some(newer)
}

/// The same with the path that is meant; `None` if that is the one it has.
fn meant(uri: &Uri) -> Option<Uri> {
    let path = uri.path();
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let first = parts.next().unwrap_or_default();
    let mut meant = format!("/{}", first.replace("%28", "(").replace("%29", ")"));
    for part in parts {
        meant.push('/');
        meant.push_str(part);
    }
    if let Some(length) = newer(&meant).map(str::len) {
        meant.truncate(length);
    }
    if let Some(length) = api(&meant) {
        meant.truncate(length);
    }
    if meant == path {
        return None;
    }
    if let Some(query) = uri.query() {
        meant.push('?');
        meant.push_str(query);
    }
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(meant).ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_show_something_answer_every_method_as_a_get() {
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

    #[test]
    fn a_path_is_read_whatever_slashes_and_parentheses_it_is_written_with() {
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
            let found = super::meant(&written.parse().unwrap());
            let found = found.map(|uri| uri.to_string());
            assert_eq!(found.as_deref(), meant, "{written}");
        }
    }
}
