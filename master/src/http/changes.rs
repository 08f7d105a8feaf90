//! Requests that change something: quotas and weights (SPEC 3.9).
//!
//! Reads the body, asks the master that acts here, and says in HTTP what it answered: 200 done, 400 wrong in itself, 409 not as things
//! are, 503 not just now. Where no master acts the request never comes here: it was sent to the leader. Bodies are read whatever their
//! type is said to be, since `curl -d` says nothing true of it. Whether who asks may is asked of [`Asker`]; nothing else is decided here.

use std::fmt::Display;

use authority::{Action, Forbidden};
use axum::Extension;
use axum::body::Bytes;
use axum::extract::rejection::FormRejection;
use axum::extract::{Form, FromRequest, Path, Request};
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use protocol::message::operator::{UpdateQuotas, UpdateRefused, UpdateWeights};
use runtime::prelude::*;
use serde::Deserialize;

use super::operator::writes;
use super::{PATIENCE, words};
use crate::master::{EndFramework, Master, ResetQuota, SetQuotas};
use crate::office::Front;
use crate::permission::Asker;

/// The most bytes of a body.
pub(super) const BODY_MAX: usize = 4 << 20;

/// Asks the master that acts here.
pub(super) async fn ask<M>(front: &Front, question: M) -> Result<M::Result, Response>
where
    M: Message + Send + 'static,
    M::Result: Send,
    Master: Handler<M>,
{
    let gone = || {
        let problem =
            "the master gave no answer in time: look what has become of it before you say it again";
        not_now(problem)
    };
    let master = front.master().ok_or_else(gone)?;
    master.ask(question, PATIENCE).await.map_err(|_| gone())
}

pub(super) fn not_now(problem: impl Display) -> Response {
    let again = [(RETRY_AFTER, "1")];
    (
        StatusCode::SERVICE_UNAVAILABLE,
        again,
        format!("{problem}\n"),
    )
        .into_response()
}

pub(super) fn bad(problem: impl Display) -> Response {
    (StatusCode::BAD_REQUEST, format!("{problem}\n")).into_response()
}

pub(super) fn conflict(problem: impl Display) -> Response {
    (StatusCode::CONFLICT, format!("{problem}\n")).into_response()
}

/// 403: who asks may not.
pub(super) fn forbidden(problem: Forbidden) -> Response {
    (StatusCode::FORBIDDEN, format!("{problem}\n")).into_response()
}

/// A body, whole and no longer than it may be.
pub(super) struct WholeBody(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for WholeBody {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let body = Bytes::from_request(request, state).await;
        body.map(Self)
            .map_err(|cut| too_long(cut.status()).unwrap_or_else(|| cut.into_response()))
    }
}

/// What is answered to a body that was not read to its end, if this is how it is refused.
pub(super) fn too_long(status: StatusCode) -> Option<Response> {
    let problem = format!("the body has more than {BODY_MAX} bytes: name less at once\n");
    (status == StatusCode::PAYLOAD_TOO_LARGE).then(|| (status, problem).into_response())
}

/// `PUT /weights`.
pub(super) async fn put_weights(
    Extension(front): Extension<Front>,
    Extension(asker): Extension<Asker>,
    WholeBody(body): WholeBody,
) -> Response {
    match words::weights(&body) {
        Ok(update) => change_weights(&front, &asker, update).await,
        Err(problem) => bad(problem),
    }
}

/// Sets weights.
pub(super) async fn change_weights(
    front: &Front,
    asker: &Asker,
    update: UpdateWeights,
) -> Response {
    match asker.update_weights(&update) {
        Ok(()) => change::<UpdateWeights>(front, update).await,
        Err(problem) => forbidden(problem),
    }
}

/// Sets quotas.
pub(super) async fn change_quotas(front: &Front, asker: &Asker, update: UpdateQuotas) -> Response {
    match asker.update_quotas(&update) {
        Ok(()) => change::<UpdateQuotas>(front, update).await,
        Err(problem) => forbidden(problem),
    }
}

/// `POST /quota`: in the old form it sets what is not set yet, as in Mesos.
pub(super) async fn post_quota(
    Extension(front): Extension<Front>,
    Extension(asker): Extension<Asker>,
    WholeBody(body): WholeBody,
) -> Response {
    match words::quotas(&body) {
        Ok(said) if said.is_v0 => set_quota(&front, &asker, said.update).await,
        Ok(said) => change_quotas(&front, &asker, said.update).await,
        Err(problem) => bad(problem),
    }
}

/// Sets quotas of roles that have none yet.
pub(super) async fn set_quota(front: &Front, asker: &Asker, update: UpdateQuotas) -> Response {
    if let Err(problem) = asker.update_quotas(&update) {
        return forbidden(problem);
    }
    change(front, SetQuotas(update)).await
}

/// `PUT /quota`.
pub(super) async fn put_quota(
    Extension(front): Extension<Front>,
    Extension(asker): Extension<Asker>,
    WholeBody(body): WholeBody,
) -> Response {
    match words::quotas(&body) {
        Ok(said) => change_quotas(&front, &asker, said.update).await,
        Err(problem) => bad(problem),
    }
}

/// `DELETE /quota/ROLE`.
pub(super) async fn delete_quota(
    Extension(front): Extension<Front>,
    Extension(asker): Extension<Asker>,
    Path(role): Path<String>,
) -> Response {
    remove_quota(&front, &asker, role).await
}

/// Takes the quota of a role away.
pub(super) async fn remove_quota(front: &Front, asker: &Asker, role: String) -> Response {
    if let Err(problem) = asker.may(Action::UpdateQuotas, role.as_str()) {
        return forbidden(problem);
    }
    change(front, ResetQuota { role }).await
}

/// What is said to `/teardown`.
#[derive(Deserialize)]
pub(super) struct Teardown {
    #[serde(rename = "frameworkId")]
    framework_id: String,
}

/// `POST /teardown`.
pub(super) async fn tear_down(
    Extension(front): Extension<Front>,
    Extension(asker): Extension<Asker>,
    body: Result<Form<Teardown>, FormRejection>,
) -> Response {
    let said = match body {
        Ok(Form(said)) => said,
        Err(rejection) => {
            if let Some(refusal) = too_long(rejection.status()) {
                return refusal;
            }
            let problem = rejection.body_text();
            return bad(format!("{problem}: expected a form with frameworkId=ID"));
        }
    };
    match said.framework_id.parse() {
        Ok(framework_id) => writes::tear_down(&front, &asker, EndFramework { framework_id }).await,
        Err(error) => bad(format!("frameworkId: {error}")),
    }
}

pub(super) async fn change<M>(front: &Front, update: M) -> Response
where
    M: Message<Result = Result<(), UpdateRefused>> + Send + 'static,
    Master: Handler<M>,
{
    match ask(front, update).await {
        Ok(Ok(())) => StatusCode::OK.into_response(),
        Ok(Err(problem)) => refused(problem),
        Err(response) => response,
    }
}

pub(super) fn refused(problem: UpdateRefused) -> Response {
    match problem {
        UpdateRefused::Invalid { reason } => bad(reason),
        UpdateRefused::Conflict { reason } => conflict(reason),
        UpdateRefused::NotNow { reason } => not_now(reason),
    }
}
