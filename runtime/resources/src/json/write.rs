//! Resource objects of the v1 API. The old fields are written beside the new ones where both can
//! express the same, for clients of either age.

use serde::Serialize;

use crate::resource::Resource;
use crate::resource::annotation::{Labels, Reservation, ReservationKind, Revocable};
use crate::resource::disk::{DiskInfo, DiskSource, SourceKind, VolumeMode};
use crate::value::Value;

#[derive(Serialize)]
pub(super) struct ResourceObject<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    scalar: Option<NumberObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ranges: Option<RangesObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    set: Option<SetObject<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation: Option<OldReservation<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reservations: Vec<ReservationObject<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<DiskObject<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revocable: Option<RevocableObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shared: Option<Empty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allocation_info: Option<RoleObject<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider_id: Option<TextObject<'a>>,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
pub(super) struct NumberObject {
    pub(super) value: f64,
}

#[derive(Serialize)]
pub(super) struct TextObject<'a> {
    pub(super) value: &'a str,
}

#[derive(Serialize)]
struct RoleObject<'a> {
    role: &'a str,
}

#[derive(Serialize)]
pub(super) struct RangesObject {
    range: Vec<crate::Range>,
}

#[derive(Serialize)]
pub(super) struct SetObject<'a> {
    item: Vec<&'a str>,
}

#[derive(Serialize)]
struct RevocableObject {
    #[serde(skip_serializing_if = "Option::is_none")]
    throttle_info: Option<Empty>,
}

#[derive(Serialize)]
struct OldReservation<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<LabelsObject<'a>>,
}

#[derive(Serialize)]
struct ReservationObject<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    role: &'a str,
    #[serde(flatten)]
    rest: OldReservation<'a>,
}

#[derive(Serialize)]
struct LabelsObject<'a> {
    labels: Vec<LabelObject<'a>>,
}

#[derive(Serialize)]
struct LabelObject<'a> {
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
}

#[derive(Serialize)]
struct DiskObject<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    persistence: Option<PersistenceObject<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    volume: Option<VolumeObject<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<SourceObject<'a>>,
}

#[derive(Serialize)]
struct PersistenceObject<'a> {
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<&'a str>,
}

#[derive(Serialize)]
struct VolumeObject<'a> {
    container_path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_path: Option<&'a str>,
    mode: &'static str,
}

#[derive(Serialize)]
struct SourceObject<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<RootObject<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mount: Option<RootObject<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vendor: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<LabelsObject<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<&'a str>,
}

#[derive(Serialize)]
struct RootObject<'a> {
    root: &'a str,
}

impl<'a> From<&'a Resource> for ResourceObject<'a> {
    fn from(own: &'a Resource) -> Self {
        let notes = own.annotations();
        let stack = own.reservations();
        // The old form has only one reservation.
        let role = (stack.len() < 2).then(|| own.role().as_str());
        let dynamic =
            |only: &&Reservation| only.kind == ReservationKind::Dynamic && stack.len() == 1;
        let revocable = |kind| RevocableObject {
            throttle_info: (kind == Revocable::Throttleable).then_some(Empty {}),
        };
        Self {
            name: own.name_str(),
            kind: own.value().type_name(),
            scalar: own.value().as_scalar().map(|amount| NumberObject {
                value: amount.as_f64(),
            }),
            ranges: own.value().as_ranges().map(RangesObject::from),
            set: match own.value() {
                Value::Set(set) => Some(SetObject::from(set.as_ref())),
                _ => None,
            },
            role,
            reservation: own.reservation().filter(dynamic).map(OldReservation::from),
            reservations: stack.iter().map(ReservationObject::from).collect(),
            disk: notes.disk.as_deref().map(DiskObject::from),
            revocable: notes.revocable.map(revocable),
            shared: notes.shared.then_some(Empty {}),
            allocation_info: notes.allocation.as_ref().map(|role| RoleObject {
                role: role.as_str(),
            }),
            provider_id: notes.provider.as_deref().map(|value| TextObject { value }),
        }
    }
}

impl From<&crate::Ranges> for RangesObject {
    fn from(ranges: &crate::Ranges) -> Self {
        Self {
            range: ranges.as_slice().to_vec(),
        }
    }
}

impl<'a> From<&'a crate::Set> for SetObject<'a> {
    fn from(set: &'a crate::Set) -> Self {
        Self {
            item: set.iter().collect(),
        }
    }
}

impl<'a> From<&'a Reservation> for OldReservation<'a> {
    fn from(entry: &'a Reservation) -> Self {
        Self {
            principal: entry.principal.as_deref(),
            labels: labels(&entry.labels),
        }
    }
}

impl<'a> From<&'a Reservation> for ReservationObject<'a> {
    fn from(entry: &'a Reservation) -> Self {
        let kind = match entry.kind {
            ReservationKind::Static => "STATIC",
            ReservationKind::Dynamic => "DYNAMIC",
        };
        Self {
            kind,
            role: entry.role.as_str(),
            rest: entry.into(),
        }
    }
}

fn labels(labels: &Labels) -> Option<LabelsObject<'_>> {
    (!labels.is_empty()).then(|| LabelsObject {
        labels: labels.iter().map(LabelObject::from).collect(),
    })
}

impl<'a> From<&'a crate::Label> for LabelObject<'a> {
    fn from(own: &'a crate::Label) -> Self {
        Self {
            key: &own.key,
            value: own.value.as_deref(),
        }
    }
}

impl<'a> From<&'a DiskInfo> for DiskObject<'a> {
    fn from(disk: &'a DiskInfo) -> Self {
        let mode = |mode| match mode {
            VolumeMode::ReadWrite => "RW",
            VolumeMode::ReadOnly => "RO",
        };
        Self {
            persistence: disk.persistence.as_ref().map(|own| PersistenceObject {
                id: &own.id,
                principal: own.principal.as_deref(),
            }),
            volume: disk.volume.as_ref().map(|own| VolumeObject {
                container_path: &own.container_path,
                host_path: own.host_path.as_deref(),
                mode: mode(own.mode),
            }),
            source: disk.source.as_ref().map(SourceObject::from),
        }
    }
}

impl<'a> From<&'a DiskSource> for SourceObject<'a> {
    fn from(source: &'a DiskSource) -> Self {
        let root = |kind| {
            let root = source.root.as_deref().filter(|_| source.kind == kind);
            root.map(|root| RootObject { root })
        };
        Self {
            kind: match source.kind {
                SourceKind::Path => "PATH",
                SourceKind::Mount => "MOUNT",
                SourceKind::Block => "BLOCK",
                SourceKind::Raw => "RAW",
            },
            path: root(SourceKind::Path),
            mount: root(SourceKind::Mount),
            vendor: source.vendor.as_deref(),
            id: source.id.as_deref(),
            metadata: labels(&source.metadata),
            profile: source.profile.as_deref(),
        }
    }
}
