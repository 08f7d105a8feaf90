//! Encodes messages directly from other types, without building the message.
//!
//! [`Describe`] maps a type to the fields of a message. [`Form::describe`] encodes it as JSON or
//! protobuf, with the same bytes as the message itself, and [`build`] builds the message.
//! `messages!` gives [`Fields`] a method for each field, which takes a value of the field's type or
//! a value that describes it. So a large answer costs its bytes and no messages. Knows neither
//! bytes nor JSON: those are [`Output`]s.
//!
//! [`Form::describe`]: crate::Form::describe

use std::marker::PhantomData;

use bytes::Bytes;

use crate::answer_cache::Identity;
use crate::message::{Field, FieldInfo, Label, Leaf, Message, Table, View};

/// A type that can be encoded as the message `M`.
pub trait Describe<M> {
    /// Puts the fields, by ascending number. A missing field is absent; readers cannot decode a
    /// message without a required one.
    fn describe<O: Output>(&self, fields: &mut Fields<'_, M, O>);

    /// The identity under which its encoded bytes may be cached and reused; `None` is always
    /// correct.
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

/// Builds the described message.
pub fn build<M: Message + Table + Default>(value: &impl Describe<M>) -> M {
    let mut message = M::default();
    Fields::put_all(&mut MessageBuilder(&mut message), value);
    message
}

/// Position of a value in its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListPosition {
    /// The only value.
    Alone,
    /// The first of a list.
    First,
    /// A later one of a list.
    Next,
}

/// Receives a description: message by message, and the values of each by ascending field number.
pub trait Output {
    /// A value that is not a message.
    fn leaf(&mut self, entry: &'static FieldInfo, position: ListPosition, value: View<'_>);
    /// A message.
    fn message<M: Table>(
        &mut self,
        entry: &'static FieldInfo,
        position: ListPosition,
        value: &impl Describe<M>,
    );
    /// The end of a non-empty list.
    fn end_list(&mut self);
    /// An absent field with a default.
    fn absent(&mut self, entry: &'static FieldInfo, default: View<'static>);
    /// All fields of the current message.
    fn whole(&mut self, message: &dyn Message);
}

/// The fields of one message, to be put in order: each has a method of its name.
#[derive(Debug)]
pub struct Fields<'a, M, O> {
    out: &'a mut O,
    /// The highest number so far.
    last: u32,
    message: PhantomData<fn(&M)>,
}

impl<'a, M: Table, O: Output> Fields<'a, M, O> {
    /// Puts all fields of this value.
    #[inline]
    pub(crate) fn put_all(out: &'a mut O, value: &impl Describe<M>) {
        let mut fields = Self {
            out,
            last: 0,
            message: PhantomData,
        };
        value.describe(&mut fields);
        fields.put_absent_below(u32::MAX);
    }

    /// Puts one field.
    #[inline]
    pub(crate) fn put<T>(
        &mut self,
        entry: &'static FieldInfo,
        value: impl IntoField<T>,
    ) -> &mut Self {
        debug_assert!(entry.number > self.last, "{} is said too late", entry.name);
        self.put_absent_below(entry.number);
        if value.put_into(self.out, entry, ListPosition::Alone) {
            self.last = entry.number;
        }
        self
    }

    /// Puts all fields of an existing message.
    pub(crate) fn put_message(&mut self, message: &dyn Message) {
        self.out.whole(message);
        self.last = u32::MAX;
    }

    /// Reports the fields below this number that were not put as absent.
    #[inline]
    fn put_absent_below(&mut self, number: u32) {
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

/// A value that can be put into a field of type `T`, the field's type without boxes:
/// `Option<Label>`, `Vec<Resource>`.
pub trait IntoField<T> {
    /// Writes it; returns whether there was a value.
    fn put_into<O: Output>(
        self,
        out: &mut O,
        entry: &'static FieldInfo,
        position: ListPosition,
    ) -> bool;
}

impl<M: Table, D: Describe<M>> IntoField<M> for D {
    #[inline]
    fn put_into<O: Output>(
        self,
        out: &mut O,
        entry: &'static FieldInfo,
        position: ListPosition,
    ) -> bool {
        out.message::<M>(entry, position, &self);
        true
    }
}

impl<T, G: IntoField<T>> IntoField<Option<T>> for Option<G> {
    #[inline]
    fn put_into<O: Output>(
        self,
        out: &mut O,
        entry: &'static FieldInfo,
        position: ListPosition,
    ) -> bool {
        self.is_some_and(|value| value.put_into(out, entry, position))
    }
}

/// The values of a list.
#[derive(Clone, Copy, Debug)]
pub struct Each<I>(pub I);

impl<T, I: IntoIterator<Item: IntoField<T>>> IntoField<Vec<T>> for Each<I> {
    #[inline]
    fn put_into<O: Output>(self, out: &mut O, entry: &'static FieldInfo, _: ListPosition) -> bool {
        let mut position = ListPosition::First;
        for value in self.0 {
            if value.put_into(out, entry, position) {
                position = ListPosition::Next;
            }
        }
        let is_some = position == ListPosition::Next;
        if is_some {
            out.end_list();
        }
        is_some
    }
}

impl<T, G: IntoField<T>> IntoField<Vec<T>> for Vec<G> {
    fn put_into<O: Output>(
        self,
        out: &mut O,
        entry: &'static FieldInfo,
        position: ListPosition,
    ) -> bool {
        Each(self).put_into(out, entry, position)
    }
}

/// Types that are not messages.
macro_rules! leaves {
    ($($given:ty as $type:ty: $value:ident => $view:expr;)*) => {$(
        impl IntoField<$type> for $given {
            #[inline]
            fn put_into<O: Output>(self, out: &mut O, entry: &'static FieldInfo, position: ListPosition) -> bool {
                let $value = &self;
                out.leaf(entry, position, $view);
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

/// Builds the message itself.
struct MessageBuilder<'a>(&'a mut dyn Message);

impl Output for MessageBuilder<'_> {
    fn leaf(&mut self, entry: &'static FieldInfo, _: ListPosition, value: View<'_>) {
        if let Some(field) = self.0.field_mut(entry.number) {
            put(field, "", value);
        }
    }

    fn message<M: Table>(
        &mut self,
        entry: &'static FieldInfo,
        _: ListPosition,
        value: &impl Describe<M>,
    ) {
        let field = self.0.field_mut(entry.number);
        if let Some(message) = field.and_then(Field::open) {
            Fields::put_all(&mut MessageBuilder(message), value);
        }
    }

    fn end_list(&mut self) {}

    fn absent(&mut self, _: &'static FieldInfo, _: View<'static>) {}

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

/// Adds one value to a field.
fn put(field: &mut dyn Field, key: &str, value: View<'_>) {
    if field.label() == Label::Map {
        if let Some(position) = field.entry(key) {
            put(position, "", value);
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
    // Cannot fail: the value has the field's type.
    let _ = field.take(leaf);
}
