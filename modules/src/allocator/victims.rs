//! Victims: which tasks make room for roles that lack what is guaranteed to them (S115, S122, S123).
//!
//! Pure: amounts in, tasks out. What is free already is used first. Then the least important tasks go; of equals those of which least is
//! freed in vain, then those that help most, then the youngest. Below what is guaranteed to its own role, or to one above it, no task is ever
//! chosen, unless that role is above the one in need as well: it has as much then as before. Where a limit stands in the way, only tasks below
//! that limit help. Knows no agent by name, no framework and no clock.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use module_api::sorter::is_allocatable;
use resources::{Quantities, Role};
use runtime::Timestamp;

/// After so many tasks for one need no more are chosen: whoever needs more looks again.
const CHOSEN_MAX: usize = 200;

/// A role whose frameworks want what it is guaranteed and lacks.
#[derive(Clone, Debug)]
pub struct Need {
    /// Which.
    pub role: Role,
    /// What it lacks.
    pub lacks: Quantities,
    /// The role above whose limit leaves nothing for that, if there is one: what tasks of it and of roles below it have is all that helps.
    pub within: Option<Role>,
    /// What of one agent is worth an offer to one of them, see [`is_allocatable`].
    pub sets: Vec<Quantities>,
    /// Which agents they would take, by their places.
    pub spots: Vec<usize>,
}

/// One agent.
#[derive(Clone, Debug, Default)]
pub struct Spot {
    /// What nobody holds there and nothing reserves, or what comes free soon.
    pub free: Quantities,
    /// What of that comes free soon, and whose it is.
    pub leaving: Vec<(Role, Quantities)>,
    /// What may have to make room.
    pub tasks: Vec<Candidate>,
}

impl Need {
    /// Whether what tasks of this role free would help.
    fn is_helped_by(&self, role: &Role) -> bool {
        let bound = self.within.as_ref();
        !role.is_within(&self.role) && bound.is_none_or(|bound| role.is_within(bound))
    }
}

impl Spot {
    /// What is there for this need.
    fn there(&self, need: &Need) -> Quantities {
        if need.within.is_none() {
            return self.free.clone();
        }
        let leaving = self.leaving.iter();
        let leaving = leaving.filter(|(role, _)| need.is_helped_by(role));
        leaving.fold(Quantities::new(), |sum, (_, amount)| sum + amount)
    }

    /// Takes what this need lacks still out of what is there, if that is worth an offer.
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

/// A task that may have to make room.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its number, for whoever asks.
    pub number: usize,
    /// In which role it runs.
    pub role: Role,
    /// What others could have if it ended.
    pub frees: Quantities,
    /// What its role has less by then.
    pub counts: Quantities,
    /// The lower, the sooner it goes.
    pub priority: i32,
    /// Since when it runs, if it does.
    pub since: Option<Timestamp>,
}

/// What each role is guaranteed, and has.
#[derive(Clone, Debug, Default)]
pub struct Guards(BTreeMap<Role, (Quantities, Quantities)>);

impl Guards {
    /// These guarantees; has is what counts for each of the roles.
    pub fn new(guarantees: impl IntoIterator<Item = (Role, Quantities, Quantities)>) -> Self {
        let guard = |(role, guarantee, has)| (role, (guarantee, has));
        Self(guarantees.into_iter().map(guard).collect())
    }

    /// Whether a task of this role that counts so much may go for another role without that any is below its guarantee then in what the
    /// task counts.
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

