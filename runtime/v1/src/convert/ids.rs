//! Conversions of ids.

use bytes::Bytes;
use protocol::{ID_LENGTH_MAX, InvalidId, Uuid};
use resources::Invalid;

use super::At;
use crate::describe::{Describe, Fields, Output};
use crate::schema;

/// The error of an id, at its field `value`.
fn invalid(bad: &InvalidId) -> Invalid {
    Invalid::new(
        "value",
        &bad.text,
        bad.problem.trim_start_matches("expected "),
    )
}

/// The problem of an invalid id, with the message of Mesos.
pub(super) fn id_problem(text: &str) -> Option<String> {
    // All ids have the same rules.
    let bad = protocol::TaskId::new(text).err()?;
    Some(match text {
        "" => "ID must not be empty".to_owned(),
        "." | ".." => format!("'{text}' is disallowed"),
        long if long.len() > ID_LENGTH_MAX => {
            format!("ID must not be greater than {ID_LENGTH_MAX} characters")
        }
        _ => format!("'{}' contains invalid characters", bad.text.escape_debug()),
    })
}

macro_rules! ids {
    ($($theirs:ident = $ours:ident;)*) => {$(
        impl TryFrom<&schema::$theirs> for protocol::$ours {
            type Error = Invalid;

            fn try_from(id: &schema::$theirs) -> Result<Self, Invalid> {
                Self::new(&id.value).map_err(|bad| invalid(&bad))
            }
        }

        impl From<&protocol::$ours> for schema::$theirs {
            fn from(id: &protocol::$ours) -> Self {
                Self { value: id.to_string() }
            }
        }

        impl Describe<schema::$theirs> for protocol::$ours {
            #[inline]
            fn describe<O: Output>(&self, fields: &mut Fields<'_, schema::$theirs, O>) {
                fields.value(self.as_str());
            }
        }
    )*};
}

ids! {
    FrameworkID = FrameworkId;
    OfferID = OfferId;
    AgentID = AgentId;
    TaskID = TaskId;
    ExecutorID = ExecutorId;
    OperationID = OperationId;
}

impl TryFrom<&schema::ContainerID> for protocol::ContainerId {
    type Error = Invalid;

    fn try_from(id: &schema::ContainerID) -> Result<Self, Invalid> {
        let own = Self::new(&id.value).map_err(|bad| invalid(&bad))?;
        if own.parent().is_some() {
            let expected = "no dots, which separate the ids of nested containers";
            return Err(Invalid::new("value", &id.value, expected));
        }
        let Some(parent) = &id.parent else {
            return Ok(own);
        };
        let parent = Self::try_from(&**parent).at("parent")?;
        parent.nested(own).map_err(|bad| invalid(&bad))
    }
}

impl From<&protocol::ContainerId> for schema::ContainerID {
    fn from(id: &protocol::ContainerId) -> Self {
        Self {
            value: id.name().to_owned(),
            parent: id.parent().map(|parent| Box::new((&parent).into())),
        }
    }
}

/// The uuid of these bytes.
pub fn uuid(bytes: &[u8]) -> Result<Uuid, Invalid> {
    let sixteen = bytes.try_into().map(Uuid);
    sixteen.map_err(|_| Invalid::new("", format!("{} bytes", bytes.len()), "16 bytes"))
}

/// The bytes of this uuid.
pub fn uuid_bytes(uuid: Uuid) -> Bytes {
    Bytes::copy_from_slice(&uuid.0)
}
