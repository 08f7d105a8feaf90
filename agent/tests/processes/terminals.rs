//! Terminals of containers, sessions, and the callers that attach to them, with real processes.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use axum::Router;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::Request;
use axum::response::Response;
use futures_util::StreamExt;
use http::api::EventStreams;
use http::testing::{fetch, request, send};
use protocol::task::container::ContainerInfo;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use v1::convert::operator::process_io::{Records, record};
use v1::schema::agent::{Call, ProcessIO, ProcessIODataType};
use v1::{Form, Limits};

use super::*;

const JSON: &str = "application/json";

/// A task with a terminal.
fn with_terminal(id: &str, line: &str) -> TaskInfo {
    let mut task = shell(id, line);
    task.container = Some(Box::new(ContainerInfo {
        has_terminal: true,
        ..ContainerInfo::default()
    }));
    task
}

fn call(kind: &str, body: Value) -> Request {
    let call = json!({ "type": kind, kind.to_lowercase(): body });
    let mut request = request("POST", "/api/v1", JSON, call.to_string());
    if kind.starts_with("ATTACH") || kind.ends_with("SESSION") {
        let headers = request.headers_mut();
        headers.insert("Accept", "application/recordio".parse().unwrap());
        headers.insert("Message-Accept", JSON.parse().unwrap());
    }
    request
}

/// A stream of output.
struct Output {
    pieces: BodyDataStream,
    records: Records<ProcessIO>,
    text: String,
}

impl Output {
    fn of(response: Response) -> Self {
        assert_eq!(response.status(), 200);
        Self {
            pieces: response.into_body().into_data_stream(),
            records: Records::new(Form::Json, Limits::default(), 1 << 20),
            text: String::new(),
        }
    }

    /// Reads a piece. Whether there was one; an error if the reader was cut off.
    async fn piece(&mut self) -> Result<bool, axum::Error> {
        let clock = Clock::real();
        let next = clock.timeout(Duration::from_secs(20), self.pieces.next());
        let Some(piece) = next.await.expect("output in time") else {
            return Ok(false);
        };
        let piece = piece?;
        let mut piece = &piece[..];
        while let Some(io) = self.records.next(&mut piece).unwrap() {
            if let Some((_, bytes)) = io.bytes() {
                self.text += std::str::from_utf8(bytes).unwrap();
            }
        }
        Ok(true)
    }

    async fn until(&mut self, wanted: &str) {
        while !self.text.contains(wanted) {
            assert!(self.piece().await.unwrap(), "{wanted} in {}", self.text);
        }
    }

    /// The whole text, up to the end.
    async fn whole(mut self) -> Result<String, axum::Error> {
        while self.piece().await? {}
        Ok(self.text)
    }
}

/// A stream of input, and its answer.
struct Input {
    records: mpsc::Sender<Bytes>,
    answer: JoinHandle<(u16, String)>,
}

impl Input {
    fn attach(routes: &Router, id: &Value) -> Self {
        let first = json!({ "type": "ATTACH_CONTAINER_INPUT", "attach_container_input": {
            "type": "CONTAINER_ID", "container_id": id,
        }});
        let first = v1::json::read::<Call>(first.to_string().as_bytes(), Limits::default());
        let (records, receiver) = mpsc::channel(64);
        records
            .try_send(record(Form::Json, &first.unwrap()).into())
            .unwrap();
        let stream = futures_util::stream::unfold(receiver, |mut receiver| async move {
            Some((Ok::<_, std::io::Error>(receiver.recv().await?), receiver))
        });
        let body = Body::from_stream(stream);
        let mut request = request("POST", "/api/v1", "application/recordio", body);
        let json = JSON.parse().unwrap();
        request.headers_mut().insert("Message-Content-Type", json);
        let routes = routes.clone();
        let answer = tokio::task::spawn_local(async move { fetch(&routes, request).await });
        Self { records, answer }
    }

    fn send(&self, io: ProcessIO) {
        let record = record(Form::Json, &io.into_call());
        self.records.try_send(record.into()).unwrap();
    }

    fn keys(&self, keys: &'static str) {
        self.send(ProcessIO::data(ProcessIODataType::Stdin, keys.as_bytes()));
    }

    async fn answer(self) -> (u16, String) {
        let clock = Clock::real();
        let answer = clock.timeout(Duration::from_secs(20), self.answer);
        answer.await.expect("an answer in time").unwrap()
    }
}

impl World {
    fn routes(&self) -> Router {
        let counters = meros_agent::counters(&self.agent);
        let streams = EventStreams::new(&self.node);
        meros_agent::routes(&self.agent, &self.node, counters, &streams)
    }

