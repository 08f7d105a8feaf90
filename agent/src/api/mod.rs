//! The agent's HTTP API: the v1 APIs for executors and tools, and pages in the formats of Mesos.
//!
//! Queries the agent's actors with timeouts; has no state. All routes are also served under
//! `/slave(1)`. Apart from the log level, only executor calls change state.
//!
//! | module | contents |
//! |---|---|
//! | `answers` | answers of the agent's operator API |
//! | `executor` | `POST /api/v1/executor`: the v1 executor API |
//! | `help` | the agent's endpoints, for `/help` |
//! | `nested` | its calls about nested containers, and the streams of sessions |
//! | `operator` | `POST /api/v1`: the agent's operator API |
//! | `sandbox_paths` | paths of files in sandboxes; no other files are served |
//! | `state` | `/state`, `/containers` and `/monitor/statistics`, with the JSON keys of Mesos |
//! | `visibility` | the parts of an agent that a subject may see (`view_*`, `access_sandboxes`) |

mod answers;
mod executor;
mod help;
mod nested;
mod operator;
mod sandbox_paths;
mod state;
#[cfg(test)]
mod tests;
pub(crate) mod visibility;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use authority::{Acls, Action, Reloadable, Subject};
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{any, get, post};
use axum::{Extension, Json, Router};
use http::MesosQuery;
use http::api::{EventStreams, Refusal};
use http::files::{self, Finder};
use protocol::ResourceUsage;
use runtime::Node;
use serde::Deserialize;
use serde_json::{Value, json};

pub use help::HELP;

use crate::agent::AgentState;
use crate::container::events::ContainersView;
use crate::container::volumes::VolumesOf;
use crate::sandbox;
use crate::start::Started;

/// How long a call waits for the agent's actors.
const PATIENCE: Duration = Duration::from_secs(5);

/// The state shared by all routes.
#[derive(Clone)]
struct Pages {
    agent: Started,
    node: Node,
    streams: EventStreams,
    acls: Reloadable<Acls>,
    files: Finder,
    counters: http::CountersSource,
}

type Page = Result<Json<Value>, Refusal>;
/// The authenticated subject, if any.
type RequestSubject = Option<Extension<Subject>>;

/// The routes of this agent on its node, to be merged with the common ones, which use the same
/// `counters`. `streams` belong to the listener that serves them.
pub fn routes(
    agent: &Started,
    node: &Node,
    counters: http::CountersSource,
    streams: &EventStreams,
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
        // Mesos serves this path too, as a prefix match.
        .route("/api/v1/operator", any(operator::call))
        .route("/api/v1/executor", any(executor::call))
        .route("/api/v1/resource_provider", post(no_providers))
        .route("/state", get(state))
        .route("/state.json", get(state))
        .route("/flags", get(flags))
        .route("/containers", get(containers))
        .route("/monitor/statistics", get(statistics))
        .route("/oversubscription", get(oversubscription))
        .route("/files/debug", get(debug))
        // No operation is ever pending: each is answered or times out.
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

/// The agent's metrics, for the common pages.
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

    /// The containers, filtered for pages that list frameworks, executors and tasks.
    async fn survey(&self, subject: &Subject) -> Result<ContainersView, Refusal> {
        let survey = self.agent.survey().await.map_err(unavailable)?;
        Ok(visibility::visible(survey, &self.acls.current(), subject))
    }

    /// The containers, filtered for pages that list containers.
    async fn containers(&self, subject: &Subject) -> Result<ContainersView, Refusal> {
        let survey = self.agent.survey().await.map_err(unavailable)?;
        Ok(visibility::visible_containers(
            survey,
            &self.acls.current(),
            subject,
        ))
    }

    async fn usage(&self) -> Result<ResourceUsage, Refusal> {
        self.agent.usage().await.map_err(unavailable)
    }

    /// The flags, if the subject may see them.
    fn flags(&self, subject: &Subject) -> Result<BTreeMap<String, String>, Refusal> {
        let seen = self.acls.current().check(subject, Action::ViewFlags, None);
        seen.map_err(Refusal::from)?;
        Ok(self.agent.config().flags())
    }
}

/// Resource providers are not supported.
async fn no_providers() -> Refusal {
    Refusal::not_served("resource providers are not supported by this agent")
}

fn unavailable(problem: impl std::fmt::Display) -> Refusal {
    Refusal::not_now(format!("the agent does not answer: {problem}"))
}

