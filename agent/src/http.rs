//! What the agent serves over HTTP: the v1 API for executors, and pages in the forms Mesos' tools know (SPEC 2.5, 3.12, 5.7, 5.11).
//!
//! Asks the agent's actors with patience and remembers nothing. Everything is also served under `/slave(1)`.

mod executor;

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Json, Router};
use http::api::Streams;
use protocol::usage::ExecutorUsage;
use resources::Resources;
use runtime::{Handle, Node};
use serde_json::{Map, Value, json};

use crate::agent::{AgentState, VERSION};
use crate::container::Containerizer;
use crate::container::events::{ContainerView, Survey};
use crate::container::machine::Phase;
use crate::start::Started;

/// How long a call waits for the agent's actors.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the pages are made from.
#[derive(Clone)]
struct Pages {
    agent: Started,
    node: Node,
    streams: Streams,
}

impl Pages {
    fn containerizer(&self) -> &Handle<Containerizer> {
        self.agent.containerizer()
    }
}

/// The pages of this agent on its node, to be merged with the common ones. `streams` are those of the listener that serves them.
pub fn routes(agent: &Started, node: &Node, streams: &Streams) -> Router {
    let pages = Pages {
        agent: agent.clone(),
        node: node.clone(),
        streams: streams.clone(),
    };
    let routes = Router::new()
        .route("/api/v1/executor", any(executor::call))
        .route("/state", get(state))
        .route("/monitor/statistics", get(statistics))
        .with_state(pages);
    Router::new()
        .merge(routes.clone())
        .nest("/slave(1)", routes)
}

/// The counters of this agent, as the common pages take them.
pub fn counters(agent: &Started) -> http::CountersSource {
    let agent = agent.clone();
    std::sync::Arc::new(move || {
        let agent = agent.clone();
        Box::pin(async move { agent.counters().await })
    })
}

async fn state(State(Pages { agent, .. }): State<Pages>) -> Response {
    match (agent.state().await, agent.survey().await) {
        (Ok(state), Ok(survey)) => Json(state_json(&state, &survey)).into_response(),
        (Err(error), _) | (_, Err(error)) => unavailable(&error.to_string()),
    }
}

async fn statistics(State(Pages { agent, .. }): State<Pages>) -> Response {
    match agent.usage().await {
        Ok(usage) => {
            let measured = usage.executors.iter().filter_map(statistics_json);
            Json(Value::Array(measured.collect())).into_response()
        }
        Err(error) => unavailable(&error),
    }
}

fn unavailable(problem: &str) -> Response {
    (
        StatusCode::SERVICE_UNAVAILABLE,
        format!("the agent does not answer: {problem}\n"),
    )
        .into_response()
}

/// Amounts by name, as v0 shows them.
fn amounts(resources: &Resources) -> Value {
    let mut all = Map::new();
    for resource in resources {
        let name = resource.name_str();
        let value = match resource.amount() {
            Some(_) => json!(resources.scalar(&resource.name()).as_f64()),
            None => json!(resource.value().to_string()),
        };
        all.insert(name.to_owned(), value);
    }
    Value::Object(all)
}

fn state_json(state: &AgentState, survey: &Survey) -> Value {
    let frameworks = survey.frameworks.iter().filter_map(|framework| {
        let id = framework.id.as_ref()?;
        let own = || {
            survey
                .containers
                .iter()
                .filter(move |container| container.framework_id == *id)
        };
        let executors = |over: bool| {
            let wanted =
                move |container: &&ContainerView| (container.phase == Phase::Terminated) == over;
            own().filter(wanted).map(executor_json).collect::<Vec<_>>()
        };
        Some(json!({
            "id": id.as_str(),
            "name": framework.name,
            "user": framework.user,
            "roles": framework.roles,
            "executors": executors(false),
            "completed_executors": executors(true),
        }))
    });
    let attributes: Map<String, Value> = state
        .info
        .attributes
        .iter()
        .map(|attribute| {
            (
                attribute.name().to_owned(),
                json!(attribute.value().to_string()),
            )
        })
        .collect();
    json!({
        "version": VERSION,
        "id": state.info.id.as_ref().map(|id| id.as_str()),
        "hostname": state.info.hostname,
        "port": state.info.port,
        "master_hostname": state.master,
        "resources": amounts(&state.info.resources),
        "oversubscribed_resources": amounts(&state.figures.oversubscribed),
        "attributes": attributes,
        "frameworks": frameworks.collect::<Vec<_>>(),
    })
}

fn executor_json(container: &ContainerView) -> Value {
    let tasks = |over: bool| {
        let wanted = container
            .tasks
            .iter()
            .filter(move |(_, state)| state.is_terminal() == over);
        wanted
            .map(|(info, state)| {
                json!({
                    "id": info.task_id.as_str(),
                    "name": info.name,
                    "state": state.name(),
                    "framework_id": container.framework_id.as_str(),
                    "executor_id": container.executor.executor_id.as_str(),
                    "slave_id": info.agent_id.as_str(),
                    "resources": amounts(&info.resources),
                    "labels": info.labels,
                })
            })
            .collect::<Vec<_>>()
    };
    json!({
        "id": container.executor.executor_id.as_str(),
        "name": container.executor.name,
        "container": container.id.as_str(),
        "directory": container.directory,
        "resources": amounts(&container.allocated),
        "tasks": tasks(false),
        "completed_tasks": tasks(true),
    })
}

fn statistics_json(executor: &ExecutorUsage) -> Option<Value> {
    let statistics = executor.statistics.as_ref()?;
    Some(json!({
        "executor_id": executor.executor_id.as_str(),
        "framework_id": executor.framework_id.as_str(),
        "container_id": executor.container_id.as_str(),
        "statistics": {
            "timestamp": statistics.timestamp.as_secs_f64(),
            "processes": statistics.processes,
            "threads": statistics.threads,
            "cpus_user_time_secs": statistics.cpus_user_time_secs,
            "cpus_system_time_secs": statistics.cpus_system_time_secs,
            "cpus_limit": statistics.cpus_limit,
            "mem_rss_bytes": statistics.mem_rss_bytes,
            "mem_limit_bytes": statistics.mem_limit_bytes,
        },
    }))
}
