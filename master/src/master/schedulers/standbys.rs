//! Messages from standby schedulers, and access to the state that frameworks store.
//!
//! Each handler checks the sender, lets the state decide and asks the registry. Remembers the names
//! that are being admitted, so that two schedulers that come at once do not become two frameworks.

use protocol::FrameworkId;
use protocol::message::scheduler::SubscriptionRefused;
use protocol::message::standby::{StandBy, StandbyReply};
use protocol::message::state::{
    ChangeState, GetState, StateRefused, StateValue, check_key, check_value,
};
use runtime::prelude::*;
use runtime::{Pid, Reply, promise};

use crate::frameworks::standby::StandbyOutcome;
use crate::frameworks::subscription::FrameworkPrepared;
use crate::master::{Master, REGISTRY_RETRY};
use crate::registry::{RegistryError, RegistryOperation};

type Stands = Result<StandbyReply, SubscriptionRefused>;

impl Handler<StandBy> for Master {
    type Result = Reply<Stands>;

    fn handle(&mut self, message: StandBy, ctx: &mut Context<Self>) -> Reply<Stands> {
        let principal = message.framework.principal.clone();
        self.in_turn(principal.as_deref(), ctx, |master, promise, ctx| {
            master.take_standby(message, promise, ctx);
        })
    }
}

impl Master {
    /// Makes the scheduler lead or stand by, and answers.
    fn take_standby(
        &mut self,
        message: StandBy,
        promise: Promise<Stands>,
        ctx: &mut Context<Self>,
    ) {
        match self.turn(&message, ctx) {
            Err(refused) => promise.answer(Err(refused)),
            Ok(StandbyOutcome::StandsBy(standing)) => {
                tracing::info!(framework = %standing.framework_id, scheduler = %message.scheduler, "scheduler stands by");
                // Nothing is recorded of a standby, so a majority must confirm this master first.
                let led = self.registry.still_leads();
                ctx.then(led, |master, led, ctx| {
                    promise.answer(match led {
                        Ok(()) => Ok(StandbyReply::StandsBy(standing)),
                        Err(error) => Err(master.subscription_refused(error, ctx)),
                    });
                });
            }
            Ok(StandbyOutcome::Leads(prepared)) => {
                let (scheduler, key) = (message.scheduler.clone(), name_of(&message));
                self.admitting.insert(scheduler.clone());
                self.admitting_names.insert(key.clone());
                let applied = self.registry.apply(prepared.operation.clone());
                ctx.then(applied, move |master, applied, ctx| {
                    master.admitting.remove(&scheduler);
                    master.admitting_names.remove(&key);
                    promise.answer(match applied {
                        Ok(_) => master.leads(*prepared, message, ctx),
                        Err(error) => {
                            let id = &prepared.framework_id;
                            master.change(ctx, |state, _, out| state.not_appointed(id, out));
                            Err(master.subscription_refused(error, ctx))
                        }
                    });
                });
            }
        }
    }
}

/// The key that distinguishes frameworks whose schedulers send no id.
fn name_of(message: &StandBy) -> (String, Option<String>) {
    let info = &message.framework;
    (info.name.clone(), info.principal.clone())
}

impl Master {
    fn turn(
        &mut self,
        message: &StandBy,
        ctx: &mut Context<Self>,
    ) -> Result<StandbyOutcome, SubscriptionRefused> {
        self.may_subscribe(&message.scheduler, &message.framework, ctx)?;
        if self.admitting_names.contains(&name_of(message)) {
            let reason = "the registry is being asked about a framework of this name".to_owned();
            return Err(SubscriptionRefused::NotNow { reason });
        }
        self.change(ctx, |state, _, out| state.stand_by(message, out))
    }

    fn leads(
        &mut self,
        prepared: FrameworkPrepared,
        message: StandBy,
        ctx: &mut Context<Self>,
    ) -> Stands {
        let id = prepared.framework_id.clone();
        if let Some(reason) = self.being_removed(&id) {
            return Err(SubscriptionRefused::NotNow { reason });
        }
        tracing::info!(framework = %id, scheduler = %message.scheduler, "scheduler leads its framework");
        self.change(ctx, |state, now, out| {
            let subscribed = state.lead(prepared, message, now, out)?;
            state.warn_again(&id, now, out);
            Ok(StandbyReply::Leads(subscribed))
        })
    }

