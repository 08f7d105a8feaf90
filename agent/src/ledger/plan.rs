//! What an agent makes of what an earlier process of it has left: who it is, which executors to wait for, which tasks are over. Pure.
//!
//! The launcher knows for certain which containers still live: it is the parent of their executors, and has outlived the earlier agent. What it
//! does not have is over, be it that the machine was started anew.

use std::collections::{BTreeMap, BTreeSet};

use protocol::{AgentInfo, ContainerId, FrameworkId, StatusUpdate, TaskId};

use super::reconfiguration::{Incompatible, ReconfigurationPolicy};
use super::record::{AgentRecord, Entry, Found, FoundContainer, Key};
use crate::launcher::Left;

/// Why a container is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Its processes are gone, nobody knows how.
    Ended,
    /// Its machine was started anew.
    Rebooted,
}

/// What is to be done with a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its executor should subscribe again; this is its first process, if that still lives. If not, its end is told next.
    Await(Option<i32>),
    /// Its live tasks have ended.
    Lost(Lost),
}

/// What an agent goes on with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Who the agent is, with its id; `None` if it begins anew.
    pub agent: Option<AgentInfo>,
    /// What is to be written of it before it goes on, since it is described otherwise than it was: whoever comes after it is compared with
    /// what it was told to be last, whether or not it has started anything.
    pub rewrite: Option<AgentRecord>,
    /// Containers with their tasks, and what is to be done with each.
    pub containers: Vec<(ContainerId, FoundContainer, Fate)>,
    /// Containers that run and that nothing is known of: they must end.
    pub strangers: Vec<ContainerId>,
    /// Updates that are not acknowledged, in the order in which they came.
    pub updates: BTreeMap<u64, StatusUpdate>,
    /// Records that nobody needs any more.
    pub forget: Vec<Entry>,
}

/// What to go on with, of what was found, what the launcher has, the machine's boot id and how the agent is described now, which may
/// differ from what it was by this policy.
pub fn plan(
    found: Found,
    left: &[Left],
    boot: &str,
    described: &AgentInfo,
    policy: ReconfigurationPolicy,
) -> Result<Plan, Incompatible> {
    let living: BTreeMap<&ContainerId, Option<i32>> = left
        .iter()
        .map(|left| (&left.container_id, left.pid))
        .collect();
    let known = |id: &ContainerId| found.containers.contains_key(id);
    let strangers: Vec<ContainerId> = living
        .keys()
        .filter(|id| !known(id))
        .map(|&id| id.clone())
        .collect();
    let lives = found.containers.keys().any(|id| living.contains_key(id));
    let differs = match &found.agent {
        Some(agent) => policy.difference(&agent.info, described),
        None => Some(Incompatible {
            field: "the agent's id",
            was: "known".to_owned(),
            is: "lost".to_owned(),
        }),
    };
    let own = found.agent.as_ref().map(|_| Key::Agent);
    let agent = match (found.agent, differs) {
        (_, Some(differs)) if lives => return Err(differs),
        (Some(agent), None) => agent,
        // Nothing runs any more: it begins anew, and its master says of the old tasks that they are gone.
        (_, _) => {
            let containers = found.containers.iter();
            let of_containers = containers.flat_map(|(id, container)| everything(id, container));
            let updates = found.updates.keys().map(|&number| Key::Update(number));
            let all = of_containers.chain(updates).chain(found.loose);
            return Ok(Plan {
                strangers,
                forget: all.chain(own).map(Entry::Remove).collect(),
                ..Plan::default()
            });
        }
    };
    let lost = match agent.boot == boot {
        true => Lost::Ended,
        false => Lost::Rebooted,
    };
    let mut forget = found.loose;
    let ends: BTreeSet<(FrameworkId, TaskId)> = found
        .updates
        .values()
        .filter(|update| update.status.state.is_terminal())
        .map(|update| (update.framework_id.clone(), update.status.task_id.clone()))
        .collect();
    let mut containers = Vec::new();
    for (id, mut container) in found.containers {
        let framework = container.record.framework.id.clone();
        // Its end was acknowledged, which was not written any more.
        let (kept, closed): (Vec<_>, Vec<_>) =
            container.tasks.into_iter().partition(|(info, state)| {
                let key = framework.clone().map(|id| (id, info.task_id.clone()));
                !state.state.is_terminal() || key.is_some_and(|key| ends.contains(&key))
            });
        for (info, _) in closed {
            forget.push(Key::Task(id.clone(), info.task_id.clone()));
            forget.push(Key::State(id.clone(), info.task_id));
        }
        container.tasks = kept;
        let fate = match living.get(&id) {
            Some(&pid) => Fate::Await(pid),
            None if container.tasks.is_empty() => {
                forget.push(Key::Container(id));
                continue;
            }
            None => Fate::Lost(lost),
        };
        containers.push((id, container, fate));
    }
    let is = AgentInfo {
        id: agent.info.id.clone(),
        ..described.clone()
    };
    // With the boot id of the containers' machine: they are over, or not, by that.
    let rewrite = (is != agent.info).then(|| AgentRecord {
        info: is.clone(),
        boot: agent.boot,
    });
    Ok(Plan {
        agent: Some(is),
        rewrite,
        containers,
        strangers,
        updates: found.updates,
        forget: forget.into_iter().map(Entry::Remove).collect(),
    })
}

