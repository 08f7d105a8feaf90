//! Observers around a master: wrappers of its registry and of its member's log that report to the
//! watch.
//!
//! They forward everything unchanged and without delay. Events of a doomed node are dropped: only
//! events before a crash are visible.

use std::sync::Arc;
use std::time::Duration;

use ::master::registry::{
    Applied, Registry, RegistryError, RegistryMachine, RegistryOperation, RegistryState,
};
use consensus::log::{Identity, Loaded, LogError, LogStore, Snapshot, Write};
use consensus::machine::StateMachine;
use consensus::member::MemberHandle;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use protocol::FrameworkId;
use protocol::message::state::StateValue;
use runtime::Clock;

use crate::event::{EventKind, RegistryCaller};
use crate::linear::{RegistryAnswer, RegistryRequest};
use crate::report::hash::RunHash;
use crate::watch::Watch;

/// Interval at which a member's state is read.
const LOOK_EVERY: Duration = Duration::from_secs(7);
/// Maximum time of the last read.
const LAST_LOOK: Duration = Duration::from_secs(30);

/// A master's registry. It lives as long as the master.
pub struct WatchedRegistry {
    inner: Box<dyn Registry>,
    watch: Watch,
    node: Arc<str>,
}

impl WatchedRegistry {
    /// The registry of the master that starts on that node.
    pub fn new(inner: Box<dyn Registry>, watch: &Watch, node: &str) -> Self {
        watch.fact_of(node, EventKind::MasterBegan { node });
        Self {
            inner,
            watch: watch.clone(),
            node: node.into(),
        }
    }

    fn ask(&self, request: &RegistryRequest) -> Call {
        Call::begin(&self.watch, &self.node, RegistryCaller::Master, request)
    }
}

impl Drop for WatchedRegistry {
    fn drop(&mut self) {
        let node = &*self.node;
        self.watch.fact(EventKind::MasterEnded { node });
    }
}

impl Registry for WatchedRegistry {
    fn apply(
        &mut self,
        operation: RegistryOperation,
    ) -> BoxFuture<'static, Result<Applied, RegistryError>> {
        let call = self.ask(&operation.clone().into());
        let applied = self.inner.apply(operation);
        async move {
            let answer = applied.await;
            match &answer {
                Ok(applied) => call.answered(Some(&RegistryAnswer::Applied(*applied))),
                Err(error) => call.failed(error),
            }
            answer
        }
        .boxed()
    }

    fn read(&mut self) -> BoxFuture<'static, Result<RegistryState, RegistryError>> {
        let call = self.ask(&RegistryRequest::Read);
        let read = self.inner.read();
        async move {
            let answer = read.await;
            match &answer {
                Ok(state) => call.content(state.clone()),
                Err(error) => call.failed(error),
            }
            answer
        }
        .boxed()
    }

    fn still_leads(&mut self) -> BoxFuture<'static, Result<(), RegistryError>> {
        self.inner.still_leads()
    }

    /// Forwarded without a report: the load keeps no state.
    fn framework_state(
        &mut self,
        framework_id: &FrameworkId,
        key: &str,
    ) -> BoxFuture<'static, Result<Option<StateValue>, RegistryError>> {
        self.inner.framework_state(framework_id, key)
    }
}

/// A request in progress.
pub(super) struct Call {
    watch: Watch,
    node: Arc<str>,
    by: RegistryCaller,
    number: u64,
}

impl Call {
    /// Reports the request.
    pub(super) fn begin(
        watch: &Watch,
        node: &str,
        by: RegistryCaller,
        request: &RegistryRequest,
    ) -> Self {
        let call = Self {
            watch: watch.clone(),
            node: node.into(),
            by,
            number: watch.next_call(),
        };
        call.asked(request);
        call
    }

    fn asked(&self, request: &RegistryRequest) {
        let (node, call) = (&*self.node, self.number);
        let asked = EventKind::RegistryRequested {
            node,
            by: self.by,
            call,
            request,
        };
        self.watch.fact(asked);
    }

    /// Reports the answer; `None` guarantees that nothing was done.
    pub(super) fn answered(&self, answer: Option<&RegistryAnswer>) {
        let (node, call) = (&*self.node, self.number);
        let answered = EventKind::RegistryAnswered { node, call, answer };
        self.watch.fact_of(node, answered);
    }

