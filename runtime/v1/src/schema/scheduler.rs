//! The scheduler API (`/api/v1/scheduler` of the master): a framework sends a [`Call`] and receives
//! [`Event`]s.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::message::{enums, messages};
use crate::schema::{
    AgentID, ExecutorID, Filters, FrameworkID, FrameworkInfo, InverseOffer, KillPolicy, MasterInfo,
    Offer, OfferID, OfferOperation, OperationID, OperationStatus, Request, ResourceProviderID,
    TaskID, TaskStatus,
};

messages! {
    /// An event for a framework; `type` selects its field.
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

    /// The framework is subscribed.
    EventSubscribed {
        1 framework_id: FrameworkID,
        2 heartbeat_interval_seconds: Option<f64>,
        3 master_info: Option<Box<MasterInfo>>,
    }

    /// Offers.
    EventOffers {
        1 offers: Vec<Offer>,
    }

    /// Requests to vacate agents.
    EventInverseOffers {
        1 inverse_offers: Vec<InverseOffer>,
    }

    /// An offer is rescinded.
    EventRescind {
        1 offer_id: OfferID,
    }

    /// An inverse offer is rescinded.
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

    /// An agent was removed, or with `executor_id` an executor ended.
    EventFailure {
        1 agent_id: Option<AgentID>,
        2 executor_id: Option<ExecutorID>,
        /// The executor's exit status, as from `wait`.
        3 status: Option<i32>,
    }

    /// The framework must stop.
    EventError {
        1 message: String,
    }

    /// The answer to a call that has one.
    Response {
        1 r#type: Option<ResponseType>,
        /// Deprecated.
        2 reconcile_operations: Option<ResponseReconcileOperations>,
    }

    /// States of operations.
    ResponseReconcileOperations {
        /// Deprecated.
        1 operation_statuses: Vec<OperationStatus>,
    }

    /// A constraint on agents.
    AttributeConstraint {
        1 selector: AttributeConstraintSelector,
        2 predicate: AttributeConstraintPredicate,
    }

    /// Selects the value; exactly one field is set.
    AttributeConstraintSelector {
        1 pseudoattribute_type: Option<AttributeConstraintSelectorPseudoattributeType>,
        2 attribute_name: Option<String>,
    }

    /// The condition on the value; exactly one field is set.
    AttributeConstraintPredicate {
        1 exists: Option<AttributeConstraintPredicateExists>,
        2 not_exists: Option<AttributeConstraintPredicateNotExists>,
        3 text_equals: Option<AttributeConstraintPredicateTextEquals>,
        4 text_not_equals: Option<AttributeConstraintPredicateTextNotEquals>,
        5 text_matches: Option<AttributeConstraintPredicateTextMatches>,
        6 text_not_matches: Option<AttributeConstraintPredicateTextNotMatches>,
    }

    /// The value exists.
    AttributeConstraintPredicateExists {}

    /// The value does not exist.
    AttributeConstraintPredicateNotExists {}

    /// It equals this text.
    AttributeConstraintPredicateTextEquals {
        1 value: String,
    }

    /// It does not equal this text.
    AttributeConstraintPredicateTextNotEquals {
        1 value: String,
    }

    /// All of it matches.
    AttributeConstraintPredicateTextMatches {
        1 regex: String,
    }

    /// All of it does not match.
    AttributeConstraintPredicateTextNotMatches {
        1 regex: String,
    }

    /// Constraints on offered agents, by role.
    OfferConstraints {
        1 role_constraints: BTreeMap<String, OfferConstraintsRoleConstraints>,
    }

    /// An agent qualifies if any group matches it.
    OfferConstraintsRoleConstraints {
        1 groups: Vec<OfferConstraintsRoleConstraintsGroup>,
    }

    /// Matches if all its constraints do.
    OfferConstraintsRoleConstraintsGroup {
        1 attribute_constraints: Vec<AttributeConstraint>,
    }

    /// A framework's call; `type` selects its field.
    Call {
        /// Absent only on the first subscription.
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

    /// Subscribes the framework.
    CallSubscribe {
        1 framework_info: FrameworkInfo,
        /// Roles that want no offers for now.
        2 suppressed_roles: Vec<String>,
        3 offer_constraints: Option<OfferConstraints>,
    }

    /// Accepts offers of one agent and one role.
    CallAccept {
        1 offer_ids: Vec<OfferID>,
        /// Applied in order, each to the resources that the previous one left.
        2 operations: Vec<OfferOperation>,
        /// For the unused resources.
        3 filters: Option<Filters>,
    }

    /// Declines offers.
    CallDecline {
        1 offer_ids: Vec<OfferID>,
        2 filters: Option<Filters>,
    }

    /// Agrees to vacate agents in time.
    CallAcceptInverseOffers {
        1 inverse_offer_ids: Vec<OfferID>,
        2 filters: Option<Filters>,
    }

    /// Refuses to vacate agents.
    CallDeclineInverseOffers {
        1 inverse_offer_ids: Vec<OfferID>,
        2 filters: Option<Filters>,
    }

    /// Requests offers again.
    CallRevive {
        /// Absent: all roles.
        1 roles: Vec<String>,
    }

    /// Kills a task.
    CallKill {
        1 task_id: TaskID,
        2 agent_id: Option<AgentID>,
        3 kill_policy: Option<KillPolicy>,
    }

    /// Shuts down an executor with its tasks.
    CallShutdown {
        1 executor_id: ExecutorID,
        2 agent_id: AgentID,
    }

    /// Acknowledges a status update.
    CallAcknowledge {
        1 agent_id: AgentID,
        2 task_id: TaskID,
        3 uuid: Bytes,
    }

    /// Acknowledges an operation's status.
    CallAcknowledgeOperationStatus {
        1 agent_id: Option<AgentID>,
        2 resource_provider_id: Option<ResourceProviderID>,
        3 uuid: Bytes,
        4 operation_id: OperationID,
    }

    /// Queries the states of tasks.
    CallReconcile {
        /// Empty: all that have not ended.
        1 tasks: Vec<CallReconcileTask>,
    }

    /// A task whose state is queried.
    CallReconcileTask {
        1 task_id: TaskID,
        2 agent_id: Option<AgentID>,
    }

    /// Queries the states of operations.
    CallReconcileOperations {
        /// Empty: all.
        1 operations: Vec<CallReconcileOperationsOperation>,
    }

    /// An operation whose state is queried.
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

    /// Requests resources.
    CallRequest {
        1 requests: Vec<Request>,
    }

    /// Stops offers until a revive.
    CallSuppress {
        /// Absent: all roles.
        1 roles: Vec<String>,
    }

    /// Updates the framework's description.
    CallUpdateFramework {
        1 framework_info: FrameworkInfo,
        2 suppressed_roles: Vec<String>,
        3 offer_constraints: Option<OfferConstraints>,
    }

    /// Result of a call, for libraries.
    APIResult {
        1 status_code: u32,
        2 response: Option<Response>,
        3 error: Option<String>,
    }
}

enums! {
    /// Type of an event.
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

    /// Type of a response.
    ResponseType {
        Unknown = 0 "UNKNOWN",
        ReconcileOperations = 1 "RECONCILE_OPERATIONS",
    }

    /// A value of every agent that is not an attribute.
    AttributeConstraintSelectorPseudoattributeType {
        Unknown = 0 "UNKNOWN",
        Hostname = 1 "HOSTNAME",
        Region = 2 "REGION",
        Zone = 3 "ZONE",
    }

    /// Type of a call.
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
