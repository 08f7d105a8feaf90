//! Which requests are served at the same time, and how much is held of what they say.
//!
//! A request has a place while something is done for it: not while it stands in a line, and not while its body is outstanding, or few who
//! never come to an end would keep out everybody. Whether somebody is there, and what executors say, is heard however many others ask. What is
//! held of bodies has bounds of its own ([`Bodies`]), that of executors another one, which nobody else can fill: what they report is lost if
//! it is refused.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use runtime::Node;

use crate::api::Refusal;
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
}

struct Places {
    under_way: AtomicUsize,
    requests_max: usize,
}

/// There is no place for one more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{requests_max} requests are under way, which is all that is served at once; try again")]
pub(crate) struct Full {
    requests_max: usize,
}

/// The place of a request, which it has or has given back. Among its extensions for who lets it stand in a line. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Place(Arc<Kept>);

struct Kept {
    /// None where everybody passes.
    places: Option<Arc<Places>>,
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
            places.under_way.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Has a place, even if there are more than the most by then. How many had one before, if it had none itself.
    fn enter(&self) -> Option<(usize, &Places)> {
        let places = self.places.as_deref()?;
        if self.has.swap(true, Ordering::Relaxed) {
            return None;
        }
        Some((places.under_way.fetch_add(1, Ordering::Relaxed), places))
    }
}

impl Place {
    fn new(places: Option<Arc<Places>>) -> Self {
        let has = AtomicBool::new(false);
        Self(Arc::new(Kept { places, has }))
    }

    /// Has a place from now on, if it has none yet.
    pub fn enter(&self) -> Result<(), Full> {
        match self.0.enter() {
            Some((before, places)) if before >= places.requests_max => {
                self.leave();
                let requests_max = places.requests_max;
                Err(Full { requests_max })
            }
            _ => Ok(()),
        }
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
                under_way: AtomicUsize::new(0),
                requests_max: options.requests_max,
            }),
            bodies: Bodies::new("bodies of requests", options.bodies_max),
            of_executors: Bodies::new("bodies of executors' calls", options.executor_bodies_max),
            turns: Turns::new(),
            turns_of_executors: Turns::new(),
        }
    }

    /// One more request, with nothing of it held yet.
    fn arrives(&self, request: &Request) -> Result<Arrival, Full> {
        let is_free = passes_freely(request.method(), request.uri().path());
        let (places, bodies, turns) = match is_free {
            true => (None, &self.of_executors, &self.turns_of_executors),
            false => (Some(self.places.clone()), &self.bodies, &self.turns),
        };
        let place = Place::new(places);
        place.enter()?;
        let source = request.extensions().get::<Source>().copied();
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
