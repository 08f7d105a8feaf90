//! The master's metrics, under Mesos' names.
//!
//! A pure function of the state and the time.

use std::collections::BTreeMap;

use protocol::{OperationState, TaskState};
use resources::{Name, Resources, Scalar};
use runtime::Timestamp;

use crate::api::view;
use crate::roles::quota;
use crate::state::counters::{gauge, operation_gauge, operation_kinds};
use crate::state::{MasterState, sum};

/// All metrics; those of each framework unless disabled.
pub fn metrics(state: &MasterState, now: Timestamp) -> BTreeMap<String, f64> {
    let mut metrics = BTreeMap::new();
    state.counters.metrics(&mut metrics);
    let mut put = |name: &str, value: f64| {
        metrics.insert(format!("master/{name}"), value);
    };
    put("elected", 1.0);
    put("term", state.master.term as f64);
    put("outstanding_offers", state.offers.len() as f64);

    held(state, now, &mut metrics);
    let mut put = |name: &str, value: f64| {
        metrics.insert(format!("master/{name}"), value);
    };
    let agents = state.agents.iter().count();
    let connected = state.agents.iter().filter(|agent| agent.connected).count();
    let active = state
        .agents
        .iter()
        .filter(|agent| agent.is_active())
        .count();
    put("slaves_active", active as f64);
    put("slaves_inactive", (agents - active) as f64);
    put("slaves_connected", connected as f64);
    put("slaves_disconnected", (agents - connected) as f64);
    put(
        "slaves_unreachable",
        state.agents.unreachable().len() as f64,
    );

    let frameworks = state.frameworks.iter().count();
    let connected = state.frameworks.iter().filter(|one| one.is_connected());
    let connected = connected.count();
    for name in ["frameworks_active", "frameworks_connected"] {
        put(name, connected as f64);
    }
    for name in ["frameworks_inactive", "frameworks_disconnected"] {
        put(name, (frameworks - connected) as f64);
    }

    let by_state = state.tasks_by_state();
    for task_state in TaskState::ALL
        .iter()
        .filter(|task_state| !task_state.is_terminal())
    {
        if *task_state != TaskState::Unknown {
            let count = by_state.get(task_state).copied().unwrap_or(0);
            put(&gauge(*task_state), count as f64);
        }
    }
    let total: Resources = sum(state.agents.iter().map(|agent| &agent.info.resources));
    let lent = sum(state.agents.iter().map(|agent| &agent.oversubscribed));
    let used: Vec<Resources> = state
        .agents
        .iter()
        .map(|agent| view::used(state, agent))
        .collect();
    let used = sum(used.iter());
    let pairs = [
        ("", total, used.non_revocable()),
        ("_revocable", lent, used.revocable()),
    ];
    for (suffix, total, used) in pairs {
        for name in [Name::Cpus, Name::Gpus, Name::Mem, Name::Disk] {
            let (total, used) = (total.scalar(&name).as_f64(), used.scalar(&name).as_f64());
            let percent = if total > 0.0 { used / total } else { 0.0 };
            put(&format!("{name}{suffix}_total"), total);
            put(&format!("{name}{suffix}_used"), used);
            put(&format!("{name}{suffix}_percent"), percent);
        }
    }
    quotas(state, &mut metrics);
    operations(state, &mut metrics);
    if state.policy.publish_per_framework_metrics {
        of_frameworks(state, now, &mut metrics);
    }
    metrics
}

/// Metrics of each framework: from the state (connection, tasks by state, suppressed roles) and its
/// counters. The name is URL-encoded, so that it is one component of the metric's name.
fn of_frameworks(state: &MasterState, now: Timestamp, metrics: &mut BTreeMap<String, f64>) {
    for framework in state.frameworks.iter() {
        let (name, id) = (url_encoded(&framework.info.name), &framework.id);
        let mut put = |what: String, value: f64| {
            metrics.insert(format!("master/frameworks/{name}/{id}/{what}"), value);
        };
        put("subscribed".to_owned(), f64::from(framework.is_connected()));
        for role in &framework.info.roles {
            let is_suppressed = framework.wants.suppressed_roles.contains(role);
            put(format!("roles/{role}/suppressed"), f64::from(is_suppressed));
        }
        let mut active = BTreeMap::from(ACTIVE.map(|task_state| (task_state, 0)));
        let tasks = state.tasks.of_framework(id);
        for task in tasks
            .into_iter()
            .flat_map(|tasks| tasks.active().chain(tasks.unreachable()))
        {
            if !task.state.is_terminal() {
                *active.entry(task.state).or_default() += 1;
            }
        }
        for (task_state, count) in active {
            let task_state = task_state.name().to_lowercase();
            put(format!("tasks/active/{task_state}"), f64::from(count));
        }
        let dealings = state.frameworks.counters(id);
        for (name, count) in dealings.into_iter().flat_map(|dealings| dealings.named()) {
            put(name.to_owned(), count as f64);
        }
        put(
            "offers/outstanding".to_owned(),
            state.offers.count_of(id) as f64,
        );
        if let Some((_, by_framework)) = state.offers.held() {
            let held = by_framework.get(id).copied().unwrap_or_default();
            for (what, secs) in [
                ("count", held.count as f64),
                ("sum", held.sum.as_secs_f64()),
                ("max", held.longest.as_secs_f64()),
                ("oldest", age(state.offers.oldest_of(id), now)),
            ] {
                put(format!("offers/held_secs/{what}"), secs);
            }
        }
    }
}

