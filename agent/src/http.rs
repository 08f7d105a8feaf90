//! What the agent serves over HTTP: the v1 APIs for executors and tools, and pages in the forms Mesos' tools know (SPEC 2.5, 2.7, 3.9, 5.11).
//!
//! Asks the agent's actors with patience and remembers nothing. Everything is also served under `/slave(1)`. Only an executor's words change
//! something.

mod answers;
mod executor;
mod operator;
mod places;
mod state;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{any, get};
use axum::{Json, Router};
use http::api::{Refusal, Streams};
use http::files::{self, Finder};
use runtime::{Handle, Node};
use serde_json::{Value, json};

use crate::agent::AgentState;
use crate::container::Containerizer;
use crate::container::events::Survey;
use crate::start::Started;

/// How long a call waits for the agent's actors.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the pages are made from.
#[derive(Clone)]
struct Pages {
    agent: Started,
    node: Node,
    streams: Streams,
    files: Finder,
}

type Page = Result<Json<Value>, Refusal>;

/// The pages of this agent on its node, to be merged with the common ones. `streams` are those of the listener that serves them.
pub fn routes(agent: &Started, node: &Node, streams: &Streams) -> Router {
    let pages = Pages {
        agent: agent.clone(),
        node: node.clone(),
        streams: streams.clone(),
        files: sandboxes(agent),
    };
    let files = files::routes(node, pages.files.clone());
    let routes = Router::new()
        .route("/api/v1", any(operator::call))
        // Clients of Mesos use this name too, which is served since it begins so.
        .route("/api/v1/operator", any(operator::call))
        .route("/api/v1/executor", any(executor::call))
        .route("/state", get(state))
        .route("/state.json", get(state))
        .route("/flags", get(flags))
        .route("/containers", get(containers))
        .route("/monitor/statistics", get(statistics))
        .with_state(pages)
        .merge(files);
    Router::new()
        .merge(routes.clone())
        .nest("/slave(1)", routes)
}

/// The counters of this agent, as the common pages take them.
pub fn counters(agent: &Started) -> ::http::CountersSource {
    let agent = agent.clone();
    std::sync::Arc::new(move || {
        let agent = agent.clone();
        Box::pin(async move { agent.counters().await })
    })
}

impl Pages {
    fn containerizer(&self) -> &Handle<Containerizer> {
        self.agent.containerizer()
    }

    async fn state(&self) -> Result<AgentState, Refusal> {
        self.agent.state().await.map_err(unavailable)
    }

    async fn survey(&self) -> Result<Survey, Refusal> {
        self.agent.survey().await.map_err(unavailable)
    }
}

fn unavailable(problem: impl std::fmt::Display) -> Refusal {
    Refusal::not_now(format!("the agent does not answer: {problem}"))
}

async fn state(State(pages): State<Pages>) -> Page {
    let (state, survey) = (pages.state().await?, pages.survey().await?);
    let flags = pages.agent.config().flags();
    let now = pages.node.clock().wall();
    Ok(Json(state::whole(&state, &survey, &flags, now)))
}

async fn flags(State(pages): State<Pages>) -> Json<Value> {
    Json(json!({ "flags": pages.agent.config().flags() }))
}

async fn containers(State(pages): State<Pages>) -> Page {
    let (survey, usage) = (pages.survey().await?, pages.agent.usage().await);
    let usage = usage.map_err(unavailable)?;
    Ok(Json(state::containers(&survey, &usage)))
}

async fn statistics(State(pages): State<Pages>) -> Page {
    let (survey, usage) = (pages.survey().await?, pages.agent.usage().await);
    let usage = usage.map_err(unavailable)?;
    Ok(Json(state::monitored(&survey, &usage)))
}

/// The files in sandboxes of this agent, once it has an id.
fn sandboxes(agent: &Started) -> Finder {
    let agent = agent.clone();
    std::sync::Arc::new(move |path, _| {
        let agent = agent.clone();
        Box::pin(async move {
            let id = agent.state().await.map_err(unavailable)?.info.id;
            let frameworks = id.map(|id| -> PathBuf {
                let slaves = agent.config().work_dir().join("slaves");
                slaves.join(id.as_str()).join("frameworks")
            });
            let place = frameworks.and_then(|frameworks| places::find(&frameworks, &path));
            place.ok_or_else(|| {
                let path: String = path.chars().take(200).collect();
                let problem = format!("path `{path}`: expected a path in a sandbox of this agent, as `directory` in /state");
                Refusal::new(StatusCode::NOT_FOUND, problem)
            })
        })
    })
}
