//! Annotations of a resource: reservations, revocability, disk, allocation and others.
//!
//! Most resources have none, so they are behind one pointer. This module checks that annotations
//! are consistent; permission to reserve is decided elsewhere.

use std::cmp::Ordering;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::Invalid;
use crate::resource::disk::{DiskInfo, SourceKind};
use crate::role::Role;

/// The origin of a reservation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum ReservationKind {
    /// The agent's `--resources`. Only the bottom of a stack can be static.
    Static,
    /// An operation of an operator or a framework.
    Dynamic,
}

/// A user-defined key with an optional value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Label {
    /// The label's key.
    pub key: String,
    /// The label's value, if it has one.
    pub value: Option<String>,
}

/// Labels, sorted: their original order has no meaning. Copies share them, since annotated
/// resources are copied often.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Labels(Option<Arc<[Label]>>);

impl Labels {
    /// Sorts the labels.
    pub fn new(mut labels: Vec<Label>) -> Self {
        labels.sort();
        Self((!labels.is_empty()).then(|| labels.into()))
    }

    /// No labels.
    pub const fn none() -> Self {
        Self(None)
    }

    /// The labels in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Label> {
        self.as_slice().iter()
    }

    /// Whether there are no labels.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    fn as_slice(&self) -> &[Label] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl PartialOrd for Labels {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Labels {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Some(own), Some(like)) if Arc::ptr_eq(own, like) => Ordering::Equal,
            _ => self.as_slice().cmp(other.as_slice()),
        }
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_slice().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::new)
    }
}

/// One reservation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Reservation {
    /// Static or dynamic.
    pub kind: ReservationKind,
    /// The role that it is for; never `*`.
    pub role: Role,
    /// The principal that made it, if known.
    pub principal: Option<String>,
    /// Labels. Reservations with different labels never merge.
    pub labels: Labels,
}

impl Reservation {
    /// A static reservation for `role`.
    pub fn fixed(role: Role) -> Self {
        Self {
            kind: ReservationKind::Static,
            role,
            principal: None,
            labels: Labels::none(),
        }
    }

    /// A dynamic reservation for `role`, made by `principal`.
    pub fn dynamic(role: Role, principal: Option<&str>) -> Self {
        let principal = principal.map(str::to_owned);
        Self {
            kind: ReservationKind::Dynamic,
            role,
            principal,
            labels: Labels::none(),
        }
    }
}

/// Kinds of resources that can be taken back at any time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Revocable {
    /// Taking it back ends the task and never slows it down (allocation slack).
    NonThrottleable,
    /// The task may also be throttled: `throttle_info` is set (usage slack).
    Throttleable,
}

/// All properties of a resource except its name and value.
///
/// The order of the fields is the order of a collection: regular resources come first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Annotations {
    /// Set if the resource can be taken back at any time.
    pub revocable: Option<Revocable>,
    /// The role whose idle reservation this is. For accounting only, hidden from tenants
    /// (SPEC 4.9).
    pub lender: Option<Role>,
    /// The role that it is allocated to, while it is offered or used.
    pub allocation: Option<Role>,
    /// The stack of reservations, the current owner last; empty if unreserved.
    pub reservations: Vec<Reservation>,
    /// The disk, and the volume on it.
    pub disk: Option<Box<DiskInfo>>,
    /// Whether several tasks may use it at the same time; for persistent volumes only.
    pub shared: bool,
    /// The resource provider; none for the agent's own resources.
    pub provider: Option<Box<str>>,
}

impl Annotations {
    pub(crate) const NONE: Annotations = Annotations {
        revocable: None,
        lender: None,
        allocation: None,
        reservations: Vec::new(),
        disk: None,
        shared: false,
        provider: None,
    };

    /// Whether there is no annotation.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// Whether such a resource never merges or splits: a persistent volume, a MOUNT or BLOCK disk,
    /// or a RAW disk with an id (SPEC 2.8).
    pub fn is_indivisible(&self) -> bool {
        let Some(disk) = &self.disk else { return false };
        disk.persistence.is_some()
            || disk
                .source
                .as_ref()
                .is_some_and(|source| match source.kind {
                    SourceKind::Path => false,
                    SourceKind::Mount | SourceKind::Block => true,
                    SourceKind::Raw => source.id.is_some(),
                })
    }

