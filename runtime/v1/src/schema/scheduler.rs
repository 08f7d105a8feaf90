//! The scheduler API (`/api/v1/scheduler` of the master): a framework says a [`Call`], and hears [`Event`]s (SPEC 2.2-2.4).

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::message::{enums, messages};
use crate::schema::{
    AgentID, ExecutorID, Filters, FrameworkID, FrameworkInfo, InverseOffer, KillPolicy, MasterInfo,
    Offer, OfferID, OfferOperation, OperationID, OperationStatus, Request, ResourceProviderID,
    TaskID, TaskStatus,
};

messages! {
    /// What a framework hears; `type` tells which field counts.
    Event {
        1 r#type: Option<EventType>,
        2 subscribed: Option<EventSubscribed>,
        3 offers: Option<EventOffers>,
        4 rescind: Option<EventRescind>,
        5 update: Option<Box<EventUpdate>>,
        6 message: Option<Box<EventMessage>>,
        7 failure: Option<Box<EventFailure>>,
        8 error: Option<EventError>,
        9 inverse_offers: Option<EventInverseOffers>,
        10 rescind_inverse_offer: Option<EventRescindInverseOffer>,
        11 update_operation_status: Option<Box<EventUpdateOperationStatus>>,
    }

    /// It is subscribed.
    EventSubscribed {
        1 framework_id: FrameworkID,
        2 heartbeat_interval_seconds: Option<f64>,
        3 master_info: Option<Box<MasterInfo>>,
    }

    /// Something to choose from.
    EventOffers {
        1 offers: Vec<Offer>,
    }

    /// Agents to be left.
    EventInverseOffers {
        1 inverse_offers: Vec<InverseOffer>,
    }

    /// An offer is no longer valid.
    EventRescind {
        1 offer_id: OfferID,
    }

    /// An inverse offer is no longer valid.
    EventRescindInverseOffer {
        1 inverse_offer_id: OfferID,
    }

    /// A task has a new state.
    EventUpdate {
        1 status: TaskStatus,
    }

    /// An operation has a new state.
    EventUpdateOperationStatus {
        1 status: OperationStatus,
    }

    /// Bytes from an executor.
    EventMessage {
        1 agent_id: AgentID,
        2 executor_id: ExecutorID,
        3 data: Bytes,
    }

    /// An agent is no more, or with `executor_id` an executor on it.
    EventFailure {
        1 agent_id: Option<AgentID>,
        2 executor_id: Option<ExecutorID>,
        /// How the executor ended, as of `wait`.
        3 status: Option<i32>,
    }

    /// It must stop.
    EventError {
        1 message: String,
    }

    /// The answer to a call that has one.
    Response {
        1 r#type: Option<ResponseType>,
        /// Deprecated.
        2 reconcile_operations: Option<ResponseReconcileOperations>,
    }

    /// How operations are.
    ResponseReconcileOperations {
        /// Deprecated.
        1 operation_statuses: Vec<OperationStatus>,
    }

    /// Something that must hold for an agent.
    AttributeConstraint {
        1 selector: AttributeConstraintSelector,
        2 predicate: AttributeConstraintPredicate,
    }

    /// Which of its values; either of the two.
    AttributeConstraintSelector {
        1 pseudoattribute_type: Option<AttributeConstraintSelectorPseudoattributeType>,
        2 attribute_name: Option<String>,
    }

    /// What must hold for the value; one of the six.
    AttributeConstraintPredicate {
        1 exists: Option<AttributeConstraintPredicateExists>,
        2 not_exists: Option<AttributeConstraintPredicateNotExists>,
        3 text_equals: Option<AttributeConstraintPredicateTextEquals>,
        4 text_not_equals: Option<AttributeConstraintPredicateTextNotEquals>,
        5 text_matches: Option<AttributeConstraintPredicateTextMatches>,
        6 text_not_matches: Option<AttributeConstraintPredicateTextNotMatches>,
    }

    /// There is one.
    AttributeConstraintPredicateExists {}

    /// There is none.
    AttributeConstraintPredicateNotExists {}

    /// It is this text.
    AttributeConstraintPredicateTextEquals {
        1 value: String,
    }

    /// It is not this text.
    AttributeConstraintPredicateTextNotEquals {
        1 value: String,
    }

    /// The whole of it matches.
    AttributeConstraintPredicateTextMatches {
        1 regex: String,
    }

    /// The whole of it does not match.
    AttributeConstraintPredicateTextNotMatches {
        1 regex: String,
    }

    /// By role, of which agents a framework wants offers.
    OfferConstraints {
        1 role_constraints: BTreeMap<String, OfferConstraintsRoleConstraints>,
    }

    /// An agent will do if any group holds for it.
    OfferConstraintsRoleConstraints {
        1 groups: Vec<OfferConstraintsRoleConstraintsGroup>,
    }

    /// Holds if all its constraints do.
    OfferConstraintsRoleConstraintsGroup {
        1 attribute_constraints: Vec<AttributeConstraint>,
    }

    /// What a framework says; `type` tells which field counts.
    Call {
        /// Absent only when it subscribes for the first time.
        1 framework_id: Option<FrameworkID>,
        2 r#type: Option<CallType>,
        3 subscribe: Option<Box<CallSubscribe>>,
        4 accept: Option<Box<CallAccept>>,
        5 decline: Option<CallDecline>,
        6 kill: Option<Box<CallKill>>,
        7 shutdown: Option<CallShutdown>,
        8 acknowledge: Option<Box<CallAcknowledge>>,
        9 reconcile: Option<CallReconcile>,
        10 message: Option<Box<CallMessage>>,
        11 request: Option<CallRequest>,
        13 accept_inverse_offers: Option<CallAcceptInverseOffers>,
        14 decline_inverse_offers: Option<CallDeclineInverseOffers>,
        15 revive: Option<CallRevive>,
        16 suppress: Option<CallSuppress>,
        17 acknowledge_operation_status: Option<Box<CallAcknowledgeOperationStatus>>,
        18 reconcile_operations: Option<CallReconcileOperations>,
        19 update_framework: Option<Box<CallUpdateFramework>>,
    }

    /// It would like offers.
    CallSubscribe {
        1 framework_info: FrameworkInfo,
        /// Roles of it that want no offers for now.
        2 suppressed_roles: Vec<String>,
        3 offer_constraints: Option<OfferConstraints>,
    }

    /// It takes offers, all of one agent and one role.
    CallAccept {
        1 offer_ids: Vec<OfferID>,
        /// Done in order, each with what the one before has left.
        2 operations: Vec<OfferOperation>,
        /// For what it does not use.
        3 filters: Option<Filters>,
    }

    /// It does not want offers.
    CallDecline {
        1 offer_ids: Vec<OfferID>,
        2 filters: Option<Filters>,
    }

    /// It will leave by then.
    CallAcceptInverseOffers {
        1 inverse_offer_ids: Vec<OfferID>,
        2 filters: Option<Filters>,
    }

    /// It cannot leave by then.
    CallDeclineInverseOffers {
        1 inverse_offer_ids: Vec<OfferID>,
        2 filters: Option<Filters>,
    }

    /// It wants offers again.
    CallRevive {
        /// Absent: all of it.
        1 roles: Vec<String>,
    }

    /// A task should end.
    CallKill {
        1 task_id: TaskID,
        2 agent_id: Option<AgentID>,
        3 kill_policy: Option<KillPolicy>,
    }

    /// An executor should end, and its tasks.
    CallShutdown {
        1 executor_id: ExecutorID,
        2 agent_id: AgentID,
    }

    /// It has a status in hand.
    CallAcknowledge {
        1 agent_id: AgentID,
        2 task_id: TaskID,
        3 uuid: Bytes,
    }

    /// It has the status of an operation in hand.
    CallAcknowledgeOperationStatus {
        1 agent_id: Option<AgentID>,
        2 resource_provider_id: Option<ResourceProviderID>,
        3 uuid: Bytes,
        4 operation_id: OperationID,
    }

    /// How are these tasks?
    CallReconcile {
        /// Absent: all that have not ended.
        1 tasks: Vec<CallReconcileTask>,
    }

    /// A task whose state is asked for.
    CallReconcileTask {
        1 task_id: TaskID,
        2 agent_id: Option<AgentID>,
    }

    /// How are these operations?
    CallReconcileOperations {
        /// Absent: all.
        1 operations: Vec<CallReconcileOperationsOperation>,
    }

    /// An operation whose state is asked for.
    CallReconcileOperationsOperation {
        1 operation_id: OperationID,
        2 agent_id: Option<AgentID>,
        3 resource_provider_id: Option<ResourceProviderID>,
    }

    /// Bytes for an executor, delivered at most once.
    CallMessage {
        1 agent_id: AgentID,
        2 executor_id: ExecutorID,
        3 data: Bytes,
    }

    /// It would like to have these.
    CallRequest {
        1 requests: Vec<Request>,
    }

    /// It wants no more offers until it revives them.
    CallSuppress {
        /// Absent: all of it.
        1 roles: Vec<String>,
    }

    /// It is something else from now on.
    CallUpdateFramework {
        1 framework_info: FrameworkInfo,
        2 suppressed_roles: Vec<String>,
        3 offer_constraints: Option<OfferConstraints>,
    }

    /// How a call went, for libraries.
    APIResult {
        1 status_code: u32,
        2 response: Option<Response>,
        3 error: Option<String>,
    }
}

