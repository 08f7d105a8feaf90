//! What the work on a cluster takes: filling it, runs, declining what they offer, a run after one task has ended, and sorting.
//!
//! Knows no clock: whoever measures says how the time that was spent is told. Real figures come from processor time of the one thread,
//! which other work on the machine does not lengthen. All figures are in milliseconds.

use std::time::Duration;

use resources::{Quantities, Role};

use super::{Shape, Workload, sure};
use crate::sorter::Tree;

/// How much time was spent so far.
pub type Spent = fn() -> Duration;

/// Runs after which the work of one freed resource is known.
const INCREMENTAL_RUNS: usize = 2_000;
/// Allocations that a sorter is told of: one on each of as many agents.
const ALLOCATIONS: u32 = 10_000;

/// What filling a cluster takes, the middle of the rounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filling {
    /// Adding all agents.
    pub add_agents: f64,
    /// Adding all frameworks.
    pub add_frameworks: f64,
}

impl Filling {
    /// Fills a cluster of this shape so many times.
    pub fn of(shape: &Shape, seed: u64, rounds: u32, spent: Spent) -> Self {
        let (agents, frameworks): (Vec<_>, Vec<_>) =
            (shape.agents().collect(), shape.frameworks().collect());
        let (mut adding_agents, mut adding_frameworks) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let (agents, frameworks) = (agents.clone(), frameworks.clone());
            let mut all = Workload::empty(seed);
            adding_frameworks.push(taken(spent, || {
                for added in frameworks {
                    all.books.framework_added(added);
                }
            }));
            adding_agents.push(taken(spent, || {
                for added in agents {
                    all.books.agent_added(added);
                }
            }));
        }
        Self {
            add_agents: middle(&mut adding_agents),
            add_frameworks: middle(&mut adding_frameworks),
        }
    }
}

/// What runs take in which every agent is offered, and declining it all.
#[derive(Clone, Copy, Debug, Default)]
pub struct FullRuns {
    /// The middle one.
    pub run: f64,
    /// The shortest one.
    pub least: f64,
    /// Declining what one run has offered, the middle of the rounds.
    pub decline: f64,
    /// Grants of the last run.
    pub grants: usize,
}

impl FullRuns {
    /// Offers the whole cluster and has it declined, so many times. What was refused stays refused, as in Mesos' benchmark, but where there
    /// are reservations: nobody else could be offered those, so each round begins with the cluster as it was.
    pub fn of(mut all: Workload, shape: &Shape, rounds: u32, spent: Spent) -> Self {
        let fresh = (shape.reservations > 0).then(|| all.clone());
        let (mut runs, mut declines, mut count) = (Vec::new(), Vec::new(), 0);
        for _ in 0..rounds {
            if let Some(fresh) = &fresh {
                all = fresh.clone();
            }
            let mut grants = Vec::new();
            runs.push(taken(spent, || grants = all.run(true)));
            count = grants.len();
            declines.push(taken(spent, || all.decline(grants)));
        }
        Self {
            run: middle(&mut runs),
            least: runs.iter().copied().reduce(f64::min).unwrap_or(0.0),
            decline: middle(&mut declines),
            grants: count,
        }
    }
}

/// From the end of one task in a full cluster until what it had is granted again.
pub fn incremental_run(shape: &Shape, seed: u64, spent: Spent) -> f64 {
    let mut all = Workload::of(shape, seed);
    let mut held = all.run(true);
    let mut each = Vec::with_capacity(INCREMENTAL_RUNS);
    for n in 0..INCREMENTAL_RUNS {
        if held.is_empty() {
            break;
        }
        let ended = held.swap_remove(n * 7919 % held.len());
        let mut granted = Vec::new();
        each.push(taken(spent, || {
            all.end(ended);
            granted = all.run(false);
        }));
        held.extend(granted);
    }
    middle(&mut each)
}

/// What changes take that concern all agents or one framework, the middle of the rounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Changing {
    /// Adding all agents anew, each with more than before, and the run after it.
    pub update_agents: f64,
    /// Every other framework suppresses and revives, one after the other, with a run after each word; whatever is offered is declined.
    pub suppress_revive: f64,
}

impl Changing {
    /// Changes a cluster of this shape so many times.
    pub fn of(shape: &Shape, seed: u64, rounds: u32, spent: Spent) -> Self {
        let mut all = Workload::of(shape, seed);
        let (mut updates, mut revivals) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let agents: Vec<_> = shape.larger_agents().collect();
            let mut grants = Vec::new();
            updates.push(taken(spent, || {
                agents
                    .into_iter()
                    .for_each(|added| all.books.agent_added(added));
                grants = all.run(false);
            }));
            all.decline(grants);
            let half: Vec<_> = shape.frameworks().step_by(2).collect();
            revivals.push(taken(spent, || {
                for added in half {
                    all.suppress(&added.framework_id);
                    let mut grants = all.run(false);
                    all.revive(&added.framework_id);
                    grants.append(&mut all.run(false));
                    all.decline(grants);
                }
            }));
        }
        Self {
            update_agents: middle(&mut updates),
            suppress_revive: middle(&mut revivals),
        }
    }
}

