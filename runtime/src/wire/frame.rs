//! Frames: the byte format of a link.
//!
//! A frame is its length (u32, big endian, not counting itself), a kind, that kind's header, and
//! for messages and replies a body in the [codec](crate::wire::codec). A tell whose header equals
//! that of the tell before it in the ordinary lane omits it, and then may have a length of two
//! bytes (`frame_reader`). The reader copies nothing and never panics, whatever the
//! bytes.

use bytes::{BufMut, BytesMut};

use crate::actor::ask::AskError;
use crate::actor::exit::Exit;
use crate::identity::{NAME_MAX, Pid};
use crate::wire::codec::Garbled;
use crate::wire::message::Lane;

/// Bytes of the length before each frame.
pub(crate) const PREFIX: usize = 4;
/// Set in the kind of a message that travels in the ping lane.
const IN_PING_LANE: u8 = 0x80;

const TELL: u8 = 1;
const ASK: u8 = 2;
const REPLY: u8 = 3;
const LINK: u8 = 4;
const UNLINK: u8 = 5;
const EXITED: u8 = 6;
const FIND: u8 = 7;
const FOUND: u8 = 8;
const BULK_ANNOUNCE: u8 = 9;
pub(crate) const PING: u8 = 10;
/// A tell without a header, see `frame_reader`.
pub(crate) const TELL_ELIDED: u8 = 11;

/// One decoded frame.
#[derive(Debug, PartialEq)]
pub enum Frame<'a> {
    /// A tell or an ask.
    Message(MessageFrame<'a>),
    /// The reply to an ask.
    Reply {
        /// The number of the ask.
        correlation: u64,
        /// The encoded reply.
        outcome: Result<&'a [u8], AskError>,
    },
    /// The sender watches this actor.
    Link(Target<'a>),
    /// The sender watches it no more.
    Unlink(Target<'a>),
    /// A watched actor has ended.
    Exited {
        /// The actor, on the writing node.
        of: Target<'a>,
        /// Its end.
        reason: Exit,
    },
    /// Looks for an actor by name.
    Find {
        /// The number of the request.
        correlation: u64,
        /// The actor's name.
        name: &'a str,
    },
    /// The answer to `Find`.
    Found {
        /// The number of the request.
        correlation: u64,
        /// 0: no actor has that name.
        incarnation: u64,
    },
    /// A message or reply; its body comes in a stream of its own.
    BulkAnnounce {
        /// The number of the stream.
        token: u64,
        /// The bytes of the body.
        length: u64,
        /// The frame without its body.
        header: &'a [u8],
    },
    /// A sign of life.
    Ping,
}

/// A tell, or an ask if it has a correlation.
#[derive(Debug, PartialEq)]
pub struct MessageFrame<'a> {
    pub(crate) lane: Lane,
    pub(crate) id: u32,
    pub(crate) version: u16,
    pub(crate) to: Target<'a>,
    pub(crate) from: Option<Origin<'a>>,
    pub(crate) correlation: Option<u64>,
    pub(crate) body: &'a [u8],
}

impl MessageFrame<'_> {
    /// Whether later tells may omit their header after it.
    #[inline]
    pub(crate) fn is_tell(&self) -> bool {
        self.correlation.is_none() && self.lane == Lane::Ordinary
    }

    /// The parts that make two headers on one link equal, if its header may be omitted. An
    /// incarnation has one name, so numbers suffice.
    #[inline]
    pub(crate) fn header_key(&self) -> Option<HeaderKey> {
        (self.is_tell() && self.to.incarnation != 0).then(|| HeaderKey {
            id: self.id,
            version: self.version,
            to: self.to.incarnation,
            from: self.from.map_or(0, |from| from.actor.incarnation),
        })
    }
}

/// The header of a tell on one link.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct HeaderKey {
    id: u32,
    version: u16,
    to: u64,
    from: u64,
}

