//! Resources and attributes; `usage` has the usage of resources.

mod usage;

pub use usage::{corrections, estimate};

use std::collections::BTreeMap;

use resources::{
    Annotations, AttributeValue, Invalid, Name, Number, Range, Ranges, Reservation,
    ReservationKind, Resources, Revocable, Role, Scalar, Set, Value,
};

use super::{At, all, each, need, refuse};
use crate::describe::{Describe, Each, Fields, Output, build};
use crate::limits::place_of;
use crate::schema::{
    Attribute, Label, Labels, Resource, ResourceAllocationInfo, ResourceDiskInfo,
    ResourceDiskInfoPersistence, ResourceDiskInfoSource, ResourceDiskInfoSourceMount,
    ResourceDiskInfoSourcePath, ResourceDiskInfoSourceType, ResourceProviderID,
    ResourceReservationInfo, ResourceReservationInfoType, ResourceRevocableInfo,
    ResourceRevocableInfoThrottleInfo, ResourceSharedInfo, ValueRange, ValueRanges, ValueScalar,
    ValueSet, ValueText, ValueType, Volume, VolumeMode,
};

/// Converts the resources of a field.
pub(super) fn read_resources(name: &str, list: &[Resource]) -> Result<Resources, Invalid> {
    let one_by_one: Vec<resources::Resource> = all(name, list)?;
    Ok(one_by_one.into_iter().collect())
}

/// Describes resources; one held several times is repeated.
pub fn describe_resources(all: &Resources) -> Each<impl Iterator<Item = &resources::Resource>> {
    let copies = |own| std::iter::repeat_n(own, resources::Resource::copies(own) as usize);
    Each(all.iter().flat_map(copies))
}

/// Describes resources with `role` and `reservation` beside the stack of reservations, for readers
/// of the older form, as in answers to operators.
pub fn describe_in_both_forms(all: &Resources) -> Each<impl Iterator<Item = InBothForms<'_>>> {
    Each(describe_resources(all).0.map(InBothForms))
}

/// A resource in both forms.
#[derive(Clone, Copy, Debug)]
pub struct InBothForms<'a>(&'a resources::Resource);

impl Describe<Resource> for InBothForms<'_> {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, Resource, O>) {
        describe_resource(self.0, true, fields);
    }
}

/// Resources as messages.
pub fn write_resources(all: &Resources) -> Vec<Resource> {
    describe_resources(all).0.map(Resource::from).collect()
}

/// The role of this name.
pub(super) fn read_role(role: &str) -> Result<Role, Invalid> {
    Role::new(role).map_err(|bad| Invalid::new("", bad.value, bad.expected))
}

impl TryFrom<&ValueScalar> for Scalar {
    type Error = Invalid;

    fn try_from(scalar: &ValueScalar) -> Result<Self, Invalid> {
        Scalar::new(scalar.value).map_err(|bad| Invalid::new("value", bad.value, bad.expected))
    }
}

impl Describe<ValueScalar> for Scalar {
    #[inline]
    fn describe<O: Output>(&self, fields: &mut Fields<'_, ValueScalar, O>) {
        fields.value(self.as_f64());
    }
}

impl From<Scalar> for ValueScalar {
    fn from(amount: Scalar) -> Self {
        Self {
            value: amount.as_f64(),
        }
    }
}

impl TryFrom<&ValueRanges> for Ranges {
    type Error = Invalid;

    fn try_from(ranges: &ValueRanges) -> Result<Self, Invalid> {
        let one = |range: &ValueRange| {
            Range::new(range.begin, range.end)
                .map_err(|bad| Invalid::new("", bad.value, bad.expected))
        };
        Ok(Ranges::new(each("range", &ranges.range, one)?))
    }
}

impl Describe<ValueRange> for Range {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, ValueRange, O>) {
        fields.begin(self.begin()).end(self.end());
    }
}

impl Describe<ValueRanges> for Ranges {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, ValueRanges, O>) {
        fields.range(Each(self.iter()));
    }
}

