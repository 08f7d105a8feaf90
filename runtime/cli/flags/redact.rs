//! Removes passwords from errors about a command line. URLs of ZooKeeper contain them
//! (`zk://user:password@host`).
//!
//! Pure. A password cannot be recognized, so everything before the last `@` of a value is removed
//! if it contains a colon.

use clap::error::{ContextKind, ContextValue};

/// The same error without passwords.
pub fn redact(mut error: clap::Error) -> clap::Error {
    let context = error.context();
    let changed: Vec<(ContextKind, ContextValue)> = context
        .filter_map(|(kind, value)| Some((kind, without_passwords(value)?)))
        .collect();
    for (kind, value) in changed {
        error.insert(kind, value);
    }
    error
}

fn without_passwords(value: &ContextValue) -> Option<ContextValue> {
    match value {
        ContextValue::String(text) => Some(ContextValue::String(without_password(text))),
        ContextValue::Strings(all) => {
            let all = all.iter().map(|text| without_password(text));
            Some(ContextValue::Strings(all.collect()))
        }
        _ => None,
    }
}

/// This value without its user name and password.
pub fn without_password(text: &str) -> String {
    let begin = text.find("://").map_or(0, |place| place + "://".len());
    match text.rfind('@') {
        Some(end) if text.get(begin..end).is_some_and(|own| own.contains(':')) => {
            let (scheme, rest) = (&text[..begin], &text[end..]);
            format!("{scheme}...{rest}")
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_possible_passwords_are_removed() {
        for (text, shown) in [
            ("zk://u:p@a:2181/mesos", "zk://...@a:2181/mesos"),
            ("zk://u:p/@:@a,zk://u:p@b/m", "zk://...@b/m"),
            ("u:p@a", "...@a"),
            ("agent@a:5051", "agent@a:5051"),
            ("zk://a:2181,b:2181/mesos", "zk://a:2181,b:2181/mesos"),
            ("@zk://", "@zk://"),
            ("", ""),
        ] {
            assert_eq!(without_password(text), shown);
        }
    }
}
