//! Conversions: the effect of operations on resources, and their rules (SPEC 2.8 `Offer.Operation`,
//! 3.5).
//!
//! Pure. [`Conversion::apply`] is all or nothing and preserves quantities. Authorization, and the
//! check whether a volume is in use, are done elsewhere.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::error::{Invalid, Shortage};
use crate::resource::Resource;
use crate::resource::annotation::ReservationKind;
use crate::resource::disk::{DiskInfo, SourceKind};
use crate::resources::Resources;
use crate::role::Role;
use crate::value::Value;
use crate::value::scalar::Scalar;

/// Changes resources into others of the same kind and amount: with another owner, or as a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Conversion {
    /// Reserves these resources, given in their new form: the last entry of each stack of
    /// reservations is new.
    Reserve {
        /// The resources with the new reservations.
        resources: Resources,
    },
    /// Removes the last reservation of each of these resources, given in their present form.
    Unreserve {
        /// The reserved resources.
        resources: Resources,
    },
    /// Creates these persistent volumes, given in their new form, on reserved disk.
    Create {
        /// The volumes.
        volumes: Resources,
    },
    /// Destroys these persistent volumes and their content.
    Destroy {
        /// The volumes.
        volumes: Resources,
    },
    /// Adds disk space to a volume.
    GrowVolume {
        /// The volume in its present form.
        volume: Resource,
        /// Disk of the same kind and owner.
        addition: Resource,
    },
    /// Removes disk space from a volume.
    ShrinkVolume {
        /// The volume in its present form.
        volume: Resource,
        /// The amount removed.
        subtract: Scalar,
    },
}

/// The result of a conversion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Converted {
    /// The resources that no longer exist.
    pub consumed: Resources,
    /// The resources in their place.
    pub converted: Resources,
}

/// The reason why a conversion was not applied. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConversionError {
    /// It violates a rule, independent of the pool.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The pool does not contain the resources to convert.
    #[error(transparent)]
    Lacking(#[from] Shortage),
}

impl Conversion {
    /// The operation's name, as in metrics and messages.
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

    /// Replaces the consumed resources in `pool` by the converted ones, or changes nothing. `total`
    /// is all of the agent's resources: in it a volume's id is unique within its role.
    pub fn apply(
        &self,
        pool: &mut Resources,
        total: &Resources,
    ) -> Result<Converted, ConversionError> {
        let step = self.step()?;
        if let Self::Create { volumes } = self {
            check_unique(volumes, total)?;
        }
        if let Some(lacking) = pool.lacking(&step.consumed) {
            let lacking = Box::new(lacking.clone());
            return Err(Shortage { lacking }.into());
        }
        let mut rest = pool.saturating_sub(&step.consumed);
        rest.checked_add(&step.converted)?;
        *pool = rest;
        Ok(step)
    }

    /// The consumed and converted resources, without a pool.
    pub fn step(&self) -> Result<Converted, Invalid> {
        match self {
            Self::Reserve { resources } => reserve(resources),
            Self::Unreserve { resources } => unreserve(resources),
            Self::Create { volumes } => create(volumes),
            Self::Destroy { volumes } => destroy(volumes),
            Self::GrowVolume { volume, addition } => grow(volume, addition),
            Self::ShrinkVolume { volume, subtract } => shrink(volume, *subtract),
        }
    }

    /// All resources in the operation.
    pub fn named(&self) -> Resources {
        match self {
            Self::Reserve { resources } | Self::Unreserve { resources } => resources.clone(),
            Self::Create { volumes } | Self::Destroy { volumes } => volumes.clone(),
            Self::GrowVolume { volume, addition } => {
                Resources::from(volume.clone()) + Resources::from(addition.clone())
            }
            Self::ShrinkVolume { volume, .. } => volume.clone().into(),
        }
    }

    /// The same conversion of resources allocated to `role`, or to none.
    pub fn allocated(&self, role: Option<&Role>) -> Self {
        let all = |resources: &Resources| match role {
            Some(role) => resources.allocate(role),
            None => resources.unallocate(),
        };
        let one = |resource: &Resource| {
            let mut annotations = resource.annotations().clone();
            annotations.allocation = role.cloned();
            resource.with(annotations)
        };
        match self {
            Self::Reserve { resources } => Self::Reserve {
                resources: all(resources),
            },
            Self::Unreserve { resources } => Self::Unreserve {
                resources: all(resources),
            },
            Self::Create { volumes } => Self::Create {
                volumes: all(volumes),
            },
            Self::Destroy { volumes } => Self::Destroy {
                volumes: all(volumes),
            },
            Self::GrowVolume { volume, addition } => Self::GrowVolume {
                volume: one(volume),
                addition: one(addition),
            },
            Self::ShrinkVolume { volume, subtract } => Self::ShrinkVolume {
                volume: one(volume),
                subtract: *subtract,
            },
        }
    }
}