/// The content of a frame before its body, or without one.
#[derive(Clone, Copy)]
pub(crate) enum Head<'a> {
    Message(&'a MessageFrame<'a>),
    Answer {
        correlation: u64,
    },
    /// A frame that has no body.
    Plain(&'a Frame<'a>),
    /// The body comes in a stream of its own.
    Bulk {
        token: u64,
        length: u64,
        of: &'a Head<'a>,
    },
}

impl<'a> Head<'a> {
    #[inline]
    pub(crate) fn write(&self, buffer: &mut BytesMut) {
        match self {
            Head::Message(message) => write_message(message, buffer),
            Head::Answer { correlation } => write_answer(*correlation, buffer),
            Head::Plain(frame) => write_plain(frame, buffer),
            Head::Bulk { token, length, of } => write_announcement(*token, *length, of, buffer),
        }
    }

    /// The tell of this head.
    #[inline]
    pub(crate) fn tell(self) -> Option<&'a MessageFrame<'a>> {
        match self {
            Head::Message(message) if message.is_tell() => Some(message),
            _ => None,
        }
    }
}

/// An actor on the reading node; in `Exited`, on the writing one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target<'a> {
    pub(crate) incarnation: u64,
    pub(crate) name: &'a str,
}

impl<'a> Target<'a> {
    pub(crate) fn of(pid: &'a Pid) -> Self {
        Self {
            incarnation: pid.incarnation(),
            name: pid.name(),
        }
    }
}

/// The actor that sent a message, and the epoch of its node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Origin<'a> {
    pub(crate) epoch: u64,
    pub(crate) actor: Target<'a>,
}

impl<'a> Frame<'a> {
    /// Appends the frame with its own header and its body, without its length.
    pub fn write(&self, buffer: &mut BytesMut) {
        write_plain(self, buffer);
        match self {
            Frame::Message(MessageFrame { body, .. })
            | Frame::Reply {
                outcome: Ok(body), ..
            } => buffer.extend_from_slice(body),
            _ => {}
        }
    }

    /// Reads a frame that has its own header, without its length.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Garbled> {
        let mut reader = Reader(bytes);
        let kind = reader.u8()?;
        if matches!(kind & !IN_PING_LANE, TELL | ASK) {
            return reader.message(kind).map(Frame::Message);
        }
        let frame = match kind {
            REPLY => return reader.reply(),
            LINK => Frame::Link(reader.target()?),
            UNLINK => Frame::Unlink(reader.target()?),
            EXITED => Frame::Exited {
                of: reader.target()?,
                reason: reader.exit()?,
            },
            FIND => Frame::Find {
                correlation: reader.u64()?,
                name: reader.name()?,
            },
            FOUND => Frame::Found {
                correlation: reader.u64()?,
                incarnation: reader.u64()?,
            },
            BULK_ANNOUNCE => {
                let (token, length) = (reader.u64()?, reader.u64()?);
                return Ok(Frame::BulkAnnounce {
                    token,
                    length,
                    header: reader.0,
                });
            }
            PING => Frame::Ping,
            other => {
                return Err(Garbled::new(format!(
                    "frame kind is {other}, expected 1 to 10, or 129 or 130 in the ping lane"
                )));
            }
        };
        match reader.0.len() {
            0 => Ok(frame),
            left => Err(Garbled::new(format!(
                "{left} bytes left over in a frame of kind {kind}"
            ))),
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Garbled> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(|| {
            Garbled::new(format!(
                "frame ends where {count} more bytes were expected, {} left",
                self.0.len()
            ))
        })?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Garbled> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn u8(&mut self) -> Result<u8, Garbled> {
        self.array().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, Garbled> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, Garbled> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, Garbled> {
        self.array().map(u64::from_be_bytes)
    }

    fn text(&mut self) -> Result<&'a str, Garbled> {
        let length = self.u16()?;
        let bytes = self.take(usize::from(length))?;
        str::from_utf8(bytes).map_err(|error| Garbled::new(format!("text is not UTF-8: {error}")))
    }

    /// The name of an actor; empty if the incarnation identifies it.
    fn name(&mut self) -> Result<&'a str, Garbled> {
        let name = self.text()?;
        match name.len() {
            0..=NAME_MAX => Ok(name),
            length => Err(Garbled::new(format!(
                "actor name of {length} bytes, expected at most {NAME_MAX}"
            ))),
        }
    }

