//! Access control lists: which principals may do what to which objects (SPEC 3.7, `--acls`).
//!
//! Pure. For each action there is a list of rules, of which the first that is about both the principal and the object decides; none
//! leaves it to `permissive`. A rule of type `NONE` is about everybody, or everything, and denies. Who has no principal is meant only by
//! rules about any or none, and so is an object without a name.

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

/// Whom or what a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entity {
    /// Whoever and whatever there is; allowed.
    Any,
    /// Whoever and whatever there is; denied.
    None,
    /// These; allowed. Among roles `eng/%` stands for all below `eng`.
    Some(BTreeSet<String>),
}

impl Entity {
    /// Whether a rule with this is about `name`.
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

/// Whether one of the names is `ANCESTOR/%` of this role.
fn is_below_one(names: &BTreeSet<String>, role: &str) -> bool {
    let mut ancestors = role.match_indices('/').map(|(at, _)| &role[..at]);
    ancestors.any(|ancestor| names.contains(&format!("{ancestor}/%")))
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    principals: Entity,
    objects: Arc<Entity>,
}

/// Who may do what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acls {
    permissive: bool,
    rules: BTreeMap<Action, Vec<Rule>>,
}

impl Default for Acls {
    /// Everybody may do everything.
    fn default() -> Self {
        let rules = BTreeMap::new();
        Self {
            permissive: true,
            rules,
        }
    }
}

/// The rules about one subject and one action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approver {
    permissive: bool,
    has_roles: bool,
    /// Each with whether it allows.
    rules: Vec<(Arc<Entity>, bool)>,
}

/// Somebody may not do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forbidden {
    /// Who.
    pub principal: Option<String>,
    /// What.
    pub action: Action,
    /// To what, if it has a name.
    pub object: Option<String>,
}

impl From<Forbidden> for Invalid {
    fn from(forbidden: Forbidden) -> Self {
        let action = forbidden.action;
        let to = match &forbidden.object {
            // It may be as long as a stranger's call.
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
    /// The same, but that nobody may do what no rule is about.
    pub fn denying(self) -> Self {
        Self {
            permissive: false,
            ..self
        }
    }

    /// Whether everybody may do everything.
    pub fn is_open(&self) -> bool {
        self.permissive && self.rules.is_empty()
    }

    /// Whether the subject may do this to that; an object without a name is any.
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

    /// The same, as what is to be told to whoever may not.
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

    /// What the subject may do this to, for whoever asks it of many objects.
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
    /// Whether this object is among those; one without a name is any.
    pub fn allows<'a>(&self, object: impl Into<Option<&'a str>>) -> bool {
        let object = object.into();
        let mut rules = self.rules.iter();
        let decides = rules.find(|(objects, _)| objects.is_about(object, self.has_roles));
        decides.map_or(self.permissive, |(_, allows)| *allows)
    }

    /// Whether every object is: nothing need be looked at.
    pub fn allows_all(&self) -> bool {
        let decided = self.rules.iter().take_while(|(_, allows)| *allows);
        let decided = decided.filter(|(objects, _)| **objects == Entity::Any);
        decided.count() > 0 || (self.permissive && self.rules.iter().all(|(_, allows)| *allows))
    }
}
