//! The recovery plan: which containers of an earlier agent process continue, and which are over.
//! Pure.
//!
//! The launcher knows reliably which containers still live, since its zygote is the parent of them
//! and outlived the earlier agent. All others are over, for example after a reboot.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::{AgentInfo, ContainerId, FrameworkId, StatusUpdate, TaskId};

use super::reconfiguration::{Incompatible, ReconfigurationPolicy};
use super::record::{AgentRecord, Entry, Key, StoredContainer, StoredRecords};
use crate::launcher::LeftContainer;

/// Why a container is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// Its processes ended; their exit status is unknown.
    Ended,
    /// The machine was rebooted.
    Rebooted,
}

/// The decision for a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryAction {
    /// Wait for its executor to subscribe again, or continue its command. The session leader, if it
    /// runs; its start or end is reported later otherwise.
    Await(Option<i32>),
    /// Its live tasks have ended.
    Ended(EndCause),
}

/// The result of recovery.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The agent's description with its id; `None` to start as a new agent.
    pub agent: Option<AgentInfo>,
    /// The agent record to write first because the description has changed. The next process is
    /// compared with this one, even if nothing was launched.
    pub rewrite: Option<AgentRecord>,
    /// Containers with their tasks and decisions.
    pub containers: Vec<(ContainerId, StoredContainer, RecoveryAction)>,
    /// The time since the start of the living ones.
    pub ages: BTreeMap<ContainerId, Duration>,
    /// Containers of the launcher without a checkpoint: they are killed and forgotten.
    pub unknown: Vec<ContainerId>,
    /// Unacknowledged updates, in order of arrival.
    pub updates: BTreeMap<u64, StatusUpdate>,
    /// Records to remove.
    pub forget: Vec<Entry>,
}

/// Builds the plan from the checkpoints, the launcher's containers, the boot id and the agent's
/// present description, which may differ from the earlier one as `policy` allows.
pub fn plan(
    found: StoredRecords,
    left: &[LeftContainer],
    boot: &str,
    described: &AgentInfo,
    policy: ReconfigurationPolicy,
) -> Result<Plan, Incompatible> {
    let living: BTreeMap<&ContainerId, Option<i32>> = left
        .iter()
        .map(|left| (&left.container_id, left.pid))
        .collect();
    let known = |id: &ContainerId| found.containers.contains_key(id);
    let unknown: Vec<ContainerId> = living
        .keys()
        .filter(|id| !known(id))
        .map(|&id| id.clone())
        .collect();
    let lives = |id| living.get(id).is_some_and(Option::is_some);
    let lives = found.containers.keys().any(lives);
    let Some(agent) = found.agent else {
        if lives {
            return Err(Incompatible {
                field: "the agent's id",
                was: "known".to_owned(),
                is: "lost".to_owned(),
            });
        }
        // A new agent. The master will report the tasks of the earlier one as gone.
        let containers = found.containers.iter();
        let of_containers = containers.flat_map(|(id, container)| container_keys(id, container));
        let updates = found.updates.keys().map(|&number| Key::Update(number));
        let all = of_containers.chain(updates).chain(found.orphaned);
        return Ok(Plan {
            unknown: living.into_keys().cloned().collect(),
            forget: all.map(Entry::Remove).collect(),
            ..Plan::default()
        });
    };
    let differs = policy.difference(&agent.info, described);
    if let Some(differs) = differs.filter(|_| lives) {
        return Err(differs);
    }
    let lost = match agent.boot == boot {
        true => EndCause::Ended,
        false => EndCause::Rebooted,
    };
    let mut forget = found.orphaned;
    let ends: BTreeSet<(FrameworkId, TaskId)> = found
        .updates
        .values()
        .filter(|update| update.status.state.is_terminal())
        .map(|update| (update.framework_id.clone(), update.status.task_id.clone()))
        .collect();
    let mut containers = Vec::new();
    let nested: BTreeSet<ContainerId> = found
        .containers
        .keys()
        .filter_map(ContainerId::parent)
        .collect();
    let has_nested = |id: &ContainerId| nested.contains(id);
    for (id, mut container) in found.containers {
        let framework = container.record.framework.id.clone();
        // The acknowledgement was received but its removal not written.
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
        let action = match living.get(&id) {
            Some(&pid) => RecoveryAction::Await(pid),
            None if container.tasks.is_empty() && !has_nested(&id) => {
                forget.push(Key::Container(id));
                continue;
            }
            None => RecoveryAction::Ended(lost),
        };
        containers.push((id, container, action));
    }
    let is = AgentInfo {
        id: agent.info.id.clone(),
        ..described.clone()
    };
    // Keeps the boot id of the containers' machine, which decides whether they are over.
    let rewrite = (is != agent.info).then(|| AgentRecord {
        info: is.clone(),
        boot: agent.boot,
    });
    let ages = left
        .iter()
        .map(|left| (left.container_id.clone(), left.age));
    Ok(Plan {
        ages: ages.collect(),
        agent: Some(is),
        rewrite,
        containers,
        unknown,
        updates: found.updates,
        forget: forget.into_iter().map(Entry::Remove).collect(),
    })
}

