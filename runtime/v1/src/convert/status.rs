//! Task statuses.

use std::net::IpAddr;

use protocol::text::reserved_labels::{CHECK_STATUS, CONTAINER_STATUS, LIMITATION};
use protocol::{Source, TaskStatus as Status};
use resources::Invalid;
use runtime::Timestamp;

use super::ids::uuid;
use super::labels::read_with;
use super::{At, read_seconds, some};
use crate::convert::labels::messages::{
    self, check_status, check_statuses, keep_check_statuses, keep_message, limitation,
    other_labels_of_status, reserved_keys_of_status,
};
use crate::describe::{Describe, Each, Fields, IntoField, ListPosition, Output, build};
use crate::message::FieldInfo;
use crate::schema;

/// Converts enums with the same variants.
macro_rules! same_variants {
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

        impl IntoField<schema::$theirs> for protocol::$ours {
            #[inline]
            fn put_into<O: Output>(self, out: &mut O, entry: &'static FieldInfo, position: ListPosition) -> bool {
                schema::$theirs::from(self).put_into(out, entry, position)
            }
        }
    )*};
}

same_variants! {
    TaskState = TaskState {
        Staging Starting Running Killing Finished Failed Killed Error Lost Dropped Unreachable Gone GoneByOperator Unknown
    }
    Source = TaskStatusSource { Master Agent Executor }
    // The reasons about agents are named `SLAVE` in v0 and `AGENT` in v1.
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

    /// Executors may omit the source and the timestamp: the source defaults to the executor, the
    /// time to 1970, for the receiver to replace. The container's networks are kept as sent, and do
    /// not set `address`.
    fn try_from(status: &schema::TaskStatus) -> Result<Self, Invalid> {
        let (container_id, container) = read_container(status.container_status.as_deref());
        let keep_all = |map: &mut _| {
            keep_message(map, CONTAINER_STATUS, container.as_ref());
            keep_message(map, CHECK_STATUS, status.check_status.as_ref());
            keep_check_statuses(map, status.check_statuses.clone());
            keep_message(map, LIMITATION, status.limitation.as_ref());
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
            labels: read_with(status.labels.as_ref(), keep_all, reserved_keys_of_status),
        })
    }
}

/// The plain id of a container, and the rest of its status.
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

/// A container of Meros: in the network of its agent's host with this address, as Mesos' agents
/// report it without network isolation.
#[derive(Clone, Copy, Debug)]
pub struct HostContainer<'a> {
    /// Its id.
    pub id: Option<&'a protocol::ContainerId>,
    /// The address, if known.
    pub address: Option<IpAddr>,
}

impl HostContainer<'_> {
    /// Whether neither is known.
    fn is_unknown(&self) -> bool {
        self.id.is_none() && self.address.is_none()
    }
}

/// The container of a status as its executor reported it, completed with the defaults of our
/// containers; none if nothing is known.
pub fn container_status(status: &Status) -> Option<ContainerDescription<'_>> {
    let own = HostContainer {
        id: status.container_id.as_ref(),
        address: status.address,
    };
    let Some(mut reported) = messages::container(&status.labels) else {
        return (!own.is_unknown()).then_some(ContainerDescription::Default(own));
    };
    let own = schema::ContainerStatus::from(own);
    reported.container_id = reported.container_id.or(own.container_id);
    if reported.network_infos.is_empty() {
        reported.network_infos = own.network_infos;
    }
    Some(ContainerDescription::Reported(Box::new(reported)))
}

/// The container of a status.
#[derive(Clone, Debug)]
pub enum ContainerDescription<'a> {
    /// Not reported by the executor.
    Default(HostContainer<'a>),
    /// Reported by the executor.
    Reported(Box<schema::ContainerStatus>),
}

impl Describe<schema::ContainerStatus> for ContainerDescription<'_> {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, schema::ContainerStatus, O>) {
        match self {
            Self::Default(own) => own.describe(fields),
            Self::Reported(reported) => reported.as_ref().describe(fields),
        }
    }
}

impl Describe<schema::ContainerStatus> for HostContainer<'_> {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, schema::ContainerStatus, O>) {
        let networks = self.address.iter().map(|address| Network(*address));
        fields
            .network_infos(Each(networks))
            .container_id(self.id.map(schema::ContainerID::from));
    }
}

impl From<HostContainer<'_>> for schema::ContainerStatus {
    fn from(container_status: HostContainer<'_>) -> Self {
        build(&container_status)
    }
}

/// The network of a host with this address.
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
        build(&moment)
    }
}

impl Describe<schema::TaskStatus> for Status {
    /// The `termination` of the process is only in the message.
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
            .container_status(container_status(self))
            .unreachable_time(self.unreachable_since)
            .check_status(check_status(&self.labels))
            .limitation(limitation(&self.labels))
            .check_statuses(Each(check_statuses(&self.labels)));
    }
}

impl From<&Status> for schema::TaskStatus {
    fn from(status: &Status) -> Self {
        build(status)
    }
}
