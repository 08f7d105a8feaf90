//! The state machine of the tests: it remembers every operation it applied, in order.

use bytes::Bytes;

use crate::machine::{CannotRestore, StateMachine};

/// All values in the order of application, and ballast so that a snapshot can be made large.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    pub values: Vec<u64>,
    pub ballast: usize,
}

impl StateMachine for Ledger {
    type Operation = (u64, Vec<u8>);
    type Answer = usize;

    fn apply(&mut self, _: u64, (value, filler): (u64, Vec<u8>)) -> usize {
        self.values.push(value);
        self.ballast += filler.len();
        self.values.len()
    }

    fn snapshot(&self) -> Bytes {
        let head = [self.values.len() as u64, self.ballast as u64];
        let mut bytes: Vec<u8> = head
            .iter()
            .chain(&self.values)
            .flat_map(|value| value.to_be_bytes())
            .collect();
        bytes.resize(bytes.len() + self.ballast, 7);
        bytes.into()
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
