//! The filters on one agent, arranged so that hundreds of clients are checked at once.
//!
//! Keeps each client's [`Filters`], and for many clients one bit for each that has the latest
//! refusal: clients that decline in turn refuse the same resources, so that one comparison holds
//! for all of them. Reads no clock; the caller passes the time.

use std::hash::BuildHasher;
use std::sync::Arc;

use module_api::sorter::Client;
use resources::Resources;
use runtime::Instant;
use rustc_hash::FxBuildHasher;

use super::refusals::Filters;
use crate::allocator::bits::Bits;

/// With fewer clients, they are checked one by one.
const SHARED_MIN: usize = 16;

/// Size of the cache of refusals for sharing; a power of two.
const CACHE_SIZE: usize = 256;
/// Larger refusals are not shared.
const CACHED_ENTRIES_MAX: usize = 16;

/// Recent refusals on any agent. Many agents are equal, and with quota the same few parts are
/// declined everywhere: equal refusals share one value, and one comparison holds for all of them.
#[derive(Clone, Debug, Default)]
pub struct RefusalCache(Vec<Option<Arc<Resources>>>);

impl RefusalCache {
    /// The shared value of this refusal.
    fn share(&mut self, refused: Resources) -> Arc<Resources> {
        if refused.len() > CACHED_ENTRIES_MAX {
            return Arc::new(refused);
        }
        self.0.resize(CACHE_SIZE, None);
        let index = FxBuildHasher.hash_one(&refused) as usize % CACHE_SIZE;
        match &mut self.0[index] {
            Some(known) if **known == refused => known.clone(),
            other => other.insert(Arc::new(refused)).clone(),
        }
    }
}

/// Filters by client on one agent. Empty, it is one pointer, since there are very many agents.
#[derive(Clone, Debug, Default)]
pub struct AgentFilters(Option<Box<Table>>);

/// Both lists have equal length and no order: a new client is appended, and nothing moves.
#[derive(Clone, Debug)]
struct Table {
    clients: Vec<Client>,
    filters: Vec<Filters>,
    /// The latest refusal, shared by all equal ones.
    last: Arc<Resources>,
    /// Clients with just that refusal; `None` while there are few clients.
    same: Option<Bits>,
}

/// A refusal that many clients share.
#[derive(Clone, Copy, Debug)]
pub struct SharedRefusal<'a> {
    /// The refused resources.
    pub refused: &'a Resources,
    /// The clients. Each has a filter that hides these resources, unless it has expired.
    pub same: &'a Bits,
    /// Number of clients with other filters only.
    pub others: usize,
}

impl AgentFilters {
    /// The filters of this client.
    pub fn get(&self, client: Client) -> Option<&Filters> {
        let table = self.0.as_deref()?;
        table.index(client).map(|at| &table.filters[at])
    }

