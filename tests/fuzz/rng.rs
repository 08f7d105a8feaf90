//! Random choices of generators: one seed gives one value.

use rand::rngs::StdRng;
use rand::{Rng as _, RngCore, SeedableRng};

/// A source of choices.
pub struct Rng(StdRng);

impl Rng {
    /// A source with this seed.
    pub fn new(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    /// A number below `count`, or 0 if `count` is 0.
    pub fn below(&mut self, count: usize) -> usize {
        self.0.random_range(0..count.max(1))
    }

    /// True with probability 1 / `count`.
    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// One of these elements.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// This number of bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.fill_bytes(&mut bytes);
        bytes
    }

    /// A number that is likely to find defects: small, next to a power of two, or arbitrary.
    pub fn number(&mut self) -> u64 {
        match self.below(6) {
            0 | 1 => self.0.next_u64() % 10,
            2 => self.0.next_u64() % 1000,
            3 => (1 << self.below(64)) - 1,
            4 => 1_u64 << self.below(64),
            _ => self.0.next_u64(),
        }
    }
}
