//! What may be written after what: the rules that raft keeps anyway, and that no log is worth anything without.
//!
//! Pure functions over where the log stands. A write that breaks one is refused before anything is touched. It never
//! corrects a write, with one exception: a snapshot holds only what was committed, so the promises are raised to it.

use crate::log::{HardState, LogError, Members, Snapshot, Write};

/// Where a log stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// The newest snapshot's index; 0 if there is none.
    pub snapshot: u64,
    /// The last entry's index; the snapshot's if there is no entry after it.
    pub last: u64,
    /// The promises.
    pub hard: HardState,
}

/// Where the log stands after this write, or why it is refused.
pub(super) fn after(standing: Standing, write: &Write) -> Result<Standing, LogError> {
    let before = standing.hard;
    let mut next = standing;
    if let Some(snapshot) = &write.snapshot {
        check_members(&snapshot.members)?;
        let oldest = before.commit.max(standing.snapshot).max(1);
        if snapshot.index < oldest || snapshot.index == u64::MAX {
            return Err(refused(format!(
                "the snapshot sent is of index {}, and one from {oldest} on was expected",
                snapshot.index
            )));
        }
        next.snapshot = snapshot.index;
        next.last = snapshot.index;
    }
    if let Some(first) = write.entries.first() {
        next.last = last_of(next, first.index, write)?;
    }
    next.hard = kept(before, write.hard.unwrap_or(before))?;
    next.hard.commit = next.hard.commit.max(next.snapshot);
    if next.hard.commit > next.last {
        return Err(refused(format!(
            "index {} cannot be committed, for the log would end at {}",
            next.hard.commit, next.last
        )));
    }
    Ok(next)
}

/// Where the log stands after this snapshot of its own, or why it is refused.
pub(super) fn compacted(standing: Standing, snapshot: &Snapshot) -> Result<Standing, LogError> {
    check_members(&snapshot.members)?;
    let (index, oldest) = (snapshot.index, standing.snapshot.max(1));
    if index < oldest || index > standing.last {
        return Err(refused(format!(
            "a snapshot of index {index} cannot be kept: expected one from {oldest} to {}",
            standing.last
        )));
    }
    let mut next = standing;
    next.snapshot = index;
    next.hard.commit = next.hard.commit.max(index);
    Ok(next)
}

/// The last index after these entries, which must follow each other and what was kept.
fn last_of(standing: Standing, first: u64, write: &Write) -> Result<u64, LogError> {
    let oldest = (standing.hard.commit.max(standing.snapshot)).saturating_add(1);
    let newest = standing.last.saturating_add(1);
    if first < oldest || first > newest {
        return Err(refused(format!(
            "the first entry's index is {first}, and one from {oldest} to {newest} was expected"
        )));
    }
    let mut expected = first;
    for entry in &write.entries {
        if entry.index != expected || expected == u64::MAX {
            return Err(refused(format!(
                "the entry at {expected} is missing, and {} stands in its place",
                entry.index
            )));
        }
        expected += 1;
    }
    Ok(expected - 1)
}

/// The new promises, if they take none of the old ones back.
fn kept(before: HardState, now: HardState) -> Result<HardState, LogError> {
    let revoted = now.term == before.term && before.vote != 0 && now.vote != before.vote;
    if now.term < before.term || now.commit < before.commit || revoted {
        return Err(refused(format!(
            "term {}, vote {} and commit {} would take back term {}, vote {} and commit {}",
            now.term, now.vote, now.commit, before.term, before.vote, before.commit
        )));
    }
    Ok(now)
}

/// Members are few: more than a thousand of a kind is a mistake, and would not fit beside each other in a record.
fn check_members(members: &Members) -> Result<(), LogError> {
    const MEMBERS_MAX: usize = 1000;
    let lists = [
        ("voters", &members.voters),
        ("learners", &members.learners),
        ("voters_outgoing", &members.voters_outgoing),
        ("learners_next", &members.learners_next),
    ];
    match lists.iter().find(|(_, list)| list.len() > MEMBERS_MAX) {
        Some((name, list)) => Err(refused(format!(
            "{name} has {} members, and at most {MEMBERS_MAX} are kept",
            list.len()
        ))),
        None => Ok(()),
    }
}

