//! Victims: selects tasks to revoke for roles with unmet guarantees.
//!
//! A plain function of amounts. Free resources are used first. Then tasks of the lowest priority
//! are chosen; among equals those that free the least in excess, then those that help most, then
//! the youngest. A task is never chosen if its role, or a role above it, would fall below its
//! guarantee, except for roles that also contain the needy role, whose consumption does not change.
//! If a limit blocks the needy role, only tasks below that limit help.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use module_api::sorter::is_allocatable;
use resources::{Quantities, Role};
use runtime::Timestamp;

/// Tasks chosen for one need at a time; further ones follow at the next check.
const CHOSEN_MAX: usize = 200;

/// An unmet guarantee that frameworks of the role want.
#[derive(Clone, Debug)]
pub struct Need {
    /// The role.
    pub role: Role,
    /// The lacking amounts.
    pub lacks: Quantities,
    /// The role above whose limit blocks these amounts, if there is one: only tasks in it or below
    /// help.
    pub within: Option<Role>,
    /// Smallest amounts of one agent that are worth an offer to a client, see [`is_allocatable`].
    pub sets: Vec<Quantities>,
    /// The suitable agents, by index.
    pub candidates: Vec<usize>,
}

/// One agent.
#[derive(Clone, Debug, Default)]
pub struct CandidateAgent {
    /// Free unreserved resources, including those that will be free soon.
    pub free: Quantities,
    /// The part that will be free soon, by role of its tasks.
    pub leaving: Vec<(Role, Quantities)>,
    /// Tasks that may be revoked.
    pub tasks: Vec<CandidateTask>,
}

impl Need {
    /// Whether resources of a task in this role would help.
    fn is_helped_by(&self, role: &Role) -> bool {
        let bound = self.within.as_ref();
        !role.is_within(&self.role) && bound.is_none_or(|bound| role.is_within(bound))
    }
}

impl CandidateAgent {
    /// Resources there that help this need.
    fn there(&self, need: &Need) -> Quantities {
        if need.within.is_none() {
            return self.free.clone();
        }
        let leaving = self.leaving.iter();
        let leaving = leaving.filter(|(role, _)| need.is_helped_by(role));
        leaving.fold(Quantities::new(), |sum, (_, amount)| sum + amount)
    }

    /// Gives the need the lacking amounts, if the resources are worth an offer.
    fn give(&mut self, need: &Need, lacks: &mut Quantities) {
        let mut there = self.there(need);
        let mut given = there.clone();
        take(lacks, &need.sets, &mut there);
        given -= &there;
        self.free -= &given;
        if need.within.is_some() {
            let leaving = self.leaving.iter_mut();
            for (_, amount) in leaving.filter(|(role, _)| need.is_helped_by(role)) {
                let part = amount.lesser(&given);
                *amount -= &part;
                given -= &part;
            }
        }
    }
}

/// A task that may be revoked.
#[derive(Clone, Debug)]
pub struct CandidateTask {
    /// Index in the caller's list.
    pub number: usize,
    /// Its role.
    pub role: Role,
    /// Resources that its end would free for others.
    pub frees: Quantities,
    /// Amounts that count against its role's quota.
    pub counts: Quantities,
    /// Tasks of lower priority are chosen first.
    pub priority: i32,
    /// Start of the task; `None` if it is not running yet.
    pub since: Option<Timestamp>,
}

/// Guarantee and consumption of each role.
#[derive(Clone, Debug, Default)]
pub struct Guards(BTreeMap<Role, (Quantities, Quantities)>);

impl Guards {
    /// From role, guarantee and consumption.
    pub fn new(guarantees: impl IntoIterator<Item = (Role, Quantities, Quantities)>) -> Self {
        let guard = |(role, guarantee, has)| (role, (guarantee, has));
        Self(guarantees.into_iter().map(guard).collect())
    }

    /// Whether a task with these amounts may be revoked for another role: no role, except those
    /// that contain the needy one, falls below its guarantee in the names that the task counts.
    fn may_lose(&self, role: &Role, counts: &Quantities, needy: &Role) -> bool {
        let mut guards = above(role).filter(|role| !needy.is_within(role));
        guards.all(|role| {
            let Some((guarantee, has)) = self.0.get(&role) else {
                return true;
            };
            let left = has.saturating_sub(counts);
            let mut counts = counts.iter().filter(|(_, amount)| !amount.is_zero());
            counts.all(|(name, _)| left.get(name) >= guarantee.get(name))
        })
    }

