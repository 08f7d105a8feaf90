//! A node: one start of one process (or of its part in a simulation), with its actors.
//!
//! It keeps the actors, the watches between them and the links; draws every random number from one
//! seed and takes all time from one clock. It knows nothing of the work of its actors.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, Weak};
use std::time::Duration;

use rand::TryRngCore;
use rand::rngs::{OsRng, SmallRng, StdRng};
use rand::{Rng, SeedableRng};
use tokio::sync::oneshot;

use crate::actor::exit::Exit;
use crate::actor::handle::{ActorRef, Handle};
use crate::actor::placement::{Arbiter, Placement};
use crate::actor::process::Process;
use crate::actor::registry::{Entry, Registry};
use crate::actor::supervise::{self, Supervision};
use crate::actor::watch::{Watcher, Watches};
use crate::clock::Clock;
use crate::identity::{self, NodeId, Pid, Role, Roles};
use crate::link::links::Links;
use crate::link::send_buffer::LinksVersion;
use crate::lock;
use crate::observe::info::Counts;
use crate::observe::tap::Taps;
use crate::observe::watchdog;

/// How long a shutdown waits for queues to be handled, and then for the actors to end.
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
    pub(crate) links_version: LinksVersion,
    pub(crate) settings: Settings,
    pub(crate) taps: Taps,
    pub(crate) placement: Placement,
    /// The thread on which the node was built.
    pub(crate) home: Arbiter,
    pub(crate) threads: Mutex<BTreeMap<String, Arbiter>>,
    numbers: AtomicU64,
    shutting_down: AtomicBool,
    /// In simulations, the duration of each blocking call in nanoseconds.
    pub(crate) blocking_takes: AtomicU64,
    end: Box<dyn Fn(&str) + Send + Sync>,
    /// Its number at the watchdog; 0 if it is not watched.
    pub(crate) watched_as: u64,
}

/// The settings of its links.
pub(crate) struct Settings {
    pub(crate) accepts: Roles,
    pub(crate) outgoing_max: usize,
    pub(crate) frame_max: usize,
}

/// Why an actor was not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpawnError {
    /// Another actor has this name.
    #[error("the name {name:?} is taken")]
    NameTaken {
        /// The requested name.
        name: String,
    },
    /// The name cannot be part of a pid.
    #[error(
        "name is {name:?}, expected 1 to 255 bytes without '@', '#', spaces and control characters"
    )]
    BadName {
        /// The requested name.
        name: String,
    },
    /// Two message names have the same hash: one of them must be changed.
    #[error("messages {one:?} and {other:?} have the same id {id:08x}")]
    MessageIdTaken {
        /// The id of both.
        id: u32,
        /// The name registered first.
        one: &'static str,
        /// The refused name.
        other: &'static str,
    },
    /// Its thread could not be started, or has ended.
    #[error("no thread for {name:?}: {reason}")]
    NoThread {
        /// The actor's name.
        name: String,
        /// The error of the operating system.
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
    /// The panic message, or the runtime's reason.
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
    end: Box<dyn Fn(&str) + Send + Sync>,
}

impl NodeBuilder {
    /// The node's role. Default: module, which no node accepts unless configured to.
    pub fn role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    /// The roles it takes links with. Default: none.
    pub fn accepts(mut self, roles: &[Role]) -> Self {
        self.accepts = Roles::of(roles);
        self
    }

    /// The seed of all its random numbers. Default: the machine's own randomness.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The source of its time. Default: the machine.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Which actors get threads of their own. Default: none. Paused time allows none.
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Maximum bytes that wait to be sent to one peer; a further message fails as full. Default: 64
    /// MiB.
    pub fn outgoing_max(mut self, bytes: usize) -> Self {
        self.outgoing_max = bytes.max(1);
        self
    }

    /// The longest frame read, in bytes. Default 16 MiB; at least 512 KiB, which a peer may always
    /// send.
    pub fn frame_max(mut self, bytes: usize) -> Self {
        self.frame_max = bytes.max(512 << 10);
        self
    }

    /// Ends the process when an actor with that policy has panicked. Default: log and abort.
    pub fn end_process(mut self, end: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.end = Box::new(end);
        self
    }

    /// The node, with this thread as its home.
    ///
    /// # Panics Outside a `LocalSet`: build it inside an actix system, an `actix_rt::Runtime` or a
    /// simulation.
    pub fn build(self) -> Node {
        let is_seeded = self.seed.is_some();
        let seed = self
            .seed
            .unwrap_or_else(|| SmallRng::from_os_rng().random());
        let mut chance =
            StdRng::seed_from_u64(seed ^ crate::wire::message::id_of(&self.name) as u64);
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
            watched_as: match paused {
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
            links_version: LinksVersion::default(),
            settings: Settings {
                accepts: self.accepts,
                outgoing_max: self.outgoing_max,
                frame_max: self.frame_max,
            },
            home,
            placement,
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
    /// let builder = Node::builder("master-1").role(Role::Master);
    /// let node = builder.accepts(&[Role::Agent]).seed(7).build();
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
            end: Box::new(|reason| {
                tracing::error!(reason, "ending the process: an essential actor panicked");
                std::process::abort();
            }),
        }
    }

