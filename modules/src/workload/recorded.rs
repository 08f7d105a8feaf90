//! Recorded figures of Mesos' own allocator and sorter for such clusters, from a comparable
//! machine.
//!
//! Compare ratios only: Mesos was measured on another day.

use super::Shape;

/// Cost in Mesos for one cluster, in milliseconds of its single allocator thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mesos {
    /// One run that offers every agent, with all offers declined.
    pub full_run: f64,
    /// Adding all agents.
    pub add_agents: f64,
    /// Adding all frameworks.
    pub add_frameworks: f64,
    /// Description of the figures.
    pub label: &'static str,
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

/// Cost for each agent in unmeasured cases: a run, and adding it; and for adding a framework.
const UNMEASURED_COSTS: [f64; 3] = [0.035, 0.06, 0.01];

/// One `total += r` of 4,000 reserved resources. A run adds each agent's resources at least once.
const ADDITION_OF_4000: f64 = 35.0;

impl Mesos {
    /// Cost for a cluster of this shape, or for a similar one.
    pub fn of(shape: &Shape) -> Self {
        let Shape {
            agents,
            frameworks,
            roles,
            quotas,
            ..
        } = *shape;
        let [run, agent, framework] = UNMEASURED_COSTS;
        let like = Self {
            full_run: run * f64::from(agents),
            add_agents: agent * f64::from(agents),
            add_frameworks: framework * f64::from(frameworks),
            label: "Mesos in like cases, 35 us an agent, recorded",
        };
        if shape.reservations >= 4_000 {
            return Self {
                full_run: ADDITION_OF_4000 * f64::from(agents),
                label: "Mesos adding 4,000 reserved resources once an agent, recorded",
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
                label: "Mesos in the same case, recorded",
            };
        }
        let key = (agents, roles, frameworks, quotas);
        let in_roles = RECORDED_ROLES
            .iter()
            .find(|case| (case.0, case.1, case.2, case.3) == key);
        in_roles.map_or(like, |case| Self {
            full_run: case.4,
            label: "Mesos in the same case, recorded (its run)",
            ..like
        })
    }
}

/// Cost in Mesos' sorter with 10,000 agents, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MesosSorter {
    /// Sorting all active clients.
    pub sort: f64,
    /// Adding one allocation on each agent.
    pub added: f64,
    /// Removing one on each agent.
    pub removed: f64,
}

/// Full sorts, by active clients.
pub const RECORDED_SORTS: [(u32, f64); 3] = [(50, 0.008), (200, 0.024), (1_000, 0.112)];

impl MesosSorter {
    /// Cost for this number of clients, or in proportion.
    pub fn of(clients: u32) -> Self {
        let same = RECORDED_SORTS.iter().find(|case| case.0 == clients);
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
    fn recorded_figure_is_of_the_same_or_a_similar_case() {
        let same = Mesos::of(&Shape::of(10_000, 200));
        assert_eq!((same.full_run, same.add_agents), (350.0, 585.0));
        assert!(same.label.contains("same case"), "{}", same.label);
        let quotas = Shape {
            roles: 3_000,
            quotas: true,
            ..Shape::of(3_000, 3_000)
        };
        assert_eq!(Mesos::of(&quotas).full_run, 6_150.0);
        let like = Mesos::of(&Shape::of(2_000, 200));
        assert!((like.full_run - 70.0).abs() < 1e-9);
        assert!(like.label.contains("like cases"), "{}", like.label);
        let reserved = Shape {
            roles: 50,
            reservations: 4_000,
            ..Shape::of(1, 50)
        };
        assert_eq!(Mesos::of(&reserved).full_run, 35.0);
    }

    #[test]
    fn recorded_sort_scales_with_clients() {
        assert_eq!(MesosSorter::of(200).sort, 0.024);
        assert!((MesosSorter::of(2_000).sort - 0.224).abs() < 1e-9);
    }
}
