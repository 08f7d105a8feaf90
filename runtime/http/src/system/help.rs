//! `/help`: the paths of a service, each with a sentence. As text, and as Mesos' JSON with
//! `?format=json`.

use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;

/// Paths, each with a sentence.
pub type Help = &'static [(&'static str, &'static str)];

/// The paths of every service.
pub(crate) const COMMON: Help = &[
    ("/health", "Whether the service is there: 200 with no body."),
    ("/version", "Its version."),
    (
        "/metrics/snapshot",
        "All metrics, as flat JSON; `?timeout=5secs` says how long those of the service are waited for.",
    ),
    ("/metrics", "The same in Prometheus' text form."),
    (
        "/system/stats.json",
        "The load and the memory of the machine.",
    ),
    (
        "/logging/toggle",
        "Shows the log level; `?level=1&duration=10mins` raises it for that time.",
    ),
    (
        "/__processes__",
        "What each actor does, how much waits for it, and the links to other nodes.",
    ),
    ("/help", "This; `?format=json` for programs."),
];

#[derive(Deserialize)]
pub(crate) struct HelpQuery {
    format: Option<String>,
}

/// The help page with [`COMMON`] and the service's own paths; `actor` is its name in Mesos.
pub(crate) fn page(actor: &str, own: Help, query: &HelpQuery) -> Response {
    let all = own.iter().chain(COMMON);
    match query.format.as_deref() {
        Some("json") => {
            let endpoint = |(name, text): &(&str, &str)| json!({ "name": name, "text": text });
            let endpoints: Vec<_> = all.map(endpoint).collect();
            let processes = [json!({ "id": actor, "endpoints": endpoints })];
            axum::Json(json!({ "processes": processes })).into_response()
        }
        // Any other format is text, as in Mesos.
        _ => {
            let lines = all.map(|(path, text)| format!("{path}\n    {text}\n"));
            let below = format!("\nEach is also below /{actor}.\n");
            (lines.collect::<String>() + &below).into_response()
        }
    }
}
