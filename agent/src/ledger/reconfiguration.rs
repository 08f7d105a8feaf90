//! Reconfiguration: whether a changed agent description is compatible with recovery
//! (`--reconfiguration_policy`). Pure.

use std::collections::VecDeque;

use protocol::AgentInfo;
use resources::{Attribute, AttributeValue, Attributes};

/// The description is incompatible with the executors that still run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{field} was {was} for the executors that still run, but is {is}: restore it, or kill them with --recover=cleanup"
)]
pub struct Incompatible {
    /// The field.
    pub field: &'static str,
    /// Its earlier value.
    pub was: String,
    /// Its present value.
    pub is: String,
}

/// Which changes of the description are allowed at recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReconfigurationPolicy {
    /// All of them.
    #[default]
    Any,
    /// None.
    Equal,
    /// Additions: larger scalars, supersets of ranges and sets, new resources and attributes, and a
    /// domain if there was none.
    Additive,
}

impl ReconfigurationPolicy {
    /// Its flag value.
    pub fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Equal => "equal",
            Self::Additive => "additive",
        }
    }

    /// The first field whose change is not allowed. Masters and executors know the earlier values.
    pub(super) fn difference(self, was: &AgentInfo, is: &AgentInfo) -> Option<Incompatible> {
        let domain = |info: &AgentInfo| {
            let domain = info.domain.as_ref();
            domain.map_or(String::new(), |domain| {
                format!("{}/{}", domain.region, domain.zone)
            })
        };
        if self == Self::Any {
            return None;
        }
        let more = self == Self::Additive;
        let resources = more && is.resources.contains(&was.resources);
        let attributes = more && has_all(&is.attributes, &was.attributes);
        let domains = more && was.domain.is_none();
        let fields = [
            (
                "--hostname",
                was.hostname == is.hostname,
                was.hostname.clone(),
                is.hostname.clone(),
            ),
            (
                "--port",
                was.port == is.port,
                was.port.to_string(),
                is.port.to_string(),
            ),
            (
                "--resources",
                resources || was.resources == is.resources,
                was.resources.to_string(),
                is.resources.to_string(),
            ),
            (
                "--attributes",
                attributes || was.attributes == is.attributes,
                was.attributes.to_string(),
                is.attributes.to_string(),
            ),
            (
                "--domain",
                domains || was.domain == is.domain,
                domain(was),
                domain(is),
            ),
        ];
        let mut fields = fields.into_iter();
        let (field, _, was, is) = fields.find(|(_, fits, ..)| !fits)?;
        Some(Incompatible {
            field,
            was: format!("`{was}`"),
            is: format!("`{is}`"),
        })
    }
}

/// Whether each attribute of `others` is covered by its own attribute of `all` (a bipartite
/// matching).
fn has_all(all: &Attributes, others: &Attributes) -> bool {
    let (all, others): (Vec<_>, Vec<_>) = (all.iter().collect(), others.iter().collect());
    // The index in `all` assigned to each of the others.
    let mut has = vec![None; others.len()];
    (0..others.len()).all(|other| find_one(other, &all, &others, &mut has))
}

/// Assigns an attribute of `all` to `first`, reassigning others along an augmenting path. `false`
/// if there is none.
fn find_one(
    first: usize,
    all: &[&Attribute],
    others: &[&Attribute],
    has: &mut [Option<usize>],
) -> bool {
    let mut owner = vec![None; all.len()];
    for (other, own) in has.iter().enumerate() {
        if let Some(slot) = own.and_then(|own| owner.get_mut(own)) {
            *slot = Some(other);
        }
    }
    // Breadth-first search: which other claims each attribute.
    let mut taker = vec![None; all.len()];
    let mut without = VecDeque::from([first]);
    while let Some(other) = without.pop_front() {
        for own in 0..all.len() {
            if taker[own].is_some() || !covers(all[own], others[other]) {
                continue;
            }
            taker[own] = Some(other);
            if let Some(owner) = owner[own] {
                without.push_back(owner);
                continue;
            }
            let mut free = Some(own);
            while let Some(own) = free {
                let Some(other) = taker[own] else { break };
                free = has[other].replace(own);
            }
            return true;
        }
    }
    false
}

fn covers(own: &Attribute, other: &Attribute) -> bool {
    own.name() == other.name() && covers_value(own.value(), other.value())
}

