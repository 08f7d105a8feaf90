//! Returned: whether what ended gives back what it had, so that all of an agent is held or on offer at some moment.
//!
//! Told what is left of an agent at each offer of it. Remembers the least that was left since [`SETTLED`] after the last fault. Offers are
//! of all that is free, so the least is nothing, unless a master keeps for ever what nobody holds. It says nothing about agents that
//! were hardly offered, nor about what is reserved or revocable, nor where the recovery is over before that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::AgentId;
use resources::Resources;

/// So long after the last fault masters know all that agents have: one that was started anew waits ten minutes for them.
pub const SETTLED: Duration = Duration::from_secs(11 * 60);
/// So many offers of an agent say enough of it.
pub const OFFERS_MIN: u32 = 5;

/// What was left of the agents.
#[derive(Default)]
pub struct Returned {
    faults_over: Option<Duration>,
    least: BTreeMap<AgentId, Least>,
    /// Agents of which too much may be thought free.
    unsure: BTreeSet<AgentId>,
}

#[derive(Clone, Copy)]
struct Least {
    offers: u32,
    cpus: f64,
    mem: f64,
}

impl Returned {
    /// No further fault comes.
    pub fn faults_over(&mut self, at: Duration) {
        self.faults_over = Some(at);
    }

    /// What is held of this agent may not be known in full.
    pub fn doubt(&mut self, agent: &AgentId) {
        self.unsure.insert(agent.clone());
    }

    /// This is left of an agent, beside what is held and on offer.
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

    /// How many agents can be judged.
    pub fn judgements(&self) -> u64 {
        self.judged().count() as u64
    }

    fn judged(&self) -> impl Iterator<Item = (&AgentId, &Least)> {
        let judged = self.least.iter();
        judged.filter(|(agent, least)| least.offers >= OFFERS_MIN && !self.unsure.contains(*agent))
    }

    /// The first agent of which something was never held nor on offer.
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
