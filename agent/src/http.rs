//! What the agent serves over HTTP: the v1 APIs for executors and tools, and pages in the forms Mesos' tools know (SPEC 2.5, 2.7, 3.9, 5.11).
//!
//! Asks the agent's actors with patience and remembers nothing. Everything is also served under `/slave(1)`. Only an executor's words change
//! something.

mod answers;
mod executor;
mod help;
mod operator;
mod places;
mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use authority::{Acls, Action, Shared, Subject};
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{any, get, post};
use axum::{Extension, Json, Router};
use http::Given;
use http::api::{Refusal, Streams};
use http::files::{self, Finder};
use protocol::ResourceUsage;
use runtime::Node;
use serde::Deserialize;
use serde_json::{Value, json};

pub use help::HELP;

use crate::agent::AgentState;
use crate::container::events::Survey;
use crate::container::volumes::VolumesOf;
use crate::start::Started;
use crate::{sandbox, sight};

/// How long a call waits for the agent's actors.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the pages are made from.
#[derive(Clone)]
struct Pages {
    agent: Started,
    node: Node,
    streams: Streams,
    acls: Shared<Acls>,
    files: Finder,
    counters: http::CountersSource,
}

type Page = Result<Json<Value>, Refusal>;
/// Who asks, if somebody has found out.
type Who = Option<Extension<Subject>>;

/// The pages of this agent on its node, to be merged with the common ones, which have these counters too. `streams` are those of the
/// listener that serves them.
pub fn routes(
    agent: &Started,
    node: &Node,
    counters: http::CountersSource,
    streams: &Streams,
) -> Router {
    let pages = Pages {
        agent: agent.clone(),
        node: node.clone(),
        streams: streams.clone(),
        acls: agent.config().settings().acls.clone(),
        files: sandboxes(agent, node),
        counters,
    };
    let files = files::routes(node, pages.files.clone());
    let routes = Router::new()
        .route("/api/v1", any(operator::call))
        // Clients of Mesos use this name too, which is served since it begins so.
        .route("/api/v1/operator", any(operator::call))
        .route("/api/v1/executor", any(executor::call))
        .route("/api/v1/resource_provider", post(no_providers))
        .route("/state", get(state))
        .route("/state.json", get(state))
        .route("/flags", get(flags))
        .route("/containers", get(containers))
        .route("/monitor/statistics", get(statistics))
        .route("/files/debug", get(debug))
        // Each operation on a container is answered or given up in time.
        .route(
            "/containerizer/debug",
            get(async || Json(json!({ "pending": [] }))),
        )
        .with_state(pages)
        .merge(files);
    Router::new()
        .merge(routes.clone())
        .nest("/slave(1)", routes)
}

/// The counters of this agent, as the common pages take them.
pub fn counters(agent: &Started) -> http::CountersSource {
    let agent = agent.clone();
    http::CountersSource::new(move || {
        let agent = agent.clone();
        async move { agent.counters().await }
    })
}

impl Pages {
    async fn state(&self) -> Result<AgentState, Refusal> {
        self.agent.state().await.map_err(unavailable)
    }

    /// What this subject may see of frameworks, executors and tasks.
    async fn survey(&self, who: &Subject) -> Result<Survey, Refusal> {
        let survey = self.agent.survey().await.map_err(unavailable)?;
        Ok(sight::seen(survey, &self.acls.now(), who))
    }

    /// What this subject may see of containers.
    async fn containers(&self, who: &Subject) -> Result<Survey, Refusal> {
        let survey = self.agent.survey().await.map_err(unavailable)?;
        Ok(sight::seen_containers(survey, &self.acls.now(), who))
    }

    async fn usage(&self) -> Result<ResourceUsage, Refusal> {
        self.agent.usage().await.map_err(unavailable)
    }

    /// The flags, for whom they are.
    fn flags(&self, who: &Subject) -> Result<BTreeMap<String, String>, Refusal> {
        let seen = self.acls.now().check(who, Action::ViewFlags, None);
        seen.map_err(Refusal::forbidden)?;
        Ok(self.agent.config().flags())
    }
}

/// Providers of resources would subscribe here.
async fn no_providers() -> Refusal {
    Refusal::not_served(
        "resource providers are not served by this agent: what it offers is its own",
    )
}

