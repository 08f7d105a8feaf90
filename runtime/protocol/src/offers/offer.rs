//! Offers, and the filters set by declined ones.

use std::time::Duration;

use resources::{Attributes, Resources};
use serde::{Deserialize, Serialize};

use crate::agent::{Domain, HttpEndpoint};
use crate::id::{AgentId, ExecutorId, FrameworkId, OfferId};
use crate::maintenance::Unavailability;

/// Resources of one agent, offered to one framework in one role until it answers.
///
/// Regular and revocable resources are never in the same offer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// Id, used in the answer.
    pub id: OfferId,
    /// Framework that receives the offer.
    pub framework_id: FrameworkId,
    /// Agent that has the resources.
    pub agent_id: AgentId,
    /// Host of the agent.
    pub hostname: String,
    /// Role to which all resources are allocated.
    pub role: String,
    /// The resources, each with `role` as its allocation.
    pub resources: Resources,
    /// Attributes of the agent.
    pub attributes: Attributes,
    /// Executors of this framework that already run on the agent.
    pub executor_ids: Vec<ExecutorId>,
    /// Planned maintenance of the agent's machine.
    pub unavailability: Option<Unavailability>,
    /// Location of the agent. Only for HTTP frameworks: it is not sent on links.
    #[serde(skip)]
    pub domain: Option<Domain>,
    /// Address of the agent's pages. Not sent on links.
    #[serde(skip)]
    pub endpoint: Option<HttpEndpoint>,
}

/// How long declined resources are not offered again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Filters {
    /// Seconds. Negative or NaN: 5. More than 365 days: 365 days. Zero: no filter.
    pub refuse_seconds: f64,
}

impl Filters {
    /// Default, in seconds.
    pub const REFUSE_SECONDS: f64 = 5.0;
    /// Longest filter.
    pub const REFUSE_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

    /// The filter's duration, clamped to its valid range.
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
    // Covers S127; 2.2 Filters.
    #[test]
    fn filters_are_clamped() {
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
