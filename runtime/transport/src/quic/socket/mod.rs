//! The system's UDP socket for quinn, with the errors of closed ports.
//!
//! Sends and receives quinn's datagrams, and liveness probes from the same port, so that a firewall
//! treats both alike. Reads the addresses that refused a datagram from the socket's error queue,
//! and records the last probe of each watched peer. An error reported by a network never ends the
//! socket: QUIC repeats lost packets.

pub(crate) mod address;

use std::collections::BTreeMap;
use std::future::Future;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use quinn::udp::{RecvMeta, Transmit, UdpSocketState};
use quinn::{AsyncUdpSocket, UdpPoller};
use runtime::{Clock, Instant};
use tokio::io::Interest;

use super::canonical;

/// Bytes of a link's token.
pub(super) const TOKEN: usize = 8;
/// Bytes of a probe: a zero, with which no QUIC packet of this length begins, the probe interval in
/// units of 100 ms, and the token.
const PROBE: usize = 2 + TOKEN;
const PROBE_UNIT: Duration = Duration::from_millis(100);
/// Buffer for an error's control messages: the error, and the data that quinn requests for each
/// datagram.
const CONTROL: usize = 512;
/// Maximum errors read from the queue at once.
const REFUSALS_MAX: usize = 1024;
/// The socket yields after this number of consecutive errors.
const ERRORS_IN_A_ROW: usize = 16;

/// A refused datagram: its receiver, and the token if it was a probe. Only a receiver of the probe
/// can know the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Refusal {
    pub(super) address: SocketAddr,
    pub(super) token: Option<[u8; TOKEN]>,
}

/// A UDP socket of the system.
#[derive(Debug)]
pub(crate) struct UdpSocket {
    io: tokio::net::UdpSocket,
    state: UdpSocketState,
    clock: Clock,
    /// Watched peers: the time of the last probe, and the interval that it announced.
    last_probes: Mutex<BTreeMap<SocketAddr, Option<(Instant, Duration)>>>,
}

impl UdpSocket {
    /// Takes over a bound socket. Needs a tokio runtime.
    pub(super) fn new(socket: std::net::UdpSocket, clock: &Clock) -> io::Result<Self> {
        let state = UdpSocketState::new((&socket).into())?;
        // Without error queues dead peers are found by the idle timeout only. An IPv6 socket needs
        // both options: it has IPv4 peers as well.
        let _ = setsockopt(&socket, sockopt::Ipv4RecvErr, &true);
        if socket.local_addr()?.is_ipv6() {
            let _ = setsockopt(&socket, sockopt::Ipv6RecvErr, &true);
        }
        Ok(Self {
            io: tokio::net::UdpSocket::from_std(socket)?,
            state,
            clock: clock.clone(),
            last_probes: Mutex::default(),
        })
    }

