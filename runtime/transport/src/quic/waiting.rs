//! Those who wait at the door: connections that others began while as many handshakes as allowed are under way.
//!
//! Hears who comes, and when. Remembers them in the order of their coming: at most so many, one from each address, and
//! none beyond its patience. Pure: never reads a clock, never answers anybody, and never grows beyond its places.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use runtime::Instant;

/// The places.
pub(super) struct Waiting<T> {
    places: VecDeque<Place<T>>,
    addresses: BTreeSet<SocketAddr>,
    places_max: usize,
    patience: Duration,
}

struct Place<T> {
    until: Instant,
    from: SocketAddr,
    who: T,
}

/// Who has got no place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turned<T> {
    /// One from the same address waits already: a dialler that begins anew is let in by its first attempt.
    Again(T),
    /// Every place is taken.
    Full(T),
}

impl<T> Waiting<T> {
    /// So many places, each for at most so long.
    pub(super) fn new(places_max: usize, patience: Duration) -> Self {
        Self {
            places: VecDeque::new(),
            addresses: BTreeSet::new(),
            places_max,
            patience,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Takes the last place.
    pub(super) fn join(&mut self, now: Instant, from: SocketAddr, who: T) -> Result<(), Turned<T>> {
        if self.addresses.contains(&from) {
            return Err(Turned::Again(who));
        }
        if self.places.len() >= self.places_max {
            return Err(Turned::Full(who));
        }
        self.addresses.insert(from);
        let until = now + self.patience;
        self.places.push_back(Place { until, from, who });
        Ok(())
    }

    /// Whose turn it is: who has waited longest.
    pub(super) fn next(&mut self) -> Option<T> {
        let Place { from, who, .. } = self.places.pop_front()?;
        self.addresses.remove(&from);
        Some(who)
    }

    /// One that has waited in vain, if there is any.
    pub(super) fn late(&mut self, now: Instant) -> Option<T> {
        self.due().filter(|due| *due <= now)?;
        self.next()
    }

    /// When the next one will have waited in vain.
    pub(super) fn due(&self) -> Option<Instant> {
        self.places.front().map(|place| place.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn from(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    #[test]
    fn who_came_first_is_next() {
        let (mut waiting, now) = (Waiting::new(3, SECOND), Instant::default());
        for port in [7, 5, 6] {
            waiting.join(now, from(port), port).unwrap();
        }
        let order: Vec<u16> = std::iter::from_fn(|| waiting.next()).collect();
        assert_eq!(order, [7, 5, 6]);
        assert!(waiting.is_empty());
    }

    #[test]
    fn a_flood_takes_the_places_there_are_and_one_address_takes_one() {
        let (mut waiting, now) = (Waiting::new(4, SECOND), Instant::default());
        for _ in 0..1000 {
            let _ = waiting.join(now, from(1), 1);
        }
        assert_eq!(waiting.join(now, from(1), 1), Err(Turned::Again(1)));
        assert_eq!(waiting.len(), 1);
        for port in 2..1000 {
            let _ = waiting.join(now, from(port), port);
        }
        assert_eq!(waiting.join(now, from(9), 9), Err(Turned::Full(9)));
        assert_eq!((waiting.len(), waiting.addresses.len()), (4, 4));
        assert_eq!(waiting.next(), Some(1));
        waiting.join(now, from(9), 9).unwrap();
        waiting.next();
        waiting.join(now, from(1), 1).unwrap(); // its address is forgotten with its place
    }

    #[test]
    fn nobody_waits_beyond_the_patience() {
        let (mut waiting, start) = (Waiting::new(4, 5 * SECOND), Instant::default());
        waiting.join(start, from(1), 1).unwrap();
        waiting.join(start + SECOND, from(2), 2).unwrap();
        assert_eq!(waiting.due(), Some(start + 5 * SECOND));
        assert_eq!(waiting.late(start + 4 * SECOND), None);
        assert_eq!(waiting.late(start + 5 * SECOND), Some(1));
        assert_eq!(waiting.late(start + 5 * SECOND), None);
        assert_eq!(waiting.late(start + 9 * SECOND), Some(2));
        assert_eq!(waiting.due(), None);
    }
}
