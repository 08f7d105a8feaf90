//! The addresses of a group's members, replicated beside the state machine.
//!
//! Raft knows members by number only. An [`AddressBook`] has an entry for each number,
//! with its address and the mark of the directory that took it, so that a wiped directory is not
//! mistaken for the one that voted before. It is part of the machine's log and snapshots (see
//! [`metadata`](super::metadata)), so every member has it. Raft's own member list alone decides who
//! votes. Pure. Numbers are never reused.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::settings::is_address;
use crate::log::Members;
use crate::wire::{MEMBERS_MAX, NUMBER_MAX};

/// The mark of a founder's directory, which took part before marks existed.
pub const FOUNDER: u64 = 1;
/// Entries of members, and of those that were added or removed and not cleared yet.
const ENTRIES_MAX: usize = 2 * MEMBERS_MAX;

/// The address of one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberEntry {
    /// Its address.
    pub address: String,
    /// The mark of the directory that has taken this entry; 0 while none has.
    pub mark: u64,
}

/// All entries, by raft id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressBook {
    /// The highest id ever assigned.
    pub highest: u64,
    /// The entries.
    pub entries: BTreeMap<u64, MemberEntry>,
}

/// A change of the address book. Each change is idempotent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AddressChange {
    /// Reserves an entry for a master that starts at this address with an empty directory. An
    /// existing entry that is not taken is reused.
    Reserve {
        /// Its future address.
        address: String,
    },
    /// Records that the directory with this mark has taken the entry.
    Take {
        /// The entry's number.
        id: u64,
        /// The directory's mark.
        mark: u64,
    },
    /// Changes a member's address.
    Move {
        /// The member's number.
        id: u64,
        /// Its new address.
        address: String,
    },
    /// Deletes the entry of a removed member.
    Clear {
        /// The entry's number.
        id: u64,
    },
}

/// Why the address book did not change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressRefused {
    /// The address is invalid.
    #[error("{0:?} cannot be an address: expected 1 to 256 bytes")]
    Address(String),
    /// The address book is full.
    #[error(
        "a group has at most {MEMBERS_MAX} members, and as many addresses of former or future members"
    )]
    Full,
    /// Another member has this address.
    #[error("master {id} is at {address} already")]
    Occupied {
        /// Its number.
        id: u64,
        /// The address.
        address: String,
    },
    /// The entry does not exist.
    #[error("master {0} is not a member")]
    NotMember(u64),
    /// Another directory has taken the entry.
    #[error(
        "master {id} at {address} has taken part with another directory: as it has lost that one, it must not vote under its old number. Run \
         `meros masters remove {id}`, and then `meros masters add {address}`"
    )]
    Taken {
        /// The entry's number.
        id: u64,
        /// Its address.
        address: String,
    },
}

impl AddressBook {
    /// The address book of a new group: numbered from 1 in this order, no entry taken.
    pub fn founding(addresses: &[String]) -> Self {
        let entry = |address: &String| MemberEntry {
            address: address.clone(),
            mark: 0,
        };
        Self {
            highest: addresses.len() as u64,
            entries: (1..).zip(addresses.iter().map(entry)).collect(),
        }
    }

    /// The number of the member at this address.
    pub fn at(&self, address: &str) -> Option<u64> {
        let mut entries = self.entries.iter();
        entries
            .find(|(_, entry)| entry.address == address)
            .map(|(id, _)| *id)
    }

    /// The address of a member.
    pub fn address(&self, id: u64) -> Option<&str> {
        self.entries.get(&id).map(|entry| entry.address.as_str())
    }

    /// Whether this number belonged to a removed member. Never changes back. A number that is
    /// reserved but not yet a member has an entry with mark 0, so a reader that replays the log
    /// from its beginning does not take it for removed.
    pub fn was_removed(&self, id: u64, members: &Members) -> bool {
        let left = self.entries.get(&id).is_none_or(|entry| entry.mark != 0);
        left && id <= self.highest && !is_member(members, id)
    }

    /// Applies a change and returns the number that it concerns.
    pub fn apply(&mut self, change: AddressChange) -> Result<u64, AddressRefused> {
        match change {
            AddressChange::Reserve { address } => self.reserve(address),
            AddressChange::Take { id, mark } => {
                let entry = self
                    .entries
                    .get_mut(&id)
                    .ok_or(AddressRefused::NotMember(id))?;
                if entry.mark != 0 && entry.mark != mark {
                    let address = entry.address.clone();
                    return Err(AddressRefused::Taken { id, address });
                }
                entry.mark = mark;
                Ok(id)
            }
            AddressChange::Move { id, address } => self.relocate(id, address),
            AddressChange::Clear { id } => {
                self.entries
                    .remove(&id)
                    .ok_or(AddressRefused::NotMember(id))?;
                Ok(id)
            }
        }
    }

    fn reserve(&mut self, address: String) -> Result<u64, AddressRefused> {
        match self.at(&address) {
            Some(id) if self.entries[&id].mark == 0 => return Ok(id),
            Some(id) => return Err(AddressRefused::Occupied { id, address }),
            None => {}
        }
        let id = self.highest + 1;
        self.relocate(id, address)
    }

    /// Also creates an entry for a member without one: in a group restored from a dump.
    fn relocate(&mut self, id: u64, address: String) -> Result<u64, AddressRefused> {
        if !is_address(&address) {
            return Err(AddressRefused::Address(address));
        }
        if id == 0 || id > NUMBER_MAX {
            return Err(AddressRefused::NotMember(id));
        }
        if let Some(other) = self.at(&address).filter(|other| *other != id) {
            return Err(AddressRefused::Occupied { id: other, address });
        }
        if !self.entries.contains_key(&id) && self.entries.len() >= ENTRIES_MAX {
            return Err(AddressRefused::Full);
        }
        self.highest = self.highest.max(id);
        let mark = self.entries.get(&id).map_or(0, |entry| entry.mark);
        self.entries.insert(id, MemberEntry { address, mark });
        Ok(id)
    }

    /// The changes that the leader makes on its own: every member that has taken part (`present`,
    /// with its address) gets an entry with the address from which it sends, marked as taken;
    /// entries of removed members are cleared.
    pub fn housekeeping(
        &self,
        members: &Members,
        present: &BTreeMap<u64, String>,
    ) -> Vec<AddressChange> {
        let mut housekeeping: Vec<AddressChange> = self
            .entries
            .iter()
            .filter(|(id, entry)| entry.mark != 0 && !is_member(members, **id))
            .map(|(id, _)| AddressChange::Clear { id: *id })
            .collect();
        for (id, address) in present.iter().filter(|(id, _)| is_member(members, **id)) {
            let entry = self.entries.get(id);
            // Two members at one address are left to an operator.
            if self.at(address).is_some_and(|other| other != *id) {
                continue;
            }
            if entry.is_none_or(|entry| entry.address != *address) {
                housekeeping.push(AddressChange::Move {
                    id: *id,
                    address: address.clone(),
                });
            }
            if entry.is_none_or(|entry| entry.mark == 0) {
                housekeeping.push(AddressChange::Take {
                    id: *id,
                    mark: FOUNDER,
                });
            }
        }
        housekeeping
    }
}

/// All voters and learners, and those of a change in progress. May contain duplicates.
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

/// Whether this number is a member's.
pub(super) fn is_member(members: &Members, id: u64) -> bool {
    members_of(members).any(|member| member == id)
}

#[cfg(test)]
mod tests;
