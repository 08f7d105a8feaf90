//! An in-memory UDP network for simulations.
//!
//! A [`NetworkModel`] is called once for each datagram and returns its [`DatagramFate`]. A
//! [`VirtualUdpNetwork`] carries that out: it holds the sockets of all nodes of a simulation, so
//! that the same [`Endpoint`](transport::Endpoint) runs on it, with TLS, streams and retransmissions.
//! The model sees lengths and addresses, never contents. No real socket is used, and all time comes
//! from one clock.

mod network;
mod socket;

use std::net::SocketAddr;
use std::time::Duration;

use runtime::Instant;

pub use network::{Counts, VirtualUdpNetwork};

/// Maximum number of copies in which one datagram arrives.
pub const COPIES_MAX: usize = 8;

/// A datagram that a socket has just sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The time of sending, by the network's clock.
    pub at: Instant,
    /// The sender's address.
    pub from: SocketAddr,
    /// The receiver's address.
    pub to: SocketAddr,
    /// Bytes, without headers of lower layers.
    pub length: usize,
}

/// The delivery of one datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatagramFate {
    /// It never arrives.
    Lost,
    /// It arrives after this delay. Datagrams of the same time arrive in the order of sending. Time
    /// has a resolution of one millisecond. QUIC takes a datagram for lost when three later ones
    /// overtake it, and slows down.
    After(Duration),
    /// It arrives once for each of these delays, of which the first [`COPIES_MAX`] count; none
    /// means lost.
    Copies(Vec<Duration>),
}

/// The behaviour of the network between all sockets of a [`VirtualUdpNetwork`].
///
/// It must be deterministic: randomness comes from a seed. Every `FnMut(Datagram) -> DatagramFate`
/// is a model. It must not call the network that calls it.
pub trait NetworkModel: Send + 'static {
    /// The delivery of this datagram. Called once for each, in the order of sending.
    fn fate(&mut self, datagram: Datagram) -> DatagramFate;
}

impl<F: FnMut(Datagram) -> DatagramFate + Send + 'static> NetworkModel for F {
    fn fate(&mut self, datagram: Datagram) -> DatagramFate {
        self(datagram)
    }
}

#[cfg(test)]
mod tests;
