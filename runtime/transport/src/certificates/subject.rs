//! The subject of a certificate: role and name in its URI `meros://<role>/<name>`.
//!
//! Parses certificates that TLS has verified; verifies nothing itself. Invalid bytes give an error,
//! never a panic.

use std::fmt;

use runtime::Role;

/// Maximum length of a node's name, in bytes.
const NAME_MAX: usize = 128;
const SCHEME: &str = "meros://";

/// The role and name in a node's certificate. Rendered as `meros://agent/agent-1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The role, by which peers accept or reject messages.
    pub role: Role,
    /// The name, as in the node's pids.
    pub name: String,
}

impl Subject {
    /// Validates the name: 1 to 128 letters, digits, dots, dashes and underscores.
    pub(super) fn new(role: Role, name: &str) -> Result<Self, String> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(allowed) {
            let shown: String = name.chars().take(NAME_MAX).collect();
            return Err(format!(
                "{shown:?}: expected 1 to {NAME_MAX} letters, digits, dots, dashes and underscores"
            ));
        }
        Ok(Self {
            role,
            name: name.to_owned(),
        })
    }

    /// Reads the subject of a certificate (DER).
    pub fn of(certificate: &[u8]) -> Result<Self, String> {
        let names =
            alternative_names(certificate).ok_or("has no readable subject alternative names")?;
        let uri = own_name(names)?
            .ok_or_else(|| format!("has no {SCHEME} name: it was not issued to a node"))?;
        Self::parse(uri).ok_or_else(|| {
            format!(
                "is issued to {:?}: expected {SCHEME}<role>/<name>",
                lossy(uri)
            )
        })
    }

    fn parse(uri: &[u8]) -> Option<Self> {
        let path = std::str::from_utf8(uri).ok()?.strip_prefix(SCHEME)?;
        let (role, name) = path.split_once('/')?;
        Self::new(role.parse().ok()?, name).ok()
    }
}

/// The name in a client's certificate, for authorization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The name.
    pub name: String,
    /// The role of a Meros node; `None` for a certificate of another authority, whose common name
    /// is used.
    pub role: Option<Role>,
}

impl Principal {
    /// The principal of a certificate (DER): a Meros node's name, or else the common name of its
    /// subject. `None` if there is no common name, several, or one that is no plain text, and if a
    /// Meros name is invalid.
    pub(crate) fn of(certificate: &[u8]) -> Option<Self> {
        let own = match alternative_names(certificate) {
            Some(names) => own_name(names).ok()?,
            None => None,
        };
        if let Some(uri) = own {
            let Subject { role, name } = Subject::parse(uri)?;
            let role = Some(role);
            return Some(Self { name, role });
        }
        let name = common_name(certificate)?;
        let is_plain = !name.is_empty() && !name.contains(char::is_control);
        (is_plain && name.len() <= NAME_MAX).then(|| Self {
            name: name.to_owned(),
            role: None,
        })
    }
}

/// The single `meros://` name among these; an error if there are several.
fn own_name(mut names: &[u8]) -> Result<Option<&[u8]>, String> {
    let mut found = None;
    while !names.is_empty() {
        let (tag, value) = element(&mut names).ok_or("has malformed subject alternative names")?;
        if tag != tag::URI || !value.starts_with(SCHEME.as_bytes()) {
            continue;
        }
        if found.replace(value).is_some() {
            return Err(format!("has more than one {SCHEME} name"));
        }
    }
    Ok(found)
}

impl fmt::Display for Subject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{SCHEME}{}/{}", self.role, self.name)
    }
}

/// The DNS name in the certificate of every node of `role`.
pub(super) fn server_name(role: Role) -> String {
    format!("{role}.meros")
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(2 * NAME_MAX)]).into_owned()
}

/// DER tags on the path from a certificate to its names (RFC 5280, 4.1 and 4.2.1.6).
pub(super) mod tag {
    pub const BOOLEAN: u8 = 0x01;
    pub const OCTETS: u8 = 0x04;
    pub const OBJECT: u8 = 0x06;
    pub const UTF8: u8 = 0x0c;
    pub const PRINTABLE: u8 = 0x13;
    pub const IA5: u8 = 0x16;
    pub const SEQUENCE: u8 = 0x30;
    pub const SET: u8 = 0x31;
    pub const VERSION: u8 = 0xa0;
    pub const EXTENSIONS: u8 = 0xa3;
    pub const URI: u8 = 0x86;
}

/// Object identifier 2.5.29.17, the subject alternative name extension.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];

/// Object identifier 2.5.4.3, the common name.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// The common name of the subject, if it has exactly one.
fn common_name(mut certificate: &[u8]) -> Option<&str> {
    let mut certificate = expect(&mut certificate, tag::SEQUENCE)?;
    let mut body = expect(&mut certificate, tag::SEQUENCE)?;
    // The optional version and the serial number; then algorithm, issuer and validity.
    if element(&mut body)?.0 == tag::VERSION {
        element(&mut body)?;
    }
    for _ in 0..3 {
        element(&mut body)?;
    }
    let mut subject = expect(&mut body, tag::SEQUENCE)?;
    let mut found = None;
    while !subject.is_empty() {
        let mut set = expect(&mut subject, tag::SET)?;
        while !set.is_empty() {
            let mut attribute = expect(&mut set, tag::SEQUENCE)?;
            if expect(&mut attribute, tag::OBJECT)? != COMMON_NAME {
                continue;
            }
            let (kind, value) = element(&mut attribute)?;
            let is_text = matches!(kind, tag::UTF8 | tag::PRINTABLE | tag::IA5);
            let name = std::str::from_utf8(value).ok().filter(|_| is_text)?;
            if found.replace(name).is_some() {
                return None;
            }
        }
    }
    found
}

/// The contents of the subject alternative name extension.
fn alternative_names(mut certificate: &[u8]) -> Option<&[u8]> {
    let mut certificate = expect(&mut certificate, tag::SEQUENCE)?;
    let mut body = expect(&mut certificate, tag::SEQUENCE)?;
    let mut extensions = loop {
        match element(&mut body)? {
            (tag::EXTENSIONS, mut wrapped) => break expect(&mut wrapped, tag::SEQUENCE)?,
            _ => continue,
        }
    };
    while !extensions.is_empty() {
        let mut extension = expect(&mut extensions, tag::SEQUENCE)?;
        if expect(&mut extension, tag::OBJECT)? != ALTERNATIVE_NAMES {
            continue;
        }
        let mut value = match element(&mut extension)? {
            (tag::BOOLEAN, _critical) => expect(&mut extension, tag::OCTETS)?,
            (tag::OCTETS, value) => value,
            _ => return None,
        };
        return expect(&mut value, tag::SEQUENCE);
    }
    None
}

pub(super) fn expect<'a>(input: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    element(input)
        .filter(|(found, _)| *found == tag)
        .map(|(_, value)| value)
}

/// Takes one element off `input`: its tag and its value. Lengths of more than four bytes are
/// invalid.
pub(super) fn element<'a>(input: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&tag, rest) = input.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let length = match first {
        0..=0x7f => usize::from(first),
        0x81..=0x84 => {
            let (digits, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
            rest = after;
            digits
                .iter()
                .fold(0, |length, digit| (length << 8) | usize::from(*digit))
        }
        _ => return None,
    };
    let (value, after) = rest.split_at_checked(length)?;
    *input = after;
    Some((tag, value))
}
