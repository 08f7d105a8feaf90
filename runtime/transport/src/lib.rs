//! QUIC, Unix sockets and certificates under the runtime's links.
//!
//! | module | contents |
//! |---|---|
//! | `backoff` | [`Backoff`]: the wait before the next dial |
//! | `certificates` | the cluster's authority and the identity of each node |
//! | `foreign` | only for tests: an authority as another tool makes it |
//! | `hello` | the first bytes on a connection |
//! | `lanes` | buffers and errors of a lane, common to all kinds of connection |
//! | `quic` | [`Endpoint`]: one UDP socket, mutual TLS, one connection per peer |
//! | `tls` | TLS for HTTP pages |
//! | `unix` | the same frames for executors on the agent's machine |
//!
//! This crate has no actors and decodes no message: bytes come from a [`runtime::Link`] and go to
//! one.

mod backoff;
pub mod certificates;
#[cfg(test)]
mod foreign;
mod hello;
mod lanes;
mod quic;
pub mod tls;
pub mod unix;

pub use backoff::Backoff;
pub use certificates::{Authority, CertificateError, Identity, Revocations, Subject, server_name};
pub use quic::{
    Address, BindError, Endpoint, Handshakes, Options, RenewError, Renewal, SimulatedSockets,
    Traffic, config,
};
