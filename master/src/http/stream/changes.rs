//! What has happened between two snapshots of the books, as the events that a subscriber of the operator API hears (SPEC 2.6).
//!
//! Pure. Whoever knew all of the one snapshot and hears these events knows all of the other: nothing is left out but what is named below, and
//! nothing said twice. An agent of which something else is ordered, or that describes itself otherwise or has registered again, is told as if it had
//! just come, since the schema has no other event for it. What it lends, and what of it is offered or in use, is left out: that changes all the time.
//! Frameworks and agents that come are told before tasks, those that go after them. A task is told as it was placed, and then each status
//! that its framework was told, also if it is over and forgotten by now. What stays untold is an agent that came and went within one
//! interval, a framework that did and is forgotten by now, with its tasks, and a task that was over before whoever hears it could see it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::{AgentInfo, FrameworkId, Source, TaskId, TaskState, TaskStatus};
use runtime::Timestamp;
use v1::describe::made;
use v1::schema::master::{
    Event, EventAgentAdded, EventAgentRemoved, EventFrameworkAdded, EventFrameworkRemoved,
    EventFrameworkUpdated, EventTaskAdded, EventTaskUpdated, EventType,
    ResponseGetFrameworksFramework,
};

use super::super::operator::words::{AgentSeen, FrameworkSeen, framework_info};
use super::super::shown::Shown;
use crate::agents::Agent;
use crate::books::Books;
use crate::frameworks::{Completed, Framework};
use crate::mirror::difference::compare;
use crate::tasks::{ById, Noted, OfFramework, Task};

