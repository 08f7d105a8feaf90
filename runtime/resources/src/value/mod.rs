//! A resource's value: an amount, ranges or a set.
//!
//! Sixteen bytes: an amount is in place, the others are behind a shared pointer with copy on write.
//!
//! | module | contents |
//! |---|---|
//! | `name` | names of resources; the five well-known ones are free to copy |
//! | `ranges` | ranges of whole numbers: sorted, disjoint and coalesced |
//! | `scalar` | amounts: fixed point, exact to a thousandth, never negative |
//! | `set` | sets of texts: sorted, each once |
//! | `symbol` | interned texts |
//! | `text` | the text form `name(role):value;...` of `--resources` |

pub(crate) mod name;
pub(crate) mod ranges;
pub(crate) mod scalar;
pub(crate) mod set;
pub(crate) mod symbol;
pub(crate) mod text;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::value::ranges::Ranges;
use crate::value::scalar::Scalar;
use crate::value::set::Set;

/// The amount or content of a resource.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Value {
    /// An amount, e.g. of cpus.
    Scalar(Scalar),
    /// Ranges of numbers, e.g. ports.
    Ranges(Arc<Ranges>),
    /// A set of items.
    Set(Arc<Set>),
}

impl Value {
    /// Whether it is zero or an empty collection. Such a value is never stored.
    #[inline]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Scalar(amount) => amount.is_zero(),
            Self::Ranges(ranges) => ranges.is_empty(),
            Self::Set(set) => set.is_empty(),
        }
    }

    /// The amount, if it is one.
    #[inline]
    pub fn as_scalar(&self) -> Option<Scalar> {
        match self {
            Self::Scalar(amount) => Some(*amount),
            _ => None,
        }
    }

    /// The ranges, if it has ranges.
    pub fn as_ranges(&self) -> Option<&Ranges> {
        match self {
            Self::Ranges(ranges) => Some(ranges),
            _ => None,
        }
    }

    /// The set, if it is one.
    pub fn as_set(&self) -> Option<&Set> {
        match self {
            Self::Set(set) => Some(set),
            _ => None,
        }
    }

    /// The type's name in the v1 API.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Scalar(_) => "SCALAR",
            Self::Ranges(_) => "RANGES",
            Self::Set(_) => "SET",
        }
    }

    #[inline]
    pub(crate) fn type_rank(&self) -> u8 {
        match self {
            Self::Scalar(_) => 0,
            Self::Ranges(_) => 1,
            Self::Set(_) => 2,
        }
    }

    /// Whether `other` is contained. Values of different types contain nothing of each other.
    #[inline]
    pub fn contains(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Scalar(own), Self::Scalar(wanted)) => own >= wanted,
            (Self::Ranges(own), Self::Ranges(wanted)) => {
                Arc::ptr_eq(own, wanted) || own.contains(wanted)
            }
            (Self::Set(own), Self::Set(wanted)) => own.contains(wanted),
            _ => false,
        }
    }

    /// Adds `other`; another type is ignored, since a slot has one type.
    #[inline]
    pub(crate) fn add(&mut self, other: &Self) {
        match (self, other) {
            (Self::Scalar(own), Self::Scalar(new)) => *own += *new,
            (Self::Ranges(own), Self::Ranges(new)) => Arc::make_mut(own).add(new),
            (Self::Set(own), Self::Set(new)) => Arc::make_mut(own).add(new),
            _ => {}
        }
    }

    /// Whether adding `other` would lose nothing: no overflow, and no number or item that is
    /// already there.
    pub(crate) fn adds_exactly(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Scalar(own), Self::Scalar(new)) => own.checked_add(*new).is_some(),
            (Self::Ranges(own), Self::Ranges(new)) => own.is_disjoint(new),
            (Self::Set(own), Self::Set(new)) => own.is_disjoint(new),
            _ => true,
        }
    }

    /// Subtracts `other`, as far as possible.
    #[inline]
    pub(crate) fn subtract(&mut self, other: &Self) {
        match (self, other) {
            (Self::Scalar(own), Self::Scalar(less)) => *own = own.saturating_sub(*less),
            // Often all of it: then no copy is made.
            (Self::Ranges(own), Self::Ranges(less)) if Arc::ptr_eq(own, less) => {
                *own = Arc::default();
            }
            (Self::Ranges(own), Self::Ranges(less)) => Arc::make_mut(own).subtract(less),
            (Self::Set(own), Self::Set(less)) => Arc::make_mut(own).subtract(less),
            _ => {}
        }
    }

    /// The common part of both.
    pub(crate) fn intersection(&self, other: &Self) -> Option<Self> {
        let both = match (self, other) {
            (Self::Scalar(own), Self::Scalar(wanted)) => Self::Scalar(*own.min(wanted)),
            (Self::Ranges(own), Self::Ranges(wanted)) => own.intersection(wanted).into(),
            (Self::Set(own), Self::Set(wanted)) => own.intersection(wanted).into(),
            _ => return None,
        };
        (!both.is_empty()).then_some(both)
    }
}

impl From<Scalar> for Value {
    fn from(amount: Scalar) -> Self {
        Self::Scalar(amount)
    }
}

impl From<Ranges> for Value {
    fn from(ranges: Ranges) -> Self {
        Self::Ranges(Arc::new(ranges))
    }
}

impl From<Set> for Value {
    fn from(set: Set) -> Self {
        Self::Set(Arc::new(set))
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scalar(amount) => amount.fmt(f),
            Self::Ranges(ranges) => fmt::Display::fmt(ranges, f),
            Self::Set(set) => fmt::Display::fmt(set, f),
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
