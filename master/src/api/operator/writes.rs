//! Changes by the v1 operator API, sent to the local master.
//!
//! Translates the answer like the pages: 200 done, 202 accepted, 400 invalid, 403 not authorized,
//! 409 conflict, 503 not now.

use ::http::api::Refusal;
use authority::Action;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use protocol::message::operator::{MarkAgentGone, UpdateRefused};
use runtime::prelude::*;
use v1::convert::operator::OperatorCall;

use crate::agents::Standing;
use crate::api::operator::operate::{apply_all, operate_one};
use crate::api::pages::changes::{
    ask, bad, change, change_quotas, change_weights, forbidden, remove_quota, set_quota,
};
use crate::api::v0::maintenance;
use crate::leadership::LocalLeader;
use crate::master::{EndFramework, Master, NotEnded, TakeSnapshot};
use crate::permission::Caller;

/// Carries out a call.
pub(super) async fn write(local: &LocalLeader, caller: &Caller, parsed: OperatorCall) -> Response {
    match parsed {
        OperatorCall::UpdateQuotas(update) => change_quotas(local, caller, update).await,
        OperatorCall::UpdateWeights(update) => change_weights(local, caller, update).await,
        OperatorCall::SetQuota(update) => set_quota(local, caller, update).await,
        OperatorCall::RemoveQuota(role) => {
            remove_quota(local, caller, role, "Failed to remove quota").await
        }
        OperatorCall::Operate(operate) => operate_one(local, caller, operate).await,
        OperatorCall::OperateAll(agent_id, conversions) => {
            apply_all(local, caller, agent_id, conversions).await
        }
        OperatorCall::Schedule(update) => maintenance::update(local, caller, update).await,
        OperatorCall::StartMaintenance(start) => maintenance::start(local, caller, start).await,
        OperatorCall::StopMaintenance(stop) => maintenance::stop(local, caller, stop).await,
        OperatorCall::Drain(drain) => ordered(local, caller, Action::DrainAgents, drain).await,
        OperatorCall::Deactivate(call) => {
            ordered(local, caller, Action::DeactivateAgents, call).await
        }
        OperatorCall::Reactivate(call) => {
            ordered(local, caller, Action::ReactivateAgents, call).await
        }
        OperatorCall::Gone(call) => mark_gone(local, caller, call).await,
        OperatorCall::TearDown(down) => {
            let framework_id = down.framework_id;
            tear_down(local, caller, EndFramework { framework_id }).await
        }
        // Questions are answered elsewhere.
        OperatorCall::Other(kind) => {
            let problem = format!("type is `{kind}`: expected a call that changes something");
            (StatusCode::NOT_IMPLEMENTED, problem).into_response()
        }
    }
}

/// Carries out an order for an agent.
async fn ordered<M>(local: &LocalLeader, caller: &Caller, action: Action, order: M) -> Response
where
    M: Message<Result = Result<(), UpdateRefused>> + Send + 'static,
    Master: Handler<M>,
{
    match caller.authorize(action, None) {
        Ok(()) => change(local, order).await,
        Err(problem) => forbidden(problem),
    }
}

/// Marks an agent as gone. Unlike other orders, an unknown agent is a 404, as in Mesos.
async fn mark_gone(local: &LocalLeader, caller: &Caller, call: MarkAgentGone) -> Response {
    if let Err(problem) = caller.authorize(Action::MarkAgentsGone, None) {
        return forbidden(problem);
    }
    let state = match ask(local, TakeSnapshot).await {
        Ok(state) => state,
        Err(response) => return response,
    };
    let id = &call.agent_id;
    match state.agents.standing(id) {
        Standing::Unknown if state.has_begun() => {
            let problem = format!("Agent '{id}' not found");
            Refusal::new(StatusCode::NOT_FOUND, problem).into_response()
        }
        _ => change(local, call).await,
    }
}

/// Ends a framework.
pub(in crate::api) async fn tear_down(
    local: &LocalLeader,
    caller: &Caller,
    end: EndFramework,
) -> Response {
    let state = match ask(local, TakeSnapshot).await {
        Ok(state) => state,
        Err(response) => return response,
    };
    if let Some(framework) = state.frameworks.get(&end.framework_id)
        && let Err(problem) = caller.tear_down(&framework.info)
    {
        return forbidden(problem);
    }
    match ask(local, end).await {
        Ok(Ok(())) => StatusCode::OK.into_response(),
        Ok(Err(unknown @ NotEnded::Unknown)) => bad(unknown),
        Ok(Err(later @ NotEnded::NotNow { .. })) => crate::api::pages::changes::not_now(later),
        Err(response) => response,
    }
}
