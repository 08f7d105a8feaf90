//! Quotas, weights and roles in the JSON of Mesos.
//!
//! Pure. Parses quotas in both forms of Mesos, and weights; unknown fields are refused, since a
//! misspelled limit would otherwise be ignored. Refusals begin as in Mesos, since clients compare
//! that.

use std::collections::BTreeMap;
use std::fmt::Display;

use protocol::Quota;
use protocol::message::operator::{UpdateQuotas, UpdateWeights};
use resources::{Name, Quantities, Resources, json, shortened};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::api::pages::pieces;
use crate::roles::weights::Weights;

/// An example of quotas.
const QUOTAS: &str = r#"{"quota_configs":[{"role":"eng","guarantees":{"cpus":{"value":2}},"limits":{"cpus":{"value":8}}}]} or {"role":"eng","guarantee":[{"name":"cpus","type":"SCALAR","scalar":{"value":2}}]}"#;
/// Maximum characters of the given value in an error.
const FOUND_MAX: usize = 200;
/// An example of weights.
const WEIGHTS: &str = r#"[{"role":"eng","weight":2.5}]"#;

/// A parsed update of quotas.
#[derive(Debug, PartialEq)]
pub struct ParsedQuotas {
    /// The update.
    pub update: UpdateQuotas,
    /// In the form of Mesos before 1.9, which sets one role's guarantee and limit to the same
    /// value.
    pub is_v0: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct V2 {
    #[serde(default)]
    force: bool,
    quota_configs: Vec<QuotaConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuotaConfig {
    role: String,
    #[serde(default)]
    guarantees: json::Quantities,
    #[serde(default)]
    limits: json::Quantities,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct V0 {
    role: String,
    #[serde(default)]
    force: bool,
    guarantee: json::Resources,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WeightInfo {
    role: String,
    weight: f64,
}

/// Parses quotas in either form.
pub fn quotas(body: &[u8]) -> Result<ParsedQuotas, String> {
    let value: Value = read(body, "Failed to parse set quota request JSON", QUOTAS)?;
    let invalid = "Failed to validate set quota request JSON";
    if value.get("quota_configs").is_some() {
        let V2 {
            force,
            quota_configs,
        } = parse_shape(value, body, invalid, QUOTAS)?;
        let configs = quota_configs.into_iter().map(|config| {
            let quota = Quota {
                guarantees: config.guarantees.0,
                limits: config.limits.0,
            };
            (config.role, quota)
        });
        let update = UpdateQuotas {
            quotas: each_once(configs)?,
            force,
        };
        return Ok(ParsedQuotas {
            update,
            is_v0: false,
        });
    }
    let V0 {
        role,
        force,
        guarantee,
    } = parse_shape(value, body, invalid, QUOTAS)?;
    let amounts = amounts(&guarantee.0)?;
    let quota = Quota {
        guarantees: amounts.clone(),
        limits: amounts,
    };
    let quotas = BTreeMap::from([(role, quota)]);
    Ok(ParsedQuotas {
        update: UpdateQuotas { quotas, force },
        is_v0: true,
    })
}

/// Parses weights.
pub fn weights(body: &[u8]) -> Result<UpdateWeights, String> {
    let value = read(body, "Failed to parse update weights request JSON", WEIGHTS)?;
    let invalid = "Failed to convert weights JSON array to protobuf";
    let infos: Vec<WeightInfo> = parse_shape(value, body, invalid, WEIGHTS)?;
    let weights = each_once(infos.into_iter().map(|info| (info.role, info.weight)))?;
    Ok(UpdateWeights { weights })
}

fn read(body: &[u8], failed: &str, expected: &str) -> Result<Value, String> {
    let failed = || format!("{failed} '{}'", shorten(String::from_utf8_lossy(body)));
    json::parse_unique_fields(body).map_err(|error| match error.is_data() {
        true => format!("{}: {error}: expected each field once", failed()),
        false => format!("{}: {error}: expected {expected}", failed()),
    })
}

fn parse_shape<T: DeserializeOwned>(
    value: Value,
    body: &[u8],
    failed: &str,
    expected: &str,
) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| {
        let body = shorten(String::from_utf8_lossy(body));
        format!("{failed} '{body}': {}: expected {expected}", shorten(error))
    })
}

/// The given value, shortened. Control characters are escaped, as in all error texts.
fn shorten(found: impl Display) -> String {
    shortened(&found.to_string(), FOUND_MAX)
}

fn each_once<T>(pairs: impl Iterator<Item = (String, T)>) -> Result<BTreeMap<String, T>, String> {
    let mut all = BTreeMap::new();
    for (role, value) in pairs {
        let again = all.insert(role.clone(), value);
        if again.is_some() {
            return Err(format!(
                "role `{}` is there twice: expected each role once",
                shorten(role)
            ));
        }
    }
    Ok(all)
}

/// The amounts of resources without reservations or other attributes.
fn amounts(resources: &resources::Resources) -> Result<Quantities, String> {
    let plain =
        |one: &&resources::Resource| one.amount().is_some() && one.is_open() && !one.is_shared();
    match resources.iter().find(|one| !plain(one)) {
        None => Ok(resources.quantities()),
        Some(other) => Err(format!(
            "guarantee is `{}`: expected unreserved amounts, as cpus:2",
            shorten(other)
        )),
    }
}

/// `GET /quota`: both forms at once, as Mesos since 1.9.
pub(in crate::api) fn quota_status(quotas: &BTreeMap<String, Quota>) -> Value {
    let info = |(role, quota): (&String, &Quota)| {
        let amount = |(name, amount): (&resources::Name, resources::Scalar)| json!({ "name": name.as_str(), "type": "SCALAR", "scalar": { "value": amount.as_f64() } });
        json!({ "role": role, "guarantee": quota.guarantees.iter().map(amount).collect::<Value>() })
    };
    let config = |(role, quota): (&String, &Quota)| {
        json!({
            "role": role,
            "guarantees": json::Quantities(quota.guarantees.clone()),
            "limits": json::Quantities(quota.limits.clone()),
        })
    };
    json!({
        "infos": quotas.iter().map(info).collect::<Value>(),
        "configs": quotas.iter().map(config).collect::<Value>(),
    })
}

/// `GET /weights`.
pub(in crate::api) fn weight_infos(weights: &Weights) -> Value {
    let info = |(role, weight): (&String, &f64)| json!({ "role": role, "weight": weight });
    weights.iter().map(info).collect()
}

/// A role in `/roles`.
pub fn role(role: &protocol::view::RoleView) -> Value {
    let mut consumed = quantities(&(&role.allocated.open() + &role.reserved));
    consumed.extend(pieces::amounts(&role.consumed));
    json!({
        "name": role.name,
        "weight": role.weight,
        "quota": {
            "role": role.name,
            "guarantee": pieces::amounts(&role.quota.guarantees),
            "limit": pieces::amounts(&role.quota.limits),
            "consumed": consumed,
        },
        "resources": quantities(&(&role.allocated + &role.offered)),
        "allocated": quantities(&role.allocated),
        "offered": quantities(&role.offered),
        "reserved": quantities(&role.reserved),
        "frameworks": role.frameworks,
    })
}

/// Resources as numbers by name, as Mesos shows those of roles: ranges and sets as their number of
/// items.
fn quantities(resources: &Resources) -> Map<String, Value> {
    let mut all: BTreeMap<Name, f64> = BTreeMap::new();
    for one in resources {
        *all.entry(one.name()).or_default() += match one.value() {
            resources::Value::Scalar(amount) => amount.as_f64(),
            resources::Value::Ranges(ranges) => ranges.count() as f64,
            resources::Value::Set(set) => set.len() as f64,
        };
    }
    let named = |(name, number): (Name, f64)| (name.to_string(), json!(number));
    all.into_iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use testkit::assert_contains;

    use super::*;

    /// As in Mesos: `ports` of a role is their number.
    #[test]
    fn resources_of_a_role_are_numbers() {
        let allocated = |text: &str| {
            let parsed: Resources = text.parse().unwrap();
            parsed.allocate(&"eng".parse().unwrap())
        };
        let view = protocol::view::RoleView {
            name: "eng".to_owned(),
            weight: 1.0,
            quota: Quota::default(),
            consumed: "cpus:3".parse().unwrap(),
            frameworks: Vec::new(),
            allocated: allocated("cpus:1;ports:[1-3, 7-7]"),
            offered: allocated("cpus:0.5;ports:[8-9];tags:{a,b}"),
            reserved: "cpus(eng):2;ports(eng):[10-14]".parse().unwrap(),
        };
        let visible = role(&view);
        for (key, expected) in [
            ("allocated", json!({ "cpus": 1.0, "ports": 4.0 })),
            ("offered", json!({ "cpus": 0.5, "ports": 2.0, "tags": 2.0 })),
            (
                "resources",
                json!({ "cpus": 1.5, "ports": 6.0, "tags": 2.0 }),
            ),
            ("reserved", json!({ "cpus": 2.0, "ports": 5.0 })),
        ] {
            assert_eq!(visible[key], expected, "{key}");
        }
        assert_eq!(
            visible["quota"]["consumed"],
            json!({ "cpus": 3.0, "ports": 9.0 })
        );
    }

    fn quota(guarantees: &str, limits: &str) -> Quota {
        Quota {
            guarantees: guarantees.parse().unwrap(),
            limits: limits.parse().unwrap(),
        }
    }

    /// SPEC 2.6, 3.4.
    #[test]
    fn both_forms_of_quota_are_read() {
        let parsed = quotas(
            br#"{"force":true,"quota_configs":[
                {"role":"eng","guarantees":{"cpus":{"value":2}},"limits":{"cpus":{"value":8},"mem":1024}},
                {"role":"ops"}]}"#,
        )
        .unwrap();
        assert!(parsed.update.force && !parsed.is_v0);
        assert_eq!(
            parsed.update.quotas["eng"],
            quota("cpus:2", "cpus:8;mem:1024")
        );
        assert!(parsed.update.quotas["ops"].is_default());
        let parsed = quotas(
            br#"{"role":"eng","guarantee":[{"name":"cpus","type":"SCALAR","scalar":{"value":12}},{"name":"mem","type":"SCALAR","scalar":{"value":6144}}]}"#,
        )
        .unwrap();
        assert!(parsed.is_v0 && !parsed.update.force);
        let both = "cpus:12;mem:6144";
        assert_eq!(parsed.update.quotas["eng"], quota(both, both));
    }

