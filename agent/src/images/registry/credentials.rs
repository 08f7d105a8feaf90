//! Credentials of registries, as Docker's configuration has them. Pure.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

use crate::images::reference::canonical;

/// A user and a password, `user:password`. Not shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials(pub String);

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

/// The credentials of each registry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DockerConfig(BTreeMap<String, Credentials>);

#[derive(Deserialize)]
struct ConfigJson {
    #[serde(default)]
    auths: BTreeMap<String, AuthJson>,
}

#[derive(Deserialize)]
struct AuthJson {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
}

impl DockerConfig {
    /// Parses a configuration; of it only `auths` is used. The error shows no secret.
    pub fn parse(json: &str) -> Result<Self, String> {
        let read: Result<ConfigJson, _> = serde_json::from_str(json);
        let config = read.map_err(|error| {
            let (line, column) = (error.line(), error.column());
            format!("no JSON with `auths`: line {line}, column {column}")
        })?;
        let mut all = BTreeMap::new();
        for (name, auth) in config.auths {
            let wrong =
                || format!("`auths` of `{name}`: expected `auth`, the base64 of USER:PASSWORD");
            let credentials = match (
                auth.auth.filter(|auth| !auth.is_empty()),
                auth.username,
                auth.password,
            ) {
                (Some(auth), ..) => {
                    let decoded = BASE64_STANDARD.decode(auth).map_err(|_| wrong())?;
                    let text = String::from_utf8(decoded).map_err(|_| wrong())?;
                    text.contains(':').then_some(text).ok_or_else(wrong)?
                }
                (None, Some(user), Some(password)) => format!("{user}:{password}"),
                // Kept in another program.
                _ => continue,
            };
            all.insert(registry_of(&name), Credentials(credentials));
        }
        Ok(Self(all))
    }

    /// The credentials for a registry, `HOST[:PORT]`.
    pub fn of(&self, registry: &str) -> Option<&Credentials> {
        self.0.get(registry)
    }
}

/// The registry of a key, which may be a URL with a path.
fn registry_of(key: &str) -> String {
    let host = key.split_once("://").map_or(key, |(_, rest)| rest);
    let host = host.split('/').next().unwrap_or_default();
    canonical(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_found_by_registry() {
        let json = r#"{"credsStore":"x","auths":{
            "https://index.docker.io/v1/":{"auth":"bWU6c2VjcmV0"},
            "h:5000":{"username":"you","password":"a:b"},
            "other":{}}}"#;
        let config = DockerConfig::parse(json).unwrap();
        let of = |registry| {
            config
                .of(registry)
                .map(|credentials| credentials.0.as_str())
        };
        assert_eq!(of("registry-1.docker.io"), Some("me:secret"));
        assert_eq!(of("h:5000"), Some("you:a:b"));
        assert_eq!((of("other"), of("h")), (None, None));
        assert!(!format!("{config:?}").contains("secret"));
    }

    #[test]
    fn error_shows_no_secret() {
        for json in [
            r#"{"auths":{"h":{"auth":"bWU6c2VjcmV0*"}}}"#,
            r#"{"auths":{"h":{"auth":["bWU6c2VjcmV0"]}}}"#,
        ] {
            let wrong = DockerConfig::parse(json).unwrap_err();
            assert!(!wrong.contains("bWU6"), "{wrong}");
        }
    }
}
