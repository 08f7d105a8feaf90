//! [`Scheduler`]: the callbacks that a framework implements.
//!
//! Callbacks run one at a time and must not block. Each gets [`Calls`], a list to which it adds
//! calls; the driver sends them in order when the callback returns.

use protocol::message::scheduler::{Lost, Subscribed, TasksRevoked};
use protocol::message::standby::StandingBy;
use protocol::{
    AgentId, ExecutorId, InverseOffer, Offer, OfferId, OperationStatus, TaskId, TaskStatus,
};
use runtime::delivery::DeliveryError;

use crate::call::Calls;
use crate::state::{StateCall, StateOutcome};

/// A call that was not delivered to a master, or perhaps was not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undelivered {
    /// The call: `kill` or `accept`. Other calls are repeated anyway; their failures are only
    /// logged.
    pub call: &'static str,
    /// The tasks to kill or launch.
    pub tasks: Vec<TaskId>,
    /// The cause. After [`DeliveryError::Expired`] a master may have received the call.
    pub error: DeliveryError,
}

/// The callbacks of a framework. Only [`offers`](Self::offers) and [`status`](Self::status) are
/// required.
pub trait Scheduler: Send + Unpin + 'static {
    /// The framework is subscribed. Called again, with the same framework id, after each
    /// reconnection to a master.
    fn subscribed(&mut self, _driver: &mut Calls, _subscribed: &Subscribed) {}

    /// This scheduler leads its framework now; [`subscribed`](Self::subscribed) follows. Only
    /// called with [`SchedulerDriver::standing_by`](crate::SchedulerDriver::standing_by), and once
    /// per election: not again if it still leads after a reconnection.
    ///
    /// Another scheduler may have led before. Its progress is in the framework's state (see
    /// [`Calls::get`]) and in its tasks: the driver reconciles them at once, and statuses that it
    /// did not acknowledge are sent to this one. Offer suppression is reset to the configured one
    /// or that of the last [`update`](Calls::update).
    fn elected(&mut self, _driver: &mut Calls, _subscribed: &Subscribed) {}

    /// Another scheduler leads the framework, and this one waits. It may read the framework's state
    /// and must do nothing else.
    ///
    /// If this scheduler led before, the master lost its connection and replaced it: its knowledge
    /// of tasks is out of date, and its undelivered calls are reported as
    /// [`undelivered`](Self::undelivered).
    fn standing_by(&mut self, _driver: &mut Calls, _standing: &StandingBy) {}

    /// Result of a read or change of the framework's state that a callback requested.
    fn state(&mut self, _driver: &mut Calls, _call: &StateCall, _outcome: &StateOutcome) {}

    /// Result of an [`update`](Calls::update): applied, or refused for this reason.
    fn updated(&mut self, _driver: &mut Calls, _outcome: Result<(), &str>) {}

    /// The master is lost, and all offers with it. The driver is already looking for a master.
    fn disconnected(&mut self, _driver: &mut Calls, _reason: &str) {}

    /// New offers. Each must be accepted or declined: no other framework can use their resources
    /// until then.
    fn offers(&mut self, driver: &mut Calls, offers: Vec<Offer>);

    /// An offer is no longer valid. Tasks launched on it would be lost.
    fn rescinded(&mut self, _driver: &mut Calls, _offer: &OfferId) {}

    /// Agents will become unavailable. Each inverse offer must be
    /// [accepted](Calls::accept_inverse), if the framework will leave in time, or
    /// [declined](Calls::decline_inverse). In both cases, remaining tasks end when the machine is
    /// taken down.
    fn inverse_offers(&mut self, _driver: &mut Calls, _offers: Vec<InverseOffer>) {}

    /// An inverse offer is no longer valid.
    fn inverse_rescinded(&mut self, _driver: &mut Calls, _offer: &OfferId) {}

    /// A task has a new state. The driver delivers each update once, as long as it remembers it
    /// (see [`crate::UPDATES_REMEMBERED`]).
    fn status(&mut self, driver: &mut Calls, status: &TaskStatus);

    /// Tasks are revoked to meet another role's guarantee. Each task that has not ended by the
    /// deadline is killed; if that fails, its executor with all its tasks is. The framework may
    /// save its work and end the tasks earlier, and launch replacements elsewhere. The ends arrive
    /// as statuses; those of killed tasks have reason `CONTAINER_PREEMPTED`. If a task may stay
    /// after all, its unchanged status arrives.
    ///
    /// That last status is sent once and needs no acknowledgement, so a scheduler that is
    /// disconnected at that time misses it. It can ask with [`Calls::reconcile`] (the driver's own
    /// reconciliation reports only changes). But every new subscription repeats the pending
    /// revocations: a task without a new one, before its deadline, may stay.
    ///
    /// The framework's guarantees and the label `meros.priority` determine which of its tasks are
    /// revoked last (see [`protocol::text::reserved_labels`]).
    fn revoked(&mut self, _driver: &mut Calls, _revoked: &TasksRevoked) {}

    /// An operation with an id from an [accept](Calls::accept) has a new state. Each update is
    /// delivered once, as for tasks. In any final state but `FINISHED` the resources are unchanged,
    /// and later operations that depend on them are dropped too.
    fn operation_status(&mut self, _driver: &mut Calls, _status: &OperationStatus) {}

    /// Data from an executor. Delivered at most once.
    fn message(
        &mut self,
        _driver: &mut Calls,
        _agent: &AgentId,
        _executor: &ExecutorId,
        _data: &[u8],
    ) {
    }

    /// An agent was removed or an executor has ended. The statuses of its tasks arrive separately,
    /// before or after.
    fn lost(&mut self, _driver: &mut Calls, _lost: &Lost) {}

    /// A call could not be delivered within the bounds of memory and time. A launch that certainly
    /// did not reach a master is reported as lost statuses instead. A kill is repeated after the
    /// next subscription.
    fn undelivered(&mut self, _driver: &mut Calls, _failed: &Undelivered) {}

    /// The framework was refused, removed, or replaced by a newer scheduler. The driver ends after
    /// this.
    fn failed(&mut self, _driver: &mut Calls, _reason: &str) {}
}
