//! The keys of the log's records, and their names in errors.
//!
//! Pure functions. The order suits sled, whose leaves hold adjacent keys and are rewritten every
//! few puts: the chunks come last, so that the leaf of the current turns holds only turns.

/// The metadata record.
pub(super) const META: &[u8] = b"a";
/// Parts of content too long for one value.
pub(super) const PARTS: &[u8] = b"b";
/// The turns, by their first index.
pub(super) const CHUNKS: &[u8] = b"e";

/// The key of the chunk with this first index.
pub(super) fn chunk(first: u64) -> Vec<u8> {
    [CHUNKS, &first.to_be_bytes()].concat()
}

/// The first index in a chunk's key.
pub(super) fn chunk_first(key: &[u8]) -> Option<u64> {
    let first = key.strip_prefix(CHUNKS)?.try_into().ok()?;
    Some(u64::from_be_bytes(first))
}

/// The key of one part of this number.
pub(super) fn part(number: u64, part: u32) -> Vec<u8> {
    [PARTS, &number.to_be_bytes(), &part.to_be_bytes()].concat()
}

/// The number and the position in a part's key.
pub(super) fn part_of(key: &[u8]) -> Option<(u64, u32)> {
    let (number, part) = key.strip_prefix(PARTS)?.split_first_chunk::<8>()?;
    let part = u32::from_be_bytes(part.try_into().ok()?);
    Some((u64::from_be_bytes(*number), part))
}

/// A record's name in an error.
pub(super) fn name(key: &[u8]) -> String {
    if key == META {
        return "the member's own record".to_owned();
    }
    if let Some(first) = chunk_first(key) {
        return format!("the record of the entries from {first} on");
    }
    match part_of(key) {
        Some((number, part)) => format!("part {part} of write {number}"),
        None => format!("the record \"{}\"", key.escape_ascii()),
    }
}

/// The same for a key that the store has escaped.
pub(super) fn name_of_text(text: &str) -> String {
    match unescaped(text.as_bytes()) {
        Some(key) => name(&key),
        None => format!("the record \"{text}\""),
    }
}

/// Reverses `escape_ascii`.
fn unescaped(mut text: &[u8]) -> Option<Vec<u8>> {
    let mut key = Vec::with_capacity(text.len());
    while let [first, rest @ ..] = text {
        let (byte, rest) = match (first, rest) {
            (b'\\', [b'x', digits @ ..]) => {
                let (digits, rest) = digits.split_at_checked(2)?;
                let digits = std::str::from_utf8(digits).ok()?;
                (u8::from_str_radix(digits, 16).ok()?, rest)
            }
            (b'\\', [escaped, rest @ ..]) => match escaped {
                b't' => (b'\t', rest),
                b'n' => (b'\n', rest),
                b'r' => (b'\r', rest),
                other => (*other, rest),
            },
            (byte, rest) => (*byte, rest),
        };
        key.push(byte);
        text = rest;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_order_and_round_trip() {
        let keys = [
            META.to_vec(),
            part(1, 255),
            part(1, 256),
            part(256, 0),
            chunk(1),
            chunk(255),
            chunk(256),
        ];
        assert!(keys.is_sorted());
        assert_eq!(chunk_first(&chunk(300)), Some(300));
        assert_eq!(part_of(&part(7, 300)), Some((7, 300)));
    }

    #[test]
    fn a_record_is_named_in_words() {
        assert_eq!(name(META), "the member's own record");
        assert_eq!(name(&chunk(7)), "the record of the entries from 7 on");
        assert_eq!(name(&part(3, 2)), "part 2 of write 3");
        assert_eq!(name(b"x\n"), "the record \"x\\n\"");
    }

    #[test]
    fn escaped_keys_are_named() {
        for first in (0..=255).map(|byte| byte << 8 | 7) {
            let key = chunk(first);
            assert_eq!(name_of_text(&key.escape_ascii().to_string()), name(&key));
        }
        assert_eq!(name_of_text("journal/0/1"), "the record \"journal/0/1\"");
        assert_eq!(name_of_text("cut \\x1"), "the record \"cut \\x1\"");
    }
}
