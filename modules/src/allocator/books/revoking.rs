//! The books' part on revocation: who lacks what is guaranteed to it and wants it, and what would help (S123, S124).
//!
//! Pure, like all of the books. Only regular resources that nothing reserves are counted: what is reserved helps nobody else. What tasks
//! there are is the master's to know, so whoever looks for victims brings them.

use std::collections::{BTreeMap, BTreeSet};

use module_api::allocator::{ListedTask, Victim};
use module_api::sorter::{Client, Place, Pool, Stage, counts_for};
use protocol::AgentId;
use resources::{Name, Quantities, Resource, Resources, Role};
use runtime::Instant;

use super::book::Taker;
use super::quota::room;
use super::{Agent, Books};
use crate::allocator::clients::index;
use crate::allocator::victims::{Candidate, Guards, Need, Spot, choose, unhelped, use_free};

/// Agents that are asked about at a time; where there are more, others have their turn at the next look.
const AGENTS_MAX: usize = 500;

/// Who lacks something, and the agents that may help, by their slots.
pub struct Shortage {
    needs: Vec<Need>,
    slots: Vec<u32>,
    spots: Vec<Spot>,
}

/// Who lacks something beyond what roles below it do.
struct Lack {
    place: Place,
    role: Role,
    amount: Quantities,
    /// Who wants it.
    clients: Vec<Client>,
}

impl Shortage {
    /// The roles that nothing free helps.
    pub fn roles(&self) -> BTreeSet<Role> {
        unhelped(&self.needs, &self.spots)
    }

    /// What these roles lack.
    pub fn names(&self, roles: &BTreeSet<Role>) -> BTreeSet<Name> {
        let needs = self.needs.iter();
        let needs = needs.filter(|need| roles.contains(&need.role));
        let lacks = needs.flat_map(|need| need.lacks.iter());
        let lacks = lacks.filter(|(_, amount)| !amount.is_zero());
        lacks.map(|(name, _)| name.clone()).collect()
    }
}

impl Books {
    /// On these agents, by slot, tasks make room for these roles: until further notice what nothing reserves there is not shared fairly.
    pub fn keep(&mut self, kept: BTreeMap<u32, Role>) {
        self.kept = kept;
    }

    /// Whether tasks make room on the agent in this slot, which was there when they were named and has not been removed since.
    pub fn is_kept(&self, slot: u32) -> bool {
        self.kept.contains_key(&slot)
    }

    /// Whether what nothing reserves there is kept together in this stage, for whoever lacks it.
    pub(super) fn keeps(&self, stage: Stage, slot: u32) -> bool {
        stage == Stage::Fair && self.is_kept(slot)
    }

    /// Agents on which tasks could make room for these roles, beginning after that slot; and the last slot of them.
    pub fn occupied(
        &self,
        shortage: &Shortage,
        roles: &BTreeSet<Role>,
        after: u32,
    ) -> (BTreeSet<AgentId>, u32) {
        let needs = shortage.needs.iter();
        let needs = needs.filter(|need| roles.contains(&need.role));
        let places: BTreeSet<usize> = needs.flat_map(|need| need.spots.iter().copied()).collect();
        let slots = places.into_iter().map(|place| shortage.slots[place]);
        let occupied = slots.filter(|slot| {
            let agent = self.agents[*slot as usize].as_ref();
            agent.is_some_and(|agent| !agent.sides[index(Pool::Regular)].holders.is_empty())
        });
        let (before, behind): (Vec<u32>, Vec<u32>) = occupied.partition(|slot| *slot <= after);
        let turn: Vec<u32> = behind.into_iter().chain(before).take(AGENTS_MAX).collect();
        let names = turn.iter().filter_map(|slot| self.name_of(*slot));
        let names = names.map(|(id, _)| id.clone()).collect();
        (names, turn.last().copied().unwrap_or(after))
    }

