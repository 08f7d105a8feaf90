//! A QoS controller in another process.
//!
//! Handles the messages of a controller. While a request of the agent is pending it asks the module
//! once a second with the usage of that time. Without an answer of the module nothing is corrected.

use std::time::Duration;

use module_api::qos_controller::{Corrections, InitializeQos};
use module_api::{CurrentUsage, Fault, ModuleKind, wire};
use protocol::{QosCorrection, ResourceUsage};
use runtime::prelude::*;
use v1::schema::agent::module::{CorrectionsRequest, CorrectionsResponse};
use v1::{convert, protobuf};

use super::module::Module;
use super::{Health, ask, shown};
use crate::qos_controller::Advised;

/// Interval of questions while a request is pending.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Pending requests that are kept; beyond this, the oldest are dropped.
const PENDING_MAX: usize = 16;

type Answer = Result<Vec<QosCorrection>, Fault>;

/// The actor.
pub(super) struct ForeignController {
    module: Handle<Module>,
    monitor: Option<ActorRef>,
    pending: Vec<Promise<Answer>>,
    /// A check is running or scheduled.
    checking: bool,
    advised: Advised,
    health: Health,
}

impl ForeignController {
    pub(super) fn new(module: Handle<Module>) -> Self {
        Self {
            module,
            monitor: None,
            pending: Vec::new(),
            checking: false,
            advised: Advised::default(),
            health: Health::default(),
        }
    }

    fn check(&mut self, ctx: &mut Context<Self>) {
        self.pending.retain(Promise::is_awaited);
        let Some(monitor) = self.monitor.as_ref().filter(|_| !self.pending.is_empty()) else {
            self.checking = false;
            return;
        };
        let usage = monitor.ask(CurrentUsage, crate::USAGE_PATIENCE);
        let module = self.module.clone();
        let asking = async move {
            let usage = crate::usage_or_fault(usage.await).map_err(|fault| fault.to_string())?;
            corrections(&module, usage).await
        };
        ctx.then(asking, Self::judge);
    }

    fn judge(&mut self, answer: Result<Vec<QosCorrection>, String>, ctx: &mut Context<Self>) {
        let advice = self.health.judge(ModuleKind::QosController, answer);
        let now = ctx.clock().now();
        let fresh = self.advised.fresh(advice.unwrap_or_default(), now);
        if fresh.is_empty() {
            ctx.after(CHECK_INTERVAL, Self::check);
            return;
        }
        self.checking = false;
        for pending in self.pending.drain(..) {
            pending.answer(Ok(fresh.clone()));
        }
    }
}

/// The module's corrections. The error is the reason why there are none.
async fn corrections(
    module: &Handle<Module>,
    usage: ResourceUsage,
) -> Result<Vec<QosCorrection>, String> {
    let request = CorrectionsRequest {
        usage: shown(usage),
    };
    let answer = ask(module, wire::CORRECTIONS, protobuf::write(&request)).await?;
    let answer: Result<CorrectionsResponse, _> = wire::read(&answer);
    let corrections = answer.and_then(|answer| convert::corrections(&answer));
    corrections.map_err(|bad| format!("its corrections are invalid: {bad}"))
}

impl Actor for ForeignController {
    type Context = Context<Self>;
}

impl Process for ForeignController {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<InitializeQos>(&[Role::Agent]);
        handlers.accept::<Corrections>(&[Role::Agent]);
    }
}

impl Handler<InitializeQos> for ForeignController {
    type Result = Result<(), Fault>;

    fn handle(&mut self, initialize: InitializeQos, ctx: &mut Context<Self>) -> Self::Result {
        if self.monitor.is_some() {
            return Err(Fault::InitializedTwice);
        }
        self.monitor = Some(ctx.node().refer(initialize.monitor));
        Ok(())
    }
}

impl Handler<Corrections> for ForeignController {
    type Result = Reply<Answer>;

    fn handle(&mut self, _: Corrections, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        if self.monitor.is_none() {
            promise.answer(Err(Fault::NotInitialized));
            return reply;
        }
        if self.pending.len() == PENDING_MAX {
            self.pending.remove(0);
        }
        self.pending.push(promise);
        if !self.checking {
            self.checking = true;
            // After the reply is returned; until then the promise does not count as awaited.
            ctx.then(std::future::ready(()), |this, (), ctx| this.check(ctx));
        }
        reply
    }
}
