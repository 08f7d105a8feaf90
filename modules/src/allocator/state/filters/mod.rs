//! Filters and marks: refused resources, and the agents that the next run considers.
//!
//! An agent is considered again only after a change, so that the cost of a run follows the number
//! of changes and not the size of the cluster.
//!
//! | module | contents |
//! |---|---|
//! | `agent_filters` | the filters on one agent, by client |
//! | `check` | applies the filters to a slate |
//! | `exclusions` | reports them by client |
//! | `refusals` | the resources that a client refused on an agent, and the end of each refusal |

pub(in crate::allocator) mod agent_filters;
pub(in crate::allocator::state) mod check;
pub(in crate::allocator::state) mod exclusions;
pub(in crate::allocator) mod refusals;

use module_api::sorter::Client;
use protocol::{AgentId, AgentInfo};
use resources::Resources;
use runtime::Instant;

use super::{AllocatorState, PoolBalance};
use agent_filters::AgentFilters;
use refusals::Filters;

/// When an agent is considered next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
    Unmarked,
    /// In the next batch.
    Batch,
    /// In the next run.
    Run,
}

impl AllocatorState {
    pub(super) fn add_filter(
        &mut self,
        slot: u32,
        client: Client,
        refused: Resources,
        until: Instant,
    ) {
        let Some(record) = self.clients.get_mut(client) else {
            return;
        };
        let Some(agent) = self.agents[slot as usize].as_mut() else {
            return;
        };
        if !record.subscribed {
            return;
        }
        record.filtered.insert(slot);
        let [before, after] = agent
            .filters
            .add(client, refused, until, &mut self.refusals);
        let serial = agent.serial;
        if before != after {
            before.map(|end| self.ends.remove(&(end, slot, serial, client)));
            after.map(|end| self.ends.insert((end, slot, serial, client)));
        }
    }

    /// The filters of an agent that is registered again, if its properties are unchanged. With
    /// other attributes, frameworks may want it.
    pub(super) fn filters_of(&self, id: &AgentId, info: &AgentInfo) -> AgentFilters {
        let slot = self.by_id.get(id);
        let agent = slot.and_then(|slot| self.agents[*slot as usize].as_ref());
        let same = agent.filter(|agent| {
            agent.attributes == info.attributes
                && agent.hostname == info.hostname
                && agent.domain == info.domain
        });
        same.map_or_else(AgentFilters::default, |agent| agent.filters.clone())
    }

    /// Restores the filters of an agent that was registered again.
    pub(super) fn restore_filters(&mut self, slot: u32, filters: AgentFilters) {
        for (client, filters) in filters {
            let record = self.clients.get_mut(client);
            let Some(record) = record.filter(|record| record.subscribed) else {
                continue;
            };
            let Some(agent) = self.agents[slot as usize].as_mut() else {
                return;
            };
            record.filtered.insert(slot);
            let end = filters.first_end();
            let end = end.map(|end| (end, slot, agent.serial, client));
            self.ends.extend(end);
            agent.filters.restore(client, filters);
        }
    }

    /// Drops all filters of a client. Returns the slots of their agents.
    pub(super) fn drop_filters(&mut self, client: Client) -> Vec<u32> {
        let Some(record) = self.clients.get_mut(client) else {
            return Vec::new();
        };
        let mut filtered: Vec<u32> = std::mem::take(&mut record.filtered).into_iter().collect();
        filtered.sort_unstable();
        for &slot in &filtered {
            let Some(agent) = self.agents[slot as usize].as_mut() else {
                continue;
            };
            let serial = agent.serial;
            if let Some(filters) = agent.filters.remove(client) {
                self.forget_end(slot, serial, client, &filters);
            }
        }
        filtered
    }

    pub(super) fn forget_end(&mut self, slot: u32, serial: u64, client: Client, filters: &Filters) {
        if let Some(end) = filters.first_end() {
            self.ends.remove(&(end, slot, serial, client));
        }
    }

    /// Whether all present filters are still in force.
    pub(super) fn all_filters_hold(&self, now: Instant) -> bool {
        self.ends.first().is_none_or(|(end, ..)| *end > now)
    }

