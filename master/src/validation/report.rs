//! Consistency of an agent's report.
//!
//! Pure. Each entry is named once, has the agent's own id, and is in the stated place; whether the
//! state knows it is checked elsewhere.

use std::collections::BTreeSet;

use protocol::digest;
use protocol::message::registration::AgentInventory;
use protocol::{ExecutorKind, FrameworkId, FrameworkInfo};
use resources::Invalid;

use super::roles;
use crate::agents::comparison::{Arrival, Scope};

/// Checks an agent's report.
pub fn check_report(arrival: &Arrival) -> Result<(), Invalid> {
    if let Some(summary) = &arrival.summary {
        if arrival.agent.id.is_none() {
            let expected = "the id that a master gave it, or a registration without a summary";
            return Err(Invalid::new("agent.id", "not set", expected));
        }
        buckets(&arrival.scope)?;
        let (reported, items) = (&arrival.held, summary.items as usize);
        let reported = reported.tasks.len() + reported.executors.len();
        if reported > items {
            let expected = format!("at least the {reported} entries of the report");
            return Err(Invalid::new("summary.items", items, expected));
        }
    }
    tasks(arrival)?;
    executors(&arrival.held)?;
    frameworks(&arrival.held)
}

fn buckets(scope: &Scope) -> Result<(), Invalid> {
    let Scope::Buckets { of, which } = scope else {
        return Ok(());
    };
    if !digest::is_bucket_count(*of as usize) {
        let expected = format!("a power of two of at most {}", digest::BUCKETS_MAX);
        return Err(Invalid::new("report.buckets", of, expected));
    }
    if let Some(unordered) = which.windows(2).find(|pair| pair[0] >= pair[1]) {
        let expected = format!("more than {}, which stands before it", unordered[0]);
        return Err(Invalid::new("report.differing", unordered[1], expected));
    }
    match which.last().filter(|last| *last >= of) {
        None => Ok(()),
        Some(last) => Err(Invalid::new(
            "report.differing",
            last,
            format!("less than the number of buckets, {of}"),
        )),
    }
}

fn tasks(arrival: &Arrival) -> Result<(), Invalid> {
    let mut seen = BTreeSet::new();
    for running in &arrival.held.tasks {
        let info = &running.info;
        if !seen.insert((&running.framework_id, &info.task_id)) {
            let expected = format!("each task of framework `{}` once", running.framework_id);
            return Err(Invalid::new("held.tasks.task_id", &info.task_id, expected));
        }
        if let Some(id) = arrival.agent.id.as_ref().filter(|id| **id != info.agent_id) {
            let expected = format!("the agent that has task `{}`, `{id}`", info.task_id);
            return Err(Invalid::new(
                "held.tasks.agent_id",
                &info.agent_id,
                expected,
            ));
        }
        let kind = info.executor.as_ref().map(|executor| executor.kind);
        let has_both = kind == Some(ExecutorKind::Default);
        if info.command.is_some() != (kind.is_none() || has_both) {
            let expected = "exactly one of command and executor, or both in a task group";
            let value = format!("`{}`", info.task_id);
            return Err(Invalid::new("held.tasks", value, expected));
        }
    }
    Ok(())
}

fn executors(held: &AgentInventory) -> Result<(), Invalid> {
    let mut seen = BTreeSet::new();
    for running in &held.executors {
        let id = &running.info.executor_id;
        if !seen.insert((&running.framework_id, id)) {
            let expected = format!("each executor of framework `{}` once", running.framework_id);
            return Err(Invalid::new("held.executors.executor_id", id, expected));
        }
    }
    Ok(())
}

fn frameworks(held: &AgentInventory) -> Result<(), Invalid> {
    let tasks = held.tasks.iter().map(|task| &task.framework_id);
    let executors = held.executors.iter().map(|executor| &executor.framework_id);
    let owners: BTreeSet<&FrameworkId> = tasks.chain(executors).collect();
    let mut seen = BTreeSet::new();
    for FrameworkInfo {
        id,
        roles: has,
        name,
        ..
    } in &held.frameworks
    {
        let field = "held.frameworks.id";
        let Some(id) = id else {
            let expected = format!("the id of framework `{}`", name.escape_debug());
            return Err(Invalid::new(field, "not set", expected));
        };
        if !owners.contains(id) {
            let expected = "a framework of a reported task or executor";
            return Err(Invalid::new(field, id, expected));
        }
        if !seen.insert(id) {
            return Err(Invalid::new(field, id, "each framework once"));
        }
        if has.is_empty() {
            let expected = format!("at least one role of framework `{id}`");
            return Err(Invalid::new("held.frameworks.roles", "", expected));
        }
        roles("held.frameworks.roles", has)?;
    }
    Ok(())
}
