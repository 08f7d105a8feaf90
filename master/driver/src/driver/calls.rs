//! Calls to the master, and their reliable delivery.
//!
//! All calls go through one courier, in order. Unconfirmed ones are repeated to the next master
//! after the subscription; undeliverable ones are reported to the scheduler. Some calls need a
//! master: without one, launched tasks are lost because their offers are void, and declines and
//! data for executors are dropped. Has no state of its own.

use protocol::message::scheduler::{
    AcceptInverseOffers, DeclineInverseOffers, ReconcileOperations,
};
use runtime::delivery::{DeliveryError, Receipt};

use super::*;
use crate::scheduler::Undelivered;

/// Time limit of a tear-down, with or without a master. Then the driver ends anyway.
pub(super) const TEAR_DOWN_PATIENCE: Duration = Duration::from_secs(10);
/// Time limit for the delivery of earlier calls when the driver is stopped.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// An undelivered call or launch to report to the scheduler. It goes through the mailbox, so a
/// scheduler that repeats the call at once cannot block the driver's search for a master.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) enum CallFailed {
    Call(Undelivered),
    Launch {
        tasks: Vec<(TaskId, AgentId)>,
        operations: Vec<protocol::OperationId>,
        reason: String,
    },
}

impl<S: Scheduler> Driver<S> {
    /// Passes a call to the courier, also without a master. Fails before the framework has an id.
    fn call_master<M: Remote<Result = ()>>(
        &self,
        message: impl FnOnce(FrameworkId) -> M,
    ) -> Result<Receipt, DeliveryError> {
        let (Some(courier), Some(id)) = (&self.reliable_sender, &self.plan.framework.id) else {
            let reason = "framework not subscribed yet".to_owned();
            return Err(DeliveryError::Refused { reason });
        };
        courier.send(message(id.clone()))
    }

    /// Sends a call without a report to the scheduler: a failure is logged and counted by the node.
    pub(super) fn send_call<M: Remote<Result = ()>>(&self, message: impl FnOnce(FrameworkId) -> M) {
        if let Err(error) = self.call_master(message) {
            debug!(message = M::NAME, %error, "call not sent");
        }
    }

    fn is_subscribed(&self) -> bool {
        matches!(self.phase, Phase::Subscribed { .. })
    }

