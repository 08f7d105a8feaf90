//! Agents and frameworks in the state pages (keys as in Mesos).
//!
//! Pure. Written directly into the page. Unknown values have no key, as in Mesos.

use std::sync::Arc;

use protocol::{AgentId, AgentInfo, FrameworkInfo};
use resources::Resources;
use resources::json::{ResourcesObject, attributes_object};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Error;
use v1::answer_cache::Identity;
use v1::convert::legacy::in_both_forms;
use v1::convert::{AGENT_CAPABILITIES, constraints, labels, write_resources};
use v1::json::Json;
use v1::schema::DrainInfo;
use v1::v0::{self, LabelList};

use super::page::{Entries, Object};
use super::pieces::{ExecutorEntry, List, OfferEntry, Reserved, TaskEntry};
use super::visible::{VisibleExecutor, VisibleState, VisibleTasks, identity};
use crate::agents::Agent;
use crate::frameworks::Framework;
use crate::state::sum;
use crate::tasks::Task;

/// A registered agent.
pub(in crate::api) struct AgentEntry<'a> {
    pub visible: VisibleState<'a>,
    pub agent: &'a Agent,
    /// Includes the full description of each resource.
    pub in_full: bool,
}

impl AgentEntry<'_> {
    /// Writes its entries; others may follow.
    pub fn write<M: SerializeMap>(&self, object: &mut M) -> Result<(), M::Error> {
        let Self {
            visible,
            agent,
            in_full,
        } = *self;
        let info = &agent.info;
        let total = &info.resources + &agent.oversubscribed;
        let (used, offered) = (visible.used_on(agent), visible.offered_of(agent));
        let unreserved = total.unreserved();
        write_agent(object, &agent.id, info)?;
        object.serialize_entry("pid", &agent.mesos_pid())?;
        object.serialize_entry("registered_time", &agent.registered.as_secs_f64())?;
        if let Some(time) = agent.reregistered {
            object.serialize_entry("reregistered_time", &time.as_secs_f64())?;
        }
        object.serialize_entry("resources", &ResourcesObject(&total))?;
        object.serialize_entry("used_resources", &ResourcesObject(&used))?;
        object.serialize_entry("offered_resources", &ResourcesObject(&offered))?;
        object.serialize_entry("reserved_resources", &Reserved(&total, visible))?;
        object.serialize_entry("unreserved_resources", &ResourcesObject(&unreserved))?;
        if in_full {
            let reserved = ReservedInFull(&total, visible);
            object.serialize_entry("reserved_resources_full", &reserved)?;
            object.serialize_entry("unreserved_resources_full", &InFull(&unreserved))?;
            object.serialize_entry("used_resources_full", &InFull(&visible.resources(&used)))?;
            let offered = visible.resources(&offered);
            object.serialize_entry("offered_resources_full", &InFull(&offered))?;
        }
        object.serialize_entry("active", &agent.is_active())?;
        object.serialize_entry("deactivated", &agent.orders.deactivated)?;
        if let Some(drain) = &agent.orders.drain {
            object.serialize_entry("drain_info", &Json(&DrainInfo::from(drain)))?;
            let since = drain.since.as_secs_f64();
            object.serialize_entry("estimated_drain_start_time_seconds", &since)?;
        }
        object.serialize_entry("version", v1::MESOS_VERSION)?;
        object.serialize_entry("meros_version", &agent.version)?;
        object.serialize_entry("capabilities", &AGENT_CAPABILITIES)
    }
}

impl Serialize for AgentEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        self.write(&mut object)?;
        object.end()
    }
}

/// An agent in the registry that has not returned.
pub(in crate::api) struct AwaitedEntry<'a>(pub &'a AgentId, pub &'a AgentInfo);

impl Serialize for AwaitedEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        write_agent(&mut object, self.0, self.1)?;
        object.serialize_entry("resources", &ResourcesObject(&self.1.resources))?;
        object.end()
    }
}

fn write_agent<M: SerializeMap>(
    object: &mut M,
    id: &AgentId,
    info: &AgentInfo,
) -> Result<(), M::Error> {
    object.serialize_entry("id", id)?;
    object.serialize_entry("hostname", &info.hostname)?;
    object.serialize_entry("port", &info.port)?;
    object.serialize_entry("attributes", &attributes_object(&info.attributes))?;
    match &info.domain {
        Some(domain) => object.serialize_entry("domain", &v0::domain(domain)),
        None => Ok(()),
    }
}

/// Resources as JSON objects.
struct InFull<'a>(&'a Resources);

