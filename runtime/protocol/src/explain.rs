//! Explanations: why a framework was offered nothing on some agents, or on one (W26).
//!
//! Only the words, and how they read. What stands in an offer's way is found by the allocator, which keeps the books.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use resources::Quantities;
use serde::{Deserialize, Serialize};

use crate::framework::Capability;
use crate::id::{AgentId, FrameworkId};

/// Why a framework is offered nothing, as the allocator's books are now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Which framework.
    pub framework_id: FrameworkId,
    /// One for each of its roles that was asked about.
    pub roles: Vec<RoleExplanation>,
}

/// The same with what the master knows of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OffersExplained {
    /// The framework's name.
    pub name: String,
    /// By the allocator.
    pub explanation: Explanation,
    /// How many offers it has and has not answered, by role: what they hold is offered to nobody else, and not again.
    pub unanswered: BTreeMap<String, u64>,
}

/// Why a framework is offered nothing in one of its roles.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoleExplanation {
    /// Which role.
    pub role: String,
    /// The dominant share of what the framework holds in it, from 0 to 1.
    pub share: f64,
    /// The dominant share of the role and those below it, divided by its weight.
    pub role_share: f64,
    /// What keeps it from every agent. What stands beside it would hold if this did not.
    pub standing: Vec<Standing>,
    /// How many agents were looked at.
    pub agents: u64,
    /// The reasons, the one of most agents first, regular resources before revocable ones. Each agent counts once for its regular
    /// resources and, if it lends any, once for the revocable ones: by the first reason that holds. Of one agent, every reason.
    pub reasons: Vec<Tally>,
    /// Agents whose reasons were too many to be told apart, or are not for whoever asks.
    pub untold: u64,
}

/// Something that keeps a framework from every agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// Nothing is granted to anybody before so many agents are back, for the sake of guarantees (SPEC 4.4).
    Paused {
        /// How many are back.
        agents: u64,
        /// How many must be.
        awaited: u64,
        /// For how much longer at most.
        left: Duration,
    },
    /// The framework is not connected.
    Inactive,
    /// It has asked for no offers in this role.
    Suppressed,
    /// It holds as many unanswered offers as it may, in all its roles together (W8).
    BudgetSpent {
        /// How many it may hold.
        most: u64,
    },
}

/// How many agents a reason holds for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Whether it is about what the agents lend, which is revocable.
    pub revocable: bool,
    /// How many agents.
    pub agents: u64,
    /// Some of them, at least one.
    pub examples: Vec<Example>,
}

/// One agent, and the reason there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Example {
    /// Which agent.
    pub agent_id: AgentId,
    /// Its host.
    pub hostname: String,
    /// Why nothing of it is offered.
    pub reason: Reason,
}

/// Why nothing of an agent is offered to a framework in a role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reason {
    /// The agent is not offered to anybody at present: it is not connected.
    AgentInactive,
    /// Its host is not on the masters' whitelist.
    NotListed,
    /// It has what only frameworks with this capability are offered.
    Capability(Capability),
    /// The framework has asked not to be offered such an agent.
    Constraint {
        /// Of several groups of constraints, the first few, each with its first constraint that does not hold.
        unmet: Vec<Unmet>,
        /// Groups that are not listed; none holds.
        more: u64,
    },
    /// All that there is for it is offered to it or in use by it already.
    Own {
        /// What it holds there.
        held: Quantities,
    },
    /// Others went first: what they hold leaves too little.
    WentFirst {
        /// What is free for it.
        free: Quantities,
        /// Some of those who hold most, most first.
        holders: Vec<Holder>,
        /// How many more hold something.
        more: u64,
    },
    /// All that would be worth an offer is reserved for other roles.
    Reserved {
        /// For which, at most a few.
        roles: Vec<String>,
    },
    /// What there is for it is less than is worth an offer.
    BelowMinimum {
        /// What there is.
        portion: Quantities,
        /// Any of these would be enough.
        minimum: Vec<Quantities>,
    },
    /// The limit of its role, or of one above it, leaves too little.
    QuotaLimit {
        /// Whose limit.
        role: String,
        /// What it leaves.
        left: Quantities,
    },
    /// What is free in the cluster is kept for guarantees that are not met.
    Headroom {
        /// Whose guarantees, at most a few.
        roles: Vec<String>,
        /// What they need.
        required: Quantities,
        /// What is free in the whole cluster.
        free: Quantities,
    },
    /// It refused such an offer a while ago, or left one unanswered for too long.
    Filtered {
        /// How much it would be offered.
        offer: Quantities,
        /// For how much longer it is not.
        left: Duration,
    },
    /// Nothing: the next run offers it, if nobody who comes first takes it.
    Open,
    /// Tasks make room there for a role that lacks what is guaranteed to it: what nothing reserves is kept together meanwhile (S122).
    RoomMade {
        /// Which role.
        role: String,
    },
}