    /// The id of a running task's container.
    async fn container(&self, task: &str) -> Value {
        self.is(task, TaskState::Running).await;
        let id = self.master.last(task).unwrap().status.container_id.unwrap();
        json!({ "value": id })
    }
}

async fn attach(routes: &Router, id: &Value) -> Output {
    let about = json!({ "container_id": id });
    Output::of(send(routes, call("ATTACH_CONTAINER_OUTPUT", about)).await)
}

// Covers 5.6 in part: ATTACH_CONTAINER_OUTPUT, tty_info.
#[test]
fn callers_use_the_terminal_of_a_task() {
    world(|world| async move {
        let routes = world.routes();
        let line = "test -t 0 && test -t 1 && test -t 2 && : > /dev/tty && echo terminal; \
             while read line; do echo \"got $line\"; \
             case $line in size) stty size;; end) exit 3;; esac; done";
        world.master.run(vec![with_terminal("t", line)]);
        let id = world.container("t").await;
        let (mut one, mut other) = (attach(&routes, &id).await, attach(&routes, &id).await);
        let input = Input::attach(&routes, &id);
        input.send(ProcessIO::window(24, 80));
        input.keys("size\n");
        one.until("24 80").await;
        other.until("24 80").await;
        let (status, text) = Input::attach(&routes, &id).answer().await;
        assert_eq!(status, 409, "{text}");
        let Input { records, answer } = input;
        drop(records);
        assert_eq!(answer.await.unwrap().0, 200);
        // Another one may follow. It ends with the task.
        let input = Input::attach(&routes, &id);
        input.keys("end\n");
        let end = world.ends("t").await;
        assert_eq!(end.termination, Some(Termination::Exited(3)));
        assert_eq!(input.answer().await.0, 200);
        for reader in [one, other] {
            let text = reader.whole().await.unwrap();
            assert!(text.contains("got size\r\n24 80\r\n"), "{text}");
            assert!(text.ends_with("got end\r\n"), "{text}");
        }
        let stdout = String::from_utf8(world.file("t", "stdout").await).unwrap();
        assert!(stdout.starts_with("terminal\r\n"), "{stdout}");
        assert!(stdout.ends_with("got end\r\n"), "{stdout}");
        assert_eq!(world.processes(), Vec::<i32>::new());
    });
}

#[test]
fn slow_reader_blocks_neither_the_task_nor_others() {
    world(|world| async move {
        let routes = world.routes();
        let line = "read line; head -c 6000000 /dev/zero | tr '\\0' x; echo; echo over; read line";
        world.master.run(vec![with_terminal("t", line)]);
        let id = world.container("t").await;
        let (slow, mut other) = (attach(&routes, &id).await, attach(&routes, &id).await);
        let input = Input::attach(&routes, &id);
        input.keys("go\n");
        // It may have missed some, but not the newest.
        other.until("over").await;
        input.keys("end\n");
        assert_eq!(world.ends("t").await.state, TaskState::Finished);
        assert!(other.whole().await.is_ok());
        assert!(slow.whole().await.is_err(), "it has not all");
        assert!(world.chunk("t", "stdout").await.size > 6_000_000);
    });
}

#[test]
fn session_has_further_readers_and_ends_its_input() {
    world(|world| async move {
        let routes = world.routes();
        world.master.run(vec![shell("t", "exec sleep 1000")]);
        let parent = world.container("t").await;
        for container in [json!({}), json!({ "type": "MESOS", "tty_info": {} })] {
            let id = json!({ "value": "session", "parent": parent });
            let line = "echo ready; read line; echo $line; echo bad >&2";
            let mut session = json!({ "container_id": id, "command": { "value": line } });
            if container.get("type").is_some() {
                session["container"] = container;
            }
            let session = send(&routes, call("LAUNCH_NESTED_CONTAINER_SESSION", session)).await;
            let mut session = Output::of(session);
            session.until("ready").await;
            let further = attach(&routes, &id).await;
            let input = Input::attach(&routes, &id);
            input.keys("typed\n");
            // Its end is that of the session: its sender stays.
            assert_eq!(
                session.whole().await.map(|text| text.contains("bad")).ok(),
                Some(true)
            );
            let text = further.whole().await.unwrap();
            assert!(text.contains("typed") && text.contains("bad"), "{text}");
            assert_eq!(input.answer().await.0, 200);
            let about = json!({ "container_id": id });
            let ended = fetch(&routes, call("WAIT_NESTED_CONTAINER", about.clone())).await;
            assert_eq!(ended.0, 200);
            let removed = fetch(&routes, call("REMOVE_NESTED_CONTAINER", about)).await;
            assert_eq!(removed.0, 200, "{}", removed.1);
        }
    });
}

