//! Dialling: from an address to a link.
//!
//! Each address is dialled once at a time; concurrent callers get the same link. A dial retries
//! until the host has replied or the handshake timeout has passed.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use futures_util::{FutureExt, select_biased};
use quinn::{Connecting, Connection, ConnectionError};
use runtime::{AttachError, ConnectError, Dialled, Peer, Role};

use super::handshake::{self, Failure};
use super::session::Session;
use super::{Closing, Shared, canonical};
use crate::certificates::{Subject, server_name};
use crate::quic::socket::address::Address;

/// A further attempt begins beside the earlier ones after this silence. QUIC repeats a first packet
/// after 1, 2, 4 and 8 s; with a new attempt every 2 s a starting host gets one packet per second.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Connects to the first reachable host of the address.
pub(super) async fn dial(shared: Arc<Shared>, text: String) -> Result<Peer, ConnectError> {
    let wanted = Address::parse(&text).map_err(|reason| ConnectError::Refused {
        address: text.clone(),
        reason,
    })?;
    let unreachable = |reason: String| ConnectError::Unreachable {
        address: text.clone(),
        reason,
    };
    let hosts = shared.sockets.lookup(&wanted.host).await;
    let hosts = hosts.map_err(|error| unreachable(error.to_string()))?;
    let mut last = unreachable("the host has no address that this node's socket can reach".into());
    for host in hosts.into_iter().filter(|host| shared.can_reach(*host)) {
        match dial_one(&shared, &text, canonical(host), wanted.role).await {
            Err(error @ ConnectError::Unreachable { .. }) => last = error,
            answer => return answer,
        }
    }
    Err(last)
}

impl Shared {
    /// An IPv4 socket cannot send to an IPv6 address.
    fn can_reach(&self, host: SocketAddr) -> bool {
        host.is_ipv4() || self.endpoint.local_addr().is_ok_and(|ours| ours.is_ipv6())
    }
}

async fn dial_one(
    shared: &Arc<Shared>,
    text: &str,
    host: SocketAddr,
    role: Role,
) -> Result<Peer, ConnectError> {
    let lock = shared.dial_lock(host);
    let held = lock.lock().await;
    let answer = match shared.linked_at(host).filter(|peer| peer.role == role) {
        Some(peer) => Ok(peer),
        None => {
            let patience = shared.options.handshake_timeout;
            match shared
                .node
                .clock()
                .timeout(patience, connect_and_link(shared, host, role))
                .await
            {
                Ok(answer) => answer.map_err(|failure| handshake::connect_error(text, failure)),
                Err(late) => Err(ConnectError::Unreachable {
                    address: text.to_owned(),
                    reason: late.to_string(),
                }),
            }
        }
    };
    drop(held);
    shared.release_dial_lock(host, lock);
    answer
}

async fn connect_and_link(
    shared: &Arc<Shared>,
    host: SocketAddr,
    role: Role,
) -> Result<Peer, Failure> {
    let connection = connect_with_retries(shared, host, role).await?.await?;
    let subject = handshake::subject(&connection)?;
    let answer = exchange_hellos(shared, &connection, &subject, host).await;
    match &answer {
        Err(Failure::Close(Closing::Duplicate, _)) => {}
        Err(Failure::Lost(ConnectionError::ApplicationClosed(close)))
            if close.error_code == Closing::Duplicate.code() => {}
        Err(failure) => {
            failure.close(&connection);
            return answer;
        }
        Ok(_) => return answer,
    }
    // Two connections have crossed, and the other one stays.
    connection.close(Closing::Duplicate.code(), b"already linked");
    let linked =
        shared.linked_as(|peer| peer.node.name() == subject.name && peer.role == subject.role);
    linked.map_or(answer, Ok)
}

/// The first attempt with a reply. Earlier attempts continue, since a slow host may reply to any of
/// them.
async fn connect_with_retries(
    shared: &Shared,
    host: SocketAddr,
    role: Role,
) -> Result<Connecting, Failure> {
    let clock = shared.node.clock();
    let mut attempts = FuturesUnordered::new();
    loop {
        attempts.push(attempt(shared, host, role));
        let mut retry = pin!(clock.sleep(RETRY_INTERVAL).fuse());
        select_biased! {
            replied = attempts.select_next_some() => return replied,
            () = retry => {}
        }
    }
}

/// A connection to which the host has replied.
async fn attempt(shared: &Shared, host: SocketAddr, role: Role) -> Result<Connecting, Failure> {
    let client = shared.client.load().as_ref().clone();
    let mut connecting = shared
        .endpoint
        .connect_with(client, host, &server_name(role))
        .map_err(|error| Failure::Close(Closing::Refused, error.to_string()))?;
    connecting.handshake_data().await?;
    Ok(connecting)
}

async fn exchange_hellos(
    shared: &Arc<Shared>,
    connection: &Connection,
    subject: &Subject,
    host: SocketAddr,
) -> Result<Peer, Failure> {
    let node = &shared.node;
    let mut outgoing = connection.open_uni().await?;
    handshake::send_hello(node, &mut outgoing).await?;
    let mut incoming = connection.accept_uni().await?;
    let hello = handshake::receive_hello(&mut incoming).await?;
    let peer = handshake::verified_peer(&hello, subject, host)?;
    let link = match node.attach(peer.clone(), hello, Dialled::ByUs) {
        Ok(link) => link,
        Err(error @ AttachError::Duplicate { .. }) => {
            return Err(Failure::Close(Closing::Duplicate, error.to_string()));
        }
        Err(error) => return Err(Failure::Close(Closing::Refused, error.to_string())),
    };
    shared.register_link(host, &peer, connection, Dialled::ByUs);
    let session = Session::new(shared.clone(), link, connection.clone(), host, incoming);
    tokio::spawn(session.with(outgoing).run());
    Ok(peer)
}