fn unavailable(problem: impl std::fmt::Display) -> Refusal {
    Refusal::not_now(format!("the agent does not answer: {problem}"))
}

fn subject(who: Who) -> Subject {
    who.map(|Extension(subject)| subject).unwrap_or_default()
}

async fn state(State(pages): State<Pages>, who: Who) -> Page {
    let (who, state) = (subject(who), pages.state().await?);
    let survey = pages.agent.survey().await.map_err(unavailable)?;
    let allocated = state::allocated(&survey);
    let acls = pages.acls.now();
    let survey = sight::seen(survey, &acls, &who);
    let roles = acls.approver(&who, Action::ViewRoles);
    let mut json = state::whole(&state, &survey, &allocated, &roles);
    if let Ok(flags) = pages.flags(&who) {
        json["flags"] = json!(flags);
    }
    Ok(Json(json))
}

async fn flags(State(pages): State<Pages>, who: Who) -> Page {
    Ok(Json(json!({ "flags": pages.flags(&subject(who))? })))
}

/// Whether one container alone is asked for.
#[derive(Deserialize)]
struct Only {
    container_id: Option<String>,
}

async fn containers(State(pages): State<Pages>, who: Who, Given(only): Given<Only>) -> Page {
    let mut survey = pages.containers(&subject(who)).await?;
    if let Some(id) = only.container_id {
        survey.containers.retain(|one| one.id.as_str() == id);
    }
    Ok(Json(state::containers(&survey, &pages.usage().await?)))
}

/// Whole, for whoever may have this page at all.
async fn statistics(State(pages): State<Pages>) -> Page {
    let survey = pages.agent.survey().await.map_err(unavailable)?;
    Ok(Json(state::monitored(&survey, &pages.usage().await?)))
}

/// Which sandboxes there are for whoever asks, by all names under which `/files/browse` finds them.
async fn debug(State(pages): State<Pages>, who: Who) -> Page {
    let survey = pages.agent.survey().await.map_err(unavailable)?;
    let runs = sight::enterable(&survey, &pages.acls.now(), &subject(who));
    Ok(Json(json!(places::names(&runs))))
}

/// The files in sandboxes of this agent, for those who may look into them.
fn sandboxes(agent: &Started, node: &Node) -> Finder {
    let (agent, node) = (agent.clone(), node.clone());
    Arc::new(move |path, who| {
        let (agent, node) = (agent.clone(), node.clone());
        Box::pin(async move {
            let id = agent.state().await.map_err(unavailable)?.info.id;
            let found = id.and_then(|id| {
                let slaves = agent.config().work_dir().join("slaves");
                places::find(&slaves.join(id.as_str()).join("frameworks"), &path)
            });
            let nowhere = || {
                let path: String = path.chars().take(200).collect();
                let expected = "a path in a sandbox of this agent, as `directory` in /state";
                let problem = format!("path `{path}`: expected {expected}");
                Refusal::new(StatusCode::NOT_FOUND, problem)
            };
            let mut found = found.ok_or_else(nowhere)?;
            let acls = agent.config().settings().acls.now();
            let is_plain = found.place.inside.as_os_str().is_empty();
            if acls.is_open() && is_plain {
                return Ok(found.place);
            }
            if found.run == sandbox::LATEST {
                // What is looked into is what was asked about, be there another run in a moment.
                let latest = found.place.root.clone();
                let newest = node.blocking(move || sandbox::newest(latest.parent()?));
                let newest = newest.await.map_err(unavailable)?;
                found = found.of_run(&newest.ok_or_else(nowhere)?);
            }
            if !acls.is_open() {
                let survey = agent.survey().await.map_err(unavailable)?;
                let owner = sight::owner(&survey, &found.framework, &found.executor, &found.run);
                sight::may_enter(owner, &acls, &who).map_err(Refusal::forbidden)?;
            }
            let volumes = agent.volumes(VolumesOf {
                framework: found.framework.clone(),
                executor: found.executor.clone(),
                run: found.run.clone(),
            });
            Ok(found.place_among(&volumes.await.map_err(unavailable)?))
        })
    })
}
