//! `POST /api/v1`: the agent's operator API. Unsupported calls are rejected by name.
//!
//! Decodes a call, queries the actors and encodes the result of [`answers`]. Changes nothing but
//! the log level.

use std::time::Duration;

use authority::{Action, Subject};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use http::api::{ReceivedCall, Refusal, answer};
use http::build;
use http::files::{DirectoryEntry, FileError, RootedPath, browse, read};
use v1::convert::operator::nested::nested_call;
use v1::schema::agent::{
    Call, CallListFiles, CallReadFile, CallType, Response as Answer, ResponseGetFlags,
    ResponseGetHealth, ResponseGetLoggingLevel, ResponseGetMetrics, ResponseGetResourceProviders,
    ResponseGetVersion, ResponseListFiles, ResponseReadFile, ResponseType,
};
use v1::schema::{FileInfo, Flag, Metric, TimeInfo};

use super::{PATIENCE, Pages, answers, nested, unavailable};
use crate::api::visibility;

/// Serves a call.
pub(super) async fn call(
    State(pages): State<Pages>,
    request: Request,
) -> Result<Response, Refusal> {
    let asked: ReceivedCall<Call> = ReceivedCall::read_first(&pages.node, request).await?;
    match asked.call.r#type.unwrap_or_default() {
        CallType::Unknown | CallType::AttachContainerInput => {}
        other => asked.expect_one(other)?,
    }
    if let Some(call) = nested_call(&asked.call) {
        return nested::call(&pages, asked, call.map_err(Refusal::bad)?).await;
    }
    if asked.call.r#type == Some(CallType::SetLoggingLevel) {
        return pages.set_logging_level(&asked.call, &asked.subject);
    }
    if asked.call.r#type == Some(CallType::PruneImages) {
        let acls = pages.acls.current();
        let allowed = acls.check(&asked.subject, Action::PruneImages, None);
        allowed.map_err(Refusal::from)?;
        let excluded = asked.call.prune_images.iter();
        let excluded = excluded.flat_map(|prune| &prune.excluded_images);
        let excluded = excluded.filter_map(|image| Some(image.docker.as_ref()?.name.clone()));
        let pruned = pages.agent.prune_images(excluded.collect()).await;
        pruned.map_err(|problem| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, problem))?;
        return Ok(StatusCode::OK.into_response());
    }
    let form = asked.accept();
    let found = pages.answer(&asked.call, &asked.subject).await;
    match (form, found) {
        // Unsupported calls are reported before an unacceptable `Accept`: most of them would be
        // streams.
        (_, Err(refusal)) if refusal.is_not_served() => Err(refusal),
        (form, found) => Ok(answer(form?, &found?)),
    }
}

