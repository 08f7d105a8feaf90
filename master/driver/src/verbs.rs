//! What a framework can have done: [`Verb`], written down in [`Verbs`] inside a callback, or told to a [`DriverRef`] from anywhere else.
//!
//! Both have the same verbs. Inside a callback they cannot fail; from outside they fail when the driver has stopped or is drowned.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use protocol::message::state::StateValue;
use protocol::{
    AgentId, ExecutorId, Filters, FrameworkId, FrameworkInfo, KillPolicy, OfferId, Operation,
    OperationId, OperationStatus, TaskId, TaskInfo, TaskStatus, Wants,
};
use runtime::TellError;
use tokio::sync::watch;

use crate::state::{StateAnswer, StateCall, StateError, StateOutcome};

/// One thing a framework wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Verb {
    /// Take these offers, all of one agent and one role, and do this with them.
    Accept {
        /// Which offers.
        offers: Vec<OfferId>,
        /// What to do, in order.
        operations: Vec<Operation>,
        /// For how long the rest is not wanted.
        filters: Filters,
    },
    /// Give these offers back.
    Decline {
        /// Which offers.
        offers: Vec<OfferId>,
        /// For how long the like is not wanted.
        filters: Filters,
    },
    /// Say that these agents will have been left by the time that they are away.
    AcceptInverse {
        /// Which inverse offers.
        offers: Vec<OfferId>,
        /// For how long the like is not wanted.
        filters: Filters,
    },
    /// Say that these agents cannot be left by then.
    DeclineInverse {
        /// Which inverse offers.
        offers: Vec<OfferId>,
        /// For how long the like is not wanted.
        filters: Filters,
    },
    /// End a task.
    Kill {
        /// Which.
        task: TaskId,
        /// How; `None` leaves it to the task.
        policy: Option<KillPolicy>,
    },
    /// Want offers again, for these roles or (empty) for all.
    Revive {
        /// Which roles.
        roles: BTreeSet<String>,
    },
    /// Want no offers, for these roles or (empty) for all.
    Suppress {
        /// Which roles.
        roles: BTreeSet<String>,
    },
    /// Be this from now on, and want these offers. The outcome comes as [`Scheduler::updated`](crate::Scheduler::updated).
    Update {
        /// What the framework is; its id, user, principal and checkpointing cannot change.
        framework: Box<FrameworkInfo>,
        /// Which offers it would like.
        wants: Box<Wants>,
    },
    /// Ask how these tasks are; empty asks for all that the master knows.
    Reconcile {
        /// Which tasks, with their agents where known.
        tasks: Vec<(TaskId, Option<AgentId>)>,
    },
    /// This status is in hand. Needed only with [`crate::Acknowledgement::Explicit`].
    Acknowledge {
        /// The status as it came.
        status: Box<TaskStatus>,
    },
    /// Ask how these operations are; empty asks for all that the master knows.
    ReconcileOperations {
        /// Which operations, with their agents where known.
        operations: Vec<(OperationId, Option<AgentId>)>,
    },
    /// This status of an operation is in hand. Needed only with [`crate::Acknowledgement::Explicit`].
    AcknowledgeOperation {
        /// The status as it came.
        status: Box<OperationStatus>,
    },
    /// Send bytes to an executor, at most once.
    Message {
        /// On which agent.
        agent: AgentId,
        /// Which executor.
        executor: ExecutorId,
        /// The bytes.
        data: Vec<u8>,
    },
    /// Read or change the framework's state. The outcome comes as [`Scheduler::state`](crate::Scheduler::state).
    State(StateCall),
    /// End the framework: its tasks and executors are killed. The driver stops.
    TearDown,
    /// Stop the driver. With `failover` the framework's tasks live on for its failover timeout; without, it is torn down.
    Stop {
        /// Whether a later driver will take over.
        failover: bool,
    },
}

/// How a driver ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was stopped and its framework left for a later driver, or for the one that leads.
    LeftForFailover,
    /// Its framework was torn down. `confirmed` if the master has said that it heard. One that stood by has heard it from the master.
    TornDown {
        /// Whether the master heard.
        confirmed: bool,
    },
    /// It was refused, removed or replaced, for this reason.
    Failed {
        /// In the master's words.
        reason: String,
    },
    /// The driver's actor ended without a word: its node was shut down, or a callback panicked.
    Died,
}