/// All keys of a container.
fn container_keys<'a>(
    id: &'a ContainerId,
    container: &'a StoredContainer,
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

    fn left(name: &str, pid: Option<i32>) -> LeftContainer {
        LeftContainer {
            container_id: id(name),
            pid,
            age: Duration::ZERO,
        }
    }

    fn with(tasks: &[(&str, TaskState)]) -> StoredContainer {
        let tasks = tasks.iter().map(|&(name, state)| {
            let state = StateRecord {
                state,
                ..StateRecord::default()
            };
            (task(name), state)
        });
        StoredContainer {
            record: container(),
            tasks: tasks.collect(),
        }
    }

    fn found(containers: &[(&str, StoredContainer)]) -> StoredRecords {
        let containers = containers.iter();
        StoredRecords {
            agent: Some(agent("boot")),
            containers: containers
                .map(|(name, container)| (id(name), container.clone()))
                .collect(),
            ..StoredRecords::default()
        }
    }

    fn described() -> AgentInfo {
        AgentInfo {
            id: None,
            ..agent("").info
        }
    }

    fn actions(plan: &Plan) -> Vec<(&str, RecoveryAction)> {
        let of = |(id, _, action): &(ContainerId, StoredContainer, RecoveryAction)| {
            (id.clone(), *action)
        };
        let all: Vec<(ContainerId, RecoveryAction)> = plan.containers.iter().map(of).collect();
        let name = |(at, (_, action)): (usize, (ContainerId, RecoveryAction))| {
            (plan.containers[at].0.as_str(), action)
        };
        all.into_iter().enumerate().map(name).collect()
    }

    /// SPEC 5.3.
    #[test]
    fn living_containers_are_awaited_and_others_ended() {
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
            ("ended", RecoveryAction::Await(None)),
            ("gone", RecoveryAction::Ended(EndCause::Ended)),
            ("living", RecoveryAction::Await(Some(42))),
        ];
        assert_eq!(actions(&plan), expected);
        assert_eq!(plan.unknown, [id("stranger")]);
        assert_eq!(plan.forget, []);
    }

    /// SPEC 5.3: after a reboot nothing lives, and the agent keeps its id.
    #[test]
    fn reboot_loses_executors_but_keeps_the_id() {
        let all = [("c", with(&[("t", TaskState::Running)]))];
        let plan = plan(found(&all), &[], "another boot", &described(), EQUAL).unwrap();
        assert_eq!(
            actions(&plan),
            [("c", RecoveryAction::Ended(EndCause::Rebooted))]
        );
        assert_eq!(plan.agent.unwrap().id, agent("").info.id);
    }

    #[test]
    fn unacknowledged_ends_are_recovered_and_others_removed() {
        let both = [("closed", TaskState::Finished), ("open", TaskState::Failed)];
        let mut found = found(&[
            ("c", with(&both)),
            ("over", with(&[("t", TaskState::Killed)])),
        ]);
        let failed = update("open", TaskState::Failed, 1);
        found.updates.insert(9, failed.clone());
        let plan = plan(found, &[], "boot", &described(), EQUAL).unwrap();
        assert_eq!(
            actions(&plan),
            [("c", RecoveryAction::Ended(EndCause::Ended))]
        );
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
    fn equal_policy_refuses_a_changed_agent() {
        let all = [("c", with(&[("t", TaskState::Running)]))];
        let check = |change: &dyn Fn(&mut AgentInfo), field: &str| {
            let mut info = described();
            change(&mut info);
            let refused =
                plan(found(&all), &[left("c", Some(1))], "boot", &info, EQUAL).unwrap_err();
            assert_eq!(refused.field, field);
            assert!(refused.to_string().contains("--recover=cleanup"));
            // No container lives, or every change is allowed: continues under its id.
            let ended = plan(found(&all), &[], "boot", &info, EQUAL).unwrap();
            let any = ReconfigurationPolicy::Any;
            let living = plan(found(&all), &[left("c", Some(1))], "boot", &info, any).unwrap();
            let expected = AgentInfo {
                id: agent("").info.id,
                ..info.clone()
            };
            for plan in [ended, living] {
                assert_eq!(plan.agent.as_ref(), Some(&expected));
                assert_eq!(plan.rewrite.unwrap().info, expected);
                assert_eq!((plan.containers.len(), plan.forget.len()), (1, 0));
            }
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
    fn additive_policy_accepts_a_larger_agent() {
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
        let ended = plan(found(&all), &[], "boot", &less, additive).unwrap();
        assert_eq!(ended.agent.unwrap().id, expected.id, "nothing lives");
    }

    #[test]
    fn without_checkpoints_unknown_containers_are_killed() {
        let left = [left("c", Some(1))];
        let plan = plan(StoredRecords::default(), &left, "boot", &described(), EQUAL).unwrap();
        assert_eq!((plan.agent, plan.containers), (None, Vec::new()));
        assert_eq!(plan.unknown, [id("c")]);
    }
}
