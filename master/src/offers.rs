//! The offers that are out, and whose they are.
//!
//! Plain data. All three indexes change together, here only. It never tells anybody anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::{AgentId, FrameworkId, Offer, OfferId};

/// The offers that are out.
#[derive(Clone, Debug, Default)]
pub struct Offers {
    by_id: BTreeMap<OfferId, Arc<Offer>>,
    by_agent: BTreeMap<AgentId, BTreeSet<OfferId>>,
    by_framework: BTreeMap<FrameworkId, BTreeSet<OfferId>>,
}

impl Offers {
    /// The offer of that id, if it is out.
    pub fn get(&self, id: &OfferId) -> Option<&Arc<Offer>> {
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
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Offer>> {
        self.by_id.values()
    }

    /// Those of one agent's resources.
    pub fn of_agent(&self, agent: &AgentId) -> impl Iterator<Item = &Arc<Offer>> {
        self.listed(self.by_agent.get(agent))
    }

    /// Those made to one framework.
    pub fn of_framework(&self, framework: &FrameworkId) -> impl Iterator<Item = &Arc<Offer>> {
        self.listed(self.by_framework.get(framework))
    }

    fn listed<'a>(
        &'a self,
        ids: Option<&'a BTreeSet<OfferId>>,
    ) -> impl Iterator<Item = &'a Arc<Offer>> {
        ids.into_iter()
            .flatten()
            .filter_map(|id| self.by_id.get(id))
    }

    /// This one is out.
    pub fn insert(&mut self, offer: Arc<Offer>) {
        let id = offer.id.clone();
        self.by_agent
            .entry(offer.agent_id.clone())
            .or_default()
            .insert(id.clone());
        self.by_framework
            .entry(offer.framework_id.clone())
            .or_default()
            .insert(id.clone());
        self.by_id.insert(id, offer);
    }

    /// This one is no longer out.
    pub fn remove(&mut self, id: &OfferId) -> Option<Arc<Offer>> {
        let offer = self.by_id.remove(id)?;
        strike(&mut self.by_agent, &offer.agent_id, id);
        strike(&mut self.by_framework, &offer.framework_id, id);
        Some(offer)
    }
}

fn strike<K: Ord>(index: &mut BTreeMap<K, BTreeSet<OfferId>>, key: &K, id: &OfferId) {
    if let Some(ids) = index.get_mut(key) {
        ids.remove(id);
        if ids.is_empty() {
            index.remove(key);
        }
    }
}
