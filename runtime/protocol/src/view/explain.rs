//! Explanations why a framework receives no offers of some agents.
//!
//! Only the types and their texts. The allocator finds the reasons.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use resources::Quantities;
use serde::{Deserialize, Serialize};

use crate::framework::Capability;
use crate::id::{AgentId, FrameworkId};

/// Why a framework receives no offers, by the allocator's current state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The framework.
    pub framework_id: FrameworkId,
    /// One entry for each requested role.
    pub roles: Vec<RoleExplanation>,
}

/// An [`Explanation`] with the master's additions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OffersExplained {
    /// Name of the framework.
    pub name: String,
    /// From the allocator.
    pub explanation: Explanation,
    /// Unanswered offers by role. Their resources are not offered again.
    pub unanswered: BTreeMap<String, u64>,
}

/// Why a framework receives no offers in one role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoleExplanation {
    /// The role.
    pub role: String,
    /// Dominant share of the framework's resources in this role, 0 to 1.
    pub share: f64,
    /// Dominant share of the role and its descendants, divided by its weight.
    pub role_share: f64,
    /// Conditions that block all offers. The reasons below apply if these are removed.
    pub standing: Vec<OfferBlocker>,
    /// Number of agents examined.
    pub agents: u64,
    /// Reasons, by decreasing number of agents, regular resources before revocable ones. Each agent
    /// counts once for its regular resources and, if it lends any, once for its revocable ones, by
    /// the first reason that applies. If only one agent was requested, all reasons that apply.
    pub reasons: Vec<ReasonCount>,
    /// Agents without a reason here: over the limit of distinct reasons, or hidden from the caller.
    pub untold: u64,
}

/// A condition that blocks offers of all agents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OfferBlocker {
    /// After a failover, the allocator grants nothing until enough agents have reregistered, so
    /// that it does not break guarantees.
    Paused {
        /// Agents that have reregistered.
        agents: u64,
        /// Agents needed.
        awaited: u64,
        /// Longest remaining time of the pause.
        left: Duration,
    },
    /// The framework is not connected.
    Inactive,
    /// The framework suppressed this role.
    Suppressed,
    /// The framework has reached its limit of unanswered offers, over all its roles.
    BudgetSpent {
        /// The limit.
        most: u64,
    },
}

/// Number of agents to which a reason applies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReasonCount {
    /// Whether the reason is about the agents' revocable resources.
    pub revocable: bool,
    /// Number of agents.
    pub agents: u64,
    /// A few of them, at least one.
    pub examples: Vec<Example>,
}

/// One agent with its reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Example {
    /// The agent.
    pub agent_id: AgentId,
    /// Host of the agent.
    pub hostname: String,
    /// The reason.
    pub reason: NoOfferReason,
}

/// Why an agent is not offered to a framework in a role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum NoOfferReason {
    /// The agent is not connected.
    AgentInactive,
    /// The agent's host is not on the masters' whitelist.
    NotListed,
    /// The agent needs a capability that the framework lacks.
    Capability(Capability),
    /// The framework's demand excludes this agent.
    Constraint {
        /// The first few constraint groups, each with its first unmet constraint.
        unmet: Vec<UnmetConstraint>,
        /// Number of further groups, all unmet.
        more: u64,
    },
    /// The framework already uses all available resources, or they are offered to it.
    Own {
        /// The framework's resources there.
        held: Quantities,
    },
    /// Resources of other frameworks leave too little.
    WentFirst {
        /// Free resources for the framework.
        free: Quantities,
        /// The largest holders, largest first.
        holders: Vec<ResourceHolder>,
        /// Number of further holders.
        more: u64,
    },
    /// Everything that is large enough is reserved for other roles.
    Reserved {
        /// A few of these roles.
        roles: Vec<String>,
    },
    /// The free resources are below the minimum of an offer.
    BelowMinimum {
        /// Free resources for the framework.
        portion: Quantities,
        /// Alternatives, any of which suffices.
        minimum: Vec<Quantities>,
    },
    /// The quota limit of the role or of one of its ancestors leaves too little.
    QuotaLimit {
        /// Role with the limit.
        role: String,
        /// Remaining resources below the limit.
        left: Quantities,
    },
    /// All free resources of the cluster are kept for unmet guarantees.
    Headroom {
        /// A few of the roles with these guarantees.
        roles: Vec<String>,
        /// Resources needed for the guarantees.
        required: Quantities,
        /// Free resources of the whole cluster.
        free: Quantities,
    },
    /// The framework declined such an offer, or did not answer it in time.
    Filtered {
        /// Resources of the suppressed offer.
        offer: Quantities,
        /// Remaining time of the filter.
        left: Duration,
    },
    /// No obstacle: the next allocation run offers the agent, unless earlier clients take it.
    Open,
    /// Tasks on this agent are being revoked for a role below its guarantee. Its unreserved
    /// resources are kept together meanwhile.
    RoomMade {
        /// The role.
        role: String,
    },
}

/// A constraint that an agent does not meet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmetConstraint {
    /// The constraint, for example ``attribute rack is `r1` ``.
    pub constraint: String,
    /// The agent's value, if any.
    pub has: Option<String>,
}

/// A framework with resources on an agent, in use or offered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResourceHolder {
    /// The framework.
    pub framework_id: FrameworkId,
    /// The role.
    pub role: String,
    /// The resources.
    pub held: Quantities,
    /// Dominant share over all resource names: of the two highest roles in which the frameworks
    /// differ, or of the two frameworks in the same role. Weighted fair sharing compares these;
    /// other sorters may not.
    pub share: f64,
    /// The share of the explained framework in that comparison.
    pub against: f64,
}

