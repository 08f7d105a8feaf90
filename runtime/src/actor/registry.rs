//! The registry of living actors on this node, by incarnation and by name.
//!
//! It holds an entry per living incarnation and, while an actor waits to be restarted, its name and
//! counts. A name belongs to at most one actor at a time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use rustc_hash::FxHashMap;

use crate::actor::handle::StopRequest;
use crate::actor::mailbox::Meter;
use crate::actor::process::{AnyIncarnation, HandlerTable};
use crate::clock::Instant;
use crate::identity::Pid;
use crate::{lock, read, write};

/// One living incarnation.
pub(crate) struct Entry {
    pub(crate) pid: Pid,
    pub(crate) meter: Arc<Meter>,
    pub(crate) handlers: Arc<HandlerTable>,
    pub(crate) halt: Arc<StopRequest>,
    pub(crate) body: Arc<AnyIncarnation>,
    pub(crate) restarts: u32,
    /// The placement's name of its thread.
    pub(crate) thread: Arc<str>,
}

/// An actor between two incarnations.
pub(crate) struct RestartingActor {
    /// The pid of the last incarnation.
    pub(crate) pid: Pid,
    pub(crate) meter: Arc<Meter>,
    pub(crate) thread: Arc<str>,
    pub(crate) halt: Arc<StopRequest>,
    /// How often it was restarted before.
    pub(crate) restarts: u32,
    /// When it is restarted.
    pub(crate) until: Instant,
}

#[derive(Clone)]
pub(crate) enum Holder {
    Living(Arc<Entry>),
    Restarting(Arc<RestartingActor>),
}

#[derive(Default)]
struct Tables {
    by_incarnation: FxHashMap<u64, Arc<Entry>>,
    by_name: BTreeMap<Arc<str>, Holder>,
    /// Messages of panics that ended an actor from outside its task, until it has ended.
    crashed: BTreeMap<u64, String>,
}

#[derive(Default)]
pub(crate) struct Registry {
    tables: RwLock<Tables>,
    incarnations: AtomicU64,
    unnamed: Mutex<BTreeMap<String, u64>>,
    /// Message names by id, over all actors that ever lived here.
    messages: Mutex<BTreeMap<u32, &'static str>>,
    /// Message ids, with their highest versions, that future actors accept from other nodes.
    announced: Mutex<BTreeMap<u32, u16>>,
    emptied: tokio::sync::Notify,
}

/// Two message names have one id.
pub(crate) struct Collision {
    pub(crate) id: u32,
    pub(crate) one: &'static str,
    pub(crate) other: &'static str,
}

