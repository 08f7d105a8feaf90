//! Executors that speak HTTP: who calls, and what the containerizer makes of what they say (SPEC 2.5).
//!
//! A call is on a connection of its own, so each proves anew who says it, by the token that its executor was given at its start. What it says
//! ends where the words of native executors do. What executors are told goes to the [`ExecutorStream`] that they subscribed with last.

use std::collections::BTreeSet;

use protocol::message::executor::ExecutorSubscribed;
use protocol::message::scheduler::FrameworkMessage;
use protocol::{ContainerId, ExecutorId, FrameworkId, Source, TaskId, TaskState, TaskStatus};
use resources::Invalid;
use runtime::prelude::*;

use super::Containerizer;
use super::machine::{Container, Phase};
use super::stream::{ExecutorStream, Farewell, Welcome};
use super::table::Table;
use crate::status::stream::{STATUS_BYTES_MAX, status_bytes};

/// Who says that it calls.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Whose executor.
    pub framework_id: FrameworkId,
    /// Which.
    pub executor_id: ExecutorId,
    /// The proof, if there is one.
    pub proof: Option<Proof>,
}

/// What is in the token of an executor: `CONTAINER_ID.SECRET`. To the executor it is only a text.
#[derive(Clone, PartialEq, Eq)]
pub struct Proof {
    container_id: ContainerId,
    secret: String,
}

impl std::fmt::Debug for Proof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proof({})", self.container_id)
    }
}

impl Proof {
    /// What a token says; `None` if it is no token of ours.
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

/// A call that is not obeyed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotHeard {
    /// Who calls has not proved who it is.
    #[error("{problem}: expected the value of MESOS_EXECUTOR_AUTHENTICATION_TOKEN")]
    Unproved {
        /// What is wrong with the token.
        problem: &'static str,
    },
    /// It is somebody else than it says.
    #[error(
        "framework_id `{framework_id}` and executor_id `{executor_id}`: the token is another executor's"
    )]
    Another {
        /// Whose executor it says that it is.
        framework_id: FrameworkId,
        /// Which executor it says that it is.
        executor_id: ExecutorId,
    },
    /// There is no such executor.
    #[error(
        "framework_id `{framework_id}` and executor_id `{executor_id}`: expected those of an executor that runs here"
    )]
    Unknown {
        /// Whose executor.
        framework_id: FrameworkId,
        /// Which.
        executor_id: ExecutorId,
    },
    /// It is the agent's own, which speaks over its socket: whoever says over HTTP that it is that executor is somebody else.
    #[error(
        "executor_id `{executor_id}`: expected an executor of the framework's own; this one is the agent's, and is not heard over HTTP"
    )]
    Native {
        /// Which.
        executor_id: ExecutorId,
    },
    /// It may not say this now.
    #[error("the executor is not heard: {reason}")]
    NotNow {
        /// Why.
        reason: String,
    },
}

/// Is this the token of an executor that runs here, or is none needed? Asked before any more of a call is read than its head.
#[derive(Message, Clone, Debug)]
#[rtype(result = "Result<(), NotHeard>")]
pub struct Prove {
    /// The proof, if there is one.
    pub proof: Option<Proof>,
}

/// An executor subscribes, and hears with this stream from now on.
#[derive(Message, Debug)]
#[rtype(result = "Result<(), NotHeard>")]
pub struct SubscribeStream {
    /// Who.
    pub caller: Caller,
    /// Tasks that it has.
    pub tasks: BTreeSet<TaskId>,
    /// Statuses of which it does not know whether they were heard.
    pub updates: Vec<TaskStatus>,
    /// Where it hears.
    pub stream: Handle<ExecutorStream>,
}

/// An executor says something.
#[derive(Message, Clone, Debug)]
#[rtype(result = "Result<(), NotHeard>")]
pub struct Speak {
    /// Who.
    pub caller: Caller,
    /// What.
    pub words: Words,
}

/// What an executor says beside that it is there.
#[derive(Clone, Debug)]
pub enum Words {
    /// A task has a new state.
    Update(Box<TaskStatus>),
    /// Bytes for its scheduler.
    Message(Vec<u8>),
    /// It still lives.
    Heartbeat,
}