impl TryFrom<&ValueSet> for Set {
    type Error = Invalid;

    fn try_from(set: &ValueSet) -> Result<Self, Invalid> {
        Set::new(set.item.iter().map(String::as_str))
            .map_err(|bad| Invalid::new("item", bad.value, bad.expected))
    }
}

impl Describe<ValueSet> for Set {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, ValueSet, O>) {
        fields.item(Each(self.iter()));
    }
}

impl TryFrom<&Resource> for resources::Resource {
    type Error = Invalid;

    fn try_from(resource: &Resource) -> Result<Self, Invalid> {
        let name = Name::new(&resource.name)?;
        let value = read_value(resource)?;
        let allocation = resource.allocation_info.as_ref();
        let allocation = allocation.and_then(|info| info.role.as_deref());
        let revocable = resource
            .revocable
            .as_ref()
            .map(|info| match info.throttle_info {
                Some(_) => Revocable::Throttleable,
                None => Revocable::NonThrottleable,
            });
        let annotations = Annotations {
            revocable,
            lender: None,
            allocation: allocation
                .map(read_role)
                .transpose()
                .at("allocation_info.role")?,
            reservations: read_reservations(resource)?,
            disk: match &resource.disk {
                Some(disk) => Some(Box::new(read_disk(disk).at("disk")?)),
                None => None,
            },
            shared: resource.shared.is_some(),
            provider: resource
                .provider_id
                .as_ref()
                .map(|id| id.value.as_str().into()),
        };
        resources::Resource::annotated(name, value, annotations)
    }
}

fn read_value(resource: &Resource) -> Result<Value, Invalid> {
    let absent = "a value of the given type";
    Ok(match resource.r#type {
        ValueType::Scalar => {
            let scalar = need("scalar", resource.scalar.as_ref(), absent)?;
            Scalar::try_from(scalar).at("scalar")?.into()
        }
        ValueType::Ranges => {
            let ranges = need("ranges", resource.ranges.as_ref(), absent)?;
            Ranges::try_from(ranges).at("ranges")?.into()
        }
        ValueType::Set => {
            let set = need("set", resource.set.as_ref(), absent)?;
            Set::try_from(set).at("set")?.into()
        }
        ValueType::Text => return Err(Invalid::new("type", "TEXT", "SCALAR, RANGES or SET")),
    })
}

/// The stack of reservations; in the older form, the one that `role` and `reservation` describe.
fn read_reservations(resource: &Resource) -> Result<Vec<Reservation>, Invalid> {
    let role = resource.role.as_deref().unwrap_or("*");
    if let Some(top) = resource.reservations.last() {
        let other = role != "*" && top.role.as_deref() != Some(role);
        refuse(
            "role",
            other,
            role,
            "the role of the last of `reservations`, or none",
        )?;
        refuse(
            "reservation",
            resource.reservation.is_some(),
            "set",
            "nothing beside `reservations`",
        )?;
        return each("reservations", &resource.reservations, read_reservation);
    }
    let role = read_role(role).at("role")?;
    match &resource.reservation {
        Some(_) if role.is_star() => Err(Invalid::new("role", "*", "the role of the reservation")),
        Some(old) => {
            let mut reservation = Reservation::dynamic(role, old.principal.as_deref());
            reservation.labels = read_notes(old.labels.as_ref());
            Ok(vec![reservation])
        }
        None if role.is_star() => Ok(Vec::new()),
        None => Ok(vec![Reservation::fixed(role)]),
    }
}

fn read_reservation(info: &ResourceReservationInfo) -> Result<Reservation, Invalid> {
    let kind = match info.r#type {
        Some(ResourceReservationInfoType::Static) => ReservationKind::Static,
        Some(ResourceReservationInfoType::Dynamic) => ReservationKind::Dynamic,
        _ => {
            return Err(Invalid::new(
                "type",
                "absent or UNKNOWN",
                "STATIC or DYNAMIC",
            ));
        }
    };
    let role = need("role", info.role.as_ref(), "a role other than `*`")?;
    Ok(Reservation {
        kind,
        role: read_role(role).at("role")?,
        principal: info.principal.clone(),
        labels: read_notes(info.labels.as_ref()),
    })
}

