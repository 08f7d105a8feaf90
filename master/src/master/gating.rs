//! Gating: an agent hears of an operation when the registry has it, and of nothing before that which was decided after it (SPEC 3.5).
//!
//! What one decision accepts for one agent is one change of the registry; what is over meanwhile is forgotten together, one change at a time. What the registry does
//! not take is void: the agent registers again, and the books take over what it has. Remembers the operators who wait for their answer.

use std::collections::{BTreeMap, VecDeque};

use protocol::AgentId;
use protocol::message::operator::OperationRefused;
use resources::Invalid;
use runtime::prelude::*;

use super::{Master, Phase, REGISTRY_RETRY};
use crate::accept::Unsent;
use crate::effects::{Effect, Effects, ToAgent};
use crate::gate::Gate;
use crate::registry::{Applied, RegistryError, RegistryOperation};

/// How many operations are in one change of the registry at most: as large as a record may be, they are within what the log takes.
const TOGETHER_MAX: usize = 32;
/// How many are forgotten in one change at most.
const FORGOTTEN_MAX: usize = 1_000;

type Key = (AgentId, u64);

/// What waits for the registry.
#[derive(Default)]
pub(super) struct Gating {
    gate: Gate,
    /// What was accepted in the turn that is being carried out.
    accepted: BTreeMap<(Pid, AgentId), Vec<u64>>,
    /// What is over.
    over: Vec<Key>,
    /// Whether the registry is being asked to forget.
    forgetting: bool,
    /// The operators who wait for the registry to have their operation.
    operators: BTreeMap<Key, Promise<Result<(), OperationRefused>>>,
}

fn not_accepted(why: &str) -> OperationRefused {
    let expected = format!("one that could be recorded: {why}");
    OperationRefused::Invalid(Invalid::new("operation", "this one", expected))
}

impl Master {
    /// Tells this agent, unless something is to be told to it first.
    pub(super) fn tell_agent_in_line(
        &mut self,
        pid: &Pid,
        message: ToAgent,
        ctx: &mut Context<Self>,
        queue: &mut VecDeque<Effect>,
    ) {
        // What is sent again was accepted before all that waits, and whoever is to register again or to stop need not wait.
        let overtakes = matches!(
            message,
            ToAgent::Apply(..) | ToAgent::RegisterAgain | ToAgent::ShutDown(_)
        );
        let passed = match overtakes {
            true => Ok(Some(message)),
            false => self.gating.gate.pass(pid, message),
        };
        match passed {
            Ok(Some(message)) => self.tell_agent(pid, message, ctx, queue),
            Ok(None) => {}
            Err(_) => self.overrun(pid, queue),
        }
    }

    /// More waits for an agent than may: it registers again.
    fn overrun(&mut self, pid: &Pid, queue: &mut VecDeque<Effect>) {
        tracing::warn!(agent = %pid, "too much waits for the registry to be told to an agent: it is to register again");
        let agent = self.books.agents.at(pid).map(|agent| agent.id.clone());
        if let Some(agent_id) = agent {
            let mut out = Effects::new();
            self.books_mut().not_applied(&agent_id, &mut out);
            queue.extend(out);
        }
    }

    /// The agent is to do this operation once the registry has it.
    pub(super) fn accept_operation(
        &mut self,
        pid: Pid,
        agent_id: AgentId,
        serial: u64,
        queue: &mut VecDeque<Effect>,
    ) {
        let closed = self.gating.gate.close(&pid, agent_id.clone(), serial);
        if closed.is_err() {
            self.overrun(&pid, queue);
        }
        let key = (pid, agent_id);
        self.gating.accepted.entry(key).or_default().push(serial);
    }

    /// Records what was accepted, at the end of a turn.
    pub(super) fn record_operations(&mut self, ctx: &mut Context<Self>) {
        for ((pid, agent_id), serials) in std::mem::take(&mut self.gating.accepted) {
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
            let entry = self.books.pending.get(&agent_id, *serial)?;
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
                self.change(ctx, |books, _, out| {
                    books.operations_recorded(agent_id, serials, out);
                });
                self.answer_operators(agent_id, serials, "it was dropped meanwhile");
                self.open_gate(pid, ctx);
            }
            Err(error @ (RegistryError::LostLeadership | RegistryError::Broken { .. })) => {
                self.step_down(&error, ctx);
            }
            Err(error) => {
                let reason = error.to_string();
                tracing::warn!(agent = %agent_id, %reason, "operations are not recorded");
                self.change(ctx, |books, _, out| {
                    books.operations_not_recorded(agent_id, serials, &reason, out);
                });
                self.answer_operators(agent_id, serials, &reason);
            }
        }
    }

    /// Operators hear whether their operations are accepted: those that are still under way, or done already.
    fn answer_operators(&mut self, agent_id: &AgentId, serials: &[u64], otherwise: &str) {
        for serial in serials {
            let Some(promise) = self.gating.operators.remove(&(agent_id.clone(), *serial)) else {
                continue;
            };
            let entry = self.books.pending.get(agent_id, *serial);
            promise.answer(match entry {
                Some(entry) if entry.recorded && !entry.over => Ok(()),
                _ => Err(not_accepted(otherwise)),
            });
        }
    }

    /// This operator waits for the operation of that serial to be accepted.
    pub(super) fn await_operation(
        &mut self,
        agent_id: AgentId,
        serial: u64,
        promise: Promise<Result<(), OperationRefused>>,
    ) {
        self.gating.operators.insert((agent_id, serial), promise);
    }

    /// Tells an agent what need not wait any more.
    fn open_gate(&mut self, pid: &Pid, ctx: &mut Context<Self>) {
        let mut out = Effects::new();
        if self.phase == Phase::Deposed {
            return;
        }
        let books = std::sync::Arc::make_mut(&mut self.books);
        let released = self.gating.gate.release(pid, |agent_id, serial| {
            books.released(agent_id, serial, &mut out)
        });
        let mut queue = VecDeque::new();
        for message in released {
            self.tell_agent(pid, message, ctx, &mut queue);
        }
        queue.extend(out);
        self.perform(queue.into(), ctx);
        self.changed();
    }

    /// What waits to be told to this agent never is: tasks among it never run.
    pub(super) fn void_line(
        &mut self,
        pid: &Pid,
        ctx: &mut Context<Self>,
        queue: &mut VecDeque<Effect>,
    ) {
        for message in self.gating.gate.clear(pid) {
            if let ToAgent::Run(tasks) = message {
                self.not_launched(Unsent::of(&tasks), ctx, queue);
            }
        }
    }

    /// The registry is to forget this operation, with all that are over by then.
    pub(super) fn forget_operation(&mut self, agent_id: AgentId, serial: u64) {
        self.gating.over.push((agent_id, serial));
    }

    /// Has the registry forget what is over, unless it is asked to already: then when it has answered.
    pub(super) fn forget_operations(&mut self, ctx: &mut Context<Self>) {
        if self.gating.forgetting || self.gating.over.is_empty() {
            return;
        }
        self.gating.forgetting = true;
        let count = self.gating.over.len().min(FORGOTTEN_MAX);
        let over: Vec<_> = self.gating.over.drain(..count).collect();
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
                tracing::warn!(%error, "operations that are over are not forgotten yet");
                ctx.after(REGISTRY_RETRY, move |master, ctx| master.forget(over, ctx));
            }
            Ok(_) => {
                master.gating.forgetting = false;
                master.change(ctx, |books, _, out| {
                    for (agent_id, serial) in over {
                        books.operation_forgotten(&agent_id, serial, out);
                    }
                });
                master.forget_operations(ctx);
            }
        });
    }
}
