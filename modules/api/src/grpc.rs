//! gRPC with unary calls over one connection, on h2: the client of a service, and the server of a
//! module.
//!
//! Knows no messages. Sizes are bounded on both sides, time by the caller. Left out, since no
//! module needs them: streaming, compression, names of servers, several connections.

use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::Poll;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream::{FuturesUnordered, StreamExt};
use h2::RecvStream;
use h2::client::SendRequest;
use h2::server::SendResponse;
use http_types::{HeaderMap, HeaderValue, Request, Response};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use tokio::io::{AsyncRead, AsyncWrite};

/// Maximum bytes of a message: the usage of about 4,000 executors. A client sends no longer
/// request, and ends the connection at a longer answer.
pub const MESSAGE_MAX: usize = 4 << 20;
/// The same for the windows and the frames in flight.
const WINDOW: u32 = MESSAGE_MAX as u32;
/// Maximum bytes of headers.
const HEADERS_MAX: u32 = 16 << 10;
/// Maximum concurrent calls of a connection.
const CALLS_MAX: u32 = 16;
/// Bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;
/// Characters of a status message that are encoded.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

/// A status other than success.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (gRPC status {code})")]
pub struct Status {
    /// The code, as in gRPC.
    pub code: u32,
    /// The reason.
    pub message: String,
}

impl Status {
    /// The request is invalid.
    pub const INVALID_ARGUMENT: u32 = 3;
    /// The request is too large.
    pub const RESOURCE_EXHAUSTED: u32 = 8;
    /// There is no such method.
    pub const UNIMPLEMENTED: u32 = 12;

    /// A status with this reason.
    pub fn new(code: u32, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, message }
    }
}

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Refused by the server, or too large to be sent. The connection goes on.
    #[error(transparent)]
    Refused(#[from] Status),
    /// The connection is over, or the answer violates the protocol.
    #[error("{0}")]
    Broken(String),
}

impl From<h2::Error> for CallError {
    fn from(error: h2::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

/// The client's side of a connection.
#[derive(Clone)]
pub struct Client(SendRequest<Bytes>);

impl Client {
    /// Begins a connection on this stream. The returned future carries it, and completes with the
    /// reason of its end.
    pub async fn connect<S>(
        stream: S,
    ) -> Result<(Self, impl Future<Output = String> + use<S>), CallError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut builder = h2::client::Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_header_list_size(HEADERS_MAX);
        let (send, connection) = builder.handshake(stream).await?;
        let carried = async move {
            match connection.await {
                Ok(()) => "the connection was closed".to_owned(),
                Err(error) => error.to_string(),
            }
        };
        Ok((Self(send), carried))
    }

    /// Calls the method at this path, and returns the message of the answer. Has no timeout.
    pub async fn call(&self, path: &str, message: &[u8]) -> Result<Vec<u8>, CallError> {
        if message.len() > MESSAGE_MAX {
            let size = message.len();
            let reason = format!("the request has {size} bytes: expected at most {MESSAGE_MAX}");
            return Err(Status::new(Status::RESOURCE_EXHAUSTED, reason).into());
        }
        let mut send = self.0.clone().ready().await?;
        let request = Request::post(format!("http://localhost{path}"))
            .header("te", "trailers")
            .header("content-type", "application/grpc")
            .body(())
            .map_err(|error| CallError::Broken(error.to_string()))?;
        let (response, mut body) = send.send_request(request, false)?;
        body.send_data(frame(message), true)?;
        let (head, mut body) = response.await?.into_parts();
        if head.status != 200 {
            return Err(CallError::Broken(format!("HTTP status {}", head.status)));
        }
        if let Some(status) = status_of(&head.headers)? {
            status?;
        }
        let bytes = read(&mut body).await?;
        let trailers = body.trailers().await?.unwrap_or_default();
        status_of(&trailers)?.ok_or_else(|| broken("an answer without a status"))??;
        Ok(unframe(&bytes)?.to_vec())
    }
}

fn broken(reason: &str) -> CallError {
    CallError::Broken(reason.to_owned())
}

/// A message after its prefix.
fn frame(message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(PREFIX + message.len());
    bytes.put_u8(0);
    // An answer of this size is refused by its reader.
    bytes.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    bytes.put_slice(message);
    bytes.freeze()
}

/// The only message in these bytes.
fn unframe(bytes: &[u8]) -> Result<&[u8], CallError> {
    let (prefix, message) = bytes
        .split_first_chunk::<PREFIX>()
        .ok_or_else(|| broken("a message without its length"))?;
    let [compressed, length @ ..] = *prefix;
    match (compressed, u32::from_be_bytes(length) as usize) {
        (0, length) if length == message.len() => Ok(message),
        (0, _) => Err(broken("a message of another length than announced")),
        _ => Err(broken("a compressed message")),
    }
}

async fn read(body: &mut RecvStream) -> Result<Vec<u8>, CallError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        if bytes.len() + chunk.len() > MESSAGE_MAX + PREFIX {
            return Err(broken("a message above 4 MiB"));
        }
        bytes.extend_from_slice(&chunk);
        body.flow_control().release_capacity(chunk.len())?;
    }
    Ok(bytes)
}

