//! Pages: `/state` and its pieces, as Mesos' tools read them (SPEC 3.9, 3.12), and the master's metrics (SPEC 3.10).
//!
//! Each page is made behind all else that the process does ([`Node::blocking_behind`]), from a snapshot of the books of the master that acts here, which is asked for ahead of its
//! mailbox and costs it one count, or from the mirror of the leader's ([`source`]). A master that is at one message for longer than a page's patience costs it a 503. Where
//! no master acts and the mirror is too old for the reader, pages send to the one that leads (307), or say that none does (503).
//! `/api/v1` is the same for tools that speak Mesos' operator API (`operator`).
//! Of all who ask for the same page at once most get one together (`batches`).
//! What changes something (`changes`, `operate`, `maintenance`) is asked of the master that acts, and sent to the one that leads elsewhere; so is
//! what only its allocator knows ([`explain`]), and all that frameworks say over HTTP (`scheduler`).

mod batches;
mod changes;
mod constraints;
mod counted;
mod entries;
pub mod explain;
mod help;
mod kept;
mod leader;
mod maintenance;
mod metrics;
mod operate;
mod operator;
mod page;
mod pieces;
pub(crate) mod registrar;
mod scheduler;
mod shown;
pub mod source;
mod state;
pub mod stream;
mod tasks;
pub mod words;
mod written;

pub(crate) use batches::Hits;
pub use counted::counters;
pub use help::HELP;
pub use metrics::metrics;
pub(crate) use source::Chosen;
pub use stream::EventStream;
pub use written::Written;

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use ::http::Given;
use ::http::api::Streams;
use authority::{Acls, Shared, Subject};
use axum::extract::{DefaultBodyLimit, OriginalUri, Request, State};
use axum::http::header::{LOCATION, RETRY_AFTER};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, delete, get, post};
use axum::{Extension, Router};
use runtime::Node;
use serde::Deserialize;
use serde_json::json;

use crate::config::Config;
use crate::mirror::{Mirrored, STALENESS_MAX};
use crate::office::Front;
use crate::permission::Asker;
use batches::{Batches, batched};
use kept::Kept;
use shown::Shown;
use source::{Found, Source};
use state::text;

/// How long a page waits for the end of the message that the master is at, and a change for its answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// What most pages are.
const JSON: &str = "application/json";

/// Where the pages look for what they are made from.
#[derive(Clone)]
struct Pages {
    front: Front,
    node: Node,
    chosen: Arc<Chosen>,
    counters: ::http::CountersSource,
    events: EventStream,
    /// Where others reach this master, as `host:port`.
    address: String,
    acls: Shared<Acls>,
    batches: Batches,
    kept: Kept,
}

impl Pages {
    /// Who asks, as whoever stands before the routes has found out.
    fn asker(&self, request: &Request) -> Asker {
        let subject = request.extensions().get::<Subject>().cloned();
        Asker::new(&self.acls.now(), subject.unwrap_or_default())
    }
}

/// The master's routes: `/state`, `/state-summary`, `/slaves`, `/frameworks`, `/tasks`, `/roles`, `/weights`, `/quota`, `/flags`,
/// `/explain`, `/allocator/offer_constraints_debug`, `/redirect`, `/maintenance/schedule`, `/maintenance/status`, `/machine/down`, `/machine/up`, `/teardown`, `/reserve`, `/unreserve`, `/create-volumes`, `/destroy-volumes`, `/api/v1`, `/api/v1/scheduler`, each
/// also under `/master`. They are to be merged with those that every service has. Frameworks' events go over `streams`.
pub fn routes(
    front: &Front,
    node: &Node,
    config: &Config,
    counters: ::http::CountersSource,
    events: &EventStream,
    streams: &Streams,
) -> Router {
    let pages = Pages {
        front: front.clone(),
        node: node.clone(),
        chosen: Arc::new(Chosen::of(config)),
        counters,
        events: events.clone(),
        address: format!("{}:{}", config.hostname, config.port),
        acls: config.acls.clone(),
        batches: Batches::new(node.clock(), front.hits()),
        kept: Kept::open(node),
    };
    let api = Router::new()
        .route("/api/v1", any(operator::serve))
        // Some clients say so, since Mesos serves what is below a path like the path itself.
        .route("/api/v1/operator", any(operator::serve))
        .route("/redirect", get(leader::redirect))
        .with_state(pages.clone());
    let routes = Router::new()
        .route("/state", get(state))
        .route("/state.json", get(state))
        .route("/state-summary", get(summary))
        .route("/slaves", get(slaves))
        .route("/frameworks", get(frameworks))
        .route("/tasks", get(tasks::page))
        .route("/tasks.json", get(tasks::page))
        .route("/roles", get(roles))
        .route("/weights", get(weights).put(changes::put_weights))
        .route(
            "/quota",
            get(quota).post(changes::post_quota).put(changes::put_quota),
        )
        .route("/quota/{*role}", delete(changes::delete_quota))
        .route("/flags", get(flags))
        .route("/allocator/offer_constraints_debug", get(constraints::page))
        .route("/teardown", post(changes::tear_down))
        // A master has no files to show.
        .route("/files/debug", get(async || axum::Json(json!({}))))
        .merge(operate::routes())
        .layer(DefaultBodyLimit::max(changes::BODY_MAX))
        .layer(from_fn_with_state(pages.clone(), answer))
        .layer(from_fn_with_state(pages.batches.clone(), batched));
    let routes = Router::new()
        .route("/explain", get(explain::page))
        .merge(scheduler::routes(node, streams))
        .merge(maintenance::routes())
        .layer(from_fn_with_state(pages, ask_the_leader))
        .merge(routes)
        .merge(api);
    Router::new().merge(routes.clone()).nest("/master", routes)
}

