//! HTTP executors: authenticates their calls and handles them.
//!
//! Each call may use another connection, so each is authenticated anew by the token that the
//! executor was given at its start. Calls end in the same functions as the messages of native
//! executors. Events go to the [`ExecutorStream`] of the newest subscription.

pub mod stream;

use std::collections::BTreeSet;

use protocol::message::executor::ExecutorSubscribed;
use protocol::message::scheduler::FrameworkMessage;
use protocol::{ContainerId, ExecutorId, FrameworkId, Source, TaskId, TaskState, TaskStatus};
use resources::Invalid;
use runtime::prelude::*;

use self::stream::{ExecutorStream, StreamClosing, StreamOpened};
use super::Containerizer;
use super::machine::{Container, Phase};
use super::table::ContainerTable;
use crate::status::stream::{STATUS_BYTES_MAX, status_bytes};

/// The executor that a call claims to come from.
#[derive(Clone, Debug)]
pub struct ExecutorCaller {
    /// Framework of the executor.
    pub framework_id: FrameworkId,
    /// The executor.
    pub executor_id: ExecutorId,
    /// The token, if the call has one.
    pub token: Option<ExecutorToken>,
}

/// The content of an executor's token, `CONTAINER_ID.SECRET`. Opaque to the executor.
#[derive(Clone, PartialEq, Eq)]
pub struct ExecutorToken {
    container_id: ContainerId,
    secret: String,
}

impl std::fmt::Debug for ExecutorToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proof({})", self.container_id)
    }
}

impl ExecutorToken {
    /// Parses a token; `None` if it has another form.
    pub fn read(token: &str) -> Option<Self> {
        let (container, secret) = token.rsplit_once('.')?;
        Some(Self {
            container_id: ContainerId::new(container).ok()?,
            secret: secret.to_owned(),
        })
    }
}

/// The token of a container's executor.
pub(super) fn token(container: &Container) -> String {
    format!("{}.{}", container.id, container.token)
}

/// Why a call is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallRejected {
    /// Not authenticated.
    #[error("{problem}: expected the value of MESOS_EXECUTOR_AUTHENTICATION_TOKEN")]
    Unauthenticated {
        /// The problem with the token.
        problem: &'static str,
    },
    /// The token is another executor's.
    #[error(
        "framework_id `{framework_id}` and executor_id `{executor_id}`: the token belongs to another executor"
    )]
    WrongToken {
        /// The framework that the call names.
        framework_id: FrameworkId,
        /// The executor that the call names.
        executor_id: ExecutorId,
    },
    /// No executor of this framework runs here. The message is that of Mesos, which clients
    /// compare.
    #[error("Framework cannot be found")]
    UnknownFramework,
    /// There is no such executor of a framework that is here, likewise.
    #[error("Executor cannot be found")]
    UnknownExecutor,
    /// A command, which has no executor: the caller can only be an impostor.
    #[error(
        "executor_id `{executor_id}`: expected a custom executor; this is the id of a command, which has no executor"
    )]
    CommandExecutor {
        /// The executor.
        executor_id: ExecutorId,
    },
    /// The call is not allowed in the container's present state.
    #[error("{reason}")]
    NotAllowed {
        /// Why.
        reason: String,
    },
}

/// Checks a token before the body of the call is read. Succeeds without a token if none is
/// required.
#[derive(Message, Clone, Debug)]
#[rtype(result = "Result<(), CallRejected>")]
pub struct CheckToken {
    /// The token, if the call has one.
    pub token: Option<ExecutorToken>,
}

/// Subscribes an executor with this stream.
#[derive(Message, Debug)]
#[rtype(result = "Result<(), CallRejected>")]
pub struct SubscribeStream {
    /// The executor.
    pub caller: ExecutorCaller,
    /// Unacknowledged tasks that the executor has.
    pub tasks: BTreeSet<TaskId>,
    /// Unacknowledged updates.
    pub updates: Vec<TaskStatus>,
    /// Receives its events.
    pub stream: Handle<ExecutorStream>,
}

