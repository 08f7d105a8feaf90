//! QUIC, Unix sockets and certificates under the runtime's links.
//!
//! - [`certificates`]: the cluster's authority and the identity of each node.
//! - [`Endpoint`]: a node's network endpoint: one UDP socket, mutual TLS, one connection per peer.
//! - [`unix`]: the same frames for executors on the agent's machine, without a handshake.
//! - [`tls`]: TLS for HTTP pages.
//! - [`virtual_udp`]: an in-memory network for endpoints in simulations.
//! - [`Backoff`]: the wait before the next dial.
//!
//! This crate has no actors and decodes no message: bytes come from a [`runtime::Link`] and go to
//! one.

mod backoff;
pub mod bare;
pub mod certificates;
pub mod connections;
#[cfg(test)]
mod foreign;
#[doc(hidden)]
pub mod fuzzing;
mod hello;
mod lanes;
pub mod measure;
mod quic;
#[cfg(test)]
mod testing;
pub mod tls;
pub mod unix;
pub mod virtual_udp;

pub use backoff::Backoff;
pub use certificates::{Authority, CertificateError, Identity, Revocations, Subject};
pub use quic::{BindError, Endpoint, Handshakes, Options, RenewError, Renewal, Traffic};