/// Where a callback writes down what it wants done. Done in order when the callback returns.
#[derive(Debug)]
pub struct Verbs {
    pub(crate) list: Vec<Verb>,
    driver: DriverRef,
    framework: Option<FrameworkId>,
}

impl Verbs {
    pub(crate) fn new(driver: DriverRef, framework: Option<FrameworkId>) -> Self {
        Self {
            list: Vec::new(),
            driver,
            framework,
        }
    }

    /// A handle to keep, for use outside callbacks.
    pub fn driver(&self) -> DriverRef {
        self.driver.clone()
    }

    /// The framework's id, once a master has given it.
    pub fn framework_id(&self) -> Option<&FrameworkId> {
        self.framework.as_ref()
    }

    fn perform(&mut self, verb: Verb) {
        self.list.push(verb);
    }
}

pub(crate) trait Performs: Send + Sync {
    fn perform(&self, verb: Verb) -> Result<(), TellError>;
    fn state(&self, call: StateCall) -> BoxFuture<'static, StateOutcome>;
}

/// A running driver, seen from outside its callbacks. Cheap to clone; dropping it stops nothing.
#[derive(Clone)]
pub struct DriverRef {
    pub(crate) actor: Arc<dyn Performs>,
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
    /// Has `verb` done, after all that were told before. Fails when the driver has stopped or its mailbox is full.
    pub fn perform(&self, verb: Verb) -> Result<(), TellError> {
        self.actor.perform(verb)
    }

    /// What the framework keeps under `key`, with all that was answered before. Waits up to
    /// [`STATE_PATIENCE`](crate::STATE_PATIENCE) while there is no master.
    pub async fn get(&self, key: impl Into<String>) -> Result<Option<StateValue>, StateError> {
        let key = key.into();
        match self.actor.state(StateCall::Get { key }).await? {
            StateAnswer::Found(found) => Ok(found),
            StateAnswer::Written { .. } => Ok(None),
        }
    }

    /// Keeps `value` under `key`, whatever is there; gives its version. With [`StateError::Unknown`] it may have been done.
    pub async fn put(&self, key: impl Into<String>, value: Vec<u8>) -> Result<u64, StateError> {
        let key = key.into();
        self.change(StateCall::Put { key, value }).await
    }

    /// Keeps `value` under `key` if the version there is `expected`, 0 for a key that is not there; gives the new version. Safe to
    /// say again after [`StateError::Unknown`]: if it was done, the second is a [`StateError::Conflict`].
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

    /// Keeps nothing under `key` any more; if a version is given, only if that is the one there.
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

    /// Waits until the driver has ended, and says how.
    pub async fn ended(&self) -> Ended {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(ended) => ended.clone().unwrap_or(Ended::Died),
            Err(_) => Ended::Died,
        }
    }
}

