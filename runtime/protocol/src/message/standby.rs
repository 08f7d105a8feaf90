//! How several schedulers of one framework share its lead (S134): one leads, the others stand by until the master says that it is
//! their turn.

use runtime::{Pid, remote};
use serde::{Deserialize, Serialize};

use super::scheduler::{Subscribed, SubscriptionRefused};
use crate::agent::MasterInfo;
use crate::framework::FrameworkInfo;
use crate::id::FrameworkId;
use crate::wants::Wants;

/// This scheduler would lead its framework, or else stand by for it.
///
/// With an id that framework is meant; without, the one of this name and principal whose schedulers stand by for each other, or a
/// new one if there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StandBy {
    /// Whose scheduler it is.
    pub framework: FrameworkInfo,
    /// Where it hears.
    pub scheduler: Pid,
    /// Which offers it would like at first, once it leads.
    pub wants: Wants,
}

/// What a scheduler that would lead is for now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// It leads: the framework is subscribed through it.
    Leads(Subscribed),
    /// Another leads, or is still waited for.
    StandsBy(StandingBy),
}

impl Standing {
    /// Under which term the master leads that says so: a majority of the masters has confirmed it.
    pub fn term(&self) -> u64 {
        match self {
            Self::Leads(subscribed) => subscribed.master.term,
            Self::StandsBy(standing) => standing.master.term,
        }
    }
}

/// This scheduler stands by, and hears [`YouLead`] when it is its turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandingBy {
    /// For which framework.
    pub framework_id: FrameworkId,
    /// With which master.
    pub master: MasterInfo,
}

/// The leading scheduler is gone: this standby leads from now on, and the framework is subscribed through it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct YouLead {
    /// As if it had subscribed.
    pub subscribed: Subscribed,
}

remote! { StandBy = "standby/stand_by" v2 -> Result<Standing, SubscriptionRefused> }
remote! { YouLead = "standby/you_lead" v1 }
