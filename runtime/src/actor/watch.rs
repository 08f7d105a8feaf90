//! Watches: which watcher is notified of the end of which actor.
//!
//! There is one watch per watcher and pid, with its callback. A watch is removed under the lock
//! before it is notified, so it is notified once; several are notified in a fixed order. This
//! module knows no mailboxes or links.

use std::collections::BTreeMap;
use std::sync::Mutex;

use rustc_hash::FxHashMap;

use crate::actor::exit::{Exit, Exited};
use crate::identity::{NodeId, Pid};
use crate::lock;

/// Maximum number of watches of one actor.
const WATCHES_MAX: usize = 1 << 20;
/// Maximum number of watches here of all actors of another node.
const PEER_WATCHES_MAX: usize = 65_536;

/// Called once, with the pid as it was linked.
pub(crate) type Notify = Box<dyn FnOnce(Exited) + Send>;

/// The owner of a watch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Watcher {
    /// A local actor, by incarnation.
    Actor(u64),
    /// A future in this process, by a number of its own.
    Future(u64),
    /// Another node, for its own watchers.
    Node(NodeId),
}

impl Watcher {
    fn watches_max(&self) -> usize {
        match self {
            Watcher::Actor(_) | Watcher::Future(_) => WATCHES_MAX,
            Watcher::Node(_) => PEER_WATCHES_MAX,
        }
    }
}

/// The pid as the watcher wrote it, which may be a look-up address.
type LookupPid = Pid;
/// The watches of one pid. Ordered, because remote watchers choose the keys (a hash table would be
/// open to collision attacks).
type WatchesOfOne = BTreeMap<(Watcher, LookupPid), Notify>;

#[derive(Default)]
struct Tables {
    /// By node and pid, so that the cost of a lost node is proportional to the watches on it.
    targets: FxHashMap<NodeId, FxHashMap<Pid, WatchesOfOne>>,
    /// The watches of each watcher, with the resolved pids.
    watchers: FxHashMap<Watcher, BTreeMap<LookupPid, Pid>>,
}

#[derive(Default)]
pub(crate) struct Watches(Mutex<Tables>);

/// The effect of a change on the target's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The first watch of this pid was added, or the last one removed.
    Edge,
    /// There are other watches of it, or nothing changed.
    None,
}

impl Watches {
    /// Whether this watcher may add this watch, or has it already.
    pub(crate) fn has_room(&self, watcher: &Watcher, requested: &Pid) -> bool {
        let tables = lock(&self.0);
        tables.watchers.get(watcher).is_none_or(|watched| {
            watched.len() < watcher.watches_max() || watched.contains_key(requested)
        })
    }

    /// Adds a watch of `target`, called `requested` by the watcher. Idempotent. Returns the
    /// callback if the watcher has too many.
    pub(crate) fn add(
        &self,
        watcher: Watcher,
        requested: Pid,
        target: Pid,
        notify: Notify,
    ) -> Result<Change, Notify> {
        let mut tables = lock(&self.0);
        let watched = tables.watchers.entry(watcher.clone()).or_default();
        if watched.contains_key(&requested) {
            return Ok(Change::None);
        }
        if watched.len() >= watcher.watches_max() {
            return Err(notify);
        }
        watched.insert(requested.clone(), target.clone());
        let node = tables.targets.entry(target.node().clone()).or_default();
        let watches = node.entry(target).or_default();
        let first = watches.is_empty();
        watches.insert((watcher, requested), notify);
        Ok(if first { Change::Edge } else { Change::None })
    }

    /// Removes one watch without notification; returns its target, and whether it was the target's
    /// last watch.
    pub(crate) fn remove(
        &self,
        watcher: &Watcher,
        requested: &Pid,
    ) -> Option<(Pid, Change, Notify)> {
        let mut tables = lock(&self.0);
        let watched = tables.watchers.get_mut(watcher)?;
        let target = watched.remove(requested)?;
        if watched.is_empty() {
            tables.watchers.remove(watcher);
        }
        let (notify, change) = tables.detach(watcher, requested, &target)?;
        Some((target, change, notify))
    }

    /// The watcher has ended: removes all its watches without notification. Returns the targets
    /// without watches.
    pub(crate) fn forget(&self, watcher: &Watcher) -> Vec<Pid> {
        let mut tables = lock(&self.0);
        let watched = tables.watchers.remove(watcher).unwrap_or_default();
        let mut unwatched = Vec::new();
        for (requested, target) in watched {
            if let Some((_, Change::Edge)) = tables.detach(watcher, &requested, &target) {
                unwatched.push(target);
            }
        }
        unwatched
    }

    /// The target has ended: notifies every watcher once.
    pub(crate) fn ended(&self, target: &Pid, reason: &Exit) {
        let ended_watches = {
            let mut tables = lock(&self.0);
            let Some(node) = tables.targets.get_mut(target.node()) else {
                return;
            };
            let Some(watches) = node.remove(target) else {
                return;
            };
            if node.is_empty() {
                tables.targets.remove(target.node());
            }
            tables.forget_requested(&watches);
            watches
        };
        tell(ended_watches, reason);
    }

    /// That node is lost: notifies every watcher of its actors once.
    pub(crate) fn node_lost(&self, node: &NodeId, reason: &str) {
        let lost = {
            let mut tables = lock(&self.0);
            let lost = tables.targets.remove(node).unwrap_or_default();
            lost.values()
                .for_each(|watches| tables.forget_requested(watches));
            lost
        };
        let reason = Exit::NodeLost(reason.to_owned());
        for (_, watches) in sorted(lost) {
            tell(watches, &reason);
        }
    }

    /// The number of watches of all watchers.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        lock(&self.0).watchers.values().map(BTreeMap::len).sum()
    }

    /// The watched actors of that node.
    pub(crate) fn targets_on(&self, node: &NodeId) -> Vec<Pid> {
        let tables = lock(&self.0);
        let targets = tables.targets.get(node).into_iter();
        let mut targets: Vec<Pid> = targets.flat_map(FxHashMap::keys).cloned().collect();
        targets.sort();
        targets
    }
}

impl Tables {
    fn detach(
        &mut self,
        watcher: &Watcher,
        requested: &Pid,
        target: &Pid,
    ) -> Option<(Notify, Change)> {
        let node = self.targets.get_mut(target.node())?;
        let watches = node.get_mut(target)?;
        let notify = watches.remove(&(watcher.clone(), requested.clone()))?;
        if !watches.is_empty() {
            return Some((notify, Change::None));
        }
        node.remove(target);
        if node.is_empty() {
            self.targets.remove(target.node());
        }
        Some((notify, Change::Edge))
    }

    fn forget_requested(&mut self, watches: &WatchesOfOne) {
        for (watcher, requested) in watches.keys() {
            let Some(watched) = self.watchers.get_mut(watcher) else {
                continue;
            };
            watched.remove(requested);
            if watched.is_empty() {
                self.watchers.remove(watcher);
            }
        }
    }
}

/// Sorted by key, since the table has no order.
fn sorted<K: Ord, V>(table: FxHashMap<K, V>) -> Vec<(K, V)> {
    let mut entries: Vec<(K, V)> = table.into_iter().collect();
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    entries
}

fn tell(watches: WatchesOfOne, reason: &Exit) {
    for ((_, pid), notify) in watches {
        notify(Exited {
            pid,
            reason: reason.clone(),
        });
    }
}