    /// Drops expired filters and marks their agents for the run that begins now.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some(&(end, slot, serial, client)) = self.ends.first() {
            if end > now {
                return;
            }
            self.ends.pop_first();
            let agent = self.agents[slot as usize].as_mut();
            let Some(agent) = agent.filter(|agent| agent.serial == serial) else {
                continue;
            };
            let Some(next) = agent.filters.expire(client, now) else {
                continue;
            };
            match next {
                Some(end) => drop(self.ends.insert((end, slot, serial, client))),
                None => {
                    if let Some(record) = self.clients.get_mut(client) {
                        record.filtered.remove(&slot);
                    }
                }
            }
            self.mark(slot, Mark::Run);
        }
    }

    /// Marks the agent for the next batch.
    pub(super) fn mark_for_batch(&mut self, slot: u32) {
        self.mark(slot, Mark::Batch);
    }

    /// Whether there is an agent in that slot that is not marked for `mark` or earlier.
    pub(super) fn would_mark(&self, slot: u32, mark: Mark) -> bool {
        let agent = self.agents.get(slot as usize).and_then(Option::as_ref);
        agent.is_some_and(|agent| agent.mark.max(self.all_agents) < mark)
    }

    pub(super) fn mark(&mut self, slot: u32, mark: Mark) {
        if !self.would_mark(slot, mark) {
            return;
        }
        if let Some(Some(agent)) = self.agents.get_mut(slot as usize) {
            agent.mark = mark;
        }
        match mark {
            Mark::Unmarked => {}
            Mark::Batch => self.dirty[0].push(slot),
            Mark::Run => self.dirty[1].push(slot),
        }
    }

    /// Marks all agents: after changes by operators that concern everything, and for clients that
    /// were never considered.
    pub(super) fn mark_all(&mut self, mark: Mark) {
        self.all_agents = self.all_agents.max(mark);
    }

    /// Whether an event requires a run at once.
    pub fn wants_run(&self) -> bool {
        !self.is_paused() && (self.all_agents == Mark::Run || !self.dirty[1].is_empty())
    }

    /// The agents of a new run, in the order of their slots. Clears their marks.
    pub(super) fn take_dirty(&mut self, batch: bool) -> Vec<u32> {
        let mut slots = std::mem::take(&mut self.dirty[1]);
        let due = if batch { Mark::Batch } else { Mark::Run };
        if self.all_agents >= due {
            self.all_agents = Mark::Unmarked;
            slots = self.by_id.values().copied().collect();
            self.dirty[0].clear();
            self.quotas.forget_short();
        } else if batch {
            slots.append(&mut self.dirty[0]);
            slots.extend(self.quotas.take_short());
        }
        slots.sort_unstable();
        slots.dedup();
        self.scans.begin(batch);
        for slot in &slots {
            self.scans.scan(*slot);
            if let Some(Some(agent)) = self.agents.get_mut(*slot as usize) {
                agent.mark = Mark::Unmarked;
                agent.pools.iter_mut().for_each(PoolBalance::begin_run);
            }
        }
        slots
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use module_api::allocator::{AgentAdded, FrameworkAdded, Recovered};
    use protocol::{FrameworkId, FrameworkInfo};
    use resources::Role;

    use super::*;
    use crate::allocator::state::filters::refusals::FILTERS_MAX;

    const AGENTS: u64 = 10;
    const FRAMEWORKS: u64 = 7;

    fn crowded() -> AllocatorState {
        let mut state = AllocatorState::default();
        for n in 0..FRAMEWORKS {
            let mut info = FrameworkInfo::new("nobody", format!("f{n}"));
            info.roles = ["r".to_owned()].into();
            state.framework_added(FrameworkAdded {
                framework_id: FrameworkId::new(format!("f{n}")).unwrap(),
                info,
                wants: Default::default(),
                active: true,
            });
        }
        for n in 0..AGENTS {
            state.agent_added(AgentAdded {
                agent_id: AgentId::new(format!("a{n}")).unwrap(),
                session: 1,
                info: AgentInfo::new(String::new(), "cpus:90;mem:9000".parse().unwrap()),
                oversubscribed: Resources::new(),
                used: Vec::new(),
            });
        }
        state
    }

    /// Number of filters, ends, agents by client, and marks.
    fn kept(state: &AllocatorState) -> [usize; 4] {
        let agents = state.agents();
        let filters = agents.flat_map(|agent| agent.filters.iter());
        let records = state.clients.iter();
        [
            filters.map(|(_, filters)| filters.len()).sum(),
            state.ends.len(),
            records.map(|(_, record)| record.filtered.len()).sum(),
            state.dirty.iter().map(Vec::len).sum(),
        ]
    }

    /// Declines `times` offers, 1 ms apart; `what` returns the resources and the seconds of each
    /// filter. Batches run as usual.
    fn decline(state: &mut AllocatorState, times: u64, what: impl Fn(u64) -> (Resources, u64)) {
        let role = Role::new("r").unwrap();
        for n in 0..times {
            let now = Instant::default() + Duration::from_millis(n);
            if n % 1_000 == 0 {
                state.candidates(now, true);
            }
            let (resources, seconds) = what(n);
            let recovered = Recovered {
                framework_id: FrameworkId::new(format!("f{}", n % FRAMEWORKS)).unwrap(),
                agent_id: AgentId::new(format!("a{}", n % AGENTS)).unwrap(),
                resources: resources.allocate(&role),
                refuse: Some(Duration::from_secs(seconds)),
                beside_offer: false,
            };
            state.recovered(&recovered, now);
        }
    }

    /// SPEC 4.6: a million equal declines keep one filter for each client and agent.
    #[test]
    fn equal_declines_keep_one_filter_per_client_and_agent() {
        let mut state = crowded();
        let all: Resources = "cpus:90;mem:9000".parse().unwrap();
        decline(&mut state, 1_000_000, |_| (all.clone(), 86_400));
        let pairs = (AGENTS * FRAMEWORKS) as usize;
        assert_eq!(kept(&state), [pairs, pairs, pairs, AGENTS as usize]);
    }

    /// Different amounts and durations keep at most a few filters each, and none after their ends.
    #[test]
    fn different_declines_keep_a_bounded_number_of_filters() {
        let mut state = crowded();
        let amounts = |n: u64| format!("cpus:{};mem:{}", 1 + n * 7 % 83, 1 + n * 31 % 8_999);
        let amounts: Vec<Resources> = (0..997).map(|n| amounts(n).parse().unwrap()).collect();
        let pairs = (AGENTS * FRAMEWORKS) as usize;
        decline(&mut state, 50_000, |n| {
            (amounts[n as usize % 997].clone(), 100 + n * 13 % 86_400)
        });
        let [filters, ends, keys, marks] = kept(&state);
        assert_eq!([ends, keys, marks], [pairs, pairs, AGENTS as usize]);
        assert!(
            (pairs..=pairs * FILTERS_MAX).contains(&filters),
            "{filters}"
        );
        state.candidates(Instant::default() + Duration::from_secs(100_000), true);
        assert_eq!(kept(&state), [0; 4]);
    }
}
