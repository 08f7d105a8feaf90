//! The rules of Mesos 1.11 for operations, with its order and messages, which clients compare.
//!
//! Pure. Returns the first broken rule. Additional rules are in [`super::conversion`] and in
//! [`Conversion::apply`].

use std::collections::BTreeSet;

use protocol::{Capability, FrameworkId, FrameworkInfo};
use resources::{
    Conversion, DiskInfo, DiskSource, Label, Reservation, ReservationKind, Resource, Resources,
    Scalar, SourceKind, Value, VolumeMode, shortened,
};

/// Maximum characters of resources in one message.
const TEXT_MAX: usize = 400;

/// The context of an operation's validation.
pub struct OperationRules<'a> {
    /// The requesting framework; `None` for an operator.
    pub framework: Option<(&'a FrameworkId, &'a FrameworkInfo)>,
    /// All resources of the agent.
    pub total: &'a Resources,
    /// Resources held by tasks and executors there.
    pub held: &'a Resources,
}

impl OperationRules<'_> {
    /// The message of the first broken rule. For a framework the resources are allocated to the
    /// role of its offers.
    pub fn broken_by(&self, conversion: &Conversion) -> Option<String> {
        match conversion {
            Conversion::Reserve { resources } => {
                invalid_resources(resources).or_else(|| self.reserve(resources))
            }
            Conversion::Unreserve { resources } => {
                invalid_resources(resources).or_else(|| unreserve(resources))
            }
            Conversion::Create { volumes } => invalid_resources(volumes)
                .or_else(|| not_volumes(volumes))
                .or_else(|| self.create(volumes)),
            Conversion::Destroy { volumes } => invalid_resources(volumes)
                .or_else(|| not_volumes(volumes))
                .or_else(|| self.destroy(&volumes.unallocate())),
            Conversion::GrowVolume { volume, addition } => grow(volume, addition),
            Conversion::ShrinkVolume { volume, subtract } => shrink(volume, *subtract),
        }
    }

    fn reserve(&self, resources: &Resources) -> Option<String> {
        resources.iter().find_map(|resource| {
            let Some(entry) = dynamic(resource) else {
                return Some(not_dynamic(resource));
            };
            let principal = entry.principal.as_deref();
            self.reserved_by(principal)
                .or_else(|| self.reserved_for(resource))
        })
    }

    fn reserved_by(&self, given: Option<&str>) -> Option<String> {
        let principal = self.principal()?;
        match given {
            None => Some(format!(
                "A reserve operation was attempted by principal '{principal}', but there is a reserved resource in the request with no principal set"
            )),
            Some(given) if given != principal => Some(format!(
                "A reserve operation was attempted by authenticated principal '{principal}', which does not match a reserved resource in the request with principal '{given}'"
            )),
            Some(_) => None,
        }
    }

    fn reserved_for(&self, resource: &Resource) -> Option<String> {
        let (role, allocated) = (resource.role(), resource.allocation_role());
        match (self.framework, allocated) {
            (Some(_), Some(allocated)) if allocated != role => Some(format!(
                "A reserve operation was attempted for a resource with role '{role}', but the resource was allocated to role '{allocated}'"
            )),
            (None, Some(_)) => Some(
                "A reserve operation was attempted with an allocated resource, but the operator API only allows reservations to be made to unallocated resources"
                    .to_owned(),
            ),
            _ => None,
        }
    }

    fn create(&self, volumes: &Resources) -> Option<String> {
        let known = self.total.iter().filter_map(name_of);
        let mut taken: BTreeSet<_> = known.collect();
        for name in volumes.iter().filter_map(name_of) {
            if !taken.insert(name) {
                return Some(format!("Persistence ID '{}' is not unique", name.1));
            }
        }
        volumes.iter().find_map(|volume| {
            self.shares(volume)
                .or_else(|| self.created_by(persistent_principal(volume)))
        })
    }

    fn shares(&self, volume: &Resource) -> Option<String> {
        let (id, info) = self.framework?;
        (volume.is_shared() && !info.can(Capability::SharedResources)).then(|| {
            format!(
                "Create volume operation for '{}' has been attempted by framework '{id}' with no SHARED_RESOURCES capability",
                text(volume)
            )
        })
    }

    fn created_by(&self, given: Option<&str>) -> Option<String> {
        let principal = self.principal()?;
        match given {
            None => Some(format!(
                "Create volume operation attempted by principal '{principal}', but there is a volume in the operation with no principal set in 'disk.persistence'"
            )),
            Some(given) if given != principal => Some(format!(
                "Create volume operation attempted by authenticated principal '{principal}', which does not match a volume in the operation with principal '{given}' set in 'disk.persistence'"
            )),
            Some(_) => None,
        }
    }

    fn destroy(&self, volumes: &Resources) -> Option<String> {
        let is_there = |volume: &Resource| self.total.contains_resource(volume);
        if !volumes.iter().all(is_there) {
            return Some("Persistent volumes not found".to_owned());
        }
        let held = self.held.unallocate();
        let mut volumes = volumes.iter();
        let in_use = volumes.any(|volume| held.contains_resource(volume));
        in_use.then(|| "Persistent volumes in use".to_owned())
    }

    /// The principal of the framework. An operator's is a matter of authorization.
    fn principal(&self) -> Option<&str> {
        self.framework?.1.principal.as_deref()
    }
}

