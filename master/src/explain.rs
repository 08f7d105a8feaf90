//! Explaining: what an operator's question about a framework's offers means, and what of the answer is the master's to say (W26).
//!
//! Pure. Names become ids here, so that whoever asks may say what a person knows; why nothing is offered is for the allocator to say.

use std::collections::BTreeMap;

use module_api::allocator::Explain;
use protocol::explain::{Explanation, OffersExplained};
use protocol::message::operator::{ExplainOffers, Unexplained};
use protocol::{AgentId, FrameworkId};
use resources::Invalid;

use crate::books::Books;
use crate::frameworks::Framework;

impl Books {
    /// The question as the allocator understands it.
    pub fn explainable(&self, question: &ExplainOffers) -> Result<Explain, Unexplained> {
        let framework = self.framework_called(&question.framework)?;
        let roles = &framework.info.roles;
        if let Some(role) = question.role.as_ref().filter(|role| !roles.contains(*role)) {
            let known: Vec<&str> = roles.iter().map(String::as_str).collect();
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

    /// The allocator's explanation, with what the master knows of the framework.
    pub fn explained(&self, explanation: Explanation) -> OffersExplained {
        let id = &explanation.framework_id;
        let framework = self.frameworks.get(id);
        let mut unanswered = BTreeMap::new();
        for offer in self.offers.of_framework(id) {
            *unanswered.entry(offer.role.clone()).or_default() += 1;
        }
        OffersExplained {
            name: framework.map_or_else(String::new, |framework| framework.info.name.clone()),
            unanswered,
            explanation,
        }
    }

    fn framework_called(&self, called: &str) -> Result<&Framework, Unexplained> {
        let by_id = called.parse().ok();
        if let Some(framework) = by_id.and_then(|id: FrameworkId| self.frameworks.get(&id)) {
            return Ok(framework);
        }
        let mut named = self.frameworks.iter();
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

fn unknown(field: &str, value: &str, expected: impl Into<String>) -> Unexplained {
    Unexplained::Unknown(Invalid::new(field, value, expected))
}