/// The status in these headers, if there is one.
fn status_of(headers: &HeaderMap) -> Result<Option<Result<(), Status>>, CallError> {
    let Some(code) = headers.get("grpc-status") else {
        return Ok(None);
    };
    let code = code.to_str().ok().and_then(|code| code.parse().ok());
    let code = code.ok_or_else(|| broken("a status that is not a number"))?;
    let message = headers.get("grpc-message").map_or("", |message| {
        message.to_str().unwrap_or("a message that is not text")
    });
    let message = percent_decode_str(message).decode_utf8_lossy();
    Ok(Some(match code {
        0 => Ok(()),
        _ => Err(Status::new(code, message)),
    }))
}

/// Answers the calls of a connection by path and message until its end.
pub async fn serve<S, F>(stream: S, answer: F) -> Result<(), CallError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Fn(&str, &[u8]) -> Result<Vec<u8>, Status>,
{
    let mut builder = h2::server::Builder::new();
    builder
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_header_list_size(HEADERS_MAX)
        .max_concurrent_streams(CALLS_MAX);
    let mut connection = builder.handshake(stream).await?;
    let answer = Rc::new(answer);
    let mut calls = FuturesUnordered::new();
    loop {
        let next = poll_fn(|cx| {
            // A failed call is seen by its caller.
            while let Poll::Ready(Some(_)) = calls.poll_next_unpin(cx) {}
            connection.poll_accept(cx)
        });
        match next.await {
            Some(call) => {
                let (request, respond) = call?;
                let answer = answer.clone();
                calls.push(Box::pin(answer_call(request, respond, answer)));
            }
            None => return Ok(()),
        }
    }
}

async fn answer_call<F>(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    answer: Rc<F>,
) -> Result<(), CallError>
where
    F: Fn(&str, &[u8]) -> Result<Vec<u8>, Status>,
{
    let (head, mut body) = request.into_parts();
    let bytes = read(&mut body).await?;
    let answered = answer(head.uri.path(), unframe(&bytes)?);
    let mut response = Response::new(());
    let headers = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("application/grpc"));
    match answered {
        Ok(message) => {
            let mut body = respond.send_response(response, false)?;
            body.send_data(frame(&message), false)?;
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from(0));
            body.send_trailers(trailers)?;
        }
        Err(status) => {
            headers.insert("grpc-status", HeaderValue::from(status.code));
            let message = utf8_percent_encode(&status.message, ENCODED).to_string();
            if let Ok(message) = HeaderValue::from_str(&message) {
                headers.insert("grpc-message", message);
            }
            respond.send_response(response, true)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::{Either, select};
    use runtime::testing::run_simulated;

    /// Calls a server in memory that answers with the reversed message.
    fn call(path: &str, message: &[u8]) -> Result<Vec<u8>, CallError> {
        run_simulated(async {
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            let server = serve(theirs, |path, message| match path {
                "/reverse" => Ok(message.iter().rev().copied().collect()),
                "/empty" => Ok(Vec::new()),
                "/grow" => Ok(vec![0; MESSAGE_MAX + 1]),
                _ => Err(Status::new(Status::UNIMPLEMENTED, "no `é` at 100 %")),
            });
            let client = async {
                let (client, carried) = Client::connect(ours).await?;
                let call = client.call(path, message);
                match select(Box::pin(call), Box::pin(carried)).await {
                    Either::Left((answer, _)) => answer,
                    Either::Right((end, _)) => Err(CallError::Broken(end)),
                }
            };
            match select(Box::pin(client), Box::pin(server)).await {
                Either::Left((answer, _)) => answer,
                Either::Right((end, _)) => panic!("the server has ended: {end:?}"),
            }
        })
    }

    #[test]
    fn calls_are_answered() {
        assert_eq!(call("/reverse", b"abc").unwrap(), b"cba");
        assert_eq!(call("/reverse", b"").unwrap(), b"");
        let large: Vec<u8> = (0..1 << 20).map(|n| n as u8).collect();
        let reversed: Vec<u8> = large.iter().rev().copied().collect();
        assert_eq!(call("/reverse", &large).unwrap(), reversed);
    }

    #[test]
    fn refusal_has_code_and_reason() {
        let refused = Status::new(Status::UNIMPLEMENTED, "no `é` at 100 %");
        assert_eq!(call("/other", b""), Err(refused.into()));
    }

    #[test]
    fn requests_above_the_maximum_are_not_sent() {
        let error = call("/reverse", &vec![0; MESSAGE_MAX + 1]).unwrap_err();
        let reason = "the request has 4194305 bytes: expected at most 4194304";
        let refused = Status::new(Status::RESOURCE_EXHAUSTED, reason);
        assert_eq!(error, refused.into());
        assert_eq!(call("/empty", &vec![0; MESSAGE_MAX]).unwrap(), b"");
    }

    #[test]
    fn answers_above_the_maximum_are_refused() {
        let error = call("/grow", b"").unwrap_err();
        assert_eq!(error, broken("a message above 4 MiB"));
    }
}
