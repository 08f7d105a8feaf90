//! The v1 operator API of a master: `POST /api/v1`.
//!
//! Parses a call and answers it. Questions are answered like pages, from a snapshot or a mirror
//! (`answers`, `objects`); SUBSCRIBE opens a stream ([`super::stream`]); changes go to the local
//! master, or are redirected to the leader (`writes`). Unsupported calls are refused by name.

mod answers;
pub(super) mod objects;
pub(crate) mod operate;
pub(super) mod writes;

pub(super) use answers::State as DescribeState;

use std::time::Duration;

use authority::Action;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use v1::Form;
use v1::answer_cache::AnswerWriter;
use v1::convert::operator::{OperatorCall, to_protocol};
use v1::schema::Metric;
use v1::schema::master::{
    Call, CallType, Response as Answer, ResponseGetHealth, ResponseGetLoggingLevel,
    ResponseGetMetrics, ResponseGetVersion, ResponseListFiles, ResponseType,
};

use ::http::ConnectionNumber;
use ::http::api::{ReceivedCall, Refusal};
use ::http::build;

use super::stream::Viewer;
use super::{PATIENCE, Pages, PublishedFlags, path_of, redirect_to_leader};
use crate::api::pages::batches;
use crate::api::pages::source::{self, Found, late};
use crate::api::pages::visible::VisibleState;
use crate::api::v0::maintenance;
use crate::permission::Caller;

/// Handles `/api/v1`.
pub(super) async fn serve(State(pages): State<Pages>, request: Request) -> Response {
    let (path, headers) = (path_of(&request), request.headers().clone());
    let (caller, by) = (pages.caller(&request), request.extensions().get().copied());
    let read = async {
        let asked = ReceivedCall::<Call>::read(&pages.node, request).await?;
        asked.meaning(&pages.node, to_protocol).await
    };
    let (asked, parsed) = match read.await {
        Ok(meant) => meant,
        Err(refusal) => return refusal.into_response(),
    };
    let answered = answered(&pages, &asked, parsed, caller, by, &headers, &path).await;
    answered.unwrap_or_else(IntoResponse::into_response)
}

async fn answered(
    pages: &Pages,
    asked: &ReceivedCall<Call>,
    parsed: OperatorCall,
    caller: Caller,
    by: Option<ConnectionNumber>,
    headers: &HeaderMap,
    path: &str,
) -> Result<Response, Refusal> {
    use CallType::*;
    let kind = asked.call.r#type.unwrap_or_default();
    may_ask(kind, &caller)?;
    match kind {
        GetHealth | GetVersion | GetMetrics | GetLoggingLevel | ListFiles | ReadFile => {
            let form = asked.accept()?;
            let answer = process_answer(pages, &asked.call, kind).await?;
            Ok(::http::api::answer(form, &answer))
        }
        SetLoggingLevel => {
            let parsed = asked.call.set_logging_level.as_ref();
            let parsed = parsed.ok_or_else(|| absent("set_logging_level"))?;
            ::http::system::logging::change(&pages.node, parsed.level, &parsed.duration)?;
            Ok(StatusCode::OK.into_response())
        }
        GetFlags | GetMaster | GetState | GetAgents | GetFrameworks | GetExecutors | GetTasks
        | GetRoles | GetWeights | GetQuota => {
            let form = asked.accept()?;
            let asked = format!("{path} {kind} {}", form.media_type());
            let key = batches::key(asked, headers, caller.subject.clone());
            let made = async {
                let Pages {
                    local,
                    node,
                    published,
                    ..
                } = pages;
                match source::find(local, node, published, caller, headers).await {
                    Found::Here(source) => read(source.with_cache(&pages.cache), kind, form).await,
                    Found::Elsewhere => redirect_to_leader(&pages.local, path),
                    Found::Late => late(),
                }
            };
            Ok(batches::share(&pages.batches, key, by, made).await)
        }
        // A mirror has no operations.
        GetOperations => {
            let form = asked.accept()?;
            match source::local_only(&pages.local, &pages.node, &pages.published, caller).await {
                Found::Here(source) => Ok(read(source, kind, form).await),
                Found::Elsewhere => Ok(redirect_to_leader(&pages.local, path)),
                Found::Late => Ok(late()),
            }
        }
        // A mirror has no maintenance schedule.
        GetMaintenanceStatus | GetMaintenanceSchedule => {
            let form = asked.accept()?;
            match pages.local.master() {
                Some(_) => Ok(maintenance::answer(&pages.local, &caller, kind, form).await),
                None => Ok(redirect_to_leader(&pages.local, path)),
            }
        }
        Subscribe => match pages.local.master() {
            Some(_) => {
                let content = asked.accept_stream()?;
                let viewer = Viewer::from(caller).at(asked.source);
                let subscribed = pages.events.subscribe(content, viewer).await;
                subscribed.map_err(Refusal::not_now)
            }
            None => Ok(redirect_to_leader(&pages.local, path)),
        },
        UpdateWeights
        | UpdateQuota
        | SetQuota
        | RemoveQuota
        | ReserveResources
        | UnreserveResources
        | CreateVolumes
        | DestroyVolumes
        | GrowVolume
        | ShrinkVolume
        | UpdateMaintenanceSchedule
        | StartMaintenance
        | StopMaintenance
        | DrainAgent
        | DeactivateAgent
        | ReactivateAgent
        | MarkAgentGone
        | Teardown => match pages.local.master() {
            Some(_) => Ok(writes::write(&pages.local, &caller, parsed).await),
            None => Ok(redirect_to_leader(&pages.local, path)),
        },
        other => Err(Refusal::not_served(format!(
            "type is `{other}`: expected a call that is served here; this one is not yet"
        ))),
    }
}

