//! Ids: short, validated texts.
//!
//! Ids made by a master have the form of Mesos (`<master>-S3`, `<master>-0007`, `<master>-O12`).
//! Code must not derive any meaning from them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Maximum length of an id, in bytes.
pub const ID_LENGTH_MAX: usize = 255;

/// A text that is not a valid id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} `{text}` is invalid: {problem}")]
pub struct InvalidId {
    /// Kind of id, for example `task_id`.
    pub kind: &'static str,
    /// The text, cut to 80 characters.
    pub text: String,
    /// The defect and the expected form.
    pub problem: &'static str,
}

fn check(kind: &'static str, text: &str) -> Result<(), InvalidId> {
    let problem = if text.is_empty() {
        "expected at least one character"
    } else if text.len() > ID_LENGTH_MAX {
        "expected at most 255 bytes"
    } else if text == "." || text == ".." {
        "`.` and `..` are path components"
    } else if is_plain(text) {
        return Ok(());
    } else if text.bytes().any(|byte| matches!(byte, b'/' | b'\\')) {
        "expected no slash and no backslash"
    } else if text.chars().any(char::is_control) {
        "expected no control character"
    } else {
        return Ok(());
    };
    let text = text.chars().take(80).collect();
    Err(InvalidId {
        kind,
        text,
        problem,
    })
}

/// Printable ASCII without slashes: the fast path for nearly all ids. It checks many bytes at a
/// time because it never stops early.
fn is_plain(text: &str) -> bool {
    let plain =
        |byte: u8| (byte == b' ' || byte.is_ascii_graphic()) & !matches!(byte, b'/' | b'\\');
    text.bytes().fold(true, |all, byte| all & plain(byte))
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $kind:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Validates `text`.
            pub fn new(text: impl AsRef<str>) -> Result<Self, InvalidId> {
                check($kind, text.as_ref())?;
                Ok(Self(Arc::from(text.as_ref())))
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                /// Validates the text without a second copy.
                struct Text;

                impl Visitor<'_> for Text {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("a string")
                    }

                    fn visit_str<E: Error>(self, text: &str) -> Result<$name, E> {
                        $name::new(text).map_err(E::custom)
                    }
                }

                deserializer.deserialize_str(Text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    )*};
}

ids! {
    /// One leadership of one master; prefix of all ids that it makes.
    MasterId = "master_id";
    /// An agent; kept over restarts as long as the master knows it.
    AgentId = "agent_id";
    /// A framework; kept over failovers of its scheduler.
    FrameworkId = "framework_id";
    /// An offer; used at most once.
    OfferId = "offer_id";
    /// A task; chosen by the framework and unique within it.
    TaskId = "task_id";
    /// An executor of one framework on one agent.
    ExecutorId = "executor_id";
    /// A container: one run of an executor. One nested in another has its parents' ids before its
    /// own, separated by dots.
    ContainerId = "container_id";
    /// An operation; chosen by the framework that wants its status updates.
    OperationId = "operation_id";
}

impl MasterId {
    /// Id of this master's `number`th agent (`<master>-S3`).
    pub fn agent(&self, number: u64) -> AgentId {
        AgentId(format!("{self}-S{number}").into())
    }

    /// Id of this master's `number`th framework (`<master>-0007`).
    pub fn framework(&self, number: u64) -> FrameworkId {
        FrameworkId(format!("{self}-{number:04}").into())
    }

    /// Id of this master's `number`th offer (`<master>-O12`).
    pub fn offer(&self, number: u64) -> OfferId {
        OfferId(format!("{self}-O{number}").into())
    }
}

impl ContainerId {
    /// The id of a container nested in this one; `name` is unique there and has no dot.
    pub fn nested(&self, name: impl fmt::Display) -> Result<Self, InvalidId> {
        Self::new(format!("{self}.{name}"))
    }

    /// The container in which this one is nested.
    pub fn parent(&self) -> Option<Self> {
        let (parent, _) = self.0.rsplit_once('.')?;
        Some(Self(parent.into()))
    }

    /// The id without those of its parents.
    pub fn name(&self) -> &str {
        self.0.rsplit_once('.').map_or(&*self.0, |(_, name)| name)
    }

