//! The Resources algebra: the resources of agents, offers and tasks (SPEC 2.8, 5.1).
//!
//! A [`Resource`] is a name, a value (an amount in thousandths, ranges of numbers, or a set) and
//! annotations: the stack of reservations, disk, revocable, lender, shared, provider, and the role
//! it is allocated to. [`Resources`] is a canonical collection of them: equal content is an equal
//! value, independent of the order of additions. Pure: no actor, no I/O, no clock.
//!
//! | module | contents |
//! |---|---|
//! | `attributes` | properties of an agent, for frameworks to interpret |
//! | `error` | errors about values |
//! | `json` | resource objects of the v1 API, and flat objects of v0 |
//! | `resource` | one resource: a name, a value and annotations |
//! | `resources` | the canonical collection, its arithmetic and its views |
//! | `role` | roles: a path of components, or `*` for unreserved resources |
//! | `value` | amounts, ranges and sets, and their text form |
//! | `wire` | the serde form, validated when it is read |
//!
//! ```
//! use meros_resources::{Resources, Role};
//!
//! let agent: Resources = "cpus:4;mem:2048;cpus(ads):8;ports:[31000-32000]".parse()?;
//! let task: Resources = "cpus:0.1;ports:[31000-31001]".parse()?;
//! let rest = agent.checked_sub(&task)?;
//! assert_eq!(rest.to_string(), "cpus:3.9;mem:2048;ports:[31002-32000];cpus(ads):8");
//! assert_eq!(rest.reserved(&Role::new("ads")?).cpus().as_f64(), 8.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Laws (see `tests/laws.rs`)
//!
//! - `(a + b) - b == a`, if no port or item of `b` is already in `a`;
//! - `a` contains `b` if and only if `a - b` exists;
//! - the order of addition does not matter;
//! - text, JSON and wire form round-trip.
//!
//! # Memory layout
//!
//! This is the hot data type of the allocator, so the common case (a few plain amounts and one list
//! of ports) uses the heap for the ports only:
//!
//! | type | bytes | layout |
//! |---|---|---|
//! | [`Scalar`] | 8 | thousandths as an integer |
//! | [`Value`] | 16 | an amount in place; ranges and sets behind an `Arc`, copied on write |
//! | [`Role`] | 8 | interned: one pointer, none for `*`; equality is a pointer comparison |
//! | [`Name`] | 16 | the five well-known ones without heap, others interned |
//! | [`Resource`] | 32 | kind (1), copies (4), value (16), an `Option<Arc<..>>` for rare parts |
//! | [`Quantities`] | 64 | the amounts of four well-known names in place, others on the heap |
//! | [`Resources`] | 168 | sorted, five in place, more on the heap |
//!
//! Entries are sorted by annotations and then by name, so that a change of a large collection is a
//! search, not a scan, and two plain ones are compared without following a pointer.

mod attributes;
mod error;
pub mod json;
mod resource;
mod resources;
mod role;
mod value;
mod wire;

pub use attributes::{Attribute, AttributeValue, Attributes, Number};
pub use error::{Invalid, ParseError, Shortage, excerpt, shortened};
pub use resource::Resource;
pub use resource::allocation::Allocation;
pub use resource::annotation::{
    Annotations, Label, Labels, Reservation, ReservationKind, Revocable,
};
pub use resource::disk::{DiskInfo, DiskSource, Persistence, SourceKind, Volume, VolumeMode};
pub use resources::Resources;
pub use resources::conversion::{Conversion, ConversionError, Converted};
pub use resources::quantities::Quantities;
pub use role::Role;
pub use value::Value;
pub use value::name::{Name, OtherName};
pub use value::ranges::{Range, Ranges};
pub use value::scalar::Scalar;
pub use value::set::Set;
