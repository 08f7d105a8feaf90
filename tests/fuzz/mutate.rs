//! Mutations: how an input becomes another that is nearly right, which is what finds defects.
//!
//! Pure but for the chance it is given. An input grows beyond [`LENGTH_MAX`] only by a repetition, and never beyond
//! [`REPEATED_MAX`].

use crate::chance::Chance;

/// The longest input that grows further, in bytes.
pub const LENGTH_MAX: usize = 4 << 10;
/// The longest input of all.
pub const REPEATED_MAX: usize = 64 << 10;

/// Bytes at the borders of what the codec, frames and texts tell apart.
const BORDERS: &[u8] = &[
    0, 1, 2, 3, 0x20, 0x7f, 0x80, 0xbf, 0xc0, 0xed, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe, 0xff,
];
/// Pieces of the text forms.
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

/// Changes the input a little, one to four times. `others` lend their parts.
pub fn mutate(chance: &mut Chance, input: &mut Vec<u8>, others: &[Vec<u8>]) {
    for _ in 0..=chance.below(4) {
        once(chance, input, others);
        if input.len() > LENGTH_MAX && !chance.one_in(8) {
            input.truncate(LENGTH_MAX);
        }
    }
}

fn once(chance: &mut Chance, input: &mut Vec<u8>, others: &[Vec<u8>]) {
    let at = chance.below(input.len());
    match chance.below(14) {
        0 | 1 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << chance.below(8);
            }
        }
        2 | 3 => {
            if let Some(byte) = input.get_mut(at) {
                *byte = *chance.pick(BORDERS);
            }
        }
        4 => {
            if let Some(byte) = input.get_mut(at) {
                *byte = byte.wrapping_add(chance.below(9) as u8).wrapping_sub(4);
            }
        }
        5 | 6 => lie(chance, input, at),
        7 => input.truncate(at),
        8 => {
            let end = some_end(chance, input, at);
            input.drain(at..end);
        }
        9 => {
            let end = some_end(chance, input, at);
            let piece = input[at..end].to_vec();
            let times = match chance.one_in(20) {
                true => REPEATED_MAX / piece.len().max(1),
                false => 1 + chance.below(3),
            };
            let room = REPEATED_MAX.saturating_sub(input.len());
            let more = piece.repeat(times);
            insert(input, at, &more[..more.len().min(room)]);
        }
        10 => {
            let count = 1 + chance.below(8);
            let bytes = chance.bytes(count);
            insert(input, at, &bytes);
        }
        11 => {
            let token = chance.pick(TOKENS).as_bytes();
            insert(input, at, token);
        }
        _ => splice(chance, input, at, others),
    }
}

fn some_end(chance: &mut Chance, input: &[u8], at: usize) -> usize {
    let longest = match chance.one_in(4) {
        true => input.len(),
        false => 16,
    };
    (at + 1 + chance.below(longest)).min(input.len())
}

fn insert(input: &mut Vec<u8>, at: usize, piece: &[u8]) {
    let tail = input.split_off(at.min(input.len()));
    input.extend_from_slice(piece);
    input.extend_from_slice(&tail);
}

/// Claims a length that is not so, in one of the forms that are read here, in place of what stood there or before it.
fn lie(chance: &mut Chance, input: &mut Vec<u8>, at: usize) {
    let number = chance.number();
    let claim = match chance.below(7) {
        0 => vec![number as u8],
        1 => [&[0xfb][..], &(number as u16).to_le_bytes()].concat(),
        2 => [&[0xfc][..], &(number as u32).to_le_bytes()].concat(),
        3 => [&[0xfd][..], &number.to_le_bytes()].concat(),
        4 => (number as u16).to_be_bytes().to_vec(),
        5 => (number as u32).to_be_bytes().to_vec(),
        _ => number.to_be_bytes().to_vec(),
    };
    let stands = match chance.one_in(3) {
        true => 0,
        false => claim.len().min(input.len() - at),
    };
    input.splice(at..at + stands, claim);
}

/// Puts a part of another input in place of a part of this one.
fn splice(chance: &mut Chance, input: &mut Vec<u8>, at: usize, others: &[Vec<u8>]) {
    if others.is_empty() {
        return;
    }
    let other = chance.pick(others);
    let from = chance.below(other.len());
    let end = some_end(chance, other, from);
    let stands = match chance.below(3) {
        0 => 0,
        1 => input.len() - at,
        _ => (end - from).min(input.len() - at),
    };
    input.splice(at..at + stands, other[from..end].iter().copied());
}
