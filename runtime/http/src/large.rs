//! Which large calls are read at the same time.
//!
//! A call may take a hundred times its bytes once it is read: an operation that says nothing is two bytes in protobuf. So those that are large are
//! read one after the other, a few at a time, and each has its turn until what was made of it is dropped. Half of the turns are left by any one
//! address to the others. Whoever waits has no place in the [`gate`](crate::gate), so that small calls never wait for large ones.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use runtime::Node;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::Refusal;
use crate::door::Source;
use crate::gate::Place;

/// So many have their turn at once. Each may take [`v1::Limits`]' memory, and about as much again for what is made of it.
const AT_ONCE: usize = 4;
/// So many of them come from one address.
const OF_ONE: usize = AT_ONCE / 2;
/// How long one waits for its turn.
const PATIENCE: Duration = Duration::from_secs(30);

/// The turns of a listener's calls. Clones are the same ones.
#[derive(Clone, Debug)]
pub(crate) struct Turns(Arc<Lines>);

/// Those of one address stand in a line of their own first. A request without a connection, as in rehearsals, comes from nowhere.
#[derive(Debug)]
struct Lines {
    all: Arc<Semaphore>,
    of: Mutex<BTreeMap<Option<Source>, Weak<Semaphore>>>,
}

/// It is a large call's turn, until this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _of_all: Option<OwnedSemaphorePermit>,
    _of_one: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// Nobody has one yet.
    pub fn new() -> Self {
        Self(Arc::new(Lines {
            all: Arc::new(Semaphore::new(AT_ONCE)),
            of: Mutex::default(),
        }))
    }

    async fn next(&self, source: Option<Source>) -> Turn {
        // Nobody closes them.
        let of_one = self.of(source).acquire_owned().await.ok();
        let of_all = self.0.all.clone().acquire_owned().await.ok();
        Turn {
            _of_all: of_all,
            _of_one: of_one,
        }
    }

    /// The line of this address, which is forgotten when nobody stands in it.
    fn of(&self, source: Option<Source>) -> Arc<Semaphore> {
        let mut of = self.0.of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = of.get(&source).and_then(Weak::upgrade) {
            return line;
        }
        of.retain(|_, line| line.strong_count() > 0);
        let line = Arc::new(Semaphore::new(OF_ONE));
        of.insert(source, Arc::downgrade(&line));
        line
    }
}

/// Where a request waits for its turn, if it turns out to be large. Among its extensions.
#[derive(Clone)]
pub(crate) struct Line {
    pub turns: Turns,
    pub place: Place,
    pub source: Option<Source>,
}

impl Line {
    /// Waits for the turn, which has its bound: it is for who asks to try again.
    pub async fn turn(self, node: &Node) -> Result<Turn, Refusal> {
        let _aside = self.place.aside();
        let turn = self.turns.next(self.source);
        let turn = node.clock().timeout(PATIENCE, turn).await;
        turn.map_err(|_| {
            let seconds = PATIENCE.as_secs();
            Refusal::not_now(format!(
                "other large calls are read, {OF_ONE} of an address and {AT_ONCE} at a time, and it was not this one's turn within {seconds} s; try again"
            ))
        })
    }
}
