//! Accepting: from a first packet to a link.
//!
//! Hears connections from outside. Remembers how many handshakes are under way, and lets those above the bound wait
//! for their turn ([`Waiting`]); beyond its places they are refused at the cost of one packet, so that a whole cluster
//! coming back costs seconds and not an outage. Who has to wait first shows by QUIC's Retry that its address is its own
//! ([`Addresses`]): then it is known by that, and what it says again is one with what it said before.
//! Never reads a byte of a stream before the certificate's role was found acceptable.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::{FutureExt, select_biased};
use quinn::{Connection, Incoming};
use runtime::{AttachError, Clock, Dialled, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::addresses::{Addresses, Held};
use super::handshake::{self, Failure};
use super::session::Session;
use super::waiting::Waiting;
use super::{Closing, Shared, canonical};

/// How long a handshake under way keeps others of its address away: as long as a dialler is silent, twice.
const ATTENDED: Duration = Duration::from_secs(4);

/// What has become of the connections that others began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handshakes {
    /// Not finished yet.
    pub under_way: usize,
    /// The most that were ever under way at once.
    pub under_way_most: usize,
    /// The most that ever waited at once for their turn.
    pub waiting_most: usize,
    /// Asked to show that their address is their own, before they wait.
    pub retried: u64,
    /// Became links.
    pub linked: u64,
    /// Refused for one packet, because as many as allowed were under way and waiting, or the wait was too long.
    pub refused: u64,
    /// Begun, and did not become links.
    pub failed: u64,
}

/// The same, while it is counted.
#[derive(Default)]
pub(super) struct Tally {
    under_way: AtomicUsize,
    under_way_most: AtomicUsize,
    waiting_most: AtomicUsize,
    retried: AtomicU64,
    linked: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

impl Tally {
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

    fn waits(&self, now: usize) {
        self.waiting_most.fetch_max(now, Ordering::Relaxed);
    }

    fn ended(&self, linked: bool) {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        let count = if linked { &self.linked } else { &self.failed };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// One that has come, and the address it has shown to be its own.
struct Visitor {
    incoming: Incoming,
    address: Option<Held>,
}

/// Accepts until the endpoint is closed.
pub(super) async fn accept(shared: Arc<Shared>) {
    let clock = shared.node.clock().clone();
    let allowed = Arc::new(Semaphore::new(shared.options.handshakes_max));
    let mut door = Door {
        allowed: allowed.clone(),
        addresses: Addresses::default(),
        waiting: Waiting::new(
            shared.options.handshakes_waiting_max,
            shared.options.wait_max(),
        ),
        shared: shared.clone(),
    };
    loop {
        while let Some(late) = door.waiting.late(clock.now()) {
            door.refuse(late.incoming);
        }
        let mut room = pin!(room(&allowed, !door.waiting.is_empty()).fuse());
        let mut knock = pin!(shared.endpoint.accept().fuse());
        let mut due = pin!(due(&clock, door.waiting.due()).fuse());
        select_biased! {
            permit = room => {
                if let Some(visitor) = door.waiting.next() {
                    serve(&shared, visitor, permit);
                }
            }
            incoming = knock => match incoming {
                None => break,
                Some(incoming) => door.receive(incoming),
            },
            () = due => {}
        }
    }
}

/// Another handshake may begin, and somebody waits for that.
async fn room(allowed: &Arc<Semaphore>, waited_for: bool) -> Option<OwnedSemaphorePermit> {
    match waited_for {
        true => allowed.clone().acquire_owned().await.ok(), // never closed
        false => std::future::pending().await,
    }
}

/// Somebody has waited in vain.
async fn due(clock: &Clock, at: Option<Instant>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Who is let in, and when.
struct Door {
    shared: Arc<Shared>,
    allowed: Arc<Semaphore>,
    addresses: Addresses,
    waiting: Waiting<Visitor>,
}

impl Door {
    /// One has come: it is served at once, or waits, or is sent away.
    fn receive(&mut self, incoming: Incoming) {
        let from = incoming.remote_address();
        // Who has proven it waits already, or is being served: a dialler that begins anew is let in by its first attempt. It need
        // not even show again whose the address is, for whoever says this keeps nobody out.
        if self.addresses.is_held(from) {
            return incoming.ignore();
        }
        let address = match incoming.remote_address_validated() {
            false => None,
            true => self.addresses.hold(from),
        };
        if self.waiting.is_empty()
            && let Ok(permit) = self.allowed.clone().try_acquire_owned()
        {
            return serve(&self.shared, Visitor { incoming, address }, Some(permit));
        }
        if address.is_none() {
            return self.retry(incoming); // it may be one that waits, and must not be refused then
        }
        let now = self.shared.node.clock().now();
        match self.waiting.join(now, Visitor { incoming, address }) {
            Ok(()) => self.shared.handshakes.waits(self.waiting.len()),
            Err(visitor) => self.refuse(visitor.incoming),
        }
    }

    fn refuse(&self, incoming: Incoming) {
        let refused = &self.shared.handshakes.refused;
        refused.fetch_add(1, Ordering::Relaxed);
        incoming.refuse();
    }

    /// Asks it to come again with what is sent to its address: one packet, and nothing is remembered.
    fn retry(&self, incoming: Incoming) {
        let retried = &self.shared.handshakes.retried;
        retried.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = incoming.retry() {
            self.refuse(error.into_incoming()); // not before an address is validated
        }
    }
}

/// Makes a link of it, unless the endpoint closes.
fn serve(shared: &Arc<Shared>, visitor: Visitor, permit: Option<OwnedSemaphorePermit>) {
    let Visitor {
        incoming,
        mut address,
    } = visitor;
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
        // Its address is attended to for a while only: who is started anew there must not wait for what it has left behind.
        let admitted = match select(admitted, pin!(clock.sleep(ATTENDED))).await {
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
                tracing::debug!(address = %from, %error, "a connection ended unfinished")
            }
            Ok(Err(Failure::Close(Closing::Duplicate, reason))) => {
                tracing::debug!(address = %from, reason, "not linked")
            }
            Ok(Err(Failure::Close(_, reason))) => {
                tracing::warn!(address = %from, reason, "refused a connection")
            }
            Err(late) => tracing::debug!(address = %from, %late, "gave up on a handshake"),
        }
        drop((permit, address));
    });
}

async fn admit(shared: &Arc<Shared>, incoming: Incoming) -> Result<Session, Failure> {
    let connection = incoming.accept()?.await?;
    let admitted = greet(shared, &connection).await;
    if let Err(failure) = &admitted {
        failure.close(&connection);
    }
    admitted
}

async fn greet(shared: &Arc<Shared>, connection: &Connection) -> Result<Session, Failure> {
    let node = &shared.node;
    let subject = handshake::subject(connection)?;
    if !node.accepts(subject.role) {
        let reason = AttachError::WrongRole { role: subject.role }.to_string();
        return Err(Failure::Close(Closing::Refused, reason));
    }
    let address = canonical(connection.remote_address());
    let mut incoming = connection.accept_uni().await?;
    let hello = handshake::hear_hello(&mut incoming).await?;
    let peer = handshake::proven(&hello, &subject, address)?;
    if shared.is_before(&peer.node)
        && let Some(turn) = shared.turn_taken(address)
    {
        // We are dialling that very node, and of two connections that cross ours stays. Should ours fail, this one
        // is welcome.
        drop(turn.lock().await);
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
    shared.joined(address, &peer, connection, Dialled::ByThem);
    let session = Session::new(shared.clone(), link, connection.clone(), address, incoming);
    session.answer().await
}
