//! Files that are fetched into a sandbox before its command runs.

use resources::Invalid;
use serde::{Deserialize, Serialize};

use super::ENTRY_BYTES;

/// The schemes of a URI that can be fetched.
const SCHEMES: [&str; 3] = ["http", "https", "file"];

/// The files of a sandbox that only the agent creates.
const OUTPUT: [&str; 2] = ["stdout", "stderr"];

/// A file to fetch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uri {
    /// An `http`, `https` or `file` URI, or an absolute path of the agent's host.
    pub value: String,
    /// Whether to make the file executable. If so, it is not extracted.
    pub executable: bool,
    /// Whether to extract it if its name is that of an archive.
    pub extract: bool,
    /// Whether it may come from the agent's cache.
    pub cache: bool,
    /// Its path in the sandbox; `None` means the last part of `value`.
    pub output_file: Option<String>,
    /// The digest that its content must have, as `sha256:` and 64 hexadecimal digits. Mesos has no
    /// such field.
    pub digest: Option<String>,
}

/// The source of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UriSource<'a> {
    /// A URI of the scheme `http` or `https`.
    Web(&'a str),
    /// A path of the agent's host.
    Path(&'a str),
}

impl Uri {
    /// A file that is extracted if it is an archive, as by default in Mesos.
    pub fn new(value: impl Into<String>) -> Self {
        Self {
            value: value.into(),
            executable: false,
            extract: true,
            cache: false,
            output_file: None,
            digest: None,
        }
    }

    /// Its source. An error names the invalid field.
    pub fn source(&self) -> Result<UriSource<'_>, Invalid> {
        let wrong = |expected: String| Err(Invalid::new("value", &self.value, expected));
        if self.value.is_empty() || self.value.contains(['\\', '\'', '\0']) {
            return wrong("a URI without `\\`, `'` and zero bytes".to_owned());
        }
        let Some((scheme, rest)) = self.value.split_once("://") else {
            return match self.value.starts_with('/') {
                true => Ok(UriSource::Path(&self.value)),
                false => wrong("an absolute path, or a URI with a scheme".to_owned()),
            };
        };
        let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        match scheme.to_ascii_lowercase().as_str() {
            "file" if ["", "localhost"].contains(&host) && path.len() > 1 => {
                Ok(UriSource::Path(path))
            }
            "file" => wrong("file:// and an absolute path".to_owned()),
            "http" | "https" if !host.is_empty() && path.len() > 1 => {
                Ok(UriSource::Web(&self.value))
            }
            "http" | "https" => wrong("a URI with a host and a path".to_owned()),
            _ => wrong(format!("a URI of a scheme among {}", SCHEMES.join(", "))),
        }
    }

    /// Its path in the sandbox. The last part of the URI may contain its query, as in Mesos. An
    /// error names the invalid field.
    pub fn file(&self) -> Result<&str, Invalid> {
        let (field, file) = match &self.output_file {
            Some(file) => ("output_file", file.as_str()),
            None => {
                let last = self.value.rsplit('/').next().unwrap_or_default();
                ("value", last)
            }
        };
        let given = || self.output_file.as_ref().unwrap_or(&self.value);
        let parts = || file.split('/');
        let is_usual = |part: &str| !part.is_empty() && part != "." && part != "..";
        let expected = match field {
            _ if file.contains(['\\', '\'', '\0']) => "a path without `\\`, `'` and zero bytes",
            _ if parts().all(is_usual) && !OUTPUT.contains(&file) => return Ok(file),
            _ if OUTPUT.contains(&file) => {
                "another name than the task's output `stdout` or `stderr`"
            }
            "value" => "a URI that ends in the name of a file",
            _ => "a relative path of a file, without empty parts, `.` and `..`",
        };
        Err(Invalid::new(field, given(), expected))
    }

    /// Checks that it can be fetched. An error names the invalid field.
    pub fn check(&self) -> Result<(), Invalid> {
        self.source()?;
        self.file()?;
        self.check_digest()
    }

    /// Checks the form of its digest. An error names the invalid field.
    fn check_digest(&self) -> Result<(), Invalid> {
        self.digest
            .as_deref()
            .map_or(Ok(()), |digest| sha256_digits(digest).map(drop))
    }

    /// Size of its texts, in bytes.
    pub(super) fn text_bytes(&self) -> usize {
        let optional = [&self.output_file, &self.digest].into_iter().flatten();
        self.value.len() + optional.map(String::len).sum::<usize>() + ENTRY_BYTES
    }
}

