//! Reads resource objects from JSON leniently; errors contain the path.

use serde_json::Value as Json;

use crate::error::{Invalid, excerpt};
use crate::resource::Resource;
use crate::resource::annotation::{
    Annotations, Label, Labels, Reservation, ReservationKind, Revocable,
};
use crate::resource::disk::{DiskInfo, DiskSource, Persistence, SourceKind, Volume, VolumeMode};
use crate::resources::quantities::Quantities;
use crate::role::Role;
use crate::value::Value;
use crate::value::name::Name;
use crate::value::ranges::{Range, Ranges};
use crate::value::scalar::Scalar;
use crate::value::set::Set;
use crate::value::text::{Parsed, parse_value};

/// A JSON value and its path.
pub(super) struct At<'a> {
    value: &'a Json,
    path: String,
}

impl<'a> At<'a> {
    pub(super) fn top(value: &'a Json) -> Self {
        Self {
            value,
            path: String::new(),
        }
    }

    /// An error with the expected value.
    pub(super) fn expected(&self, what: &str) -> Invalid {
        let path = if self.path.is_empty() {
            "value"
        } else {
            &self.path
        };
        Invalid::new(path, self.value, what)
    }

    fn child(&self, value: &'a Json, name: &str) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        Self {
            value,
            path: format!("{}{dot}{}", self.path, excerpt(name)),
        }
    }

    /// The field called `name`; null counts as absent.
    pub(super) fn field(&self, name: &str) -> Option<Self> {
        let value = self.value.get(name).filter(|value| !value.is_null())?;
        Some(self.child(value, name))
    }

    pub(super) fn need(&self, name: &str) -> Result<Self, Invalid> {
        if !self.value.is_object() {
            return Err(self.expected("an object"));
        }
        self.field(name)
            .ok_or_else(|| self.expected(&format!("an object with the field `{name}`")))
    }

    /// The entries of a list; a single value counts as a list.
    pub(super) fn many(&self) -> Vec<Self> {
        match self.value {
            Json::Array(all) => {
                let entry = |(n, value)| Self {
                    value,
                    path: format!("{}[{n}]", self.path),
                };
                all.iter().enumerate().map(entry).collect()
            }
            Json::Null => Vec::new(),
            value => vec![Self {
                value,
                path: self.path.clone(),
            }],
        }
    }

    /// The list inside `{"name": [..]}`, or the list itself.
    fn many_in(&self, name: &str) -> Vec<Self> {
        match (self.value, self.field(name)) {
            (Json::Object(_), Some(inner)) => inner.many(),
            (Json::Object(fields), None) if fields.is_empty() => Vec::new(),
            _ => self.many(),
        }
    }

    /// The value inside `{"value": ..}`, or the value itself.
    fn plain(&self) -> Self {
        self.field("value").unwrap_or_else(|| Self {
            value: self.value,
            path: self.path.clone(),
        })
    }

    /// A text, or `{"value": text}`.
    pub(super) fn text(&self) -> Result<&'a str, Invalid> {
        let plain = self.plain();
        plain.value.as_str().ok_or_else(|| plain.expected("a text"))
    }

    /// A number, a text that is one, or `{"value": number}`.
    pub(super) fn number(&self) -> Result<f64, Invalid> {
        let plain = self.plain();
        let number = match plain.value {
            Json::String(text) => text.trim().parse().ok(),
            value => value.as_f64(),
        };
        number.ok_or_else(|| plain.expected("a number"))
    }

    fn whole(&self) -> Result<u64, Invalid> {
        let number = match self.value {
            Json::String(text) => text.trim().parse().ok(),
            value => value.as_u64(),
        };
        number.ok_or_else(|| self.expected("a whole number that is not negative"))
    }

    fn scalar(&self) -> Result<Scalar, Invalid> {
        Scalar::new(self.number()?).map_err(|bad| self.plain().expected(&bad.expected))
    }

    pub(super) fn ranges(&self) -> Result<Ranges, Invalid> {
        if let Some(text) = self.value.as_str() {
            return match parse_value(0, text.trim()) {
                Ok(Parsed::Ranges(ranges)) => Ok(ranges),
                _ => Err(self.expected("ranges, e.g. [31000-32000]")),
            };
        }
        let range = |at: At| {
            let (begin, end) = (at.need("begin")?.whole()?, at.need("end")?.whole()?);
            Range::new(begin, end).map_err(|bad| at.expected(&bad.expected))
        };
        self.many_in("range").into_iter().map(range).collect()
    }

    pub(super) fn set(&self) -> Result<Set, Invalid> {
        let items = self.many_in("item").into_iter().map(|item| item.text());
        Set::new(items.collect::<Result<Vec<_>, _>>()?).map_err(|bad| self.expected(&bad.expected))
    }

    fn role(&self) -> Result<Role, Invalid> {
        Role::new(self.text()?).map_err(|bad| self.expected(&bad.expected))
    }

    /// Whether a marker is set: an object, or `true`.
    fn is_set(&self) -> Result<bool, Invalid> {
        match self.value {
            Json::Bool(set) => Ok(*set),
            Json::Object(_) => Ok(true),
            _ => Err(self.expected("an object, e.g. {}")),
        }
    }

    fn labels(&self) -> Result<Labels, Invalid> {
        let label = |at: At| {
            let value = at
                .field("value")
                .map(|value| value.text().map(str::to_owned))
                .transpose()?;
            Ok(Label {
                key: at.need("key")?.text()?.to_owned(),
                value,
            })
        };
        let labels = self.many_in("labels").into_iter().map(label);
        Ok(Labels::new(labels.collect::<Result<_, Invalid>>()?))
    }

    fn owned_text(&self, name: &str) -> Result<Option<String>, Invalid> {
        self.field(name)
            .map(|at| at.text().map(str::to_owned))
            .transpose()
    }
}

