//! `POST /api/v1/executor`: the v1 executor API.
//!
//! Decodes calls and passes them to the containerizer. The token is checked before the body is
//! read. A subscription is answered with an event stream, other calls with 202. Has no state.

use std::collections::BTreeSet;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use http::api::{Bounds, ReceivedCall, Refusal};
use protocol::{TaskId, TaskStatus};
use resources::Invalid;
use v1::convert::executor::{DecodedExecutorCall, invalid, to_protocol};
use v1::schema::executor::Call;

use super::{Pages, unavailable};
use crate::container::http_executors::stream::ExecutorStream;
use crate::container::http_executors::{
    CallRejected, CheckToken, ExecutorCall, ExecutorCalled, ExecutorCaller, ExecutorToken,
    SubscribeStream, check_update,
};

/// The authentication scheme and realm of Mesos.
const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer realm=\"mesos-agent-executor\"");
/// Name of stream actors. They run on the thread of the pages.
const NAME: &str = "http_executor";
/// Maximum tasks and maximum updates in a SUBSCRIBE: all updates may be forwarded in one turn to an
/// actor whose mailbox holds 65,536 messages.
const UNACKNOWLEDGED_MAX: usize = 50_000;

/// Serves a call.
pub(super) async fn call(State(pages): State<Pages>, request: Request) -> Response {
    match handle(&pages, request).await {
        Ok(response) => response,
        Err(refusal) => {
            let unauthenticated = refusal.status == StatusCode::UNAUTHORIZED;
            let mut response = refusal.into_response();
            if unauthenticated {
                let headers = response.headers_mut();
                headers.insert(WWW_AUTHENTICATE, CHALLENGE);
            }
            response
        }
    }
}

async fn handle(pages: &Pages, request: Request) -> Result<Response, Refusal> {
    let token = token(request.headers())?;
    let check_token = CheckToken {
        token: token.clone(),
    };
    let checked = pages.agent.check_token(check_token).await;
    checked.map_err(unavailable)?.map_err(rejection)?;
    let received: ReceivedCall<Call> = ReceivedCall::read(&pages.node, request).await?;
    check_bounds(&received.call)?;
    let (received, (framework_id, executor_id, decoded)) =
        received.meaning(&pages.node, to_protocol).await?;
    let caller = ExecutorCaller {
        framework_id,
        executor_id,
        token,
    };
    let call = match decoded {
        DecodedExecutorCall::Subscribe { tasks, updates } => {
            for (place, status) in updates.iter().enumerate() {
                let at = format!("subscribe.unacknowledged_updates[{place}]");
                check(status, &caller, &at)?;
            }
            let tasks = tasks.into_iter().map(|task| task.task_id).collect();
            return subscribe(pages, &received, caller, tasks, updates).await;
        }
        DecodedExecutorCall::Update(updated) => {
            check(&updated.status, &caller, "update")?;
            ExecutorCall::Update(Box::new(updated.status))
        }
        DecodedExecutorCall::Message(data) => ExecutorCall::Message(data),
        DecodedExecutorCall::Heartbeat => ExecutorCall::Heartbeat,
    };
    let handled = pages
        .agent
        .executor_called(ExecutorCalled { caller, call })
        .await;
    handled.map_err(unavailable)?.map_err(rejection)?;
    Ok(StatusCode::ACCEPTED.into_response())
}

/// Rejects a SUBSCRIBE that would block the containerizer.
fn check_bounds(call: &Call) -> Result<(), Refusal> {
    let Some(subscribe) = &call.subscribe else {
        return Ok(());
    };
    for (field, found) in [
        ("tasks", subscribe.unacknowledged_tasks.len()),
        ("updates", subscribe.unacknowledged_updates.len()),
    ] {
        if found > UNACKNOWLEDGED_MAX {
            return Err(Refusal::bad(Invalid::new(
                format!("subscribe.unacknowledged_{field}"),
                format!("a list of {found}"),
                format!("at most {UNACKNOWLEDGED_MAX} in one call"),
            )));
        }
    }
    Ok(())
}

/// Opens a stream; closes it if the containerizer rejects the subscription.
async fn subscribe(
    pages: &Pages,
    received: &ReceivedCall<Call>,
    caller: ExecutorCaller,
    tasks: BTreeSet<TaskId>,
    updates: Vec<TaskStatus>,
) -> Result<Response, Refusal> {
    let content = received.accept_stream()?;
    let (events, response) = pages.streams.open(content, Bounds::default());
    let stream = pages
        .node
        .spawn_unnamed(NAME, ExecutorStream::new(events))
        .map_err(Refusal::not_now)?;
    let subscribe = SubscribeStream {
        caller,
        tasks,
        updates,
        stream: stream.clone(),
    };
    let handle = pages.agent.subscribe_stream(subscribe).await;
    match handle
        .map_err(unavailable)
        .and_then(|handle| handle.map_err(rejection))
    {
        Ok(()) => Ok(response),
        Err(refusal) => {
            stream.stop();
            Err(refusal)
        }
    }
}

/// The token in the request's headers, if any.
fn token(headers: &HeaderMap) -> Result<Option<ExecutorToken>, Refusal> {
    let Some(value) = headers.get(AUTHORIZATION) else {
        return Ok(None);
    };
    let (scheme, token) = value
        .to_str()
        .ok()
        .and_then(|value| value.trim().split_once(' '))
        .unwrap_or_default();
    let token = match scheme.eq_ignore_ascii_case("Bearer") {
        true => ExecutorToken::read(token.trim()),
        false => None,
    };
    token.map(Some).ok_or_else(|| {
        let problem =
            "Authorization: expected `Bearer` and the value of MESOS_EXECUTOR_AUTHENTICATION_TOKEN";
        Refusal::new(StatusCode::UNAUTHORIZED, problem)
    })
}

fn check(status: &TaskStatus, caller: &ExecutorCaller, at: &str) -> Result<(), Refusal> {
    check_update(status, caller).map_err(|bad| match bad.field.as_str() {
        // A message of Mesos.
        "" => Refusal::bad(invalid(bad)),
        _ => Refusal::bad(invalid(format_args!("{at}.{bad}"))),
    })
}

fn rejection(rejected: CallRejected) -> Refusal {
    let status = match &rejected {
        CallRejected::Unauthenticated { .. } => StatusCode::UNAUTHORIZED,
        CallRejected::WrongToken { .. }
        | CallRejected::CommandExecutor { .. }
        | CallRejected::NotAllowed { .. } => StatusCode::FORBIDDEN,
        CallRejected::UnknownFramework | CallRejected::UnknownExecutor => StatusCode::BAD_REQUEST,
    };
    Refusal::new(status, rejected)
}