/// Checks whether the caller may use this call at all. Most authorization happens later, for each
/// object.
fn may_ask(kind: CallType, caller: &Caller) -> Result<(), Refusal> {
    let allowed = match kind {
        CallType::GetFlags => caller.authorize(Action::ViewFlags, None),
        CallType::SetLoggingLevel => caller.authorize(Action::SetLogLevel, None),
        // As for the pages with the same content.
        CallType::GetMetrics => caller.authorize(Action::GetEndpoints, "/metrics/snapshot"),
        _ => Ok(()),
    };
    allowed.map_err(Refusal::from)
}

/// An answer from the state.
async fn read(source: source::Source, kind: CallType, form: Form) -> Response {
    let marks = source.marks.clone();
    let made = source.made(form.media_type(), move |state, published, cache| {
        let visible = VisibleState::of(state);
        cache.make((kind.name(), form), state, |writer| {
            answer(form, kind, visible, published, writer)
        })
    });
    let mut response = made.await;
    response.headers_mut().extend(marks);
    response
}

/// The body of an answer from the state; unchanged parts are copied from the cache.
pub(super) fn answer(
    form: Form,
    kind: CallType,
    visible: VisibleState<'_>,
    published: &PublishedFlags,
    writer: Option<&mut AnswerWriter>,
) -> Vec<u8> {
    let answer = answers::Answer {
        kind,
        visible,
        published,
    };
    form.describe_cached(&answer, writer)
}

/// Answers about this process, independent of the leader.
async fn process_answer(pages: &Pages, call: &Call, kind: CallType) -> Result<Answer, Refusal> {
    let mut answer = Answer::default();
    answer.r#type = Some(match kind {
        CallType::GetHealth => {
            answer.get_health = Some(ResponseGetHealth { healthy: true });
            ResponseType::GetHealth
        }
        CallType::GetVersion => {
            let version_info = build::version_info();
            answer.get_version = Some(Box::new(ResponseGetVersion { version_info }));
            ResponseType::GetVersion
        }
        CallType::GetMetrics => {
            let counters =
                ::http::system::metrics::collect(&pages.node, &pages.counters, patience(call))
                    .await;
            let metric = |(name, value): (String, f64)| Metric {
                name,
                value: Some(value),
            };
            answer.get_metrics = Some(ResponseGetMetrics {
                metrics: counters.into_iter().map(metric).collect(),
            });
            ResponseType::GetMetrics
        }
        CallType::GetLoggingLevel => {
            let level = ::http::system::logging::level();
            answer.get_logging_level = Some(ResponseGetLoggingLevel { level });
            ResponseType::GetLoggingLevel
        }
        // A master logs to its standard error and publishes no file.
        CallType::ListFiles => {
            let list = call.list_files.as_ref();
            let path = &list.ok_or_else(|| absent("list_files"))?.path;
            if !path.trim_matches('/').is_empty() {
                return Err(no_file(path));
            }
            answer.list_files = Some(ResponseListFiles::default());
            ResponseType::ListFiles
        }
        _ => {
            let read = call.read_file.as_ref();
            let path = &read.ok_or_else(|| absent("read_file"))?.path;
            return Err(no_file(path));
        }
    });
    Ok(answer)
}

/// The message of Mesos, which clients compare.
fn absent(field: &str) -> Refusal {
    Refusal::bad(format!(
        "Failed to validate master::Call: Expecting '{field}' to be present"
    ))
}

fn no_file(path: &str) -> Refusal {
    let path: String = path.chars().take(80).collect();
    let problem = format!("path is `{path}`: expected a published file, and there is none");
    Refusal::new(StatusCode::NOT_FOUND, problem)
}

/// Time limit for metrics.
fn patience(call: &Call) -> Duration {
    let asked = call.get_metrics.as_ref();
    let asked = ::http::system::metrics::timeout(asked.and_then(|asked| asked.timeout.as_ref()));
    asked.unwrap_or(PATIENCE)
}

#[cfg(test)]
mod tests;
