//! Whole calls of schedulers, and the events that they hear.
//!
//! A call is refused as a whole where nothing of it makes sense. Of an ACCEPT only those operations and tasks are left out that have no meaning
//! here, each with its reason, so that the others go on and their framework hears of each that has an id (SPEC 2.2).

mod meaningless;

use protocol::message::scheduler::{
    AcceptInverseOffers, AcceptOffers, AcknowledgeOperation, AcknowledgeStatus,
    DeclineInverseOffers, DeclineOffers, FrameworkFailed, FrameworkMessage, InverseOfferRescinded,
    InverseOffersMade, KillTask, Lost, OfferRescinded, OffersMade, OperationChanged,
    ReconcileOperations, ReconcileTasks, ReviveOffers, StatusChanged, SuppressOffers, TearDown,
};
use protocol::{
    AgentId, ExecutorId, FrameworkId, FrameworkInfo, Operation, OperationId, Reason, Termination,
    Wants,
};
use resources::Invalid;

pub use self::meaningless::Meaningless;
use super::ids::uuid;
use super::task::check_executor;
use super::{At, all, demands, each, need, refuse, some, write};
use crate::limits::within;
use crate::schema::scheduler::{
    Call, CallAccept, CallAcknowledgeOperationStatus, CallReconcileOperationsOperation,
    CallReconcileTask, CallType, Event, EventError, EventFailure, EventInverseOffers, EventMessage,
    EventOffers, EventRescind, EventRescindInverseOffer, EventSubscribed, EventType, EventUpdate,
    EventUpdateOperationStatus, OfferConstraints,
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
    /// Something that has no words here; its name. A master may take it and do nothing.
    Unheard(CallType),
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
}

/// Operations of which nobody can be told.
#[derive(Clone, Debug, PartialEq)]
pub struct Nameless {
    /// How many.
    pub count: usize,
    /// What is wrong with the first of them.
    pub first: Invalid,
}