/// What the sorter's tree takes, the middle of the rounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sorting {
    /// Hearing of 10,000 allocations, one after the other.
    pub added: f64,
    /// Listing all clients in order after that: each holds something else than before.
    pub sort: f64,
    /// Hearing that those allocations are no more.
    pub removed: f64,
    /// Working every share out anew, after the total has changed, and listing all clients in their order, which has changed too.
    pub anew: f64,
}

impl Sorting {
    /// So many active clients in role `*`, to whom what 10,000 agents have is given in turn, sorted so many times: what Mesos' benchmark `FullSort`
    /// does. For what it has no measurement of each client holds a little besides, of which it has another share in another cluster.
    pub fn of(clients: u32, rounds: u32, spent: Spent) -> Self {
        let mut tree = Tree::default();
        for client in 0..clients {
            tree.join(client, &Role::STAR, &format!("framework-{client}"));
            tree.set_active(client, true);
        }
        // Whose share is what it holds of cpus in the one cluster has another in the one that has less memory.
        let totals = [
            "cpus:240000;mem:90000000;disk:40960000",
            "cpus:960000;mem:30000000;disk:40960000",
        ];
        let totals = totals.map(|text| sure(Quantities::parse(text)));
        let (mut sorts, mut adds, mut removals) = (Vec::new(), Vec::new(), Vec::new());
        tree.set_total(&totals[0]);
        tree.order();
        let allocated = sure(Quantities::parse("cpus:16;mem:2014;disk:1024"));
        let allocations = (0..ALLOCATIONS).map(|n| n % clients.max(1));
        let allocations: Vec<u32> = allocations.collect();
        let mut order = Vec::new();
        for _ in 0..rounds {
            adds.push(taken(spent, || {
                for client in &allocations {
                    tree.hold(*client, &allocated);
                }
            }));
            sorts.push(taken(spent, || order = tree.order()));
            debug_assert_eq!(order.len(), clients as usize);
            removals.push(taken(spent, || {
                for client in &allocations {
                    tree.free(*client, &allocated);
                }
            }));
            order = tree.order();
        }
        for client in 0..clients {
            let (cpus, mem) = (1 + client % 7, 100 + 100 * (client * 5 % 11));
            let amount = sure(Quantities::parse(&format!("cpus:{cpus};mem:{mem}")));
            tree.hold(client, &amount);
        }
        let mut anew = Vec::new();
        for round in 0..rounds as usize {
            anew.push(taken(spent, || {
                tree.set_total(&totals[(round + 1) % 2]);
                order = tree.order();
            }));
        }
        debug_assert_eq!(order.len(), clients as usize);
        Self {
            added: middle(&mut adds),
            sort: middle(&mut sorts),
            removed: middle(&mut removals),
            anew: middle(&mut anew),
        }
    }
}

fn taken(spent: Spent, work: impl FnOnce()) -> f64 {
    let begun = spent();
    work();
    spent().saturating_sub(begun).as_secs_f64() * 1e3
}

/// The one in the middle.
pub fn middle(each: &mut [f64]) -> f64 {
    each.sort_by(f64::total_cmp);
    each.get(each.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A clock that goes on by a millisecond whenever it is read, so that each figure is the number of readings between its ends.
    fn readings() -> Duration {
        static READ: AtomicU64 = AtomicU64::new(0);
        Duration::from_millis(READ.fetch_add(1, Ordering::Relaxed))
    }

    #[test]
    fn each_round_of_reservations_offers_the_whole_cluster_anew() {
        let plain = Shape::of(30, 5);
        let reserved = Shape {
            roles: 5,
            reservations: 5,
            ..plain
        };
        for (shape, grants) in [(plain, 30), (reserved, 150)] {
            for rounds in [1, 4] {
                let all = Workload::of(&shape, 7);
                let runs = FullRuns::of(all, &shape, rounds, readings);
                assert_eq!(runs.grants, grants, "{shape:?}");
                assert!(runs.run >= 1.0 && runs.decline >= 1.0 && runs.least >= 1.0);
            }
        }
    }

    #[test]
    fn whatever_is_measured_takes_its_time() {
        let shape = Shape::of(20, 5);
        let filling = Filling::of(&shape, 7, 3, readings);
        assert!(filling.add_agents >= 1.0 && filling.add_frameworks >= 1.0);
        assert!(incremental_run(&shape, 7, readings) >= 1.0);
        let changing = Changing::of(&shape, 7, 3, readings);
        assert!(changing.update_agents >= 1.0 && changing.suppress_revive >= 1.0);
        let sorting = Sorting::of(50, 3, readings);
        assert!(sorting.sort >= 1.0 && sorting.added >= 1.0);
        assert!(sorting.removed >= 1.0 && sorting.anew >= 1.0);
    }

    #[test]
    fn the_middle_of_nothing_is_nothing() {
        assert_eq!(middle(&mut []), 0.0);
        assert_eq!(middle(&mut [3.0, 1.0, 2.0]), 2.0);
    }
}
