//! Describes each v1 message once, as a struct with numbered fields.
//!
//! `messages!` generates the struct and its [`Message`] impl, through which `json` and `protobuf`
//! process all messages with the same few functions. A field's Rust type is its rule: a plain type
//! is required, `Option` is optional, `Vec` is repeated, `BTreeMap` is a map. Knows neither bytes
//! nor JSON.

mod values;

use std::collections::BTreeMap;
use std::fmt::Debug;

/// Maximum fields of a message: the bits of `Seen`.
const FIELDS_MAX: usize = 128;

/// A message of the v1 API, as its fields.
pub trait Message: Debug + Send + Sync {
    /// Its fields, by ascending number.
    fn table(&self) -> &'static [FieldInfo];
    /// The field with this number, if any.
    fn field(&self, number: u32) -> Option<&dyn Field>;
    /// The field with this number, for reading values into it.
    fn field_mut(&mut self, number: u32) -> Option<&mut dyn Field>;
}

/// Metadata of one field.
#[derive(Debug)]
pub struct FieldInfo {
    /// Its protobuf number.
    pub number: u32,
    /// Its JSON name.
    pub name: &'static str,
    /// Its JSON key after another field: `,"name":`.
    pub key: &'static [u8],
    /// The value that its absence means; JSON writes it explicitly.
    pub default: Option<View<'static>>,
}

/// The fields of a message type.
pub trait Table {
    /// By ascending number.
    const TABLE: &'static [FieldInfo];
    /// Whether a field has a default.
    const HAS_DEFAULTS: bool = has_defaults(Self::TABLE);
}

/// How many values a field has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// One.
    Required,
    /// One or none.
    Optional,
    /// Any number.
    Repeated,
    /// Any number, by text key.
    Map,
}

/// The type of a field's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A 32-bit integer.
    I32,
    /// A 64-bit integer.
    I64,
    /// An unsigned 32-bit integer.
    U32,
    /// An unsigned 64-bit integer.
    U64,
    /// A floating-point number.
    F64,
    /// Text.
    Text,
    /// Bytes.
    Bytes,
    /// A value of an enum.
    Enum,
    /// A message.
    Message,
}