    /// Makes the first standby of a framework lead, as soon as the registry has recorded it.
    pub(in crate::master) fn choose(&mut self, id: FrameworkId, ctx: &mut Context<Self>) {
        if self.not_leading().is_some() || self.removing.contains(&id) {
            return;
        }
        let Some((prepared, message)) = self.change(ctx, |state, _, _| state.choose(&id)) else {
            return;
        };
        let applied = self.registry.apply(prepared.operation.clone());
        ctx.then(applied, move |master, applied, ctx| match applied {
            Ok(_) if master.removing.contains(&id) => {}
            Ok(_) => {
                tracing::info!(framework = %id, scheduler = %message.scheduler, "standby leads now");
                master.chosen(prepared, message, true, ctx);
            }
            Err(RegistryError::NotNow { reason }) => {
                tracing::warn!(framework = %id, %reason, "cannot make a standby lead yet");
                ctx.after(REGISTRY_RETRY, move |master, ctx| {
                    master.chosen(prepared, message, false, ctx);
                });
            }
            Err(error) => {
                tracing::error!(framework = %id, %error, "cannot make a standby lead");
                master.step_down_if_over(&error, ctx);
                // A permanent refusal is not tried again.
                let scheduler = message.scheduler.clone();
                master.change(ctx, |state, _, _| state.standbys.forget(&scheduler));
                master.chosen(prepared, message, false, ctx);
            }
        });
    }

    fn chosen(
        &mut self,
        prepared: FrameworkPrepared,
        message: StandBy,
        recorded: bool,
        ctx: &mut Context<Self>,
    ) {
        self.change(ctx, |state, now, out| {
            state.chosen(prepared, message, recorded, now, out);
        });
    }

    /// Whether this scheduler is its sender's, and this master may answer it.
    fn check_state_access(&self, scheduler: &Pid, ctx: &Context<Self>) -> Result<(), StateRefused> {
        if let Some(reason) = self.not_leading() {
            return Err(StateRefused::NotNow { reason });
        }
        let known = self.state.frameworks.at(scheduler);
        if known.is_some_and(|framework| !self.has_turn(&framework.id, ctx)) {
            let reason = crate::master::turns::TOO_MANY.to_owned();
            return Err(StateRefused::NotNow { reason });
        }
        let sender = ctx.sender().map(|sender| &sender.peer.node);
        match sender.filter(|node| *node != scheduler.node()) {
            None => Ok(()),
            Some(node) => Err(StateRefused::Never {
                reason: format!(
                    "scheduler is `{scheduler}`: expected an actor of the scheduler's own node, {node}"
                ),
            }),
        }
    }

    /// The scheduler's error; `None` if this master must end, since then the next one answers.
    fn state_refused(
        &mut self,
        error: RegistryError,
        ctx: &mut Context<Self>,
    ) -> Option<StateRefused> {
        let reason = error.to_string();
        match error {
            RegistryError::NotNow { .. } => Some(StateRefused::NotNow { reason }),
            RegistryError::Conflict { found } => Some(StateRefused::Conflict { found }),
            RegistryError::Refused { .. } => Some(StateRefused::Never { reason }),
            RegistryError::LostLeadership | RegistryError::Broken { .. } => {
                self.step_down(&error, ctx);
                None
            }
        }
    }
}

fn never(invalid: resources::Invalid) -> StateRefused {
    let reason = invalid.to_string();
    StateRefused::Never { reason }
}

impl Handler<GetState> for Master {
    type Result = Reply<Result<Option<StateValue>, StateRefused>>;

    fn handle(&mut self, question: GetState, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        let (id, scheduler) = (&question.framework_id, &question.scheduler);
        let allowed = self
            .check_state_access(scheduler, ctx)
            .and_then(|()| self.state.may_read(id, scheduler))
            .and_then(|()| check_key(&question.key).map_err(never));
        if let Err(refused) = allowed {
            promise.answer(Err(refused));
            return reply;
        }
        let read = self.registry.framework_state(id, &question.key);
        ctx.then(read, |master, read, ctx| match read {
            Ok(found) => promise.answer(Ok(found)),
            Err(error) => {
                if let Some(refused) = master.state_refused(error, ctx) {
                    promise.answer(Err(refused));
                }
            }
        });
        reply
    }
}

impl Handler<ChangeState> for Master {
    type Result = Reply<Result<u64, StateRefused>>;

    fn handle(&mut self, change: ChangeState, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        let value = change.value.as_deref().unwrap_or_default();
        let allowed = self
            .check_state_access(&change.scheduler, ctx)
            .and_then(|()| {
                self.state
                    .may_change(&change.framework_id, &change.scheduler)
            })
            .and_then(|()| check_key(&change.key).map_err(never))
            .and_then(|()| check_value(value).map_err(never));
        if let Err(refused) = allowed {
            promise.answer(Err(refused));
            return reply;
        }
        let deletes = change.value.is_none();
        let applied = self
            .registry
            .apply(RegistryOperation::ChangeFrameworkState {
                framework_id: change.framework_id,
                key: change.key,
                expected: change.expected,
                value: change.value,
            });
        ctx.then(applied, move |master, applied, ctx| match applied {
            Ok(applied) => promise.answer(Ok(if deletes { 0 } else { applied.version })),
            Err(error) => {
                if let Some(refused) = master.state_refused(error, ctx) {
                    promise.answer(Err(refused));
                }
            }
        });
        reply
    }
}
