//! Watches: who wants to hear of whose end.
//!
//! Remembers one watch per watcher and pid, with what to do at the end; a watch is taken out under the
//! lock before it is told, so it is told once, and many are told in their order. Knows nothing of mailboxes or links.

use std::collections::BTreeMap;
use std::sync::Mutex;

use rustc_hash::FxHashMap;

use crate::exit::{Exit, Exited};
use crate::identity::{NodeId, Pid};
use crate::lock;

/// What one actor may watch at once.
const WATCHES_MAX: usize = 1 << 20;
/// What all actors of another node may watch here at once.
const PEER_WATCHES_MAX: usize = 65_536;

/// Told once, with the pid as it was linked.
pub(crate) type Notify = Box<dyn FnOnce(Exited) + Send>;

/// Who watches.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Watcher {
    /// A local actor, by incarnation.
    Actor(u64),
    /// Something else in this process, by a number of its own.
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
type Wished = Pid;
/// The watches of one pid. In an order, since who watches chooses what it writes.
type WatchesOfOne = BTreeMap<(Watcher, Wished), Notify>;

#[derive(Default)]
struct Tables {
    /// By node and the pid itself, so that a lost node costs what was watched on it.
    targets: FxHashMap<NodeId, FxHashMap<Pid, WatchesOfOne>>,
    /// What each watcher watches, and the pid that was meant.
    watchers: FxHashMap<Watcher, BTreeMap<Wished, Pid>>,
}

#[derive(Default)]
pub(crate) struct Watches(Mutex<Tables>);

/// What a change means for the node the target lives on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The first watch of this pid, or the last one gone.
    Edge,
    /// Others watch it as well, or nothing changed.
    None,
}

impl Watches {
    /// Whether this watcher may watch this one, or does already.
    pub(crate) fn has_room(&self, watcher: &Watcher, wished: &Pid) -> bool {
        let tables = lock(&self.0);
        tables.watchers.get(watcher).is_none_or(|watched| {
            watched.len() < watcher.watches_max() || watched.contains_key(wished)
        })
    }

    /// Watches `target`, called `wished` by the watcher. Doing it twice keeps one. Given back if the watcher watches too many.
    pub(crate) fn add(
        &self,
        watcher: Watcher,
        wished: Pid,
        target: Pid,
        notify: Notify,
    ) -> Result<Change, Notify> {
        let mut tables = lock(&self.0);
        let watched = tables.watchers.entry(watcher.clone()).or_default();
        if watched.contains_key(&wished) {
            return Ok(Change::None);
        }
        if watched.len() >= watcher.watches_max() {
            return Err(notify);
        }
        watched.insert(wished.clone(), target.clone());
        let node = tables.targets.entry(target.node().clone()).or_default();
        let watches = node.entry(target).or_default();
        let first = watches.is_empty();
        watches.insert((watcher, wished), notify);
        Ok(if first { Change::Edge } else { Change::None })
    }

    /// Ends one watch untold; gives the pid that was meant, and whether it was the last watch of it.
    pub(crate) fn remove(&self, watcher: &Watcher, wished: &Pid) -> Option<(Pid, Change, Notify)> {
        let mut tables = lock(&self.0);
        let watched = tables.watchers.get_mut(watcher)?;
        let target = watched.remove(wished)?;
        if watched.is_empty() {
            tables.watchers.remove(watcher);
        }
        let (notify, change) = tables.detach(watcher, wished, &target)?;
        Some((target, change, notify))
    }

    /// The watcher has ended: all its watches end untold. Gives the pids nobody watches any more.
    pub(crate) fn forget(&self, watcher: &Watcher) -> Vec<Pid> {
        let mut tables = lock(&self.0);
        let watched = tables.watchers.remove(watcher).unwrap_or_default();
        let mut unwatched = Vec::new();
        for (wished, target) in watched {
            if let Some((_, Change::Edge)) = tables.detach(watcher, &wished, &target) {
                unwatched.push(target);
            }
        }
        unwatched
    }

    /// The target has ended: tells every watcher once.
    pub(crate) fn ended(&self, target: &Pid, reason: &Exit) {
        let told = {
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
            tables.forget_wishes(&watches);
            watches
        };
        tell(told, reason);
    }

    /// Nothing on that node can be heard any more: tells every watcher of anything there once.
    pub(crate) fn node_lost(&self, node: &NodeId, reason: &str) {
        let lost = {
            let mut tables = lock(&self.0);
            let lost = tables.targets.remove(node).unwrap_or_default();
            lost.values()
                .for_each(|watches| tables.forget_wishes(watches));
            lost
        };
        let reason = Exit::NodeLost(reason.to_owned());
        for (_, watches) in sorted(lost) {
            tell(watches, &reason);
        }
    }

    /// Watches of all watchers.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        lock(&self.0).watchers.values().map(BTreeMap::len).sum()
    }

    /// Everything watched on that node.
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
        wished: &Pid,
        target: &Pid,
    ) -> Option<(Notify, Change)> {
        let node = self.targets.get_mut(target.node())?;
        let watches = node.get_mut(target)?;
        let notify = watches.remove(&(watcher.clone(), wished.clone()))?;
        if !watches.is_empty() {
            return Some((notify, Change::None));
        }
        node.remove(target);
        if node.is_empty() {
            self.targets.remove(target.node());
        }
        Some((notify, Change::Edge))
    }

    fn forget_wishes(&mut self, watches: &WatchesOfOne) {
        for (watcher, wished) in watches.keys() {
            let Some(watched) = self.watchers.get_mut(watcher) else {
                continue;
            };
            watched.remove(wished);
            if watched.is_empty() {
                self.watchers.remove(watcher);
            }
        }
    }
}

/// By their keys, which in the table have no order.
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
