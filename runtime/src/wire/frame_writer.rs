//! A frame buffer: consecutive frames, to be sent together.
//!
//! It remembers the header of its newest tell, and omits an equal header from the next one. It
//! never depends on earlier buffers: the first tell of a buffer always has its header. A frame that
//! could not be completed leaves no bytes behind, even when the `Serialize` of its body panics.

use bytes::{Bytes, BytesMut};

use crate::actor::mailbox::LARGE;
use crate::wire::codec::Garbled;
use crate::wire::frame::{Head, HeaderKey, MessageFrame, PREFIX};
use crate::wire::frame_reader;

/// A buffer is closed at this many bytes, so that waiting frames of any number are handed on
/// without copying.
pub(crate) const BUFFER_FULL: usize = 128 << 10;
/// Capacity that includes the frame crossing that limit.
pub(crate) const BUFFER_CAPACITY: usize = BUFFER_FULL + (1 << 10);

#[derive(Default)]
pub(crate) struct FrameBuffer {
    /// The kept frames, and perhaps a draft behind them.
    bytes: BytesMut,
    /// Bytes of the kept frames.
    kept: usize,
    /// The number of kept frames.
    frames: u64,
    newest: Option<HeaderKey>,
    /// Whether the newest body was small: so, most likely, is the next.
    is_small: bool,
}

/// A frame at the end of a buffer, not kept yet.
#[derive(Clone, Copy)]
pub(crate) struct Draft {
    /// Bytes of the frame.
    pub(crate) written: usize,
    /// Bytes of its body.
    pub(crate) body: usize,
    form: Form,
}

/// The beginning of a frame.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// With its header.
    Full,
    /// Without a header: length and kind.
    Long,
    /// Without a header: only the length of its body.
    Short,
}

