//! Effects: the actions that a decision requests, as data. The actor carries them out in order.
//!
//! Pure. Decisions append to [`Effects`]; they never send, and never learn whether a message
//! arrived.

use std::time::Duration;

use module_api::allocator::{
    AgentActivity, AgentAdded, AgentOversubscribed, AgentRemoved, Converted, FrameworkActivity,
    FrameworkAdded, FrameworkRemoved, InverseAnswered, OfferBudgetSpent, QuotasChanged, Recovered,
    Revived, Suppressed, TasksListed, UnavailabilityChanged, WeightsChanged,
};
use protocol::message::operation::ApplyOperation;
use protocol::message::registration::{DisownTasks, ShutDownAgent};
use protocol::message::scheduler::{
    AcknowledgeOperation, AcknowledgeStatus, FrameworkFailed, FrameworkMessage,
    InverseOfferRescinded, InverseOffersMade, KillTask, Lost, OfferRescinded, OffersMade,
    OperationChanged, StatusChanged, TasksRevoked,
};
use protocol::message::standby::SchedulerElected;
use protocol::message::task::{
    DrainTasks, EndExecutor, FrameworkChanged, RunTasks, ShutDownFramework,
};
use protocol::{AgentId, FrameworkId, OfferId};
use runtime::{Pid, Timestamp};

use crate::tasks::revocation::TaskKey;

/// The requested actions, in order.
pub type Effects = Vec<Effect>;

/// One action.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Send to an agent.
    ToAgent(Pid, ToAgent),
    /// Send to a scheduler.
    ToScheduler(Pid, ToScheduler),
    /// Send to the allocator.
    ToAllocator(ToAllocator),
    /// Watch for the end of this actor.
    Link(Pid),
    /// Stop watching it.
    Unlink(Pid),
    /// Start to ping this agent in this session.
    Watch(AgentId, u64),
    /// Handle this event after this time.
    Later(Duration, Due),
    /// The framework's failover timeout is over: remove it, through the registry.
    RemoveFramework(FrameworkId),
    /// The framework's failover deadline has changed: record it in the registry.
    RecordDeadline(FrameworkId),
    /// Record the operation with this serial in the registry, then send it to its connected agent.
    Record(Pid, AgentId, u64),
    /// Make the registry forget the operation with this serial: it is over.
    Forget(AgentId, u64),
    /// Discard the messages queued for this agent.
    Void(Pid),
    /// The framework has standbys and no leading scheduler: appoint the first one, through the
    /// registry.
    Choose(FrameworkId),
}

/// A message to an agent.
#[derive(Clone, Debug, PartialEq)]
pub enum ToAgent {
    /// Run these tasks.
    Run(RunTasks),
    /// Kill this task.
    Kill(KillTask),
    /// Acknowledges a status update.
    Acknowledge(AcknowledgeStatus),
    /// Apply this operation. Carries the agent's id, because an operation that cannot be sent must
    /// be undone.
    Apply(AgentId, Box<ApplyOperation>),
    /// Acknowledges an operation's status update.
    AcknowledgeOperation(AcknowledgeOperation),
    /// From a scheduler to an executor.
    Message(FrameworkMessage),
    /// End this executor.
    EndExecutor(EndExecutor),
    /// End all tasks.
    Drain(DrainTasks),
    /// The framework has been removed.
    ShutDownFramework(ShutDownFramework),
    /// The framework's description has changed.
    FrameworkChanged(Box<FrameworkChanged>),
    /// The master does not know these tasks.
    Disown(DisownTasks),
    /// Stop the agent.
    ShutDown(ShutDownAgent),
    /// Register again: the master considers the agent disconnected.
    RegisterAgain,
}

/// A message to a scheduler.
#[derive(Clone, Debug, PartialEq)]
pub enum ToScheduler {
    /// New offers.
    Offers(OffersMade),
    /// An offer was rescinded.
    Rescind(OfferRescinded),
    /// Requests to release resources.
    InverseOffers(InverseOffersMade),
    /// An inverse offer was rescinded.
    RescindInverse(InverseOfferRescinded),
    /// A task has a new state.
    Status(Box<StatusChanged>),
    /// Some tasks will be revoked.
    Revoked(TasksRevoked),
    /// An operation has a new state.
    Operation(Box<OperationChanged>),
    /// From an executor.
    Message(FrameworkMessage),
    /// An agent or executor is lost.
    Lost(Lost),
    /// The framework has failed; stop.
    Failed(FrameworkFailed),
    /// This scheduler leads now.
    Lead(SchedulerElected),
}

/// A fact for the allocator.
#[derive(Clone, Debug, PartialEq)]
pub enum ToAllocator {
    /// An agent may be offered.
    AgentAdded(Box<AgentAdded>),
    /// An agent was removed.
    AgentRemoved(AgentRemoved),
    /// An agent is activated or deactivated.
    AgentActivity(AgentActivity),
    /// An agent's planned maintenance has changed.
    UnavailabilityChanged(UnavailabilityChanged),
    /// An inverse offer has ended.
    InverseAnswered(InverseAnswered),
    /// An agent's revocable resources have changed.
    AgentOversubscribed(AgentOversubscribed),
    /// A framework may get offers.
    FrameworkAdded(Box<FrameworkAdded>),
    /// A framework was removed.
    FrameworkRemoved(FrameworkRemoved),
    /// A framework is activated or deactivated.
    FrameworkActivity(FrameworkActivity),
    /// A framework is at its offer budget, or below it again.
    OfferBudgetSpent(OfferBudgetSpent),
    /// Resources are free again.
    Recovered(Recovered),
    /// Resources were converted.
    Converted(Converted),
    /// No more offers for these roles.
    Suppressed(Suppressed),
    /// Offers again for these roles.
    Revived(Revived),
    /// Roles have new quotas.
    QuotasChanged(QuotasChanged),
    /// Roles have new weights.
    WeightsChanged(WeightsChanged),
    /// The running tasks that the allocator asked for.
    TasksListed(TasksListed),
}

/// A delayed event. Each names a session or an id, so that a late one has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// The oldest offers may have expired.
    OffersToExpire,
    /// These inverse offers have expired.
    InverseOffersExpired(Vec<OfferId>),
    /// This framework has been without a scheduler for its failover timeout, in this session.
    FailoverExpired(FrameworkId, u64),
    /// The schedulers that led under the previous master have had their time to return.
    LeadersAwaited,
    /// The agents of the registry have had their time to return.
    RecoveryOver,
    /// The deadline, given here, of these revoked tasks has passed.
    Revoked(Vec<TaskKey>, Timestamp),
    /// A task may have run longer than the bound of this number.
    Overdue(u64),
}

/// Shorthands to append effects.
pub(crate) trait SendEffects {
    /// Sends to an agent.
    fn agent(&mut self, pid: &Pid, message: ToAgent);
    /// Sends to a scheduler, if there is one.
    fn scheduler(&mut self, pid: Option<&Pid>, message: ToScheduler);
    /// Sends to the allocator.
    fn allocator(&mut self, fact: ToAllocator);
}

impl SendEffects for Effects {
    fn agent(&mut self, pid: &Pid, message: ToAgent) {
        self.push(Effect::ToAgent(pid.clone(), message));
    }

    fn scheduler(&mut self, pid: Option<&Pid>, message: ToScheduler) {
        if let Some(pid) = pid {
            self.push(Effect::ToScheduler(pid.clone(), message));
        }
    }

    fn allocator(&mut self, fact: ToAllocator) {
        self.push(Effect::ToAllocator(fact));
    }
}
