//! Ordering of operations: an agent is sent an operation once the registry has it, and later
//! messages after that.
//!
//! All operations that one decision accepts for one agent are one change of the registry;
//! operations that end meanwhile are forgotten together, one change at a time. If the registry
//! refuses, the operation is void: the agent registers again, and the state takes over its
//! resources. Also holds the operators who wait for an answer.

use std::collections::{BTreeMap, VecDeque};

use protocol::AgentId;
use protocol::message::operator::OperationRefused;
use resources::Invalid;
use runtime::prelude::*;

use super::{Master, Phase, REGISTRY_RETRY};
use crate::offers::accept::UnsentTasks;
use crate::operations::commit_barrier::CommitBarrier;
use crate::registry::{Applied, RegistryError, RegistryOperation};
use crate::state::effects::{Effect, Effects, ToAgent};

/// Maximum operations in one change of the registry. Even with the largest records the change stays
/// within the limit of the log.
const TOGETHER_MAX: usize = 32;
/// Maximum operations that are forgotten in one change.
const FORGOTTEN_MAX: usize = 1_000;

type Key = (AgentId, u64);

/// Operations that wait for the registry.
#[derive(Default)]
pub(super) struct PendingCommits {
    barrier: CommitBarrier,
    /// Operations accepted in the current turn.
    accepted: BTreeMap<(Pid, AgentId), Vec<u64>>,
    /// Operations that are over.
    over: Vec<Key>,
    /// Whether the registry is being asked to forget operations.
    forgetting: bool,
    /// Operators waiting for the record of their operation.
    operators: BTreeMap<Key, Promise<Result<(), OperationRefused>>>,
}

fn not_accepted(why: &str) -> OperationRefused {
    let expected = format!("one that could be recorded: {why}");
    OperationRefused::Invalid(Invalid::new("operation", "this one", expected))
}

impl Master {
    /// Sends a message to this agent, or queues it behind earlier ones.
    pub(super) fn tell_agent_in_order(
        &mut self,
        pid: &Pid,
        message: ToAgent,
        ctx: &mut Context<Self>,
        queue: &mut VecDeque<Effect>,
    ) {
        // A resent operation was accepted before everything in the queue; orders to register again
        // or to stop need not wait.
        let overtakes = matches!(
            message,
            ToAgent::Apply(..) | ToAgent::RegisterAgain | ToAgent::ShutDown(_)
        );
        let passed = match overtakes {
            true => Ok(Some(message)),
            false => self.commits.barrier.pass(pid, message),
        };
        match passed {
            Ok(Some(message)) => self.tell_agent(pid, message, ctx, queue),
            Ok(None) => {}
            Err(_) => self.queue_full(pid, queue),
        }
    }

    /// The queue of an agent is full: the agent must register again.
    fn queue_full(&mut self, pid: &Pid, queue: &mut VecDeque<Effect>) {
        tracing::warn!(agent = %pid, "queue of an agent is full; it must register again");
        let agent = self.state.agents.at(pid).map(|agent| agent.id.clone());
        if let Some(agent_id) = agent {
            let mut out = Effects::new();
            self.state_mut().not_applied(&agent_id, &mut out);
            queue.extend(out);
        }
    }

    /// Queues an operation for its agent until the registry has it.
    pub(super) fn accept_operation(
        &mut self,
        pid: Pid,
        agent_id: AgentId,
        serial: u64,
        queue: &mut VecDeque<Effect>,
    ) {
        let closed = self.commits.barrier.close(&pid, agent_id.clone(), serial);
        if closed.is_err() {
            self.queue_full(&pid, queue);
        }
        let key = (pid, agent_id);
        self.commits.accepted.entry(key).or_default().push(serial);
    }

    /// Records the accepted operations at the end of a turn.
    pub(super) fn record_operations(&mut self, ctx: &mut Context<Self>) {
        for ((pid, agent_id), serials) in std::mem::take(&mut self.commits.accepted) {
            for serials in serials.chunks(TOGETHER_MAX) {
                self.record_for(pid.clone(), agent_id.clone(), serials.to_vec(), ctx);
            }
        }
    }

    fn record_for(
        &mut self,
        pid: Pid,
        agent_id: AgentId,
        serials: Vec<u64>,
        ctx: &mut Context<Self>,
    ) {
        let operation = |serial: &u64| {
            let entry = self.state.pending.get(&agent_id, *serial)?;
            Some((*serial, entry.operation.as_ref().clone()))
        };
        let operation = RegistryOperation::AcceptOperations {
            operations: serials.iter().filter_map(operation).collect(),
            agent_id: agent_id.clone(),
        };
        let applied = self.registry.apply(operation);
        ctx.then(applied, move |master, applied, ctx| {
            master.operations_answered(&pid, &agent_id, &serials, applied, ctx);
        });
    }

