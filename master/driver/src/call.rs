//! Calls of a framework to the master: [`Call`], the list [`Calls`] inside a callback, and
//! [`DriverRef`] outside.
//!
//! Both have the same methods. Inside a callback they cannot fail; outside they fail when the
//! driver has ended or its mailbox is full.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use protocol::message::state::StateValue;
use protocol::{
    AgentId, ExecutorId, ExecutorInfo, Filters, FrameworkId, FrameworkInfo, KillPolicy, OfferId,
    Operation, OperationId, OperationStatus, TaskId, TaskInfo, TaskStatus, Wants,
};
use runtime::TellError;
use tokio::sync::watch;

use crate::state::{StateAnswer, StateCall, StateError, StateOutcome};

/// A call of the framework.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// Accepts offers, all of one agent and one role.
    Accept {
        /// The offers.
        offers: Vec<OfferId>,
        /// Operations, applied in order.
        operations: Vec<Operation>,
        /// How long the unused resources are not offered again.
        filters: Filters,
    },
    /// Declines offers.
    Decline {
        /// The offers.
        offers: Vec<OfferId>,
        /// How long similar offers are not wanted.
        filters: Filters,
    },
    /// The framework will leave these agents in time.
    AcceptInverse {
        /// The inverse offers.
        offers: Vec<OfferId>,
        /// How long similar inverse offers are not wanted.
        filters: Filters,
    },
    /// The framework cannot leave these agents in time.
    DeclineInverse {
        /// The inverse offers.
        offers: Vec<OfferId>,
        /// How long similar inverse offers are not wanted.
        filters: Filters,
    },
    /// Kills a task.
    Kill {
        /// The task.
        task: TaskId,
        /// Kill policy; `None` uses the task's own.
        policy: Option<KillPolicy>,
    },
    /// Resumes offers.
    Revive {
        /// Roles; empty means all.
        roles: BTreeSet<String>,
    },
    /// Suppresses offers.
    Suppress {
        /// Roles; empty means all.
        roles: BTreeSet<String>,
    },
    /// Changes the framework's description and offer preferences. The result arrives as
    /// [`Scheduler::updated`](crate::Scheduler::updated).
    Update {
        /// The new description. Id, user, principal and checkpointing cannot change.
        framework: Box<FrameworkInfo>,
        /// The new offer preferences.
        wants: Box<Wants>,
    },
    /// Asks for the states of tasks.
    Reconcile {
        /// Tasks, with their agents if known; empty means all active tasks.
        tasks: Vec<(TaskId, Option<AgentId>)>,
    },
    /// Acknowledges a task status. Only for [`crate::Acknowledgement::Explicit`].
    Acknowledge {
        /// The status.
        status: Box<TaskStatus>,
    },
    /// Asks for the states of operations.
    ReconcileOperations {
        /// Operations, with their agents if known; empty means all that the master knows.
        operations: Vec<(OperationId, Option<AgentId>)>,
    },
    /// Acknowledges an operation status. Only for [`crate::Acknowledgement::Explicit`].
    AcknowledgeOperation {
        /// The status.
        status: Box<OperationStatus>,
    },
    /// Sends data to an executor, at most once.
    Message {
        /// The agent.
        agent: AgentId,
        /// The executor.
        executor: ExecutorId,
        /// The data.
        data: Vec<u8>,
    },
    /// Reads or changes the framework's state. The result arrives as
    /// [`Scheduler::state`](crate::Scheduler::state).
    State(StateCall),
    /// Ends the framework: its tasks and executors are killed. The driver ends.
    TearDown,
    /// Ends the driver. With `failover` the framework's tasks keep running for its failover
    /// timeout; otherwise the framework is torn down.
    Stop {
        /// Whether a later driver will take over.
        failover: bool,
    },
}

/// How a driver ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Stopped, with the framework left to a later driver or to its leading scheduler.
    LeftForFailover,
    /// The framework was torn down.
    TornDown {
        /// Whether the master confirmed the tear-down. Always `true` for a standby, which the
        /// master informs.
        confirmed: bool,
    },
    /// Refused, removed or replaced.
    Failed {
        /// Reason from the master.
        reason: String,
    },
    /// The actor ended unexpectedly: its node was shut down, or a callback panicked.
    Died,
}

/// The calls of one callback. The driver sends them in order when the callback returns.
#[derive(Debug)]
pub struct Calls {
    pub(crate) list: Vec<Call>,
    driver: DriverRef,
    framework: Option<FrameworkId>,
}

impl Calls {
    pub(crate) fn new(driver: DriverRef, framework: Option<FrameworkId>) -> Self {
        Self {
            list: Vec::new(),
            driver,
            framework,
        }
    }

    /// A handle for use outside callbacks.
    pub fn driver(&self) -> DriverRef {
        self.driver.clone()
    }