/// A constraint that does not hold for an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmet {
    /// The constraint, for example ``attribute rack is `r1` ``.
    pub constraint: String,
    /// What the agent has there; `None` is nothing.
    pub has: Option<String>,
}

/// Somebody who holds something of an agent, offered or in use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Holder {
    /// Who.
    pub framework_id: FrameworkId,
    /// In which role.
    pub role: String,
    /// What.
    pub held: Quantities,
    /// Its dominant share of all names: of the highest roles in which the two differ, or of the two frameworks in one role. What weighted fair
    /// sharing goes by, unless names are left out; other sorters go by something else.
    pub share: f64,
    /// The share that it is compared with, of the framework that is explained.
    pub against: f64,
}

impl Reason {
    /// A word for programs, the same for all reasons of a kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::AgentInactive => "agent_inactive",
            Self::NotListed => "not_listed",
            Self::Capability(_) => "capability",
            Self::Constraint { .. } => "constraint",
            Self::Own { .. } => "own",
            Self::WentFirst { .. } => "went_first",
            Self::Reserved { .. } => "reserved",
            Self::BelowMinimum { .. } => "below_minimum",
            Self::QuotaLimit { .. } => "quota_limit",
            Self::Headroom { .. } => "headroom",
            Self::Filtered { .. } => "filtered",
            Self::Open => "open",
            Self::RoomMade { .. } => "room_made",
        }
    }

    /// What it comes to without what differs from agent to agent: agents whose titles are the same are counted together.
    pub fn title(&self) -> String {
        match self {
            Self::AgentInactive => "the agent is not connected".to_owned(),
            Self::NotListed => "its host is not on the masters' whitelist".to_owned(),
            Self::Capability(capability) => {
                let without = match capability {
                    Capability::GpuResources => "it has graphics processors",
                    Capability::RegionAware => "it lies in another region than the masters",
                    Capability::RevocableResources => "what it lends is revocable",
                    Capability::SharedResources => "only shared volumes are left",
                    Capability::ReservationRefinement => "only refined reservations are left",
                    _ => "it is not for every framework",
                };
                format!(
                    "{without}, and the framework is without {}",
                    capability.name()
                )
            }
            Self::Constraint { unmet, more } => {
                let first = unmet.first();
                let first = first.map_or("nothing", |unmet| unmet.constraint.as_str());
                match unmet.len().saturating_sub(1) as u64 + more {
                    0 => format!("the framework's constraint does not hold: {first}"),
                    others => format!(
                        "none of the framework's constraints holds: {first}, nor {others} more"
                    ),
                }
            }
            Self::Own { .. } => "the framework has it: offered to it, or in use".to_owned(),
            Self::WentFirst { .. } => "others went first".to_owned(),
            Self::Reserved { roles } => match roles.as_slice() {
                [] => "it is reserved".to_owned(),
                [role] => format!("it is reserved for role {role}"),
                roles => format!("it is reserved for roles {}", roles.join(", ")),
            },
            Self::BelowMinimum { .. } => "it is less than is worth an offer".to_owned(),
            Self::QuotaLimit { role, .. } => {
                format!("the quota limit of role {role} leaves too little")
            }
            Self::Headroom { roles, .. } => {
                format!("kept free for the guarantee of {}", roles.join(", "))
            }
            Self::Filtered { .. } => "the framework refused it a while ago".to_owned(),
            Self::Open => "nothing stands in the way: the next run offers it".to_owned(),
            Self::RoomMade { role } => format!("tasks make room there for role {role}"),
        }
    }
}

