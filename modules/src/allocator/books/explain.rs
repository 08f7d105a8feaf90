//! The books' part on explaining: what stands between one client and one agent (W26).
//!
//! Asks the same predicates as a run, in the order in which a run asks them, but goes on after the first that says no. Changes nothing that
//! anybody sees: what was not worked out yet is worked out, as a run would. Costs nothing until it is asked.

use std::collections::BTreeSet;
use std::sync::Arc;

use module_api::sorter::{Budget, Budgets, Client, Pool, Shape, Stage, is_allocatable};
use protocol::explain::{Holder, Reason};
use protocol::{AgentId, Capability};
use resources::{Name, Quantities, Resource, Resources, Role};
use runtime::Instant;

use super::book::{Taker, Unfit};
use super::quota::given;
use super::{Agent, Books, Clients};
use crate::allocator::clients::{Member, Takes, index};
use crate::allocator::explain::Shares;

/// How many constraints, holders or roles a reason names.
const NAMED_MAX: usize = 3;

/// A client whose offers are to be explained, and the quotas that count for it, each by itself. Good until the books change.
#[derive(Debug)]
pub struct Case {
    client: Client,
    role: Role,
    takes: Takes,
    shape: Option<Shape>,
    revocable: bool,
    /// What is worth an offer to it.
    sets_min: Vec<Quantities>,
    /// Each limit that holds for the client: whose, what it leaves, and budgets with no other.
    limits: Vec<(Role, Quantities, Budgets)>,
    /// Whose guarantees lack something, and budgets without limits.
    guarantees: Option<(Vec<String>, Budgets)>,
}

impl Books {
    /// What all agents have together in this pool.
    pub fn total(&self, pool: Pool) -> &Quantities {
        &self.totals[index(pool)].0
    }

    /// How many agents there are, and how many are awaited before anything is granted.
    pub fn awaited(&self) -> (usize, Option<usize>) {
        (self.by_id.len(), self.awaited)
    }

    /// The slot of the agent of this id.
    pub fn slot_of(&self, id: &AgentId) -> Option<u32> {
        self.by_id.get(id).copied()
    }

    /// The roles that have a quota, each with the resources that it names.
    pub fn quota_names(&self) -> impl Iterator<Item = (&Role, BTreeSet<Name>)> {
        self.quotas.iter().map(|(role, quota)| {
            let names = quota.guarantees.iter().chain(quota.limits.iter());
            (role, names.map(|(name, _)| name.clone()).collect())
        })
    }

    /// How many slots there are; some may be empty.
    pub fn slots(&self) -> u32 {
        u32::try_from(self.agents.len()).unwrap_or(u32::MAX)
    }

    /// The id and the host of the agent in this slot.
    pub fn name_of(&self, slot: u32) -> Option<(&AgentId, &str)> {
        let agent = self.agents.get(slot as usize)?.as_ref()?;
        Some((&agent.id, &agent.hostname))
    }

    /// A client as it is now.
    pub fn case(&mut self, client: Client) -> Option<Case> {
        #[cfg(test)]
        tests::ASKED.set(tests::ASKED.get() + 1);
        self.settle();
        let budgets = self.quotas.budgets();
        let member = self.clients.get(client)?;
        let framework = self.frameworks.get(&member.framework);
        let can = |capability| framework.is_some_and(|one| one.capabilities.contains(&capability));
        let place = budgets.find(&member.role);
        let alone = |(_, budget): (_, &Budget)| {
            let only = Budget {
                unmet: Quantities::new(),
                ..budget.clone()
            };
            let (role, left) = (only.role.clone(), only.left.clone());
            (role, left, Budgets::new(vec![only]))
        };
        let limited = budgets.chain(place);
        let limited = limited.filter(|(_, budget)| budget.left.iter().len() > 0);
        let limits = limited.map(alone).collect();
        Some(Case {
            client,
            role: member.role.clone(),
            takes: member.takes,
            shape: member.shape().cloned(),
            revocable: can(Capability::RevocableResources),
            sets_min: member
                .shape()
                .map_or(&self.sets_min[..], |shape| shape.sets(&self.sets_min))
                .to_vec(),
            limits,
            guarantees: guarantees(budgets),
        })
    }