/// A status as an executor may give it (SPEC 2.5).
pub fn check_update(status: &TaskStatus, executor: &ExecutorId) -> Result<(), Invalid> {
    if status.state == TaskState::Staging {
        let expected = "a state that an executor can give, as TASK_RUNNING";
        return Err(Invalid::new("status.state", status.state, expected));
    }
    if status.source != Source::Executor {
        let expected = "SOURCE_EXECUTOR, or nothing";
        return Err(Invalid::new("status.source", status.source, expected));
    }
    let bytes = status_bytes(status);
    if bytes > STATUS_BYTES_MAX {
        let found = format!("{bytes} bytes");
        let expected = format!("at most {STATUS_BYTES_MAX} bytes of data, message and labels");
        return Err(Invalid::new("status", found, expected));
    }
    match &status.executor_id {
        Some(other) if other != executor => {
            let expected = format!("`{executor}`, who says it, or nothing");
            Err(Invalid::new("status.executor_id", other, expected))
        }
        _ => Ok(()),
    }
}

/// In which container whoever calls is; it is none of our command executors.
fn recognise(table: &Table, caller: &Caller, required: bool) -> Result<ContainerId, NotHeard> {
    let id = named(table, caller, required)?;
    match table.get(&id) {
        Some(container) if container.is_command => Err(NotHeard::Native {
            executor_id: caller.executor_id.clone(),
        }),
        _ => Ok(id),
    }
}

/// Which container whoever calls names. With a token it must be the right one, whether one is `required` or not.
fn named(table: &Table, caller: &Caller, required: bool) -> Result<ContainerId, NotHeard> {
    let (framework_id, executor_id) = (&caller.framework_id, &caller.executor_id);
    let Some((id, framework, container)) = proved(table, caller.proof.as_ref(), required)? else {
        let current = table.current(framework_id, executor_id);
        let id = current.ok_or_else(|| NotHeard::Unknown {
            framework_id: framework_id.clone(),
            executor_id: executor_id.clone(),
        })?;
        let is_recovering = |one: &Container| one.phase == Phase::Recovering;
        if table.get(&id).is_some_and(is_recovering) {
            // Nobody knows any more whether it spoke HTTP: one that spoke over its socket must not be stood for.
            let problem = "the call bears no token, and the executor is one of an earlier process of the agent";
            return Err(NotHeard::Unproved { problem });
        }
        return Ok(id);
    };
    if framework != framework_id || container.executor.executor_id != *executor_id {
        return Err(NotHeard::Another {
            framework_id: framework_id.clone(),
            executor_id: executor_id.clone(),
        });
    }
    Ok(id.clone())
}

/// The container that a token is of, and whose framework it is. Nothing if there is no token and none is `required`.
fn proved<'a>(
    table: &'a Table,
    proof: Option<&'a Proof>,
    required: bool,
) -> Result<Option<(&'a ContainerId, &'a FrameworkId, &'a Container)>, NotHeard> {
    let Some(proof) = proof else {
        let problem = "the call bears no token";
        return match required {
            true => Err(NotHeard::Unproved { problem }),
            false => Ok(None),
        };
    };
    let found = table.entry(&proof.container_id);
    let found = found.filter(|(_, container)| container.is_proved_by(&proof.secret));
    let problem = "the token is of no executor that runs here";
    let (framework, container) = found.ok_or(NotHeard::Unproved { problem })?;
    Ok(Some((&proof.container_id, framework, container)))
}

impl Containerizer {
    fn recognise(&self, caller: &Caller) -> Result<ContainerId, NotHeard> {
        let required = self.config.settings.authenticate_http_executors;
        recognise(&self.containers, caller, required)
    }