/// All keys of a container.
fn everything<'a>(
    id: &'a ContainerId,
    container: &'a FoundContainer,
) -> impl Iterator<Item = Key> + 'a {
    let of_task = |(info, _): &'a (protocol::TaskInfo, _)| {
        let task = info.task_id.clone();
        [
            Key::Task(id.clone(), task.clone()),
            Key::State(id.clone(), task),
        ]
    };
    let tasks = container.tasks.iter().flat_map(of_task);
    tasks.chain([Key::Container(id.clone())])
}

#[cfg(test)]
mod tests {
    use super::super::record::StateRecord;
    use super::super::record::tests::{agent, container, id, task, update};
    use super::*;
    use protocol::TaskState;

    const EQUAL: ReconfigurationPolicy = ReconfigurationPolicy::Equal;

    fn left(name: &str, pid: Option<i32>) -> Left {
        Left {
            container_id: id(name),
            pid,
        }
    }

    fn with(tasks: &[(&str, TaskState)]) -> FoundContainer {
        let tasks = tasks.iter().map(|&(name, state)| {
            let state = StateRecord {
                state,
                given: Vec::new(),
            };
            (task(name), state)
        });
        FoundContainer {
            record: container(),
            tasks: tasks.collect(),
        }
    }

    fn found(containers: &[(&str, FoundContainer)]) -> Found {
        let containers = containers.iter();
        Found {
            agent: Some(agent("boot")),
            containers: containers
                .map(|(name, container)| (id(name), container.clone()))
                .collect(),
            ..Found::default()
        }
    }

    fn described() -> AgentInfo {
        AgentInfo {
            id: None,
            ..agent("").info
        }
    }

    fn fates(plan: &Plan) -> Vec<(&str, Fate)> {
        let of = |(id, _, fate): &(ContainerId, FoundContainer, Fate)| (id.clone(), *fate);
        let all: Vec<(ContainerId, Fate)> = plan.containers.iter().map(of).collect();
        let name =
            |(at, (_, fate)): (usize, (ContainerId, Fate))| (plan.containers[at].0.as_str(), fate);
        all.into_iter().enumerate().map(name).collect()
    }

    /// SPEC 5.3.
    #[test]
    fn who_lives_is_awaited_and_who_does_not_has_ended() {
        let running = with(&[("t", TaskState::Running)]);
        let all = ["ended", "gone", "living"].map(|name| (name, running.clone()));
        let left = [
            left("living", Some(42)),
            left("ended", None),
            left("stranger", Some(43)),
        ];
        let plan = plan(found(&all), &left, "boot", &described(), EQUAL).unwrap();
        assert_eq!(plan.agent, Some(agent("").info));
        let expected = [
            ("ended", Fate::Await(None)),
            ("gone", Fate::Lost(Lost::Ended)),
            ("living", Fate::Await(Some(42))),
        ];
        assert_eq!(fates(&plan), expected);
        assert_eq!(plan.strangers, [id("stranger")]);
        assert_eq!(plan.forget, []);
    }

    /// SPEC 5.3: after a reboot nothing lives, and the agent keeps its id.
    #[test]
    fn after_a_reboot_all_executors_are_gone_and_the_id_is_kept() {
        let all = [("c", with(&[("t", TaskState::Running)]))];
        let plan = plan(found(&all), &[], "another boot", &described(), EQUAL).unwrap();
        assert_eq!(fates(&plan), [("c", Fate::Lost(Lost::Rebooted))]);
        assert_eq!(plan.agent.unwrap().id, agent("").info.id);
    }

