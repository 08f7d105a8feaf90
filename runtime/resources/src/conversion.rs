//! Conversions: what operations make of resources (SPEC 2.8 `Offer.Operation`, 3.5).

use serde::{Deserialize, Serialize};

use crate::resource::Resource;
use crate::resources::Resources;
use crate::scalar::Scalar;

/// Some resources become others of the same kind and amount: they change their owner, or become a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Conversion {
    /// These resources, given as they will be: the last entry of each stack of reservations is the new one.
    Reserve {
        /// What will be reserved.
        resources: Resources,
    },
    /// These resources, given as they are, lose the last entry of their stacks of reservations.
    Unreserve {
        /// What is reserved.
        resources: Resources,
    },
    /// These persistent volumes, given as they will be, come into being on reserved disk.
    Create {
        /// The volumes.
        volumes: Resources,
    },
    /// These persistent volumes end, and what is in them.
    Destroy {
        /// The volumes.
        volumes: Resources,
    },
    /// A volume becomes larger by some disk.
    GrowVolume {
        /// The volume as it is.
        volume: Resource,
        /// Disk of the same kind and owner.
        addition: Resource,
    },
    /// A volume becomes smaller.
    ShrinkVolume {
        /// The volume as it is.
        volume: Resource,
        /// By how much.
        subtract: Scalar,
    },
}

impl Conversion {
    /// Its name, as in metrics and messages to people.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Reserve { .. } => "reserve",
            Self::Unreserve { .. } => "unreserve",
            Self::Create { .. } => "create",
            Self::Destroy { .. } => "destroy",
            Self::GrowVolume { .. } => "grow_volume",
            Self::ShrinkVolume { .. } => "shrink_volume",
        }
    }
}
