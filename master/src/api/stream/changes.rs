//! The difference of two snapshots as events of the operator API.
//!
//! Pure. A subscriber that knows the first snapshot and receives these events knows the second:
//! nothing is repeated, and nothing omitted except as listed here. An agent with new orders, a new
//! description or a new registration is sent as if it had just been added, since the schema has no
//! other event. Its revocable, offered and used resources are left out: they change all the time.
//! New frameworks and agents come before tasks, removed ones after. A task is sent as it was
//! launched, and then each status that its framework was sent, even if the task is already
//! forgotten. Omitted are agents that came and went within one interval, frameworks that did and
//! are forgotten, with their tasks, and tasks that were over before the subscriber could see them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::{AgentInfo, FrameworkId, Source, TaskId, TaskState, TaskStatus};
use runtime::Timestamp;
use v1::describe::build;
use v1::schema::master::{
    Event, EventAgentAdded, EventAgentRemoved, EventFrameworkAdded, EventFrameworkRemoved,
    EventFrameworkUpdated, EventTaskAdded, EventTaskUpdated, EventType,
    ResponseGetFrameworksFramework,
};

use super::super::operator::objects::{DescribeAgent, DescribeFramework, framework_info};
use crate::agents::Agent;
use crate::api::pages::visible::VisibleState;
use crate::frameworks::{Completed, Framework};
use crate::leadership::mirror::difference::compare;
use crate::state::MasterState;
use crate::tasks::{ById, FrameworkTasks, Task, TaskNote};

/// The events that turn `before` into `now`, at time `at`. `noted` are the task notes in between,
/// in order.
pub(super) fn changes(
    before: &MasterState,
    now: &MasterState,
    noted: &[&TaskNote],
    at: Timestamp,
) -> Vec<Event> {
    let visible = VisibleState::of(now);
    let (mut out, mut last) = (Vec::new(), Vec::new());
    let (old, new) = (before.agents.iter(), now.agents.iter());
    let (old, new) = (old.map(|one| (&one.id, one)), new.map(|one| (&one.id, one)));
    compare(old, new, Arc::ptr_eq, |id, old, new| match (old, new) {
        (None, Some(agent)) => out.push(agent_added(visible, agent)),
        (Some(old), Some(agent))
            if needs_update((VisibleState::of(before), old), (visible, agent)) =>
        {
            out.push(agent_added(visible, agent));
        }
        (_, None) => last.push(Event {
            r#type: Some(EventType::AgentRemoved),
            agent_removed: Some(EventAgentRemoved {
                agent_id: id.into(),
            }),
            ..Event::default()
        }),
        (Some(_), Some(_)) => {}
    });
    let gone = frameworks(before, now, &mut out);
    tasks(before, now, noted, at, &mut out);
    out.extend(gone.into_iter().map(framework_removed));
    out.append(&mut last);
    out
}

fn agent_added(visible: VisibleState<'_>, agent: &Arc<Agent>) -> Event {
    Event {
        r#type: Some(EventType::AgentAdded),
        agent_added: Some(Box::new(EventAgentAdded {
            agent: build(&DescribeAgent(visible, agent)),
        })),
        ..Event::default()
    }
}

