//! Changes of quotas and weights, and teardown.
//!
//! Parses the body, asks the local master, and translates its answer: 200 done, 400 invalid, 409
//! conflict, 503 not now. Without a local master the request was redirected before. Bodies are
//! parsed regardless of their content type, since `curl -d` sends a wrong one, and large ones like
//! large calls ([`PageBody`]). [`Caller`] authorizes; nothing else is decided here.

use std::fmt::Display;

use ::http::api::{CallPermit, PageBody, Refusal, declared_length};
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

use crate::api::PATIENCE;
use crate::api::operator::writes;
use crate::api::v0::role_json;
use crate::leadership::LocalLeader;
use crate::master::{EndFramework, Master, NotEnded, ResetQuota, SetQuotas};
use crate::permission::Caller;

/// Maximum bytes of a body.
pub(in crate::api) const BODY_MAX: usize = 4 << 20;

/// Asks the local master.
pub(in crate::api) async fn ask<M>(local: &LocalLeader, question: M) -> Result<M::Result, Response>
where
    M: Message + Send + 'static,
    M::Result: Send,
    Master: Handler<M>,
{
    let gone = || {
        let problem = "the master did not answer in time; check the result before you try again";
        not_now(problem)
    };
    let master = local.master().ok_or_else(gone)?;
    master.ask(question, PATIENCE).await.map_err(|_| gone())
}

pub(in crate::api) fn not_now(problem: impl Display) -> Response {
    Refusal::not_now(problem).into_response()
}

pub(in crate::api) fn bad(problem: impl Display) -> Response {
    Refusal::bad(problem).into_response()
}

pub(in crate::api) fn conflict(problem: impl Display) -> Response {
    Refusal::conflict(problem).into_response()
}

/// 403: not authorized.
pub(in crate::api) fn forbidden(problem: Forbidden) -> Response {
    Refusal::from(problem).into_response()
}

/// A complete body within the bound.
pub(in crate::api) struct WholeBody {
    node: Node,
    whole: PageBody,
}

impl<S: Send + Sync> FromRequest<S> for WholeBody {
    type Rejection = Response;

    async fn from_request(mut request: Request, state: &S) -> Result<Self, Response> {
        let node = request.extensions_mut().remove::<Node>();
        // The layer before the routes gives each request its node.
        let node = node.ok_or_else(|| StatusCode::INTERNAL_SERVER_ERROR.into_response())?;
        let too_long = || {
            let problem = format!("the body has more than {BODY_MAX} bytes; split the request");
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, problem).into_response()
        };
        let declared = declared_length(request.headers());
        if declared.is_some_and(|length| length > BODY_MAX as u64) {
            return Err(too_long());
        }
        let whole = PageBody::from_request(request, state).await;
        let whole = whole.map_err(|cut| match cut.status() {
            StatusCode::PAYLOAD_TOO_LARGE => too_long(),
            _ => cut.into_response(),
        })?;
        Ok(Self { node, whole })
    }
}

impl WholeBody {
    /// Parses the body. No other large one is parsed until the returned permit is dropped.
    pub async fn read<T: Send + 'static, E: Display + Send + 'static>(
        self,
        read: impl FnOnce(&[u8]) -> Result<T, E> + Send + 'static,
    ) -> Result<(T, CallPermit), Response> {
        let read = self.whole.read(&self.node, read).await;
        read.map_err(IntoResponse::into_response)
    }
}

/// `PUT /weights`.
pub(in crate::api) async fn put_weights(
    Extension(local): Extension<LocalLeader>,
    Extension(caller): Extension<Caller>,
    body: WholeBody,
) -> Response {
    match body.read(role_json::weights).await {
        Ok((update, _permit)) => change_weights(&local, &caller, update).await,
        Err(response) => response,
    }
}

/// Sets weights.
pub(in crate::api) async fn change_weights(
    local: &LocalLeader,
    caller: &Caller,
    update: UpdateWeights,
) -> Response {
    match caller.update_weights(&update) {
        Ok(()) => change::<UpdateWeights>(local, update).await,
        Err(problem) => forbidden(problem),
    }
}

