//! Schedulers' calls and events.
//!
//! A call is refused as a whole only where Mesos refuses it as a whole. An invalid id does not stop
//! the rest of a call: its entry is [`RejectedEntries`] and answered separately. Unsupported
//! operations and tasks of an ACCEPT are left out, each with its reason. An invalid SUBSCRIBE is a
//! [`SchedulerCall::Refused`], since its answer is an event. `rejected` and `invalid_task` collect
//! these entries, `subscription` validates frameworks.

mod invalid_task;
mod rejected;
mod subscription;

use std::fmt::Display;

use protocol::message::scheduler::{
    AcceptInverseOffers, AcceptOffers, AcknowledgeOperation, AcknowledgeStatus,
    DeclineInverseOffers, DeclineOffers, FrameworkFailed, FrameworkMessage, InverseOfferRescinded,
    InverseOffersMade, KillTask, Lost, OfferRescinded, OffersMade, OperationChanged,
    ReconcileOperations, ReconcileTasks, ReviveOffers, StatusChanged, SuppressOffers, TearDown,
};
use protocol::{
    AgentId, ExecutorId, FrameworkId, FrameworkInfo, Operation, OperationId, Reason, Termination,
    Uuid, Wants,
};
use resources::Invalid;

pub use self::invalid_task::InvalidTask;
pub use self::rejected::{RejectedEntries, RejectedEntry};
pub use self::subscription::listed;
use self::subscription::{InvalidFramework, framework};
use super::ids::uuid;
use super::task::{check_executor, check_group};
use super::{At, each, some, write};
use crate::limits::within;
use crate::schema::scheduler::{
    Call, CallAccept, CallType, Event, EventError, EventFailure, EventInverseOffers, EventMessage,
    EventOffers, EventRescind, EventRescindInverseOffer, EventSubscribed, EventType, EventUpdate,
    EventUpdateOperationStatus,
};
use crate::schema::{self, Filters, MasterInfo, OfferOperation, OfferOperationType, TaskInfo};

/// A decoded call of a scheduler.
#[derive(Clone, Debug, PartialEq)]
pub enum SchedulerCall {
    /// Subscribes the framework.
    Subscribe(FrameworkInfo, Wants),
    /// Updates the framework's description.
    UpdateFramework(FrameworkInfo, Wants),
    /// Ends the framework.
    TearDown(TearDown),
    /// Accepts offers.
    Accept(DecodedAccept),
    /// Declines offers.
    Decline(DeclineOffers),
    /// Agrees to vacate agents in time.
    AcceptInverse(AcceptInverseOffers),
    /// Refuses to vacate agents.
    DeclineInverse(DeclineInverseOffers),
    /// Requests offers again.
    Revive(ReviveOffers),
    /// Stops offers.
    Suppress(SuppressOffers),
    /// Kills a task.
    Kill(KillTask),
    /// Shuts down an executor.
    Shutdown(AgentId, ExecutorId),
    /// Acknowledges a status update.
    Acknowledge(AcknowledgeStatus),
    /// Acknowledges an operation's status.
    AcknowledgeOperation(AcknowledgeOperation),
    /// Queries the states of tasks.
    Reconcile(ReconcileTasks),
    /// Queries the states of operations.
    ReconcileOperations(ReconcileOperations),
    /// Bytes for an executor.
    Message(FrameworkMessage),
    /// An unsupported call, or one without any valid entry. Masters accept it and do nothing.
    Ignored(CallType),
    /// A SUBSCRIBE of an invalid framework, with the message of the ERROR event that answers it.
    Refused(String),
}

/// The result of decoding a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The valid part.
    pub call: SchedulerCall,
    /// The entries with an invalid id.
    pub rejected: RejectedEntries,
}

/// A call that is refused as a whole, with the message of Mesos where it refuses such a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(String);

impl Malformed {
    fn new(problem: impl Display) -> Self {
        Self(format!("Failed to validate scheduler::Call: {problem}"))
    }
}

