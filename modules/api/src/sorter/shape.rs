//! Shapes: minimum and maximum of the offers to one client.
//!
//! The allocator cuts its grants to the client's shape, and the sorter cuts its assumed grants in
//! the same way; otherwise a client that wants little of each agent would be charged for whole
//! agents. Covers amounts only, neither ports nor volumes.

use protocol::Demand;
use resources::{Invalid, Name, Quantities, excerpt};
use serde::{Deserialize, Serialize};

use super::Portion;
use super::budget::{cut, limit};

/// Sets in one demand.
const SETS_MAX: usize = 64;
/// Names in one set.
const NAMES_MAX: usize = 64;

/// Number of distinct sets in the common prefilter of [`Shape::loosest`]. With more sets, every
/// room is considered and each client checks its own sets; otherwise one framework with thousands
/// of sets would slow every run.
const LOOSEST_MAX: usize = 64;

/// Minimum and maximum of the offers to one client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    least: Option<Vec<Quantities>>,
    most: Quantities,
}

impl Shape {
    /// The shape of a demand for this role. Rejects, by the field's name, a demand that no offer
    /// could meet.
    pub fn new(role: &str, demand: &Demand) -> Result<Self, Invalid> {
        let field = |name: &str| format!("demands[{}].{name}", excerpt(role));
        let sets = demand.least.as_deref().unwrap_or_default();
        if sets.len() > SETS_MAX {
            let expected = format!("at most {SETS_MAX} sets");
            return Err(Invalid::new(field("least"), sets.len(), expected));
        }
        let lists = sets.iter().map(|set| ("least", set));
        for (name, list) in lists.chain([("most", &demand.most)]) {
            if list.iter().len() > NAMES_MAX {
                let expected = format!("at most {NAMES_MAX} names");
                return Err(Invalid::new(field(name), list.iter().len(), expected));
            }
        }
        for set in sets {
            let refuse = |expected: &str| Err(Invalid::new(field("least"), set, expected));
            let fits = |(name, amount)| limit(&demand.most, name).is_none_or(|most| amount <= most);
            if set.is_empty() {
                return refuse("something in each set");
            }
            if set.names(&Name::Ports) {
                return refuse("amounts only");
            }
            if !set.iter().all(fits) {
                return refuse("sets that fit into `most`");
            }
        }
        Ok(Self {
            least: demand.least.clone(),
            most: demand.most.clone(),
        })
    }

    /// Whether any offer fits.
    pub fn is_open(&self) -> bool {
        self.least.is_none() && !self.is_bounded()
    }

    /// Whether there is a maximum.
    pub fn is_bounded(&self) -> bool {
        self.most.iter().len() > 0
    }

    /// The maximum of an offer; names that are not listed are unbounded.
    pub fn most(&self) -> &Quantities {
        &self.most
    }

    /// The smallest amounts worth an offer, see [`is_allocatable`](super::is_allocatable): its own
    /// sets, or else the common ones.
    pub fn sets<'a>(&'a self, sets_min: &'a [Quantities]) -> &'a [Quantities] {
        self.least.as_deref().unwrap_or(sets_min)
    }

