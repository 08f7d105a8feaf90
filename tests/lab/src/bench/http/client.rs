//! An HTTP client for measurements: pages, calls, and event streams.
//!
//! One connection at a time, each driven by its own task. Calls can be pipelined. Neither redirects
//! nor retries.

use std::collections::VecDeque;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use v1::form::STREAM_ID;
use v1::recordio::Decoder;
use v1::{Form, Limits, Message};

use meros::output::error::{CliError, Outcome};

/// Bytes of the largest event.
const EVENT_MAX: usize = 64 << 20;

fn failed(what: &str, error: &dyn std::error::Error) -> CliError {
    CliError::because(format!("HTTP: {what}"), error)
}

/// A connection to one address.
pub struct Connection {
    host: String,
    send: SendRequest<Full<Bytes>>,
}

impl Connection {
    /// Connects to `host:port`.
    pub async fn open(address: &str) -> Outcome<Self> {
        let stream = TcpStream::connect(address).await;
        let stream = stream.map_err(|error| failed(address, &error))?;
        stream
            .set_nodelay(true)
            .map_err(|error| failed(address, &error))?;
        let (send, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(address, &error))?;
        tokio::task::spawn_local(async move {
            let _ = connection.await; // Requests get an error when it ends.
        });
        Ok(Self {
            host: address.to_owned(),
            send,
        })
    }

    /// The whole body of a page, in JSON.
    pub async fn get(&mut self, path: &str) -> Outcome<Bytes> {
        let (body, _) = self.ask(Method::GET, path, Form::Json, None).await?;
        collect(body).await
    }

    /// The whole reply to a call.
    pub async fn call(&mut self, path: &str, form: Form, call: &dyn Message) -> Outcome<Bytes> {
        let (body, _) = self.ask(Method::POST, path, form, Some(call)).await?;
        collect(body).await
    }

    /// The event stream that answers a call.
    pub async fn subscribe(
        mut self,
        path: &str,
        form: Form,
        call: &dyn Message,
    ) -> Outcome<Subscription> {
        let (body, id) = self.ask(Method::POST, path, form, Some(call)).await?;
        Ok(Subscription {
            id,
            form,
            body,
            decoder: Decoder::new(EVENT_MAX),
            records: VecDeque::new(),
            _connection: self,
        })
    }

    async fn ask(
        &mut self,
        method: Method,
        path: &str,
        form: Form,
        call: Option<&dyn Message>,
    ) -> Outcome<(Incoming, String)> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.host)
            .header(ACCEPT, form.media_type());
        if call.is_some() {
            request = request.header(CONTENT_TYPE, form.media_type());
        }
        let body = call.map_or_else(Vec::new, |call| form.write(call));
        let request = request.body(Full::new(body.into()));
        let request = request.map_err(|error| failed(path, &error))?;
        self.send
            .ready()
            .await
            .map_err(|error| failed(path, &error))?;
        let response = self.send.send_request(request).await;
        let response = response.map_err(|error| failed(path, &error))?;
        let status = response.status();
        let id = response.headers().get(STREAM_ID);
        let id = id.and_then(|id| id.to_str().ok()).unwrap_or_default();
        let (id, body) = (id.to_owned(), response.into_body());
        if status != StatusCode::OK && status != StatusCode::ACCEPTED {
            let problem = collect(body).await?;
            let problem = String::from_utf8_lossy(&problem).into_owned();
            return Err(CliError::new(format!("HTTP: {path}: {status}: {problem}")));
        }
        Ok((body, id))
    }
}

async fn collect(body: Incoming) -> Outcome<Bytes> {
    let whole = body.collect().await;
    Ok(whole.map_err(|error| failed("a body", &error))?.to_bytes())
}

/// Pipelined calls (HTTP/1.1), as Mesos' own library sends them.
pub struct Calls {
    head: String,
    form: Form,
    write: OwnedWriteHalf,
    sent: u64,
    replies: watch::Receiver<Replies>,
}

