//! Filters: the resources that a client refused on an agent, and the end of each refusal.
//!
//! A filter hides offers that the refused resources contain, so a larger offer passes. Reads no
//! clock; the caller passes the time. `agent_filters` checks hundreds of clients at once.

use std::sync::Arc;

use resources::Resources;
use runtime::Instant;
use smallvec::SmallVec;

/// Filters kept for one client on one agent; beyond this, the one that ends first is dropped.
pub(in crate::allocator::state) const FILTERS_MAX: usize = 32;

/// One refusal.
#[derive(Clone, Debug, PartialEq)]
struct Filter {
    /// Shared by all equal refusals, so that one comparison holds for all of them.
    refused: Arc<Resources>,
    until: Instant,
}

/// Filters of one client on one agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filters(SmallVec<[Filter; 1]>);

impl Filters {
    /// Adds a filter until that time. One that is covered by another is not kept.
    pub fn add(&mut self, refused: Arc<Resources>, until: Instant) {
        let covered = |by: &Filter| by.until >= until && by.refused.contains(&refused);
        if self.0.iter().any(covered) {
            return;
        }
        self.0
            .retain(|old| old.until > until || !refused.contains(&old.refused));
        self.0.push(Filter { refused, until });
        if self.0.len() > FILTERS_MAX {
            let first = self
                .0
                .iter()
                .enumerate()
                .min_by_key(|(_, filter)| filter.until);
            if let Some((first, _)) = first {
                self.0.remove(first);
            }
        }
    }

    /// Whether an offer is hidden now; `covers` tells whether a refusal contains it.
    pub fn hide(&self, now: Instant, mut covers: impl FnMut(&Arc<Resources>) -> bool) -> bool {
        let mut hides = |filter: &Filter| filter.until > now && covers(&filter.refused);
        self.0.iter().any(&mut hides)
    }

    /// Until when an offer is hidden; `None` if it is not hidden now.
    pub fn hide_until(
        &self,
        now: Instant,
        covers: impl Fn(&Arc<Resources>) -> bool,
    ) -> Option<Instant> {
        let hiding = |filter: &&Filter| filter.until > now && covers(&filter.refused);
        let hiding = self.0.iter().filter(hiding);
        hiding.map(|filter| filter.until).max()
    }

    /// Whether it contains this very value.
    pub fn has(&self, refused: &Arc<Resources>) -> bool {
        let mut all = self.0.iter();
        all.any(|filter| Arc::ptr_eq(&filter.refused, refused))
    }

    /// Drops expired filters. Returns whether there were any.
    pub fn expire(&mut self, now: Instant) -> bool {
        let before = self.0.len();
        self.0.retain(|filter| filter.until > now);
        self.0.len() < before
    }

    /// Whether there is no filter.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of filters.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The first end.
    pub fn first_end(&self) -> Option<Instant> {
        self.0.iter().map(|filter| filter.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn resources(text: &str) -> Resources {
        Resources::parse(text).unwrap()
    }

    fn refused(text: &str) -> Arc<Resources> {
        Arc::new(resources(text))
    }

    fn at(seconds: u64) -> Instant {
        Instant::default() + Duration::from_secs(seconds)
    }

    /// SPEC 4.6.
    // Covers 2.2 Filters.
    #[test]
    fn filter_hides_contained_offers_until_its_end() {
        let mut filters = Filters::default();
        filters.add(refused("cpus:2;mem:100"), at(5));
        for (offered, now, hidden) in [
            ("cpus:2;mem:100", 0, true),
            ("cpus:1", 4, true),
            ("cpus:3;mem:100", 0, false),
            ("cpus:1;ports:[1-2]", 0, false),
            ("cpus:1", 5, false),
        ] {
            let offered_there = resources(offered);
            let covers = |refused: &Arc<Resources>| refused.contains(&offered_there);
            assert_eq!(filters.hide(at(now), covers), hidden, "{offered} at {now}");
            let until = hidden.then(|| at(5));
            assert_eq!(filters.hide_until(at(now), covers), until);
        }
    }

    #[test]
    fn a_filter_that_another_covers_is_not_kept() {
        let mut filters = Filters::default();
        filters.add(refused("cpus:1"), at(5));
        filters.add(refused("cpus:2"), at(9));
        filters.add(refused("cpus:1"), at(9));
        assert_eq!((filters.0.len(), filters.first_end()), (1, Some(at(9))));
        filters.add(refused("cpus:1"), at(20));
        assert_eq!((filters.0.len(), filters.first_end()), (2, Some(at(9))));
        assert!(filters.expire(at(9)) && !filters.expire(at(10)));
        assert_eq!(filters.first_end(), Some(at(20)));
        assert!(filters.expire(at(20)) && filters.is_empty());
    }

    #[test]
    fn filters_per_client_are_bounded() {
        let mut filters = Filters::default();
        for n in 1..1000 {
            filters.add(refused(&format!("cpus:{n};mem:{}", 2000 - n)), at(n));
        }
        assert_eq!(filters.0.len(), FILTERS_MAX);
        assert!(filters.hide(at(0), |refused| refused.contains(&resources("cpus:999"))));
    }
}
