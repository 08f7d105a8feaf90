//! Questions of an agent to modules in processes of their own, specific to Meros.
//!
//! `modules/api/proto/module.proto` describes them for other languages; a test compares the two.
//! The correction has Mesos' name, fields and numbers (`mesos/slave/oversubscription.proto`).

use crate::message::{enums, messages};
use crate::schema::{
    ContainerID, ExecutorID, FrameworkID, Parameter, Resource, ResourceUsage,
    ResourceUsageExecutorThrottle,
};

messages! {
    /// The first question to a module.
    InitializeRequest {
        /// The version of these messages.
        1 api_version: u32,
        2 kind: ModuleKind,
        3 name: String,
        4 parameters: Vec<Parameter>,
    }

    /// The module is ready.
    InitializeResponse {
        1 api_version: u32,
        2 kind: ModuleKind,
        3 name: String,
        /// The module's own version, for logs.
        4 version: Option<String>,
    }

    /// Requests an estimate.
    EstimateRequest {
        1 usage: ResourceUsage,
    }

    /// Resources that may be lent in addition to those already lent, all revocable.
    EstimateResponse {
        1 oversubscribable: Vec<Resource>,
    }

    /// Requests corrections.
    CorrectionsRequest {
        1 usage: ResourceUsage,
    }

    /// The needed corrections, possibly none.
    CorrectionsResponse {
        1 corrections: Vec<QoSCorrection>,
    }

    /// One correction; `type` selects its field.
    QoSCorrection {
        1 r#type: QoSCorrectionType,
        2 kill: Option<Box<QoSCorrectionTarget>>,
        /// Specific to Meros, as the next.
        1000 throttle: Option<Box<QoSCorrectionThrottle>>,
        1001 restore: Option<Box<QoSCorrectionTarget>>,
        /// For operators. Specific to Meros.
        1002 reason: Option<String>,
    }

    /// The executor to correct. Without a container its current one.
    QoSCorrectionTarget {
        1 framework_id: FrameworkID,
        2 executor_id: ExecutorID,
        3 container_id: Option<ContainerID>,
    }

    /// The executor to throttle, and the degree, in place of an earlier one.
    QoSCorrectionThrottle {
        1 target: QoSCorrectionTarget,
        2 degree: ResourceUsageExecutorThrottle,
    }
}

enums! {
    /// The kinds of modules that can be in processes of their own.
    ModuleKind {
        Unknown = 0 "UNKNOWN",
        ResourceEstimator = 1 "RESOURCE_ESTIMATOR",
        QosController = 2 "QOS_CONTROLLER",
    }

    /// Type of a correction.
    QoSCorrectionType {
        Unknown = 0 "UNKNOWN",
        Kill = 1 "KILL",
        /// Specific to Meros, as the next.
        Throttle = 1000 "THROTTLE",
        Restore = 1001 "RESTORE",
    }
}
