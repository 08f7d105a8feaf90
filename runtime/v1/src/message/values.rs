//! Encoding and decoding of values that are not messages.

use bytes::Bytes;

use super::{Kind, Leaf, Single, View};

impl Single for bool {
    const KIND: Kind = Kind::Bool;
    type Unboxed = Self;
    fn view(&self) -> View<'_> {
        View::Bool(*self)
    }
    fn read(leaf: Leaf<'_>) -> Result<Option<Self>, &'static str> {
        match leaf {
            Leaf::Bool(value) => Ok(Some(value)),
            Leaf::Text(text) => text.parse().map(Some).map_err(|_| "true or false"),
            _ => Err("true or false"),
        }
    }
}

impl Single for f64 {
    const KIND: Kind = Kind::F64;
    type Unboxed = Self;
    fn view(&self) -> View<'_> {
        View::F64(*self)
    }
    fn read(leaf: Leaf<'_>) -> Result<Option<Self>, &'static str> {
        match leaf {
            Leaf::F64(number) => Ok(Some(number)),
            Leaf::Signed(number) => Ok(Some(number as f64)),
            Leaf::Unsigned(number) => Ok(Some(number as f64)),
            // Rust's parser also accepts "Infinity" and "NaN".
            Leaf::Text(text) => text.parse().map(Some).map_err(|_| "a number"),
            _ => Err("a number"),
        }
    }
}

impl Single for String {
    const KIND: Kind = Kind::Text;
    type Unboxed = Self;
    fn view(&self) -> View<'_> {
        View::Text(self)
    }
    fn read(leaf: Leaf<'_>) -> Result<Option<Self>, &'static str> {
        match leaf {
            Leaf::Text(text) => Ok(Some(text.to_owned())),
            _ => Err("text"),
        }
    }
}

impl Single for Bytes {
    const KIND: Kind = Kind::Bytes;
    type Unboxed = Self;
    fn view(&self) -> View<'_> {
        View::Bytes(self)
    }
    fn read(leaf: Leaf<'_>) -> Result<Option<Self>, &'static str> {
        match leaf {
            Leaf::Bytes(bytes) => Ok(Some(Bytes::copy_from_slice(bytes))),
            _ => Err("bytes"),
        }
    }
}

/// Integers: given as such, as a number without a fraction, or as text.
macro_rules! whole {
    ($($type:ident: $kind:ident, $view:ident, $expected:literal;)*) => {$(
        impl Single for $type {
            const KIND: Kind = Kind::$kind;
            type Unboxed = Self;
            fn view(&self) -> View<'_> {
                View::$view((*self).into())
            }
            fn read(leaf: Leaf<'_>) -> Result<Option<Self>, &'static str> {
                let read = match leaf {
                    Leaf::Signed(number) => number.try_into().ok(),
                    Leaf::Unsigned(number) => number.try_into().ok(),
                    // Below this a double represents every integer.
                    Leaf::F64(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
                        (number as i64).try_into().ok()
                    }
                    Leaf::Text(text) => text.parse().ok(),
                    _ => None,
                };
                read.map(Some).ok_or($expected)
            }
        }
    )*};
}

whole! {
    i32: I32, Signed, "a whole number from -2147483648 to 2147483647";
    i64: I64, Signed, "a whole number of 64 bits";
    u32: U32, Unsigned, "a whole number from 0 to 4294967295";
    u64: U64, Unsigned, "a whole number from 0 to 18446744073709551615";
}
