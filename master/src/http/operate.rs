//! Requests that change what becomes of an agent's resources: `/reserve`, `/unreserve`, `/create-volumes`, `/destroy-volumes` (SPEC 3.9,
//! S93).
//!
//! Reads the two fields of the form, asks the master that acts here, and says in HTTP what it answered: 202 it is being done, 400 wrong in
//! itself, with a right one beside it, 403 who asks may not, 409 the agent has not so much that nobody uses, 413 it is too long. Knows no rule of operations.

use axum::extract::Form;
use axum::extract::rejection::FormRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use protocol::AgentId;
use protocol::message::operator::{Operate, OperationRefused};
use resources::{Conversion, Resources};
use serde::Deserialize;

use super::changes::{ask, bad, conflict, forbidden, too_long};
use crate::master::OperateAll;
use crate::office::Front;
use crate::permission::Asker;

/// Reserved resources as a right body has them.
const RESERVED: &str = r#"curl -d slaveId=ID -d resources='[{"name":"cpus","type":"SCALAR","scalar":{"value":4},"role":"role1","reservation":{"principal":"ops"}},{"name":"mem","type":"SCALAR","scalar":{"value":4096},"role":"role1","reservation":{"principal":"ops"}}]'"#;
/// A volume as a right body has it.
const VOLUMES: &str = r#"curl -d slaveId=ID -d volumes='[{"name":"disk","type":"SCALAR","scalar":{"value":1024},"role":"role1","reservation":{"principal":"ops"},"disk":{"persistence":{"id":"data","principal":"ops"},"volume":{"mode":"RW","container_path":"data"}}}]'"#;

/// The fields of all four.
#[derive(Deserialize)]
struct Said {
    #[serde(rename = "slaveId", alias = "agentId")]
    agent: String,
    resources: Option<String>,
    volumes: Option<String>,
}

type Body = Result<Form<Said>, FormRejection>;

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
    body: Body,
    make: fn(Resources) -> Conversion,
) -> Response {
    if let Some(refusal) = cut(&body) {
        return refusal;
    }
    let said = read(body, "resources", |said| said.resources);
    operate((&front, &asker), said, make, RESERVED).await
}

async fn volumes(
    Extension(front): Extension<Front>,
    Extension(asker): Extension<Asker>,
    body: Body,
    make: fn(Resources) -> Conversion,
) -> Response {
    if let Some(refusal) = cut(&body) {
        return refusal;
    }
    let said = read(body, "volumes", |said| said.volumes);
    operate((&front, &asker), said, make, VOLUMES).await
}

/// What is answered to a body that was not read to its end. The others are wrong in what they say.
fn cut(body: &Body) -> Option<Response> {
    too_long(body.as_ref().err()?.status())
}

/// The agent and the resources that a body names.
fn read(
    body: Body,
    field: &str,
    pick: fn(Said) -> Option<String>,
) -> Result<(AgentId, Resources), String> {
    let Form(said) = body.map_err(|rejection| rejection.body_text())?;
    let agent: AgentId = said
        .agent
        .parse()
        .map_err(|error| format!("slaveId: {error}"))?;
    let text = pick(said).ok_or_else(|| format!("{field} is missing: expected a JSON array"))?;
    let resources = resources::json::parse_resources(&text);
    resources
        .map(|resources| (agent, resources))
        .map_err(|error| format!("{field}: {error}"))
}

async fn operate(
    (front, asker): (&Front, &Asker),
    said: Result<(AgentId, Resources), String>,
    make: fn(Resources) -> Conversion,
    example: &str,
) -> Response {
    let wrong = |problem: String| bad(format!("{problem}\nA right one: {example}"));
    let (agent_id, resources) = match said {
        Ok(said) => said,
        Err(problem) => return wrong(problem),
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
        Ok(Err(OperationRefused::Invalid(invalid))) => wrong(invalid.to_string()),
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
        Err(refused) => bad(&refused),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(agent: &str, resources: &str) -> Body {
        Ok(Form(Said {
            agent: agent.to_owned(),
            resources: Some(resources.to_owned()),
            volumes: None,
        }))
    }

    /// S93: the seed's body is no JSON array, whatever the shell made of its quotes.
    #[test]
    fn a_proper_array_is_read_and_the_seeds_body_is_answered_with_one() {
        let example = |text: &str, field: &str| {
            let (_, json) = text.split_once(&format!("-d {field}='")).unwrap();
            json.strip_suffix('\'').unwrap().to_owned()
        };
        let array = example(RESERVED, "resources");
        let (agent, resources) =
            read(said("slave1", &array), "resources", |said| said.resources).unwrap();
        assert_eq!(agent.as_str(), "slave1");
        assert_eq!(resources.quantities().to_string(), "cpus:4;mem:4096");
        assert!(Conversion::Reserve { resources }.step().is_ok());
        let volumes = resources::json::parse_resources(&example(VOLUMES, "volumes")).unwrap();
        assert!(Conversion::Create { volumes }.step().is_ok());

        let seed = "{ { \"name\" : \"cpus\", \"type\" : \"SCALAR\", \"scalar\" : { \"value\" : 4 }, \"role\" : \"role1\" }, }";
        for body in [seed, "{ { name : cpus, type : SCALAR }, }", ""] {
            let problem = read(said("slave1", body), "resources", |said| said.resources);
            let problem = problem.unwrap_err();
            assert!(
                problem.starts_with("resources: ") && problem.contains("JSON"),
                "{problem}"
            );
        }
        let missing = read(said("slave1", &array), "volumes", |said| said.volumes);
        assert!(missing.unwrap_err().starts_with("volumes is missing"));
        let agent = read(said("a/b", &array), "resources", |said| said.resources);
        assert!(agent.unwrap_err().starts_with("slaveId: "));
    }
}