/// An error about the `field` of an operation.
fn wrong(field: &str, value: impl std::fmt::Display, expected: &str) -> Invalid {
    Invalid::new(field, value, expected)
}

fn at_least_one(field: &str, resources: &Resources) -> Result<(), Invalid> {
    match resources.is_empty() {
        true => Err(wrong(field, "empty", "at least one resource")),
        false => Ok(()),
    }
}

fn reserve(resources: &Resources) -> Result<Converted, Invalid> {
    let field = "reserve.resources";
    at_least_one(field, resources)?;
    for resource in resources {
        if resource.is_revocable() {
            let expected = "regular resources: revocable ones cannot be reserved";
            return Err(wrong(field, resource, expected));
        }
        if resource.is_persistent_volume() {
            let expected = "no persistent volume, which is on reserved disk already";
            return Err(wrong(field, resource, expected));
        }
        check_dynamic(field, resource, "its new reservation last, of type DYNAMIC")?;
    }
    Ok(Converted {
        consumed: resources.pop_reservation()?,
        converted: resources.clone(),
    })
}

fn unreserve(resources: &Resources) -> Result<Converted, Invalid> {
    let field = "unreserve.resources";
    at_least_one(field, resources)?;
    for resource in resources {
        if resource.is_persistent_volume() {
            let expected = "no persistent volume: it must be destroyed first";
            return Err(wrong(field, resource, expected));
        }
        let expected = "a dynamic reservation: static ones are part of the agent's configuration";
        check_dynamic(field, resource, expected)?;
    }
    Ok(Converted {
        consumed: resources.clone(),
        converted: resources.pop_reservation()?,
    })
}

fn check_dynamic(field: &str, resource: &Resource, expected: &str) -> Result<(), Invalid> {
    match resource.reservation() {
        Some(entry) if entry.kind == ReservationKind::Dynamic => Ok(()),
        _ => Err(wrong(field, resource, expected)),
    }
}

fn create(volumes: &Resources) -> Result<Converted, Invalid> {
    let field = "create.volumes";
    at_least_one(field, volumes)?;
    for volume in volumes {
        check_volume(field, volume)?;
        if volume.is_revocable() {
            let expected = "no volume on revocable disk";
            return Err(wrong(field, volume, expected));
        }
        if !volume.is_reserved() {
            let expected = "a volume on reserved disk";
            return Err(wrong(field, volume, expected));
        }
        if let Some(disk) = &volume.annotations().disk {
            disk.check_creatable().map_err(|bad| bad.within(field))?;
        }
    }
    Ok(Converted {
        consumed: volumes.iter().map(underlying_disk).collect(),
        converted: volumes.clone(),
    })
}

fn destroy(volumes: &Resources) -> Result<Converted, Invalid> {
    let field = "destroy.volumes";
    at_least_one(field, volumes)?;
    for volume in volumes {
        check_volume(field, volume)?;
    }
    Ok(Converted {
        consumed: volumes.clone(),
        converted: volumes.iter().map(underlying_disk).collect(),
    })
}

/// Requires a single persistent volume on the agent's own disk.
fn check_volume(field: &str, volume: &Resource) -> Result<(), Invalid> {
    if !volume.is_persistent_volume() {
        return Err(wrong(field, volume, "persistent volumes only"));
    }
    if volume.copies() != 1 {
        return Err(wrong(field, volume, "each volume once"));
    }
    if volume.annotations().provider.is_some() {
        let expected = "a volume on the agent's own disk, without provider_id";
        return Err(wrong(field, volume, expected));
    }
    let kind = source_kind(volume);
    match kind {
        Some(SourceKind::Block | SourceKind::Raw) => {
            let expected = "a volume on the root disk or on a PATH or MOUNT disk";
            Err(wrong(field, volume, expected))
        }
        _ => Ok(()),
    }
}

