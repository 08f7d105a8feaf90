//! The agent's metrics, with the names of Mesos. Pure.

use std::collections::BTreeMap;

use protocol::TaskState;
use resources::{Name, Resources};

use crate::container::events::ContainersView;
use crate::container::machine::Phase;
use crate::oversubscription::monitor::MeasuredUse;
use crate::sandbox::disk::DiskMetrics;

/// Counters since the agent's start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ended tasks by terminal state.
    pub ended: BTreeMap<TaskState, u64>,
    /// Executors that have ended.
    pub executors_terminated: u64,
    /// Containers that could not be started.
    pub container_launch_errors: u64,
    /// Containers that could not be cleaned up completely.
    pub container_destroy_errors: u64,
    /// Containers with a root file system that could not be removed.
    pub remove_container_errors: u64,
    /// Status updates accepted from executors.
    pub valid_status_updates: u64,
    /// Status updates refused.
    pub invalid_status_updates: u64,
    /// Messages forwarded between schedulers and executors.
    pub valid_framework_messages: u64,
    /// Messages without a receiver.
    pub invalid_framework_messages: u64,
    /// Checkpoint records that could not be read.
    pub recovery_errors: u64,
    /// Containers whose files were fetched.
    pub task_fetches_succeeded: u64,
    /// Containers whose files could not be fetched.
    pub task_fetches_failed: u64,
    /// Bytes that the fetcher's cache may have.
    pub cache_size_total_bytes: u64,
    /// Bytes that it has.
    pub cache_size_used_bytes: u64,
}

impl Counts {
    /// Counts a task's new state.
    pub fn note(&mut self, state: TaskState) {
        if state.is_terminal() {
            *self.ended.entry(state).or_default() += 1;
        }
    }
}

/// The agent's own part of the metrics.
#[derive(Clone, Debug, Default)]
pub struct AgentMetrics {
    /// Whether it is registered.
    pub registered: bool,
    /// Seconds since its start.
    pub uptime_secs: f64,
    /// Its resources.
    pub total: Resources,
    /// Its oversubscribed resources.
    pub oversubscribed: Resources,
    /// Invalid estimates.
    pub estimates_rejected: u64,
    /// Messages refused from other masters, mostly deposed ones.
    pub messages_refused: u64,
    /// The highest term seen.
    pub term: u64,
    /// Unacknowledged status updates.
    pub updates_waiting: usize,
    /// Counters of the disk watch.
    pub disk: DiskMetrics,
    /// The use of all containers as last measured, if it could be.
    pub measured: Option<MeasuredUse>,
}

