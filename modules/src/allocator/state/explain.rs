//! Explanations: the reasons that keep one client from the resources of one agent.
//!
//! Uses the predicates of a run, in the same order, but continues after the first failure. Changes
//! no visible state; it only computes cached values, as a run would. Costs nothing unless
//! requested.

use std::collections::BTreeSet;
use std::sync::Arc;

use module_api::sorter::{Budget, Budgets, Client, Pool, Shape, Stage, is_allocatable};
use protocol::view::explain::{NoOfferReason, ResourceHolder};
use protocol::{AgentId, Capability};
use resources::{Name, Quantities, Resource, Resources, Role};
use runtime::Instant;

use super::booking::{Recipient, Unfit};
use super::quota::given;
use super::{Agent, AllocatorState, Clients};
use crate::allocator::clients::{ClientCapabilities, ClientRecord, pool_index};
use crate::allocator::explain::Shares;

/// Constraints, holders or roles named in one reason.
const NAMED_MAX: usize = 3;

/// A client whose offers are explained, with the quotas that apply to it, each separately. Valid
/// until the state changes.
#[derive(Debug)]
pub struct Case {
    client: Client,
    role: Role,
    capabilities: ClientCapabilities,
    shape: Option<Shape>,
    revocable: bool,
    /// The smallest amounts worth an offer to it.
    sets_min: Vec<Quantities>,
    /// Each limit that applies: its role, the remaining amounts, and budgets with only this limit.
    limits: Vec<(Role, Quantities, Budgets)>,
    /// Roles with unmet guarantees, and budgets without limits.
    guarantees: Option<(Vec<String>, Budgets)>,
}

impl AllocatorState {
    /// The sum over all agents in this pool.
    pub fn total(&self, pool: Pool) -> &Quantities {
        &self.totals[pool_index(pool)].0
    }

    /// Number of agents, and the number to wait for before anything is granted.
    pub fn awaited(&self) -> (usize, Option<usize>) {
        (self.by_id.len(), self.awaited)
    }

    /// The slot of the agent of this id.
    pub fn slot_of(&self, id: &AgentId) -> Option<u32> {
        self.by_id.get(id).copied()
    }

    /// The roles that have a quota, each with its resource names.
    pub fn quota_names(&self) -> impl Iterator<Item = (&Role, BTreeSet<Name>)> {
        self.quotas.iter().map(|(role, quota)| {
            let names = quota.guarantees.iter().chain(quota.limits.iter());
            (role, names.map(|(name, _)| name.clone()).collect())
        })
    }

    /// Number of slots, some of which may be empty.
    pub fn slots(&self) -> u32 {
        u32::try_from(self.agents.len()).unwrap_or(u32::MAX)
    }

    /// Id and host name of the agent in this slot.
    pub fn name_of(&self, slot: u32) -> Option<(&AgentId, &str)> {
        let agent = self.agents.get(slot as usize)?.as_ref()?;
        Some((&agent.id, &agent.hostname))
    }

    /// A client in its present state.
    pub fn case(&mut self, client: Client) -> Option<Case> {
        #[cfg(test)]
        tests::ASKED.set(tests::ASKED.get() + 1);
        self.settle();
        let budgets = self.quotas.budgets();
        let record = self.clients.get(client)?;
        let framework = self.frameworks.get(&record.framework);
        let can = |capability| framework.is_some_and(|one| one.capabilities.contains(&capability));
        let index = budgets.find(&record.role);
        let alone = |(_, budget): (_, &Budget)| {
            let only = Budget {
                unmet: Quantities::new(),
                ..budget.clone()
            };
            let (role, left) = (only.role.clone(), only.left.clone());
            (role, left, Budgets::new(vec![only]))
        };
        let limited = budgets.chain(index);
        let limited = limited.filter(|(_, budget)| budget.left.iter().len() > 0);
        let limits = limited.map(alone).collect();
        Some(Case {
            client,
            role: record.role.clone(),
            capabilities: record.capabilities,
            shape: record.shape().cloned(),
            revocable: can(Capability::RevocableResources),
            sets_min: record
                .shape()
                .map_or(&self.sets_min[..], |shape| shape.sets(&self.sets_min))
                .to_vec(),
            limits,
            guarantees: guarantees(budgets),
        })
    }

