//! The master's metrics, under Mesos' names (SPEC 3.10).
//!
//! A plain function of the books and the time.

use std::collections::BTreeMap;

use protocol::{OperationState, TaskState};
use resources::{Name, Resources, Scalar};
use runtime::Timestamp;

use crate::books::{Books, sum};
use crate::counters::{gauge, operation_gauge, operation_kinds};
use crate::{quota, view};

/// All of them; those of each framework unless the operator wants none.
pub fn metrics(books: &Books, now: Timestamp) -> BTreeMap<String, f64> {
    let mut metrics = BTreeMap::new();
    books.counters.metrics(&mut metrics);
    let mut put = |name: &str, value: f64| {
        metrics.insert(format!("master/{name}"), value);
    };
    put("elected", 1.0);
    put("term", books.master.term as f64);
    put("outstanding_offers", books.offers.len() as f64);

    held(books, now, &mut metrics);
    let mut put = |name: &str, value: f64| {
        metrics.insert(format!("master/{name}"), value);
    };
    let agents = books.agents.iter().count();
    let connected = books.agents.iter().filter(|agent| agent.connected).count();
    let active = books
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
        books.agents.unreachable().len() as f64,
    );

    let frameworks = books.frameworks.iter().count();
    let connected = books.frameworks.iter().filter(|one| one.is_connected());
    let connected = connected.count();
    for name in ["frameworks_active", "frameworks_connected"] {
        put(name, connected as f64);
    }
    for name in ["frameworks_inactive", "frameworks_disconnected"] {
        put(name, (frameworks - connected) as f64);
    }

    let by_state = books.tasks_by_state();
    for state in TaskState::ALL.iter().filter(|state| !state.is_terminal()) {
        if *state != TaskState::Unknown {
            let count = by_state.get(state).copied().unwrap_or(0);
            put(&gauge(*state), count as f64);
        }
    }
    let total: Resources = sum(books.agents.iter().map(|agent| &agent.info.resources));
    let lent = sum(books.agents.iter().map(|agent| &agent.oversubscribed));
    let used: Vec<Resources> = books
        .agents
        .iter()
        .map(|agent| view::used(books, agent))
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
    quotas(books, &mut metrics);
    operations(books, &mut metrics);
    if books.policy.publish_per_framework_metrics {
        of_frameworks(books, now, &mut metrics);
    }
    metrics
}

/// Of each framework what the books say of it (whether it is connected, its tasks by state, which of its roles are suppressed) and what has
/// passed between it and the master. Its name is written as in a URL, so that it is one part of the metric's.
fn of_frameworks(books: &Books, now: Timestamp, metrics: &mut BTreeMap<String, f64>) {
    for framework in books.frameworks.iter() {
        let (name, id) = (url_encoded(&framework.info.name), &framework.id);
        let mut put = |what: String, value: f64| {
            metrics.insert(format!("master/frameworks/{name}/{id}/{what}"), value);
        };
        put("subscribed".to_owned(), f64::from(framework.is_connected()));
        for role in &framework.info.roles {
            let is_suppressed = framework.wants.suppressed_roles.contains(role);
            put(format!("roles/{role}/suppressed"), f64::from(is_suppressed));
        }
        let mut active = BTreeMap::from(ACTIVE.map(|state| (state, 0)));
        let tasks = books.tasks.of_framework(id);
        for task in tasks
            .into_iter()
            .flat_map(|tasks| tasks.active().chain(tasks.unreachable()))
        {
            if !task.state.is_terminal() {
                *active.entry(task.state).or_default() += 1;
            }
        }
        for (state, count) in active {
            let state = state.name().to_lowercase();
            put(format!("tasks/active/{state}"), f64::from(count));
        }
        let dealings = books.frameworks.dealings(id);
        for (name, count) in dealings.into_iter().flat_map(|dealings| dealings.named()) {
            put(name.to_owned(), count as f64);
        }
        put(
            "offers/outstanding".to_owned(),
            books.offers.count_of(id) as f64,
        );
        if let Some((_, by_framework)) = books.offers.held() {
            let held = by_framework.get(id).copied().unwrap_or_default();
            for (what, secs) in [
                ("count", held.count as f64),
                ("sum", held.sum.as_secs_f64()),
                ("max", held.longest.as_secs_f64()),
                ("oldest", age(books.offers.oldest_of(id), now)),
            ] {
                put(format!("offers/held_secs/{what}"), secs);
            }
        }
    }
}

