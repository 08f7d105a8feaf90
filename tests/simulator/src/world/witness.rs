//! Witness: what stands around a master of the world and tells the watch what passes: its registry, and its member's log.
//!
//! Each passes on everything as it came. What happens on a node that is doomed is not told: of a crash nobody hears more than what was
//! before it. They decide nothing and delay nothing.

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

use crate::event::{Asker, What};
use crate::hash::RunHash;
use crate::linear::{RegistryAnswer, RegistryRequest};
use crate::watch::Watch;

/// How often it is looked what a member holds.
const LOOK_EVERY: Duration = Duration::from_secs(7);
/// How long the last look may take.
const LAST_LOOK: Duration = Duration::from_secs(30);

/// A master's registry. It is made when the master begins, and dropped with it.
pub struct WatchedRegistry {
    inner: Box<dyn Registry>,
    watch: Watch,
    node: Arc<str>,
}

impl WatchedRegistry {
    /// This one, for the master that begins now on that node.
    pub fn new(inner: Box<dyn Registry>, watch: &Watch, node: &str) -> Self {
        watch.fact_of(node, What::MasterBegan { node });
        Self {
            inner,
            watch: watch.clone(),
            node: node.into(),
        }
    }

    fn ask(&self, request: &RegistryRequest) -> Call {
        Call::begin(&self.watch, &self.node, Asker::Master, request)
    }
}

impl Drop for WatchedRegistry {
    fn drop(&mut self) {
        let node = &*self.node;
        self.watch.fact(What::MasterEnded { node });
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

    /// Passed on unseen: the load keeps no state.
    fn framework_state(
        &mut self,
        framework_id: &FrameworkId,
        key: &str,
    ) -> BoxFuture<'static, Result<Option<StateValue>, RegistryError>> {
        self.inner.framework_state(framework_id, key)
    }
}

/// A question under way.
pub(super) struct Call {
    watch: Watch,
    node: Arc<str>,
    by: Asker,
    number: u64,
}

impl Call {
    /// It is asked now.
    pub(super) fn begin(watch: &Watch, node: &str, by: Asker, request: &RegistryRequest) -> Self {
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
        let asked = What::RegistryAsked {
            node,
            by: self.by,
            call,
            request,
        };
        self.watch.fact(asked);
    }

    /// It is answered; `None` is the promise that nothing was done.
    pub(super) fn answered(&self, answer: Option<&RegistryAnswer>) {
        let (node, call) = (&*self.node, self.number);
        let answered = What::RegistryAnswered { node, call, answer };
        self.watch.fact_of(node, answered);
    }

    /// It is answered by the whole content.
    pub(super) fn content(&self, state: RegistryState) {
        self.answered(Some(&RegistryAnswer::Content(Arc::new(state))));
    }

    /// The registry has said no, or nobody knows.
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
    /// This one, of the member on that node.
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
        let loaded_now = What::LogRead {
            node,
            loaded: loaded_now,
        };
        self.watch.fact_of(node, loaded_now);
        Ok(loaded)
    }

    fn claim(&mut self, identity: Identity) -> Result<(), LogError> {
        self.inner.claim(identity)
    }

    fn write(&mut self, write: &Write) -> Result<(), LogError> {
        self.inner.write(write)?;
        let node = &*self.node;
        self.watch.fact_of(node, What::LogWritten { node, write });
        Ok(())
    }

    fn compact(&mut self, snapshot: &Snapshot, keep_from: u64) -> Result<(), LogError> {
        self.inner.compact(snapshot, keep_from)
    }

    fn disk_bytes(&self) -> u64 {
        self.inner.disk_bytes()
    }
}

/// Tells when this member leads.
pub fn watch_elections(member: &MemberHandle<RegistryMachine>, watch: &Watch, node: &str) {
    let (watch, node) = (watch.clone(), node.to_owned());
    let mut told = 0;
    member.watch(move |now| {
        if now.leads() && now.term != told {
            told = now.term;
            let (node, term) = (node.as_str(), now.term);
            watch.fact_of(node, What::Elected { node, term });
        }
        true
    });
}

/// Tells what this member holds, now and then, until the member ends.
pub async fn look(member: MemberHandle<RegistryMachine>, watch: Watch, node: String, clock: Clock) {
    while member.ended().is_none() {
        clock.sleep(LOOK_EVERY).await;
        hold(&member, &watch, &node).await;
    }
}

async fn hold(member: &MemberHandle<RegistryMachine>, watch: &Watch, node: &str) {
    if let Ok((index, digest)) = member.peek(digest).await {
        let holds = What::Holds {
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

/// Reads the registry of this member as anybody may, and tells what it holds.
pub async fn last_look(
    member: &MemberHandle<RegistryMachine>,
    watch: &Watch,
    node: &str,
    clock: &Clock,
) {
    let call = Call::begin(watch, node, Asker::Client, &RegistryRequest::Read);
    let read = member.read(|machine| machine.state().clone());
    if let Ok(Ok(state)) = clock.timeout(LAST_LOOK, read).await {
        call.content(state);
    }
    hold(member, watch, node).await;
}
