//! Header elision: the two forms of a tell whose header equals that of the tell before it.
//!
//! The long form is a frame like any other: length, kind, body. The short form is two bytes and the
//! body: the top bit, which no other frame's length has set, and the length of the body. The form
//! does not affect the decoded message.

use crate::actor::mailbox::LARGE;
use crate::wire::codec::Garbled;
use crate::wire::frame::{PREFIX, TELL_ELIDED};

/// Space for the length, and the kind.
pub(crate) const LONG: [u8; PREFIX + 1] = [0, 0, 0, 0, TELL_ELIDED];
/// Space for a body's length.
pub(crate) const SHORT: [u8; 2] = [0; 2];
/// The top bit of the short form's first byte.
const MARK: u8 = 0x80;

/// The prefix of a body of this length, below [`LARGE`], in the short form.
#[inline]
pub(crate) fn short(body: usize) -> [u8; SHORT.len()] {
    let [high, low] = (body as u16).to_be_bytes();
    [high | MARK, low]
}

/// The frames that one side of a link reads.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    /// Maximum length of a frame, in bytes.
    pub(crate) frame_max: usize,
}

/// The frame at the front of a lane's bytes.
#[derive(Debug, PartialEq)]
pub(crate) enum Front<'a> {
    /// A frame, without its length.
    Frame(&'a [u8]),
    /// The body of a tell without a header.
    Elided(&'a [u8]),
}

/// The length of a body in the short form, if these bytes begin with one.
#[inline(always)]
fn short_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    match bytes {
        [high, low, rest @ ..] if high & MARK != 0 => {
            let length = u16::from_be_bytes([high & !MARK, *low]);
            Some((usize::from(length), rest))
        }
        _ => None,
    }
}

impl Reading {
    /// The first frame, if it is complete, and the remaining bytes.
    pub(crate) fn front<'b>(
        self,
        bytes: &'b [u8],
    ) -> Result<Option<(Front<'b>, &'b [u8])>, Garbled> {
        if let Some((length, rest)) = short_length(bytes) {
            if length >= LARGE {
                return Err(Garbled::new(format!(
                    "body of {length} bytes in a short frame, expected fewer than {LARGE}"
                )));
            }
            let split = rest.split_at_checked(length);
            return Ok(split.map(|(body, behind)| (Front::Elided(body), behind)));
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
            [TELL_ELIDED, body @ ..] => (Front::Elided(body), behind),
            frame => (Front::Frame(frame), behind),
        }))
    }

    /// The body of the first frame, if it is a complete tell without a header and below [`LARGE`],
    /// and the remaining bytes.
    #[inline(always)]
    pub(crate) fn small(self, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        if let Some((length, rest)) = short_length(bytes) {
            return (length < LARGE).then(|| rest.split_at_checked(length))?;
        }
        let [a, b, c, d, TELL_ELIDED, rest @ ..] = bytes else {
            return None;
        };
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        let body = length.checked_sub(1).filter(|body| *body < LARGE)?;
        (length <= self.frame_max).then_some(())?;
        rest.split_at_checked(body)
    }

    /// The number of such tells at the front, up to `max`.
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
    pub(crate) fn is_next(bytes: &[u8]) -> bool {
        short_length(bytes).is_some() || bytes.get(PREFIX) == Some(&TELL_ELIDED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READING: Reading = Reading { frame_max: 1 << 20 };

    #[test]
    fn short_form_is_read() {
        let bytes = [&short(3)[..], b"abc", b"next"].concat();
        assert_eq!(bytes[..2], [0x80, 3]);
        let taken = Ok(Some((Front::Elided(&b"abc"[..]), &b"next"[..])));
        assert_eq!(READING.front(&bytes), taken);
        assert_eq!(READING.small(&bytes), Some((&b"abc"[..], &b"next"[..])));
        for cut in 0..5 {
            assert_eq!(READING.front(&bytes[..cut]), Ok(None), "{cut} bytes");
            assert_eq!(READING.small(&bytes[..cut]), None, "{cut} bytes");
        }
    }

    #[test]
    fn large_body_has_no_short_form() {
        let largest = [&short(LARGE - 1)[..], &[7; LARGE - 1]].concat();
        assert_eq!(
            READING.front(&largest),
            Ok(Some((Front::Elided(&[7; LARGE - 1]), &[][..])))
        );
        let larger = [&short(LARGE)[..], &[7; LARGE]].concat();
        let reason = READING.front(&larger).unwrap_err().reason;
        assert_eq!(
            reason,
            "body of 4096 bytes in a short frame, expected fewer than 4096"
        );
        assert_eq!(READING.small(&larger), None);
    }

    #[test]
    fn long_form_is_read() {
        let bytes = [&[0, 0, 0, 3, TELL_ELIDED][..], b"ab", b"next"].concat();
        let taken = Ok(Some((Front::Elided(&b"ab"[..]), &b"next"[..])));
        assert_eq!(READING.front(&bytes), taken);
        assert_eq!(READING.small(&bytes), Some((&b"ab"[..], &b"next"[..])));
        assert!(Reading::is_next(&bytes) && !Reading::is_next(&bytes[..4]));
        assert_eq!(READING.count(&bytes, 5), 1);
    }

    #[test]
    fn count_stops_at_the_first_other_frame() {
        let alike = [&short(1)[..], b"x"].concat();
        let other = [0, 0, 0, 1, 7];
        let bytes = [&alike.repeat(3)[..], &other, &alike.repeat(9)].concat();
        assert_eq!(
            (READING.count(&bytes, 100), READING.count(&bytes, 2)),
            (3, 2)
        );
        let cut = &bytes[..3 * alike.len() - 1];
        assert_eq!(READING.count(cut, 100), 2);
    }
}
