//! A piece: frames written one after the other, to be sent together.
//!
//! Remembers its bytes, and what its newest tell was like: the next one leaves out its header if that is the same. Never
//! relies on what was sent before it, so that the first tell of a piece always has its header. A frame that could not be
//! finished leaves nothing behind, also when the `Serialize` of its body panics.

use bytes::{Bytes, BytesMut};

use crate::again;
use crate::codec::Garbled;
use crate::frame::{Head, Letter, Likeness, PREFIX};
use crate::mailbox::LARGE;

/// A piece is sent once it has this many bytes, so that what waits is given away piece by piece and uncopied, however
/// much of it there is.
pub(crate) const PIECE: usize = 128 << 10;
/// Room for the frame that passes the end of a piece.
pub(crate) const PIECE_ROOM: usize = PIECE + (1 << 10);

#[derive(Default)]
pub(crate) struct Piece {
    /// The frames that are kept, and behind them perhaps one that is not.
    bytes: BytesMut,
    /// Bytes of the frames that are kept.
    kept: usize,
    /// How many frames are kept.
    frames: u64,
    newest: Option<Likeness>,
    /// Whether the newest body was small: so, most likely, is the next.
    is_small: bool,
}

/// A frame at the end of a piece, not kept yet.
#[derive(Clone, Copy)]
pub(crate) struct Draft {
    /// Bytes of the frame.
    pub(crate) written: usize,
    /// Bytes of its body.
    pub(crate) body: usize,
    form: Form,
}

/// How a frame begins.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// With its header.
    Whole,
    /// With its length and kind.
    Again,
    /// With the length of its body.
    Short,
}