/// Gives a read what it is made from, and marks the answer if that is a mirror. All else is for the leader (SPEC 3.12: 307).
async fn answer(pages: State<Pages>, mut request: Request, next: Next) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return ask_the_leader(pages, request, next).await;
    }
    let asker = pages.asker(&request);
    let State(pages) = pages;
    let Pages {
        front,
        node,
        chosen,
        ..
    } = &pages;
    match source::find(front, node, chosen, asker, request.headers()).await {
        Found::Here(source) => {
            let source = source.keeping(&pages.kept);
            let marks = source.marks.clone();
            request.extensions_mut().insert(source);
            let mut response = next.run(request).await;
            response.headers_mut().extend(marks);
            response
        }
        Found::Elsewhere => to_the_leader(&pages.front, &path_of(&request)),
        Found::Late => source::late(),
    }
}

/// Gives a request the master that acts here, which alone can answer it, who asks, and the node, beside whose threads large bodies are read; or sends it to the one that leads.
async fn ask_the_leader(State(pages): State<Pages>, mut request: Request, next: Next) -> Response {
    let asker = pages.asker(&request);
    let front = pages.front;
    match front.master() {
        Some(_) => {
            request.extensions_mut().insert(front);
            request.extensions_mut().insert(asker);
            request.extensions_mut().insert(pages.node);
            next.run(request).await
        }
        None => to_the_leader(&front, &path_of(&request)),
    }
}

/// The whole path of a request: within a nest its own is cut.
fn path_of(request: &Request) -> String {
    let uri = request.extensions().get::<OriginalUri>();
    let uri = uri.map_or_else(|| request.uri(), |OriginalUri(uri)| uri);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    path.to_owned()
}

fn to_the_leader(front: &Front, path: &str) -> Response {
    let Some(leader) = front.leader() else {
        let problem = "no master leads just now; try again\n";
        let later = [(RETRY_AFTER, "1")];
        return (StatusCode::SERVICE_UNAVAILABLE, later, problem).into_response();
    };
    at_the_leader(leader, path)
}

/// 307, by whatever scheme this one was asked: there may be TLS in front of both. Who does not follow reads where the leader is.
fn at_the_leader(leader: impl Display, path: &str) -> Response {
    let location = [(LOCATION, format!("//{leader}{path}"))];
    let text = format!("the master that leads is at {leader}: ask there\n");
    (StatusCode::TEMPORARY_REDIRECT, location, text).into_response()
}

/// The mirror here, if it is not too old for anybody.
fn fresh(front: &Front, node: &Node) -> Option<Arc<Mirrored>> {
    source::fresh(front, node.clock().now(), Some(STALENESS_MAX))
}

/// These routes, their metrics pages marked as all other pages are where the counters are those of a mirror.
pub fn marked(front: &Front, node: &Node, routes: Router) -> Router {
    let state = (front.clone(), node.clone());
    routes.layer(from_fn_with_state(state, mark))
}

async fn mark(
    State((front, node)): State<(Front, Node)>,
    uri: Uri,
    request: Request,
    next: Next,
) -> Response {
    let mut response = next.run(request).await;
    let now = node.clock().now();
    let path = uri.path().strip_prefix("/master");
    if path.unwrap_or(uri.path()).starts_with("/metrics")
        && front.master().is_none()
        && let Some(mirrored) = fresh(&front, &node)
    {
        response.headers_mut().extend(source::marks(&mirrored, now));
    }
    response
}

async fn state(Extension(source): Extension<Source>) -> Response {
    let page = source.made(JSON, |books, chosen, kept| {
        let shown = Shown::of(books);
        kept.page("state", books, &state::Whole { shown, chosen })
    });
    page.await
}

async fn summary(Extension(source): Extension<Source>) -> Response {
    let page = source.page(|shown, chosen| text(&state::Summary { shown, chosen }));
    page.await
}

/// Which one is asked about, if it is one.
#[derive(Deserialize)]
struct Only {
    slave_id: Option<String>,
    framework_id: Option<String>,
}

async fn slaves(Extension(source): Extension<Source>, Given(only): Given<Only>) -> Response {
    let page = source.made(JSON, move |books, _, kept| {
        let shown = Shown::of(books);
        match only.slave_id.as_deref() {
            None => kept.page("slaves", books, &state::Slaves(shown)),
            Some(id) => page::page(&state::OneSlave(shown, id), None).into(),
        }
    });
    page.await
}

async fn frameworks(Extension(source): Extension<Source>, Given(only): Given<Only>) -> Response {
    let page = source.made(JSON, move |books, _, kept| {
        let shown = Shown::of(books);
        match only.framework_id.as_deref() {
            None => kept.page("frameworks", books, &state::Frameworks(shown)),
            Some(id) => page::page(&state::OneFramework(shown, id), None).into(),
        }
    });
    page.await
}

async fn roles(Extension(source): Extension<Source>) -> Response {
    source.page(|shown, _| text(&state::Roles(shown))).await
}

async fn weights(Extension(source): Extension<Source>) -> Response {
    let page = source.page(|shown, _| text(&words::weight_infos(&shown.books.weights)));
    page.await
}

async fn quota(Extension(source): Extension<Source>) -> Response {
    let page = source.page(|shown, _| text(&words::quota_status(&shown.books.quotas)));
    page.await
}

async fn flags(Extension(source): Extension<Source>) -> Response {
    match source.flags() {
        Ok(flags) => axum::Json(json!({ "flags": flags })).into_response(),
        Err(forbidden) => changes::forbidden(forbidden),
    }
}

#[cfg(test)]
pub(crate) mod tests;
