//! Credentials: the principals and their secrets (`--credentials`).
//!
//! Pure. The duration of a comparison depends only on the given secret, and no secret is ever
//! shown, not even in an error.

use std::collections::BTreeMap;
use std::fmt;
use std::hint::black_box;

use resources::Invalid;

use crate::subject::Subject;
use crate::tree::{At, Tree};

/// Principals and their secrets. Default: none.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials(BTreeMap<String, String>);

impl Credentials {
    /// Reads `{"credentials": [{"principal": "...", "secret": "..."}]}`.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let tree = Tree::read("credentials", text)?;
        let root = At::root("credentials", &tree);
        let [list] = root.fields(["credentials"])?;
        let list = root.required(list, "credentials")?;
        let mut secrets = BTreeMap::new();
        for entry in list.items()? {
            let [principal, secret] = entry.fields(["principal", "secret"])?;
            let principal = entry.required(principal, "principal")?;
            let secret = entry.required(secret, "secret")?;
            let name = principal.text()?;
            // HTTP Basic ends the name at the first colon (RFC 7617).
            if name.is_empty() || name.contains(|c: char| c == ':' || c.is_control()) {
                let expected = "a name without colons and control characters";
                return Err(Invalid::new(principal.path, name, expected));
            }
            let text = secret.text()?;
            if text.is_empty() {
                return Err(Invalid::new(secret.path, "", "at least one character"));
            }
            if secrets.insert(name.to_owned(), text.to_owned()).is_some() {
                return Err(Invalid::new(principal.path, name, "each principal once"));
            }
        }
        Ok(Self(secrets))
    }

    /// Authenticates a principal by its secret.
    pub fn authenticate(&self, principal: &str, secret: &str) -> Option<Subject> {
        let known = self.0.get(principal);
        // An unknown principal takes as long as a wrong secret.
        let own = known.map_or("no such principal", String::as_str);
        let same = constant_time_eq(own.as_bytes(), secret.as_bytes());
        (known.is_some() && same).then(|| Subject::named(principal))
    }

    /// The principals.
    pub fn principals(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// Whether two secrets are equal, in a time that depends only on the given one.
pub fn constant_time_eq(own: &[u8], given: &[u8]) -> bool {
    let mut differs = own.len() ^ given.len();
    for (at, byte) in given.iter().enumerate() {
        // A shorter one is repeated; the lengths differ then.
        let other = own[at % own.len().max(1)];
        differs |= black_box(usize::from(byte ^ other));
    }
    black_box(differs) == 0
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let principals: Vec<&str> = self.principals().collect();
        f.debug_struct("Credentials")
            .field("principals", &principals)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use testkit::rows;

    use super::*;

    const TWO: &str = r#"{"credentials":[{"principal":"ops","secret":"hush"},{"principal":"web","secret":"\u00e9t\u00e9"}]}"#;

    /// SPEC 3.7.
    #[test]
    fn only_its_own_secret_authenticates_a_principal() {
        let credentials = Credentials::parse(TWO).unwrap();
        assert_eq!(
            credentials.authenticate("ops", "hush"),
            Some(Subject::named("ops"))
        );
        assert_eq!(
            credentials.authenticate("web", "\u{e9}t\u{e9}"),
            Some(Subject::named("web"))
        );
        for (principal, secret) in [
            ("ops", "\u{e9}t\u{e9}"),
            ("ops", ""),
            ("ops", "hus"),
            ("ops", "hushh"),
            ("ops", "hushhush"),
            ("nobody", "hush"),
            ("nobody", "no such principal"),
            ("", ""),
        ] {
            assert_eq!(
                credentials.authenticate(principal, secret),
                None,
                "{principal} {secret}"
            );
        }
    }

    #[test]
    fn errors_name_the_field_and_hide_secrets() {
        for [text, field, words] in rows(
            r#"
             | credentials | JSON
            ops hush | credentials | JSON
            ["hush"] | credentials | an object
            {"credential":["hush"]} | credentials | credential`
            {} | credentials.credentials | absent
            {"credentials":"hush"} | credentials.credentials | a list
            {"credentials":["hush"]} | credentials.credentials[0] | an object
            {"credentials":[{"secret":"hush"}]} | credentials.credentials[0].principal | absent
            {"credentials":[{"principal":"a"}]} | credentials.credentials[0].secret | absent
            {"credentials":[{"principal":"a","secret":["hush"]}]} | credentials.credentials[0].secret | a list
            {"credentials":[{"principal":"a","secret":""}]} | credentials.credentials[0].secret | one character
            {"credentials":[{"principal":"a:b","secret":"hush"}]} | credentials.credentials[0].principal | a:b
            {"credentials":[{"principal":"a","secret":"hush"},{"principal":"a","secret":"hush2"}]} | credentials.credentials[1].principal | once
            {"credentials":[{"principal":"a","secret":"hush","secret":"x"}]} | credentials | `secret` comes twice
        "#,
        ) {
            let invalid = Credentials::parse(text).unwrap_err();
            let shown = invalid.to_string();
            assert_eq!(invalid.field, field, "{text}: {shown}");
            assert!(
                shown.contains(words) && !shown.contains("hush"),
                "{text}: {shown}"
            );
        }
        let shown = format!("{:?}", Credentials::parse(TWO).unwrap());
        assert!(shown.contains("ops") && !shown.contains("hush"), "{shown}");
    }
}