/// Reads one resource object.
pub(super) fn resource(at: &At) -> Result<Resource, Invalid> {
    let name_at = at.need("name")?;
    let name = Name::new(name_at.text()?).map_err(|bad| name_at.expected(&bad.expected))?;
    let value = value(at)?;
    let annotations = Annotations {
        revocable: revocable(at)?,
        lender: None,
        allocation: at
            .field("allocation_info")
            .map(|info| info.field("role").unwrap_or(info).role())
            .transpose()?,
        reservations: reservations(at)?,
        disk: at
            .field("disk")
            .map(|disk_at| disk(&disk_at).map(Box::new))
            .transpose()?,
        shared: at
            .field("shared")
            .map(|shared| shared.is_set())
            .transpose()?
            .unwrap_or(false),
        provider: at
            .field("provider_id")
            .map(|id| id.text().map(Into::into))
            .transpose()?,
    };
    Resource::annotated(name, value, annotations).map_err(|bad| bad.within(&at.path))
}

/// Reads amounts by name.
pub(super) fn quantities(at: &At) -> Result<Quantities, Invalid> {
    let Json::Object(fields) = at.value else {
        return Err(at.expected("an object of amounts by name"));
    };
    let one = |(name, value): (&String, _)| {
        let amount = at.child(value, name);
        let name = Name::new(name).map_err(|bad| amount.expected(&bad.expected))?;
        Ok((name, amount.scalar()?))
    };
    fields.iter().map(one).collect()
}

/// The value, of the given type or of the type that the fields show.
fn value(at: &At) -> Result<Value, Invalid> {
    let (scalar, ranges, set) = (at.field("scalar"), at.field("ranges"), at.field("set"));
    let Some(kind) = at.field("type") else {
        return match (scalar, ranges, set) {
            (Some(scalar), None, None) => Ok(scalar.scalar()?.into()),
            (None, Some(ranges), None) => Ok(ranges.ranges()?.into()),
            (None, None, Some(set)) => Ok(set.set()?.into()),
            _ => Err(at.expected("just one of the fields `scalar`, `ranges` and `set`")),
        };
    };
    match kind.text()?.to_ascii_uppercase().as_str() {
        "SCALAR" => Ok(at.need("scalar")?.scalar()?.into()),
        "RANGES" => Ok(at.need("ranges")?.ranges()?.into()),
        "SET" => Ok(at.need("set")?.set()?.into()),
        _ => Err(kind.expected("SCALAR, RANGES or SET")),
    }
}

/// Revocable if `revocable` is present, and throttleable if `throttle_info` is present too.
fn revocable(at: &At) -> Result<Option<Revocable>, Invalid> {
    let Some(info) = at.field("revocable") else {
        return Ok(None);
    };
    if !info.is_set()? {
        return Ok(None);
    }
    let throttle = info
        .field("throttle_info")
        .map(|info| info.is_set())
        .transpose()?
        .unwrap_or(false);
    Ok(Some(if throttle {
        Revocable::Throttleable
    } else {
        Revocable::NonThrottleable
    }))
}

