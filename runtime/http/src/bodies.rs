//! Bytes of requests' bodies that are held: so many all together, and of each address as many as are left free.
//!
//! The rule needs no list of who may come. One address alone may have half of all, and however much those have who came before it, a newcomer
//! finds as much free as the greediest of them could still take. What is held counts until its request is answered.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::door::Source;

/// What a piece of a body costs beside its bytes: who sends them one by one is not to have forty times as much held as is counted.
const PIECE_COST: usize = 64;

/// All bodies that are held.
#[derive(Debug)]
pub(crate) struct Bodies {
    /// Whose they are, in words.
    whose: &'static str,
    most: usize,
    inside: Mutex<Inside>,
}

/// What is held. A request without a connection, as in rehearsals, comes from nowhere.
#[derive(Debug, Default)]
struct Inside {
    all: usize,
    of: BTreeMap<Option<Source>, usize>,
}

/// There is no room for more of a body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{own} bytes are held of {whose} from this address that are not answered yet, and {free} of {most} are free: an address may hold no more than is left free; try again"
)]
pub(crate) struct Crowded {
    whose: &'static str,
    own: usize,
    free: usize,
    most: usize,
}

impl Bodies {
    /// Room for so many bytes of bodies of these.
    pub fn new(whose: &'static str, most: usize) -> Arc<Self> {
        Arc::new(Self {
            whose,
            most,
            inside: Mutex::default(),
        })
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        // Numbers only, which are changed together.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is held now.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        let inside = self.inside();
        assert_eq!(inside.all, inside.of.values().sum::<usize>());
        inside.all
    }
}

impl Inside {
    /// Whether one who holds `own` bytes may hold so many more.
    fn has_room(&self, most: usize, own: usize, more: usize) -> bool {
        let free = most.saturating_sub(self.all.saturating_add(more));
        own.saturating_add(more) <= free
    }
}

/// What is held of one body, until this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    bodies: Arc<Bodies>,
    source: Option<Source>,
    bytes: AtomicUsize,
}

impl Held {
    /// Nothing yet, of a body from there.
    pub fn new(bodies: Arc<Bodies>, source: Option<Source>) -> Self {
        Self {
            bodies,
            source,
            bytes: AtomicUsize::new(0),
        }
    }

    /// One more piece of so many bytes.
    pub fn takes(&self, bytes: usize) -> Result<(), Crowded> {
        let bodies = &self.bodies;
        let (more, mut inside) = (bytes.saturating_add(PIECE_COST), bodies.inside());
        let own = inside.of.get(&self.source).copied().unwrap_or(0);
        if !inside.has_room(bodies.most, own, more) {
            return Err(Crowded {
                whose: bodies.whose,
                own,
                free: bodies.most.saturating_sub(inside.all),
                most: bodies.most,
            });
        }
        inside.all += more;
        inside.of.insert(self.source, own + more);
        self.bytes.fetch_add(more, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let bytes = *self.bytes.get_mut();
        let mut inside = self.bodies.inside();
        inside.all -= bytes;
        if let Entry::Occupied(mut of) = inside.of.entry(self.source) {
            *of.get_mut() -= bytes;
            if *of.get() == 0 {
                of.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    const MOST: usize = 1 << 20;

    fn source(host: u8) -> Option<Source> {
        Some(IpAddr::from([10, 0, 0, host]).into())
    }

    /// Takes what it gets, in pieces of a KiB.
    fn greedy(bodies: &Arc<Bodies>, host: u8) -> (Held, usize) {
        let held = Held::new(bodies.clone(), source(host));
        while held.takes(1024).is_ok() {}
        let bytes = held.bytes.load(Ordering::Relaxed);
        (held, bytes)
    }

    #[test]
    fn an_address_holds_as_much_as_it_leaves_free_and_a_newcomer_always_finds_something() {
        let bodies = Bodies::new("bodies", MOST);
        let mut all = Vec::new();
        for (host, share) in [(1, MOST / 2), (2, MOST / 4), (3, MOST / 8), (4, MOST / 16)] {
            let (held, bytes) = greedy(&bodies, host);
            assert!(bytes.abs_diff(share) < 4096, "{host}: {bytes}");
            all.push(held);
        }
        let again = greedy(&bodies, 1);
        assert_eq!(again.1, 0, "it is the address that counts, not the body");
        assert!(bodies.bytes() < MOST);
        // Whoever leaves makes room for all.
        all.remove(0);
        let (_held, bytes) = greedy(&bodies, 4);
        assert!(bytes > MOST / 8, "{bytes}");
        drop((all, again, _held));
        assert_eq!(bodies.bytes(), 0);
        assert!(bodies.inside().of.is_empty());
    }

    #[test]
    fn single_bytes_cost_more_than_they_are_and_the_refusal_says_the_bound() {
        let bodies = Bodies::new("bodies of requests", 1000);
        let held = Held::new(bodies.clone(), None);
        let taken = (0..1000).take_while(|_| held.takes(1).is_ok()).count();
        assert_eq!(taken, 500 / (1 + PIECE_COST));
        let problem = held.takes(usize::MAX).unwrap_err().to_string();
        let words = "455 bytes are held of bodies of requests from this address that are not answered yet, and 545 of 1000 are free";
        assert!(problem.starts_with(words), "{problem}");
    }
}
