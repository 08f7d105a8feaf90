//! Counters since the election of this master, under Mesos' names.
//!
//! Plain numbers that only grow. Values that are part of the state (numbers of agents, tasks,
//! offers) are computed on request instead.

use std::collections::BTreeMap;

use protocol::{OperationState, Reason, Source, TaskState, TaskStatus};
use serde::{Deserialize, Serialize};

/// Names that exist from the start, so that a reader sees zero and not a gap.
const NAMES: [&str; 32] = [
    "master/dropped_messages",
    "master/invalid_executor_to_framework_messages",
    "master/invalid_framework_to_executor_messages",
    "master/invalid_status_update_acknowledgements",
    "master/invalid_status_updates",
    "master/messages_decline_offers",
    "master/messages_executor_to_framework",
    "master/messages_exited_executor",
    "master/messages_framework_to_executor",
    "master/messages_kill_task",
    "master/messages_launch_tasks",
    "master/messages_reconcile_tasks",
    "master/messages_register_framework",
    "master/messages_register_slave",
    "master/messages_reregister_framework",
    "master/messages_reregister_slave",
    "master/messages_resource_request",
    "master/messages_revive_offers",
    "master/messages_status_update",
    "master/messages_status_update_acknowledgement",
    "master/messages_suppress_offers",
    "master/messages_term_seen",
    "master/messages_unregister_framework",
    "master/messages_unregister_slave",
    "master/messages_update_slave",
    "master/slave_registrations",
    "master/slave_removals",
    "master/slave_reregistrations",
    "master/valid_executor_to_framework_messages",
    "master/valid_framework_to_executor_messages",
    "master/valid_status_update_acknowledgements",
    "master/valid_status_updates",
];

/// More of these names, for ends and refusals.
const MORE_NAMES: [&str; 32] = [
    "master/slave_removals/reason_unhealthy",
    "master/slave_removals/reason_unregistered",
    "master/slave_removals/reason_registered",
    "master/slave_unreachable_scheduled",
    "master/slave_unreachable_canceled",
    "master/slave_unreachable_completed",
    "master/offers_made",
    "master/offers_accepted",
    "master/offers_rescinded",
    "master/offers_expired",
    "master/offers_over_budget",
    "master/messages_operate",
    "master/messages_operation_status_update",
    "master/messages_operation_status_update_acknowledgement",
    "master/messages_operations",
    "master/messages_reconcile_operations",
    "master/messages_update_framework",
    "master/operations_applied",
    "master/operations_nameless",
    "master/operations_refused",
    "master/tasks_revoked",
    "master/tasks_spared",
    "master/recovery_slave_removals",
    "master/invalid_operation_status_update_acknowledgements",
    "master/invalid_operation_status_updates",
    "master/valid_operation_status_update_acknowledgements",
    "master/valid_operation_status_updates",
    // Metrics of Mesos that are always zero here.
    "master/messages_authenticate",
    "master/messages_deactivate_framework",
    "master/slave_shutdowns_canceled",
    "master/slave_shutdowns_completed",
    "master/slave_shutdowns_scheduled",
];

/// The kinds of operations: for each, and for all together, the refused ones, and the ends of those
/// with an id.
macro_rules! operations {
    ($($of:literal)*) => {
        [$(
            concat!("master/operations/", $of, "finished"),
            concat!("master/operations/", $of, "failed"),
            concat!("master/operations/", $of, "error"),
            concat!("master/operations/", $of, "dropped"),
            concat!("master/operations/", $of, "gone_by_operator"),
        )*]
    };
}

/// Ends of operations. Disks of resource providers stay at 0: there are none.
const OPERATIONS: [&str; 45] = operations!(
    "" "reserve/" "unreserve/" "create/" "destroy/" "grow_volume/" "shrink_volume/" "create_disk/" "destroy_disk/"
);

/// Names of the operations that change resources.
pub(crate) fn operation_kinds() -> impl Iterator<Item = &'static str> {
    let of = OPERATIONS.into_iter();
    let of = of.filter_map(|name| name.strip_prefix("master/operations/"));
    of.filter_map(|of| of.strip_suffix("/finished"))
}

fn names() -> impl Iterator<Item = &'static str> {
    NAMES.into_iter().chain(MORE_NAMES).chain(OPERATIONS)
}

/// Counts by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    named: BTreeMap<&'static str, u64>,
    ended: BTreeMap<TaskState, u64>,
    /// By state, source and reason; bounded because all three are enums.
    why: BTreeMap<(TaskState, Source, Reason), u64>,
}

/// The key of a counter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Counted {
    /// A named counter.
    Named(String),
    /// Tasks that ended in this state.
    Ended(TaskState),
    /// Tasks that ended in this state, from this source, for this reason.
    Why(TaskState, Source, Reason),
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            named: names().map(|name| (name, 0)).collect(),
            ended: TaskState::ALL
                .iter()
                .filter(|state| state.is_terminal())
                .map(|state| (*state, 0))
                .collect(),
            why: BTreeMap::new(),
        }
    }
}

impl Counters {
    /// Adds one to `name`.
    pub fn count(&mut self, name: &'static str) {
        self.add(name, 1);
    }

