//! Measurements of the work on a cluster: filling it, runs, declines, a run after the end of one
//! task, and sorting.
//!
//! The caller passes a clock. Real figures use the CPU time of the one thread, which other work on
//! the machine does not affect. All figures are in milliseconds.

use std::time::Duration;

use resources::{Quantities, Role};

use super::{Shape, Workload, must};
use crate::sorter::Tree;

/// Returns the time spent so far.
pub type Spent = fn() -> Duration;

/// Runs for the figure of one freed resource.
const INCREMENTAL_RUNS: usize = 2_000;
/// Allocations added to a sorter: one for each of 10,000 agents.
const ALLOCATIONS: u32 = 10_000;

/// Cost of filling a cluster, medians of the rounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filling {
    /// Adding all agents.
    pub add_agents: f64,
    /// Adding all frameworks.
    pub add_frameworks: f64,
}

impl Filling {
    /// Fills a cluster of this shape `rounds` times.
    pub fn of(shape: &Shape, seed: u64, rounds: u32, spent: Spent) -> Self {
        let (agents, frameworks): (Vec<_>, Vec<_>) =
            (shape.agents().collect(), shape.frameworks().collect());
        let (mut adding_agents, mut adding_frameworks) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let (agents, frameworks) = (agents.clone(), frameworks.clone());
            let mut all = Workload::empty(seed);
            adding_frameworks.push(elapsed_ms(spent, || {
                for added in frameworks {
                    all.state.framework_added(added);
                }
            }));
            adding_agents.push(elapsed_ms(spent, || {
                for added in agents {
                    all.state.agent_added(added);
                }
            }));
        }
        Self {
            add_agents: median(&mut adding_agents),
            add_frameworks: median(&mut adding_frameworks),
        }
    }
}

/// Cost of runs that offer every agent, and of declining all offers.
#[derive(Clone, Copy, Debug, Default)]
pub struct FullRuns {
    /// Median of the runs.
    pub run: f64,
    /// Shortest run.
    pub shortest: f64,
    /// Declining the offers of one run, median of the rounds.
    pub decline: f64,
    /// Grants of the last run.
    pub grants: usize,
}

impl FullRuns {
    /// Offers the whole cluster and declines the offers, `rounds` times. Filters persist between
    /// rounds, as in Mesos' benchmark, except with reservations: those could go to no other
    /// framework, so each round begins with the initial cluster.
    pub fn of(mut all: Workload, shape: &Shape, rounds: u32, spent: Spent) -> Self {
        let fresh = (shape.reservations > 0).then(|| all.clone());
        let (mut runs, mut declines, mut count) = (Vec::new(), Vec::new(), 0);
        for _ in 0..rounds {
            if let Some(fresh) = &fresh {
                all = fresh.clone();
            }
            let mut grants = Vec::new();
            runs.push(elapsed_ms(spent, || grants = all.run(true)));
            count = grants.len();
            declines.push(elapsed_ms(spent, || all.decline(grants)));
        }
        Self {
            run: median(&mut runs),
            shortest: runs.iter().copied().reduce(f64::min).unwrap_or(0.0),
            decline: median(&mut declines),
            grants: count,
        }
    }
}

/// Time from the end of one task in a full cluster until its resources are granted again.
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
        each.push(elapsed_ms(spent, || {
            all.end(ended);
            granted = all.run(false);
        }));
        held.extend(granted);
    }
    median(&mut each)
}

/// Cost of changes that concern all agents or one framework, medians of the rounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Changing {
    /// Re-adding all agents with more resources, and the run after it.
    pub update_agents: f64,
    /// For every other framework, one after the other: suppress, run, revive, run, decline.
    pub suppress_revive: f64,
}

