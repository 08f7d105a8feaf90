//! Operations on an agent's resources by form: `/reserve`, `/unreserve`, `/create-volumes`,
//! `/destroy-volumes`.
//!
//! Parses the form, asks the local master, and translates its answer: 202 accepted, 400 invalid,
//! with a valid example, 403 not authorized, 409 not enough unused resources, 413 too long.
//! Contains no rules of operations.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use protocol::AgentId;
use protocol::message::operator::{Operate, OperationRefused};
use resources::{Conversion, Invalid, Resources};

use crate::api::pages::changes::{WholeBody, ask, bad, conflict, forbidden};
use crate::leadership::LocalLeader;
use crate::master::OperateAll;
use crate::permission::Caller;
use crate::validation;

/// The refusal of an unknown agent, as in Mesos.
const NO_AGENT: &str = "No agent found with specified ID";
/// An example of valid reserved resources.
const RESERVED: &str = r#"curl -d slaveId=ID -d resources='[{"name":"cpus","type":"SCALAR","scalar":{"value":4},"role":"role1","reservation":{"principal":"ops"}},{"name":"mem","type":"SCALAR","scalar":{"value":4096},"role":"role1","reservation":{"principal":"ops"}}]'"#;
/// An example of a valid volume.
const VOLUMES: &str = r#"curl -d slaveId=ID -d volumes='[{"name":"disk","type":"SCALAR","scalar":{"value":1024},"role":"role1","reservation":{"principal":"ops"},"disk":{"persistence":{"id":"data","principal":"ops"},"volume":{"mode":"RW","container_path":"data"}}}]'"#;

/// The four routes.
pub(in crate::api) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let reserve = |resources| Conversion::Reserve { resources };
    let unreserve = |resources| Conversion::Unreserve { resources };
    let create = |volumes| Conversion::Create { volumes };
    let destroy = |volumes| Conversion::Destroy { volumes };
    Router::new()
        .route(
            "/reserve",
            post(async move |local, caller, body| resources(local, caller, body, reserve).await),
        )
        .route(
            "/unreserve",
            post(async move |local, caller, body| resources(local, caller, body, unreserve).await),
        )
        .route(
            "/create-volumes",
            post(async move |local, caller, body| volumes(local, caller, body, create).await),
        )
        .route(
            "/destroy-volumes",
            post(async move |local, caller, body| volumes(local, caller, body, destroy).await),
        )
}

async fn resources(
    Extension(local): Extension<LocalLeader>,
    Extension(caller): Extension<Caller>,
    body: WholeBody,
    make: fn(Resources) -> Conversion,
) -> Response {
    operate((&local, &caller), body, "resources", make, RESERVED).await
}

async fn volumes(
    Extension(local): Extension<LocalLeader>,
    Extension(caller): Extension<Caller>,
    body: WholeBody,
    make: fn(Resources) -> Conversion,
) -> Response {
    operate((&local, &caller), body, "volumes", make, VOLUMES).await
}

/// The agent and the resources in this field of a form.
fn read(form: &[u8], field: &str, example: &str) -> Result<(AgentId, Resources), String> {
    let mut parsed = ::http::fields(form).map_err(|bad| bad.to_string())?;
    let agent = match (parsed.remove("slaveId"), parsed.remove("agentId")) {
        (Some(agent), None) | (None, Some(agent)) => agent,
        (None, None) => return Err(missing("slaveId")),
        (Some(_), Some(_)) => {
            let found = "there, and agentId is, too";
            return Err(Invalid::new("slaveId", found, "the agent's id, once").to_string());
        }
    };
    let text = parsed.remove(field);
    let text = text.ok_or_else(|| missing(field))?;
    let resources = resources::json::parse_resources(&text).map_err(|error| {
        format!(
            "Error in parsing '{field}' query parameter in the request body: {error}\nvalid example: {example}"
        )
    })?;
    // An invalid id is the id of no agent.
    let agent = agent.parse().map_err(|_| NO_AGENT.to_owned())?;
    Ok((agent, resources))
}

/// The message for a missing field, as in Mesos.
fn missing(field: &str) -> String {
    format!("Missing '{field}' query parameter in the request body")
}

