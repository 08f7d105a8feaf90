//! The books' part on filters and marks: who refused what where, and which agents a run need look at.
//!
//! Pure, like all of the books. An agent is looked at again only after something about it has changed, so that the cost of a run
//! follows the changes and not the size of the cluster.

use module_api::sorter::Client;
use protocol::{AgentId, AgentInfo};
use resources::Resources;
use runtime::Instant;

use super::{Books, Side};
use crate::allocator::filter::Filters;
use crate::allocator::refused::Refused;

/// When an agent is next looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
    Unmarked,
    /// By the next batch.
    Batch,
    /// By the next run.
    Run,
}

impl Books {
    pub(super) fn add_filter(
        &mut self,
        slot: u32,
        client: Client,
        refused: Resources,
        until: Instant,
    ) {
        let Some(member) = self.clients.get_mut(client) else {
            return;
        };
        let Some(agent) = self.agents[slot as usize].as_mut() else {
            return;
        };
        if !member.subscribed {
            return;
        }
        member.filtered.insert(slot);
        let [before, after] = agent
            .filters
            .add(client, refused, until, &mut self.refusals);
        let serial = agent.serial;
        if before != after {
            before.map(|end| self.ends.remove(&(end, slot, serial, client)));
            after.map(|end| self.ends.insert((end, slot, serial, client)));
        }
    }

    /// What was refused of an agent that is told anew, if it looks as it did: with other attributes it may be wanted (SPEC 4.6).
    pub(super) fn filters_of(&self, id: &AgentId, info: &AgentInfo) -> Refused {
        let slot = self.by_id.get(id);
        let agent = slot.and_then(|slot| self.agents[*slot as usize].as_ref());
        let same = agent.filter(|agent| {
            agent.attributes == info.attributes
                && agent.hostname == info.hostname
                && agent.domain == info.domain
        });
        same.map_or_else(Refused::default, |agent| agent.filters.clone())
    }

    /// These were the filters of the agent that is in this slot anew.
    pub(super) fn restore_filters(&mut self, slot: u32, filters: Refused) {
        for (client, filters) in filters {
            let member = self.clients.get_mut(client);
            let Some(member) = member.filter(|member| member.subscribed) else {
                continue;
            };
            let Some(agent) = self.agents[slot as usize].as_mut() else {
                return;
            };
            member.filtered.insert(slot);
            let end = filters.first_end();
            let end = end.map(|end| (end, slot, agent.serial, client));
            self.ends.extend(end);
            agent.filters.restore(client, filters);
        }
    }