    /// Which of these tasks should make room for these roles, as things are. `consumed` is what counts for each role with a quota, without what
    /// is only offered.
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
        let places: BTreeMap<u32, usize> = (0..)
            .zip(&shortage.slots)
            .map(|(place, slot)| (*slot, place))
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
            let Some(place) = slot.and_then(|slot| places.get(slot)) else {
                continue;
            };
            let spot = &mut shortage.spots[*place];
            if task.leaves {
                spot.free += &frees;
                spot.leaving.push((role, frees));
                continue;
            }
            spot.tasks.push(Candidate {
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
            mut spots,
            ..
        } = shortage;
        use_free(&mut needs, &mut spots);
        let (total, _) = &self.totals[index(Pool::Regular)];
        let chosen = choose(&needs, &mut spots, &mut guards, total);
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

    /// What each role is guaranteed, and has.
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

    /// What roles lack whose frameworks want offers, and the agents that would do for any of them, with what is free there.
    pub fn shortage(&mut self, now: Instant) -> Shortage {
        let mut shortage = Shortage {
            needs: Vec::new(),
            slots: Vec::new(),
            spots: Vec::new(),
        };
        self.settle();
        let mut takers: Vec<Vec<Client>> = Vec::new();
        for mut lack in self.lacking() {
            let mut sets: Vec<Quantities> = Vec::new();
            lack.clients.retain(|client| {
                let Some(member) = self.clients.get(*client) else {
                    return false;
                };
                let taker = Taker::of(*client, member, Stage::Guarantees);
                let own = taker.sets(&self.sets_min);
                let could = self.quotas.could_have(lack.place, &member.role, own);
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
            for (lacks, within) in self.quotas.by_limit(lack.place, &lack.amount) {
                takers.push(lack.clients.clone());
                shortage.needs.push(Need {
                    role: lack.role.clone(),
                    lacks,
                    within,
                    sets: sets.clone(),
                    spots: Vec::new(),
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
            let place = shortage.spots.len();
            let mut is_wanted = false;
            for (need, takers) in shortage.needs.iter_mut().zip(&takers) {
                let would = |client: &Client| {
                    let member = self.clients.get_mut(*client);
                    member.is_some_and(|member| member.would_take(slot, agent))
                        && !refuses_all(agent, *client, now)
                };
                if takers.iter().any(would) {
                    need.spots.push(place);
                    is_wanted = true;
                }
            }
            if is_wanted {
                let free = room(agent.sides[index(Pool::Regular)].available()).free;
                shortage.slots.push(slot);
                shortage.spots.push(Spot {
                    free,
                    ..Spot::default()
                });
            }
        }
        shortage
    }

    /// Each role with a quota that lacks something for itself, what that is, and the clients that want it.
    fn lacking(&self) -> Vec<Lack> {
        let budgets = self.quotas.budgets();
        let mut lacking: BTreeMap<Place, Lack> = BTreeMap::new();
        for (place, role) in self.quotas.places() {
            let amount = budgets.lacking(place);
            if !amount.is_empty() {
                let lack = Lack {
                    place,
                    role: role.clone(),
                    amount,
                    clients: Vec::new(),
                };
                lacking.insert(place, lack);
            }
        }
        if lacking.is_empty() {
            return Vec::new();
        }
        for (client, member) in self.clients.iter() {
            if member.is_active(Pool::Regular) {
                for (place, _) in budgets.chain(budgets.find(&member.role)) {
                    if let Some(lack) = lacking.get_mut(&place) {
                        lack.clients.push(client);
                    }
                }
            }
        }
        lacking.into_values().collect()
    }
}

/// Whether a client has refused all that an agent could ever offer it, for a while.
fn refuses_all(agent: &Agent, client: Client, now: Instant) -> bool {
    let Some(filters) = agent.filters.get(client) else {
        return false;
    };
    let total = &agent.sides[index(Pool::Regular)].total;
    let open = total.filter(|one| !one.is_reserved());
    filters.hide(now, |refused| refused.contains(&open))
}

/// What of it counts against the quota of its role.
fn counted(role: &Role, resources: &Resources) -> Quantities {
    let counts = |one: &Resource| {
        let owner = one.is_reserved().then(|| one.role());
        !one.is_revocable() && counts_for(role, owner)
    };
    resources.filter(counts).quantities()
}
