//! Values, attributes and resources.

use crate::message::{enums, messages};
use crate::schema::{Labels, ResourceProviderID, Volume};

messages! {
    /// A value of any type.
    Value {
        1 r#type: ValueType,
        2 scalar: Option<ValueScalar>,
        3 ranges: Option<ValueRanges>,
        4 set: Option<ValueSet>,
        5 text: Option<ValueText>,
    }

    /// A number.
    ValueScalar {
        1 value: f64,
    }

    /// Integers, both ends included.
    ValueRange {
        1 begin: u64,
        2 end: u64,
    }

    /// Integers as ranges.
    ValueRanges {
        1 range: Vec<ValueRange>,
    }

    /// Texts.
    ValueSet {
        1 item: Vec<String>,
    }

    /// Text.
    ValueText {
        1 value: String,
    }

    /// An agent's attribute, which frameworks interpret.
    Attribute {
        1 name: String,
        2 r#type: ValueType,
        3 scalar: Option<ValueScalar>,
        4 ranges: Option<ValueRanges>,
        5 text: Option<ValueText>,
        6 set: Option<ValueSet>,
    }

    /// A resource: an amount, ranges or a set, with annotations.
    Resource {
        1 name: String,
        2 r#type: ValueType,
        3 scalar: Option<ValueScalar>,
        4 ranges: Option<ValueRanges>,
        5 set: Option<ValueSet>,
        /// Deprecated: use `reservations`.
        6 role: Option<String>,
        /// The disk and its volume.
        7 disk: Option<Box<ResourceDiskInfo>>,
        /// Deprecated: use `reservations`.
        8 reservation: Option<Box<ResourceReservationInfo>>,
        /// Present if the resource is revocable.
        9 revocable: Option<ResourceRevocableInfo>,
        /// Present if several tasks may use it at the same time.
        10 shared: Option<ResourceSharedInfo>,
        /// The role to which it is offered or allocated.
        11 allocation_info: Option<ResourceAllocationInfo>,
        12 provider_id: Option<ResourceProviderID>,
        /// The stack of reservations; the last is the current owner's.
        13 reservations: Vec<ResourceReservationInfo>,
    }

    /// The role to which a resource is offered or allocated.
    ResourceAllocationInfo {
        1 role: Option<String>,
    }

    /// One reservation.
    ResourceReservationInfo {
        /// The principal that made it.
        1 principal: Option<String>,
        2 labels: Option<Labels>,
        3 role: Option<String>,
        4 r#type: Option<ResourceReservationInfoType>,
    }

    /// The disk of a resource and its volume.
    ResourceDiskInfo {
        1 persistence: Option<ResourceDiskInfoPersistence>,
        /// Its mount in containers.
        2 volume: Option<Box<Volume>>,
        /// Absent: the agent's root disk.
        3 source: Option<Box<ResourceDiskInfoSource>>,
    }

    /// Present on persistent volumes.
    ResourceDiskInfoPersistence {
        /// Unique for a role on an agent.
        1 id: String,
        /// The principal that created the volume.
        2 principal: Option<String>,
    }

    /// A disk.
    ResourceDiskInfoSource {
        1 r#type: ResourceDiskInfoSourceType,
        2 path: Option<ResourceDiskInfoSourcePath>,
        3 mount: Option<ResourceDiskInfoSourceMount>,
        /// Its id in the plug-in.
        4 id: Option<String>,
        5 metadata: Option<Labels>,
        /// The profile of its creation.
        6 profile: Option<String>,
        7 vendor: Option<String>,
    }

    /// A directory, which can be divided.
    ResourceDiskInfoSourcePath {
        1 root: Option<String>,
    }

    /// A file system, which is allocated as a whole.
    ResourceDiskInfoSourceMount {
        1 root: Option<String>,
    }

    /// The resource is revocable.
    ResourceRevocableInfo {
        /// Present if taking it back may throttle its tasks (SPEC S45; clients of Mesos skip it).
        1 throttle_info: Option<ResourceRevocableInfoThrottleInfo>,
    }

    /// Taking the resource back may throttle its tasks.
    ResourceRevocableInfoThrottleInfo {}

    /// Several tasks may use the resource at the same time.
    ResourceSharedInfo {}
}

enums! {
    /// Type of a value.
    ValueType {
        Scalar = 0 "SCALAR",
        Ranges = 1 "RANGES",
        Set = 2 "SET",
        Text = 3 "TEXT",
    }

    /// Static or dynamic.
    ResourceReservationInfoType {
        Unknown = 0 "UNKNOWN",
        Static = 1 "STATIC",
        Dynamic = 2 "DYNAMIC",
    }

    /// Type of a disk.
    ResourceDiskInfoSourceType {
        Unknown = 0 "UNKNOWN",
        Path = 1 "PATH",
        Mount = 2 "MOUNT",
        Block = 3 "BLOCK",
        Raw = 4 "RAW",
    }
}
