//! The state pages, rendered from the visible state (keys as in Mesos).
//!
//! Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ::http::build;
use protocol::agent::Domain;
use protocol::{FrameworkId, TaskState};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Error, json};
use v1::answer_cache::Identity;
use v1::convert::{MASTER_CAPABILITIES, pid};
use v1::v0::domain;

use super::role_json;
use crate::api::PublishedFlags;
use crate::api::pages::entries::{AgentEntry, AwaitedEntry, FrameworkEntry};
use crate::api::pages::page::{Entries, Object};
use crate::api::pages::pieces::{List, TaskEntry};
use crate::api::pages::visible::{VisibleExecutor, VisibleState, VisibleTasks};
use crate::frameworks::Framework;
use crate::tasks::Task;

/// The bytes of a page.
pub(in crate::api) fn text(page: &impl Serialize) -> Vec<u8> {
    let mut text = Vec::with_capacity(4096);
    // Writing to memory does not fail, and all keys are strings.
    let _ = serde_json::to_writer(&mut text, page);
    text
}

/// `/state`.
pub(in crate::api) struct Whole<'a> {
    pub visible: VisibleState<'a>,
    pub published: &'a PublishedFlags,
}

impl Entries for Whole<'_> {
    fn put(&self, object: &mut Object<'_>) -> Result<(), Error> {
        let (visible, state) = (self.visible, self.visible.state);
        let master = &state.master;
        let address = master.address.map(IpAddr::from);
        let pid = pid("master", address, &master.hostname, master.port);
        let mut info = json!({ "id": master.id, "pid": pid, "port": master.port, "hostname": master.hostname });
        let active = visible.agents().filter(|agent| agent.is_active()).count();
        let inactive = visible.agents().count() - active;
        object.serialize_entry("version", v1::MESOS_VERSION)?;
        object.serialize_entry("meros_version", &master.version)?;
        // A build contains no location, so that equal sources give equal programs.
        for key in ["git_sha", "git_branch", "git_tag", "build_user"] {
            object.serialize_entry(key, "")?;
        }
        object.serialize_entry("build_date", &build::date())?;
        object.serialize_entry("build_time", &(build::time() as f64))?;
        object.serialize_entry("start_time", &state.started.as_secs_f64())?;
        object.serialize_entry("elected_time", &state.elected.as_secs_f64())?;
        object.serialize_entry("id", &master.id)?;
        object.serialize_entry("pid", &pid)?;
        object.serialize_entry("hostname", &master.hostname)?;
        object.serialize_entry("capabilities", &MASTER_CAPABILITIES)?;
        object.serialize_entry("activated_slaves", &(active as f64))?;
        object.serialize_entry("deactivated_slaves", &(inactive as f64))?;
        let unreachable = state.agents.unreachable().len();
        object.serialize_entry("unreachable_slaves", &(unreachable as f64))?;
        if let Some(own) = own_domain(self.published) {
            info["domain"] = domain(&own);
            object.serialize_entry("domain", &domain(&own))?;
        }
        object.serialize_entry("leader", &pid)?;
        object.serialize_entry("leader_info", &info)?;
        if let Some(cluster) = self.published.flags.get("cluster") {
            object.serialize_entry("cluster", cluster)?;
        }
        object.serialize_entry("flags", &self.published.flags)?;
        object.pieces("slaves", None, agents(visible, false))?;
        object.serialize_entry("recovered_slaves", &List(|| awaited(visible)))?;
        write_frameworks(object, visible, None)?;
        object.serialize_entry("orphan_tasks", &[(); 0])?;
        object.serialize_entry("unregistered_frameworks", &[(); 0])
    }
}

/// The master's fault domain from its flag.
fn own_domain(published: &PublishedFlags) -> Option<Domain> {
    let (region, zone) = published.flags.get("domain")?.split_once('/')?;
    Some(Domain {
        region: region.to_owned(),
        zone: zone.to_owned(),
    })
}

fn agents(
    visible: VisibleState<'_>,
    in_full: bool,
) -> impl Iterator<Item = (Option<Identity>, AgentEntry<'_>)> {
    let entry = move |agent| AgentEntry {
        visible,
        agent,
        in_full,
    };
    let agents = visible.agents();
    agents.map(move |agent| (visible.identity(agent), entry(agent)))
}

