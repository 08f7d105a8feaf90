//! Calls of the agent's operator API about containers nested in others, and the streams of
//! sessions.
//!
//! A session's answer is a stream of its output; when the stream ends or its reader leaves, the
//! session is killed. Its input comes in a call of its own, a stream of records too. Status codes
//! and messages are those of Mesos, which its command-line client compares.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use authority::Action;
use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use futures_util::future::{Either, select, select_all};
use futures_util::stream;
use http::api::{ReceivedCall, Refusal, answer};
use protocol::ContainerId;
use runtime::Clock;
use tokio::io::unix::AsyncFd;
use v1::convert::operator::nested::{NestedCall, NestedLaunch};
use v1::convert::operator::process_io::{ProcessInput, process_input, record};
use v1::schema::agent::{
    Call, CallType, ProcessIO, ProcessIODataType, Response as Answer, ResponseType,
    ResponseWaitContainer, ResponseWaitNestedContainer,
};
use v1::{Content, Form, Limits};

use super::{Pages, unavailable, visibility};
use crate::container::nested::requested::{
    AttachedInput, InputOf, InputRefused, KillNested, LaunchNested, Launched, NoInput,
    RemoveNested, SessionInput, SessionStreams, Unknown, WaitNested,
};
use crate::host::sys;

/// Bytes of output in one record, as in Mesos.
const OUTPUT_MAX: usize = 64 * 1024;
/// Time between two heartbeats of an output stream.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(30);

/// Serves a call about a container.
pub(super) async fn call(
    pages: &Pages,
    mut asked: ReceivedCall<Call>,
    call: NestedCall,
) -> Result<Response, Refusal> {
    pages.may(&asked, &call).await?;
    match call {
        NestedCall::Launch(launch) => launch_nested(pages, &asked, *launch).await,
        NestedCall::Wait(id) => {
            asked.answer_any_time();
            let waited = pages.agent.nested(WaitNested(id.clone())).await;
            match waited.map_err(unavailable)? {
                Ok(status) => Ok(answer(asked.accept()?, &end(&asked, status))),
                Err(Unknown) => Err(not_found(format!("Container {id} cannot be found"))),
            }
        }
        NestedCall::Kill(id, signal) => {
            let killed = pages.agent.nested(KillNested(id.clone(), signal)).await;
            let gone = |Unknown| {
                not_found(format!(
                    "Container '{id}' cannot be found (or is already killed)"
                ))
            };
            killed.map_err(unavailable)?.map_err(gone)?;
            Ok(StatusCode::OK.into_response())
        }
        NestedCall::Remove(id) => {
            let removed = pages.agent.nested(RemoveNested(id)).await;
            removed.map_err(unavailable)?.map_err(failed)?;
            Ok(StatusCode::OK.into_response())
        }
        NestedCall::AttachInput(id) => attach_input(pages, asked, id).await,
        NestedCall::AttachOutput(id) => {
            Err(input_of(pages, &id).await.err().unwrap_or_else(disabled))
        }
    }
}

impl Pages {
    /// Whether the caller may make this call, by the user of the container's executor. A
    /// container that is not there has no user.
    async fn may(&self, asked: &ReceivedCall<Call>, call: &NestedCall) -> Result<(), Refusal> {
        let acls = self.acls.current();
        if acls.is_open() {
            return Ok(());
        }
        let (id, actions): (_, &[Action]) = match call {
            NestedCall::Launch(launch) if launch.is_session => (
                &launch.container_id,
                &[Action::LaunchNestedContainerSessionsUnderParentWithUser],
            ),
            NestedCall::Launch(launch) => (
                &launch.container_id,
                &[Action::LaunchNestedContainersUnderParentWithUser],
            ),
            NestedCall::Wait(id) => (id, &[Action::WaitNestedContainers]),
            NestedCall::Kill(id, _) => (id, &[Action::KillNestedContainers]),
            NestedCall::Remove(id) => (id, &[Action::RemoveNestedContainers]),
            NestedCall::AttachInput(id) => (id, &[Action::AttachContainersInput]),
            NestedCall::AttachOutput(id) => (id, &[Action::AttachContainersOutput]),
        };
        let survey = self.agent.survey().await.map_err(unavailable)?;
        let user = visibility::user_of(&survey, &id.outermost());
        for &action in actions {
            acls.check(&asked.subject, action, user.as_deref())
                .map_err(Refusal::from)?;
        }
        if let NestedCall::Launch(launch) = call {
            let own = launch.command.as_ref();
            let own = own.and_then(|command| command.user.clone());
            let action = match launch.is_session {
                true => Action::LaunchNestedContainerSessionsAsUser,
                false => Action::LaunchNestedContainersAsUser,
            };
            let user = own.or(user);
            acls.check(&asked.subject, action, user.as_deref())
                .map_err(Refusal::from)?;
        }
        Ok(())
    }
}