/// What makes `now` of `before`, it being `at` now. `noted` is what was noted of tasks since, in its order.
pub(super) fn changes(before: &Books, now: &Books, noted: &[&Noted], at: Timestamp) -> Vec<Event> {
    let shown = Shown::of(now);
    let (mut out, mut last) = (Vec::new(), Vec::new());
    let (old, new) = (before.agents.iter(), now.agents.iter());
    let (old, new) = (old.map(|one| (&one.id, one)), new.map(|one| (&one.id, one)));
    compare(old, new, Arc::ptr_eq, |id, old, new| match (old, new) {
        (None, Some(agent)) => out.push(agent_added(shown, agent)),
        (Some(old), Some(agent)) if is_otherwise((Shown::of(before), old), (shown, agent)) => {
            out.push(agent_added(shown, agent));
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

fn agent_added(shown: Shown<'_>, agent: &Arc<Agent>) -> Event {
    Event {
        r#type: Some(EventType::AgentAdded),
        agent_added: Some(Box::new(EventAgentAdded {
            agent: made(&AgentSeen(shown, agent)),
        })),
        ..Event::default()
    }
}

/// Whether operators have ordered something else of it, or it is active where it was not, or the other way round, or it describes itself
/// otherwise, or has registered again, or operations have changed what it has, as far as that is seen. There is no event for that: it is told
/// once more.
fn is_otherwise((then, old): (Shown<'_>, &Agent), (shown, new): (Shown<'_>, &Agent)) -> bool {
    let is_offered = |agent: &Agent| (agent.orders, agent.is_active());
    let is_described = |old: &AgentInfo, new: &AgentInfo| {
        (&old.hostname, old.port) == (&new.hostname, new.port)
            && (&old.attributes, &old.domain) == (&new.attributes, &new.domain)
            && then.resources(&old.resources) == shown.resources(&new.resources)
    };
    let registered = |agent: &Agent| (agent.registered, agent.reregistered, agent.address());
    is_offered(old) != is_offered(new)
        || (&old.version, registered(old)) != (&new.version, registered(new))
        || !is_described(&old.info, &new.info)
}

/// Tells which frameworks are new or are something else; gives those that are no more.
fn frameworks<'a>(
    before: &'a Books,
    now: &'a Books,
    out: &mut Vec<Event>,
) -> Vec<&'a Arc<Framework>> {
    let shown = Shown::of(now);
    let mut gone = Vec::new();
    let (old, new) = (before.frameworks.iter(), now.frameworks.iter());
    let (old, new) = (old.map(|one| (&one.id, one)), new.map(|one| (&one.id, one)));
    compare(old, new, Arc::ptr_eq, |_, old, new| match (old, new) {
        (None, Some(new)) => out.push(framework_added(shown, new)),
        (Some(old), Some(new)) if is_other(old, new) => out.push(framework_updated(shown, new)),
        (Some(old), None) => gone.push(old),
        _ => {}
    });
    // Those that came and ended in between.
    let known: BTreeSet<&FrameworkId> = before.frameworks.completed().map(id).collect();
    for one in now.frameworks.completed() {
        let is_known =
            known.contains(&one.framework.id) || before.frameworks.get(&one.framework.id).is_some();
        if !is_known && now.frameworks.get(&one.framework.id).is_none() {
            out.push(framework_added(shown, &one.framework));
            gone.push(&one.framework);
        }
    }
    gone
}

fn id(completed: &Completed) -> &FrameworkId {
    &completed.framework.id
}

/// Whether subscribers hear of the difference: what a framework wants for the moment, but for its constraints, is none.
fn is_other(old: &Framework, new: &Framework) -> bool {
    let seen = |one: &Framework| (one.is_connected(), one.recovered, one.reregistered);
    old.info != new.info || seen(old) != seen(new) || old.wants.demands != new.wants.demands
}

fn framework_added(shown: Shown<'_>, framework: &Framework) -> Event {
    Event {
        r#type: Some(EventType::FrameworkAdded),
        framework_added: Some(Box::new(EventFrameworkAdded {
            framework: seen(shown, framework),
        })),
        ..Event::default()
    }
}

fn framework_updated(shown: Shown<'_>, framework: &Framework) -> Event {
    Event {
        r#type: Some(EventType::FrameworkUpdated),
        framework_updated: Some(Box::new(EventFrameworkUpdated {
            framework: seen(shown, framework),
        })),
        ..Event::default()
    }
}

fn seen(shown: Shown<'_>, framework: &Framework) -> ResponseGetFrameworksFramework {
    made(&FrameworkSeen {
        shown,
        framework,
        held: shown.held_by(&framework.id),
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

fn tasks(before: &Books, now: &Books, noted: &[&Noted], at: Timestamp, out: &mut Vec<Event>) {
    let mut noted_of: BTreeMap<&FrameworkId, Vec<&Noted>> = BTreeMap::new();
    for one in noted {
        let of = noted_of.entry(&one.task.framework_id).or_default();
        of.push(one);
    }
    // Those of a framework that has ended are with it, the ones that could not be reached too.
    let known: BTreeSet<*const Framework> = before.frameworks.completed().map(place).collect();
    let completed = now.frameworks.completed();
    let mut ended: BTreeMap<&FrameworkId, &OfFramework> = completed
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
    // Of others nobody was told, as they have come and gone in between and are forgotten: nor are they of their tasks.
    let completed = now.frameworks.completed().map(id);
    let told: BTreeSet<&FrameworkId> = completed
        .chain(before.frameworks.completed().map(id))
        .collect();
    for (id, noted) in noted_of {
        let is_known = |books: &Books| books.frameworks.get(id).is_some();
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
    old: Option<&OfFramework>,
    new: Option<&OfFramework>,
    noted: &[&Noted],
    at: Timestamp,
    out: &mut Vec<Event>,
) {
    let live = |id: &TaskId| {
        let of = old?;
        let active = of.active_by_id().get(id).cloned();
        active.or_else(|| of.unreachable().find(|task| task.id == *id).cloned())
    };
    // What subscribers know by now; nothing of one that is over: what bears its id after that is another one.
    let mut told_of: BTreeMap<&TaskId, Option<&Arc<Task>>> = BTreeMap::new();
    for one in noted {
        let task = &one.task;
        let known = match told_of.get(&task.id) {
            Some(known) => known.cloned(),
            None => live(&task.id),
        };
        told(known, task, at, out);
        told_of.insert(&task.id, Some(task).filter(|_| !one.is_over));
    }
    let Some(new) = new else { return };
    let known = |id: &TaskId| match told_of.get(id) {
        Some(known) => known.cloned(),
        None => live(id),
    };
    for task in new.unreachable() {
        if !new.active_by_id().contains_key(&task.id) {
            told(known(&task.id), task, at, out);
        }
    }
    let empty = ById::default();
    let active = old.map_or(&empty, OfFramework::active_by_id);
    compare(
        active.iter(),
        new.active_by_id().iter(),
        Arc::ptr_eq,
        |id, _, task| {
            if let Some(task) = task {
                told(known(id), task, at, out);
            }
        },
    );
}

/// A task that subscribers know as `old` is `new`.
fn told(old: Option<Arc<Task>>, new: &Arc<Task>, at: Timestamp, out: &mut Vec<Event>) {
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
                task: made(&placed),
            })),
            ..Event::default()
        });
    }
    let statuses = news(old.as_deref(), new);
    for status in statuses {
        out.push(task_updated(new, status));
        state = Some(new.state);
    }
    if state != Some(new.state) {
        let status = TaskStatus::new(new.id.clone(), new.state, Source::Master, at);
        out.push(task_updated(new, &status));
    }
}

/// The task as it was before all that its framework was told of it.
fn placed(task: &Task) -> Task {
    let mut placed = task.clone();
    if !placed.statuses.is_empty() {
        placed.statuses.clear();
        (placed.state, placed.told) = (TaskState::Staging, TaskState::Staging);
    }
    placed
}

/// The statuses that have come. Of two in a row with the same state a task remembers the newer.
fn news<'a>(old: Option<&Task>, new: &'a Task) -> &'a [TaskStatus] {
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
