//! Protobuf (proto2): the bytes of `application/x-protobuf`.
//!
//! `prost` handles integers, keys and skipped fields. Unknown fields are skipped, unknown enum
//! values count as absent, and a message without a required field is refused. Memory is bounded by
//! [`Limits`].

mod describe;

use bytes::Buf;
use prost::encoding::{self, DecodeContext, WireType};
use resources::Invalid;

use crate::limits::{Allowance, Limits, Seen, place_of, within};
use crate::message::{Field, Kind, Label, Leaf, Message, View};

pub use describe::describe;

/// The field numbers of key and value in a map entry.
const KEY: u32 = 1;
const VALUE: u32 = 2;

/// Decodes the message in these bytes.
pub fn read<M: Message + Default>(bytes: &[u8], limits: Limits) -> Result<M, Invalid> {
    let mut message = M::default();
    read_message(&mut message, bytes, &mut Allowance::new(limits))?;
    Ok(message)
}

/// Encodes this message.
pub fn write(message: &dyn Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_message(message, &mut bytes);
    bytes
}

fn read_message(
    message: &mut dyn Message,
    mut bytes: &[u8],
    allowance: &mut Allowance,
) -> Result<(), Invalid> {
    allowance.enter()?;
    let table = message.table();
    let mut seen = Seen::default();
    while !bytes.is_empty() {
        let (number, wire) = read_key(&mut bytes)?;
        let index = table.iter().position(|entry| entry.number == number);
        let field = message.field_mut(number);
        let (Some(index), Some(field)) = (index, field) else {
            skip(wire, number, &mut bytes)?;
            continue;
        };
        let before = field.count();
        let taken = read_field(field, wire, &mut bytes, allowance).map_err(|bad| {
            let bad = match field.label() {
                Label::Repeated => within(bad, &format!("[{before}]")),
                _ => bad,
            };
            within(bad, table[index].name)
        })?;
        if taken {
            seen.mark(index);
        }
    }
    seen.check(message)?;
    allowance.leave();
    Ok(())
}

/// Reads one value or a packed list; returns whether any was taken.
fn read_field(
    field: &mut dyn Field,
    wire: WireType,
    bytes: &mut &[u8],
    allowance: &mut Allowance,
) -> Result<bool, Invalid> {
    if field.label() == Label::Map {
        return read_entry(field, wire, bytes, allowance);
    }
    let kind = field.kind();
    let expected = wire_of(kind);
    if wire == expected {
        return read_value(field, bytes, allowance);
    }
    if wire == WireType::LengthDelimited && field.label() == Label::Repeated {
        let mut packed = read_piece(bytes)?;
        let mut taken = false;
        while !packed.is_empty() {
            taken |= read_value(field, &mut packed, allowance)?;
        }
        return Ok(taken);
    }
    let found = format!("{wire:?}");
    Err(Invalid::new(
        "",
        found,
        format!("the wire type {expected:?}"),
    ))
}

/// Reads one value of the field's kind.
fn read_value(
    field: &mut dyn Field,
    bytes: &mut &[u8],
    allowance: &mut Allowance,
) -> Result<bool, Invalid> {
    let leaf = match field.kind() {
        Kind::Message => {
            let piece = read_piece(bytes)?;
            allowance.charge(field, 0)?;
            if let Some(message) = field.open() {
                read_message(message, piece, allowance)?;
            }
            return Ok(true);
        }
        Kind::Bool => Leaf::Bool(read_number(bytes)? != 0),
        // Only the lower 32 bits count, as in protobuf.
        Kind::I32 | Kind::Enum => Leaf::Signed((read_number(bytes)? as i32).into()),
        Kind::I64 => Leaf::Signed(read_number(bytes)? as i64),
        Kind::U32 => Leaf::Unsigned((read_number(bytes)? as u32).into()),
        Kind::U64 => Leaf::Unsigned(read_number(bytes)?),
        Kind::F64 => Leaf::F64(
            bytes
                .try_get_f64_le()
                .map_err(|_| cut(bytes.len(), "a number of 8 bytes"))?,
        ),
        Kind::Text => {
            let piece = read_piece(bytes)?;
            Leaf::Text(text(piece)?)
        }
        Kind::Bytes => Leaf::Bytes(read_piece(bytes)?),
    };
    let length = match leaf {
        Leaf::Text(text) => text.len(),
        Leaf::Bytes(bytes) => bytes.len(),
        _ => 0,
    };
    allowance.charge(field, length)?;
    field
        .take(leaf)
        .map_err(|expected| Invalid::new("", "of another type", expected))
}

/// Reads a map entry; the value may precede the key.
fn read_entry(
    field: &mut dyn Field,
    wire: WireType,
    bytes: &mut &[u8],
    allowance: &mut Allowance,
) -> Result<bool, Invalid> {
    if wire != WireType::LengthDelimited {
        let found = format!("{wire:?}");
        return Err(Invalid::new("", found, "the wire type LengthDelimited"));
    }
    let entry = read_piece(bytes)?;
    let (mut key, mut value, mut rest) = ("", None, entry);
    while !rest.is_empty() {
        let (number, wire) = read_key(&mut rest)?;
        match number {
            KEY if wire == WireType::LengthDelimited => key = text(read_piece(&mut rest)?)?,
            VALUE => {
                value = Some((wire, rest));
                skip(wire, number, &mut rest)?;
            }
            _ => skip(wire, number, &mut rest)?,
        }
    }
    allowance.charge(field, key.len())?;
    let Some(index) = field.entry(key) else {
        return Ok(false);
    };
    let (wire, mut value) = value.unwrap_or((wire_of(index.kind()), &[0]));
    read_field(index, wire, &mut value, allowance).map_err(|bad| within(bad, &place_of(key)))
}

