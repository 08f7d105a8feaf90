//! Accepting: from the first packet to a link.
//!
//! Bounds the handshakes in progress. Further connections wait in the [`AcceptBacklog`]; when it is
//! full they are refused at the cost of one packet, so that a reconnecting cluster needs seconds
//! and causes no outage. A connection that must wait first proves its address by QUIC's Retry
//! ([`ActiveAddresses`]); its repeated attempts are then ignored. No byte of a stream is read
//! before the certificate's role is accepted.

pub(in crate::quic) mod active_addresses;
pub(in crate::quic) mod backlog;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::{FutureExt, select_biased};
use quinn::{Connection, Incoming};
use runtime::{AttachError, Clock, Dialled, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::handshake::{self, Failure};
use super::session::Session;
use super::{Closing, Shared, canonical};
use crate::quic::accept::active_addresses::{ActiveAddresses, AddressGuard};
use crate::quic::accept::backlog::AcceptBacklog;

/// How long a handshake in progress blocks others of its address: twice the time after which a
/// dialler retries.
const ADDRESS_BLOCKED_MAX: Duration = Duration::from_secs(4);

/// Counters of the accepted connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handshakes {
    /// Handshakes in progress.
    pub under_way: usize,
    /// Maximum of handshakes in progress so far.
    pub under_way_most: usize,
    /// Maximum of waiting connections so far.
    pub waiting_most: usize,
    /// Connections that had to validate their address before they wait.
    pub retried: u64,
    /// Connections that became links.
    pub linked: u64,
    /// Connections refused with one packet: all places were taken, or the wait was too long.
    pub refused: u64,
    /// Handshakes that failed.
    pub failed: u64,
}