impl Registry {
    pub(crate) fn next_incarnation(&self) -> u64 {
        self.incarnations.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// An unused name: `prefix(n)`.
    pub(crate) fn next_name(&self, prefix: &str) -> String {
        let mut unnamed = lock(&self.unnamed);
        let count = unnamed.entry(prefix.to_owned()).or_default();
        loop {
            *count += 1;
            let name = format!("{prefix}({count})");
            if !read(&self.tables).by_name.contains_key(name.as_str()) {
                return name;
            }
        }
    }

    /// Registers the messages of this table. Refuses a second name with the id of another.
    pub(crate) fn register_messages(&self, table: &HandlerTable) -> Result<(), Collision> {
        let mut messages = lock(&self.messages);
        for handler in table.iter() {
            let known = *messages.entry(handler.id).or_insert(handler.name);
            if known != handler.name {
                return Err(Collision {
                    id: handler.id,
                    one: known,
                    other: handler.name,
                });
            }
        }
        Ok(())
    }

    /// Gives the name to a first incarnation; false if it is taken.
    pub(crate) fn enter(&self, entry: Arc<Entry>) -> bool {
        let mut tables = write(&self.tables);
        let name: Arc<str> = entry.pid.name().into();
        if tables.by_name.contains_key(&name) {
            return false;
        }
        tables.by_name.insert(name, Holder::Living(entry.clone()));
        tables.by_incarnation.insert(entry.pid.incarnation(), entry);
        true
    }

    /// The next incarnation takes the name that was kept for it.
    pub(crate) fn reenter(&self, entry: Arc<Entry>) {
        let mut tables = write(&self.tables);
        tables
            .by_name
            .insert(entry.pid.name().into(), Holder::Living(entry.clone()));
        tables.by_incarnation.insert(entry.pid.incarnation(), entry);
    }

    /// The incarnation has ended; its name is free, or kept for the next one.
    pub(crate) fn leave(&self, pid: &Pid, kept: Option<Arc<RestartingActor>>) {
        let mut tables = write(&self.tables);
        tables.by_incarnation.remove(&pid.incarnation());
        tables.crashed.remove(&pid.incarnation());
        let before = match kept {
            Some(resting) => {
                let resting = Holder::Restarting(resting);
                tables.by_name.insert(pid.name().into(), resting)
            }
            None => tables.by_name.remove(pid.name()),
        };
        drop(before);
        let empty = tables.by_name.is_empty();
        drop(tables);
        if empty {
            self.emptied.notify_waiters();
        }
    }

    /// The actor waiting to be restarted will not be.
    pub(crate) fn forget(&self, name: &str) {
        let mut tables = write(&self.tables);
        tables.by_name.remove(name);
        let empty = tables.by_name.is_empty();
        drop(tables);
        if empty {
            self.emptied.notify_waiters();
        }
    }

    /// The living incarnation of a pid; incarnation 0 means the current owner of the name.
    pub(crate) fn find(&self, incarnation: u64, name: &str) -> Option<Arc<Entry>> {
        let tables = read(&self.tables);
        if incarnation != 0 {
            return tables.by_incarnation.get(&incarnation).cloned();
        }
        match tables.by_name.get(name)? {
            Holder::Living(entry) => Some(entry.clone()),
            Holder::Restarting(_) => None,
        }
    }

    pub(crate) fn find_pid(&self, pid: &Pid) -> Option<Arc<Entry>> {
        self.find(pid.incarnation(), pid.name())
    }

    /// Every living actor, by name.
    pub(crate) fn living(&self) -> Vec<Arc<Entry>> {
        let tables = read(&self.tables);
        let living = tables.by_name.values().filter_map(|holder| match holder {
            Holder::Living(entry) => Some(entry.clone()),
            Holder::Restarting(_) => None,
        });
        living.collect()
    }

    /// Every actor, by name, including those that wait to be restarted.
    pub(crate) fn all(&self) -> Vec<Holder> {
        read(&self.tables).by_name.values().cloned().collect()
    }

    /// Records a panic message; false if that incarnation has ended.
    pub(crate) fn note_crash(&self, incarnation: u64, words: String) -> bool {
        let mut tables = write(&self.tables);
        let lives = tables.by_incarnation.contains_key(&incarnation);
        if lives {
            tables.crashed.entry(incarnation).or_insert(words);
        }
        lives
    }

    pub(crate) fn crash_message(&self, incarnation: u64) -> Option<String> {
        read(&self.tables).crashed.get(&incarnation).cloned()
    }

    /// Requests the end of every actor that waits to be restarted.
    pub(crate) fn halt_restarts(&self) {
        for holder in read(&self.tables).by_name.values() {
            if let Holder::Restarting(resting) = holder {
                resting.halt.request();
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        read(&self.tables).by_name.is_empty()
    }

    /// Resolves once no actor lives here.
    pub(crate) async fn emptied(&self) {
        while !self.is_empty() {
            let emptied = self.emptied.notified();
            if self.is_empty() {
                return;
            }
            emptied.await;
        }
    }

    /// The messages that this node accepts from others, as id and highest version: those of its
    /// living actors, and the announced ones.
    pub(crate) fn accepted_messages(&self) -> BTreeMap<u32, u16> {
        let mut accepted_messages = lock(&self.announced).clone();
        for entry in self.living() {
            note(&mut accepted_messages, &entry.handlers);
        }
        accepted_messages
    }

    /// Announces the messages of actors that may start later.
    pub(crate) fn announce(&self, table: &HandlerTable) {
        note(&mut lock(&self.announced), table);
    }
}

/// Adds the messages of this table that other nodes may send.
fn note(accepted_messages: &mut BTreeMap<u32, u16>, table: &HandlerTable) {
    for handler in table.iter().filter(|handler| !handler.roles.is_empty()) {
        let highest = accepted_messages
            .entry(handler.id)
            .or_insert(handler.version);
        *highest = handler.version.max(*highest);
    }
}