    /// Adds `more` to `name`.
    pub fn add(&mut self, name: &'static str, more: usize) {
        let more = u64::try_from(more).unwrap_or(u64::MAX);
        let count = self.named.entry(name).or_default();
        *count = count.saturating_add(more);
    }

    /// Counts the end of a task.
    pub fn task_ended(&mut self, status: &TaskStatus) {
        *self.ended.entry(status.state).or_default() += 1;
        if let Some(reason) = status.reason {
            *self
                .why
                .entry((status.state, status.source, reason))
                .or_default() += 1;
        }
    }

    /// Counts the end of an operation; its kind is known only to the master that accepted it.
    pub fn operation_ended(&mut self, kind: Option<&str>, state: OperationState) {
        let state = operation_gauge(state);
        let kind = kind.map(|kind| format!("{kind}/{state}"));
        for end in [Some(state), kind].into_iter().flatten() {
            let known = OPERATIONS.into_iter().find(|name| {
                let of = name.strip_prefix("master/operations/");
                of == Some(end.as_str())
            });
            if let Some(known) = known {
                self.count(known);
            }
        }
    }

    /// The value of `name`.
    pub fn get(&self, name: &str) -> u64 {
        self.named.get(name).copied().unwrap_or(0)
    }

    /// Counters that differ from `before`, with their values.
    pub(crate) fn since(&self, before: &Self) -> Vec<(Counted, u64)> {
        let named = self
            .named
            .iter()
            .filter(|(k, n)| before.named.get(*k) != Some(n));
        let ended = self
            .ended
            .iter()
            .filter(|(k, n)| before.ended.get(k) != Some(n));
        let why = self
            .why
            .iter()
            .filter(|(k, n)| before.why.get(k) != Some(n));
        let named = named.map(|(name, count)| (Counted::Named((*name).to_owned()), *count));
        let ended = ended.map(|(state, count)| (Counted::Ended(*state), *count));
        let why = why.map(|(&(state, by, why), count)| (Counted::Why(state, by, why), *count));
        named.chain(ended).chain(why).collect()
    }

    /// Sets a counter in a mirror. Unknown names are ignored.
    pub(crate) fn mirror(&mut self, counted: &Counted, count: u64) {
        match counted {
            Counted::Named(name) => {
                if let Some(known) = names().find(|known| known == name) {
                    self.named.insert(known, count);
                }
            }
            Counted::Ended(state) => drop(self.ended.insert(*state, count)),
            Counted::Why(state, by, why) => drop(self.why.insert((*state, *by, *why), count)),
        }
    }

    /// Writes all counters under their metric names.
    pub fn metrics(&self, into: &mut BTreeMap<String, f64>) {
        for (name, count) in &self.named {
            into.insert((*name).to_owned(), *count as f64);
        }
        for (state, count) in &self.ended {
            into.insert(format!("master/{}", gauge(*state)), *count as f64);
        }
        for ((state, source, reason), count) in &self.why {
            let name = format!(
                "master/{}/{}/{}",
                state.name().to_lowercase(),
                source_gauge(*source),
                reason.name().to_lowercase()
            );
            into.insert(name, *count as f64);
        }
    }
}

/// The source in names of metrics, where agents are "slaves".
fn source_gauge(source: Source) -> &'static str {
    match source {
        Source::Master => "source_master",
        Source::Agent => "source_slave",
        Source::Executor => "source_executor",
    }
}

/// The metric of a task state, for example `tasks_running`.
pub fn gauge(state: TaskState) -> String {
    state.name().replacen("TASK_", "TASKS_", 1).to_lowercase()
}

/// The metric of an operation's state, for example `gone_by_operator`.
pub fn operation_gauge(state: OperationState) -> String {
    let name = state.name();
    name.strip_prefix("OPERATION_")
        .unwrap_or(name)
        .to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::TaskId;
    use runtime::Timestamp;

    /// SPEC 3.10.
    #[test]
    fn metrics_bear_the_names_that_mesos_users_watch() {
        let mut counters = Counters::default();
        counters.count("master/messages_kill_task");
        let task = TaskId::new("t").unwrap();
        let status = TaskStatus::new(
            task,
            TaskState::Lost,
            Source::Master,
            Timestamp::from_nanos(1),
        );
        counters.task_ended(&status.clone().with_reason(Reason::InvalidOffers, ""));
        let mut by_agent = status.with_reason(Reason::AgentRestarted, "");
        by_agent.source = Source::Agent;
        counters.task_ended(&by_agent);
        let mut metrics = BTreeMap::new();
        counters.metrics(&mut metrics);
        assert_eq!(metrics["master/messages_kill_task"], 1.0);
        assert_eq!(metrics["master/tasks_lost"], 2.0);
        let name = "master/task_lost/source_slave/reason_slave_restarted";
        assert_eq!(metrics[name], 1.0);
        assert_eq!(metrics["master/tasks_finished"], 0.0);
        assert_eq!(
            metrics["master/task_lost/source_master/reason_invalid_offers"],
            1.0
        );
    }
}
