//! Calls of the agent's operator API about containers nested in others, and the streams of
//! sessions and terminals.
//!
//! A session's answer is a stream of its output; when the stream ends or its reader leaves, the
//! session is killed. Input comes in a call of its own, a stream of records too. Further callers
//! may attach to the output of a session, and to a container with a terminal; they get the output
//! from then on. The caller that has launched a session sets its pace; another one that reads too
//! slowly misses output. Status codes and messages are those of Mesos, which its command-line
//! client compares.

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
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use v1::convert::operator::nested::{NestedCall, NestedLaunch};
use v1::convert::operator::process_io::{ProcessInput, process_input, record};
use v1::schema::agent::{
    Call, CallType, ProcessIO, ProcessIODataType, Response as Answer, ResponseType,
    ResponseWaitContainer, ResponseWaitNestedContainer,
};
use v1::{Content, Form, Limits};

use super::{PATIENCE, Pages, unavailable, visibility};
use crate::container::nested::attached::{
    AttachedInput, AttachedOutput, ContainerInput, InputOf, InputRefused, KeepInput, NotAttached,
    OutputOf, SessionReaders,
};
use crate::container::nested::requested::{
    KillNested, LaunchNested, Launched, RemoveNested, Unknown, WaitNested,
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
            let is_nested = asked.call.r#type == Some(CallType::WaitNestedContainer);
            asked.answer_any_time();
            let waited = pages.agent.nested(WaitNested(id.clone())).await;
            match waited.map_err(unavailable)? {
                Ok(status) => Ok(answer(asked.accept()?, &end(is_nested, status))),
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
        NestedCall::AttachOutput(id) => attach_output(pages, &asked, &id).await,
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

/// The answer of a wait, by the older or the newer name of the call.
fn end(is_nested: bool, status: Option<i32>) -> Answer {
    let mut answer = Answer::default();
    if is_nested {
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
            let output = Output {
                streams: watch(streams.output, streams.error).map_err(failed)?,
                form: content.form(),
                clock: pages.node.clock().clone(),
                session: Some((session, streams.readers)),
            };
            Ok(stream_output(output, content))
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

/// The output of a container, as the stream of an answer.
struct Output {
    streams: Vec<(ProcessIODataType, AsyncFd<OwnedFd>)>,
    form: Form,
    clock: Clock,
    /// The session that this call has launched, and its further readers.
    session: Option<(Session, Arc<SessionReaders>)>,
}

/// Watches the output and the error output of a container.
fn watch(
    output: OwnedFd,
    error: Option<OwnedFd>,
) -> io::Result<Vec<(ProcessIODataType, AsyncFd<OwnedFd>)>> {
    let error = error.map(|error| (ProcessIODataType::Stderr, error));
    let both = std::iter::once((ProcessIODataType::Stdout, output)).chain(error);
    both.map(|(kind, end)| Ok((kind, sys::watch(end)?)))
        .collect()
}

fn stream_output(output: Output, content: Content) -> Response {
    let records = stream::unfold(output, |mut output| async move {
        let record = output.next().await?;
        Some((record.map(Bytes::from), output))
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
    response
}

impl Output {
    /// The next record: output, or a heartbeat. `None` when all streams have ended.
    async fn next(&mut self) -> Option<io::Result<Vec<u8>>> {
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
                    if let Some((_, readers)) = &self.session {
                        let is_error = kind == ProcessIODataType::Stderr;
                        readers.of(is_error).write(&bytes);
                    }
                    return Some(Ok(record(self.form, &ProcessIO::data(kind, bytes))));
                }
                // It has not read the last output in time.
                Some((_, Err(error))) if self.session.is_none() => {
                    self.streams.clear();
                    return Some(Err(error));
                }
                // Reading a terminal that no process has open is an error.
                Some((kind, _)) => self.streams.retain(|(other, _)| *other != kind),
                None => {
                    if let Some((_, readers)) = &self.session {
                        readers.of(false).flush();
                        readers.of(true).flush();
                    }
                    let heartbeat = ProcessIO::heartbeat(HEARTBEAT_INTERVAL);
                    return Some(Ok(record(self.form, &heartbeat)));
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
    let read = end.async_io(Interest::READABLE, |end| {
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

fn not_attached(id: &ContainerId) -> impl Fn(NotAttached) -> Refusal {
    move |none| match none {
        NotAttached::NotFound => not_found(format!("Container {id} cannot be found")),
        NotAttached::Unknown => failed(format!("Unknown container {id}")),
        NotAttached::Disabled => disabled(),
        NotAttached::Failed(problem) => failed(problem),
    }
}

async fn output_of(pages: &Pages, id: &ContainerId) -> Result<AttachedOutput, Refusal> {
    let output = pages.agent.nested(OutputOf(id.clone())).await;
    output.map_err(unavailable)?.map_err(not_attached(id))
}

async fn attach_output(
    pages: &Pages,
    asked: &ReceivedCall<Call>,
    id: &ContainerId,
) -> Result<Response, Refusal> {
    let content = asked.accept_output()?;
    let streams = match output_of(pages, id).await? {
        AttachedOutput::Session(output, error) => watch(output, error).map_err(failed)?,
        AttachedOutput::Terminal(reader) => {
            let (reader, _) = terminal(pages, reader).await?;
            vec![(ProcessIODataType::Stdout, reader)]
        }
    };
    let output = Output {
        streams,
        form: content.form(),
        clock: pages.node.clock().clone(),
        session: None,
    };
    Ok(stream_output(output, content))
}

/// Waits for the first byte of a container's init, with which comes the terminal.
async fn terminal(pages: &Pages, reader: OwnedFd) -> Result<(AsyncFd<OwnedFd>, OwnedFd), Refusal> {
    let reader = sys::watch(reader).map_err(failed)?;
    let first = reader.async_io(Interest::READABLE, |reader| sys::receive(reader, &mut [0]));
    let first = pages.node.clock().timeout(PATIENCE, first).await;
    let first = first.map_err(|_| failed("the terminal of the container does not answer"))?;
    let terminal = first
        .ok()
        .and_then(|(_, mut descriptors)| descriptors.pop());
    Ok((reader, terminal.ok_or_else(disabled)?))
}

async fn input_of(pages: &Pages, id: &ContainerId) -> Result<AttachedInput, Refusal> {
    let known = pages.agent.nested(InputOf(id.clone())).await;
    let known = known.map_err(unavailable)?.map_err(not_attached(id))?;
    if let Some(known) = known {
        return Ok(known);
    }
    let AttachedOutput::Terminal(reader) = output_of(pages, id).await? else {
        return Err(disabled());
    };
    let (_, terminal) = terminal(pages, reader).await?;
    let kept = pages.agent.nested(KeepInput(id.clone(), terminal)).await;
    kept.map_err(unavailable)?.map_err(not_attached(id))
}

/// The input while this caller uses it.
struct InputInUse {
    input: Arc<ContainerInput>,
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
    let AttachedInput {
        input,
        mut container,
    } = input_of(pages, &id).await?;
    records.take_any_time();
    asked.drop_call();
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
    // As in Mesos, the call ends with its container at the latest.
    if let Either::Left((followed, _)) = select(pin!(follow), pin!(container.changed())).await {
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
        let write = end.async_io(Interest::WRITABLE, |end| Ok(nix::unistd::write(end, rest)?));
        rest = &rest[write.await?..];
    }
    Ok(())
}
