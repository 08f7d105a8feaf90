//! Quota of a role: guarantees and limits.
//!
//! Only the type and its internal consistency. The master validates quotas against the cluster; the
//! allocator enforces them.

use resources::{Name, Quantities, Scalar};
use serde::{Deserialize, Serialize};

/// Quota of one role. Its consumption includes allocated and reserved resources of the role and its
/// descendants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Resources kept free for the role until it uses them. An absent name has no guarantee.
    pub guarantees: Quantities,
    /// Maximum resources of the role. An absent name has no limit; a name with amount 0 has the
    /// limit 0.
    pub limits: Quantities,
}

impl Quota {
    /// Whether this is the default quota: no guarantees and no limits.
    pub fn is_default(&self) -> bool {
        self.guarantees.is_empty() && self.limits.iter().len() == 0
    }

    /// Limit of one name.
    pub fn limit(&self, name: &Name) -> Option<Scalar> {
        self.limits.names(name).then(|| self.limits.get(name))
    }

    /// The first guarantee above its limit: name, guarantee, limit.
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
    fn zero_limit_differs_from_no_limit() {
        let mut none = Quota::default();
        assert!(none.is_default());
        none.limits.set(Name::Cpus, Scalar::ZERO);
        assert!(!none.is_default());
        assert_eq!(none.limit(&Name::Cpus), Some(Scalar::ZERO));
        assert_eq!(none.limit(&Name::Mem), None);
    }

    #[test]
    fn guarantee_above_limit_is_a_contradiction() {
        assert_eq!(quota("cpus:2;mem:9", "cpus:2").contradiction(), None);
        let found = quota("cpus:2;mem:9", "mem:8").contradiction();
        let (nine, eight) = (Scalar::whole(9), Scalar::whole(8));
        assert_eq!(found, Some((Name::Mem, nine, eight)));
    }
}
