//! A random number generator with the same numbers on every machine and in every version, so that a
//! seed determines a run.

/// SplitMix64.
pub struct Rng(u64);

impl Rng {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `count`, or 0 if `count` is 0.
    pub fn below(&mut self, count: usize) -> usize {
        match count {
            0 => 0,
            count => (self.next() % count as u64) as usize,
        }
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
        (0..count).map(|_| self.next() as u8).collect()
    }

    /// A number that is likely to find defects: small, next to a power of two, or arbitrary.
    pub fn number(&mut self) -> u64 {
        match self.below(6) {
            0 | 1 => self.next() % 10,
            2 => self.next() % 1000,
            3 => (1 << self.below(64)) - 1,
            4 => 1_u64 << self.below(64),
            _ => self.next(),
        }
    }
}