    /// A client refuses nothing any more. Gives the agents on which it did.
    pub(super) fn drop_filters(&mut self, client: Client) -> Vec<u32> {
        let Some(member) = self.clients.get_mut(client) else {
            return Vec::new();
        };
        let mut filtered: Vec<u32> = std::mem::take(&mut member.filtered).into_iter().collect();
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

    /// Whether no filter has ended by now that is still there.
    pub(super) fn all_filters_hold(&self, now: Instant) -> bool {
        self.ends.first().is_none_or(|(end, ..)| *end > now)
    }

    /// Lets go of the filters that have ended; their agents are looked at again by the run that begins now.
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
                    if let Some(member) = self.clients.get_mut(client) {
                        member.filtered.remove(&slot);
                    }
                }
            }
            self.mark(slot, Mark::Run);
        }
    }

    /// Has the agent looked at by the next batch.
    pub(super) fn look_again(&mut self, slot: u32) {
        self.mark(slot, Mark::Batch);
    }

    /// Whether there is an agent in that slot, and it would be looked at later than so.
    pub(super) fn would_mark(&self, slot: u32, mark: Mark) -> bool {
        let agent = self.agents.get(slot as usize).and_then(Option::as_ref);
        agent.is_some_and(|agent| agent.mark.max(self.everybody) < mark)
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
            Mark::Batch => self.marked[0].push(slot),
            Mark::Run => self.marked[1].push(slot),
        }
    }

    /// Has all agents looked at: for what operators change and concerns everybody, and for a client that was asked about none of them yet.
    pub(super) fn mark_everybody(&mut self, mark: Mark) {
        self.everybody = self.everybody.max(mark);
    }

    /// Whether something has happened that a run should follow at once.
    pub fn wants_run(&self) -> bool {
        !self.is_paused() && (self.everybody == Mark::Run || !self.marked[1].is_empty())
    }

    /// The agents that this run looks at, in order of their slots; they are marked no more.
    pub(super) fn take_marked(&mut self, batch: bool) -> Vec<u32> {
        let mut slots = std::mem::take(&mut self.marked[1]);
        let due = if batch { Mark::Batch } else { Mark::Run };
        if self.everybody >= due {
            self.everybody = Mark::Unmarked;
            slots = self.by_id.values().copied().collect();
            self.marked[0].clear();
            self.quotas.forget_short();
        } else if batch {
            slots.append(&mut self.marked[0]);
            slots.extend(self.quotas.take_short());
        }
        slots.sort_unstable();
        slots.dedup();
        self.looked.begin(batch);
        for slot in &slots {
            self.looked.look(*slot);
            if let Some(Some(agent)) = self.agents.get_mut(*slot as usize) {
                agent.mark = Mark::Unmarked;
                agent.sides.iter_mut().for_each(Side::begin_run);
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
    use resources::{Attributes, Role};

    use super::*;
    use crate::allocator::filter::FILTERS_MAX;

    const AGENTS: u64 = 10;
    const FRAMEWORKS: u64 = 7;

    fn crowded() -> Books {
        let mut books = Books::default();
        for n in 0..FRAMEWORKS {
            let mut info = FrameworkInfo::new("nobody", format!("f{n}"));
            info.roles = ["r".to_owned()].into();
            books.framework_added(FrameworkAdded {
                framework_id: FrameworkId::new(format!("f{n}")).unwrap(),
                info,
                wants: Default::default(),
                active: true,
            });
        }
        for n in 0..AGENTS {
            books.agent_added(AgentAdded {
                agent_id: AgentId::new(format!("a{n}")).unwrap(),
                session: 1,
                info: AgentInfo {
                    hostname: String::new(),
                    port: 5051,
                    resources: "cpus:90;mem:9000".parse().unwrap(),
                    attributes: Attributes::default(),
                    domain: None,
                    id: None,
                },
                oversubscribed: Resources::new(),
                used: Vec::new(),
            });
        }
        books
    }

    /// All that is kept for the sake of refusals: filters, their ends, agents by client, and marks.
    fn kept(books: &Books) -> [usize; 4] {
        let agents = books.agents();
        let filters = agents.flat_map(|agent| agent.filters.iter());
        let members = books.clients.iter();
        [
            filters.map(|(_, filters)| filters.len()).sum(),
            books.ends.len(),
            members.map(|(_, member)| member.filtered.len()).sum(),
            books.marked.iter().map(Vec::len).sum(),
        ]
    }

    /// Declines this often, a millisecond apart; what is declined and for how many seconds is for `what` to say. Batches come as ever.
    fn decline(books: &mut Books, times: u64, what: impl Fn(u64) -> (Resources, u64)) {
        let role = Role::new("r").unwrap();
        for n in 0..times {
            let now = Instant::default() + Duration::from_millis(n);
            if n % 1_000 == 0 {
                books.candidates(now, true);
            }
            let (resources, seconds) = what(n);
            let recovered = Recovered {
                framework_id: FrameworkId::new(format!("f{}", n % FRAMEWORKS)).unwrap(),
                agent_id: AgentId::new(format!("a{}", n % AGENTS)).unwrap(),
                resources: resources.allocate(&role),
                refuse: Some(Duration::from_secs(seconds)),
                beside_offer: false,
            };
            books.recovered(&recovered, now);
        }
    }

    /// SPEC 4.6: it is counted what is kept after a million declines, and that is one filter for each client and agent.
    #[test]
    fn a_million_declines_of_the_same_keep_one_filter_for_each_client_and_agent() {
        let mut books = crowded();
        let all: Resources = "cpus:90;mem:9000".parse().unwrap();
        decline(&mut books, 1_000_000, |_| (all.clone(), 86_400));
        let pairs = (AGENTS * FRAMEWORKS) as usize;
        assert_eq!(kept(&books), [pairs, pairs, pairs, AGENTS as usize]);
    }

    /// Of different amounts and for different times it is never more than a few for each, and nothing once all have ended.
    #[test]
    fn declines_of_ever_other_amounts_keep_a_bounded_number_and_leave_nothing() {
        let mut books = crowded();
        let amounts = |n: u64| format!("cpus:{};mem:{}", 1 + n * 7 % 83, 1 + n * 31 % 8_999);
        let amounts: Vec<Resources> = (0..997).map(|n| amounts(n).parse().unwrap()).collect();
        let pairs = (AGENTS * FRAMEWORKS) as usize;
        decline(&mut books, 50_000, |n| {
            (amounts[n as usize % 997].clone(), 100 + n * 13 % 86_400)
        });
        let [filters, ends, keys, marks] = kept(&books);
        assert_eq!([ends, keys, marks], [pairs, pairs, AGENTS as usize]);
        assert!(
            (pairs..=pairs * FILTERS_MAX).contains(&filters),
            "{filters}"
        );
        books.candidates(Instant::default() + Duration::from_secs(100_000), true);
        assert_eq!(kept(&books), [0; 4]);
    }
}