async fn operate(
    (local, caller): (&LocalLeader, &Caller),
    body: WholeBody,
    field: &'static str,
    make: fn(Resources) -> Conversion,
    example: &'static str,
) -> Response {
    let parsed = body.read(move |form| read(form, field, example));
    let ((agent_id, resources), _permit) = match parsed.await {
        Ok(parsed) => parsed,
        Err(response) => return response,
    };
    let conversion = make(resources);
    if let Err(problem) = caller.convert(&conversion) {
        return forbidden(problem);
    }
    let operate = Operate {
        agent_id,
        conversion,
    };
    match ask(local, operate).await {
        Ok(done) => response(done),
        Err(response) => response,
    }
}

/// Applies an operation.
pub(in crate::api) async fn operate_one(
    local: &LocalLeader,
    caller: &Caller,
    operate: Operate,
) -> Response {
    if let Err(problem) = caller.convert(&operate.conversion) {
        return forbidden(problem);
    }
    match ask(local, operate).await {
        Ok(done) => response(done),
        Err(response) => response,
    }
}

/// Applies all of these operations, or none. Each is authorized separately.
pub(in crate::api) async fn apply_all(
    local: &LocalLeader,
    caller: &Caller,
    agent_id: AgentId,
    conversions: Vec<Conversion>,
) -> Response {
    let mut each = conversions.iter();
    if let Err(problem) = each.try_for_each(|conversion| caller.convert(conversion)) {
        return forbidden(problem);
    }
    let all = OperateAll {
        agent_id,
        conversions,
    };
    match ask(local, all).await {
        Ok(done) => response(done),
        Err(response) => response,
    }
}

fn response(done: Result<(), OperationRefused>) -> Response {
    match done {
        Ok(()) => StatusCode::ACCEPTED.into_response(),
        Err(OperationRefused::NotFree { lacking, free }) => {
            let free = validation::texts(&free);
            conflict(format_args!("{free} does not contain {lacking}"))
        }
        Err(OperationRefused::NoAgent { .. }) => bad(NO_AGENT),
        Err(OperationRefused::Invalid(invalid)) => bad(invalid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(agent: &str, resources: &str) -> String {
        format!("slaveId={agent}&resources={resources}")
    }

    fn read(form: &str, field: &str) -> Result<(AgentId, Resources), String> {
        super::read(form.as_bytes(), field, RESERVED)
    }

    /// S93: the seed's body is no JSON array, whatever the shell made of its quotes.
    // Covers S93.
    #[test]
    fn json_array_is_read_and_the_seeds_body_gets_an_example() {
        let example = |text: &str, field: &str| {
            let (_, json) = text.split_once(&format!("-d {field}='")).unwrap();
            json.strip_suffix('\'').unwrap().to_owned()
        };
        let array = example(RESERVED, "resources");
        let (agent, resources) = read(&form("slave1", &array), "resources").unwrap();
        assert_eq!(agent.as_str(), "slave1");
        assert_eq!(resources.quantities().to_string(), "cpus:4;mem:4096");
        assert!(Conversion::Reserve { resources }.step().is_ok());
        let volumes = resources::json::parse_resources(&example(VOLUMES, "volumes")).unwrap();
        assert!(Conversion::Create { volumes }.step().is_ok());

        let seed = "{ { \"name\" : \"cpus\", \"type\" : \"SCALAR\", \"scalar\" : { \"value\" : 4 }, \"role\" : \"role1\" }, }";
        for body in [seed, "{ { name : cpus, type : SCALAR }, }", ""] {
            let problem = read(&form("slave1", body), "resources").unwrap_err();
            assert!(
                problem.starts_with(
                    "Error in parsing 'resources' query parameter in the request body: "
                ) && problem.contains("JSON"),
                "{problem}"
            );
        }
        let missing = read(&form("slave1", &array), "volumes");
        let words = "Missing 'volumes' query parameter in the request body";
        assert_eq!(missing.unwrap_err(), words);
        let agent = read(&form("a/b", &array), "resources");
        assert_eq!(agent.unwrap_err(), NO_AGENT);
        for (form, words) in [
            (
                "resources=[]",
                "Missing 'slaveId' query parameter in the request body",
            ),
            (
                "slaveId=a&agentId=b&resources=[]",
                "slaveId is `there, and agentId is, too`: expected the agent's id, once",
            ),
        ] {
            assert_eq!(read(form, "resources").unwrap_err(), words);
        }
        let newer = form("slave1", &array).replace("slaveId", "agentId");
        assert!(read(&newer, "resources").is_ok());
    }
}