/// A decoded ACCEPT.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodedAccept {
    /// The supported part.
    pub offers: AcceptOffers,
    /// Invalid tasks, to be answered with `TASK_ERROR`.
    pub tasks: Vec<InvalidTask>,
    /// Invalid operations with an id, to be answered with `OPERATION_ERROR`.
    pub operations: Vec<(OperationId, Invalid)>,
    /// Invalid operations without an id, which cannot be answered.
    pub without_id: Option<OperationsWithoutId>,
    /// The first invalid offer id; it makes the offers invalid like an unknown id.
    pub invalid_offer: Option<String>,
}

/// Invalid operations that cannot be answered.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationsWithoutId {
    /// Their number.
    pub count: usize,
    /// The problem of the first one.
    pub first: Invalid,
}

/// The refusal of a call of an unknown framework.
pub const UNKNOWN_FRAMEWORK: &str = "Framework cannot be found";

/// Decodes a call.
pub fn to_protocol(call: &Call) -> Result<Decoded, Malformed> {
    let mut rejected = RejectedEntries::default();
    let decoded = decode_valid(call, &mut rejected)?;
    Ok(Decoded {
        call: decoded,
        rejected,
    })
}

fn decode_valid(call: &Call, rejected: &mut RejectedEntries) -> Result<SchedulerCall, Malformed> {
    let Some(kind) = call.r#type.filter(|kind| *kind != CallType::Unknown) else {
        return Err(expecting("type"));
    };
    if kind == CallType::Subscribe {
        return subscribe(call);
    }
    let framework_id = present("framework_id", call.framework_id.as_ref())?;
    let Ok(framework_id) = FrameworkId::try_from(framework_id) else {
        return Err(Malformed(UNKNOWN_FRAMEWORK.to_owned()));
    };
    Ok(match kind {
        CallType::Unknown | CallType::Subscribe => return Err(expecting("type")),
        CallType::UpdateFramework => {
            let update = present("update_framework", call.update_framework.as_deref())?;
            let info = &update.framework_info;
            let own = info.id.as_ref().filter(|id| !id.value.is_empty());
            if own.is_some_and(|own| own.value != framework_id.as_str()) {
                let problem = "'framework_id' differs from 'update_framework.framework_info.id'";
                return Err(Malformed::new(problem));
            }
            let constraints = update.offer_constraints.as_ref();
            match framework(info, &update.suppressed_roles, constraints) {
                Ok((framework, wants)) => SchedulerCall::UpdateFramework(framework, wants),
                Err(InvalidFramework::Info(problem)) => {
                    let problem = format!("Supplied FrameworkInfo is not valid: {problem}");
                    return Err(Malformed(problem));
                }
                Err(InvalidFramework::Options(problem)) => {
                    let problem =
                        format!("'UpdateFramework.offer_constraints' are not valid: {problem}");
                    return Err(Malformed(problem));
                }
            }
        }
        CallType::Teardown => SchedulerCall::TearDown(TearDown { framework_id }),
        CallType::Accept => {
            let accept = present("accept", call.accept.as_deref())?;
            SchedulerCall::Accept(accepted(framework_id, accept, rejected))
        }
        CallType::Decline => {
            let decline = present("decline", call.decline.as_ref())?;
            SchedulerCall::Decline(DeclineOffers {
                framework_id,
                offer_ids: rejected.valid("decline.offer_ids", &decline.offer_ids),
                filters: filters(decline.filters.as_ref()),
            })
        }
        CallType::Revive => {
            // Without the field it is for all roles.
            let roles = call
                .revive
                .as_ref()
                .map(|revive| revive.roles.iter().cloned());
            let roles = roles.into_iter().flatten().collect();
            SchedulerCall::Revive(ReviveOffers {
                framework_id,
                roles,
            })
        }
        CallType::Suppress => {
            let roles = call
                .suppress
                .as_ref()
                .map(|suppress| suppress.roles.iter().cloned());
            let roles = roles.into_iter().flatten().collect();
            SchedulerCall::Suppress(SuppressOffers {
                framework_id,
                roles,
            })
        }
        CallType::Kill => {
            let kill = present("kill", call.kill.as_deref())?;
            let kill_policy = some("kill_policy", kill.kill_policy.as_ref());
            let kill_policy = kill_policy.at("kill").map_err(bad)?;
            let Ok(task_id) = (&kill.task_id).try_into() else {
                let task = RejectedEntry::Task(kill.task_id.clone(), kill.agent_id.clone());
                rejected.answered.push(task);
                return Ok(SchedulerCall::Ignored(kind));
            };
            let agent_id = some("agent_id", kill.agent_id.as_ref()).at("kill");
            let Some(agent_id) = rejected.take(agent_id) else {
                return Ok(SchedulerCall::Ignored(kind));
            };
            SchedulerCall::Kill(KillTask {
                framework_id,
                task_id,
                agent_id,
                kill_policy,
            })
        }
        CallType::Shutdown => {
            let shutdown = present("shutdown", call.shutdown.as_ref())?;
            let agent = (&shutdown.agent_id).try_into().at("shutdown.agent_id");
            let executor = (&shutdown.executor_id).try_into();
            let executor = executor.at("shutdown.executor_id");
            match (rejected.take(agent), rejected.take(executor)) {
                (Some(agent), Some(executor)) => SchedulerCall::Shutdown(agent, executor),
                _ => SchedulerCall::Ignored(kind),
            }
        }
        CallType::Acknowledge => {
            let acknowledge = present("acknowledge", call.acknowledge.as_deref())?;
            let uuid = read_uuid(&acknowledge.uuid)?;
            let agent_id = (&acknowledge.agent_id).try_into();
            let agent_id = rejected.take(agent_id.at("acknowledge.agent_id"));
            let task_id = (&acknowledge.task_id).try_into();
            let task_id = rejected.take(task_id.at("acknowledge.task_id"));
            let (Some(agent_id), Some(task_id)) = (agent_id, task_id) else {
                return Ok(SchedulerCall::Ignored(kind));
            };
            SchedulerCall::Acknowledge(AcknowledgeStatus {
                framework_id,
                agent_id,
                task_id,
                uuid,
            })
        }
        CallType::AcknowledgeOperationStatus => {
            let name = "acknowledge_operation_status";
            let status = present(name, call.acknowledge_operation_status.as_deref())?;
            let uuid = read_uuid(&status.uuid)?;
            let agent_id = present("agent_id", status.agent_id.as_ref())?;
            let agent_id = rejected.take(agent_id.try_into().at("agent_id").at(name));
            let operation_id = (&status.operation_id)
                .try_into()
                .at("operation_id")
                .at(name);
            let operation_id = rejected.take(operation_id);
            let provider = status.resource_provider_id.as_ref();
            let (Some(agent_id), Some(operation_id), None) = (agent_id, operation_id, provider)
            else {
                return Ok(SchedulerCall::Ignored(kind));
            };
            SchedulerCall::AcknowledgeOperation(AcknowledgeOperation {
                framework_id,
                agent_id,
                operation_id,
                uuid,
            })
        }
        CallType::Reconcile => {
            let reconcile = present("reconcile", call.reconcile.as_ref())?;
            let mut tasks = Vec::with_capacity(reconcile.tasks.len());
            for task in &reconcile.tasks {
                match (&task.task_id).try_into() {
                    // An invalid agent id names no agent, so the task is searched on all.
                    Ok(id) => tasks.push((id, agent_of(task.agent_id.as_ref()))),
                    Err(Invalid { .. }) => {
                        let task = RejectedEntry::Task(task.task_id.clone(), task.agent_id.clone());
                        rejected.answered.push(task);
                    }
                }
            }
            if tasks.is_empty() && !reconcile.tasks.is_empty() {
                // An empty list would mean all tasks.
                return Ok(SchedulerCall::Ignored(kind));
            }
            SchedulerCall::Reconcile(ReconcileTasks {
                framework_id,
                tasks,
            })
        }
        CallType::ReconcileOperations => {
            let name = "reconcile_operations";
            let reconcile = present(name, call.reconcile_operations.as_ref())?;
            let mut operations = Vec::with_capacity(reconcile.operations.len());
            for operation in &reconcile.operations {
                let (id, agent) = (&operation.operation_id, &operation.agent_id);
                match OperationId::try_from(id) {
                    Err(_) => {
                        let operation = RejectedEntry::Operation(id.clone(), agent.clone());
                        rejected.answered.push(operation);
                    }
                    Ok(_) if operation.resource_provider_id.is_some() => {
                        let operation = RejectedEntry::Provided(id.clone(), agent.clone());
                        rejected.answered.push(operation);
                    }
                    Ok(id) => operations.push((id, agent_of(agent.as_ref()))),
                }
            }
            if operations.is_empty() && !reconcile.operations.is_empty() {
                return Ok(SchedulerCall::Ignored(kind));
            }
            SchedulerCall::ReconcileOperations(ReconcileOperations {
                framework_id,
                operations,
            })
        }
        CallType::Message => {
            let message = present("message", call.message.as_deref())?;
            let agent_id = (&message.agent_id).try_into().at("message.agent_id");
            let executor_id = (&message.executor_id).try_into();
            let executor_id = rejected.take(executor_id.at("message.executor_id"));
            let (Some(agent_id), Some(executor_id)) = (rejected.take(agent_id), executor_id) else {
                return Ok(SchedulerCall::Ignored(kind));
            };
            SchedulerCall::Message(FrameworkMessage {
                framework_id,
                agent_id,
                executor_id,
                data: message.data.to_vec(),
            })
        }
        CallType::AcceptInverseOffers => {
            let name = "accept_inverse_offers";
            let accept = present(name, call.accept_inverse_offers.as_ref())?;
            let field = "accept_inverse_offers.inverse_offer_ids";
            SchedulerCall::AcceptInverse(AcceptInverseOffers {
                framework_id,
                inverse_offer_ids: rejected.valid(field, &accept.inverse_offer_ids),
                filters: filters(accept.filters.as_ref()),
            })
        }
        CallType::DeclineInverseOffers => {
            let name = "decline_inverse_offers";
            let decline = present(name, call.decline_inverse_offers.as_ref())?;
            let field = "decline_inverse_offers.inverse_offer_ids";
            SchedulerCall::DeclineInverse(DeclineInverseOffers {
                framework_id,
                inverse_offer_ids: rejected.valid(field, &decline.inverse_offer_ids),
                filters: filters(decline.filters.as_ref()),
            })
        }
        CallType::Request => {
            present("request", call.request.as_ref())?;
            SchedulerCall::Ignored(kind)
        }
    })
}

