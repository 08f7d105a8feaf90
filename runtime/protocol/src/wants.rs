//! Wants: which offers a framework would like, by role (SPEC 2.4, 4.1, S126, W9).
//!
//! Only the words. Whether a demand can be understood is judged where it is prepared for use (`module-api`), and who is offered what by the
//! allocator.

use std::collections::{BTreeMap, BTreeSet};

use resources::Quantities;
use serde::{Deserialize, Serialize};

/// What a framework wants to be offered for the present. The default: whatever there is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wants {
    /// Roles it wants no offers for.
    pub suppressed_roles: BTreeSet<String>,
    /// For some of its other roles, what an offer must be like.
    pub demands: BTreeMap<String, Demand>,
}

impl Wants {
    /// Whatever there is, but not for these roles.
    pub fn but_not(suppressed_roles: BTreeSet<String>) -> Self {
        Self {
            suppressed_roles,
            demands: BTreeMap::new(),
        }
    }
}

/// What an offer must be like.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    /// Of which agents: those for which every constraint of any group holds. No groups: of all.
    pub agents: Vec<Vec<Constraint>>,
    /// What it has at least: any of these sets, whole. No sets: anything at all. `None`: what the master takes for worth an offer, of which
    /// this takes the place (`min_allocatable_resources`). Only of what is an amount, so not of ports.
    pub least: Option<Vec<Quantities>>,
    /// What it has at most. A name that is not listed is not bounded; of ports and other ranges, so many numbers. Offers are cut to this, and
    /// what is left of an agent is for others, in the same run. What cannot be cut, such as a volume, is in an offer whole or not at all.
    pub most: Quantities,
}

impl Demand {
    /// Offers of this shape: each has at least the one, and no more than the other of what that lists (W9).
    pub fn shaped(least: Quantities, most: Quantities) -> Self {
        Self {
            least: Some(vec![least]),
            most,
            ..Self::default()
        }
    }

    /// Offers of these hosts only (S126, the node list).
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

/// Something that must hold for an agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Constraint {
    /// Which of its values.
    pub selector: Selector,
    /// What must hold for that value.
    pub predicate: Predicate,
}

/// One value of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Selector {
    /// Its host's name.
    Hostname,
    /// The region it lies in.
    Region,
    /// The zone it lies in.
    Zone,
    /// The first of its attributes that is called so.
    Attribute(String),
}

/// What must hold for a value. A value that is no text satisfies all four that speak of text; one that is missing satisfies those
/// that say `Not`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Predicate {
    /// There is one.
    Exists,
    /// There is none.
    NotExists,
    /// It is this text.
    TextEquals(String),
    /// It is not this text.
    TextNotEquals(String),
    /// The whole of it matches this regular expression.
    TextMatches(String),
    /// The whole of it does not match this regular expression.
    TextNotMatches(String),
}
