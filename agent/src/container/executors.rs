//! What executors say to the containerizer: native ones over their socket, each from a node of its own.
//!
//! Each handler finds the container that the speaker is in and lets its machine decide. What those say that speak HTTP comes through
//! `callers`, and ends in the same functions. Whom an executor may speak for is decided here and there, never by what it claims.

use protocol::message::executor::{
    ExecutorRefused, ExecutorSubscribed, ExecutorUpdated, SubscribeExecutor,
};
use protocol::message::scheduler::FrameworkMessage;
use protocol::{ContainerId, StatusUpdate, TaskStatus};
use runtime::prelude::*;

use super::Containerizer;
use super::events::TaskClosed;
use super::keeping::UpdateRefused;
use super::machine::Heard;
use crate::status::{Forward, Repeated, TellClosed, TellRefused};

impl Containerizer {
    /// The executor in this container gives one of its tasks a state.
    pub(super) fn hear_update(
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
        let heard = match status.uuid {
            Some(uuid) if container.repeats(task, uuid) => Heard::Late,
            Some(_) => container.heard(task, status.state),
            None => Heard::Unknown,
        };
        match heard {
            Heard::New => {
                self.counts.valid_status_updates += 1;
                self.counts.note(status.state);
                self.forward(id, status, executor, ctx);
                self.forget_if_over(id);
            }
            // Executors are to say again what is not acknowledged.
            Heard::Late => {
                self.counts.valid_status_updates += 1;
                self.hear_again(id, status, executor);
            }
            Heard::Unknown => {
                self.counts.invalid_status_updates += 1;
                self.hear_again(id, status, executor);
            }
        }
    }

    /// A status that changes nothing: the executor need not keep it for ever, but one that was heard before it keeps until the agent does.
    fn hear_again(&self, id: &ContainerId, mut status: TaskStatus, executor: Option<Pid>) {
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
        let repeated = Repeated(Forward {
            update,
            executor,
            record,
        });
        if let Err(error) = self.status.tell(repeated) {
            tracing::warn!(%error, "a status update is not confirmed yet"); // Its executor says it again.
        }
    }

    /// Has the status updates tell which ends are acknowledged, and what they did not take.
    pub(super) fn follow_updates(&self, ctx: &Context<Self>) {
        let (closed, refused) = (ctx.handle(), ctx.handle());
        let tell_closed = Box::new(move |(framework_id, task_id)| {
            closed.tell_always(TaskClosed {
                framework_id,
                task_id,
            });
        });
        let tell_refused = Box::new(move |(framework_id, task_id), uuid| {
            refused.tell_always(UpdateRefused {
                framework_id,
                task_id,
                uuid,
            });
        });
        let _ = self.status.tell(TellClosed(tell_closed)); // If it is gone, so is the agent.
        let _ = self.status.tell(TellRefused(tell_refused));
    }

    /// Bytes from an executor, which is the one they say, for its scheduler. Without a master they are lost.
    pub(super) fn tell_scheduler(&mut self, message: FrameworkMessage, ctx: &Context<Self>) {
        let Some(master) = &self.master else {
            self.counts.invalid_framework_messages += 1;
            return;
        };
        self.counts.valid_framework_messages += 1;
        if let Err(error) = ctx.node().tell(master, message) {
            tracing::debug!(%error, "a framework message is lost");
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
        // An executor speaks for itself only.
        let own = self
            .speakers
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
            return Err(refused("the pid is not of the node that sends it"));
        }
        let container = self.containers.entry(&id).filter(|(framework, container)| {
            **framework == subscribe.framework_id
                && container.executor.executor_id == subscribe.executor_id
        });
        if container.is_none() {
            return Err(refused(
                "no such container, framework and executor are expected here",
            ));
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
            self.speakers.insert(node, id);
            ctx.link(&subscribe.pid);
        }
        answer
    }
}

impl Handler<ExecutorUpdated> for Containerizer {
    type Result = ();
    fn handle(&mut self, ExecutorUpdated { status }: ExecutorUpdated, ctx: &mut Context<Self>) {
        let Some(sender) = ctx.sender() else { return };
        match self.speakers.get(&sender.peer.node).cloned() {
            Some(id) => self.hear_update(&id, status, ctx),
            None => self.counts.invalid_status_updates += 1,
        }
    }
}

impl Handler<Exited> for Containerizer {
    type Result = ();
    fn handle(&mut self, exited: Exited, ctx: &mut Context<Self>) {
        let id = match exited.pid.node() == ctx.node().id() {
            true => self.streams.remove(&exited.pid),
            false => self.speakers.remove(exited.pid.node()),
        };
        let Some(id) = id.filter(|_| !self.is_departing()) else {
            return;
        };
        let grace = self.config.settings.executor_shutdown_grace_period;
        self.with(&id, ctx, |container| container.disconnected(grace));
    }
}