/// Rules for resources in all operations except resizing.
fn invalid_resources(resources: &Resources) -> Option<String> {
    resources.iter().find_map(|resource| {
        let disk = resource.annotations().disk.as_deref()?;
        let problem = invalid_disk(resource, disk)?;
        Some(format!("Invalid resources: Invalid DiskInfo: {problem}"))
    })
}

fn invalid_disk(resource: &Resource, disk: &DiskInfo) -> Option<&'static str> {
    match (&disk.persistence, &disk.volume) {
        (Some(_), _) if resource.is_revocable() => {
            Some("Persistent volumes cannot be created from revocable resources")
        }
        (Some(_), _) if !resource.is_reserved() => {
            Some("Persistent volumes cannot be created from unreserved resources")
        }
        (Some(_), None) => Some("Expecting 'volume' to be set for persistent volume"),
        (Some(_), Some(volume)) => volume
            .host_path
            .is_some()
            .then_some("Expecting 'host_path' to be unset for persistent volume"),
        (None, Some(_)) => Some("Non-persistent volume not supported"),
        (None, None) => disk.source.is_none().then_some("DiskInfo is set but empty"),
    }
}

fn not_volumes(volumes: &Resources) -> Option<String> {
    let problem = volumes.iter().find_map(not_a_volume)?;
    Some(format!("Not a persistent volume: {problem}"))
}

fn not_a_volume(volume: &Resource) -> Option<String> {
    let Some(disk) = volume.annotations().disk.as_deref() else {
        return Some(format!("Resource {} does not have DiskInfo", text(volume)));
    };
    let problem = match (&disk.persistence, &disk.volume) {
        (None, _) => "'persistence' is not set in DiskInfo",
        (_, None) => "Expecting 'volume' to be set for persistent volume",
        (_, Some(volume)) if volume.mode == VolumeMode::ReadOnly => {
            "Read-only persistent volume not supported"
        }
        _ => return None,
    };
    Some(problem.to_owned())
}

fn unreserve(resources: &Resources) -> Option<String> {
    resources.iter().find_map(|resource| {
        if dynamic(resource).is_none() {
            return Some(not_dynamic(resource));
        }
        resource.is_persistent_volume().then(|| {
            format!(
                "A dynamically reserved persistent volume {} cannot be unreserved directly. Please destroy the persistent volume first then unreserve the resource",
                text(resource)
            )
        })
    })
}

fn grow(volume: &Resource, addition: &Resource) -> Option<String> {
    let added = addition.value().as_scalar().unwrap_or_default();
    if added.is_zero() {
        let problem = "The size of 'GrowVolume.addition' field must be greater than zero";
        return Some(problem.to_owned());
    }
    resized_volume("GrowVolume", volume).or_else(|| {
        let problem = "Growing a shared persistent volume is not supported";
        volume.is_shared().then(|| problem.to_owned())
    })
}

fn shrink(volume: &Resource, subtract: Scalar) -> Option<String> {
    let size = volume.value().as_scalar().unwrap_or_default();
    let source = volume.annotations().disk.as_deref();
    let source = source.and_then(|disk| disk.source.as_ref());
    let is_mount = source.is_some_and(|source| source.kind == SourceKind::Mount);
    let problem = if subtract.is_zero() {
        "Value of 'ShrinkVolume.subtract' must be greater than zero"
    } else if subtract >= size {
        "Value of 'ShrinkVolume.subtract' must be smaller than the size of 'ShrinkVolume.volume'"
    } else if is_mount {
        "Shrinking a volume on a MOUNT disk is not supported"
    } else if let Some(problem) = resized_volume("ShrinkVolume", volume) {
        return Some(problem);
    } else if volume.is_shared() {
        "Shrinking a shared persistent volume is not supported"
    } else {
        return None;
    };
    Some(problem.to_owned())
}

