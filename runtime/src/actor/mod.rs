//! Actors: processes, their mailboxes, handles, supervision and pending work.

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