fn not_found(problem: String) -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, problem)
}

fn failed(problem: impl std::fmt::Display) -> Refusal {
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, problem)
}

fn disabled() -> Refusal {
    failed("I/O switchboard server was disabled for this container")
}

/// The answer of a wait.
fn end(asked: &ReceivedCall<Call>, status: Option<i32>) -> Answer {
    let mut answer = Answer::default();
    if asked.call.r#type == Some(CallType::WaitNestedContainer) {
        answer.r#type = Some(ResponseType::WaitNestedContainer);
        answer.wait_nested_container = Some(Box::new(ResponseWaitNestedContainer {
            exit_status: status,
            ..ResponseWaitNestedContainer::default()
        }));
    } else {
        answer.r#type = Some(ResponseType::WaitContainer);
        answer.wait_container = Some(Box::new(ResponseWaitContainer {
            exit_status: status,
            ..ResponseWaitContainer::default()
        }));
    }
    answer
}

async fn launch_nested(
    pages: &Pages,
    asked: &ReceivedCall<Call>,
    launch: NestedLaunch,
) -> Result<Response, Refusal> {
    let (id, is_session) = (launch.container_id.clone(), launch.is_session);
    // Before the launch, which an unacceptable answer would leave without a reader.
    let content = is_session.then(|| asked.accept_output()).transpose()?;
    // From now on: its reader may leave while it starts.
    let session = is_session.then(|| Session {
        pages: pages.clone(),
        id: Some(id),
    });
    let launched = pages.agent.nested(LaunchNested(launch)).await;
    let launched = launched.map_err(unavailable)?.map_err(Refusal::bad)?;
    match (launched, session, content) {
        (Launched::Known, session, _) => {
            if let Some(mut session) = session {
                session.id = None; // That of another caller.
            }
            Ok(StatusCode::ACCEPTED.into_response())
        }
        (Launched::Started(Some(streams)), Some(session), Some(content)) => {
            output(session, streams, content).map_err(failed)
        }
        (Launched::Started(_), _, _) => Ok(StatusCode::OK.into_response()),
    }
}

/// A session; it is killed when this is dropped.
struct Session {
    pages: Pages,
    id: Option<ContainerId>,
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.pages
                .agent
                .kill_nested(KillNested(id, nix::libc::SIGKILL));
        }
    }
}

/// The output of a session, as the stream of an answer.
struct Output {
    streams: Vec<(ProcessIODataType, AsyncFd<OwnedFd>)>,
    form: Form,
    clock: Clock,
    _session: Session,
}

