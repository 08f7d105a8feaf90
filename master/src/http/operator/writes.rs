//! What operators change through the v1 API, asked of the master that acts here (SPEC 2.6).
//!
//! Says in HTTP what it answered, as the pages do: 200 done, 202 it is being done, 400 wrong in itself, 403 who asks may not, 409 not as things are, 503 not
//! just now. Decides nothing.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use v1::convert::operator::Said;

use super::super::changes::{
    ask, bad, change_quotas, change_weights, forbidden, remove_quota, set_quota,
};
use super::super::maintenance;
use super::super::operate::operated;
use crate::master::{EndFramework, NotEnded, TakeSnapshot};
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
        Said::Schedule(update) => maintenance::update(front, asker, update).await,
        Said::StartMaintenance(start) => maintenance::start(front, asker, start).await,
        Said::StopMaintenance(stop) => maintenance::stop(front, asker, stop).await,
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
