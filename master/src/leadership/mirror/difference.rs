//! The difference of two snapshots as changes.
//!
//! Pure. Parts shared by both snapshots are recognized by address and skipped: a comparison costs a
//! look at each agent, framework, offer and agent's load, and at the tasks of frameworks with
//! changes.

use std::cmp::Ordering;
use std::sync::Arc;

use protocol::{AgentId, AgentInfo};

use super::change::{Change, TaskTable};
use crate::agents::by_agent::in_order as by_agent_id;
use crate::frameworks::Completed;
use crate::offers::in_order as by_offer_id;
use crate::roles::weights;
use crate::state::MasterState;
use crate::tasks::{AgentTasks, FrameworkTasks, Task, TaskCondition};

/// The changes that turn `before` into `now`, except the master's own description.
pub fn changes(before: &MasterState, now: &MasterState) -> Vec<Change> {
    let mut out = Vec::new();
    agents(before, now, &mut out);
    frameworks(before, now, &mut out);
    let (old, new) = (before.tasks.frameworks(), now.tasks.frameworks());
    compare(old, new, Arc::ptr_eq, |id, old, new| match (old, new) {
        (_, None) => out.push(Change::NoTasks(id.clone())),
        (None, Some(new)) => out.extend(Change::tasks(TaskTable::Known, new)),
        (Some(old), Some(new)) => tasks(old, new, &mut out),
    });
    let (old, new) = (before.tasks.agents(), now.tasks.agents());
    compare_by(
        by_agent_id,
        old,
        new,
        Arc::ptr_eq,
        |id, old, new| match new {
            None => out.push(Change::Nothing(id.clone())),
            Some(new) => load(id, old.map(Arc::as_ref), new, &mut out),
        },
    );
    let (old, new) = (before.offers.iter(), now.offers.iter());
    let (old, new) = (old.map(|one| (&one.id, one)), new.map(|one| (&one.id, one)));
    compare_by(by_offer_id, old, new, Arc::ptr_eq, |id, _, offer| {
        out.push(match offer {
            Some(offer) => Change::Offer(offer.clone()),
            None => Change::NoOffer(id.clone()),
        });
    });
    let (old, new) = (before.quotas.iter(), now.quotas.iter());
    compare(old, new, PartialEq::eq, |role, _, quota| {
        let quota = quota.cloned().unwrap_or_default();
        out.push(Change::Quota(role.clone(), quota));
    });
    let (old, new) = (before.weights.iter(), now.weights.iter());
    compare(old, new, PartialEq::eq, |role, _, weight| {
        let weight = weight.copied().unwrap_or(weights::DEFAULT);
        out.push(Change::Weight(role.clone(), weight));
    });
    let counts = now.counters.since(&before.counters);
    out.extend(
        counts
            .into_iter()
            .map(|(counted, n)| Change::Count(counted, n)),
    );
    out
}

fn agents(before: &MasterState, now: &MasterState, out: &mut Vec<Change>) {
    let (before, now) = (&before.agents, &now.agents);
    let (old, new) = (before.iter(), now.iter());
    let (old, new) = (old.map(|one| (&one.id, one)), new.map(|one| (&one.id, one)));
    compare(old, new, Arc::ptr_eq, |id, _, agent| {
        out.push(match agent {
            Some(agent) => Change::Agent(agent.clone()),
            None => Change::NoAgent(id.clone()),
        });
    });
    let (old, new) = (before.recovered(), now.recovered());
    let same = |old: &AgentInfo, new: &AgentInfo| std::ptr::eq(old, new) || old == new;
    compare_by(by_agent_id, old, new, same, |id, _, info| {
        out.push(match info {
            Some(info) => Change::Awaited(id.clone(), Box::new(info.clone())),
            None => Change::NotAwaited(id.clone()),
        });
    });
    let (old, new) = (before.unreachable().iter(), now.unreachable().iter());
    compare(old, new, PartialEq::eq, |id, _, since| {
        out.push(match since {
            Some(since) => Change::Unreachable(id.clone(), *since),
            None => Change::NotUnreachable(id.clone()),
        });
    });
}

fn frameworks(before: &MasterState, now: &MasterState, out: &mut Vec<Change>) {
    let (old, new) = (before.frameworks.iter(), now.frameworks.iter());
    let (old, new) = (old.map(|one| (&one.id, one)), new.map(|one| (&one.id, one)));
    compare(old, new, Arc::ptr_eq, |id, _, framework| {
        out.push(match framework {
            Some(framework) => Change::Framework(framework.clone()),
            None => Change::NoFramework(id.clone()),
        });
    });
    for framework in now.frameworks.iter() {
        let id = &framework.id;
        let (old, new) = (before.frameworks.counters(id), now.frameworks.counters(id));
        if let Some(new) = new
            && !old.is_some_and(|old| Arc::ptr_eq(old, new))
        {
            out.push(Change::Dealings(id.clone(), new.counts()));
        }
    }
    let (old, new) = (before.frameworks.completed(), now.frameworks.completed());
    let same = |old: &Completed, new: &Completed| {
        Arc::ptr_eq(&old.framework, &new.framework) && Arc::ptr_eq(&old.tasks, &new.tasks)
    };
    in_order(old, new, same, |one, is_there| {
        if is_there {
            out.push(Change::Completed(one.framework.clone()));
            out.extend(Change::tasks(TaskTable::Completed, &one.tasks));
        } else {
            out.push(Change::NotCompleted(one.framework.id.clone()));
        }
    });
}

