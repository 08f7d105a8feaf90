//! QUIC, Unix sockets and certificates under the runtime's links.
//!
//! [`certificates`] makes a cluster's authority and the identity of each node. [`Endpoint`] gives a node its place in
//! the network: one UDP socket, mutual TLS, one connection per peer. [`unix`] is for executors on the agent's own
//! machine: the same frames without a handshake. [`tls`] is what pages are served over. [`wire`] puts endpoints on a network in memory. [`Backoff`] says how long to wait before dialling again.
//!
//! Nothing here knows an actor or reads a message: bytes come from a [`runtime::Link`] and go to one.

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
pub mod wire;

pub use backoff::Backoff;
pub use certificates::{Authority, CertificateError, Identity, Revocations, Subject};
pub use quic::{BindError, Endpoint, Handshakes, Options, RenewError, Renewal, Traffic};