/// One value of a field, to be encoded.
#[derive(Clone, Copy, Debug)]
pub enum View<'a> {
    /// `true` or `false`.
    Bool(bool),
    /// An integer.
    Signed(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// A floating-point number.
    F64(f64),
    /// Text.
    Text(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
    /// A value of an enum: its number and its name.
    Enum(i32, &'static str),
    /// A message.
    Message(&'a dyn Message),
    /// An empty list, for readers that index it. Only used as a default.
    EmptyList,
}

/// One decoded value that is not a message.
#[derive(Clone, Copy, Debug)]
pub enum Leaf<'a> {
    /// `true` or `false`.
    Bool(bool),
    /// An integer.
    Signed(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// A floating-point number.
    F64(f64),
    /// Text.
    Text(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
}

/// The values of one field.
pub trait Field {
    /// How many values it may have.
    fn label(&self) -> Label;
    /// The type of its values.
    fn kind(&self) -> Kind;
    /// How many values it has.
    fn count(&self) -> usize;
    /// Memory of one more value in bytes, without the text or bytes in it.
    fn weight(&self) -> usize;
    /// Visits each value; in a map with its key.
    fn each(&self, visit: &mut dyn FnMut(&str, View<'_>));
    /// Adds a value that is not a message. `false` for an unknown enum value, which is skipped. The
    /// error is the expected value.
    fn take(&mut self, leaf: Leaf<'_>) -> Result<bool, &'static str>;
    /// The message to decode into: a new one in a list, otherwise the existing one. `None` if the
    /// values are not messages.
    fn open(&mut self) -> Option<&mut dyn Message>;
    /// In a map, the value of this key, to decode into.
    fn entry(&mut self, key: &str) -> Option<&mut dyn Field>;
}

/// The type of a field.
pub trait Plain {
    /// The same type without boxes.
    type Plain;
}

impl<S: Single> Plain for S {
    type Plain = S::Unboxed;
}

impl<S: Single> Plain for Option<S> {
    type Plain = Option<S::Unboxed>;
}

impl<S: Single> Plain for Vec<S> {
    type Plain = Vec<S::Unboxed>;
}

impl<S: Single> Plain for BTreeMap<String, S> {
    type Plain = BTreeMap<String, S::Unboxed>;
}

/// The type of one value.
pub trait Single: Default + Debug + Send + Sync {
    /// Its kind.
    const KIND: Kind;
    /// The type without its box, if it has one.
    type Unboxed;
    /// Heap memory of a value, in bytes.
    const ELSEWHERE: usize = 0;
    /// The value, to be encoded.
    fn view(&self) -> View<'_>;
    /// Converts a decoded value; `None` for an unknown enum value.
    fn read(leaf: Leaf<'_>) -> Result<Option<Self>, &'static str>;
    /// The value as a message, if it is one.
    fn message(&mut self) -> Option<&mut dyn Message> {
        None
    }
}

/// An enum of the v1 API.
pub trait Enum: Sized + Copy + 'static {
    /// All values with number and name, by ascending number.
    const VALUES: &'static [(Self, i32, &'static str)];

    /// The value with this name.
    fn by_name(name: &str) -> Option<Self> {
        let found = Self::VALUES.iter().find(|(_, _, own)| *own == name);
        found.map(|(value, _, _)| *value)
    }

    /// The value with this number.
    fn by_number(number: i64) -> Option<Self> {
        let found = Self::VALUES
            .iter()
            .find(|(_, own, _)| i64::from(*own) == number);
        found.map(|(value, _, _)| *value)
    }

    /// The value with this name or number; `None` if unknown.
    fn from_leaf(leaf: Leaf<'_>) -> Result<Option<Self>, &'static str> {
        match leaf {
            Leaf::Text(name) => Ok(Self::by_name(name)),
            Leaf::Signed(number) => Ok(Self::by_number(number)),
            Leaf::Unsigned(number) => Ok(i64::try_from(number).ok().and_then(Self::by_number)),
            _ => Err("the name of an enum's value"),
        }
    }
}

impl<S: Single> Field for S {
    fn label(&self) -> Label {
        Label::Required
    }
    fn kind(&self) -> Kind {
        S::KIND
    }
    fn count(&self) -> usize {
        1
    }
    fn weight(&self) -> usize {
        S::ELSEWHERE
    }
    fn each(&self, visit: &mut dyn FnMut(&str, View<'_>)) {
        visit("", self.view());
    }
    fn take(&mut self, leaf: Leaf<'_>) -> Result<bool, &'static str> {
        let value = S::read(leaf)?;
        Ok(value.map(|value| *self = value).is_some())
    }
    fn open(&mut self) -> Option<&mut dyn Message> {
        self.message()
    }
    fn entry(&mut self, _: &str) -> Option<&mut dyn Field> {
        None
    }
}

impl<S: Single> Field for Option<S> {
    fn label(&self) -> Label {
        Label::Optional
    }
    fn kind(&self) -> Kind {
        S::KIND
    }
    fn count(&self) -> usize {
        usize::from(self.is_some())
    }
    fn weight(&self) -> usize {
        S::ELSEWHERE
    }
    fn each(&self, visit: &mut dyn FnMut(&str, View<'_>)) {
        if let Some(value) = self {
            visit("", value.view());
        }
    }
    fn take(&mut self, leaf: Leaf<'_>) -> Result<bool, &'static str> {
        let value = S::read(leaf)?;
        Ok(value.map(|value| *self = Some(value)).is_some())
    }
    fn open(&mut self) -> Option<&mut dyn Message> {
        if S::KIND != Kind::Message {
            return None;
        }
        self.get_or_insert_default().message()
    }
    fn entry(&mut self, _: &str) -> Option<&mut dyn Field> {
        None
    }
}

impl<S: Single> Field for Vec<S> {
    fn label(&self) -> Label {
        Label::Repeated
    }
    fn kind(&self) -> Kind {
        S::KIND
    }
    fn count(&self) -> usize {
        self.len()
    }
    fn weight(&self) -> usize {
        size_of::<S>() + S::ELSEWHERE
    }
    fn each(&self, visit: &mut dyn FnMut(&str, View<'_>)) {
        self.iter().for_each(|value| visit("", value.view()));
    }
    fn take(&mut self, leaf: Leaf<'_>) -> Result<bool, &'static str> {
        let value = S::read(leaf)?;
        Ok(value.map(|value| self.push(value)).is_some())
    }
    fn open(&mut self) -> Option<&mut dyn Message> {
        if S::KIND != Kind::Message {
            return None;
        }
        self.push(S::default());
        self.last_mut()?.message()
    }
    fn entry(&mut self, _: &str) -> Option<&mut dyn Field> {
        None
    }
}

impl<S: Single> Field for BTreeMap<String, S> {
    fn label(&self) -> Label {
        Label::Map
    }
    fn kind(&self) -> Kind {
        S::KIND
    }
    fn count(&self) -> usize {
        self.len()
    }
    fn weight(&self) -> usize {
        // A node of the tree has room for eleven entries, of which at least one is used.
        11 * (size_of::<String>() + size_of::<S>()) + S::ELSEWHERE
    }
    fn each(&self, visit: &mut dyn FnMut(&str, View<'_>)) {
        self.iter()
            .for_each(|(key, value)| visit(key, value.view()));
    }
    fn take(&mut self, _: Leaf<'_>) -> Result<bool, &'static str> {
        Err("an object whose keys are texts")
    }
    fn open(&mut self) -> Option<&mut dyn Message> {
        None
    }
    fn entry(&mut self, key: &str) -> Option<&mut dyn Field> {
        // The last value of a repeated key counts.
        let value = self.entry(key.to_owned()).or_default();
        *value = S::default();
        Some(value)
    }
}

impl<S: Single> Single for Box<S> {
    const KIND: Kind = S::KIND;
    type Unboxed = S::Unboxed;
    const ELSEWHERE: usize = size_of::<S>();
    fn view(&self) -> View<'_> {
        (**self).view()
    }
    fn read(leaf: Leaf<'_>) -> Result<Option<Self>, &'static str> {
        Ok(S::read(leaf)?.map(Box::new))
    }
    fn message(&mut self) -> Option<&mut dyn Message> {
        (**self).message()
    }
}

/// A field's name without Rust's raw prefix (`r#type`).
pub(crate) const fn bare(name: &'static str) -> &'static str {
    match name.as_bytes() {
        [b'r', b'#', ..] => name.split_at(2).1,
        _ => name,
    }
}

/// A field's name as a JSON key after another field.
pub(crate) const fn key<const LENGTH: usize>(name: &str) -> [u8; LENGTH] {
    let (mut key, name) = ([0; LENGTH], name.as_bytes());
    (key[0], key[1]) = (b',', b'"');
    let mut index = 0;
    while index < name.len() {
        key[2 + index] = name[index];
        index += 1;
    }
    (key[2 + index], key[3 + index]) = (b'"', b':');
    key
}

/// The entry with this number. Fails to compile if there is none.
pub(crate) const fn numbered(table: &'static [FieldInfo], number: u32) -> &'static FieldInfo {
    let mut index = 0;
    while table[index].number != number {
        index += 1;
    }
    &table[index]
}

const fn has_defaults(table: &[FieldInfo]) -> bool {
    let mut index = 0;
    while index < table.len() {
        if table[index].default.is_some() {
            return true;
        }
        index += 1;
    }
    false
}

/// Checks the table at compile time.
pub(crate) const fn checked(table: &'static [FieldInfo]) -> &'static [FieldInfo] {
    assert!(table.len() <= FIELDS_MAX, "a message has too many fields");
    let mut index = 1;
    while index < table.len() {
        let rises = table[index - 1].number < table[index].number;
        assert!(rises, "the numbers of a message's fields do not rise");
        index += 1;
    }
    table
}

/// The default of a field, or none.
macro_rules! default_of {
    () => {
        None
    };
    ($kind:ident $(($($value:literal),+))?) => {
        Some($crate::message::View::$kind $(($($value),+))?)
    };
}

/// Defines message structs: the name of each, and number, name and type of each field, optionally
/// with a default.
macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident {
        $($(#[$field_doc:meta])* $number:literal $field:ident: $type:ty $(= $default:ident $(($($value:literal),+))?)?,)*
    })*) => {$(
        $(#[$doc])*
        #[doc = concat!("\n\n`", stringify!($name), "` of the v1 API.")]
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name {
            $(
                $(#[$field_doc])*
                #[doc = concat!("\n\nField ", $number, ".")]
                pub $field: $type,
            )*
        }

        impl $crate::message::Table for $name {
            const TABLE: &'static [$crate::message::FieldInfo] = $crate::message::checked(&[$($crate::message::FieldInfo {
                number: $number,
                name: $crate::message::bare(stringify!($field)),
                key: {
                    const NAME: &str = $crate::message::bare(stringify!($field));
                    const KEY: [u8; NAME.len() + 4] = $crate::message::key(NAME);
                    &KEY
                },
                default: $crate::message::default_of!($($default $(($($value),+))?)?),
            },)*]);
        }

        impl $crate::message::Message for $name {
            fn table(&self) -> &'static [$crate::message::FieldInfo] {
                <Self as $crate::message::Table>::TABLE
            }
            fn field(&self, number: u32) -> Option<&dyn $crate::message::Field> {
                match number {
                    $($number => Some(&self.$field),)*
                    _ => None,
                }
            }
            fn field_mut(&mut self, number: u32) -> Option<&mut dyn $crate::message::Field> {
                match number {
                    $($number => Some(&mut self.$field),)*
                    _ => None,
                }
            }
        }

        impl $crate::message::Single for $name {
            const KIND: $crate::message::Kind = $crate::message::Kind::Message;
            type Unboxed = Self;
            fn view(&self) -> $crate::message::View<'_> {
                $crate::message::View::Message(self)
            }
            fn read(_: $crate::message::Leaf<'_>) -> Result<Option<Self>, &'static str> {
                Err("an object")
            }
            fn message(&mut self) -> Option<&mut dyn $crate::message::Message> {
                Some(self)
            }
        }

        impl $crate::describe::Describe<$name> for $name {
            fn describe<O: $crate::describe::Output>(&self, fields: &mut $crate::describe::Fields<'_, $name, O>) {
                fields.put_message(self);
            }
        }

        impl<O: $crate::describe::Output> $crate::describe::Fields<'_, $name, O> {
            $(
                #[doc = concat!("Field ", $number, ".")]
                #[inline]
                pub fn $field(&mut self, value: impl $crate::describe::IntoField<<$type as $crate::message::Plain>::Plain>) -> &mut Self {
                    const ENTRY: &$crate::message::FieldInfo = $crate::message::numbered(<$name as $crate::message::Table>::TABLE, $number);
                    self.put(ENTRY, value)
                }
            )*
        }
    )*};
}

/// Defines enums: the name of each, and Rust name, number and wire name of each value.
macro_rules! enums {
    ($($(#[$doc:meta])* $name:ident {
        $($(#[$value_doc:meta])* $value:ident = $number:literal $text:literal,)*
    })*) => {$(
        $(#[$doc])*
        #[doc = concat!("\n\n`", stringify!($name), "` of the v1 API.")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $(
                $(#[$value_doc])*
                #[doc = concat!("\n\n`", $text, "`.")]
                $value = $number,
            )*
        }

        impl $name {
            /// Its wire name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)*
                }
            }
        }

        impl $crate::message::Enum for $name {
            const VALUES: &'static [(Self, i32, &'static str)] =
                &[$((Self::$value, $number, $text),)*];
        }

        impl Default for $name {
            /// The value with the lowest number.
            fn default() -> Self {
                <Self as $crate::message::Enum>::VALUES[0].0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl $crate::message::Single for $name {
            const KIND: $crate::message::Kind = $crate::message::Kind::Enum;
            type Unboxed = Self;
            fn view(&self) -> $crate::message::View<'_> {
                $crate::message::View::Enum(*self as i32, self.name())
            }
            fn read(leaf: $crate::message::Leaf<'_>) -> Result<Option<Self>, &'static str> {
                $crate::message::Enum::from_leaf(leaf)
            }
        }

        impl $crate::describe::IntoField<$name> for $name {
            #[inline]
            fn put_into<O: $crate::describe::Output>(
                self,
                out: &mut O,
                entry: &'static $crate::message::FieldInfo,
                position: $crate::describe::ListPosition,
            ) -> bool {
                out.leaf(entry, position, $crate::message::Single::view(&self));
                true
            }
        }
    )*};
}

pub(crate) use {default_of, enums, messages};
