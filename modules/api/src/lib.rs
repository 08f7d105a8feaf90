//! The interface of each kind of module, and the `--modules` loader (DESIGN sections 6 to 8, SPEC 5.9).
//!
//! A module is an actor behind a name and [`Parameters`]. Each kind is one file: its messages, and the handle that its user holds.
//! A module's failure is a typed [`ModuleError`], never a panic or a stall of the service that uses it.

pub mod allocator;
pub mod error;
pub mod manifest;
pub mod parameters;
pub mod qos_controller;
pub mod registry;
pub mod resource_estimator;
pub mod sorter;
pub mod usage;

pub use allocator::AllocatorRef;
pub use error::{Fault, ModuleError, ModuleKind};
pub use manifest::{Manifest, ManifestError};
pub use parameters::Parameters;
pub use qos_controller::QosControllerRef;
pub use registry::Registry;
pub use resource_estimator::ResourceEstimatorRef;
pub use sorter::SorterRef;
pub use usage::{CurrentUsage, UsageUnavailable};
