//! RecordIO: a stream of messages, each after its length.
//!
//! The length is decimal and ends with a newline; empty lines before it are skipped. Chunk
//! boundaries of the stream are irrelevant. The decoder buffers an incomplete record, up to its
//! bound, and does not interpret records.

use bytes::Bytes;
use resources::Invalid;

/// Maximum digits of a 64-bit length.
const DIGITS_MAX: usize = 20;

/// A record with its length.
pub fn encode(record: &[u8]) -> Vec<u8> {
    let mut bytes = record.len().to_string().into_bytes();
    bytes.reserve_exact(1 + record.len());
    bytes.push(b'\n');
    bytes.extend_from_slice(record);
    bytes
}

/// Decodes records from the chunks of a stream.
#[derive(Debug)]
pub struct Decoder {
    longest: usize,
    /// Number of records so far.
    found: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Digits of a length, at most [`DIGITS_MAX`].
    Length(Vec<u8>),
    /// The beginning of a record, and its length.
    Record(Vec<u8>, usize),
    /// The error, which ends the stream.
    Broken(Invalid),
}

impl Decoder {
    /// A decoder of records of at most `longest` bytes.
    pub fn new(longest: usize) -> Self {
        Self {
            longest,
            found: 0,
            state: State::Length(Vec::new()),
        }
    }

    /// The next record. Consumes its bytes from `piece`: call it until it returns `None`, then
    /// continue with the next chunk. Repeats an error forever.
    pub fn next(&mut self, piece: &mut &[u8]) -> Result<Option<Bytes>, Invalid> {
        let read = self.read(piece);
        if let Err(bad) = &read {
            self.state = State::Broken(bad.clone());
        }
        read
    }

    /// Checks that the stream may end here, not within a record or a length.
    pub fn end(&self) -> Result<(), Invalid> {
        match &self.state {
            State::Length(digits) if digits.is_empty() => Ok(()),
            State::Length(digits) => {
                let found = format!("cut after `{}`", String::from_utf8_lossy(digits));
                Err(self.invalid("length", found, "decimal digits and a newline"))
            }
            State::Record(record, length) => {
                let found = format!("cut after {} bytes", record.len());
                Err(self.invalid("record", found, &format!("{length} bytes")))
            }
            State::Broken(bad) => Err(bad.clone()),
        }
    }

    fn read(&mut self, piece: &mut &[u8]) -> Result<Option<Bytes>, Invalid> {
        loop {
            match &mut self.state {
                State::Broken(bad) => return Err(bad.clone()),
                State::Length(digits) => {
                    let Some((first, rest)) = piece.split_first() else {
                        return Ok(None);
                    };
                    *piece = rest;
                    match first {
                        b'\n' if digits.is_empty() => {}
                        b'\n' => {
                            let digits = std::mem::take(digits);
                            let length = self.length(&digits)?;
                            self.state = State::Record(Vec::new(), length);
                        }
                        b'0'..=b'9' if digits.len() < DIGITS_MAX => digits.push(*first),
                        _ => {
                            let mut found = std::mem::take(digits);
                            found.push(*first);
                            let found = String::from_utf8_lossy(&found).into_owned();
                            return Err(self.invalid("length", found, &self.expected()));
                        }
                    }
                }
                State::Record(record, length) => {
                    let wanted = *length - record.len();
                    let (part, rest) = piece.split_at(wanted.min(piece.len()));
                    record.extend_from_slice(part);
                    *piece = rest;
                    if record.len() < *length {
                        return Ok(None);
                    }
                    let record = Bytes::from(std::mem::take(record));
                    self.state = State::Length(Vec::new());
                    self.found += 1;
                    return Ok(Some(record));
                }
            }
        }
    }

    /// Parses a length.
    fn length(&self, digits: &[u8]) -> Result<usize, Invalid> {
        let text = String::from_utf8_lossy(digits);
        match text.parse() {
            Ok(length) if (1..=self.longest).contains(&length) => Ok(length),
            _ => Err(self.invalid("length", text, &self.expected())),
        }
    }

    fn expected(&self) -> String {
        format!(
            "a number from 1 to {} in decimal digits, and a newline",
            self.longest
        )
    }

