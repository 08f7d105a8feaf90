//! What the master hears from operators.
//!
//! Views are made of a snapshot, off the mailbox and off its thread. Who asks from another node is the name in its certificate; who asks here
//! is a page, which has looked before whether its asker may.

use authority::{Action, Forbidden};
use protocol::explain::OffersExplained;
use protocol::message::operator::{
    ExplainOffers, KillByOperator, Operate, OperationRefused, OperatorError, OverRateLimit,
    Unexplained, UpdateQuotas, UpdateRefused, UpdateWeights, ViewCluster, ViewRoles,
};
use protocol::view::{ClusterView, RoleView};
use protocol::{AgentId, FrameworkId, Quota};
use resources::Conversion;
use runtime::Promise;
use runtime::prelude::*;

use super::Master;
use super::verbs::InTurn;
use crate::books::Books;
use crate::permission::Asker;
use crate::registry::{Applied, RegistryError, RegistryOperation};
use crate::sight::Sight;
use crate::{view, weights};

/// The most operators that wait for one framework's end.
const WAITING_MAX: usize = 1000;

impl Handler<InTurn<ViewCluster>> for Master {
    type Result = Reply<Result<ClusterView, OverRateLimit>>;

    fn handle(&mut self, _: InTurn<ViewCluster>, ctx: &mut Context<Self>) -> Self::Result {
        self.view(ctx, |books| Ok(view::cluster(books)))
    }
}

impl Handler<InTurn<ViewRoles>> for Master {
    type Result = Reply<Result<Vec<RoleView>, OverRateLimit>>;

    fn handle(&mut self, _: InTurn<ViewRoles>, ctx: &mut Context<Self>) -> Self::Result {
        self.view(ctx, |books| Ok(view::roles(books)))
    }
}

impl Handler<InTurn<ExplainOffers>> for Master {
    type Result = Reply<Result<OffersExplained, Unexplained>>;

    fn handle(
        &mut self,
        InTurn(question): InTurn<ExplainOffers>,
        ctx: &mut Context<Self>,
    ) -> Self::Result {
        let asker = self.asker(ctx);
        let may = |asker: &Asker| asker.may(Action::GetEndpoints, "/explain");
        match asker.as_ref().map_or(Ok(()), may) {
            Ok(()) => self.explain(&question, asker.map(|asker| asker.sight()), ctx),
            Err(forbidden) => {
                let (promise, reply) = promise();
                promise.answer(Err(Unexplained::Unknown(forbidden.into())));
                reply
            }
        }
    }
}

/// A page asks why a framework is offered nothing, for somebody who sees so much.
#[derive(Clone, Debug)]
pub(crate) struct ExplainTo {
    /// What he asks.
    pub question: ExplainOffers,
    /// What he sees.
    pub sight: Sight,
}

impl Message for ExplainTo {
    type Result = Result<OffersExplained, Unexplained>;
}

impl Handler<ExplainTo> for Master {
    type Result = Reply<Result<OffersExplained, Unexplained>>;

    fn handle(&mut self, asked: ExplainTo, ctx: &mut Context<Self>) -> Self::Result {
        self.explain(&asked.question, Some(asked.sight), ctx)
    }
}

