//! Reading values: a serde deserializer over a slice that believes no claim of the bytes.
//!
//! It counts the elements of sequences and maps against the bytes there are, so that a claimed billion of nothing costs
//! nothing; it lends text instead of copying it, so that a claimed length allocates nothing; and it bounds how deep
//! values nest, so that the stack does not overflow. Remembers only how far it has read and what it has granted.
//! It never panics, whatever the bytes, and never guesses: the bytes do not say what they are.

use std::fmt;

use serde::de::value::U32Deserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};

use super::Garbled;
use super::form::{IN_8, IN_16, IN_32, IN_64, IN_128, unfold};

/// How deep values may nest.
const DEPTH_MAX: u16 = 128;
/// Elements allowed beyond one per byte, for sequences of things that take no bytes.
const FREE_ELEMENTS: usize = 4096;

/// Why the bytes are no value. One pointer, so that it costs the good case nothing.
#[derive(Debug)]
pub(super) struct Unreadable(Box<Garbled>);

type Read<T> = Result<T, Unreadable>;

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.reason)
    }
}

impl std::error::Error for Unreadable {}

impl Error for Unreadable {
    #[cold]
    fn custom<T: fmt::Display>(reason: T) -> Self {
        Self(Box::new(Garbled::new(reason.to_string())))
    }
}

/// What is left of a body.
pub(super) struct Reader<'de> {
    rest: &'de [u8],
    /// Elements that may still be claimed.
    elements: usize,
    /// How many more values may be opened inside one another.
    depth: u16,
}

impl<'de> Reader<'de> {
    /// At the start of a body.
    #[inline]
    pub(super) fn of(bytes: &'de [u8]) -> Self {
        Self {
            rest: bytes,
            elements: bytes.len().saturating_add(FREE_ELEMENTS),
            depth: DEPTH_MAX,
        }
    }

