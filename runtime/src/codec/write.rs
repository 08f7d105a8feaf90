//! Writing values: a serde serializer that appends to a buffer.
//!
//! Remembers nothing. Never writes what cannot be read back: a sequence that does not know its length is refused.

use std::fmt;

use bytes::BytesMut;
use serde::Serialize;
use serde::ser::{
    Error, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use super::Garbled;
use super::form::{IN_8, IN_16, IN_32, IN_64, IN_128, fold};

/// Why a value cannot be written. One pointer, so that it costs the good case nothing.
#[derive(Debug)]
pub(super) struct Unwritable(Box<Garbled>);

type Written = Result<(), Unwritable>;

impl fmt::Display for Unwritable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.reason)
    }
}

impl std::error::Error for Unwritable {}

impl Error for Unwritable {
    #[cold]
    fn custom<T: fmt::Display>(reason: T) -> Self {
        Self(Box::new(Garbled::new(reason.to_string())))
    }
}

/// Appends values to a buffer.
pub(super) struct Writer<'a>(pub(super) &'a mut BytesMut);

impl Writer<'_> {
    #[inline(always)]
    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// A number of at most 64 bits, in one piece: one look at the buffer's room for each.
    #[inline(always)]
    fn number(&mut self, number: u64) {
        if number <= u64::from(IN_8) {
            self.put(&[number as u8]);
        } else if let Ok(number) = u16::try_from(number) {
            let [a, b] = number.to_le_bytes();
            self.put(&[IN_16, a, b]);
        } else if let Ok(number) = u32::try_from(number) {
            let [a, b, c, d] = number.to_le_bytes();
            self.put(&[IN_32, a, b, c, d]);
        } else {
            let [a, b, c, d, e, f, g, h] = number.to_le_bytes();
            self.put(&[IN_64, a, b, c, d, e, f, g, h]);
        }
    }

    fn number_in_128(&mut self, number: u128) {
        match u64::try_from(number) {
            Ok(number) => self.number(number),
            Err(_) => {
                self.put(&[IN_128]);
                self.put(&number.to_le_bytes());
            }
        }
    }

    #[inline]
    fn length(&mut self, length: Option<usize>) -> Written {
        let length = length.ok_or_else(|| Error::custom("a sequence must know its length"))?;
        self.number(length as u64);
        Ok(())
    }
}

macro_rules! numbers {
    ($($method:ident $type:ty: $wide:expr;)*) => {$(
        #[inline]
        fn $method(mut self, number: $type) -> Written {
            self.number($wide(number));
            Ok(())
        }
    )*};
}

macro_rules! plain {
    ($($method:ident $type:ty: $bytes:expr;)*) => {$(
        #[inline]
        fn $method(mut self, value: $type) -> Written {
            self.put(&$bytes(value));
            Ok(())
        }
    )*};
}

impl Serializer for Writer<'_> {
    type Ok = ();
    type Error = Unwritable;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    numbers! {
        serialize_u16 u16: u64::from;
        serialize_u32 u32: u64::from;
        serialize_u64 u64: |number| number;
        serialize_i16 i16: |number| fold(i64::from(number));
        serialize_i32 i32: |number| fold(i64::from(number));
        serialize_i64 i64: fold;
    }

    plain! {
        serialize_bool bool: |value| [u8::from(value)];
        serialize_u8 u8: u8::to_le_bytes;
        serialize_i8 i8: i8::to_le_bytes;
        serialize_f32 f32: f32::to_le_bytes;
        serialize_f64 f64: f64::to_le_bytes;
    }

    fn serialize_u128(mut self, number: u128) -> Written {
        self.number_in_128(number);
        Ok(())
    }

    fn serialize_i128(mut self, number: i128) -> Written {
        self.number_in_128((number << 1 ^ number >> 127) as u128);
        Ok(())
    }

    fn serialize_char(mut self, character: char) -> Written {
        self.put(character.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    #[inline]
    fn serialize_str(self, text: &str) -> Written {
        self.serialize_bytes(text.as_bytes())
    }

    #[inline]
    fn serialize_bytes(mut self, bytes: &[u8]) -> Written {
        self.number(bytes.len() as u64);
        self.put(bytes);
        Ok(())
    }

    #[inline]
    fn serialize_none(self) -> Written {
        self.serialize_u8(0)
    }

    #[inline]
    fn serialize_some<T: Serialize + ?Sized>(mut self, value: &T) -> Written {
        self.put(&[1]);
        value.serialize(self)
    }

    #[inline]
    fn serialize_unit(self) -> Written {
        Ok(())
    }

    #[inline]
    fn serialize_unit_struct(self, _: &'static str) -> Written {
        Ok(())
    }

    #[inline]
    fn serialize_unit_variant(self, _: &'static str, index: u32, _: &'static str) -> Written {
        self.serialize_u32(index)
    }

    #[inline]
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Written {
        value.serialize(self)
    }

    #[inline]
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        mut self,
        _: &'static str,
        index: u32,
        _: &'static str,
        value: &T,
    ) -> Written {
        self.number(u64::from(index));
        value.serialize(self)
    }

    #[inline]
    fn serialize_seq(mut self, length: Option<usize>) -> Result<Self, Unwritable> {
        self.length(length)?;
        Ok(self)
    }

    #[inline]
    fn serialize_map(self, length: Option<usize>) -> Result<Self, Unwritable> {
        self.serialize_seq(length)
    }

    #[inline]
    fn serialize_tuple(self, _: usize) -> Result<Self, Unwritable> {
        Ok(self)
    }

    #[inline]
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, Unwritable> {
        Ok(self)
    }

    #[inline]
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Unwritable> {
        Ok(self)
    }

    #[inline]
    fn serialize_tuple_variant(
        mut self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Unwritable> {
        self.number(u64::from(index));
        Ok(self)
    }

    #[inline]
    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Self, Unwritable> {
        self.serialize_tuple_variant(name, index, variant, length)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// The parts of a compound value follow each other, with nothing between and nothing after.
macro_rules! compound {
    ($($trait:ident $($method:ident $(($key:ty))?)*;)*) => {$(
        impl $trait for Writer<'_> {
            type Ok = ();
            type Error = Unwritable;

            $(
                #[inline]
                fn $method<T: Serialize + ?Sized>(&mut self, $(_: $key,)? value: &T) -> Written {
                    value.serialize(Writer(&mut *self.0))
                }
            )*

            #[inline]
            fn end(self) -> Written {
                Ok(())
            }
        }
    )*};
}

compound! {
    SerializeSeq serialize_element;
    SerializeTuple serialize_element;
    SerializeTupleStruct serialize_field;
    SerializeTupleVariant serialize_field;
    SerializeMap serialize_key serialize_value;
    SerializeStruct serialize_field(&'static str);
    SerializeStructVariant serialize_field(&'static str);
}
