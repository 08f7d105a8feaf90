//! The pages themselves, each written of what is shown of the books (SPEC 3.12, keys verbatim).
//!
//! Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ::http::build;
use protocol::agent::Domain;
use protocol::{FrameworkId, TaskState};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Error, json};
use v1::convert::{MASTER_CAPABILITIES, pid};
use v1::pieces::Identity;
use v1::v0::domain;

use super::entries::{AgentEntry, AwaitedEntry, FrameworkEntry};
use super::page::{Entries, Object};
use super::pieces::{List, TaskEntry};
use super::shown::{ExecutorShown, Shown, TasksShown};
use super::{Chosen, words};
use crate::frameworks::Framework;
use crate::tasks::Task;

/// The bytes of a page.
pub(super) fn text(page: &impl Serialize) -> Vec<u8> {
    let mut text = Vec::with_capacity(4096);
    // Writing into memory does not fail, and no key is anything but text.
    let _ = serde_json::to_writer(&mut text, page);
    text
}

/// `/state`.
pub(super) struct Whole<'a> {
    pub shown: Shown<'a>,
    pub chosen: &'a Chosen,
}

impl Entries for Whole<'_> {
    fn put(&self, object: &mut Object<'_>) -> Result<(), Error> {
        let (shown, books) = (self.shown, self.shown.books);
        let master = &books.master;
        let address = master.address.map(IpAddr::from);
        let pid = pid("master", address, &master.hostname, master.port);
        let mut info = json!({ "id": master.id, "pid": pid, "port": master.port, "hostname": master.hostname });
        let active = shown.agents().filter(|agent| agent.is_active()).count();
        let inactive = shown.agents().count() - active;
        object.serialize_entry("version", v1::MESOS_VERSION)?;
        object.serialize_entry("meros_version", &master.version)?;
        // A build bears no place, so that the same source is the same program.
        for key in ["git_sha", "git_branch", "git_tag", "build_user"] {
            object.serialize_entry(key, "")?;
        }
        object.serialize_entry("build_date", &build::date())?;
        object.serialize_entry("build_time", &(build::time() as f64))?;
        object.serialize_entry("start_time", &books.started.as_secs_f64())?;
        object.serialize_entry("elected_time", &books.elected.as_secs_f64())?;
        object.serialize_entry("id", &master.id)?;
        object.serialize_entry("pid", &pid)?;
        object.serialize_entry("hostname", &master.hostname)?;
        object.serialize_entry("capabilities", &MASTER_CAPABILITIES)?;
        object.serialize_entry("activated_slaves", &(active as f64))?;
        object.serialize_entry("deactivated_slaves", &(inactive as f64))?;
        let unreachable = books.agents.unreachable().len();
        object.serialize_entry("unreachable_slaves", &(unreachable as f64))?;
        if let Some(own) = own_domain(self.chosen) {
            info["domain"] = domain(&own);
            object.serialize_entry("domain", &domain(&own))?;
        }
        object.serialize_entry("leader", &pid)?;
        object.serialize_entry("leader_info", &info)?;
        if let Some(cluster) = self.chosen.flags.get("cluster") {
            object.serialize_entry("cluster", cluster)?;
        }
        object.serialize_entry("flags", &self.chosen.flags)?;
        object.pieces("slaves", None, agents(shown, false))?;
        object.serialize_entry("recovered_slaves", &List(|| awaited(shown)))?;
        write_frameworks(object, shown, None)?;
        object.serialize_entry("orphan_tasks", &[(); 0])?;
        object.serialize_entry("unregistered_frameworks", &[(); 0])
    }
}

/// Where the master lies, as its flag says.
fn own_domain(chosen: &Chosen) -> Option<Domain> {
    let (region, zone) = chosen.flags.get("domain")?.split_once('/')?;
    Some(Domain {
        region: region.to_owned(),
        zone: zone.to_owned(),
    })
}

fn agents(
    shown: Shown<'_>,
    in_full: bool,
) -> impl Iterator<Item = (Option<Identity>, AgentEntry<'_>)> {
    let entry = move |agent| AgentEntry {
        shown,
        agent,
        in_full,
    };
    let agents = shown.agents();
    agents.map(move |agent| (shown.identity(agent), entry(agent)))
}

fn awaited(shown: Shown<'_>) -> impl Iterator<Item = AwaitedEntry<'_>> {
    shown.awaited().map(|(id, info)| AwaitedEntry(id, info))
}

/// The frameworks that have not ended, and the ones that have; or of them the one with this id.
fn write_frameworks(
    object: &mut Object<'_>,
    shown: Shown<'_>,
    only: Option<&str>,
) -> Result<(), Error> {
    let is_wanted = |framework: &Framework| only.is_none_or(|id| framework.id.as_str() == id);
    let mut executors: BTreeMap<&FrameworkId, Vec<ExecutorShown<'_>>> = BTreeMap::new();
    for executor in shown.executors() {
        executors
            .entry(executor.framework)
            .or_default()
            .push(executor);
    }
    let of = |id| executors.get(id).map_or(&[][..], Vec::as_slice);
    let frameworks = shown.frameworks().filter(|one| is_wanted(one));
    let frameworks = frameworks.map(|framework| FrameworkEntry {
        shown,
        framework,
        tasks: shown.tasks(&framework.id),
        executors: of(&framework.id),
    });
    object.objects("frameworks", frameworks)?;
    let completed = shown.completed().filter(|one| is_wanted(&one.framework));
    let completed = completed.map(|one| FrameworkEntry {
        shown,
        framework: &one.framework,
        tasks: TasksShown::of(one),
        executors: &[],
    });
    object.objects("completed_frameworks", completed)
}

/// `/slaves`.
pub(super) struct Slaves<'a>(pub Shown<'a>);

