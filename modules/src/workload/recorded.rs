//! What Mesos' own allocator and sorter took for such clusters: figures that were recorded on a machine like the one that ours come from.
//!
//! Hold ratios against ratios: the peer was measured on another day. Pure.

use super::Shape;

/// What Mesos took for one cluster, in milliseconds of its one allocator thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mesos {
    /// One run in which every agent is offered and declined.
    pub full_run: f64,
    /// Adding all agents.
    pub add_agents: f64,
    /// Adding all frameworks.
    pub add_frameworks: f64,
    /// What these are, in words.
    pub are: &'static str,
}

/// One run, adding all agents and adding all frameworks, by agents and frameworks, all in role `*`.
const RECORDED: [(u32, u32, [f64; 3]); 9] = [
    (1_000, 50, [31.0, 48.0, 0.5]),
    (1_000, 200, [32.0, 55.0, 4.8]),
    (1_000, 1_000, [41.0, 63.0, 9.9]),
    (5_000, 50, [162.0, 297.0, 4.0]),
    (5_000, 200, [178.0, 315.0, 3.0]),
    (5_000, 1_000, [215.0, 341.0, 10.0]),
    (10_000, 50, [362.0, 579.0, 0.5]),
    (10_000, 200, [350.0, 585.0, 1.8]),
    (10_000, 1_000, [433.0, 687.0, 9.0]),
];

/// One run, by agents, roles and frameworks, and whether the roles have quotas.
const RECORDED_ROLES: [(u32, u32, u32, bool, f64); 3] = [
    (300, 300, 300, true, 53.0),
    (3_000, 3_000, 3_000, true, 6_150.0),
    (2_000, 1_000, 2_000, false, 107.0),
];

/// What it took for an agent in a case that nobody measured: a run, and adding it; and for adding a framework.
const OTHERWISE: [f64; 3] = [0.035, 0.06, 0.01];

/// One `total += r` of 4,000 reserved resources. A run adds what an agent has at least once for each agent.
const ADDITION_OF_4000: f64 = 35.0;

impl Mesos {
    /// What it took for a cluster of this shape, or for one like it.
    pub fn of(shape: &Shape) -> Self {
        let Shape {
            agents,
            frameworks,
            roles,
            quotas,
            ..
        } = *shape;
        let [run, agent, framework] = OTHERWISE;
        let like = Self {
            full_run: run * f64::from(agents),
            add_agents: agent * f64::from(agents),
            add_frameworks: framework * f64::from(frameworks),
            are: "Mesos in like cases, 35 us an agent, recorded",
        };
        if shape.reservations >= 4_000 {
            return Self {
                full_run: ADDITION_OF_4000 * f64::from(agents),
                are: "Mesos adding 4,000 reserved resources once an agent, recorded",
                ..like
            };
        }
        if shape.reservations > 0 {
            return like;
        }
        let plain = RECORDED
            .iter()
            .find(|case| (case.0, case.1) == (agents, frameworks) && roles == 0);
        if let Some((_, _, [full_run, add_agents, add_frameworks])) = plain.copied() {
            return Self {
                full_run,
                add_agents,
                add_frameworks,
                are: "Mesos in the same case, recorded",
            };
        }
        let key = (agents, roles, frameworks, quotas);
        let in_roles = RECORDED_ROLES
            .iter()
            .find(|case| (case.0, case.1, case.2, case.3) == key);
        in_roles.map_or(like, |case| Self {
            full_run: case.4,
            are: "Mesos in the same case, recorded (its run)",
            ..like
        })
    }
}

/// What its sorter took with 10,000 agents, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MesosSorter {
    /// Sorting all active clients anew.
    pub sort: f64,
    /// Counting one more allocation on each agent.
    pub added: f64,
    /// Counting one less on each.
    pub removed: f64,
}

/// Full sorts, by active clients.
pub const SORTED: [(u32, f64); 3] = [(50, 0.008), (200, 0.024), (1_000, 0.112)];

impl MesosSorter {
    /// What it took for so many active clients, or in proportion.
    pub fn of(clients: u32) -> Self {
        let same = SORTED.iter().find(|case| case.0 == clients);
        Self {
            sort: same.map_or(f64::from(clients) * 0.000_112, |case| case.1),
            added: 9.0,
            removed: 362.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_stands_beside_what_mesos_took_for_it_or_for_one_like_it() {
        let same = Mesos::of(&Shape::of(10_000, 200));
        assert_eq!((same.full_run, same.add_agents), (350.0, 585.0));
        assert!(same.are.contains("same case"), "{}", same.are);
        let quotas = Shape {
            roles: 3_000,
            quotas: true,
            ..Shape::of(3_000, 3_000)
        };
        assert_eq!(Mesos::of(&quotas).full_run, 6_150.0);
        let like = Mesos::of(&Shape::of(2_000, 200));
        assert!((like.full_run - 70.0).abs() < 1e-9);
        assert!(like.are.contains("like cases"), "{}", like.are);
        let reserved = Shape {
            roles: 50,
            reservations: 4_000,
            ..Shape::of(1, 50)
        };
        assert_eq!(Mesos::of(&reserved).full_run, 35.0);
    }

    #[test]
    fn a_sort_of_other_numbers_of_clients_is_held_against_as_much_for_each() {
        assert_eq!(MesosSorter::of(200).sort, 0.024);
        assert!((MesosSorter::of(2_000).sort - 0.224).abs() < 1e-9);
    }
}
