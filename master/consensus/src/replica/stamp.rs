//! What an entry of the log carries beside its operation: whose proposal it is, and in which form it is written.

use super::seen::Ticket;
use super::{StateMachine, Stop};
use crate::machine::FIRST_FORM;

/// An entry's context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// What the proposal is known by.
    pub ticket: Ticket,
    /// In which form its operation is written.
    pub form: u16,
}

impl Stamp {
    /// As an entry carries it: the ticket, and the form unless it is the first, which was there before forms had numbers.
    pub fn to_context(self) -> Vec<u8> {
        let Ticket {
            member,
            life,
            sequence,
        } = self.ticket;
        let ticket = [member, life, sequence].map(u64::to_be_bytes).concat();
        let form = Some(self.form).filter(|form| *form != FIRST_FORM);
        let form = form.map(u16::to_be_bytes);
        ticket
            .into_iter()
            .chain(form.into_iter().flatten())
            .collect()
    }

    /// From an entry; none if it carries something else.
    pub fn from_context(context: &[u8]) -> Option<Self> {
        let (ticket, form) = context.split_first_chunk::<24>()?;
        let form = match form {
            [] => FIRST_FORM,
            form => {
                Some(u16::from_be_bytes(form.try_into().ok()?)).filter(|form| *form > FIRST_FORM)?
            }
        };
        let part = |nth: usize| {
            let bytes = ticket[8 * nth..8 * nth + 8].iter();
            bytes.fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
        };
        let ticket = Ticket {
            member: part(0),
            life: part(1),
            sequence: part(2),
        };
        Some(Self { ticket, form })
    }
}

/// The operation of an entry, in the form that its stamp names; an entry without a stamp is of the first.
pub(super) fn operation<M: StateMachine>(
    machine: &M,
    index: u64,
    stamp: Option<Stamp>,
    data: &[u8],
) -> Result<M::Operation, Stop> {
    let form = stamp.map_or(FIRST_FORM, |stamp| stamp.form);
    let newest = machine.newest_form();
    if form > newest {
        let reason =
            format!("it is written in form {form}, and this version reads forms up to {newest}");
        return Err(Stop::Operation { index, reason });
    }
    let operation = machine.decode(data, form);
    operation.map_err(|error| Stop::Operation {
        index,
        reason: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_as_it_was_written_and_the_first_form_takes_no_room() {
        let ticket = Ticket {
            member: 3,
            life: 0x0102_0304_0506_0708,
            sequence: u64::MAX,
        };
        for (form, length) in [(FIRST_FORM, 24), (2, 26), (u16::MAX, 26)] {
            let stamp = Stamp { ticket, form };
            let context = stamp.to_context();
            assert_eq!(context.len(), length);
            assert_eq!(Stamp::from_context(&context), Some(stamp));
        }
    }

    #[test]
    fn what_is_no_stamp_is_none() {
        for length in [0, 23, 25, 27] {
            assert_eq!(Stamp::from_context(&vec![9; length]), None, "{length}");
        }
        for form in [0, FIRST_FORM] {
            let said_twice = [&[9; 24][..], &form.to_be_bytes()].concat();
            assert_eq!(Stamp::from_context(&said_twice), None, "{form}");
        }
    }
}