/// Sets quotas.
pub(in crate::api) async fn change_quotas(
    local: &LocalLeader,
    caller: &Caller,
    update: UpdateQuotas,
) -> Response {
    match caller.update_quotas(&update) {
        Ok(()) => change::<UpdateQuotas>(local, update).await,
        Err(problem) => forbidden(problem),
    }
}

/// `POST /quota`: the old form sets quotas that are not set yet, as in Mesos.
pub(in crate::api) async fn post_quota(
    Extension(local): Extension<LocalLeader>,
    Extension(caller): Extension<Caller>,
    body: WholeBody,
) -> Response {
    match body.read(role_json::quotas).await {
        Ok((parsed, _permit)) if parsed.is_v0 => set_quota(&local, &caller, parsed.update).await,
        Ok((parsed, _permit)) => change_quotas(&local, &caller, parsed.update).await,
        Err(response) => response,
    }
}

/// Sets quotas of roles that have none yet.
pub(in crate::api) async fn set_quota(
    local: &LocalLeader,
    caller: &Caller,
    update: UpdateQuotas,
) -> Response {
    if let Err(problem) = caller.update_quotas(&update) {
        return forbidden(problem);
    }
    change(local, SetQuotas(update)).await
}

/// `PUT /quota`.
pub(in crate::api) async fn put_quota(
    Extension(local): Extension<LocalLeader>,
    Extension(caller): Extension<Caller>,
    body: WholeBody,
) -> Response {
    match body.read(role_json::quotas).await {
        Ok((parsed, _permit)) => change_quotas(&local, &caller, parsed.update).await,
        Err(response) => response,
    }
}

/// `DELETE /quota/ROLE`.
pub(in crate::api) async fn delete_quota(
    Extension(local): Extension<LocalLeader>,
    Extension(caller): Extension<Caller>,
    role: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Response {
    match role {
        Ok(Path(role)) => {
            // Mesos knows the page by this path only.
            let failed = format!("Failed to remove quota for path '/master/quota/{role}'");
            remove_quota(&local, &caller, role, &failed).await
        }
        Err(_) => bad(Invalid::new(
            "path",
            uri.path(),
            "a role in UTF-8 behind /quota/",
        )),
    }
}

/// Removes a role's quota. `failed` begins the message of an invalid request.
pub(in crate::api) async fn remove_quota(
    local: &LocalLeader,
    caller: &Caller,
    role: String,
    failed: &str,
) -> Response {
    if let Err(problem) = caller.authorize(Action::UpdateQuotas, role.as_str()) {
        return forbidden(problem);
    }
    match ask(local, ResetQuota { role }).await {
        Ok(Err(UpdateRefused::Invalid { reason })) => bad(format!("{failed}: {reason}")),
        done => changed(done),
    }
}

/// `POST /teardown`.
pub(in crate::api) async fn tear_down(
    Extension(local): Extension<LocalLeader>,
    Extension(caller): Extension<Caller>,
    body: WholeBody,
) -> Response {
    match body.read(parse_framework_id).await {
        Ok((end, _permit)) => writes::tear_down(&local, &caller, end).await,
        Err(response) => response,
    }
}

/// The framework named in a form.
fn parse_framework_id(form: &[u8]) -> Result<EndFramework, String> {
    let mut fields = ::http::fields(form).map_err(|bad| bad.to_string())?;
    let missing = || "Missing 'frameworkId' query parameter in the request body".to_owned();
    let id = fields.remove("frameworkId").ok_or_else(missing)?;
    // An invalid id is the id of no framework.
    let id = id.parse().map_err(|_| NotEnded::Unknown.to_string());
    id.map(|framework_id| EndFramework { framework_id })
}

pub(in crate::api) async fn change<M>(local: &LocalLeader, update: M) -> Response
where
    M: Message<Result = Result<(), UpdateRefused>> + Send + 'static,
    Master: Handler<M>,
{
    changed(ask(local, update).await)
}

fn changed(done: Result<Result<(), UpdateRefused>, Response>) -> Response {
    match done {
        Ok(Ok(())) => StatusCode::OK.into_response(),
        Ok(Err(UpdateRefused::Invalid { reason })) => bad(reason),
        Ok(Err(UpdateRefused::Conflict { reason })) => conflict(reason),
        Ok(Err(UpdateRefused::NotNow { reason })) => not_now(reason),
        Err(response) => response,
    }
}
