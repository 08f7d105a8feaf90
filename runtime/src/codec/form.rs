//! The form of numbers in a body: small ones take a byte, others a mark and as many bytes as they need.
//!
//! Plain numbers and functions, for the [writer](super::write) and the [reader](super::read).

/// The largest number that stands for itself in one byte.
pub(super) const IN_8: u8 = 250;
/// Before a number that takes two bytes.
pub(super) const IN_16: u8 = 251;
/// Before a number that takes four bytes.
pub(super) const IN_32: u8 = 252;
/// Before a number that takes eight bytes.
pub(super) const IN_64: u8 = 253;
/// Before a number that takes sixteen bytes.
pub(super) const IN_128: u8 = 254;

/// Lets numbers of either sign near zero be small: 0, -1, 1, -2 become 0, 1, 2, 3.
#[inline]
pub(super) fn fold(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

/// Takes back what [`fold`] did.
#[inline]
pub(super) fn unfold(folded: u64) -> i64 {
    (folded >> 1) as i64 ^ -((folded & 1) as i64)
}
