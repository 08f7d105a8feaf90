//! Calls of an agent's operator API over HTTP, each on a connection of its own.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use runtime::Clock;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use v1::schema::agent::{Call, Response as Answer};
use v1::{Form, Limits};

use crate::output::error::{CliError, Outcome};

/// The form of all messages.
pub const FORM: Form = Form::Protobuf;
/// The media type of streams.
const RECORDIO: &str = "application/recordio";
/// The time limit for a connection.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum bytes of an answer that is not a stream.
const ANSWER_MAX: usize = 1 << 20;

/// The body of a request.
type Sent = UnsyncBoxBody<Bytes, Infallible>;

/// An agent.
#[derive(Clone, Debug)]
pub struct AgentClient {
    address: String,
}

impl AgentClient {
    /// The agent that serves HTTP at this address.
    pub fn new(address: impl Into<String>) -> Self {
        let address = address.into();
        Self { address }
    }

    /// Sends a call; returns its answer, which may be empty.
    pub async fn call(&self, call: &Call) -> Outcome<Answer> {
        let media = FORM.media_type();
        let headers = [(CONTENT_TYPE.as_str(), media), (ACCEPT.as_str(), media)];
        let answer = self.request(&headers, whole(call)).await?;
        let bytes = self.read(answer).await?;
        let read = FORM.read(&bytes, Limits::default());
        read.map_err(|bad| self.failed(&bad))
    }

    /// Sends a call whose answer is a stream.
    pub async fn stream(&self, call: &Call) -> Outcome<Incoming> {
        let headers = [
            (CONTENT_TYPE.as_str(), FORM.media_type()),
            (ACCEPT.as_str(), RECORDIO),
            ("Message-Accept", FORM.media_type()),
        ];
        let answer = self.request(&headers, whole(call)).await?;
        Ok(answer.into_body())
    }

    /// Sends a stream of records until the channel is closed.
    pub async fn send(&self, records: mpsc::Receiver<Bytes>) -> Outcome {
        let headers = [
            (CONTENT_TYPE.as_str(), RECORDIO),
            ("Message-Content-Type", FORM.media_type()),
            (ACCEPT.as_str(), FORM.media_type()),
        ];
        let stream = futures_util::stream::unfold(records, |mut records| async move {
            let record = records.recv().await?;
            Some((Ok(Frame::data(record)), records))
        });
        let body = BodyExt::boxed_unsync(StreamBody::new(stream));
        self.request(&headers, body).await.map(|_| ())
    }

    async fn request(&self, headers: &[(&str, &str)], body: Sent) -> Outcome<Response<Incoming>> {
        let clock = Clock::real();
        let connecting = clock.timeout(DIAL_TIMEOUT, TcpStream::connect(&self.address));
        let connected = connecting.await.map_err(|late| self.failed(&late))?;
        let stream = connected.map_err(|error| self.failed(&error))?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.map_err(|error| self.failed(&error))?;
        // Ends with the sender and the body; its error reaches them.
        tokio::task::spawn_local(connection);
        let mut request = Request::post("/api/v1")
            .header(HOST, &self.address)
            .header(USER_AGENT, "meros");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body).map_err(|error| self.failed(&error))?;
        let answer = sender.send_request(request).await;
        let answer = answer.map_err(|error| self.failed(&error))?;
        if matches!(answer.status(), StatusCode::OK | StatusCode::ACCEPTED) {
            return Ok(answer);
        }
        let status = answer.status();
        let text = self.read(answer).await.unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        Err(CliError::new(format!(
            "the agent at {} answers {status}: {text}",
            self.address
        )))
    }

    async fn read(&self, answer: Response<Incoming>) -> Outcome<Bytes> {
        let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
        let body = body.map_err(|error| self.failed(&*error))?;
        Ok(body.to_bytes())
    }

    /// The error of a failed connection.
    pub fn failed(&self, error: &dyn std::error::Error) -> CliError {
        CliError::because(
            format_args!("no answer from the agent at {}", self.address),
            error,
        )
    }
}

fn whole(call: &Call) -> Sent {
    Full::new(Bytes::from(FORM.write(call))).boxed_unsync()
}
