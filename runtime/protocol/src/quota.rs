//! Quota: what a role is sure of, and what it may not go beyond (SPEC 3.4).
//!
//! Only the words and what is wrong in itself; whether the cluster has so much is the master's to judge, and who gets it the allocator's.

use resources::{Name, Quantities, Scalar};
use serde::{Deserialize, Serialize};

/// One role's quota. Charged with what its frameworks hold and what is reserved for it, the roles below it included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Kept free for the role until it takes it. A name that is not listed is not guaranteed.
    pub guarantees: Quantities,
    /// The most that it may hold. A name that is not listed is not limited; one listed with nothing is a limit of nothing.
    pub limits: Quantities,
}

impl Quota {
    /// Whether it says nothing: the default, to which a role returns when both maps are empty.
    pub fn is_default(&self) -> bool {
        self.guarantees.is_empty() && self.limits.iter().len() == 0
    }

    /// The limit of one name.
    pub fn limit(&self, name: &Name) -> Option<Scalar> {
        self.limits.names(name).then(|| self.limits.get(name))
    }

    /// The first guarantee that its own limit forbids: the name, the guarantee and the limit.
    pub fn contradiction(&self) -> Option<(Name, Scalar, Scalar)> {
        self.guarantees.iter().find_map(|(name, guarantee)| {
            let limit = self.limit(name)?;
            (guarantee > limit).then(|| (name.clone(), guarantee, limit))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(guarantees: &str, limits: &str) -> Quota {
        Quota {
            guarantees: Quantities::parse(guarantees).unwrap(),
            limits: Quantities::parse(limits).unwrap(),
        }
    }

    #[test]
    fn a_limit_of_nothing_is_a_limit_and_a_name_that_is_not_listed_has_none() {
        let mut none = Quota::default();
        assert!(none.is_default());
        none.limits.set(Name::Cpus, Scalar::ZERO);
        assert!(!none.is_default());
        assert_eq!(none.limit(&Name::Cpus), Some(Scalar::ZERO));
        assert_eq!(none.limit(&Name::Mem), None);
    }

    #[test]
    fn a_guarantee_above_its_own_limit_is_a_contradiction() {
        assert_eq!(quota("cpus:2;mem:9", "cpus:2").contradiction(), None);
        let found = quota("cpus:2;mem:9", "mem:8").contradiction();
        let (nine, eight) = (Scalar::whole(9), Scalar::whole(8));
        assert_eq!(found, Some((Name::Mem, nine, eight)));
    }
}
