//! Careful decoding: wraps a serde deserializer, and trusts no length in the input.
//!
//! It counts elements of sequences and maps against the actual bytes, so a claimed billion of empty
//! elements fails at once. It reserves no more room than the bytes could fill, so a claimed million
//! of large elements allocates little. It borrows text before copying it, so a claimed length
//! allocates nothing. It bounds the nesting depth, so the stack does not overflow. Decoded values
//! are unchanged.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};

/// Maximum nesting depth of values.
const DEPTH_MAX: u16 = 128;
/// Elements allowed beyond one per byte, for sequences of empty elements.
const FREE_ELEMENTS: usize = 4096;

/// Maximum length of the path in an error, in bytes, without its first step.
const PLACE_MAX: usize = 200;
/// Bytes required for each element with room reserved in advance.
const BYTES_PER_ROOM: usize = 4;

/// The number of elements that may still be claimed.
pub(super) struct Budget {
    elements: Cell<usize>,
    /// Maximum number of elements of one sequence whose room is reserved before they are read.
    room_max: usize,
    /// The path to the part that could not be decoded.
    place: Cell<String>,
}

impl Budget {
    /// For this many bytes.
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self {
            elements: Cell::new(bytes.len().saturating_add(FREE_ELEMENTS)),
            room_max: bytes.len() / BYTES_PER_ROOM,
            place: Cell::default(),
        }
    }

    /// The path to the part that could not be decoded, for example `agent.resources[2].copies`;
    /// empty for the whole value.
    pub(super) fn place(&self) -> String {
        self.place.take()
    }

    /// Prepends this part to the path of an error.
    #[cold]
    fn blame(&self, names: &[&str], at: usize) {
        let inner = self.place.take();
        if inner.len() > PLACE_MAX {
            return self.place.set(inner);
        }
        let dot = if inner.is_empty() || inner.starts_with('[') {
            ""
        } else {
            "."
        };
        self.place.set(match names.get(at) {
            Some(name) => format!("{name}{dot}{inner}"),
            None => format!("[{at}]{dot}{inner}"),
        });
    }
}

#[derive(Clone, Copy)]
struct Care<'b> {
    budget: &'b Budget,
    depth: u16,
}

impl Care<'_> {
    fn deeper<E: Error>(self) -> Result<Self, E> {
        if self.depth >= DEPTH_MAX {
            return Err(E::custom(format_args!("nested deeper than {DEPTH_MAX}")));
        }
        Ok(Self {
            depth: self.depth + 1,
            ..self
        })
    }

    /// The claimed number of elements, capped: they may be large, and have not been read yet.
    fn room(self, claimed: Option<usize>) -> Option<usize> {
        claimed.map(|elements| elements.min(self.budget.room_max))
    }

    fn claim<E: Error>(self, elements: Option<usize>) -> Result<(), E> {
        let elements = elements.unwrap_or(usize::MAX);
        match self.budget.elements.get().checked_sub(elements) {
            Some(left) => {
                self.budget.elements.set(left);
                Ok(())
            }
            None => Err(E::custom(format_args!(
                "{elements} elements claimed, more than the bytes can hold"
            ))),
        }
    }
}

/// Decodes a `T` carefully; to be used as the outermost seed.
pub(super) struct Carefully<'b, T> {
    budget: &'b Budget,
    target: PhantomData<fn() -> T>,
}

impl<'b, T> Carefully<'b, T> {
    pub(super) fn new(budget: &'b Budget) -> Self {
        Self {
            budget,
            target: PhantomData,
        }
    }
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Carefully<'_, T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        T::deserialize(Careful {
            inner: deserializer,
            care: Care {
                budget: self.budget,
                depth: 0,
            },
        })
    }
}

/// A serde object, with the current limits.
struct Careful<'b, I> {
    inner: I,
    care: Care<'b>,
}

/// A visitor of a compound value.
struct Compound<'b, V> {
    inner: V,
    care: Care<'b>,
    /// Whether the number of its elements comes from the bytes.
    counted: bool,
    /// The names of its parts, if they have any.
    names: Names,
}

type Names = &'static [&'static str];

/// The consecutive parts of a compound value.
struct Parts<'b, A> {
    inner: A,
    care: Care<'b>,
    names: Names,
    at: usize,
}

impl<A> Parts<'_, A> {
    /// Records the place of an error.
    #[inline]
    fn noted<T, E>(&self, part: Result<T, E>) -> Result<T, E> {
        if part.is_err() {
            self.care.budget.blame(self.names, self.at);
        }
        part
    }
}

macro_rules! straight {
    ($($method:ident)*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$method(visitor)
        }
    )*};
}