impl Pages {
    async fn answer(&self, call: &Call, subject: &Subject) -> Result<Answer, Refusal> {
        let mut answer = Answer::default();
        let kind = call.r#type.unwrap_or_default();
        answer.r#type = Some(match kind {
            CallType::Unknown => return Err(absent("type")),
            CallType::GetHealth => {
                answer.get_health = Some(ResponseGetHealth { healthy: true });
                ResponseType::GetHealth
            }
            CallType::GetFlags => {
                let flags = self.flags(subject)?.into_iter();
                let flag = |(name, value)| Flag {
                    name,
                    value: Some(value),
                };
                answer.get_flags = Some(ResponseGetFlags {
                    flags: flags.map(flag).collect(),
                });
                ResponseType::GetFlags
            }
            CallType::GetVersion => {
                answer.get_version = Some(Box::new(ResponseGetVersion {
                    version_info: build::version_info(),
                }));
                ResponseType::GetVersion
            }
            CallType::GetMetrics => {
                // The same permission as for the page.
                let seen =
                    self.acls
                        .current()
                        .check(subject, Action::GetEndpoints, "/metrics/snapshot");
                seen.map_err(Refusal::from)?;
                answer.get_metrics = Some(self.metrics(patience(call)).await);
                ResponseType::GetMetrics
            }
            CallType::GetLoggingLevel => {
                answer.get_logging_level = Some(ResponseGetLoggingLevel {
                    level: http::system::logging::level(),
                });
                ResponseType::GetLoggingLevel
            }
            CallType::ListFiles => {
                let asked = call
                    .list_files
                    .as_ref()
                    .ok_or_else(|| absent("list_files"))?;
                answer.list_files = Some(self.list_files(asked, subject).await?);
                ResponseType::ListFiles
            }
            CallType::ReadFile => {
                let asked = call.read_file.as_ref().ok_or_else(|| absent("read_file"))?;
                answer.read_file = Some(self.read_file(asked, subject).await?);
                ResponseType::ReadFile
            }
            CallType::GetState => {
                answer.get_state = Some(Box::new(answers::state(&self.survey(subject).await?)));
                ResponseType::GetState
            }
            CallType::GetContainers => {
                let (survey, usage) = (self.containers(subject).await?, self.usage().await?);
                let shown = call.get_containers.as_ref();
                let nested = shown.and_then(|shown| shown.show_nested).unwrap_or(false);
                answer.get_containers = Some(answers::containers(&survey, &usage, nested));
                ResponseType::GetContainers
            }
            CallType::GetFrameworks => {
                answer.get_frameworks = Some(answers::frameworks(&self.survey(subject).await?));
                ResponseType::GetFrameworks
            }
            CallType::GetExecutors => {
                answer.get_executors = Some(answers::all_executors(&self.survey(subject).await?));
                ResponseType::GetExecutors
            }
            CallType::GetTasks => {
                answer.get_tasks = Some(Box::new(answers::tasks(&self.survey(subject).await?)));
                ResponseType::GetTasks
            }
            CallType::GetAgent => {
                let roles = self.acls.current().approver(subject, Action::ViewRoles);
                let (state, survey) = (self.state().await?, self.survey(subject).await?);
                answer.get_agent = Some(answers::agent(&state, survey.drain, &roles));
                ResponseType::GetAgent
            }
            CallType::GetOperations => {
                let known = self.agent.operations().await.map_err(unavailable)?;
                let survey = self.agent.survey().await.map_err(unavailable)?;
                let seen =
                    visibility::visible_operations(known, &survey, &self.acls.current(), subject);
                answer.get_operations = Some(answers::operations(&seen));
                ResponseType::GetOperations
            }
            // Resource providers are not supported, so there are none.
            CallType::GetResourceProviders => {
                answer.get_resource_providers = Some(ResponseGetResourceProviders::default());
                ResponseType::GetResourceProviders
            }
            other => {
                let problem = format!("{other} is not supported by this agent");
                return Err(Refusal::not_served(problem));
            }
        });
        Ok(answer)
    }

    fn set_logging_level(&self, call: &Call, subject: &Subject) -> Result<Response, Refusal> {
        let allowed = self
            .acls
            .current()
            .check(subject, Action::SetLogLevel, None);
        allowed.map_err(Refusal::from)?;
        let asked = call.set_logging_level.as_ref();
        let asked = asked.ok_or_else(|| absent("set_logging_level"))?;
        http::system::logging::change(&self.node, asked.level, &asked.duration)?;
        Ok(StatusCode::OK.into_response())
    }

    /// The runtime's metrics, and the agent's if they arrive in time.
    async fn metrics(&self, patience: Duration) -> ResponseGetMetrics {
        let counters = http::system::metrics::collect(&self.node, &self.counters, patience).await;
        let metric = |(name, value): (String, f64)| Metric {
            name,
            value: Some(value),
        };
        ResponseGetMetrics {
            metrics: counters.into_iter().map(metric).collect(),
        }
    }

    async fn list_files(
        &self,
        asked: &CallListFiles,
        subject: &Subject,
    ) -> Result<ResponseListFiles, Refusal> {
        let entries = self.at(&asked.path, subject, browse).await?;
        let listed = entries.into_iter().map(|entry| info(&asked.path, entry));
        Ok(ResponseListFiles {
            file_infos: listed.collect(),
        })
    }

    async fn read_file(
        &self,
        asked: &CallReadFile,
        subject: &Subject,
    ) -> Result<ResponseReadFile, Refusal> {
        let (offset, length) = (asked.offset, asked.length);
        let piece = move |place: &RootedPath| read(place, offset, length);
        let piece = self.at(&asked.path, subject, piece).await?;
        Ok(ResponseReadFile {
            size: piece.size,
            data: piece.data.into(),
        })
    }

    /// Runs `act` on a file, on the blocking pool.
    async fn at<T: Send + 'static>(
        &self,
        path: &str,
        subject: &Subject,
        act: impl FnOnce(&RootedPath) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, Refusal> {
        let place = (self.files)(path.to_owned(), subject.clone()).await?;
        let done = self.node.blocking(move || act(&place)).await;
        let failed = |error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error);
        Ok(done.map_err(failed)??)
    }
}

fn info(directory: &str, entry: DirectoryEntry) -> FileInfo {
    let path = std::path::Path::new(directory).join(&entry.name);
    FileInfo {
        path: path.to_string_lossy().into_owned(),
        nlink: entry.links.try_into().ok(),
        size: Some(entry.size),
        mtime: Some(TimeInfo {
            nanoseconds: i64::try_from(entry.modified.as_nanos()).unwrap_or(i64::MAX),
        }),
        mode: Some(entry.mode),
        uid: Some(entry.user),
        gid: Some(entry.group),
    }
}

/// The message of Mesos, which clients compare.
fn absent(field: &str) -> Refusal {
    Refusal::bad(format!(
        "Failed to validate agent::Call: Expecting '{field}' to be present"
    ))
}

/// The timeout for metrics.
fn patience(call: &Call) -> Duration {
    let asked = call.get_metrics.as_ref();
    let asked = http::system::metrics::timeout(asked.and_then(|asked| asked.timeout.as_ref()));
    asked.unwrap_or(PATIENCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use v1::schema::DurationInfo;
    use v1::schema::agent::CallGetMetrics;

    /// Any timeout is accepted, as in Mesos; the actual wait is bounded.
    #[test]
    fn metrics_are_waited_for_as_long_as_asked() {
        let wait = |nanoseconds| {
            let timeout = Some(DurationInfo { nanoseconds });
            let get_metrics = Some(CallGetMetrics { timeout });
            patience(&Call {
                get_metrics,
                ..Call::default()
            })
        };
        assert_eq!(patience(&Call::default()), PATIENCE);
        for (nanoseconds, seconds) in [(0, 0), (90_000_000_000, 90), (-1, 0)] {
            assert_eq!(wait(nanoseconds), Duration::from_secs(seconds));
        }
    }
}