    fn last_probes(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, Option<(Instant, Duration)>>> {
        self.last_probes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the probes of this peer from now on.
    pub(super) fn watch(&self, peer: SocketAddr) {
        self.last_probes().insert(peer, None);
    }

    pub(super) fn unwatch(&self, peer: SocketAddr) {
        self.last_probes().remove(&peer);
    }

    /// Time and announced interval of this peer's last probe.
    pub(super) fn last_probe(&self, peer: SocketAddr) -> Option<(Instant, Duration)> {
        self.last_probes().get(&peer).copied().flatten()
    }

    /// Sends one probe, which announces the next one after `interval`. A lost probe is not
    /// repeated.
    pub(super) fn probe(&self, to: SocketAddr, token: [u8; TOKEN], interval: Duration) {
        let units = interval.as_millis() / PROBE_UNIT.as_millis();
        let mut probe = [0; PROBE];
        probe[1] = u8::try_from(units).unwrap_or(u8::MAX);
        probe[PROBE - TOKEN..].copy_from_slice(&token);
        let send = || self.io.try_send_to(&probe, to);
        // The first attempt takes an error reported for an earlier datagram.
        if send().is_err_and(|error| error.kind() != ErrorKind::WouldBlock) {
            let _ = send();
        }
    }

    /// The datagrams refused since the last call: the host answers, and the port is closed.
    pub(super) fn take_refusals(&self) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        for _ in 0..REFUSALS_MAX {
            let mut payload = [0; 64];
            let mut parts = [IoSliceMut::new(&mut payload)];
            let mut control = [0; CONTROL];
            let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
            let read = recvmsg::<SockaddrStorage>(
                self.io.as_raw_fd(),
                &mut parts,
                Some(&mut control),
                flags,
            );
            let Ok(message) = read else { break };
            let is_refusal = message.cmsgs().is_ok_and(|mut controls| {
                controls.any(|control| match control {
                    ControlMessageOwned::Ipv4RecvErr(error, _)
                    | ControlMessageOwned::Ipv6RecvErr(error, _) => {
                        error.ee_errno == Errno::ECONNREFUSED as u32
                    }
                    _ => false,
                })
            });
            // The address is the receiver of the datagram, and the payload the part of it that the
            // refusal quotes.
            let (quoted, address) = (message.bytes, message.address);
            if is_refusal && let Some(address) = address.as_ref().and_then(address_of) {
                refusals.push(Refusal {
                    address: canonical(address),
                    token: token_of(&payload[..quoted]),
                });
            }
        }
        refusals.sort_unstable();
        refusals.dedup();
        refusals
    }

    fn note_probes(&self, metas: &[RecvMeta], buffers: &[IoSliceMut<'_>]) {
        for (meta, bytes) in metas.iter().zip(buffers) {
            // Datagrams received together share one buffer; the stride is their common length.
            if meta.stride != PROBE || meta.len < PROBE || bytes[0] != 0 {
                continue;
            }
            if let Some(last) = self.last_probes().get_mut(&canonical(meta.addr)) {
                let interval = PROBE_UNIT * u32::from(bytes[1]);
                *last = Some((self.clock.now(), interval));
            }
        }
    }
}

/// The token of a probe, if the bytes are one.
fn token_of(datagram: &[u8]) -> Option<[u8; TOKEN]> {
    let token = datagram.strip_prefix(&[0])?.get(1..)?;
    token.try_into().ok()
}

fn address_of(address: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(address) = address.as_sockaddr_in() {
        return Some(SocketAddr::V4((*address).into()));
    }
    let address = address.as_sockaddr_in6()?;
    Some(SocketAddr::V6((*address).into()))
}

impl AsyncUdpSocket for UdpSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Writable {
            socket: self,
            waiting: None,
        })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.io.try_io(Interest::WRITABLE, || {
            let send = || self.state.try_send((&self.io).into(), transmit);
            // The first attempt takes an error reported for an earlier datagram.
            let sent = match send() {
                Err(error) if error.kind() != ErrorKind::WouldBlock => send(),
                sent => sent,
            };
            match sent {
                Err(error) if error.kind() != ErrorKind::WouldBlock => {
                    tracing::debug!(to = %transmit.destination, %error, "datagram not sent");
                    Ok(())
                }
                sent => sent,
            }
        })
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        for _ in 0..ERRORS_IN_A_ROW {
            ready!(self.io.poll_recv_ready(context))?;
            let received = self.io.try_io(Interest::READABLE, || {
                self.state.recv((&self.io).into(), buffers, metas)
            });
            // An error was reported by a network, or nothing has arrived.
            if let Ok(count) = received {
                self.note_probes(&metas[..count], buffers);
                return Poll::Ready(Ok(count));
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.state.gro_segments()
    }

    fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }
}

type WritableFuture = Pin<Box<dyn Future<Output = io::Result<()>> + Send + Sync>>;

/// Waits until the socket is writable.
struct Writable {
    socket: Arc<UdpSocket>,
    waiting: Option<WritableFuture>,
}

impl std::fmt::Debug for Writable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writable").finish_non_exhaustive()
    }
}

impl UdpPoller for Writable {
    fn poll_writable(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = self.socket.clone();
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::pin(async move { socket.io.writable().await }));
        let writable = ready!(waiting.as_mut().poll(context));
        self.waiting = None;
        Poll::Ready(writable)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use testkit::recorder::{eventually, run_in_real_time};

    #[test]
    fn a_closed_port_is_reported_and_an_open_one_is_not() {
        run_in_real_time(async {
            let clock = Clock::real();
            let bound = || std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let (own, open, closed) = (bound(), bound(), bound());
            own.set_nonblocking(true).unwrap();
            let (open_at, closed_at) = (open.local_addr().unwrap(), closed.local_addr().unwrap());
            drop(closed);
            let socket = UdpSocket::new(own, &clock).unwrap();
            socket.io.writable().await.unwrap();
            let token = *b"of links";
            socket.probe(open_at, token, Duration::from_secs(1));
            socket.probe(closed_at, token, Duration::from_secs(1));
            let refusals = Mutex::default();
            eventually(&clock, "a refusal", || {
                let mut refusals: MutexGuard<'_, Vec<_>> = refusals.lock().unwrap();
                refusals.extend(socket.take_refusals());
                !refusals.is_empty()
            })
            .await;
            let refusal = Refusal {
                address: closed_at,
                token: Some(token),
            };
            assert_eq!(*refusals.lock().unwrap(), [refusal]);
            // The reported error affects no other peer.
            socket.probe(open_at, token, Duration::from_secs(2));
            let mut probe = [0; 16];
            for interval in [10, 20] {
                assert_eq!(open.recv(&mut probe).unwrap(), PROBE);
                assert_eq!(probe[..2], [0, interval]);
                assert_eq!(token_of(&probe[..PROBE]), Some(token));
            }
        });
    }
}
