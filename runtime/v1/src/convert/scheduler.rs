//! Whole calls of schedulers, and the events that they hear.
//!
//! A call is refused as a whole only where Mesos refuses it as a whole. One invalid id never stops the rest of a call: the entry is
//! [`Rejected`] and gets an answer of its own. Of an ACCEPT those operations and tasks are left out that have no meaning here, each with its
//! reason (SPEC 2.2). An invalid SUBSCRIBE is a [`Said::Refused`], since its answer is an event.

mod meaningless;
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

pub use self::meaningless::Meaningless;
pub use self::rejected::{Rejected, Subject};
use self::subscription::{InvalidFramework, framework};
pub use self::subscription::{foreign_constraint, foreign_suppressed, listed};
use super::ids::uuid;
use super::task::check_executor;
use super::{At, each, some, write};
use crate::limits::within;
use crate::schema::scheduler::{
    Call, CallAccept, CallType, Event, EventError, EventFailure, EventInverseOffers, EventMessage,
    EventOffers, EventRescind, EventRescindInverseOffer, EventSubscribed, EventType, EventUpdate,
    EventUpdateOperationStatus,
};
use crate::schema::{self, Filters, MasterInfo, OfferOperation, OfferOperationType, TaskInfo};

/// What a scheduler says, in the words of the protocol.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// It would like offers.
    Subscribe(FrameworkInfo, Wants),
    /// It is something else from now on.
    UpdateFramework(FrameworkInfo, Wants),
    /// It leaves for good.
    TearDown(TearDown),
    /// It takes offers.
    Accept(Accepted),
    /// It does not want offers.
    Decline(DeclineOffers),
    /// It will have left agents by the time that they are away.
    AcceptInverse(AcceptInverseOffers),
    /// It cannot.
    DeclineInverse(DeclineInverseOffers),
    /// It wants offers again.
    Revive(ReviveOffers),
    /// It wants no more offers.
    Suppress(SuppressOffers),
    /// A task should end.
    Kill(KillTask),
    /// An executor should end.
    Shutdown(AgentId, ExecutorId),
    /// It has a status in hand.
    Acknowledge(AcknowledgeStatus),
    /// It has an operation's status in hand.
    AcknowledgeOperation(AcknowledgeOperation),
    /// How are these tasks?
    Reconcile(ReconcileTasks),
    /// How are these operations?
    ReconcileOperations(ReconcileOperations),
    /// Bytes for an executor.
    Message(FrameworkMessage),
    /// Something that has no words here, or nothing of which is valid; its name. A master may take it and do nothing.
    Unheard(CallType),
    /// A SUBSCRIBE of an invalid framework, with the message of the ERROR event that answers it.
    Refused(String),
}

/// A call as it was decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The valid part.
    pub said: Said,
    /// The entries that have an invalid id.
    pub rejected: Rejected,
}

/// A call that is refused as a whole, in the words of Mesos where it refuses such a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(String);

impl Malformed {
    fn new(problem: impl Display) -> Self {
        Self(format!("Failed to validate scheduler::Call: {problem}"))
    }
}

/// An ACCEPT, and what was left out of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Accepted {
    /// What is left.
    pub offers: AcceptOffers,
    /// Tasks that have no meaning here: their framework is to be told `TASK_ERROR`.
    pub tasks: Vec<Meaningless>,
    /// Operations that have no meaning here, those with an id: their framework is to be told `OPERATION_ERROR`.
    pub operations: Vec<(OperationId, Invalid)>,
    /// Operations that have no meaning here and no id by which somebody could be told of them.
    pub nameless: Option<Nameless>,
    /// The first offer id that is no id, which makes the offers invalid as an unknown one does.
    pub invalid_offer: Option<String>,
}

/// Operations of which nobody can be told.
#[derive(Clone, Debug, PartialEq)]
pub struct Nameless {
    /// How many.
    pub count: usize,
    /// What is wrong with the first of them.
    pub first: Invalid,
}

/// The refusal of a call of a framework that the master does not know.
pub const UNKNOWN_FRAMEWORK: &str = "Framework cannot be found";

/// What this call says.
pub fn said(call: &Call) -> Result<Decoded, Malformed> {
    let mut rejected = Rejected::default();
    let said = decode(call, &mut rejected)?;
    Ok(Decoded { said, rejected })
}

