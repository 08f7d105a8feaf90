//! The context of a log entry: the ticket of its proposal, and the format of its operation.

use super::seen::Ticket;
use super::{StateMachine, Stop};
use crate::machine::FIRST_FORMAT;

/// An entry's context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Identifies the proposal.
    pub ticket: Ticket,
    /// The format of the operation.
    pub format: u16,
}

impl Stamp {
    /// Encodes the context: the ticket, then the format unless it is the first, which predates
    /// format numbers.
    pub fn to_context(self) -> Vec<u8> {
        let Ticket {
            member,
            incarnation,
            sequence,
        } = self.ticket;
        let ticket = [member, incarnation, sequence]
            .map(u64::to_be_bytes)
            .concat();
        let format = Some(self.format).filter(|format| *format != FIRST_FORMAT);
        let format = format.map(u16::to_be_bytes);
        ticket
            .into_iter()
            .chain(format.into_iter().flatten())
            .collect()
    }

    /// Decodes a context; none for other content.
    pub fn from_context(context: &[u8]) -> Option<Self> {
        let (ticket, format) = context.split_first_chunk::<24>()?;
        let format = match format {
            [] => FIRST_FORMAT,
            format => Some(u16::from_be_bytes(format.try_into().ok()?))
                .filter(|format| *format > FIRST_FORMAT)?,
        };
        let part = |nth: usize| {
            let bytes = ticket[8 * nth..8 * nth + 8].iter();
            bytes.fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
        };
        let ticket = Ticket {
            member: part(0),
            incarnation: part(1),
            sequence: part(2),
        };
        Some(Self { ticket, format })
    }
}

/// Decodes the operation of an entry in the format of its stamp; in the first format if it has
/// none.
pub(super) fn operation<M: StateMachine>(
    machine: &M,
    index: u64,
    stamp: Option<Stamp>,
    data: &[u8],
) -> Result<M::Operation, Stop> {
    let format = stamp.map_or(FIRST_FORMAT, |stamp| stamp.format);
    let newest = machine.newest_format();
    if format > newest {
        let reason = format!(
            "it is written in format {format}, and this version reads formats up to {newest}"
        );
        return Err(Stop::Operation { index, reason });
    }
    let operation = machine.decode(data, format);
    operation.map_err(|error| Stop::Operation {
        index,
        reason: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamp_round_trips() {
        let ticket = Ticket {
            member: 3,
            incarnation: 0x0102_0304_0506_0708,
            sequence: u64::MAX,
        };
        for (format, length) in [(FIRST_FORMAT, 24), (2, 26), (u16::MAX, 26)] {
            let stamp = Stamp { ticket, format };
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
        for format in [0, FIRST_FORMAT] {
            let said_twice = [&[9; 24][..], &format.to_be_bytes()].concat();
            assert_eq!(Stamp::from_context(&said_twice), None, "{format}");
        }
    }
}
