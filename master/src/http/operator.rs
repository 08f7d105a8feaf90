//! The v1 operator API of a master: `POST /api/v1` (SPEC 2.6).
//!
//! Reads a call and answers it. Questions are answered as pages are, from a snapshot of the books or a mirror of the leader's
//! (`answers`, `words`), who wants to hear what changes is given a stream ([`super::stream`]); what changes something is asked of the master that acts, and sent to the one that leads elsewhere (`writes`).
//! What Meros does not do is refused with its name. Decides nothing of what is asked.

mod answers;
pub(super) mod words;
pub(super) mod writes;

pub(super) use answers::State as StateSeen;

use std::time::Duration;

use authority::Action;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use v1::Form;
use v1::convert::operator::{Said, said};
use v1::pieces::Keeper;
use v1::schema::Metric;
use v1::schema::master::{
    Call, CallType, Response as Answer, ResponseGetHealth, ResponseGetLoggingLevel,
    ResponseGetMetrics, ResponseGetVersion, ResponseListFiles, ResponseType,
};

use ::http::Connection;
use ::http::api::{Asked, Refusal};
use ::http::build;

use super::shown::Shown;
use super::source::{self, Found, late};
use super::stream::Viewer;
use super::{Chosen, PATIENCE, Pages, batches, maintenance, path_of, to_the_leader};
use crate::permission::Asker;

/// `/api/v1`.
pub(super) async fn serve(State(pages): State<Pages>, request: Request) -> Response {
    let (path, headers) = (path_of(&request), request.headers().clone());
    let (asker, by) = (pages.asker(&request), request.extensions().get().copied());
    let read = async {
        let asked = Asked::<Call>::read(&pages.node, request).await?;
        asked.meaning(&pages.node, said).await
    };
    let (asked, said) = match read.await {
        Ok(meant) => meant,
        Err(refusal) => return refusal.into_response(),
    };
    let answered = answered(&pages, &asked, said, asker, by, &headers, &path).await;
    answered.unwrap_or_else(IntoResponse::into_response)
}

