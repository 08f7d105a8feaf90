//! HTTP endpoints of a master: `/state` and the other pages of Mesos' tools, and metrics.
//!
//! Pages are rendered at low priority ([`Node::blocking_low_priority`]), from a snapshot of the
//! local master's state, requested ahead of its mailbox, or from the mirror of the leader's state
//! (`pages::source`). A master that is busy with one message for longer than the page's timeout
//! gives 503. Without a local master and with a mirror that is too old for the reader, pages
//! redirect to the leader (307), or report that there is none (503). `/api/v1` is the same for the
//! v1 operator API (`operator`). Concurrent requests for the same page mostly share one answer
//! (`pages::batches`). Changes (`pages::changes`, `operator::operate`, `v0::maintenance`),
//! questions that only the allocator can answer (`v0::explain`) and all scheduler calls
//! (`scheduler`) are handled by the local master, or redirected to the leader.
//!
//! | module | contents |
//! |---|---|
//! | `counters` | metrics of the state, the allocator, the registry and the process |
//! | `metrics` | the master's metrics, under Mesos' names |
//! | `operator` | the v1 operator API of a master: `POST /api/v1` |
//! | `pages` | rendered answers, cached and shared between readers |
//! | `scheduler` | the scheduler API: `POST /api/v1/scheduler` |
//! | `stream` | the event stream of the operator API |
//! | `v0` | the v0 pages that Mesos' tools read |
//! | `view` | views of the cluster for operators' commands |
//! | `visibility` | filters the state for a viewer (ACLs `view_*`, `get_quotas`) |

mod counters;
mod metrics;
mod operator;
pub mod pages;
mod scheduler;
pub mod stream;
pub mod v0;
pub mod view;
pub mod visibility;

pub use counters::counters;
pub use metrics::metrics;
pub(crate) use pages::batches::Hits;
pub use pages::rendered::RenderedAnswer;
pub(crate) use pages::source::PublishedFlags;
pub use stream::EventStream;
pub use v0::help::HELP;

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use ::http::MesosQuery;
use ::http::api::{EventStreams, Refusal};
use authority::{Acls, Reloadable, Subject};
use axum::extract::{DefaultBodyLimit, OriginalUri, Request, State};
use axum::http::header::LOCATION;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, delete, get, post};
use axum::{Extension, Router};
use runtime::Node;
use serde::Deserialize;
use serde_json::json;

use crate::config::Config;
use crate::leadership::LocalLeader;
use crate::leadership::mirror::{Mirrored, STALENESS_MAX};
use crate::permission::Caller;
use pages::batches::{Batches, batched};
use pages::cache::PageCache;
use pages::source::{Found, Source};
use pages::visible::VisibleState;
use v0::state::text;

/// How long a page waits for the message that the master is handling, and a change for its answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Content type of most pages.
const JSON: &str = "application/json";

/// Shared state of the handlers.
#[derive(Clone)]
struct Pages {
    local: LocalLeader,
    node: Node,
    published: Arc<PublishedFlags>,
    counters: ::http::CountersSource,
    events: EventStream,
    /// This master's published `host:port`.
    address: String,
    acls: Reloadable<Acls>,
    batches: Batches,
    cache: PageCache,
}

impl Pages {
    /// The caller, as identified by the authentication layer.
    fn caller(&self, request: &Request) -> Caller {
        let subject = request.extensions().get::<Subject>().cloned();
        Caller::new(&self.acls.current(), subject.unwrap_or_default())
    }
}

