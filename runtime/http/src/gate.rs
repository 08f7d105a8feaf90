//! Which requests are served at the same time, and how much is held of what they say.
//!
//! A request has a place while something is done for it: not while it stands in a line, and not while its body is outstanding, or few who
//! never come to an end would keep out everybody. Whether somebody is there, and what executors say, is heard however many others ask. What is
//! held of bodies has bounds of its own ([`Bodies`]), that of executors another one, which nobody else can fill: what they report is lost if
//! it is refused.

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
use crate::bodies::{Bodies, Held};
use crate::body::{BODY_PATIENCE, Cut, arriving};
use crate::door::Source;
use crate::large::{Line, Turns};
use crate::realm::passes_freely;
use crate::server::HttpOptions;

/// The gate of one listener. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Gate {
    node: Node,
    places: Arc<Places>,
    bodies: Arc<Bodies>,
    of_executors: Arc<Bodies>,
    turns: Turns,
    turns_of_executors: Turns,
    body_max: u64,
}

struct Places {
    requests_max: usize,
    under_way: Mutex<UnderWay>,
}

/// Requests that have a place. One without a connection, as in rehearsals, has no address.
#[derive(Default)]
struct UnderWay {
    all: usize,
    of: BTreeMap<Option<Source>, usize>,
}

impl UnderWay {
    /// Whether an address that has `own` places may have one more: it may have no more than it leaves free, so one alone
    /// may have half of them and each newcomer finds some.
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

impl Places {
    fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        // Numbers only, which are changed together.
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// There is no place for one more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{all} of {requests_max} requests are under way, {own} of them from this address, which may have no more than it leaves free; try again"
)]
pub(crate) struct Full {
    all: usize,
    own: usize,
    requests_max: usize,
}

/// The place of a request, which it has or has given back. Among its extensions for who lets it stand in a line. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Place(Arc<Kept>);

struct Kept {
    /// None where everybody passes.
    places: Option<Arc<Places>>,
    source: Option<Source>,
    has: AtomicBool,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Kept {
    fn leave(&self) {
        if let Some(places) = &self.places
            && self.has.swap(false, Ordering::Relaxed)
        {
            places.under_way().remove(self.source);
        }
    }

    /// Has a place, even if there is no room for it. What is wrong then.
    fn enter(&self) -> Result<(), Full> {
        let Some(places) = self.places.as_deref() else {
            return Ok(());
        };
        if self.has.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let requests_max = places.requests_max;
        let mut under_way = places.under_way();
        let own = under_way.of.get(&self.source).copied().unwrap_or(0);
        let (all, has_room) = (under_way.all, under_way.has_room(requests_max, own));
        under_way.all += 1;
        under_way.of.insert(self.source, own + 1);
        match has_room {
            true => Ok(()),
            false => Err(Full {
                all,
                own,
                requests_max,
            }),
        }
    }
}

impl Place {
    fn new(places: Option<Arc<Places>>, source: Option<Source>) -> Self {
        Self(Arc::new(Kept {
            places,
            source,
            has: AtomicBool::new(false),
        }))
    }

    /// Has a place from now on, if it has none yet.
    pub fn enter(&self) -> Result<(), Full> {
        let entered = self.0.enter();
        if entered.is_err() {
            self.leave();
        }
        entered
    }

    /// Gives the place back, if it has one.
    pub fn leave(&self) {
        self.0.leave();
    }

    /// Whoever waits in a line for its turn keeps no place from those who have theirs.
    pub fn aside(&self) -> Aside {
        self.leave();
        Aside(self.clone())
    }
}

/// A request that gave its place back for as long as it waits, and has one again when this is dropped.
pub(crate) struct Aside(Place);

impl Drop for Aside {
    fn drop(&mut self) {
        // However many there are by then: the line lets only so many through.
        let _ = self.0.0.enter();
    }
}

/// What a request has here until it is answered.
pub(crate) struct Arrival {
    pub place: Place,
    /// What has come of its body.
    pub held: Held,
    /// Where it waits if it turns out to be a large call.
    line: Line,
    cut: OnceLock<Cut>,
}

impl Arrival {
    /// The body is read no further, and the request is refused for this.
    pub fn is_cut(&self, cut: Cut) -> Cut {
        self.cut.get_or_init(|| cut).clone()
    }
}

impl Gate {
    /// A gate with the bounds of these.
    pub fn new(node: &Node, options: &HttpOptions) -> Self {
        Self {
            node: node.clone(),
            places: Arc::new(Places {
                requests_max: options.requests_max,
                under_way: Mutex::default(),
            }),
            bodies: Bodies::new("bodies of requests", options.bodies_max),
            of_executors: Bodies::new("bodies of executors' calls", options.executor_bodies_max),
            turns: Turns::new(),
            turns_of_executors: Turns::new(),
            body_max: options.body_max as u64,
        }
    }

    /// One more request, with nothing of it held yet.
    fn arrives(&self, request: &Request) -> Result<Arrival, Full> {
        let is_free = passes_freely(request.method(), request.uri().path());
        let (places, bodies, turns) = match is_free {
            true => (None, &self.of_executors, &self.turns_of_executors),
            false => (Some(self.places.clone()), &self.bodies, &self.turns),
        };
        let source = request.extensions().get::<Source>().copied();
        let place = Place::new(places, source);
        place.enter()?;
        let line = Line {
            turns: turns.clone(),
            place: place.clone(),
            source,
        };
        Ok(Arrival {
            place,
            held: Held::new(bodies.clone(), source),
            line,
            cut: OnceLock::new(),
        })
    }
}

/// Serves a request that has a place, with a body that comes to its end.
pub(crate) async fn admit(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    // Its body need not come, and no place is taken.
    if let Some(length) =
        declared_length(request.headers()).filter(|length| *length > gate.body_max)
    {
        let expected = format!("at most {} bytes, and the body is longer", gate.body_max);
        let problem = Invalid::new("Content-Length", length, expected);
        return Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, problem).into_response();
    }
    let arrival = match gate.arrives(&request) {
        Ok(arrival) => Arc::new(arrival),
        Err(full) => return Refusal::not_now(full).into_response(),
    };
    request.extensions_mut().insert(arrival.place.clone());
    request.extensions_mut().insert(arrival.line.clone());
    let late = gate.node.clock().sleep(BODY_PATIENCE);
    let request = request.map(|body| arriving(body, arrival.clone(), late));
    let response = next.run(request).await;
    match arrival.cut.get() {
        Some(cut) => Refusal::from(cut).into_response(),
        None => response,
    }
}

#[cfg(test)]
mod tests;
