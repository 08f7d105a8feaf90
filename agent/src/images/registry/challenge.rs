//! How a registry wants its clients to authenticate: the header `WWW-Authenticate`. Pure.

use std::collections::BTreeMap;

/// A challenge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// User and password with each request.
    Basic,
    /// A token of another server.
    Bearer {
        /// Its URI.
        realm: String,
        /// Repeated to it.
        service: Option<String>,
        /// Repeated to it.
        scope: Option<String>,
    },
}

/// The best one that the client can meet.
pub fn choose(challenges: &[String]) -> Option<Challenge> {
    let all: Vec<Challenge> = challenges
        .iter()
        .filter_map(|header| read(header))
        .collect();
    let bearer = all
        .iter()
        .find(|challenge| matches!(challenge, Challenge::Bearer { .. }));
    bearer.or(all.first()).cloned()
}

fn read(header: &str) -> Option<Challenge> {
    let header = header.trim();
    let (scheme, rest) = header.split_once(' ').unwrap_or((header, ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    let mut parameters = parameters(rest);
    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
    Some(Challenge::Bearer {
        realm: parameters.remove("realm").filter(|_| is_bearer)?,
        service: parameters.remove("service"),
        scope: parameters.remove("scope"),
    })
}

/// `name=value` or `name="value"`, separated by commas.
fn parameters(mut text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    // Terminates: each round consumes a name.
    while let Some((name, rest)) = text.split_once('=') {
        let name = name.trim_matches([' ', ',']).to_ascii_lowercase();
        let (value, rest) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => rest.split_once(',').unwrap_or((rest, "")),
        };
        found.insert(name, value.trim().to_owned());
        text = rest;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read() {
        let check = |headers: &[&str]| {
            let headers: Vec<String> = headers.iter().map(|&header| header.to_owned()).collect();
            choose(&headers)
        };
        let bearer = |realm: &str, service: Option<&str>, scope: Option<&str>| {
            Some(Challenge::Bearer {
                realm: realm.to_owned(),
                service: service.map(str::to_owned),
                scope: scope.map(str::to_owned),
            })
        };
        let docker =
            r#"Bearer realm="https://auth/token",service="s",scope="repository:a:pull,push""#;
        let full = bearer(
            "https://auth/token",
            Some("s"),
            Some("repository:a:pull,push"),
        );
        assert_eq!(check(&[docker]), full);
        assert_eq!(check(&["Basic realm=x", docker]), full);
        assert_eq!(
            check(&["bearer Realm=https://a, service=b"]),
            bearer("https://a", Some("b"), None)
        );
        assert_eq!(check(&["Basic"]), Some(Challenge::Basic));
        assert_eq!(check(&["Bearer service=x", "Negotiate", ""]), None);
        assert_eq!(
            check(&[r#"Bearer realm="unfinished"#]),
            bearer("unfinished", None, None)
        );
        assert_eq!(check(&[]), None);
    }
}
