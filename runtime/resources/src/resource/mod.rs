//! One resource: a name, a value and annotations.
//!
//! Thirty-two bytes: a well-known name is one byte, an amount is in place, and the rare parts
//! (annotations, the text of other names) are behind one shared pointer. `annotation`, `disk` and
//! `allocation` are those annotations.

pub(crate) mod allocation;
pub(crate) mod annotation;
pub(crate) mod disk;

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use crate::error::Invalid;
use crate::resource::annotation::{Annotations, Reservation, Revocable};
use crate::role::Role;
use crate::value::Value;
use crate::value::name::{Kind, Name, OtherName};
use crate::value::scalar::Scalar;
use crate::value::symbol::Symbol;

/// One kind of resource and its amount. Always valid: an invalid one cannot be built.
///
/// An indivisible one (a persistent volume, a MOUNT disk) is counted: [`Resource::copies`] is the
/// number of times that a collection contains it. For a shared volume this is the number of users.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Resource {
    kind: Kind,
    pub(crate) copies: u32,
    pub(crate) value: Value,
    note: Note,
}

/// The rare part; most resources have none.
type Note = Option<Arc<Rare>>;

#[derive(Clone, PartialEq, Eq, Hash)]
struct Rare {
    /// The beginning of the annotations' order as a number, so that roles' texts are seldom
    /// compared.
    order: u128,
    annotations: Annotations,
    name: Option<Symbol>,
}

static PLAIN: Annotations = Annotations::NONE;

impl Resource {
    /// A plain resource: unreserved, regular, not allocated.
    pub fn new(name: Name, value: impl Into<Value>) -> Result<Self, Invalid> {
        Self::annotated(name, value, Annotations::NONE)
    }

    /// A resource with these annotations.
    pub fn annotated(
        name: Name,
        value: impl Into<Value>,
        annotations: Annotations,
    ) -> Result<Self, Invalid> {
        let value = value.into();
        check_type(&name, &value)?;
        if annotations.disk.is_some() && name != Name::Disk {
            return Err(Invalid::new(
                "disk",
                name,
                "disk information on `disk` resources only",
            ));
        }
        annotations.check()?;
        Ok(Self::raw(name, value, annotations))
    }

    /// Like [`Resource::annotated`]; shares the note of `like` if the annotations are equal.
    pub(crate) fn annotated_like(
        name: Name,
        value: Value,
        annotations: Annotations,
        like: Option<&Resource>,
    ) -> Result<Self, Invalid> {
        // A note with its own name, or checked for certain names only, is not shared.
        let shares = |like: &&Resource| {
            !matches!(name, Name::Other(_))
                && annotations.disk.is_none()
                && like.kind != Kind::Other
                && *like.annotations() == annotations
        };
        let Some(like) = like.filter(shares) else {
            return Self::annotated(name, value, annotations);
        };
        check_type(&name, &value)?;
        Ok(Self {
            kind: name.kind(),
            copies: 1,
            value,
            note: like.note.clone(),
        })
    }

    /// A resource that the caller knows to be valid.
    pub(crate) fn raw(name: Name, value: Value, annotations: Annotations) -> Self {
        let kind = name.kind();
        let name = match name {
            Name::Other(OtherName(symbol)) => Some(symbol),
            _ => None,
        };
        Self {
            kind,
            copies: 1,
            value,
            note: seal(annotations, name),
        }
    }

    /// Its name.
    pub fn name(&self) -> Name {
        match self.kind {
            Kind::Cpus => Name::Cpus,
            Kind::Mem => Name::Mem,
            Kind::Disk => Name::Disk,
            Kind::Gpus => Name::Gpus,
            Kind::Ports => Name::Ports,
            Kind::Other => Name::Other(OtherName(self.symbol().unwrap_or_else(|| Symbol::new("")))),
        }
    }

    /// Its name as text.
    pub fn name_str(&self) -> &str {
        match &self.note {
            Some(_) if self.kind == Kind::Other => self.symbol_ref().map_or("", Symbol::as_str),
            _ => self.kind.as_str(),
        }
    }

    /// Whether it is called `name`. Does not allocate.
    pub fn is(&self, name: &Name) -> bool {
        match name {
            Name::Other(OtherName(symbol)) => {
                self.kind == Kind::Other
                    && self
                        .note
                        .as_ref()
                        .is_some_and(|rare| rare.name.as_ref() == Some(symbol))
            }
            known => self.kind == known.kind(),
        }
    }