#[test]
fn nested_container_on_request_has_a_terminal() {
    world(|world| async move {
        let routes = world.routes();
        world.master.run(vec![shell("t", "exec sleep 1000")]);
        let parent = world.container("t").await;
        let id = json!({ "value": "inner", "parent": parent });
        let launch = json!({
            "container_id": id,
            "command": { "value": "read line; echo got $line" },
            "container": { "type": "MESOS", "tty_info": {} },
        });
        let launched = fetch(&routes, call("LAUNCH_NESTED_CONTAINER", launch)).await;
        assert_eq!(launched, (200, String::new()));
        let shown = json!({ "show_nested": true });
        let (_, shown) = fetch(&routes, call("GET_CONTAINERS", shown)).await;
        let shown: Value = serde_json::from_str(&shown).unwrap();
        let ids = shown["get_containers"]["containers"].as_array().unwrap();
        let ids: Vec<&Value> = ids
            .iter()
            .map(|one| &one["container_id"]["value"])
            .collect();
        assert_eq!(ids, [&parent["value"], &json!("inner")]);
        let output = attach(&routes, &id).await;
        let input = Input::attach(&routes, &id);
        input.keys("it\n");
        let text = output.whole().await.unwrap();
        assert!(text.ends_with("got it\r\n"), "{text}");
        assert_eq!(input.answer().await.0, 200);
    });
}

#[test]
fn container_without_a_terminal_is_refused_in_mesos_words() {
    world(|world| async move {
        let routes = world.routes();
        world.master.run(vec![shell("t", "exec sleep 1000")]);
        let id = world.container("t").await;
        let disabled = "I/O switchboard server was disabled for this container";
        let inner = json!({ "value": "gone", "parent": id });
        let unknown = format!("Unknown container {}.gone", id["value"].as_str().unwrap());
        let nowhere = json!({ "value": "nowhere" });
        for (id, status, words) in [
            (&id, 500, disabled),
            (&inner, 500, unknown.as_str()),
            (&nowhere, 404, "Container nowhere cannot be found"),
        ] {
            let expected = (status, words.to_owned());
            let about = json!({ "container_id": id });
            let output = fetch(&routes, call("ATTACH_CONTAINER_OUTPUT", about)).await;
            assert_eq!(output, expected);
            assert_eq!(Input::attach(&routes, id).answer().await, expected);
        }
    });
}

/// A new agent process finds the terminal at the container's init.
#[test]
fn terminal_outlives_the_agent() {
    let runtime = || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        { runtime }.enable_all().build().unwrap()
    };
    let work_dir = tempfile::tempdir().unwrap();
    let start = || ZygoteLauncher::start(&zygote_program(), &[], work_dir.path(), PATIENCE);
    let id = ContainerId::new("c").unwrap();
    let request = LaunchRequest {
        container_id: id.clone(),
        program: ContainerProgram::Command(CommandInfo::shell(
            "while read line; do echo got $line; done",
        )),
        sandbox: work_dir.path().to_owned(),
        environment: Default::default(),
        user: None,
        account: None,
        outlives: true,
        grace: Duration::from_secs(1),
        plan: LaunchPlan::default(),
        session: None,
        has_terminal: true,
    };
    let mut request = Some(request);
    for _ in 0..2 {
        let runtime = runtime();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let mut launcher = start().unwrap();
            launcher.left();
            launcher.attach(Arc::new(|_| ()));
            if let Some(request) = request.take() {
                launcher.launch(request).unwrap();
            }
            let (mut reader, writer) = UnixStream::pair().unwrap();
            launcher.attach_reader(&id, writer.into());
            reader
                .set_read_timeout(Some(Duration::from_secs(20)))
                .unwrap();
            let used = tokio::task::spawn_blocking(move || {
                let (length, mut terminal) =
                    meros_agent::host::sys::receive(&reader, &mut [0]).unwrap();
                assert_eq!(length, 1);
                let terminal = terminal.pop().expect("the terminal");
                std::fs::File::from(terminal).write_all(b"it\n").unwrap();
                let mut text = Vec::new();
                while !text.ends_with(b"got it\r\n") {
                    let mut buffer = [0; 1024];
                    let length = reader.read(&mut buffer).unwrap();
                    assert_ne!(length, 0, "{text:?}");
                    text.extend_from_slice(&buffer[..length]);
                }
            });
            used.await.unwrap();
        });
    }
    let stdout = std::fs::read_to_string(work_dir.path().join("stdout")).unwrap();
    assert_eq!(stdout.matches("got it").count(), 2, "{stdout}");
    meros_agent::launcher::clean_up(&zygote_program(), &[], work_dir.path()).unwrap();
}
