//! Ids, times and durations.

use bytes::Bytes;

use crate::message::messages;

messages! {
    /// Names a framework, over all failovers of its scheduler.
    FrameworkID {
        1 value: String,
    }

    /// Names an offer or an inverse offer.
    OfferID {
        1 value: String,
    }

    /// Names an agent.
    AgentID {
        1 value: String,
    }

    /// Names a task within its framework.
    TaskID {
        1 value: String,
    }

    /// Names an executor within its framework and agent.
    ExecutorID {
        1 value: String,
    }

    /// Names a container.
    ContainerID {
        1 value: String,
        /// The container it is nested in.
        2 parent: Option<Box<ContainerID>>,
    }

    /// Names a resource provider.
    ResourceProviderID {
        1 value: String,
    }

    /// Names an operation within its framework.
    OperationID {
        1 value: String,
    }

    /// Sixteen random bytes.
    UUID {
        1 value: Bytes,
    }

    /// A moment.
    TimeInfo {
        /// Since 1970-01-01 UTC.
        1 nanoseconds: i64,
    }

    /// A length of time.
    DurationInfo {
        1 nanoseconds: i64,
    }

    /// A length of time, in the form that calls of operators have.
    Duration {
        1 seconds: Option<i64>,
        2 nanos: Option<i32>,
    }
}