impl NoOfferReason {
    /// Machine-readable name of the reason.
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

    /// The part that is equal for all agents of a kind. Agents with equal titles are counted
    /// together.
    pub fn title(&self) -> String {
        match self {
            Self::AgentInactive => "the agent is not connected".to_owned(),
            Self::NotListed => "its host is not on the masters' whitelist".to_owned(),
            Self::Capability(capability) => {
                let without = match capability {
                    Capability::GpuResources => "the agent has GPUs",
                    Capability::RegionAware => "the agent is in another region than the masters",
                    Capability::RevocableResources => "its lent resources are revocable",
                    Capability::SharedResources => "only shared volumes are left",
                    Capability::ReservationRefinement => "only refined reservations are left",
                    _ => "not offered to every framework",
                };
                format!("{without}; the framework lacks {}", capability.name())
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
            Self::Own { .. } => "already offered to the framework or in use by it".to_owned(),
            Self::WentFirst { .. } => "the resources went to other clients".to_owned(),
            Self::Reserved { roles } => match roles.as_slice() {
                [] => "it is reserved".to_owned(),
                [role] => format!("it is reserved for role {role}"),
                roles => format!("it is reserved for roles {}", roles.join(", ")),
            },
            Self::BelowMinimum { .. } => "below the minimum of an offer".to_owned(),
            Self::QuotaLimit { role, .. } => {
                format!("the quota limit of role {role} leaves too little")
            }
            Self::Headroom { roles, .. } => {
                format!("kept free for the guarantee of {}", roles.join(", "))
            }
            Self::Filtered { .. } => "the framework declined it recently".to_owned(),
            Self::Open => "no obstacle: the next allocation run offers it".to_owned(),
            Self::RoomMade { role } => format!("tasks are being revoked for role {role}"),
        }
    }
}

/// The details of one agent; empty if the title is complete.
impl fmt::Display for NoOfferReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AgentInactive
            | Self::NotListed
            | Self::Capability(_)
            | Self::Reserved { .. }
            | Self::Open
            | Self::RoomMade { .. } => Ok(()),
            Self::Constraint { unmet, more } => {
                let lines = unmet.iter().map(ToString::to_string);
                f.write_str(&lines.collect::<Vec<_>>().join("; "))?;
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
                write!(f, "{offer} is filtered for another {left} s")
            }
        }
    }
}

impl fmt::Display for OfferBlocker {
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
                    "after a failover, no offers until {awaited} agents have reregistered ({agents} have) or for another {left} s"
                )
            }
            Self::Inactive => f.write_str("the framework is not connected"),
            Self::Suppressed => f.write_str("the framework suppressed offers in this role"),
            Self::BudgetSpent { most } => write!(
                f,
                "limit of {most} unanswered offers reached; new offers once half of them are answered"
            ),
        }
    }
}

impl OfferBlocker {
    /// Machine-readable name of the condition.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Paused { .. } => "paused",
            Self::Inactive => "inactive",
            Self::Suppressed => "suppressed",
            Self::BudgetSpent { .. } => "budget_spent",
        }
    }
}

impl fmt::Display for UnmetConstraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.has {
            Some(has) => write!(f, "{}; the agent has `{has}`", self.constraint),
            None => write!(f, "{}; the agent has no value", self.constraint),
        }
    }
}

impl fmt::Display for ResourceHolder {
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

/// Quantities, displayed as `nothing` when empty.
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
    fn reads(reason: NoOfferReason, title: &str, detail: &str) {
        assert_eq!(
            (reason.title(), reason.to_string()),
            (title.to_owned(), detail.to_owned())
        );
    }

    #[test]
    fn reasons_have_a_common_title_and_details() {
        let unmet = |n: u64| UnmetConstraint {
            constraint: format!("attribute rack is `r{n}`"),
            has: (n == 1).then(|| "r7".to_owned()),
        };
        let one = NoOfferReason::Constraint {
            unmet: vec![unmet(1)],
            more: 0,
        };
        reads(
            one,
            "the framework's constraint does not hold: attribute rack is `r1`",
            "attribute rack is `r1`; the agent has `r7`",
        );
        let many = NoOfferReason::Constraint {
            unmet: vec![unmet(1), unmet(2)],
            more: 5,
        };
        reads(
            many,
            "none of the framework's constraints holds: attribute rack is `r1`, nor 6 more",
            "attribute rack is `r1`; the agent has `r7`; attribute rack is `r2`; the agent has no value; and 5 more",
        );
        let holder = ResourceHolder {
            framework_id: FrameworkId::new("f2").unwrap(),
            role: "eng".to_owned(),
            held: amounts("cpus:4"),
            share: 0.125,
            against: 0.5,
        };
        let first = NoOfferReason::WentFirst {
            free: Quantities::new(),
            holders: vec![holder],
            more: 2,
        };
        let detail =
            "free: nothing; f2 in role eng holds cpus:4 (share 0.125 against 0.500); and 2 more";
        reads(first, "the resources went to other clients", detail);
        let filtered = NoOfferReason::Filtered {
            offer: amounts("cpus:1"),
            left: Duration::from_millis(4_231),
        };
        let title = "the framework declined it recently";
        reads(filtered, title, "cpus:1 is filtered for another 4.2 s");
        let below = NoOfferReason::BelowMinimum {
            portion: amounts("mem:16"),
            minimum: vec![amounts("cpus:0.01"), amounts("mem:32")],
        };
        let title = "below the minimum of an offer";
        reads(
            below,
            title,
            "there is mem:16, expected cpus:0.01 or mem:32",
        );
    }
}
