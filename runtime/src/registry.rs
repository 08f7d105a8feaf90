//! The registry: which actors live on this node, by incarnation and by name.
//!
//! Remembers an entry per living incarnation, and while an actor waits to be restarted its name and what was counted of it.
//! It decides nothing; a name is given to one actor at a time, and that is its whole rule.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use rustc_hash::FxHashMap;

use crate::again::{READS_SHORT, READS_SHORT_ID};
use crate::clock::Instant;
use crate::handle::Halt;
use crate::identity::Pid;
use crate::mailbox::Meter;
use crate::process::{AnyIncarnation, EarTable};
use crate::{lock, read, write};

/// One living incarnation.
pub(crate) struct Entry {
    pub(crate) pid: Pid,
    pub(crate) meter: Arc<Meter>,
    pub(crate) ears: Arc<EarTable>,
    pub(crate) halt: Arc<Halt>,
    pub(crate) body: Arc<AnyIncarnation>,
    pub(crate) restarts: u32,
    /// What the placement calls its thread.
    pub(crate) thread: Arc<str>,
}

/// An actor between two incarnations.
pub(crate) struct Resting {
    /// The last incarnation's.
    pub(crate) pid: Pid,
    pub(crate) meter: Arc<Meter>,
    pub(crate) thread: Arc<str>,
    pub(crate) halt: Arc<Halt>,
    /// How often it was restarted before.
    pub(crate) restarts: u32,
    /// When it is made anew.
    pub(crate) until: Instant,
}

#[derive(Clone)]
pub(crate) enum Holder {
    Living(Arc<Entry>),
    Restarting(Arc<Resting>),
}

#[derive(Default)]
struct Tables {
    by_incarnation: FxHashMap<u64, Arc<Entry>>,
    by_name: BTreeMap<Arc<str>, Holder>,
    /// The words of panics that ended an actor from outside its task, until it has ended.
    fallen: BTreeMap<u64, String>,
}

#[derive(Default)]
pub(crate) struct Registry {
    tables: RwLock<Tables>,
    incarnations: AtomicU64,
    unnamed: Mutex<BTreeMap<String, u64>>,
    /// Message names by id, over all actors that ever lived here.
    messages: Mutex<BTreeMap<u32, &'static str>>,
    /// What actors that may come will hear from other nodes: message ids and their highest versions.
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

    /// A name nobody has: `prefix(n)`.
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

    /// Remembers what this table hears; refuses a second name with the id of another, and any with that of what hellos say of frames.
    pub(crate) fn learn(&self, table: &EarTable) -> Result<(), Collision> {
        let mut messages = lock(&self.messages);
        for ear in table.iter() {
            let reserved = ear.id == READS_SHORT_ID; // stands among them in hellos, and is no message
            let known = match reserved {
                true => READS_SHORT,
                false => *messages.entry(ear.id).or_insert(ear.name),
            };
            if reserved || known != ear.name {
                return Err(Collision {
                    id: ear.id,
                    one: known,
                    other: ear.name,
                });
            }
        }
        Ok(())
    }

    /// Gives the name to a first incarnation; false if somebody has it.
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
    pub(crate) fn leave(&self, pid: &Pid, kept: Option<Arc<Resting>>) {
        let mut tables = write(&self.tables);
        tables.by_incarnation.remove(&pid.incarnation());
        tables.fallen.remove(&pid.incarnation());
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

    /// The living incarnation that a pid means; incarnation 0 means whoever has the name.
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

    /// Every actor, by name, those that wait to be restarted included.
    pub(crate) fn all(&self) -> Vec<Holder> {
        read(&self.tables).by_name.values().cloned().collect()
    }

    /// Notes the words of a panic; false if that incarnation has ended.
    pub(crate) fn note_fall(&self, incarnation: u64, words: String) -> bool {
        let mut tables = write(&self.tables);
        let lives = tables.by_incarnation.contains_key(&incarnation);
        if lives {
            tables.fallen.entry(incarnation).or_insert(words);
        }
        lives
    }

    pub(crate) fn words_of_fall(&self, incarnation: u64) -> Option<String> {
        read(&self.tables).fallen.get(&incarnation).cloned()
    }

    /// Wishes an end to every actor that waits to be restarted.
    pub(crate) fn halt_restarts(&self) {
        for holder in read(&self.tables).by_name.values() {
            if let Holder::Restarting(resting) = holder {
                resting.halt.wish();
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        read(&self.tables).by_name.is_empty()
    }

    /// Ready once nobody lives here.
    pub(crate) async fn emptied(&self) {
        while !self.is_empty() {
            let emptied = self.emptied.notified();
            if self.is_empty() {
                return;
            }
            emptied.await;
        }
    }

    /// What this node hears from others, as id and highest version: what its living actors do, and those that were announced.
    pub(crate) fn spoken(&self) -> BTreeMap<u32, u16> {
        let mut spoken = lock(&self.announced).clone();
        for entry in self.living() {
            note(&mut spoken, &entry.ears);
        }
        spoken
    }

    /// Actors that hear this may come.
    pub(crate) fn announce(&self, table: &EarTable) {
        note(&mut lock(&self.announced), table);
    }
}

/// Notes what of this table other nodes are heard in.
fn note(spoken: &mut BTreeMap<u32, u16>, table: &EarTable) {
    for ear in table.iter().filter(|ear| !ear.roles.is_empty()) {
        let highest = spoken.entry(ear.id).or_insert(ear.version);
        *highest = ear.version.max(*highest);
    }
}