    pub(crate) fn is_persistent_volume(&self) -> bool {
        self.disk
            .as_ref()
            .is_some_and(|disk| disk.persistence.is_some())
    }

    /// Checks that the annotations are consistent.
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        check_stack(&self.reservations)?;
        if let Some(disk) = &self.disk {
            disk.check().map_err(|bad| bad.within("disk"))?;
        }
        if let Some(provider) = &self.provider {
            check_id("provider_id", provider)?;
        }
        if self.shared && !self.is_persistent_volume() {
            return Err(Invalid::new(
                "shared",
                "set",
                "a persistent volume: nothing else can be shared",
            ));
        }
        if self.revocable.is_some() {
            if self.is_persistent_volume() {
                return Err(Invalid::new(
                    "revocable",
                    "set",
                    "no persistent volume on revocable disk",
                ));
            }
            if self
                .reservations
                .iter()
                .any(|entry| entry.kind == ReservationKind::Dynamic)
            {
                return Err(Invalid::new(
                    "revocable",
                    "set",
                    "no dynamic reservation of revocable resources",
                ));
            }
        }
        match &self.lender {
            Some(lender)
                if self.revocable.is_none()
                    || !self.reservations.is_empty()
                    || lender.is_star() =>
            {
                let expected = "a role that lends, on an unreserved and revocable resource";
                Err(Invalid::new("lender", lender, expected))
            }
            _ => Ok(()),
        }
    }
}

/// Checks a stack (SPEC 2.8): no role is `*`, each role is below the previous one, only the bottom
/// may be static.
fn check_stack(stack: &[Reservation]) -> Result<(), Invalid> {
    for (n, entry) in stack.iter().enumerate() {
        let field = |name: &str| format!("reservations[{n}].{name}");
        if entry.role.is_star() {
            return Err(Invalid::new(field("role"), "*", "a role other than `*`"));
        }
        let Some(below) = n.checked_sub(1).map(|n| &stack[n]) else {
            continue;
        };
        if !entry.role.is_strict_subrole_of(&below.role) {
            let expected = format!("a role strictly below `{}`, which it refines", below.role);
            return Err(Invalid::new(field("role"), &entry.role, expected));
        }
        if entry.kind == ReservationKind::Static {
            return Err(Invalid::new(
                field("type"),
                "STATIC",
                "DYNAMIC: only the bottom may be static",
            ));
        }
    }
    Ok(())
}

/// Checks an id (SPEC 2.8).
pub(crate) fn check_id(field: &str, id: &str) -> Result<(), Invalid> {
    let forbidden = |c: char| c.is_control() || c == '/' || c == '\\';
    if id.is_empty()
        || id == "."
        || id == ".."
        || id.chars().count() > 255
        || id.contains(forbidden)
    {
        let expected =
            "1 to 255 characters, not `.` or `..`, without slashes or control characters";
        return Err(Invalid::new(field, id, expected));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(keys: &[&str]) -> Labels {
        let label = |key: &&str| Label {
            key: (*key).to_owned(),
            value: None,
        };
        Labels::new(keys.iter().map(label).collect())
    }

    #[test]
    fn labels_are_sorted_and_shared() {
        let all = [&[][..], &["a"], &["a", "b"], &["b"]].map(labels);
        assert!(all.is_sorted_by(|one, next| one < next), "{all:?}");
        assert_eq!(labels(&["b", "a"]), all[2]);
        assert_eq!((&all[0], all[0].is_empty()), (&Labels::none(), true));
        let copy = all[2].clone();
        let same = |(one, other): (&Label, &Label)| std::ptr::eq(one, other);
        assert!(copy.iter().zip(all[2].iter()).all(same) && copy.iter().len() == 2);
        assert_eq!(copy.cmp(&all[2]), Ordering::Equal);
    }
}
