//! Offers, and the filters that answers to them leave behind (SPEC 2.2, 2.8, 4.6).

use std::time::Duration;

use resources::{Attributes, Resources};
use serde::{Deserialize, Serialize};

use crate::agent::{Domain, Served};
use crate::id::{AgentId, ExecutorId, FrameworkId, OfferId};
use crate::maintenance::Unavailability;

/// Resources of one agent, for one framework in one role, until it answers.
///
/// Regular and revocable resources are never mixed in one offer (S61).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// Used in the answer.
    pub id: OfferId,
    /// To whom.
    pub framework_id: FrameworkId,
    /// Whose.
    pub agent_id: AgentId,
    /// The agent's host.
    pub hostname: String,
    /// The role all of it is allocated to.
    pub role: String,
    /// What is offered; each resource bears the role as its allocation.
    pub resources: Resources,
    /// The agent's attributes (S94).
    pub attributes: Attributes,
    /// Executors of this framework that run there already.
    pub executor_ids: Vec<ExecutorId>,
    /// When the agent's machine will be away, if that is planned (SPEC 3.6).
    pub unavailability: Option<Unavailability>,
    /// Where the agent lies. No link tells it: frameworks over HTTP are told by their own master, native ones are not.
    #[serde(skip)]
    pub domain: Option<Domain>,
    /// Where the agent's pages are, which no link tells either.
    #[serde(skip)]
    pub served: Option<Served>,
}

/// For how long what was refused should not be offered again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Filters {
    /// Seconds. Below zero or not a number: 5. Above 365 days: 365 days. Zero: no filter (S127).
    pub refuse_seconds: f64,
}

impl Filters {
    /// The default of S127, in seconds.
    pub const REFUSE_SECONDS: f64 = 5.0;
    /// The longest filter.
    pub const REFUSE_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

    /// The refusal as a duration, with out-of-range values brought into range.
    pub fn refuse(&self) -> Duration {
        let seconds = match self.refuse_seconds {
            s if s.is_nan() || s < 0.0 => Self::REFUSE_SECONDS,
            s => s,
        };
        Duration::try_from_secs_f64(seconds)
            .unwrap_or(Self::REFUSE_MAX)
            .min(Self::REFUSE_MAX)
    }
}

impl Default for Filters {
    fn default() -> Self {
        Self {
            refuse_seconds: Self::REFUSE_SECONDS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S127, SPEC 4.6.
    #[test]
    fn a_refusal_out_of_range_is_brought_into_range() {
        for (seconds, expected) in [
            (5.0, 5),
            (-1.0, 5),
            (f64::NAN, 5),
            (0.0, 0),
            (f64::INFINITY, 31_536_000),
            (1e12, 31_536_000),
        ] {
            assert_eq!(
                Filters {
                    refuse_seconds: seconds
                }
                .refuse(),
                Duration::from_secs(expected),
                "{seconds}"
            );
        }
        assert_eq!(Filters::default().refuse(), Duration::from_secs(5));
    }
}
