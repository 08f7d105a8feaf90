//! How a message of the v1 API is described: once, as a struct whose fields have numbers.
//!
//! `messages!` makes of each description a struct and a [`Message`], through which `json` and `protobuf` read and write every
//! message with the same few functions. A field's Rust type is its rule: a plain type is required, `Option` is optional, `Vec` is
//! repeated, `BTreeMap` is a map. This file knows no bytes and no JSON.

mod values;

use std::collections::BTreeMap;
use std::fmt::Debug;

/// The most fields of a message: as many as the bits by which a reader notes which were there.
const FIELDS_MAX: usize = 128;

/// A message of the v1 API, seen as its fields.
pub trait Message: Debug + Send + Sync {
    /// Its fields, by rising number.
    fn table(&self) -> &'static [Entry];
    /// The field with this number, if there is one.
    fn field(&self, number: u32) -> Option<&dyn Field>;
    /// The field with this number, to read values into.
    fn field_mut(&mut self, number: u32) -> Option<&mut dyn Field>;
}

/// What a message says about one of its fields.
#[derive(Debug)]
pub struct Entry {
    /// Its number in protobuf.
    pub number: u32,
    /// Its name in JSON.
    pub name: &'static str,
    /// The same as it stands behind another field: with a comma before it, in quotes, and a colon after it.
    pub key: &'static [u8],
    /// What an absent field means; JSON says it for readers that do not know.
    pub default: Option<View<'static>>,
}

/// A type of messages: its fields.
pub trait Table {
    /// By rising number.
    const TABLE: &'static [Entry];
    /// Whether one of them means something when it is absent.
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
    /// Any number, by text.
    Map,
}

/// What the values of a field are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number of 32 bits.
    I32,
    /// A whole number of 64 bits.
    I64,
    /// A whole number of 32 bits, not negative.
    U32,
    /// A whole number of 64 bits, not negative.
    U64,
    /// A number.
    F64,
    /// Text.
    Text,
    /// Bytes.
    Bytes,
    /// One of a list of names.
    Enum,
    /// A message.
    Message,
}