    /// The framework's id, once a master has assigned it.
    pub fn framework_id(&self) -> Option<&FrameworkId> {
        self.framework.as_ref()
    }

    fn perform(&mut self, call: Call) {
        self.list.push(call);
    }
}

pub(crate) trait PerformCalls: Send + Sync {
    fn perform(&self, call: Call) -> Result<(), TellError>;
    fn state(&self, call: StateCall) -> BoxFuture<'static, StateOutcome>;
}

/// Handle of a running driver, for use outside callbacks. Cheap to clone; dropping it does not stop
/// the driver.
#[derive(Clone)]
pub struct DriverRef {
    pub(crate) actor: Arc<dyn PerformCalls>,
    pub(crate) ended: watch::Receiver<Option<Ended>>,
}

impl std::fmt::Debug for DriverRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DriverRef")
            .field("ended", &*self.ended.borrow())
            .finish()
    }
}

impl DriverRef {
    /// Sends `call` after all earlier ones. Fails if the driver has ended or its mailbox is full.
    pub fn perform(&self, call: Call) -> Result<(), TellError> {
        self.actor.perform(call)
    }

    /// Reads `key` of the framework's state, including all changes answered before. Without a
    /// master it waits up to [`STATE_PATIENCE`](crate::STATE_PATIENCE).
    pub async fn get(&self, key: impl Into<String>) -> Result<Option<StateValue>, StateError> {
        let key = key.into();
        match self.actor.state(StateCall::Get { key }).await? {
            StateAnswer::Found(found) => Ok(found),
            StateAnswer::Written { .. } => Ok(None),
        }
    }

    /// Writes `value` under `key` unconditionally, and returns its version. After
    /// [`StateError::Unknown`] it may have been written.
    pub async fn put(&self, key: impl Into<String>, value: Vec<u8>) -> Result<u64, StateError> {
        let key = key.into();
        self.change(StateCall::Put { key, value }).await
    }

    /// Writes `value` under `key` if its version is `expected`, 0 for a missing key. Returns the
    /// new version. Safe to repeat after [`StateError::Unknown`]: if the first attempt was applied,
    /// the second is a [`StateError::Conflict`].
    pub async fn compare_and_set(
        &self,
        key: impl Into<String>,
        expected: u64,
        value: Vec<u8>,
    ) -> Result<u64, StateError> {
        let key = key.into();
        let call = StateCall::CompareAndSet {
            key,
            expected,
            value,
        };
        self.change(call).await
    }

    /// Deletes `key`; with an `expected` version, only if it is the current one.
    pub async fn delete(
        &self,
        key: impl Into<String>,
        expected: Option<u64>,
    ) -> Result<(), StateError> {
        let key = key.into();
        let deleted = self.change(StateCall::Delete { key, expected }).await;
        deleted.map(drop)
    }

    async fn change(&self, call: StateCall) -> Result<u64, StateError> {
        match self.actor.state(call).await? {
            StateAnswer::Written { version } => Ok(version),
            StateAnswer::Found(found) => Ok(found.map_or(0, |found| found.version)),
        }
    }

    /// Waits for the end of the driver.
    pub async fn ended(&self) -> Ended {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(ended) => ended.clone().unwrap_or(Ended::Died),
            Err(_) => Ended::Died,
        }
    }
}