/// Any other call of an executor.
#[derive(Message, Clone, Debug)]
#[rtype(result = "Result<(), CallRejected>")]
pub struct ExecutorCalled {
    /// The executor.
    pub caller: ExecutorCaller,
    /// The content.
    pub call: ExecutorCall,
}

/// The content of a call other than SUBSCRIBE.
#[derive(Clone, Debug)]
pub enum ExecutorCall {
    /// UPDATE.
    Update(Box<TaskStatus>),
    /// MESSAGE, for the scheduler.
    Message(Vec<u8>),
    /// HEARTBEAT.
    Heartbeat,
}

/// Validates the status in an UPDATE.
pub fn check_update(status: &TaskStatus, caller: &ExecutorCaller) -> Result<(), Invalid> {
    let (framework, executor) = (&caller.framework_id, &caller.executor_id);
    if let Some(other) = status
        .executor_id
        .as_ref()
        .filter(|other| *other != executor)
    {
        return Err(Invalid::message(format!(
            "ExecutorID in Call: {executor} does not match ExecutorID in TaskStatus: {other}"
        )));
    }
    if status.source != Source::Executor {
        return Err(Invalid::message(format!(
            "Received Call from executor {executor} of framework {framework} with invalid source, expecting 'SOURCE_EXECUTOR'"
        )));
    }
    if status.state == TaskState::Staging {
        return Err(Invalid::message(format!(
            "Received TASK_STAGING from executor {executor} of framework {framework} which is not allowed"
        )));
    }
    let bytes = status_bytes(status);
    if bytes > STATUS_BYTES_MAX {
        let found = format!("{bytes} bytes");
        let expected = format!("at most {STATUS_BYTES_MAX} bytes of data, message and labels");
        return Err(Invalid::new("status", found, expected));
    }
    Ok(())
}

/// The container of the calling executor. Rejects command executors.
fn authenticate(
    table: &ContainerTable,
    caller: &ExecutorCaller,
    required: bool,
) -> Result<ContainerId, CallRejected> {
    let id = find_container(table, caller, required)?;
    match table.get(&id) {
        Some(container) if container.is_command || container.is_group() => {
            Err(CallRejected::CommandExecutor {
                executor_id: caller.executor_id.clone(),
            })
        }
        _ => Ok(id),
    }
}

/// The container that a call names. A token must match if there is one, `required` or not.
fn find_container(
    table: &ContainerTable,
    caller: &ExecutorCaller,
    required: bool,
) -> Result<ContainerId, CallRejected> {
    let (framework_id, executor_id) = (&caller.framework_id, &caller.executor_id);
    let Some((id, framework, container)) =
        container_of_token(table, caller.token.as_ref(), required)?
    else {
        let current = table.current(framework_id, executor_id);
        let id = current.ok_or(match table.has_framework(framework_id) {
            true => CallRejected::UnknownExecutor,
            false => CallRejected::UnknownFramework,
        })?;
        let is_recovering = |one: &Container| one.phase == Phase::Recovering;
        if table.get(&id).is_some_and(is_recovering) {
            // After recovery it is unknown whether this executor used HTTP; without a token a
            // caller could impersonate a native one.
            let problem =
                "the call has no token, and the executor is recovering after an agent restart";
            return Err(CallRejected::Unauthenticated { problem });
        }
        return Ok(id);
    };
    if framework != framework_id || container.executor.executor_id != *executor_id {
        return Err(CallRejected::WrongToken {
            framework_id: framework_id.clone(),
            executor_id: executor_id.clone(),
        });
    }
    Ok(id.clone())
}