impl Entries for Slaves<'_> {
    fn put(&self, object: &mut Object<'_>) -> Result<(), Error> {
        object.pieces("slaves", None, agents(self.0, true))?;
        object.serialize_entry("recovered_slaves", &List(|| awaited(self.0)))
    }
}

/// `/slaves?slave_id=`: that one, if it is there.
pub(super) struct OneSlave<'a>(pub Shown<'a>, pub &'a str);

impl Entries for OneSlave<'_> {
    fn put(&self, object: &mut Object<'_>) -> Result<(), Error> {
        let Self(shown, id) = *self;
        let agents = agents(shown, true).filter(|(_, entry)| entry.agent.id.as_str() == id);
        object.pieces("slaves", None, agents)?;
        let awaited = || awaited(shown).filter(|AwaitedEntry(own, _)| own.as_str() == id);
        object.serialize_entry("recovered_slaves", &List(awaited))
    }
}

/// `/frameworks?framework_id=`: that one, if it is there or was.
pub(super) struct OneFramework<'a>(pub Shown<'a>, pub &'a str);

impl Entries for OneFramework<'_> {
    fn put(&self, object: &mut Object<'_>) -> Result<(), Error> {
        write_frameworks(object, self.0, Some(self.1))?;
        object.serialize_entry("unregistered_frameworks", &[(); 0])
    }
}

/// `/frameworks`.
pub(super) struct Frameworks<'a>(pub Shown<'a>);

impl Entries for Frameworks<'_> {
    fn put(&self, object: &mut Object<'_>) -> Result<(), Error> {
        write_frameworks(object, self.0, None)?;
        object.serialize_entry("unregistered_frameworks", &[(); 0])
    }
}

/// `/tasks`: some of all that are remembered.
pub(super) struct Tasks<'a>(pub Vec<&'a Task>);

impl Serialize for Tasks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        let tasks = List(|| self.0.iter().map(|task| TaskEntry(task)));
        object.serialize_entry("tasks", &tasks)?;
        object.end()
    }
}

/// All tasks that are remembered.
pub(super) fn all_tasks(shown: Shown<'_>) -> impl Iterator<Item = &Task> {
    let all = shown.all_tasks().flat_map(TasksShown::all);
    all.map(AsRef::as_ref)
}

/// `/state-summary`.
pub(super) struct Summary<'a> {
    pub shown: Shown<'a>,
    pub chosen: &'a Chosen,
}

impl Serialize for Summary<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let shown = self.shown;
        let mut on_agent: BTreeMap<&str, Tally<'_>> = BTreeMap::new();
        let mut of_framework: BTreeMap<&str, Tally<'_>> = BTreeMap::new();
        // Those of frameworks that are no more are counted nowhere, as in Mesos: the page does not name them.
        let tasks = shown.frameworks().map(|one| shown.tasks(&one.id));
        for task in tasks.flat_map(TasksShown::all) {
            let (agent, framework) = (task.agent_id.as_str(), task.framework_id.as_str());
            let on_agent = on_agent.entry(agent).or_default();
            on_agent.add(task.state, framework);
            let of_framework = of_framework.entry(framework).or_default();
            of_framework.add(task.state, agent);
        }
        let none = Tally::default();
        let slaves = || {
            shown.agents().map(|agent| Tallied {
                entry: AgentEntry {
                    shown,
                    agent,
                    in_full: false,
                },
                tally: on_agent.get(agent.id.as_str()).unwrap_or(&none),
                ids: "framework_ids",
            })
        };
        let frameworks = || {
            shown.frameworks().map(|framework| Tallied {
                entry: FrameworkEntry {
                    shown,
                    framework,
                    tasks: shown.tasks(&framework.id),
                    executors: &[],
                },
                tally: of_framework.get(framework.id.as_str()).unwrap_or(&none),
                ids: "slave_ids",
            })
        };
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("hostname", &shown.books.master.hostname)?;
        if let Some(cluster) = self.chosen.flags.get("cluster") {
            object.serialize_entry("cluster", cluster)?;
        }
        object.serialize_entry("slaves", &List(slaves))?;
        object.serialize_entry("frameworks", &List(frameworks))?;
        object.end()
    }
}

/// How many tasks are in each state, and where or whose they are.
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

/// An agent or a framework with its tasks in numbers.
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

/// What can be told in short.
trait Entry {
    /// Its keys and values, to which others are added.
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
pub(super) struct Roles<'a>(pub Shown<'a>);

impl Serialize for Roles<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let roles = self.0.roles();
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("roles", &List(|| roles.iter().map(words::role)))?;
        object.end()
    }
}

#[cfg(test)]
mod tests {
    use ::http::rehearsal::{request, said};
    use runtime::rehearsal::rehearse;
    use serde_json::{Value, json};

    use super::super::tests::{all_routes, master, pages};

    /// SPEC 3.9: tools of Mesos ask for one by its id, and take the first that they are told.
    #[test]
    fn one_agent_or_one_framework_is_shown_where_its_id_is_asked_for() {
        rehearse(|node| async move {
            let master = master(&node).await;
            let routes = all_routes(&node, pages(&node, &master));
            let get = async |path: String| {
                let (status, text) = said(&routes, request("GET", &path, "", "")).await;
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
