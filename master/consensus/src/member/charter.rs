//! The charter: a state machine, and what the group that replicates it has agreed upon among its members, in one log and one snapshot.
//!
//! Who sits where ([`Roster`]), and in which form operations are written: the newest that all members read. While a group is upgraded its members are of two
//! versions; the leader goes over to a newer form once every member has said that it reads it (`agreed_form`), never before, and nobody goes back. Pure.

use std::collections::BTreeMap;

use bytes::BytesMut;
use runtime::codec::Garbled;
use serde::{Deserialize, Serialize};

use super::roster::{Roster, RosterChange, RosterRefused, members_of};
use crate::log::Members;
use crate::machine::{CannotRestore, FIRST_FORM, StateMachine, Untranslatable};
use crate::wire::NUMBER_MAX;

/// A state machine and the charter of the group that replicates it.
#[derive(Clone, Debug)]
pub struct Chartered<M> {
    /// Who sits where.
    pub roster: Roster,
    /// In which form operations are proposed.
    pub form: u16,
    /// What it is all for.
    pub machine: M,
}

impl<M: Default> Default for Chartered<M> {
    fn default() -> Self {
        Self::new(Roster::default(), M::default())
    }
}

impl<M> Chartered<M> {
    /// As a group begins.
    pub fn new(roster: Roster, machine: M) -> Self {
        Self {
            roster,
            form: FIRST_FORM,
            machine,
        }
    }
}

/// What goes into the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entered<O> {
    /// For the machine.
    Machine(O),
    /// For the roster.
    Roster(RosterChange),
    /// What is proposed from here on is in this form, if it is a newer one: all members read it.
    Form(u16),
}

/// What its proposer is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered<A> {
    /// By the machine.
    Machine(A),
    /// By the roster: whose seat.
    Roster(Result<u64, RosterRefused>),
    /// The form from here on.
    Form(u16),
}

/// The place of [`Entered::Machine`], as our codec writes it before the operation.
const MACHINE: u8 = 0;

/// What opens a snapshot of a group that writes in the first form, as all did before forms had numbers.
const FIRST: &[u8; 8] = b"meros g1";
/// What opens one that names its form.
const FORMED: &[u8; 8] = b"meros g2";

impl<M: StateMachine> StateMachine for Chartered<M> {
    type Operation = Entered<M::Operation>;
    type Answer = Answered<M::Answer>;

    fn newest_form(&self) -> u16 {
        self.machine.newest_form()
    }

    fn form(&self) -> u16 {
        self.form
    }

    fn encode(&self, operation: &Self::Operation, form: u16) -> Result<Vec<u8>, Untranslatable> {
        match operation {
            Entered::Machine(operation) => {
                let mut bytes = vec![MACHINE];
                bytes.extend(self.machine.encode(operation, form)?);
                Ok(bytes)
            }
            // The charter's own changes are the same in every form.
            Entered::Roster(_) | Entered::Form(_) => {
                runtime::codec::encode(operation).map_err(|error| Untranslatable::new(form, error))
            }
        }
    }

    fn decode(&self, bytes: &[u8], form: u16) -> Result<Self::Operation, Untranslatable> {
        match bytes.split_first() {
            Some((&MACHINE, bytes)) => Ok(Entered::Machine(self.machine.decode(bytes, form)?)),
            _ => {
                let entered = runtime::codec::decode(bytes);
                let entered = entered.map_err(|error| Untranslatable::new(form, error))?;
                match entered {
                    Entered::Form(next) if next > self.newest_form() => {
                        Err(Untranslatable::new(form, too_new(next, self.newest_form())))
                    }
                    entered => Ok(entered),
                }
            }
        }
    }

    fn apply(&mut self, index: u64, operation: Self::Operation) -> Self::Answer {
        match operation {
            Entered::Machine(operation) => Answered::Machine(self.machine.apply(index, operation)),
            Entered::Roster(change) => Answered::Roster(self.roster.apply(change)),
            Entered::Form(form) => {
                self.form = self.form.max(form);
                Answered::Form(self.form)
            }
        }
    }

    fn snapshot_into(&self, into: &mut BytesMut) -> Result<(), Garbled> {
        match self.form {
            FIRST_FORM => into.extend_from_slice(FIRST),
            form => {
                into.extend_from_slice(FORMED);
                into.extend_from_slice(&form.to_be_bytes());
            }
        }
        let roster = runtime::codec::encode(&self.roster)?;
        into.extend_from_slice(&(roster.len() as u64).to_be_bytes());
        into.extend_from_slice(&roster);
        self.machine.snapshot_into(into)
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), CannotRestore> {
        let refused = |reason| CannotRestore { reason };
        let (form, roster, machine) = split(bytes).map_err(refused)?;
        let newest = self.newest_form();
        if form > newest {
            return Err(refused(too_new(form, newest)));
        }
        self.machine.restore(machine)?;
        (self.form, self.roster) = (form, roster);
        Ok(())
    }
}

fn split(packed: &[u8]) -> Result<(u16, Roster, &[u8]), String> {
    let within_head = "it ends within its head";
    let (form, rest) = match packed.split_first_chunk::<8>() {
        Some((FIRST, rest)) => (FIRST_FORM, rest),
        Some((FORMED, rest)) => {
            let (form, rest) = rest.split_first_chunk::<2>().ok_or(within_head)?;
            (u16::from_be_bytes(*form), rest)
        }
        _ => return Err("it does not begin with a roster of this version".to_owned()),
    };
    if (form == FIRST_FORM) != packed.starts_with(FIRST) || form < FIRST_FORM {
        return Err(format!(
            "it names form {form}, expected a number above {FIRST_FORM}"
        ));
    }
    let (length, rest) = rest.split_first_chunk::<8>().ok_or(within_head)?;
    let length = u64::from_be_bytes(*length) as usize;
    let (roster, machine) = rest
        .split_at_checked(length)
        .ok_or("it ends within its roster")?;
    let roster: Roster = runtime::codec::decode(roster).map_err(|error| error.to_string())?;
    let numbers = [roster.highest]
        .into_iter()
        .chain(roster.seats.keys().copied());
    if let Some(number) = numbers.max().filter(|number| *number > NUMBER_MAX) {
        return Err(format!(
            "its roster names member {number}, expected at most {NUMBER_MAX}"
        ));
    }
    Ok((form, roster, machine))
}

fn too_new(form: u16, newest: u16) -> String {
    format!(
        "its group writes operations in form {form}, and this version reads forms up to {newest}: is this master older than its peers?"
    )
}

/// The newest form that all members read, those that leave and those that only listen included; none as long as one has not said what it reads.
pub(super) fn agreed_form(members: &Members, read: &BTreeMap<u64, u16>) -> Option<u16> {
    let forms = members_of(members).map(|id| read.get(&id).copied());
    forms.collect::<Option<Vec<u16>>>()?.into_iter().min()
}

#[cfg(test)]
mod tests;