fn wire_of(kind: Kind) -> WireType {
    match kind {
        Kind::F64 => WireType::SixtyFourBit,
        Kind::Text | Kind::Bytes | Kind::Message => WireType::LengthDelimited,
        _ => WireType::Varint,
    }
}

fn cut(length: usize, expected: &str) -> Invalid {
    Invalid::new("", format!("{length} bytes"), expected)
}

fn read_key(bytes: &mut &[u8]) -> Result<(u32, WireType), Invalid> {
    encoding::decode_key(bytes)
        .map_err(|error| Invalid::new("", error, "the number and wire type of a field"))
}

fn read_number(bytes: &mut &[u8]) -> Result<u64, Invalid> {
    encoding::decode_varint(bytes)
        .map_err(|error| Invalid::new("", error, "a number of at most 10 bytes"))
}

/// Reads a length and that many bytes.
fn read_piece<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], Invalid> {
    let length = read_number(bytes)?;
    let split = usize::try_from(length)
        .ok()
        .and_then(|length| bytes.split_at_checked(length));
    let Some((piece, rest)) = split else {
        return Err(cut(bytes.len(), &format!("{length} bytes")));
    };
    *bytes = rest;
    Ok(piece)
}

fn text(bytes: &[u8]) -> Result<&str, Invalid> {
    std::str::from_utf8(bytes)
        .map_err(|_| Invalid::new("", String::from_utf8_lossy(bytes), "text in UTF-8"))
}

fn skip(wire: WireType, number: u32, bytes: &mut &[u8]) -> Result<(), Invalid> {
    encoding::skip_field(wire, number, bytes, DecodeContext::default()).map_err(|error| {
        let field = format!("field {number}");
        Invalid::new(field, error, "a complete value of the unknown field")
    })
}

fn write_message(message: &dyn Message, bytes: &mut Vec<u8>) {
    for entry in message.table() {
        let Some(field) = message.field(entry.number) else {
            continue;
        };
        let is_map = field.label() == Label::Map;
        field.each(&mut |key, view| {
            if is_map {
                encoding::encode_key(entry.number, WireType::LengthDelimited, bytes);
                write_with_length(bytes, |bytes| {
                    write_value(KEY, View::Text(key), bytes);
                    write_value(VALUE, view, bytes);
                });
            } else {
                write_value(entry.number, view, bytes);
            }
        });
    }
}

fn write_value(number: u32, view: View<'_>, bytes: &mut Vec<u8>) {
    let wire = match view {
        // In protobuf an empty list is absent.
        View::EmptyList => return,
        View::F64(_) => WireType::SixtyFourBit,
        View::Text(_) | View::Bytes(_) | View::Message(_) => WireType::LengthDelimited,
        View::Bool(_) | View::Signed(_) | View::Unsigned(_) | View::Enum(..) => WireType::Varint,
    };
    encoding::encode_key(number, wire, bytes);
    match view {
        View::Bool(value) => encoding::encode_varint(value.into(), bytes),
        View::Signed(number) => encoding::encode_varint(number as u64, bytes),
        View::Unsigned(number) => encoding::encode_varint(number, bytes),
        View::Enum(number, _) => encoding::encode_varint(i64::from(number) as u64, bytes),
        View::F64(number) => bytes.extend_from_slice(&number.to_le_bytes()),
        View::Text(text) => write_piece(text.as_bytes(), bytes),
        View::Bytes(piece) => write_piece(piece, bytes),
        View::Message(message) => {
            write_with_length(bytes, |bytes| write_message(message, bytes));
        }
        View::EmptyList => {}
    }
}

fn write_piece(piece: &[u8], bytes: &mut Vec<u8>) {
    encoding::encode_varint(piece.len() as u64, bytes);
    bytes.extend_from_slice(piece);
}

/// Writes a length-prefixed value. Most lengths are below 128 and fit the one reserved byte.
fn write_with_length(bytes: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = bytes.len();
    bytes.push(0);
    write(bytes);
    put_length(bytes, at, 1);
}

/// Writes the length of the bytes after the `room` reserved ones at `at`, and moves them if the
/// length needs more or fewer. Returns the bytes that the length needs.
fn put_length(bytes: &mut Vec<u8>, at: usize, room: usize) -> usize {
    let begin = at + room;
    let length = bytes.len() - begin;
    let needed = encoding::encoded_len_varint(length as u64);
    if needed != room {
        bytes.resize(bytes.len() + needed, 0);
        bytes.copy_within(begin..begin + length, at + needed);
        bytes.truncate(at + needed + length);
    }
    encoding::encode_varint(length as u64, &mut &mut bytes[at..at + needed]);
    needed
}
