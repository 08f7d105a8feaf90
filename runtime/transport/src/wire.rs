//! Wires in memory: what becomes of each datagram, told by whoever rehearses a network.
//!
//! A [`Wire`] is asked once for each datagram and answers its [`Fate`]. An [`Ether`] obeys it: it holds the sockets of
//! all nodes of a rehearsal, so that the very same [`Endpoint`](crate::Endpoint) runs on it, with TLS, streams and
//! retransmissions. Hears lengths and addresses, never contents. Remembers nothing: what is cut or slow is the wire's
//! own business. Never touches a real socket, and takes all time from one clock.

mod ether;
mod socket;

use std::net::SocketAddr;
use std::time::Duration;

use runtime::Instant;

pub use ether::{Counts, Ether};
pub(crate) use socket::Socket;

/// The most copies that one datagram can arrive in.
pub const COPIES_MAX: usize = 8;

/// A datagram that a socket has just sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// When, by the ether's clock.
    pub at: Instant,
    /// The socket it comes from.
    pub from: SocketAddr,
    /// Where it shall go.
    pub to: SocketAddr,
    /// How many bytes it has, without any header of lower layers.
    pub length: usize,
}

/// What becomes of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It never arrives.
    Lost,
    /// It arrives this much later. Those of the same time arrive in the order in which they were sent. Time moves in
    /// steps of a millisecond. Where later ones overtake by more than two others QUIC takes them for lost, and slows.
    After(Duration),
    /// It arrives once for each of these delays, the first [`COPIES_MAX`] of them; none means that it is lost.
    Copies(Vec<Duration>),
}

/// The network between all sockets of an [`Ether`].
///
/// The same questions must get the same answers in each run: chance comes from a seed. A plain function
/// `FnMut(Datagram) -> Fate` is a wire too. While it answers it must not call the ether that asks.
pub trait Wire: Send + 'static {
    /// What becomes of this datagram? Asked once for each, in the order of sending.
    fn fate(&mut self, datagram: Datagram) -> Fate;
}

impl<F: FnMut(Datagram) -> Fate + Send + 'static> Wire for F {
    fn fate(&mut self, datagram: Datagram) -> Fate {
        self(datagram)
    }
}

#[cfg(test)]
mod tests;