impl FrameBuffer {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.kept
    }

    /// The number of frames.
    pub(crate) fn count(&self) -> u64 {
        self.frames
    }

    /// Reserves room if there is none at all.
    #[inline]
    pub(crate) fn make_room(&mut self, room: usize) {
        if self.bytes.capacity() == 0 {
            self.bytes.reserve(room);
        }
    }

    /// Returns the frames, and starts an empty buffer.
    pub(crate) fn take(&mut self) -> BytesMut {
        self.bytes.truncate(self.kept);
        (self.kept, self.frames, self.newest) = (0, 0, None);
        std::mem::take(&mut self.bytes)
    }

    /// Returns the front; the rest stays in the buffer.
    pub(crate) fn split_to(&mut self, at: usize) -> BytesMut {
        self.kept -= at;
        self.bytes.split_to(at)
    }

    /// Appends a copy of another buffer, which is empty afterwards and keeps its capacity.
    pub(crate) fn append(&mut self, other: &mut FrameBuffer) {
        self.bytes.truncate(self.kept);
        self.bytes.extend_from_slice(&other.bytes[..other.kept]);
        self.kept = self.bytes.len();
        (self.newest, self.is_small) = (other.newest.take(), other.is_small);
        self.frames += std::mem::take(&mut other.frames);
        other.kept = 0;
    }

    /// Writes a frame: its head, and its body in place. It does not count until it is kept.
    // Inlined, so that the result stays in registers: this runs for every sent message.
    #[inline(always)]
    pub(crate) fn draft(
        &mut self,
        head: Head<'_>,
        body: impl FnOnce(&mut BytesMut) -> Result<(), Garbled>,
    ) -> Result<Draft, Garbled> {
        self.bytes.truncate(self.kept);
        let header_key = head.tell().and_then(MessageFrame::header_key);
        let again = header_key.is_some() && self.newest == header_key;
        let mut form = Form::Full;
        if again && self.is_small {
            self.bytes.extend_from_slice(&frame_reader::SHORT);
            form = Form::Short;
        } else if again {
            self.bytes.extend_from_slice(&frame_reader::LONG);
            form = Form::Long;
        } else {
            self.bytes.extend_from_slice(&[0; PREFIX]);
            head.write(&mut self.bytes);
        }
        let start_of_body = self.bytes.len();
        body(&mut self.bytes)?;
        let body = self.bytes.len() - start_of_body;
        if form == Form::Short && body >= LARGE {
            self.lengthen();
            form = Form::Long;
        }
        Ok(Draft {
            written: self.bytes.len() - self.kept,
            body,
            form,
        })
    }

    /// Converts the last draft to the long form.
    #[cold]
    fn lengthen(&mut self) {
        let body = self.kept + frame_reader::SHORT.len()..self.bytes.len();
        self.bytes
            .extend_from_slice(&frame_reader::LONG[frame_reader::SHORT.len()..]);
        let start = self.kept + frame_reader::LONG.len();
        self.bytes.copy_within(body, start);
        self.bytes[self.kept..start].copy_from_slice(&frame_reader::LONG);
    }

    /// Keeps the last draft, which has this head.
    #[inline(always)]
    pub(crate) fn keep(&mut self, draft: Draft, head: Head<'_>) {
        if draft.form == Form::Short {
            let prefix = self.kept..self.kept + frame_reader::SHORT.len();
            self.bytes[prefix].copy_from_slice(&frame_reader::short(draft.body));
        } else {
            let length = (draft.written - PREFIX) as u32;
            let prefix = self.kept..self.kept + PREFIX;
            self.bytes[prefix].copy_from_slice(&length.to_be_bytes());
            self.is_small = draft.body < LARGE;
            if draft.form == Form::Full
                && let Some(tell) = head.tell()
            {
                self.newest = tell.header_key();
            }
        }
        self.kept = self.bytes.len();
        self.frames += 1;
    }

    /// Discards the last draft, and returns its body without copying it.
    pub(crate) fn take_body(&mut self, draft: Draft) -> Bytes {
        self.bytes.split_off(self.bytes.len() - draft.body).freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame::{Frame, Origin, Target};
    use crate::wire::frame_reader::{Front, Reading};
    use crate::wire::message::Lane;

    /// A tell from this actor, or from none, to that one.
    fn message(from: u64, to: u64) -> MessageFrame<'static> {
        let target = |incarnation| Target {
            incarnation,
            name: "somebody",
        };
        MessageFrame {
            lane: Lane::Ordinary,
            id: 7,
            version: 1,
            to: target(to),
            from: (from > 0).then(|| Origin {
                epoch: 5,
                actor: target(from),
            }),
            correlation: None,
            body: &[],
        }
    }

    fn write(frames: &mut FrameBuffer, message: &MessageFrame<'_>, body: &[u8]) {
        let head = Head::Message(message);
        let draft = frames.draft(head, |bytes| {
            bytes.extend_from_slice(body);
            Ok(())
        });
        frames.keep(draft.unwrap(), head);
    }

    /// Whether each frame has its header (H), or is a short one (-) or a long one (=) without it;
    /// and its body.
    fn forms(mut bytes: &[u8]) -> Vec<(char, Vec<u8>)> {
        let reading = Reading { frame_max: 1 << 20 };
        let mut forms = Vec::new();
        while let Some((front, behind)) = reading.front(bytes).unwrap() {
            forms.push(match front {
                Front::Frame(frame) => match Frame::read(frame) {
                    Ok(Frame::Message(message)) => ('H', message.body.to_vec()),
                    other => panic!("{other:?}"),
                },
                Front::Elided(body) if bytes[0] & 0x80 != 0 => ('-', body.to_vec()),
                Front::Elided(body) => ('=', body.to_vec()),
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
    fn form_depends_on_body_size() {
        let message = message(1, 2);
        let lengths = [3, 4, LARGE - 1, LARGE, LARGE + 1, 5, 6, LARGE, LARGE, 7];
        // Nearby bytes all differ, so that a body moved by the wrong distance does not match.
        let body = |length: usize| (length..2 * length).map(|byte| (byte % 251) as u8);
        let bodies: Vec<Vec<u8>> = lengths.map(|length| body(length).collect()).into();
        let mut frames = FrameBuffer::default();
        for body in &bodies {
            write(&mut frames, &message, body);
        }
        let written = frames.take();
        // After a large body the next is expected to be large too, to avoid moving it.
        assert_eq!(repeats(&written), "H--===-===");
        let read = forms(&written).into_iter().map(|(_, body)| body);
        assert!(read.eq(bodies));
    }

    #[test]
    fn equal_headers_are_elided_within_a_buffer() {
        let mut frames = FrameBuffer::default();
        let question = MessageFrame {
            correlation: Some(1),
            ..message(1, 2)
        };
        let by_name = message(1, 0);
        for one in [
            message(1, 2),
            message(1, 2),
            question,
            message(1, 2),
            message(0, 2),
            message(1, 2),
            message(1, 3),
            message(1, 3),
            by_name,
            message(1, 3),
        ] {
            write(&mut frames, &one, b"body");
        }
        assert_eq!(repeats(&frames.take()), "H-H-HHH-HH");
        write(&mut frames, &message(1, 3), b"body");
        assert_eq!(repeats(&frames.take()), "H", "each buffer stands by itself");
    }

    #[test]
    fn appended_buffer_keeps_headers_and_passes_its_newest() {
        let (mut one, mut other) = (FrameBuffer::default(), FrameBuffer::default());
        write(&mut one, &message(1, 2), b"1");
        write(&mut other, &message(1, 3), b"2");
        write(&mut other, &message(1, 3), b"3");
        one.append(&mut other);
        assert_eq!(other.len(), 0);
        write(&mut one, &message(1, 3), b"4");
        write(&mut other, &message(1, 3), b"5");
        assert_eq!(repeats(&one.take()), "HH--");
        assert_eq!(repeats(&other.take()), "H");
    }

    #[test]
    fn discarded_draft_leaves_no_bytes() {
        let mut frames = FrameBuffer::default();
        write(&mut frames, &message(1, 2), b"kept");
        let whole = frames.len();
        let (again, other) = (message(1, 2), message(1, 3));
        let failed = frames.draft(Head::Message(&again), |bytes| {
            bytes.extend_from_slice(b"half");
            Err(Garbled::new("no"))
        });
        assert!(failed.is_err());
        let draft = frames.draft(Head::Message(&other), |bytes| {
            bytes.extend_from_slice(b"taken back");
            Ok(())
        });
        assert_eq!(&frames.take_body(draft.unwrap())[..], b"taken back");
        assert_eq!(frames.len(), whole);
        write(&mut frames, &message(1, 2), b"kept");
        assert_eq!(repeats(&frames.take()), "H-");
    }
}
