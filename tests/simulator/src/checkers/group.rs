//! Group (invariant 1, its first half): in one term there is one leader, what was committed stays, and all members hold the same.
//!
//! Judged from what each member has synced, says of itself, and holds:
//!
//! - two members never lead in the same term;
//! - an entry that one member knows to be committed is the same, by term and content, at every member that knows it to be committed, and
//!   for ever: also after every restart, when the log is read again;
//! - what a member holds follows from the index up to which it has applied its log: at one index all hold the same.
//!
//! Nothing of a log counts that was not synced: of a write that failed nobody knows what is there, until the log is read again.

use std::collections::BTreeMap;

use consensus::log::{Entry, HardState, Loaded, Write};

use super::broken;
use crate::checker::{Checker, Violation};
use crate::event::{Event, What};
use crate::hash::RunHash;

const NAME: &str = "group";

/// What an entry says, in short.
type Print = (u64, u64);

/// A member's log as far as it is known.
#[derive(Default)]
struct Log {
    entries: BTreeMap<u64, Print>,
    commit: u64,
    /// Up to here it has been compared.
    compared: u64,
}

/// The checker.
#[derive(Default)]
pub struct Group {
    leaders: BTreeMap<u64, String>,
    logs: BTreeMap<String, Log>,
    /// What is committed, and who was the first to know.
    committed: BTreeMap<u64, (Print, String)>,
    /// What is held at each index, and who was the first to say so.
    held: BTreeMap<u64, (u64, String)>,
    judgements: u64,
}

fn print(entry: &Entry) -> Print {
    let mut hash = RunHash::new();
    hash.text(&format!("{:?}", entry.kind));
    hash.bytes(&entry.data);
    hash.bytes(&entry.context);
    (entry.term, hash.value())
}

impl Log {
    fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else {
            return;
        };
        self.entries.split_off(&first.index);
        self.compared = self.compared.min(first.index.saturating_sub(1));
        let entries = entries.iter().map(|entry| (entry.index, print(entry)));
        self.entries.extend(entries);
    }

    fn commit(&mut self, hard: Option<&HardState>) {
        self.commit = self.commit.max(hard.map_or(0, |hard| hard.commit));
    }
}

impl Group {
    fn elected(&mut self, node: &str, term: u64) -> Result<(), String> {
        self.judgements += 1;
        match self.leaders.insert(term, node.to_owned()) {
            Some(other) if other != node => {
                Err(format!("{other} and {node} both lead in term {term}"))
            }
            _ => Ok(()),
        }
    }

    fn read(&mut self, node: &str, loaded: &Loaded) -> Result<(), String> {
        let mut log = Log::default();
        log.append(&loaded.entries);
        log.commit(Some(&loaded.hard));
        self.logs.insert(node.to_owned(), log);
        self.compare(node)
    }

    fn written(&mut self, node: &str, write: &Write) -> Result<(), String> {
        let log = self.logs.entry(node.to_owned()).or_default();
        if write.snapshot.is_some() {
            log.entries.clear();
        }
        log.append(&write.entries);
        log.commit(write.hard.as_ref());
        self.compare(node)
    }

    /// What this member knows to be committed, beside what others know.
    fn compare(&mut self, node: &str) -> Result<(), String> {
        let Some(log) = self.logs.get_mut(node) else {
            return Ok(());
        };
        if log.commit <= log.compared {
            return Ok(());
        }
        for (index, print) in log.entries.range(log.compared + 1..=log.commit) {
            self.judgements += 1;
            let known = self.committed.entry(*index);
            let (first, by) = known.or_insert_with(|| (*print, node.to_owned()));
            if first != print {
                return Err(format!(
                    "the committed entry {index} is of term {} at {by}, and another of term {} at {node}",
                    first.0, print.0
                ));
            }
        }
        log.compared = log.commit;
        Ok(())
    }

    fn holds(&mut self, node: &str, index: u64, digest: u64) -> Result<(), String> {
        self.judgements += 1;
        let known = self.held.entry(index);
        let (first, by) = known.or_insert_with(|| (digest, node.to_owned()));
        match *first == digest {
            true => Ok(()),
            false => Err(format!(
                "having applied the log up to {index}, {node} holds something else ({digest:016x}) than {by} ({first:016x})"
            )),
        }
    }
}

impl Checker for Group {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        let judged = match event.what {
            What::Elected { node, term } => self.elected(node, term),
            What::LogRead { node, loaded } => self.read(node, loaded),
            What::LogWritten { node, write } => self.written(node, write),
            What::Holds {
                node,
                index,
                digest,
            } => self.holds(node, index, digest),
            _ => Ok(()),
        };
        judged.or_else(|what| broken(NAME, event.at, what))
    }

    fn judgements(&self) -> u64 {
        self.judgements
    }
}

#[cfg(test)]
mod tests {
    use super::super::stage::Stage;
    use super::*;
    use consensus::log::EntryKind;

    fn write(index: u64, term: u64, commit: u64) -> Write {
        Write {
            entries: vec![Entry {
                term,
                index,
                kind: EntryKind::Operation,
                data: Vec::new(),
                context: Vec::new(),
            }],
            hard: Some(HardState {
                term,
                vote: 0,
                commit,
            }),
            snapshot: None,
        }
    }

    fn stage() -> Stage<Group> {
        Stage::new(Group::default(), "cpus:4")
    }

    fn writes<'a>(stage: &'a mut Stage<Group>, node: &str, write: &Write) -> &'a mut Stage<Group> {
        stage.fact(What::LogWritten { node, write })
    }

    #[test]
    fn a_term_has_one_leader() {
        let leads = |stage: &mut Stage<Group>, node: &str, term| {
            stage.fact(What::Elected { node, term });
        };
        let mut clean = stage();
        leads(&mut clean, "a", 2);
        leads(&mut clean, "b", 3);
        leads(&mut clean, "a", 4);
        clean.is_clean();
        leads(&mut clean, "b", 4);
        clean.is_broken("a and b both lead in term 4");
    }

    #[test]
    fn what_is_not_committed_may_be_replaced_and_what_is_may_not() {
        let mut stage = stage();
        writes(&mut stage, "a", &write(1, 1, 0));
        writes(&mut stage, "b", &write(1, 2, 1));
        writes(&mut stage, "a", &write(1, 2, 1)).is_clean();
        writes(&mut stage, "a", &write(1, 3, 1)).is_broken("committed entry 1");
    }

    #[test]
    fn a_log_that_is_read_again_has_what_was_committed() {
        let mut stage = stage();
        writes(&mut stage, "a", &write(1, 1, 1));
        let other = write(1, 2, 1);
        let loaded = Loaded {
            entries: other.entries,
            hard: other.hard.unwrap(),
            ..Loaded::default()
        };
        let (node, loaded) = ("a", &loaded);
        stage
            .fact(What::LogRead { node, loaded })
            .is_broken("committed entry 1");
    }

    #[test]
    fn at_one_index_all_hold_the_same() {
        let holds = |stage: &mut Stage<Group>, node: &str, index, digest| {
            stage.fact(What::Holds {
                node,
                index,
                digest,
            });
        };
        let mut stage = stage();
        holds(&mut stage, "a", 5, 1);
        holds(&mut stage, "b", 4, 2);
        holds(&mut stage, "b", 5, 1);
        stage.is_clean();
        holds(&mut stage, "c", 4, 3);
        stage.is_broken("up to 4");
    }
}