    #[test]
    fn unreadable_bodies_are_answered_with_an_example() {
        for (body, words) in [
            ("", "Failed to parse set quota request JSON '': "),
            (
                "{}",
                "Failed to validate set quota request JSON '{}': missing field",
            ),
            (
                r#"{"quota_configs":[{"role":"eng","limit":{"cpus":1}}]}"#,
                "unknown field `limit`",
            ),
            (
                r#"{"quota_configs":[{"role":"eng","limits":{"cpus":-1}}]}"#,
                "cpus is `-1`",
            ),
            (r#"{"quota_configs":[{"role":"e"},{"role":"e"}]}"#, "twice"),
            (
                r#"{"role":"e","guarantee":[{"name":"ports","type":"RANGES","ranges":{"range":[{"begin":1,"end":2}]}}]}"#,
                "expected unreserved amounts",
            ),
            (
                r#"{"role":"e","guarantee":[{"name":"cpus","type":"SCALAR","scalar":{"value":1},"role":"ads"}]}"#,
                "unreserved amounts",
            ),
        ] {
            let problem = quotas(body.as_bytes()).unwrap_err();
            assert_contains!(problem, words, "expected");
        }
        for body in [
            r#"{"role":"e","role":"f","guarantee":[]}"#,
            r#"{"quota_configs":[{"role":"e","limits":{},"limits":{"cpus":1}}]}"#,
            r#"{"role":"e","guarantee":[{"name":"cpus","type":"SCALAR","scalar":{"value":1,"value":2}}]}"#,
        ] {
            let problem = quotas(body.as_bytes()).unwrap_err();
            let is_told = problem.contains("comes twice") && problem.contains("each field once");
            assert!(is_told, "{problem}");
        }
        let (parse, convert) = (
            "Failed to parse update weights request JSON",
            "Failed to convert weights JSON array to protobuf",
        );
        for (body, failed) in [
            ("[]x", parse),
            (r#"{"role":"e"}"#, convert),
            (r#"[{"role":"e","weight":"2"}]"#, convert),
        ] {
            let problem = weights(body.as_bytes()).unwrap_err();
            let words = format!("{failed} '{body}': ");
            let is_told = problem.starts_with(&words) && problem.contains(WEIGHTS);
            assert!(is_told, "{problem}");
        }
        let parsed =
            weights(br#"[{"role":"eng","weight":2.5},{"role":"ops","weight":1}]"#).unwrap();
        assert_eq!(parsed.weights.len(), 2);
    }

    #[test]
    fn rendered_quotas_can_be_parsed_again() {
        let held = BTreeMap::from([("eng".to_owned(), quota("cpus:2", "cpus:8;mem:0"))]);
        let status = quota_status(&held);
        assert_eq!(status["infos"][0]["guarantee"][0]["scalar"]["value"], 2.0);
        let again = json!({ "quota_configs": status["configs"] }).to_string();
        assert_eq!(quotas(again.as_bytes()).unwrap().update.quotas, held);
    }
}
