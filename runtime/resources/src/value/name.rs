//! Names of resources: the five well-known ones are free to copy, others are interned.
//!
//! They are ordered as operators write them: cpus, mem, disk, gpus, ports, then others by text.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::Invalid;
use crate::value::symbol::Symbol;

/// Maximum length of the name of a resource or attribute, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// A resource's name. Cloning is free for well-known names and costs one counter for others.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
    /// Processor time, in CPUs; fractional.
    Cpus,
    /// Memory, in megabytes.
    Mem,
    /// Disk space, in megabytes.
    Disk,
    /// Graphics processors; whole ones only.
    Gpus,
    /// Network ports, as ranges.
    Ports,
    /// Any other name.
    Other(OtherName),
}

/// A name that is not well known. Made by [`Name::new`] only.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OtherName(pub(crate) Symbol);

/// The name as one byte; the text of `Other` is stored elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    Cpus,
    Mem,
    Disk,
    Gpus,
    Ports,
    Other,
}

impl Name {
    /// The name with this text, if it is valid.
    pub fn new(text: &str) -> Result<Self, Invalid> {
        Ok(match text {
            "cpus" => Self::Cpus,
            "mem" => Self::Mem,
            "disk" => Self::Disk,
            "gpus" => Self::Gpus,
            "ports" => Self::Ports,
            other => {
                check_name(other)?;
                Self::Other(OtherName(Symbol::new(other)))
            }
        })
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Other(OtherName(symbol)) => symbol.as_str(),
            known => known.kind().as_str(),
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Cpus => Kind::Cpus,
            Self::Mem => Kind::Mem,
            Self::Disk => Kind::Disk,
            Self::Gpus => Kind::Gpus,
            Self::Ports => Kind::Ports,
            Self::Other(_) => Kind::Other,
        }
    }
}

impl Kind {
    /// The text of a well-known name; empty for others.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Cpus => "cpus",
            Self::Mem => "mem",
            Self::Disk => "disk",
            Self::Gpus => "gpus",
            Self::Ports => "ports",
            Self::Other => "",
        }
    }
}

/// Rejects a name that cannot be written in the text form or as a key.
pub(crate) fn check_name(text: &str) -> Result<(), Invalid> {
    let forbidden = |c: char| c.is_control() || c.is_whitespace() || ":;,()[]{}\"\\".contains(c);
    if text.is_empty() || text.len() > NAME_BYTES_MAX || text.contains(forbidden) {
        return Err(Invalid::new(
            "name",
            text,
            "1 to 255 characters without blanks, quotes, brackets or any of : ; ,",
        ));
    }
    Ok(())
}

impl FromStr for Name {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Self::new(text)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(crate::wire::TextVisitor("a name", Self::new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_known_names_come_first_and_in_the_operators_order() {
        let mut names: Vec<Name> = ["zeal", "ports", "disk", "bugs", "gpus", "cpus", "mem"]
            .iter()
            .map(|text| Name::new(text).unwrap())
            .collect();
        names.sort();
        let texts: Vec<&str> = names.iter().map(Name::as_str).collect();
        assert_eq!(
            texts,
            ["cpus", "mem", "disk", "gpus", "ports", "bugs", "zeal"]
        );
    }

    #[test]
    fn names_without_a_text_form_are_rejected() {
        for bad in ["", "a b", "a:b", "a;b", "a(b)", "a\u{7}", &"x".repeat(256)] {
            assert!(Name::new(bad).is_err(), "{bad:?}");
        }
        assert_eq!(size_of::<Name>(), 16);
    }
}