    /// All filters, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Client, &Filters)> {
        let table = self.0.as_deref().into_iter();
        table.flat_map(|table| table.clients.iter().copied().zip(&table.filters))
    }

    /// Whether there is no filter.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The refusal that many clients share, if there is one.
    pub fn shared_refusal(&self) -> Option<SharedRefusal<'_>> {
        let table = self.0.as_deref()?;
        let same = table.same.as_ref()?;
        Some(SharedRefusal {
            refused: &table.last,
            same,
            others: table.clients.len() - same.count(),
        })
    }

    /// Adds a filter until that time, with a shared value from `cache`. Returns the first end of
    /// the client's filters before and after.
    pub fn add(
        &mut self,
        client: Client,
        refused: Resources,
        until: Instant,
        cache: &mut RefusalCache,
    ) -> [Option<Instant>; 2] {
        let table = self.0.get_or_insert_with(|| Box::new(Table::new()));
        if *table.last != refused {
            table.last = cache.share(refused);
            table.same.iter_mut().for_each(Bits::clear);
        }
        let at = table.admit(client);
        let before = table.filters[at].first_end();
        table.filters[at].add(table.last.clone(), until);
        table.update_shared(at);
        [before, table.filters[at].first_end()]
    }

    /// Restores the filters of a client after its agent was registered again.
    pub fn restore(&mut self, client: Client, filters: Filters) {
        let table = self.0.get_or_insert_with(|| Box::new(Table::new()));
        let at = table.admit(client);
        table.filters[at] = filters;
        table.update_shared(at);
    }

    /// Removes the filters of this client.
    pub fn remove(&mut self, client: Client) -> Option<Filters> {
        let table = self.0.as_deref_mut()?;
        let at = table.index(client)?;
        table.clients.swap_remove(at);
        let filters = table.filters.swap_remove(at);
        if let Some(same) = &mut table.same {
            same.remove(client);
        }
        if table.clients.is_empty() {
            self.0 = None;
        }
        Some(filters)
    }

    /// Drops this client's expired filters and returns the first end of the others. The outer
    /// `None` means that the client has no filters.
    pub fn expire(&mut self, client: Client, now: Instant) -> Option<Option<Instant>> {
        let table = self.0.as_deref_mut()?;
        let at = table.index(client)?;
        table.filters[at].expire(now);
        let end = table.filters[at].first_end();
        match end {
            Some(_) => table.update_shared(at),
            None => drop(self.remove(client)),
        }
        Some(end)
    }
}

impl Table {
    fn new() -> Self {
        Self {
            // Capacity one at first: the default is four, and there is one list for each agent.
            clients: Vec::with_capacity(1),
            filters: Vec::with_capacity(1),
            last: Arc::default(),
            same: None,
        }
    }

    fn index(&self, client: Client) -> Option<usize> {
        self.clients.iter().position(|own| *own == client)
    }

    /// The index of this client, added if necessary.
    fn admit(&mut self, client: Client) -> usize {
        self.index(client).unwrap_or_else(|| {
            self.clients.push(client);
            self.filters.push(Filters::default());
            self.clients.len() - 1
        })
    }

    /// Updates the client's bit after its filters have changed.
    fn update_shared(&mut self, at: usize) {
        if self.clients.len() < SHARED_MIN {
            self.same = None;
            return;
        }
        let (clients, last) = (&self.clients, &self.last);
        let each = clients.iter().copied().zip(&self.filters);
        let mut changed = each.clone().skip(at).take(1);
        let same = self.same.get_or_insert_with(|| {
            let same = each.filter(|(_, filters)| filters.has(last));
            same.map(|(client, _)| client).collect()
        });
        if let Some((client, filters)) = changed.next() {
            match filters.has(last) {
                true => same.insert(client),
                false => same.remove(client),
            };
        }
    }
}

impl IntoIterator for AgentFilters {
    type Item = (Client, Filters);
    type IntoIter = std::iter::Zip<std::vec::IntoIter<Client>, std::vec::IntoIter<Filters>>;

