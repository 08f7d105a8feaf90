//! Bit sets of small numbers, such as clients, and transposition of bit tables.
//!
//! The size of a set follows the largest number that was ever in it.

/// A set of small numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bits(Vec<u64>);

impl Bits {
    /// Inserts a number. Returns whether it was new.
    pub fn insert(&mut self, number: u32) -> bool {
        let (word, bit) = bit_of(number);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        let before = self.0[word];
        self.0[word] |= bit;
        before & bit == 0
    }

    /// Removes a number. Returns whether it was there.
    pub fn remove(&mut self, number: u32) -> bool {
        let (word, bit) = bit_of(number);
        let Some(word) = self.0.get_mut(word) else {
            return false;
        };
        let before = *word;
        *word &= !bit;
        before & bit != 0
    }

    /// Whether the number is in the set.
    pub fn has(&self, number: u32) -> bool {
        let (word, bit) = bit_of(number);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Removes all numbers.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether nothing was inserted since the set was created or cleared.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of elements.
    pub fn count(&self) -> usize {
        let ones = self.0.iter().map(|word| word.count_ones() as usize);
        ones.sum()
    }

    /// Whether the sets have a common element.
    pub fn meets(&self, other: &Self) -> bool {
        self.common(other).any(|word| word != 0)
    }

    /// The intersection, 64 numbers per word, from 0 on.
    pub fn common(&self, other: &Self) -> impl Iterator<Item = u64> {
        self.0.iter().zip(&other.0).map(|(one, other)| one & other)
    }
}

impl FromIterator<u32> for Bits {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        let mut bits = Self::default();
        for number in numbers {
            bits.insert(number);
        }
        bits
    }
}

fn bit_of(number: u32) -> (usize, u64) {
    (number as usize / 64, 1 << (number % 64))
}

/// Transposes a table of 64 rows with 64 bits each: bit `n` of row `m` becomes bit `m` of row `n`.
/// Swaps blocks of halving size.
pub fn transpose(table: &mut [u64; 64]) {
    let (mut size, mut low) = (32, u64::from(u32::MAX));
    while size > 0 {
        let mut row = 0;
        while row < 64 {
            let exchanged = ((table[row] >> size) ^ table[row + size]) & low;
            table[row + size] ^= exchanged;
            table[row] ^= exchanged << size;
            row = (row + size + 1) & !size;
        }
        size /= 2;
        low ^= low << size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_contains_inserted_and_not_removed_numbers() {
        let mut bits: Bits = [3, 64, 200].into_iter().collect();
        assert!(!bits.insert(64) && bits.insert(65) && bits.remove(3) && !bits.remove(3));
        assert!(!bits.remove(1_000) && !bits.has(1_000));
        let has: Vec<u32> = (0..300).filter(|n| bits.has(*n)).collect();
        assert_eq!((has, bits.count()), (vec![64, 65, 200], 3));
        let other: Bits = [65, 3, 500].into_iter().collect();
        assert!(bits.meets(&other) && !bits.meets(&[3].into_iter().collect()));
        assert_eq!(bits.common(&other).collect::<Vec<_>>(), [0, 2, 0, 0]);
        bits.clear();
        assert!(bits.is_empty() && !bits.has(64));
    }

    #[test]
    fn table_is_transposed() {
        let mut bits = 1_u64;
        let before: [u64; 64] = std::array::from_fn(|_| {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005) ^ 0xD1B5;
            bits
        });
        let mut after = before;
        transpose(&mut after);
        let bit = |table: &[u64; 64], row: usize, bit: usize| table[row] >> bit & 1;
        for (row, column) in (0..64).flat_map(|row| (0..64).map(move |column| (row, column))) {
            let turned = bit(&after, column, row);
            assert_eq!(turned, bit(&before, row, column), "{row} {column}");
        }
    }
}
