//! How tasks are.

use protocol::{Reason, Source, TaskStatus as Status};
use resources::Invalid;
use runtime::Timestamp;

use super::ids::{uuid, uuid_bytes};
use super::{At, read_labels, read_seconds, refuse, some, write_labels};
use crate::message::Enum;
use crate::schema;

/// Words of which ours and theirs have the same name.
macro_rules! alike {
    ($($ours:ident = $theirs:ident;)*) => {$(
        impl From<schema::$theirs> for protocol::$ours {
            fn from(theirs: schema::$theirs) -> Self {
                // `every_word_has_its_counterpart` looks at each.
                Self::ALL.iter().copied().find(|own| own.name() == theirs.name()).unwrap_or(Self::ALL[0])
            }
        }

        impl From<protocol::$ours> for schema::$theirs {
            fn from(ours: protocol::$ours) -> Self {
                Self::by_name(ours.name()).unwrap_or_default()
            }
        }
    )*};
}

alike! {
    TaskState = TaskState;
    Source = TaskStatusSource;
}

/// The v1 API says `AGENT` where names here have the older `SLAVE`.
fn told(reason: Reason) -> String {
    reason.name().replace("SLAVE", "AGENT")
}

impl From<schema::TaskStatusReason> for Reason {
    fn from(theirs: schema::TaskStatusReason) -> Self {
        let found = Self::ALL.iter().find(|own| told(**own) == theirs.name());
        found.copied().unwrap_or(Self::ALL[0])
    }
}

impl From<Reason> for schema::TaskStatusReason {
    fn from(ours: Reason) -> Self {
        Self::by_name(&told(ours)).unwrap_or_default()
    }
}

impl TryFrom<&schema::TaskStatus> for Status {
    type Error = Invalid;

    /// Without a source it is the executor's, who may leave that out; without a timestamp its time is 1970, for the receiver to replace.
    fn try_from(status: &schema::TaskStatus) -> Result<Self, Invalid> {
        refuse(
            "check_status",
            status.check_status.is_some(),
            "set",
            "nothing, since tasks have no checks yet",
        )?;
        refuse(
            "limitation",
            status.limitation.is_some(),
            "set",
            "nothing, since a status cannot name yet what its task wanted more of",
        )?;
        let container = status.container_status.as_ref();
        let container_id = container.and_then(|container| container.container_id.as_ref());
        let unreachable = status.unreachable_time.as_ref();
        Ok(Self {
            task_id: (&status.task_id).try_into().at("task_id")?,
            state: status.state.into(),
            source: status.source.map_or(Source::Executor, Into::into),
            reason: status.reason.map(Into::into),
            message: status.message.clone().unwrap_or_default(),
            data: status
                .data
                .as_ref()
                .map(|data| data.to_vec())
                .unwrap_or_default(),
            agent_id: some("agent_id", status.agent_id.as_ref())?,
            executor_id: some("executor_id", status.executor_id.as_ref())?,
            container_id: some("container_status.container_id", container_id)?,
            timestamp: Timestamp::from_nanos(0) + read_seconds("timestamp", status.timestamp)?,
            uuid: status.uuid.as_deref().map(uuid).transpose().at("uuid")?,
            healthy: status.healthy,
            termination: None,
            unreachable_since: unreachable
                .map(read_moment)
                .transpose()
                .at("unreachable_time")?,
            labels: read_labels(status.labels.as_ref()),
        })
    }
}

pub(super) fn read_moment(moment: &schema::TimeInfo) -> Result<Timestamp, Invalid> {
    let nanoseconds = u64::try_from(moment.nanoseconds).map_err(|_| {
        let expected = "a number of nanoseconds since 1970-01-01 UTC";
        Invalid::new("nanoseconds", moment.nanoseconds, expected)
    })?;
    Ok(Timestamp::from_nanos(nanoseconds))
}

impl From<Timestamp> for schema::TimeInfo {
    fn from(moment: Timestamp) -> Self {
        Self {
            nanoseconds: i64::try_from(moment.as_nanos()).unwrap_or(i64::MAX),
        }
    }
}

impl From<&Status> for schema::TaskStatus {
    /// How the process ended (`termination`) stands in the message only.
    fn from(status: &Status) -> Self {
        let container = status.container_id.as_ref();
        Self {
            task_id: (&status.task_id).into(),
            state: status.state.into(),
            data: (!status.data.is_empty()).then(|| status.data.clone().into()),
            message: (!status.message.is_empty()).then(|| status.message.clone()),
            agent_id: status.agent_id.as_ref().map(Into::into),
            // Nanoseconds would be rounded twice.
            timestamp: Some((status.timestamp.as_nanos() / 1000) as f64 / 1e6),
            executor_id: status.executor_id.as_ref().map(Into::into),
            healthy: status.healthy,
            source: Some(status.source.into()),
            reason: status.reason.map(Into::into),
            uuid: status.uuid.map(uuid_bytes),
            labels: write_labels(&status.labels),
            container_status: container.map(|id| {
                Box::new(schema::ContainerStatus {
                    container_id: Some(id.into()),
                    ..schema::ContainerStatus::default()
                })
            }),
            unreachable_time: status.unreachable_since.map(Into::into),
            ..Self::default()
        }
    }
}
