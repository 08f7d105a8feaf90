//! Where to dial and what to expect there: `host:port` is a master, `agent@host:port` a node of that role.
//!
//! Hears texts from flags and from other nodes. Remembers nothing. Resolves no names: that takes time, and is the
//! dialler's.

use runtime::Role;

/// The most of a bad address that an error repeats, in characters.
const SHOWN_MAX: usize = 80;

/// An address to dial, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// The role the other side's certificate must have.
    pub(crate) role: Role,
    /// Host name or IP address, and port.
    pub(crate) host: String,
}

impl Address {
    /// Reads `[ROLE@]HOST:PORT`; without a role, a master is meant.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            let shown: String = text.chars().take(SHOWN_MAX).collect();
            format!("address {shown:?} {why}: expected [ROLE@]HOST:PORT")
        };
        let (role, host) = match text.split_once('@') {
            None => (Role::Master, text),
            Some((role, host)) => (
                role.parse().map_err(|_| wrong("names no known role"))?,
                host,
            ),
        };
        match host.rsplit_once(':') {
            None | Some(("", _)) => Err(wrong("lacks host or port")),
            Some((_, port)) => match port.parse::<u16>() {
                Ok(0) | Err(_) => Err(wrong("has no port from 1 to 65535")),
                Ok(_) => Ok(Self {
                    role,
                    host: host.to_owned(),
                }),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_role_a_master_is_meant() {
        let address = Address {
            role: Role::Master,
            host: "node-1:5050".into(),
        };
        assert_eq!(Address::parse("node-1:5050"), Ok(address.clone()));
        assert_eq!(Address::parse("master@node-1:5050"), Ok(address));
        assert_eq!(
            Address::parse("agent@[::1]:5051"),
            Ok(Address {
                role: Role::Agent,
                host: "[::1]:5051".into()
            })
        );
    }

    #[test]
    fn what_cannot_be_dialled_is_told_with_the_form_expected() {
        for text in [
            "",
            "host",
            ":5050",
            "host:",
            "host:0",
            "host:65536",
            "host:x",
            "boss@host:1",
            "@host:1",
        ] {
            let error = Address::parse(text).unwrap_err();
            assert!(
                error.contains(&format!("{text:?}")) && error.contains("expected [ROLE@]HOST:PORT"),
                "{error}"
            );
        }
    }
}
