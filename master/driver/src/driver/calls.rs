//! Calls: what the framework wants of the master, and how it is made to arrive (S132, W17).
//!
//! All calls go through one courier, in order. What a master has not said that it handled is said again to the next one, once the
//! driver is subscribed there; what cannot be delivered comes back to the scheduler. Two kinds do not wait for a master: tasks
//! launched without one are lost, since their offers are void, and so are declines and bytes for executors. Remembers nothing
//! itself; never decides what a framework wants.

use protocol::message::scheduler::{
    AcceptInverseOffers, DeclineInverseOffers, ReconcileOperations,
};
use runtime::delivery::{DeliveryError, Receipt};

use super::*;
use crate::scheduler::Undelivered;

/// How long a tear-down may take to reach a master, connected or not, before the driver gives up and ends.
pub(super) const TEAR_DOWN_PATIENCE: Duration = Duration::from_secs(10);
/// How long a driver that is stopped waits until the master has heard what was said before.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// A call could not be delivered, or tasks not launched: the scheduler is to be told, by way of the mailbox, so that one that
/// says it again at once does not keep the driver from finding a master.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) enum Failed {
    Call(Undelivered),
    Launch {
        tasks: Vec<(TaskId, AgentId)>,
        operations: Vec<protocol::OperationId>,
        reason: String,
    },
}

impl<S: Scheduler> Driver<S> {
    /// Gives a call to the courier. It is taken also while there is no master, but not before the framework has an id.
    fn call_master<M: Remote<Result = ()>>(
        &self,
        message: impl FnOnce(FrameworkId) -> M,
    ) -> Result<Receipt, DeliveryError> {
        let (Some(courier), Some(id)) = (&self.courier, &self.plan.framework.id) else {
            let reason = "the framework has not been subscribed yet".to_owned();
            return Err(DeliveryError::Refused { reason });
        };
        courier.send(message(id.clone()))
    }

    /// Says something of which nobody needs to know how it ends: if it fails, it is in the log and in the node's counters.
    pub(super) fn say<M: Remote<Result = ()>>(&self, message: impl FnOnce(FrameworkId) -> M) {
        if let Err(error) = self.call_master(message) {
            debug!(message = M::NAME, %error, "the master is not told");
        }
    }

    fn is_subscribed(&self) -> bool {
        matches!(self.phase, Phase::Subscribed { .. })
    }

    pub(super) fn perform(&mut self, verb: Verb, ctx: &mut Context<Self>) {
        if self.leaving || matches!(self.phase, Phase::Ending) {
            return; // It has said its last word.
        }
        if self.waits_for_its_turn() {
            return self.perform_standing_by(verb, ctx);
        }
        match verb {
            Verb::Accept {
                offers,
                operations,
                filters,
            } => self.accept(offers, operations, filters, ctx),
            Verb::Decline {
                offers: offer_ids,
                filters,
            } if self.is_subscribed() => self.say(|framework_id| DeclineOffers {
                framework_id,
                offer_ids,
                filters,
            }),
            Verb::AcceptInverse {
                offers: inverse_offer_ids,
                filters,
            } if self.is_subscribed() => self.say(|framework_id| AcceptInverseOffers {
                framework_id,
                inverse_offer_ids,
                filters,
            }),
            Verb::DeclineInverse {
                offers: inverse_offer_ids,
                filters,
            } if self.is_subscribed() => self.say(|framework_id| DeclineInverseOffers {
                framework_id,
                inverse_offer_ids,
                filters,
            }),
            Verb::Decline { .. } | Verb::AcceptInverse { .. } | Verb::DeclineInverse { .. } => {
                debug!("offers of a lost master are void anyway");
            }
            Verb::Kill { task, policy } => {
                self.ledger.kill(&task, policy);
                self.kill(task, policy, ctx);
            }
            Verb::Revive { roles } => {
                match roles.is_empty() {
                    true => self.plan.wants.suppressed_roles.clear(),
                    false => self
                        .plan
                        .wants
                        .suppressed_roles
                        .retain(|role| !roles.contains(role)),
                }
                self.say(|framework_id| ReviveOffers {
                    framework_id,
                    roles,
                });
            }
            Verb::Suppress { roles } => {
                let named = if roles.is_empty() {
                    &self.plan.framework.roles
                } else {
                    &roles
                };
                self.plan
                    .wants
                    .suppressed_roles
                    .extend(named.iter().cloned());
                self.say(|framework_id| SuppressOffers {
                    framework_id,
                    roles,
                });
            }
            Verb::Update { framework, wants } => self.update(*framework, *wants, ctx),
            Verb::Reconcile { tasks } => {
                self.ledger.asked_by_scheduler(&tasks);
                self.say(|framework_id| ReconcileTasks {
                    framework_id,
                    tasks,
                });
            }
            Verb::ReconcileOperations { operations } => {
                self.say(|framework_id| ReconcileOperations {
                    framework_id,
                    operations,
                })
            }
            Verb::Acknowledge { status } => self.acknowledge(&status),
            Verb::AcknowledgeOperation { status } => self.acknowledge_operation(&status),
            Verb::Message {
                agent,
                executor,
                data,
            } => self.message(agent, executor, data),
            Verb::State(call) => self.state(call, None, ctx),
            Verb::TearDown | Verb::Stop { failover: false } => self.tear_down(ctx),
            Verb::Stop { failover: true } => self.stop_for_failover(ctx),
        }
    }