fn awaited(visible: VisibleState<'_>) -> impl Iterator<Item = AwaitedEntry<'_>> {
    visible.awaited().map(|(id, info)| AwaitedEntry(id, info))
}

/// Current and ended frameworks, or only the one with this id.
fn write_frameworks(
    object: &mut Object<'_>,
    visible: VisibleState<'_>,
    only: Option<&str>,
) -> Result<(), Error> {
    let is_wanted = |framework: &Framework| only.is_none_or(|id| framework.id.as_str() == id);
    let mut executors: BTreeMap<&FrameworkId, Vec<VisibleExecutor<'_>>> = BTreeMap::new();
    for executor in visible.executors() {
        executors
            .entry(executor.framework)
            .or_default()
            .push(executor);
    }
    let of = |id| executors.get(id).map_or(&[][..], Vec::as_slice);
    let frameworks = visible.frameworks().filter(|one| is_wanted(one));
    let frameworks = frameworks.map(|framework| FrameworkEntry {
        visible,
        framework,
        tasks: visible.tasks(&framework.id),
        executors: of(&framework.id),
    });
    object.objects("frameworks", frameworks)?;
    let completed = visible.completed().filter(|one| is_wanted(&one.framework));
    let completed = completed.map(|one| FrameworkEntry {
        visible,
        framework: &one.framework,
        tasks: VisibleTasks::of(one),
        executors: &[],
    });
    object.objects("completed_frameworks", completed)
}

/// `/slaves`.
pub(in crate::api) struct Slaves<'a>(pub VisibleState<'a>);

impl Entries for Slaves<'_> {
    fn put(&self, object: &mut Object<'_>) -> Result<(), Error> {
        object.pieces("slaves", None, agents(self.0, true))?;
        object.serialize_entry("recovered_slaves", &List(|| awaited(self.0)))
    }
}

/// `/slaves?slave_id=`: that agent, if it exists.
pub(in crate::api) struct OneSlave<'a>(pub VisibleState<'a>, pub &'a str);

impl Entries for OneSlave<'_> {
    fn put(&self, object: &mut Object<'_>) -> Result<(), Error> {
        let Self(visible, id) = *self;
        let agents = agents(visible, true).filter(|(_, entry)| entry.agent.id.as_str() == id);
        object.pieces("slaves", None, agents)?;
        let awaited = || awaited(visible).filter(|AwaitedEntry(own, _)| own.as_str() == id);
        object.serialize_entry("recovered_slaves", &List(awaited))
    }
}

/// `/frameworks?framework_id=`: that framework, current or ended.
pub(in crate::api) struct OneFramework<'a>(pub VisibleState<'a>, pub &'a str);

impl Entries for OneFramework<'_> {
    fn put(&self, object: &mut Object<'_>) -> Result<(), Error> {
        write_frameworks(object, self.0, Some(self.1))?;
        object.serialize_entry("unregistered_frameworks", &[(); 0])
    }
}

/// `/frameworks`.
pub(in crate::api) struct Frameworks<'a>(pub VisibleState<'a>);

impl Entries for Frameworks<'_> {
    fn put(&self, object: &mut Object<'_>) -> Result<(), Error> {
        write_frameworks(object, self.0, None)?;
        object.serialize_entry("unregistered_frameworks", &[(); 0])
    }
}

/// `/tasks`: some of all remembered tasks.
pub(in crate::api) struct Tasks<'a>(pub Vec<&'a Task>);

impl Serialize for Tasks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        let tasks = List(|| self.0.iter().map(|task| TaskEntry(task)));
        object.serialize_entry("tasks", &tasks)?;
        object.end()
    }
}

/// All remembered tasks.
pub(in crate::api) fn all_tasks(visible: VisibleState<'_>) -> impl Iterator<Item = &Task> {
    let all = visible.all_tasks().flat_map(VisibleTasks::all);
    all.map(AsRef::as_ref)
}

/// `/state-summary`.
pub(in crate::api) struct Summary<'a> {
    pub visible: VisibleState<'a>,
    pub published: &'a PublishedFlags,
}

