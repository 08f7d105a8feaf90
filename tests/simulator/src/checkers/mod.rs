//! Checkers: the invariants of the house (DESIGN section 10), one file each, judged by what is said, heard and started.
//!
//! | file | invariant |
//! |---|---|
//! | `group` | (1) one leader a term; what was committed stays, and all members hold the same |
//! | `registry` | (1) what the registry has acknowledged is never lost; its answers are those of one copy |
//! | `deposed` | (1) a master that leads no more has no task started |
//! | `allocations` | (2) what is offered and held of an agent never exceeds what it has, nor what it lends |
//! | `operations` | (1) what the registry has accepted is done, or said to have failed, and never both |
//! | `estates` | (2) what an agent has is what its operations have made, over its crashes |
//! | `entitlement` | (3) revocable and reserved resources are offered only to those who may have them |
//! | `updates` | (4) an update that an agent has taken into its care reaches its framework, in order |
//! | `states` | (5) a task ends once and for ever, and one that is said to run does |
//! | `executors` | (5) an executor that dies takes its tasks with it, and its agent says so |
//! | `offers` | (6) every offer ends in exactly one way, and is used once |
//! | `recovery` | (7) after the faults everybody is back and frameworks make progress |
//! | `quotas` | no offer takes a role, or one above it, beyond its limits |
//! | `revocations` | a task that must go is announced, and has the time that it was given |
//! | `maintenance` | nothing is offered or launched on a machine that is down |
//! | `corrections` | what is revocable yields where the machine is busy, and nothing else does |
//! | `launches` | one process for each container, no task launched twice |
//! | `standbys` | of the schedulers of one framework only the appointed one is told that it leads |
//! | `falls` | no actor panics |
//! | `subscriptions` | a scheduler that has been replaced is not spoken to, and nothing is done for it |
//!
//! `census` is what several of them need to know: who is registered and subscribed, by the master's own answers; `records`: what masters have their
//! registries record, and read there; `words`: what a status says beside its state. `reigns` shows those
//! that judge a master's own order one master at a time.
//!
//! **What makes a judgement sound.** Messages under way make "now" different for each party, so each judgement is about one party's
//! own order. What it says is seen when it says it. What it hears is seen when it goes into the mailbox, which is a queue: the
//! party may still say what follows from earlier messages. So an end of something counts at its first sign, a beginning at its last,
//! and where the very order decides, a checker uses that virtual time passes only when all mailboxes are empty: what was heard at
//! an earlier moment has been handled. Links break without an event: what a master takes back because of a broken link is not said
//! to anybody. Where that matters, a checker waits for the master itself to show that the link held, or looks away.

mod allocations;
mod census;
mod corrections;
mod deposed;
mod endings;
mod entitlement;
mod estates;
mod executors;
mod falls;
mod group;
mod launches;
mod maintenance;
mod offers;
mod operations;
mod quotas;
mod records;
mod recovery;
mod registry;
mod reigns;
mod revocations;
#[cfg(test)]
mod stage;
mod standbys;
mod states;
mod subscriptions;
mod updates;
mod words;

pub use allocations::Allocations;
pub use corrections::Corrections;
pub use deposed::Deposed;
pub use endings::Endings;
pub use entitlement::Entitlement;
pub use estates::Estates;
pub use executors::Executors;
pub use falls::{Falls, WANTED};
pub use group::Group;
pub use launches::Launches;
pub use maintenance::Maintenance;
pub use offers::Offers;
pub use operations::Operations;
pub use quotas::Quotas;
pub use recovery::{RECOVERY, Recovery};
pub use registry::Registry;
pub use reigns::Reigns;
pub use revocations::Revocations;
pub use standbys::Standbys;
pub use states::States;
pub use subscriptions::Subscriptions;
pub use updates::Updates;

use std::time::Duration;

use master::registry::RegistryOperation;
use protocol::AgentId;

use crate::checker::{Checker, Violation};
use crate::linear::RegistryRequest;

/// All checkers, fresh.
pub fn all() -> Vec<Box<dyn Checker>> {
    vec![
        Box::new(Group::default()),
        Box::new(Registry::default()),
        Box::new(Deposed::default()),
        Box::new(Reigns::<Allocations>::default()),
        Box::new(Reigns::<Entitlement>::default()),
        Box::new(Reigns::<Quotas>::default()),
        Box::new(Reigns::<Revocations>::default()),
        Box::new(Reigns::<Maintenance>::default()),
        Box::new(Operations::default()),
        Box::new(Estates::default()),
        Box::new(Updates::default()),
        Box::new(States::default()),
        Box::new(Executors::default()),
        Box::new(Corrections::default()),
        Box::new(Reigns::<Offers>::default()),
        Box::new(Recovery::default()),
        Box::new(Launches::default()),
        Box::new(Reigns::<Subscriptions>::default()),
        Box::new(Standbys::default()),
        Box::new(Falls::default()),
        Box::new(Endings::default()),
    ]
}

/// What is under way for no longer than this is nothing to wait for: there is always something.
const UNDER_WAY: Duration = Duration::from_secs(10);

/// A broken invariant, in these words.
fn broken<T>(checker: &'static str, at: Duration, what: String) -> Result<T, Violation> {
    Err(Violation { checker, at, what })
}

/// The agent that a master gives up with this question: whatever it held there has ended, what it had sent and the agent never heard as well.
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