/// Statistics of hold times of ended offers, and the age of the oldest open one, in seconds. A
/// mirror has none.
fn held(state: &MasterState, now: Timestamp, metrics: &mut BTreeMap<String, f64>) {
    let Some((held, _)) = state.offers.held() else {
        return;
    };
    let name = "master/offer_held_secs";
    let statistics = held.statistics();
    metrics.extend(statistics.into_iter().flat_map(|all| all.flat(name)));
    metrics.insert(format!("{name}/sum"), held.sum());
    let oldest = age(state.offers.oldest(), now);
    metrics.insert(format!("{name}/oldest"), oldest);
}

/// Seconds since then; 0 if never.
fn age(then: Option<Timestamp>, now: Timestamp) -> f64 {
    then.map_or(0.0, |then| now.saturating_since(then).as_secs_f64())
}

/// Task states with metrics from the start.
const ACTIVE: [TaskState; 6] = [
    TaskState::Staging,
    TaskState::Starting,
    TaskState::Running,
    TaskState::Killing,
    TaskState::Unreachable,
    TaskState::Unknown,
];

/// Percent-encodes everything but letters, digits and `-._~`.
fn url_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// Known operations: under way, or ended without acknowledgement.
fn operations(state: &MasterState, metrics: &mut BTreeMap<String, f64>) {
    let under_way = OperationState::ALL.iter().filter(|operation_state| {
        !operation_state.is_terminal() && **operation_state != OperationState::Unknown
    });
    let mut add = |name: String, count: usize| {
        *metrics
            .entry(format!("master/operations/{name}"))
            .or_default() += count as f64;
    };
    let names = under_way.map(|operation_state| operation_gauge(*operation_state));
    for name in names.chain(["total".to_owned()]) {
        for kind in operation_kinds() {
            add(format!("{kind}/{name}"), 0);
        }
        add(name, 0);
    }
    for ((kind, operation_state), count) in state.operations.tally() {
        let operation_state =
            (!operation_state.is_terminal()).then(|| operation_gauge(operation_state));
        let names = ["total".to_owned()].into_iter().chain(operation_state);
        for name in names {
            if let Some(kind) = kind {
                add(format!("{kind}/{name}"), count);
            }
            add(name, count);
        }
    }
}

/// Guarantee and limit of each role with a quota, by resource, and each role's consumption, with or
/// without a quota, as in Mesos.
fn quotas(state: &MasterState, metrics: &mut BTreeMap<String, f64>) {
    let mut put = |role: &str, name: &Name, what: &str, amount: Scalar| {
        let name = format!("allocator/mesos/quota/roles/{role}/resources/{name}/{what}");
        metrics.insert(name, amount.as_f64());
    };
    for (role, quota) in state.quotas.iter() {
        for (what, amounts) in [("guarantee", &quota.guarantees), ("limit", &quota.limits)] {
            for (name, amount) in amounts.iter() {
                put(role, name, what, amount);
                put(role, name, "consumed", Scalar::ZERO);
            }
        }
    }
    for (role, amounts) in &quota::consumed(state) {
        for (name, amount) in amounts.iter() {
            put(role, name, "consumed", amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leadership::mirror::tests::properties::state;

    /// SPEC 3.10: alerts are defined before there is anything to count.
    #[test]
    fn operation_gauges_exist_before_any_operation() {
        let metrics = metrics(&state(), Timestamp::from_nanos(1));
        let kinds =
            "reserve unreserve create destroy grow_volume shrink_volume create_disk destroy_disk";
        for kind in kinds.split(' ') {
            for gauge in ["total", "pending"] {
                let name = format!("master/operations/{kind}/{gauge}");
                assert_eq!(metrics.get(&name), Some(&0.0), "{name}");
            }
        }
    }
}