    pub(super) fn perform(&mut self, call: Call, ctx: &mut Context<Self>) {
        if self.leaving || matches!(self.phase, Phase::Ending) {
            return;
        }
        if self.is_standby() {
            return self.perform_as_standby(call, ctx);
        }
        match call {
            Call::Accept {
                offers,
                operations,
                filters,
            } => self.accept(offers, operations, filters, ctx),
            Call::Decline {
                offers: offer_ids,
                filters,
            } if self.is_subscribed() => self.send_call(|framework_id| DeclineOffers {
                framework_id,
                offer_ids,
                filters,
            }),
            Call::AcceptInverse {
                offers: inverse_offer_ids,
                filters,
            } if self.is_subscribed() => self.send_call(|framework_id| AcceptInverseOffers {
                framework_id,
                inverse_offer_ids,
                filters,
            }),
            Call::DeclineInverse {
                offers: inverse_offer_ids,
                filters,
            } if self.is_subscribed() => self.send_call(|framework_id| DeclineInverseOffers {
                framework_id,
                inverse_offer_ids,
                filters,
            }),
            Call::Decline { .. } | Call::AcceptInverse { .. } | Call::DeclineInverse { .. } => {
                debug!("dropping an answer to void offers");
            }
            Call::Kill { task, policy } => {
                self.tasks.kill(&task, policy);
                self.kill(task, policy, ctx);
            }
            Call::Revive { roles } => {
                match roles.is_empty() {
                    true => self.plan.wants.suppressed_roles.clear(),
                    false => self
                        .plan
                        .wants
                        .suppressed_roles
                        .retain(|role| !roles.contains(role)),
                }
                self.send_call(|framework_id| ReviveOffers {
                    framework_id,
                    roles,
                });
            }
            Call::Suppress { roles } => {
                let named = if roles.is_empty() {
                    &self.plan.framework.roles
                } else {
                    &roles
                };
                self.plan
                    .wants
                    .suppressed_roles
                    .extend(named.iter().cloned());
                self.send_call(|framework_id| SuppressOffers {
                    framework_id,
                    roles,
                });
            }
            Call::Update { framework, wants } => self.update(*framework, *wants, ctx),
            Call::Reconcile { tasks } => {
                self.tasks.requested_by_scheduler(&tasks);
                self.send_call(|framework_id| ReconcileTasks {
                    framework_id,
                    tasks,
                });
            }
            Call::ReconcileOperations { operations } => {
                self.send_call(|framework_id| ReconcileOperations {
                    framework_id,
                    operations,
                })
            }
            Call::Acknowledge { status } => self.acknowledge(&status),
            Call::AcknowledgeOperation { status } => self.acknowledge_operation(&status),
            Call::Message {
                agent,
                executor,
                data,
            } => self.message(agent, executor, data),
            Call::State(call) => self.state(call, None, ctx),
            Call::TearDown | Call::Stop { failover: false } => self.tear_down(ctx),
            Call::Stop { failover: true } => self.stop_for_failover(ctx),
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
        let failed = |tasks, operations, reason| CallFailed::Launch {
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
            self.tasks.launched(task, agent);
        }
        ctx.then(receipt, move |driver: &mut Self, end, ctx| {
            for (task, _) in &tasks {
                driver.tasks.launch_settled(task);
            }
            match end {
                Ok(()) => {}
                Err(DeliveryError::Refused { reason }) => {
                    ctx.notify(failed(tasks, named, reason));
                }
                // It may have been delivered: reconciliation finds out the states of the tasks.
                Err(error) => ctx.notify(CallFailed::Call(Undelivered {
                    call: "accept",
                    tasks: tasks.into_iter().map(|(task, _)| task).collect(),
                    error,
                })),
            }
        });
    }

    /// Sends a kill.
    fn kill(&mut self, task: TaskId, policy: Option<KillPolicy>, ctx: &mut Context<Self>) {
        let failed = |task, error| {
            CallFailed::Call(Undelivered {
                call: "kill",
                tasks: vec![task],
                error,
            })
        };
        let agent_id = self.tasks.agent_of(&task).cloned();
        let sent = self.call_master(|framework_id| KillTask {
            framework_id,
            task_id: task.clone(),
            agent_id,
            kill_policy: policy,
        });
        match sent {
            Ok(receipt) => {
                self.tasks.kill_sent(&task);
                ctx.then(receipt, move |driver: &mut Self, end, ctx| {
                    driver.tasks.kill_settled(&task);
                    if let Err(error) = end {
                        ctx.notify(failed(task, error));
                    }
                });
            }
            Err(error) => ctx.notify(failed(task, error)),
        }
    }

    /// Repeats kills that an earlier master confirmed but may not have passed on. The courier
    /// repeats the others.
    pub(super) fn resend_kills(&mut self, ctx: &mut Context<Self>) {
        for (task, policy) in self.tasks.kills_to_resend() {
            self.kill(task, policy, ctx);
        }
    }

    fn message(&self, agent_id: AgentId, executor_id: ExecutorId, data: Vec<u8>) {
        let (Some(courier), Some(id)) = (&self.reliable_sender, &self.plan.framework.id) else {
            return;
        };
        if self.is_subscribed() {
            let message = FrameworkMessage {
                framework_id: id.clone(),
                agent_id,
                executor_id,
                data,
            };
            // Best effort, in order with the other calls. Failures are only logged.
            let _ = courier.send_once(message);
        }
    }

    pub(super) fn acknowledge(&mut self, status: &TaskStatus) {
        let (Some(uuid), Some(agent_id)) = (status.uuid, status.agent_id.clone()) else {
            return;
        };
        self.updates.acknowledge(uuid);
        let task_id = status.task_id.clone();
        // If this is lost, the agent repeats the status, and the driver the acknowledgement.
        self.send_call(|framework_id| AcknowledgeStatus {
            framework_id,
            agent_id,
            task_id,
            uuid,
        });
    }

    /// Ends the framework. Without a master it searches at once, up to the time limit.
    fn tear_down(&mut self, ctx: &mut Context<Self>) {
        self.leaving = true;
        let Ok(receipt) = self.call_master(|framework_id| TearDown { framework_id }) else {
            return self.end(Ended::TornDown { confirmed: false }, ctx);
        };
        let clock = ctx.clock().clone();
        let delivered = async move { clock.timeout(TEAR_DOWN_PATIENCE, receipt).await };
        ctx.then(delivered, |driver: &mut Self, delivered, ctx| {
            let confirmed = matches!(delivered, Ok(Ok(())));
            if !confirmed {
                warn!(?delivered, "tear-down not confirmed by a master");
            }
            driver.end(Ended::TornDown { confirmed }, ctx);
        });
        if matches!(self.phase, Phase::Searching) {
            self.rounds = 0;
            self.find_master(0, ctx);
        }
    }

    /// Leaves the framework to a later driver once the master has confirmed the earlier calls.
    fn stop_for_failover(&mut self, ctx: &mut Context<Self>) {
        self.leaving = true;
        let courier = self
            .reliable_sender
            .as_ref()
            .filter(|_| self.is_subscribed());
        let Some(settled) = courier.map(ReliableSender::settled) else {
            return self.end(Ended::LeftForFailover, ctx);
        };
        let clock = ctx.clock().clone();
        let settled = async move { clock.timeout(STOP_PATIENCE, settled).await };
        ctx.then(settled, |driver: &mut Self, _, ctx| {
            driver.end(Ended::LeftForFailover, ctx);
        });
    }

    /// Reports tasks that were not launched, with the status that the master would send.
    fn not_launched(
        &mut self,
        tasks: Vec<(TaskId, AgentId)>,
        reason: &str,
        ctx: &mut Context<Self>,
    ) {
        let state =
            TaskState::Dropped.for_framework(self.plan.framework.can(Capability::PartitionAware));
        for (task, agent) in tasks {
            let status = TaskStatus::new(task, state, Source::Master, ctx.clock().wall())
                .with_reason(Reason::MasterDisconnected, reason)
                .on(&agent);
            self.status(status, ctx);
        }
    }
}

impl<S: Scheduler> Handler<CallFailed> for Driver<S> {
    type Result = ();
    fn handle(&mut self, failed: CallFailed, ctx: &mut Context<Self>) {
        match failed {
            CallFailed::Launch {
                tasks,
                operations,
                reason,
            } => {
                self.not_launched(tasks, &reason, ctx);
                self.not_converted(operations, &reason, ctx);
            }
            CallFailed::Call(undelivered) => {
                self.call_back(ctx, |scheduler, calls| {
                    scheduler.undelivered(calls, &undelivered);
                });
            }
        }
    }
}