/// Whether the agent must be sent again: its orders, activation, description, registration or
/// visible resources have changed.
fn needs_update(
    (then, old): (VisibleState<'_>, &Agent),
    (visible, new): (VisibleState<'_>, &Agent),
) -> bool {
    let is_offered = |agent: &Agent| (agent.orders, agent.is_active());
    let is_described = |old: &AgentInfo, new: &AgentInfo| {
        (&old.hostname, old.port) == (&new.hostname, new.port)
            && (&old.attributes, &old.domain) == (&new.attributes, &new.domain)
            && then.resources(&old.resources) == visible.resources(&new.resources)
    };
    let registered = |agent: &Agent| (agent.registered, agent.reregistered, agent.address());
    is_offered(old) != is_offered(new)
        || (&old.version, registered(old)) != (&new.version, registered(new))
        || !is_described(&old.info, &new.info)
}

/// Appends the events of new and changed frameworks; returns the removed ones.
fn frameworks<'a>(
    before: &'a MasterState,
    now: &'a MasterState,
    out: &mut Vec<Event>,
) -> Vec<&'a Arc<Framework>> {
    let visible = VisibleState::of(now);
    let mut gone = Vec::new();
    let (old, new) = (before.frameworks.iter(), now.frameworks.iter());
    let (old, new) = (old.map(|one| (&one.id, one)), new.map(|one| (&one.id, one)));
    compare(old, new, Arc::ptr_eq, |_, old, new| match (old, new) {
        (None, Some(new)) => out.push(framework_added(visible, new)),
        (Some(old), Some(new)) if is_changed(old, new) => out.push(framework_updated(visible, new)),
        (Some(old), None) => gone.push(old),
        _ => {}
    });
    // Frameworks that came and ended in between.
    let known: BTreeSet<&FrameworkId> = before.frameworks.completed().map(id).collect();
    for one in now.frameworks.completed() {
        let is_known =
            known.contains(&one.framework.id) || before.frameworks.get(&one.framework.id).is_some();
        if !is_known && now.frameworks.get(&one.framework.id).is_none() {
            out.push(framework_added(visible, &one.framework));
            gone.push(&one.framework);
        }
    }
    gone
}

fn id(completed: &Completed) -> &FrameworkId {
    &completed.framework.id
}

/// Whether the difference matters to subscribers: of a framework's wishes only its constraints do.
fn is_changed(old: &Framework, new: &Framework) -> bool {
    let seen = |one: &Framework| (one.is_connected(), one.recovered, one.reregistered);
    old.info != new.info || seen(old) != seen(new) || old.wants.demands != new.wants.demands
}

fn framework_added(visible: VisibleState<'_>, framework: &Framework) -> Event {
    Event {
        r#type: Some(EventType::FrameworkAdded),
        framework_added: Some(Box::new(EventFrameworkAdded {
            framework: seen(visible, framework),
        })),
        ..Event::default()
    }
}

fn framework_updated(visible: VisibleState<'_>, framework: &Framework) -> Event {
    Event {
        r#type: Some(EventType::FrameworkUpdated),
        framework_updated: Some(Box::new(EventFrameworkUpdated {
            framework: seen(visible, framework),
        })),
        ..Event::default()
    }
}

fn seen(visible: VisibleState<'_>, framework: &Framework) -> ResponseGetFrameworksFramework {
    build(&DescribeFramework {
        visible,
        framework,
        held: visible.held_by(&framework.id),
    })
}

fn framework_removed(framework: &Arc<Framework>) -> Event {
    Event {
        r#type: Some(EventType::FrameworkRemoved),
        framework_removed: Some(Box::new(EventFrameworkRemoved {
            framework_info: framework_info(framework),
        })),
        ..Event::default()
    }
}

fn tasks(
    before: &MasterState,
    now: &MasterState,
    noted: &[&TaskNote],
    at: Timestamp,
    out: &mut Vec<Event>,
) {
    let mut noted_of: BTreeMap<&FrameworkId, Vec<&TaskNote>> = BTreeMap::new();
    for one in noted {
        let of = noted_of.entry(&one.task.framework_id).or_default();
        of.push(one);
    }
    // The tasks of an ended framework are stored with it, including unreachable ones.
    let known: BTreeSet<*const Framework> = before.frameworks.completed().map(place).collect();
    let completed = now.frameworks.completed();
    let mut ended: BTreeMap<&FrameworkId, &FrameworkTasks> = completed
        .filter(|one| !known.contains(&place(one)))
        .map(|one| (&one.framework.id, one.tasks.as_ref()))
        .collect();
    let (old, new) = (before.tasks.frameworks(), now.tasks.frameworks());
    compare(old, new, Arc::ptr_eq, |id, old, new| {
        let noted = noted_of.remove(id).unwrap_or_default();
        let new = new.map(Arc::as_ref).or(ended.remove(id));
        of_framework(old.map(Arc::as_ref), new, &noted, at, out);
    });
    for (id, tasks) in ended {
        if now.tasks.of_framework(id).is_none() {
            let noted = noted_of.remove(id).unwrap_or_default();
            of_framework(None, Some(tasks), &noted, at, out);
        }
    }
    // Other frameworks came and went in between and are forgotten: neither they nor their tasks are
    // sent.
    let completed = now.frameworks.completed().map(id);
    let told: BTreeSet<&FrameworkId> = completed
        .chain(before.frameworks.completed().map(id))
        .collect();
    for (id, noted) in noted_of {
        let is_known = |state: &MasterState| state.frameworks.get(id).is_some();
        if is_known(before) || is_known(now) || told.contains(id) {
            of_framework(None, None, &noted, at, out);
        }
    }
}

