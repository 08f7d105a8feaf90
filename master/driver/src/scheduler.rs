//! The framework's half: [`Scheduler`], what it is called back for.
//!
//! A scheduler decides and remembers; it never waits. Each callback is given [`Verbs`], in which it writes down what it wants done;
//! the driver does it, in order, as soon as the callback has returned. Callbacks come one at a time.

use protocol::message::scheduler::{Lost, Subscribed, TasksRevoked};
use protocol::message::standby::StandingBy;
use protocol::{
    AgentId, ExecutorId, InverseOffer, Offer, OfferId, OperationStatus, TaskId, TaskStatus,
};
use runtime::delivery::DeliveryError;

use crate::state::{StateCall, StateOutcome};
use crate::verbs::Verbs;

/// A call that did not, or may not have, reached a master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undelivered {
    /// The verb: `kill` or `accept`. Other calls are said again anyway, and their failures are in the log.
    pub call: &'static str,
    /// The tasks that were to be killed or launched.
    pub tasks: Vec<TaskId>,
    /// Why. With [`DeliveryError::Expired`] it may have been heard.
    pub error: DeliveryError,
}

/// What a framework does with what it hears. Only [`offers`](Self::offers) and [`status`](Self::status) must be written.
pub trait Scheduler: Send + Unpin + 'static {
    /// The master knows this framework now. Comes again, with the same framework id, after each loss of the master.
    fn subscribed(&mut self, _driver: &mut Verbs, _subscribed: &Subscribed) {}

    /// This scheduler leads its framework from now on; [`subscribed`](Self::subscribed) follows. Comes only to one that
    /// [stands by](crate::SchedulerDriver::standing_by), once each time its turn comes, and not when it still leads after a loss of
    /// the master.
    ///
    /// Another may have led before. What that one has left behind is in the framework's state (see [`Verbs::get`]) and in its
    /// tasks, of which the driver asks the master at once; statuses that it had not acknowledged come to this one. It wants offers for
    /// the roles with which it began or was last updated: what it suppressed when it led before counts no more.
    fn you_lead(&mut self, _driver: &mut Verbs, _subscribed: &Subscribed) {}

    /// Another scheduler leads the framework, and this one waits for its turn: it may read the framework's state, and do nothing else.
    ///
    /// One that has led until now was taken for lost and replaced: what it knows of tasks is out of date, and what it had said
    /// and no master had heard comes back as [`undelivered`](Self::undelivered).
    fn standing_by(&mut self, _driver: &mut Verbs, _standing: &StandingBy) {}

    /// What has become of a question about the framework's state, or of a change, that was written down in a callback.
    fn state(&mut self, _driver: &mut Verbs, _call: &StateCall, _outcome: &StateOutcome) {}

    /// The framework is what an [`update`](Verbs::update) made it, or stays what it was for this reason.
    fn updated(&mut self, _driver: &mut Verbs, _outcome: Result<(), &str>) {}

    /// The master is lost. All offers are void; the driver is already looking for a master again.
    fn disconnected(&mut self, _driver: &mut Verbs, _reason: &str) {}

    /// Resources to choose from. Each offer is to be accepted or declined: what is kept is kept from everybody else.
    fn offers(&mut self, driver: &mut Verbs, offers: Vec<Offer>);

    /// This offer is void: accepting it would lose the tasks.
    fn rescinded(&mut self, _driver: &mut Verbs, _offer: &OfferId) {}

    /// These agents will be away: each inverse offer is to be [accepted](Verbs::accept_inverse), which is to say that the framework will have
    /// left by then, or [declined](Verbs::decline_inverse). Nothing is forced: whatever the answer, the tasks there end when the machine
    /// is taken down.
    fn inverse_offers(&mut self, _driver: &mut Verbs, _offers: Vec<InverseOffer>) {}

    /// This inverse offer is void.
    fn inverse_rescinded(&mut self, _driver: &mut Verbs, _offer: &OfferId) {}

    /// A task has a new state. Each update comes once as long as the driver lives and remembers it (see [`crate::UPDATES_REMEMBERED`]).
    fn status(&mut self, driver: &mut Verbs, status: &TaskStatus);

    /// These tasks must make room for a role that lacks what is guaranteed to it: each that has not ended by the deadline is killed, and if
    /// that does not help its executor with all its tasks. A framework may end them itself, when it has saved what it needs; what it
    /// launches instead it may be able to place elsewhere. The ends come as statuses, those of tasks that were killed with reason
    /// `CONTAINER_PREEMPTED`. One that may stay after all, since room came otherwise, comes as a status as well, with its state as it is.
    ///
    /// That status is told once, and asks for no acknowledgement: a scheduler that was away just then hears the task's state only if it asks
    /// ([`Verbs::reconcile`]; of the driver's own questions it hears only news). It need not ask: whoever subscribes again is warned again of
    /// all that must still make room, so a task of which it hears no new warning, and whose deadline has not passed, may stay.
    ///
    /// By what is guaranteed to its own roles, and by the label `meros.priority`, a framework says which of its tasks go last
    /// (see [`protocol::marks`]).
    fn revoked(&mut self, _driver: &mut Verbs, _revoked: &TasksRevoked) {}

    /// An operation that the framework has named in an [accept](Verbs::accept) has a new state. Each update comes once, as those of tasks.
    /// Its resources are as they were if it is not `FINISHED`: what was built upon it in the meantime is dropped as well.
    fn operation_status(&mut self, _driver: &mut Verbs, _status: &OperationStatus) {}

    /// Bytes from an executor. At most once.
    fn message(
        &mut self,
        _driver: &mut Verbs,
        _agent: &AgentId,
        _executor: &ExecutorId,
        _data: &[u8],
    ) {
    }

    /// An agent or an executor is no more. Its tasks' statuses come separately, before or after.
    fn lost(&mut self, _driver: &mut Verbs, _lost: &Lost) {}

    /// A call could not be delivered to any master, within its bounds of memory and time (S132). A launch that was certainly not
    /// heard does not come here but as the lost status of its tasks. A kill is said again when the driver next subscribes.
    fn undelivered(&mut self, _driver: &mut Verbs, _failed: &Undelivered) {}

    /// The framework cannot go on: refused, removed, or replaced by a newer scheduler. The driver stops after this.
    fn failed(&mut self, _driver: &mut Verbs, _reason: &str) {}
}
