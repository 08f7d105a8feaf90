//! The flat objects of the v0 endpoints (SPEC 3.12): amounts by name, revocable ones with a suffix,
//! ranges and sets as text.

use std::collections::BTreeSet;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value as Json, json};

use crate::attributes::{AttributeValue, Attributes};
use crate::resource::Resource;
use crate::resources::Resources;
use crate::value::Value;
use crate::value::name::Name;
use crate::value::scalar::Scalar;

/// Names that are always present, with 0 if there are none.
const ALWAYS: [Name; 4] = [Name::Cpus, Name::Gpus, Name::Mem, Name::Disk];

/// Resources in the form of the v0 endpoints: `{"cpus": 4.0, "cpus_revocable": 2.0, "ports":
/// "[1-2]", ..}`.
pub fn resources_object(resources: &Resources) -> Map<String, Json> {
    match serde_json::to_value(ResourcesObject(resources)) {
        Ok(Json::Object(object)) => object,
        _ => Map::new(), // text and numbers can always be written
    }
}

/// The same for serde, as a part of a larger value, without an intermediate copy.
#[derive(Clone, Copy, Debug)]
pub struct ResourcesObject<'a>(pub &'a Resources);

impl Serialize for ResourcesObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        let mut sums = [Scalar::ZERO; ALWAYS.len()];
        let mut has_others = false;
        for own in self.0 {
            let place = ALWAYS.iter().position(|name| own.is(name));
            match (place, own.amount(), own.is_revocable()) {
                (Some(place), Some(amount), false) => sums[place] += amount,
                _ => has_others = true,
            }
        }
        for (name, sum) in ALWAYS.iter().zip(sums) {
            object.serialize_entry(name.as_str(), &sum.as_f64())?;
        }
        if has_others {
            let (regular, revocable) = (self.0.non_revocable(), self.0.revocable());
            write_others(&mut object, &regular, &ALWAYS, "")?;
            write_others(&mut object, &revocable, &[], "_revocable")?;
        }
        object.end()
    }
}

/// Writes the total of each name except these.
fn write_others<M: SerializeMap>(
    object: &mut M,
    part: &Resources,
    but_not: &[Name],
    suffix: &str,
) -> Result<(), M::Error> {
    let names: BTreeSet<Name> = part.iter().map(Resource::name).collect();
    for name in names.iter().filter(|name| !but_not.contains(name)) {
        let key = format!("{name}{suffix}");
        match part.iter().find(|own| own.is(name)).map(Resource::value) {
            Some(Value::Ranges(_)) => {
                object.serialize_entry(&key, &part.ranges(name).to_string())?;
            }
            Some(Value::Set(_)) => object.serialize_entry(&key, &part.set(name).to_string())?,
            _ => object.serialize_entry(&key, &part.scalar(name).as_f64())?,
        }
    }
    Ok(())
}

/// Attributes in the form of the v0 endpoints: `{"rack": "rack-2", "level": 3.0}`.
pub fn attributes_object(attributes: &Attributes) -> Map<String, Json> {
    let value = |value: &AttributeValue| match value {
        AttributeValue::Scalar(number) => json!(number.get()),
        other => json!(other.to_string()),
    };
    attributes
        .iter()
        .map(|own| (own.name().to_owned(), value(own.value())))
        .collect()
}
