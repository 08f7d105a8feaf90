//! The caller of a request.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The authenticated caller. Empty where no authentication was required.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Subject {
    /// Its principal, if it has one.
    pub principal: Option<String>,
    /// Further claims of its token: an executor's framework, its id and its container.
    pub claims: BTreeMap<String, String>,
}

/// The prefix of the name of an operator without a name of its own, followed by the number of its
/// process.
pub const UNNAMED_OPERATOR: &str = "operator-";

impl Subject {
    /// The subject with this principal.
    pub fn named(principal: impl Into<String>) -> Self {
        Self {
            principal: Some(principal.into()),
            claims: BTreeMap::new(),
        }
    }

    /// Whether this is an operator without a name of its own.
    pub fn is_unnamed_operator(&self) -> bool {
        let name = self.principal.as_deref();
        let number = name.and_then(|name| name.strip_prefix(UNNAMED_OPERATOR));
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    }
}
