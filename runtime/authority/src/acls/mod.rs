//! Access control lists: which principals may perform which actions on which objects (`--acls`).
//!
//! Pure. Each action has a list of rules. The first rule that matches both the principal and the
//! object decides; without one, `permissive` does. A rule of type `NONE` matches every principal or
//! object, and denies. A caller without a principal matches only rules of type `ANY` or `NONE`, and
//! so does an object without a name.

mod action;
mod read;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use resources::{Invalid, excerpt};

use crate::subject::Subject;
pub use action::Action;

/// The principals or objects of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entity {
    /// Matches all; allows.
    Any,
    /// Matches all; denies.
    None,
    /// Matches these; allows. For roles, `eng/%` matches all below `eng`.
    Some(BTreeSet<String>),
}

impl Entity {
    /// Whether it matches `name`.
    fn is_about(&self, name: Option<&str>, has_roles: bool) -> bool {
        match (self, name) {
            (Self::Any | Self::None, _) => true,
            (Self::Some(_), None) => false,
            (Self::Some(names), Some(name)) => {
                names.contains(name) || (has_roles && is_below_one(names, name))
            }
        }
    }

    fn denies(&self) -> bool {
        *self == Self::None
    }
}

/// Whether one of the names is `ANCESTOR/%` for this role.
fn is_below_one(names: &BTreeSet<String>, role: &str) -> bool {
    let mut ancestors = role.match_indices('/').map(|(at, _)| &role[..at]);
    ancestors.any(|ancestor| names.contains(&format!("{ancestor}/%")))
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    principals: Entity,
    objects: Arc<Entity>,
}

/// The access control lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acls {
    permissive: bool,
    rules: BTreeMap<Action, Vec<Rule>>,
}

impl Default for Acls {
    /// Every caller may do everything.
    fn default() -> Self {
        let rules = BTreeMap::new();
        Self {
            permissive: true,
            rules,
        }
    }
}

/// The rules for one subject and one action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approver {
    permissive: bool,
    has_roles: bool,
    /// The objects of each rule, and whether it allows.
    rules: Vec<(Arc<Entity>, bool)>,
}

/// A denied action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forbidden {
    /// The principal.
    pub principal: Option<String>,
    /// The action.
    pub action: Action,
    /// The object, if it has a name.
    pub object: Option<String>,
}

impl From<Forbidden> for Invalid {
    fn from(forbidden: Forbidden) -> Self {
        let action = forbidden.action;
        let to = match &forbidden.object {
            // It comes from the caller and may be long.
            Some(object) => format!(" ({}: `{}`)", action.object(), excerpt(object)),
            None => String::new(),
        };
        let expected = format!("one that may {}{to}", action.name());
        let principal = forbidden.principal.as_deref().unwrap_or("absent");
        Invalid::new("principal", principal, expected)
    }
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Invalid::from(self.clone()).fmt(f)
    }
}

impl std::error::Error for Forbidden {}

impl Acls {
    /// The same lists, denying actions that no rule matches.
    pub fn denying(self) -> Self {
        Self {
            permissive: false,
            ..self
        }
    }

    /// Whether every caller may do everything.
    pub fn is_open(&self) -> bool {
        self.permissive && self.rules.is_empty()
    }

    /// Whether the subject may perform the action on the object; `None` is an object without a
    /// name.
    pub fn allows<'a>(
        &self,
        subject: &Subject,
        action: Action,
        object: impl Into<Option<&'a str>>,
    ) -> bool {
        let (principal, object) = (subject.principal.as_deref(), object.into());
        let rules = self.rules.get(&action).into_iter().flatten();
        let mut about = rules.filter(|rule| {
            rule.principals.is_about(principal, false)
                && rule.objects.is_about(object, action.has_roles())
        });
        match about.next() {
            Some(rule) => !rule.principals.denies() && !rule.objects.denies(),
            None => self.permissive,
        }
    }

    /// As [`allows`](Self::allows), with an error for the caller.
    pub fn check<'a>(
        &self,
        subject: &Subject,
        action: Action,
        object: impl Into<Option<&'a str>>,
    ) -> Result<(), Forbidden> {
        let object = object.into();
        match self.allows(subject, action, object) {
            true => Ok(()),
            false => Err(Forbidden {
                principal: subject.principal.clone(),
                action,
                object: object.map(str::to_owned),
            }),
        }
    }

    /// The subject's permissions for one action, for checks of many objects.
    pub fn approver(&self, subject: &Subject, action: Action) -> Approver {
        let principal = subject.principal.as_deref();
        let rules = self.rules.get(&action).into_iter().flatten();
        let about = rules.filter(|rule| rule.principals.is_about(principal, false));
        let compiled = about.map(|rule| {
            let allows = !rule.principals.denies() && !rule.objects.denies();
            (rule.objects.clone(), allows)
        });
        Approver {
            permissive: self.permissive,
            has_roles: action.has_roles(),
            rules: compiled.collect(),
        }
    }
}

impl Approver {
    /// Whether this object is allowed; `None` is an object without a name.
    pub fn allows<'a>(&self, object: impl Into<Option<&'a str>>) -> bool {
        let object = object.into();
        let mut rules = self.rules.iter();
        let decides = rules.find(|(objects, _)| objects.is_about(object, self.has_roles));
        decides.map_or(self.permissive, |(_, allows)| *allows)
    }

    /// Whether every object is allowed, so that no object needs a check.
    pub fn allows_all(&self) -> bool {
        let decided = self.rules.iter().take_while(|(_, allows)| *allows);
        let decided = decided.filter(|(objects, _)| **objects == Entity::Any);
        decided.count() > 0 || (self.permissive && self.rules.iter().all(|(_, allows)| *allows))
    }
}