async fn answered(
    pages: &Pages,
    asked: &Asked<Call>,
    said: Said,
    asker: Asker,
    by: Option<Connection>,
    headers: &HeaderMap,
    path: &str,
) -> Result<Response, Refusal> {
    use CallType::*;
    let kind = asked.call.r#type.unwrap_or_default();
    may_ask(kind, &asker)?;
    match kind {
        GetHealth | GetVersion | GetMetrics | GetLoggingLevel | ListFiles | ReadFile => {
            let form = asked.accept()?;
            let answer = of_the_process(pages, &asked.call, kind).await?;
            Ok(::http::api::answer(form, &answer))
        }
        SetLoggingLevel => {
            let said = asked.call.set_logging_level.as_ref();
            let said = said.ok_or_else(|| absent("set_logging_level", "a level and a duration"))?;
            ::http::logging::change(&pages.node, said.level, &said.duration)?;
            Ok(StatusCode::OK.into_response())
        }
        GetFlags | GetMaster | GetState | GetAgents | GetFrameworks | GetExecutors | GetTasks
        | GetRoles | GetWeights | GetQuota => {
            let form = asked.accept()?;
            let asked = format!("{path} {kind} {}", form.media_type());
            let key = batches::key(asked, headers, asker.subject.clone());
            let made = async {
                let Pages {
                    front,
                    node,
                    chosen,
                    ..
                } = pages;
                match source::find(front, node, chosen, asker, headers).await {
                    Found::Here(source) => read(source.keeping(&pages.kept), kind, form).await,
                    Found::Elsewhere => to_the_leader(&pages.front, path),
                    Found::Late => late(),
                }
            };
            Ok(batches::share(&pages.batches, key, by, made).await)
        }
        // A mirror knows no operations.
        GetOperations => {
            let form = asked.accept()?;
            match source::of_the_leader(&pages.front, &pages.node, &pages.chosen, asker).await {
                Found::Here(source) => Ok(read(source, kind, form).await),
                Found::Elsewhere => Ok(to_the_leader(&pages.front, path)),
                Found::Late => Ok(late()),
            }
        }
        // Nor what is planned.
        GetMaintenanceStatus | GetMaintenanceSchedule => {
            let form = asked.accept()?;
            match pages.front.master() {
                Some(_) => Ok(maintenance::answer(&pages.front, &asker, kind, form).await),
                None => Ok(to_the_leader(&pages.front, path)),
            }
        }
        Subscribe => match pages.front.master() {
            Some(_) => {
                let content = asked.accept_stream()?;
                let viewer = Viewer::from(asker).at(asked.source);
                let subscribed = pages.events.subscribe(content, viewer).await;
                subscribed.map_err(Refusal::not_now)
            }
            None => Ok(to_the_leader(&pages.front, path)),
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
        | Teardown => match pages.front.master() {
            Some(_) => Ok(writes::write(&pages.front, &asker, said).await),
            None => Ok(to_the_leader(&pages.front, path)),
        },
        other => Err(Refusal::not_served(format!(
            "type is `{other}`: expected a call that is served here; this one is not yet"
        ))),
    }
}

/// Whether who asks may ask this at all. Most is decided later, of each thing that is shown or changed.
fn may_ask(kind: CallType, asker: &Asker) -> Result<(), Refusal> {
    let allowed = match kind {
        CallType::GetFlags => asker.may(Action::ViewFlags, None),
        CallType::SetLoggingLevel => asker.may(Action::SetLogLevel, None),
        // As the pages that show the same.
        CallType::GetMetrics => asker.may(Action::GetEndpoints, "/metrics/snapshot"),
        _ => Ok(()),
    };
    allowed.map_err(Refusal::forbidden)
}

/// An answer from the books.
async fn read(source: source::Source, kind: CallType, form: Form) -> Response {
    let marks = source.marks.clone();
    let made = source.made(form.media_type(), move |books, chosen, kept| {
        let shown = Shown::of(books);
        kept.make((kind.name(), form), books, |keeper| {
            answer(form, kind, shown, chosen, keeper)
        })
    });
    let mut response = made.await;
    response.headers_mut().extend(marks);
    response
}

/// The text of the answer to a question that the books answer; what the keeper knows is copied.
pub(super) fn answer(
    form: Form,
    kind: CallType,
    shown: Shown<'_>,
    chosen: &Chosen,
    keeper: Option<&mut Keeper>,
) -> Vec<u8> {
    let answer = answers::Answer {
        kind,
        shown,
        chosen,
    };
    form.describe_again(&answer, keeper)
}

/// What this process answers of itself, whoever leads.
async fn of_the_process(pages: &Pages, call: &Call, kind: CallType) -> Result<Answer, Refusal> {
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
                ::http::metrics::collect(&pages.node, &pages.counters, patience(call)).await;
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
            let level = ::http::logging::level();
            answer.get_logging_level = Some(ResponseGetLoggingLevel { level });
            ResponseType::GetLoggingLevel
        }
        // A master logs to its standard error and shows no file.
        CallType::ListFiles => {
            let list = call.list_files.as_ref();
            let path = &list.ok_or_else(|| absent("list_files", "a path"))?.path;
            if !path.trim_matches('/').is_empty() {
                return Err(no_file(path));
            }
            answer.list_files = Some(ResponseListFiles::default());
            ResponseType::ListFiles
        }
        _ => {
            let read = call.read_file.as_ref();
            let path = &read.ok_or_else(|| absent("read_file", "a path"))?.path;
            return Err(no_file(path));
        }
    });
    Ok(answer)
}

fn absent(field: &str, expected: &str) -> Refusal {
    Refusal::bad(format!("{field} is `absent`: expected {expected}"))
}

fn no_file(path: &str) -> Refusal {
    let path: String = path.chars().take(80).collect();
    let problem =
        format!("path is `{path}`: expected a file that is shown here, and there is none");
    Refusal::new(StatusCode::NOT_FOUND, problem)
}

/// How long metrics are waited for.
fn patience(call: &Call) -> Duration {
    let asked = call.get_metrics.as_ref();
    let asked = ::http::metrics::patience(asked.and_then(|asked| asked.timeout.as_ref()));
    asked.unwrap_or(PATIENCE)
}

#[cfg(test)]
mod tests;
