//! Requests that change something: quotas and weights (SPEC 3.9).
//!
//! Reads the body, asks the master that acts here, and says in HTTP what it answered: 200 done, 400 wrong in itself, 409 not as things
//! are, 503 not just now. Where no master acts the request never comes here: it was sent to the leader. Bodies are read whatever their
//! type is said to be, since `curl -d` says nothing true of it, and large ones as large calls are ([`Whole`]). Whether who asks may is asked of
//! [`Asker`]; nothing else is decided here.

use std::fmt::Display;

use ::http::api::{Heard, Refusal, Whole, declared_length};
use authority::{Action, Forbidden};
use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, Path, Request};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use protocol::message::operator::{UpdateQuotas, UpdateRefused, UpdateWeights};
use resources::Invalid;
use runtime::Node;
use runtime::prelude::*;

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
    Refusal::not_now(problem).into_response()
}

pub(super) fn bad(problem: impl Display) -> Response {
    Refusal::bad(problem).into_response()
}

pub(super) fn conflict(problem: impl Display) -> Response {
    Refusal::conflict(problem).into_response()
}

/// 403: who asks may not.
pub(super) fn forbidden(problem: Forbidden) -> Response {
    Refusal::forbidden(problem).into_response()
}

/// A body, whole and no longer than it may be.
pub(super) struct WholeBody {
    node: Node,
    whole: Whole,
}

impl<S: Send + Sync> FromRequest<S> for WholeBody {
    type Rejection = Response;

    async fn from_request(mut request: Request, state: &S) -> Result<Self, Response> {
        let node = request.extensions_mut().remove::<Node>();
        // Whoever stands before the routes gives each request its node.
        let node = node.ok_or_else(|| StatusCode::INTERNAL_SERVER_ERROR.into_response())?;
        let too_long = || {
            let problem = format!("the body has more than {BODY_MAX} bytes: name less at once");
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, problem).into_response()
        };
        let declared = declared_length(request.headers());
        if declared.is_some_and(|length| length > BODY_MAX as u64) {
            return Err(too_long());
        }
        let whole = Whole::from_request(request, state).await;
        let whole = whole.map_err(|cut| match cut.status() {
            StatusCode::PAYLOAD_TOO_LARGE => too_long(),
            _ => cut.into_response(),
        })?;
        Ok(Self { node, whole })
    }
}

impl WholeBody {
    /// What it says, by this. Until the rest is dropped as well, no other large one has its turn.
    pub async fn read<T: Send + 'static, E: Display + Send + 'static>(
        self,
        read: impl FnOnce(&[u8]) -> Result<T, E> + Send + 'static,
    ) -> Result<(T, Heard), Response> {
        let read = self.whole.read(&self.node, read).await;
        read.map_err(IntoResponse::into_response)
    }
}

/// `PUT /weights`.
pub(super) async fn put_weights(
    Extension(front): Extension<Front>,
    Extension(asker): Extension<Asker>,
    body: WholeBody,
) -> Response {
    match body.read(words::weights).await {
        Ok((update, _heard)) => change_weights(&front, &asker, update).await,
        Err(response) => response,
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
    body: WholeBody,
) -> Response {
    match body.read(words::quotas).await {
        Ok((said, _heard)) if said.is_v0 => set_quota(&front, &asker, said.update).await,
        Ok((said, _heard)) => change_quotas(&front, &asker, said.update).await,
        Err(response) => response,
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
    body: WholeBody,
) -> Response {
    match body.read(words::quotas).await {
        Ok((said, _heard)) => change_quotas(&front, &asker, said.update).await,
        Err(response) => response,
    }
}

/// `DELETE /quota/ROLE`.
pub(super) async fn delete_quota(
    Extension(front): Extension<Front>,
    Extension(asker): Extension<Asker>,
    role: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Response {
    match role {
        Ok(Path(role)) => remove_quota(&front, &asker, role).await,
        Err(_) => bad(Invalid::new(
            "path",
            uri.path(),
            "a role in UTF-8 behind /quota/",
        )),
    }
}

/// Takes the quota of a role away.
pub(super) async fn remove_quota(front: &Front, asker: &Asker, role: String) -> Response {
    if let Err(problem) = asker.may(Action::UpdateQuotas, role.as_str()) {
        return forbidden(problem);
    }
    change(front, ResetQuota { role }).await
}

/// `POST /teardown`.
pub(super) async fn tear_down(
    Extension(front): Extension<Front>,
    Extension(asker): Extension<Asker>,
    body: WholeBody,
) -> Response {
    match body.read(framework_said).await {
        Ok((end, _heard)) => writes::tear_down(&front, &asker, end).await,
        Err(response) => response,
    }
}

/// Which framework this form says.
fn framework_said(form: &[u8]) -> Result<EndFramework, String> {
    let fields = ::http::fields(form).map_err(|bad| bad.to_string())?;
    let Some(id) = fields.get("frameworkId") else {
        let expected = "a form with frameworkId=ID";
        return Err(Invalid::new("frameworkId", "absent", expected).to_string());
    };
    let id = id.parse().map_err(|error| format!("frameworkId: {error}"));
    id.map(|framework_id| EndFramework { framework_id })
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
