//! The origin of a status: its sender and reason beside the state.

use protocol::{Reason, Source, TaskState, TaskStatus};

/// Whether a master says only that it does not know the task, or that its agent is unreachable or
/// gone.
pub(in crate::checkers) fn is_ignorance(status: &TaskStatus) -> bool {
    use TaskState::{Dropped, Gone, GoneByOperator, Lost, Unknown, Unreachable};
    let is_missed = status.source == Source::Agent && status.reason == Some(Reason::Reconciliation);
    let own = (status.source == Source::Master || is_missed) && status.uuid.is_none();
    let knows_no_end = matches!(status.state, Dropped | Gone | Lost | Unknown | Unreachable);
    own && (knows_no_end || status.state == GoneByOperator && is_an_answer(status))
}

/// Whether a master answers a reconciliation with its own state of the task, which is the agent's.
pub(in crate::checkers) fn is_an_answer(status: &TaskStatus) -> bool {
    status.source == Source::Master && status.reason == Some(Reason::Reconciliation)
}

/// Whether an agent says this about a task of its previous process, or its master, which has it
/// from the agent, when the agent is removed.
pub(in crate::checkers) fn is_of_the_next(status: &TaskStatus) -> bool {
    use Reason::{
        AgentRestarted, ContainerPreempted, ExecutorReregistrationTimeout, ExecutorTerminated,
    };
    let reasons = [
        AgentRestarted,
        ContainerPreempted,
        ExecutorReregistrationTimeout,
        ExecutorTerminated,
    ];
    let reason = status.reason.filter(|reason| reasons.contains(reason));
    // The coarser reason is for frameworks that are not partition-aware.
    let removed = [Reason::AgentRemovedByOperator, Reason::AgentRemoved];
    let is_removed = status
        .reason
        .is_some_and(|reason| removed.contains(&reason));
    status.source == Source::Agent && reason.is_some()
        || status.source == Source::Master && is_removed
}
