//! Revocation: finds unmet guarantees that a framework wants, and the tasks whose end would help.
//!
//! Counts only regular, unreserved resources, since reserved ones do not help other roles. Only the
//! master knows tasks, so the caller supplies them.

use std::collections::{BTreeMap, BTreeSet};

use module_api::allocator::{ListedTask, Victim};
use module_api::sorter::{BudgetIndex, Client, Pool, Stage, counts_for};
use protocol::AgentId;
use resources::{Name, Quantities, Resource, Resources, Role};
use runtime::Instant;

use super::booking::Recipient;
use super::quota::room;
use super::{Agent, AllocatorState};
use crate::allocator::clients::pool_index;
use crate::allocator::revoking::victims::{
    CandidateAgent, CandidateTask, Guards, Need, choose, unhelped, use_free,
};

/// Agents in one request to the master; further ones follow at the next check.
const AGENTS_MAX: usize = 500;

/// Unmet guarantees, and the agents that may help, by slot.
pub struct Shortage {
    needs: Vec<Need>,
    slots: Vec<u32>,
    candidates: Vec<CandidateAgent>,
}

/// The unmet guarantee of a role, beyond those of the roles below it.
struct Lack {
    index: BudgetIndex,
    role: Role,
    amount: Quantities,
    /// Clients that want it.
    clients: Vec<Client>,
}

impl Shortage {
    /// The roles that the free resources do not help.
    pub fn roles(&self) -> BTreeSet<Role> {
        unhelped(&self.needs, &self.candidates)
    }

    /// The resource names that these roles lack.
    pub fn names(&self, roles: &BTreeSet<Role>) -> BTreeSet<Name> {
        let needs = self.needs.iter();
        let needs = needs.filter(|need| roles.contains(&need.role));
        let lacks = needs.flat_map(|need| need.lacks.iter());
        let lacks = lacks.filter(|(_, amount)| !amount.is_zero());
        lacks.map(|(name, _)| name.clone()).collect()
    }
}

impl AllocatorState {
    /// Sets the agents on which tasks are revoked, with the role for each: until the next call,
    /// unreserved resources there are not shared fairly.
    pub fn keep(&mut self, kept: BTreeMap<u32, Role>) {
        self.kept = kept;
    }

    /// Whether tasks are revoked on the agent in this slot, which has not been replaced since they
    /// were named.
    pub fn is_kept(&self, slot: u32) -> bool {
        self.kept.contains_key(&slot)
    }

    /// Whether unreserved resources there are kept for a needy role in this stage.
    pub(super) fn keeps(&self, stage: Stage, slot: u32) -> bool {
        stage == Stage::Fair && self.is_kept(slot)
    }

    /// Agents whose tasks could help these roles, in the order of slots from `after` on, and the
    /// last slot of them.
    pub fn occupied(
        &self,
        shortage: &Shortage,
        roles: &BTreeSet<Role>,
        after: u32,
    ) -> (BTreeSet<AgentId>, u32) {
        let needs = shortage.needs.iter();
        let needs = needs.filter(|need| roles.contains(&need.role));
        let indices: BTreeSet<usize> = needs
            .flat_map(|need| need.candidates.iter().copied())
            .collect();
        let slots = indices.into_iter().map(|index| shortage.slots[index]);
        let occupied = slots.filter(|slot| {
            let agent = self.agents[*slot as usize].as_ref();
            agent.is_some_and(|agent| !agent.pools[pool_index(Pool::Regular)].holders.is_empty())
        });
        let (before, behind): (Vec<u32>, Vec<u32>) = occupied.partition(|slot| *slot <= after);
        let turn: Vec<u32> = behind.into_iter().chain(before).take(AGENTS_MAX).collect();
        let names = turn.iter().filter_map(|slot| self.name_of(*slot));
        let names = names.map(|(id, _)| id.clone()).collect();
        (names, turn.last().copied().unwrap_or(after))
    }

    /// The tasks to revoke for these roles. `consumed` has the quota consumption of each role,
    /// without outstanding offers.
    pub fn victims(
        &mut self,
        roles: &BTreeSet<Role>,
        tasks: &[ListedTask],
        consumed: &BTreeMap<String, Quantities>,
        now: Instant,
    ) -> Vec<Victim> {
        let mut shortage = self.shortage(now);
        shortage.needs.retain(|need| roles.contains(&need.role));
        let mut guards = self.guards(consumed);
        let indices: BTreeMap<u32, usize> = (0..)
            .zip(&shortage.slots)
            .map(|(index, slot)| (*slot, index))
            .collect();
        for (number, task) in tasks.iter().enumerate() {
            let role = task.resources.iter().find_map(Resource::allocation_role);
            let Some(role) = role.cloned() else {
                continue;
            };
            let frees = task.resources.open().quantities();
            let counts = counted(&role, &task.resources);
            if task.leaves {
                guards.lose(&role, &counts);
            }
            let slot = self.by_id.get(&task.agent_id);
            let Some(index) = slot.and_then(|slot| indices.get(slot)) else {
                continue;
            };
            let candidate = &mut shortage.candidates[*index];
            if task.leaves {
                candidate.free += &frees;
                candidate.leaving.push((role, frees));
                continue;
            }
            candidate.tasks.push(CandidateTask {
                number,
                role,
                frees,
                counts,
                priority: task.priority,
                since: task.since,
            });
        }
        let Shortage {
            mut needs,
            mut candidates,
            ..
        } = shortage;
        use_free(&mut needs, &mut candidates);
        let (total, _) = &self.totals[pool_index(Pool::Regular)];
        let chosen = choose(&needs, &mut candidates, &mut guards, total);
        let victim = |(number, role): (usize, Role)| {
            let task = tasks.get(number)?;
            Some(Victim {
                framework_id: task.framework_id.clone(),
                task_id: task.task_id.clone(),
                agent_id: task.agent_id.clone(),
                role: role.to_string(),
            })
        };
        chosen.into_iter().filter_map(victim).collect()
    }