    /// The role, and those above it, have so much less.
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

/// Of each need what is left when all that is free is used; those that lack nothing then are let go.
pub fn use_free(needs: &mut Vec<Need>, spots: &mut [Spot]) {
    for need in needs.iter_mut() {
        let mut lacks = std::mem::take(&mut need.lacks);
        for at in &need.spots {
            if lacks.is_empty() {
                break;
            }
            spots[*at].give(need, &mut lacks);
        }
        need.lacks = lacks;
    }
    needs.retain(|need| !need.lacks.is_empty());
}

/// The roles that would lack something if all that is free were used, which is left as it is.
pub fn unhelped(needs: &[Need], spots: &[Spot]) -> BTreeSet<Role> {
    let mut roles = BTreeSet::new();
    // Only what is taken from is copied: where something lacks for long, little is free.
    let mut taken: BTreeMap<usize, Spot> = BTreeMap::new();
    for need in needs {
        let mut lacks = need.lacks.clone();
        for at in &need.spots {
            if lacks.is_empty() {
                break;
            }
            let there = taken.get(at).unwrap_or(&spots[*at]).there(need);
            if !there.lesser(&lacks).is_empty() {
                let spot = taken.entry(*at).or_insert_with(|| spots[*at].clone());
                spot.give(need, &mut lacks);
            }
        }
        if !lacks.is_empty() {
            roles.insert(need.role.clone());
        }
    }
    roles
}

/// Takes what is lacking out of what is free on one agent, if that is worth an offer.
fn take(lacks: &mut Quantities, sets: &[Quantities], free: &mut Quantities) {
    if is_allocatable(free, sets) {
        let help = free.lesser(lacks);
        *free -= &help;
        *lacks -= &help;
    }
}

/// The numbers of the tasks that make room, each with the role that it is for. `total` is what the cluster has.
pub fn choose(
    needs: &[Need],
    spots: &mut [Spot],
    guards: &mut Guards,
    total: &Quantities,
) -> Vec<(usize, Role)> {
    let mut chosen = Vec::new();
    for need in needs {
        let mut search = Search::of(need, spots, guards.clone(), total);
        while search.numbers.len() < CHOSEN_MAX
            && let Some(bundle) = search.next(spots)
        {
            search.pick(bundle, spots);
        }
        search.spare();
        let picked = search.picked;
        // What was freed beyond the need is there for the next one.
        let mut lacks = need.lacks.clone();
        for at in &need.spots {
            let spot = &mut spots[*at];
            for one in picked.get(at).into_iter().flatten() {
                guards.lose(&one.role, &one.counts);
                spot.free += &one.frees;
                spot.leaving.push((one.role.clone(), one.frees.clone()));
                spot.tasks.retain(|other| other.number != one.number);
                chosen.push((one.number, need.role.clone()));
            }
            spot.give(need, &mut lacks);
        }
    }
    chosen
}

/// What choosing tasks costs: the smaller, the better.
type Cost = (i32, u64, Reverse<u64>, Reverse<u64>);

/// Less than anything costs.
const NO_COST: Cost = (i32::MIN, 0, Reverse(u64::MAX), Reverse(u64::MAX));

/// Tasks of one agent that together make room worth having.
struct Bundle {
    at: usize,
    cost: Cost,
    /// Their places among the tasks there.
    tasks: Vec<usize>,
}

/// The choice for one need.
struct Search<'a> {
    need: &'a Need,
    lacks: Quantities,
    guards: Guards,
    total: &'a Quantities,
    /// What was free on each agent at first, and what is left of it and of what is picked.
    before: BTreeMap<usize, Quantities>,
    free: BTreeMap<usize, Quantities>,
    picked: BTreeMap<usize, Vec<Candidate>>,
    numbers: BTreeSet<usize>,
    /// The agents that may help, the cheapest first; as what is lacking becomes less the true costs only rise.
    queue: BinaryHeap<Reverse<(Cost, usize)>>,
}

