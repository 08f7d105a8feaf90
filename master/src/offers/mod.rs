//! Open offers with their frameworks and ages; the same for inverse offers.
//!
//! Plain data. All indexes change together, only here. Reads no clock: the caller sets the time
//! before a change, and without it (in a mirror) ages are unknown. Sends nothing. Pure decisions
//! are in the submodules: `offering` makes offers of grants, `accept` launches on them, `expiry`
//! bounds their time and number, `explain` answers why there are none.

pub mod accept;
pub mod expiry;
pub mod explain;
pub mod offering;

use std::cmp::Ordering;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use protocol::{AgentId, FrameworkId, InverseOffer, Offer, OfferId};
use runtime::Timestamp;
use rustc_hash::FxHashMap;

use crate::offers::expiry::HoldTimes;

/// An offer or inverse offer that a framework has to answer.
pub trait OpenOffer {
    /// The id that the answer names.
    fn id(&self) -> &OfferId;
    /// The agent with the resources that are offered or asked for.
    fn agent(&self) -> &AgentId;
    /// The framework that has to answer.
    fn framework(&self) -> &FrameworkId;
}

macro_rules! out {
    ($($offer:ty),*) => {$(
        impl OpenOffer for $offer {
            fn id(&self) -> &OfferId {
                &self.id
            }

            fn agent(&self) -> &AgentId {
                &self.agent_id
            }

            fn framework(&self) -> &FrameworkId {
                &self.framework_id
            }
        }
    )*};
}
out!(Offer, InverseOffer);

/// An offer id ordered by its number, then by its text. Numbers are compared in place, texts are
/// not; and the newest come last, so that insertions and removals stay in one part of the tree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    number: u64,
    id: OfferId,
}

impl Key {
    fn of(id: &OfferId) -> Self {
        Self {
            number: number(id),
            id: id.clone(),
        }
    }
}

/// The number at the end of an id; 0 if there is none.
fn number(id: &OfferId) -> u64 {
    let text = id.as_str();
    let digits = text.bytes().rev().take_while(u8::is_ascii_digit).count();
    text[text.len() - digits..].parse().unwrap_or(0)
}

/// The order of [`Offers::iter`].
pub(crate) fn in_order(one: &OfferId, other: &OfferId) -> Ordering {
    (number(one), one).cmp(&(number(other), other))
}

/// Open offers in the order in which they were made.
#[derive(Clone, Debug)]
pub struct Offers<T = Offer> {
    by_id: BTreeMap<Key, TimedOffer<T>>,
    /// These two are never iterated: a lookup by hash replaces a dozen comparisons of texts.
    by_agent: FxHashMap<AgentId, BTreeSet<Key>>,
    by_framework: FxHashMap<FrameworkId, BTreeSet<Key>>,
    ages: Ages,
}

/// An open offer and its time.
#[derive(Debug)]
struct TimedOffer<T> {
    offer: Arc<T>,
    at: Timestamp,
}

impl<T> Clone for TimedOffer<T> {
    fn clone(&self) -> Self {
        Self {
            offer: Arc::clone(&self.offer),
            at: self.at,
        }
    }
}

/// How long offers are held.
#[derive(Clone, Debug, Default)]
struct Ages {
    /// The current time, if set.
    now: Option<Timestamp>,
    /// Hold times of all offers that have ended.
    held: Arc<HoldTimes>,
    /// Hold times by framework, until it ends: count, sum and maximum.
    by_framework: FxHashMap<FrameworkId, FrameworkHoldTimes>,
}

/// Hold times of a framework's ended offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameworkHoldTimes {
    /// Number of offers.
    pub count: u64,
    /// Sum of the times.
    pub sum: Duration,
    /// The longest time.
    pub longest: Duration,
}

impl<T> Default for Offers<T> {
    fn default() -> Self {
        Self {
            by_id: BTreeMap::new(),
            by_agent: FxHashMap::default(),
            by_framework: FxHashMap::default(),
            ages: Ages::default(),
        }
    }
}

impl<T: OpenOffer> Offers<T> {
    /// The open offer with that id.
    pub fn get(&self, id: &OfferId) -> Option<&Arc<T>> {
        self.by_id.get(&Key::of(id)).map(|made| &made.offer)
    }

    /// Sets the current time.
    pub fn set_time(&mut self, now: Timestamp) {
        self.ages.now = Some(now);
    }

    /// When the oldest offer was made.
    pub fn oldest(&self) -> Option<Timestamp> {
        self.by_id.first_key_value().map(|(_, made)| made.at)
    }

    /// When the oldest offer to that framework was made.
    pub fn oldest_of(&self, framework: &FrameworkId) -> Option<Timestamp> {
        let first = self.by_framework.get(framework)?.first()?;
        self.by_id.get(first).map(|made| made.at)
    }

    /// Offers at least this old, oldest first, and offers of unknown age: the clock was set back
    /// after they were made.
    pub fn made_until(&self, now: Timestamp, age: Duration) -> Vec<OfferId> {
        let late = self.by_id.values();
        let late = late.take_while(|made| made.at + age <= now || made.at > now);
        late.map(|made| made.offer.id().clone()).collect()
    }

    /// Number of the framework's open offers.
    pub fn count_of(&self, framework: &FrameworkId) -> usize {
        self.by_framework.get(framework).map_or(0, BTreeSet::len)
    }

    /// Hold times of ended offers, of all and by framework; `None` without a clock.
    pub fn held(&self) -> Option<(&HoldTimes, &FxHashMap<FrameworkId, FrameworkHoldTimes>)> {
        let ages = &self.ages;
        ages.now.map(|_| (ages.held.as_ref(), &ages.by_framework))
    }

