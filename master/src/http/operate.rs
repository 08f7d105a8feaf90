//! Requests that change what becomes of an agent's resources: `/reserve`, `/unreserve`, `/create-volumes`, `/destroy-volumes` (SPEC 3.9,
//! S93).
//!
//! Reads the two fields of the form, asks the master that acts here, and says in HTTP what it answered: 202 it is being done, 400 wrong in
//! itself, with a right one beside it, 403 who asks may not, 409 the agent has not so much that nobody uses, 413 it is too long. Knows no rule of operations.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use protocol::AgentId;
use protocol::message::operator::{Operate, OperationRefused};
use resources::{Conversion, Invalid, Resources};

use super::changes::{WholeBody, ask, bad, conflict, forbidden};
use crate::master::OperateAll;
use crate::office::Front;
use crate::permission::Asker;

/// Reserved resources as a right body has them.
const RESERVED: &str = r#"curl -d slaveId=ID -d resources='[{"name":"cpus","type":"SCALAR","scalar":{"value":4},"role":"role1","reservation":{"principal":"ops"}},{"name":"mem","type":"SCALAR","scalar":{"value":4096},"role":"role1","reservation":{"principal":"ops"}}]'"#;
/// A volume as a right body has it.
const VOLUMES: &str = r#"curl -d slaveId=ID -d volumes='[{"name":"disk","type":"SCALAR","scalar":{"value":1024},"role":"role1","reservation":{"principal":"ops"},"disk":{"persistence":{"id":"data","principal":"ops"},"volume":{"mode":"RW","container_path":"data"}}}]'"#;

/// The four routes.
pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let reserve = |resources| Conversion::Reserve { resources };
    let unreserve = |resources| Conversion::Unreserve { resources };
    let create = |volumes| Conversion::Create { volumes };
    let destroy = |volumes| Conversion::Destroy { volumes };
    Router::new()
        .route(
            "/reserve",
            post(async move |front, asker, body| resources(front, asker, body, reserve).await),
        )
        .route(
            "/unreserve",
            post(async move |front, asker, body| resources(front, asker, body, unreserve).await),
        )
        .route(
            "/create-volumes",
            post(async move |front, asker, body| volumes(front, asker, body, create).await),
        )
        .route(
            "/destroy-volumes",
            post(async move |front, asker, body| volumes(front, asker, body, destroy).await),
        )
}

async fn resources(
    Extension(front): Extension<Front>,
    Extension(asker): Extension<Asker>,
    body: WholeBody,
    make: fn(Resources) -> Conversion,
) -> Response {
    operate((&front, &asker), body, "resources", make, RESERVED).await
}

async fn volumes(
    Extension(front): Extension<Front>,
    Extension(asker): Extension<Asker>,
    body: WholeBody,
    make: fn(Resources) -> Conversion,
) -> Response {
    operate((&front, &asker), body, "volumes", make, VOLUMES).await
}

/// The agent and the resources that a form names, those in this field.
fn read(form: &[u8], field: &str) -> Result<(AgentId, Resources), String> {
    let mut said = ::http::fields(form).map_err(|bad| bad.to_string())?;
    let agent = match (said.remove("slaveId"), said.remove("agentId")) {
        (Some(agent), None) | (None, Some(agent)) => agent,
        (None, None) => return Err(missing("slaveId")),
        (Some(_), Some(_)) => {
            let found = "there, and agentId is, too";
            return Err(Invalid::new("slaveId", found, "the agent's id, once").to_string());
        }
    };
    let agent: AgentId = agent.parse().map_err(|error| format!("slaveId: {error}"))?;
    let text = said.remove(field);
    let text = text.ok_or_else(|| missing(field))?;
    let resources = resources::json::parse_resources(&text);
    resources
        .map(|resources| (agent, resources))
        .map_err(|error| {
            format!("Error in parsing '{field}' query parameter in the request body: {error}")
        })
}

/// The message about a field that is missing, as by Mesos.
fn missing(field: &str) -> String {
    format!("Missing '{field}' query parameter in the request body")
}