impl Describe<ResourceReservationInfo> for Reservation {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, ResourceReservationInfo, O>) {
        fields
            .principal(self.principal.as_deref())
            .labels(write_notes(&self.labels))
            .role(Some(self.role.as_str()))
            .r#type(Some(match self.kind {
                ReservationKind::Static => ResourceReservationInfoType::Static,
                ReservationKind::Dynamic => ResourceReservationInfoType::Dynamic,
            }));
    }
}

/// Labels of resources: in any number, with or without a value.
fn read_notes(labels: Option<&Labels>) -> resources::Labels {
    let one = |label: &Label| resources::Label {
        key: label.key.clone(),
        value: label.value.clone(),
    };
    let labels = labels.map(|labels| labels.labels.iter().map(one).collect());
    resources::Labels::new(labels.unwrap_or_default())
}

fn write_notes(labels: &resources::Labels) -> Option<Labels> {
    let one = |label: &resources::Label| Label {
        key: label.key.clone(),
        value: label.value.clone(),
    };
    (!labels.is_empty()).then(|| Labels {
        labels: labels.iter().map(one).collect(),
    })
}

fn read_disk(disk: &ResourceDiskInfo) -> Result<resources::DiskInfo, Invalid> {
    let persistence = disk.persistence.as_ref();
    Ok(resources::DiskInfo {
        persistence: persistence.map(|persistence| resources::Persistence {
            id: persistence.id.clone(),
            principal: persistence.principal.clone(),
        }),
        volume: disk
            .volume
            .as_deref()
            .map(read_volume)
            .transpose()
            .at("volume")?,
        source: disk
            .source
            .as_deref()
            .map(read_source)
            .transpose()
            .at("source")?,
    })
}

fn read_volume(volume: &Volume) -> Result<resources::Volume, Invalid> {
    let expected =
        "nothing, since a disk's volume has only `container_path`, `host_path` and `mode`";
    refuse("image", volume.image.is_some(), "set", expected)?;
    refuse("source", volume.source.is_some(), "set", expected)?;
    Ok(resources::Volume {
        container_path: volume.container_path.clone(),
        host_path: volume.host_path.clone(),
        mode: match volume.mode {
            VolumeMode::Rw => resources::VolumeMode::ReadWrite,
            VolumeMode::Ro => resources::VolumeMode::ReadOnly,
        },
    })
}

fn read_source(source: &ResourceDiskInfoSource) -> Result<resources::DiskSource, Invalid> {
    use resources::SourceKind;
    let path = source.path.as_ref();
    let mount = source.mount.as_ref();
    let (kind, root) = match source.r#type {
        ResourceDiskInfoSourceType::Path => {
            (SourceKind::Path, path.and_then(|path| path.root.clone()))
        }
        ResourceDiskInfoSourceType::Mount => (
            SourceKind::Mount,
            mount.and_then(|mount| mount.root.clone()),
        ),
        ResourceDiskInfoSourceType::Block => (SourceKind::Block, None),
        ResourceDiskInfoSourceType::Raw => (SourceKind::Raw, None),
        ResourceDiskInfoSourceType::Unknown => {
            return Err(Invalid::new("type", "UNKNOWN", "PATH, MOUNT, BLOCK or RAW"));
        }
    };
    let expected = "nothing, since the disk is of another type";
    refuse(
        "path",
        path.is_some() && kind != SourceKind::Path,
        "set",
        expected,
    )?;
    refuse(
        "mount",
        mount.is_some() && kind != SourceKind::Mount,
        "set",
        expected,
    )?;
    Ok(resources::DiskSource {
        kind,
        root,
        vendor: source.vendor.clone(),
        id: source.id.clone(),
        metadata: read_notes(source.metadata.as_ref()),
        profile: source.profile.clone(),
    })
}