    fn target(&mut self) -> Result<Target<'a>, Garbled> {
        Ok(Target {
            incarnation: self.u64()?,
            name: self.name()?,
        })
    }

    fn message(mut self, kind: u8) -> Result<MessageFrame<'a>, Garbled> {
        let (id, version) = (self.u32()?, self.u16()?);
        let incarnation = self.u64()?;
        // The name matters only when there is no incarnation.
        let name = if incarnation == 0 { self.name()? } else { "" };
        let from = match self.u64()? {
            0 => None,
            incarnation => {
                let epoch = self.u64()?;
                Some(Origin {
                    epoch,
                    actor: Target {
                        incarnation,
                        name: self.name()?,
                    },
                })
            }
        };
        let lane = if kind & IN_PING_LANE == 0 {
            Lane::Ordinary
        } else {
            Lane::Ping
        };
        let correlation = if kind & !IN_PING_LANE == ASK {
            Some(self.u64()?)
        } else {
            None
        };
        Ok(MessageFrame {
            lane,
            id,
            version,
            to: Target { incarnation, name },
            from,
            correlation,
            body: self.0,
        })
    }

    fn reply(mut self) -> Result<Frame<'a>, Garbled> {
        let correlation = self.u64()?;
        let outcome = match self.u8()? {
            0 => Ok(self.0),
            1 => Err(AskError::Gone),
            2 => Err(AskError::Full),
            3 => Err(AskError::Refused {
                reason: self.text()?.to_owned(),
            }),
            4 => Err(AskError::Garbled {
                reason: self.text()?.to_owned(),
            }),
            other => {
                return Err(Garbled::new(format!(
                    "reply status is {other}, expected 0 to 4"
                )));
            }
        };
        if outcome.is_err() && !self.0.is_empty() {
            return Err(Garbled::new(format!(
                "{} bytes left over in a reply",
                self.0.len()
            )));
        }
        Ok(Frame::Reply {
            correlation,
            outcome,
        })
    }

    fn exit(&mut self) -> Result<Exit, Garbled> {
        Ok(match self.u8()? {
            0 => Exit::Stopped,
            1 => Exit::Panicked(self.text()?.to_owned()),
            2 => Exit::NodeLost(self.text()?.to_owned()),
            3 => Exit::NoProcess,
            other => {
                return Err(Garbled::new(format!(
                    "exit reason is {other}, expected 0 to 3"
                )));
            }
        })
    }
}

/// Writes a message up to its body. Its fixed parts are written in one piece: this runs for every
/// message.
#[inline]
pub(crate) fn write_message(message: &MessageFrame<'_>, buffer: &mut BytesMut) {
    let kind = if message.correlation.is_some() {
        ASK
    } else {
        TELL
    };
    let lane = if message.lane == Lane::Ping {
        IN_PING_LANE
    } else {
        0
    };
    let mut head = [0; 23];
    head[0] = kind | lane;
    head[1..5].copy_from_slice(&message.id.to_be_bytes());
    head[5..7].copy_from_slice(&message.version.to_be_bytes());
    head[7..15].copy_from_slice(&message.to.incarnation.to_be_bytes());
    let sender = message.from.map_or(0, |from| from.actor.incarnation);
    head[15..].copy_from_slice(&sender.to_be_bytes());
    if message.to.incarnation == 0 {
        buffer.extend_from_slice(&head[..15]);
        write_text(message.to.name, buffer);
        buffer.extend_from_slice(&head[15..]);
    } else {
        buffer.extend_from_slice(&head);
    }
    if let Some(from) = message.from {
        buffer.put_u64(from.epoch);
        write_text(from.actor.name, buffer);
    }
    if let Some(correlation) = message.correlation {
        buffer.put_u64(correlation);
    }
}

