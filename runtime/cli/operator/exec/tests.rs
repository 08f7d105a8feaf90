//! Sessions with a scripted agent, over real connections.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use http_body_util::BodyExt;
use protocol::{CommandInfo, ContainerId};
use testkit::assert_contains;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use v1::Limits;
use v1::convert::operator::nested::{NestedCall, nested_call};
use v1::convert::operator::process_io::{ProcessInput, Records, process_input, record};
use v1::schema::agent::{
    Call, ProcessIO, ProcessIODataType, Response as Answer, ResponseWaitNestedContainer,
};

use super::client::{AgentClient, FORM};
use super::session::Session;
use crate::on_this_thread;
use crate::output::error::Outcome;

/// An agent that runs one session: it repeats the input and ends with this status.
#[derive(Clone)]
struct ScriptedAgent {
    status: Option<i32>,
    seen: Arc<Mutex<Vec<String>>>,
    /// The whole input, once it has ended.
    typed: watch::Sender<Option<String>>,
    /// Whether the output was sent.
    ended: watch::Sender<bool>,
}

impl ScriptedAgent {
    fn log(&self, line: impl Into<String>) {
        self.seen.lock().unwrap().push(line.into());
    }

    async fn answer(&self, call: Call) -> Response {
        match nested_call(&call).unwrap().unwrap() {
            NestedCall::Launch(launch) => {
                let command = launch.command.unwrap();
                let tty = launch.container.is_some_and(|one| one.has_terminal);
                self.log(format!(
                    "{} tty {tty}: {:?}",
                    command.value, command.arguments
                ));
                if command.value == "missing" {
                    return (StatusCode::BAD_REQUEST, "No such file").into_response();
                }
                let agent = self.clone();
                let output = futures_util::stream::once(async move {
                    let mut typed = agent.typed.subscribe();
                    let typed = typed.wait_for(Option::is_some).await.unwrap().clone();
                    agent.ended.send_replace(true);
                    let io = |stream, text: String| {
                        record(FORM, &ProcessIO::data(stream, text.into_bytes()))
                    };
                    let out = io(ProcessIODataType::Stdout, typed.unwrap());
                    let err = io(ProcessIODataType::Stderr, "oops".to_owned());
                    Ok::<_, std::io::Error>([out, err].concat())
                });
                Body::from_stream(output).into_response()
            }
            NestedCall::Wait(_) => {
                let mut ended = self.ended.subscribe();
                ended.wait_for(|ended| *ended).await.unwrap();
                let answer = Answer {
                    wait_nested_container: Some(Box::new(ResponseWaitNestedContainer {
                        exit_status: self.status,
                        ..Default::default()
                    })),
                    ..Answer::default()
                };
                FORM.write(&answer).into_response()
            }
            NestedCall::Remove(_) => {
                self.log("removed");
                StatusCode::OK.into_response()
            }
            other => panic!("{other:?}"),
        }
    }

    async fn read_input(&self, mut body: Body) -> Response {
        let mut records = Records::<Call>::new(FORM, Limits::default(), 1 << 20);
        let (mut typed, mut is_first) = (String::new(), true);
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { break };
            let piece = frame.into_data().unwrap();
            let mut piece = &piece[..];
            while let Some(call) = records.next(&mut piece).unwrap() {
                if std::mem::take(&mut is_first) {
                    let first = nested_call(&call).unwrap().unwrap();
                    assert!(matches!(first, NestedCall::AttachInput(_)), "{first:?}");
                    continue;
                }
                match process_input(&call).unwrap() {
                    ProcessInput::Data(data) if data.is_empty() || *data == *b"\x04" => {
                        self.log("end of input");
                        self.typed.send_replace(Some(typed.clone()));
                    }
                    ProcessInput::Data(data) => typed += std::str::from_utf8(&data).unwrap(),
                    ProcessInput::Window { rows, columns } => {
                        self.log(format!("window {rows}x{columns}"));
                    }
                    ProcessInput::Heartbeat => {}
                }
            }
        }
        StatusCode::OK.into_response()
    }
}

async fn serve(State(agent): State<ScriptedAgent>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    if head.headers["content-type"] == "application/recordio" {
        return agent.read_input(body).await;
    }
    let bytes = body.collect().await.unwrap().to_bytes();
    agent
        .answer(FORM.read(&bytes, Limits::default()).unwrap())
        .await
}

/// What a session printed and its agent saw.
struct Ran {
    code: Outcome<u8>,
    out: String,
    err: String,
    seen: Vec<String>,
}

fn run(command: &str, status: Option<i32>, input: Option<&'static str>, tty: bool) -> Ran {
    let ran = on_this_thread(async {
        let agent = ScriptedAgent {
            status,
            seen: Arc::default(),
            typed: watch::Sender::new(input.is_none().then(String::new)),
            ended: watch::Sender::new(false),
        };
        let seen = agent.seen.clone();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let routes = Router::new()
            .route("/api/v1", post(serve))
            .with_state(agent);
        tokio::spawn(async move { axum::serve(listener, routes).await });
        let session = Session {
            agent: AgentClient::new(address.to_string()),
            id: "task.session".parse::<ContainerId>().unwrap(),
            command: Some(CommandInfo::program(command, ["x".to_owned()])),
            has_terminal: tty,
            window: || Some((24, 80)),
        };
        let input = match input {
            Some(text) => {
                let (sender, receiver) = mpsc::channel(1);
                sender
                    .send(Bytes::from_static(text.as_bytes()))
                    .await
                    .unwrap();
                Some(receiver)
            }
            None => None,
        };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let print_out = |bytes: &[u8]| {
            out.extend_from_slice(bytes);
            Ok(())
        };
        let print_err = |bytes: &[u8]| {
            err.extend_from_slice(bytes);
            Ok(())
        };
        let code = session.run(input, print_out, print_err).await;
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let seen = std::mem::take(&mut *seen.lock().unwrap());
        let (out, err) = (text(out), text(err));
        Ran {
            code,
            out,
            err,
            seen,
        }
    });
    ran.unwrap()
}

#[test]
fn a_session_prints_its_output_and_has_its_exit_code() {
    let ran = run("true", Some(3 << 8), None, false);
    assert_eq!(ran.code.unwrap(), 3);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", "oops"));
    let command = r#"true tty false: ["true", "x"]"#;
    assert_eq!(ran.seen, [command, "removed"]);
    let killed = run("true", Some(9), None, false);
    assert_eq!(killed.code.unwrap(), 137);
    let unknown = run("true", None, None, false).code.unwrap_err();
    assert!(unknown.to_string().contains("no exit status"), "{unknown}");
}

#[test]
fn input_reaches_the_command_until_its_end() {
    let ran = run("cat", Some(0), Some("hello"), false);
    assert_eq!(ran.code.unwrap(), 0);
    assert_eq!(ran.out, "hello");
    assert_eq!(ran.seen[1..], ["end of input", "removed"]);
}

#[test]
fn a_terminal_has_the_size_of_ours() {
    let ran = run("sh", Some(0), Some("ls"), true);
    assert_eq!(ran.code.unwrap(), 0);
    assert_eq!(ran.out, "ls");
    let expected = [
        r#"sh tty true: ["sh", "x"]"#,
        "window 24x80",
        "end of input",
        "removed",
    ];
    assert_eq!(ran.seen, expected);
}

#[test]
fn a_refused_session_has_the_agents_words() {
    let refused = run("missing", None, None, false).code.unwrap_err();
    assert_contains!(refused.to_string(), "400 Bad Request: No such file");
}
