//! A framework's offer preferences: suppressed roles and demands.
//!
//! Only the types. The `module-api` crate validates demands; the allocator applies them.

use std::collections::{BTreeMap, BTreeSet};

use resources::Quantities;
use serde::{Deserialize, Serialize};

/// Current offer preferences of a framework. The default accepts any offer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wants {
    /// Roles without offers.
    pub suppressed_roles: BTreeSet<String>,
    /// Demands for some of the other roles.
    pub demands: BTreeMap<String, Demand>,
}

impl Wants {
    /// Any offer, except in these roles.
    pub fn suppressing(suppressed_roles: BTreeSet<String>) -> Self {
        Self {
            suppressed_roles,
            demands: BTreeMap::new(),
        }
    }
}

/// Requested shape of a role's offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    /// Groups of constraints on agents. An agent matches if it meets all constraints of any group;
    /// without groups, every agent matches.
    pub agents: Vec<Vec<Constraint>>,
    /// Alternative minimums: an offer contains at least one of these sets. An empty list accepts
    /// any amount. `None` uses the master's `min_allocatable_resources`, which these sets replace
    /// otherwise. Applies to scalars only, not to ranges such as ports.
    pub least: Option<Vec<Quantities>>,
    /// Maximum of each name; an absent name has none. For ranges it is the number of values. The
    /// allocator splits an agent's resources accordingly and offers the rest to others in the same
    /// run. Resources that cannot be split, such as volumes, are offered whole or not at all.
    pub most: Quantities,
}

impl Demand {
    /// Offers with at least `least` and at most `most`.
    pub fn shaped(least: Quantities, most: Quantities) -> Self {
        Self {
            least: Some(vec![least]),
            most,
            ..Self::default()
        }
    }

    /// Offers of these hosts only.
    pub fn on_hosts<H: Into<String>>(hosts: impl IntoIterator<Item = H>) -> Self {
        let is = |host: H| Constraint {
            selector: Selector::Hostname,
            predicate: Predicate::TextEquals(host.into()),
        };
        Self {
            agents: hosts.into_iter().map(|host| vec![is(host)]).collect(),
            ..Self::default()
        }
    }
}

/// A condition on an agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Constraint {
    /// Value to test.
    pub selector: Selector,
    /// Condition on this value.
    pub predicate: Predicate,
}

/// A value of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Selector {
    /// Host name.
    Hostname,
    /// Region.
    Region,
    /// Zone.
    Zone,
    /// First attribute with this name.
    Attribute(String),
}

/// A condition on a value. A value that is not text meets all four `Text` conditions. A missing
/// value meets the `Not` conditions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Predicate {
    /// The value exists.
    Exists,
    /// The value does not exist.
    NotExists,
    /// Equal to this text.
    TextEquals(String),
    /// Not equal to this text.
    TextNotEquals(String),
    /// This regular expression matches the whole value.
    TextMatches(String),
    /// This regular expression does not match the whole value.
    TextNotMatches(String),
}