fn expecting(field: &str) -> Malformed {
    Malformed::new(format_args!("Expecting '{field}' to be present"))
}

fn present<'a, A>(field: &str, value: Option<&'a A>) -> Result<&'a A, Malformed> {
    value.ok_or_else(|| expecting(field))
}

fn bad(invalid: Invalid) -> Malformed {
    Malformed::new(invalid)
}

fn read_uuid(bytes: &[u8]) -> Result<Uuid, Malformed> {
    uuid(bytes).map_err(|_| Malformed::new("Not a valid UUID"))
}

fn agent_of(id: Option<&schema::AgentID>) -> Option<AgentId> {
    id.and_then(|id| id.try_into().ok())
}

fn subscribe(call: &Call) -> Result<SchedulerCall, Malformed> {
    let subscribe = present("subscribe", call.subscribe.as_deref())?;
    let id = call.framework_id.as_ref().map_or("", |id| &id.value);
    let own = subscribe.framework_info.id.as_ref();
    if id != own.map_or("", |id| &id.value) {
        let problem = "'framework_id' differs from 'subscribe.framework_info.id'";
        return Err(Malformed::new(problem));
    }
    let framework = framework(
        &subscribe.framework_info,
        &subscribe.suppressed_roles,
        subscribe.offer_constraints.as_ref(),
    );
    Ok(match framework {
        Ok((framework, wants)) => SchedulerCall::Subscribe(framework, wants),
        Err(invalid) => SchedulerCall::Refused(invalid.into_message()),
    })
}

