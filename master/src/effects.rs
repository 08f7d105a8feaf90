//! Effects: what a decision wants done, as data, for the actor to carry out in order.
//!
//! Pure. Decisions append to [`Effects`]; they never send, and never learn whether a message arrived.

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
use protocol::message::standby::YouLead;
use protocol::message::task::{
    DrainTasks, EndExecutor, FrameworkChanged, RunTasks, ShutDownFramework,
};
use protocol::{AgentId, FrameworkId, OfferId};
use runtime::{Pid, Timestamp};

use crate::revocation::TaskKey;

/// What decisions want done, in this order.
pub type Effects = Vec<Effect>;

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Tell an agent.
    ToAgent(Pid, ToAgent),
    /// Tell a scheduler.
    ToScheduler(Pid, ToScheduler),
    /// Tell the allocator.
    ToAllocator(ToAllocator),
    /// Hear when this actor ends.
    Link(Pid),
    /// Hear no more of it.
    Unlink(Pid),
    /// Begin to ping this agent, in this session of it.
    Watch(AgentId, u64),
    /// Come back to this after so long.
    Later(Duration, Due),
    /// The framework's time is over: remove it, through the registry.
    RemoveFramework(FrameworkId),
    /// The framework's failover deadline has changed: tell the registry.
    RecordDeadline(FrameworkId),
    /// This agent, which is there, is to do the operation of that serial: tell the registry, and then the agent.
    Record(Pid, AgentId, u64),
    /// The operation of that serial on an agent is over: tell the registry.
    Forget(AgentId, u64),
    /// What waits to be told to this agent is void.
    Void(Pid),
    /// The framework has standbys and nobody who leads: have the first one lead, through the registry.
    Choose(FrameworkId),
}

/// What an agent is told.
#[derive(Clone, Debug, PartialEq)]
pub enum ToAgent {
    /// Run these.
    Run(RunTasks),
    /// End this.
    Kill(KillTask),
    /// This update has been taken.
    Acknowledge(AcknowledgeStatus),
    /// Do this with what it has; named, because one that does not go out must be undone.
    Apply(AgentId, Box<ApplyOperation>),
    /// This update of an operation has been taken.
    AcknowledgeOperation(AcknowledgeOperation),
    /// From a scheduler to an executor.
    Message(FrameworkMessage),
    /// This executor should end.
    EndExecutor(EndExecutor),
    /// Your tasks should end.
    Drain(DrainTasks),
    /// The framework is no more.
    ShutDownFramework(ShutDownFramework),
    /// The framework is something else.
    FrameworkChanged(Box<FrameworkChanged>),
    /// These are not known here.
    Disown(DisownTasks),
    /// Stop.
    ShutDown(ShutDownAgent),
    /// The master does not hold it for connected: register again.
    RegisterAgain,
}

/// What a scheduler is told.
#[derive(Clone, Debug, PartialEq)]
pub enum ToScheduler {
    /// Choose.
    Offers(OffersMade),
    /// Choose no more.
    Rescind(OfferRescinded),
    /// Say whether you will leave.
    InverseOffers(InverseOffersMade),
    /// Never mind.
    RescindInverse(InverseOfferRescinded),
    /// A task has a new state.
    Status(Box<StatusChanged>),
    /// Some tasks must make room.
    Revoked(TasksRevoked),
    /// An operation has a new state.
    Operation(Box<OperationChanged>),
    /// From an executor.
    Message(FrameworkMessage),
    /// An agent or executor is no more.
    Lost(Lost),
    /// Stop.
    Failed(FrameworkFailed),
    /// It is your turn.
    Lead(YouLead),
}

/// What the allocator is told.
#[derive(Clone, Debug, PartialEq)]
pub enum ToAllocator {
    /// An agent may be offered.
    AgentAdded(Box<AgentAdded>),
    /// An agent is no more.
    AgentRemoved(AgentRemoved),
    /// An agent is to be offered, or not.
    AgentActivity(AgentActivity),
    /// An agent will be away, or not.
    UnavailabilityChanged(UnavailabilityChanged),
    /// An inverse offer is not out any more.
    InverseAnswered(InverseAnswered),
    /// What an agent lends has changed.
    AgentOversubscribed(AgentOversubscribed),
    /// A framework may be offered to.
    FrameworkAdded(Box<FrameworkAdded>),
    /// A framework is no more.
    FrameworkRemoved(FrameworkRemoved),
    /// A framework is to be offered to, or not.
    FrameworkActivity(FrameworkActivity),
    /// A framework holds as many offers as it may, or no longer.
    OfferBudgetSpent(OfferBudgetSpent),
    /// Something is free again.
    Recovered(Recovered),
    /// Something has become something else.
    Converted(Converted),
    /// No more offers for these roles.
    Suppressed(Suppressed),
    /// Offers again for these roles.
    Revived(Revived),
    /// Roles have other quotas.
    QuotasChanged(QuotasChanged),
    /// Roles have other weights.
    WeightsChanged(WeightsChanged),
    /// This runs where you have asked.
    TasksListed(TasksListed),
}

/// What is to be looked at again later. Each names a session or an id, so that one that comes too late does nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// The oldest offers may have been unanswered for too long.
    OffersToExpire,
    /// These inverse offers have been unanswered for too long.
    InverseOffersExpired(Vec<OfferId>),
    /// This framework has been without a scheduler for too long, in this session of it.
    FailoverExpired(FrameworkId, u64),
    /// The schedulers that led under the master before have had their time to come back.
    LeadersAwaited,
    /// The agents that the registry knew have had their time to come back.
    RecoveryOver,
    /// These tasks must go, and have had their time, which ended then.
    Revoked(Vec<TaskKey>, Timestamp),
    /// A task may have run for too long, by the bound of that number.
    Overdue(u64),
}

/// Shorthands that read well where effects are made.
pub(crate) trait Tell {
    /// Tell an agent.
    fn agent(&mut self, pid: &Pid, message: ToAgent);
    /// Tell a scheduler, if there is one.
    fn scheduler(&mut self, pid: Option<&Pid>, message: ToScheduler);
    /// Tell the allocator.
    fn allocator(&mut self, fact: ToAllocator);
}

impl Tell for Effects {
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