/// The error for a write that must not be made.
pub(super) fn refused(reason: String) -> LogError {
    LogError::Disk { reason }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::log::{Entry, EntryKind};

    fn standing() -> Standing {
        let hard = HardState {
            term: 3,
            vote: 2,
            commit: 7,
        };
        Standing {
            snapshot: 5,
            last: 9,
            hard,
        }
    }

    fn entries(indexes: &[u64]) -> Vec<Entry> {
        let entry = |&index| Entry {
            term: 3,
            index,
            kind: EntryKind::Operation,
            data: Vec::new(),
            context: Vec::new(),
        };
        indexes.iter().map(entry).collect()
    }

    fn promise(term: u64, vote: u64, commit: u64) -> Write {
        Write {
            hard: Some(HardState { term, vote, commit }),
            ..Write::default()
        }
    }

    fn check(write: Write, expected: &str) {
        let found = match after(standing(), &write) {
            Ok(next) => format!("last {} commit {}", next.last, next.hard.commit),
            Err(error) => error.to_string(),
        };
        assert_eq!(
            found.trim_start_matches("the log cannot be written: "),
            expected
        );
    }

    fn append(indexes: &[u64]) -> Write {
        Write {
            entries: entries(indexes),
            ..Write::default()
        }
    }

    fn install(index: u64) -> Write {
        let data = Bytes::new();
        Write {
            snapshot: Some(Snapshot {
                index,
                term: 3,
                members: Members::default(),
                data,
            }),
            ..Write::default()
        }
    }

    #[test]
    fn entries_follow_what_is_kept_and_replace_only_what_is_not_committed() {
        check(append(&[10, 11]), "last 11 commit 7");
        check(append(&[8]), "last 8 commit 7");
        let expected = "and one from 8 to 10 was expected";
        check(
            append(&[7]),
            &format!("the first entry's index is 7, {expected}"),
        );
        check(
            append(&[11]),
            &format!("the first entry's index is 11, {expected}"),
        );
        check(
            append(&[8, 10]),
            "the entry at 9 is missing, and 10 stands in its place",
        );
    }

    #[test]
    fn no_promise_is_taken_back() {
        check(promise(3, 2, 9), "last 9 commit 9");
        check(promise(4, 1, 7), "last 9 commit 7");
        let taken = "would take back term 3, vote 2 and commit 7";
        check(
            promise(2, 2, 7),
            &format!("term 2, vote 2 and commit 7 {taken}"),
        );
        check(
            promise(3, 1, 7),
            &format!("term 3, vote 1 and commit 7 {taken}"),
        );
        check(
            promise(3, 2, 6),
            &format!("term 3, vote 2 and commit 6 {taken}"),
        );
        check(
            promise(3, 2, 10),
            "index 10 cannot be committed, for the log would end at 9",
        );
    }

    #[test]
    fn a_snapshot_raises_the_promise_and_never_goes_back() {
        check(install(20), "last 20 commit 20");
        check(install(8), "last 8 commit 8");
        check(
            install(6),
            "the snapshot sent is of index 6, and one from 7 on was expected",
        );
        let mut both = install(20);
        both.entries = entries(&[21, 22]);
        check(both, "last 22 commit 20");
    }

    #[test]
    fn a_snapshot_of_ones_own_is_of_an_index_in_the_log() {
        let of = |index| compacted(standing(), &install(index).snapshot.unwrap());
        assert_eq!(of(9).unwrap().hard.commit, 9);
        assert_eq!(of(5).unwrap(), standing());
        let text = "the log cannot be written: a snapshot of index 10 cannot be kept: expected one from 5 to 9";
        assert_eq!(of(10).unwrap_err().to_string(), text);
        assert!(of(4).is_err());
    }
}