/// The master's routes: `/state`, `/state-summary`, `/slaves`, `/frameworks`, `/tasks`, `/roles`,
/// `/weights`, `/quota`, `/flags`, `/explain`, `/allocator/offer_constraints_debug`, `/redirect`,
/// `/maintenance/schedule`, `/maintenance/status`, `/machine/down`, `/machine/up`, `/teardown`,
/// `/reserve`, `/unreserve`, `/create-volumes`, `/destroy-volumes`, `/api/v1`, `/api/v1/scheduler`,
/// each also under `/master`. To be merged with the routes of every service. Framework events are
/// sent over `streams`.
pub fn routes(
    local: &LocalLeader,
    node: &Node,
    config: &Config,
    counters: ::http::CountersSource,
    events: &EventStream,
    streams: &EventStreams,
) -> Router {
    let pages = Pages {
        local: local.clone(),
        node: node.clone(),
        published: Arc::new(PublishedFlags::of(config)),
        counters,
        events: events.clone(),
        address: format!("{}:{}", config.hostname, config.port),
        acls: config.acls.clone(),
        batches: Batches::new(node.clock(), local.hits()),
        cache: PageCache::open(node),
    };
    let api = Router::new()
        .route("/api/v1", any(operator::serve))
        // Some clients use this path: Mesos serves paths below a path like the path itself.
        .route("/api/v1/operator", any(operator::serve))
        .route("/redirect", get(v0::leader::redirect))
        .with_state(pages.clone());
    let routes = Router::new()
        .route("/state", get(state))
        .route("/state.json", get(state))
        .route("/state-summary", get(summary))
        .route("/slaves", get(slaves))
        .route("/frameworks", get(frameworks))
        .route("/tasks", get(v0::tasks::page))
        .route("/tasks.json", get(v0::tasks::page))
        .route("/roles", get(roles))
        .route("/weights", get(weights).put(pages::changes::put_weights))
        .route(
            "/quota",
            get(quota)
                .post(pages::changes::post_quota)
                .put(pages::changes::put_quota),
        )
        .route("/quota/{*role}", delete(pages::changes::delete_quota))
        .route("/flags", get(flags))
        .route(
            "/allocator/offer_constraints_debug",
            get(v0::constraints::page),
        )
        .route("/teardown", post(pages::changes::tear_down))
        // A master publishes no files.
        .route("/files/debug", get(async || axum::Json(json!({}))))
        .merge(operator::operate::routes())
        .layer(DefaultBodyLimit::max(pages::changes::BODY_MAX))
        .layer(from_fn_with_state(pages.clone(), answer))
        .layer(from_fn_with_state(pages.batches.clone(), batched));
    let routes = Router::new()
        .route("/explain", get(v0::explain::page))
        .merge(scheduler::routes(node, streams))
        .merge(v0::maintenance::routes())
        .layer(from_fn_with_state(pages, require_leader))
        .merge(routes)
        .merge(api);
    Router::new().merge(routes.clone()).nest("/master", routes)
}

/// Gives a read request its source, and marks the answer if that is a mirror. Other requests go to
/// the leader (307).
async fn answer(pages: State<Pages>, mut request: Request, next: Next) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return require_leader(pages, request, next).await;
    }
    let caller = pages.caller(&request);
    let State(pages) = pages;
    let Pages {
        local,
        node,
        published,
        ..
    } = &pages;
    match pages::source::find(local, node, published, caller, request.headers()).await {
        Found::Here(source) => {
            let source = source.with_cache(&pages.cache);
            let marks = source.marks.clone();
            request.extensions_mut().insert(source);
            let mut response = next.run(request).await;
            response.headers_mut().extend(marks);
            response
        }
        Found::Elsewhere => redirect_to_leader(&pages.local, &path_of(&request)),
        Found::Late => pages::source::late(),
    }
}

/// Gives a request the local master, the caller and the node, or redirects it to the leader.
async fn require_leader(State(pages): State<Pages>, mut request: Request, next: Next) -> Response {
    let caller = pages.caller(&request);
    let local = pages.local;
    match local.master() {
        Some(_) => {
            request.extensions_mut().insert(local);
            request.extensions_mut().insert(caller);
            request.extensions_mut().insert(pages.node);
            next.run(request).await
        }
        None => redirect_to_leader(&local, &path_of(&request)),
    }
}

/// The whole path of a request: inside a nested router it is cut.
fn path_of(request: &Request) -> String {
    let uri = request.extensions().get::<OriginalUri>();
    let uri = uri.map_or_else(|| request.uri(), |OriginalUri(uri)| uri);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    path.to_owned()
}

/// The refusal of a request without a leader, as in Mesos.
const NO_LEADER: &str = "No leader elected";
/// The refusal of a request before the registry is read, likewise.
pub(crate) const RECOVERING: &str = "Master has not finished recovery";

