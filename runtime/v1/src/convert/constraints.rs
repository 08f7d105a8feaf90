//! Offer constraints, minimum offers, and quota.

use std::collections::BTreeMap;

use protocol::Demand;
use protocol::offers::wants::{Constraint, Predicate, Selector};
use resources::{Invalid, Quantities};

use super::resource::{read_amounts, write_amounts};
use super::{At, each, write};
use crate::limits::place_of;
use crate::schema::allocator::quota::QuotaConfig;
use crate::schema::scheduler::{
    AttributeConstraint, AttributeConstraintPredicate, AttributeConstraintPredicateExists,
    AttributeConstraintPredicateNotExists, AttributeConstraintPredicateTextEquals,
    AttributeConstraintPredicateTextMatches, AttributeConstraintPredicateTextNotEquals,
    AttributeConstraintPredicateTextNotMatches, AttributeConstraintSelector,
    AttributeConstraintSelectorPseudoattributeType as Pseudoattribute, OfferConstraints,
    OfferConstraintsRoleConstraints, OfferConstraintsRoleConstraintsGroup,
};
use crate::schema::{
    OfferFilters, OfferFiltersMinAllocatableResources, OfferFiltersResourceQuantities,
};

/// A framework's demands on offers by role: on agents by its constraints, on amounts by the filters
/// of its info.
pub fn demands(
    constraints: Option<&OfferConstraints>,
    filters: &BTreeMap<String, OfferFilters>,
) -> Result<BTreeMap<String, Demand>, Invalid> {
    let mut demands: BTreeMap<String, Demand> = BTreeMap::new();
    let constraints = constraints.map(|constraints| &constraints.role_constraints);
    for (role, of_role) in constraints.into_iter().flatten() {
        let demand = read_demand(of_role)
            .at(&place_of(role))
            .at("offer_constraints.role_constraints")?;
        demands.insert(role.clone(), demand);
    }
    for (role, filter) in filters {
        if let Some(least) = &filter.min_allocatable_resources {
            let least = each(
                "min_allocatable_resources.quantities",
                &least.quantities,
                |one| read_amounts("quantities", &one.quantities),
            )
            .at(&place_of(role))
            .at("framework_info.offer_filters")?;
            demands.entry(role.clone()).or_default().least = Some(least);
        }
    }
    Ok(demands)
}

/// The filters with the minimum amounts of these demands. Mesos has no maximum, so it is omitted.
pub fn offer_filters(demands: &BTreeMap<String, Demand>) -> BTreeMap<String, OfferFilters> {
    let amounts = |amounts: &Quantities| OfferFiltersResourceQuantities {
        quantities: write_amounts(amounts),
    };
    let one = |(role, demand): (&String, &Demand)| {
        let quantities = demand.least.as_ref()?.iter().map(amounts).collect();
        let least = OfferFiltersMinAllocatableResources { quantities };
        let filters = OfferFilters {
            min_allocatable_resources: Some(least),
        };
        Some((role.clone(), filters))
    };
    demands.iter().filter_map(one).collect()
}

fn read_demand(of_role: &OfferConstraintsRoleConstraints) -> Result<Demand, Invalid> {
    if of_role.groups.is_empty() {
        return Err(Invalid::new("groups", "empty", "one group or more"));
    }
    let agents = each("groups", &of_role.groups, |group| {
        if group.attribute_constraints.is_empty() {
            let expected = "one constraint or more";
            return Err(Invalid::new("attribute_constraints", "empty", expected));
        }
        each(
            "attribute_constraints",
            &group.attribute_constraints,
            |one| one.try_into(),
        )
    })?;
    Ok(Demand {
        agents,
        ..Demand::default()
    })
}

/// The constraints of these demands. A role without demands on agents has none.
pub fn constraints(demands: &BTreeMap<String, Demand>) -> OfferConstraints {
    let one = |(role, demand): (&String, &Demand)| {
        let group = |group: &Vec<Constraint>| OfferConstraintsRoleConstraintsGroup {
            attribute_constraints: write(group),
        };
        let groups = demand.agents.iter().map(group).collect();
        (role.clone(), OfferConstraintsRoleConstraints { groups })
    };
    let demanding = demands
        .iter()
        .filter(|(_, demand)| !demand.agents.is_empty());
    OfferConstraints {
        role_constraints: demanding.map(one).collect(),
    }
}

impl TryFrom<&AttributeConstraint> for Constraint {
    type Error = Invalid;

    fn try_from(constraint: &AttributeConstraint) -> Result<Self, Invalid> {
        Ok(Self {
            selector: read_selector(&constraint.selector).at("selector")?,
            predicate: read_predicate(&constraint.predicate).at("predicate")?,
        })
    }
}