fn filters(filters: Option<&Filters>) -> protocol::Filters {
    filters.map(Into::into).unwrap_or_default()
}

fn accepted(
    framework_id: FrameworkId,
    call: &CallAccept,
    rejected: &mut RejectedEntries,
) -> DecodedAccept {
    let mut offer_ids = Vec::with_capacity(call.offer_ids.len());
    let mut invalid_offer = None;
    for id in &call.offer_ids {
        match id.try_into() {
            Ok(id) => offer_ids.push(id),
            Err(Invalid { value, .. }) => {
                invalid_offer.get_or_insert(value);
            }
        }
    }
    let mut accepted = DecodedAccept {
        offers: AcceptOffers {
            framework_id,
            offer_ids,
            operations: Vec::new(),
            filters: filters(call.filters.as_ref()),
        },
        tasks: Vec::new(),
        operations: Vec::new(),
        without_id: None,
        invalid_offer,
    };
    for (position, operation) in call.operations.iter().enumerate() {
        accepted.add(operation, &format!("operations[{position}]"), rejected);
    }
    accepted
}

impl DecodedAccept {
    /// Adds the operation at this position, or its problem.
    fn add(&mut self, operation: &OfferOperation, position: &str, rejected: &mut RejectedEntries) {
        let kind = operation.r#type.unwrap_or_default();
        let bad = match self.convert(operation) {
            Ok(operation) => return self.offers.operations.push(operation),
            Err(bad) => within(bad, position),
        };
        let reason = match kind {
            OfferOperationType::LaunchGroup => Reason::TaskGroupInvalid,
            _ => Reason::TaskInvalid,
        };
        match (tasks_of(operation), &operation.id) {
            (Some((list, tasks)), None) if kind == OfferOperationType::Launch => {
                let tasks = self.valid_tasks(tasks, &format!("{position}.{list}"), rejected);
                return self.offers.operations.push(Operation::Launch { tasks });
            }
            // A launch has no status; if it requests one, none of its tasks is launched.
            (Some((_, tasks)), id) => {
                let message = match id {
                    Some(_) => format!("The `id` field cannot be set on {kind} operations"),
                    None => bad.to_string(),
                };
                for info in tasks {
                    self.reject_task(info, reason, &message, rejected);
                }
            }
            (None, None) => {
                let first = || bad.clone();
                let without_id = self.without_id.get_or_insert_with(|| OperationsWithoutId {
                    count: 0,
                    first: first(),
                });
                without_id.count += 1;
            }
            (None, Some(_)) => {}
        }
        match operation.id.as_ref().map(|id| (id, id.try_into())) {
            None => {}
            Some((_, Ok(id))) => self.operations.push((id, bad)),
            Some((id, Err(Invalid { .. }))) => {
                rejected
                    .answered
                    .push(RejectedEntry::Operation(id.clone(), None));
            }
        }
    }

