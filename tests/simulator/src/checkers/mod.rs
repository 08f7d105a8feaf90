//! Checkers: one file for each invariant, judged by sent and received messages and started
//! processes.
//!
//! | module | contents |
//! |---|---|
//! | `checker` | the trait of a checker |
//! | `containers` | isolation of containers, nested ones, task groups |
//! | `fixture` | events made by hand, for tests of checkers |
//! | `maintenance` | nothing is offered or launched on a machine that is down |
//! | `masters` | leadership, group, registry, membership, standby schedulers |
//! | `no_panics` | no actor panics, unless the simulation injected it |
//! | `process_exits` | no process exits by itself without cause |
//! | `recovery` | after the faults all nodes return and frameworks make progress |
//! | `resources` | totals, allocations, offers, quota and operations |
//! | `subscriptions` | a replaced scheduler receives nothing, and nothing is done for it |
//! | `tasks` | states, updates, launches, executors and evictions |
//!
//! Checkers of one leading master's order run through `masters::per_term`, separately for each
//! leader. Facts that several of them need are in `masters::membership`, `masters::records` and
//! `tasks::status_origin`.
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
mod containers;
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

pub use containers::groups::TaskGroups;
pub use containers::isolation::ContainerIsolation;
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
pub use resources::lending::Lending;
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
        Box::new(Lending::default()),
        Box::new(Updates::default()),
        Box::new(States::default()),
        Box::new(Executors::default()),
        Box::new(Corrections::default()),
        Box::new(PerTerm::<Offers>::default()),
        Box::new(Recovery::default()),
        Box::new(Launches::default()),
        Box::new(ContainerIsolation::default()),
        Box::new(TaskGroups::default()),
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
