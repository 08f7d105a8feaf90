//! A scripted isolator.

use std::sync::{Arc, Mutex};

use module_api::Fault;
use module_api::isolator::{
    CleanUpContainer, Limitation, MeasureContainers, Measured, PrepareContainer, RecoverContainers,
    UpdateContainer,
};
use module_api::isolator::{IsolatorRef, LaunchPlan};
use runtime::prelude::*;

type PendingUpdate = Promise<Result<(), Fault>>;
type PendingCleanUp = Promise<Result<Option<Limitation>, Fault>>;

/// Records its requests, each as a line, and answers them as it is told.
#[derive(Default)]
pub struct FakeIsolator {
    pub name: &'static str,
    pub requests: Arc<Mutex<Vec<String>>>,
    pub plan: LaunchPlan,
    /// Why preparations fail.
    pub failure: Option<&'static str>,
    /// The limit that each container has exceeded at its end.
    pub exceeded: Option<Limitation>,
    /// The number of recoveries that fail first.
    pub failing_recoveries: usize,
    /// Whether clean-ups never end.
    pub hangs: bool,
    /// Whether updates wait for [`release`](Self::release).
    pub holds_updates: bool,
    pub held: Arc<Mutex<Vec<PendingUpdate>>>,
    pub hanging: Vec<PendingCleanUp>,
}

impl Clone for FakeIsolator {
    /// The same script, without the pending clean-ups.
    fn clone(&self) -> Self {
        Self {
            name: self.name,
            requests: self.requests.clone(),
            plan: self.plan.clone(),
            failure: self.failure,
            exceeded: self.exceeded.clone(),
            failing_recoveries: self.failing_recoveries,
            hangs: self.hangs,
            holds_updates: self.holds_updates,
            held: self.held.clone(),
            hanging: Vec::new(),
        }
    }
}

impl FakeIsolator {
    pub fn named(name: &'static str) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }

    pub fn start(&self, node: &Node) -> IsolatorRef {
        IsolatorRef::new(node.spawn(self.name, self.clone()).unwrap().refer())
    }

    /// Answers the waiting updates.
    pub fn release(&self, result: Result<(), Fault>) {
        for promise in self.held.lock().unwrap().drain(..) {
            promise.answer(result.clone());
        }
    }

    /// The requests since the last call.
    pub fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }

    fn note(&self, request: String) {
        self.requests.lock().unwrap().push(request);
    }
}

impl Actor for FakeIsolator {
    type Context = Context<Self>;
}

impl Process for FakeIsolator {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept_local::<RecoverContainers>();
        handlers.accept_local::<PrepareContainer>();
        handlers.accept_local::<UpdateContainer>();
        handlers.accept_local::<MeasureContainers>();
        handlers.accept_local::<CleanUpContainer>();
    }
}

impl Handler<RecoverContainers> for FakeIsolator {
    type Result = Result<(), Fault>;
    fn handle(&mut self, recover: RecoverContainers, _: &mut Context<Self>) -> Self::Result {
        self.note(format!("recover {}", recover.containers.len()));
        if self.failing_recoveries > 0 {
            self.failing_recoveries -= 1;
            let reason = "not now".to_owned();
            return Err(Fault::Failed { reason });
        }
        Ok(())
    }
}

impl Handler<PrepareContainer> for FakeIsolator {
    type Result = Result<LaunchPlan, Fault>;
    fn handle(&mut self, prepare: PrepareContainer, _: &mut Context<Self>) -> Self::Result {
        let requests = &prepare.config.resources.requests;
        self.note(format!("prepare {}", requests.unallocate()));
        match self.failure {
            Some(reason) => Err(Fault::Failed {
                reason: reason.to_owned(),
            }),
            None => Ok(self.plan.clone()),
        }
    }
}

impl Handler<UpdateContainer> for FakeIsolator {
    type Result = Reply<Result<(), Fault>>;
    fn handle(&mut self, update: UpdateContainer, _: &mut Context<Self>) -> Self::Result {
        let requests = update.resources.requests.unallocate();
        let throttle = update.resources.throttle.unwrap_or_default();
        self.note(match throttle.is_none() {
            true => format!("update {requests}"),
            false => format!("update {requests} to {throttle}"),
        });
        let (promise, reply) = promise();
        match self.holds_updates {
            true => self.held.lock().unwrap().push(promise),
            false => promise.answer(Ok(())),
        }
        reply
    }
}

impl Handler<MeasureContainers> for FakeIsolator {
    type Result = Result<Measured, Fault>;
    fn handle(&mut self, _: MeasureContainers, _: &mut Context<Self>) -> Self::Result {
        Ok(Measured::new())
    }
}

impl Handler<CleanUpContainer> for FakeIsolator {
    type Result = Reply<Result<Option<Limitation>, Fault>>;
    fn handle(&mut self, _: CleanUpContainer, _: &mut Context<Self>) -> Self::Result {
        self.note("clean up".to_owned());
        let (promise, reply) = promise();
        match self.hangs {
            true => self.hanging.push(promise),
            false => promise.answer(Ok(self.exceeded.clone())),
        }
        reply
    }
}