/// The container and framework of a token. `Ok(None)` if there is no token and none is `required`.
fn container_of_token<'a>(
    table: &'a ContainerTable,
    token: Option<&'a ExecutorToken>,
    required: bool,
) -> Result<Option<(&'a ContainerId, &'a FrameworkId, &'a Container)>, CallRejected> {
    let Some(token) = token else {
        let problem = "the call has no token";
        return match required {
            true => Err(CallRejected::Unauthenticated { problem }),
            false => Ok(None),
        };
    };
    let found = table.entry(&token.container_id);
    let found = found.filter(|(_, container)| container.token_matches(&token.secret));
    let problem = "the token belongs to no executor that runs here";
    let (framework, container) = found.ok_or(CallRejected::Unauthenticated { problem })?;
    Ok(Some((&token.container_id, framework, container)))
}

impl Containerizer {
    fn authenticate(&self, caller: &ExecutorCaller) -> Result<ContainerId, CallRejected> {
        let required = self.config.settings.authenticate_http_executors;
        authenticate(&self.containers, caller, required)
    }

    /// Fills in the fields of a status that the agent knows. Keeps the container status if the
    /// executor sent one.
    fn fill_in(
        &self,
        id: &ContainerId,
        caller: &ExecutorCaller,
        mut status: TaskStatus,
        ctx: &Context<Self>,
    ) -> TaskStatus {
        status.executor_id = Some(caller.executor_id.clone());
        status.container_id.get_or_insert_with(|| id.clone());
        if status.timestamp.as_nanos() == 0 {
            status.timestamp = ctx.clock().wall();
        }
        status
    }

    /// Handles the unacknowledged updates of a subscription.
    fn handle_updates(
        &mut self,
        id: &ContainerId,
        caller: &ExecutorCaller,
        updates: Vec<TaskStatus>,
        ctx: &mut Context<Self>,
    ) {
        for status in updates {
            let status = self.fill_in(id, caller, status, ctx);
            self.handle_update(id, status, ctx);
        }
    }

    /// Ends the streams of a container after its processes are gone.
    pub(super) fn end_streams(&mut self, id: &ContainerId, ctx: &mut Context<Self>) {
        if !self.containers.get(id).is_some_and(Container::uses_http) {
            return;
        }
        let own = self
            .streams
            .iter()
            .filter(|(_, container)| *container == id);
        let own: Vec<Pid> = own.map(|(stream, _)| stream.clone()).collect();
        for stream in own {
            self.end_stream(&stream, ctx);
        }
    }

    /// Ends a stream that is no longer in use.
    fn end_stream(&mut self, stream: &Pid, ctx: &mut Context<Self>) {
        if self.streams.remove(stream).is_some() {
            ctx.unlink(stream);
            ctx.node().stop(stream);
        }
    }
}

impl Handler<CheckToken> for Containerizer {
    type Result = Result<(), CallRejected>;
    fn handle(&mut self, CheckToken { token }: CheckToken, _: &mut Context<Self>) -> Self::Result {
        let required = self.config.settings.authenticate_http_executors;
        container_of_token(&self.containers, token.as_ref(), required).map(drop)
    }
}