/// Gives a type with a `perform` method the named verbs.
macro_rules! verbs {
    ($type:ty, $self:ident, ($($receiver:tt)*), $result:ty) => {
        impl $type {
            /// Takes offers, all of one agent and one role, and does `operations` with them, in order. The rest is declined with `filters`.
            pub fn accept($($receiver)*, offers: Vec<OfferId>, operations: Vec<Operation>, filters: Filters) -> $result {
                $self.perform(Verb::Accept { offers, operations, filters })
            }
            /// Starts `tasks` on offers of one agent and one role. What they do not use is declined with the default filters.
            pub fn launch($($receiver)*, offers: Vec<OfferId>, tasks: Vec<TaskInfo>) -> $result {
                let operations = vec![Operation::Launch { tasks }];
                $self.perform(Verb::Accept { offers, operations, filters: Filters::default() })
            }
            /// Gives offers back, and wants none like them for as long as `filters` says.
            pub fn decline($($receiver)*, offers: Vec<OfferId>, filters: Filters) -> $result {
                $self.perform(Verb::Decline { offers, filters })
            }
            /// Says that the agents of these inverse offers will have been left by then. While the framework has something there, it is asked again
            /// when `filters` end.
            pub fn accept_inverse($($receiver)*, offers: Vec<OfferId>, filters: Filters) -> $result {
                $self.perform(Verb::AcceptInverse { offers, filters })
            }
            /// Says that the agents of these inverse offers cannot be left by then. It is asked again when `filters` end.
            pub fn decline_inverse($($receiver)*, offers: Vec<OfferId>, filters: Filters) -> $result {
                $self.perform(Verb::DeclineInverse { offers, filters })
            }
            /// Ends a task, also while there is no master. Remembered and said again after a loss of the master, until the task's end
            /// is heard.
            pub fn kill($($receiver)*, task: TaskId, policy: Option<KillPolicy>) -> $result {
                $self.perform(Verb::Kill { task, policy })
            }
            /// Wants offers again, for `roles` or (empty) for all: filters and suppressions there are forgotten.
            pub fn revive($($receiver)*, roles: BTreeSet<String>) -> $result {
                $self.perform(Verb::Revive { roles })
            }
            /// Wants no offers until revived, for `roles` or (empty) for all. Kept over a loss of the master.
            pub fn suppress($($receiver)*, roles: BTreeSet<String>) -> $result {
                $self.perform(Verb::Suppress { roles })
            }
            /// Is this from now on, and wants these offers.
            pub fn update($($receiver)*, framework: FrameworkInfo, wants: Wants) -> $result {
                $self.perform(Verb::Update {
                    framework: Box::new(framework),
                    wants: Box::new(wants),
                })
            }
            /// Asks how `tasks` are; empty asks for all that have not ended. The driver asks by itself too (W17).
            pub fn reconcile($($receiver)*, tasks: Vec<(TaskId, Option<AgentId>)>) -> $result {
                $self.perform(Verb::Reconcile { tasks })
            }
            /// Says that this status is in hand. Only with [`crate::Acknowledgement::Explicit`]; else the driver says it.
            pub fn acknowledge($($receiver)*, status: &TaskStatus) -> $result {
                $self.perform(Verb::Acknowledge { status: Box::new(status.clone()) })
            }
            /// Asks how these operations are, by the names that the framework gave them; empty asks for all that the master knows. The
            /// answers come as [`Scheduler::operation_status`](crate::Scheduler::operation_status). The driver does not ask by itself.
            pub fn reconcile_operations($($receiver)*, operations: Vec<(OperationId, Option<AgentId>)>) -> $result {
                $self.perform(Verb::ReconcileOperations { operations })
            }
            /// Says that this status of an operation is in hand. Only with [`crate::Acknowledgement::Explicit`]; else the driver says it.
            pub fn acknowledge_operation($($receiver)*, status: &OperationStatus) -> $result {
                $self.perform(Verb::AcknowledgeOperation { status: Box::new(status.clone()) })
            }
            /// Sends bytes to an executor, at most once, in order with the other calls.
            pub fn message($($receiver)*, agent: AgentId, executor: ExecutorId, data: Vec<u8>) -> $result {
                $self.perform(Verb::Message { agent, executor, data })
            }
            /// Ends the framework for good: its tasks are killed, and the driver stops, at the latest after ten seconds without a master.
            pub fn tear_down($($receiver)*) -> $result {
                $self.perform(Verb::TearDown)
            }
            /// Stops the driver. With `failover` the tasks live on for the framework's failover timeout; without, the framework is torn down.
            pub fn stop($($receiver)*, failover: bool) -> $result {
                $self.perform(Verb::Stop { failover })
            }
        }
    };
}

impl Verbs {
    /// Reads what the framework keeps under `key`. Answered by [`Scheduler::state`](crate::Scheduler::state), like the next three.
    pub fn get(&mut self, key: impl Into<String>) {
        let key = key.into();
        self.perform(Verb::State(StateCall::Get { key }));
    }

    /// Keeps `value` under `key`, whatever is there.
    pub fn put(&mut self, key: impl Into<String>, value: Vec<u8>) {
        let key = key.into();
        self.perform(Verb::State(StateCall::Put { key, value }));
    }

    /// Keeps `value` under `key` if the version there is `expected`, 0 for a key that is not there.
    pub fn compare_and_set(&mut self, key: impl Into<String>, expected: u64, value: Vec<u8>) {
        let key = key.into();
        self.perform(Verb::State(StateCall::CompareAndSet {
            key,
            expected,
            value,
        }));
    }

    /// Keeps nothing under `key` any more; if a version is given, only if that is the one there.
    pub fn delete(&mut self, key: impl Into<String>, expected: Option<u64>) {
        let key = key.into();
        self.perform(Verb::State(StateCall::Delete { key, expected }));
    }
}

verbs!(Verbs, self, (&mut self), ());
verbs!(DriverRef, self, (&self), Result<(), TellError>);
