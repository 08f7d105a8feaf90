//! Digests: hashes of content, by which it is checked. An image's parts are named by them.

use std::fmt;

use protocol::task::uri::sha256_digits;
use resources::Invalid;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

/// The only algorithm in use.
const PREFIX: &str = "sha256:";
/// Length of its value in hexadecimal digits.
const HEX: usize = 64;

/// A SHA-256 digest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

impl Digest {
    /// Parses `sha256:` and 64 lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        sha256_digits(text).map(|digits| Self(digits.to_owned()))
    }

    /// The digest of this content.
    pub fn of(content: &[u8]) -> Self {
        let mut hasher = Hasher::default();
        hasher.update(content);
        hasher.finish()
    }

    /// Its name as a file.
    pub fn file_name(&self) -> String {
        format!("sha256-{}", self.0)
    }

    /// The digest with this [`file_name`](Self::file_name).
    pub fn of_file_name(name: &str) -> Option<Self> {
        let hex = name.strip_prefix("sha256-")?;
        Self::parse(&format!("{PREFIX}{hex}")).ok()
    }

    /// The value alone.
    pub fn hex(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.0)
    }
}

impl TryFrom<String> for Digest {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        Self::parse(&text)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

/// Computes a digest piece by piece.
pub struct Hasher(Context);

impl Default for Hasher {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl Hasher {
    /// Adds content.
    pub fn update(&mut self, content: &[u8]) {
        self.0.update(content);
    }

    /// The digest of all content.
    pub fn finish(self) -> Digest {
        use std::fmt::Write;
        let mut hex = String::with_capacity(HEX);
        for byte in self.0.finish().as_ref() {
            // Writing to a string does not fail.
            let _ = write!(hex, "{byte:02x}");
        }
        Digest(hex)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_is_parsed_and_computed() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b""), Digest::parse(empty).unwrap());
        assert_eq!(Digest::of(b"").to_string(), empty);
        let name = Digest::of(b"x").file_name();
        assert_eq!(Digest::of_file_name(&name), Some(Digest::of(b"x")));
        for wrong in [
            "",
            "sha256:",
            "sha512:00",
            "sha256:../../etc/passwd",
            &empty.to_uppercase(),
        ] {
            assert!(Digest::parse(wrong).is_err(), "{wrong}");
        }
    }
}
