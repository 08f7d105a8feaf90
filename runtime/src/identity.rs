//! The identities of nodes, actors and peers.
//!
//! Plain values that are cheap to clone. Look-ups are in the registry and the links.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Maximum length of the name of an actor or a node, in bytes. A frame could hold more, but longer
/// names are refused.
pub(crate) const NAME_MAX: usize = 255;

/// Whether an actor can have this name: 1 to 255 bytes without `@`, `#`, spaces and control
/// characters.
pub(crate) fn is_actor_name(name: &str) -> bool {
    let bad = |c: char| c == '@' || c == '#' || c.is_whitespace() || c.is_control();
    // Fast path for nearly all names, which tests many bytes at a time.
    let plain = |byte: u8| byte.is_ascii_graphic() & !matches!(byte, b'@' | b'#');
    let is_plain = name.bytes().fold(true, |all, byte| all & plain(byte));
    !name.is_empty() && name.len() <= NAME_MAX && (is_plain || !name.contains(bad))
}

/// Decodes a name from a peer. Rejects names that could not be written into a frame, or would
/// garble a log.
fn some_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
    /// Reads the text without an intermediate copy.
    struct Text;

    impl Visitor<'_> for Text {
        type Value = Arc<str>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a name")
        }

        fn visit_str<E: Error>(self, name: &str) -> Result<Arc<str>, E> {
            if is_actor_name(name) {
                return Ok(name.into());
            }
            let shown: String = name.chars().take(80).collect();
            Err(E::custom(format_args!(
                "name is {shown:?}, expected 1 to {NAME_MAX} bytes without '@', '#', spaces and control characters"
            )))
        }
    }

    deserializer.deserialize_str(Text)
}

/// One start of one node: its name and an epoch drawn at random at that start.
///
/// A restarted node has another id, so its actors are not mistaken for those of its predecessor.
#[derive(Clone, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId {
    #[serde(deserialize_with = "some_name")]
    name: Arc<str>,
    epoch: u64,
}

impl NodeId {
    /// The node with this name and epoch.
    pub fn new(name: impl Into<Arc<str>>, epoch: u64) -> Self {
        Self {
            name: name.into(),
            epoch,
        }
    }

    /// The name configured by the operator, the same after a restart.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number drawn when the node started.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }
}

impl PartialEq for NodeId {
    /// Every sent message compares two ids. Most are clones of one id, which need no comparison of
    /// names.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.epoch == other.epoch
            && (Arc::ptr_eq(&self.name, &other.name) || self.name == other.name)
    }
}

impl Hash for NodeId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.epoch.hash(state); // Random already, and equal ids have equal epochs.
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:016x}", self.name, self.epoch)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One incarnation of one actor on one node, written `name@node#incarnation`.
///
/// Incarnation 0 is a look-up address: the owner of the name when the message arrives.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Pid {
    #[serde(deserialize_with = "some_name")]
    name: Arc<str>,
    node: NodeId,
    incarnation: u64,
}

impl Pid {
    /// The pid with these parts. Incarnation 0 means the current owner of the name.
    pub fn new(name: impl Into<Arc<str>>, node: NodeId, incarnation: u64) -> Self {
        Self {
            name: name.into(),
            node,
            incarnation,
        }
    }

    /// The actor's name on its node.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The node of the actor.
    pub fn node(&self) -> &NodeId {
        &self.node
    }

    /// The incarnation of the actor, counted per node from 1; 0 means the current owner of the
    /// name.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}#{}", self.name, self.node, self.incarnation)
    }
}

impl fmt::Debug for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The role of a node in the cluster, as its certificate states it. Actors accept messages by role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Offers resources and keeps the registry.
    Master,
    /// Runs tasks on one machine.
    Agent,
    /// Schedules tasks through a scheduler driver.
    Framework,
    /// Runs one framework's tasks beside an agent.
    Executor,
    /// A command line or page of an operator.
    Operator,
    /// A module in a process of its own.
    Module,
}

impl Role {
    /// Every role, in the order of their wire numbers.
    pub const ALL: [Role; 6] = [
        Role::Master,
        Role::Agent,
        Role::Framework,
        Role::Executor,
        Role::Operator,
        Role::Module,
    ];

    /// The lower-case name of the role.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Master => "master",
            Role::Agent => "agent",
            Role::Framework => "framework",
            Role::Executor => "executor",
            Role::Operator => "operator",
            Role::Module => "module",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        Role::ALL
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or_else(|| UnknownRole {
                found: text.to_owned(),
            })
    }
}

/// A set of roles in one byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Roles(u8);

impl Roles {
    pub(crate) fn of(roles: &[Role]) -> Self {
        Self(roles.iter().fold(0, |set, role| set | 1 << *role as u8))
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn contains(self, role: Role) -> bool {
        self.0 & (1 << role as u8) != 0
    }
}

/// The other end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The node, as its hello named it.
    pub node: NodeId,
    /// Its role, as its certificate or its socket's credentials proved it.
    pub role: Role,
    /// The address at which it can be dialled again; empty if it cannot.
    pub address: String,
}

/// The text is not a role.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("role is {found:?}, expected one of master, agent, framework, executor, operator, module")]
pub struct UnknownRole {
    /// The text.
    pub found: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::codec;

    #[test]
    fn a_pid_reads_as_name_at_node_and_incarnation() {
        let pid = Pid::new("registrar", NodeId::new("master-1", 0x3fa), 7);
        assert_eq!(pid.to_string(), "registrar@master-1.00000000000003fa#7");
    }

    #[test]
    fn invalid_names_are_no_pid() {
        for name in ["", "a b", "a\nb", "a@b", "#", &"x".repeat(256)] {
            let pid = Pid::new(name, NodeId::new("node", 1), 1);
            let error = codec::decode::<Pid>(&codec::encode(&pid).unwrap()).unwrap_err();
            assert!(error.reason.contains("expected 1 to 255 bytes"), "{error}");
        }
    }

    #[test]
    fn role_names_round_trip() {
        for role in Role::ALL {
            assert_eq!(role.to_string().parse(), Ok(role));
        }
        assert_eq!(
            "Master".parse::<Role>(),
            Err(UnknownRole {
                found: "Master".into()
            })
        );
    }

    #[test]
    fn a_role_set_holds_what_was_put_in() {
        let set = Roles::of(&[Role::Agent, Role::Module]);
        assert_eq!(
            Role::ALL.map(|role| set.contains(role)),
            [false, true, false, false, false, true]
        );
    }
}
