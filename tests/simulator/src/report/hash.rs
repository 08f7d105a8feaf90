//! The hash of a run: fixed keys and order, independent of the machine.
//!
//! It distinguishes runs; it is not cryptographic.

/// An odd number with as many ones as zeros.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// A hash in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunHash(u64);

impl RunHash {
    /// The hash of no input.
    pub fn new() -> Self {
        Self(MULTIPLIER)
    }

    /// Adds a number.
    pub fn number(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(MULTIPLIER);
        self.0 = mixed ^ (mixed >> 29);
    }

    /// Adds bytes, with their count.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            let mut eight = [0; 8];
            eight.copy_from_slice(word);
            self.number(u64::from_le_bytes(eight));
        }
        let mut rest = [0; 8];
        let left = words.remainder();
        rest[..left.len()].copy_from_slice(left);
        self.number(u64::from_le_bytes(rest));
    }

    /// Adds text.
    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// The hash of all input.
    pub fn value(self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(MULTIPLIER);
        mixed ^ (mixed >> 32)
    }
}

impl Default for RunHash {
    fn default() -> Self {
        Self::new()
    }
}

/// A seed for one part of a run, from the part's name and a number, so that parts have independent
/// randomness.
pub fn derived(seed: u64, part: &str, number: u64) -> u64 {
    let mut hash = RunHash::new();
    hash.number(seed);
    hash.text(part);
    hash.number(number);
    hash.value()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_depends_on_order_and_boundaries() {
        let of = |parts: &[&str]| {
            let mut hash = RunHash::new();
            parts.iter().for_each(|part| hash.text(part));
            hash.value()
        };
        let all = [
            of(&[]),
            of(&[""]),
            of(&["a", "b"]),
            of(&["b", "a"]),
            of(&["ab"]),
            of(&["ab\0"]),
        ];
        for (one, hash) in all.iter().enumerate() {
            assert!(!all[..one].contains(hash), "{one}");
        }
        assert_eq!(of(&["a", "b"]), of(&["a", "b"]));
    }

    #[test]
    fn parts_have_separate_seeds() {
        let seeds = [
            derived(1, "a", 0),
            derived(1, "a", 1),
            derived(1, "b", 0),
            derived(2, "a", 0),
        ];
        for (one, seed) in seeds.iter().enumerate() {
            assert!(!seeds[..one].contains(seed), "{one}");
        }
    }
}
