//! Messages written straight from whatever has their values, without being made first.
//!
//! [`Describe`] says once what something is as a message. From that comes the message's JSON and its protobuf ([`Form::describe`]), the
//! same bytes as those of the message itself, or the message ([`made`]). `messages!` gives [`Fields`] a method for each field, which
//! takes a value of the field's own type or whatever describes it; so a large answer costs its bytes and no messages.
//! This file knows no bytes and no JSON: those are [`Output`]s.
//!
//! [`Form::describe`]: crate::Form::describe

use std::marker::PhantomData;

use bytes::Bytes;

use crate::message::{Entry, Field, Label, Leaf, Message, Table, View};
use crate::pieces::Identity;

/// What can be written as the message `M`.
pub trait Describe<M> {
    /// Says the fields, by rising number. One that is not said is absent; whoever leaves out a required one writes what nobody can read.
    fn describe<O: Output>(&self, fields: &mut Fields<'_, M, O>);

    /// What it is known by, if its bytes may be kept and copied where it stands again. None is always right.
    #[inline]
    fn identity(&self) -> Option<Identity> {
        None
    }
}

impl<M, D: Describe<M> + ?Sized> Describe<M> for &D {
    #[inline]
    fn describe<O: Output>(&self, fields: &mut Fields<'_, M, O>) {
        (**self).describe(fields);
    }

    #[inline]
    fn identity(&self) -> Option<Identity> {
        (**self).identity()
    }
}

/// The message that is described.
pub fn made<M: Message + Table + Default>(value: &impl Describe<M>) -> M {
    let mut message = M::default();
    Fields::say_all(&mut Made(&mut message), value);
    message
}

/// Where a value stands in its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It is all that there is.
    Alone,
    /// It is the first of a list.
    First,
    /// Others of the list stand before it.
    Next,
}

/// What descriptions are made into. Hears the values of one message after the other, each message's by rising number.
pub trait Output {
    /// A value that is no message.
    fn leaf(&mut self, entry: &'static Entry, place: Place, value: View<'_>);
    /// A message.
    fn message<M: Table>(&mut self, entry: &'static Entry, place: Place, value: &impl Describe<M>);
    /// The end of a list that had values.
    fn end_list(&mut self);
    /// A field is absent that means something then.
    fn absent(&mut self, entry: &'static Entry, default: View<'static>);
    /// All fields of the message that is being written.
    fn whole(&mut self, message: &dyn Message);
}

/// The fields of one message, which are said one after the other: each has a method of its name.
#[derive(Debug)]
pub struct Fields<'a, M, O> {
    out: &'a mut O,
    /// The highest number so far.
    last: u32,
    message: PhantomData<fn(&M)>,
}

impl<'a, M: Table, O: Output> Fields<'a, M, O> {
    /// Writes all that this value says.
    #[inline]
    pub(crate) fn say_all(out: &'a mut O, value: &impl Describe<M>) {
        let mut fields = Self {
            out,
            last: 0,
            message: PhantomData,
        };
        value.describe(&mut fields);
        fields.pass_over(u32::MAX);
    }

    /// One field.
    #[inline]
    pub(crate) fn say<T>(&mut self, entry: &'static Entry, value: impl Gives<T>) -> &mut Self {
        debug_assert!(entry.number > self.last, "{} is said too late", entry.name);
        self.pass_over(entry.number);
        if value.give(self.out, entry, Place::Alone) {
            self.last = entry.number;
        }
        self
    }

    /// All fields of a message that is there.
    pub(crate) fn say_message(&mut self, message: &dyn Message) {
        self.out.whole(message);
        self.last = u32::MAX;
    }

    /// All fields below this number that were not said are absent.
    #[inline]
    fn pass_over(&mut self, number: u32) {
        if !M::HAS_DEFAULTS {
            return;
        }
        let absent = M::TABLE.iter().filter(|entry| entry.number > self.last);
        for entry in absent.take_while(|entry| entry.number < number) {
            if let Some(default) = entry.default {
                self.out.absent(entry, default);
            }
        }
        self.last = self.last.max(number - 1);
    }
}