/// What differs from agent to agent; empty where the title says it all.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AgentInactive
            | Self::NotListed
            | Self::Capability(_)
            | Self::Reserved { .. }
            | Self::Open
            | Self::RoomMade { .. } => Ok(()),
            Self::Constraint { unmet, more } => {
                let said = unmet.iter().map(ToString::to_string);
                f.write_str(&said.collect::<Vec<_>>().join("; "))?;
                and_more(f, *more)
            }
            Self::Own { held } => write!(f, "holds {}", Amounts(held)),
            Self::WentFirst {
                free,
                holders,
                more,
            } => {
                write!(f, "free: {}", Amounts(free))?;
                for holder in holders {
                    write!(f, "; {holder}")?;
                }
                and_more(f, *more)
            }
            Self::BelowMinimum { portion, minimum } => {
                let minimum = minimum.iter().map(|set| Amounts(set).to_string());
                let minimum = minimum.collect::<Vec<_>>().join(" or ");
                match minimum.is_empty() {
                    true => write!(f, "there is {}", Amounts(portion)),
                    false => write!(f, "there is {}, expected {minimum}", Amounts(portion)),
                }
            }
            Self::QuotaLimit { left, .. } => write!(f, "left: {}", Amounts(left)),
            Self::Headroom { required, free, .. } => {
                let (free, required) = (Amounts(free), Amounts(required));
                write!(f, "free in the cluster: {free}; needed: {required}")
            }
            Self::Filtered { offer, left } => {
                let (offer, left) = (Amounts(offer), seconds(*left));
                write!(f, "{offer} is hidden for {left} s more")
            }
        }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused {
                agents,
                awaited,
                left,
            } => {
                let left = seconds(*left);
                write!(
                    f,
                    "after a failover nothing is offered before {awaited} agents are back: {agents} are, and the pause ends in {left} s"
                )
            }
            Self::Inactive => f.write_str("the framework is not connected"),
            Self::Suppressed => f.write_str("it has asked for no offers in this role"),
            Self::BudgetSpent { most } => write!(
                f,
                "it holds as many unanswered offers as it may, {most}: it is offered more once half of them are answered"
            ),
        }
    }
}

impl Standing {
    /// A word for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Paused { .. } => "paused",
            Self::Inactive => "inactive",
            Self::Suppressed => "suppressed",
            Self::BudgetSpent { .. } => "budget_spent",
        }
    }
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.has {
            Some(has) => write!(f, "{}, and the agent has `{has}`", self.constraint),
            None => write!(f, "{}, and the agent has nothing there", self.constraint),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            framework_id: id,
            role,
            held,
            share,
            against,
        } = self;
        let held = Amounts(held);
        write!(
            f,
            "{id} in role {role} holds {held} (share {share:.3} against {against:.3})"
        )
    }
}

/// Amounts that say so when there are none.
struct Amounts<'a>(&'a Quantities);

impl fmt::Display for Amounts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.iter().len() {
            0 => f.write_str("nothing"),
            _ => fmt::Display::fmt(self.0, f),
        }
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.1}", duration.as_secs_f64())
}

fn and_more(f: &mut fmt::Formatter<'_>, more: u64) -> fmt::Result {
    match more {
        0 => Ok(()),
        more => write!(f, "; and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(text: &str) -> Quantities {
        text.parse().unwrap()
    }

    #[track_caller]
    fn reads(reason: Reason, title: &str, detail: &str) {
        assert_eq!(
            (reason.title(), reason.to_string()),
            (title.to_owned(), detail.to_owned())
        );
    }

    #[test]
    fn a_reason_says_what_holds_for_many_agents_apart_from_what_holds_for_one() {
        let unmet = |n: u64| Unmet {
            constraint: format!("attribute rack is `r{n}`"),
            has: (n == 1).then(|| "r7".to_owned()),
        };
        let one = Reason::Constraint {
            unmet: vec![unmet(1)],
            more: 0,
        };
        reads(
            one,
            "the framework's constraint does not hold: attribute rack is `r1`",
            "attribute rack is `r1`, and the agent has `r7`",
        );
        let many = Reason::Constraint {
            unmet: vec![unmet(1), unmet(2)],
            more: 5,
        };
        reads(
            many,
            "none of the framework's constraints holds: attribute rack is `r1`, nor 6 more",
            "attribute rack is `r1`, and the agent has `r7`; attribute rack is `r2`, and the agent has nothing there; and 5 more",
        );
        let holder = Holder {
            framework_id: FrameworkId::new("f2").unwrap(),
            role: "eng".to_owned(),
            held: amounts("cpus:4"),
            share: 0.125,
            against: 0.5,
        };
        let first = Reason::WentFirst {
            free: Quantities::new(),
            holders: vec![holder],
            more: 2,
        };
        let detail =
            "free: nothing; f2 in role eng holds cpus:4 (share 0.125 against 0.500); and 2 more";
        reads(first, "others went first", detail);
        let filtered = Reason::Filtered {
            offer: amounts("cpus:1"),
            left: Duration::from_millis(4_231),
        };
        let title = "the framework refused it a while ago";
        reads(filtered, title, "cpus:1 is hidden for 4.2 s more");
        let below = Reason::BelowMinimum {
            portion: amounts("mem:16"),
            minimum: vec![amounts("cpus:0.01"), amounts("mem:32")],
        };
        let title = "it is less than is worth an offer";
        reads(
            below,
            title,
            "there is mem:16, expected cpus:0.01 or mem:32",
        );
    }
}