    /// The reasons that keep the client from resources of the agent in that slot, in the order of a
    /// run's checks. Empty if the agent has nothing in this pool.
    pub fn reasons(
        &mut self,
        case: &Case,
        slot: u32,
        pool: Pool,
        shares: &Shares,
        now: Instant,
    ) -> Vec<NoOfferReason> {
        #[cfg(test)]
        tests::ASKED.set(tests::ASKED.get() + 1);
        self.settle();
        let agent = self.agents.get_mut(slot as usize).and_then(Option::as_mut);
        let (Some(agent), Some(record)) = (agent, self.clients.get_mut(case.client)) else {
            return Vec::new();
        };
        if pool == Pool::Revocable && agent.pools[pool_index(pool)].total.is_empty() {
            return Vec::new();
        }
        let kept = self.kept.get(&slot).filter(|_| pool == Pool::Regular);
        let mut reasons = case.unsuited(slot, agent, record, pool);
        let stage = match pool {
            Pool::Regular => Stage::Fair,
            Pool::Revocable => Stage::Revocable,
        };
        let recipient = case.recipient(stage);
        let all_free = recipient.portion(agent.pools[pool_index(pool)].available());
        let free = recipient.shaped(all_free.clone());
        if !is_allocatable(&free.quantities(), &case.sets_min) {
            reasons.extend(case.lacking(&recipient, agent, &free, &self.clients, shares));
            return reasons;
        }
        let quotas = &mut self.quotas;
        let mut portions = |kept: bool| -> Vec<Resources> {
            if pool == Pool::Revocable || quotas.is_empty() {
                return vec![free.clone()];
            }
            let stages = [Stage::Fair, Stage::Guarantees].into_iter();
            let portions = stages.filter_map(|stage| {
                let mut free = all_free.clone();
                if kept && stage == Stage::Fair {
                    free = free.filter(Resource::is_reserved);
                }
                let free = case.recipient(stage).shaped(free);
                quotas.portion(stage, &case.role, &free)
            });
            let worth = |portion: &Resources| is_allocatable(&portion.quantities(), &case.sets_min);
            portions.filter(worth).collect()
        };
        let offered = portions(kept.is_some());
        if offered.is_empty() {
            match kept.filter(|_| !portions(false).is_empty()) {
                Some(role) => reasons.push(NoOfferReason::RoomMade {
                    role: role.as_str().to_owned(),
                }),
                None => reasons.extend(case.short(&free)),
            }
            return reasons;
        }
        let filters = agent.filters.get(case.client);
        let until = offered.iter().map(|portion| {
            let covers = |refused: &Arc<Resources>| refused.contains(portion);
            filters.and_then(|filters| filters.hide_until(now, covers))
        });
        // It is offered as soon as one of its portions is no longer hidden.
        let until = until.reduce(|one, other| Some(one?.min(other?)));
        if let Some(until) = until.flatten() {
            reasons.push(NoOfferReason::Filtered {
                offer: offered.first().unwrap_or(&free).quantities(),
                left: until - now,
            });
        }
        if reasons.is_empty() {
            reasons.push(NoOfferReason::Open);
        }
        reasons
    }
}

