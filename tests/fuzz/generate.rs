//! Generated values of any Serde type, so that every message has valid inputs without handwritten
//! samples.
//!
//! The generator answers all requests of a type with plausible values. If the type rejects them, it
//! tries again.

use serde::de::value::{Error, U32Deserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess,
    SeqAccess, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use crate::rng::Rng;

/// Maximum number of attempts per value.
const ATTEMPTS: usize = 200;
/// Maximum depth; deeper values are as empty as possible.
const DEPTH_MAX: usize = 12;
/// Texts with a meaning for some types, and the empty one.
const WORDS: &str = " cpus mem disk ports gpus bugs ads ads/web * m m-S1 m-0000 m-O1 t e rack stdout \
    127.0.0.1:5051 /bin/true because Ωmega vol-1";

/// A value of this type, if one of the attempts succeeds.
pub fn generate<T: DeserializeOwned>(rng: &mut Rng) -> Option<T> {
    (0..ATTEMPTS).find_map(|_| T::deserialize(ValueGenerator { rng, depth: 0 }).ok())
}

struct ValueGenerator<'c> {
    rng: &'c mut Rng,
    depth: usize,
}

impl ValueGenerator<'_> {
    fn text(&mut self) -> String {
        match self.rng.below(10) {
            0 => "x".repeat(self.rng.below(300)),
            1 => self.rng.number().to_string(),
            _ => (*self.rng.pick(&WORDS.split(' ').collect::<Vec<_>>())).to_owned(),
        }
    }

    fn elements(&mut self) -> usize {
        match (self.depth >= DEPTH_MAX, self.rng.below(8)) {
            (true, _) | (_, 0..=1) => 0,
            (_, 2..=4) => 1,
            (_, 5..=6) => 2,
            _ => self.rng.below(6),
        }
    }

    fn deeper(&mut self) -> ValueGenerator<'_> {
        ValueGenerator {
            depth: self.depth + 1,
            rng: &mut *self.rng,
        }
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $type:ty;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.$visit(self.rng.number() as $type)
        }
    )*};
}

macro_rules! floats {
    ($($method:ident $visit:ident $type:ty;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            let number = *self.rng.pick(&[0.0, -0.0, 1.0, 0.1, -1.0, 5.0, 1e30, <$type>::NAN, <$type>::INFINITY]);
            visitor.$visit(number)
        }
    )*};
}

impl<'de> Deserializer<'de> for ValueGenerator<'_> {
    type Error = Error;

    numbers! {
        deserialize_i8 visit_i8 i8; deserialize_i16 visit_i16 i16; deserialize_i32 visit_i32 i32;
        deserialize_i64 visit_i64 i64; deserialize_i128 visit_i128 i128; deserialize_u8 visit_u8 u8;
        deserialize_u16 visit_u16 u16; deserialize_u32 visit_u32 u32; deserialize_u64 visit_u64 u64;
        deserialize_u128 visit_u128 u128;
    }
    floats! { deserialize_f32 visit_f32 f32; deserialize_f64 visit_f64 f64; }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(serde::de::Error::custom(
            "no wire of ours says what it holds",
        ))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(self.rng.one_in(2))
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_char(*self.rng.pick(&['a', 'Ω', '\0', '/']))
    }

    fn deserialize_str<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(&self.text())
    }

    fn deserialize_string<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.text())
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_byte_buf(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let count = self.rng.below(20);
        visitor.visit_byte_buf(self.rng.bytes(count))
    }

    fn deserialize_option<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        match self.depth >= DEPTH_MAX || self.rng.one_in(2) {
            true => visitor.visit_none(),
            false => visitor.visit_some(self.deeper()),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        mut self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self.deeper())
    }

    fn deserialize_seq<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        let left = self.elements();
        self.deserialize_tuple(left, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        left: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        let generator = self;
        visitor.visit_seq(Elements { generator, left })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        left: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(left, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        let left = self.elements();
        let generator = self;
        visitor.visit_map(Elements { generator, left })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(fields.len(), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let variant = self.rng.below(variants.len()) as u32;
        let generator = self;
        visitor.visit_enum(Variant { generator, variant })
    }

    forward_to_deserialize_any! { identifier ignored_any }

    fn is_human_readable(&self) -> bool {
        false
    }
}

struct Elements<'c> {
    generator: ValueGenerator<'c>,
    left: usize,
}

impl<'de> SeqAccess<'de> for Elements<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(self.generator.deeper()).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> MapAccess<'de> for Elements<'_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        self.next_element_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(self.generator.deeper())
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

struct Variant<'c> {
    generator: ValueGenerator<'c>,
    variant: u32,
}

impl<'de, 'c> EnumAccess<'de> for Variant<'c> {
    type Error = Error;
    type Variant = ValueGenerator<'c>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, ValueGenerator<'c>), Error> {
        let number: U32Deserializer<Error> = self.variant.into_deserializer();
        Ok((seed.deserialize(number)?, self.generator))
    }
}

impl<'de> VariantAccess<'de> for ValueGenerator<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(mut self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(self.deeper())
    }

    fn tuple_variant<V: Visitor<'de>>(self, left: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_tuple(left, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(fields.len(), visitor)
    }
}
