//! Replays a log without a member, and builds the content of a new group's first snapshot.
//!
//! Pure. Applies operations exactly as a [`Replica`](super::Replica); ignores changes of members.

use bytes::Bytes;
use runtime::wire::codec::Garbled;

use super::seen::{self, Seen};
use super::stamp::{self, Stamp};
use super::{Stop, restore};
use crate::log::{Entry, EntryKind, Snapshot};
use crate::machine::StateMachine;

/// Applies a snapshot (index 0 for none) and the entries after it to a machine in its initial
/// state.
pub fn replay<M: StateMachine>(
    mut machine: M,
    snapshot: &Snapshot,
    entries: &[Entry],
) -> Result<M, Stop> {
    let mut seen = Seen::default();
    if snapshot.index > 0 {
        seen = restore(&mut machine, &snapshot.data)?;
    }
    for entry in entries {
        let nothing = entry.data.is_empty() && entry.context.is_empty();
        let stamp = Stamp::from_context(&entry.context);
        let ticket = stamp.map(|stamp| stamp.ticket);
        let again = ticket.is_some_and(|ticket| seen.position(&ticket).is_some());
        if entry.kind != EntryKind::Operation || nothing || again {
            continue;
        }
        let operation = stamp::operation(&machine, entry.index, stamp, &entry.data)?;
        machine.apply(entry.index, operation);
        if let Some(ticket) = ticket {
            seen.add(ticket, entry.index);
        }
    }
    Ok(machine)
}

/// A snapshot's content with this machine and without any applied proposals.
pub fn content<M: StateMachine>(machine: &M) -> Result<Bytes, Garbled> {
    seen::pack(&Seen::default(), |into| machine.snapshot_into(into))
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::super::Ticket;
    use super::*;
    use crate::machine::{CannotRestore, FIRST_FORMAT};

    /// Remembers what was applied.
    #[derive(Clone, Debug, Default, PartialEq)]
    struct Applied(Vec<u64>);

    impl StateMachine for Applied {
        type Operation = u64;
        type Answer = ();

        fn apply(&mut self, _: u64, operation: u64) {
            self.0.push(operation);
        }

        fn snapshot_into(&self, into: &mut BytesMut) -> Result<(), Garbled> {
            runtime::wire::codec::encode_into(&self.0, into)
        }

        fn restore(&mut self, bytes: &[u8]) -> Result<(), CannotRestore> {
            let decoded = runtime::wire::codec::decode(bytes);
            self.0 = decoded.map_err(|error| CannotRestore {
                reason: error.to_string(),
            })?;
            Ok(())
        }
    }

    fn entry(index: u64, kind: EntryKind, data: Vec<u8>, sequence: Option<u64>) -> Entry {
        let ticket = |sequence| Ticket {
            member: 1,
            incarnation: 7,
            sequence,
        };
        Entry {
            term: 2,
            index,
            kind,
            data,
            context: sequence.map_or(Vec::new(), |sequence| {
                let (ticket, format) = (ticket(sequence), FIRST_FORMAT);
                Stamp { ticket, format }.to_context()
            }),
        }
    }

    #[test]
    fn replay_applies_each_operation_once() {
        let snapshot = Snapshot {
            index: 3,
            data: content(&Applied(vec![10])).unwrap(),
            ..Snapshot::default()
        };
        let operation = |value: u64| runtime::wire::codec::encode(&value).unwrap();
        let entries = [
            entry(4, EntryKind::Operation, Vec::new(), None),
            entry(5, EntryKind::Operation, operation(11), Some(1)),
            entry(6, EntryKind::Membership, vec![9], Some(2)),
            entry(7, EntryKind::Operation, operation(11), Some(1)),
            entry(8, EntryKind::Operation, operation(12), Some(3)),
        ];
        let after = replay(Applied::default(), &snapshot, &entries).unwrap();
        assert_eq!(after, Applied(vec![10, 11, 12]));
        let garbled = entry(9, EntryKind::Operation, vec![0xff], Some(4));
        let stop = replay(Applied::default(), &snapshot, &[garbled]).unwrap_err();
        assert!(stop.to_string().starts_with("operation 9 of the log"));
    }
}