    /// The value of one copy.
    #[inline]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The number of copies of an indivisible resource; 1 for all others.
    #[inline]
    pub fn copies(&self) -> u32 {
        self.copies
    }

    /// The amount that it adds to a total: a shared one counts once for all of its users.
    pub fn amount(&self) -> Option<Scalar> {
        let once = self.value.as_scalar()?;
        Some(if self.copies == 1 || self.is_shared() {
            once
        } else {
            once.saturating_mul(self.copies)
        })
    }

    /// Its annotations.
    #[inline]
    pub fn annotations(&self) -> &Annotations {
        self.note.as_ref().map_or(&PLAIN, |rare| &rare.annotations)
    }

    /// The stack of reservations, the current owner last.
    pub fn reservations(&self) -> &[Reservation] {
        &self.annotations().reservations
    }

    /// The current owner's reservation, if there is one.
    pub fn reservation(&self) -> Option<&Reservation> {
        self.reservations().last()
    }

    /// The role that it is reserved for now, or `*`.
    pub fn role(&self) -> &Role {
        static STAR: Role = Role::STAR;
        self.reservation().map_or(&STAR, |entry| &entry.role)
    }

    /// Whether it is reserved.
    #[inline]
    pub fn is_reserved(&self) -> bool {
        self.note.is_some() && !self.reservations().is_empty()
    }

    /// Whether it is open to every role: regular and unreserved.
    #[inline]
    pub fn is_open(&self) -> bool {
        !self.is_reserved() && !self.is_revocable()
    }

    /// Whether it can be taken back at any time.
    #[inline]
    pub fn is_revocable(&self) -> bool {
        self.note.is_some() && self.annotations().revocable.is_some()
    }

    /// Whether it is revocable and may also be throttled.
    pub fn is_throttleable(&self) -> bool {
        self.annotations().revocable == Some(Revocable::Throttleable)
    }

    /// Whether several tasks may use it at the same time.
    pub fn is_shared(&self) -> bool {
        self.annotations().shared
    }

    /// Whether it is a persistent volume.
    pub fn is_persistent_volume(&self) -> bool {
        self.annotations().is_persistent_volume()
    }

    /// Whether it never merges or splits.
    #[inline]
    pub fn is_indivisible(&self) -> bool {
        self.note.is_some() && self.annotations().is_indivisible()
    }

    /// The role that it is allocated to, if any.
    pub fn allocation_role(&self) -> Option<&Role> {
        self.annotations().allocation.as_ref()
    }

    /// Whether it may be allocated to `role`: unreserved, or reserved for the role or an ancestor.
    pub fn is_allocatable_to(&self, role: &Role) -> bool {
        !self.is_reserved() || role.is_within(self.role())
    }

    /// The same resource with one more reservation on its stack.
    pub fn push_reservation(&self, reservation: Reservation) -> Result<Self, Invalid> {
        let mut annotations = self.annotations().clone();
        annotations.reservations.push(reservation);
        annotations.check()?;
        Ok(self.with(annotations))
    }

    /// The same resource without its newest reservation, which must be dynamic.
    pub fn pop_reservation(&self) -> Result<Self, Invalid> {
        use crate::resource::annotation::ReservationKind::Dynamic;
        let mut annotations = self.annotations().clone();
        match annotations.reservations.pop() {
            Some(entry) if entry.kind == Dynamic => Ok(self.with(annotations)),
            Some(_) => Err(Invalid::new(
                "reservations",
                "STATIC",
                "a dynamic reservation to remove",
            )),
            None => Err(Invalid::new(
                "reservations",
                "empty",
                "a dynamic reservation to remove",
            )),
        }
    }

    /// Reduces its amount to `most`; returns `false` and changes nothing if it cannot be reduced.
    /// Only amounts can be.
    pub fn shrink(&mut self, most: Scalar) -> bool {
        let Value::Scalar(amount) = &mut self.value else {
            return false;
        };
        if *amount <= most {
            return true;
        }
        if self
            .note
            .as_ref()
            .is_some_and(|rare| rare.annotations.is_indivisible())
        {
            return false;
        }
        // Graphics processors are not divisible.
        let step = if self.kind == Kind::Gpus {
            most.thousandths() % 1000
        } else {
            0
        };
        *amount = most.saturating_sub(Scalar::from_thousandths(step).unwrap_or_default());
        true
    }

    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether it has annotations, or a name that is not well known.
    #[inline]
    pub(crate) fn has_note(&self) -> bool {
        self.note.is_some()
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.note
            .as_ref()
            .is_none_or(|rare| rare.annotations.is_none())
    }

