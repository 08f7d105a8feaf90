//! The offers that are out, whose they are and since when; inverse offers likewise.
//!
//! Plain data. All indexes change together, here only. It reads no clock: it is told what time it is before it changes, and where nobody says
//! so (in a mirror) it knows no ages. It never tells anybody anything.

use std::cmp::Ordering;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use protocol::{AgentId, FrameworkId, InverseOffer, Offer, OfferId};
use runtime::Timestamp;
use rustc_hash::FxHashMap;

use crate::hoarding::HeldFor;

/// Something of one agent that a framework has still to answer.
pub trait Out {
    /// By which it is answered.
    fn id(&self) -> &OfferId;
    /// Which agent it is about.
    fn agent(&self) -> &AgentId;
    /// Who is to answer.
    fn framework(&self) -> &FrameworkId;
}

macro_rules! out {
    ($($offer:ty),*) => {$(
        impl Out for $offer {
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

/// An id as it is found here: by the number that its master gave it, and by its text where that does not tell. Numbers are compared where they
/// lie, texts are not; and what is newest comes last, so that it is put in and taken out where the others of its time are.
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

/// The number at the end of an id, 0 if there is none.
fn number(id: &OfferId) -> u64 {
    let text = id.as_str();
    let digits = text.bytes().rev().take_while(u8::is_ascii_digit).count();
    text[text.len() - digits..].parse().unwrap_or(0)
}

/// In the order of [`Offers::iter`].
pub(crate) fn in_order(one: &OfferId, other: &OfferId) -> Ordering {
    (number(one), one).cmp(&(number(other), other))
}

/// The offers that are out, in the order in which they were made.
#[derive(Clone, Debug)]
pub struct Offers<T = Offer> {
    by_id: BTreeMap<Key, Made<T>>,
    /// These two are never gone through: to find one by a text's hash is one look where a tree compares a dozen texts.
    by_agent: FxHashMap<AgentId, BTreeSet<Key>>,
    by_framework: FxHashMap<FrameworkId, BTreeSet<Key>>,
    ages: Ages,
}

/// One that is out, and since when.
#[derive(Debug)]
struct Made<T> {
    offer: Arc<T>,
    at: Timestamp,
}

impl<T> Clone for Made<T> {
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
    /// What time it is, if anybody says.
    now: Option<Timestamp>,
    /// By all together, of what is not out any more.
    held: Arc<HeldFor>,
    /// By each framework, as long as it has not ended: how many, for how long together, and the longest.
    by_framework: FxHashMap<FrameworkId, HeldBy>,
}

/// How long a framework held what it has not any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldBy {
    /// How many offers.
    pub count: u64,
    /// All of them together.
    pub sum: Duration,
    /// The longest.
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

impl<T: Out> Offers<T> {
    /// The offer of that id, if it is out.
    pub fn get(&self, id: &OfferId) -> Option<&Arc<T>> {
        self.by_id.get(&Key::of(id)).map(|made| &made.offer)
    }

    /// What time it is from now on.
    pub fn hear_time(&mut self, now: Timestamp) {
        self.ages.now = Some(now);
    }

    /// When the oldest was made.
    pub fn oldest(&self) -> Option<Timestamp> {
        self.by_id.first_key_value().map(|(_, made)| made.at)
    }

    /// When the oldest of those made to one framework was.
    pub fn oldest_of(&self, framework: &FrameworkId) -> Option<Timestamp> {
        let first = self.by_framework.get(framework)?.first()?;
        self.by_id.get(first).map(|made| made.at)
    }

    /// Those that have been out for so long now, oldest first, and those that nobody knows how long: a clock was set back since they were made.
    pub fn made_until(&self, now: Timestamp, age: Duration) -> Vec<OfferId> {
        let late = self.by_id.values();
        let late = late.take_while(|made| made.at + age <= now || made.at > now);
        late.map(|made| made.offer.id().clone()).collect()
    }

    /// How many one framework holds.
    pub fn count_of(&self, framework: &FrameworkId) -> usize {
        self.by_framework.get(framework).map_or(0, BTreeSet::len)
    }

    /// How long those were held that are not out any more, by all and by each framework; nothing where no time is known.
    pub fn held(&self) -> Option<(&HeldFor, &FxHashMap<FrameworkId, HeldBy>)> {
        let ages = &self.ages;
        ages.now.map(|_| (ages.held.as_ref(), &ages.by_framework))
    }

    /// A framework has ended, and with it what is known of how long it held its offers.
    pub fn forget(&mut self, framework: &FrameworkId) {
        self.ages.by_framework.remove(framework);
    }

    /// How many are out.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether none is out.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.by_id.values().map(|made| &made.offer)
    }

    /// Those of one agent's resources.
    pub fn of_agent(&self, agent: &AgentId) -> impl Iterator<Item = &Arc<T>> {
        self.listed(self.by_agent.get(agent))
    }

    /// Those made to one framework.
    pub fn of_framework(&self, framework: &FrameworkId) -> impl Iterator<Item = &Arc<T>> {
        self.listed(self.by_framework.get(framework))
    }

    fn listed<'a>(&'a self, keys: Option<&'a BTreeSet<Key>>) -> impl Iterator<Item = &'a Arc<T>> {
        keys.into_iter()
            .flatten()
            .filter_map(|key| self.by_id.get(key))
            .map(|made| &made.offer)
    }

    /// This one is out.
    pub fn insert(&mut self, offer: Arc<T>) {
        let key = Key::of(offer.id());
        list(&mut self.by_agent, offer.agent(), &key);
        list(&mut self.by_framework, offer.framework(), &key);
        let at = self.ages.now.unwrap_or_default();
        self.by_id.insert(key, Made { offer, at });
    }

    /// This one is no longer out.
    pub fn remove(&mut self, id: &OfferId) -> Option<Arc<T>> {
        self.remove_if(id, |_| true)
    }

    /// This one is no longer out, if it is and is as it should be.
    pub fn remove_if(&mut self, id: &OfferId, right: impl FnOnce(&T) -> bool) -> Option<Arc<T>> {
        let key = Key::of(id);
        let Entry::Occupied(entry) = self.by_id.entry(key) else {
            return None;
        };
        if !right(&entry.get().offer) {
            return None;
        }
        let (key, Made { offer, at }) = entry.remove_entry();
        strike(&mut self.by_agent, offer.agent(), &key);
        strike(&mut self.by_framework, offer.framework(), &key);
        self.ages.record(offer.framework(), at);
        Some(offer)
    }
}

impl Ages {
    /// One that was made then is not out any more.
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

fn strike<K: Eq + Hash>(index: &mut FxHashMap<K, BTreeSet<Key>>, of: &K, key: &Key) {
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
            served: None,
        })
    }

    #[test]
    fn offers_are_listed_in_the_order_in_which_they_were_made() {
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
    fn one_that_is_not_as_it_should_be_stays() {
        let id = MasterId::new("m").unwrap().offer(7);
        let mut offers = Offers::default();
        offers.insert(offer(id.clone(), "a"));
        assert!(offers.remove_if(&id, |_| false).is_none() && offers.get(&id).is_some());
        assert!(offers.remove_if(&id, |offer| offer.id == id).is_some());
        assert!(offers.is_empty() && offers.remove(&id).is_none());
        assert_eq!(offers.of_agent(&AgentId::new("a").unwrap()).count(), 0);
    }
}