    #[test]
    fn an_end_that_was_acknowledged_is_forgotten_and_one_that_was_not_is_told_again() {
        let both = [("closed", TaskState::Finished), ("open", TaskState::Failed)];
        let mut found = found(&[
            ("c", with(&both)),
            ("over", with(&[("t", TaskState::Killed)])),
        ]);
        let failed = update("open", TaskState::Failed, 1);
        found.updates.insert(9, failed.clone());
        let plan = plan(found, &[], "boot", &described(), EQUAL).unwrap();
        assert_eq!(fates(&plan), [("c", Fate::Lost(Lost::Ended))]);
        let names: Vec<String> = plan.containers[0]
            .1
            .tasks
            .iter()
            .map(|(info, _)| info.name.clone())
            .collect();
        assert_eq!(names, ["open"]);
        assert_eq!(plan.updates, BTreeMap::from([(9, failed)]));
        let forgotten: Vec<String> = plan
            .forget
            .iter()
            .map(|entry| match entry {
                Entry::Remove(key) => key.text(),
                Entry::Put(..) => panic!("{entry:?}"),
            })
            .collect();
        let expected = [
            "task/c/closed",
            "state/c/closed",
            "task/over/t",
            "state/over/t",
            "container/over",
        ];
        assert_eq!(forgotten, expected);
    }

    /// SPEC 5.3, `--reconfiguration_policy=equal`.
    #[test]
    fn an_agent_that_is_described_otherwise_does_not_take_over_what_runs() {
        let all = [("c", with(&[("t", TaskState::Running)]))];
        let check = |change: &dyn Fn(&mut AgentInfo), field: &str| {
            let mut info = described();
            change(&mut info);
            let refused =
                plan(found(&all), &[left("c", Some(1))], "boot", &info, EQUAL).unwrap_err();
            assert_eq!(refused.field, field);
            assert!(refused.to_string().contains("--recover=cleanup"));
            // Nothing lives: it begins anew.
            let anew = plan(found(&all), &[], "boot", &info, EQUAL).unwrap();
            assert_eq!((anew.agent, anew.containers.len()), (None, 0));
            assert_eq!(anew.forget.len(), 4);
        };
        check(&|info| info.hostname = "other".into(), "--hostname");
        check(&|info| info.port = 1, "--port");
        check(
            &|info| info.resources = "cpus:5;mem:512".parse().unwrap(),
            "--resources",
        );
        check(
            &|info| info.attributes = resources::Attributes::parse("rack:a").unwrap(),
            "--attributes",
        );
        check(
            &|info| info.domain = Some("r/z".parse().unwrap()),
            "--domain",
        );
    }

    /// SPEC 5.3, `--reconfiguration_policy=additive`.
    #[test]
    fn an_agent_that_has_more_than_before_goes_on_with_it_if_that_is_wanted() {
        let all = [("c", with(&[("t", TaskState::Running)]))];
        let left = [left("c", Some(1))];
        let more = AgentInfo {
            resources: "cpus:5;mem:512;gpus:1".parse().unwrap(),
            ..described()
        };
        let additive = ReconfigurationPolicy::Additive;
        let expected = AgentInfo {
            id: agent("").info.id,
            ..more.clone()
        };
        for left in [&left[..], &[]] {
            let plan = plan(found(&all), left, "boot", &more, additive).unwrap();
            assert_eq!(plan.agent.as_ref(), Some(&expected));
            let rewrite = plan.rewrite.unwrap();
            assert_eq!((&rewrite.info, &*rewrite.boot), (&expected, "boot"));
        }
        let same = plan(found(&all), &left, "boot", &described(), additive).unwrap();
        assert_eq!(same.rewrite, None, "nothing has changed");
        let less = AgentInfo {
            resources: "cpus:3;mem:512".parse().unwrap(),
            ..described()
        };
        let refused = plan(found(&all), &left, "boot", &less, additive).unwrap_err();
        assert_eq!(refused.field, "--resources");
        let anew = plan(found(&all), &[], "boot", &less, additive).unwrap();
        assert_eq!(anew.agent, None, "nothing lives");
    }

    #[test]
    fn an_agent_that_kept_nothing_begins_anew_and_ends_what_it_does_not_know() {
        let left = [left("c", Some(1))];
        let plan = plan(Found::default(), &left, "boot", &described(), EQUAL).unwrap();
        assert_eq!((plan.agent, plan.containers), (None, Vec::new()));
        assert_eq!(plan.strangers, [id("c")]);
    }
}