    /// The same resource with other annotations, which the caller knows to be valid.
    pub(crate) fn with(&self, annotations: Annotations) -> Self {
        self.noted(seal(annotations, self.symbol()))
    }

    /// The same resource with the annotations of `like`, whose pointer is shared.
    pub(crate) fn with_note_of(&self, like: &Resource) -> Self {
        self.noted(like.note.clone())
    }

    fn noted(&self, note: Note) -> Self {
        Self {
            kind: self.kind,
            copies: self.copies,
            value: self.value.clone(),
            note,
        }
    }

    /// Whether the two share one note, so that both change alike.
    pub(crate) fn shares_note(&self, other: &Resource) -> bool {
        match (&self.note, &other.note) {
            (None, None) => self.kind != Kind::Other,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// Whether `other` can share this note: not if either's own name is part of it.
    pub(crate) fn can_share_note_with(&self, other: &Resource) -> bool {
        self.kind != Kind::Other && other.kind != Kind::Other
    }

    /// Shares the note of `other` if it is equal: saves an allocation, and is faster to compare.
    pub(crate) fn reuse_note_of(&mut self, other: &Resource) {
        if let (Some(own), Some(like)) = (&self.note, &other.note)
            && !Arc::ptr_eq(own, like)
            && own == like
        {
            self.note = other.note.clone();
        }
    }

    /// This resource with another value.
    pub(crate) fn of(&self, value: Value) -> Self {
        Self {
            kind: self.kind,
            copies: 1,
            value,
            note: self.note.clone(),
        }
    }

    fn symbol_ref(&self) -> Option<&Symbol> {
        self.note.as_ref().and_then(|rare| rare.name.as_ref())
    }

    fn symbol(&self) -> Option<Symbol> {
        self.symbol_ref().cloned()
    }

    /// The order of slots in a collection. Equal means that the two can be added.
    #[inline]
    pub(crate) fn cmp_slot(&self, other: &Self) -> Ordering {
        if self.note.is_none() && other.note.is_none() {
            return self.kind.cmp(&other.kind);
        }
        self.cmp_noted(other)
    }

    fn cmp_noted(&self, other: &Self) -> Ordering {
        if let (Some(a), Some(b)) = (&self.note, &other.note)
            && Arc::ptr_eq(a, b)
        {
            return self.cmp_named(other, a);
        }
        let order = |note: &Note| note.as_ref().map_or(0, |rare| rare.order);
        order(&self.note)
            .cmp(&order(&other.note))
            .then_with(|| self.annotations().cmp(other.annotations()))
            .then_with(|| self.kind.cmp(&other.kind))
            .then_with(|| self.symbol_ref().cmp(&other.symbol_ref()))
            .then_with(|| self.cmp_valued(other, self.is_indivisible()))
    }

    fn cmp_named(&self, other: &Self, note: &Rare) -> Ordering {
        let indivisible = note.annotations.disk.is_some() && note.annotations.is_indivisible();
        self.kind
            .cmp(&other.kind)
            .then_with(|| self.cmp_valued(other, indivisible))
    }

    fn cmp_valued(&self, other: &Self, indivisible: bool) -> Ordering {
        let types = self.value.type_rank().cmp(&other.value.type_rank());
        if indivisible {
            types.then_with(|| self.value.cmp(&other.value))
        } else {
            types
        }
    }

    /// Whether `other`, of the same slot, is contained.
    #[inline]
    pub(crate) fn slot_contains(&self, other: &Self) -> bool {
        if self.note.is_some() && self.is_indivisible() {
            self.copies >= other.copies
        } else {
            self.value.contains(&other.value)
        }
    }

    /// Adds `other`, of the same slot.
    #[inline]
    pub(crate) fn slot_add(&mut self, other: &Self) {
        if self.note.is_some() && self.is_indivisible() {
            self.copies = self.copies.saturating_add(other.copies);
        } else {
            self.value.add(&other.value);
        }
    }

    /// Whether adding `other`, of the same slot, would lose nothing.
    pub(crate) fn slot_adds_exactly(&self, other: &Self) -> bool {
        if self.is_indivisible() {
            self.copies.checked_add(other.copies).is_some()
        } else {
            self.value.adds_exactly(&other.value)
        }
    }

    /// Subtracts `other`, of the same slot, as far as possible.
    #[inline]
    pub(crate) fn slot_subtract(&mut self, other: &Self) {
        if self.note.is_some() && self.is_indivisible() {
            self.copies = self.copies.saturating_sub(other.copies);
        } else {
            self.value.subtract(&other.value);
        }
    }

    /// Whether it is empty.
    #[inline]
    pub(crate) fn is_empty_value(&self) -> bool {
        self.copies == 0 || self.value.is_empty()
    }
}

/// Puts the rare part behind a pointer, if there is one.
fn seal(annotations: Annotations, name: Option<Symbol>) -> Note {
    (name.is_some() || !annotations.is_none()).then(|| {
        let order = order_of(&annotations);
        Arc::new(Rare {
            order,
            annotations,
            name,
        })
    })
}

/// The first sixteen bytes of the annotations' order: flags for revocable, lender, allocation and
/// reservations, and the beginning of the first role.
fn order_of(notes: &Annotations) -> u128 {
    let mut key = [0; 16];
    key[0] = match notes.revocable {
        None => 0,
        Some(Revocable::NonThrottleable) => 1,
        Some(Revocable::Throttleable) => 2,
    };
    let (role, mark, at) = match (&notes.lender, &notes.allocation, notes.reservations.first()) {
        (Some(lender), _, _) => (lender, 1, 1),
        (None, Some(allocation), _) => (allocation, 1, 2),
        (None, None, Some(bottom)) => (&bottom.role, 1 + bottom.kind as u8, 3),
        (None, None, None) => return u128::from_be_bytes(key),
    };
    key[at] = mark;
    if !role.is_star() {
        key[at + 1..]
            .iter_mut()
            .zip(role.as_str().bytes())
            .for_each(|(to, byte)| *to = byte);
    }
    u128::from_be_bytes(key)
}

/// Well-known names have one type each; graphics processors are whole.
fn check_type(name: &Name, value: &Value) -> Result<(), Invalid> {
    let expected = match (name, value) {
        (Name::Gpus, Value::Scalar(amount)) if !amount.is_whole() => "a whole number",
        (Name::Cpus | Name::Mem | Name::Disk | Name::Gpus, Value::Ranges(_) | Value::Set(_)) => {
            "a number"
        }
        (Name::Ports, Value::Scalar(_) | Value::Set(_)) => "ranges, e.g. [31000-32000]",
        _ => return Ok(()),
    };
    Err(Invalid::new(name.as_str(), value, expected))
}

impl fmt::Display for Resource {
    /// A short form for people: `cpus(ads):8`, `cpus{revocable}:0.45`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::value::text::write_brief(self, f)
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::set::Set;

    #[test]
    fn a_resource_is_half_a_cache_line() {
        assert_eq!(size_of::<Value>(), 16);
        assert_eq!(size_of::<Resource>(), 32);
    }

    #[test]
    fn well_known_names_have_types_and_gpus_are_whole() {
        let set = Set::new(["a"]).unwrap();
        assert!(Resource::new(Name::Cpus, set.clone()).is_err());
        assert!(Resource::new(Name::Ports, Scalar::whole(1)).is_err());
        assert!(Resource::new(Name::new("bugs").unwrap(), set).is_ok());
        let half = Resource::new(Name::Gpus, Scalar::new(0.5).unwrap()).unwrap_err();
        assert_eq!(half.to_string(), "gpus is `0.5`: expected a whole number");
    }

    #[test]
    fn only_dynamic_reservations_can_be_removed() {
        let role = |text: &str| Role::new(text).unwrap();
        let plain = Resource::new(Name::Cpus, Scalar::whole(1)).unwrap();
        let fixed = plain
            .push_reservation(Reservation::fixed(role("eng")))
            .unwrap();
        let refined = fixed
            .push_reservation(Reservation::dynamic(role("eng/web/x"), Some("ops")))
            .unwrap();
        assert_eq!(refined.role(), &role("eng/web/x"));
        assert_eq!(refined.pop_reservation().unwrap(), fixed);
        assert!(fixed.pop_reservation().is_err() && plain.pop_reservation().is_err());
        for bad in ["*", "eng", "ops", "engine"] {
            assert!(
                fixed
                    .push_reservation(Reservation::dynamic(role(bad), None))
                    .is_err(),
                "{bad}"
            );
        }
        assert!(
            fixed
                .push_reservation(Reservation::fixed(role("eng/web")))
                .is_err()
        );
    }
}
