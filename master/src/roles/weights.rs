//! Weights: factors of the roles' fair shares.
//!
//! Pure. A weight in the registry, set by an operator, overrides `--weights`; the default is 1. A
//! change takes nothing from frameworks: the next offers follow it.

use std::collections::BTreeMap;
use std::sync::Arc;

use module_api::allocator::WeightsChanged;
use protocol::message::operator::{UpdateRefused, UpdateWeights};
use resources::{Role, excerpt};

use crate::registry::RegistryOperation;
use crate::state::MasterState;
use crate::state::effects::{Effects, SendEffects, ToAllocator};

/// The weight of a role without a setting.
pub const DEFAULT: f64 = 1.0;

/// Weights by role; roles with the default are not listed.
pub type Weights = BTreeMap<String, f64>;

/// The effective weights, and a warning for each role with a flag that is overridden.
pub fn effective(flagged: &Weights, recorded: &Weights) -> (Weights, Vec<String>) {
    let mut weights = flagged.clone();
    let mut warnings = Vec::new();
    for (role, weight) in recorded {
        let before = weights.insert(role.clone(), *weight);
        if let Some(before) = before.filter(|before| before != weight) {
            warnings.push(format!(
                "--weights says {role}={before}, but an operator has set {weight}, which takes precedence; change it with `meros weights set`"
            ));
        }
    }
    weights.retain(|_, weight| *weight != DEFAULT);
    (weights, warnings)
}

/// The operation to record. The default is recorded only where it overrides a flag.
pub fn prepare(
    update: &UpdateWeights,
    flagged: &Weights,
) -> Result<RegistryOperation, UpdateRefused> {
    let invalid = |reason| UpdateRefused::Invalid { reason };
    if update.weights.is_empty() {
        return Err(invalid(
            "weights is empty: expected at least one role".to_owned(),
        ));
    }
    for (role, weight) in &update.weights {
        // The messages of Mesos, which clients compare.
        let failed = "Failed to validate update weights request JSON";
        if let Some(problem) = Role::problem(role) {
            let role = excerpt(role);
            return Err(invalid(format!(
                "{failed}: Invalid role '{role}': {problem}"
            )));
        }
        if !(weight.is_finite() && *weight > 0.0) {
            return Err(invalid(format!(
                "{failed} for role '{role}': Invalid weight '{weight}': Weights must be positive"
            )));
        }
    }
    let recorded = |(role, weight): (&String, &f64)| {
        let needless = *weight == DEFAULT && flagged.get(role).is_none_or(|flag| *flag == DEFAULT);
        (role.clone(), (!needless).then_some(*weight))
    };
    let weights = update.weights.iter().map(recorded).collect();
    Ok(RegistryOperation::UpdateWeights { weights })
}

impl MasterState {
    /// The registry has recorded these weights: notifies the allocator.
    pub fn weights_updated(&mut self, weights: Weights, out: &mut Effects) {
        let held = Arc::make_mut(&mut self.weights);
        held.extend(weights.clone());
        held.retain(|_, weight| *weight != DEFAULT);
        out.allocator(ToAllocator::WeightsChanged(WeightsChanged { weights }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(pairs: &[(&str, f64)]) -> Weights {
        let owned = |(role, weight): &(&str, f64)| ((*role).to_owned(), *weight);
        pairs.iter().map(owned).collect()
    }

    fn recorded(update: &[(&str, f64)], flagged: &[(&str, f64)]) -> BTreeMap<String, Option<f64>> {
        let update = UpdateWeights {
            weights: weights(update),
        };
        match prepare(&update, &weights(flagged)).unwrap() {
            RegistryOperation::UpdateWeights { weights } => weights,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn operator_weight_overrides_the_flag_with_a_warning() {
        let (held, warnings) = effective(
            &weights(&[("dev", 2.0), ("qa", 3.0), ("prod", 3.0)]),
            &weights(&[("dev", 5.0), ("qa", 1.0), ("prod", 3.0), ("ops", 4.0)]),
        );
        assert_eq!(held, weights(&[("dev", 5.0), ("ops", 4.0), ("prod", 3.0)]));
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].contains("dev=2") && warnings[0].contains("set 5"));
    }

    #[test]
    fn weight_of_one_removes_the_record_unless_flagged() {
        let one = |role: &str, weight| BTreeMap::from([(role.to_owned(), weight)]);
        assert_eq!(recorded(&[("dev", 1.0)], &[]), one("dev", None));
        assert_eq!(recorded(&[("dev", 1.0)], &[("dev", 1.0)]), one("dev", None));
        assert_eq!(
            recorded(&[("dev", 1.0)], &[("dev", 2.0)]),
            one("dev", Some(1.0))
        );
        assert_eq!(
            recorded(&[("dev", 2.0)], &[("dev", 2.0)]),
            one("dev", Some(2.0))
        );
    }

    #[test]
    fn harmful_weight_is_refused_by_its_role() {
        for (role, weight) in [
            ("dev", 0.0),
            ("dev", -1.0),
            ("dev", f64::NAN),
            ("a//b", 1.0),
        ] {
            let weights = weights(&[("ok", 2.0), (role, weight)]);
            let refused = prepare(&UpdateWeights { weights }, &Weights::new()).unwrap_err();
            assert!(refused.to_string().contains(role), "{refused}");
        }
        let nothing = UpdateWeights {
            weights: Weights::new(),
        };
        assert!(prepare(&nothing, &Weights::new()).is_err());
    }
}
