//! Tells whose header is left out, because it is that of the tell before: the two forms in which they are written.
//!
//! The long form is a frame like any other: its length, its kind, the body. The short one is two bytes and the body: a bit that is set
//! in no other frame's length, for none is that long, and then the body's length. A node says in its hello that it reads short ones, since
//! a Meros of before takes their first bytes for a length that cannot be. Which form is written shows in no message. Remembers nothing.

use crate::codec::Garbled;
use crate::frame::{PREFIX, TELL_AGAIN};
use crate::mailbox::LARGE;
use crate::message::id_of;

/// Under this name a hello says, as if it were a message, that the node reads the short form.
pub(crate) const READS_SHORT: &str = "frames/short";

/// That name in a hello.
pub(crate) const READS_SHORT_ID: u32 = id_of(READS_SHORT);

/// The room for a length, and the kind.
pub(crate) const LONG: [u8; PREFIX + 1] = [0, 0, 0, 0, TELL_AGAIN];
/// The room for a body's length.
pub(crate) const SHORT: [u8; 2] = [0; 2];
/// In the first byte of the short form.
const MARK: u8 = 0x80;

/// What is before a body of so many bytes, fewer than [`LARGE`], in the short form.
#[inline]
pub(crate) fn short(body: usize) -> [u8; SHORT.len()] {
    let [high, low] = (body as u16).to_be_bytes();
    [high | MARK, low]
}

/// What one side of a link reads.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    /// The longest frame, in bytes.
    pub(crate) frame_max: usize,
    /// Whether its hello said that it reads the short form.
    pub(crate) short: bool,
}

/// What is at the front of the bytes of a lane.
#[derive(Debug, PartialEq)]
pub(crate) enum Front<'a> {
    /// A frame, without its length.
    Frame(&'a [u8]),
    /// The body of a tell whose header is left out.
    Again(&'a [u8]),
}

impl Reading {
    /// The length of a body in the short form, if these bytes begin with one.
    #[inline(always)]
    fn short_length(self, bytes: &[u8]) -> Option<(usize, &[u8])> {
        match bytes {
            [high, low, rest @ ..] if high & MARK != 0 && self.short => {
                let length = u16::from_be_bytes([high & !MARK, *low]);
                Some((usize::from(length), rest))
            }
            _ => None,
        }
    }

    /// What is at the front, if it is there whole, and what is behind it.
    pub(crate) fn front<'b>(
        self,
        bytes: &'b [u8],
    ) -> Result<Option<(Front<'b>, &'b [u8])>, Garbled> {
        if let Some((length, rest)) = self.short_length(bytes) {
            if length >= LARGE {
                return Err(Garbled::new(format!(
                    "body of {length} bytes in a short frame, expected fewer than {LARGE}"
                )));
            }
            let split = rest.split_at_checked(length);
            return Ok(split.map(|(body, behind)| (Front::Again(body), behind)));
        }
        let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        let (length, frame_max) = (u32::from_be_bytes(*prefix) as usize, self.frame_max);
        if length == 0 || length > frame_max {
            return Err(Garbled::new(format!(
                "frame of {length} bytes, expected 1 to {frame_max}"
            )));
        }
        let split = rest.split_at_checked(length);
        Ok(split.map(|(frame, behind)| match frame {
            [TELL_AGAIN, body @ ..] => (Front::Again(body), behind),
            frame => (Front::Frame(frame), behind),
        }))
    }

    /// The body of the tell at the front, if its header is left out, and it is whole and below [`LARGE`]; and what is behind it.
    #[inline(always)]
    pub(crate) fn small(self, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        if let Some((length, rest)) = self.short_length(bytes) {
            return (length < LARGE).then(|| rest.split_at_checked(length))?;
        }
        let [a, b, c, d, TELL_AGAIN, rest @ ..] = bytes else {
            return None;
        };
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        let body = length.checked_sub(1).filter(|body| *body < LARGE)?;
        (length <= self.frame_max).then_some(())?;
        rest.split_at_checked(body)
    }

    /// How many such tells are at the front, counted up to `max`.
    pub(crate) fn count(self, mut bytes: &[u8], max: usize) -> usize {
        let mut count = 0;
        while count < max
            && let Some((_, behind)) = self.small(bytes)
        {
            bytes = behind;
            count += 1;
        }
        count
    }

    /// Whether these bytes seem to begin with such a tell.
    pub(crate) fn is_next(self, bytes: &[u8]) -> bool {
        self.short_length(bytes).is_some() || bytes.get(PREFIX) == Some(&TELL_AGAIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Reading = Reading {
        frame_max: 1 << 20,
        short: true,
    };
    const LONG_ONLY: Reading = Reading {
        short: false,
        ..BOTH
    };

    #[test]
    fn the_short_form_is_two_bytes_and_its_body_and_read_only_where_it_was_announced() {
        let bytes = [&short(3)[..], b"abc", b"next"].concat();
        assert_eq!(bytes[..2], [0x80, 3]);
        let taken = Ok(Some((Front::Again(&b"abc"[..]), &b"next"[..])));
        assert_eq!(BOTH.front(&bytes), taken);
        assert_eq!(BOTH.small(&bytes), Some((&b"abc"[..], &b"next"[..])));
        for cut in 0..5 {
            assert_eq!(BOTH.front(&bytes[..cut]), Ok(None), "{cut} bytes");
            assert_eq!(BOTH.small(&bytes[..cut]), None, "{cut} bytes");
        }
        let reason = LONG_ONLY.front(&bytes).unwrap_err().reason;
        assert_eq!(reason, "frame of 2147705186 bytes, expected 1 to 1048576");
        assert_eq!(LONG_ONLY.small(&bytes), None);
    }

    #[test]
    fn a_body_that_is_large_has_no_short_form() {
        let largest = [&short(LARGE - 1)[..], &[7; LARGE - 1]].concat();
        assert_eq!(
            BOTH.front(&largest),
            Ok(Some((Front::Again(&[7; LARGE - 1]), &[][..])))
        );
        let larger = [&short(LARGE)[..], &[7; LARGE]].concat();
        let reason = BOTH.front(&larger).unwrap_err().reason;
        assert_eq!(
            reason,
            "body of 4096 bytes in a short frame, expected fewer than 4096"
        );
        assert_eq!(BOTH.small(&larger), None);
    }

    #[test]
    fn the_long_form_is_read_by_everybody() {
        let bytes = [&[0, 0, 0, 3, TELL_AGAIN][..], b"ab", b"next"].concat();
        for reading in [BOTH, LONG_ONLY] {
            let taken = Ok(Some((Front::Again(&b"ab"[..]), &b"next"[..])));
            assert_eq!(reading.front(&bytes), taken);
            assert_eq!(reading.small(&bytes), Some((&b"ab"[..], &b"next"[..])));
            assert!(reading.is_next(&bytes) && !reading.is_next(&bytes[..4]));
            assert_eq!(reading.count(&bytes, 5), 1);
        }
    }

    #[test]
    fn tells_at_the_front_are_counted_up_to_the_first_other_frame_and_no_further_than_asked() {
        let alike = [&short(1)[..], b"x"].concat();
        let other = [0, 0, 0, 1, 7];
        let bytes = [&alike.repeat(3)[..], &other, &alike.repeat(9)].concat();
        assert_eq!((BOTH.count(&bytes, 100), BOTH.count(&bytes, 2)), (3, 2));
        let cut = &bytes[..3 * alike.len() - 1];
        assert_eq!((BOTH.count(cut, 100), LONG_ONLY.count(cut, 100)), (2, 0));
    }
}