    /// Bytes not read.
    #[inline]
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        match self.rest.split_first_chunk() {
            Some((array, rest)) => {
                self.rest = rest;
                Ok(*array)
            }
            None => Err(self.ends(N)),
        }
    }

    #[inline]
    fn byte(&mut self) -> Read<u8> {
        self.array().map(|[byte]| byte)
    }

    /// A number of at most 64 bits: itself if it is small, or a byte that says in how many it follows.
    #[inline]
    fn number(&mut self, widest: u8) -> Read<u64> {
        match *self.rest {
            [small @ 0..=IN_8, ref rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(small))
            }
            [IN_64, a, b, c, d, e, f, g, h, ref rest @ ..] if widest == IN_64 => {
                self.rest = rest;
                Ok(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
            }
            _ => self.wide_number(widest),
        }
    }

    fn wide_number(&mut self, widest: u8) -> Read<u64> {
        match self.byte()? {
            small @ 0..=IN_8 => Ok(u64::from(small)),
            IN_16 => self.array().map(u16::from_le_bytes).map(u64::from),
            IN_32 if widest >= IN_32 => self.array().map(u32::from_le_bytes).map(u64::from),
            IN_64 if widest >= IN_64 => self.array().map(u64::from_le_bytes),
            mark => Err(Error::custom(format_args!(
                "number is marked {mark}, expected at most {widest}"
            ))),
        }
    }

    fn number_in_128(&mut self) -> Read<u128> {
        if self.rest.first() == Some(&IN_128) {
            self.byte()?;
            return self.array().map(u128::from_le_bytes);
        }
        self.number(IN_64).map(u128::from)
    }

    #[inline]
    fn length(&mut self) -> Read<usize> {
        let length = self.number(IN_64)?;
        usize::try_from(length).map_err(Error::custom)
    }

    #[inline]
    fn bytes(&mut self) -> Read<&'de [u8]> {
        let length = self.length()?;
        match self.rest.split_at_checked(length) {
            Some((bytes, rest)) => {
                self.rest = rest;
                Ok(bytes)
            }
            None => Err(self.ends(length)),
        }
    }

    fn text(&mut self) -> Read<&'de str> {
        str::from_utf8(self.bytes()?).map_err(Error::custom)
    }

    /// A character takes as many bytes as in text.
    fn character(&mut self) -> Read<char> {
        let first = *self.rest.first().ok_or_else(|| self.ends(1))?;
        let width = match first {
            0..=0x7F => 1,
            0xC0..=0xDF => 2,
            0xE0..=0xEF => 3,
            _ => 4,
        };
        let (bytes, rest) = self
            .rest
            .split_at_checked(width)
            .ok_or_else(|| self.ends(width))?;
        self.rest = rest;
        let text = str::from_utf8(bytes).map_err(Error::custom)?;
        text.chars()
            .next()
            .ok_or_else(|| Error::custom("no character"))
    }

    #[cold]
    fn ends(&self, wanted: usize) -> Unreadable {
        Error::custom(format_args!(
            "{wanted} more bytes claimed or expected, {} left",
            self.rest.len()
        ))
    }

    /// Reads what is one level further in.
    #[inline]
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<T> {
        let Some(depth) = self.depth.checked_sub(1) else {
            return Err(Error::custom(format_args!(
                "nested deeper than {DEPTH_MAX}"
            )));
        };
        self.depth = depth;
        let value = read(self);
        self.depth += 1;
        value
    }

    /// The number of elements that a sequence or map claims to have.
    #[inline]
    fn claim(&mut self) -> Read<usize> {
        let claimed = self.length()?;
        match self.elements.checked_sub(claimed) {
            Some(left) => {
                self.elements = left;
                Ok(claimed)
            }
            None => Err(Error::custom(format_args!(
                "{claimed} elements claimed, more than the bytes can hold"
            ))),
        }
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $widest:ident $read:expr;)*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
            visitor.$visit($read(self.number($widest)?))
        }
    )*};
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = Unreadable;

    // A number of a type was checked to be marked no wider than that type: nothing is cut off.
    numbers! {
        deserialize_u16 visit_u16 IN_16 |number| number as u16;
        deserialize_u32 visit_u32 IN_32 |number| number as u32;
        deserialize_u64 visit_u64 IN_64 |number| number;
        deserialize_i16 visit_i16 IN_16 |number| unfold(number) as i16;
        deserialize_i32 visit_i32 IN_32 |number| unfold(number) as i32;
        deserialize_i64 visit_i64 IN_64 unfold;
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Read<V::Value> {
        Err(Error::custom("the bytes do not say what they are"))
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        self.deserialize_any(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        self.deserialize_any(visitor)
    }

    #[inline]
    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        match self.byte()? {
            0 => visitor.visit_bool(false),
            1 => visitor.visit_bool(true),
            other => Err(Error::custom(format_args!(
                "bool is {other}, expected 0 or 1"
            ))),
        }
    }

    #[inline]
    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_u8(self.byte()?)
    }

    #[inline]
    fn deserialize_i8<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_i8(self.byte()? as i8)
    }

    fn deserialize_u128<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_u128(self.number_in_128()?)
    }

    fn deserialize_i128<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        let folded = self.number_in_128()?;
        visitor.visit_i128((folded >> 1) as i128 ^ -((folded & 1) as i128))
    }

    #[inline]
    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_f32(f32::from_le_bytes(self.array()?))
    }

    #[inline]
    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_f64(f64::from_le_bytes(self.array()?))
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_char(self.character()?)
    }

    #[inline]
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_borrowed_str(self.text()?)
    }

    #[inline]
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        self.deserialize_str(visitor)
    }

    #[inline]
    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_borrowed_bytes(self.bytes()?)
    }

    #[inline]
    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        self.deserialize_bytes(visitor)
    }

    #[inline]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        match self.byte()? {
            0 => visitor.visit_none(),
            1 => self.deeper(|reader| visitor.visit_some(reader)),
            other => Err(Error::custom(format_args!(
                "option is {other}, expected 0 or 1"
            ))),
        }
    }

    #[inline]
    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_unit()
    }

    #[inline]
    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Read<V::Value> {
        visitor.visit_unit()
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Read<V::Value> {
        self.deeper(|reader| visitor.visit_newtype_struct(reader))
    }

    #[inline]
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        let left = self.claim()?;
        self.deeper(|reader| visitor.visit_seq(Elements { reader, left }))
    }

    #[inline]
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        let left = self.claim()?;
        self.deeper(|reader| visitor.visit_map(Elements { reader, left }))
    }

    /// Its length is the type's and not the bytes': there is nothing to count.
    #[inline]
    fn deserialize_tuple<V: Visitor<'de>>(self, left: usize, visitor: V) -> Read<V::Value> {
        self.deeper(|reader| visitor.visit_seq(Elements { reader, left }))
    }

    #[inline]
    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        left: usize,
        visitor: V,
    ) -> Read<V::Value> {
        self.deserialize_tuple(left, visitor)
    }

    #[inline]
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Read<V::Value> {
        self.deserialize_tuple(fields.len(), visitor)
    }

    #[inline]
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Read<V::Value> {
        self.deeper(|reader| visitor.visit_enum(reader))
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// The elements of a compound value that were not read yet.
struct Elements<'a, 'de> {
    reader: &'a mut Reader<'de>,
    left: usize,
}

impl Elements<'_, '_> {
    #[inline]
    fn next<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<Option<T>> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(None);
        };
        self.left = left;
        read(self).map(Some)
    }
}

impl<'de> SeqAccess<'de> for Elements<'_, 'de> {
    type Error = Unreadable;

    #[inline]
    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Read<Option<S::Value>> {
        self.next(|elements| seed.deserialize(&mut *elements.reader))
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> MapAccess<'de> for Elements<'_, 'de> {
    type Error = Unreadable;

    #[inline]
    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Read<Option<S::Value>> {
        self.next(|elements| seed.deserialize(&mut *elements.reader))
    }

    #[inline]
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Read<S::Value> {
        seed.deserialize(&mut *self.reader)
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> EnumAccess<'de> for &mut Reader<'de> {
    type Error = Unreadable;
    type Variant = Self;

    #[inline]
    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Read<(S::Value, Self)> {
        let index: U32Deserializer<Unreadable> = (self.number(IN_32)? as u32).into_deserializer();
        Ok((seed.deserialize(index)?, self))
    }
}

impl<'de> VariantAccess<'de> for &mut Reader<'de> {
    type Error = Unreadable;

    #[inline]
    fn unit_variant(self) -> Read<()> {
        Ok(())
    }

    #[inline]
    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Read<S::Value> {
        seed.deserialize(self)
    }

    #[inline]
    fn tuple_variant<V: Visitor<'de>>(self, left: usize, visitor: V) -> Read<V::Value> {
        visitor.visit_seq(Elements { reader: self, left })
    }

    #[inline]
    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Read<V::Value> {
        self.tuple_variant(fields.len(), visitor)
    }
}