fn redirect_to_leader(local: &LocalLeader, path: &str) -> Response {
    let Some(leader) = local.leader() else {
        return Refusal::not_now(NO_LEADER).into_response();
    };
    leader_redirect(leader, path)
}

/// 307 with the scheme of the request: there may be TLS in front of both. The body names the leader
/// for clients that do not follow.
fn leader_redirect(leader: impl Display, path: &str) -> Response {
    let location = [(LOCATION, format!("//{leader}{path}"))];
    let text = format!("the leading master is at {leader}\n");
    (StatusCode::TEMPORARY_REDIRECT, location, text).into_response()
}

/// The local mirror, if it is not too old for every reader.
fn fresh(local: &LocalLeader, node: &Node) -> Option<Arc<Mirrored>> {
    pages::source::fresh(local, node.clock().now(), Some(STALENESS_MAX))
}

/// These routes, with marked metrics pages where the counters are a mirror's.
pub fn marked(local: &LocalLeader, node: &Node, routes: Router) -> Router {
    let state = (local.clone(), node.clone());
    routes.layer(from_fn_with_state(state, mark))
}

async fn mark(
    State((local, node)): State<(LocalLeader, Node)>,
    uri: Uri,
    request: Request,
    next: Next,
) -> Response {
    let mut response = next.run(request).await;
    let now = node.clock().now();
    let path = uri.path().strip_prefix("/master");
    if path.unwrap_or(uri.path()).starts_with("/metrics")
        && local.master().is_none()
        && let Some(mirrored) = fresh(&local, &node)
    {
        response
            .headers_mut()
            .extend(pages::source::marks(&mirrored, now));
    }
    response
}

async fn state(Extension(source): Extension<Source>) -> Response {
    let page = source.made(JSON, |state, published, cache| {
        let visible = VisibleState::of(state);
        cache.page("state", state, &v0::state::Whole { visible, published })
    });
    page.await
}

async fn summary(Extension(source): Extension<Source>) -> Response {
    let page = source.page(|visible, published| text(&v0::state::Summary { visible, published }));
    page.await
}

/// The requested agent or framework, if any.
#[derive(Deserialize)]
struct Only {
    slave_id: Option<String>,
    framework_id: Option<String>,
}

async fn slaves(
    Extension(source): Extension<Source>,
    MesosQuery(only): MesosQuery<Only>,
) -> Response {
    let page = source.made(JSON, move |state, _, cache| {
        let visible = VisibleState::of(state);
        match only.slave_id.as_deref() {
            None => cache.page("slaves", state, &v0::state::Slaves(visible)),
            Some(id) => pages::page::page(&v0::state::OneSlave(visible, id), None).into(),
        }
    });
    page.await
}

async fn frameworks(
    Extension(source): Extension<Source>,
    MesosQuery(only): MesosQuery<Only>,
) -> Response {
    let page = source.made(JSON, move |state, _, cache| {
        let visible = VisibleState::of(state);
        match only.framework_id.as_deref() {
            None => cache.page("frameworks", state, &v0::state::Frameworks(visible)),
            Some(id) => pages::page::page(&v0::state::OneFramework(visible, id), None).into(),
        }
    });
    page.await
}

async fn roles(Extension(source): Extension<Source>) -> Response {
    source
        .page(|visible, _| text(&v0::state::Roles(visible)))
        .await
}

async fn weights(Extension(source): Extension<Source>) -> Response {
    let page = source.page(|visible, _| text(&v0::role_json::weight_infos(&visible.state.weights)));
    page.await
}

async fn quota(Extension(source): Extension<Source>) -> Response {
    let page = source.page(|visible, _| text(&v0::role_json::quota_status(&visible.state.quotas)));
    page.await
}

async fn flags(Extension(source): Extension<Source>) -> Response {
    match source.flags() {
        Ok(flags) => axum::Json(json!({ "flags": flags })).into_response(),
        Err(forbidden) => pages::changes::forbidden(forbidden),
    }
}

#[cfg(test)]
pub(crate) mod tests;