    /// What stands between the client and the resources of the agent in that slot, the reason that a run meets first before the others.
    /// Nothing of an agent that has nothing in this pool.
    pub fn reasons(
        &mut self,
        case: &Case,
        slot: u32,
        pool: Pool,
        shares: &Shares,
        now: Instant,
    ) -> Vec<Reason> {
        #[cfg(test)]
        tests::ASKED.set(tests::ASKED.get() + 1);
        self.settle();
        let agent = self.agents.get_mut(slot as usize).and_then(Option::as_mut);
        let (Some(agent), Some(member)) = (agent, self.clients.get_mut(case.client)) else {
            return Vec::new();
        };
        if pool == Pool::Revocable && agent.sides[index(pool)].total.is_empty() {
            return Vec::new();
        }
        let kept = self.kept.get(&slot).filter(|_| pool == Pool::Regular);
        let mut reasons = case.unsuited(slot, agent, member, pool);
        let stage = match pool {
            Pool::Regular => Stage::Fair,
            Pool::Revocable => Stage::Revocable,
        };
        let taker = case.taker(stage);
        let all_free = taker.portion(agent.sides[index(pool)].available());
        let free = taker.shaped(all_free.clone());
        if !is_allocatable(&free.quantities(), &case.sets_min) {
            reasons.extend(case.lacking(&taker, agent, &free, &self.clients, shares));
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
                let free = case.taker(stage).shaped(free);
                quotas.portion(stage, &case.role, &free)
            });
            let worth = |portion: &Resources| is_allocatable(&portion.quantities(), &case.sets_min);
            portions.filter(worth).collect()
        };
        let offered = portions(kept.is_some());
        if offered.is_empty() {
            match kept.filter(|_| !portions(false).is_empty()) {
                Some(role) => reasons.push(Reason::RoomMade {
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
        // It is offered as soon as any of its portions is hidden no more.
        let until = until.reduce(|one, other| Some(one?.min(other?)));
        if let Some(until) = until.flatten() {
            reasons.push(Reason::Filtered {
                offer: offered.first().unwrap_or(&free).quantities(),
                left: until - now,
            });
        }
        if reasons.is_empty() {
            reasons.push(Reason::Open);
        }
        reasons
    }
}

/// Whose guarantees lack something, and the budgets as if there were no limits.
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
    fn taker(&self, stage: Stage) -> Taker {
        Taker {
            client: self.client,
            stage,
            role: self.role.clone(),
            takes: self.takes,
            shape: self.shape.clone(),
        }
    }

    /// Why the client is never given anything of this agent, whatever is free there.
    fn unsuited(&self, slot: u32, agent: &Agent, member: &mut Member, pool: Pool) -> Vec<Reason> {
        let mut reasons = Vec::new();
        if !agent.active {
            reasons.push(Reason::AgentInactive);
        }
        if !agent.listed {
            reasons.push(Reason::NotListed);
        }
        reasons.extend(member.lacks(agent).map(Reason::Capability));
        if pool == Pool::Revocable && !self.revocable {
            reasons.push(Reason::Capability(Capability::RevocableResources));
        }
        if !member.choice.takes(slot, agent.looks()) {
            let (unmet, more) = member.choice.unmet(agent.looks(), NAMED_MAX);
            reasons.push(Reason::Constraint { unmet, more });
        }
        reasons
    }

    /// Why too little is free there for the client.
    fn lacking(
        &self,
        taker: &Taker,
        agent: &Agent,
        free: &Resources,
        clients: &Clients,
        shares: &Shares,
    ) -> Vec<Reason> {
        let pool = taker.stage.pool();
        let total = &agent.sides[index(pool)].total;
        let all = taker.shaped(taker.portion(total)).quantities();
        if is_allocatable(&all, &self.sets_min) {
            return vec![self.taken(taker, agent, free, clients, shares)];
        }
        let unfit: BTreeSet<Unfit> = total.iter().filter_map(|one| taker.unfit(one)).collect();
        let mut reasons: Vec<Reason> = unfit
            .into_iter()
            .map(|unfit| match unfit {
                Unfit::Reserved => {
                    let is_reserved = |one: &&Resource| taker.unfit(one) == Some(unfit);
                    let reserved = total.iter().filter(is_reserved);
                    let roles: BTreeSet<&Role> = reserved.map(|one| one.role()).collect();
                    let roles = roles.into_iter().take(NAMED_MAX);
                    Reason::Reserved {
                        roles: roles.map(|role| role.as_str().to_owned()).collect(),
                    }
                }
                Unfit::Shared => Reason::Capability(Capability::SharedResources),
                Unfit::Refined => Reason::Capability(Capability::ReservationRefinement),
            })
            .collect();
        if reasons.is_empty() || !all.is_empty() {
            reasons.push(Reason::BelowMinimum {
                portion: all,
                minimum: self.sets_min.clone(),
            });
        }
        reasons
    }

    /// Who holds what the client could have there.
    fn taken(
        &self,
        taker: &Taker,
        agent: &Agent,
        free: &Resources,
        clients: &Clients,
        shares: &Shares,
    ) -> Reason {
        let n = index(taker.stage.pool());
        let fit = |held: &Resources| held.filter(|one| taker.unfit(one).is_none()).quantities();
        let mut holders = Vec::new();
        let mut own = Quantities::new();
        for (client, held) in agent.sides[n].holders.iter() {
            let held = fit(held);
            match clients.get(client) {
                _ if held.is_empty() => {}
                _ if client == self.client => own = held,
                Some(member) => holders.push((member, held)),
                None => {}
            }
        }
        let whole = agent.sides[n].total.quantities();
        holders.sort_by(|(_, one), (_, other)| {
            let part = |held: &Quantities| held.dominant_share(&whole);
            part(other).total_cmp(&part(one))
        });
        let more = holders.len().saturating_sub(NAMED_MAX) as u64;
        let holders: Vec<Holder> = holders
            .into_iter()
            .take(NAMED_MAX)
            .map(|(member, held)| {
                let (share, against) = shares.between(clients, member, self.client);
                Holder {
                    framework_id: member.framework.clone(),
                    role: member.role.as_str().to_owned(),
                    held,
                    share,
                    against,
                }
            })
            .collect();
        match holders.is_empty() {
            true => Reason::Own { held: own },
            false => Reason::WentFirst {
                free: free.quantities(),
                holders,
                more,
            },
        }
    }

    /// Which quotas leave too little of what is free there.
    fn short(&self, free: &Resources) -> Vec<Reason> {
        let by = |budgets: &Budgets| {
            let place = budgets.find(&self.role);
            let given = given(budgets, Stage::Fair, place, &self.role, free).quantities();
            let enough = is_allocatable(&given, &self.sets_min);
            (enough, given.contains(&free.quantities()))
        };
        let limits = self.limits.iter().map(|(role, left, budgets)| {
            let limit = Reason::QuotaLimit {
                role: role.as_str().to_owned(),
                left: left.clone(),
            };
            (limit, by(budgets))
        });
        let guarantees = self.guarantees.iter().map(|(roles, budgets)| {
            let kept = Reason::Headroom {
                roles: roles.clone(),
                required: budgets.required().clone(),
                free: budgets.headroom().clone(),
            };
            (kept, by(budgets))
        });
        let all: Vec<_> = limits.chain(guarantees).collect();
        // If none of them would leave too little by itself, it is those together that leave less than all.
        let alone = all.iter().any(|(_, (enough, _))| !enough);
        let cut_by_one = all.iter().any(|(_, (_, whole))| !whole);
        let blamed = all.into_iter().filter(|(_, (enough, whole))| match alone {
            true => !enough,
            // If each by itself leaves all, it is the room that a limit keeps for a guarantee below it.
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
        /// How often this thread has asked for a case or for the reasons of one.
        pub(super) static ASKED: Cell<u64> = const { Cell::new(0) };
    }

    /// W26: nobody asks, so nothing is worked out for an answer, nor kept for one.
    #[test]
    fn runs_that_nobody_wants_explained_ask_for_no_reason() {
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
            Survey::begin(&asked.books, &question, Duration::ZERO, Instant::default()).unwrap();
        while !survey.go_on(&mut asked.books, 7).unwrap() {}
        let told = survey.end();
        assert_eq!(told.roles[0].agents, 20);
        assert!(ASKED.get() >= 20, "{} times", ASKED.get());
        assert_eq!(rounds(&mut asked), granted, "an answer changes nothing");
    }
}