async fn operate(
    (front, asker): (&Front, &Asker),
    body: WholeBody,
    field: &'static str,
    make: fn(Resources) -> Conversion,
    example: &'static str,
) -> Response {
    let wrong = move |problem: String| format!("{problem}\nA right one: {example}");
    let said = body.read(move |form| read(form, field).map_err(wrong));
    let ((agent_id, resources), _heard) = match said.await {
        Ok(said) => said,
        Err(response) => return response,
    };
    let conversion = make(resources);
    if let Err(problem) = asker.convert(&conversion) {
        return forbidden(problem);
    }
    let operate = Operate {
        agent_id,
        conversion,
    };
    match ask(front, operate).await {
        Ok(done) => told(done),
        Err(response) => response,
    }
}

/// Does this with what an agent has.
pub(super) async fn operated(front: &Front, asker: &Asker, operate: Operate) -> Response {
    if let Err(problem) = asker.convert(&operate.conversion) {
        return forbidden(problem);
    }
    match ask(front, operate).await {
        Ok(done) => told(done),
        Err(response) => response,
    }
}

/// Does all of these with what an agent has, or none. Each is allowed by itself.
pub(super) async fn operated_all(
    front: &Front,
    asker: &Asker,
    agent_id: AgentId,
    conversions: Vec<Conversion>,
) -> Response {
    let mut each = conversions.iter();
    if let Err(problem) = each.try_for_each(|conversion| asker.convert(conversion)) {
        return forbidden(problem);
    }
    let all = OperateAll {
        agent_id,
        conversions,
    };
    match ask(front, all).await {
        Ok(done) => told(done),
        Err(response) => response,
    }
}

fn told(done: Result<(), OperationRefused>) -> Response {
    match done {
        Ok(()) => StatusCode::ACCEPTED.into_response(),
        Err(refused @ OperationRefused::NotFree { .. }) => conflict(&refused),
        Err(OperationRefused::NoAgent { .. }) => bad("No agent found with specified ID"),
        Err(OperationRefused::Invalid(invalid)) => bad(invalid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(agent: &str, resources: &str) -> String {
        format!("slaveId={agent}&resources={resources}")
    }

    fn read(form: &str, field: &str) -> Result<(AgentId, Resources), String> {
        super::read(form.as_bytes(), field)
    }

    /// S93: the seed's body is no JSON array, whatever the shell made of its quotes.
    #[test]
    fn a_proper_array_is_read_and_the_seeds_body_is_answered_with_one() {
        let example = |text: &str, field: &str| {
            let (_, json) = text.split_once(&format!("-d {field}='")).unwrap();
            json.strip_suffix('\'').unwrap().to_owned()
        };
        let array = example(RESERVED, "resources");
        let (agent, resources) = read(&said("slave1", &array), "resources").unwrap();
        assert_eq!(agent.as_str(), "slave1");
        assert_eq!(resources.quantities().to_string(), "cpus:4;mem:4096");
        assert!(Conversion::Reserve { resources }.step().is_ok());
        let volumes = resources::json::parse_resources(&example(VOLUMES, "volumes")).unwrap();
        assert!(Conversion::Create { volumes }.step().is_ok());

        let seed = "{ { \"name\" : \"cpus\", \"type\" : \"SCALAR\", \"scalar\" : { \"value\" : 4 }, \"role\" : \"role1\" }, }";
        for body in [seed, "{ { name : cpus, type : SCALAR }, }", ""] {
            let problem = read(&said("slave1", body), "resources").unwrap_err();
            assert!(
                problem.starts_with(
                    "Error in parsing 'resources' query parameter in the request body: "
                ) && problem.contains("JSON"),
                "{problem}"
            );
        }
        let missing = read(&said("slave1", &array), "volumes");
        let words = "Missing 'volumes' query parameter in the request body";
        assert_eq!(missing.unwrap_err(), words);
        let agent = read(&said("a/b", &array), "resources");
        assert!(agent.unwrap_err().starts_with("slaveId: "));
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
        let newer = said("slave1", &array).replace("slaveId", "agentId");
        assert!(read(&newer, "resources").is_ok());
    }
}
