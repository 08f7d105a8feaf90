//! Who sits where: the addresses of a group's members, replicated beside the state machine.
//!
//! Raft knows members by number only. A [`Roster`] gives each number an address, and remembers which directory has taken its seat, so
//! that a directory that was wiped is not mistaken for the one that had voted. It lies in the same log and the same snapshots as
//! the machine (see [`charter`](super::charter)), so every member has it, one that was added later included. Raft's own members
//! stay the truth about who votes: a seat only says where. Pure. Numbers are never given twice.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::settings::is_address;
use crate::log::Members;
use crate::wire::{MEMBERS_MAX, NUMBER_MAX};

/// The mark of a directory that took part before anybody drew one: a founder's.
pub const FOUNDER: u64 = 1;
/// Seats of members, and of those that were added or removed and not cleared yet.
const SEATS_MAX: usize = 2 * MEMBERS_MAX;

/// One member's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    /// Where it is reached.
    pub address: String,
    /// What the directory is known by that has taken this seat; 0 while none has.
    pub mark: u64,
}

/// All seats, by raft id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roster {
    /// The highest id that was ever given.
    pub highest: u64,
    /// Who sits where.
    pub seats: BTreeMap<u64, Seat>,
}

/// A change of the roster. Each may be made twice without harm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RosterChange {
    /// A seat for whoever starts at this address with an empty directory. An untaken one that is there already will do.
    Reserve {
        /// Where it will be.
        address: String,
    },
    /// The directory of this mark sits here from now on.
    Take {
        /// Which seat.
        id: u64,
        /// Which directory.
        mark: u64,
    },
    /// A member is reached at this address.
    Move {
        /// Which member.
        id: u64,
        /// Where it is.
        address: String,
    },
    /// The seat is gone: its member was removed.
    Clear {
        /// Which seat.
        id: u64,
    },
}

/// Why the roster did not change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RosterRefused {
    /// It cannot be an address.
    #[error("{0:?} cannot be an address: expected 1 to 256 bytes")]
    Address(String),
    /// There are too many seats.
    #[error("a group has at most {MEMBERS_MAX} members, and as many seats that are not cleared")]
    Full,
    /// A member sits there.
    #[error("master {id} is at {address} already")]
    Occupied {
        /// Who.
        id: u64,
        /// Where.
        address: String,
    },
    /// There is no such seat.
    #[error("master {0} has no seat")]
    NoSeat(u64),
    /// Another directory has taken it.
    #[error(
        "master {id} at {address} has taken part with another directory: as it has lost that one, it must not vote under its old number. Run \
         `meros masters remove {id}`, and then `meros masters add {address}`"
    )]
    Taken {
        /// Which seat.
        id: u64,
        /// Where.
        address: String,
    },
}

impl Roster {
    /// The seats of a new group, none of them taken, numbered from 1 in this order.
    pub fn founding(addresses: &[String]) -> Self {
        let seat = |address: &String| Seat {
            address: address.clone(),
            mark: 0,
        };
        Self {
            highest: addresses.len() as u64,
            seats: (1..).zip(addresses.iter().map(seat)).collect(),
        }
    }

    /// Whose address this is.
    pub fn at(&self, address: &str) -> Option<u64> {
        let mut seats = self.seats.iter();
        seats
            .find(|(_, seat)| seat.address == address)
            .map(|(id, _)| *id)
    }

    /// Where a member is.
    pub fn address(&self, id: u64) -> Option<&str> {
        self.seats.get(&id).map(|seat| seat.address.as_str())
    }

    /// Whether this number was a member's and belongs to nobody any more. Once so, it is so for ever; and before it was a member it had
    /// no seat that was taken, so it is not so for whoever reads the log from its beginning.
    pub fn is_dismissed(&self, id: u64, members: &Members) -> bool {
        let left = self.seats.get(&id).is_none_or(|seat| seat.mark != 0);
        left && id <= self.highest && !is_member(members, id)
    }

    /// Changes the roster, and says whose seat it was about.
    pub fn apply(&mut self, change: RosterChange) -> Result<u64, RosterRefused> {
        match change {
            RosterChange::Reserve { address } => self.reserve(address),
            RosterChange::Take { id, mark } => {
                let seat = self.seats.get_mut(&id).ok_or(RosterRefused::NoSeat(id))?;
                if seat.mark != 0 && seat.mark != mark {
                    let address = seat.address.clone();
                    return Err(RosterRefused::Taken { id, address });
                }
                seat.mark = mark;
                Ok(id)
            }
            RosterChange::Move { id, address } => self.relocate(id, address),
            RosterChange::Clear { id } => {
                self.seats.remove(&id).ok_or(RosterRefused::NoSeat(id))?;
                Ok(id)
            }
        }
    }

    fn reserve(&mut self, address: String) -> Result<u64, RosterRefused> {
        match self.at(&address) {
            Some(id) if self.seats[&id].mark == 0 => return Ok(id),
            Some(id) => return Err(RosterRefused::Occupied { id, address }),
            None => {}
        }
        let id = self.highest + 1;
        self.relocate(id, address)
    }

    /// Also for a member that has no seat: one of a group that was restored from a dump.
    fn relocate(&mut self, id: u64, address: String) -> Result<u64, RosterRefused> {
        if !is_address(&address) {
            return Err(RosterRefused::Address(address));
        }
        if id == 0 || id > NUMBER_MAX {
            return Err(RosterRefused::NoSeat(id));
        }
        if let Some(other) = self.at(&address).filter(|other| *other != id) {
            return Err(RosterRefused::Occupied { id: other, address });
        }
        if !self.seats.contains_key(&id) && self.seats.len() >= SEATS_MAX {
            return Err(RosterRefused::Full);
        }
        self.highest = self.highest.max(id);
        let mark = self.seats.get(&id).map_or(0, |seat| seat.mark);
        self.seats.insert(id, Seat { address, mark });
        Ok(id)
    }

    /// What the leader sets right by itself: whoever has taken part has a seat, at the address from which it speaks, that is taken;
    /// and whoever is a member no more has none. `present` names those who have taken part, and where they are.
    pub fn chores(&self, members: &Members, present: &BTreeMap<u64, String>) -> Vec<RosterChange> {
        let mut chores: Vec<RosterChange> = self
            .seats
            .iter()
            .filter(|(id, seat)| seat.mark != 0 && !is_member(members, **id))
            .map(|(id, _)| RosterChange::Clear { id: *id })
            .collect();
        for (id, address) in present.iter().filter(|(id, _)| is_member(members, **id)) {
            let seat = self.seats.get(id);
            // Two at one address are for an operator to sort out.
            if self.at(address).is_some_and(|other| other != *id) {
                continue;
            }
            if seat.is_none_or(|seat| seat.address != *address) {
                chores.push(RosterChange::Move {
                    id: *id,
                    address: address.clone(),
                });
            }
            if seat.is_none_or(|seat| seat.mark == 0) {
                chores.push(RosterChange::Take {
                    id: *id,
                    mark: FOUNDER,
                });
            }
        }
        chores
    }
}

/// Who votes or listens, or did until a change that is under way; one may come twice.
pub(super) fn members_of(members: &Members) -> impl Iterator<Item = u64> {
    let Members {
        voters,
        learners,
        voters_outgoing,
        learners_next,
        ..
    } = members;
    let all = [voters, learners, voters_outgoing, learners_next];
    all.into_iter().flatten().copied()
}

/// Whether it is one of them.
pub(super) fn is_member(members: &Members, id: u64) -> bool {
    members_of(members).any(|member| member == id)
}

#[cfg(test)]
mod tests;
