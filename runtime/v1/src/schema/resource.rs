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

    /// Whole numbers, both ends included.
    ValueRange {
        1 begin: u64,
        2 end: u64,
    }

    /// Whole numbers, as ranges.
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

    /// What an agent says of itself for frameworks to interpret.
    Attribute {
        1 name: String,
        2 r#type: ValueType,
        3 scalar: Option<ValueScalar>,
        4 ranges: Option<ValueRanges>,
        5 text: Option<ValueText>,
        6 set: Option<ValueSet>,
    }

    /// An amount, ranges or a set of something, and what is said about it.
    Resource {
        1 name: String,
        2 r#type: ValueType,
        3 scalar: Option<ValueScalar>,
        4 ranges: Option<ValueRanges>,
        5 set: Option<ValueSet>,
        /// Read `reservations` instead. Deprecated.
        6 role: Option<String>,
        /// Which disk, and what is kept on it.
        7 disk: Option<Box<ResourceDiskInfo>>,
        /// Read `reservations` instead.
        8 reservation: Option<Box<ResourceReservationInfo>>,
        /// There if the resource can be taken back at any time.
        9 revocable: Option<ResourceRevocableInfo>,
        /// There if several tasks may use it at a time.
        10 shared: Option<ResourceSharedInfo>,
        /// To whom it is offered or given.
        11 allocation_info: Option<ResourceAllocationInfo>,
        12 provider_id: Option<ResourceProviderID>,
        /// The stack of reservations; the last is the current owner's.
        13 reservations: Vec<ResourceReservationInfo>,
    }

    /// To whom a resource is offered or given.
    ResourceAllocationInfo {
        1 role: Option<String>,
    }

    /// One reservation.
    ResourceReservationInfo {
        /// Who made it.
        1 principal: Option<String>,
        2 labels: Option<Labels>,
        3 role: Option<String>,
        4 r#type: Option<ResourceReservationInfoType>,
    }

    /// Which disk a resource lies on, and what is kept on it.
    ResourceDiskInfo {
        1 persistence: Option<ResourceDiskInfoPersistence>,
        /// Where it appears in containers.
        2 volume: Option<Box<Volume>>,
        /// Absent: the agent's root disk.
        3 source: Option<Box<ResourceDiskInfoSource>>,
    }

    /// There on a persistent volume.
    ResourceDiskInfoPersistence {
        /// Unique for a role on an agent.
        1 id: String,
        /// Who created the volume.
        2 principal: Option<String>,
    }

    /// A disk.
    ResourceDiskInfoSource {
        1 r#type: ResourceDiskInfoSourceType,
        2 path: Option<ResourceDiskInfoSourcePath>,
        3 mount: Option<ResourceDiskInfoSourceMount>,
        /// Its name at the plug-in that serves it.
        4 id: Option<String>,
        5 metadata: Option<Labels>,
        /// The kind of volume that it was made as.
        6 profile: Option<String>,
        7 vendor: Option<String>,
    }

    /// A directory, which can be shared out.
    ResourceDiskInfoSourcePath {
        1 root: Option<String>,
    }

    /// A file system, which goes to one user as a whole.
    ResourceDiskInfoSourceMount {
        1 root: Option<String>,
    }

    /// The resource can be taken back at any time.
    ResourceRevocableInfo {
        /// There if its user may also be slowed down at any time (S45; readers of Mesos pass over it).
        1 throttle_info: Option<ResourceRevocableInfoThrottleInfo>,
    }

    /// Its user may also be slowed down at any time.
    ResourceRevocableInfoThrottleInfo {}

    /// Several tasks may use the resource at a time.
    ResourceSharedInfo {}
}

enums! {
    /// What a value is.
    ValueType {
        Scalar = 0 "SCALAR",
        Ranges = 1 "RANGES",
        Set = 2 "SET",
        Text = 3 "TEXT",
    }

    /// How a reservation came to be.
    ResourceReservationInfoType {
        Unknown = 0 "UNKNOWN",
        Static = 1 "STATIC",
        Dynamic = 2 "DYNAMIC",
    }

    /// What a disk is.
    ResourceDiskInfoSourceType {
        Unknown = 0 "UNKNOWN",
        Path = 1 "PATH",
        Mount = 2 "MOUNT",
        Block = 3 "BLOCK",
        Raw = 4 "RAW",
    }
}
