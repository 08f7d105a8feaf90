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

/// How the name of an operator begins who has none of its own: after it comes the number of its process.
pub const UNNAMED_OPERATOR: &str = "operator-";

impl Subject {
    /// The principal of this name.
    pub fn named(principal: impl Into<String>) -> Self {
        Self {
            principal: Some(principal.into()),
            claims: BTreeMap::new(),
        }
    }

    /// Whether that is the name of an operator who has none of its own.
    pub fn is_unnamed_operator(&self) -> bool {
        let name = self.principal.as_deref();
        let number = name.and_then(|name| name.strip_prefix(UNNAMED_OPERATOR));
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    }
}
