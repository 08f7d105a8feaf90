//! A node: one start of one process (or of its part in a rehearsal), home of actors.
//!
//! Remembers who lives here, who watches whom and to whom it is linked; draws every random number from
//! one seed and takes all time from one clock. It has no opinion on what its actors do.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, Weak};
use std::time::Duration;

use rand::TryRngCore;
use rand::rngs::{OsRng, SmallRng, StdRng};
use rand::{Rng, SeedableRng};
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::desk::Version;
use crate::exit::Exit;
use crate::handle::{ActorRef, Handle};
use crate::identity::{self, NodeId, Pid, Role, Roles};
use crate::info::Counts;
use crate::links::Links;
use crate::lock;
use crate::placement::{Arbiter, Placement};
use crate::process::Process;
use crate::registry::{Entry, Registry};
use crate::supervise::{self, Supervision};
use crate::tap::Taps;
use crate::watch::{Watcher, Watches};
use crate::watchdog;

/// How long a shutdown waits for queues to be handled, and then for actors to end at all.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(10);

/// A node. Cloning it is cheap, and all clones are the same node.
#[derive(Clone)]
pub struct Node(pub(crate) Arc<Inner>);

/// A node that may be gone.
#[derive(Clone)]
pub(crate) struct WeakNode(Weak<Inner>);

pub(crate) struct Inner {
    id: NodeId,
    role: Role,
    clock: Clock,
    seed: u64,
    is_seeded: bool,
    streams: AtomicU64,
    uuids: Mutex<StdRng>,
    registry: Registry,
    watches: Watches,
    counts: Counts,
    pub(crate) links: RwLock<Links>,
    pub(crate) links_version: Version,
    pub(crate) settings: Settings,
    pub(crate) taps: Taps,
    pub(crate) placement: Placement,
    pub(crate) home: Arbiter,
    pub(crate) threads: Mutex<BTreeMap<String, Arbiter>>,
    numbers: AtomicU64,
    shutting_down: AtomicBool,
    /// In rehearsals, the nanoseconds that each blocking work takes.
    pub(crate) blocking_takes: AtomicU64,
    end: Box<dyn Fn(&str) + Send + Sync>,
    /// The watchdog's number for it; 0 if it looks at none of its actors.
    pub(crate) watched_as: u64,
}

/// What links obey.
pub(crate) struct Settings {
    pub(crate) accepts: Roles,
    pub(crate) outgoing_max: usize,
    pub(crate) frame_max: usize,
    pub(crate) speaks_previous: bool,
}

/// Why an actor was not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpawnError {
    /// Another actor has this name.
    #[error("the name {name:?} is taken")]
    NameTaken {
        /// The name asked for.
        name: String,
    },
    /// The name cannot be part of a pid.
    #[error(
        "name is {name:?}, expected 1 to 255 bytes without '@', '#', spaces and control characters"
    )]
    BadName {
        /// The name asked for.
        name: String,
    },
    /// Two message names have the same hash: one of them must be changed. `frames/short` is what hellos say of frames, and no message's.
    #[error("messages {one:?} and {other:?} have the same id {id:08x}")]
    MessageIdTaken {
        /// The id of both.
        id: u32,
        /// The name heard first.
        one: &'static str,
        /// The name refused.
        other: &'static str,
    },
    /// Its thread could not be started, or has ended.
    #[error("no thread for {name:?}: {reason}")]
    NoThread {
        /// The actor's name.
        name: String,
        /// What the system said.
        reason: String,
    },
    /// The node is going down.
    #[error("the node is shutting down")]
    ShuttingDown,
}

/// Work ended without a result, because it panicked or the process is ending.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("work was interrupted: {reason}")]
pub struct Interrupted {
    /// The words of the panic, or of the runtime.
    pub reason: String,
}

/// Builds a node; see [`Node::builder`].
pub struct NodeBuilder {
    name: String,
    role: Role,
    accepts: Roles,
    seed: Option<u64>,
    clock: Option<Clock>,
    placement: Placement,
    outgoing_max: usize,
    frame_max: usize,
    speaks_previous: bool,
    unwatched: bool,
    end: Box<dyn Fn(&str) + Send + Sync>,
}

