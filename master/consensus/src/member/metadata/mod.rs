//! Group metadata: member addresses and the operation format, replicated in the machine's own log
//! and snapshots.
//!
//! [`AddressBook`] maps members to addresses. Operations are written in the newest format that all
//! members read: during an upgrade the leader switches once every member has reported that it reads
//! the newer format (`agreed_format`), and the group never switches back. Pure.

use std::collections::BTreeMap;

use bytes::BytesMut;
use runtime::wire::codec::Garbled;
use serde::{Deserialize, Serialize};

use super::address_book::{AddressBook, AddressChange, AddressRefused, members_of};
use crate::log::Members;
use crate::machine::{CannotRestore, FIRST_FORMAT, StateMachine, Untranslatable};
use crate::wire::NUMBER_MAX;

/// A state machine with the metadata of the group that replicates it.
#[derive(Clone, Debug)]
pub struct GroupMachine<M> {
    /// The members' addresses.
    pub address_book: AddressBook,
    /// The format in which operations are proposed.
    pub format: u16,
    /// The replicated state machine.
    pub machine: M,
}

impl<M: Default> Default for GroupMachine<M> {
    fn default() -> Self {
        Self::new(AddressBook::default(), M::default())
    }
}

impl<M> GroupMachine<M> {
    /// The initial state of a group.
    pub fn new(address_book: AddressBook, machine: M) -> Self {
        Self {
            address_book,
            format: FIRST_FORMAT,
            machine,
        }
    }
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupOperation<O> {
    /// An operation of the machine.
    Machine(O),
    /// A change of the addresses.
    Address(AddressChange),
    /// A newer format for all later operations: every member reads it.
    Format(u16),
}

/// The answer to a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupAnswer<A> {
    /// The machine's answer.
    Machine(A),
    /// The number of the member whose address changed.
    Address(Result<u64, AddressRefused>),
    /// The format from here on.
    Format(u16),
}

/// The discriminant of [`GroupOperation::Machine`], as the codec writes it before the operation.
const MACHINE: u8 = 0;

/// Magic bytes of a snapshot in the first format, which has no format number.
const FIRST: &[u8; 8] = b"meros g1";
/// Magic bytes of a snapshot that contains its format number.
const WITH_FORMAT: &[u8; 8] = b"meros g2";

impl<M: StateMachine> StateMachine for GroupMachine<M> {
    type Operation = GroupOperation<M::Operation>;
    type Answer = GroupAnswer<M::Answer>;

    fn newest_format(&self) -> u16 {
        self.machine.newest_format()
    }

    fn format(&self) -> u16 {
        self.format
    }

    fn encode(&self, operation: &Self::Operation, format: u16) -> Result<Vec<u8>, Untranslatable> {
        match operation {
            GroupOperation::Machine(operation) => {
                let mut bytes = vec![MACHINE];
                bytes.extend(self.machine.encode(operation, format)?);
                Ok(bytes)
            }
            // Changes of the metadata are encoded the same in every format.
            GroupOperation::Address(_) | GroupOperation::Format(_) => {
                runtime::wire::codec::encode(operation)
                    .map_err(|error| Untranslatable::new(format, error))
            }
        }
    }

    fn decode(&self, bytes: &[u8], format: u16) -> Result<Self::Operation, Untranslatable> {
        match bytes.split_first() {
            Some((&MACHINE, bytes)) => {
                Ok(GroupOperation::Machine(self.machine.decode(bytes, format)?))
            }
            _ => {
                let operation = runtime::wire::codec::decode(bytes);
                let operation = operation.map_err(|error| Untranslatable::new(format, error))?;
                match operation {
                    GroupOperation::Format(next) if next > self.newest_format() => Err(
                        Untranslatable::new(format, too_new(next, self.newest_format())),
                    ),
                    operation => Ok(operation),
                }
            }
        }
    }

    fn apply(&mut self, index: u64, operation: Self::Operation) -> Self::Answer {
        match operation {
            GroupOperation::Machine(operation) => {
                GroupAnswer::Machine(self.machine.apply(index, operation))
            }
            GroupOperation::Address(change) => {
                GroupAnswer::Address(self.address_book.apply(change))
            }
            GroupOperation::Format(format) => {
                self.format = self.format.max(format);
                GroupAnswer::Format(self.format)
            }
        }
    }

    fn snapshot_into(&self, into: &mut BytesMut) -> Result<(), Garbled> {
        match self.format {
            FIRST_FORMAT => into.extend_from_slice(FIRST),
            format => {
                into.extend_from_slice(WITH_FORMAT);
                into.extend_from_slice(&format.to_be_bytes());
            }
        }
        let address_book = runtime::wire::codec::encode(&self.address_book)?;
        into.extend_from_slice(&(address_book.len() as u64).to_be_bytes());
        into.extend_from_slice(&address_book);
        self.machine.snapshot_into(into)
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), CannotRestore> {
        let refused = |reason| CannotRestore { reason };
        let (format, address_book, machine) = split(bytes).map_err(refused)?;
        let newest = self.newest_format();
        if format > newest {
            return Err(refused(too_new(format, newest)));
        }
        self.machine.restore(machine)?;
        (self.format, self.address_book) = (format, address_book);
        Ok(())
    }
}

fn split(packed: &[u8]) -> Result<(u16, AddressBook, &[u8]), String> {
    let within_head = "it ends within its head";
    let (format, rest) = match packed.split_first_chunk::<8>() {
        Some((FIRST, rest)) => (FIRST_FORMAT, rest),
        Some((WITH_FORMAT, rest)) => {
            let (format, rest) = rest.split_first_chunk::<2>().ok_or(within_head)?;
            (u16::from_be_bytes(*format), rest)
        }
        _ => return Err("it does not begin with an address book of this version".to_owned()),
    };
    if (format == FIRST_FORMAT) != packed.starts_with(FIRST) || format < FIRST_FORMAT {
        return Err(format!(
            "it names format {format}, expected a number above {FIRST_FORMAT}"
        ));
    }
    let (length, rest) = rest.split_first_chunk::<8>().ok_or(within_head)?;
    let length = u64::from_be_bytes(*length) as usize;
    let (address_book, machine) = rest
        .split_at_checked(length)
        .ok_or("it ends within its address book")?;
    let address_book: AddressBook =
        runtime::wire::codec::decode(address_book).map_err(|error| error.to_string())?;
    let numbers = [address_book.highest]
        .into_iter()
        .chain(address_book.entries.keys().copied());
    if let Some(number) = numbers.max().filter(|number| *number > NUMBER_MAX) {
        return Err(format!(
            "its address book names member {number}, expected at most {NUMBER_MAX}"
        ));
    }
    Ok((format, address_book, machine))
}

fn too_new(format: u16, newest: u16) -> String {
    format!(
        "its group writes operations in format {format}, and this version reads formats up to {newest}: is this master older than its peers?"
    )
}

/// The newest format that all members read, learners and leaving members included. None until every
/// member has reported.
pub(super) fn agreed_format(members: &Members, read: &BTreeMap<u64, u16>) -> Option<u16> {
    let formats = members_of(members).map(|id| read.get(&id).copied());
    formats.collect::<Option<Vec<u16>>>()?.into_iter().min()
}

#[cfg(test)]
mod tests;