    fn accept(
        &mut self,
        offer_ids: Vec<protocol::OfferId>,
        operations: Vec<Operation>,
        filters: protocol::Filters,
        ctx: &mut Context<Self>,
    ) {
        let launched = operations.iter().flat_map(Operation::tasks);
        let tasks: Vec<_> = launched
            .map(|task| (task.task_id.clone(), task.agent_id.clone()))
            .collect();
        let named = operations::named(&operations);
        let failed = |tasks, operations, reason| Failed::Launch {
            tasks,
            operations,
            reason,
        };
        if !self.is_subscribed() {
            let reason = "the driver had no master to tell of the launch".to_owned();
            return ctx.notify(failed(tasks, named, reason));
        }
        let sent = self.call_master(|framework_id| AcceptOffers {
            framework_id,
            offer_ids,
            operations,
            filters,
        });
        let receipt = match sent {
            Ok(receipt) => receipt,
            Err(error) => {
                return ctx.notify(failed(tasks, named, error.to_string()));
            }
        };
        for (task, agent) in &tasks {
            self.ledger.launched(task, agent);
        }
        ctx.then(receipt, move |driver: &mut Self, end, ctx| {
            for (task, _) in &tasks {
                driver.ledger.launch_settled(task);
            }
            match end {
                Ok(()) => {}
                Err(DeliveryError::Refused { reason }) => {
                    ctx.notify(failed(tasks, named, reason));
                }
                // It may have been heard: what became of the tasks comes out when the driver asks (W17).
                Err(error) => ctx.notify(Failed::Call(Undelivered {
                    call: "accept",
                    tasks: tasks.into_iter().map(|(task, _)| task).collect(),
                    error,
                })),
            }
        });
    }

    /// Says that a task shall end.
    fn kill(&mut self, task: TaskId, policy: Option<KillPolicy>, ctx: &mut Context<Self>) {
        let failed = |task, error| {
            Failed::Call(Undelivered {
                call: "kill",
                tasks: vec![task],
                error,
            })
        };
        let agent_id = self.ledger.agent_of(&task).cloned();
        let sent = self.call_master(|framework_id| KillTask {
            framework_id,
            task_id: task.clone(),
            agent_id,
            kill_policy: policy,
        });
        match sent {
            Ok(receipt) => {
                self.ledger.kill_sent(&task);
                ctx.then(receipt, move |driver: &mut Self, end, ctx| {
                    driver.ledger.kill_settled(&task);
                    if let Err(error) = end {
                        ctx.notify(failed(task, error));
                    }
                });
            }
            Err(error) => ctx.notify(failed(task, error)),
        }
    }