/// What this call says.
pub fn said(call: &Call) -> Result<Said, Invalid> {
    let kind = call.r#type.unwrap_or_default();
    if kind == CallType::Subscribe {
        return subscribe(call);
    }
    let field = "what is said, as `type` says";
    let expected = "the framework's id, as it must be in all calls but the first SUBSCRIBE";
    let framework_id = need("framework_id", call.framework_id.as_ref(), expected)?;
    let framework_id: FrameworkId = framework_id.try_into().at("framework_id")?;
    Ok(match kind {
        CallType::Unknown => {
            let found = "absent or not known";
            return Err(Invalid::new(
                "type",
                found,
                "the name of a call, as SUBSCRIBE",
            ));
        }
        CallType::Subscribe => return subscribe(call),
        CallType::UpdateFramework => {
            let update = need("update_framework", call.update_framework.as_deref(), field)?;
            let (framework, wants) = framework(
                &update.framework_info,
                &update.suppressed_roles,
                update.offer_constraints.as_ref(),
            )
            .at("update_framework")?;
            Said::UpdateFramework(framework, wants)
        }
        CallType::Teardown => Said::TearDown(TearDown { framework_id }),
        CallType::Accept => {
            let call = need("accept", call.accept.as_deref(), field)?;
            Said::Accept(accept(framework_id, call).at("accept")?)
        }
        CallType::Decline => {
            let decline = need("decline", call.decline.as_ref(), field)?;
            Said::Decline(DeclineOffers {
                framework_id,
                offer_ids: all("offer_ids", &decline.offer_ids).at("decline")?,
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
            let kill = need("kill", call.kill.as_deref(), field)?;
            Said::Kill(KillTask {
                framework_id,
                task_id: (&kill.task_id).try_into().at("kill.task_id")?,
                agent_id: some("agent_id", kill.agent_id.as_ref()).at("kill")?,
                kill_policy: some("kill_policy", kill.kill_policy.as_ref()).at("kill")?,
            })
        }
        CallType::Shutdown => {
            let shutdown = need("shutdown", call.shutdown.as_ref(), field)?;
            let agent = (&shutdown.agent_id).try_into().at("shutdown.agent_id")?;
            let executor = (&shutdown.executor_id)
                .try_into()
                .at("shutdown.executor_id")?;
            Said::Shutdown(agent, executor)
        }
        CallType::Acknowledge => {
            let acknowledge = need("acknowledge", call.acknowledge.as_deref(), field)?;
            Said::Acknowledge(AcknowledgeStatus {
                framework_id,
                agent_id: (&acknowledge.agent_id)
                    .try_into()
                    .at("acknowledge.agent_id")?,
                task_id: (&acknowledge.task_id)
                    .try_into()
                    .at("acknowledge.task_id")?,
                uuid: uuid(&acknowledge.uuid).at("acknowledge.uuid")?,
            })
        }
        CallType::AcknowledgeOperationStatus => {
            let name = "acknowledge_operation_status";
            let status = need(name, call.acknowledge_operation_status.as_deref(), field)?;
            Said::AcknowledgeOperation(acknowledge(framework_id, status).at(name)?)
        }
        CallType::Reconcile => {
            let reconcile = need("reconcile", call.reconcile.as_ref(), field)?;
            let task = |task: &CallReconcileTask| {
                let id = (&task.task_id).try_into().at("task_id")?;
                Ok((id, some("agent_id", task.agent_id.as_ref())?))
            };
            let tasks = each("tasks", &reconcile.tasks, task).at("reconcile")?;
            Said::Reconcile(ReconcileTasks {
                framework_id,
                tasks,
            })
        }
        CallType::ReconcileOperations => {
            let name = "reconcile_operations";
            let reconcile = need(name, call.reconcile_operations.as_ref(), field)?;
            let operation = |operation: &CallReconcileOperationsOperation| {
                refuse_provider(operation.resource_provider_id.as_ref())?;
                let id = (&operation.operation_id).try_into().at("operation_id")?;
                Ok((id, some("agent_id", operation.agent_id.as_ref())?))
            };
            let operations = each("operations", &reconcile.operations, operation).at(name)?;
            Said::ReconcileOperations(ReconcileOperations {
                framework_id,
                operations,
            })
        }
        CallType::Message => {
            let message = need("message", call.message.as_deref(), field)?;
            Said::Message(FrameworkMessage {
                framework_id,
                agent_id: (&message.agent_id).try_into().at("message.agent_id")?,
                executor_id: (&message.executor_id)
                    .try_into()
                    .at("message.executor_id")?,
                data: message.data.to_vec(),
            })
        }
        CallType::AcceptInverseOffers => {
            let name = "accept_inverse_offers";
            let accept = need(name, call.accept_inverse_offers.as_ref(), field)?;
            Said::AcceptInverse(AcceptInverseOffers {
                framework_id,
                inverse_offer_ids: all("inverse_offer_ids", &accept.inverse_offer_ids).at(name)?,
                filters: filters(accept.filters.as_ref()),
            })
        }
        CallType::DeclineInverseOffers => {
            let name = "decline_inverse_offers";
            let decline = need(name, call.decline_inverse_offers.as_ref(), field)?;
            Said::DeclineInverse(DeclineInverseOffers {
                framework_id,
                inverse_offer_ids: all("inverse_offer_ids", &decline.inverse_offer_ids).at(name)?,
                filters: filters(decline.filters.as_ref()),
            })
        }
        CallType::Request => {
            need("request", call.request.as_ref(), field)?;
            Said::Unheard(kind)
        }
    })
}

fn subscribe(call: &Call) -> Result<Said, Invalid> {
    let expected = "what is said, as `type` says";
    let subscribe = need("subscribe", call.subscribe.as_deref(), expected)?;
    let (framework, wants) = framework(
        &subscribe.framework_info,
        &subscribe.suppressed_roles,
        subscribe.offer_constraints.as_ref(),
    )
    .at("subscribe")?;
    let id = call.framework_id.as_ref().map_or("", |id| &id.value);
    let own = framework.id.as_ref().map_or("", FrameworkId::as_str);
    let expected = "the same id as `subscribe.framework_info.id`, or none in both";
    refuse("framework_id.value", id != own, id, expected)?;
    Ok(Said::Subscribe(framework, wants))
}

fn framework(
    info: &schema::FrameworkInfo,
    suppressed_roles: &[String],
    constraints: Option<&OfferConstraints>,
) -> Result<(FrameworkInfo, Wants), Invalid> {
    let wants = Wants {
        suppressed_roles: suppressed_roles.iter().cloned().collect(),
        demands: demands(constraints, &info.offer_filters)?,
    };
    Ok((info.try_into().at("framework_info")?, wants))
}

fn filters(filters: Option<&Filters>) -> protocol::Filters {
    filters.map(Into::into).unwrap_or_default()
}

fn refuse_provider(id: Option<&schema::ResourceProviderID>) -> Result<(), Invalid> {
    match id {
        Some(id) => {
            let expected = "none, since agents have no resource providers yet";
            Err(Invalid::new("resource_provider_id", &id.value, expected))
        }
        None => Ok(()),
    }
}

fn acknowledge(
    framework_id: FrameworkId,
    status: &CallAcknowledgeOperationStatus,
) -> Result<AcknowledgeOperation, Invalid> {
    refuse_provider(status.resource_provider_id.as_ref())?;
    let expected = "the agent that the status named";
    let agent_id = need("agent_id", status.agent_id.as_ref(), expected)?;
    Ok(AcknowledgeOperation {
        framework_id,
        agent_id: agent_id.try_into().at("agent_id")?,
        operation_id: (&status.operation_id).try_into().at("operation_id")?,
        uuid: uuid(&status.uuid).at("uuid")?,
    })
}

fn accept(framework_id: FrameworkId, call: &CallAccept) -> Result<Accepted, Invalid> {
    let mut accepted = Accepted {
        offers: AcceptOffers {
            framework_id,
            offer_ids: all("offer_ids", &call.offer_ids)?,
            operations: Vec::new(),
            filters: filters(call.filters.as_ref()),
        },
        tasks: Vec::new(),
        operations: Vec::new(),
        nameless: None,
    };
    for (place, operation) in call.operations.iter().enumerate() {
        let place = format!("operations[{place}]");
        accepted.add(operation, &place).at(&place)?;
    }
    Ok(accepted)
}

impl Accepted {
    /// Adds the operation of this place, or what is wrong with it. An error is only an id that is none: nobody could be told of it.
    fn add(&mut self, operation: &OfferOperation, place: &str) -> Result<(), Invalid> {
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
            Ok(operation) => {
                self.offers.operations.push(operation);
                return Ok(());
            }
            Err(bad) => bad,
        };
        let id = some("id", operation.id.as_ref())?;
        let reason = match kind {
            OfferOperationType::LaunchGroup => Reason::TaskGroupInvalid,
            _ => Reason::TaskInvalid,
        };
        match tasks_of(operation) {
            // A launch has no status; of one that asks for it nothing is started.
            Some((list, tasks)) if kind == OfferOperationType::Launch && id.is_none() => {
                let tasks = self.sift(tasks, list, place)?;
                self.offers.operations.push(Operation::Launch { tasks });
                return Ok(());
            }
            Some((list, tasks)) => {
                let bad = within(bad.clone(), place);
                let task = |info: &TaskInfo| Meaningless::of(info, reason, bad.clone());
                self.tasks.extend(each(list, tasks, task)?);
            }
            None if id.is_none() => {
                let first = || within(bad, place);
                let nameless = self.nameless.get_or_insert_with(|| Nameless {
                    count: 0,
                    first: first(),
                });
                nameless.count += 1;
                return Ok(());
            }
            None => {}
        }
        self.operations
            .extend(id.map(|id| (id, within(bad, place))));
        Ok(())
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

    /// Those of the tasks in this list of the operation of that place that have a meaning here; keeps the others.
    fn sift(
        &mut self,
        infos: &[TaskInfo],
        list: &str,
        operation: &str,
    ) -> Result<Vec<protocol::TaskInfo>, Invalid> {
        let mut tasks = Vec::new();
        for (place, info) in infos.iter().enumerate() {
            let place = format!("{list}[{place}]");
            let own = self.has_its_own_executor(info);
            let meant = own.and_then(|()| protocol::TaskInfo::try_from(info));
            match meant.at(&place) {
                Ok(task) => tasks.push(task),
                Err(bad) => {
                    let bad = within(bad, operation);
                    let task = Meaningless::of(info, Reason::TaskInvalid, bad);
                    self.tasks.push(task.at(&place)?);
                }
            }
        }
        Ok(tasks)
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