    /// Deducts amounts from the consumption of the role and of those above it.
    pub fn lose(&mut self, role: &Role, counts: &Quantities) {
        for role in above(role) {
            if let Some((_, has)) = self.0.get_mut(&role) {
                *has -= counts;
            }
        }
    }
}

/// A role and those above it.
fn above(role: &Role) -> impl Iterator<Item = Role> + use<> {
    std::iter::successors(Some(role.clone()), Role::parent)
}

/// Reduces needs by the free resources, and removes those that are met.
pub fn use_free(needs: &mut Vec<Need>, candidates: &mut [CandidateAgent]) {
    for need in needs.iter_mut() {
        let mut lacks = std::mem::take(&mut need.lacks);
        for at in &need.candidates {
            if lacks.is_empty() {
                break;
            }
            candidates[*at].give(need, &mut lacks);
        }
        need.lacks = lacks;
    }
    needs.retain(|need| !need.lacks.is_empty());
}

/// The roles with needs beyond the free resources, which are not changed.
pub fn unhelped(needs: &[Need], candidates: &[CandidateAgent]) -> BTreeSet<Role> {
    let mut roles = BTreeSet::new();
    // Copies only agents that give something: during a long shortage, little is free.
    let mut taken: BTreeMap<usize, CandidateAgent> = BTreeMap::new();
    for need in needs {
        let mut lacks = need.lacks.clone();
        for at in &need.candidates {
            if lacks.is_empty() {
                break;
            }
            let there = taken.get(at).unwrap_or(&candidates[*at]).there(need);
            if !there.lesser(&lacks).is_empty() {
                let candidate = taken.entry(*at).or_insert_with(|| candidates[*at].clone());
                candidate.give(need, &mut lacks);
            }
        }
        if !lacks.is_empty() {
            roles.insert(need.role.clone());
        }
    }
    roles
}

/// ClientCapabilities the lacking amounts from the free resources of one agent, if these are worth
/// an offer.
fn take(lacks: &mut Quantities, sets: &[Quantities], free: &mut Quantities) {
    if is_allocatable(free, sets) {
        let help = free.lesser(lacks);
        *free -= &help;
        *lacks -= &help;
    }
}

/// The chosen tasks by number, each with the role that it is revoked for. `total` is the cluster's
/// total.
pub fn choose(
    needs: &[Need],
    candidates: &mut [CandidateAgent],
    guards: &mut Guards,
    total: &Quantities,
) -> Vec<(usize, Role)> {
    let mut chosen = Vec::new();
    for need in needs {
        let mut search = Search::of(need, candidates, guards.clone(), total);
        while search.numbers.len() < CHOSEN_MAX
            && let Some(bundle) = search.next(candidates)
        {
            search.pick(bundle, candidates);
        }
        search.spare();
        let picked = search.picked;
        // Resources freed in excess of this need are available to the next one.
        let mut lacks = need.lacks.clone();
        for at in &need.candidates {
            let candidate = &mut candidates[*at];
            for one in picked.get(at).into_iter().flatten() {
                guards.lose(&one.role, &one.counts);
                candidate.free += &one.frees;
                candidate
                    .leaving
                    .push((one.role.clone(), one.frees.clone()));
                candidate.tasks.retain(|other| other.number != one.number);
                chosen.push((one.number, need.role.clone()));
            }
            candidate.give(need, &mut lacks);
        }
    }
    chosen
}

/// The cost of a choice; the smallest is best.
type Cost = (i32, u64, Reverse<u64>, Reverse<u64>);

/// Lower than any real cost.
const NO_COST: Cost = (i32::MIN, 0, Reverse(u64::MAX), Reverse(u64::MAX));

/// Tasks of one agent that together free an amount worth an offer.
struct Bundle {
    at: usize,
    cost: Cost,
    /// Their indices among the tasks of the agent.
    tasks: Vec<usize>,
}

