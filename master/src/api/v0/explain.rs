//! `GET /explain`: why a framework gets no offers.
//!
//! Asks the local master, and renders the visible part of its allocator's answer as JSON.

use std::collections::BTreeMap;

use ::http::MesosQuery;
use axum::Extension;
use axum::response::{IntoResponse, Response};
use protocol::message::operator::{ExplainError, ExplainOffers};
use protocol::view::explain::{
    NoOfferReason, OfferBlocker, OffersExplained, ReasonCount, ResourceHolder, RoleExplanation,
};
use resources::Invalid;
use serde_json::{Value, json};

use crate::api::pages::changes::{ask, bad, not_now};
use crate::api::pages::pieces;
use crate::leadership::LocalLeader;
use crate::master::ExplainTo;
use crate::permission::Caller;

/// Parses the query. Unknown parameters are refused: a misspelled role would otherwise be ignored.
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

pub(in crate::api) async fn page(
    Extension(local): Extension<LocalLeader>,
    Extension(caller): Extension<Caller>,
    MesosQuery(given): MesosQuery<BTreeMap<String, String>>,
) -> Response {
    let question = match read(given) {
        Ok(question) => question,
        Err(problem) => return bad(problem),
    };
    let visibility = caller.visibility();
    match ask(
        &local,
        ExplainTo {
            question,
            visibility,
        },
    )
    .await
    {
        Ok(Ok(explained)) => axum::Json(value(&explained)).into_response(),
        Ok(Err(ExplainError::Unknown(problem))) => bad(problem),
        Ok(Err(ExplainError::NoAnswer { reason })) => not_now(reason),
        Err(response) => response,
    }
}

/// The JSON of an explanation.
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

fn standing(standing: &OfferBlocker) -> Value {
    json!({ "reason": standing.kind(), "text": standing.to_string() })
}

fn tally(tally: &ReasonCount) -> Value {
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
        "reason": first.map(NoOfferReason::kind),
        "text": first.map(NoOfferReason::title),
        "revocable": tally.revocable,
        "agents": tally.agents,
        "examples": examples.collect::<Value>(),
    })
}

/// The machine-readable details of a reason.
fn known(reason: &NoOfferReason) -> Value {
    match reason {
        NoOfferReason::AgentInactive | NoOfferReason::NotListed | NoOfferReason::Open => json!({}),
        NoOfferReason::Capability(capability) => json!({ "capability": capability.name() }),
        NoOfferReason::Constraint { unmet, more } => {
            let unmet = unmet
                .iter()
                .map(|one| json!({ "constraint": one.constraint, "has": one.has }));
            json!({ "unmet": unmet.collect::<Value>(), "more": more })
        }
        NoOfferReason::Own { held } => json!({ "held": pieces::amounts(held) }),
        NoOfferReason::WentFirst {
            free,
            holders,
            more,
        } => {
            let holders = holders.iter().map(holder).collect::<Value>();
            json!({ "free": pieces::amounts(free), "holders": holders, "more": more })
        }
        NoOfferReason::Reserved { roles } => json!({ "roles": roles }),
        NoOfferReason::BelowMinimum { portion, minimum } => {
            let minimum = minimum.iter().map(pieces::amounts).collect::<Value>();
            json!({ "portion": pieces::amounts(portion), "minimum": minimum })
        }
        NoOfferReason::QuotaLimit { role, left } => {
            json!({ "role": role, "left": pieces::amounts(left) })
        }
        NoOfferReason::Headroom {
            roles,
            required,
            free,
        } => json!({
            "roles": roles,
            "required": pieces::amounts(required),
            "free": pieces::amounts(free),
        }),
        NoOfferReason::RoomMade { role } => json!({ "role": role }),
        NoOfferReason::Filtered { offer, left } => json!({
            "offer": pieces::amounts(offer),
            "seconds_left": left.as_secs_f64(),
        }),
    }
}

fn holder(holder: &ResourceHolder) -> Value {
    json!({
        "framework_id": holder.framework_id.as_str(),
        "role": holder.role,
        "held": pieces::amounts(&holder.held),
        "share": holder.share,
        "against": holder.against,
    })
}