/// The atomic counters behind [`Handshakes`].
#[derive(Default)]
pub(super) struct HandshakeCounters {
    under_way: AtomicUsize,
    under_way_most: AtomicUsize,
    waiting_most: AtomicUsize,
    retried: AtomicU64,
    linked: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

impl HandshakeCounters {
    pub(super) fn read(&self) -> Handshakes {
        Handshakes {
            under_way: self.under_way.load(Ordering::Relaxed),
            under_way_most: self.under_way_most.load(Ordering::Relaxed),
            waiting_most: self.waiting_most.load(Ordering::Relaxed),
            retried: self.retried.load(Ordering::Relaxed),
            linked: self.linked.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }

    fn begun(&self) {
        let now = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        self.under_way_most.fetch_max(now, Ordering::Relaxed);
    }

    fn record_waiting(&self, now: usize) {
        self.waiting_most.fetch_max(now, Ordering::Relaxed);
    }

    fn ended(&self, linked: bool) {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        let count = if linked { &self.linked } else { &self.failed };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// An incoming connection, and its address if it is validated.
struct IncomingPeer {
    incoming: Incoming,
    address: Option<AddressGuard>,
}

/// Accepts until the endpoint is closed.
pub(super) async fn accept(shared: Arc<Shared>) {
    let clock = shared.node.clock().clone();
    let allowed = Arc::new(Semaphore::new(shared.options.handshakes_max));
    let mut admission = HandshakeAdmission {
        allowed: allowed.clone(),
        addresses: ActiveAddresses::default(),
        backlog: AcceptBacklog::new(
            shared.options.handshakes_waiting_max,
            shared.options.wait_max(),
        ),
        shared: shared.clone(),
    };
    loop {
        while let Some(late) = admission.backlog.pop_overdue(clock.now()) {
            admission.refuse(late.incoming);
        }
        let mut permitted = pin!(next_permit(&allowed, !admission.backlog.is_empty()).fuse());
        let mut accepted = pin!(shared.endpoint.accept().fuse());
        let mut overdue = pin!(overdue(&clock, admission.backlog.deadline()).fuse());
        select_biased! {
            permit = permitted => {
                if let Some(peer) = admission.backlog.pop() {
                    serve(&shared, peer, permit);
                }
            }
            incoming = accepted => match incoming {
                None => break,
                Some(incoming) => admission.receive(incoming),
            },
            () = overdue => {}
        }
    }
}

/// Completes when another handshake may begin, if a connection waits for that.
async fn next_permit(allowed: &Arc<Semaphore>, is_wanted: bool) -> Option<OwnedSemaphorePermit> {
    match is_wanted {
        true => allowed.clone().acquire_owned().await.ok(), // never closed
        false => std::future::pending().await,
    }
}

/// Completes when a waiting connection is overdue.
async fn overdue(clock: &Clock, at: Option<Instant>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The admission of incoming connections.
struct HandshakeAdmission {
    shared: Arc<Shared>,
    allowed: Arc<Semaphore>,
    addresses: ActiveAddresses,
    backlog: AcceptBacklog<IncomingPeer>,
}

impl HandshakeAdmission {
    /// Serves the connection at once, queues it, or refuses it.
    fn receive(&mut self, incoming: Incoming) {
        let from = incoming.remote_address();
        // A connection of this validated address waits already or is being served: the first
        // attempt of a dialler wins. The repeated attempt need not be validated, because ignoring
        // it harms nobody else.
        if self.addresses.is_active(from) {
            return incoming.ignore();
        }
        let address = match incoming.remote_address_validated() {
            false => None,
            true => self.addresses.acquire(from),
        };
        if self.backlog.is_empty()
            && let Ok(permit) = self.allowed.clone().try_acquire_owned()
        {
            return serve(
                &self.shared,
                IncomingPeer { incoming, address },
                Some(permit),
            );
        }
        if address.is_none() {
            return self.retry(incoming); // it may be a waiting one, which must not be refused
        }
        let now = self.shared.node.clock().now();
        match self.backlog.push(now, IncomingPeer { incoming, address }) {
            Ok(()) => self.shared.handshakes.record_waiting(self.backlog.len()),
            Err(peer) => self.refuse(peer.incoming),
        }
    }

    fn refuse(&self, incoming: Incoming) {
        let refused = &self.shared.handshakes.refused;
        refused.fetch_add(1, Ordering::Relaxed);
        incoming.refuse();
    }

    /// Asks the peer to validate its address: costs one packet and no state.
    fn retry(&self, incoming: Incoming) {
        let retried = &self.shared.handshakes.retried;
        retried.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = incoming.retry() {
            self.refuse(error.into_incoming()); // only after an address is validated
        }
    }
}

/// Turns the connection into a link, unless the endpoint is closing.
fn serve(shared: &Arc<Shared>, peer: IncomingPeer, permit: Option<OwnedSemaphorePermit>) {
    let IncomingPeer {
        incoming,
        mut address,
    } = peer;
    if shared.state().closing {
        return incoming.refuse();
    }
    shared.handshakes.begun();
    let shared = shared.clone();
    tokio::spawn(async move {
        let from = incoming.remote_address();
        let clock = shared.node.clock().clone();
        let admitted = admit(&shared, incoming);
        let admitted = pin!(clock.timeout(shared.options.handshake_timeout, admitted));
        // The address is blocked for a limited time only: a restarted process at the same address
        // must not wait for the handshake of its predecessor.
        let admitted = match select(admitted, pin!(clock.sleep(ADDRESS_BLOCKED_MAX))).await {
            Either::Left((admitted, _)) => admitted,
            Either::Right(((), admitted)) => {
                drop(address.take());
                admitted.await
            }
        };
        shared.handshakes.ended(matches!(admitted, Ok(Ok(_))));
        match admitted {
            Ok(Ok(session)) => drop(tokio::spawn(session.run())),
            Ok(Err(Failure::Lost(error))) => {
                tracing::debug!(address = %from, %error, "connection lost during the handshake")
            }
            Ok(Err(Failure::Close(Closing::Duplicate, reason))) => {
                tracing::debug!(address = %from, reason, "closing a duplicate connection")
            }
            Ok(Err(Failure::Close(_, reason))) => {
                tracing::warn!(address = %from, reason, "refusing a connection")
            }
            Err(late) => tracing::debug!(address = %from, %late, "handshake timed out"),
        }
        drop((permit, address));
    });
}

async fn admit(shared: &Arc<Shared>, incoming: Incoming) -> Result<Session, Failure> {
    let connection = incoming.accept()?.await?;
    let admitted = exchange_hellos(shared, &connection).await;
    if let Err(failure) = &admitted {
        failure.close(&connection);
    }
    admitted
}

async fn exchange_hellos(
    shared: &Arc<Shared>,
    connection: &Connection,
) -> Result<Session, Failure> {
    let node = &shared.node;
    let subject = handshake::subject(connection)?;
    if !node.accepts(subject.role) {
        let reason = AttachError::WrongRole { role: subject.role }.to_string();
        return Err(Failure::Close(Closing::Refused, reason));
    }
    let address = canonical(connection.remote_address());
    let mut incoming = connection.accept_uni().await?;
    let hello = handshake::receive_hello(&mut incoming).await?;
    let peer = handshake::verified_peer(&hello, &subject, address)?;
    if shared.precedes(&peer.node)
        && let Some(lock) = shared.active_dial_lock(address)
    {
        // This node is dialling the same peer, and of two crossing connections its own wins. If
        // that dial fails, this connection is used.
        drop(lock.lock().await);
    }
    let link = match node.attach(peer.clone(), hello, Dialled::ByThem) {
        Ok(link) => link,
        Err(error @ AttachError::Duplicate { .. }) => {
            return Err(Failure::Close(Closing::Duplicate, error.to_string()));
        }
        Err(error @ AttachError::ShuttingDown) => {
            return Err(Failure::Close(Closing::Farewell, error.to_string()));
        }
        Err(error) => return Err(Failure::Close(Closing::Refused, error.to_string())),
    };
    shared.register_link(address, &peer, connection, Dialled::ByThem);
    let session = Session::new(shared.clone(), link, connection.clone(), address, incoming);
    session.answer().await
}
