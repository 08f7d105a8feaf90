//! What operators change through the v1 API, asked of the master that acts here (SPEC 2.6).
//!
//! Says in HTTP what it answered, as the pages do: 200 done, 202 it is being done, 400 wrong in itself, 403 who asks may not, 409 not as things are, 503 not
//! just now. Decides nothing.

use authority::Action;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use protocol::message::operator::UpdateRefused;
use runtime::prelude::*;
use v1::convert::operator::Said;

use super::super::changes::{
    ask, bad, change, change_quotas, change_weights, forbidden, remove_quota, set_quota,
};
use super::super::maintenance;
use super::super::operate::{operated, operated_all};
use crate::master::{EndFramework, Master, NotEnded, TakeSnapshot};
use crate::office::Front;
use crate::permission::Asker;

/// Does what is said.
pub(super) async fn write(front: &Front, asker: &Asker, said: Said) -> Response {
    match said {
        Said::UpdateQuotas(update) => change_quotas(front, asker, update).await,
        Said::UpdateWeights(update) => change_weights(front, asker, update).await,
        Said::SetQuota(update) => set_quota(front, asker, update).await,
        Said::RemoveQuota(role) => remove_quota(front, asker, role).await,
        Said::Operate(operate) => operated(front, asker, operate).await,
        Said::OperateAll(agent_id, conversions) => {
            operated_all(front, asker, agent_id, conversions).await
        }
        Said::Schedule(update) => maintenance::update(front, asker, update).await,
        Said::StartMaintenance(start) => maintenance::start(front, asker, start).await,
        Said::StopMaintenance(stop) => maintenance::stop(front, asker, stop).await,
        Said::Drain(drain) => ordered(front, asker, Action::DrainAgents, drain).await,
        Said::Deactivate(call) => ordered(front, asker, Action::DeactivateAgents, call).await,
        Said::Reactivate(call) => ordered(front, asker, Action::ReactivateAgents, call).await,
        Said::Gone(call) => ordered(front, asker, Action::MarkAgentsGone, call).await,
        Said::TearDown(down) => {
            let framework_id = down.framework_id;
            tear_down(front, asker, EndFramework { framework_id }).await
        }
        // Whoever serves questions has answered it.
        Said::Other(kind) => {
            let problem = format!("type is `{kind}`: expected what changes something");
            (StatusCode::NOT_IMPLEMENTED, problem).into_response()
        }
    }
}

/// Does what is ordered about an agent.
async fn ordered<M>(front: &Front, asker: &Asker, action: Action, order: M) -> Response
where
    M: Message<Result = Result<(), UpdateRefused>> + Send + 'static,
    Master: Handler<M>,
{
    match asker.may(action, None) {
        Ok(()) => change(front, order).await,
        Err(problem) => forbidden(problem),
    }
}

/// Ends a framework.
pub(in crate::http) async fn tear_down(
    front: &Front,
    asker: &Asker,
    end: EndFramework,
) -> Response {
    let books = match ask(front, TakeSnapshot).await {
        Ok(books) => books,
        Err(response) => return response,
    };
    if let Some(framework) = books.frameworks.get(&end.framework_id)
        && let Err(problem) = asker.tear_down(&framework.info)
    {
        return forbidden(problem);
    }
    match ask(front, end).await {
        Ok(Ok(())) => StatusCode::OK.into_response(),
        Ok(Err(unknown @ NotEnded::Unknown { .. })) => bad(unknown),
        Ok(Err(later @ NotEnded::NotNow { .. })) => super::super::changes::not_now(later),
        Err(response) => response,
    }
}
