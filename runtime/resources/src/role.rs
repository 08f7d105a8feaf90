//! Roles: a path of components, or `*` for unreserved resources.
//!
//! Interned, eight bytes, compared by pointer.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Invalid, excerpt};
use crate::value::symbol::Symbol;

/// Maximum length of a role, in bytes.
const ROLE_BYTES_MAX: usize = 1024;

const EXPECTED: &str = "`*`, or components joined by single slashes, none of them `.`, `..` or `*`, \
     starting with `-`, or holding blanks or control characters (at most 1024 bytes)";

/// A role: `*`, or a path such as `eng/web` (SPEC 2.8). Cloning costs one counter.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Role(Option<Symbol>);

impl Role {
    /// `*`: the role of unreserved resources.
    pub const STAR: Role = Role(None);

    /// The role with this text, if it is valid.
    pub fn new(text: &str) -> Result<Self, Invalid> {
        if text == "*" {
            return Ok(Self::STAR);
        }
        let sound = !text.is_empty()
            && text.len() <= ROLE_BYTES_MAX
            && text.split('/').all(sound_component);
        if sound {
            Ok(Self(Some(Symbol::new(text))))
        } else {
            Err(Invalid::new("role", text, EXPECTED))
        }
    }

    /// The reason why `text` is not a role, in Mesos' words where it has any.
    pub fn problem(text: &str) -> Option<String> {
        let invalid = Self::new(text).err()?;
        let role = excerpt(text);
        let about = |problem: &str| Some(format!("Role '{role}' cannot {problem}"));
        if text.is_empty() {
            return Some("Role names cannot be the empty string".to_owned());
        }
        if text.starts_with('/') {
            return about("start with a slash");
        }
        if text.ends_with('/') {
            return about("end with a slash");
        }
        if text.contains("//") {
            return about("contain two adjacent slashes");
        }
        if let Some(part) = text.split('/').find(|part| !sound_component(part)) {
            let problem = match part {
                "." | ".." | "*" => return about(&format!("include '{part}' as a component")),
                part if part.starts_with('-') => "starts with a dash",
                _ => "contains backspace or whitespace",
            };
            let part = excerpt(part);
            return Some(format!(
                "Role component '{part}' is invalid because it {problem}"
            ));
        }
        Some(invalid.to_string())
    }

    /// The role as text.
    pub fn as_str(&self) -> &str {
        self.0.as_ref().map_or("*", Symbol::as_str)
    }

    /// Whether this is `*`.
    pub fn is_star(&self) -> bool {
        self.0.is_none()
    }

    /// Whether this role is strictly below `other` (`eng/web` below `eng`). No role is below `*`.
    pub fn is_strict_subrole_of(&self, other: &Role) -> bool {
        let (Some(own), Some(above)) = (&self.0, &other.0) else {
            return false;
        };
        let (own, above) = (own.as_str().as_bytes(), above.as_str().as_bytes());
        own.len() > above.len() && own[above.len()] == b'/' && own.starts_with(above)
    }

    /// Whether this role is `other` or below it.
    pub fn is_within(&self, other: &Role) -> bool {
        self == other || self.is_strict_subrole_of(other)
    }

    /// The role one level above, if there is one.
    pub fn parent(&self) -> Option<Role> {
        let (above, _) = self.as_str().rsplit_once('/')?;
        Some(Role(Some(Symbol::new(above))))
    }

    /// The path's components from the top; for `*` only itself.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        self.as_str().split('/')
    }
}

fn sound_component(part: &str) -> bool {
    !matches!(part, "" | "." | ".." | "*")
        && !part.starts_with('-')
        && !part.contains(|c: char| c.is_whitespace() || c.is_control())
}

impl FromStr for Role {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Self::new(text)
    }
}

impl TryFrom<&str> for Role {
    type Error = Invalid;

    fn try_from(text: &str) -> Result<Self, Invalid> {
        Self::new(text)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Role {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Role {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(crate::wire::TextVisitor("a role", Self::new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(text: &str) -> Role {
        Role::new(text).unwrap()
    }

    /// SPEC 2.8, the line on ids and roles.
    #[test]
    fn only_clean_paths_are_roles() {
        for good in ["*", "ads", "a/b/c", "a.b", "a-b", "ops_1", "a/..b", "日本"] {
            assert_eq!(role(good).as_str(), good);
        }
        for bad in [
            "", "/a", "a/", "a//b", ".", "..", "a/..", "-a", "a/-b", "a b", "a\u{8}", "a/*", "\t",
        ] {
            assert!(Role::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_invalid_role_is_refused_as_by_mesos() {
        for (text, problem) in [
            ("", "Role names cannot be the empty string"),
            ("/a", "Role '/a' cannot start with a slash"),
            ("a/", "Role 'a/' cannot end with a slash"),
            ("a//b", "Role 'a//b' cannot contain two adjacent slashes"),
            ("a/..", "Role 'a/..' cannot include '..' as a component"),
            ("a/*", "Role 'a/*' cannot include '*' as a component"),
            (
                "a/-b",
                "Role component '-b' is invalid because it starts with a dash",
            ),
            (
                "a b",
                "Role component 'a b' is invalid because it contains backspace or whitespace",
            ),
        ] {
            assert_eq!(Role::problem(text).as_deref(), Some(problem));
        }
        assert_eq!(Role::problem("eng/web"), None);
        assert!(
            Role::problem(&"x".repeat(2000))
                .unwrap()
                .contains("1024 bytes")
        );
    }

    #[test]
    fn a_subrole_lies_below_whole_components_only() {
        assert!(role("eng/web").is_strict_subrole_of(&role("eng")));
        assert!(!role("engine").is_strict_subrole_of(&role("eng")));
        assert!(!role("eng").is_strict_subrole_of(&role("eng")));
        assert!(!role("eng").is_strict_subrole_of(&Role::STAR));
        assert!(role("eng").is_within(&role("eng")));
        assert_eq!(role("a/b/c").parent(), Some(role("a/b")));
        assert_eq!((role("a").parent(), Role::STAR.parent()), (None, None));
        assert_eq!(size_of::<Role>(), 8);
    }
}