fn output(session: Session, streams: SessionStreams, content: Content) -> io::Result<Response> {
    let form = content.form();
    let mut output = Output {
        streams: Vec::new(),
        form,
        clock: session.pages.node.clock().clone(),
        _session: session,
    };
    let both = [
        (ProcessIODataType::Stdout, Some(streams.output)),
        (ProcessIODataType::Stderr, streams.error),
    ];
    for (kind, descriptor) in both {
        if let Some(descriptor) = descriptor {
            output.streams.push((kind, sys::watch(descriptor)?));
        }
    }
    let records = stream::unfold(output, |mut output| async move {
        let record = output.next().await?;
        Some((Ok::<_, io::Error>(Bytes::from(record)), output))
    });
    let mut response = Body::from_stream(records).into_response();
    let (kind, message_kind) = match content {
        Content::One(form) => (form.media_type(), None),
        Content::Stream(form) => ("application/recordio", Some(form.media_type())),
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Some(kind) = message_kind {
        let name = HeaderName::from_static("message-content-type");
        headers.insert(name, HeaderValue::from_static(kind));
    }
    Ok(response)
}

impl Output {
    /// The next record: output, or a heartbeat. `None` when all streams have ended.
    async fn next(&mut self) -> Option<Vec<u8>> {
        while !self.streams.is_empty() {
            let reads = self.streams.iter();
            let reads = reads.map(|(kind, end)| Box::pin(read(*kind, end)));
            let heartbeat = pin!(self.clock.sleep(HEARTBEAT_INTERVAL));
            let read = match select(select_all(reads), heartbeat).await {
                Either::Left(((read, _, _), _)) => Some(read),
                Either::Right(_) => None,
            };
            match read {
                Some((kind, Ok(bytes))) if !bytes.is_empty() => {
                    return Some(record(self.form, &ProcessIO::data(kind, bytes)));
                }
                // Reading a terminal that no process has open is an error.
                Some((kind, _)) => self.streams.retain(|(other, _)| *other != kind),
                None => {
                    return Some(record(self.form, &ProcessIO::heartbeat(HEARTBEAT_INTERVAL)));
                }
            }
        }
        None
    }
}

async fn read(
    kind: ProcessIODataType,
    end: &AsyncFd<OwnedFd>,
) -> (ProcessIODataType, io::Result<Vec<u8>>) {
    let mut buffer = vec![0; OUTPUT_MAX];
    let read = end.async_io(tokio::io::Interest::READABLE, |end| {
        Ok(nix::unistd::read(end, &mut buffer)?)
    });
    let read = read.await;
    (
        kind,
        read.map(|length| {
            buffer.truncate(length);
            buffer
        }),
    )
}

async fn input_of(pages: &Pages, id: &ContainerId) -> Result<AttachedInput, Refusal> {
    let input = pages.agent.nested(InputOf(id.clone())).await;
    input.map_err(unavailable)?.map_err(|none| match none {
        NoInput::Unknown => not_found(format!("Container {id} cannot be found")),
        NoInput::NotConnected => disabled(),
    })
}

/// The input while this caller uses it.
struct InputInUse {
    input: Arc<SessionInput>,
    end: Option<AsyncFd<OwnedFd>>,
}

impl Drop for InputInUse {
    fn drop(&mut self) {
        let end = self.end.take().map(AsyncFd::into_inner);
        self.input.give_back(end);
    }
}

async fn attach_input(
    pages: &Pages,
    mut asked: ReceivedCall<Call>,
    id: ContainerId,
) -> Result<Response, Refusal> {
    let Some(mut records) = asked.take_records() else {
        let problem =
            "Expecting 'Content-Type' to be application/recordio for ATTACH_CONTAINER_INPUT call";
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, problem));
    };
    let AttachedInput { input, mut session } = input_of(pages, &id).await?;
    records.take_any_time();
    let end = match input.take() {
        Ok(end) => match sys::watch(end) {
            Ok(end) => Some(end),
            Err(error) => {
                input.give_back(None);
                return Err(failed(error));
            }
        },
        Err(InputRefused::Closed) => None,
        Err(InputRefused::InUse) => {
            let problem = "Multiple input connections are not allowed";
            return Err(Refusal::conflict(problem));
        }
    };
    let mut used = InputInUse { input, end };
    let follow = async {
        while let Some(bytes) = records.next().await? {
            let call = asked.form.read(&bytes, Limits::default());
            let given = process_input(&call.map_err(Refusal::bad)?).map_err(Refusal::bad)?;
            used.follow(given).await?;
        }
        Ok::<_, Refusal>(())
    };
    // As in Mesos, the call ends with its session at the latest.
    if let Either::Left((followed, _)) = select(pin!(follow), pin!(session.changed())).await {
        followed?;
    }
    Ok(StatusCode::OK.into_response())
}

impl InputInUse {
    async fn follow(&mut self, given: ProcessInput) -> Result<(), Refusal> {
        match given {
            ProcessInput::Heartbeat => Ok(()),
            ProcessInput::Window { rows, columns } => {
                let size = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
                let set = match &self.end {
                    Some(end) => sys::set_window(end, size(rows), size(columns)),
                    None => Ok(()),
                };
                set.map_err(|error| Refusal::bad(format!("Unable to set the window size: {error}")))
            }
            ProcessInput::Data(bytes) if bytes.is_empty() => {
                if !self.input.has_terminal {
                    self.end = None;
                }
                Ok(())
            }
            ProcessInput::Data(bytes) => {
                let written = match &self.end {
                    Some(end) => write_all(end, &bytes).await,
                    None => Err(io::Error::from_raw_os_error(nix::libc::EBADF)),
                };
                written.map_err(|error| failed(format!("Failed writing to stdin: Failed: {error}")))
            }
        }
    }
}

async fn write_all(end: &AsyncFd<OwnedFd>, bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let write = end.async_io(tokio::io::Interest::WRITABLE, |end| {
            Ok(nix::unistd::write(end, rest)?)
        });
        rest = &rest[write.await?..];
    }
    Ok(())
}