    /// Guarantee and consumption of each role.
    fn guards(&self, consumed: &BTreeMap<String, Quantities>) -> Guards {
        let guaranteed = self.quotas.iter();
        let guaranteed = guaranteed.filter(|(_, quota)| !quota.guarantees.is_empty());
        Guards::new(guaranteed.map(|(role, quota)| {
            let has = consumed.get(role.as_str()).cloned();
            (
                role.clone(),
                quota.guarantees.clone(),
                has.unwrap_or_default(),
            )
        }))
    }

    /// The unmet guarantees of roles whose frameworks want offers, and the suitable agents with
    /// their free resources.
    pub fn shortage(&mut self, now: Instant) -> Shortage {
        let mut shortage = Shortage {
            needs: Vec::new(),
            slots: Vec::new(),
            candidates: Vec::new(),
        };
        self.settle();
        let mut recipients: Vec<Vec<Client>> = Vec::new();
        for mut lack in self.lacking() {
            let mut sets: Vec<Quantities> = Vec::new();
            lack.clients.retain(|client| {
                let Some(record) = self.clients.get(*client) else {
                    return false;
                };
                let recipient = Recipient::of(*client, record, Stage::Guarantees);
                let own = recipient.sets(&self.sets_min);
                let could = self.quotas.could_have(lack.index, &record.role, own);
                if could {
                    sets.extend_from_slice(own);
                }
                could
            });
            if lack.clients.is_empty() {
                continue;
            }
            sets.sort_unstable();
            sets.dedup();
            for (lacks, within) in self.quotas.by_limit(lack.index, &lack.amount) {
                recipients.push(lack.clients.clone());
                shortage.needs.push(Need {
                    role: lack.role.clone(),
                    lacks,
                    within,
                    sets: sets.clone(),
                    candidates: Vec::new(),
                });
            }
        }
        if shortage.needs.is_empty() {
            return shortage;
        }
        for slot in 0..self.slots() {
            let agent = self.agents[slot as usize].as_mut();
            let Some(agent) = agent.filter(|agent| agent.is_offered()) else {
                continue;
            };
            let index = shortage.candidates.len();
            let mut is_wanted = false;
            for (need, recipients) in shortage.needs.iter_mut().zip(&recipients) {
                let would = |client: &Client| {
                    let record = self.clients.get_mut(*client);
                    record.is_some_and(|record| record.would_accept(slot, agent))
                        && !refuses_all(agent, *client, now)
                };
                if recipients.iter().any(would) {
                    need.candidates.push(index);
                    is_wanted = true;
                }
            }
            if is_wanted {
                let free = room(agent.pools[pool_index(Pool::Regular)].available()).free;
                shortage.slots.push(slot);
                shortage.candidates.push(CandidateAgent {
                    free,
                    ..CandidateAgent::default()
                });
            }
        }
        shortage
    }

    /// Each role with a quota and an unmet guarantee of its own, with the clients that want it.
    fn lacking(&self) -> Vec<Lack> {
        let budgets = self.quotas.budgets();
        let mut lacking: BTreeMap<BudgetIndex, Lack> = BTreeMap::new();
        for (index, role) in self.quotas.roles() {
            let amount = budgets.lacking(index);
            if !amount.is_empty() {
                let lack = Lack {
                    index,
                    role: role.clone(),
                    amount,
                    clients: Vec::new(),
                };
                lacking.insert(index, lack);
            }
        }
        if lacking.is_empty() {
            return Vec::new();
        }
        for (client, record) in self.clients.iter() {
            if record.is_active(Pool::Regular) {
                for (index, _) in budgets.chain(budgets.find(&record.role)) {
                    if let Some(lack) = lacking.get_mut(&index) {
                        lack.clients.push(client);
                    }
                }
            }
        }
        lacking.into_values().collect()
    }
}

/// Whether a filter of the client covers all unreserved resources of the agent.
fn refuses_all(agent: &Agent, client: Client, now: Instant) -> bool {
    let Some(filters) = agent.filters.get(client) else {
        return false;
    };
    let total = &agent.pools[pool_index(Pool::Regular)].total;
    let open = total.filter(|one| !one.is_reserved());
    filters.hide(now, |refused| refused.contains(&open))
}

/// The part that counts against the quota of the role.
fn counted(role: &Role, resources: &Resources) -> Quantities {
    let counts = |one: &Resource| {
        let owner = one.is_reserved().then(|| one.role());
        !one.is_revocable() && counts_for(role, owner)
    };
    resources.filter(counts).quantities()
}