    fn convert(&self, operation: &OfferOperation) -> Result<Operation, Invalid> {
        if let Some((list, tasks)) = tasks_of(operation) {
            each(list, tasks, |task| self.has_its_own_executor(task))?;
        }
        if let Some(group) = &operation.launch_group {
            check_group(group, &self.offers.framework_id)?;
        }
        Operation::try_from(operation)
    }

    fn has_its_own_executor(&self, task: &TaskInfo) -> Result<(), Invalid> {
        check_executor(task, &self.offers.framework_id)
    }

    /// The valid tasks of this list; records the others.
    fn valid_tasks(
        &mut self,
        infos: &[TaskInfo],
        list: &str,
        rejected: &mut RejectedEntries,
    ) -> Vec<protocol::TaskInfo> {
        let mut tasks = Vec::new();
        for (position, info) in infos.iter().enumerate() {
            let own = self.has_its_own_executor(info);
            let converted = own.and_then(|()| protocol::TaskInfo::try_from(info));
            match converted {
                Ok(task) => tasks.push(task),
                Err(mut bad) => {
                    // Messages of Mesos have no field and stay to the word.
                    if !bad.field.is_empty() {
                        bad = within(bad, &format!("{list}[{position}]"));
                    }
                    self.reject_task(info, Reason::TaskInvalid, &bad.to_string(), rejected);
                }
            }
        }
        tasks
    }

    /// Records a task that is not launched, with the reason.
    fn reject_task(
        &mut self,
        info: &TaskInfo,
        reason: Reason,
        message: &str,
        rejected: &mut RejectedEntries,
    ) {
        match InvalidTask::of(info, reason, message) {
            Some(task) => self.tasks.push(task),
            None => {
                let task = RejectedEntry::Task(info.task_id.clone(), Some(info.agent_id.clone()));
                rejected.answered.push(task);
            }
        }
    }
}

/// The tasks that an operation launches, and their field; none if it launches none.
fn tasks_of(operation: &OfferOperation) -> Option<(&'static str, &[TaskInfo])> {
    match operation.r#type? {
        OfferOperationType::Launch => {
            let launch = operation.launch.as_ref()?;
            Some(("launch.task_infos", &launch.task_infos))
        }
        OfferOperationType::LaunchGroup => {
            let group = operation.launch_group.as_ref()?;
            Some(("launch_group.task_group.tasks", &group.task_group.tasks))
        }
        _ => None,
    }
}