/// What can be given where a field of type `T` is written. The type is the field's own without boxes: `Option<Label>`, `Vec<Resource>`.
pub trait Gives<T> {
    /// Writes it. Whether there was a value.
    fn give<O: Output>(self, out: &mut O, entry: &'static Entry, place: Place) -> bool;
}

impl<M: Table, D: Describe<M>> Gives<M> for D {
    #[inline]
    fn give<O: Output>(self, out: &mut O, entry: &'static Entry, place: Place) -> bool {
        out.message::<M>(entry, place, &self);
        true
    }
}

impl<T, G: Gives<T>> Gives<Option<T>> for Option<G> {
    #[inline]
    fn give<O: Output>(self, out: &mut O, entry: &'static Entry, place: Place) -> bool {
        self.is_some_and(|value| value.give(out, entry, place))
    }
}

/// The values of a list.
#[derive(Clone, Copy, Debug)]
pub struct Each<I>(pub I);

impl<T, I: IntoIterator<Item: Gives<T>>> Gives<Vec<T>> for Each<I> {
    #[inline]
    fn give<O: Output>(self, out: &mut O, entry: &'static Entry, _: Place) -> bool {
        let mut place = Place::First;
        for value in self.0 {
            if value.give(out, entry, place) {
                place = Place::Next;
            }
        }
        let is_some = place == Place::Next;
        if is_some {
            out.end_list();
        }
        is_some
    }
}

impl<T, G: Gives<T>> Gives<Vec<T>> for Vec<G> {
    fn give<O: Output>(self, out: &mut O, entry: &'static Entry, place: Place) -> bool {
        Each(self).give(out, entry, place)
    }
}

/// What is no message.
macro_rules! leaves {
    ($($given:ty as $type:ty: $value:ident => $view:expr;)*) => {$(
        impl Gives<$type> for $given {
            #[inline]
            fn give<O: Output>(self, out: &mut O, entry: &'static Entry, place: Place) -> bool {
                let $value = &self;
                out.leaf(entry, place, $view);
                true
            }
        }
    )*};
}

leaves! {
    bool as bool: value => View::Bool(*value);
    i32 as i32: value => View::Signed((*value).into());
    i64 as i64: value => View::Signed(*value);
    u32 as u32: value => View::Unsigned((*value).into());
    u64 as u64: value => View::Unsigned(*value);
    f64 as f64: value => View::F64(*value);
    &str as String: value => View::Text(value);
    String as String: value => View::Text(value);
    &[u8] as Bytes: value => View::Bytes(value);
    Bytes as Bytes: value => View::Bytes(value);
}

/// Makes the message itself.
struct Made<'a>(&'a mut dyn Message);

impl Output for Made<'_> {
    fn leaf(&mut self, entry: &'static Entry, _: Place, value: View<'_>) {
        if let Some(field) = self.0.field_mut(entry.number) {
            put(field, "", value);
        }
    }

    fn message<M: Table>(&mut self, entry: &'static Entry, _: Place, value: &impl Describe<M>) {
        let field = self.0.field_mut(entry.number);
        if let Some(message) = field.and_then(Field::open) {
            Fields::say_all(&mut Made(message), value);
        }
    }

    fn end_list(&mut self) {}

    fn absent(&mut self, _: &'static Entry, _: View<'static>) {}

    fn whole(&mut self, message: &dyn Message) {
        copy(message, self.0);
    }
}

fn copy(from: &dyn Message, to: &mut dyn Message) {
    for entry in from.table() {
        let field = (from.field(entry.number), to.field_mut(entry.number));
        if let (Some(from), Some(to)) = field {
            from.each(&mut |key, value| put(to, key, value));
        }
    }
}

/// Puts one more value into a field.
fn put(field: &mut dyn Field, key: &str, value: View<'_>) {
    if field.label() == Label::Map {
        if let Some(place) = field.entry(key) {
            put(place, "", value);
        }
        return;
    }
    let leaf = match value {
        View::Bool(value) => Leaf::Bool(value),
        View::Signed(number) => Leaf::Signed(number),
        View::Unsigned(number) => Leaf::Unsigned(number),
        View::F64(number) => Leaf::F64(number),
        View::Text(text) => Leaf::Text(text),
        View::Bytes(bytes) => Leaf::Bytes(bytes),
        View::Enum(number, _) => Leaf::Signed(number.into()),
        View::Message(message) => {
            if let Some(to) = field.open() {
                copy(message, to);
            }
            return;
        }
        View::EmptyList => return,
    };
    // What a message shows of its own kind it takes.
    let _ = field.take(leaf);
}
