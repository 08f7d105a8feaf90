//! The servers that are asked for an image, in order: mirrors, then its registry. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::credentials::{Credentials, DockerConfig};
use crate::images::reference::{Reference, canonical};

/// A server, as one pull uses it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// For example `https://HOST:PORT`.
    pub base: String,
    /// `HOST[:PORT]`.
    pub host: String,
    /// The name of the repository there.
    pub repository: String,
    /// The user and password for it.
    pub credentials: Option<Credentials>,
    /// Whether the operator has named it. Others may have no link-local address.
    pub is_trusted: bool,
}

/// The registries that an operator has configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrySettings {
    /// The registry of names without one, a URL; `None` means Docker's.
    pub default: Option<String>,
    /// The URLs of the mirrors of a registry, `HOST[:PORT]`.
    pub mirrors: BTreeMap<String, Vec<String>>,
    /// Registries that are spoken to without TLS. Those of this host are, unless there are
    /// certificates for them.
    pub insecure: BTreeSet<String>,
}

/// The servers for an image. `has_certificates`: whether a registry has its own authorities.
pub fn endpoints(
    reference: &Reference,
    settings: &RegistrySettings,
    config: &DockerConfig,
    has_certificates: impl Fn(&str) -> bool,
) -> Result<Vec<Endpoint>, String> {
    let scheme = |host: &str| {
        let is_plain = settings.insecure.contains(host) || is_loopback(host);
        if is_plain && !has_certificates(host) {
            "http"
        } else {
            "https"
        }
    };
    let completed = reference.complete();
    let (base, is_trusted) = match (reference.registry(), &settings.default) {
        (None, Some(default)) => (default.trim_end_matches('/').to_owned(), true),
        _ => {
            let host = completed.registry().unwrap_or_default();
            (format!("{}://{host}", scheme(host)), false)
        }
    };
    let host = host_of(&base)?;
    let mirrors = settings.mirrors.get(&host).into_iter().flatten();
    let mirrors = mirrors.map(|mirror| (mirror.trim_end_matches('/').to_owned(), true));
    let repository = reference.repository_in(&host);
    let endpoint = |(base, is_trusted): (String, bool)| {
        let host = host_of(&base)?;
        Ok(Endpoint {
            repository: repository.clone(),
            credentials: config.of(&host).cloned(),
            is_trusted: is_trusted || is_loopback(&host),
            host,
            base,
        })
    };
    mirrors.chain([(base, is_trusted)]).map(endpoint).collect()
}

fn host_of(url: &str) -> Result<String, String> {
    let wrong = || format!("registry `{url}`: expected http:// or https:// and HOST[:PORT]");
    let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
    let host = rest.split('/').next().unwrap_or_default();
    match matches!(scheme, "http" | "https") && !host.is_empty() && !host.contains('@') {
        true => Ok(canonical(host)),
        false => Err(wrong()),
    }
}

/// Whether this `HOST[:PORT]` is this host.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => name,
        _ => host,
    };
    let address: Result<IpAddr, _> = name.trim_matches(['[', ']']).parse();
    name == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, settings: &RegistrySettings, expected: &[&str]) {
        let reference = Reference::parse(name).unwrap();
        let config = DockerConfig::parse(r#"{"auths":{"private":{"auth":"bWU6c2VjcmV0"}}}"#);
        let certified = |host: &str| host == "localhost:1";
        let all = endpoints(&reference, settings, &config.unwrap(), certified).unwrap();
        let shown = |endpoint: &Endpoint| {
            let trusted = if endpoint.is_trusted { " trusted" } else { "" };
            let secret = if endpoint.credentials.is_some() {
                " secret"
            } else {
                ""
            };
            format!("{} {}{trusted}{secret}", endpoint.base, endpoint.repository)
        };
        assert_eq!(all.iter().map(shown).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn name_and_settings_give_the_servers() {
        let none = RegistrySettings::default();
        check("a", &none, &["https://registry-1.docker.io library/a"]);
        check(
            "docker.io/me/a",
            &none,
            &["https://registry-1.docker.io me/a"],
        );
        check("h:1/a", &none, &["https://h:1 a"]);
        check(
            "localhost:5000/a",
            &none,
            &["http://localhost:5000 a trusted"],
        );
        check("127.1.2.3/a", &none, &["http://127.1.2.3 a trusted"]);
        check("[::1]:5000/a", &none, &["http://[::1]:5000 a trusted"]);
        check("localhost:1/a", &none, &["https://localhost:1 a trusted"]);
        check("169.254.169.254/a", &none, &["https://169.254.169.254 a"]);
        let settings = RegistrySettings {
            default: Some("https://private/".to_owned()),
            mirrors: BTreeMap::from([(
                "registry-1.docker.io".to_owned(),
                vec!["http://m/path/".to_owned()],
            )]),
            insecure: BTreeSet::from(["h:1".to_owned()]),
        };
        check("a", &settings, &["https://private a trusted secret"]);
        check("h:1/a", &settings, &["http://h:1 a"]);
        check(
            "docker.io/a",
            &settings,
            &[
                "http://m/path library/a trusted",
                "https://registry-1.docker.io library/a",
            ],
        );
    }

    #[test]
    fn wrong_url_is_named() {
        for url in ["private", "ftp://x", "https://", "https://me:x@h"] {
            let settings = RegistrySettings {
                default: Some(url.to_owned()),
                ..RegistrySettings::default()
            };
            let reference = Reference::parse("a").unwrap();
            let wrong = endpoints(&reference, &settings, &DockerConfig::default(), |_| false);
            assert!(wrong.unwrap_err().contains("expected http://"), "{url}");
        }
    }
}
