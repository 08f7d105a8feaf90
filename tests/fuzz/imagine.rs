//! Imagined values: any serde type, filled by chance, so that every message has valid inputs to begin from without a
//! sample written by hand.
//!
//! It answers whatever a type asks for with something plausible. A type with rules of its own may refuse it; then
//! it is imagined again.

use serde::de::value::{Error, U32Deserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess,
    SeqAccess, VariantAccess, Visitor,
};

use crate::chance::Chance;

/// How often a type is asked before it counts as one that cannot be imagined.
const ATTEMPTS: usize = 200;
/// How deep values are filled; below, everything is as empty as it may be.
const DEPTH_MAX: usize = 12;
/// Words that the types of this tree have rules about.
const WORDS: &[&str] = &[
    "",
    "cpus",
    "mem",
    "disk",
    "ports",
    "gpus",
    "bugs",
    "ads",
    "ads/web",
    "*",
    "m",
    "m-S1",
    "m-0000",
    "m-O1",
    "t",
    "e",
    "rack",
    "stdout",
    "127.0.0.1:5051",
    "/bin/true",
    "because",
    "Ωmega",
    "vol-1",
];

/// A value of this type, if 200 attempts give one.
pub fn imagine<T: DeserializeOwned>(chance: &mut Chance) -> Option<T> {
    (0..ATTEMPTS).find_map(|_| T::deserialize(Dream { chance, depth: 0 }).ok())
}

struct Dream<'c> {
    chance: &'c mut Chance,
    depth: usize,
}

impl Dream<'_> {
    fn text(&mut self) -> String {
        match self.chance.below(10) {
            0 => "x".repeat(self.chance.below(300)),
            1 => self.chance.number().to_string(),
            _ => (*self.chance.pick(WORDS)).to_owned(),
        }
    }

    fn elements(&mut self) -> usize {
        match (self.depth >= DEPTH_MAX, self.chance.below(8)) {
            (true, _) | (_, 0..=1) => 0,
            (_, 2..=4) => 1,
            (_, 5..=6) => 2,
            _ => self.chance.below(6),
        }
    }

    fn deeper(&mut self) -> Dream<'_> {
        Dream {
            depth: self.depth + 1,
            chance: &mut *self.chance,
        }
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $type:ty;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.$visit(self.chance.number() as $type)
        }
    )*};
}

macro_rules! floats {
    ($($method:ident $visit:ident $type:ty;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            let number = *self.chance.pick(&[0.0, -0.0, 1.0, 0.1, -1.0, 5.0, 1e30, <$type>::NAN, <$type>::INFINITY]);
            visitor.$visit(number)
        }
    )*};
}

impl<'de> Deserializer<'de> for Dream<'_> {
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
        visitor.visit_bool(self.chance.one_in(2))
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_char(*self.chance.pick(&['a', 'Ω', '\0', '/']))
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
        let count = self.chance.below(20);
        visitor.visit_byte_buf(self.chance.bytes(count))
    }

    fn deserialize_option<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        match self.depth >= DEPTH_MAX || self.chance.one_in(2) {
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
        visitor.visit_seq(Elements { dream: self, left })
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        left: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_seq(Elements { dream: self, left })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        left: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_seq(Elements { dream: self, left })
    }

    fn deserialize_map<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        let left = self.elements();
        visitor.visit_map(Elements { dream: self, left })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let left = fields.len();
        visitor.visit_seq(Elements { dream: self, left })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let variant = self.chance.below(variants.len()) as u32;
        visitor.visit_enum(Variant {
            dream: self,
            variant,
        })
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

struct Elements<'c> {
    dream: Dream<'c>,
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
        seed.deserialize(self.dream.deeper()).map(Some)
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
        seed.deserialize(self.dream.deeper())
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

struct Variant<'c> {
    dream: Dream<'c>,
    variant: u32,
}

impl<'de, 'c> EnumAccess<'de> for Variant<'c> {
    type Error = Error;
    type Variant = Dream<'c>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Dream<'c>), Error> {
        let number: U32Deserializer<Error> = self.variant.into_deserializer();
        Ok((seed.deserialize(number)?, self.dream))
    }
}

impl<'de> VariantAccess<'de> for Dream<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(mut self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(self.deeper())
    }

    fn tuple_variant<V: Visitor<'de>>(self, left: usize, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Elements { dream: self, left })
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let left = fields.len();
        visitor.visit_seq(Elements { dream: self, left })
    }
}
