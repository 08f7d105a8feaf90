//! Checkers: one file for each invariant, judged by sent and received messages and started
//! processes.
//!
//! | file | invariant |
//! |---|---|
//! | `group` | (1) one leader per term; committed entries stay, and all members hold the same |
//! | `registry` | (1) acknowledged operations are never lost; the answers are those of a single copy |
//! | `deposed` | (1) a deposed master starts no task |
//! | `allocations` | (2) offered and used resources of an agent never exceed its total, nor its lent ones |
//! | `operations` | (1) an accepted operation is done or reported as failed, never both |
//! | `agent_resources` | (2) an agent's resources are the result of its operations, across crashes |
//! | `entitlement` | (3) revocable and reserved resources are offered only to entitled frameworks |
//! | `updates` | (4) an update that an agent has stored reaches its framework, in order |
//! | `states` | (5) a task ends once and for ever, and a running one has a process |
//! | `executors` | (5) an executor's death ends its tasks, and its agent reports it |
//! | `offers` | (6) every offer ends in exactly one way, and is used once |
//! | `recovery` | (7) after the faults all nodes return and frameworks make progress |
//! | `quotas` | no offer takes a role, or an ancestor, beyond its limits |
//! | `revocations` | a revoked task is announced and gets its grace period |
//! | `maintenance` | nothing is offered or launched on a machine that is down |
//! | `corrections` | revocable tasks yield on a busy machine, and no others do |
//! | `launches` | one process for each container, no task launched twice |
//! | `standbys` | only the appointed scheduler of a framework is told that it leads |
//! | `no_panics` | no actor panics |
//! | `process_exits` | no process exits by itself without cause |
//! | `subscriptions` | a replaced scheduler receives nothing, and nothing is done for it |
//!
//! Shared parts: `membership` knows the registered agents and subscribed frameworks by the master's
//! own answers; `records` the requests of masters to their registries; `status_origin` the sender
//! and reason of a status. `per_term` runs a checker separately for each leading master.
//!
//! **Soundness.** Messages in flight make "now" different for each party, so each judgement is
//! about one party's own order. A sent message is seen when it is sent. A received message is seen
//! when it enters the mailbox, which is a queue: the party may still act on earlier messages. So
//! the end of something counts from its first sign, and a beginning from its last. Where the exact
//! order matters, a checker uses that virtual time passes only when all mailboxes are empty:
//! messages received at an earlier moment have been handled. Links break without an event:
//! resources that a master reclaims because of a broken link are reported to no party. There a
//! checker waits for the master to show that the link held, or does not judge.

pub mod checker;
#[cfg(test)]
mod fixture;
mod maintenance;
pub(crate) mod masters;
mod no_panics;
mod process_exits;
mod recovery;
pub(crate) mod resources;
mod subscriptions;
pub(crate) mod tasks;

pub use maintenance::Maintenance;
pub use masters::deposed::Deposed;
pub use masters::group::Group;
pub use masters::per_term::PerTerm;
pub use masters::registry::Registry;
pub use masters::standbys::Standbys;
pub use no_panics::{NoPanics, WANTED};
pub use process_exits::ProcessExits;
pub use recovery::{RECOVERY, Recovery};
pub use resources::agent_resources::AgentResourcesChecker;
pub use resources::allocations::Allocations;
pub use resources::entitlement::Entitlement;
pub use resources::offers::Offers;
pub use resources::operations::Operations;
pub use resources::quotas::Quotas;
pub use subscriptions::Subscriptions;
pub use tasks::corrections::Corrections;
pub use tasks::executors::Executors;
pub use tasks::launches::Launches;
pub use tasks::revocations::Revocations;
pub use tasks::states::States;
pub use tasks::updates::Updates;

use std::time::Duration;

use master::registry::RegistryOperation;
use protocol::AgentId;

use crate::checkers::checker::{Checker, Violation};
use crate::linear::RegistryRequest;

/// New instances of all checkers.
pub fn all() -> Vec<Box<dyn Checker>> {
    vec![
        Box::new(Group::default()),
        Box::new(Registry::default()),
        Box::new(Deposed::default()),
        Box::new(PerTerm::<Allocations>::default()),
        Box::new(PerTerm::<Entitlement>::default()),
        Box::new(PerTerm::<Quotas>::default()),
        Box::new(PerTerm::<Revocations>::default()),
        Box::new(PerTerm::<Maintenance>::default()),
        Box::new(Operations::default()),
        Box::new(AgentResourcesChecker::default()),
        Box::new(Updates::default()),
        Box::new(States::default()),
        Box::new(Executors::default()),
        Box::new(Corrections::default()),
        Box::new(PerTerm::<Offers>::default()),
        Box::new(Recovery::default()),
        Box::new(Launches::default()),
        Box::new(PerTerm::<Subscriptions>::default()),
        Box::new(Standbys::default()),
        Box::new(NoPanics::default()),
        Box::new(ProcessExits::default()),
    ]
}

/// Messages in flight for less than this do not prolong the run: there are always some.
const UNDER_WAY: Duration = Duration::from_secs(10);

/// A violation with this text.
fn broken<T>(checker: &'static str, at: Duration, what: String) -> Result<T, Violation> {
    Err(Violation { checker, at, what })
}

/// The agent that a master removes by this request: everything it held there has ended, tasks in
/// flight included.
fn given_up(request: &RegistryRequest) -> Option<&AgentId> {
    let RegistryRequest::Apply(operation) = request else {
        return None;
    };
    match operation.as_ref() {
        RegistryOperation::MarkAgentUnreachable { agent_id, .. }
        | RegistryOperation::MarkAgentGone { agent_id, .. }
        | RegistryOperation::RemoveAgent { agent_id } => Some(agent_id),
        _ => None,
    }
}
