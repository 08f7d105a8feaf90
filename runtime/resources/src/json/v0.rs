//! The flat objects of the v0 endpoints (SPEC 3.12): amounts by name, revocable ones with a suffix,
//! ranges and sets as text.

use serde_json::{Map, Value as Json, json};

use crate::attributes::{AttributeValue, Attributes};
use crate::name::Name;
use crate::resources::Resources;
use crate::value::Value;

/// The names that are always there, with 0 if there is none of them.
const ALWAYS: [Name; 4] = [Name::Cpus, Name::Gpus, Name::Mem, Name::Disk];

/// Resources as the v0 endpoints show them: `{"cpus": 4.0, "cpus_revocable": 2.0, "ports": "[1-2]", ..}`.
pub fn resources_object(resources: &Resources) -> Map<String, Json> {
    let mut object = Map::new();
    for name in &ALWAYS {
        object.insert(name.to_string(), json!(0.0));
    }
    for (part, suffix) in [
        (resources.non_revocable(), ""),
        (resources.revocable(), "_revocable"),
    ] {
        for own in &part {
            let name = own.name();
            let value = match own.value() {
                Value::Scalar(_) => json!(part.scalar(&name).as_f64()),
                Value::Ranges(_) => json!(part.ranges(&name).to_string()),
                Value::Set(_) => json!(part.set(&name).to_string()),
            };
            object.insert(format!("{name}{suffix}"), value);
        }
    }
    object
}

/// Attributes as the v0 endpoints show them: `{"rack": "rack-2", "level": 3.0}`.
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