    fn operations_answered(
        &mut self,
        pid: &Pid,
        agent_id: &AgentId,
        serials: &[u64],
        applied: Result<Applied, RegistryError>,
        ctx: &mut Context<Self>,
    ) {
        match applied {
            Ok(_) => {
                self.change(ctx, |state, _, out| {
                    state.operations_recorded(agent_id, serials, out);
                });
                self.answer_operators(agent_id, serials, "it was dropped meanwhile");
                self.release_queue(pid, ctx);
            }
            Err(error @ (RegistryError::LostLeadership | RegistryError::Broken { .. })) => {
                self.step_down(&error, ctx);
            }
            Err(error) => {
                let reason = error.to_string();
                tracing::warn!(agent = %agent_id, %reason, "cannot record operations");
                self.change(ctx, |state, _, out| {
                    state.operations_not_recorded(agent_id, serials, &reason, out);
                });
                self.answer_operators(agent_id, serials, &reason);
            }
        }
    }

    /// Answers the operators of these operations: accepted if they are under way or already done.
    fn answer_operators(&mut self, agent_id: &AgentId, serials: &[u64], otherwise: &str) {
        for serial in serials {
            let Some(promise) = self.commits.operators.remove(&(agent_id.clone(), *serial)) else {
                continue;
            };
            let entry = self.state.pending.get(agent_id, *serial);
            promise.answer(match entry {
                Some(entry) if entry.recorded && !entry.over => Ok(()),
                _ => Err(not_accepted(otherwise)),
            });
        }
    }

    /// Registers an operator that waits until the operation with that serial is accepted.
    pub(super) fn await_operation(
        &mut self,
        agent_id: AgentId,
        serial: u64,
        promise: Promise<Result<(), OperationRefused>>,
    ) {
        self.commits.operators.insert((agent_id, serial), promise);
    }

    /// Sends an agent the messages that need not wait any more.
    fn release_queue(&mut self, pid: &Pid, ctx: &mut Context<Self>) {
        let mut out = Effects::new();
        if self.phase == Phase::Deposed {
            return;
        }
        let state = std::sync::Arc::make_mut(&mut self.state);
        let released = self.commits.barrier.release(pid, |agent_id, serial| {
            state.released(agent_id, serial, &mut out)
        });
        let mut queue = VecDeque::new();
        for message in released {
            self.tell_agent(pid, message, ctx, &mut queue);
        }
        queue.extend(out);
        self.perform(queue.into(), ctx);
        self.changed();
    }

    /// Drops the messages queued for this agent: their tasks never run.
    pub(super) fn drop_queue(
        &mut self,
        pid: &Pid,
        ctx: &mut Context<Self>,
        queue: &mut VecDeque<Effect>,
    ) {
        for message in self.commits.barrier.clear(pid) {
            if let ToAgent::Run(tasks) = message {
                self.not_launched(UnsentTasks::of(&tasks), ctx, queue);
            }
        }
    }

    /// Queues an operation that the registry is to forget.
    pub(super) fn forget_operation(&mut self, agent_id: AgentId, serial: u64) {
        self.commits.over.push((agent_id, serial));
    }

    /// Makes the registry forget the queued operations, unless a request is pending; then they
    /// follow it.
    pub(super) fn forget_operations(&mut self, ctx: &mut Context<Self>) {
        if self.commits.forgetting || self.commits.over.is_empty() {
            return;
        }
        self.commits.forgetting = true;
        let count = self.commits.over.len().min(FORGOTTEN_MAX);
        let over: Vec<_> = self.commits.over.drain(..count).collect();
        self.forget(over, ctx);
    }

    fn forget(&mut self, over: Vec<Key>, ctx: &mut Context<Self>) {
        let operations = over.clone();
        let applied = self
            .registry
            .apply(RegistryOperation::ForgetOperations { operations });
        ctx.then(applied, move |master, applied, ctx| match applied {
            Err(error @ (RegistryError::LostLeadership | RegistryError::Broken { .. })) => {
                master.step_down(&error, ctx);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot forget operations that are over yet");
                ctx.after(REGISTRY_RETRY, move |master, ctx| master.forget(over, ctx));
            }
            Ok(_) => {
                master.commits.forgetting = false;
                master.change(ctx, |state, _, out| {
                    for (agent_id, serial) in over {
                        state.operation_forgotten(&agent_id, serial, out);
                    }
                });
                master.forget_operations(ctx);
            }
        });
    }
}