    /// The smallest amounts worth an offer to any client: the common sets and those of these
    /// shapes. Empty if any amount may be.
    pub fn loosest<'a>(
        sets_min: &[Quantities],
        shapes: impl Iterator<Item = &'a Shape>,
    ) -> Vec<Quantities> {
        let mut sets = sets_min.to_vec();
        for least in shapes.filter_map(|shape| shape.least.as_ref()) {
            if sets.is_empty() || least.is_empty() {
                return Vec::new(); // Any amount is, for some client.
            }
            sets.extend(least.iter().cloned());
        }
        sets.sort_unstable();
        sets.dedup();
        if sets.len() > LOOSEST_MAX {
            sets.clear();
        }
        sets
    }

    /// Cuts a portion to the maximum. Reserved resources are kept first, since few other clients
    /// can use them.
    pub(super) fn cut(&self, portion: &mut Portion) {
        let mut most = self.most.clone();
        let reserved = portion.reserved.iter_mut().map(|(_, amount)| amount);
        for amount in reserved.chain([&mut portion.free]) {
            let mut excess = Quantities::new();
            for (name, before) in amount.iter() {
                if let Some(left) = limit(&most, name) {
                    let kept = cut(name, before, left);
                    most.take(name, kept);
                    excess.set(name.clone(), before.saturating_sub(kept));
                }
            }
            *amount -= &excess;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Budget, Budgets, Room, Stage};
    use super::*;
    use resources::Role;

    fn quantities(text: &str) -> Quantities {
        Quantities::parse(text).unwrap()
    }

    fn shape(least: &str, most: &str) -> Shape {
        let demand = Demand::shaped(quantities(least), quantities(most));
        Shape::new("a", &demand).unwrap()
    }

    fn role(text: &str) -> Role {
        Role::new(text).unwrap()
    }

    #[test]
    fn too_many_sets_disable_the_prefilter() {
        let sets_min = [quantities("cpus:1")];
        let shapes: Vec<Shape> = (0..LOOSEST_MAX as u32)
            .map(|n| shape(&format!("mem:{n}.5"), ""))
            .collect();
        let few = Shape::loosest(&sets_min, shapes[1..].iter());
        assert_eq!(few.len(), LOOSEST_MAX);
        assert!(Shape::loosest(&sets_min, shapes.iter()).is_empty());
    }

    #[test]
    fn impossible_demand_error_shortens_the_role() {
        let demand = Demand::shaped(quantities("cpus:2"), quantities("cpus:1"));
        let refused = Shape::new(&"x".repeat(1 << 10), &demand).unwrap_err();
        assert!(refused.field.ends_with("...].least"), "{refused}");
        assert!(refused.field.len() < 120, "{refused}");
    }

    /// W9: reserved resources are taken before free ones, and unlisted names are unbounded.
    #[test]
    fn portion_is_cut_to_the_shape() {
        let mut room = Room {
            free: quantities("cpus:8;mem:64;gpus:2"),
            reserved: vec![
                (role("a"), quantities("cpus:1;disk:9")),
                (role("b"), quantities("cpus:4")),
            ],
        };
        let shape = shape("cpus:1", "cpus:3;mem:16;gpus:1.5");
        let mut none = Budgets::default();
        for stage in [Stage::Fair, Stage::Revocable] {
            let amount = none.amount(stage, None, &role("a/x"), Some(&shape), &room);
            assert_eq!(
                amount,
                quantities("cpus:3;mem:16;gpus:1;disk:9"),
                "{stage:?}"
            );
        }
        let taken = none.take(Stage::Fair, None, &role("a/x"), Some(&shape), &mut room);
        assert_eq!(taken, quantities("cpus:3;mem:16;gpus:1;disk:9"));
        assert_eq!(room.free, quantities("cpus:6;mem:48;gpus:1"));
        assert_eq!(room.reserved, [(role("b"), quantities("cpus:4"))]);
    }

    #[test]
    fn rest_of_a_shape_is_not_charged() {
        let budget = |name: &str, left: &str, unmet: &str| Budget {
            role: role(name),
            left: quantities(left),
            unmet: quantities(unmet),
        };
        let table = vec![budget("a", "cpus:4", "cpus:4"), budget("b", "", "mem:8")];
        let mut budgets = Budgets::new(table);
        budgets.set_headroom(quantities("cpus:8;mem:8"));
        let mut room = Room {
            free: quantities("cpus:8;mem:8"),
            reserved: Vec::new(),
        };
        let (a, b) = (budgets.find(&role("a")), budgets.find(&role("b")));
        let mut take = |index, name: &str, shape: &Shape| {
            let role = role(name);
            let taken = budgets.take(Stage::Guarantees, index, &role, Some(shape), &mut room);
            taken.to_string()
        };
        assert_eq!(take(a, "a", &shape("cpus:1", "cpus:3;mem:0")), "cpus:3");
        let useless = shape("cpus:1", "mem:0");
        assert_eq!(take(b, "b", &useless), "", "it lacks memory only");
        assert_eq!(budgets.required(), &quantities("cpus:1;mem:8"));
        assert_eq!(budgets.headroom(), &quantities("cpus:5;mem:8"));
        assert_eq!(budgets.get(0).unwrap().left, quantities("cpus:1"));
    }

    #[test]
    fn impossible_demand_is_rejected_by_field() {
        let demand = |least: Vec<Quantities>, most: &str| Demand {
            least: Some(least),
            most: quantities(most),
            ..Demand::default()
        };
        let zero = quantities("cpus:0");
        let ports = Quantities::from_iter([(Name::Ports, resources::Scalar::whole(1))]);
        for (wrong, expected) in [
            (
                demand(vec![quantities("cpus:2;mem:9")], "mem:8"),
                "demands[a].least is `cpus:2;mem:9`: expected sets that fit into `most`",
            ),
            (
                demand(vec![quantities("cpus:2"), zero], ""),
                "demands[a].least is `cpus:0`: expected something in each set",
            ),
            (
                demand(vec![ports], ""),
                "demands[a].least is `ports:1`: expected amounts only",
            ),
            (
                demand(vec![quantities("cpus:2"); 65], ""),
                "demands[a].least is `65`: expected at most 64 sets",
            ),
        ] {
            assert_eq!(Shape::new("a", &wrong).unwrap_err().to_string(), expected);
        }
        let anything = Shape::new("a", &demand(vec![], "")).unwrap();
        assert!(!anything.is_open() && Shape::default().is_open());
        let sets = [quantities("cpus:1")];
        assert_eq!(anything.sets(&sets), []);
        assert_eq!(Shape::default().sets(&sets), sets);
        let all = Shape::loosest(&sets, [&shape("mem:1", ""), &Shape::default()].into_iter());
        assert_eq!(all, [quantities("cpus:1"), quantities("mem:1")]);
        assert_eq!(Shape::loosest(&sets, [&anything].into_iter()), []);
    }
}