fn subject_of(subject: RequestSubject) -> Subject {
    subject
        .map(|Extension(subject_of)| subject_of)
        .unwrap_or_default()
}

async fn state(State(pages): State<Pages>, subject: RequestSubject) -> Page {
    let (subject, state) = (subject_of(subject), pages.state().await?);
    let survey = pages.agent.survey().await.map_err(unavailable)?;
    let allocated = state::allocated(&survey);
    let acls = pages.acls.current();
    let survey = visibility::visible(survey, &acls, &subject);
    let roles = acls.approver(&subject, Action::ViewRoles);
    let mut json = state::whole(&state, &survey, &allocated, &roles);
    if let Ok(flags) = pages.flags(&subject) {
        json["flags"] = json!(flags);
    }
    Ok(Json(json))
}

async fn flags(State(pages): State<Pages>, subject: RequestSubject) -> Page {
    Ok(Json(json!({ "flags": pages.flags(&subject_of(subject))? })))
}

/// Restricts the answer to one container.
#[derive(Deserialize)]
struct ContainerFilter {
    container_id: Option<String>,
}

async fn containers(
    State(pages): State<Pages>,
    subject: RequestSubject,
    MesosQuery(filter): MesosQuery<ContainerFilter>,
) -> Page {
    let mut survey = pages.containers(&subject_of(subject)).await?;
    if let Some(id) = filter.container_id {
        survey.containers.retain(|one| one.id.as_str() == id);
    }
    Ok(Json(state::containers(&survey, &pages.usage().await?)))
}

/// Not filtered: access to the endpoint is authorized as a whole.
async fn statistics(State(pages): State<Pages>) -> Result<Json<state::Monitored>, Refusal> {
    Ok(Json(state::Monitored(pages.usage().await?)))
}

/// Usage, slack, estimate and the newest corrections, of those that the subject may see.
async fn oversubscription(State(pages): State<Pages>, subject: RequestSubject) -> Page {
    let asked = pages.agent.oversubscription(subject_of(subject));
    let view = asked.await.map_err(unavailable)?;
    Ok(Json(crate::oversubscription::view::json(&view)))
}

/// Paths of the sandboxes that the subject may read, as `/files/browse` accepts them.
async fn debug(State(pages): State<Pages>, subject: RequestSubject) -> Page {
    let survey = pages.agent.survey().await.map_err(unavailable)?;
    let runs = visibility::readable_sandboxes(&survey, &pages.acls.current(), &subject_of(subject));
    Ok(Json(json!(sandbox_paths::names(&runs))))
}

/// Resolves paths in sandboxes, with authorization.
fn sandboxes(agent: &Started, node: &Node) -> Finder {
    let (agent, node) = (agent.clone(), node.clone());
    Arc::new(move |path, subject| {
        let (agent, node) = (agent.clone(), node.clone());
        Box::pin(async move {
            let id = agent.state().await.map_err(unavailable)?.info.id;
            let found = id.and_then(|id| {
                let slaves = agent.config().work_dir().join("slaves");
                sandbox_paths::find(&slaves.join(id.as_str()).join("frameworks"), &path)
            });
            let not_found = || {
                let path: String = path.chars().take(200).collect();
                let expected = "a path in a sandbox of this agent, as `directory` in /state";
                let problem = format!("path `{path}`: expected {expected}");
                Refusal::new(StatusCode::NOT_FOUND, problem)
            };
            let mut found = found.ok_or_else(not_found)?;
            let acls = agent.config().settings().acls.current();
            let is_plain = found.place.inside.as_os_str().is_empty();
            if acls.is_open() && is_plain {
                return Ok(found.place);
            }
            if found.run == sandbox::LATEST {
                // Resolves `latest` once, so that the authorized run is the one that is read.
                let latest = found.place.root.clone();
                let newest = node.blocking(move || sandbox::newest(latest.parent()?));
                let newest = newest.await.map_err(unavailable)?;
                found = found.of_run(&newest.ok_or_else(not_found)?);
            }
            if !acls.is_open() {
                let survey = agent.survey().await.map_err(unavailable)?;
                let owner =
                    visibility::owner(&survey, &found.framework, &found.executor, &found.run);
                visibility::check_sandbox_access(owner, &acls, &subject).map_err(Refusal::from)?;
            }
            let volumes = agent.volumes(VolumesOf {
                framework: found.framework.clone(),
                executor: found.executor.clone(),
                run: found.run.clone(),
            });
            Ok(found.resolve(&volumes.await.map_err(unavailable)?))
        })
    })
}