impl<'a> Search<'a> {
    fn of(need: &'a Need, spots: &[Spot], guards: Guards, total: &'a Quantities) -> Self {
        // Most agents were not asked about, and have nothing free.
        let each = need.spots.iter().map(|at| (*at, spots[*at].there(need)));
        let each = each.filter(|(at, there)| !spots[*at].tasks.is_empty() || !there.is_empty());
        let before: BTreeMap<usize, Quantities> = each.collect();
        let (mut lacks, mut free) = (need.lacks.clone(), before.clone());
        // What an earlier need has freed in vain.
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

    /// The cheapest tasks that would help.
    fn next(&mut self, spots: &[Spot]) -> Option<Bundle> {
        while !self.lacks.is_empty() {
            let Reverse((_, at)) = self.queue.pop()?;
            let Some(bundle) = self.cheapest(at, &spots[at].tasks) else {
                continue; // Nor will it help when less is lacking.
            };
            let cost = Reverse((bundle.cost, at));
            if self.queue.peek().is_none_or(|other| cost >= *other) {
                return Some(bundle);
            }
            self.queue.push(cost);
        }
        None
    }

    /// The cheapest tasks of one agent: one alone, or the least important ones that are enough together.
    fn cheapest(&self, at: usize, tasks: &[Candidate]) -> Option<Bundle> {
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
        tasks: &[Candidate],
        mut left: Vec<usize>,
    ) -> Option<Bundle> {
        left.sort_by_key(|one| (tasks[*one].priority, Reverse(age(&tasks[*one]))));
        let mut guards = self.guards.clone();
        let mut bundle: Vec<usize> = Vec::new();
        let mut there = free.clone();
        let costs = |bundle: &[usize]| {
            let bundle: Vec<&Candidate> = bundle.iter().map(|one| &tasks[*one]).collect();
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
            // The most important of those that are not needed stay.
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

    fn may_go(&self, task: &Candidate, guards: &Guards) -> bool {
        let may_lose = || guards.may_lose(&task.role, &task.counts, &self.need.role);
        self.need.is_helped_by(&task.role) && may_lose()
    }

    /// What it costs that these tasks of an agent go, if that helps.
    fn cost(&self, free: &Quantities, tasks: &[&Candidate]) -> Option<Cost> {
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

    /// Whether there is something on one agent that is lacking, and worth an offer.
    fn helps(&self, there: &Quantities) -> bool {
        !there.lesser(&self.lacks).is_empty() && is_allocatable(there, &self.need.sets)
    }

    /// How much of the cluster that is, in millionths of each name added up.
    fn share(&self, amounts: &Quantities) -> u64 {
        let share = |(name, amount): (_, resources::Scalar)| {
            let all = u128::try_from(self.total.get(name).thousandths()).unwrap_or(0);
            let own = u128::try_from(amount.thousandths()).unwrap_or(0) * 1_000_000;
            u64::try_from(own / all.max(1)).unwrap_or(u64::MAX)
        };
        amounts.iter().map(share).fold(0, u64::saturating_add)
    }

    fn pick(&mut self, bundle: Bundle, spots: &[Spot]) {
        let Bundle { at, tasks, .. } = bundle;
        let free = self.free.entry(at).or_default();
        for one in tasks {
            let task = spots[at].tasks[one].clone();
            *free += &task.frees;
            self.guards.lose(&task.role, &task.counts);
            self.numbers.insert(task.number);
            self.picked.entry(at).or_default().push(task);
        }
        take(&mut self.lacks, &self.need.sets, free);
        self.queue.push(Reverse((NO_COST, at)));
    }

    /// Spares tasks without which nothing more would be lacking, the most important and the oldest first: what was picked later may do
    /// without what was picked before.
    fn spare(&mut self) {
        let mut order: Vec<(Reverse<i32>, u64, usize, usize)> = Vec::new();
        for (at, picked) in &self.picked {
            let key = |one: &Candidate| (Reverse(one.priority), age(one), *at, one.number);
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
            // One agent has something else to give, and the others what they had.
            let less = without + &self.given(at);
            if lacking.contains(&self.need.lacks.saturating_sub(&less)) {
                given = less;
            } else if let Some(picked) = self.picked.get_mut(&at) {
                picked.insert(place, one);
            }
        }
    }

    /// What one agent has for the need with what is picked there, if that is worth an offer.
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

/// Since when a task runs; who does not run yet is the youngest.
fn age(task: &Candidate) -> u64 {
    task.since.map_or(u64::MAX, Timestamp::as_nanos)
}

#[cfg(test)]
mod tests;