fn resized_volume(call: &str, volume: &Resource) -> Option<String> {
    let problem = not_a_volume(volume)?;
    Some(format!(
        "Invalid persistent volume in the '{call}.volume' field: {problem}"
    ))
}

fn not_dynamic(resource: &Resource) -> String {
    format!("Resource {} is not dynamically reserved", text(resource))
}

/// The newest reservation, if it is dynamic.
fn dynamic(resource: &Resource) -> Option<&Reservation> {
    let newest = resource.reservation()?;
    (newest.kind == ReservationKind::Dynamic).then_some(newest)
}

/// A volume's name on its agent.
fn name_of(volume: &Resource) -> Option<(&str, &str)> {
    let persistence = volume.annotations().disk.as_ref()?.persistence.as_ref()?;
    Some((volume.role().as_str(), &persistence.id))
}

fn persistent_principal(volume: &Resource) -> Option<&str> {
    let persistence = volume.annotations().disk.as_ref()?.persistence.as_ref()?;
    persistence.principal.as_deref()
}

/// The message if too few resources are left for an operation.
pub fn lacking(left: &Resources, needed: &Resources) -> String {
    format!("{} does not contain {}", texts(left), texts(needed))
}

/// Resources in the format of Mesos.
pub fn texts(resources: &Resources) -> String {
    let each: Vec<String> = resources.iter().map(text).collect();
    match each.is_empty() {
        true => "{}".to_owned(),
        false => shortened(&each.join("; "), TEXT_MAX),
    }
}

/// A resource in the format of Mesos.
fn text(resource: &Resource) -> String {
    let notes = resource.annotations();
    let mut text = resource.name_str().to_owned();
    if let Some(role) = &notes.allocation {
        text += &format!("(allocated: {role})");
    }
    if resource.is_reserved() {
        let each: Vec<String> = resource.reservations().iter().map(reservation).collect();
        text += &format!("(reservations: [{}])", each.join(","));
    }
    if let Some(disk) = notes.disk.as_deref() {
        text += &format!("[{}]", self::disk(disk));
    }
    if resource.is_revocable() {
        text += "{REV}";
    }
    if resource.is_shared() {
        text += "<SHARED>";
    }
    let value = match resource.value() {
        Value::Scalar(amount) => amount.to_string(),
        Value::Ranges(ranges) => ranges.to_string().replace(',', ", "),
        Value::Set(set) => set.to_string().replace(',', ", "),
    };
    shortened(&format!("{text}:{value}"), TEXT_MAX)
}

fn reservation(entry: &Reservation) -> String {
    let kind = match entry.kind {
        ReservationKind::Static => "STATIC",
        ReservationKind::Dynamic => "DYNAMIC",
    };
    let mut text = format!("({kind},{}", entry.role);
    if let Some(principal) = &entry.principal {
        text += &format!(",{principal}");
    }
    if !entry.labels.is_empty() {
        let label = |Label { key, value }: &Label| match value {
            Some(value) => format!("{key}: {value}"),
            None => key.clone(),
        };
        let labels: Vec<String> = entry.labels.iter().map(label).collect();
        text += &format!(",{{{}}}", labels.join(", "));
    }
    text + ")"
}

fn disk(disk: &DiskInfo) -> String {
    let source = disk.source.as_ref().map(source);
    let persistence = disk.persistence.as_ref();
    let id = persistence.map(|persistence| persistence.id.clone());
    let mut text: String = Vec::from_iter([source, id].into_iter().flatten()).join(",");
    if let Some(volume) = &disk.volume {
        text += &format!(":{}", volume.container_path);
    }
    text
}

fn source(source: &DiskSource) -> String {
    let kind = match source.kind {
        SourceKind::Path => "PATH",
        SourceKind::Mount => "MOUNT",
        SourceKind::Block => "BLOCK",
        SourceKind::Raw => "RAW",
    };
    match &source.root {
        Some(root) => format!("{kind}:{root}"),
        None => kind.to_owned(),
    }
}

#[cfg(test)]
mod tests;