fn decode(call: &Call, rejected: &mut Rejected) -> Result<Said, Malformed> {
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
                Ok((framework, wants)) => Said::UpdateFramework(framework, wants),
                Err(InvalidFramework::Info(problem)) => {
                    let problem = format!("Supplied FrameworkInfo is not valid: {problem}");
                    return Err(Malformed(problem));
                }
                Err(InvalidFramework::Options(problem)) => {
                    let problem = format!("'UpdateFramework' call is not valid: {problem}");
                    return Err(Malformed(problem));
                }
            }
        }
        CallType::Teardown => Said::TearDown(TearDown { framework_id }),
        CallType::Accept => {
            let accept = present("accept", call.accept.as_deref())?;
            Said::Accept(accepted(framework_id, accept, rejected))
        }
        CallType::Decline => {
            let decline = present("decline", call.decline.as_ref())?;
            Said::Decline(DeclineOffers {
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
            Said::Revive(ReviveOffers {
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
            Said::Suppress(SuppressOffers {
                framework_id,
                roles,
            })
        }
        CallType::Kill => {
            let kill = present("kill", call.kill.as_deref())?;
            let kill_policy = some("kill_policy", kill.kill_policy.as_ref());
            let kill_policy = kill_policy.at("kill").map_err(bad)?;
            let Ok(task_id) = (&kill.task_id).try_into() else {
                let task = Subject::Task(kill.task_id.clone(), kill.agent_id.clone());
                rejected.answered.push(task);
                return Ok(Said::Unheard(kind));
            };
            let agent_id = some("agent_id", kill.agent_id.as_ref()).at("kill");
            let Some(agent_id) = rejected.take(agent_id) else {
                return Ok(Said::Unheard(kind));
            };
            Said::Kill(KillTask {
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
                (Some(agent), Some(executor)) => Said::Shutdown(agent, executor),
                _ => Said::Unheard(kind),
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
                return Ok(Said::Unheard(kind));
            };
            Said::Acknowledge(AcknowledgeStatus {
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
                return Ok(Said::Unheard(kind));
            };
            Said::AcknowledgeOperation(AcknowledgeOperation {
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
                    // An invalid agent id names no agent, so the task is looked for everywhere.
                    Ok(id) => tasks.push((id, agent_of(task.agent_id.as_ref()))),
                    Err(Invalid { .. }) => {
                        let task = Subject::Task(task.task_id.clone(), task.agent_id.clone());
                        rejected.answered.push(task);
                    }
                }
            }
            if tasks.is_empty() && !reconcile.tasks.is_empty() {
                // An empty list would be about all tasks.
                return Ok(Said::Unheard(kind));
            }
            Said::Reconcile(ReconcileTasks {
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
                        let operation = Subject::Operation(id.clone(), agent.clone());
                        rejected.answered.push(operation);
                    }
                    Ok(_) if operation.resource_provider_id.is_some() => {
                        let operation = Subject::Provided(id.clone(), agent.clone());
                        rejected.answered.push(operation);
                    }
                    Ok(id) => operations.push((id, agent_of(agent.as_ref()))),
                }
            }
            if operations.is_empty() && !reconcile.operations.is_empty() {
                return Ok(Said::Unheard(kind));
            }
            Said::ReconcileOperations(ReconcileOperations {
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
                return Ok(Said::Unheard(kind));
            };
            Said::Message(FrameworkMessage {
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
            Said::AcceptInverse(AcceptInverseOffers {
                framework_id,
                inverse_offer_ids: rejected.valid(field, &accept.inverse_offer_ids),
                filters: filters(accept.filters.as_ref()),
            })
        }
        CallType::DeclineInverseOffers => {
            let name = "decline_inverse_offers";
            let decline = present(name, call.decline_inverse_offers.as_ref())?;
            let field = "decline_inverse_offers.inverse_offer_ids";
            Said::DeclineInverse(DeclineInverseOffers {
                framework_id,
                inverse_offer_ids: rejected.valid(field, &decline.inverse_offer_ids),
                filters: filters(decline.filters.as_ref()),
            })
        }
        CallType::Request => {
            present("request", call.request.as_ref())?;
            Said::Unheard(kind)
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

fn subscribe(call: &Call) -> Result<Said, Malformed> {
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
        Ok((framework, wants)) => Said::Subscribe(framework, wants),
        Err(invalid) => Said::Refused(invalid.into_message()),
    })
}

fn filters(filters: Option<&Filters>) -> protocol::Filters {
    filters.map(Into::into).unwrap_or_default()
}

fn accepted(framework_id: FrameworkId, call: &CallAccept, rejected: &mut Rejected) -> Accepted {
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
    let mut accepted = Accepted {
        offers: AcceptOffers {
            framework_id,
            offer_ids,
            operations: Vec::new(),
            filters: filters(call.filters.as_ref()),
        },
        tasks: Vec::new(),
        operations: Vec::new(),
        nameless: None,
        invalid_offer,
    };
    for (place, operation) in call.operations.iter().enumerate() {
        accepted.add(operation, &format!("operations[{place}]"), rejected);
    }
    accepted
}

impl Accepted {
    /// Adds the operation of this place, or what is wrong with it.
    fn add(&mut self, operation: &OfferOperation, place: &str, rejected: &mut Rejected) {
        let kind = operation.r#type.unwrap_or_default();
        let meant = match kind {
            // Whatever else it says.
            OfferOperationType::LaunchGroup if operation.launch_group.is_some() => {
                let expected = "LAUNCH, with the tasks one by one: there is no default executor yet to run them as a group";
                Err(Invalid::new("type", kind, expected))
            }
            _ => self.meant(operation),
        };
        let bad = match meant {
            Ok(operation) => return self.offers.operations.push(operation),
            Err(bad) => within(bad, place),
        };
        let reason = match kind {
            OfferOperationType::LaunchGroup => Reason::TaskGroupInvalid,
            _ => Reason::TaskInvalid,
        };
        match (tasks_of(operation), &operation.id) {
            (Some((list, tasks)), None) if kind == OfferOperationType::Launch => {
                let tasks = self.sift(tasks, &format!("{place}.{list}"), rejected);
                return self.offers.operations.push(Operation::Launch { tasks });
            }
            // A launch has no status; of one that asks for it nothing is started.
            (Some((_, tasks)), id) => {
                let message = match id {
                    Some(_) => format!("The `id` field cannot be set on {kind} operations"),
                    None => bad.to_string(),
                };
                for info in tasks {
                    self.leave_out(info, reason, &message, rejected);
                }
            }
            (None, None) => {
                let first = || bad.clone();
                let nameless = self.nameless.get_or_insert_with(|| Nameless {
                    count: 0,
                    first: first(),
                });
                nameless.count += 1;
            }
            (None, Some(_)) => {}
        }
        match operation.id.as_ref().map(|id| (id, id.try_into())) {
            None => {}
            Some((_, Ok(id))) => self.operations.push((id, bad)),
            Some((id, Err(Invalid { .. }))) => {
                rejected.answered.push(Subject::Operation(id.clone(), None));
            }
        }
    }

    fn meant(&self, operation: &OfferOperation) -> Result<Operation, Invalid> {
        if let Some((list, tasks)) = tasks_of(operation) {
            each(list, tasks, |task| self.has_its_own_executor(task))?;
        }
        Operation::try_from(operation)
    }

    fn has_its_own_executor(&self, task: &TaskInfo) -> Result<(), Invalid> {
        check_executor(task, &self.offers.framework_id)
    }

    /// Those of the tasks in this list that have a meaning here; keeps the others.
    fn sift(
        &mut self,
        infos: &[TaskInfo],
        list: &str,
        rejected: &mut Rejected,
    ) -> Vec<protocol::TaskInfo> {
        let mut tasks = Vec::new();
        for (place, info) in infos.iter().enumerate() {
            let own = self.has_its_own_executor(info);
            let meant = own.and_then(|()| protocol::TaskInfo::try_from(info));
            match meant.at(&format!("{list}[{place}]")) {
                Ok(task) => tasks.push(task),
                Err(bad) => {
                    self.leave_out(info, Reason::TaskInvalid, &bad.to_string(), rejected);
                }
            }
        }
        tasks
    }

    /// Keeps a task that is not launched, with the reason.
    fn leave_out(
        &mut self,
        info: &TaskInfo,
        reason: Reason,
        message: &str,
        rejected: &mut Rejected,
    ) {
        match Meaningless::of(info, reason, message) {
            Some(task) => self.tasks.push(task),
            None => {
                let task = Subject::Task(info.task_id.clone(), Some(info.agent_id.clone()));
                rejected.answered.push(task);
            }
        }
    }
}

/// The tasks that it starts, and where it says them; none if it starts none.
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

    /// The stream still lives.
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

/// How a process ended, as `wait` tells it.
fn wait_status(termination: Termination) -> i32 {
    match termination {
        Termination::Exited(code) => (code & 0xff) << 8,
        Termination::Signaled(signal) => signal & 0x7f,
    }
}