/// Writes a successful reply up to its body.
fn write_answer(correlation: u64, buffer: &mut BytesMut) {
    buffer.put_u8(REPLY);
    buffer.put_u64(correlation);
    buffer.put_u8(0);
}

fn write_announcement(token: u64, length: u64, of: &Head<'_>, buffer: &mut BytesMut) {
    buffer.put_u8(BULK_ANNOUNCE);
    buffer.put_u64(token);
    buffer.put_u64(length);
    of.write(buffer);
}

/// Writes a frame that has no body.
pub(crate) fn write_plain(frame: &Frame<'_>, buffer: &mut BytesMut) {
    match frame {
        Frame::Message(message) => write_message(message, buffer),
        Frame::Reply {
            correlation,
            outcome,
        } => write_failure(*correlation, outcome.as_ref().err(), buffer),
        Frame::Link(target) => write_target(LINK, *target, buffer),
        Frame::Unlink(target) => write_target(UNLINK, *target, buffer),
        Frame::Exited { of, reason } => {
            write_target(EXITED, *of, buffer);
            write_exit(reason, buffer);
        }
        Frame::Find { correlation, name } => {
            buffer.put_u8(FIND);
            buffer.put_u64(*correlation);
            write_text(name, buffer);
        }
        Frame::Found {
            correlation,
            incarnation,
        } => {
            buffer.put_u8(FOUND);
            buffer.put_u64(*correlation);
            buffer.put_u64(*incarnation);
        }
        Frame::BulkAnnounce {
            token,
            length,
            header,
        } => {
            buffer.put_u8(BULK_ANNOUNCE);
            buffer.put_u64(*token);
            buffer.put_u64(*length);
            buffer.put_slice(header);
        }
        Frame::Ping => buffer.put_u8(PING),
    }
}

fn write_failure(correlation: u64, error: Option<&AskError>, buffer: &mut BytesMut) {
    buffer.put_u8(REPLY);
    buffer.put_u64(correlation);
    match error {
        None => buffer.put_u8(0),
        Some(AskError::Gone | AskError::Late { .. }) => buffer.put_u8(1),
        Some(AskError::Full) => buffer.put_u8(2),
        Some(AskError::Refused { reason }) => {
            buffer.put_u8(3);
            write_text(reason, buffer);
        }
        Some(AskError::Garbled { reason }) => {
            buffer.put_u8(4);
            write_text(reason, buffer);
        }
    }
}

fn write_exit(reason: &Exit, buffer: &mut BytesMut) {
    match reason {
        Exit::Stopped => buffer.put_u8(0),
        Exit::Panicked(words) => {
            buffer.put_u8(1);
            write_text(words, buffer);
        }
        Exit::NodeLost(words) => {
            buffer.put_u8(2);
            write_text(words, buffer);
        }
        Exit::NoProcess => buffer.put_u8(3),
    }
}

fn write_target(kind: u8, target: Target<'_>, buffer: &mut BytesMut) {
    buffer.put_u8(kind);
    buffer.put_u64(target.incarnation);
    write_text(target.name, buffer);
}

/// Writes text, cut at a character boundary to 65,535 bytes. Names are always shorter; only panic
/// messages and reasons may be cut.
fn write_text(text: &str, buffer: &mut BytesMut) {
    let longest = text.len().min(usize::from(u16::MAX));
    let length = (0..=longest)
        .rev()
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or(0);
    buffer.put_u16(length as u16);
    buffer.put_slice(&text.as_bytes()[..length]);
}
