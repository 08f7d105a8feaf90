//! Explanations: counts the reasons why a framework gets no offers, over all agents.
//!
//! [`AllocatorState::reasons`] returns the reasons on one agent; here they are counted, with a few
//! examples of each. The survey proceeds in parts, so that the allocator handles other messages in
//! between. All parts describe the moment of the request: if one part is not enough, the rest uses
//! a copy of the state, which is dropped at the end. The size of the answer is bounded.

mod shares;

pub use shares::Shares;

use std::time::Duration;

use module_api::Fault;
use module_api::allocator::Explain;
use module_api::sorter::{Client, Pool};
use protocol::view::explain::{
    Example, Explanation, NoOfferReason, OfferBlocker, ReasonCount, RoleExplanation,
};
use protocol::{AgentId, FrameworkId};
use resources::Role;
use runtime::Instant;

use super::state::AllocatorState;

/// Largest number of roles in one answer; beyond this, the request must name one.
const ROLES_MAX: usize = 16;
/// Largest number of distinct reasons in one role.
const TALLIES_MAX: usize = 40;
/// Agents named for each reason.
const EXAMPLES_MAX: usize = 3;

/// An explanation in progress.
pub struct Survey {
    framework: FrameworkId,
    roles: Vec<RoleSurvey>,
    /// One agent, for which every reason is listed.
    only: Option<u32>,
    /// The next slot.
    next: u32,
    shares: [Shares; 2],
    /// Time of the request.
    requested_at: Instant,
    /// The state at that time, if one part was not enough.
    snapshot: Option<Box<AllocatorState>>,
}

/// The explanation for one role.
struct RoleSurvey {
    role: Role,
    explanation: RoleExplanation,
    /// The key of each reason, in the same order.
    keys: Vec<(Pool, String)>,
}

impl Survey {
    /// Begins an explanation. `pause` is the longest remaining pause after a failover.
    pub fn begin(
        state: &AllocatorState,
        question: &Explain,
        pause: Duration,
        requested_at: Instant,
    ) -> Result<Self, Fault> {
        let id = &question.framework_id;
        let subscribed = |client: &Client| {
            let record = state.clients.get(*client);
            record.filter(|record| record.subscribed)
        };
        let records: Vec<_> = state.clients.of(id).iter().filter_map(subscribed).collect();
        if records.is_empty() {
            return Err(fault(format!(
                "the allocator knows no framework `{id}` that has a role"
            )));
        }
        let is_asked = |role: &Role| {
            let wanted = question.role.as_deref();
            wanted.is_none_or(|wanted| wanted == role.as_str())
        };
        let known: Vec<&str> = records.iter().map(|record| record.role.as_str()).collect();
        let wanted: Vec<_> = records
            .iter()
            .filter(|record| is_asked(&record.role))
            .collect();
        if wanted.is_empty() {
            let role = question.role.as_deref().unwrap_or_default();
            let known = known.join(", ");
            return Err(fault(format!(
                "role is `{role}`: expected one of the framework's, {known}"
            )));
        }
        if wanted.len() > ROLES_MAX {
            let count = wanted.len();
            return Err(fault(format!(
                "the framework has {count} roles: expected the name of one"
            )));
        }
        let only = match &question.agent_id {
            None => None,
            Some(id) => Some(
                state
                    .slot_of(id)
                    .ok_or_else(|| fault(format!("the allocator knows no agent `{id}`")))?,
            ),
        };
        let shares = Pool::ALL.map(|pool| Shares::of(state, pool));
        let paused = match state.awaited() {
            (agents, Some(awaited)) => Some(OfferBlocker::Paused {
                agents: agents as u64,
                awaited: awaited as u64,
                left: pause,
            }),
            (_, None) => None,
        };
        let begun = |record: &&super::clients::ClientRecord| {
            let standing = paused.iter().cloned().chain(state.standing(record));
            let explanation = RoleExplanation {
                role: record.role.as_str().to_owned(),
                share: shares[0].of_client(record),
                role_share: shares[0].of_role(&record.role),
                standing: standing.collect(),
                agents: 0,
                reasons: Vec::new(),
                untold: 0,
            };
            RoleSurvey {
                role: record.role.clone(),
                explanation,
                keys: Vec::new(),
            }
        };
        let roles = wanted.into_iter().map(begun).collect();
        Ok(Self {
            framework: id.clone(),
            roles,
            only,
            next: only.unwrap_or(0),
            shares,
            requested_at,
            snapshot: None,
        })
    }

