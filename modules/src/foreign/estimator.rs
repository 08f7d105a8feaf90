//! A resource estimator in another process.
//!
//! Handles the messages of an estimator; asks the monitor for usage, and the module for an estimate
//! of it. Without an answer of the module the estimate is nothing: resources already lent stay so,
//! no more are lent.

use module_api::resource_estimator::{InitializeEstimator, Oversubscribable};
use module_api::{CurrentUsage, Fault, ModuleKind, wire};
use protocol::ResourceUsage;
use resources::Resources;
use runtime::prelude::*;
use v1::schema::agent::module::{EstimateRequest, EstimateResponse};
use v1::{convert, protobuf};

use super::module::Module;
use super::{Health, ask, shown};

type Estimate = Result<Resources, Fault>;

/// The actor.
pub(super) struct ForeignEstimator {
    module: Handle<Module>,
    monitor: Option<ActorRef>,
    health: Health,
}

impl ForeignEstimator {
    pub(super) fn new(module: Handle<Module>) -> Self {
        Self {
            module,
            monitor: None,
            health: Health::default(),
        }
    }
}

/// The module's estimate. The error is the reason why there is none.
async fn estimate(module: &Handle<Module>, usage: ResourceUsage) -> Result<Resources, String> {
    let request = EstimateRequest {
        usage: shown(usage),
    };
    let answer = ask(module, wire::ESTIMATE, protobuf::write(&request)).await?;
    let answer: Result<EstimateResponse, _> = wire::read(&answer);
    let estimate = answer.and_then(|answer| convert::estimate(&answer));
    estimate.map_err(|bad| format!("its estimate is invalid: {bad}"))
}

impl Actor for ForeignEstimator {
    type Context = Context<Self>;
}

impl Process for ForeignEstimator {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<InitializeEstimator>(&[Role::Agent]);
        handlers.accept::<Oversubscribable>(&[Role::Agent]);
    }
}

impl Handler<InitializeEstimator> for ForeignEstimator {
    type Result = Result<(), Fault>;

    fn handle(&mut self, initialize: InitializeEstimator, ctx: &mut Context<Self>) -> Self::Result {
        if self.monitor.is_some() {
            return Err(Fault::InitializedTwice);
        }
        self.monitor = Some(ctx.node().refer(initialize.monitor));
        Ok(())
    }
}

impl Handler<Oversubscribable> for ForeignEstimator {
    type Result = Reply<Estimate>;

    fn handle(&mut self, _: Oversubscribable, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        let Some(monitor) = &self.monitor else {
            promise.answer(Err(Fault::NotInitialized));
            return reply;
        };
        let usage = monitor.ask(CurrentUsage, crate::USAGE_PATIENCE);
        let module = self.module.clone();
        let asking = async move {
            let usage = crate::usage_or_fault(usage.await)?;
            Ok::<_, Fault>(estimate(&module, usage).await)
        };
        ctx.then(asking, move |this, answer, _| {
            let kind = ModuleKind::ResourceEstimator;
            let judged = |answer| this.health.judge(kind, answer).unwrap_or_default();
            promise.answer(answer.map(judged));
        });
        reply
    }
}
