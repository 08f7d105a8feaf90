//! The offers that are out, and whose they are; inverse offers likewise.
//!
//! Plain data. All three indexes change together, here only. It never tells anybody anything.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::sync::Arc;

use protocol::{AgentId, FrameworkId, InverseOffer, Offer, OfferId};
use rustc_hash::FxHashMap;

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

/// The offers that are out.
#[derive(Clone, Debug)]
pub struct Offers<T = Offer> {
    by_id: BTreeMap<OfferId, Arc<T>>,
    /// These two are never gone through: to find one by a text's hash is one look where a tree compares a dozen texts.
    by_agent: FxHashMap<AgentId, BTreeSet<OfferId>>,
    by_framework: FxHashMap<FrameworkId, BTreeSet<OfferId>>,
}

impl<T> Default for Offers<T> {
    fn default() -> Self {
        Self {
            by_id: BTreeMap::new(),
            by_agent: FxHashMap::default(),
            by_framework: FxHashMap::default(),
        }
    }
}

impl<T: Out> Offers<T> {
    /// The offer of that id, if it is out.
    pub fn get(&self, id: &OfferId) -> Option<&Arc<T>> {
        self.by_id.get(id)
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
        self.by_id.values()
    }

    /// Those of one agent's resources.
    pub fn of_agent(&self, agent: &AgentId) -> impl Iterator<Item = &Arc<T>> {
        self.listed(self.by_agent.get(agent))
    }

    /// Those made to one framework.
    pub fn of_framework(&self, framework: &FrameworkId) -> impl Iterator<Item = &Arc<T>> {
        self.listed(self.by_framework.get(framework))
    }

    fn listed<'a>(
        &'a self,
        ids: Option<&'a BTreeSet<OfferId>>,
    ) -> impl Iterator<Item = &'a Arc<T>> {
        ids.into_iter()
            .flatten()
            .filter_map(|id| self.by_id.get(id))
    }

    /// This one is out.
    pub fn insert(&mut self, offer: Arc<T>) {
        let id = offer.id().clone();
        list(&mut self.by_agent, offer.agent(), &id);
        list(&mut self.by_framework, offer.framework(), &id);
        self.by_id.insert(id, offer);
    }

    /// This one is no longer out.
    pub fn remove(&mut self, id: &OfferId) -> Option<Arc<T>> {
        let offer = self.by_id.remove(id)?;
        strike(&mut self.by_agent, offer.agent(), id);
        strike(&mut self.by_framework, offer.framework(), id);
        Some(offer)
    }
}

fn list<K: Eq + Hash + Clone>(index: &mut FxHashMap<K, BTreeSet<OfferId>>, key: &K, id: &OfferId) {
    let ids = index.entry(key.clone()).or_default();
    ids.insert(id.clone());
}

fn strike<K: Eq + Hash>(index: &mut FxHashMap<K, BTreeSet<OfferId>>, key: &K, id: &OfferId) {
    if let Some(ids) = index.get_mut(key) {
        ids.remove(id);
        if ids.is_empty() {
            index.remove(key);
        }
    }
}