    /// Processes `most` more agents, divided by the number of roles. Returns true when it is
    /// complete. The first call must pass the state that it began with; later calls use the copy.
    pub fn advance(&mut self, state: &mut AllocatorState, most: u32) -> Result<bool, Fault> {
        let mut snapshot = self.snapshot.take();
        let done = self.survey_agents(snapshot.as_deref_mut().unwrap_or(state), most)?;
        if !done {
            self.snapshot = Some(snapshot.unwrap_or_else(|| Box::new(state.clone())));
        }
        Ok(done)
    }

    fn survey_agents(&mut self, state: &mut AllocatorState, most: u32) -> Result<bool, Fault> {
        let now = self.requested_at;
        let roles = u32::try_from(self.roles.len()).unwrap_or(u32::MAX);
        let most = most.div_ceil(roles.max(1));
        let end = match self.only {
            Some(slot) => slot + 1,
            None => state.slots().min(self.next.saturating_add(most)),
        };
        for survey in &mut self.roles {
            let client = state.clients.find(&self.framework, &survey.role);
            let case = client.and_then(|client| state.case(client));
            let case =
                case.ok_or_else(|| fault(format!("nobody is in role `{}`", survey.role.as_str())))?;
            for slot in self.next..end {
                let Some((agent_id, hostname)) = state.name_of(slot) else {
                    continue;
                };
                let (agent_id, hostname) = (agent_id.clone(), hostname.to_owned());
                survey.explanation.agents += 1;
                for (pool, shares) in Pool::ALL.into_iter().zip(&self.shares) {
                    let mut reasons = state.reasons(&case, slot, pool, shares, now);
                    if self.only.is_none() {
                        reasons.truncate(1);
                    }
                    for reason in reasons {
                        survey.count(pool, &agent_id, &hostname, reason);
                    }
                }
            }
        }
        self.next = end;
        Ok(self.only.is_some() || end >= state.slots())
    }

    /// The result.
    pub fn finish(mut self) -> Explanation {
        if self.only.is_none() {
            // Stable: reasons with equal counts stay in the order in which they were found.
            let order = |tally: &ReasonCount| (tally.revocable, std::cmp::Reverse(tally.agents));
            for survey in &mut self.roles {
                survey.explanation.reasons.sort_by_key(order);
            }
        }
        Explanation {
            framework_id: self.framework,
            roles: self
                .roles
                .into_iter()
                .map(|survey| survey.explanation)
                .collect(),
        }
    }
}

fn fault(reason: String) -> Fault {
    Fault::Failed { reason }
}

impl RoleSurvey {
    /// Counts an agent under its reason.
    fn count(&mut self, pool: Pool, agent_id: &AgentId, hostname: &str, reason: NoOfferReason) {
        let key = (pool, reason.title());
        let example = Example {
            agent_id: agent_id.clone(),
            hostname: hostname.to_owned(),
            reason,
        };
        let tallies = &mut self.explanation.reasons;
        if let Some(n) = self.keys.iter().position(|known| *known == key) {
            let tally = &mut tallies[n];
            tally.agents += 1;
            if tally.examples.len() < EXAMPLES_MAX {
                tally.examples.push(example);
            }
        } else if tallies.len() < TALLIES_MAX {
            self.keys.push(key);
            tallies.push(ReasonCount {
                revocable: pool == Pool::Revocable,
                agents: 1,
                examples: vec![example],
            });
        } else {
            self.explanation.untold += 1;
        }
    }
}