/// One value of a field, to be written.
#[derive(Clone, Copy, Debug)]
pub enum View<'a> {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Signed(i64),
    /// A whole number that is not negative.
    Unsigned(u64),
    /// A number.
    F64(f64),
    /// Text.
    Text(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
    /// A value of an enum: its number and its name.
    Enum(i32, &'static str),
    /// A message.
    Message(&'a dyn Message),
    /// A list without values, for readers that index it. No value of a field is one.
    EmptyList,
}

/// One value that was read and is no message.
#[derive(Clone, Copy, Debug)]
pub enum Leaf<'a> {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Signed(i64),
    /// A whole number that is not negative.
    Unsigned(u64),
    /// A number.
    F64(f64),
    /// Text.
    Text(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
}

/// The values of one field.
pub trait Field {
    /// How many it may have.
    fn label(&self) -> Label;
    /// What they are.
    fn kind(&self) -> Kind;
    /// How many there are.
    fn count(&self) -> usize;
    /// Memory that one more of them takes, in bytes, beside the text or bytes in it.
    fn weight(&self) -> usize;
    /// Shows each; in a map with its key.
    fn each(&self, visit: &mut dyn FnMut(&str, View<'_>));
    /// Takes a value that is no message. `false`: it is an enum's, of a name or number that is not known, and was left out. An error says
    /// what was expected.
    fn take(&mut self, leaf: Leaf<'_>) -> Result<bool, &'static str>;
    /// The message to read into: a new one in a list, otherwise the one that is there. `None` if the values are no messages.
    fn open(&mut self) -> Option<&mut dyn Message>;
    /// In a map, where the value of this key is.
    fn entry(&mut self, key: &str) -> Option<&mut dyn Field>;
}

/// The type of a field.
pub trait Plain {
    /// The same without boxes.
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

/// A type that one value can have.
pub trait Single: Default + Debug + Send + Sync {
    /// What it is.
    const KIND: Kind;
    /// The type itself, if it is in a box.
    type Unboxed;
    /// Memory that it keeps elsewhere, in bytes.
    const ELSEWHERE: usize = 0;
    /// To be written.
    fn view(&self) -> View<'_>;
    /// The value of this leaf; `None` if it is a value of the enum that is not known.
    fn read(leaf: Leaf<'_>) -> Result<Option<Self>, &'static str>;
    /// If it is a message: that.
    fn message(&mut self) -> Option<&mut dyn Message> {
        None
    }
}

/// An enum of the v1 API.
pub trait Enum: Sized + Copy + 'static {
    /// All values, by rising number, with their names.
    const VALUES: &'static [(Self, i32, &'static str)];

    /// The value that is called so.
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

    /// The value that this leaf names or numbers; `None` if it is not known.
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
        // A node of the tree has room for eleven, of which at least one is used.
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
        // A key that comes again counts as it came last.
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

/// A field's name without the mark that Rust puts before a word of its own (`r#type`).
pub(crate) const fn bare(name: &'static str) -> &'static str {
    match name.as_bytes() {
        [b'r', b'#', ..] => name.split_at(2).1,
        _ => name,
    }
}

/// A field's name as a key of JSON that stands behind another.
pub(crate) const fn key<const LENGTH: usize>(name: &str) -> [u8; LENGTH] {
    let (mut key, name) = ([0; LENGTH], name.as_bytes());
    (key[0], key[1]) = (b',', b'"');
    let mut place = 0;
    while place < name.len() {
        key[2 + place] = name[place];
        place += 1;
    }
    (key[2 + place], key[3 + place]) = (b'"', b':');
    key
}

/// The entry with this number; a field without one is not compiled.
pub(crate) const fn numbered(table: &'static [Entry], number: u32) -> &'static Entry {
    let mut place = 0;
    while table[place].number != number {
        place += 1;
    }
    &table[place]
}

const fn has_defaults(table: &[Entry]) -> bool {
    let mut place = 0;
    while place < table.len() {
        if table[place].default.is_some() {
            return true;
        }
        place += 1;
    }
    false
}

/// This table, if it is one; a wrong one is not compiled.
pub(crate) const fn checked(table: &'static [Entry]) -> &'static [Entry] {
    assert!(table.len() <= FIELDS_MAX, "a message has too many fields");
    let mut place = 1;
    while place < table.len() {
        let rises = table[place - 1].number < table[place].number;
        assert!(rises, "the numbers of a message's fields do not rise");
        place += 1;
    }
    table
}

/// What an absent field means, or nothing.
macro_rules! default_of {
    () => {
        None
    };
    ($kind:ident $(($($value:literal),+))?) => {
        Some($crate::message::View::$kind $(($($value),+))?)
    };
}

/// Structs of the v1 API: the name of each, and for each field its number, name and type, perhaps with what its absence means.
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
            const TABLE: &'static [$crate::message::Entry] = $crate::message::checked(&[$($crate::message::Entry {
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
            fn table(&self) -> &'static [$crate::message::Entry] {
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
                fields.say_message(self);
            }
        }

        impl<O: $crate::describe::Output> $crate::describe::Fields<'_, $name, O> {
            $(
                #[doc = concat!("Field ", $number, ".")]
                #[inline]
                pub fn $field(&mut self, value: impl $crate::describe::Gives<<$type as $crate::message::Plain>::Plain>) -> &mut Self {
                    const ENTRY: &$crate::message::Entry = $crate::message::numbered(<$name as $crate::message::Table>::TABLE, $number);
                    self.say(ENTRY, value)
                }
            )*
        }
    )*};
}

/// Enums of the v1 API: the name of each, and for each value its name here, its number and its name on the wire.
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
            /// Its name on the wire.
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

        impl $crate::describe::Gives<$name> for $name {
            #[inline]
            fn give<O: $crate::describe::Output>(
                self,
                out: &mut O,
                entry: &'static $crate::message::Entry,
                place: $crate::describe::Place,
            ) -> bool {
                out.leaf(entry, place, $crate::message::Single::view(&self));
                true
            }
        }
    )*};
}

pub(crate) use {default_of, enums, messages};