    /// Forgets the hold times of an ended framework.
    pub fn forget(&mut self, framework: &FrameworkId) {
        self.ages.by_framework.remove(framework);
    }

    /// Number of open offers.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether no offer is open.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// All open offers.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.by_id.values().map(|made| &made.offer)
    }

    /// Open offers of an agent's resources.
    pub fn of_agent(&self, agent: &AgentId) -> impl Iterator<Item = &Arc<T>> {
        self.listed(self.by_agent.get(agent))
    }

    /// Open offers to a framework.
    pub fn of_framework(&self, framework: &FrameworkId) -> impl Iterator<Item = &Arc<T>> {
        self.listed(self.by_framework.get(framework))
    }

    fn listed<'a>(&'a self, keys: Option<&'a BTreeSet<Key>>) -> impl Iterator<Item = &'a Arc<T>> {
        keys.into_iter()
            .flatten()
            .filter_map(|key| self.by_id.get(key))
            .map(|made| &made.offer)
    }

    /// Adds an offer.
    pub fn insert(&mut self, offer: Arc<T>) {
        let key = Key::of(offer.id());
        list(&mut self.by_agent, offer.agent(), &key);
        list(&mut self.by_framework, offer.framework(), &key);
        let at = self.ages.now.unwrap_or_default();
        self.by_id.insert(key, TimedOffer { offer, at });
    }

    /// Removes an offer.
    pub fn remove(&mut self, id: &OfferId) -> Option<Arc<T>> {
        self.remove_if(id, |_| true)
    }

    /// Removes an offer if it is there and `right` is true.
    pub fn remove_if(&mut self, id: &OfferId, right: impl FnOnce(&T) -> bool) -> Option<Arc<T>> {
        let key = Key::of(id);
        let Entry::Occupied(entry) = self.by_id.entry(key) else {
            return None;
        };
        if !right(&entry.get().offer) {
            return None;
        }
        let (key, TimedOffer { offer, at }) = entry.remove_entry();
        unlist(&mut self.by_agent, offer.agent(), &key);
        unlist(&mut self.by_framework, offer.framework(), &key);
        self.ages.record(offer.framework(), at);
        Some(offer)
    }
}

impl Ages {
    /// Records the end of an offer made at that time.
    fn record(&mut self, framework: &FrameworkId, made: Timestamp) {
        let Some(now) = self.now else {
            return;
        };
        let held = now.saturating_since(made);
        Arc::make_mut(&mut self.held).record(held);
        let by = match self.by_framework.get_mut(framework) {
            Some(by) => by,
            None => self.by_framework.entry(framework.clone()).or_default(),
        };
        by.count += 1;
        by.sum = by.sum.saturating_add(held);
        by.longest = by.longest.max(held);
    }
}

fn list<K: Eq + Hash + Clone>(index: &mut FxHashMap<K, BTreeSet<Key>>, of: &K, key: &Key) {
    match index.get_mut(of) {
        Some(keys) => drop(keys.insert(key.clone())),
        None => drop(index.insert(of.clone(), BTreeSet::from([key.clone()]))),
    }
}

fn unlist<K: Eq + Hash>(index: &mut FxHashMap<K, BTreeSet<Key>>, of: &K, key: &Key) {
    if let Some(keys) = index.get_mut(of) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(of);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::MasterId;

    fn offer(id: OfferId, agent: &str) -> Arc<Offer> {
        Arc::new(Offer {
            id,
            framework_id: FrameworkId::new("f").unwrap(),
            agent_id: AgentId::new(agent).unwrap(),
            hostname: String::new(),
            role: "*".to_owned(),
            resources: Default::default(),
            attributes: Default::default(),
            executor_ids: Vec::new(),
            unavailability: None,
            domain: None,
            endpoint: None,
        })
    }

    #[test]
    fn offers_are_listed_in_creation_order() {
        let (master, before) = (
            MasterId::new("m").unwrap(),
            MasterId::new("before").unwrap(),
        );
        let mut offers = Offers::default();
        for number in [100, 9, 10] {
            offers.insert(offer(master.offer(number), "a"));
        }
        offers.insert(offer(before.offer(10), "b"));
        offers.insert(offer(OfferId::new("none").unwrap(), "a"));
        let texts =
            |all: Vec<&Arc<Offer>>| all.iter().map(|o| o.id.to_string()).collect::<Vec<_>>();
        let all = texts(offers.iter().collect());
        assert_eq!(all, ["none", "m-O9", "before-O10", "m-O10", "m-O100"]);
        let sorted = offers.iter().map(|offer| &offer.id);
        assert!(sorted.is_sorted_by(|one, other| in_order(one, other).is_lt()));
        let of_agent = texts(offers.of_agent(&AgentId::new("a").unwrap()).collect());
        assert_eq!(of_agent, ["none", "m-O9", "m-O10", "m-O100"]);
        let framework = FrameworkId::new("f").unwrap();
        assert_eq!(texts(offers.of_framework(&framework).collect()), all);
    }

    #[test]
    fn offer_failing_the_check_stays() {
        let id = MasterId::new("m").unwrap().offer(7);
        let mut offers = Offers::default();
        offers.insert(offer(id.clone(), "a"));
        assert!(offers.remove_if(&id, |_| false).is_none() && offers.get(&id).is_some());
        assert!(offers.remove_if(&id, |offer| offer.id == id).is_some());
        assert!(offers.is_empty() && offers.remove(&id).is_none());
        assert_eq!(offers.of_agent(&AgentId::new("a").unwrap()).count(), 0);
    }
}