fn place(completed: &Completed) -> *const Framework {
    Arc::as_ptr(&completed.framework)
}

/// The tasks of one framework.
fn of_framework(
    old: Option<&FrameworkTasks>,
    new: Option<&FrameworkTasks>,
    noted: &[&TaskNote],
    at: Timestamp,
    out: &mut Vec<Event>,
) {
    let live = |id: &TaskId| {
        let of = old?;
        let active = of.active_by_id().get(id).cloned();
        active.or_else(|| of.unreachable().find(|task| task.id == *id).cloned())
    };
    // The tasks as subscribers know them; `None` once over, because another task may reuse the id.
    let mut told_of: BTreeMap<&TaskId, Option<&Arc<Task>>> = BTreeMap::new();
    for one in noted {
        let task = &one.task;
        let known = match told_of.get(&task.id) {
            Some(known) => known.cloned(),
            None => live(&task.id),
        };
        append_task_events(known, task, at, out);
        told_of.insert(&task.id, Some(task).filter(|_| !one.is_over));
    }
    let Some(new) = new else { return };
    let known = |id: &TaskId| match told_of.get(id) {
        Some(known) => known.cloned(),
        None => live(id),
    };
    for task in new.unreachable() {
        if !new.active_by_id().contains_key(&task.id) {
            append_task_events(known(&task.id), task, at, out);
        }
    }
    let empty = ById::default();
    let active = old.map_or(&empty, FrameworkTasks::active_by_id);
    compare(
        active.iter(),
        new.active_by_id().iter(),
        Arc::ptr_eq,
        |id, _, task| {
            if let Some(task) = task {
                append_task_events(known(id), task, at, out);
            }
        },
    );
}

/// Appends the events that turn a task known as `old` into `new`.
fn append_task_events(
    old: Option<Arc<Task>>,
    new: &Arc<Task>,
    at: Timestamp,
    out: &mut Vec<Event>,
) {
    if old.as_ref().is_some_and(|old| Arc::ptr_eq(old, new)) {
        return;
    }
    let mut state = old.as_ref().map(|old| old.state);
    if old.is_none() {
        let placed = placed(new);
        state = Some(placed.state);
        out.push(Event {
            r#type: Some(EventType::TaskAdded),
            task_added: Some(Box::new(EventTaskAdded {
                task: build(&placed),
            })),
            ..Event::default()
        });
    }
    let statuses = new_statuses(old.as_deref(), new);
    for status in statuses {
        out.push(task_updated(new, status));
        state = Some(new.state);
    }
    if state != Some(new.state) {
        let status = TaskStatus::new(new.id.clone(), new.state, Source::Master, at);
        out.push(task_updated(new, &status));
    }
}

/// The task before the first status to its framework.
fn placed(task: &Task) -> Task {
    let mut placed = task.clone();
    if !placed.statuses.is_empty() {
        placed.statuses.clear();
        (placed.state, placed.told) = (TaskState::Staging, TaskState::Staging);
    }
    placed
}

/// The new statuses. Of consecutive ones with the same state a task keeps only the newest.
fn new_statuses<'a>(old: Option<&Task>, new: &'a Task) -> &'a [TaskStatus] {
    let Some((old, newest)) = old.and_then(|old| Some((old, old.statuses.last()?))) else {
        return &new.statuses;
    };
    let from = match new.statuses.iter().rposition(|status| status == newest) {
        Some(known) => known + 1,
        None => old.statuses.len().min(new.statuses.len()).saturating_sub(1),
    };
    &new.statuses[from..]
}

fn task_updated(task: &Task, status: &TaskStatus) -> Event {
    Event {
        r#type: Some(EventType::TaskUpdated),
        task_updated: Some(Box::new(EventTaskUpdated {
            framework_id: (&task.framework_id).into(),
            status: status.into(),
            state: task.state.into(),
        })),
        ..Event::default()
    }
}