    /// Reports the whole content as the answer.
    pub(super) fn content(&self, state: RegistryState) {
        self.answered(Some(&RegistryAnswer::Content(Arc::new(state))));
    }

    /// Reports a refusal, or nothing if the result is unknown.
    pub(super) fn failed(&self, error: &RegistryError) {
        match error {
            RegistryError::NotNow { .. } => self.answered(None),
            RegistryError::Refused { .. } => self.answered(Some(&RegistryAnswer::Refused)),
            RegistryError::Conflict { found } => {
                self.answered(Some(&RegistryAnswer::Conflict(*found)));
            }
            // It may have been done, or may still be.
            RegistryError::LostLeadership | RegistryError::Broken { .. } => {}
        }
    }
}

/// A member's log.
pub struct WatchedLog<S> {
    inner: S,
    watch: Watch,
    node: Arc<str>,
}

impl<S: LogStore> WatchedLog<S> {
    /// The log of the member on that node.
    pub fn new(inner: S, watch: &Watch, node: &str) -> Self {
        Self {
            inner,
            watch: watch.clone(),
            node: node.into(),
        }
    }
}

impl<S: LogStore> LogStore for WatchedLog<S> {
    fn load(&mut self) -> Result<Loaded, LogError> {
        let loaded = self.inner.load()?;
        let (node, loaded_now) = (&*self.node, &loaded);
        let loaded_now = EventKind::LogRead {
            node,
            loaded: loaded_now,
        };
        self.watch.fact_of(node, loaded_now);
        Ok(loaded)
    }

    fn claim(&mut self, identity: Identity) -> Result<(), LogError> {
        self.inner.claim(identity)
    }

    fn begin(&mut self, identity: Identity, write: &Write) -> Result<(), LogError> {
        self.inner.begin(identity, write)?;
        let node = &*self.node;
        self.watch
            .fact_of(node, EventKind::LogWritten { node, write });
        Ok(())
    }

    fn write(&mut self, write: &Write) -> Result<(), LogError> {
        self.inner.write(write)?;
        let node = &*self.node;
        self.watch
            .fact_of(node, EventKind::LogWritten { node, write });
        Ok(())
    }

    fn compact(&mut self, snapshot: &Snapshot, keep_from: u64) -> Result<(), LogError> {
        self.inner.compact(snapshot, keep_from)
    }

    fn disk_bytes(&self) -> u64 {
        self.inner.disk_bytes()
    }
}

/// Reports the elections of this member.
pub fn watch_elections(member: &MemberHandle<RegistryMachine>, watch: &Watch, node: &str) {
    let (watch, node) = (watch.clone(), node.to_owned());
    let mut told = 0;
    member.watch(move |now| {
        if now.leads() && now.term != told {
            told = now.term;
            let (node, term) = (node.as_str(), now.term);
            watch.fact_of(node, EventKind::Elected { node, term });
        }
        true
    });
}

/// Reports this member's state at an interval, until the member ends.
pub async fn look(member: MemberHandle<RegistryMachine>, watch: Watch, node: String, clock: Clock) {
    while member.ended().is_none() {
        clock.sleep(LOOK_EVERY).await;
        hold(&member, &watch, &node).await;
    }
}

async fn hold(member: &MemberHandle<RegistryMachine>, watch: &Watch, node: &str) {
    if let Ok((index, digest)) = member.read_local(digest).await {
        let holds = EventKind::MemberState {
            node,
            index,
            digest,
        };
        watch.fact_of(node, holds);
    }
}

fn digest(machine: &RegistryMachine) -> u64 {
    let mut hash = RunHash::new();
    match machine.snapshot() {
        Ok(snapshot) => hash.bytes(&snapshot),
        // It stands for itself: the same on all members.
        Err(garbled) => hash.bytes(garbled.reason.as_bytes()),
    }
    hash.value()
}

/// Reads the registry of this member as any client may, and reports its content.
pub async fn last_look(
    member: &MemberHandle<RegistryMachine>,
    watch: &Watch,
    node: &str,
    clock: &Clock,
) {
    let call = Call::begin(watch, node, RegistryCaller::Client, &RegistryRequest::Read);
    let read = member.read(|machine| machine.state().clone());
    if let Ok(Ok(state)) = clock.timeout(LAST_LOOK, read).await {
        call.content(state);
    }
    hold(member, watch, node).await;
}