/// For how many seconds offers were held that are not out any more, and for how many the oldest is that is (W8). A mirror does not know.
fn held(books: &Books, now: Timestamp, metrics: &mut BTreeMap<String, f64>) {
    let Some((held, _)) = books.offers.held() else {
        return;
    };
    let name = "master/offer_held_secs";
    let statistics = held.statistics();
    metrics.extend(statistics.into_iter().flat_map(|all| all.flat(name)));
    metrics.insert(format!("{name}/sum"), held.sum());
    let oldest = age(books.offers.oldest(), now);
    metrics.insert(format!("{name}/oldest"), oldest);
}

/// How long ago that was, 0 if never.
fn age(then: Option<Timestamp>, now: Timestamp) -> f64 {
    then.map_or(0.0, |then| now.saturating_since(then).as_secs_f64())
}

/// The states of tasks that are there from the start.
const ACTIVE: [TaskState; 6] = [
    TaskState::Staging,
    TaskState::Starting,
    TaskState::Running,
    TaskState::Killing,
    TaskState::Unreachable,
    TaskState::Unknown,
];

/// A text with everything but letters, digits and `-._~` written as `%20` and so on.
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

/// The operations that the master knows: those under way, and those whose end their frameworks have not acknowledged yet.
fn operations(books: &Books, metrics: &mut BTreeMap<String, f64>) {
    let under_way = OperationState::ALL
        .iter()
        .filter(|state| !state.is_terminal() && **state != OperationState::Unknown);
    let mut add = |name: String, count: usize| {
        *metrics
            .entry(format!("master/operations/{name}"))
            .or_default() += count as f64;
    };
    let names = under_way.map(|state| operation_gauge(*state));
    for name in names.chain(["total".to_owned()]) {
        for kind in operation_kinds() {
            add(format!("{kind}/{name}"), 0);
        }
        add(name, 0);
    }
    for ((kind, state), count) in books.operations.tally() {
        let state = (!state.is_terminal()).then(|| operation_gauge(state));
        let names = ["total".to_owned()].into_iter().chain(state);
        for name in names {
            if let Some(kind) = kind {
                add(format!("{kind}/{name}"), count);
            }
            add(name, count);
        }
    }
}

/// The guarantee and the limit of each role with a quota, of each resource that it names, and what each role consumes, with a quota or
/// without, as in Mesos.
fn quotas(books: &Books, metrics: &mut BTreeMap<String, f64>) {
    let mut put = |role: &str, name: &Name, what: &str, amount: Scalar| {
        let name = format!("allocator/mesos/quota/roles/{role}/resources/{name}/{what}");
        metrics.insert(name, amount.as_f64());
    };
    for (role, quota) in books.quotas.iter() {
        for (what, amounts) in [("guarantee", &quota.guarantees), ("limit", &quota.limits)] {
            for (name, amount) in amounts.iter() {
                put(role, name, what, amount);
                put(role, name, "consumed", Scalar::ZERO);
            }
        }
    }
    for (role, amounts) in &quota::consumed(books) {
        for (name, amount) in amounts.iter() {
            put(role, name, "consumed", amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::tests::laws::books;

    /// SPEC 3.10: alerts are set on figures before there is anything to count.
    #[test]
    fn each_kind_of_operation_has_its_gauges_before_there_is_one() {
        let metrics = metrics(&books(), Timestamp::from_nanos(1));
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