    fn invalid(&self, part: &str, found: impl std::fmt::Display, expected: &str) -> Invalid {
        Invalid::new(format!("records[{}].{part}", self.found), found, expected)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LONGEST: usize = 1000;

    /// All records of a stream in these chunks, and the final error.
    fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Bytes>, Option<Invalid>) {
        let mut decoder = Decoder::new(LONGEST);
        let mut records = Vec::new();
        for mut piece in pieces {
            loop {
                match decoder.next(&mut piece) {
                    Ok(Some(record)) => records.push(record),
                    Ok(None) => break,
                    Err(bad) => return (records, Some(bad)),
                }
            }
        }
        (records, decoder.end().err())
    }

    fn decode_whole(stream: &[u8]) -> (Vec<Bytes>, Option<String>) {
        let (records, bad) = decode([stream]);
        (records, bad.map(|bad| bad.to_string()))
    }

    #[test]
    fn records_follow_their_length() {
        assert_eq!(encode(b"{}"), b"2\n{}");
        assert_eq!(encode(&[b'x'; 128])[..4], *b"128\n");
        let (records, bad) = decode_whole(b"2\n{}\n\n5\nhello1\nx");
        assert_eq!(records, ["{}", "hello", "x"]);
        assert_eq!(bad, None);
    }

    #[test]
    fn invalid_record_lengths_are_refused() {
        for (stream, found) in [
            (&b"x"[..], "x"),
            (b"{\"type\": 1}", "{"),
            (b"+1\nx", "+"),
            (b"-1\nx", "-"),
            (b" 1\nx", " "),
            (b"1 \nx", "1 "),
            (b"1\r\nx", "1\\r"),
            (b"0\n", "0"),
            (b"1001\n", "1001"),
            (b"9223372036854775808\n", "9223372036854775808"),
            (b"18446744073709551616\n", "18446744073709551616"),
            (b"000000000000000000001\nx", "000000000000000000001"),
        ] {
            let (records, bad) = decode_whole(&[b"2\nok", stream].concat());
            assert_eq!(records, ["ok"]);
            let expected = format!(
                "records[1].length is `{found}`: expected a number from 1 to 1000 in decimal digits, and a newline"
            );
            assert_eq!(bad, Some(expected));
        }
    }

    #[test]
    fn a_truncated_stream_is_detected() {
        for (stream, fault) in [
            (
                &b"2\n{"[..],
                "records[0].record is `cut after 1 bytes`: expected 2 bytes",
            ),
            (
                b"2\n",
                "records[0].record is `cut after 0 bytes`: expected 2 bytes",
            ),
            (
                b"1\nx12",
                "records[1].length is `cut after `12``: expected decimal digits and a newline",
            ),
        ] {
            assert_eq!(decode_whole(stream).1.as_deref(), Some(fault));
        }
        assert_eq!(decode_whole(b"").1, None);
        assert_eq!(decode_whole(b"\n").1, None);
    }

    #[test]
    fn a_failed_decoder_stays_failed() {
        let mut decoder = Decoder::new(LONGEST);
        let mut piece = &b"y2\n{}"[..];
        let bad = decoder.next(&mut piece).unwrap_err();
        assert_eq!(decoder.next(&mut piece), Err(bad.clone()));
        assert_eq!(piece, b"2\n{}");
        assert_eq!(decoder.end(), Err(bad));
    }

    #[test]
    fn a_length_alone_takes_no_memory() {
        let mut decoder = Decoder::new(usize::MAX);
        let mut piece = &b"9223372036854775807\nx"[..];
        assert_eq!(decoder.next(&mut piece), Ok(None));
        let State::Record(record, _) = &decoder.state else {
            panic!("{decoder:?}")
        };
        assert!(record.capacity() < 100, "{}", record.capacity());
    }

    proptest! {
        /// SPEC 2.1: where a stream is cut means nothing.
        #[test]
        fn records_are_independent_of_chunk_boundaries(
            records in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..6),
            sizes in proptest::collection::vec(1_usize..20, 1..8),
        ) {
            let stream: Vec<u8> = records.iter().flat_map(|record| encode(record)).collect();
            let mut pieces = Vec::new();
            let (mut rest, mut sizes) = (&stream[..], sizes.iter().cycle());
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
                pieces.push(piece);
                rest = after;
            }
            let (found, bad) = decode(pieces);
            prop_assert_eq!(bad, None);
            prop_assert_eq!(found, records);
        }

        #[test]
        fn decoding_is_independent_of_chunk_boundaries(
            stream in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'1'), Just(b'0'), any::<u8>()], 0..60),
            size in 1_usize..10,
        ) {
            prop_assert_eq!(decode([&stream[..]]), decode(stream.chunks(size)));
        }
    }
}
