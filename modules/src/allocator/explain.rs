//! Explaining: a walk over agents that counts why a framework is offered nothing there (W26).
//!
//! Pure: what stands in the way on one agent is for [`Books::reasons`] to say, and here it is counted, with a few examples of each. A walk
//! goes on in pieces, so that whoever owns the books can do other things in between. All of it is of one moment, that of the question: what one
//! piece does not answer is answered of a copy of the books, made with the first piece and dropped with the walk. The answer is bounded,
//! however many agents, roles and reasons there are.

mod shares;

pub use shares::Shares;

use std::time::Duration;

use module_api::Fault;
use module_api::allocator::Explain;
use module_api::sorter::{Client, Pool};
use protocol::explain::{Example, Explanation, Reason, RoleExplanation, Standing, Tally};
use protocol::{AgentId, FrameworkId};
use resources::Role;
use runtime::Instant;

use super::books::Books;

/// The most roles of a framework in one answer; of more, the question must name one.
const ROLES_MAX: usize = 16;
/// The most reasons that are told apart in one role.
const TALLIES_MAX: usize = 40;
/// Agents named for each reason.
const EXAMPLES_MAX: usize = 3;

/// An explanation under way.
pub struct Survey {
    framework: FrameworkId,
    roles: Vec<Told>,
    /// One agent, of which every reason is told.
    only: Option<u32>,
    /// The next slot.
    next: u32,
    shares: [Shares; 2],
    /// When it was asked.
    asked: Instant,
    /// The books as they were then, if one piece has not been enough.
    kept: Option<Box<Books>>,
}

/// What is told of one role.
struct Told {
    role: Role,
    explanation: RoleExplanation,
    /// What each of its tallies counts.
    titles: Vec<(Pool, String)>,
}

impl Survey {
    /// Begins to answer what is asked now. `pause` is how long the pause after a failover lasts at most.
    pub fn begin(
        books: &Books,
        question: &Explain,
        pause: Duration,
        asked: Instant,
    ) -> Result<Self, Fault> {
        let id = &question.framework_id;
        let subscribed = |client: &Client| {
            let member = books.clients.get(*client);
            member.filter(|member| member.subscribed)
        };
        let members: Vec<_> = books.clients.of(id).iter().filter_map(subscribed).collect();
        if members.is_empty() {
            return Err(fault(format!(
                "the allocator knows no framework `{id}` that has a role"
            )));
        }
        let is_asked = |role: &Role| {
            let wanted = question.role.as_deref();
            wanted.is_none_or(|wanted| wanted == role.as_str())
        };
        let known: Vec<&str> = members.iter().map(|member| member.role.as_str()).collect();
        let wanted: Vec<_> = members
            .iter()
            .filter(|member| is_asked(&member.role))
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
                books
                    .slot_of(id)
                    .ok_or_else(|| fault(format!("the allocator knows no agent `{id}`")))?,
            ),
        };
        let shares = Pool::ALL.map(|pool| Shares::of(books, pool));
        let paused = match books.awaited() {
            (agents, Some(awaited)) => Some(Standing::Paused {
                agents: agents as u64,
                awaited: awaited as u64,
                left: pause,
            }),
            (_, None) => None,
        };
        let begun = |member: &&super::clients::Member| {
            let standing = paused.iter().cloned().chain(books.standing(member));
            let explanation = RoleExplanation {
                role: member.role.as_str().to_owned(),
                share: shares[0].of_member(member),
                role_share: shares[0].of_role(&member.role),
                standing: standing.collect(),
                agents: 0,
                reasons: Vec::new(),
                untold: 0,
            };
            Told {
                role: member.role.clone(),
                explanation,
                titles: Vec::new(),
            }
        };
        let roles = wanted.into_iter().map(begun).collect();
        Ok(Self {
            framework: id.clone(),
            roles,
            only,
            next: only.unwrap_or(0),
            shares,
            asked,
            kept: None,
        })
    }

    /// Looks at so many agents more, of several roles at fewer; true when there are none left. The first time at these books, which must be
    /// those that it began with, and then at the copy that it has made of them, whatever has become of them.
    pub fn go_on(&mut self, books: &mut Books, most: u32) -> Result<bool, Fault> {
        let mut kept = self.kept.take();
        let done = self.look(kept.as_deref_mut().unwrap_or(books), most)?;
        if !done {
            self.kept = Some(kept.unwrap_or_else(|| Box::new(books.clone())));
        }
        Ok(done)
    }

    fn look(&mut self, books: &mut Books, most: u32) -> Result<bool, Fault> {
        let now = self.asked;
        let roles = u32::try_from(self.roles.len()).unwrap_or(u32::MAX);
        let most = most.div_ceil(roles.max(1));
        let end = match self.only {
            Some(slot) => slot + 1,
            None => books.slots().min(self.next.saturating_add(most)),
        };
        for told in &mut self.roles {
            let client = books.clients.find(&self.framework, &told.role);
            let case = client.and_then(|client| books.case(client));
            let case =
                case.ok_or_else(|| fault(format!("nobody is in role `{}`", told.role.as_str())))?;
            for slot in self.next..end {
                let Some((agent_id, hostname)) = books.name_of(slot) else {
                    continue;
                };
                let (agent_id, hostname) = (agent_id.clone(), hostname.to_owned());
                told.explanation.agents += 1;
                for (pool, shares) in Pool::ALL.into_iter().zip(&self.shares) {
                    let mut reasons = books.reasons(&case, slot, pool, shares, now);
                    if self.only.is_none() {
                        reasons.truncate(1);
                    }
                    for reason in reasons {
                        told.count(pool, &agent_id, &hostname, reason);
                    }
                }
            }
        }
        self.next = end;
        Ok(self.only.is_some() || end >= books.slots())
    }

    /// What was found.
    pub fn end(mut self) -> Explanation {
        if self.only.is_none() {
            // Stable: of as many agents, the reason that was met first.
            let order = |tally: &Tally| (tally.revocable, std::cmp::Reverse(tally.agents));
            for told in &mut self.roles {
                told.explanation.reasons.sort_by_key(order);
            }
        }
        Explanation {
            framework_id: self.framework,
            roles: self
                .roles
                .into_iter()
                .map(|told| told.explanation)
                .collect(),
        }
    }
}

fn fault(reason: String) -> Fault {
    Fault::Failed { reason }
}

impl Told {
    /// Counts an agent under its reason.
    fn count(&mut self, pool: Pool, agent_id: &AgentId, hostname: &str, reason: Reason) {
        let key = (pool, reason.title());
        let example = Example {
            agent_id: agent_id.clone(),
            hostname: hostname.to_owned(),
            reason,
        };
        let tallies = &mut self.explanation.reasons;
        if let Some(n) = self.titles.iter().position(|known| *known == key) {
            let tally = &mut tallies[n];
            tally.agents += 1;
            if tally.examples.len() < EXAMPLES_MAX {
                tally.examples.push(example);
            }
        } else if tallies.len() < TALLIES_MAX {
            self.titles.push(key);
            tallies.push(Tally {
                revocable: pool == Pool::Revocable,
                agents: 1,
                examples: vec![example],
            });
        } else {
            self.explanation.untold += 1;
        }
    }
}