fn source_kind(resource: &Resource) -> Option<SourceKind> {
    let source = resource.annotations().disk.as_ref()?.source.as_ref();
    source.map(|source| source.kind)
}

/// The disk under a volume.
fn underlying_disk(volume: &Resource) -> Resource {
    let mut annotations = volume.annotations().clone();
    annotations.shared = false;
    let source = annotations.disk.take().and_then(|disk| disk.source);
    annotations.disk = source.map(|source| {
        Box::new(DiskInfo {
            source: Some(source),
            ..DiskInfo::default()
        })
    });
    volume.with(annotations)
}

/// A volume's key on its agent: its role and its id.
fn volume_key(volume: &Resource) -> Option<(&Role, &str)> {
    let persistence = volume.annotations().disk.as_ref()?.persistence.as_ref()?;
    Some((volume.role(), &persistence.id))
}

fn check_unique(volumes: &Resources, total: &Resources) -> Result<(), Invalid> {
    let mut seen: BTreeSet<_> = total.iter().filter_map(volume_key).collect();
    for (role, id) in volumes.iter().filter_map(volume_key) {
        if !seen.insert((role, id)) {
            let expected = format!("an id that no other volume of role `{role}` on this agent has");
            return Err(Invalid::new(
                "create.volumes.disk.persistence.id",
                id,
                expected,
            ));
        }
    }
    Ok(())
}

fn grow(volume: &Resource, addition: &Resource) -> Result<Converted, Invalid> {
    let field = "grow_volume.volume";
    let size = check_resizable(field, volume)?;
    let field = "grow_volume.addition";
    let added = addition.value().as_scalar().unwrap_or_default();
    if added.is_zero() {
        return Err(wrong(field, addition, "a positive amount"));
    }
    if underlying_disk(volume).of(addition.value().clone()) != *addition {
        let expected = "disk of the same kind, source and reservations as the volume, without one";
        return Err(wrong(field, addition, expected));
    }
    let Some(sum) = size.checked_add(added) else {
        return Err(wrong(field, addition, "a sum without overflow"));
    };
    Ok(Converted {
        consumed: Resources::from_iter([volume.clone(), addition.clone()]),
        converted: volume.of(Value::Scalar(sum)).into(),
    })
}

fn shrink(volume: &Resource, subtract: Scalar) -> Result<Converted, Invalid> {
    let size = check_resizable("shrink_volume.volume", volume)?;
    if subtract.is_zero() || subtract >= size {
        let expected = format!("more than zero and less than the volume's size, {size}");
        return Err(Invalid::new("shrink_volume.subtract", subtract, expected));
    }
    let rest = size.saturating_sub(subtract);
    Ok(Converted {
        consumed: volume.clone().into(),
        converted: Resources::from_iter([
            volume.of(Value::Scalar(rest)),
            underlying_disk(volume).of(Value::Scalar(subtract)),
        ]),
    })
}

/// Requires a volume that can be resized; returns its size.
fn check_resizable(field: &str, volume: &Resource) -> Result<Scalar, Invalid> {
    check_volume(field, volume)?;
    if volume.is_shared() {
        return Err(wrong(field, volume, "a volume that is not shared"));
    }
    if matches!(source_kind(volume), Some(SourceKind::Mount)) {
        let expected = "a volume on the root disk or on a PATH disk: others have one size";
        return Err(wrong(field, volume, expected));
    }
    Ok(volume.value().as_scalar().unwrap_or_default())
}

impl Resources {
    /// The results of operations, which only a checkpoint preserves: persistent volumes and dynamic
    /// reservations.
    pub fn checkpointed(&self) -> Self {
        self.filter(|own| own.is_persistent_volume() || is_dynamic(own))
    }

    /// The resources without the effect of any operation.
    pub fn without_operations(&self) -> Self {
        self.iter().map(without_operations).collect()
    }
}

fn is_dynamic(resource: &Resource) -> bool {
    let top = resource.reservation();
    top.is_some_and(|entry| entry.kind == ReservationKind::Dynamic)
}

fn without_operations(resource: &Resource) -> Resource {
    let mut bare = match resource.is_persistent_volume() {
        true => underlying_disk(resource),
        false => resource.clone(),
    };
    if is_dynamic(&bare) {
        let mut annotations = bare.annotations().clone();
        annotations
            .reservations
            .retain(|entry| entry.kind == ReservationKind::Static);
        bare = bare.with(annotations);
    }
    bare
}
