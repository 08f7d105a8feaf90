//! Names of images, as Docker writes them: `[REGISTRY/]NAME[:TAG][@DIGEST]`. Pure.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::fetcher::digest::Digest;

/// The registry of names without one.
pub const DEFAULT_REGISTRY: &str = "registry-1.docker.io";
/// Other names of that registry.
const ALIASES: [&str; 2] = ["docker.io", "index.docker.io"];
/// The tag of names without a tag or digest.
const DEFAULT_TAG: &str = "latest";
/// Most bytes of a repository's name, with its registry.
const NAME_MAX: usize = 255;
/// Most bytes of a tag.
const TAG_MAX: usize = 128;

/// The name of an image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Reference {
    registry: Option<String>,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl Reference {
    /// Parses a name. The error names the wrong part and the expected form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |problem: String| format!("image name `{text}`: {problem}");
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => {
                let digest = Digest::parse(digest).map_err(|error| wrong(error.to_string()))?;
                (rest, Some(digest))
            }
            None => (text, None),
        };
        let (registry, rest) = match rest.split_once('/') {
            Some((first, rest)) if is_registry(first) => (Some(first), rest),
            _ => (None, rest),
        };
        let (repository, tag) = match rest.rsplit_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (rest, None),
        };
        if let Some(registry) = registry.filter(|registry| !is_host(registry)) {
            return Err(wrong(format!(
                "its registry `{registry}` is no HOST[:PORT]"
            )));
        }
        if !repository.split('/').all(is_component) {
            return Err(wrong(format!(
                "its repository `{repository}` is wrong: expected lower-case letters and digits, \
                 separated by `.`, `_`, `__`, `-` or `/`"
            )));
        }
        if let Some(tag) = tag.filter(|tag| !is_tag(tag)) {
            return Err(wrong(format!(
                "its tag `{tag}` is wrong: expected 1 to {TAG_MAX} letters, digits, `_`, `.` or `-`"
            )));
        }
        let length = registry.map_or(0, |registry| registry.len() + 1) + repository.len();
        if length > NAME_MAX {
            return Err(wrong(format!(
                "it has {length} bytes: expected at most {NAME_MAX}"
            )));
        }
        Ok(Self {
            registry: registry.map(canonical),
            repository: repository.to_owned(),
            tag: tag.map(str::to_owned),
            digest,
        })
    }

    /// The registry, if the name has one.
    pub fn registry(&self) -> Option<&str> {
        self.registry.as_deref()
    }

    /// The repository's name in this registry: Docker's own has the official images in `library/`.
    pub fn repository_in(&self, registry: &str) -> String {
        match registry == DEFAULT_REGISTRY && !self.repository.contains('/') {
            true => format!("library/{}", self.repository),
            false => self.repository.clone(),
        }
    }

    /// The tag; the default one if there is neither a tag nor a digest.
    pub fn tag(&self) -> Option<&str> {
        let default = self.digest.is_none().then_some(DEFAULT_TAG);
        self.tag.as_deref().or(default)
    }

    /// Whether the name itself has a tag.
    pub fn has_tag(&self) -> bool {
        self.tag.is_some()
    }

    /// The digest of the manifest.
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// Names that files of a local registry may have, the most exact one first.
    pub fn file_names(&self) -> Vec<String> {
        let registry = self
            .registry
            .as_ref()
            .map(|registry| format!("{registry}/"));
        let name = format!("{}{}", registry.unwrap_or_default(), self.repository);
        let mut names = Vec::new();
        names.extend(self.tag.as_ref().map(|tag| format!("{name}:{tag}")));
        names.push(name);
        names
    }

    /// The same name with all defaults filled in: equal names have one form.
    pub fn complete(&self) -> Self {
        let registry = self.registry.as_deref().unwrap_or(DEFAULT_REGISTRY);
        Self {
            repository: self.repository_in(registry),
            registry: Some(registry.to_owned()),
            tag: self.tag().map(str::to_owned),
            digest: self.digest.clone(),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(registry) = &self.registry {
            write!(f, "{registry}/")?;
        }
        f.write_str(&self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

impl TryFrom<String> for Reference {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl From<Reference> for String {
    fn from(reference: Reference) -> Self {
        reference.to_string()
    }
}

/// The usual name of a registry.
pub fn canonical(registry: &str) -> String {
    match ALIASES.contains(&registry) {
        true => DEFAULT_REGISTRY.to_owned(),
        false => registry.to_owned(),
    }
}

/// Whether the part before the first slash is a registry: Docker recognizes it by these characters.
fn is_registry(first: &str) -> bool {
    let is_upper = |byte: u8| byte.is_ascii_uppercase();
    first == "localhost" || first.contains(['.', ':']) || first.bytes().any(is_upper)
}

/// Whether this is `HOST[:PORT]`, with an IPv6 address in brackets.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_label = |label: &str| {
        let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = label.as_bytes();
        let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
        ends(bytes.first()) && ends(bytes.last()) && bytes.iter().all(is_inner)
    };
    let address = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let is_name = match address {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host.split('.').all(is_label),
    };
    is_name && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

/// Whether this is a part of a repository's name.
fn is_component(text: &str) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends = bytes.first().is_some_and(is_letter) && bytes.last().is_some_and(is_letter);
    let separators = bytes.split(is_letter).filter(|part| !part.is_empty());
    let is_separator =
        |part: &[u8]| matches!(part, b"." | b"_" | b"__") || part.iter().all(|byte| *byte == b'-');
    ends && separators.into_iter().all(is_separator)
}

fn is_tag(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_inner = |byte: u8| is_word(byte) || byte == b'.' || byte == b'-';
    let first = text.bytes().next();
    first.is_some_and(is_word) && text.bytes().all(is_inner) && text.len() <= TAG_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_completed_as_docker_does() {
        let zeros = format!("sha256:{}", "0".repeat(64));
        for (text, complete) in [
            ("alpine", "registry-1.docker.io/library/alpine:latest"),
            ("alpine:3.1_a", "registry-1.docker.io/library/alpine:3.1_a"),
            (
                "docker.io/alpine",
                "registry-1.docker.io/library/alpine:latest",
            ),
            ("me/alpine", "registry-1.docker.io/me/alpine:latest"),
            ("localhost/a/b__c", "localhost/a/b__c:latest"),
            ("h:5000/a--b:T", "h:5000/a--b:T"),
            ("[::1]:5000/a", "[::1]:5000/a:latest"),
            ("example.org/a", "example.org/a:latest"),
        ] {
            let read = Reference::parse(text).unwrap();
            assert_eq!(read.complete().to_string(), complete);
            assert_eq!(
                read.to_string().replace(DEFAULT_REGISTRY, "docker.io"),
                text
            );
        }
        let digested = Reference::parse(&format!("a@{zeros}")).unwrap();
        assert_eq!(digested.tag(), None);
        let both = format!("registry-1.docker.io/library/a:1@{zeros}");
        let read = Reference::parse(&format!("a:1@{zeros}")).unwrap();
        assert_eq!(read.complete().to_string(), both);
    }

    #[test]
    fn error_names_the_wrong_part() {
        for (text, part) in [
            ("", "repository"),
            ("Alpine", "repository"),
            ("a//b", "repository"),
            ("../a", "registry"),
            ("a/../b", "repository"),
            ("a..b", "repository"),
            ("a-", "repository"),
            ("a:", "tag"),
            ("a:b c", "tag"),
            ("a:.b", "tag"),
            ("a@sha256:0", "digest"),
            ("-h.x/a", "registry"),
            ("h:99999/a", "registry"),
            ("h:1\r\nx/a", "registry"),
        ] {
            let wrong = Reference::parse(text).unwrap_err();
            assert!(
                wrong.contains(part) && wrong.contains(text),
                "{text}: {wrong}"
            );
        }
        let long = Reference::parse(&"a".repeat(256)).unwrap_err();
        assert!(long.contains("at most 255"), "{long}");
    }

    #[test]
    fn local_files_are_named_like_the_image() {
        let names = |text: &str| Reference::parse(text).unwrap().file_names();
        assert_eq!(names("a"), ["a"]);
        assert_eq!(names("h:1/a/b:c"), ["h:1/a/b:c", "h:1/a/b"]);
    }
}