/// All metrics, flat.
pub fn snapshot(agent: &AgentMetrics, survey: &ContainersView) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    let mut put = |name: &str, value: f64| {
        all.insert(format!("slave/{name}"), value);
    };
    put("registered", f64::from(u8::from(agent.registered)));
    put("uptime_secs", agent.uptime_secs);
    put("recovery_errors", survey.counts.recovery_errors as f64);
    put("frameworks_active", survey.frameworks.len() as f64);
    put(
        "oversubscription_estimates_rejected",
        agent.estimates_rejected as f64,
    );
    put("master_messages_refused", agent.messages_refused as f64);
    put("master_term", agent.term as f64);
    put("status_updates_waiting", agent.updates_waiting as f64);
    let (counts, corrections) = (&survey.counts, survey.corrections.counts);
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
    put("executors_throttled", survey.throttled as f64);
    put("executors_terminating", phase(&[Phase::Terminating]));
    for (name, value) in [
        ("executors_terminated", counts.executors_terminated),
        ("executors_preempted", corrections.kill),
        ("qos_corrections/kill", corrections.kill),
        ("qos_corrections/throttle", corrections.throttle),
        ("qos_corrections/restore", corrections.restore),
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
    // An ended executor's resources may be offered again, whether or not its tasks' ends are
    // acknowledged.
    let living = survey.containers.iter();
    let living = living.filter(|container| container.phase != Phase::Terminated);
    let used = living.fold(Resources::new(), |sum, one| {
        &sum + &one.allocated_with_overhead()
    });
    let (lent, regular) = (used.revocable(), used.non_revocable());
    for name in [Name::Cpus, Name::Gpus, Name::Mem, Name::Disk] {
        for (suffix, total, used) in [
            ("", &agent.total, &regular),
            ("_revocable", &agent.oversubscribed, &lent),
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
    let age = agent.disk.max_age.as_secs_f64();
    put("executor_directory_max_allowed_age_secs", age);
    // Features that do not exist here; dashboards expect their metrics.
    for name in [
        "resource_provider_manager/events/disconnect",
        "resource_provider_manager/events/subscribe",
        "resource_provider_manager/subscribed",
    ] {
        all.insert(name.to_owned(), 0.0);
    }
    for (name, value) in [
        ("container_destroy_errors", counts.container_destroy_errors),
        (
            "provisioner/remove_container_errors",
            counts.remove_container_errors,
        ),
    ] {
        all.insert(format!("containerizer/mesos/{name}"), value as f64);
    }
    // Beside Mesos' `*_used`, which are the allocations.
    if let Some(measured) = &agent.measured {
        let values = [
            ("cpus", measured.cpus),
            ("mem_bytes", Some(measured.mem_bytes as f64)),
            ("disk_bytes", measured.disk_bytes.map(|bytes| bytes as f64)),
            ("processes", Some(f64::from(measured.processes))),
        ];
        for (name, value) in values {
            let name = format!("slave/measured/{name}");
            all.extend(value.map(|value| (name, value)));
        }
    }
    for (name, value) in [
        ("task_fetches_succeeded", counts.task_fetches_succeeded),
        ("task_fetches_failed", counts.task_fetches_failed),
        ("cache_size_total_bytes", counts.cache_size_total_bytes),
        ("cache_size_used_bytes", counts.cache_size_used_bytes),
    ] {
        all.insert(format!("containerizer/fetcher/{name}"), value as f64);
    }
    // Mesos has no times of launches.
    for (phase, times) in survey.launch_times.statistics() {
        all.extend(times.flat(&format!("containerizer/launch/{}_ms", phase.name())));
    }
    let disk = &agent.disk;
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
    // Covers 5.11 Metrics of agents.
    #[test]
    fn names_are_those_of_mesos() {
        let mut survey = ContainersView::default();
        survey.counts.note(TaskState::Finished);
        survey.counts.note(TaskState::Running);
        let agent = AgentMetrics {
            total: Resources::parse("cpus:4;mem:100").unwrap(),
            measured: Some(MeasuredUse {
                cpus: None,
                mem_bytes: 7,
                disk_bytes: Some(8),
                processes: 9,
                ..Default::default()
            }),
            ..Default::default()
        };
        let all = snapshot(&agent, &survey);
        assert_eq!(all["slave/tasks_finished"], 1.0);
        assert_eq!(all["containerizer/fetcher/task_fetches_failed"], 0.0);
        assert_eq!(all["slave/cpus_total"], 4.0);
        assert_eq!(all["slave/cpus_revocable_total"], 0.0);
        assert_eq!(all["slave/executors_preempted"], 0.0);
        assert_eq!(all["slave/executors_throttled"], 0.0);
        assert_eq!(all["slave/qos_corrections/throttle"], 0.0);
        assert_eq!(all["gc/path_removals_pending"], 0.0);
        assert_eq!(all["containerizer/mesos/container_destroy_errors"], 0.0);
        assert!(
            !all.contains_key("slave/measured/cpus"),
            "one pass is no rate"
        );
        let measured = ["mem_bytes", "disk_bytes", "processes"];
        let measured = measured.map(|name| all[&format!("slave/measured/{name}")]);
        assert_eq!(measured, [7.0, 8.0, 9.0]);
    }
}