    /// Says again what an earlier master has heard of and may not have passed on. What none has heard, the courier says.
    pub(super) fn kill_again(&mut self, ctx: &mut Context<Self>) {
        for (task, policy) in self.ledger.kills_heard() {
            self.kill(task, policy, ctx);
        }
    }

    fn message(&self, agent_id: AgentId, executor_id: ExecutorId, data: Vec<u8>) {
        let (Some(courier), Some(id)) = (&self.courier, &self.plan.framework.id) else {
            return;
        };
        if self.is_subscribed() {
            let message = FrameworkMessage {
                framework_id: id.clone(),
                agent_id,
                executor_id,
                data,
            };
            // Best effort, in order with the other calls. If it fails, that is in the log.
            let _ = courier.send_once(message);
        }
    }

    pub(super) fn acknowledge(&mut self, status: &TaskStatus) {
        let (Some(uuid), Some(agent_id)) = (status.uuid, status.agent_id.clone()) else {
            return;
        };
        self.updates.acknowledge(uuid);
        let task_id = status.task_id.clone();
        // If it fails, the agent sends the status again, and it is acknowledged again.
        self.say(|framework_id| AcknowledgeStatus {
            framework_id,
            agent_id,
            task_id,
            uuid,
        });
    }

    /// Has the framework removed. Without a master it looks for one at once, and for as long as the patience lasts.
    fn tear_down(&mut self, ctx: &mut Context<Self>) {
        self.leaving = true;
        let Ok(receipt) = self.call_master(|framework_id| TearDown { framework_id }) else {
            return self.end(Ended::TornDown { confirmed: false }, ctx);
        };
        let clock = ctx.clock().clone();
        let heard = async move { clock.timeout(TEAR_DOWN_PATIENCE, receipt).await };
        ctx.then(heard, |driver: &mut Self, heard, ctx| {
            let confirmed = matches!(heard, Ok(Ok(())));
            if !confirmed {
                warn!(?heard, "no master has confirmed the tear-down");
            }
            driver.end(Ended::TornDown { confirmed }, ctx);
        });
        if matches!(self.phase, Phase::Seeking) {
            self.rounds = 0;
            self.seek(0, ctx);
        }
    }

    /// Leaves the framework to a later driver, when the master has heard what was said before.
    fn stop_for_failover(&mut self, ctx: &mut Context<Self>) {
        self.leaving = true;
        let courier = self.courier.as_ref().filter(|_| self.is_subscribed());
        let Some(settled) = courier.map(Courier::settled) else {
            return self.end(Ended::LeftForFailover, ctx);
        };
        let clock = ctx.clock().clone();
        let settled = async move { clock.timeout(STOP_PATIENCE, settled).await };
        ctx.then(settled, |driver: &mut Self, _, ctx| {
            driver.end(Ended::LeftForFailover, ctx);
        });
    }

    /// These tasks were not launched: told as the master would tell it.
    fn not_launched(
        &mut self,
        tasks: Vec<(TaskId, AgentId)>,
        reason: &str,
        ctx: &mut Context<Self>,
    ) {
        let state = TaskState::Dropped.as_told(self.plan.framework.can(Capability::PartitionAware));
        for (task, agent) in tasks {
            let status = TaskStatus::new(task, state, Source::Master, ctx.clock().wall())
                .because(Reason::MasterDisconnected, reason)
                .on(&agent);
            self.status(status, ctx);
        }
    }
}

impl<S: Scheduler> Handler<Failed> for Driver<S> {
    type Result = ();
    fn handle(&mut self, failed: Failed, ctx: &mut Context<Self>) {
        match failed {
            Failed::Launch {
                tasks,
                operations,
                reason,
            } => {
                self.not_launched(tasks, &reason, ctx);
                self.not_converted(operations, &reason, ctx);
            }
            Failed::Call(undelivered) => {
                self.call(ctx, |scheduler, verbs| {
                    scheduler.undelivered(verbs, &undelivered);
                });
            }
        }
    }
}
