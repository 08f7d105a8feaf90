//! Recently applied proposals, to recognize duplicates. Part of the replicated state, so that all
//! members agree.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use runtime::wire::codec::Garbled;
use serde::{Deserialize, Serialize};

/// The number of remembered proposals. Constant, because it must be the same on all members.
pub const SEEN_MAX: usize = 16_384;

/// Identifies a proposal, globally and forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ticket {
    /// The proposer's raft id.
    pub member: u64,
    /// A random number of that member's run, so that two runs never mix.
    pub incarnation: u64,
    /// A counter within that run.
    pub sequence: u64,
}

/// The recently applied proposals, oldest first, with their indices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    order: VecDeque<Ticket>,
    places: BTreeMap<Ticket, u64>,
}

impl Seen {
    /// The index at which a proposal was applied, if it was.
    pub fn position(&self, ticket: &Ticket) -> Option<u64> {
        self.places.get(ticket).copied()
    }

    /// Adds a proposal applied at this index, and forgets the oldest.
    pub fn add(&mut self, ticket: Ticket, index: u64) {
        if self.places.insert(ticket, index).is_none() {
            self.order.push_back(ticket);
        }
        if self.order.len() > SEEN_MAX {
            let oldest = self.order.pop_front();
            oldest.and_then(|oldest| self.places.remove(&oldest));
        }
    }

    /// The format in a snapshot.
    pub fn list(&self) -> Vec<(Ticket, u64)> {
        self.order
            .iter()
            .filter_map(|ticket| Some((*ticket, self.position(ticket)?)))
            .collect()
    }

    /// The reverse of [`list`](Self::list).
    pub fn from_list(list: Vec<(Ticket, u64)>) -> Self {
        let mut seen = Self::default();
        for (ticket, index) in list {
            seen.add(ticket, index);
        }
        seen
    }
}

/// The magic bytes of this snapshot format.
const MARK: &[u8; 8] = b"meros r1";

/// Packs a snapshot: the recent proposals, then the bytes that `machine` appends.
pub fn pack(
    seen: &Seen,
    machine: impl FnOnce(&mut BytesMut) -> Result<(), Garbled>,
) -> Result<Bytes, Garbled> {
    let list = runtime::wire::codec::encode(&seen.list())?;
    let mut packed = BytesMut::from(&MARK[..]);
    packed.extend_from_slice(&(list.len() as u64).to_be_bytes());
    packed.extend_from_slice(&list);
    machine(&mut packed)?;
    Ok(packed.freeze())
}

/// Splits the output of [`pack`].
pub fn unpack(packed: &[u8]) -> Result<(Seen, &[u8]), String> {
    let rest = packed
        .strip_prefix(MARK)
        .ok_or("it does not begin as a snapshot does")?;
    let (length, rest) = rest
        .split_first_chunk::<8>()
        .ok_or("it ends within its head")?;
    let length = u64::from_be_bytes(*length) as usize;
    let (list, machine) = rest
        .split_at_checked(length)
        .ok_or("it ends within the recent proposals")?;
    let list = runtime::wire::codec::decode(list).map_err(|error| error.to_string())?;
    Ok((Seen::from_list(list), machine))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(sequence: u64) -> Ticket {
        Ticket {
            member: 1,
            incarnation: u64::MAX,
            sequence,
        }
    }

    fn packed(seen: &Seen, machine: &[u8]) -> Bytes {
        let machine = |into: &mut BytesMut| {
            into.extend_from_slice(machine);
            Ok(())
        };
        pack(seen, machine).unwrap()
    }

    #[test]
    fn snapshot_keeps_the_recent_proposals() {
        let mut seen = Seen::default();
        for nth in 1..=SEEN_MAX as u64 + 5 {
            seen.add(ticket(nth), nth + 100);
        }
        assert_eq!(
            (seen.position(&ticket(5)), seen.position(&ticket(6))),
            (None, Some(106))
        );
        assert_eq!((seen.order.len(), seen.places.len()), (SEEN_MAX, SEEN_MAX));
        let packed = packed(&seen, b"the machine");
        let (again, machine) = unpack(&packed).unwrap();
        assert_eq!((again, machine), (seen, &b"the machine"[..]));
    }

    #[test]
    fn a_snapshot_that_was_cut_is_refused() {
        let packed = packed(&Seen::default(), b"");
        for length in 0..packed.len() {
            assert!(unpack(&packed[..length]).is_err());
        }
        assert!(unpack(&packed).is_ok());
    }
}
