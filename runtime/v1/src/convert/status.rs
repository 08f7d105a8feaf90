//! How tasks are.

use std::net::IpAddr;

use protocol::{Source, TaskStatus as Status};
use resources::Invalid;
use runtime::Timestamp;

use super::ids::uuid;
use super::{At, read_labels, read_seconds, refuse, some, write_labels};
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
            address: container.and_then(|container| only_address(&container.network_infos)),
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

/// The address of the network that a container is in, where its status names one. What else executors say of their containers' networks, their agent knows better.
fn only_address(networks: &[schema::NetworkInfo]) -> Option<IpAddr> {
    let mut addresses = networks.iter().flat_map(|network| &network.ip_addresses);
    let first = addresses.next()?.ip_address.as_ref()?;
    first.parse().ok()
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
        let contained = Contained {
            id: self.container_id.as_ref(),
            address: self.address,
        };
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
            .labels(write_labels(&self.labels))
            .container_status((!contained.is_unknown()).then_some(contained))
            .unreachable_time(self.unreachable_since);
    }
}

impl From<&Status> for schema::TaskStatus {
    fn from(status: &Status) -> Self {
        made(status)
    }
}
