//! How tasks are.

use std::net::IpAddr;

use protocol::marks::{CHECK_STATUS, CONTAINER_STATUS, LIMITATION};
use protocol::{Source, TaskStatus as Status};
use resources::Invalid;
use runtime::Timestamp;

use super::ids::uuid;
use super::labels::read_with;
use super::marked::{
    self, check_status, keep, limitation, marks_of_status, other_labels_of_status,
};
use super::{At, read_seconds, some};
use crate::describe::{Describe, Each, Fields, Gives, Output, Place, made};
use crate::message::Entry;
use crate::schema;

/// Words of which each has its counterpart.
macro_rules! alike {
    ($($ours:ident = $theirs:ident { $($word:ident)* })*) => {$(
        impl From<schema::$theirs> for protocol::$ours {
            fn from(theirs: schema::$theirs) -> Self {
                match theirs { $(schema::$theirs::$word => Self::$word,)* }
            }
        }

        impl From<protocol::$ours> for schema::$theirs {
            fn from(ours: protocol::$ours) -> Self {
                match ours { $(protocol::$ours::$word => Self::$word,)* }
            }
        }

        impl Gives<schema::$theirs> for protocol::$ours {
            #[inline]
            fn give<O: Output>(self, out: &mut O, entry: &'static Entry, place: Place) -> bool {
                schema::$theirs::from(self).give(out, entry, place)
            }
        }
    )*};
}

alike! {
    TaskState = TaskState {
        Staging Starting Running Killing Finished Failed Killed Error Lost Dropped Unreachable Gone GoneByOperator Unknown
    }
    Source = TaskStatusSource { Master Agent Executor }
    // Those of agents are called `SLAVE` in our texts and `AGENT` in theirs.
    Reason = TaskStatusReason {
        CommandExecutorFailed ExecutorTerminated ExecutorUnregistered FrameworkRemoved GcError InvalidFrameworkId InvalidOffers
        MasterDisconnected ContainerLimitationMemory Reconciliation AgentDisconnected AgentRemoved AgentRestarted AgentUnknown
        TaskInvalid TaskUnauthorized TaskUnknown ContainerPreempted ResourcesUnknown ContainerLimitation ContainerLimitationDisk
        ContainerLaunchFailed ContainerUpdateFailed ExecutorRegistrationTimeout ExecutorReregistrationTimeout TaskGroupInvalid
        TaskGroupUnauthorized IoSwitchboardExited TaskCheckStatusUpdated TaskHealthCheckStatusUpdated TaskKilledDuringLaunch
        AgentRemovedByOperator AgentReregistered MaxCompletionTimeReached AgentDraining
    }
}

impl TryFrom<&schema::TaskStatus> for Status {
    type Error = Invalid;

    /// Without a source it is the executor's, who may leave that out; without a timestamp its time is 1970, for the receiver to replace. What is said of the
    /// container's networks is kept as it was said, and is not its `address`.
    fn try_from(status: &schema::TaskStatus) -> Result<Self, Invalid> {
        let (container_id, container) = read_container(status.container_status.as_deref());
        let keep_all = |map: &mut _| {
            keep(map, CONTAINER_STATUS, container.as_ref());
            keep(map, CHECK_STATUS, status.check_status.as_ref());
            keep(map, LIMITATION, status.limitation.as_ref());
        };
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
            container_id,
            address: None,
            timestamp: Timestamp::from_nanos(0) + read_seconds("timestamp", status.timestamp)?,
            uuid: status.uuid.as_deref().map(uuid).transpose().at("uuid")?,
            healthy: status.healthy,
            termination: None,
            unreachable_since: unreachable
                .map(read_moment)
                .transpose()
                .at("unreachable_time")?,
            labels: read_with(status.labels.as_ref(), keep_all, marks_of_status),
        })
    }
}

/// The plain id of a container, and what else is said of it.
fn read_container(
    container: Option<&schema::ContainerStatus>,
) -> (
    Option<protocol::ContainerId>,
    Option<schema::ContainerStatus>,
) {
    let mut rest = container.cloned().unwrap_or_default();
    let id = rest.container_id.as_ref();
    let plain = id.and_then(|id| protocol::ContainerId::try_from(id).ok());
    if plain.is_some() {
        rest.container_id = None;
    }
    let is_some = rest != schema::ContainerStatus::default();
    (plain, is_some.then_some(rest))
}

/// A container of ours: it is in the network of its agent's host, whose address this is, as Mesos' agents say it where nothing isolates networks.
#[derive(Clone, Copy, Debug)]
pub struct Contained<'a> {
    /// Its id.
    pub id: Option<&'a protocol::ContainerId>,
    /// The address, where it is known.
    pub address: Option<IpAddr>,
}