impl From<&resources::DiskInfo> for ResourceDiskInfo {
    fn from(disk: &resources::DiskInfo) -> Self {
        let persistence = disk.persistence.as_ref();
        let volume = disk.volume.as_ref();
        let source = disk.source.as_ref();
        Self {
            persistence: persistence.map(|persistence| ResourceDiskInfoPersistence {
                id: persistence.id.clone(),
                principal: persistence.principal.clone(),
            }),
            volume: volume.map(|volume| Box::new(write_volume(volume))),
            source: source.map(|source| Box::new(write_source(source))),
        }
    }
}

fn write_volume(volume: &resources::Volume) -> Volume {
    Volume {
        container_path: volume.container_path.clone(),
        host_path: volume.host_path.clone(),
        mode: match volume.mode {
            resources::VolumeMode::ReadWrite => VolumeMode::Rw,
            resources::VolumeMode::ReadOnly => VolumeMode::Ro,
        },
        ..Volume::default()
    }
}

fn write_source(source: &resources::DiskSource) -> ResourceDiskInfoSource {
    use resources::SourceKind;
    let root = source.root.clone();
    let mut written = ResourceDiskInfoSource {
        id: source.id.clone(),
        metadata: write_notes(&source.metadata),
        profile: source.profile.clone(),
        vendor: source.vendor.clone(),
        ..ResourceDiskInfoSource::default()
    };
    written.r#type = match source.kind {
        SourceKind::Path => ResourceDiskInfoSourceType::Path,
        SourceKind::Mount => ResourceDiskInfoSourceType::Mount,
        SourceKind::Block => ResourceDiskInfoSourceType::Block,
        SourceKind::Raw => ResourceDiskInfoSourceType::Raw,
    };
    match source.kind {
        SourceKind::Path => {
            written.path = root.map(|root| ResourceDiskInfoSourcePath { root: Some(root) });
        }
        SourceKind::Mount => {
            written.mount = root.map(|root| ResourceDiskInfoSourceMount { root: Some(root) });
        }
        SourceKind::Block | SourceKind::Raw => {}
    }
    written
}

impl Describe<Resource> for resources::Resource {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, Resource, O>) {
        describe_resource(self, false, fields);
    }
}

/// Omits the lender, which is internal to the allocator.
fn describe_resource<O: Output>(
    own: &resources::Resource,
    in_both_forms: bool,
    fields: &mut Fields<'_, Resource, O>,
) {
    let notes = own.annotations();
    fields.name(own.name_str());
    match own.value() {
        Value::Scalar(amount) => fields.r#type(ValueType::Scalar).scalar(Some(amount)),
        Value::Ranges(ranges) => fields.r#type(ValueType::Ranges).ranges(Some(&**ranges)),
        Value::Set(set) => fields.r#type(ValueType::Set).set(Some(&**set)),
    };
    // A refined reservation has no older form.
    let older = match (in_both_forms, notes.reservations.as_slice()) {
        (true, []) => Some(Older::default()),
        (true, [only]) => Some(Older::of(only)),
        _ => None,
    };
    let (role, reservation) =
        older.map_or((None, None), |older| (Some(older.role), older.reservation));
    fields.role(role);
    if notes.is_none() {
        return;
    }
    let revocable = notes.revocable.map(|revocable| ResourceRevocableInfo {
        throttle_info: match revocable {
            Revocable::Throttleable => Some(ResourceRevocableInfoThrottleInfo {}),
            Revocable::NonThrottleable => None,
        },
    });
    fields
        .disk(notes.disk.as_deref().map(ResourceDiskInfo::from))
        .reservation(reservation)
        .revocable(revocable)
        .shared(notes.shared.then_some(ResourceSharedInfo {}))
        .allocation_info(notes.allocation.as_ref().map(AllocatedTo))
        .provider_id(notes.provider.as_deref().map(|id| ResourceProviderID {
            value: id.to_owned(),
        }))
        .reservations(Each(&notes.reservations));
}

