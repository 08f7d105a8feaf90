//! Mutations: changes that leave an input almost valid, which finds most defects.
//!
//! Depends only on the random numbers. An input grows beyond [`LENGTH_MAX`] only by a repetition,
//! and never beyond [`REPEATED_MAX`].

use crate::rng::Rng;

/// Maximum length of an input that still grows, in bytes.
pub const LENGTH_MAX: usize = 4 << 10;
/// Maximum length of any input.
pub const REPEATED_MAX: usize = 64 << 10;

/// Boundary values of the codec, frames and texts.
const BORDERS: &[u8] = &[
    0, 1, 2, 3, 0x20, 0x7f, 0x80, 0xbf, 0xc0, 0xed, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe, 0xff,
];
/// Tokens of the text formats.
const TOKENS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ":",
    ";",
    ",",
    "-",
    "\"",
    "\\",
    "\\u0000",
    "null",
    "true",
    "0",
    "-0",
    "1e308",
    "-1",
    "9e999",
    "0.0005",
    "NaN",
    "inf",
    "18446744073709551615",
    "9223372036854775807",
    "*",
    "/",
    "..",
    " ",
    "\n",
    "\u{0}",
    "\u{202e}",
    "e\u{301}",
    "{}",
    "[]",
    "[[[[[[[[",
    "cpus:1",
    "role",
    "value",
];

/// Applies one to four small changes. `others` are sources of spliced parts.
pub fn mutate(rng: &mut Rng, input: &mut Vec<u8>, others: &[Vec<u8>]) {
    for _ in 0..=rng.below(4) {
        once(rng, input, others);
        if input.len() > LENGTH_MAX && !rng.one_in(8) {
            input.truncate(LENGTH_MAX);
        }
    }
}

fn once(rng: &mut Rng, input: &mut Vec<u8>, others: &[Vec<u8>]) {
    let at = rng.below(input.len());
    match rng.below(14) {
        0 | 1 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << rng.below(8);
            }
        }
        2 | 3 => {
            if let Some(byte) = input.get_mut(at) {
                *byte = *rng.pick(BORDERS);
            }
        }
        4 => {
            if let Some(byte) = input.get_mut(at) {
                *byte = byte.wrapping_add(rng.below(9) as u8).wrapping_sub(4);
            }
        }
        5 | 6 => corrupt_length(rng, input, at),
        7 => input.truncate(at),
        8 => {
            let end = random_end(rng, input, at);
            input.drain(at..end);
        }
        9 => {
            let end = random_end(rng, input, at);
            let piece = input[at..end].to_vec();
            let times = match rng.one_in(20) {
                true => REPEATED_MAX / piece.len().max(1),
                false => 1 + rng.below(3),
            };
            let room = REPEATED_MAX.saturating_sub(input.len());
            let more = piece.repeat(times);
            insert(input, at, &more[..more.len().min(room)]);
        }
        10 => {
            let count = 1 + rng.below(8);
            let bytes = rng.bytes(count);
            insert(input, at, &bytes);
        }
        11 => {
            let token = rng.pick(TOKENS).as_bytes();
            insert(input, at, token);
        }
        _ => splice(rng, input, at, others),
    }
}

fn random_end(rng: &mut Rng, input: &[u8], at: usize) -> usize {
    let longest = match rng.one_in(4) {
        true => input.len(),
        false => 16,
    };
    (at + 1 + rng.below(longest)).min(input.len())
}

fn insert(input: &mut Vec<u8>, at: usize, piece: &[u8]) {
    let tail = input.split_off(at.min(input.len()));
    input.extend_from_slice(piece);
    input.extend_from_slice(&tail);
}

/// Inserts or overwrites a wrong length, in one of the encodings used.
fn corrupt_length(rng: &mut Rng, input: &mut Vec<u8>, at: usize) {
    let number = rng.number();
    let claim = match rng.below(7) {
        0 => vec![number as u8],
        1 => [&[0xfb][..], &(number as u16).to_le_bytes()].concat(),
        2 => [&[0xfc][..], &(number as u32).to_le_bytes()].concat(),
        3 => [&[0xfd][..], &number.to_le_bytes()].concat(),
        4 => (number as u16).to_be_bytes().to_vec(),
        5 => (number as u32).to_be_bytes().to_vec(),
        _ => number.to_be_bytes().to_vec(),
    };
    let stands = match rng.one_in(3) {
        true => 0,
        false => claim.len().min(input.len() - at),
    };
    input.splice(at..at + stands, claim);
}

/// Inserts a part of another input, or overwrites a part of this one with it.
fn splice(rng: &mut Rng, input: &mut Vec<u8>, at: usize, others: &[Vec<u8>]) {
    if others.is_empty() {
        return;
    }
    let other = rng.pick(others);
    let from = rng.below(other.len());
    let end = random_end(rng, other, from);
    let stands = match rng.below(3) {
        0 => 0,
        1 => input.len() - at,
        _ => (end - from).min(input.len() - at),
    };
    input.splice(at..at + stands, other[from..end].iter().copied());
}
