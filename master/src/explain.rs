//! Explaining: what an operator's question about a framework's offers means, and what of the answer is the master's to say (W26).
//!
//! Pure. Names become ids here, so that whoever asks may say what a person knows; why nothing is offered is for the allocator to say. Whoever
//! does not see everything can ask about frameworks and roles that he sees, and is told of no others ([`crate::sight`]).

use std::collections::BTreeMap;

use module_api::allocator::Explain;
use protocol::explain::{Explanation, OffersExplained, Reason, RoleExplanation};
use protocol::message::operator::{ExplainOffers, Unexplained};
use protocol::{AgentId, FrameworkId};
use resources::Invalid;

use crate::books::Books;
use crate::frameworks::Framework;
use crate::sight::Sight;

/// Stands where a role is that is not seen.
const HIDDEN: &str = "(not shown)";

impl Books {
    /// The question as the allocator understands it; without a sight of one who sees everything.
    pub fn explainable(
        &self,
        question: &ExplainOffers,
        sight: Option<&Sight>,
    ) -> Result<Explain, Unexplained> {
        let framework = self.framework_called(&question.framework, sight)?;
        let roles = framework.info.roles.iter().map(String::as_str);
        let known: Vec<&str> = roles.filter(|role| shows_role(sight, role)).collect();
        let asked = question.role.as_ref();
        if let Some(role) = asked.filter(|role| !known.contains(&role.as_str())) {
            let expected = format!("one of the framework's, {}", known.join(", "));
            return Err(unknown("role", role, expected));
        }
        let agent = question.agent.as_deref();
        Ok(Explain {
            framework_id: framework.id.clone(),
            role: question.role.clone(),
            agent_id: agent.map(|agent| self.agent_called(agent)).transpose()?,
        })
    }

    /// The allocator's explanation, with what the master knows of the framework, and without what is not seen.
    pub fn explained(
        &self,
        mut explanation: Explanation,
        sight: Option<&Sight>,
    ) -> OffersExplained {
        if let Some(sight) = sight {
            self.hide(&mut explanation, sight);
        }
        let id = &explanation.framework_id;
        let framework = self.frameworks.get(id);
        let mut unanswered = BTreeMap::new();
        let offers = self.offers.of_framework(id);
        for offer in offers.filter(|offer| shows_role(sight, &offer.role)) {
            *unanswered.entry(offer.role.clone()).or_default() += 1;
        }
        OffersExplained {
            name: framework.map_or_else(String::new, |framework| framework.info.name.clone()),
            unanswered,
            explanation,
        }
    }

    /// Leaves out roles that are not seen, and names nobody else who is not.
    fn hide(&self, explanation: &mut Explanation, sight: &Sight) {
        explanation.roles.retain(|role| sight.role(&role.role));
        let hide_roles = |roles: &mut Vec<String>| {
            let before = roles.len();
            roles.retain(|role| sight.role(role));
            if roles.len() < before {
                roles.push(HIDDEN.to_owned());
            }
        };
        for role in &mut explanation.roles {
            let agents = |one: &RoleExplanation| one.reasons.iter().map(|tally| tally.agents).sum();
            let before: u64 = agents(role);
            role.reasons.retain(|tally| {
                let mut examples = tally.examples.iter();
                examples.all(|example| tells_seen_quotas(&example.reason, sight))
            });
            role.untold += before - agents(role);
        }
        let tallies = explanation
            .roles
            .iter_mut()
            .flat_map(|one| &mut one.reasons);
        for example in tallies.flat_map(|tally| &mut tally.examples) {
            match &mut example.reason {
                Reason::WentFirst { holders, more, .. } => {
                    let before = holders.len();
                    holders.retain(|holder| {
                        let framework = self.frameworks.get(&holder.framework_id);
                        framework.is_some_and(|one| sight.framework(&one.info))
                            && sight.role(&holder.role)
                    });
                    *more += (before - holders.len()) as u64;
                }
                Reason::Reserved { roles } | Reason::Headroom { roles, .. } => hide_roles(roles),
                Reason::QuotaLimit { role, .. } | Reason::RoomMade { role }
                    if !sight.role(role) =>
                {
                    HIDDEN.clone_into(role);
                }
                _ => {}
            }
        }
    }

    /// The framework with this id, or alone with this name, among those that are seen.
    pub fn framework_called(
        &self,
        called: &str,
        sight: Option<&Sight>,
    ) -> Result<&Framework, Unexplained> {
        let is_seen =
            |framework: &&Framework| sight.is_none_or(|sight| sight.framework(&framework.info));
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

    fn agent_called(&self, called: &str) -> Result<AgentId, Unexplained> {
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

/// Whether this tells of nobody's quota, or of quotas that are seen. What a limit leaves and what guarantees need are figures of quotas, and
/// that one stands in the way says that there is one: who may not see it is told of other reasons.
fn tells_seen_quotas(reason: &Reason, sight: &Sight) -> bool {
    match reason {
        Reason::QuotaLimit { role, .. } => sight.quota(role),
        Reason::Headroom { roles, .. } => roles.iter().all(|role| sight.quota(role)),
        _ => true,
    }
}

fn shows_role(sight: Option<&Sight>, role: &str) -> bool {
    sight.is_none_or(|sight| sight.role(role))
}

fn unknown(field: &str, value: &str, expected: impl Into<String>) -> Unexplained {
    Unexplained::Unknown(Invalid::new(field, value, expected))
}
