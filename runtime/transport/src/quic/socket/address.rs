//! Addresses to dial: `host:port` is a master, `agent@host:port` a node of that role.
//!
//! Only parses; the dialler resolves names.

use runtime::Role;

/// Maximum characters of an invalid address that an error repeats.
const SHOWN_MAX: usize = 80;

/// A parsed address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The role that the peer's certificate must have.
    pub role: Role,
    /// Host name or IP address, and port.
    pub host: String,
}

impl Address {
    /// Parses `[ROLE@]HOST:PORT`; without a role it is a master's.
    pub fn parse(text: &str) -> Result<Self, String> {
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
    use testkit::assert_contains;

    use super::*;

    #[test]
    fn address_without_role_is_a_master() {
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
    fn invalid_address_error_shows_the_expected_form() {
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
            assert_contains!(error, format!("{text:?}"), "expected [ROLE@]HOST:PORT");
        }
    }
}
