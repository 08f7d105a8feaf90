//! Accepting: from a first packet to a link.
//!
//! Hears connections from outside. Remembers how many handshakes are under way, and lets those above the bound wait
//! for their turn ([`Waiting`]); beyond its places they are refused at the cost of one packet, so that a whole cluster
//! coming back costs seconds and not an outage.
//! Never reads a byte of a stream before the certificate's role was found acceptable.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use futures_util::{FutureExt, select_biased};
use quinn::{Connection, Incoming};
use runtime::{AttachError, Clock, Dialled, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::handshake::{self, Failure};
use super::session::Session;
use super::waiting::{Turned, Waiting};
use super::{Closing, Shared, canonical};

/// What has become of the connections that others began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handshakes {
    /// Not finished yet.
    pub under_way: usize,
    /// The most that were ever under way at once.
    pub under_way_most: usize,
    /// The most that ever waited at once for their turn.
    pub waiting_most: usize,
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

/// Accepts until the endpoint is closed.
pub(super) async fn accept(shared: Arc<Shared>) {
    let clock = shared.node.clock().clone();
    let allowed = Arc::new(Semaphore::new(shared.options.handshakes_max));
    let mut waiting = Waiting::new(
        shared.options.handshakes_waiting_max,
        shared.options.wait_max(),
    );
    loop {
        while let Some(late) = waiting.late(clock.now()) {
            refuse(&shared, late);
        }
        let mut room = pin!(room(&allowed, !waiting.is_empty()).fuse());
        let mut knock = pin!(shared.endpoint.accept().fuse());
        let mut due = pin!(due(&clock, waiting.due()).fuse());
        select_biased! {
            permit = room => {
                if let Some(incoming) = waiting.next() {
                    serve(&shared, incoming, permit);
                }
            }
            incoming = knock => match incoming {
                None => break,
                Some(incoming) => receive(&shared, incoming, &allowed, &mut waiting),
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

/// One has come: it is served at once, or waits, or is sent away.
fn receive(
    shared: &Arc<Shared>,
    incoming: Incoming,
    allowed: &Arc<Semaphore>,
    waiting: &mut Waiting<Incoming>,
) {
    if waiting.is_empty()
        && let Ok(permit) = allowed.clone().try_acquire_owned()
    {
        return serve(shared, incoming, Some(permit));
    }
    let (now, from) = (shared.node.clock().now(), incoming.remote_address());
    match waiting.join(now, from, incoming) {
        Ok(()) => shared.handshakes.waits(waiting.len()),
        Err(Turned::Again(incoming)) => incoming.ignore(),
        Err(Turned::Full(incoming)) => refuse(shared, incoming),
    }
}

fn refuse(shared: &Shared, incoming: Incoming) {
    shared.handshakes.refused.fetch_add(1, Ordering::Relaxed);
    incoming.refuse();
}

/// Makes a link of it, unless the endpoint closes.
fn serve(shared: &Arc<Shared>, incoming: Incoming, permit: Option<OwnedSemaphorePermit>) {
    if shared.state().closing {
        return incoming.refuse();
    }
    shared.handshakes.begun();
    let shared = shared.clone();
    tokio::spawn(async move {
        let address = incoming.remote_address();
        let clock = shared.node.clock().clone();
        let admitted = admit(&shared, incoming);
        let admitted = clock
            .timeout(shared.options.handshake_timeout, admitted)
            .await;
        shared.handshakes.ended(matches!(admitted, Ok(Ok(_))));
        match admitted {
            Ok(Ok(session)) => drop(tokio::spawn(session.run())),
            Ok(Err(Failure::Lost(error))) => {
                tracing::debug!(%address, %error, "a connection ended unfinished")
            }
            Ok(Err(Failure::Close(Closing::Duplicate, reason))) => {
                tracing::debug!(%address, reason, "not linked")
            }
            Ok(Err(Failure::Close(_, reason))) => {
                tracing::warn!(%address, reason, "refused a connection")
            }
            Err(late) => tracing::debug!(%address, %late, "gave up on a handshake"),
        }
        drop(permit);
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
    shared.joined(address, &peer, connection);
    let session = Session::new(shared.clone(), link, connection.clone(), address, incoming);
    session.answer().await
}
