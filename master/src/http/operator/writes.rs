//! What operators change through the v1 API, asked of the master that acts here (SPEC 2.6).
//!
//! Says in HTTP what it answered, as the pages do: 200 done, 202 it is being done, 400 wrong in itself, 409 not as things are, 503 not
//! just now. Decides nothing.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use protocol::message::operator::{UpdateQuotas, UpdateWeights};
use v1::convert::operator::Said;

use super::super::changes::{ask, bad, change, remove_quota, set_quota};
use super::super::operate::operated;
use crate::master::{EndFramework, NotEnded};
use crate::office::Front;

/// Does what is said.
pub(super) async fn write(front: &Front, said: Said) -> Response {
    match said {
        Said::UpdateQuotas(update) => change::<UpdateQuotas>(front, update).await,
        Said::UpdateWeights(update) => change::<UpdateWeights>(front, update).await,
        Said::SetQuota(update) => set_quota(front, update).await,
        Said::RemoveQuota(role) => remove_quota(front, role).await,
        Said::Operate(operate) => operated(front, operate).await,
        Said::TearDown(down) => {
            let framework_id = down.framework_id;
            tear_down(front, EndFramework { framework_id }).await
        }
        // Whoever serves questions has answered it.
        Said::Other(kind) => {
            let problem = format!("type is `{kind}`: expected what changes something");
            (StatusCode::NOT_IMPLEMENTED, problem).into_response()
        }
    }
}

/// Ends a framework.
pub(in crate::http) async fn tear_down(front: &Front, end: EndFramework) -> Response {
    match ask(front, end).await {
        Ok(Ok(())) => StatusCode::OK.into_response(),
        Ok(Err(unknown @ NotEnded::Unknown { .. })) => bad(unknown),
        Ok(Err(later @ NotEnded::NotNow { .. })) => super::super::changes::not_now(later),
        Err(response) => response,
    }
}