impl Serialize for InFull<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut resources = write_resources(self.0);
        in_both_forms(&mut resources);
        serializer.collect_seq(resources.iter().map(|one| Json(one)))
    }
}

/// Reserved resources as JSON objects, by role.
struct ReservedInFull<'a>(&'a Resources, VisibleState<'a>);

impl Serialize for ReservedInFull<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        for (role, reserved) in self.1.reservations(self.0) {
            object.serialize_entry(role.as_str(), &InFull(&reserved))?;
        }
        object.end()
    }
}

/// A framework with its tasks, offers and executors. Without `pid`, like HTTP frameworks in Mesos:
/// no scheduler listens at an address, and tools that read pids (Mesos-DNS) fail on any other
/// value.
pub(in crate::api) struct FrameworkEntry<'a> {
    pub visible: VisibleState<'a>,
    pub framework: &'a Framework,
    pub tasks: VisibleTasks<'a>,
    pub executors: &'a [VisibleExecutor<'a>],
}

impl FrameworkEntry<'_> {
    /// Writes the entries other than tasks; others may follow.
    pub fn write<M: SerializeMap>(&self, object: &mut M) -> Result<(), M::Error> {
        let framework = self.framework;
        let of_executors = self.executors.iter().map(|one| &one.info.resources);
        let used = sum(self.tasks.used().into_iter().chain(of_executors));
        let offers = self.visible.offers(&framework.id);
        let offered = sum(offers.map(|offer| &offer.resources));
        let info = &framework.info;
        object.serialize_entry("id", &framework.id)?;
        object.serialize_entry("name", &info.name)?;
        object.serialize_entry("used_resources", &ResourcesObject(&used))?;
        object.serialize_entry("offered_resources", &ResourcesObject(&offered))?;
        object.serialize_entry("resources", &ResourcesObject(&(&used + &offered)))?;
        let capabilities = List(|| info.capabilities.iter().map(|one| one.name()));
        object.serialize_entry("capabilities", &capabilities)?;
        object.serialize_entry("hostname", &info.hostname)?;
        object.serialize_entry("webui_url", info.webui_url.as_deref().unwrap_or_default())?;
        object.serialize_entry("active", &framework.is_connected())?;
        object.serialize_entry("connected", &framework.is_connected())?;
        object.serialize_entry("recovered", &framework.recovered)?;
        object.serialize_entry("user", &info.user)
    }
}

impl Entries for FrameworkEntry<'_> {
    fn put(&self, object: &mut Object<'_>) -> Result<(), Error> {
        let (framework, info, tasks) = (self.framework, &self.framework.info, self.tasks);
        self.write(object)?;
        let timeout = info.failover_timeout.as_secs_f64();
        object.serialize_entry("failover_timeout", &timeout)?;
        object.serialize_entry("checkpoint", &info.checkpoint)?;
        object.serialize_entry("registered_time", &framework.registered.as_secs_f64())?;
        let unregistered = framework
            .unregistered
            .map_or(0.0, |time| time.as_secs_f64());
        object.serialize_entry("unregistered_time", &unregistered)?;
        if let Some(time) = framework.reregistered {
            object.serialize_entry("reregistered_time", &time.as_secs_f64())?;
        }
        if let Some(principal) = &info.principal {
            object.serialize_entry("principal", principal)?;
        }
        object.serialize_entry("roles", &info.roles)?;
        if let Some(role) = only_role(info) {
            object.serialize_entry("role", role)?;
        }
        object.serialize_entry("labels", &LabelList(labels(&info.labels)))?;
        let constraints = constraints(&framework.wants.demands);
        object.serialize_entry("offer_constraints", &Json(&constraints))?;
        let all = tasks.identity();
        object.pieces("tasks", all, tasks.running().map(task_piece))?;
        object.pieces("completed_tasks", all, tasks.ended().map(task_piece))?;
        let unreachable = tasks.unreachable().map(task_piece);
        object.pieces("unreachable_tasks", all, unreachable)?;
        let offers = self.visible.offers(&framework.id);
        let offers = offers.map(|offer| (identity(offer), OfferEntry(offer)));
        object.pieces("offers", None, offers)?;
        let executors = List(|| self.executors.iter().copied().map(ExecutorEntry));
        object.serialize_entry("executors", &executors)
    }
}

fn task_piece(task: &Arc<Task>) -> (Option<Identity>, TaskEntry<'_>) {
    (identity(task), TaskEntry(task))
}

/// The role of a framework with exactly one.
fn only_role(info: &FrameworkInfo) -> Option<&String> {
    match info.roles.len() {
        1 => info.roles.first(),
        _ => None,
    }
}