impl Serialize for Summary<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let visible = self.visible;
        let mut on_agent: BTreeMap<&str, Tally<'_>> = BTreeMap::new();
        let mut of_framework: BTreeMap<&str, Tally<'_>> = BTreeMap::new();
        // Tasks of ended frameworks are not counted, as in Mesos: the page does not list these
        // frameworks.
        let tasks = visible.frameworks().map(|one| visible.tasks(&one.id));
        for task in tasks.flat_map(VisibleTasks::all) {
            let (agent, framework) = (task.agent_id.as_str(), task.framework_id.as_str());
            let on_agent = on_agent.entry(agent).or_default();
            on_agent.add(task.state, framework);
            let of_framework = of_framework.entry(framework).or_default();
            of_framework.add(task.state, agent);
        }
        let none = Tally::default();
        let slaves = || {
            visible.agents().map(|agent| Tallied {
                entry: AgentEntry {
                    visible,
                    agent,
                    in_full: false,
                },
                tally: on_agent.get(agent.id.as_str()).unwrap_or(&none),
                ids: "framework_ids",
            })
        };
        let frameworks = || {
            visible.frameworks().map(|framework| Tallied {
                entry: FrameworkEntry {
                    visible,
                    framework,
                    tasks: visible.tasks(&framework.id),
                    executors: &[],
                },
                tally: of_framework.get(framework.id.as_str()).unwrap_or(&none),
                ids: "slave_ids",
            })
        };
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("hostname", &visible.state.master.hostname)?;
        if let Some(cluster) = self.published.flags.get("cluster") {
            object.serialize_entry("cluster", cluster)?;
        }
        object.serialize_entry("slaves", &List(slaves))?;
        object.serialize_entry("frameworks", &List(frameworks))?;
        object.end()
    }
}

/// Numbers of tasks by state, with the ids of their agents or frameworks.
#[derive(Default)]
struct Tally<'a> {
    states: BTreeMap<TaskState, u64>,
    ids: BTreeSet<&'a str>,
}

impl<'a> Tally<'a> {
    fn add(&mut self, state: TaskState, id: &'a str) {
        *self.states.entry(state).or_default() += 1;
        self.ids.insert(id);
    }
}

/// An agent or a framework with its numbers of tasks.
struct Tallied<'a, E> {
    entry: E,
    tally: &'a Tally<'a>,
    ids: &'static str,
}

impl<E: Entry> Serialize for Tallied<'_, E> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use TaskState::*;
        let mut object = serializer.serialize_map(None)?;
        self.entry.begin(&mut object)?;
        for state in [
            Staging,
            Starting,
            Running,
            Killing,
            Finished,
            Killed,
            Failed,
            Lost,
            Error,
            Unreachable,
        ] {
            let count = self.tally.states.get(&state).copied().unwrap_or(0);
            object.serialize_entry(state.name(), &count)?;
        }
        object.serialize_entry(self.ids, &self.tally.ids)?;
        object.end()
    }
}

/// An entry of the summary.
trait Entry {
    /// Writes its entries; others follow.
    fn begin<M: SerializeMap>(&self, object: &mut M) -> Result<(), M::Error>;
}

impl Entry for AgentEntry<'_> {
    fn begin<M: SerializeMap>(&self, object: &mut M) -> Result<(), M::Error> {
        self.write(object)
    }
}

impl Entry for FrameworkEntry<'_> {
    fn begin<M: SerializeMap>(&self, object: &mut M) -> Result<(), M::Error> {
        self.write(object)
    }
}

/// `/roles`.
pub(in crate::api) struct Roles<'a>(pub VisibleState<'a>);

impl Serialize for Roles<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let roles = self.0.roles();
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("roles", &List(|| roles.iter().map(role_json::role)))?;
        object.end()
    }
}

#[cfg(test)]
mod tests {
    use ::http::testing::{fetch, request};
    use runtime::testing::simulate;
    use serde_json::{Value, json};

    use crate::api::tests::{all_routes, master, pages};

    /// SPEC 3.9: Mesos' tools ask for one object by id, and use the first in the list.
    // Covers 3.9 `/slaves`, `/frameworks`.
    #[test]
    fn single_agent_or_framework_is_shown_by_id() {
        simulate(|node| async move {
            let master = master(&node).await;
            let routes = all_routes(&node, pages(&node, &master));
            let get = async |path: String| {
                let (status, text) = fetch(&routes, request("GET", &path, "", "")).await;
                assert_eq!(status, 200, "{path}: {text}");
                serde_json::from_str::<Value>(&text).unwrap()
            };
            for (path, name, list, other) in [
                ("/slaves", "slave_id", "slaves", "recovered_slaves"),
                (
                    "/master/frameworks",
                    "framework_id",
                    "frameworks",
                    "completed_frameworks",
                ),
            ] {
                let all = get(path.to_owned()).await;
                let id = all[list][0]["id"].as_str().unwrap();
                assert_eq!(get(format!("{path}?{name}={id}")).await, all);
                let none = get(format!("{path}?{name}=nobody")).await;
                assert_eq!((&none[list], &none[other]), (&json!([]), &json!([])));
            }
        });
    }
}