/// Adds one method per call to a type with a `perform` method.
macro_rules! call_methods {
    ($type:ty, $self:ident, ($($receiver:tt)*), $result:ty) => {
        impl $type {
            /// Accepts offers, all of one agent and one role, and applies `operations` in order.
            /// The remaining resources are declined with `filters`.
            pub fn accept($($receiver)*, offers: Vec<OfferId>, operations: Vec<Operation>, filters: Filters) -> $result {
                $self.perform(Call::Accept { offers, operations, filters })
            }
            /// Launches `tasks` on offers of one agent and one role. The remaining resources are
            /// declined with the default filters.
            pub fn launch($($receiver)*, offers: Vec<OfferId>, tasks: Vec<TaskInfo>) -> $result {
                let operations = vec![Operation::Launch { tasks }];
                $self.perform(Call::Accept { offers, operations, filters: Filters::default() })
            }
            /// Launches `tasks` together on offers of one agent and one role, under the default
            /// executor `executor`: all of them or none. The remaining resources are declined with
            /// the default filters.
            pub fn launch_group($($receiver)*, offers: Vec<OfferId>, executor: ExecutorInfo, tasks: Vec<TaskInfo>) -> $result {
                let executor = Box::new(executor);
                let operations = vec![Operation::LaunchGroup { executor, tasks }];
                $self.perform(Call::Accept { offers, operations, filters: Filters::default() })
            }
            /// Declines offers. Similar ones are not sent for the time in `filters`.
            pub fn decline($($receiver)*, offers: Vec<OfferId>, filters: Filters) -> $result {
                $self.perform(Call::Decline { offers, filters })
            }
            /// Accepts inverse offers: the framework will leave the agents in time. As long as it
            /// has resources there, the master repeats the inverse offers when `filters` expire.
            pub fn accept_inverse($($receiver)*, offers: Vec<OfferId>, filters: Filters) -> $result {
                $self.perform(Call::AcceptInverse { offers, filters })
            }
            /// Declines inverse offers: the framework cannot leave the agents in time. The master
            /// repeats them when `filters` expire.
            pub fn decline_inverse($($receiver)*, offers: Vec<OfferId>, filters: Filters) -> $result {
                $self.perform(Call::DeclineInverse { offers, filters })
            }
            /// Kills a task, also without a master. The driver repeats the call after a
            /// reconnection until the task has ended.
            pub fn kill($($receiver)*, task: TaskId, policy: Option<KillPolicy>) -> $result {
                $self.perform(Call::Kill { task, policy })
            }
            /// Resumes offers for `roles`, or for all if empty, and removes all filters there.
            pub fn revive($($receiver)*, roles: BTreeSet<String>) -> $result {
                $self.perform(Call::Revive { roles })
            }
            /// Suppresses offers for `roles`, or for all if empty, until they are revived. Kept
            /// over reconnections.
            pub fn suppress($($receiver)*, roles: BTreeSet<String>) -> $result {
                $self.perform(Call::Suppress { roles })
            }
            /// Changes the framework's description and offer preferences.
            pub fn update($($receiver)*, framework: FrameworkInfo, wants: Wants) -> $result {
                $self.perform(Call::Update {
                    framework: Box::new(framework),
                    wants: Box::new(wants),
                })
            }
            /// Asks for the states of `tasks`, or of all active ones if empty. The driver also does
            /// so by itself.
            pub fn reconcile($($receiver)*, tasks: Vec<(TaskId, Option<AgentId>)>) -> $result {
                $self.perform(Call::Reconcile { tasks })
            }
            /// Acknowledges a status. Only for [`crate::Acknowledgement::Explicit`]; otherwise the
            /// driver does it.
            pub fn acknowledge($($receiver)*, status: &TaskStatus) -> $result {
                $self.perform(Call::Acknowledge { status: Box::new(status.clone()) })
            }
            /// Asks for the states of operations, or of all that the master knows if empty. The
            /// answers arrive as
            /// [`Scheduler::operation_status`](crate::Scheduler::operation_status). The driver does
            /// not do so by itself.
            pub fn reconcile_operations($($receiver)*, operations: Vec<(OperationId, Option<AgentId>)>) -> $result {
                $self.perform(Call::ReconcileOperations { operations })
            }
            /// Acknowledges an operation status. Only for [`crate::Acknowledgement::Explicit`];
            /// otherwise the driver does it.
            pub fn acknowledge_operation($($receiver)*, status: &OperationStatus) -> $result {
                $self.perform(Call::AcknowledgeOperation { status: Box::new(status.clone()) })
            }
            /// Sends data to an executor, at most once, in order with the other calls.
            pub fn message($($receiver)*, agent: AgentId, executor: ExecutorId, data: Vec<u8>) -> $result {
                $self.perform(Call::Message { agent, executor, data })
            }
            /// Ends the framework for good: its tasks are killed, and the driver ends, after at
            /// most ten seconds without a master.
            pub fn tear_down($($receiver)*) -> $result {
                $self.perform(Call::TearDown)
            }
            /// Ends the driver. With `failover` the tasks keep running for the framework's failover
            /// timeout; otherwise the framework is torn down.
            pub fn stop($($receiver)*, failover: bool) -> $result {
                $self.perform(Call::Stop { failover })
            }
        }
    };
}

impl Calls {
    /// Reads `key` of the framework's state. The result arrives as
    /// [`Scheduler::state`](crate::Scheduler::state), also for the next three methods.
    pub fn get(&mut self, key: impl Into<String>) {
        let key = key.into();
        self.perform(Call::State(StateCall::Get { key }));
    }

    /// Writes `value` under `key` unconditionally.
    pub fn put(&mut self, key: impl Into<String>, value: Vec<u8>) {
        let key = key.into();
        self.perform(Call::State(StateCall::Put { key, value }));
    }

    /// Writes `value` under `key` if its version is `expected`, 0 for a missing key.
    pub fn compare_and_set(&mut self, key: impl Into<String>, expected: u64, value: Vec<u8>) {
        let key = key.into();
        self.perform(Call::State(StateCall::CompareAndSet {
            key,
            expected,
            value,
        }));
    }

    /// Deletes `key`; with an `expected` version, only if it is the current one.
    pub fn delete(&mut self, key: impl Into<String>, expected: Option<u64>) {
        let key = key.into();
        self.perform(Call::State(StateCall::Delete { key, expected }));
    }
}

call_methods!(Calls, self, (&mut self), ());
call_methods!(DriverRef, self, (&self), Result<(), TellError>);
