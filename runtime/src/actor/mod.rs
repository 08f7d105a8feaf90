//! Actors: their mailboxes, handles, asks, timers, supervision and ends.
//!
//! Nothing here knows a link: messages to actors of other nodes go through [`link`](crate::link).
//!
//! | module | contents |
//! |---|---|
//! | `ask` | an ask: one message, one reply, and a time limit |
//! | `blocking` | blocking work on other threads |
//! | `context` | the context an actor runs in |
//! | `exit` | how an actor ended, sent once to every actor that linked to it |
//! | `handle` | references to actors of a known type |
//! | `mailbox` | the bound of a mailbox, the envelopes, and the meter |
//! | `pending` | the timers and futures of an actor |
//! | `placement` | the thread of an actor, by its name |
//! | `process` | the messages that an actor accepts from other nodes |
//! | `registry` | the living actors of a node, by incarnation and by name |
//! | `respond` | how a handler's return value becomes the reply |
//! | `supervise` | the incarnations of an actor, through panics to its end |
//! | `watch` | which watcher is notified of the end of which actor |

pub(crate) mod ask;
pub(crate) mod blocking;
pub(crate) mod context;
pub(crate) mod exit;
pub(crate) mod handle;
pub(crate) mod mailbox;
pub(crate) mod pending;
pub(crate) mod placement;
pub(crate) mod process;
pub(crate) mod registry;
pub(crate) mod respond;
pub(crate) mod supervise;
pub(crate) mod watch;