enums! {
    /// What a framework hears.
    EventType {
        Unknown = 0 "UNKNOWN",
        Subscribed = 1 "SUBSCRIBED",
        Offers = 2 "OFFERS",
        Rescind = 3 "RESCIND",
        Update = 4 "UPDATE",
        Message = 5 "MESSAGE",
        Failure = 6 "FAILURE",
        Error = 7 "ERROR",
        Heartbeat = 8 "HEARTBEAT",
        InverseOffers = 9 "INVERSE_OFFERS",
        RescindInverseOffer = 10 "RESCIND_INVERSE_OFFER",
        UpdateOperationStatus = 11 "UPDATE_OPERATION_STATUS",
    }

    /// Which answer it is.
    ResponseType {
        Unknown = 0 "UNKNOWN",
        ReconcileOperations = 1 "RECONCILE_OPERATIONS",
    }

    /// A value that every agent has, though not as an attribute.
    AttributeConstraintSelectorPseudoattributeType {
        Unknown = 0 "UNKNOWN",
        Hostname = 1 "HOSTNAME",
        Region = 2 "REGION",
        Zone = 3 "ZONE",
    }

    /// What a framework says.
    CallType {
        Unknown = 0 "UNKNOWN",
        Subscribe = 1 "SUBSCRIBE",
        Teardown = 2 "TEARDOWN",
        Accept = 3 "ACCEPT",
        Decline = 4 "DECLINE",
        Revive = 5 "REVIVE",
        Kill = 6 "KILL",
        Shutdown = 7 "SHUTDOWN",
        Acknowledge = 8 "ACKNOWLEDGE",
        Reconcile = 9 "RECONCILE",
        Message = 10 "MESSAGE",
        Request = 11 "REQUEST",
        Suppress = 12 "SUPPRESS",
        AcceptInverseOffers = 13 "ACCEPT_INVERSE_OFFERS",
        DeclineInverseOffers = 14 "DECLINE_INVERSE_OFFERS",
        AcknowledgeOperationStatus = 15 "ACKNOWLEDGE_OPERATION_STATUS",
        ReconcileOperations = 16 "RECONCILE_OPERATIONS",
        UpdateFramework = 17 "UPDATE_FRAMEWORK",
    }
}