/// Roles with unmet guarantees, and the budgets without limits.
fn guarantees(budgets: &Budgets) -> Option<(Vec<String>, Budgets)> {
    if budgets.required().is_empty() {
        return None;
    }
    let mut table = budgets.table();
    table
        .iter_mut()
        .for_each(|budget| budget.left = Quantities::new());
    let lacking = table.iter().filter(|budget| !budget.unmet.is_empty());
    let lacking = lacking.map(|budget| budget.role.as_str().to_owned());
    let lacking = lacking.take(NAMED_MAX).collect();
    let mut alone = Budgets::new(table);
    alone.set_headroom(budgets.headroom().clone());
    Some((lacking, alone))
}

impl Case {
    fn recipient(&self, stage: Stage) -> Recipient {
        Recipient {
            client: self.client,
            stage,
            role: self.role.clone(),
            capabilities: self.capabilities,
            shape: self.shape.clone(),
        }
    }

    /// Why the client never gets anything of this agent.
    fn unsuited(
        &self,
        slot: u32,
        agent: &Agent,
        record: &mut ClientRecord,
        pool: Pool,
    ) -> Vec<NoOfferReason> {
        let mut reasons = Vec::new();
        if !agent.active {
            reasons.push(NoOfferReason::AgentInactive);
        }
        if !agent.listed {
            reasons.push(NoOfferReason::NotListed);
        }
        reasons.extend(record.lacks(agent).map(NoOfferReason::Capability));
        if pool == Pool::Revocable && !self.revocable {
            reasons.push(NoOfferReason::Capability(Capability::RevocableResources));
        }
        if !record.choice.accepts(slot, agent.properties()) {
            let (unmet, more) = record.choice.unmet(agent.properties(), NAMED_MAX);
            reasons.push(NoOfferReason::Constraint { unmet, more });
        }
        reasons
    }

    /// Why too little is free for the client.
    fn lacking(
        &self,
        recipient: &Recipient,
        agent: &Agent,
        free: &Resources,
        clients: &Clients,
        shares: &Shares,
    ) -> Vec<NoOfferReason> {
        let pool = recipient.stage.pool();
        let total = &agent.pools[pool_index(pool)].total;
        let all = recipient.shaped(recipient.portion(total)).quantities();
        if is_allocatable(&all, &self.sets_min) {
            return vec![self.taken(recipient, agent, free, clients, shares)];
        }
        let unfit: BTreeSet<Unfit> = total
            .iter()
            .filter_map(|one| recipient.unfit(one))
            .collect();
        let mut reasons: Vec<NoOfferReason> = unfit
            .into_iter()
            .map(|unfit| match unfit {
                Unfit::Reserved => {
                    let is_reserved = |one: &&Resource| recipient.unfit(one) == Some(unfit);
                    let reserved = total.iter().filter(is_reserved);
                    let roles: BTreeSet<&Role> = reserved.map(|one| one.role()).collect();
                    let roles = roles.into_iter().take(NAMED_MAX);
                    NoOfferReason::Reserved {
                        roles: roles.map(|role| role.as_str().to_owned()).collect(),
                    }
                }
                Unfit::Shared => NoOfferReason::Capability(Capability::SharedResources),
                Unfit::Refined => NoOfferReason::Capability(Capability::ReservationRefinement),
            })
            .collect();
        if reasons.is_empty() || !all.is_empty() {
            reasons.push(NoOfferReason::BelowMinimum {
                portion: all,
                minimum: self.sets_min.clone(),
            });
        }
        reasons
    }