impl NodeBuilder {
    /// What the node is. Default: module, which nobody accepts unless told.
    pub fn role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    /// The roles it takes links with. Default: none.
    pub fn accepts(mut self, roles: &[Role]) -> Self {
        self.accepts = Roles::of(roles);
        self
    }

    /// Where all its random numbers come from. Default: the machine's own randomness.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Where its time comes from. Default: the machine.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Which actors get threads of their own. Default: none. Paused time allows none.
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Bytes that may wait to be sent to one peer; one more message is refused as full. Default 64 MiB.
    pub fn outgoing_max(mut self, bytes: usize) -> Self {
        self.outgoing_max = bytes.max(1);
        self
    }

    /// The longest frame read, in bytes. Default 16 MiB; at least 512 KiB, which a peer may always send.
    pub fn frame_max(mut self, bytes: usize) -> Self {
        self.frame_max = bytes.max(512 << 10);
        self
    }

    /// Speaks like the Meros before this one: of messages that have an older shape it says that one, and hears no newer one from other
    /// nodes; and it neither writes nor says that it reads tells without a header whose length, below 4 KiB, has two bytes. To rehearse an upgrade. Default: no.
    pub fn speak_previous(mut self, previous: bool) -> Self {
        self.speaks_previous = previous;
        self
    }

    /// No watchdog looks at it, which is a thread of its own: for a process that is forked, or that lives for one task. Nobody logs or
    /// counts handlers that block, and messages have no age. Default: it is watched, unless time is paused.
    pub fn unwatched(mut self) -> Self {
        self.unwatched = true;
        self
    }

    /// What ends the process when an actor whose policy says so has panicked. Default: log and abort.
    pub fn end_process(mut self, end: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.end = Box::new(end);
        self
    }

    /// The node, at home on this thread.
    ///
    /// # Panics
    /// Outside a `LocalSet`: build it inside an actix system, an `actix_rt::Runtime` or a rehearsal.
    pub fn build(self) -> Node {
        let is_seeded = self.seed.is_some();
        let seed = self
            .seed
            .unwrap_or_else(|| SmallRng::from_os_rng().random());
        let mut chance = StdRng::seed_from_u64(seed ^ crate::message::id_of(&self.name) as u64);
        let clock = self.clock.unwrap_or_else(Clock::real);
        // Paused time is one thread's time.
        let placement = if clock.is_paused() {
            Placement::here()
        } else {
            self.placement
        };
        let paused = clock.is_paused();
        let home = Arbiter::here();
        let build = |node: &Weak<Inner>| Inner {
            watched_as: match paused || self.unwatched {
                true => 0,
                false => watchdog::watch(WeakNode(node.clone())),
            },
            taps: Taps::new(&clock, &home),
            id: NodeId::new(self.name, chance.random()),
            role: self.role,
            clock,
            seed: chance.random(),
            is_seeded,
            streams: AtomicU64::new(0),
            uuids: Mutex::new(chance),
            registry: Registry::default(),
            watches: Watches::default(),
            counts: Counts::default(),
            links: RwLock::default(),
            links_version: Version::default(),
            settings: Settings {
                accepts: self.accepts,
                outgoing_max: self.outgoing_max,
                frame_max: self.frame_max,
                speaks_previous: self.speaks_previous,
            },
            placement,
            home,
            threads: Mutex::default(),
            numbers: AtomicU64::new(0),
            shutting_down: AtomicBool::new(false),
            blocking_takes: AtomicU64::new(0),
            end: self.end,
        };
        Node(Arc::new_cyclic(build))
    }
}

