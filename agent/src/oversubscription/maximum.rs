//! The upper bound of the resources that an agent lends (`--oversubscription_max`).
//!
//! Holds for every estimator. A name without a bound is not bounded. Lowering it takes nothing back
//! from tasks that run.

use std::collections::BTreeMap;
use std::fmt;

use protocol::ResourceUsage;
use resources::{Name, Quantities, Resources, Scalar};

/// The largest accepted percentage, against typing errors.
const PERCENT_MAX: f64 = 10_000.0;

/// The bound of one resource.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    Amount(Scalar),
    /// Of the agent's resources of that name.
    Percent(f64),
}

/// Bounds by the name of the resource, for example `cpus:50%;mem:1024`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LendingMax(BTreeMap<Name, Bound>);

/// A text that is no list of bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{part}`: expected the name of a resource once, with an amount or a percentage of the \
     agent's, such as `cpus:4;mem:50%`"
)]
pub struct InvalidMax {
    part: String,
}

impl LendingMax {
    /// Parses bounds that are separated by semicolons. An empty text has none.
    pub fn parse(text: &str) -> Result<Self, InvalidMax> {
        let mut bounds = BTreeMap::new();
        let parts = text.split(';').map(str::trim);
        for part in parts.filter(|part| !part.is_empty()) {
            let invalid = || InvalidMax {
                part: part.chars().take(80).collect(),
            };
            let (name, bound) = read(part).ok_or_else(invalid)?;
            if bounds.insert(name, bound).is_some() {
                return Err(invalid());
            }
        }
        Ok(Self(bounds))
    }

    /// The bounds on an agent with these resources.
    pub fn amounts(&self, total: &Resources) -> Quantities {
        let total = total.quantities();
        let each = self.0.iter().map(|(name, bound)| {
            let amount = match bound {
                Bound::Amount(amount) => *amount,
                Bound::Percent(percent) => {
                    let amount = total.get(name).as_f64() * percent / 100.0;
                    Scalar::new(amount).unwrap_or_default()
                }
            };
            (name.clone(), amount)
        });
        each.collect()
    }

    /// The part of an estimate that may be lent in addition to the resources already lent.
    pub fn apply(&self, estimate: Resources, usage: &ResourceUsage) -> Resources {
        if self.0.is_empty() {
            return estimate;
        }
        // The allocator lends idle reservations, which are another's.
        let lent = usage.allocated_revocable().throttleable().quantities();
        let mut bounded = estimate.filter(|own| !self.0.contains_key(&own.name()));
        for (name, most) in self.amounts(&usage.total).iter() {
            let mut room = most.saturating_sub(lent.get(name));
            for resource in estimate.iter().filter(|own| own.is(name)) {
                let mut resource = resource.clone();
                let fits = resource.shrink(room);
                if fits {
                    room = room.saturating_sub(resource.amount().unwrap_or_default());
                    bounded.push(resource);
                }
            }
        }
        bounded
    }
}

impl fmt::Display for LendingMax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (name, bound)) in self.0.iter().enumerate() {
            let semicolon = if n == 0 { "" } else { ";" };
            match bound {
                Bound::Amount(amount) => write!(f, "{semicolon}{name}:{amount}")?,
                Bound::Percent(percent) => write!(f, "{semicolon}{name}:{percent}%")?,
            }
        }
        Ok(())
    }
}

fn read(part: &str) -> Option<(Name, Bound)> {
    let (name, amount) = part.split_once(':')?;
    let name = Name::new(name.trim()).ok()?;
    let amount = amount.trim();
    let bound = match amount.strip_suffix('%') {
        Some(percent) => {
            let percent: f64 = percent.trim().parse().ok()?;
            Bound::Percent(Some(percent).filter(|part| (0.0..=PERCENT_MAX).contains(part))?)
        }
        // A set or a range has no amount.
        None => Bound::Amount(Scalar::new(amount.parse().ok()?).ok()?),
    };
    Some((name, bound))
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::usage::{ExecutorUsage, Throttle};
    use protocol::{ContainerId, ExecutorId, FrameworkId};
    use resources::{Revocable, Role};

    fn revocable(text: &str) -> Resources {
        let regular = Resources::parse(text).unwrap();
        regular.to_revocable(Revocable::Throttleable).unwrap()
    }

    /// The part of the estimate that may be lent on an agent of ten CPUs and 1,000 MB.
    fn bounded(max: &str, estimate: &str, lent: &Resources) -> Resources {
        let usage = ResourceUsage {
            total: Resources::parse("cpus:8;cpus(ads):2;mem:1000").unwrap(),
            executors: vec![ExecutorUsage {
                framework_id: FrameworkId::new("f").unwrap(),
                executor_id: ExecutorId::new("e").unwrap(),
                executor_name: String::new(),
                is_command: false,
                container_id: ContainerId::new("c").unwrap(),
                allocated: lent.allocate(&Role::new("ads").unwrap()),
                tasks: Vec::new(),
                statistics: None,
                throttle: Throttle::default(),
                objectives: Vec::new(),
            }],
        };
        let max = LendingMax::parse(max).unwrap();
        max.apply(revocable(estimate), &usage)
    }

    #[test]
    fn lent_resources_and_estimate_stay_within_the_bound() {
        let none = Resources::new();
        for (max, lent, expected) in [
            ("", "", "cpus:6;mem:512"),
            ("cpus:4", "", "cpus:4;mem:512"),
            ("cpus:4;mem:25%", "", "cpus:4;mem:250"),
            ("cpus:50%", "cpus:3", "cpus:2;mem:512"),
            ("cpus:4", "cpus:5", "mem:512"),
            ("cpus:0;mem:0%", "", ""),
            ("gpus:1", "", "cpus:6;mem:512"),
        ] {
            let lent = match lent {
                "" => none.clone(),
                lent => revocable(lent),
            };
            let found = bounded(max, "cpus:6;mem:512", &lent);
            assert_eq!(found, revocable(expected), "{max}");
        }
    }

    #[test]
    fn lent_idle_reservations_do_not_count() {
        let idle = Resources::parse("cpus:4").unwrap();
        let idle = idle.to_revocable(Revocable::NonThrottleable).unwrap();
        assert_eq!(bounded("cpus:5", "cpus:6", &idle), revocable("cpus:5"));
    }

    #[test]
    fn invalid_bound_is_named() {
        for text in [
            "cpus",
            "cpus:",
            "cpus:-1",
            "cpus:x%",
            "cpus:-5%",
            "cpus:1;cpus:2%",
            "ports:[1-2]",
            ":4",
            "cpus:NaN",
            "cpus:1000000%",
        ] {
            let error = LendingMax::parse(text).unwrap_err().to_string();
            assert!(
                error.contains("expected the name of a resource once"),
                "{error}"
            );
        }
        let found = LendingMax::parse(" mem:1 ; cpus : 50.5 % ;").unwrap();
        assert_eq!(found.to_string(), "cpus:50.5%;mem:1");
    }
}
