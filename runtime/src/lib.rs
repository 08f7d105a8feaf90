//! Actors on actix with names, pids, links, a clock, supervision, a wire codec and metrics.
//!
//! An actor is an actix actor with the runtime's own [`Context`]. The runtime adds the parts that a
//! cluster needs: a name and a pid that can be sent in a message, messages that may cross a wire,
//! exactly one [`Exited`] when a linked actor ends, time that tests can pause, restarts after a
//! panic, and a bound on every queue.
//!
//! # Where to begin
//!
//! The [`guide`] leads from a first actor over two nodes and a link to supervision, in eight short
//! programs. In short:
//!
//! ```
//! use std::time::Duration;
//! use runtime::prelude::*;
//! use runtime::testing::simulate;
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Add(u64);
//! remote! { Add = "example/add" v1 -> u64 }
//!
//! struct Counter { total: u64 }
//! impl Actor for Counter { type Context = Context<Self>; }
//! impl Process for Counter {
//!     fn accepts(handlers: &mut RemoteHandlers<Self>) { handlers.accept::<Add>(&[Role::Agent]); }
//! }
//! impl Handler<Add> for Counter {
//!     type Result = u64;
//!     fn handle(&mut self, Add(more): Add, _: &mut Context<Self>) -> u64 {
//!         self.total += more;
//!         self.total
//!     }
//! }
//!
//! simulate(|node| async move {
//!     let counter = node.spawn("counter", Counter { total: 0 }).unwrap();
//!     counter.tell(Add(2)).unwrap();
//!     assert_eq!(counter.ask(Add(3), Duration::from_secs(1)).await, Ok(5));
//!     // The pid alone is enough to reach the actor, from this node or another.
//!     assert_eq!(node.ask(&counter.pid(), Add(1), Patience::WhileLinked).await, Ok(6));
//! });
//! ```
//!
//! # Where things are
//!
//! | module | contents |
//! |---|---|
//! | `actor` | processes, mailboxes, handles, asks, supervision, timers |
//! | `clock` | the source of all time in a node |
//! | `delivery` | acknowledged delivery of messages that must arrive |
//! | `guide` | the runtime in eight short programs |
//! | `identity` | node ids, incarnations, pids and the roles of peers |
//! | `link` | one connection to another node: frames in both directions |
//! | `node` | one start of one process, with its actors |
//! | `observe` | counters, history, the watchdog, and the tap on messages |
//! | `testing` | nodes on one thread in virtual time |
//! | `wire` | message names and versions, the codec, and frames |
//! | `tests` | tests of whole actors, the actor contract among them |
//!
//! - [`Process`] and [`RemoteHandlers`] list the messages that an actor accepts.
//! - [`Handle`], [`ActorRef`] and [`Node`] send messages to it.
//! - [`Supervision`] decides the consequence of a panic.
//! - [`Clock`] is the source of all time.
//! - [`Link`] and [`Dialer`] are the interface to a transport.
//! - [`delivery`] is for messages that must arrive even when their receiver fails.
//! - [`TimeSeries`] keeps a history of samples.
//! - [`observe::host`] reads the memory and the load of the machine.
//! - [`testing`], [`testing::memory`] and the [`observe::tap`] are for tests.

mod actor;
mod clock;
pub mod delivery;
pub mod guide;
mod identity;
mod link;
mod node;
pub mod observe;
pub mod testing;
#[cfg(test)]
mod tests;
pub mod wire;

pub use actor::ask::{AskError, Asking, Patience, Promise, Reply, TellError, promise};
pub use actor::context::Context;
pub use actor::exit::{Exit, Exited, PROCESS_ENDED};
pub use actor::handle::{ActorRef, Handle};
pub use actor::pending::TimerHandle;
pub use actor::placement::{Place, Placement};
pub use actor::process::{Process, RemoteHandlers};
pub use actor::respond::answer_with;
pub use actor::supervise::Supervision;
pub use clock::{Clock, Instant, Late, Sleep, Timestamp};
pub use identity::{NodeId, Peer, Pid, Role, UnknownRole};
pub use link::discovery::Discovered;
pub use link::outbox::Outgoing;
pub use link::{AttachError, ConnectError, Dialer, Dialled, Hello, Link, Sender};
pub use node::{Interrupted, Node, NodeBuilder, SpawnError};
pub use observe::info::{LinkInfo, ProcessInfo, short_name};
pub use observe::series::{Statistics, TimeSeries};
pub use observe::tally::MessageInfo;
pub use wire::codec::Garbled;
pub use wire::message::{Lane, Remote, WhenFull};

/// The imports of nearly every file that defines an actor.
pub mod prelude {
    pub use actix::fut;
    pub use actix::prelude::{
        Actor, ActorContext, ActorFutureExt, AsyncContext, Handler, Message, MessageResult,
        ResponseActFuture, ResponseFuture, Running, WrapFuture,
    };

    pub use crate::{
        ActorRef, AskError, Clock, Context, Exit, Exited, Handle, Lane, Node, Patience, Peer, Pid,
        Process, Promise, Remote, RemoteHandlers, Reply, Role, Supervision, TellError, TimerHandle,
        WhenFull, promise, remote,
    };
}

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Locks, also after another holder panicked: the guarded data is consistent between statements.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<T: ?Sized>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T: ?Sized>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