/// The search for one need.
struct Search<'a> {
    need: &'a Need,
    lacks: Quantities,
    guards: Guards,
    total: &'a Quantities,
    /// Free resources of each agent at the start, and those left after the picks.
    before: BTreeMap<usize, Quantities>,
    free: BTreeMap<usize, Quantities>,
    picked: BTreeMap<usize, Vec<CandidateTask>>,
    numbers: BTreeSet<usize>,
    /// The agents that may help, cheapest first. As the lacking amounts shrink, real costs only
    /// rise.
    queue: BinaryHeap<Reverse<(Cost, usize)>>,
}

impl<'a> Search<'a> {
    fn of(
        need: &'a Need,
        candidates: &[CandidateAgent],
        guards: Guards,
        total: &'a Quantities,
    ) -> Self {
        // Most agents are not in the request and have nothing free.
        let each = need
            .candidates
            .iter()
            .map(|at| (*at, candidates[*at].there(need)));
        let each =
            each.filter(|(at, there)| !candidates[*at].tasks.is_empty() || !there.is_empty());
        let before: BTreeMap<usize, Quantities> = each.collect();
        let (mut lacks, mut free) = (need.lacks.clone(), before.clone());
        // Resources that an earlier need has freed in excess.
        free.values_mut()
            .for_each(|free| take(&mut lacks, &need.sets, free));
        let queue = before.keys().map(|at| Reverse((NO_COST, *at))).collect();
        Self {
            need,
            lacks,
            guards,
            total,
            before,
            free,
            picked: BTreeMap::new(),
            numbers: BTreeSet::new(),
            queue,
        }
    }

    /// The cheapest tasks that help.
    fn next(&mut self, candidates: &[CandidateAgent]) -> Option<Bundle> {
        while !self.lacks.is_empty() {
            let Reverse((_, at)) = self.queue.pop()?;
            let Some(bundle) = self.cheapest(at, &candidates[at].tasks) else {
                continue; // It will not help either when less is lacking.
            };
            let cost = Reverse((bundle.cost, at));
            if self.queue.peek().is_none_or(|other| cost >= *other) {
                return Some(bundle);
            }
            self.queue.push(cost);
        }
        None
    }

    /// The cheapest tasks of one agent: a single one, or the lowest-priority ones that together
    /// suffice.
    fn cheapest(&self, at: usize, tasks: &[CandidateTask]) -> Option<Bundle> {
        let free = self.free.get(&at)?;
        let is_left = |one: &usize| !self.numbers.contains(&tasks[*one].number);
        let left: Vec<usize> = (0..tasks.len()).filter(is_left).collect();
        let alone = left.iter().filter_map(|one| {
            let task = &tasks[*one];
            let cost = self.cost(free, &[task]);
            let cost = cost.filter(|_| self.may_go(task, &self.guards))?;
            let tasks = vec![*one];
            Some(Bundle { at, cost, tasks })
        });
        let alone = alone.min_by_key(|bundle| bundle.cost);
        let together = self.together(at, free, tasks, left);
        alone.into_iter().chain(together).min_by_key(|one| one.cost)
    }

    fn together(
        &self,
        at: usize,
        free: &Quantities,
        tasks: &[CandidateTask],
        mut left: Vec<usize>,
    ) -> Option<Bundle> {
        left.sort_by_key(|one| (tasks[*one].priority, Reverse(age(&tasks[*one]))));
        let mut guards = self.guards.clone();
        let mut bundle: Vec<usize> = Vec::new();
        let mut there = free.clone();
        let costs = |bundle: &[usize]| {
            let bundle: Vec<&CandidateTask> = bundle.iter().map(|one| &tasks[*one]).collect();
            self.cost(free, &bundle)
        };
        for one in left {
            let task = &tasks[one];
            if task.frees.is_empty() || !self.may_go(task, &guards) {
                continue;
            }
            guards.lose(&task.role, &task.counts);
            bundle.push(one);
            there += &task.frees;
            if !self.helps(&there) {
                continue;
            }
            // Drops tasks that are not needed, highest priority first.
            for at in (0..bundle.len()).rev() {
                let one = bundle.remove(at);
                if costs(&bundle).is_none() {
                    bundle.insert(at, one);
                }
            }
            let cost = costs(&bundle)?;
            let tasks = bundle;
            return Some(Bundle { at, cost, tasks });
        }
        None
    }

