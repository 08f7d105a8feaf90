//! Ids, times and durations.

use bytes::Bytes;

use crate::message::messages;

messages! {
    /// Identifies a framework, across failovers of its scheduler.
    FrameworkID {
        1 value: String,
    }

    /// Identifies an offer or an inverse offer.
    OfferID {
        1 value: String,
    }

    /// Identifies an agent.
    AgentID {
        1 value: String,
    }

    /// Identifies a task within its framework.
    TaskID {
        1 value: String,
    }

    /// Identifies an executor within its framework and agent.
    ExecutorID {
        1 value: String,
    }

    /// Identifies a container.
    ContainerID {
        1 value: String,
        /// The parent of a nested container.
        2 parent: Option<Box<ContainerID>>,
    }

    /// Identifies a resource provider.
    ResourceProviderID {
        1 value: String,
    }

    /// Identifies an operation within its framework.
    OperationID {
        1 value: String,
    }

    /// Sixteen random bytes.
    UUID {
        1 value: Bytes,
    }

    /// A point in time.
    TimeInfo {
        /// Since 1970-01-01 UTC.
        1 nanoseconds: i64,
    }

    /// A duration.
    DurationInfo {
        1 nanoseconds: i64,
    }

    /// A duration, as in operators' calls.
    Duration {
        1 seconds: Option<i64>,
        2 nanos: Option<i32>,
    }
}
