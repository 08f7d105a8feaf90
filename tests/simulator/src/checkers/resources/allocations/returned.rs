//! Checks that ended tasks return their resources, so that at some moment all of an agent is used
//! or offered.
//!
//! Receives the unused rest of an agent at each offer, and keeps the minimum since [`SETTLED`]
//! after the last fault. Offers contain all free resources, so the minimum is empty unless a master
//! keeps resources without a holder. Agents with few offers, reserved and revocable resources, and
//! runs with a shorter recovery are not judged.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::AgentId;
use resources::Resources;

/// After the last fault masters know all of their agents after this time: a restarted one waits ten
/// minutes for them.
pub const SETTLED: Duration = Duration::from_secs(11 * 60);
/// Minimum number of offers for a judgement of an agent.
pub const OFFERS_MIN: u32 = 5;

/// The minimal rests of the agents.
#[derive(Default)]
pub struct Returned {
    faults_over: Option<Duration>,
    least: BTreeMap<AgentId, Least>,
    /// Agents whose free resources may be overestimated.
    unsure: BTreeSet<AgentId>,
}

#[derive(Clone, Copy)]
struct Least {
    offers: u32,
    cpus: f64,
    mem: f64,
}

impl Returned {
    /// No further fault follows.
    pub fn faults_over(&mut self, at: Duration) {
        self.faults_over = Some(at);
    }

    /// The holders of this agent may not be known in full.
    pub fn doubt(&mut self, agent: &AgentId) {
        self.unsure.insert(agent.clone());
    }

    /// The rest of an agent beside held and offered resources.
    pub fn left(&mut self, agent: &AgentId, left: &Resources, at: Duration) {
        if self.faults_over.is_none_or(|over| at < over + SETTLED) {
            return;
        }
        let left = left.unreserved();
        let least = self.least.entry(agent.clone()).or_insert(Least {
            offers: 0,
            cpus: f64::INFINITY,
            mem: f64::INFINITY,
        });
        least.offers += 1;
        least.cpus = least.cpus.min(left.cpus().as_f64());
        least.mem = least.mem.min(left.mem().as_f64());
    }

    /// The number of agents that can be judged.
    pub fn judgements(&self) -> u64 {
        self.judged().count() as u64
    }

    fn judged(&self) -> impl Iterator<Item = (&AgentId, &Least)> {
        let judged = self.least.iter();
        judged.filter(|(agent, least)| least.offers >= OFFERS_MIN && !self.unsure.contains(*agent))
    }

    /// The first agent with a resource that was never held or offered.
    pub fn lost(&self) -> Result<(), String> {
        let mut judged = self.judged();
        let lost = judged.find(|(_, least)| least.cpus > 0.0 || least.mem > 0.0);
        lost.map_or(Ok(()), |(agent, least)| {
            Err(format!(
                "of agent {agent} at least cpus:{};mem:{} was neither held nor offered at any of {} offers",
                least.cpus, least.mem, least.offers
            ))
        })
    }
}