impl Changing {
    /// Changes a cluster of this shape `rounds` times.
    pub fn of(shape: &Shape, seed: u64, rounds: u32, spent: Spent) -> Self {
        let mut all = Workload::of(shape, seed);
        let (mut updates, mut revivals) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let agents: Vec<_> = shape.larger_agents().collect();
            let mut grants = Vec::new();
            updates.push(elapsed_ms(spent, || {
                agents
                    .into_iter()
                    .for_each(|added| all.state.agent_added(added));
                grants = all.run(false);
            }));
            all.decline(grants);
            let half: Vec<_> = shape.frameworks().step_by(2).collect();
            revivals.push(elapsed_ms(spent, || {
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
            update_agents: median(&mut updates),
            suppress_revive: median(&mut revivals),
        }
    }
}

/// Cost of the sorter's tree, medians of the rounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sorting {
    /// Adding 10,000 allocations one after the other.
    pub added: f64,
    /// Listing all clients in order after that; each allocation has changed.
    pub sort: f64,
    /// Removing those allocations.
    pub removed: f64,
    /// Recomputing every share after a change of the total, and listing all clients in their new
    /// order.
    pub recompute: f64,
}

impl Sorting {
    /// Sorts `clients` active clients in role `*`, to which the resources of 10,000 agents are
    /// given in turn, `rounds` times, as Mesos' benchmark `FullSort` does. For `recompute`, which
    /// Mesos does not measure, each client holds a little more, whose share differs between two
    /// totals.
    pub fn of(clients: u32, rounds: u32, spent: Spent) -> Self {
        let mut tree = Tree::default();
        for client in 0..clients {
            tree.join(client, &Role::STAR, &format!("framework-{client}"));
            tree.set_active(client, true);
        }
        // The second total has less memory, so that shares dominated by cpus become dominated by
        // memory.
        let totals = [
            "cpus:240000;mem:90000000;disk:40960000",
            "cpus:960000;mem:30000000;disk:40960000",
        ];
        let totals = totals.map(|text| must(Quantities::parse(text)));
        let (mut sorts, mut adds, mut removals) = (Vec::new(), Vec::new(), Vec::new());
        tree.set_total(&totals[0]);
        tree.order();
        let allocated = must(Quantities::parse("cpus:16;mem:2014;disk:1024"));
        let allocations = (0..ALLOCATIONS).map(|n| n % clients.max(1));
        let allocations: Vec<u32> = allocations.collect();
        let mut order = Vec::new();
        for _ in 0..rounds {
            adds.push(elapsed_ms(spent, || {
                for client in &allocations {
                    tree.hold(*client, &allocated);
                }
            }));
            sorts.push(elapsed_ms(spent, || order = tree.order()));
            debug_assert_eq!(order.len(), clients as usize);
            removals.push(elapsed_ms(spent, || {
                for client in &allocations {
                    tree.free(*client, &allocated);
                }
            }));
            order = tree.order();
        }
        for client in 0..clients {
            let (cpus, mem) = (1 + client % 7, 100 + 100 * (client * 5 % 11));
            let amount = must(Quantities::parse(&format!("cpus:{cpus};mem:{mem}")));
            tree.hold(client, &amount);
        }
        let mut recompute = Vec::new();
        for round in 0..rounds as usize {
            recompute.push(elapsed_ms(spent, || {
                tree.set_total(&totals[(round + 1) % 2]);
                order = tree.order();
            }));
        }
        debug_assert_eq!(order.len(), clients as usize);
        Self {
            added: median(&mut adds),
            sort: median(&mut sorts),
            removed: median(&mut removals),
            recompute: median(&mut recompute),
        }
    }
}

fn elapsed_ms(spent: Spent, work: impl FnOnce()) -> f64 {
    let begun = spent();
    work();
    spent().saturating_sub(begun).as_secs_f64() * 1e3
}

/// The median; 0 of an empty list.
pub fn median(each: &mut [f64]) -> f64 {
    each.sort_by(f64::total_cmp);
    each.get(each.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A clock that advances by 1 ms with each reading, so that each figure counts the readings.
    fn readings() -> Duration {
        static READ: AtomicU64 = AtomicU64::new(0);
        Duration::from_millis(READ.fetch_add(1, Ordering::Relaxed))
    }

    #[test]
    fn rounds_with_reservations_start_afresh() {
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
                assert!(runs.run >= 1.0 && runs.decline >= 1.0 && runs.shortest >= 1.0);
            }
        }
    }

    #[test]
    fn all_measurements_are_positive() {
        let shape = Shape::of(20, 5);
        let filling = Filling::of(&shape, 7, 3, readings);
        assert!(filling.add_agents >= 1.0 && filling.add_frameworks >= 1.0);
        assert!(incremental_run(&shape, 7, readings) >= 1.0);
        let changing = Changing::of(&shape, 7, 3, readings);
        assert!(changing.update_agents >= 1.0 && changing.suppress_revive >= 1.0);
        let sorting = Sorting::of(50, 3, readings);
        assert!(sorting.sort >= 1.0 && sorting.added >= 1.0);
        assert!(sorting.removed >= 1.0 && sorting.recompute >= 1.0);
    }

    #[test]
    fn the_middle_of_nothing_is_nothing() {
        assert_eq!(median(&mut []), 0.0);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
    }
}
