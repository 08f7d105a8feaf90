//! Several schedulers of one framework: one leads, the others are standbys until the master elects
//! one of them.

use runtime::{Pid, remote};
use serde::{Deserialize, Serialize};

use super::scheduler::{Subscribed, SubscriptionRefused};
use crate::agent::MasterInfo;
use crate::framework::FrameworkInfo;
use crate::id::FrameworkId;
use crate::offers::wants::Wants;

/// Subscribes this scheduler to lead its framework, or to be a standby.
///
/// An id in `framework` selects the framework. Without an id it is the one with this name and
/// principal whose schedulers are standbys of each other, or a new one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StandBy {
    /// The framework's description.
    pub framework: FrameworkInfo,
    /// Actor that receives the master's messages.
    pub scheduler: Pid,
    /// Offer preferences at the start of its leadership.
    pub wants: Wants,
}

/// Answer to [`StandBy`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StandbyReply {
    /// This scheduler leads, and the framework is subscribed through it.
    Leads(Subscribed),
    /// Another scheduler leads, or the master still waits for the previous one.
    StandsBy(StandingBy),
}

impl StandbyReply {
    /// Term of the answering master, confirmed by a majority of the masters.
    pub fn term(&self) -> u64 {
        match self {
            Self::Leads(subscribed) => subscribed.master.term,
            Self::StandsBy(standing) => standing.master.term,
        }
    }
}

/// This scheduler is a standby, and receives [`SchedulerElected`] when it is elected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandingBy {
    /// The framework.
    pub framework_id: FrameworkId,
    /// The master.
    pub master: MasterInfo,
}

/// The leading scheduler is gone: the receiver leads now, and the framework is subscribed through
/// it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerElected {
    /// As in the answer to a subscription.
    pub subscribed: Subscribed,
}

remote! { StandBy = "standby/stand_by" v1 -> Result<StandbyReply, SubscriptionRefused> }
remote! { SchedulerElected = "standby/you_lead" v1 }