    fn may_go(&self, task: &CandidateTask, guards: &Guards) -> bool {
        let may_lose = || guards.may_lose(&task.role, &task.counts, &self.need.role);
        self.need.is_helped_by(&task.role) && may_lose()
    }

    /// The cost of revoking these tasks of an agent; `None` if that does not help.
    fn cost(&self, free: &Quantities, tasks: &[&CandidateTask]) -> Option<Cost> {
        let freed = tasks.iter().map(|task| &task.frees);
        let freed = freed.fold(Quantities::new(), |sum, frees| sum + frees);
        let there = free.clone() + &freed;
        if !self.helps(&there) {
            return None;
        }
        let help = there.lesser(&self.lacks);
        let priority = tasks.iter().map(|task| task.priority).max()?;
        let oldest = tasks.iter().map(|task| age(task)).min()?;
        let waste = self.share(&freed.saturating_sub(&help));
        Some((priority, waste, Reverse(self.share(&help)), Reverse(oldest)))
    }

    /// Whether an agent's resources contain a lacking name and are worth an offer.
    fn helps(&self, there: &Quantities) -> bool {
        !there.lesser(&self.lacks).is_empty() && is_allocatable(there, &self.need.sets)
    }

    /// The sum over all names of the fraction of the cluster, in millionths.
    fn share(&self, amounts: &Quantities) -> u64 {
        let share = |(name, amount): (_, resources::Scalar)| {
            let all = u128::try_from(self.total.get(name).thousandths()).unwrap_or(0);
            let own = u128::try_from(amount.thousandths()).unwrap_or(0) * 1_000_000;
            u64::try_from(own / all.max(1)).unwrap_or(u64::MAX)
        };
        amounts.iter().map(share).fold(0, u64::saturating_add)
    }

    fn pick(&mut self, bundle: Bundle, candidates: &[CandidateAgent]) {
        let Bundle { at, tasks, .. } = bundle;
        let free = self.free.entry(at).or_default();
        for one in tasks {
            let task = candidates[at].tasks[one].clone();
            *free += &task.frees;
            self.guards.lose(&task.role, &task.counts);
            self.numbers.insert(task.number);
            self.picked.entry(at).or_default().push(task);
        }
        take(&mut self.lacks, &self.need.sets, free);
        self.queue.push(Reverse((NO_COST, at)));
    }

    /// Drops picked tasks that later picks have made unnecessary, highest priority and oldest
    /// first.
    fn spare(&mut self) {
        let mut order: Vec<(Reverse<i32>, u64, usize, usize)> = Vec::new();
        for (at, picked) in &self.picked {
            let key = |one: &CandidateTask| (Reverse(one.priority), age(one), *at, one.number);
            order.extend(picked.iter().map(key));
        }
        order.sort_unstable();
        let each = self.before.keys().map(|at| self.given(*at));
        let mut given = each.fold(Quantities::new(), |sum, given| sum + &given);
        let lacking = self.need.lacks.saturating_sub(&given);
        for (_, _, at, number) in order {
            let without = given.saturating_sub(&self.given(at));
            let Some(picked) = self.picked.get_mut(&at) else {
                continue;
            };
            let Some(place) = picked.iter().position(|one| one.number == number) else {
                continue;
            };
            let one = picked.remove(place);
            // Only this agent's contribution changes.
            let less = without + &self.given(at);
            if lacking.contains(&self.need.lacks.saturating_sub(&less)) {
                given = less;
            } else if let Some(picked) = self.picked.get_mut(&at) {
                picked.insert(place, one);
            }
        }
    }

    /// Resources of one agent for the need with its picked tasks, if they are worth an offer.
    fn given(&self, at: usize) -> Quantities {
        let before = self.before.get(&at).cloned().unwrap_or_default();
        let picked = self.picked.get(&at).into_iter().flatten();
        let there = picked.fold(before, |sum, one| sum + &one.frees);
        match is_allocatable(&there, &self.need.sets) {
            true => there,
            false => Quantities::new(),
        }
    }
}

/// Start time for comparison; a task that is not running is the youngest.
fn age(task: &CandidateTask) -> u64 {
    task.since.map_or(u64::MAX, Timestamp::as_nanos)
}

#[cfg(test)]
mod tests;
