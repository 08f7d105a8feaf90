//! The state machine of the tests: records every applied operation in order. Each operation format
//! encodes a value differently, so that it can play any version.

use bytes::BytesMut;
use runtime::wire::codec::Garbled;

use crate::machine::{CannotRestore, FIRST_FORMAT, StateMachine, Untranslatable};

/// All values in order of application, and padding to enlarge snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    pub values: Vec<u64>,
    pub ballast: usize,
    newest_format: u16,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::reading(FIRST_FORMAT)
    }
}

impl Ledger {
    /// A ledger of the version that reads formats up to this one.
    pub fn reading(newest_format: u16) -> Self {
        Self {
            values: Vec::new(),
            ballast: 0,
            newest_format,
        }
    }
}

/// The rotation of values in this format, in bits.
fn turn(format: u16) -> u32 {
    8 * u32::from(format - FIRST_FORMAT)
}

impl StateMachine for Ledger {
    type Operation = (u64, Vec<u8>);
    type Answer = usize;

    fn newest_format(&self) -> u16 {
        self.newest_format
    }

    fn encode(
        &self,
        (value, filler): &Self::Operation,
        format: u16,
    ) -> Result<Vec<u8>, Untranslatable> {
        assert!(format <= self.newest_format);
        let encoded = runtime::wire::codec::encode(&(value.rotate_left(turn(format)), filler));
        encoded.map_err(|error| Untranslatable::new(format, error))
    }

    fn decode(&self, bytes: &[u8], format: u16) -> Result<Self::Operation, Untranslatable> {
        assert!(format <= self.newest_format);
        let (value, filler): Self::Operation = runtime::wire::codec::decode(bytes)
            .map_err(|error| Untranslatable::new(format, error))?;
        Ok((value.rotate_right(turn(format)), filler))
    }

    fn apply(&mut self, _: u64, (value, filler): (u64, Vec<u8>)) -> usize {
        self.values.push(value);
        self.ballast += filler.len();
        self.values.len()
    }

    fn snapshot_into(&self, into: &mut BytesMut) -> Result<(), Garbled> {
        let head = [self.values.len() as u64, self.ballast as u64];
        for value in head.iter().chain(&self.values) {
            into.extend_from_slice(&value.to_be_bytes());
        }
        into.resize(into.len() + self.ballast, 7);
        Ok(())
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), CannotRestore> {
        let number = |nth: usize| {
            let part = bytes
                .get(8 * nth..8 * nth + 8)
                .and_then(|part| part.try_into().ok());
            part.map(u64::from_be_bytes).ok_or_else(|| CannotRestore {
                reason: "too short".into(),
            })
        };
        let (count, ballast) = (number(0)? as usize, number(1)? as usize);
        self.values = (2..2 + count).map(number).collect::<Result<_, _>>()?;
        self.ballast = ballast;
        Ok(())
    }
}
