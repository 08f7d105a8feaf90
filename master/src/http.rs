//! Pages: `/state` and its pieces, as Mesos' tools read them (SPEC 3.9, 3.12), and the master's metrics (SPEC 3.10).
//!
//! Each page asks the master for a snapshot, which costs its mailbox one count, and is made from it on the blocking pool. A
//! master that does not answer in time costs the page its patience and a 503. Where no master acts, pages send to the one that
//! leads (307), or say that none does (503). Nothing here changes anything.

mod metrics;
mod pieces;
mod state;

pub use metrics::metrics;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{OriginalUri, Query, Request, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use futures_util::FutureExt;
use runtime::Node;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::books::Books;
use crate::config::Config;
use crate::master::TakeSnapshot;
use crate::office::Front;

/// How long a page waits for the snapshot.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many tasks `/tasks` shows unless asked for more (SPEC 3.9).
const TASKS_LIMIT: usize = 100;

/// What the pages are made from.
#[derive(Clone)]
struct Pages {
    front: Front,
    node: Node,
    chosen: Arc<Chosen>,
}

/// What the operator has chosen, as far as pages show it.
pub(crate) struct Chosen {
    flags: BTreeMap<String, String>,
    weights: BTreeMap<String, f64>,
}

/// The master's routes: `/state`, `/state-summary`, `/slaves`, `/frameworks`, `/tasks`, `/roles`, `/flags`, each also under
/// `/master`. They are to be merged with those that every service has.
pub fn routes(front: &Front, node: &Node, config: &Config) -> Router {
    let pages = Pages {
        front: front.clone(),
        node: node.clone(),
        chosen: Arc::new(Chosen {
            flags: config.flags.clone(),
            weights: config.weights.clone(),
        }),
    };
    let routes = Router::new()
        .route("/state", get(state))
        .route("/state.json", get(state))
        .route("/state-summary", get(summary))
        .route("/slaves", get(slaves))
        .route("/frameworks", get(frameworks))
        .route("/tasks", get(tasks))
        .route("/tasks.json", get(tasks))
        .route("/roles", get(roles))
        .route("/flags", get(flags));
    Router::new()
        .merge(routes.clone())
        .nest("/master", routes)
        .layer(from_fn_with_state(front.clone(), to_the_leader))
        .with_state(pages)
}

/// Lets a request pass where a master acts; sends it to the leader from elsewhere (SPEC 3.12: 307).
async fn to_the_leader(State(front): State<Front>, request: Request, next: Next) -> Response {
    if front.master().is_some() {
        return next.run(request).await;
    }
    let Some(leader) = front.leader() else {
        let problem = "no master leads just now; try again\n";
        let later = [(RETRY_AFTER, "1")];
        return (StatusCode::SERVICE_UNAVAILABLE, later, problem).into_response();
    };
    // The whole path: within a nest the request's own is cut.
    let uri = request.extensions().get::<OriginalUri>();
    let uri = uri.map_or_else(|| request.uri().clone(), |OriginalUri(uri)| uri.clone());
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    Redirect::temporary(&format!("http://{leader}{path}")).into_response()
}

/// The master's own counters, for the metrics pages.
pub fn counters(front: &Front, node: &Node) -> ::http::CountersSource {
    let (front, node) = (front.clone(), node.clone());
    Arc::new(move || {
        let (front, node) = (front.clone(), node.clone());
        async move {
            let mut all = match front.master() {
                Some(master) => {
                    let books = master.ask(TakeSnapshot, PATIENCE).await.ok()?;
                    let now = node.clock().wall();
                    node.blocking(move || metrics(&books, now)).await.ok()?
                }
                None => BTreeMap::from([
                    ("master/elected".to_owned(), 0.0),
                    ("master/term".to_owned(), front.term() as f64),
                ]),
            };
            all.insert("master/deposed".to_owned(), front.deposed() as f64);
            Some(all)
        }
        .boxed()
    })
}

impl Pages {
    /// A page made from a snapshot, off this thread.
    async fn page(self, make: impl FnOnce(&Books, &Chosen) -> Value + Send + 'static) -> Response {
        let books = match self.front.master() {
            Some(master) => master.ask(TakeSnapshot, PATIENCE).await.ok(),
            None => None,
        };
        let Some(books) = books else {
            let problem = "the master gave no answer in time; try again\n";
            return (StatusCode::SERVICE_UNAVAILABLE, problem).into_response();
        };
        let chosen = self.chosen.clone();
        let made = self
            .node
            .blocking(move || make(&books, &chosen).to_string());
        match made.await {
            Ok(text) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
            Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        }
    }
}

async fn state(State(pages): State<Pages>) -> Response {
    pages.page(state::whole).await
}

async fn summary(State(pages): State<Pages>) -> Response {
    pages.page(|books, _| state::summary(books)).await
}

async fn slaves(State(pages): State<Pages>) -> Response {
    pages
        .page(|books, _| json!({ "slaves": state::agents(books), "recovered_slaves": state::recovered(books) }))
        .await
}

async fn frameworks(State(pages): State<Pages>) -> Response {
    pages
        .page(|books, _| {
            json!({
                "frameworks": state::frameworks(books),
                "completed_frameworks": state::completed(books),
                "unregistered_frameworks": [],
            })
        })
        .await
}

async fn roles(State(pages): State<Pages>) -> Response {
    pages
        .page(|books, chosen| json!({ "roles": state::roles(books, &chosen.weights) }))
        .await
}

async fn flags(State(pages): State<Pages>) -> Response {
    axum::Json(json!({ "flags": pages.chosen.flags })).into_response()
}

#[derive(Default, Deserialize)]
struct TasksQuery {
    limit: Option<usize>,
    offset: Option<usize>,
    order: Option<String>,
    framework_id: Option<String>,
    task_id: Option<String>,
}

async fn tasks(State(pages): State<Pages>, Query(query): Query<TasksQuery>) -> Response {
    let ascending = match query.order.as_deref() {
        Some("asc") => true,
        None | Some("des") => false,
        Some(_) => {
            let problem = "order is invalid: expected `asc` or `des`\n";
            return (StatusCode::BAD_REQUEST, problem).into_response();
        }
    };
    pages
        .page(move |books, _| {
            let wanted = |mine: &Option<String>, id: &str| mine.as_deref().is_none_or(|m| m == id);
            let mut tasks: Vec<_> = state::all_tasks(books)
                .filter(|task| wanted(&query.framework_id, task.framework_id.as_str()))
                .filter(|task| wanted(&query.task_id, task.id.as_str()))
                .collect();
            tasks.sort_by_key(|task| task.statuses.first().map(|status| status.timestamp));
            if !ascending {
                tasks.reverse();
            }
            let tasks: Vec<Value> = tasks
                .into_iter()
                .skip(query.offset.unwrap_or(0))
                .take(query.limit.unwrap_or(TASKS_LIMIT))
                .map(pieces::task)
                .collect();
            json!({ "tasks": tasks })
        })
        .await
}

#[cfg(test)]
mod tests;