    fn into_iter(self) -> Self::IntoIter {
        let (clients, filters) = self
            .0
            .map_or_else(Default::default, |table| (table.clients, table.filters));
        clients.into_iter().zip(filters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn resources(text: &str) -> Resources {
        Resources::parse(text).unwrap()
    }

    fn at(seconds: u64) -> Instant {
        Instant::default() + Duration::from_secs(seconds)
    }

    /// The clients that share the latest refusal, and the number of others.
    fn shared_by(refused: &AgentFilters) -> Option<(Vec<Client>, usize)> {
        let shared_refusal = refused.shared_refusal()?;
        let same = (0..100).filter(|client| shared_refusal.same.has(*client));
        Some((same.collect(), shared_refusal.others))
    }

    #[test]
    fn many_equal_refusals_are_shared() {
        let (mut refused, mut cache) = (AgentFilters::default(), RefusalCache::default());
        for client in 0..15 {
            refused.add(client, resources("cpus:4"), at(5), &mut cache);
        }
        assert_eq!(shared_by(&refused), None, "few");
        refused.add(15, resources("cpus:4"), at(5), &mut cache);
        assert_eq!(shared_by(&refused), Some(((0..16).collect(), 0)));
        assert_eq!(
            *refused.shared_refusal().unwrap().refused,
            resources("cpus:4")
        );
        refused.add(20, resources("cpus:2"), at(5), &mut cache);
        assert_eq!(shared_by(&refused), Some((vec![20], 16)), "the last counts");
        refused.add(21, resources("cpus:2"), at(5), &mut cache);
        // An earlier filter of client 3 covers it for longer, so this one is not kept.
        refused.add(3, resources("cpus:2"), at(4), &mut cache);
        assert_eq!(shared_by(&refused), Some((vec![20, 21], 16)));
    }

    #[test]
    fn expired_filters_are_not_shared() {
        let (mut refused, mut cache) = (AgentFilters::default(), RefusalCache::default());
        for client in 0..20 {
            let until = at(5 + u64::from(client));
            assert_eq!(
                refused.add(client, resources("cpus:4"), until, &mut cache),
                [None, Some(until)]
            );
        }
        assert_eq!(refused.expire(30, at(5)), None, "it never refused anything");
        assert_eq!(refused.expire(0, at(5)), Some(None));
        assert_eq!(refused.expire(1, at(5)), Some(Some(at(6))));
        assert!(refused.remove(7).is_some() && refused.remove(7).is_none());
        let left: Vec<Client> = (1..20).filter(|client| *client != 7).collect();
        assert_eq!(shared_by(&refused), Some((left.clone(), 0)));
        assert!(refused.get(0).is_none() && refused.get(19).is_some());
        let mut listed: Vec<Client> = refused.iter().map(|(client, _)| client).collect();
        listed.sort_unstable();
        assert_eq!(listed, left);
        left.iter().for_each(|client| drop(refused.remove(*client)));
        assert!(refused.is_empty() && shared_by(&refused).is_none());
    }

    #[test]
    fn restored_filters_still_hide() {
        let (mut before, mut cache) = (AgentFilters::default(), RefusalCache::default());
        for client in 0..20 {
            before.add(client, resources("cpus:4"), at(5), &mut cache);
        }
        let mut after = AgentFilters::default();
        for (client, filters) in before {
            after.restore(client, filters);
        }
        let offered = resources("cpus:1");
        let hides = |filters: &Filters| filters.hide(at(4), |own| own.contains(&offered));
        assert!((0..20).all(|client| after.get(client).is_some_and(hides)));
        after.add(2, resources("cpus:8"), at(9), &mut cache);
        assert_eq!(shared_by(&after), Some((vec![2], 19)));
    }

    #[test]
    fn equal_refusals_on_many_agents_share_one_value() {
        let (mut agents, mut cache) = (vec![AgentFilters::default(); 50], RefusalCache::default());
        for (n, agent) in (0..).zip(&mut agents) {
            agent.add(n, resources("cpus:4;mem:8"), at(5), &mut cache);
            agent.add(n + 50, resources("cpus:2"), at(5), &mut cache);
        }
        let of = |n: usize, client| agents[n].get(client).unwrap();
        let first = &of(0, 0).clone();
        assert!((1..50).all(|n| of(n as usize, n) == first && of(n as usize, n + 50) != first));
        let mut alike = Vec::new();
        for agent in &agents {
            let mut all = agent.iter().map(|(_, filters)| filters);
            all.next().unwrap().hide(at(0), |refused| {
                alike.push(Arc::as_ptr(refused));
                true
            });
        }
        alike.dedup();
        assert_eq!(alike.len(), 1);
        let many: Vec<String> = (0..40).map(|n| format!("thing{n}:1")).collect();
        let many = resources(&many.join(";"));
        assert!(!Arc::ptr_eq(&cache.share(many.clone()), &cache.share(many)));
        assert!(cache.0.len() == CACHE_SIZE && cache.0.iter().flatten().count() <= 2);
    }
}
