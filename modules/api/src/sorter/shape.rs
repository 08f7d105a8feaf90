//! Shapes: what an offer to one client has at least and at most (SPEC 4.1 `min_allocatable_resources`, W9).
//!
//! Pure. The allocator cuts what it grants to the client's shape, and the sorter cuts what it believes to be granted in the same way: else
//! whoever wants little of each agent would seem to hold all of them. Sees amounts only, so neither ports nor volumes.

use protocol::Demand;
use resources::{Invalid, Name, Quantities, excerpt};
use serde::{Deserialize, Serialize};

use super::Portion;
use super::budget::{cut, limit};

/// Sets in one demand.
const SETS_MAX: usize = 64;
/// Names in one set.
const NAMES_MAX: usize = 64;

/// So many sets are told apart for everybody together. Where there are more any room is looked at, and each client judged by its own sets:
/// otherwise one framework that names thousands would slow every run.
const LOOSEST_MAX: usize = 64;

/// What offers to one client have at least and at most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    least: Option<Vec<Quantities>>,
    most: Quantities,
}

impl Shape {
    /// What a demand for this role says of amounts. Refuses, by the field's name, what no offer could satisfy.
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

    /// Whether it is any shape.
    pub fn is_open(&self) -> bool {
        self.least.is_none() && !self.is_bounded()
    }

    /// Whether it says what an offer has at most.
    pub fn is_bounded(&self) -> bool {
        self.most.iter().len() > 0
    }

    /// What an offer has at most; what is not listed is not bounded.
    pub fn most(&self) -> &Quantities {
        &self.most
    }

    /// What is worth an offer, see [`is_allocatable`](super::is_allocatable), if these sets are for everybody else.
    pub fn sets<'a>(&'a self, sets_min: &'a [Quantities]) -> &'a [Quantities] {
        self.least.as_deref().unwrap_or(sets_min)
    }

    /// What is worth an offer to anybody at all: of these sets for everybody, and of those of these shapes.
    pub fn loosest<'a>(
        sets_min: &[Quantities],
        shapes: impl Iterator<Item = &'a Shape>,
    ) -> Vec<Quantities> {
        let mut sets = sets_min.to_vec();
        for least in shapes.filter_map(|shape| shape.least.as_ref()) {
            if sets.is_empty() || least.is_empty() {
                return Vec::new(); // Anything is, for somebody.
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

    /// Cuts a portion to what an offer has at most. What is reserved is kept first: few others could use it.
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
    fn of_too_many_sets_none_is_told_apart_for_everybody() {
        let sets_min = [quantities("cpus:1")];
        let shapes: Vec<Shape> = (0..LOOSEST_MAX as u32)
            .map(|n| shape(&format!("mem:{n}.5"), ""))
            .collect();
        let few = Shape::loosest(&sets_min, shapes[1..].iter());
        assert_eq!(few.len(), LOOSEST_MAX);
        assert!(Shape::loosest(&sets_min, shapes.iter()).is_empty());
    }

    #[test]
    fn what_no_offer_could_satisfy_is_refused_with_an_excerpt_of_the_role() {
        let demand = Demand::shaped(quantities("cpus:2"), quantities("cpus:1"));
        let refused = Shape::new(&"x".repeat(1 << 10), &demand).unwrap_err();
        assert!(refused.field.ends_with("...].least"), "{refused}");
        assert!(refused.field.len() < 120, "{refused}");
    }

    /// W9: what is reserved is taken before what is free, and what is not listed is not bounded.
    #[test]
    fn a_portion_is_cut_to_the_shape_and_the_rest_stays_in_the_room() {
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
    fn what_a_shape_leaves_is_neither_charged_nor_taken_for_a_guarantee() {
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
        let mut take = |place, name: &str, shape: &Shape| {
            let role = role(name);
            let taken = budgets.take(Stage::Guarantees, place, &role, Some(shape), &mut room);
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
    fn what_no_offer_could_satisfy_is_refused_by_its_field() {
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