impl Node {
    /// Begins a node with this name.
    ///
    /// ```no_run
    /// use runtime::prelude::*;
    /// let node = Node::builder("master-1").role(Role::Master).accepts(&[Role::Agent]).seed(7).build();
    /// ```
    pub fn builder(name: impl Into<String>) -> NodeBuilder {
        NodeBuilder {
            name: name.into(),
            role: Role::Module,
            accepts: Roles::default(),
            seed: None,
            clock: None,
            placement: Placement::here(),
            outgoing_max: 64 << 20,
            frame_max: 16 << 20,
            speaks_previous: false,
            unwatched: false,
            end: Box::new(|reason| {
                tracing::error!(
                    reason,
                    "an actor that must not fall has fallen: ending the process"
                );
                std::process::abort();
            }),
        }
    }

    /// Who this node is.
    pub fn id(&self) -> &NodeId {
        &self.0.id
    }

    /// What this node is.
    pub fn role(&self) -> Role {
        self.0.role
    }

    /// Whether it takes links with peers of this role. A transport may ask before it reads a word of them.
    pub fn accepts(&self, role: Role) -> bool {
        self.0.settings.accepts.contains(role)
    }

    pub(crate) fn speaks_previous(&self) -> bool {
        self.0.settings.speaks_previous
    }

    /// Says in every hello from now on what an actor of this type hears, also while none lives here. A link is made once: a peer that was
    /// not told would say the newest shape of a message to an actor that comes later, whether that hears it or not.
    pub fn will_hear<A: Process>(&self) {
        let ears = crate::process::Ears::<A>::table(self.speaks_previous());
        self.registry().announce(&ears);
    }

    /// The node's time.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// A new stream of random numbers; the same seed gives the same streams in the same order.
    pub fn rng(&self) -> SmallRng {
        let stream = self.0.streams.fetch_add(1, Ordering::Relaxed);
        let mut mixer = StdRng::seed_from_u64(self.0.seed.wrapping_add(stream));
        SmallRng::from_rng(&mut mixer)
    }

    /// 128 bits that nobody can guess, for tokens and whatever else lets its owner do something: from the system's randomness. Those of a node
    /// that was built with a seed follow from that, so that its run can be repeated; and whoever knows the seed knows them.
    ///
    /// # Panics
    /// If the system has no randomness; then no node can be built either.
    pub fn secret(&self) -> [u8; 16] {
        match self.0.is_seeded {
            true => lock(&self.0.uuids).random(),
            false => OsRng.unwrap_err().random(),
        }
    }

    /// A version 4 UUID that nobody else has. It can be guessed by who knows many others.
    pub fn fresh_uuid(&self) -> [u8; 16] {
        let mut uuid: [u8; 16] = lock(&self.0.uuids).random();
        uuid[6] = uuid[6] & 0x0F | 0x40;
        uuid[8] = uuid[8] & 0x3F | 0x80;
        uuid
    }

    /// Starts an actor under this name. If it panics it is gone.
    pub fn spawn<A>(&self, name: &str, actor: A) -> Result<Handle<A>, SpawnError>
    where
        A: Process + Send,
    {
        let mut actor = Some(actor);
        self.begin(name, Supervision::Stop, Box::new(move || actor.take()))
    }

    /// Starts an actor under the next free name `prefix(n)`.
    pub fn spawn_unnamed<A>(&self, prefix: &str, actor: A) -> Result<Handle<A>, SpawnError>
    where
        A: Process + Send,
    {
        self.spawn(&self.registry().next_name(prefix), actor)
    }

    /// Starts an actor that is made on its own thread, and made anew after a panic if the policy says so.
    pub fn supervise<A, F>(
        &self,
        name: &str,
        policy: Supervision,
        mut make: F,
    ) -> Result<Handle<A>, SpawnError>
    where
        A: Process,
        F: FnMut() -> A + Send + 'static,
    {
        self.begin(name, policy, Box::new(move || Some(make())))
    }

    fn begin<A: Process>(
        &self,
        name: &str,
        policy: Supervision,
        make: supervise::Maker<A>,
    ) -> Result<Handle<A>, SpawnError> {
        if !identity::is_actor_name(name) {
            return Err(SpawnError::BadName {
                name: name.to_owned(),
            });
        }
        if self.is_shutting_down() {
            return Err(SpawnError::ShuttingDown);
        }
        supervise::begin(self, name, policy, make)
    }