impl<'b, D> Careful<'b, D> {
    #[inline]
    fn open<'de, V>(
        self,
        visitor: V,
        counted: bool,
        names: Names,
    ) -> Result<(D, Compound<'b, V>), D::Error>
    where
        D: Deserializer<'de>,
    {
        let care = self.care.deeper()?;
        Ok((
            self.inner,
            Compound {
                inner: visitor,
                care,
                counted,
                names,
            },
        ))
    }
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Careful<'_, D> {
    type Error = D::Error;

    straight! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 deserialize_char deserialize_str deserialize_bytes deserialize_unit
        deserialize_identifier deserialize_ignored_any
    }

    #[inline]
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_str(visitor)
    }

    #[inline]
    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_bytes(visitor)
    }

    #[inline]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.open(visitor, false, &[])?;
        inner.deserialize_option(visitor)
    }

    #[inline]
    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_unit_struct(name, visitor)
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.open(visitor, false, &[])?;
        inner.deserialize_newtype_struct(name, visitor)
    }

    #[inline]
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.open(visitor, true, &[])?;
        inner.deserialize_seq(visitor)
    }

    #[inline]
    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.open(visitor, false, &[])?;
        inner.deserialize_tuple(length, visitor)
    }

    #[inline]
    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.open(visitor, false, &[])?;
        inner.deserialize_tuple_struct(name, length, visitor)
    }

    #[inline]
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.open(visitor, true, &[])?;
        inner.deserialize_map(visitor)
    }

    #[inline]
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.open(visitor, false, fields)?;
        inner.deserialize_struct(name, fields, visitor)
    }

    #[inline]
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.open(visitor, false, &[])?;
        inner.deserialize_enum(name, variants, visitor)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Compound<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    #[inline]
    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    #[inline]
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Careful {
            inner: deserializer,
            care: self.care,
        })
    }

    #[inline]
    fn visit_newtype_struct<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<V::Value, D::Error> {
        self.inner.visit_newtype_struct(Careful {
            inner: deserializer,
            care: self.care,
        })
    }

    #[inline]
    fn visit_seq<S: SeqAccess<'de>>(self, access: S) -> Result<V::Value, S::Error> {
        if self.counted {
            self.care.claim(access.size_hint())?;
        }
        self.inner.visit_seq(Parts {
            inner: access,
            care: self.care,
            names: self.names,
            at: 0,
        })
    }

    #[inline]
    fn visit_map<M: MapAccess<'de>>(self, access: M) -> Result<V::Value, M::Error> {
        if self.counted {
            self.care.claim(access.size_hint())?;
        }
        self.inner.visit_map(Parts {
            inner: access,
            care: self.care,
            names: self.names,
            at: 0,
        })
    }

    #[inline]
    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        self.inner.visit_enum(Careful {
            inner: access,
            care: self.care,
        })
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Careful<'_, S> {
    type Value = S::Value;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Careful {
            inner: deserializer,
            care: self.care,
        })
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Parts<'_, A> {
    type Error = A::Error;

    #[inline]
    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let care = self.care;
        let part = self.inner.next_element_seed(Careful { inner: seed, care });
        let part = self.noted(part)?;
        self.at += 1;
        Ok(part)
    }

    fn size_hint(&self) -> Option<usize> {
        self.care.room(self.inner.size_hint())
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Parts<'_, A> {
    type Error = A::Error;

    #[inline]
    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let care = self.care;
        let key = self.inner.next_key_seed(Careful { inner: seed, care });
        self.noted(key)
    }

    #[inline]
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let care = self.care;
        let value = self.inner.next_value_seed(Careful { inner: seed, care });
        let value = self.noted(value)?;
        self.at += 1;
        Ok(value)
    }

    fn size_hint(&self) -> Option<usize> {
        self.care.room(self.inner.size_hint())
    }
}

impl<'de, 'b, A: EnumAccess<'de>> EnumAccess<'de> for Careful<'b, A> {
    type Error = A::Error;
    type Variant = Careful<'b, A::Variant>;

    #[inline]
    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self::Variant), A::Error> {
        let care = self.care;
        let (value, variant) = self.inner.variant_seed(Careful { inner: seed, care })?;
        Ok((
            value,
            Careful {
                inner: variant,
                care,
            },
        ))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Careful<'_, A> {
    type Error = A::Error;

    #[inline]
    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    #[inline]
    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.newtype_variant_seed(Careful {
            inner: seed,
            care: self.care,
        })
    }

    #[inline]
    fn tuple_variant<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let visitor = Compound {
            inner: visitor,
            care: self.care,
            counted: false,
            names: &[],
        };
        self.inner.tuple_variant(length, visitor)
    }

    #[inline]
    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let visitor = Compound {
            inner: visitor,
            care: self.care,
            counted: false,
            names: fields,
        };
        self.inner.struct_variant(fields, visitor)
    }
}