fn covers_value(own: &AttributeValue, other: &AttributeValue) -> bool {
    match (own, other) {
        (AttributeValue::Scalar(own), AttributeValue::Scalar(other)) => own.get() >= other.get(),
        (AttributeValue::Ranges(own), AttributeValue::Ranges(other)) => own.contains(other),
        (AttributeValue::Set(own), AttributeValue::Set(other)) => own.contains(other),
        (own, other) => own == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::agent::Domain;
    use resources::Resources;

    fn info(resources: &str, attributes: &str, domain: Option<&str>) -> AgentInfo {
        AgentInfo {
            attributes: Attributes::parse(attributes).unwrap(),
            domain: domain.map(|text| text.parse::<Domain>().unwrap()),
            ..AgentInfo::new("h", Resources::parse(resources).unwrap())
        }
    }

    /// SPEC 5.3: scalars may grow, ranges and sets be supersets; existing texts are equal; new ones
    /// are allowed.
    #[test]
    fn additive_policy_allows_only_additions() {
        let was = info("cpus:4;ports:[1-9]", "rack:r1;load:2;os:{a,b}", None);
        let differs = |is: &AgentInfo| {
            let found = ReconfigurationPolicy::Additive.difference(&was, is);
            let strict = ReconfigurationPolicy::Equal.difference(&was, is);
            assert!(strict.is_some() || *is == was, "{is:?}");
            assert_eq!(ReconfigurationPolicy::Any.difference(&was, is), None);
            found.map(|found| found.field)
        };
        let more = info(
            "cpus:8;ports:[1-20];gpus:1",
            "rack:r1;load:3;os:{a,b,c};zone:z",
            Some("r/z"),
        );
        assert_eq!(differs(&was), None);
        assert_eq!(differs(&more), None);
        let (ports, rack) = ("cpus:4;ports:[1-9]", "rack:r1;load:2;os:{a,b}");
        assert_eq!(
            differs(&info("cpus:3;ports:[1-9]", rack, None)),
            Some("--resources")
        );
        assert_eq!(
            differs(&info("cpus:4;ports:[2-9]", rack, None)),
            Some("--resources")
        );
        assert_eq!(
            differs(&info("cpus(ads):4;ports:[1-9]", rack, None)),
            Some("--resources")
        );
        for other in [
            "rack:r2;load:2;os:{a,b}",
            "rack:r1;load:1;os:{a,b}",
            "rack:r1;load:2;os:{a}",
            "load:2;os:{a,b}",
        ] {
            assert_eq!(
                differs(&info(ports, other, None)),
                Some("--attributes"),
                "{other}"
            );
        }
        let elsewhere = AgentInfo {
            hostname: "i".to_owned(),
            ..more.clone()
        };
        assert_eq!(differs(&elsewhere), Some("--hostname"));
        let moved = ReconfigurationPolicy::Additive.difference(
            &more,
            &info(
                "cpus:8;ports:[1-20];gpus:1",
                "rack:r1;load:3;os:{a,b,c};zone:z",
                Some("r/y"),
            ),
        );
        let words = moved.unwrap().to_string();
        assert!(
            words.contains("--domain was `r/z` for the executors that still run, but is `r/y`"),
            "{words}"
        );
    }

    #[test]
    fn attributes_of_one_name_are_matched_one_to_one() {
        let parse = |text: &str| Attributes::parse(text).unwrap();
        let has = |all: &str, others: &str| has_all(&parse(all), &parse(others));
        assert!(
            !has("load:3", "load:1;load:2"),
            "one does not stand for two"
        );
        assert!(!has("rack:a;rack:b", "rack:a;rack:a"));
        assert!(has("rack:b;rack:c;rack:a", "rack:a;rack:b"), "in any order");
        assert!(has("load:2;load:3", "load:1;load:3"));
        // Augmenting: the first must leave the larger ones to the others.
        assert!(has(
            "os:{a,b,c};os:{a,b};os:{a}",
            "os:{a};os:{a,b};os:{a,b,c}"
        ));
        assert!(has("os:{a,b,c};os:{a,b};os:{a}", "os:{a};os:{b};os:{c}"));
        assert!(has("os:{a,b};os:{b,c};os:{c,a}", "os:{a};os:{b};os:{c}"));
        assert!(!has("os:{a,b};os:{a,b};os:{c}", "os:{a};os:{b};os:{b}"));
    }
}