impl Master {
    fn explain(
        &mut self,
        question: &ExplainOffers,
        sight: Option<Sight>,
        ctx: &mut Context<Self>,
    ) -> Reply<Result<OffersExplained, Unexplained>> {
        let (promise, reply) = promise();
        let sight = sight.filter(|sight| !sight.is_whole());
        let asked = match self.not_leading() {
            None => self.books.explainable(question, sight.as_ref()),
            Some(reason) => Err(Unexplained::NoAnswer { reason }),
        };
        match asked {
            Err(unknown) => promise.answer(Err(unknown)),
            Ok(question) => {
                self.hand_in(ctx);
                let answer = self.allocator.explain(question);
                ctx.then(answer, move |master, answer, _| {
                    let explained =
                        answer.map(|answer| master.books.explained(answer, sight.as_ref()));
                    promise.answer(explained.map_err(|error| Unexplained::NoAnswer {
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
        self.update_quotas(update, Books::prepare_quotas, ctx)
    }
}

/// A page wants these quotas for roles that have none yet (`POST /quota` in the form of Mesos before 1.9).
#[derive(Clone, Debug)]
pub struct SetQuotas(pub UpdateQuotas);

impl Message for SetQuotas {
    type Result = Result<(), UpdateRefused>;
}

impl Handler<SetQuotas> for Master {
    type Result = Reply<Result<(), UpdateRefused>>;

    fn handle(&mut self, SetQuotas(update): SetQuotas, ctx: &mut Context<Self>) -> Self::Result {
        self.update_quotas(update, Books::prepare_new_quotas, ctx)
    }
}

/// A page wants the quota of this role to be taken away, which has one (`DELETE /quota/ROLE`).
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
        self.update_quotas(update, Books::prepare_reset_quotas, ctx)
    }
}

impl Master {
    /// Has quotas recorded and then told, if `prepare` lets them.
    fn update_quotas(
        &mut self,
        update: UpdateQuotas,
        prepare: fn(&Books, &UpdateQuotas) -> Result<RegistryOperation, UpdateRefused>,
        ctx: &mut Context<Self>,
    ) -> Reply<Result<(), UpdateRefused>> {
        let (promise, reply) = promise();
        let allowed = self.may_update().and_then(|()| {
            let asker = self.asker(ctx);
            asker.map_or(Ok(()), |asker| {
                asker.update_quotas(&update).map_err(not_allowed)
            })
        });
        let allowed = allowed.and_then(|()| match self.updating_quotas {
            false => prepare(&self.books, &update),
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
                    master.change(ctx, |books, _, out| {
                        books.quotas_updated(update.quotas, out);
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
                let asker = self.asker(ctx);
                asker.map_or(Ok(()), |asker| {
                    asker.update_weights(&update).map_err(not_allowed)
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
                    master.change(ctx, |books, _, out| {
                        books.weights_updated(update.weights, out);
                    });
                }
                promise.answer(answer);
            }
        });
        reply
    }
}

impl Master {
    /// A view made of a snapshot. An interrupted one is none: the operator's command hears that the question was let go.
    fn view<T: Send + 'static>(
        &self,
        ctx: &mut Context<Self>,
        make: impl FnOnce(&Books) -> T + Send + 'static,
    ) -> Reply<T> {
        let (promise, reply) = promise();
        let books = self.books.clone();
        let sight = self.asker(ctx).map(|asker| asker.sight());
        let viewed = ctx.node().blocking(move || match sight {
            Some(sight) => make(&sight.books(&books)),
            None => make(&books),
        });
        ctx.then(viewed, move |_, viewed, _| {
            if let Ok(view) = viewed {
                promise.answer(view);
            }
        });
        reply
    }

    /// Who asks from another node.
    pub(super) fn asker(&self, ctx: &Context<Self>) -> Option<Asker> {
        let sender = ctx.sender()?;
        Some(Asker::sender(&self.config.acls, sender))
    }

    pub(super) fn may_update(&self) -> Result<(), UpdateRefused> {
        match self.not_leading() {
            None => Ok(()),
            Some(reason) => Err(UpdateRefused::NotNow { reason }),
        }
    }

    /// What the operator hears when the registry has answered; nothing if nobody knows whether it has the update, which is the end of
    /// this master.
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
        let asker = self.asker(ctx);
        let allowed = asker.map_or(Ok(()), |asker| asker.convert(&call.conversion));
        let done = match allowed {
            Ok(()) => self.change(ctx, |books, _, out| books.operate(call, out)),
            Err(forbidden) => Err(OperationRefused::Invalid(forbidden.into())),
        };
        match done {
            Ok(serial) => {
                tracing::info!(%agent, operation = name, serial, "an operator's operation is in the books");
                // The answer follows the registry's.
                self.await_operation(agent, serial, promise);
            }
            Err(refused) => {
                tracing::info!(%agent, operation = name, %refused, "an operator's operation is refused");
                promise.answer(Err(refused));
            }
        }
        reply
    }
}

/// An operator wants all of these done with what an agent has, in this order, or none. Answered when the registry has them.
#[derive(Clone, Debug)]
pub(crate) struct OperateAll {
    /// Which agent.
    pub agent_id: AgentId,
    /// What; whoever asks has found out that each is allowed.
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
        let done = self.change(ctx, |books, _, out| {
            books.operate_all(all.agent_id, all.conversions, out)
        });
        match done {
            Ok(serial) => {
                tracing::info!(%agent, serial, "an operator's operations are in the books");
                // They are recorded together.
                self.await_operation(agent, serial, promise);
            }
            Err(refused) => {
                tracing::info!(%agent, %refused, "an operator's operations are refused");
                promise.answer(Err(refused));
            }
        }
        reply
    }
}

/// An operator wants this framework to end, with all its tasks. Answered when it has.
#[derive(Clone, Debug)]
pub struct EndFramework {
    /// Which.
    pub framework_id: FrameworkId,
}

/// A framework that an operator did not end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotEnded {
    /// There is none of this id that has not ended.
    #[error("framework_id is `{framework_id}`: expected a framework that has not ended")]
    Unknown {
        /// Which.
        framework_id: FrameworkId,
    },
    /// The master cannot do it just now: try again.
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
        } else if self.books.frameworks.get(&framework_id).is_none() {
            promise.answer(Err(NotEnded::Unknown { framework_id }));
        } else {
            tracing::info!(framework = %framework_id, "an operator ends a framework");
            let waiting = self.ending.entry(framework_id.clone()).or_default();
            // Whoever has gone meanwhile is not answered: its place is another's.
            waiting.retain(Promise::is_awaited);
            if waiting.len() >= WAITING_MAX {
                let reason = format!("{WAITING_MAX} operators wait for its end already");
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
        let asker = self.asker(ctx);
        self.change(ctx, |books, now, out| {
            books.kill_by_operator(call, asker.as_ref(), now, out)
        })
    }
}
