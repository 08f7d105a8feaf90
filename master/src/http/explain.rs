//! `GET /explain`: why a framework is offered nothing (W26).
//!
//! Asks the master that acts here, and says in JSON what its allocator found, as far as whoever asks may see it. Decides nothing.

use std::collections::BTreeMap;

use ::http::Given;
use axum::Extension;
use axum::response::{IntoResponse, Response};
use protocol::explain::{Holder, OffersExplained, Reason, RoleExplanation, Standing, Tally};
use protocol::message::operator::{ExplainOffers, Unexplained};
use resources::Invalid;
use serde_json::{Value, json};

use super::changes::{ask, bad, not_now};
use super::pieces;
use crate::master::ExplainTo;
use crate::office::Front;
use crate::permission::Asker;

/// Reads what stands behind the path. A name that means nothing here is refused, since a misspelled role would otherwise be none.
fn read(mut given: BTreeMap<String, String>) -> Result<ExplainOffers, Invalid> {
    let expected = "`/explain?framework=ID` with `role=` and `agent=` if wanted";
    let framework = given.remove("framework");
    let (role, agent) = (given.remove("role"), given.remove("agent"));
    match (framework, given.pop_first()) {
        (Some(framework), None) => Ok(ExplainOffers {
            framework,
            role,
            agent,
        }),
        (_, Some((name, value))) => Err(Invalid::new(name, value, expected)),
        (None, None) => Err(Invalid::new("framework", "absent", expected)),
    }
}

pub(super) async fn page(
    Extension(front): Extension<Front>,
    Extension(asker): Extension<Asker>,
    Given(given): Given<BTreeMap<String, String>>,
) -> Response {
    let question = match read(given) {
        Ok(question) => question,
        Err(problem) => return bad(problem),
    };
    let sight = asker.sight();
    match ask(&front, ExplainTo { question, sight }).await {
        Ok(Ok(explained)) => axum::Json(value(&explained)).into_response(),
        Ok(Err(Unexplained::Unknown(problem))) => bad(problem),
        Ok(Err(Unexplained::NoAnswer { reason })) => not_now(reason),
        Err(response) => response,
    }
}

/// An explanation as the page shows it.
pub fn value(explained: &OffersExplained) -> Value {
    let roles = explained.explanation.roles.iter();
    json!({
        "framework_id": explained.explanation.framework_id.as_str(),
        "name": explained.name,
        "roles": roles.map(|role| of_role(explained, role)).collect::<Value>(),
    })
}

fn of_role(explained: &OffersExplained, role: &RoleExplanation) -> Value {
    let unanswered = explained.unanswered.get(&role.role);
    json!({
        "role": role.role,
        "share": role.share,
        "role_share": role.role_share,
        "unanswered_offers": unanswered.copied().unwrap_or(0),
        "agents": role.agents,
        "standing": role.standing.iter().map(standing).collect::<Value>(),
        "reasons": role.reasons.iter().map(tally).collect::<Value>(),
        "untold_agents": role.untold,
    })
}

fn standing(standing: &Standing) -> Value {
    json!({ "reason": standing.kind(), "text": standing.to_string() })
}

fn tally(tally: &Tally) -> Value {
    let first = tally.examples.first().map(|example| &example.reason);
    let examples = tally.examples.iter().map(|example| {
        let mut value = json!({
            "agent_id": example.agent_id.as_str(),
            "hostname": example.hostname,
            "text": example.reason.to_string(),
        });
        if let (Value::Object(own), Value::Object(more)) = (&mut value, known(&example.reason)) {
            own.extend(more);
        }
        value
    });
    json!({
        "reason": first.map(Reason::kind),
        "text": first.map(Reason::title),
        "revocable": tally.revocable,
        "agents": tally.agents,
        "examples": examples.collect::<Value>(),
    })
}

/// What of a reason programs may want to look at.
fn known(reason: &Reason) -> Value {
    match reason {
        Reason::AgentInactive | Reason::NotListed | Reason::Open => json!({}),
        Reason::Capability(capability) => json!({ "capability": capability.name() }),
        Reason::Constraint { unmet, more } => {
            let unmet = unmet
                .iter()
                .map(|one| json!({ "constraint": one.constraint, "has": one.has }));
            json!({ "unmet": unmet.collect::<Value>(), "more": more })
        }
        Reason::Own { held } => json!({ "held": pieces::amounts(held) }),
        Reason::WentFirst {
            free,
            holders,
            more,
        } => {
            let holders = holders.iter().map(holder).collect::<Value>();
            json!({ "free": pieces::amounts(free), "holders": holders, "more": more })
        }
        Reason::Reserved { roles } => json!({ "roles": roles }),
        Reason::BelowMinimum { portion, minimum } => {
            let minimum = minimum.iter().map(pieces::amounts).collect::<Value>();
            json!({ "portion": pieces::amounts(portion), "minimum": minimum })
        }
        Reason::QuotaLimit { role, left } => {
            json!({ "role": role, "left": pieces::amounts(left) })
        }
        Reason::Headroom {
            roles,
            required,
            free,
        } => json!({
            "roles": roles,
            "required": pieces::amounts(required),
            "free": pieces::amounts(free),
        }),
        Reason::RoomMade { role } => json!({ "role": role }),
        Reason::Filtered { offer, left } => json!({
            "offer": pieces::amounts(offer),
            "seconds_left": left.as_secs_f64(),
        }),
    }
}

fn holder(holder: &Holder) -> Value {
    json!({
        "framework_id": holder.framework_id.as_str(),
        "role": holder.role,
        "held": pieces::amounts(&holder.held),
        "share": holder.share,
        "against": holder.against,
    })
}