    /// The pid of whoever has this name here.
    pub fn whereis(&self, name: &str) -> Option<Pid> {
        self.registry().find(0, name).map(|entry| entry.pid.clone())
    }

    /// A reference to the actor with this pid, here or on another node.
    pub fn refer(&self, pid: Pid) -> ActorRef {
        ActorRef::new(self, pid)
    }

    /// Ends an actor of this node once its queue is handled. It takes nothing more and is not restarted.
    pub fn stop(&self, pid: &Pid) {
        if let Some(entry) = self.local(pid) {
            entry.halt.wish();
            entry.meter.drain();
        }
    }

    /// Ends an actor of this node before its next message.
    pub fn stop_now(&self, pid: &Pid) {
        if let Some(entry) = self.local(pid) {
            entry.halt.wish();
            entry.meter.stop_now();
        }
    }

    fn local(&self, pid: &Pid) -> Option<Arc<Entry>> {
        if pid.node() == self.id() {
            self.registry().find_pid(pid)
        } else {
            None
        }
    }

    /// Ready once that actor, here or elsewhere, has ended, with how.
    pub fn ended(&self, pid: &Pid) -> impl Future<Output = Exit> + Send + use<> {
        let (told, end) = oneshot::channel();
        let watcher = Watcher::Future(self.next_correlation());
        self.watch_as(
            pid,
            watcher.clone(),
            Box::new(move |exited| drop(told.send(exited.reason))),
        );
        let watch = Watch {
            node: self.downgrade(),
            pid: pid.clone(),
            watcher,
        };
        async move {
            let reason = end.await.unwrap_or(Exit::Stopped);
            drop(watch);
            reason
        }
    }

    /// Ends everything: queues are handled, then links closed after sending what was written. Actors that
    /// have not ended after ten seconds are ended before their next message.
    pub async fn shutdown(&self) {
        self.0.shutting_down.store(true, Ordering::Release);
        self.registry().halt_restarts();
        for entry in self.registry().living() {
            entry.halt.wish();
            entry.meter.drain();
        }
        if self
            .clock()
            .timeout(SHUTDOWN_PATIENCE, self.registry().emptied())
            .await
            .is_err()
        {
            for entry in self.registry().living() {
                tracing::warn!(pid = %entry.pid, depth = entry.meter.depth(), "did not end in time");
                entry.meter.stop_now();
            }
            if self
                .clock()
                .timeout(SHUTDOWN_PATIENCE, self.registry().emptied())
                .await
                .is_err()
            {
                tracing::error!("some actors never came back from a message");
            }
        }
        self.close_links("shutdown");
    }

    /// Whether [`shutdown`](Self::shutdown) has begun.
    pub fn is_shutting_down(&self) -> bool {
        self.0.shutting_down.load(Ordering::Acquire)
    }

    pub(crate) fn end_process(&self, reason: &str) {
        (self.0.end)(reason);
    }

    /// The living actor of this incarnation.
    pub(crate) fn entry(&self, incarnation: u64) -> Option<Arc<Entry>> {
        self.registry().find(incarnation, "")
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.0.registry
    }

    pub(crate) fn watches(&self) -> &Watches {
        &self.0.watches
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.0.counts
    }

    /// A number that no other question or future of this node has.
    pub(crate) fn next_correlation(&self) -> u64 {
        self.0.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The thread the node was built on.
    pub(crate) fn home(&self) -> &Arbiter {
        &self.0.home
    }

    pub(crate) fn downgrade(&self) -> WeakNode {
        WeakNode(Arc::downgrade(&self.0))
    }
}

/// A watch that ends when nobody waits for it any more.
struct Watch {
    node: WeakNode,
    pid: Pid,
    watcher: Watcher,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(node) = self.node.upgrade() {
            node.unwatch_as(&self.pid, &self.watcher);
        }
    }
}

impl WeakNode {
    pub(crate) fn upgrade(&self) -> Option<Node> {
        self.0.upgrade().map(Node)
    }

    pub(crate) fn is_there(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Node({})", self.id())
    }
}