/// The 64 hexadecimal digits of a digest such as `sha256:0f...`. An error names the field `digest`.
pub fn sha256_digits(digest: &str) -> Result<&str, Invalid> {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let digits = digest.strip_prefix("sha256:");
    digits
        .filter(|hex| hex.len() == 64 && hex.bytes().all(is_hex))
        .ok_or_else(|| {
            let expected = "`sha256:` and 64 lower-case hexadecimal digits";
            Invalid::new("digest", digest, expected)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_is_a_path_or_on_the_web() {
        let check = |value: &str, expected: Option<UriSource>| {
            assert_eq!(Uri::new(value).source().ok(), expected, "{value}");
        };
        check("/a/b", Some(UriSource::Path("/a/b")));
        check("file:///a/b", Some(UriSource::Path("/a/b")));
        check("file://localhost/a", Some(UriSource::Path("/a")));
        check("HTTP://h/f", Some(UriSource::Web("HTTP://h/f")));
        check(
            "https://h:8/a/f?q",
            Some(UriSource::Web("https://h:8/a/f?q")),
        );
        for wrong in [
            "",
            "a",
            "a/b",
            "./a",
            "file://a",
            "file://h/a",
            "file:///",
            "http://h",
            "http://h/",
            "http:///f",
            "hdfs://h/f",
            "ftp://h/f",
            "s3://b/f",
            "http://h/a\\b",
            "/a'b",
            "/a\0",
        ] {
            check(wrong, None);
        }
    }

    #[test]
    fn digest_has_one_form() {
        let check = |digest: &str| {
            let uri = Uri {
                digest: Some(digest.to_owned()),
                ..Uri::new("/a")
            };
            uri.check().map_err(|invalid| invalid.to_string())
        };
        assert_eq!(check(&format!("sha256:{}", "0f".repeat(32))), Ok(()));
        for wrong in [
            "",
            "sha256:",
            "md5:00",
            &format!("sha256:{}", "0F".repeat(32)),
        ] {
            let expected = format!(
                "digest is `{wrong}`: expected `sha256:` and 64 lower-case hexadecimal digits"
            );
            assert_eq!(check(wrong), Err(expected));
        }
    }

    #[test]
    fn file_is_the_last_part_or_the_output_file() {
        let check = |value: &str, output_file: Option<&str>, expected: Option<&str>| {
            let output_file = output_file.map(str::to_owned);
            let uri = Uri {
                output_file,
                ..Uri::new(value)
            };
            assert_eq!(uri.file().ok(), expected, "{value}");
            assert_eq!(uri.check().is_ok(), expected.is_some(), "{value}");
        };
        check("http://h/a/b%20c.txt", None, Some("b%20c.txt"));
        check("http://h/f.tgz?x=1", None, Some("f.tgz?x=1"));
        check("http://h/d/ärger.txt", None, Some("ärger.txt"));
        check("/a", Some("x/y"), Some("x/y"));
        for name in [
            "", "/x", "..", "a/../b", "a//b", "a/", ".", "a\0", "a\\b", "stderr",
        ] {
            check("/a", Some(name), None);
        }
        for value in ["http://h/a/", "/a/..", "/a/.", "file:///x/stdout"] {
            check(value, None, None);
        }
    }
}
