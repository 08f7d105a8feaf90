//! The beginning of a connection: the subject of the peer's certificate, and the hello.
//!
//! Reads nothing after the hello. Name and role in the hello must match the certificate.

use std::net::SocketAddr;

use quinn::{
    Connection, ConnectionError, ReadError, ReadExactError, RecvStream, SendStream, WriteError,
};
use runtime::{ConnectError, Hello, Node, Peer, Role};
use rustls_pki_types::CertificateDer;

use super::Closing;
use crate::certificates::Subject;

/// The reason why a connection does not become a link.
#[derive(Debug)]
pub(super) enum Failure {
    /// The connection was lost, or the peer closed it.
    Lost(ConnectionError),
    /// This side closes it, with this reason.
    Close(Closing, String),
}

impl From<ConnectionError> for Failure {
    fn from(error: ConnectionError) -> Self {
        Self::Lost(error)
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::ConnectionLost(error) => Self::Lost(error),
            error => Self::Close(Closing::Garbled, format!("hello was not taken: {error}")),
        }
    }
}

impl From<ReadExactError> for Failure {
    fn from(error: ReadExactError) -> Self {
        match error {
            ReadExactError::ReadError(ReadError::ConnectionLost(error)) => Self::Lost(error),
            error => Self::Close(Closing::Garbled, format!("hello cannot be read: {error}")),
        }
    }
}

impl Failure {
    /// Closes the connection, if this side is to close it.
    pub(super) fn close(&self, connection: &Connection) {
        if let Self::Close(code, reason) = self {
            connection.close(code.code(), reason.as_bytes());
        }
    }
}

/// The subject of the peer's certificate, which TLS has verified.
pub(super) fn subject(connection: &Connection) -> Result<Subject, Failure> {
    let chain = connection
        .peer_identity()
        .and_then(|chain| chain.downcast::<Vec<CertificateDer<'static>>>().ok());
    let certificate = chain.as_ref().and_then(|chain| chain.first());
    let Some(certificate) = certificate else {
        return Err(Failure::Close(
            Closing::Refused,
            "no certificate was shown".into(),
        ));
    };
    Subject::of(certificate)
        .map_err(|reason| Failure::Close(Closing::Refused, format!("your certificate {reason}")))
}

/// Sends the node's hello at the start of a stream.
pub(super) async fn send_hello(node: &Node, stream: &mut SendStream) -> Result<(), Failure> {
    stream.write_all(&crate::hello::framed(node)).await?;
    Ok(())
}

/// Receives the peer's hello, and nothing after it.
pub(super) async fn receive_hello(stream: &mut RecvStream) -> Result<Hello, Failure> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).await?;
    let length =
        crate::hello::length(length).map_err(|reason| Failure::Close(Closing::Garbled, reason))?;
    let mut hello = vec![0; length];
    stream.read_exact(&mut hello).await?;
    Hello::decode(&hello).map_err(|garbled| Failure::Close(Closing::Garbled, garbled.to_string()))
}

/// The peer, if its hello matches its certificate.
pub(super) fn verified_peer(
    hello: &Hello,
    subject: &Subject,
    address: SocketAddr,
) -> Result<Peer, Failure> {
    if hello.node.name() != subject.name || hello.role != subject.role {
        let reason = format!(
            "hello says {} {}, the certificate says {subject}",
            hello.role,
            hello.node.name()
        );
        return Err(Failure::Close(Closing::Refused, reason));
    }
    Ok(Peer {
        node: hello.node.clone(),
        role: subject.role,
        address: dialable_address(subject.role, address),
    })
}

/// The address in a form that can be dialled.
fn dialable_address(role: Role, address: SocketAddr) -> String {
    match role {
        Role::Master => address.to_string(),
        role => format!("{role}@{address}"),
    }
}

/// The error for the caller of `connect`.
pub(super) fn connect_error(address: &str, failure: Failure) -> ConnectError {
    let refused = |reason: String| ConnectError::Refused {
        address: address.to_owned(),
        reason,
    };
    let unreachable = |reason: String| ConnectError::Unreachable {
        address: address.to_owned(),
        reason,
    };
    match failure {
        Failure::Close(_, reason) => refused(reason),
        Failure::Lost(ConnectionError::ApplicationClosed(close)) => {
            let reason = String::from_utf8_lossy(&close.reason).into_owned();
            if close.error_code == Closing::Farewell.code() {
                unreachable(reason)
            } else {
                refused(reason)
            }
        }
        Failure::Lost(ConnectionError::LocallyClosed) => ConnectError::ShuttingDown,
        Failure::Lost(ConnectionError::ConnectionClosed(close)) if is_refusal(&close) => {
            unreachable(
                "it takes no connections now: too many are beginning there, or it shuts down"
                    .into(),
            )
        }
        Failure::Lost(
            error @ (ConnectionError::ConnectionClosed(_)
            | ConnectionError::TransportError(_)
            | ConnectionError::VersionMismatch),
        ) => refused(error.to_string()),
        Failure::Lost(error) => unreachable(error.to_string()),
    }
}

fn is_refusal(close: &quinn::ConnectionClose) -> bool {
    close.error_code == quinn::TransportErrorCode::CONNECTION_REFUSED
}
