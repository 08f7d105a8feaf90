//! Admission control: bounds the requests served at the same time and the bytes of their bodies.
//!
//! A request holds a slot only while it is being served: not while it is queued and not while its
//! body is outstanding, or a few endless bodies would block all others. Health checks and
//! executors' calls need no slot. Executors' bodies have a separate bound ([`BodyBytes`]), which no
//! other client can use up, since a refused executor report is lost.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use runtime::Node;
use v1::Invalid;

use crate::api::{Refusal, declared_length};
use crate::body::bounded::{BODY_TIMEOUT, CutOff, StreamedBody, bounded_body};
use crate::body::bytes::{BodyBytes, HeldBytes};
use crate::body::large_calls::{DecodePermits, DecodeQueue};
use crate::connections::Source;
use crate::realm::bypasses_admission;
use crate::server::HttpOptions;

/// Admission control of one listener. Clones share it.
#[derive(Clone)]
pub(crate) struct Admission {
    node: Node,
    slots: Arc<Slots>,
    bodies: Arc<BodyBytes>,
    executor_bodies: Arc<BodyBytes>,
    permits: DecodePermits,
    executor_permits: DecodePermits,
    body_max: u64,
}

#[derive(Debug)]
struct Slots {
    requests_max: usize,
    active: Mutex<ActiveRequests>,
}

/// Requests with a slot. A request without a connection, as in tests, has no address.
#[derive(Debug, Default)]
struct ActiveRequests {
    all: usize,
    of: BTreeMap<Option<Source>, usize>,
}

impl ActiveRequests {
    /// Whether an address with `own` slots may have one more. An address may hold no more than it
    /// leaves free, so one alone may hold half of them, and a newcomer always finds some.
    fn has_room(&self, requests_max: usize, own: usize) -> bool {
        own < requests_max.saturating_sub(self.all)
    }

    fn remove(&mut self, source: Option<Source>) {
        self.all = self.all.saturating_sub(1);
        if let Entry::Occupied(mut of) = self.of.entry(source) {
            *of.get_mut() -= 1;
            if *of.get() == 0 {
                of.remove();
            }
        }
    }
}

impl Slots {
    fn active(&self) -> MutexGuard<'_, ActiveRequests> {
        // Only numbers, which change together, so a poisoned lock is safe.
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// No slot is free.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{all} of {requests_max} requests in progress, {own} from this address, which may hold at most as many as are free; retry later"
)]
pub(crate) struct NoSlot {
    all: usize,
    own: usize,
    requests_max: usize,
}

/// The slot of a request, held or given back. It is a request extension, so that queues can release
/// it. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct RequestSlot(Arc<SlotState>);

#[derive(Debug)]
struct SlotState {
    /// None for requests that need no slot.
    slots: Option<Arc<Slots>>,
    source: Option<Source>,
    has: AtomicBool,
}

impl Drop for SlotState {
    fn drop(&mut self) {
        self.leave();
    }
}

impl SlotState {
    fn leave(&self) {
        if let Some(slots) = &self.slots
            && self.has.swap(false, Ordering::Relaxed)
        {
            slots.active().remove(self.source);
        }
    }

    /// Takes a slot in any case; returns an error if it exceeds the bound.
    fn enter(&self) -> Result<(), NoSlot> {
        let Some(slots) = self.slots.as_deref() else {
            return Ok(());
        };
        if self.has.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let requests_max = slots.requests_max;
        let mut active = slots.active();
        let own = active.of.get(&self.source).copied().unwrap_or(0);
        let (all, has_room) = (active.all, active.has_room(requests_max, own));
        active.all += 1;
        active.of.insert(self.source, own + 1);
        match has_room {
            true => Ok(()),
            false => Err(NoSlot {
                all,
                own,
                requests_max,
            }),
        }
    }
}

impl RequestSlot {
    fn new(slots: Option<Arc<Slots>>, source: Option<Source>) -> Self {
        Self(Arc::new(SlotState {
            slots,
            source,
            has: AtomicBool::new(false),
        }))
    }

