//! The agent's counters under the names Mesos gives them (SPEC 5.11). Pure, but for a look at the host's load and memory.

use std::collections::BTreeMap;

use protocol::TaskState;
use resources::{Name, Resources};

use crate::container::events::Survey;
use crate::container::machine::Phase;
use crate::disk::DiskFigures;

/// What has happened since the agent's start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tasks that have reached each terminal state.
    pub ended: BTreeMap<TaskState, u64>,
    /// Executors that have ended.
    pub executors_terminated: u64,
    /// Containers killed for the QoS controller.
    pub executors_preempted: u64,
    /// Containers that could not be started.
    pub container_launch_errors: u64,
    /// Status updates taken from executors.
    pub valid_status_updates: u64,
    /// Status updates refused.
    pub invalid_status_updates: u64,
    /// Messages passed on between schedulers and executors.
    pub valid_framework_messages: u64,
    /// Messages with nobody to pass them to.
    pub invalid_framework_messages: u64,
    /// Records of an earlier process of the agent that could not be read.
    pub recovery_errors: u64,
}

impl Counts {
    /// A task has this state now.
    pub fn note(&mut self, state: TaskState) {
        if state.is_terminal() {
            *self.ended.entry(state).or_default() += 1;
        }
    }
}

/// What the agent itself adds to a survey of its containers.
#[derive(Clone, Debug, Default)]
pub struct AgentFigures {
    /// Whether a master has it.
    pub registered: bool,
    /// Seconds since it started.
    pub uptime_secs: f64,
    /// All it has.
    pub total: Resources,
    /// What it lends.
    pub oversubscribed: Resources,
    /// Estimates that could not be used.
    pub estimates_rejected: u64,
    /// Messages of masters that do not have it, deposed ones above all.
    pub messages_refused: u64,
    /// The newest term of a master that it has seen.
    pub term: u64,
    /// Status updates that wait for an acknowledgement.
    pub updates_waiting: usize,
    /// What the disk watch counts.
    pub disk: DiskFigures,
}

/// Everything as flat names and numbers.
pub fn snapshot(figures: &AgentFigures, survey: &Survey) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    let mut put = |name: &str, value: f64| {
        all.insert(format!("slave/{name}"), value);
    };
    put("registered", f64::from(u8::from(figures.registered)));
    put("uptime_secs", figures.uptime_secs);
    put("recovery_errors", survey.counts.recovery_errors as f64);
    put("frameworks_active", survey.frameworks.len() as f64);
    put(
        "oversubscription_estimates_rejected",
        figures.estimates_rejected as f64,
    );
    put("master_messages_refused", figures.messages_refused as f64);
    put("master_term", figures.term as f64);
    put("status_updates_waiting", figures.updates_waiting as f64);
    let counts = &survey.counts;
    let states = [
        ("tasks_staging", TaskState::Staging),
        ("tasks_starting", TaskState::Starting),
        ("tasks_running", TaskState::Running),
        ("tasks_killing", TaskState::Killing),
        ("tasks_finished", TaskState::Finished),
        ("tasks_failed", TaskState::Failed),
        ("tasks_killed", TaskState::Killed),
        ("tasks_lost", TaskState::Lost),
        ("tasks_gone", TaskState::Gone),
    ];
    let present = || {
        survey
            .containers
            .iter()
            .flat_map(|container| &container.tasks)
    };
    for (name, state) in states {
        let value = match state.is_terminal() {
            true => counts.ended.get(&state).copied().unwrap_or(0),
            false => present().filter(|(_, present)| *present == state).count() as u64,
        };
        put(name, value as f64);
    }
    let phase = |wanted: &[Phase]| {
        survey
            .containers
            .iter()
            .filter(|c| wanted.contains(&c.phase))
            .count() as f64
    };
    put(
        "executors_registering",
        phase(&[
            Phase::Preparing,
            Phase::Launching,
            Phase::Registering,
            Phase::Recovering,
        ]),
    );
    put("executors_running", phase(&[Phase::Running]));
    put("executors_terminating", phase(&[Phase::Terminating]));
    for (name, value) in [
        ("executors_terminated", counts.executors_terminated),
        ("executors_preempted", counts.executors_preempted),
        ("container_launch_errors", counts.container_launch_errors),
        ("valid_status_updates", counts.valid_status_updates),
        ("invalid_status_updates", counts.invalid_status_updates),
        ("valid_framework_messages", counts.valid_framework_messages),
        (
            "invalid_framework_messages",
            counts.invalid_framework_messages,
        ),
    ] {
        put(name, value as f64);
    }
    // What an executor that has ended had may be offered again, be its tasks' ends acknowledged or not.
    let living = survey.containers.iter();
    let living = living.filter(|container| container.phase != Phase::Terminated);
    let used = living.fold(Resources::new(), |sum, one| &sum + &one.counted());
    let (lent, regular) = (used.revocable(), used.non_revocable());
    for name in [Name::Cpus, Name::Gpus, Name::Mem, Name::Disk] {
        for (suffix, total, used) in [
            ("", &figures.total, &regular),
            ("_revocable", &figures.oversubscribed, &lent),
        ] {
            let (total, used) = (total.scalar(&name).as_f64(), used.scalar(&name).as_f64());
            put(&format!("{name}{suffix}_total"), total);
            put(&format!("{name}{suffix}_used"), used);
            put(
                &format!("{name}{suffix}_percent"),
                if total > 0.0 { used / total } else { 0.0 },
            );
        }
    }
    let age = figures.disk.max_age.as_secs_f64();
    put("executor_directory_max_allowed_age_secs", age);
    // Nothing is fetched, there are no images and no resource providers; dashboards ask for these all the same.
    for name in [
        "containerizer/fetcher/cache_size_total_bytes",
        "containerizer/fetcher/cache_size_used_bytes",
        "containerizer/fetcher/task_fetches_failed",
        "containerizer/fetcher/task_fetches_succeeded",
        "containerizer/mesos/container_destroy_errors",
        "containerizer/mesos/provisioner/bind/remove_rootfs_errors",
        "containerizer/mesos/provisioner/remove_container_errors",
        "resource_provider_manager/events/disconnect",
        "resource_provider_manager/events/subscribe",
        "resource_provider_manager/subscribed",
    ] {
        all.insert(name.to_owned(), 0.0);
    }
    let disk = &figures.disk;
    for (name, value) in [
        ("succeeded", disk.removals_succeeded),
        ("failed", disk.removals_failed),
        ("pending", disk.removals_pending),
    ] {
        all.insert(format!("gc/path_removals_{name}"), value as f64);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SPEC 5.11.
    #[test]
    fn names_are_those_of_mesos() {
        let mut survey = Survey::default();
        survey.counts.note(TaskState::Finished);
        survey.counts.note(TaskState::Running);
        let figures = AgentFigures {
            total: Resources::parse("cpus:4;mem:100").unwrap(),
            ..Default::default()
        };
        let all = snapshot(&figures, &survey);
        assert_eq!(all["slave/tasks_finished"], 1.0);
        assert_eq!(all["containerizer/fetcher/task_fetches_failed"], 0.0);
        assert_eq!(all["slave/cpus_total"], 4.0);
        assert_eq!(all["slave/cpus_revocable_total"], 0.0);
        assert_eq!(all["slave/executors_preempted"], 0.0);
        assert_eq!(all["gc/path_removals_pending"], 0.0);
    }
}