/// The tasks of one framework.
fn tasks(old: &FrameworkTasks, new: &FrameworkTasks, out: &mut Vec<Change>) {
    let mut told = |place, task: &Arc<Task>, is_there: bool| {
        out.push(match is_there {
            true => Change::Task(TaskTable::Known, place, task.clone()),
            false => Change::NoTask(task.framework_id.clone(), place, task.id.clone()),
        });
    };
    let (before, now) = (old.active_by_id().iter(), new.active_by_id().iter());
    compare(before, now, Arc::ptr_eq, |_, old, new| {
        match (old, new) {
            (_, Some(task)) => told(TaskCondition::Active, task, true),
            (Some(task), None) => told(TaskCondition::Active, task, false),
            (None, None) => {}
        };
    });
    in_order(old.completed(), new.completed(), Arc::ptr_eq, |task, is| {
        told(TaskCondition::Completed, task, is);
    });
    let (old, new) = (old.unreachable(), new.unreachable());
    in_order(old, new, Arc::ptr_eq, |task, is| {
        told(TaskCondition::Unreachable, task, is);
    });
}

/// The tasks and executors on one agent.
fn load(id: &AgentId, old: Option<&AgentTasks>, new: &AgentTasks, out: &mut Vec<Change>) {
    if old.map(AgentTasks::held) != Some(new.held()) {
        let held = new.held().iter();
        let held = held.map(|(framework, held)| (framework.clone(), held.clone()));
        out.push(Change::Held(id.clone(), held.collect()));
    }
    let old = old.into_iter().flat_map(AgentTasks::executors_by_id);
    let old = old.map(|(key, (info, _))| (key, info));
    let new = new.executors_by_id().iter();
    let new = new.map(|(key, (info, _))| (key, info));
    compare(old, new, Arc::ptr_eq, |(framework, executor), _, info| {
        let (id, framework) = (id.clone(), framework.clone());
        out.push(match info {
            Some(info) => Change::Executor(id, framework, info.clone()),
            None => Change::NoExecutor(id, framework, executor.clone()),
        });
    });
}

/// Walks two tables in key order and reports the differences: key, old value, new value.
pub(crate) fn compare<'a, K: Ord + 'a, V: 'a>(
    old: impl Iterator<Item = (&'a K, &'a V)>,
    new: impl Iterator<Item = (&'a K, &'a V)>,
    same: impl Fn(&V, &V) -> bool,
    differs: impl FnMut(&'a K, Option<&'a V>, Option<&'a V>),
) {
    compare_by(K::cmp, old, new, same, differs);
}

/// The same for another order.
fn compare_by<'a, K: 'a, V: 'a>(
    in_order: impl Fn(&K, &K) -> Ordering,
    old: impl Iterator<Item = (&'a K, &'a V)>,
    new: impl Iterator<Item = (&'a K, &'a V)>,
    same: impl Fn(&V, &V) -> bool,
    mut differs: impl FnMut(&'a K, Option<&'a V>, Option<&'a V>),
) {
    let (mut old, mut new) = (old.peekable(), new.peekable());
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((old, _)), Some((new, _))) => in_order(old, new),
        };
        let was = (order != Ordering::Greater).then(|| old.next()).flatten();
        let is = (order != Ordering::Less).then(|| new.next()).flatten();
        match (was, is) {
            (Some((_, was)), Some((key, is))) if !same(was, is) => {
                differs(key, Some(was), Some(is))
            }
            (Some((key, was)), None) => differs(key, Some(was), None),
            (None, Some((key, is))) => differs(key, None, Some(is)),
            _ => {}
        }
    }
}

/// Walks two lists that grow at the end, and reports the values to remove from the old one, and
/// then the values to append. Values that were removed and appended are reported once; if the order
/// has changed in another way, more is removed and appended than necessary.
fn in_order<'a, V: 'a>(
    old: impl Iterator<Item = &'a V>,
    new: impl Iterator<Item = &'a V>,
    same: impl Fn(&V, &V) -> bool,
    mut differs: impl FnMut(&'a V, bool),
) {
    let (mut old, mut new) = (old, new.peekable());
    for was in old.by_ref() {
        match new.peek() {
            Some(is) if same(was, is) => drop(new.next()),
            _ => differs(was, false),
        }
    }
    for is in new {
        differs(is, true);
    }
}
