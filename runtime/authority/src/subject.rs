//! Who asks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Who asks, as far as it is proved. Nobody in particular where nothing had to be proved.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Subject {
    /// Its principal, if it has one.
    pub principal: Option<String>,
    /// What its token says of it beside that: an executor's framework, its id and its container.
    pub claims: BTreeMap<String, String>,
}

impl Subject {
    /// The principal of this name.
    pub fn named(principal: impl Into<String>) -> Self {
        Self {
            principal: Some(principal.into()),
            claims: BTreeMap::new(),
        }
    }
}
