//! Those who wait at the door: connections that others began while as many handshakes as allowed are under way.
//!
//! Hears who comes, and when. Remembers them in the order of their coming: at most so many, and none beyond its
//! patience. Pure: never reads a clock, never answers anybody, and never grows beyond its places.

use std::collections::VecDeque;
use std::time::Duration;

use runtime::Instant;

/// The places.
pub(super) struct Waiting<T> {
    places: VecDeque<Place<T>>,
    places_max: usize,
    patience: Duration,
}

struct Place<T> {
    until: Instant,
    who: T,
}

impl<T> Waiting<T> {
    /// So many places, each for at most so long.
    pub(super) fn new(places_max: usize, patience: Duration) -> Self {
        Self {
            places: VecDeque::new(),
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

    /// Takes the last place; who comes when there is none is given back.
    pub(super) fn join(&mut self, now: Instant, who: T) -> Result<(), T> {
        if self.places.len() >= self.places_max {
            return Err(who);
        }
        let until = now + self.patience;
        self.places.push_back(Place { until, who });
        Ok(())
    }

    /// Whose turn it is: who has waited longest.
    pub(super) fn next(&mut self) -> Option<T> {
        self.places.pop_front().map(|place| place.who)
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

    #[test]
    fn who_came_first_is_next() {
        let (mut waiting, now) = (Waiting::new(3, SECOND), Instant::default());
        for who in [7, 5, 6] {
            waiting.join(now, who).unwrap();
        }
        let order: Vec<u16> = std::iter::from_fn(|| waiting.next()).collect();
        assert_eq!(order, [7, 5, 6]);
        assert!(waiting.is_empty());
    }

    #[test]
    fn a_flood_takes_the_places_there_are() {
        let (mut waiting, now) = (Waiting::new(4, SECOND), Instant::default());
        let sent_away = (0..1000).filter_map(|who| waiting.join(now, who).err());
        assert_eq!(sent_away.collect::<Vec<_>>(), (4..1000).collect::<Vec<_>>());
        assert_eq!(waiting.next(), Some(0));
        assert_eq!(waiting.join(now, 1000), Ok(()), "there is a place again");
        assert_eq!(waiting.len(), 4);
    }

    #[test]
    fn nobody_waits_beyond_the_patience() {
        let (mut waiting, start) = (Waiting::new(4, 5 * SECOND), Instant::default());
        waiting.join(start, 1).unwrap();
        waiting.join(start + SECOND, 2).unwrap();
        assert_eq!(waiting.due(), Some(start + 5 * SECOND));
        assert_eq!(waiting.late(start + 4 * SECOND), None);
        assert_eq!(waiting.late(start + 5 * SECOND), Some(1));
        assert_eq!(waiting.late(start + 5 * SECOND), None);
        assert_eq!(waiting.late(start + 9 * SECOND), Some(2));
        assert_eq!(waiting.due(), None);
    }
}
