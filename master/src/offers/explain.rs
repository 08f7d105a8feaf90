//! Explanations of a framework's offers: resolves an operator's question, and adds the master's
//! part of the answer.
//!
//! Pure. Names are resolved to ids here; the reasons are the allocator's. A viewer with limited
//! visibility can ask about visible frameworks and roles only, and sees no others
//! ([`crate::api::visibility`]).

use std::collections::BTreeMap;

use module_api::allocator::Explain;
use protocol::message::operator::{ExplainError, ExplainOffers};
use protocol::view::explain::{Explanation, NoOfferReason, OffersExplained, RoleExplanation};
use protocol::{AgentId, FrameworkId};
use resources::Invalid;

use crate::api::visibility::Visibility;
use crate::frameworks::Framework;
use crate::state::MasterState;

/// Placeholder for a role that is not visible.
const HIDDEN: &str = "(not shown)";

impl MasterState {
    /// The question for the allocator; without `visibility` for a viewer that sees everything.
    pub fn explainable(
        &self,
        question: &ExplainOffers,
        visibility: Option<&Visibility>,
    ) -> Result<Explain, ExplainError> {
        let framework = self.find_framework(&question.framework, visibility)?;
        let roles = framework.info.roles.iter().map(String::as_str);
        let known: Vec<&str> = roles.filter(|role| shows_role(visibility, role)).collect();
        let asked = question.role.as_ref();
        if let Some(role) = asked.filter(|role| !known.contains(&role.as_str())) {
            let expected = format!("one of the framework's, {}", known.join(", "));
            return Err(unknown("role", role, expected));
        }
        let agent = question.agent.as_deref();
        Ok(Explain {
            framework_id: framework.id.clone(),
            role: question.role.clone(),
            agent_id: agent.map(|agent| self.find_agent(agent)).transpose()?,
        })
    }

    /// The allocator's explanation with the master's knowledge of the framework, filtered for the
    /// viewer.
    pub fn explained(
        &self,
        mut explanation: Explanation,
        visibility: Option<&Visibility>,
    ) -> OffersExplained {
        if let Some(visibility) = visibility {
            self.redact(&mut explanation, visibility);
        }
        let id = &explanation.framework_id;
        let framework = self.frameworks.get(id);
        let mut unanswered = BTreeMap::new();
        let offers = self.offers.of_framework(id);
        for offer in offers.filter(|offer| shows_role(visibility, &offer.role)) {
            *unanswered.entry(offer.role.clone()).or_default() += 1;
        }
        OffersExplained {
            name: framework.map_or_else(String::new, |framework| framework.info.name.clone()),
            unanswered,
            explanation,
        }
    }

    /// Removes roles that are not visible, and the names of others.
    fn redact(&self, explanation: &mut Explanation, visibility: &Visibility) {
        explanation.roles.retain(|role| visibility.role(&role.role));
        let hide_roles = |roles: &mut Vec<String>| {
            let before = roles.len();
            roles.retain(|role| visibility.role(role));
            if roles.len() < before {
                roles.push(HIDDEN.to_owned());
            }
        };
        for role in &mut explanation.roles {
            let agents = |one: &RoleExplanation| one.reasons.iter().map(|tally| tally.agents).sum();
            let before: u64 = agents(role);
            role.reasons.retain(|tally| {
                let mut examples = tally.examples.iter();
                examples.all(|example| reveals_visible_quotas(&example.reason, visibility))
            });
            role.untold += before - agents(role);
        }
        let tallies = explanation
            .roles
            .iter_mut()
            .flat_map(|one| &mut one.reasons);
        for example in tallies.flat_map(|tally| &mut tally.examples) {
            match &mut example.reason {
                NoOfferReason::WentFirst { holders, more, .. } => {
                    let before = holders.len();
                    holders.retain(|holder| {
                        let framework = self.frameworks.get(&holder.framework_id);
                        framework.is_some_and(|one| visibility.framework(&one.info))
                            && visibility.role(&holder.role)
                    });
                    *more += (before - holders.len()) as u64;
                }
                NoOfferReason::Reserved { roles } | NoOfferReason::Headroom { roles, .. } => {
                    hide_roles(roles)
                }
                NoOfferReason::QuotaLimit { role, .. } | NoOfferReason::RoomMade { role }
                    if !visibility.role(role) =>
                {
                    HIDDEN.clone_into(role);
                }
                _ => {}
            }
        }
    }

    /// The visible framework with this id, or the only one with this name.
    pub fn find_framework(
        &self,
        called: &str,
        visibility: Option<&Visibility>,
    ) -> Result<&Framework, ExplainError> {
        let is_seen = |framework: &&Framework| {
            visibility.is_none_or(|visibility| visibility.framework(&framework.info))
        };
        let by_id = called.parse().ok();
        let by_id = by_id.and_then(|id: FrameworkId| self.frameworks.get(&id));
        if let Some(framework) = by_id.filter(is_seen) {
            return Ok(framework);
        }
        let mut named = self.frameworks.iter().map(AsRef::as_ref).filter(is_seen);
        let mut next = || named.find(|framework| framework.info.name == called);
        match (next(), next()) {
            (Some(framework), None) => Ok(framework),
            (None, _) => {
                let expected = "the id or the name of a framework that has not ended";
                Err(unknown("framework", called, expected))
            }
            (Some(one), Some(other)) => {
                let expected = format!("an id, for {} and {} have this name", one.id, other.id);
                Err(unknown("framework", called, expected))
            }
        }
    }

    fn find_agent(&self, called: &str) -> Result<AgentId, ExplainError> {
        let by_id = called.parse().ok();
        if let Some(agent) = by_id.and_then(|id: AgentId| self.agents.get(&id)) {
            return Ok(agent.id.clone());
        }
        let mut there = self.agents.iter();
        let mut next = || there.find(|agent| agent.info.hostname.eq_ignore_ascii_case(called));
        match (next(), next()) {
            (Some(agent), None) => Ok(agent.id.clone()),
            (None, _) => {
                let expected = "the id or the host of an agent that is registered";
                Err(unknown("agent", called, expected))
            }
            (Some(one), Some(other)) => {
                let expected = format!("an id, for {} and {} are there", one.id, other.id);
                Err(unknown("agent", called, expected))
            }
        }
    }
}

/// Whether the reason reveals no quota, or only visible ones. A limit's remainder and the needs of
/// guarantees are figures of quotas, and naming one as the cause reveals that it exists: other
/// viewers get the other reasons.
fn reveals_visible_quotas(reason: &NoOfferReason, visibility: &Visibility) -> bool {
    match reason {
        NoOfferReason::QuotaLimit { role, .. } => visibility.quota(role),
        NoOfferReason::Headroom { roles, .. } => roles.iter().all(|role| visibility.quota(role)),
        _ => true,
    }
}

fn shows_role(visibility: Option<&Visibility>, role: &str) -> bool {
    visibility.is_none_or(|visibility| visibility.role(role))
}

fn unknown(field: &str, value: &str, expected: impl Into<String>) -> ExplainError {
    ExplainError::Unknown(Invalid::new(field, value, expected))
}