impl Contained<'_> {
    /// Whether nothing is known of it.
    fn is_unknown(&self) -> bool {
        self.id.is_none() && self.address.is_none()
    }
}

/// The container of a status: as its executor has said it, with what that has not said as it is for each container of ours; nothing if nothing is known.
pub fn contained(status: &Status) -> Option<ContainedAs<'_>> {
    let own = Contained {
        id: status.container_id.as_ref(),
        address: status.address,
    };
    let Some(mut said) = marked::container(&status.labels) else {
        return (!own.is_unknown()).then_some(ContainedAs::Usual(own));
    };
    let own = schema::ContainerStatus::from(own);
    said.container_id = said.container_id.or(own.container_id);
    if said.network_infos.is_empty() {
        said.network_infos = own.network_infos;
    }
    Some(ContainedAs::Said(Box::new(said)))
}

/// How the container of a status is.
#[derive(Clone, Debug)]
pub enum ContainedAs<'a> {
    /// As each container of ours.
    Usual(Contained<'a>),
    /// As its executor has said it.
    Said(Box<schema::ContainerStatus>),
}

impl Describe<schema::ContainerStatus> for ContainedAs<'_> {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, schema::ContainerStatus, O>) {
        match self {
            Self::Usual(own) => own.describe(fields),
            Self::Said(said) => said.as_ref().describe(fields),
        }
    }
}

impl Describe<schema::ContainerStatus> for Contained<'_> {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, schema::ContainerStatus, O>) {
        let networks = self.address.iter().map(|address| Network(*address));
        fields
            .network_infos(Each(networks))
            .container_id(self.id.map(schema::ContainerID::from));
    }
}

impl From<Contained<'_>> for schema::ContainerStatus {
    fn from(contained: Contained<'_>) -> Self {
        made(&contained)
    }
}

/// The network of a host that has this address.
struct Network(IpAddr);

impl Describe<schema::NetworkInfo> for Network {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, schema::NetworkInfo, O>) {
        let address = schema::NetworkInfoIPAddress {
            protocol: Some(match self.0 {
                IpAddr::V4(_) => schema::NetworkInfoProtocol::IPv4,
                IpAddr::V6(_) => schema::NetworkInfoProtocol::IPv6,
            }),
            ip_address: Some(self.0.to_string()),
        };
        fields.ip_addresses(Each(std::iter::once(address)));
    }
}

pub(super) fn read_moment(moment: &schema::TimeInfo) -> Result<Timestamp, Invalid> {
    let nanoseconds = u64::try_from(moment.nanoseconds).map_err(|_| {
        let expected = "a number of nanoseconds since 1970-01-01 UTC";
        Invalid::new("nanoseconds", moment.nanoseconds, expected)
    })?;
    Ok(Timestamp::from_nanos(nanoseconds))
}

impl Describe<schema::TimeInfo> for Timestamp {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, schema::TimeInfo, O>) {
        fields.nanoseconds(i64::try_from(self.as_nanos()).unwrap_or(i64::MAX));
    }
}

impl From<Timestamp> for schema::TimeInfo {
    fn from(moment: Timestamp) -> Self {
        made(&moment)
    }
}

impl Describe<schema::TaskStatus> for Status {
    /// How the process ended (`termination`) stands in the message only.
    fn describe<O: Output>(&self, fields: &mut Fields<'_, schema::TaskStatus, O>) {
        // Nanoseconds would be rounded twice.
        let timestamp = (self.timestamp.as_nanos() / 1000) as f64 / 1e6;
        fields
            .task_id(&self.task_id)
            .state(self.state)
            .data((!self.data.is_empty()).then_some(self.data.as_slice()))
            .message((!self.message.is_empty()).then_some(self.message.as_str()))
            .agent_id(self.agent_id.as_ref())
            .timestamp(Some(timestamp))
            .executor_id(self.executor_id.as_ref())
            .healthy(self.healthy)
            .source(Some(self.source))
            .reason(self.reason)
            .uuid(self.uuid.as_ref().map(|uuid| uuid.0.as_slice()))
            .labels(other_labels_of_status(&self.labels).message())
            .container_status(contained(self))
            .unreachable_time(self.unreachable_since)
            .check_status(check_status(&self.labels))
            .limitation(limitation(&self.labels));
    }
}

impl From<&Status> for schema::TaskStatus {
    fn from(status: &Status) -> Self {
        made(status)
    }
}
