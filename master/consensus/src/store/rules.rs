//! The valid transitions of a log. Raft obeys these rules anyway.
//!
//! Pure functions over the log's bounds. An invalid write is rejected before any change. Writes are
//! never corrected, with one exception: the commit index never decreases, and includes the
//! snapshot.

use crate::log::{HardState, LogError, Members, Snapshot, Write};

/// The bounds of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LogBounds {
    /// The newest snapshot's index; 0 if there is none.
    pub snapshot: u64,
    /// The last entry's index; the snapshot's if there is no entry after it.
    pub last: u64,
    /// The term, vote and commit index.
    pub hard: HardState,
}

/// The bounds after this write, or why it is rejected.
pub(super) fn after(bounds: LogBounds, write: &Write) -> Result<LogBounds, LogError> {
    let before = bounds.hard;
    let mut next = bounds;
    if let Some(snapshot) = &write.snapshot {
        check_members(&snapshot.members)?;
        let oldest = before.commit.max(bounds.snapshot).max(1);
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

/// The bounds after this compaction, or why it is rejected.
pub(super) fn compacted(bounds: LogBounds, snapshot: &Snapshot) -> Result<LogBounds, LogError> {
    check_members(&snapshot.members)?;
    let (index, oldest) = (snapshot.index, bounds.snapshot.max(1));
    if index < oldest || index > bounds.last {
        return Err(refused(format!(
            "a snapshot of index {index} cannot be kept: expected one from {oldest} to {}",
            bounds.last
        )));
    }
    let mut next = bounds;
    next.snapshot = index;
    next.hard.commit = next.hard.commit.max(index);
    Ok(next)
}

/// The last index after these entries, which must be contiguous and follow the stored ones.
fn last_of(bounds: LogBounds, first: u64, write: &Write) -> Result<u64, LogError> {
    let oldest = (bounds.hard.commit.max(bounds.snapshot)).saturating_add(1);
    let newest = bounds.last.saturating_add(1);
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

/// The new hard state, unless it contradicts the old one. The commit index never decreases.
fn kept(before: HardState, now: HardState) -> Result<HardState, LogError> {
    let revoted = now.term == before.term && before.vote != 0 && now.vote != before.vote;
    if now.term < before.term || revoted {
        return Err(refused(format!(
            "term {} and vote {} would take back term {} and vote {}",
            now.term, now.vote, before.term, before.vote
        )));
    }
    let commit = before.commit.max(now.commit);
    Ok(HardState { commit, ..now })
}

/// The limit of members per list. More would be a mistake, and would not fit into a record.
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

/// The error for an invalid write.
pub(super) fn refused(reason: String) -> LogError {
    LogError::Disk { reason }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::log::{Entry, EntryKind};

    fn bounds() -> LogBounds {
        let hard = HardState {
            term: 3,
            vote: 2,
            commit: 7,
        };
        LogBounds {
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
        let found = match after(bounds(), &write) {
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
    fn entries_replace_only_uncommitted_ones() {
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
        check(promise(3, 2, 6), "last 9 commit 7");
        let taken = "would take back term 3 and vote 2";
        check(promise(2, 2, 7), &format!("term 2 and vote 2 {taken}"));
        check(promise(3, 1, 7), &format!("term 3 and vote 1 {taken}"));
        check(
            promise(3, 2, 10),
            "index 10 cannot be committed, for the log would end at 9",
        );
    }

    #[test]
    fn snapshot_raises_the_commit_index() {
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
    fn own_snapshot_has_an_index_of_the_log() {
        let of = |index| compacted(bounds(), &install(index).snapshot.unwrap());
        assert_eq!(of(9).unwrap().hard.commit, 9);
        assert_eq!(of(5).unwrap(), bounds());
        let text = "the log cannot be written: a snapshot of index 10 cannot be kept: expected one from 5 to 9";
        assert_eq!(of(10).unwrap_err().to_string(), text);
        assert!(of(4).is_err());
    }
}