/// The stack in its new form, or the old form: `role`, with `reservation` if it is dynamic.
fn reservations(at: &At) -> Result<Vec<Reservation>, Invalid> {
    let stack = at
        .field("reservations")
        .map(|all| all.many())
        .unwrap_or_default();
    let stack = stack
        .iter()
        .map(reservation)
        .collect::<Result<Vec<_>, _>>()?;
    let role_at = at.field("role");
    let role = role_at.as_ref().map_or(Ok(Role::STAR), At::role)?;
    if let Some(top) = stack.last() {
        return match role_at {
            Some(at) if !role.is_star() && role != top.role => Err(at.expected(&format!(
                "`{}`, as the last of the reservations says",
                top.role
            ))),
            _ => Ok(stack),
        };
    }
    let old = at.field("reservation");
    match (role_at, old) {
        (_, Some(old)) if role.is_star() => Err(old.expected("no reservation for the role `*`")),
        (_, Some(old)) => {
            let labels = old
                .field("labels")
                .map(|labels| labels.labels())
                .transpose()?
                .unwrap_or_default();
            let principal = old.owned_text("principal")?;
            Ok(vec![Reservation {
                kind: ReservationKind::Dynamic,
                role,
                principal,
                labels,
            }])
        }
        (Some(_), None) if !role.is_star() => Ok(vec![Reservation::fixed(role)]),
        _ => Ok(Vec::new()),
    }
}

fn reservation(at: &At) -> Result<Reservation, Invalid> {
    let kind = at.need("type")?;
    let kind = match kind.text()?.to_ascii_uppercase().as_str() {
        "STATIC" => ReservationKind::Static,
        "DYNAMIC" => ReservationKind::Dynamic,
        _ => return Err(kind.expected("STATIC or DYNAMIC")),
    };
    let labels = at
        .field("labels")
        .map(|labels| labels.labels())
        .transpose()?
        .unwrap_or_default();
    Ok(Reservation {
        kind,
        role: at.need("role")?.role()?,
        principal: at.owned_text("principal")?,
        labels,
    })
}

fn disk(at: &At) -> Result<DiskInfo, Invalid> {
    let persistence = |at: At| {
        Ok(Persistence {
            id: at.need("id")?.text()?.to_owned(),
            principal: at.owned_text("principal")?,
        })
    };
    Ok(DiskInfo {
        persistence: at.field("persistence").map(persistence).transpose()?,
        volume: at
            .field("volume")
            .map(|volume_at| volume(&volume_at))
            .transpose()?,
        source: at
            .field("source")
            .map(|source_at| source(&source_at))
            .transpose()?,
    })
}

fn volume(at: &At) -> Result<Volume, Invalid> {
    let mode = at.field("mode");
    let mode = match mode
        .as_ref()
        .map_or(Ok("RW"), At::text)?
        .to_ascii_uppercase()
        .as_str()
    {
        "RW" => VolumeMode::ReadWrite,
        "RO" => VolumeMode::ReadOnly,
        _ => return Err(at.need("mode")?.expected("RW or RO")),
    };
    let container_path = at.need("container_path")?.text()?.to_owned();
    Ok(Volume {
        container_path,
        host_path: at.owned_text("host_path")?,
        mode,
    })
}

fn source(at: &At) -> Result<DiskSource, Invalid> {
    let kind_at = at.need("type")?;
    let (kind, place) = match kind_at.text()?.to_ascii_uppercase().as_str() {
        "PATH" => (SourceKind::Path, "path"),
        "MOUNT" => (SourceKind::Mount, "mount"),
        "BLOCK" => (SourceKind::Block, "block"),
        "RAW" => (SourceKind::Raw, "raw"),
        _ => return Err(kind_at.expected("PATH, MOUNT, BLOCK or RAW")),
    };
    let root = at
        .field(place)
        .map(|place| place.owned_text("root"))
        .transpose()?
        .flatten();
    let metadata = at
        .field("metadata")
        .map(|labels| labels.labels())
        .transpose()?
        .unwrap_or_default();
    Ok(DiskSource {
        kind,
        root,
        vendor: at.owned_text("vendor")?,
        id: at.owned_text("id")?,
        metadata,
        profile: at.owned_text("profile")?,
    })
}
