//! A minimal gRPC client for etcd: each call has its own stream, with many streams on a connection.
//!
//! Avoids etcd's JSON gateway, which is slower. HTTP/2 comes from `h2`; the few messages are
//! encoded by hand. Supports neither TLS nor deadlines nor compression, which etcd does not use by
//! default.

use std::error::Error;
use std::net::SocketAddr;

use axum::http::{HeaderMap, Method, Request, StatusCode, Uri};
use bytes::Bytes;
use h2::client::SendRequest;
use tokio::net::TcpStream;

use meros::output::error::{CliError, Outcome};

/// Largest accepted reply, in bytes.
const ANSWER_MAX: usize = 1 << 20;

/// One connection to one member.
#[derive(Clone)]
pub struct Connection {
    requests: SendRequest<Bytes>,
    address: SocketAddr,
}

fn failed(error: &dyn Error) -> CliError {
    CliError::because("etcd could not be asked", error)
}

impl Connection {
    /// Connects. This thread serves the connection while any clone of it lives.
    pub async fn open(address: SocketAddr) -> Outcome<Self> {
        let stream = TcpStream::connect(address).await;
        let stream = stream.map_err(|error| failed(&error))?;
        stream.set_nodelay(true).map_err(|error| failed(&error))?;
        let opened = h2::client::handshake(stream).await;
        let (requests, connection) = opened.map_err(|error| failed(&error))?;
        // Pending calls get an error when the connection ends.
        drop(tokio::task::spawn_local(connection));
        Ok(Self { requests, address })
    }

    /// The URI of a method at this member.
    pub fn method(&self, path: &str) -> Outcome<Uri> {
        let uri = Uri::try_from(format!("http://{}{path}", self.address));
        uri.map_err(|error| failed(&error))
    }

    /// Sends a request and returns the message of the reply.
    pub async fn ask(&self, method: &Uri, message: &[u8]) -> Outcome<Vec<u8>> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(method.clone())
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .map_err(|error| failed(&error))?;
        let ready = self.requests.clone().ready().await;
        let mut requests = ready.map_err(|error| failed(&error))?;
        let (response, mut body) = requests
            .send_request(request, false)
            .map_err(|error| failed(&error))?;
        let mut frame = vec![0];
        frame.extend((message.len() as u32).to_be_bytes());
        frame.extend(message);
        body.send_data(frame.into(), true)
            .map_err(|error| failed(&error))?;
        let (head, mut body) = response.await.map_err(|error| failed(&error))?.into_parts();
        let mut answer = Vec::new();
        while let Some(data) = body.data().await {
            let data = data.map_err(|error| failed(&error))?;
            answer.extend_from_slice(&data);
            if answer.len() > ANSWER_MAX {
                return Err(CliError::new(format!(
                    "etcd answered more than {ANSWER_MAX} bytes"
                )));
            }
            let flow = body.flow_control();
            flow.release_capacity(data.len())
                .map_err(|error| failed(&error))?;
        }
        let trailers = body.trailers().await.map_err(|error| failed(&error))?;
        judge(head.status, trailers.as_ref().unwrap_or(&head.headers))?;
        match answer.get(..5) {
            Some([0, ..]) => Ok(answer.split_off(5)),
            _ => Err(CliError::new("etcd answered no plain message")),
        }
    }
}

fn judge(status: StatusCode, trailers: &HeaderMap) -> Outcome {
    let text = |name| {
        let value = trailers.get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or("none")
    };
    match (status, text("grpc-status")) {
        (StatusCode::OK, "0") => Ok(()),
        (status, code) => Err(CliError::new(format!(
            "etcd refused: HTTP status {status}, gRPC status {code}, {}",
            text("grpc-message")
        ))),
    }
}

/// One field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field<'a> {
    /// A number.
    Number(u64),
    /// Text, bytes, or a nested message.
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    /// The number; 0 for other types.
    pub fn number(self) -> u64 {
        match self {
            Self::Number(number) => number,
            Self::Bytes(_) => 0,
        }
    }

    /// The bytes; empty for a number.
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Self::Number(_) => &[],
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// The first field of this number; `None` if the message ends before or is malformed.
pub fn field(mut message: &[u8], wanted: u64) -> Option<Field<'_>> {
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        let found = match tag & 7 {
            0 => Field::Number(varint(&mut message)?),
            1 => Field::Bytes(message.split_off(..8)?),
            2 => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                Field::Bytes(message.split_off(..length)?)
            }
            5 => Field::Bytes(message.split_off(..4)?),
            _ => return None,
        };
        if tag >> 3 == wanted {
            return Some(found);
        }
    }
    None
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = *message.split_off_first()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Appends a field of bytes to a message.
pub fn put_bytes(message: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    message.push(number << 3 | 2);
    let mut length = bytes.len();
    while length >= 0x80 {
        message.push(length as u8 | 0x80);
        length >>= 7;
    }
    message.push(length as u8);
    message.extend(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let mut inner = Vec::new();
        put_bytes(&mut inner, 1, b"key");
        put_bytes(&mut inner, 2, &[7; 300]);
        let mut message = vec![3 << 3, 0x96, 0x01];
        put_bytes(&mut message, 4, &inner);
        assert_eq!(field(&message, 3), Some(Field::Number(150)));
        let inner = field(&message, 4).unwrap().bytes();
        assert_eq!(field(inner, 1), Some(Field::Bytes(b"key")));
        assert_eq!(field(inner, 2), Some(Field::Bytes(&[7; 300])));
        assert_eq!(field(inner, 3), None);
    }

    #[test]
    fn a_garbled_message_has_no_field() {
        for message in [&[0x0a, 5, 1][..], &[0x08], &[0x0b], &[0xff; 12], &[0x09, 1]] {
            assert_eq!(field(message, 1), None, "{message:?}");
        }
    }

    #[test]
    fn only_two_zeros_are_success() {
        let with = |code: &'static str| {
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", axum::http::HeaderValue::from_static(code));
            trailers
        };
        assert!(judge(StatusCode::OK, &with("0")).is_ok());
        assert!(judge(StatusCode::OK, &with("14")).is_err());
        assert!(judge(StatusCode::OK, &HeaderMap::new()).is_err());
        assert!(judge(StatusCode::BAD_GATEWAY, &with("0")).is_err());
    }
}
