//! Requests from operators.
//!
//! Views are rendered from a snapshot on another thread. A remote caller is identified by the name
//! in its certificate; a local one is an HTTP handler that has already authorized its own caller.

use authority::{Action, Forbidden};
use protocol::message::operator::{
    ExplainError, ExplainOffers, KillByOperator, Operate, OperationRefused, OperatorError,
    OverRateLimit, UpdateQuotas, UpdateRefused, UpdateWeights, ViewCluster, ViewRoles,
};
use protocol::view::explain::OffersExplained;
use protocol::view::{ClusterView, RoleView};
use protocol::{AgentId, FrameworkId, Quota};
use resources::Conversion;
use runtime::Promise;
use runtime::prelude::*;

use super::Master;
use super::verbs::InTurn;
use crate::api::view;
use crate::api::visibility::Visibility;
use crate::permission::Caller;
use crate::registry::{Applied, RegistryError, RegistryOperation};
use crate::roles::weights;
use crate::state::MasterState;

/// Maximum operators that wait for the end of one framework.
const WAITING_MAX: usize = 1000;

impl Handler<InTurn<ViewCluster>> for Master {
    type Result = Reply<Result<ClusterView, OverRateLimit>>;

    fn handle(&mut self, _: InTurn<ViewCluster>, ctx: &mut Context<Self>) -> Self::Result {
        self.view(ctx, |state| Ok(view::cluster(state)))
    }
}

impl Handler<InTurn<ViewRoles>> for Master {
    type Result = Reply<Result<Vec<RoleView>, OverRateLimit>>;

    fn handle(&mut self, _: InTurn<ViewRoles>, ctx: &mut Context<Self>) -> Self::Result {
        self.view(ctx, |state| Ok(view::roles(state)))
    }
}

impl Handler<InTurn<ExplainOffers>> for Master {
    type Result = Reply<Result<OffersExplained, ExplainError>>;

    fn handle(
        &mut self,
        InTurn(question): InTurn<ExplainOffers>,
        ctx: &mut Context<Self>,
    ) -> Self::Result {
        let caller = self.caller(ctx);
        let may = |caller: &Caller| caller.authorize(Action::GetEndpoints, "/explain");
        match caller.as_ref().map_or(Ok(()), may) {
            Ok(()) => self.explain(&question, caller.map(|caller| caller.visibility()), ctx),
            Err(forbidden) => {
                let (promise, reply) = promise();
                promise.answer(Err(ExplainError::Unknown(forbidden.into())));
                reply
            }
        }
    }
}

/// A page's question why a framework gets no offers, on behalf of a caller.
#[derive(Clone, Debug)]
pub(crate) struct ExplainTo {
    /// The question.
    pub question: ExplainOffers,
    /// The caller's visibility.
    pub visibility: Visibility,
}

impl Message for ExplainTo {
    type Result = Result<OffersExplained, ExplainError>;
}

impl Handler<ExplainTo> for Master {
    type Result = Reply<Result<OffersExplained, ExplainError>>;

    fn handle(&mut self, asked: ExplainTo, ctx: &mut Context<Self>) -> Self::Result {
        self.explain(&asked.question, Some(asked.visibility), ctx)
    }
}

impl Master {
    fn explain(
        &mut self,
        question: &ExplainOffers,
        visibility: Option<Visibility>,
        ctx: &mut Context<Self>,
    ) -> Reply<Result<OffersExplained, ExplainError>> {
        let (promise, reply) = promise();
        let visibility = visibility.filter(|visibility| !visibility.is_whole());
        let asked = match self.not_leading() {
            None => self.state.explainable(question, visibility.as_ref()),
            Some(reason) => Err(ExplainError::NoAnswer { reason }),
        };
        match asked {
            Err(unknown) => promise.answer(Err(unknown)),
            Ok(question) => {
                self.flush_turn(ctx);
                let answer = self.allocator.explain(question);
                ctx.then(answer, move |master, answer, _| {
                    let explained =
                        answer.map(|answer| master.state.explained(answer, visibility.as_ref()));
                    promise.answer(explained.map_err(|error| ExplainError::NoAnswer {
                        reason: error.to_string(),
                    }));
                });
            }
        }
        reply
    }
}

impl Handler<InTurn<UpdateQuotas>> for Master {
    type Result = Reply<Result<(), UpdateRefused>>;

    fn handle(
        &mut self,
        InTurn(update): InTurn<UpdateQuotas>,
        ctx: &mut Context<Self>,
    ) -> Self::Result {
        self.update_quotas(update, MasterState::prepare_quotas, ctx)
    }
}

/// Sets quotas of roles that have none yet (`POST /quota` as in Mesos before 1.9).
#[derive(Clone, Debug)]
pub struct SetQuotas(pub UpdateQuotas);

impl Message for SetQuotas {
    type Result = Result<(), UpdateRefused>;
}

impl Handler<SetQuotas> for Master {
    type Result = Reply<Result<(), UpdateRefused>>;