/// The older form of a resource with at most one reservation.
struct Older {
    role: String,
    /// For a dynamic one.
    reservation: Option<ResourceReservationInfo>,
}

impl Default for Older {
    fn default() -> Self {
        Self {
            role: "*".to_owned(),
            reservation: None,
        }
    }
}

impl Older {
    fn of(only: &resources::Reservation) -> Self {
        let mut info: ResourceReservationInfo = build(only);
        let role = info.role.take().unwrap_or_default();
        let is_dynamic = info.r#type.take() == Some(ResourceReservationInfoType::Dynamic);
        Self {
            role,
            reservation: is_dynamic.then_some(info),
        }
    }
}

impl From<&resources::Resource> for Resource {
    fn from(resource: &resources::Resource) -> Self {
        build(resource)
    }
}

/// The role to which a resource is allocated.
struct AllocatedTo<'a>(&'a Role);

impl Describe<ResourceAllocationInfo> for AllocatedTo<'_> {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, ResourceAllocationInfo, O>) {
        fields.role(Some(self.0.as_str()));
    }
}

impl TryFrom<&Attribute> for resources::Attribute {
    type Error = Invalid;

    fn try_from(attribute: &Attribute) -> Result<Self, Invalid> {
        let absent = "a value of the given type";
        let value = match attribute.r#type {
            ValueType::Scalar => {
                let scalar = need("scalar", attribute.scalar.as_ref(), absent)?;
                let number = Number::new(scalar.value)
                    .map_err(|bad| Invalid::new("scalar.value", bad.value, bad.expected))?;
                AttributeValue::Scalar(number)
            }
            ValueType::Ranges => {
                let ranges = need("ranges", attribute.ranges.as_ref(), absent)?;
                AttributeValue::Ranges(Ranges::try_from(ranges).at("ranges")?)
            }
            ValueType::Set => {
                let set = need("set", attribute.set.as_ref(), absent)?;
                AttributeValue::Set(Set::try_from(set).at("set")?)
            }
            ValueType::Text => {
                let text = need("text", attribute.text.as_ref(), absent)?;
                AttributeValue::Text(text.value.clone())
            }
        };
        resources::Attribute::new(&attribute.name, value)
    }
}

impl Describe<Attribute> for resources::Attribute {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, Attribute, O>) {
        fields.name(self.name());
        match self.value() {
            AttributeValue::Scalar(number) => {
                let value = number.get();
                fields
                    .r#type(ValueType::Scalar)
                    .scalar(Some(ValueScalar { value }))
            }
            AttributeValue::Ranges(ranges) => fields.r#type(ValueType::Ranges).ranges(Some(ranges)),
            AttributeValue::Set(set) => fields.r#type(ValueType::Set).set(Some(set)),
            AttributeValue::Text(text) => {
                let value = text.clone();
                fields
                    .r#type(ValueType::Text)
                    .text(Some(ValueText { value }))
            }
        };
    }
}

impl From<&resources::Attribute> for Attribute {
    fn from(attribute: &resources::Attribute) -> Self {
        build(attribute)
    }
}

/// Amounts by resource name.
pub(super) fn read_amounts(
    name: &str,
    amounts: &BTreeMap<String, ValueScalar>,
) -> Result<resources::Quantities, Invalid> {
    let one = |(name, scalar): (&String, &ValueScalar)| {
        let place = place_of(name);
        let key = Name::new(name).map_err(|bad| Invalid::new("", bad.value, bad.expected));
        Ok((key.at(&place)?, Scalar::try_from(scalar).at(&place)?))
    };
    amounts
        .iter()
        .map(one)
        .collect::<Result<_, Invalid>>()
        .at(name)
}

pub(super) fn write_amounts(amounts: &resources::Quantities) -> BTreeMap<String, ValueScalar> {
    let one = |(name, amount): (&Name, Scalar)| (name.to_string(), amount.into());
    amounts.iter().map(one).collect()
}