    /// Fills in what is known of whoever gives a status, whatever it says, but for its container: of that it may say more.
    fn complete(
        &self,
        id: &ContainerId,
        caller: &Caller,
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

    /// What an executor says again when it subscribes.
    fn hear_updates(
        &mut self,
        id: &ContainerId,
        caller: &Caller,
        updates: Vec<TaskStatus>,
        ctx: &mut Context<Self>,
    ) {
        for status in updates {
            let status = self.complete(id, caller, status, ctx);
            self.hear_update(id, status, ctx);
        }
    }

    /// The processes of this container are gone: whoever still holds an end of its stream is none of them.
    pub(super) fn end_streams(&mut self, id: &ContainerId, ctx: &mut Context<Self>) {
        if !self.containers.get(id).is_some_and(Container::is_streamed) {
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

    /// Ends a stream with which nobody is spoken to any more.
    fn end_stream(&mut self, stream: &Pid, ctx: &mut Context<Self>) {
        if self.streams.remove(stream).is_some() {
            ctx.unlink(stream);
            ctx.node().stop(stream);
        }
    }
}

impl Handler<Prove> for Containerizer {
    type Result = Result<(), NotHeard>;
    fn handle(&mut self, Prove { proof }: Prove, _: &mut Context<Self>) -> Self::Result {
        let required = self.config.settings.authenticate_http_executors;
        proved(&self.containers, proof.as_ref(), required).map(drop)
    }
}

impl Handler<SubscribeStream> for Containerizer {
    type Result = Result<(), NotHeard>;
    fn handle(&mut self, subscribe: SubscribeStream, ctx: &mut Context<Self>) -> Self::Result {
        let SubscribeStream {
            caller,
            mut tasks,
            updates,
            stream,
        } = subscribe;
        let id = self.recognise(&caller)?;
        tasks.extend(updates.iter().map(|status| status.task_id.clone()));
        let agent = self.agent.clone();
        let Some(container) = self.containers.get_mut(&id) else {
            let reason = "its container is gone".to_owned();
            return Err(NotHeard::NotNow { reason });
        };
        if container.phase == Phase::Terminating {
            // The stream that it heard with may have broken before it read that it should end.
            let _ = stream.tell(Farewell); // One that has ended already has nobody to tell.
            self.hear_updates(&id, &caller, updates, ctx);
            return Ok(());
        }
        let before = container.actor.clone();
        let (actor, executor) = (stream.pid(), container.executor.clone());
        let framework = container.framework.clone();
        let effects = container
            .subscribe_stream(actor.clone(), &tasks)
            .map_err(|refused| NotHeard::NotNow {
                reason: refused.reason,
            })?;
        if let Some(before) = before {
            tracing::info!(container = %id, "its executor has subscribed anew");
            self.end_stream(&before, ctx);
        }
        self.streams.insert(actor.clone(), id.clone());
        ctx.link(&actor);
        let subscribed = ExecutorSubscribed {
            executor,
            framework,
            agent,
        };
        // Before its tasks, which follow from the effects.
        let welcome = Welcome {
            subscribed,
            container_id: id.clone(),
        };
        let _ = stream.tell(welcome); // One that has ended already is told in a moment.
        self.with(&id, ctx, |_| effects);
        self.hear_updates(&id, &caller, updates, ctx);
        Ok(())
    }
}

impl Handler<Speak> for Containerizer {
    type Result = Result<(), NotHeard>;
    fn handle(&mut self, Speak { caller, words }: Speak, ctx: &mut Context<Self>) -> Self::Result {
        let id = self.recognise(&caller)?;
        let subscribed = self.containers.get(&id).is_some_and(Container::is_streamed);
        if !subscribed {
            let reason = "it has not subscribed".to_owned();
            return Err(NotHeard::NotNow { reason });
        }
        match words {
            Words::Heartbeat => {}
            Words::Update(status) => {
                let status = self.complete(&id, &caller, *status, ctx);
                self.hear_update(&id, status, ctx);
            }
            Words::Message(data) => {
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

    fn table() -> Table {
        let mut table = Table::default();
        for name in ["a", "b", "command"] {
            let executor = ExecutorInfo {
                executor_id: ExecutorId::new(name).unwrap(),
                name: String::new(),
                command: CommandInfo::shell("executor"),
                resources: Default::default(),
                data: Vec::new(),
                shutdown_grace_period: None,
                labels: Default::default(),
            };
            let id = ContainerId::new(format!("c.{name}")).unwrap();
            let framework = FrameworkInfo::new("", "f");
            let secret = format!("secret-{name}");
            let container = Container::new(id, framework, executor, name == "command", secret);
            table.insert(&FrameworkId::new("f").unwrap(), container);
        }
        table
    }

    fn caller(executor: &str, token: Option<&str>) -> Caller {
        Caller {
            framework_id: FrameworkId::new("f").unwrap(),
            executor_id: ExecutorId::new(executor).unwrap(),
            proof: token.map(|token| Proof::read(token).unwrap()),
        }
    }

    /// SPEC 3.7: an executor is who its token says, whatever its call says.
    #[test]
    fn an_executor_is_known_by_its_token_alone() {
        let table = table();
        let find = |executor: &str, token: Option<&str>, required| {
            recognise(&table, &caller(executor, token), required).map(|id| id.to_string())
        };
        let own = token(table.get(&ContainerId::new("c.a").unwrap()).unwrap());
        assert_eq!(find("a", Some(&own), true), Ok("c.a".to_owned()));
        assert!(matches!(
            find("b", Some(&own), true),
            Err(NotHeard::Another { .. })
        ));
        for wrong in ["c.a.secret-b", "c.x.secret-a", "c.a."] {
            for required in [true, false] {
                let found = find("a", Some(wrong), required);
                assert!(matches!(found, Err(NotHeard::Unproved { .. })), "{wrong}");
            }
        }
        assert!(matches!(
            find("a", None, true),
            Err(NotHeard::Unproved { .. })
        ));
        assert_eq!(find("b", None, false), Ok("c.b".to_owned()));
        assert!(matches!(
            find("zz", None, false),
            Err(NotHeard::Unknown { .. })
        ));
        assert_eq!(Proof::read("nothing"), None);
        assert_eq!(Proof::read("a/b.secret"), None);
        let debug = format!("{:?}", Proof::read(&own));
        assert!(!debug.contains("secret-a"), "{debug}");
    }

    /// A call without a token is believed, but for what only the agent's own program can say.
    #[test]
    fn nobody_stands_for_a_command_executor_over_http() {
        let table = table();
        let own = token(table.get(&ContainerId::new("c.command").unwrap()).unwrap());
        for proof in [None, Some(own.as_str())] {
            let found = recognise(&table, &caller("command", proof), false);
            assert!(matches!(found, Err(NotHeard::Native { .. })), "{found:?}");
        }
        let found = recognise(&table, &caller("command", None), true);
        assert!(matches!(found, Err(NotHeard::Unproved { .. })), "{found:?}");
    }

    /// Else whoever speaks first has the tasks of an executor that speaks over its socket.
    #[test]
    fn an_executor_of_an_earlier_process_proves_itself_in_any_case() {
        let mut table = table();
        let id = ContainerId::new("c.a").unwrap();
        let own = token(table.get(&id).unwrap());
        table.get_mut(&id).unwrap().phase = Phase::Recovering;
        let found = recognise(&table, &caller("a", None), false);
        assert!(matches!(found, Err(NotHeard::Unproved { .. })), "{found:?}");
        assert_eq!(recognise(&table, &caller("a", Some(&own)), false), Ok(id));
    }

    /// SPEC 2.5.
    #[test]
    fn a_status_that_no_executor_can_give_is_refused_by_its_field() {
        let executor = ExecutorId::new("e").unwrap();
        let task = TaskId::new("t").unwrap();
        let status = TaskStatus::new(
            task,
            TaskState::Running,
            Source::Executor,
            Timestamp::default(),
        );
        assert_eq!(check_update(&status, &executor), Ok(()));
        let field = |change: &dyn Fn(&mut TaskStatus)| {
            let mut status = status.clone();
            change(&mut status);
            check_update(&status, &executor).unwrap_err().field
        };
        assert_eq!(field(&|s| s.state = TaskState::Staging), "status.state");
        assert_eq!(field(&|s| s.source = Source::Agent), "status.source");
        let other = ExecutorId::new("other").unwrap();
        assert_eq!(
            field(&|s| s.executor_id = Some(other.clone())),
            "status.executor_id"
        );
        assert_eq!(field(&|s| s.data = vec![0; STATUS_BYTES_MAX + 1]), "status");
    }
}
