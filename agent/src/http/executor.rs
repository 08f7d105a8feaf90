//! `POST /api/v1/executor`: executors written for Mesos speak with the agent (SPEC 2.5).
//!
//! Reads calls and hands them to the containerizer, which decides, about the token before more than the head is read. A subscription is
//! answered with a stream of events, everything else with 202. Remembers nothing.

use std::collections::BTreeSet;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use http::api::{Asked, Bounds, Refusal};
use protocol::{TaskId, TaskStatus};
use resources::Invalid;
use v1::convert::executor::{Said, said};
use v1::schema::executor::Call;

use super::{Pages, unavailable};
use crate::container::callers::{
    Caller, NotHeard, Proof, Prove, Speak, SubscribeStream, Words, check_update,
};
use crate::container::stream::ExecutorStream;

/// How an executor shows who it is; the realm is Mesos' own.
const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer realm=\"mesos-agent-executor\"");
/// The name of an executor's stream among the actors. They run on the thread of the pages.
const NAME: &str = "http_executor";
/// The most tasks, and the most statuses, that a SUBSCRIBE may name: each status may be told on, in the same turn, to an actor that has room for 65,536.
const UNACKNOWLEDGED_MAX: usize = 50_000;

/// Serves a call.
pub(super) async fn call(State(pages): State<Pages>, request: Request) -> Response {
    match heard(&pages, request).await {
        Ok(response) => response,
        Err(refusal) => {
            let unproved = refusal.status == StatusCode::UNAUTHORIZED;
            let mut response = refusal.into_response();
            if unproved {
                let headers = response.headers_mut();
                headers.insert(WWW_AUTHENTICATE, CHALLENGE);
            }
            response
        }
    }
}

async fn heard(pages: &Pages, request: Request) -> Result<Response, Refusal> {
    let proof = proof(request.headers())?;
    let prove = Prove {
        proof: proof.clone(),
    };
    let proved = pages.agent.prove(prove).await;
    proved.map_err(unavailable)?.map_err(refused)?;
    let asked: Asked<Call> = Asked::read(&pages.node, request).await?;
    bounded(&asked.call)?;
    let (asked, (framework_id, executor_id, said)) = asked.meaning(&pages.node, said).await?;
    let caller = Caller {
        framework_id,
        executor_id,
        proof,
    };
    let words = match said {
        Said::Subscribe { tasks, updates } => {
            for (place, status) in updates.iter().enumerate() {
                let at = format!("subscribe.unacknowledged_updates[{place}]");
                check(status, &caller, &at)?;
            }
            let tasks = tasks.into_iter().map(|task| task.task_id).collect();
            return subscribe(pages, &asked, caller, tasks, updates).await;
        }
        Said::Update(updated) => {
            check(&updated.status, &caller, "update")?;
            Words::Update(Box::new(updated.status))
        }
        Said::Message(data) => Words::Message(data),
        Said::Heartbeat => Words::Heartbeat,
    };
    let said = pages.agent.speak(Speak { caller, words }).await;
    said.map_err(unavailable)?.map_err(refused)?;
    Ok(StatusCode::ACCEPTED.into_response())
}

/// Refuses what would be one long turn of the containerizer.
fn bounded(call: &Call) -> Result<(), Refusal> {
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

/// Opens a stream, and closes it again if the containerizer does not want it.
async fn subscribe(
    pages: &Pages,
    asked: &Asked<Call>,
    caller: Caller,
    tasks: BTreeSet<TaskId>,
    updates: Vec<TaskStatus>,
) -> Result<Response, Refusal> {
    let content = asked.accept_stream()?;
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
    let heard = pages.agent.subscribe_stream(subscribe).await;
    match heard
        .map_err(unavailable)
        .and_then(|heard| heard.map_err(refused))
    {
        Ok(()) => Ok(response),
        Err(refusal) => {
            stream.stop();
            Err(refusal)
        }
    }
}

/// The token of a request, if it has one.
fn proof(headers: &HeaderMap) -> Result<Option<Proof>, Refusal> {
    let Some(value) = headers.get(AUTHORIZATION) else {
        return Ok(None);
    };
    let (scheme, token) = value
        .to_str()
        .ok()
        .and_then(|value| value.trim().split_once(' '))
        .unwrap_or_default();
    let proof = match scheme.eq_ignore_ascii_case("Bearer") {
        true => Proof::read(token.trim()),
        false => None,
    };
    proof.map(Some).ok_or_else(|| {
        let problem =
            "Authorization: expected `Bearer` and the value of MESOS_EXECUTOR_AUTHENTICATION_TOKEN";
        Refusal::new(StatusCode::UNAUTHORIZED, problem)
    })
}

fn check(status: &TaskStatus, caller: &Caller, at: &str) -> Result<(), Refusal> {
    check_update(status, &caller.executor_id).map_err(|bad| Refusal::bad(format!("{at}.{bad}")))
}

fn refused(not_heard: NotHeard) -> Refusal {
    let status = match &not_heard {
        NotHeard::Unproved { .. } => StatusCode::UNAUTHORIZED,
        NotHeard::Another { .. } | NotHeard::Native { .. } | NotHeard::NotNow { .. } => {
            StatusCode::FORBIDDEN
        }
        NotHeard::Unknown { .. } => StatusCode::BAD_REQUEST,
    };
    Refusal::new(status, not_heard)
}