    /// The node's id.
    pub fn id(&self) -> &NodeId {
        &self.0.id
    }

    /// The node's role.
    pub fn role(&self) -> Role {
        self.0.role
    }

    /// Whether it takes links with peers of this role. A transport may ask before it reads any
    /// data.
    pub fn accepts(&self, role: Role) -> bool {
        self.0.settings.accepts.contains(role)
    }

    /// Lists in every later hello the messages that an actor of this type accepts, also while none
    /// lives here. Hellos are exchanged once per link: without this, a peer would send the newest
    /// version of a message to an actor that starts later, even if the actor does not accept it.
    pub fn will_accept<A: Process>(&self) {
        let handlers = crate::actor::process::RemoteHandlers::<A>::table();
        self.registry().announce(&handlers);
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

    /// 128 unpredictable bits from the system's randomness, for tokens and other capabilities. With
    /// a seed they follow from the seed, so that a run can be repeated; then anyone who knows the
    /// seed knows them.
    ///
    /// # Panics If the system has no randomness; then no node can be built either.
    pub fn secret(&self) -> [u8; 16] {
        match self.0.is_seeded {
            true => lock(&self.0.uuids).random(),
            false => OsRng.unwrap_err().random(),
        }
    }

    /// A unique version 4 UUID. It can be predicted from many others.
    pub fn fresh_uuid(&self) -> [u8; 16] {
        let mut uuid: [u8; 16] = lock(&self.0.uuids).random();
        uuid[6] = uuid[6] & 0x0F | 0x40;
        uuid[8] = uuid[8] & 0x3F | 0x80;
        uuid
    }

    /// Starts an actor under this name. It is not restarted after a panic.
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

    /// Starts an actor that is made on its own thread, and made anew after a panic if the policy
    /// allows.
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
        supervise::start(self, name, policy, make)
    }

    /// The pid of the actor with this name on this node.
    pub fn whereis(&self, name: &str) -> Option<Pid> {
        self.registry().find(0, name).map(|entry| entry.pid.clone())
    }

    /// A reference to the actor with this pid, here or on another node.
    pub fn refer(&self, pid: Pid) -> ActorRef {
        ActorRef::new(self, pid)
    }

    /// Ends an actor of this node once its queue is handled. It takes no more messages and is not
    /// restarted.
    pub fn stop(&self, pid: &Pid) {
        if let Some(entry) = self.local(pid) {
            entry.halt.request();
            entry.meter.drain();
        }
    }

    /// Ends an actor of this node before its next message.
    pub fn stop_now(&self, pid: &Pid) {
        if let Some(entry) = self.local(pid) {
            entry.halt.request();
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

    /// Resolves to the exit reason once that actor, here or on another node, has ended.
    pub fn ended(&self, pid: &Pid) -> impl Future<Output = Exit> + Send + use<> {
        let (sender, end) = oneshot::channel();
        let watcher = Watcher::Future(self.next_correlation());
        self.watch_as(
            pid,
            watcher.clone(),
            Box::new(move |exited| drop(sender.send(exited.reason))),
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

    /// Ends everything: queues are handled, then links are closed after their written messages were
    /// sent. Actors that have not ended after ten seconds are ended before their next message.
    pub async fn shutdown(&self) {
        self.0.shutting_down.store(true, Ordering::Release);
        self.registry().halt_restarts();
        for entry in self.registry().living() {
            entry.halt.request();
            entry.meter.drain();
        }
        if self
            .clock()
            .timeout(SHUTDOWN_PATIENCE, self.registry().emptied())
            .await
            .is_err()
        {
            for entry in self.registry().living() {
                tracing::warn!(pid = %entry.pid, depth = entry.meter.depth(), "actor did not end in time");
                entry.meter.stop_now();
            }
            if self
                .clock()
                .timeout(SHUTDOWN_PATIENCE, self.registry().emptied())
                .await
                .is_err()
            {
                tracing::error!("some actors are still blocked in a handler");
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

    /// A number unique among the asks and futures of this node.
    pub(crate) fn next_correlation(&self) -> u64 {
        self.0.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn downgrade(&self) -> WeakNode {
        WeakNode(Arc::downgrade(&self.0))
    }
}

/// A watch that ends with the future that waits for it.
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
