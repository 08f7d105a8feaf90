//! Native executors: handles their messages, which arrive over a socket, each from a node of its
//! own.
//!
//! HTTP executors come through `http_executors` and end in the same functions. An executor's
//! identity is its node, never an id in its message.

use protocol::message::executor::{
    ExecutorRefused, ExecutorSubscribed, ExecutorUpdated, SubscribeExecutor,
};
use protocol::message::scheduler::FrameworkMessage;
use protocol::{ContainerId, StatusUpdate, TaskStatus};
use runtime::prelude::*;

use super::Containerizer;
use super::checkpointing::UpdateNotAccepted;
use super::events::TaskClosed;
use super::machine::UpdateOutcome;
use crate::status::{Forward, OnTaskClosed, OnUpdateRefused, RepeatedUpdate};

impl Containerizer {
    /// Handles a status update of the container's executor.
    pub(super) fn handle_update(
        &mut self,
        id: &ContainerId,
        status: TaskStatus,
        ctx: &mut Context<Self>,
    ) {
        let Some(container) = self.containers.get_mut(id) else {
            return;
        };
        let executor = container.actor.clone();
        let task = &status.task_id;
        let on_update = match status.uuid {
            Some(uuid) if container.repeats(task, uuid) => UpdateOutcome::Late,
            Some(_) => container.on_update(task, status.state),
            None => UpdateOutcome::Unknown,
        };
        match on_update {
            UpdateOutcome::New => {
                self.counts.valid_status_updates += 1;
                self.counts.note(status.state);
                self.forward(id, status, executor, ctx);
                self.lower_limits(id, ctx);
                self.forget_if_over(id);
            }
            // The executor repeats unacknowledged updates.
            UpdateOutcome::Late => {
                self.counts.valid_status_updates += 1;
                self.handle_repeated(id, status, executor);
            }
            UpdateOutcome::Unknown => {
                self.counts.invalid_status_updates += 1;
                self.handle_repeated(id, status, executor);
            }
        }
    }

    /// Confirms an update that changes nothing. A repeated one is confirmed only when the original
    /// is stored.
    fn handle_repeated(&self, id: &ContainerId, mut status: TaskStatus, executor: Option<Pid>) {
        let Some((framework, _)) = self.containers.entry(id) else {
            return;
        };
        let record = self.state_record(id, &status.task_id);
        status.agent_id = self.agent.id.clone();
        let update = StatusUpdate {
            framework_id: framework.clone(),
            latest_state: status.state,
            status,
        };
        let repeated = RepeatedUpdate(Forward {
            update,
            executor,
            record,
        });
        if let Err(error) = self.status.tell(repeated) {
            // The executor repeats it.
            tracing::warn!(%error, "status update not confirmed yet");
        }
    }

    /// Subscribes to acknowledged ends and refused updates.
    pub(super) fn follow_updates(&self, ctx: &Context<Self>) {
        let (closed, refused) = (ctx.handle(), ctx.handle());
        let tell_closed = Box::new(move |(framework_id, task_id)| {
            closed.tell_always(TaskClosed {
                framework_id,
                task_id,
            });
        });
        let tell_refused = Box::new(move |(framework_id, task_id), uuid| {
            refused.tell_always(UpdateNotAccepted {
                framework_id,
                task_id,
                uuid,
            });
        });
        // The status actor ends only with the agent.
        let _ = self.status.tell(OnTaskClosed(tell_closed));
        let _ = self.status.tell(OnUpdateRefused(tell_refused));
    }

    /// Forwards an authenticated executor's message to its scheduler. Dropped without a master.
    pub(super) fn tell_scheduler(&mut self, message: FrameworkMessage, ctx: &Context<Self>) {
        let Some(master) = &self.master else {
            self.counts.invalid_framework_messages += 1;
            return;
        };
        self.counts.valid_framework_messages += 1;
        if let Err(error) = ctx.node().tell(master, message) {
            tracing::debug!(%error, "framework message dropped");
        }
    }
}

impl Handler<FrameworkMessage> for Containerizer {
    type Result = ();
    fn handle(&mut self, message: FrameworkMessage, ctx: &mut Context<Self>) {
        let from_executor = ctx.sender().map(|sender| sender.peer.node.clone());
        let Some(node) = from_executor else {
            let to = self
                .containers
                .current(&message.framework_id, &message.executor_id);
            let to = to.filter(|id| {
                self.containers
                    .get(id)
                    .is_some_and(|container| container.actor.is_some())
            });
            match to {
                Some(id) => {
                    self.counts.valid_framework_messages += 1;
                    self.tell_executor(&id, message, ctx);
                }
                None => self.counts.invalid_framework_messages += 1,
            }
            return;
        };
        // An executor may only send as itself.
        let own = self
            .native_executors
            .get(&node)
            .and_then(|id| self.containers.entry(id));
        let own = own.is_some_and(|(framework, container)| {
            *framework == message.framework_id
                && container.executor.executor_id == message.executor_id
        });
        match own {
            true => self.tell_scheduler(message, ctx),
            false => self.counts.invalid_framework_messages += 1,
        }
    }
}

impl Handler<SubscribeExecutor> for Containerizer {
    type Result = Result<ExecutorSubscribed, ExecutorRefused>;
    fn handle(&mut self, subscribe: SubscribeExecutor, ctx: &mut Context<Self>) -> Self::Result {
        let refused = |reason: &str| ExecutorRefused {
            reason: reason.to_owned(),
        };
        let id = subscribe.container_id;
        let node = subscribe.pid.node().clone();
        if ctx.sender().is_some_and(|sender| sender.peer.node != node) {
            return Err(refused("the pid belongs to another node than the sender"));
        }
        let container = self.containers.entry(&id).filter(|(framework, container)| {
            **framework == subscribe.framework_id
                && container.executor.executor_id == subscribe.executor_id
        });
        if container.is_none() {
            return Err(refused("no such container of this framework and executor"));
        }
        let mut answer = Err(refused("its container is gone"));
        let (mut subscribed, agent) = (None, self.agent.clone());
        self.with(&id, ctx, |container| {
            match container.subscribe(&subscribe.token, subscribe.pid.clone()) {
                Ok(effects) => {
                    subscribed = Some(node);
                    answer = Ok(ExecutorSubscribed {
                        executor: container.executor.clone(),
                        framework: container.framework.clone(),
                        agent,
                    });
                    effects
                }
                Err(error) => {
                    answer = Err(error);
                    Vec::new()
                }
            }
        });
        if let Some(node) = subscribed {
            self.native_executors.insert(node, id);
            ctx.link(&subscribe.pid);
        }
        answer
    }
}

impl Handler<ExecutorUpdated> for Containerizer {
    type Result = ();
    fn handle(&mut self, ExecutorUpdated { status }: ExecutorUpdated, ctx: &mut Context<Self>) {
        let Some(sender) = ctx.sender() else { return };
        match self.native_executors.get(&sender.peer.node).cloned() {
            Some(id) => self.handle_update(&id, status, ctx),
            None => self.counts.invalid_status_updates += 1,
        }
    }
}

impl Handler<Exited> for Containerizer {
    type Result = ();
    fn handle(&mut self, exited: Exited, ctx: &mut Context<Self>) {
        let id = match exited.pid.node() == ctx.node().id() {
            true => self.streams.remove(&exited.pid),
            false => self.native_executors.remove(exited.pid.node()),
        };
        let Some(id) = id.filter(|_| !self.is_stopping()) else {
            return;
        };
        let grace = self.config.settings.executor_shutdown_grace_period;
        self.with(&id, ctx, |container| container.disconnected(grace));
    }
}
