//! Actors on actix with names, pids, links, a clock, supervision, a wire codec and metrics.
//!
//! An actor here is an actix actor with our own [`Context`]. What the runtime adds is what a cluster
//! needs: a name and a pid that can be sent in a message, messages that may cross a wire, exactly one
//! [`Exited`] when somebody you linked to ends, time that tests can pause, restarts after a panic, and a
//! bound on everything.
//!
//! # Where to begin
//!
//! The [`guide`] leads from a first actor over two nodes and a link to supervision, in eight short programs. In a nutshell:
//!
//! ```
//! use std::time::Duration;
//! use runtime::prelude::*;
//! use runtime::rehearsal::rehearse;
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Add(u64);
//! remote! { Add = "example/add" v1 -> u64 }
//!
//! struct Counter { total: u64 }
//! impl Actor for Counter { type Context = Context<Self>; }
//! impl Process for Counter {
//!     fn hears(ears: &mut Ears<Self>) { ears.hear::<Add>(&[Role::Agent]); }
//! }
//! impl Handler<Add> for Counter {
//!     type Result = u64;
//!     fn handle(&mut self, Add(more): Add, _: &mut Context<Self>) -> u64 {
//!         self.total += more;
//!         self.total
//!     }
//! }
//!
//! rehearse(|node| async move {
//!     let counter = node.spawn("counter", Counter { total: 0 }).unwrap();
//!     counter.tell(Add(2)).unwrap();
//!     assert_eq!(counter.ask(Add(3), Duration::from_secs(1)).await, Ok(5));
//!     // Whoever knows only the pid, on this node or another, reaches it as well.
//!     assert_eq!(node.ask(&counter.pid(), Add(1), Patience::WhileLinked).await, Ok(6));
//! });
//! ```
//!
//! # Where things are
//!
//! [`Process`] and [`Ears`] say what an actor hears; [`Handle`], [`ActorRef`] and [`Node`] speak to it;
//! [`Supervision`] says what a panic means; [`Clock`] is all time; [`Link`] and [`Dialer`] are what a
//! transport is written against; [`delivery`] is for what must arrive even when its receiver fails;
//! [`RateLimiter`], [`Sequence`] and [`TimeSeries`] help actors to keep a rate, an order and a history;
//! [`host`] reads what the machine says of itself; [`rehearsal`], [`memory`] and the [`tap`] are for tests.

mod again;
mod agenda;
mod ages;
mod ask;
mod beside;
mod blocking;
mod clock;
pub mod codec;
mod context;
pub mod delivery;
mod desk;
mod exit;
mod frame;
#[doc(hidden)]
pub mod frames;
#[doc(hidden)]
pub mod fuzzing;
pub mod guide;
mod handle;
pub mod host;
mod identity;
mod inbox;
mod info;
mod letter;
mod limiter;
mod link;
mod links;
mod mailbox;
pub mod memory;
#[doc(hidden)]
pub mod message;
mod node;
mod outbox;
mod piece;
mod placement;
mod process;
mod registry;
pub mod rehearsal;
mod respond;
mod run;
mod seek;
mod sequence;
mod series;
mod supervise;
mod tally;
pub mod tap;
#[cfg(test)]
mod tests;
mod watch;
mod watchdog;

pub use agenda::Errand;
pub use ask::{AskError, Asking, Patience, Promise, Reply, TellError, promise};
pub use clock::{Clock, Instant, Late, Sleep, Timestamp};
pub use codec::Garbled;
pub use context::Context;
pub use exit::{Exit, Exited, PROCESS_ENDED};
pub use handle::{ActorRef, Handle};
pub use identity::{NodeId, Peer, Pid, Role, UnknownRole};
pub use info::{LinkInfo, ProcessInfo, short_name};
pub use limiter::{Acquiring, BadRate, RateLimiter, TooManyWait};
pub use link::{AttachError, ConnectError, Dialer, Dialled, Hello, Link, Sender};
pub use message::{Lane, Remote, WhenFull};
pub use node::{Interrupted, Node, NodeBuilder, SpawnError};
pub use outbox::Outgoing;
pub use placement::{Place, Placement};
pub use process::{Ears, Process};
pub use respond::answer_with;
pub use seek::Sought;
pub use sequence::{Sequence, SequenceError, Turn};
pub use series::{Statistics, TimeSeries};
pub use supervise::Supervision;
pub use tally::MessageInfo;

/// What nearly every file with an actor in it needs.
pub mod prelude {
    pub use actix::fut;
    pub use actix::prelude::{
        Actor, ActorContext, ActorFutureExt, AsyncContext, Handler, Message, MessageResult,
        ResponseActFuture, ResponseFuture, Running, WrapFuture,
    };

    pub use crate::{
        ActorRef, AskError, Clock, Context, Ears, Errand, Exit, Exited, Handle, Lane, Node,
        Patience, Peer, Pid, Process, Promise, Remote, Reply, Role, Supervision, TellError,
        WhenFull, promise, remote,
    };
}

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Locks, also after a panic of another holder: what is under our locks is whole between statements.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<T: ?Sized>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T: ?Sized>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
