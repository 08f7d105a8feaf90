//! Group: one leader per term, committed entries stay, and all members hold the same.
//!
//! Judged by each member's synced log, its elections and its state:
//!
//! - two members never lead in the same term;
//! - an entry known to be committed at two members is equal at both, by term and content, for ever:
//!   also after every restart, when the log is read again;
//! - a member's state follows from its applied index: at one index all members have the same.
//!
//! Only synced writes count: the result of a failed write is unknown until the log is read again.

use std::collections::BTreeMap;

use consensus::log::{Entry, HardState, Loaded, Write};

use crate::checkers::broken;
use crate::checkers::checker::{Checker, Violation};
use crate::event::{Event, EventKind};
use crate::report::hash::RunHash;

const NAME: &str = "group";

/// An entry's term and content, in short.
type Print = (u64, u64);

/// The known part of a member's log.
#[derive(Default)]
struct Log {
    entries: BTreeMap<u64, Print>,
    commit: u64,
    /// It has been compared up to this index.
    compared: u64,
}

/// The checker.
#[derive(Default)]
pub struct Group {
    leaders: BTreeMap<u64, String>,
    logs: BTreeMap<String, Log>,
    /// Committed entries, and the first member that knew them.
    committed: BTreeMap<u64, (Print, String)>,
    /// The state at each index, and the first member that reported it.
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

    /// Compares the entries that this member knows to be committed with those of others.
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
        let judged = match event.kind {
            EventKind::Elected { node, term } => self.elected(node, term),
            EventKind::LogRead { node, loaded } => self.read(node, loaded),
            EventKind::LogWritten { node, write } => self.written(node, write),
            EventKind::MemberState {
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
    use super::*;
    use crate::checkers::fixture::Fixture;
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

    fn fixture() -> Fixture<Group> {
        Fixture::new(Group::default(), "cpus:4")
    }

    fn writes<'a>(
        fixture: &'a mut Fixture<Group>,
        node: &str,
        write: &Write,
    ) -> &'a mut Fixture<Group> {
        fixture.fact(EventKind::LogWritten { node, write })
    }

    #[test]
    fn a_term_has_one_leader() {
        let leads = |fixture: &mut Fixture<Group>, node: &str, term| {
            fixture.fact(EventKind::Elected { node, term });
        };
        let mut clean = fixture();
        leads(&mut clean, "a", 2);
        leads(&mut clean, "b", 3);
        leads(&mut clean, "a", 4);
        clean.is_clean();
        leads(&mut clean, "b", 4);
        clean.is_broken("a and b both lead in term 4");
    }

    #[test]
    fn only_uncommitted_entries_may_be_replaced() {
        let mut fixture = fixture();
        writes(&mut fixture, "a", &write(1, 1, 0));
        writes(&mut fixture, "b", &write(1, 2, 1));
        writes(&mut fixture, "a", &write(1, 2, 1)).is_clean();
        writes(&mut fixture, "a", &write(1, 3, 1)).is_broken("committed entry 1");
    }

    #[test]
    fn reread_log_has_committed_entries() {
        let mut fixture = fixture();
        writes(&mut fixture, "a", &write(1, 1, 1));
        let other = write(1, 2, 1);
        let loaded = Loaded {
            entries: other.entries,
            hard: other.hard.unwrap(),
            ..Loaded::default()
        };
        let (node, loaded) = ("a", &loaded);
        fixture
            .fact(EventKind::LogRead { node, loaded })
            .is_broken("committed entry 1");
    }

    #[test]
    fn at_one_index_all_hold_the_same() {
        let holds = |fixture: &mut Fixture<Group>, node: &str, index, digest| {
            fixture.fact(EventKind::MemberState {
                node,
                index,
                digest,
            });
        };
        let mut fixture = fixture();
        holds(&mut fixture, "a", 5, 1);
        holds(&mut fixture, "b", 4, 2);
        holds(&mut fixture, "b", 5, 1);
        fixture.is_clean();
        holds(&mut fixture, "c", 4, 3);
        fixture.is_broken("up to 4");
    }
}