    /// The holders of the resources that the client could use.
    fn taken(
        &self,
        recipient: &Recipient,
        agent: &Agent,
        free: &Resources,
        clients: &Clients,
        shares: &Shares,
    ) -> NoOfferReason {
        let n = pool_index(recipient.stage.pool());
        let fit = |held: &Resources| {
            held.filter(|one| recipient.unfit(one).is_none())
                .quantities()
        };
        let mut holders = Vec::new();
        let mut own = Quantities::new();
        for (client, held) in agent.pools[n].holders.iter() {
            let held = fit(held);
            match clients.get(client) {
                _ if held.is_empty() => {}
                _ if client == self.client => own = held,
                Some(record) => holders.push((record, held)),
                None => {}
            }
        }
        let whole = agent.pools[n].total.quantities();
        holders.sort_by(|(_, one), (_, other)| {
            let part = |held: &Quantities| held.dominant_share(&whole);
            part(other).total_cmp(&part(one))
        });
        let more = holders.len().saturating_sub(NAMED_MAX) as u64;
        let holders: Vec<ResourceHolder> = holders
            .into_iter()
            .take(NAMED_MAX)
            .map(|(record, held)| {
                let (share, against) = shares.between(clients, record, self.client);
                ResourceHolder {
                    framework_id: record.framework.clone(),
                    role: record.role.as_str().to_owned(),
                    held,
                    share,
                    against,
                }
            })
            .collect();
        match holders.is_empty() {
            true => NoOfferReason::Own { held: own },
            false => NoOfferReason::WentFirst {
                free: free.quantities(),
                holders,
                more,
            },
        }
    }

    /// The quotas that leave too little of the free resources.
    fn short(&self, free: &Resources) -> Vec<NoOfferReason> {
        let by = |budgets: &Budgets| {
            let index = budgets.find(&self.role);
            let given = given(budgets, Stage::Fair, index, &self.role, free).quantities();
            let enough = is_allocatable(&given, &self.sets_min);
            (enough, given.contains(&free.quantities()))
        };
        let limits = self.limits.iter().map(|(role, left, budgets)| {
            let limit = NoOfferReason::QuotaLimit {
                role: role.as_str().to_owned(),
                left: left.clone(),
            };
            (limit, by(budgets))
        });
        let guarantees = self.guarantees.iter().map(|(roles, budgets)| {
            let kept = NoOfferReason::Headroom {
                roles: roles.clone(),
                required: budgets.required().clone(),
                free: budgets.headroom().clone(),
            };
            (kept, by(budgets))
        });
        let all: Vec<_> = limits.chain(guarantees).collect();
        // If no quota alone leaves too little, their combination does.
        let alone = all.iter().any(|(_, (enough, _))| !enough);
        let cut_by_one = all.iter().any(|(_, (_, whole))| !whole);
        let blamed = all.into_iter().filter(|(_, (enough, whole))| match alone {
            true => !enough,
            // If each alone leaves everything, a limit keeps resources for a guarantee below it.
            false => !whole || !cut_by_one,
        });
        blamed.map(|(reason, _)| reason).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use module_api::allocator::Explain;

    use super::*;
    use crate::allocator::explain::Survey;
    use crate::workload::{Shape, Workload};

    thread_local! {
        /// Number of cases and reasons computed by this thread.
        pub(super) static ASKED: Cell<u64> = const { Cell::new(0) };
    }

    /// W26: without a request, nothing is computed or kept for explanations.
    #[test]
    fn runs_compute_no_reasons() {
        let shape = Shape::of(20, 5);
        let mut quiet = Workload::of(&shape, 1);
        let mut asked = quiet.clone();
        let rounds = |all: &mut Workload| {
            let rounds = [true, false, true].map(|batch| {
                let grants = all.run(batch);
                all.decline(grants.clone());
                grants
            });
            format!("{rounds:?}")
        };
        let granted = rounds(&mut quiet);
        assert!(granted.contains("agent-1"));
        assert_eq!(ASKED.get(), 0);

        let question = Explain {
            framework_id: "framework-1".parse().unwrap(),
            role: None,
            agent_id: None,
        };
        let mut survey =
            Survey::begin(&asked.state, &question, Duration::ZERO, Instant::default()).unwrap();
        while !survey.advance(&mut asked.state, 7).unwrap() {}
        let told = survey.finish();
        assert_eq!(told.roles[0].agents, 20);
        assert!(ASKED.get() >= 20, "{} times", ASKED.get());
        assert_eq!(rounds(&mut asked), granted, "an answer changes nothing");
    }
}
