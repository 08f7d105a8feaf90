//! Operators' settings of roles in the registry: quotas and weights, and their bounds.
//!
//! Pure. Only storage bounds are checked; the caller validates quotas, in [`crate::roles::quota`].

use std::collections::BTreeMap;

use resources::Role;

use super::RegistryError;

/// Maximum roles with a quota, and with a weight.
pub const ROLES_MAX: usize = 10_000;
/// Maximum bytes of a role's name.
const ROLE_BYTES_MAX: usize = 1_000;

/// Sets the values, or removes the ones that are `None`; all of them, or none if one is refused.
pub(super) fn set<T>(
    what: &str,
    held: &mut BTreeMap<String, T>,
    changed: BTreeMap<String, Option<T>>,
) -> Result<(), RegistryError> {
    for role in changed.keys() {
        let long = role.len() > ROLE_BYTES_MAX;
        if long || Role::new(role).is_err() {
            let role: String = role.chars().take(80).collect();
            return Err(refused(format!(
                "{what}: role is `{role}`: expected a path such as `eng/web`, of at most {ROLE_BYTES_MAX} bytes"
            )));
        }
    }
    let of = |(role, value): (&String, &Option<T>)| {
        i64::from(value.is_some()) - i64::from(held.contains_key(role))
    };
    let after = held.len() as i64 + changed.iter().map(of).sum::<i64>();
    if after > ROLES_MAX as i64 {
        return Err(refused(format!(
            "{what} of {after} roles: expected at most {ROLES_MAX}"
        )));
    }
    for (role, value) in changed {
        match value {
            Some(value) => drop(held.insert(role, value)),
            None => drop(held.remove(&role)),
        }
    }
    Ok(())
}

/// Refuses a harmful weight.
pub(super) fn check_weights(weights: &BTreeMap<String, Option<f64>>) -> Result<(), RegistryError> {
    for (role, weight) in weights {
        if let Some(weight) = weight.filter(|weight| !(weight.is_finite() && *weight > 0.0)) {
            return Err(refused(format!(
                "weight of role `{role}` is `{weight}`: expected a number above zero"
            )));
        }
    }
    Ok(())
}

fn refused(reason: String) -> RegistryError {
    RegistryError::Refused { reason }
}

#[cfg(test)]
mod tests {
    use testkit::assert_contains;

    use super::*;

    fn changed(
        roles: impl IntoIterator<Item = (usize, Option<u8>)>,
    ) -> BTreeMap<String, Option<u8>> {
        let name = |(role, value): (usize, Option<u8>)| (format!("r{role}"), value);
        roles.into_iter().map(name).collect()
    }

    #[test]
    fn role_settings_are_atomic_and_bounded() {
        let mut held = BTreeMap::new();
        let most = changed((0..ROLES_MAX).map(|role| (role, Some(1))));
        set("quotas", &mut held, most).unwrap();
        assert_eq!(held.len(), ROLES_MAX);
        let before = held.clone();
        let increment = changed([(0, Some(2)), (ROLES_MAX, Some(2))]);
        let refused = set("quotas", &mut held, increment).unwrap_err().to_string();
        assert_contains!(refused, "10001 roles: expected at most 10000");
        assert_eq!(held, before);
        let swapped = changed([(0, None), (ROLES_MAX, Some(2))]);
        set("quotas", &mut held, swapped).unwrap();
        assert!(!held.contains_key("r0") && held.len() == ROLES_MAX);
        for role in ["", "a//b", &"x".repeat(1_001)] {
            let bad = BTreeMap::from([("ok".to_owned(), Some(1)), (role.to_owned(), Some(1))]);
            assert!(set("quotas", &mut held, bad).is_err(), "{role}");
        }
        assert!(!held.contains_key("ok"));
    }

    #[test]
    fn a_weight_is_a_number_above_zero() {
        for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let weights = BTreeMap::from([("dev".to_owned(), Some(weight))]);
            assert!(check_weights(&weights).is_err(), "{weight}");
        }
        let weights = BTreeMap::from([("dev".to_owned(), Some(0.5)), ("qa".to_owned(), None)]);
        assert_eq!(check_weights(&weights), Ok(()));
    }
}