impl Handler<SubscribeStream> for Containerizer {
    type Result = Result<(), CallRejected>;
    fn handle(&mut self, subscribe: SubscribeStream, ctx: &mut Context<Self>) -> Self::Result {
        let SubscribeStream {
            caller,
            mut tasks,
            updates,
            stream,
        } = subscribe;
        let id = self.authenticate(&caller)?;
        tasks.extend(updates.iter().map(|status| status.task_id.clone()));
        let agent = self.agent.clone();
        let Some(container) = self.containers.get_mut(&id) else {
            let reason = "its container is gone".to_owned();
            return Err(CallRejected::NotAllowed { reason });
        };
        if container.phase == Phase::Terminating {
            // Its earlier stream may have broken before it read the SHUTDOWN event.
            let _ = stream.tell(StreamClosing); // Fails only if this stream has ended too.
            self.handle_updates(&id, &caller, updates, ctx);
            return Ok(());
        }
        let before = container.actor.clone();
        let (actor, executor) = (stream.pid(), container.executor.clone());
        let framework = container.framework.clone();
        let effects = container
            .subscribe_stream(actor.clone(), &tasks)
            .map_err(|refused| CallRejected::NotAllowed {
                reason: refused.reason,
            })?;
        if let Some(before) = before {
            tracing::info!(container = %id, "executor resubscribed");
            self.end_stream(&before, ctx);
        }
        self.streams.insert(actor.clone(), id.clone());
        ctx.link(&actor);
        let subscribed = ExecutorSubscribed {
            executor,
            framework,
            agent,
        };
        // Sent before the tasks, which follow from the effects.
        let welcome = StreamOpened {
            subscribed,
            container_id: id.clone(),
        };
        let _ = stream.tell(welcome); // Fails only if the stream has ended; its exit follows.
        self.with(&id, ctx, |_| effects);
        self.handle_updates(&id, &caller, updates, ctx);
        Ok(())
    }
}

