//! Weights: how many times the share of another a role gets (S77, S88, SPEC 3.4).
//!
//! Pure. What an operator has said is in the registry and wins over `--weights`; a role of which neither says anything has 1. Nothing
//! that a framework holds is taken from it when weights change: the next offers follow them.

use std::collections::BTreeMap;
use std::sync::Arc;

use module_api::allocator::WeightsChanged;
use protocol::message::operator::{UpdateRefused, UpdateWeights};
use resources::Role;

use crate::books::Books;
use crate::effects::{Effects, Tell, ToAllocator};
use crate::registry::RegistryOperation;

/// What a role has of which nothing is said.
pub const DEFAULT: f64 = 1.0;

/// Weights by role; those with the default are not listed.
pub type Weights = BTreeMap<String, f64>;

/// The weights that hold, and a warning for each role of which the registry says something else than the flag.
pub fn effective(flagged: &Weights, recorded: &Weights) -> (Weights, Vec<String>) {
    let mut weights = flagged.clone();
    let mut warnings = Vec::new();
    for (role, weight) in recorded {
        let before = weights.insert(role.clone(), *weight);
        if let Some(before) = before.filter(|before| before != weight) {
            warnings.push(format!(
                "--weights says {role}={before}, but an operator has set {weight}, which holds: say it with `meros weights set`"
            ));
        }
    }
    weights.retain(|_, weight| *weight != DEFAULT);
    (weights, warnings)
}

/// What the registry is to record. The default is recorded only where it contradicts a flag.
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
        Role::new(role).map_err(|error| invalid(error.to_string()))?;
        if !(weight.is_finite() && *weight > 0.0) {
            return Err(invalid(format!(
                "weight of role `{role}` is `{weight}`: expected a number above zero"
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

impl Books {
    /// The registry has these weights: the allocator is told.
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
    fn what_an_operator_has_set_wins_over_the_flag_with_a_warning() {
        let (held, warnings) = effective(
            &weights(&[("dev", 2.0), ("qa", 3.0), ("prod", 3.0)]),
            &weights(&[("dev", 5.0), ("qa", 1.0), ("prod", 3.0), ("ops", 4.0)]),
        );
        assert_eq!(held, weights(&[("dev", 5.0), ("ops", 4.0), ("prod", 3.0)]));
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].contains("dev=2") && warnings[0].contains("set 5"));
    }

    #[test]
    fn a_weight_of_one_takes_the_record_away_unless_a_flag_says_otherwise() {
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
    fn a_weight_that_would_harm_is_refused_by_its_role() {
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