    /// The outermost container around it; itself if it is not nested.
    pub fn outermost(&self) -> Self {
        let (outermost, _) = self.0.split_once('.').unwrap_or((&*self.0, ""));
        Self(outermost.into())
    }

    /// Whether it is nested in `other`, directly or further inside.
    pub fn is_inside(&self, other: &Self) -> bool {
        let rest = self.0.strip_prefix(&*other.0);
        rest.is_some_and(|rest| rest.starts_with('.'))
    }
}

impl From<&TaskId> for ExecutorId {
    /// What pages show as the executor of a command has the id of its task.
    fn from(task: &TaskId) -> Self {
        Self(task.0.clone())
    }
}

/// UUID of a status update or container, from the node's random numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// Parses its usual text. `None` if this is another text.
    pub fn parse(text: &str) -> Option<Self> {
        let digits: String = text.split('-').collect();
        let number = (text.len() == 36).then(|| u128::from_str_radix(&digits, 16).ok())??;
        let uuid = Self(number.to_be_bytes());
        (uuid.to_string() == text).then_some(uuid)
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uuid({self})")
    }
}

impl From<Uuid> for ContainerId {
    fn from(uuid: Uuid) -> Self {
        Self(uuid.to_string().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_escape_a_directory_are_invalid() {
        for text in ["", ".", "..", "a/b", "a\\b", "a\nb"] {
            let error = TaskId::new(text).unwrap_err();
            assert!(error.to_string().starts_with("task_id `"), "{error}");
        }
        assert!(TaskId::new("x".repeat(255)).is_ok());
        assert!(TaskId::new("x".repeat(256)).is_err());
    }

    #[test]
    fn validity_does_not_depend_on_position() {
        let wide = ['\u{80}', '\u{9f}', '\u{a0}', 'é', '語'];
        for one in (0..128).map(char::from).chain(wide) {
            let fits = !one.is_control() && !matches!(one, '/' | '\\');
            for at in 0..40 {
                let text = format!("{}{one}{}", "a".repeat(at), "b".repeat(39 - at));
                assert_eq!(TaskId::new(text).is_ok(), fits, "{one:?} at {at}");
            }
        }
    }

    #[test]
    fn nested_containers_know_their_parents() {
        let outer = ContainerId::new("a").unwrap();
        let inner = outer.nested("b").unwrap().nested("c").unwrap();
        assert_eq!(inner.as_str(), "a.b.c");
        assert_eq!((inner.name(), outer.name()), ("c", "a"));
        assert_eq!(inner.parent().unwrap().parent(), Some(outer.clone()));
        assert_eq!((outer.parent(), inner.outermost()), (None, outer.clone()));
        assert!(inner.is_inside(&outer) && !outer.is_inside(&outer));
        assert!(!ContainerId::new("ab.c").unwrap().is_inside(&outer));
    }

    #[test]
    fn generated_ids_have_the_form_of_mesos() {
        let master = MasterId::new("20150618-112946-201330860-5050-2210").unwrap();
        assert_eq!(
            master.agent(1).as_str(),
            "20150618-112946-201330860-5050-2210-S1"
        );
        assert_eq!(
            master.framework(0).as_str(),
            "20150618-112946-201330860-5050-2210-0000"
        );
        assert_eq!(
            master.offer(12).as_str(),
            "20150618-112946-201330860-5050-2210-O12"
        );
    }

    #[test]
    fn uuid_has_the_usual_text_form() {
        assert_eq!(
            Uuid([0xab; 16]).to_string(),
            "abababab-abab-abab-abab-abababababab"
        );
    }

    #[test]
    fn uuid_is_parsed_from_its_own_text_only() {
        let uuid = Uuid(*b"0123456789abcdef");
        let text = uuid.to_string();
        assert_eq!(Uuid::parse(&text), Some(uuid));
        let other = [
            "",
            "c1",
            &text[1..],
            &text.replace('-', "+"),
            &text.replace('3', "x"),
            "----------------------------------01",
        ];
        for text in other {
            assert_eq!(Uuid::parse(text), None, "{text}");
        }
    }
}
