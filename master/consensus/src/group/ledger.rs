//! The state machine of the tests: it remembers every operation it applied, in order. It is of any version:
//! each form of operations says a value in its own way.

use bytes::BytesMut;
use runtime::codec::Garbled;

use crate::machine::{CannotRestore, FIRST_FORM, StateMachine, Untranslatable};

/// All values in the order of application, and ballast so that a snapshot can be made large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    pub values: Vec<u64>,
    pub ballast: usize,
    newest_form: u16,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::reading(FIRST_FORM)
    }
}

impl Ledger {
    /// Of the version that reads forms up to this one.
    pub fn reading(newest_form: u16) -> Self {
        Self {
            values: Vec::new(),
            ballast: 0,
            newest_form,
        }
    }
}

/// By so many bits each value is turned in this form.
fn turn(form: u16) -> u32 {
    8 * u32::from(form - FIRST_FORM)
}

impl StateMachine for Ledger {
    type Operation = (u64, Vec<u8>);
    type Answer = usize;

    fn newest_form(&self) -> u16 {
        self.newest_form
    }

    fn encode(
        &self,
        (value, filler): &Self::Operation,
        form: u16,
    ) -> Result<Vec<u8>, Untranslatable> {
        assert!(form <= self.newest_form);
        let said = runtime::codec::encode(&(value.rotate_left(turn(form)), filler));
        said.map_err(|error| Untranslatable::new(form, error))
    }

    fn decode(&self, bytes: &[u8], form: u16) -> Result<Self::Operation, Untranslatable> {
        assert!(form <= self.newest_form);
        let (value, filler): Self::Operation =
            runtime::codec::decode(bytes).map_err(|error| Untranslatable::new(form, error))?;
        Ok((value.rotate_right(turn(form)), filler))
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