    fn handle(&mut self, SetQuotas(update): SetQuotas, ctx: &mut Context<Self>) -> Self::Result {
        self.update_quotas(update, MasterState::prepare_new_quotas, ctx)
    }
}

/// Removes the quota of a role that has one (`DELETE /quota/ROLE`).
#[derive(Clone, Debug)]
pub struct ResetQuota {
    /// The role.
    pub role: String,
}

impl Message for ResetQuota {
    type Result = Result<(), UpdateRefused>;
}

impl Handler<ResetQuota> for Master {
    type Result = Reply<Result<(), UpdateRefused>>;

    fn handle(&mut self, ResetQuota { role }: ResetQuota, ctx: &mut Context<Self>) -> Self::Result {
        let update = UpdateQuotas {
            quotas: [(role, Quota::default())].into(),
            force: false,
        };
        self.update_quotas(update, MasterState::prepare_reset_quotas, ctx)
    }
}

impl Master {
    /// Records and publishes quotas, if `prepare` accepts them.
    fn update_quotas(
        &mut self,
        update: UpdateQuotas,
        prepare: fn(&MasterState, &UpdateQuotas) -> Result<RegistryOperation, UpdateRefused>,
        ctx: &mut Context<Self>,
    ) -> Reply<Result<(), UpdateRefused>> {
        let (promise, reply) = promise();
        let allowed = self.may_update().and_then(|()| {
            let caller = self.caller(ctx);
            caller.map_or(Ok(()), |caller| {
                caller.update_quotas(&update).map_err(not_allowed)
            })
        });
        let allowed = allowed.and_then(|()| match self.updating_quotas {
            false => prepare(&self.state, &update),
            true => Err(UpdateRefused::NotNow {
                reason: "another update of quotas is being recorded; try again".to_owned(),
            }),
        });
        let operation = match allowed {
            Ok(operation) => operation,
            Err(refused) => {
                promise.answer(Err(refused));
                return reply;
            }
        };
        self.updating_quotas = true;
        let applied = self.registry.apply(operation);
        ctx.then(applied, move |master, applied, ctx| {
            master.updating_quotas = false;
            if let Some(answer) = master.recorded(applied, ctx) {
                if answer.is_ok() {
                    master.change(ctx, |state, _, out| {
                        state.quotas_updated(update.quotas, out);
                    });
                }
                promise.answer(answer);
            }
        });
        reply
    }
}

impl Handler<InTurn<UpdateWeights>> for Master {
    type Result = Reply<Result<(), UpdateRefused>>;

    fn handle(
        &mut self,
        InTurn(update): InTurn<UpdateWeights>,
        ctx: &mut Context<Self>,
    ) -> Self::Result {
        let (promise, reply) = promise();
        let allowed = self
            .may_update()
            .and_then(|()| {
                let caller = self.caller(ctx);
                caller.map_or(Ok(()), |caller| {
                    caller.update_weights(&update).map_err(not_allowed)
                })
            })
            .and_then(|()| weights::prepare(&update, &self.config.weights));
        let operation = match allowed {
            Ok(operation) => operation,
            Err(refused) => {
                promise.answer(Err(refused));
                return reply;
            }
        };
        let applied = self.registry.apply(operation);
        ctx.then(applied, move |master, applied, ctx| {
            if let Some(answer) = master.recorded(applied, ctx) {
                if answer.is_ok() {
                    master.change(ctx, |state, _, out| {
                        state.weights_updated(update.weights, out);
                    });
                }
                promise.answer(answer);
            }
        });
        reply
    }
}

impl Master {
    /// A view rendered from a snapshot. If rendering panics, the operator's command sees a dropped
    /// request.
    fn view<T: Send + 'static>(
        &self,
        ctx: &mut Context<Self>,
        make: impl FnOnce(&MasterState) -> T + Send + 'static,
    ) -> Reply<T> {
        let (promise, reply) = promise();
        let state = self.state.clone();
        let visibility = self.caller(ctx).map(|caller| caller.visibility());
        let viewed = ctx.node().blocking(move || match visibility {
            Some(visibility) => make(&visibility.filter(&state)),
            None => make(&state),
        });
        ctx.then(viewed, move |_, viewed, _| {
            if let Ok(view) = viewed {
                promise.answer(view);
            }
        });
        reply
    }

    /// The remote caller.
    pub(super) fn caller(&self, ctx: &Context<Self>) -> Option<Caller> {
        let sender = ctx.sender()?;
        Some(Caller::sender(&self.config.acls, sender))
    }

    pub(super) fn may_update(&self) -> Result<(), UpdateRefused> {
        match self.not_leading() {
            None => Ok(()),
            Some(reason) => Err(UpdateRefused::NotNow { reason }),
        }
    }

    /// The operator's answer after the registry's; `None` if it is unknown whether the update is
    /// recorded, which ends this master.
    pub(super) fn recorded(
        &mut self,
        applied: Result<Applied, RegistryError>,
        ctx: &mut Context<Self>,
    ) -> Option<Result<(), UpdateRefused>> {
        let error = match applied {
            Ok(_) => return Some(Ok(())),
            Err(error) => error,
        };
        self.step_down_if_over(&error, ctx);
        let reason = error.to_string();
        match error {
            RegistryError::NotNow { .. } => Some(Err(UpdateRefused::NotNow { reason })),
            RegistryError::Refused { .. } | RegistryError::Conflict { .. } => {
                Some(Err(UpdateRefused::Invalid { reason }))
            }
            RegistryError::LostLeadership | RegistryError::Broken { .. } => None,
        }
    }
}