impl Piece {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.kept
    }

    /// Frames in it.
    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    /// Makes room if there is none at all.
    #[inline]
    pub(crate) fn make_room(&mut self, room: usize) {
        if self.bytes.capacity() == 0 {
            self.bytes.reserve(room);
        }
    }

    /// Begins the next piece, and gives away this one.
    pub(crate) fn take(&mut self) -> BytesMut {
        self.bytes.truncate(self.kept);
        (self.kept, self.frames, self.newest) = (0, 0, None);
        std::mem::take(&mut self.bytes)
    }

    /// Gives away the front; what is left still belongs to the same piece.
    pub(crate) fn split_to(&mut self, at: usize) -> BytesMut {
        self.kept -= at;
        self.bytes.split_to(at)
    }

    /// Appends a copy of another piece, which is empty afterwards and keeps its room.
    pub(crate) fn append(&mut self, other: &mut Piece) {
        self.bytes.truncate(self.kept);
        self.bytes.extend_from_slice(&other.bytes[..other.kept]);
        self.kept = self.bytes.len();
        (self.newest, self.is_small) = (other.newest.take(), other.is_small);
        self.frames += std::mem::take(&mut other.frames);
        other.kept = 0;
    }

    /// Writes a frame: its head, and its body in place. It counts for nothing until it is kept. `short`: the peer reads the short form.
    // Inlined, what it gives stays in registers: this is done for every message that is sent.
    #[inline(always)]
    pub(crate) fn draft(
        &mut self,
        head: Head<'_>,
        short: bool,
        body: impl FnOnce(&mut BytesMut) -> Result<(), Garbled>,
    ) -> Result<Draft, Garbled> {
        self.bytes.truncate(self.kept);
        let likeness = head.tell().and_then(Letter::likeness);
        let again = likeness.is_some() && self.newest == likeness;
        let mut form = Form::Whole;
        if again && short && self.is_small {
            self.bytes.extend_from_slice(&again::SHORT);
            form = Form::Short;
        } else if again {
            self.bytes.extend_from_slice(&again::LONG);
            form = Form::Again;
        } else {
            self.bytes.extend_from_slice(&[0; PREFIX]);
            head.write(&mut self.bytes);
        }
        let start_of_body = self.bytes.len();
        body(&mut self.bytes)?;
        let body = self.bytes.len() - start_of_body;
        if form == Form::Short && body >= LARGE {
            self.lengthen();
            form = Form::Again;
        }
        Ok(Draft {
            written: self.bytes.len() - self.kept,
            body,
            form,
        })
    }

    /// Makes the frame that was just written one of the long form.
    #[cold]
    fn lengthen(&mut self) {
        let body = self.kept + again::SHORT.len()..self.bytes.len();
        self.bytes
            .extend_from_slice(&again::LONG[again::SHORT.len()..]);
        let start = self.kept + again::LONG.len();
        self.bytes.copy_within(body, start);
        self.bytes[self.kept..start].copy_from_slice(&again::LONG);
    }

    /// Keeps the frame that was just written with this head.
    #[inline(always)]
    pub(crate) fn keep(&mut self, draft: Draft, head: Head<'_>) {
        if draft.form == Form::Short {
            let prefix = self.kept..self.kept + again::SHORT.len();
            self.bytes[prefix].copy_from_slice(&again::short(draft.body));
        } else {
            let length = (draft.written - PREFIX) as u32;
            let prefix = self.kept..self.kept + PREFIX;
            self.bytes[prefix].copy_from_slice(&length.to_be_bytes());
            self.is_small = draft.body < LARGE;
            if draft.form == Form::Whole
                && let Some(tell) = head.tell()
            {
                self.newest = tell.likeness();
            }
        }
        self.kept = self.bytes.len();
        self.frames += 1;
    }

    /// Takes back the frame that was just written, and gives its body without copying it.
    pub(crate) fn take_body(&mut self, draft: Draft) -> Bytes {
        self.bytes.split_off(self.bytes.len() - draft.body).freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::again::{Front, Reading};
    use crate::frame::{Frame, From, Target};
    use crate::message::Lane;

    /// A tell from this actor, or from none, to that one.
    fn letter(from: u64, to: u64) -> Letter<'static> {
        let target = |incarnation| Target {
            incarnation,
            name: "somebody",
        };
        Letter {
            lane: Lane::Ordinary,
            id: 7,
            version: 1,
            to: target(to),
            from: (from > 0).then(|| From {
                epoch: 5,
                actor: target(from),
            }),
            correlation: None,
            body: &[],
        }
    }

    fn write_to(piece: &mut Piece, short: bool, letter: &Letter<'_>, body: &[u8]) {
        let head = Head::Letter(letter);
        let draft = piece.draft(head, short, |bytes| {
            bytes.extend_from_slice(body);
            Ok(())
        });
        piece.keep(draft.unwrap(), head);
    }

    fn write(piece: &mut Piece, letter: &Letter<'_>, body: &[u8]) {
        write_to(piece, true, letter, body);
    }

    /// Whether each frame has its header (H), or has left it out and is a short one (-) or a long one (=); and its body.
    fn forms(mut bytes: &[u8]) -> Vec<(char, Vec<u8>)> {
        let reading = Reading {
            frame_max: 1 << 20,
            short: true,
        };
        let mut forms = Vec::new();
        while let Some((front, behind)) = reading.front(bytes).unwrap() {
            forms.push(match front {
                Front::Frame(frame) => match Frame::read(frame) {
                    Ok(Frame::Letter(letter)) => ('H', letter.body.to_vec()),
                    other => panic!("{other:?}"),
                },
                Front::Again(body) if bytes[0] & 0x80 != 0 => ('-', body.to_vec()),
                Front::Again(body) => ('=', body.to_vec()),
            });
            bytes = behind;
        }
        assert!(bytes.is_empty(), "{} bytes left over", bytes.len());
        forms
    }

    fn repeats(bytes: &[u8]) -> String {
        forms(bytes).iter().map(|(form, _)| form).collect()
    }

    #[test]
    fn a_large_body_has_the_long_form_and_the_short_one_is_for_peers_that_read_it() {
        let letter = letter(1, 2);
        let lengths = [3, 4, LARGE - 1, LARGE, LARGE + 1, 5, 6, LARGE, LARGE, 7];
        // No two bytes near each other are alike, so that a body that was moved by the wrong distance is another.
        let body = |length: usize| (length..2 * length).map(|byte| (byte % 251) as u8);
        let bodies: Vec<Vec<u8>> = lengths.map(|length| body(length).collect()).into();
        let written = |short| {
            let mut piece = Piece::default();
            for body in &bodies {
                write_to(&mut piece, short, &letter, body);
            }
            piece.take()
        };
        let form = |short| -> String { repeats(&written(short)) };
        // After a large body the next is thought large as well: it would have to be moved.
        assert_eq!(form(true), "H--===-===");
        assert_eq!(form(false), "H=========");
        for short in [true, false] {
            let read = forms(&written(short)).into_iter().map(|(_, body)| body);
            assert!(read.eq(bodies.iter().cloned()), "short: {short}");
        }
    }

    #[test]
    fn a_tell_leaves_its_header_out_if_the_newest_one_in_its_piece_has_the_same() {
        let mut piece = Piece::default();
        let question = Letter {
            correlation: Some(1),
            ..letter(1, 2)
        };
        let by_name = letter(1, 0);
        for one in [
            letter(1, 2),
            letter(1, 2),
            question,
            letter(1, 2),
            letter(0, 2),
            letter(1, 2),
            letter(1, 3),
            letter(1, 3),
            by_name,
            letter(1, 3),
        ] {
            write(&mut piece, &one, b"body");
        }
        assert_eq!(repeats(&piece.take()), "H-H-HHH-HH");
        write(&mut piece, &letter(1, 3), b"body");
        assert_eq!(repeats(&piece.take()), "H", "each piece stands by itself");
    }

    #[test]
    fn a_piece_behind_another_keeps_its_headers_and_passes_on_the_newest() {
        let (mut one, mut other) = (Piece::default(), Piece::default());
        write(&mut one, &letter(1, 2), b"1");
        write(&mut other, &letter(1, 3), b"2");
        write(&mut other, &letter(1, 3), b"3");
        one.append(&mut other);
        assert_eq!(other.len(), 0);
        write(&mut one, &letter(1, 3), b"4");
        write(&mut other, &letter(1, 3), b"5");
        assert_eq!(repeats(&one.take()), "HH--");
        assert_eq!(repeats(&other.take()), "H");
    }

    #[test]
    fn what_was_not_kept_leaves_nothing_behind() {
        let mut piece = Piece::default();
        write(&mut piece, &letter(1, 2), b"kept");
        let whole = piece.len();
        let (again, other) = (letter(1, 2), letter(1, 3));
        let failed = piece.draft(Head::Letter(&again), true, |bytes| {
            bytes.extend_from_slice(b"half");
            Err(Garbled::new("no"))
        });
        assert!(failed.is_err());
        let draft = piece.draft(Head::Letter(&other), true, |bytes| {
            bytes.extend_from_slice(b"taken back");
            Ok(())
        });
        assert_eq!(&piece.take_body(draft.unwrap())[..], b"taken back");
        assert_eq!(piece.len(), whole);
        write(&mut piece, &letter(1, 2), b"kept");
        assert_eq!(repeats(&piece.take()), "H-");
    }
}