impl Event {
    /// The framework is subscribed.
    pub fn subscribed(id: &FrameworkId, heartbeat_secs: f64, master: MasterInfo) -> Self {
        Self {
            r#type: Some(EventType::Subscribed),
            subscribed: Some(EventSubscribed {
                framework_id: id.into(),
                heartbeat_interval_seconds: Some(heartbeat_secs),
                master_info: Some(Box::new(master)),
            }),
            ..Self::default()
        }
    }

    /// Keeps the stream alive.
    pub fn heartbeat() -> Self {
        Self {
            r#type: Some(EventType::Heartbeat),
            ..Self::default()
        }
    }

    /// The scheduler must stop.
    pub fn error(message: impl Into<String>) -> Self {
        Self {
            r#type: Some(EventType::Error),
            error: Some(EventError {
                message: message.into(),
            }),
            ..Self::default()
        }
    }
}

impl From<&OffersMade> for Event {
    fn from(made: &OffersMade) -> Self {
        Self {
            r#type: Some(EventType::Offers),
            offers: Some(EventOffers {
                offers: write(&made.offers),
            }),
            ..Self::default()
        }
    }
}

impl From<&OfferRescinded> for Event {
    fn from(rescinded: &OfferRescinded) -> Self {
        Self {
            r#type: Some(EventType::Rescind),
            rescind: Some(EventRescind {
                offer_id: (&rescinded.offer_id).into(),
            }),
            ..Self::default()
        }
    }
}

impl From<&InverseOffersMade> for Event {
    fn from(made: &InverseOffersMade) -> Self {
        Self {
            r#type: Some(EventType::InverseOffers),
            inverse_offers: Some(EventInverseOffers {
                inverse_offers: write(&made.inverse_offers),
            }),
            ..Self::default()
        }
    }
}

impl From<&InverseOfferRescinded> for Event {
    fn from(rescinded: &InverseOfferRescinded) -> Self {
        Self {
            r#type: Some(EventType::RescindInverseOffer),
            rescind_inverse_offer: Some(EventRescindInverseOffer {
                inverse_offer_id: (&rescinded.inverse_offer_id).into(),
            }),
            ..Self::default()
        }
    }
}

impl From<&StatusChanged> for Event {
    fn from(changed: &StatusChanged) -> Self {
        Self {
            r#type: Some(EventType::Update),
            update: Some(Box::new(EventUpdate {
                status: (&changed.status).into(),
            })),
            ..Self::default()
        }
    }
}

impl From<&OperationChanged> for Event {
    fn from(changed: &OperationChanged) -> Self {
        Self {
            r#type: Some(EventType::UpdateOperationStatus),
            update_operation_status: Some(Box::new(EventUpdateOperationStatus {
                status: (&changed.status).into(),
            })),
            ..Self::default()
        }
    }
}

impl From<&FrameworkMessage> for Event {
    fn from(message: &FrameworkMessage) -> Self {
        Self {
            r#type: Some(EventType::Message),
            message: Some(Box::new(EventMessage {
                agent_id: (&message.agent_id).into(),
                executor_id: (&message.executor_id).into(),
                data: message.data.clone().into(),
            })),
            ..Self::default()
        }
    }
}

impl From<&Lost> for Event {
    fn from(lost: &Lost) -> Self {
        Self {
            r#type: Some(EventType::Failure),
            failure: Some(Box::new(EventFailure {
                agent_id: Some((&lost.agent_id).into()),
                executor_id: lost.executor_id.as_ref().map(Into::into),
                status: lost.termination.map(wait_status),
            })),
            ..Self::default()
        }
    }
}

impl From<&FrameworkFailed> for Event {
    fn from(failed: &FrameworkFailed) -> Self {
        Self::error(failed.message.as_str())
    }
}

/// The exit status of a process, as from `wait`.
fn wait_status(termination: Termination) -> i32 {
    match termination {
        Termination::Exited(code) => (code & 0xff) << 8,
        Termination::Signaled(signal) => signal & 0x7f,
    }
}