pub(super) fn not_allowed(forbidden: Forbidden) -> UpdateRefused {
    let reason = forbidden.to_string();
    UpdateRefused::Invalid { reason }
}

impl Handler<InTurn<Operate>> for Master {
    type Result = Reply<Result<(), OperationRefused>>;

    fn handle(&mut self, InTurn(call): InTurn<Operate>, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        let (agent, name) = (call.agent_id.clone(), call.conversion.name());
        let caller = self.caller(ctx);
        let allowed = caller.map_or(Ok(()), |caller| caller.convert(&call.conversion));
        let done = match allowed {
            Ok(()) => self.change(ctx, |state, _, out| state.operate(call, out)),
            Err(forbidden) => Err(OperationRefused::Invalid(forbidden.into())),
        };
        match done {
            Ok(serial) => {
                tracing::info!(%agent, operation = name, serial, "applied an operator's operation");
                // Answered when the registry has answered.
                self.await_operation(agent, serial, promise);
            }
            Err(refused) => {
                tracing::info!(%agent, operation = name, %refused, "refusing an operator's operation");
                promise.answer(Err(refused));
            }
        }
        reply
    }
}

/// An operator's operations on one agent, in this order, all or none. Answered when the registry
/// has recorded them.
#[derive(Clone, Debug)]
pub(crate) struct OperateAll {
    /// The agent.
    pub agent_id: AgentId,
    /// The operations; the caller has authorized each.
    pub conversions: Vec<Conversion>,
}

impl Message for OperateAll {
    type Result = Result<(), OperationRefused>;
}

impl Handler<OperateAll> for Master {
    type Result = Reply<Result<(), OperationRefused>>;

    fn handle(&mut self, all: OperateAll, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        let agent = all.agent_id.clone();
        let done = self.change(ctx, |state, _, out| {
            state.operate_all(all.agent_id, all.conversions, out)
        });
        match done {
            Ok(serial) => {
                tracing::info!(%agent, serial, "applied an operator's operations");
                // They are recorded together.
                self.await_operation(agent, serial, promise);
            }
            Err(refused) => {
                tracing::info!(%agent, %refused, "refusing an operator's operations");
                promise.answer(Err(refused));
            }
        }
        reply
    }
}

/// An operator's request to end a framework with all its tasks. Answered when it is removed.
#[derive(Clone, Debug)]
pub struct EndFramework {
    /// The framework.
    pub framework_id: FrameworkId,
}

/// A framework was not ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotEnded {
    /// No framework with this id, or it has already ended. The message is that of Mesos.
    #[error("No framework found with specified ID")]
    Unknown,
    /// Not possible now; retry.
    #[error("{reason}")]
    NotNow {
        /// For the operator.
        reason: String,
    },
}

impl Message for EndFramework {
    type Result = Result<(), NotEnded>;
}

impl Handler<EndFramework> for Master {
    type Result = Reply<Result<(), NotEnded>>;

    fn handle(&mut self, end: EndFramework, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        let framework_id = end.framework_id;
        if let Some(reason) = self.not_leading() {
            promise.answer(Err(NotEnded::NotNow { reason }));
        } else if self.state.frameworks.get(&framework_id).is_none() {
            promise.answer(Err(NotEnded::Unknown));
        } else {
            tracing::info!(framework = %framework_id, "operator ends a framework");
            let waiting = self.ending.entry(framework_id.clone()).or_default();
            // Callers that have gone are not answered, and free their places.
            waiting.retain(Promise::is_awaited);
            if waiting.len() >= WAITING_MAX {
                let reason = format!("{WAITING_MAX} operators already wait for its end");
                promise.answer(Err(NotEnded::NotNow { reason }));
            } else {
                waiting.push(promise);
            }
            self.remove_framework(framework_id, ctx);
        }
        reply
    }
}

impl Handler<InTurn<KillByOperator>> for Master {
    type Result = Result<FrameworkId, OperatorError>;

    fn handle(
        &mut self,
        InTurn(call): InTurn<KillByOperator>,
        ctx: &mut Context<Self>,
    ) -> Self::Result {
        let caller = self.caller(ctx);
        self.change(ctx, |state, now, out| {
            state.kill_by_operator(call, caller.as_ref(), now, out)
        })
    }
}
