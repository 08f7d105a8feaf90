//! Credentials: which principals there are and what proves each (SPEC 3.7, `--credentials`).
//!
//! Pure. A secret is compared in a time that depends on what was given only, and is never shown, nor in an error.

use std::collections::BTreeMap;
use std::fmt;
use std::hint::black_box;

use resources::Invalid;

use crate::subject::Subject;
use crate::tree::{At, Tree};

/// Principals and their secrets; nobody by default.
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
            // Basic ends the name at the first colon (RFC 7617).
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

    /// Who this is, if the secret is that principal's.
    pub fn prove(&self, principal: &str, secret: &str) -> Option<Subject> {
        let known = self.0.get(principal);
        // An unknown principal costs what a wrong secret costs.
        let own = known.map_or("no such principal", String::as_str);
        let same = is_same(own.as_bytes(), secret.as_bytes());
        (known.is_some() && same).then(|| Subject::named(principal))
    }

    /// The principals.
    pub fn principals(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// Whether a secret is what was given, in a time that depends on the second alone.
pub fn is_same(own: &[u8], given: &[u8]) -> bool {
    let mut differs = own.len() ^ given.len();
    for (at, byte) in given.iter().enumerate() {
        // Of a short one it begins anew; the lengths differ then.
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
    use super::*;

    const TWO: &str = r#"{"credentials":[{"principal":"ops","secret":"hush"},{"principal":"web","secret":"\u00e9t\u00e9"}]}"#;

    /// SPEC 3.7.
    #[test]
    fn a_principal_is_proved_by_its_own_secret_and_by_no_other() {
        let credentials = Credentials::parse(TWO).unwrap();
        assert_eq!(
            credentials.prove("ops", "hush"),
            Some(Subject::named("ops"))
        );
        assert_eq!(
            credentials.prove("web", "\u{e9}t\u{e9}"),
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
                credentials.prove(principal, secret),
                None,
                "{principal} {secret}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_named_and_no_secret_is_ever_shown() {
        for (text, field, words) in [
            ("", "credentials", "JSON"),
            ("ops hush", "credentials", "JSON"),
            (r#"["hush"]"#, "credentials", "an object"),
            (r#"{"credential":["hush"]}"#, "credentials", "credential`"),
            ("{}", "credentials.credentials", "absent"),
            (
                r#"{"credentials":"hush"}"#,
                "credentials.credentials",
                "a list",
            ),
            (
                r#"{"credentials":["hush"]}"#,
                "credentials.credentials[0]",
                "an object",
            ),
            (
                r#"{"credentials":[{"secret":"hush"}]}"#,
                "credentials.credentials[0].principal",
                "absent",
            ),
            (
                r#"{"credentials":[{"principal":"a"}]}"#,
                "credentials.credentials[0].secret",
                "absent",
            ),
            (
                r#"{"credentials":[{"principal":"a","secret":["hush"]}]}"#,
                "credentials.credentials[0].secret",
                "a list",
            ),
            (
                r#"{"credentials":[{"principal":"a","secret":""}]}"#,
                "credentials.credentials[0].secret",
                "one character",
            ),
            (
                r#"{"credentials":[{"principal":"a:b","secret":"hush"}]}"#,
                "credentials.credentials[0].principal",
                "a:b",
            ),
            (
                r#"{"credentials":[{"principal":"a","secret":"hush"},{"principal":"a","secret":"hush2"}]}"#,
                "credentials.credentials[1].principal",
                "once",
            ),
            (
                r#"{"credentials":[{"principal":"a","secret":"hush","secret":"x"}]}"#,
                "credentials",
                "`secret` comes twice",
            ),
        ] {
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