/// The replies.
#[derive(Default)]
struct Replies {
    /// Number of replies with status 202.
    accepted: u64,
    /// The first other reply, or the reason why the connection ended.
    problem: Option<String>,
}

impl Calls {
    /// Connects to `path` at `host:port`, for this stream.
    pub async fn open(address: &str, path: &str, form: Form, stream: &str) -> Outcome<Self> {
        let connection = TcpStream::connect(address).await;
        let connection = connection.map_err(|error| failed(address, &error))?;
        connection
            .set_nodelay(true)
            .map_err(|error| failed(address, &error))?;
        let (read, write) = connection.into_split();
        let (send, replies) = watch::channel(Replies::default());
        tokio::task::spawn_local(async move {
            let problem = answers(read, || send.send_modify(|replies| replies.accepted += 1)).await;
            send.send_modify(|replies| replies.problem = Some(problem));
        });
        let media = form.media_type();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: {media}\r\naccept: {media}\r\n{STREAM_ID}: {stream}\r\ncontent-length: "
        );
        Ok(Self {
            head,
            form,
            write,
            sent: 0,
            replies,
        })
    }

    /// Sends a call.
    pub async fn send(&mut self, call: &dyn Message) -> Outcome {
        self.unrefused()?;
        let body = self.form.write(call);
        let mut request = format!("{}{}\r\n\r\n", self.head, body.len()).into_bytes();
        request.extend(body);
        self.sent += 1;
        let written = self.write.write_all(&request).await;
        written.map_err(|error| failed("a call", &error))
    }

    /// Sends a call and waits until it and all earlier ones are accepted.
    pub async fn accepted(&mut self, call: &dyn Message) -> Outcome {
        self.send(call).await?;
        let sent = self.sent;
        let done = |replies: &Replies| replies.accepted >= sent || replies.problem.is_some();
        // The sender is dropped only after a problem.
        let _ = self.replies.wait_for(done).await;
        self.unrefused()
    }

    fn unrefused(&self) -> Outcome {
        match &self.replies.borrow().problem {
            Some(problem) => Err(CliError::new(format!("HTTP: {problem}"))),
            None => Ok(()),
        }
    }
}

/// Reads replies while they are 202 without a body, and counts each. Returns the first other one,
/// or the reason why the connection ended.
async fn answers(read: OwnedReadHalf, mut accepted: impl FnMut()) -> String {
    let mut lines = BufReader::new(read).lines();
    let mut is_status = true;
    loop {
        match lines.next_line().await {
            Ok(Some(line)) if is_status && !line.contains(" 202 ") => return line,
            Ok(Some(line)) => {
                if is_status {
                    accepted();
                }
                is_status = line.is_empty();
            }
            Ok(None) => return "the connection of the calls has ended".to_owned(),
            Err(error) => return error.to_string(),
        }
    }
}

/// An event stream. It is read only on demand.
pub struct Subscription {
    /// Stream id for later calls; empty if streams have none.
    pub id: String,
    form: Form,
    body: Incoming,
    decoder: Decoder,
    records: VecDeque<Bytes>,
    _connection: Connection,
}

impl Subscription {
    /// The next event.
    pub async fn next<M: Message + Default>(&mut self) -> Outcome<M> {
        loop {
            if let Some(record) = self.records.pop_front() {
                let event = self.form.read(&record, Limits::default());
                return event.map_err(|bad| failed("an event", &bad));
            }
            let Some(frame) = self.body.frame().await else {
                return Err(CliError::new("HTTP: the stream has ended"));
            };
            let frame = frame.map_err(|error| failed("a stream", &error))?;
            let Some(mut piece) = frame.data_ref().map(|data| &data[..]) else {
                continue;
            };
            let bad = |bad| failed("a stream", &bad);
            while let Some(record) = self.decoder.next(&mut piece).map_err(bad)? {
                self.records.push_back(record);
            }
        }
    }
}
