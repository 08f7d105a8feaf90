//! Dialling: from an address to a link.
//!
//! Hears addresses from the node. Remembers nothing beyond the dial: one at a time goes to one address, and those
//! who ask meanwhile get its link. While nothing is heard from there it knocks again and again, until the dial's
//! patience ends; never after an answer, and never after that.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use futures_util::{FutureExt, select_biased};
use quinn::{Connecting, Connection, ConnectionError};
use runtime::{AttachError, ConnectError, Dialled, Peer, Role};

use super::address::Address;
use super::handshake::{self, Failure};
use super::session::Session;
use super::{Closing, Shared, canonical};
use crate::certificates::{Subject, server_name};

/// How long nothing may be heard from a host before another attempt begins beside the first. QUIC repeats a first packet
/// after 1, 2, 4 and 8 s; with a new attempt every 2 s a host that comes up hears one each second.
const KNOCK_AGAIN: Duration = Duration::from_secs(2);

/// Connects to the first of the address's hosts that can be reached.
pub(super) async fn dial(shared: Arc<Shared>, text: String) -> Result<Peer, ConnectError> {
    let wanted = Address::parse(&text).map_err(|reason| ConnectError::Refused {
        address: text.clone(),
        reason,
    })?;
    let unreachable = |reason: String| ConnectError::Unreachable {
        address: text.clone(),
        reason,
    };
    let hosts = shared.ground.lookup(&wanted.host).await;
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
    /// An IPv4 socket sends to no IPv6 address.
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
    let turn = shared.turn(host);
    let held = turn.lock().await;
    let answer = match shared.linked_at(host).filter(|peer| peer.role == role) {
        Some(peer) => Ok(peer),
        None => {
            let patience = shared.options.handshake_timeout;
            match shared
                .node
                .clock()
                .timeout(patience, introduce(shared, host, role))
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
    shared.turn_over(host, turn);
    answer
}

async fn introduce(shared: &Arc<Shared>, host: SocketAddr, role: Role) -> Result<Peer, Failure> {
    let connection = knock(shared, host, role).await?.await?;
    let subject = handshake::subject(&connection)?;
    let answer = greet(shared, &connection, &subject, host).await;
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

/// The first attempt that this host has answered. All go on until then: a host that is slow may answer any of them.
async fn knock(shared: &Shared, host: SocketAddr, role: Role) -> Result<Connecting, Failure> {
    let clock = shared.node.clock();
    let mut attempts = FuturesUnordered::new();
    loop {
        attempts.push(attempt(shared, host, role));
        let mut again = pin!(clock.sleep(KNOCK_AGAIN).fuse());
        select_biased! {
            heard = attempts.select_next_some() => return heard,
            () = again => {}
        }
    }
}

/// A connection that has begun, as soon as the host has answered.
async fn attempt(shared: &Shared, host: SocketAddr, role: Role) -> Result<Connecting, Failure> {
    let client = shared.client.load().as_ref().clone();
    let mut connecting = shared
        .endpoint
        .connect_with(client, host, &server_name(role))
        .map_err(|error| Failure::Close(Closing::Refused, error.to_string()))?;
    connecting.handshake_data().await?;
    Ok(connecting)
}

async fn greet(
    shared: &Arc<Shared>,
    connection: &Connection,
    subject: &Subject,
    host: SocketAddr,
) -> Result<Peer, Failure> {
    let node = &shared.node;
    let mut outgoing = connection.open_uni().await?;
    handshake::say_hello(node, &mut outgoing).await?;
    let mut incoming = connection.accept_uni().await?;
    let hello = handshake::hear_hello(&mut incoming).await?;
    let peer = handshake::proven(&hello, subject, host)?;
    let link = match node.attach(peer.clone(), hello, Dialled::ByUs) {
        Ok(link) => link,
        Err(error @ AttachError::Duplicate { .. }) => {
            return Err(Failure::Close(Closing::Duplicate, error.to_string()));
        }
        Err(error) => return Err(Failure::Close(Closing::Refused, error.to_string())),
    };
    shared.joined(host, &peer, connection, Dialled::ByUs);
    let session = Session::new(shared.clone(), link, connection.clone(), host, incoming);
    tokio::spawn(session.with(outgoing).run());
    Ok(peer)
}