fn read_selector(selector: &AttributeConstraintSelector) -> Result<Selector, Invalid> {
    let known = "HOSTNAME, REGION or ZONE";
    match (selector.pseudoattribute_type, &selector.attribute_name) {
        (Some(Pseudoattribute::Hostname), None) => Ok(Selector::Hostname),
        (Some(Pseudoattribute::Region), None) => Ok(Selector::Region),
        (Some(Pseudoattribute::Zone), None) => Ok(Selector::Zone),
        (Some(Pseudoattribute::Unknown), None) => {
            Err(Invalid::new("pseudoattribute_type", "UNKNOWN", known))
        }
        (None, Some(name)) => Ok(Selector::Attribute(name.clone())),
        (None, None) => {
            let expected =
                "`attribute_name`, or `pseudoattribute_type` with HOSTNAME, REGION or ZONE";
            Err(Invalid::new("", "empty or not known", expected))
        }
        (Some(kind), Some(_)) => {
            let expected = "nothing beside `attribute_name`";
            Err(Invalid::new("pseudoattribute_type", kind, expected))
        }
    }
}

fn read_predicate(predicate: &AttributeConstraintPredicate) -> Result<Predicate, Invalid> {
    let AttributeConstraintPredicate {
        exists,
        not_exists,
        text_equals,
        text_not_equals,
        text_matches,
        text_not_matches,
    } = predicate;
    let mut predicates = [
        exists.as_ref().map(|_| Predicate::Exists),
        not_exists.as_ref().map(|_| Predicate::NotExists),
        text_equals
            .as_ref()
            .map(|text| Predicate::TextEquals(text.value.clone())),
        text_not_equals
            .as_ref()
            .map(|text| Predicate::TextNotEquals(text.value.clone())),
        text_matches
            .as_ref()
            .map(|text| Predicate::TextMatches(text.regex.clone())),
        text_not_matches
            .as_ref()
            .map(|text| Predicate::TextNotMatches(text.regex.clone())),
    ]
    .into_iter()
    .flatten();
    let expected = "one of exists, not_exists, text_equals, text_not_equals, text_matches and text_not_matches";
    match (predicates.next(), predicates.next()) {
        (Some(predicate), None) => Ok(predicate),
        (None, _) => Err(Invalid::new("", "empty or not known", expected)),
        (Some(_), Some(_)) => Err(Invalid::new("", "several", expected)),
    }
}

impl From<&Constraint> for AttributeConstraint {
    fn from(constraint: &Constraint) -> Self {
        Self {
            selector: write_selector(&constraint.selector),
            predicate: write_predicate(&constraint.predicate),
        }
    }
}

fn write_selector(selector: &Selector) -> AttributeConstraintSelector {
    let (kind, name) = match selector {
        Selector::Hostname => (Some(Pseudoattribute::Hostname), None),
        Selector::Region => (Some(Pseudoattribute::Region), None),
        Selector::Zone => (Some(Pseudoattribute::Zone), None),
        Selector::Attribute(name) => (None, Some(name.clone())),
    };
    AttributeConstraintSelector {
        pseudoattribute_type: kind,
        attribute_name: name,
    }
}

fn write_predicate(predicate: &Predicate) -> AttributeConstraintPredicate {
    let mut written = AttributeConstraintPredicate::default();
    match predicate {
        Predicate::Exists => written.exists = Some(AttributeConstraintPredicateExists {}),
        Predicate::NotExists => {
            written.not_exists = Some(AttributeConstraintPredicateNotExists {});
        }
        Predicate::TextEquals(text) => {
            let value = text.clone();
            written.text_equals = Some(AttributeConstraintPredicateTextEquals { value });
        }
        Predicate::TextNotEquals(text) => {
            let value = text.clone();
            written.text_not_equals = Some(AttributeConstraintPredicateTextNotEquals { value });
        }
        Predicate::TextMatches(text) => {
            let regex = text.clone();
            written.text_matches = Some(AttributeConstraintPredicateTextMatches { regex });
        }
        Predicate::TextNotMatches(text) => {
            let regex = text.clone();
            written.text_not_matches = Some(AttributeConstraintPredicateTextNotMatches { regex });
        }
    }
    written
}

impl TryFrom<&QuotaConfig> for protocol::Quota {
    type Error = Invalid;

    /// The caller takes the role from the field `role`.
    fn try_from(config: &QuotaConfig) -> Result<Self, Invalid> {
        Ok(Self {
            guarantees: read_amounts("guarantees", &config.guarantees)?,
            limits: read_amounts("limits", &config.limits)?,
        })
    }
}

/// The quota of a role.
impl From<(&str, &protocol::Quota)> for QuotaConfig {
    fn from((role, quota): (&str, &protocol::Quota)) -> Self {
        Self {
            role: role.to_owned(),
            guarantees: write_amounts(&quota.guarantees),
            limits: write_amounts(&quota.limits),
        }
    }
}