impl Handler<ExecutorCalled> for Containerizer {
    type Result = Result<(), CallRejected>;
    fn handle(
        &mut self,
        ExecutorCalled { caller, call }: ExecutorCalled,
        ctx: &mut Context<Self>,
    ) -> Self::Result {
        let id = self.authenticate(&caller)?;
        let subscribed = self.containers.get(&id).is_some_and(Container::uses_http);
        if !subscribed {
            let reason = "Executor is not subscribed".to_owned(); // As in Mesos.
            return Err(CallRejected::NotAllowed { reason });
        }
        match call {
            ExecutorCall::Heartbeat => {}
            ExecutorCall::Update(status) => {
                let status = self.fill_in(&id, &caller, *status, ctx);
                self.handle_update(&id, status, ctx);
            }
            ExecutorCall::Message(data) => {
                if let Some(agent_id) = self.agent.id.clone() {
                    let message = FrameworkMessage {
                        framework_id: caller.framework_id,
                        agent_id,
                        executor_id: caller.executor_id,
                        data,
                    };
                    self.tell_scheduler(message, ctx);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{CommandInfo, ExecutorInfo, FrameworkInfo};
    use runtime::Timestamp;

    fn table() -> ContainerTable {
        let mut table = ContainerTable::default();
        for name in ["a", "b", "command"] {
            let executor = ExecutorInfo {
                executor_id: ExecutorId::new(name).unwrap(),
                kind: protocol::ExecutorKind::Custom,
                name: String::new(),
                command: CommandInfo::shell("executor"),
                resources: Default::default(),
                data: Vec::new(),
                shutdown_grace_period: None,
                labels: Default::default(),
                container: None,
            };
            let id = ContainerId::new(format!("c-{name}")).unwrap();
            let framework = FrameworkInfo::new("", "f");
            let secret = format!("secret-{name}");
            let container = Container::new(id, framework, executor, name == "command", secret);
            table.insert(&FrameworkId::new("f").unwrap(), container);
        }
        table
    }

    fn caller(executor: &str, token: Option<&str>) -> ExecutorCaller {
        ExecutorCaller {
            framework_id: FrameworkId::new("f").unwrap(),
            executor_id: ExecutorId::new(executor).unwrap(),
            token: token.map(|token| ExecutorToken::read(token).unwrap()),
        }
    }

    /// SPEC 3.7: an executor's identity is its token, not the ids in its call.
    #[test]
    fn executor_is_identified_by_its_token_alone() {
        let table = table();
        let find = |executor: &str, token: Option<&str>, required| {
            authenticate(&table, &caller(executor, token), required).map(|id| id.to_string())
        };
        let own = token(table.get(&ContainerId::new("c-a").unwrap()).unwrap());
        assert_eq!(find("a", Some(&own), true), Ok("c-a".to_owned()));
        assert!(matches!(
            find("b", Some(&own), true),
            Err(CallRejected::WrongToken { .. })
        ));
        for wrong in ["c-a.secret-b", "c-x.secret-a", "c-a."] {
            for required in [true, false] {
                let found = find("a", Some(wrong), required);
                assert!(
                    matches!(found, Err(CallRejected::Unauthenticated { .. })),
                    "{wrong}"
                );
            }
        }
        assert!(matches!(
            find("a", None, true),
            Err(CallRejected::Unauthenticated { .. })
        ));
        assert_eq!(find("b", None, false), Ok("c-b".to_owned()));
        let unknown = find("zz", None, false).map_err(|rejected| rejected.to_string());
        assert_eq!(unknown, Err("Executor cannot be found".to_owned()));
        assert_eq!(ExecutorToken::read("nothing"), None);
        assert_eq!(ExecutorToken::read("a/b.secret"), None);
        let debug = format!("{:?}", ExecutorToken::read(&own));
        assert!(!debug.contains("secret-a"), "{debug}");
    }

    /// Calls without a token are accepted, except in the name of a command executor.
    #[test]
    fn command_executor_cannot_be_impersonated_over_http() {
        let table = table();
        let own = token(table.get(&ContainerId::new("c-command").unwrap()).unwrap());
        for token in [None, Some(own.as_str())] {
            let found = authenticate(&table, &caller("command", token), false);
            assert!(
                matches!(found, Err(CallRejected::CommandExecutor { .. })),
                "{found:?}"
            );
        }
        let found = authenticate(&table, &caller("command", None), true);
        assert!(
            matches!(found, Err(CallRejected::Unauthenticated { .. })),
            "{found:?}"
        );
    }

    /// Otherwise any caller could take over the tasks of a native executor.
    #[test]
    fn recovering_executor_always_needs_its_token() {
        let mut table = table();
        let id = ContainerId::new("c-a").unwrap();
        let own = token(table.get(&id).unwrap());
        table.get_mut(&id).unwrap().phase = Phase::Recovering;
        let found = authenticate(&table, &caller("a", None), false);
        assert!(
            matches!(found, Err(CallRejected::Unauthenticated { .. })),
            "{found:?}"
        );
        assert_eq!(
            authenticate(&table, &caller("a", Some(&own)), false),
            Ok(id)
        );
    }

    /// SPEC 2.5: with the messages of Mesos.
    // Covers 2.5 UPDATE, MESSAGE, HEARTBEAT.
    #[test]
    fn invalid_status_is_rejected_with_its_reason() {
        let caller = ExecutorCaller {
            framework_id: FrameworkId::new("f").unwrap(),
            executor_id: ExecutorId::new("e").unwrap(),
            token: None,
        };
        let status = TaskStatus::new(
            TaskId::new("t").unwrap(),
            TaskState::Running,
            Source::Executor,
            Timestamp::default(),
        );
        assert_eq!(check_update(&status, &caller), Ok(()));
        let problem = |change: &dyn Fn(&mut TaskStatus)| {
            let mut status = status.clone();
            change(&mut status);
            check_update(&status, &caller).unwrap_err().to_string()
        };
        assert_eq!(
            problem(&|s| s.state = TaskState::Staging),
            "Received TASK_STAGING from executor e of framework f which is not allowed"
        );
        assert_eq!(
            problem(&|s| s.source = Source::Agent),
            "Received Call from executor e of framework f with invalid source, expecting 'SOURCE_EXECUTOR'"
        );
        let other = ExecutorId::new("other").unwrap();
        assert_eq!(
            problem(&|s| s.executor_id = Some(other.clone())),
            "ExecutorID in Call: e does not match ExecutorID in TaskStatus: other"
        );
        let large = problem(&|s| s.data = vec![0; STATUS_BYTES_MAX + 1]);
        assert!(large.starts_with("status is `"), "{large}");
    }
}