    /// Takes a slot unless one is held already. On error none is held.
    pub fn enter(&self) -> Result<(), NoSlot> {
        let entered = self.0.enter();
        if entered.is_err() {
            self.leave();
        }
        entered
    }

    /// Releases the slot, if one is held.
    pub fn leave(&self) {
        self.0.leave();
    }

    /// Releases the slot while the request is queued.
    pub fn release_while_queued(&self) -> ReleasedSlot {
        self.leave();
        ReleasedSlot(self.clone())
    }
}

/// A request that released its slot while it is queued, and takes one again when this is dropped.
pub(crate) struct ReleasedSlot(RequestSlot);

impl Drop for ReleasedSlot {
    fn drop(&mut self) {
        // Exceeding the bound is accepted here: the queue itself is bounded.
        let _ = self.0.0.enter();
    }
}

/// State of a request until it is answered.
pub(crate) struct AdmittedRequest {
    pub slot: RequestSlot,
    /// Bytes held of its body.
    pub held: HeldBytes,
    /// The queue for large calls, if this turns out to be one.
    queue: DecodeQueue,
    cut: OnceLock<CutOff>,
}

impl AdmittedRequest {
    /// Records why the body is cut off; the first reason is the answer to the request.
    pub fn cut_off(&self, cut: CutOff) -> CutOff {
        self.cut.get_or_init(|| cut).clone()
    }
}

impl Admission {
    /// Admission control with the bounds of `options`.
    pub fn new(node: &Node, options: &HttpOptions) -> Self {
        Self {
            node: node.clone(),
            slots: Arc::new(Slots {
                requests_max: options.requests_max,
                active: Mutex::default(),
            }),
            bodies: BodyBytes::new("request", options.bodies_max),
            executor_bodies: BodyBytes::new("executor call", options.executor_bodies_max),
            permits: DecodePermits::new(),
            executor_permits: DecodePermits::new(),
            body_max: options.body_max as u64,
        }
    }

    /// Admits a request, with no bytes of its body yet.
    fn admit_request(&self, request: &Request) -> Result<AdmittedRequest, NoSlot> {
        let is_free = bypasses_admission(request.method(), request.uri().path());
        let (slots, bodies, permits) = match is_free {
            true => (None, &self.executor_bodies, &self.executor_permits),
            false => (Some(self.slots.clone()), &self.bodies, &self.permits),
        };
        let source = request.extensions().get::<Source>().copied();
        let slot = RequestSlot::new(slots, source);
        slot.enter()?;
        let queue = DecodeQueue {
            permits: permits.clone(),
            slot: slot.clone(),
            source,
        };
        Ok(AdmittedRequest {
            slot,
            held: HeldBytes::new(bodies.clone(), source),
            queue,
            cut: OnceLock::new(),
        })
    }
}

/// Serves a request if a slot is free, with a bounded body.
pub(crate) async fn admit(
    State(admission): State<Admission>,
    mut request: Request,
    next: Next,
) -> Response {
    // Refused before the body arrives and without a slot.
    if let Some(length) =
        declared_length(request.headers()).filter(|length| *length > admission.body_max)
    {
        let expected = format!(
            "at most {} bytes, and the body is longer",
            admission.body_max
        );
        let problem = Invalid::new("Content-Length", length, expected);
        return Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, problem).into_response();
    }
    let admitted = match admission.admit_request(&request) {
        Ok(admitted) => Arc::new(admitted),
        Err(full) => return Refusal::not_now(full).into_response(),
    };
    request.extensions_mut().insert(admitted.slot.clone());
    request.extensions_mut().insert(admitted.queue.clone());
    let late = admission.node.clock().sleep(BODY_TIMEOUT);
    let streamed = StreamedBody::default();
    request.extensions_mut().insert(streamed.clone());
    let request = request.map(|body| bounded_body(body, admitted.clone(), streamed, late));
    let response = next.run(request).await;
    match admitted.cut.get() {
        Some(cut) => Refusal::from(cut).into_response(),
        None => response,
    }
}

#[cfg(test)]
mod tests;
