//! The virtual network: all sockets of a simulation, and the datagrams in flight between them.
//!
//! Calls the model for each datagram, holds datagrams until their time, buffers them at the
//! receiver and wakes its reader. Also resolves host names. Everything is bounded: datagrams beyond
//! a bound are dropped, as in any network, and counted.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::fmt;
use std::io::{self, ErrorKind};
use std::iter::repeat_n;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use quinn::AsyncUdpSocket;
use quinn::udp::EcnCodepoint;
use runtime::{Clock, Instant, Sleep};
use transport::SimulatedSockets;

use super::socket::VirtualUdpSocket;
use super::{COPIES_MAX, Datagram, DatagramFate, NetworkModel};

/// The first port for a socket that asks for any port.
const PORT_FIRST: u16 = 49_152;
/// Maximum datagrams in flight to one address; further ones are dropped.
const IN_FLIGHT_MAX: usize = 65_536;
/// Bytes of the receive buffer that a waiting datagram costs beside its content, as in a real
/// system.
const DATAGRAM_COST: usize = 512;

/// A network in memory. Clones share it; all of its users are on one thread.
#[derive(Clone)]
pub struct VirtualUdpNetwork(Arc<Inner>);

struct Inner {
    clock: Clock,
    model: Mutex<Box<dyn NetworkModel>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ports: BTreeMap<SocketAddr, Port>,
    names: BTreeMap<String, IpAddr>,
    sockets: u64,
    sequence: u64,
    counts: Counts,
}

/// Counters of all datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sent by any socket.
    pub sent: u64,
    /// Read by a socket, copies included.
    pub delivered: u64,
    /// Lost by the model's decision.
    pub lost: u64,
    /// Dropped because no socket has the address.
    pub unreachable: u64,
    /// Dropped because the receiver's buffer was full.
    pub overflowed: u64,
}

/// One address, with or without a socket. Datagrams in flight arrive at the socket that has it at
/// that time.
#[derive(Default)]
struct Port {
    owner: Option<u64>,
    /// Maximum unread bytes.
    room: usize,
    in_flight: BinaryHeap<Reverse<InFlight>>,
    arrived: VecDeque<ReceivedDatagram>,
    arrived_bytes: usize,
    reader: Option<Reader>,
}

/// The sleeping reader of an address.
struct Reader {
    waker: Waker,
    /// Time of its wake-up; none if no datagram is in flight.
    alarm: Option<Alarm>,
}

struct Alarm {
    at: Instant,
    /// Wakes the reader unless it is dropped.
    _sleep: Sleep,
}

/// A datagram in flight, ordered by arrival and then by the order of sending.
struct InFlight {
    at: Instant,
    sequence: u64,
    datagram: ReceivedDatagram,
}

impl PartialEq for InFlight {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}

impl Eq for InFlight {}

impl PartialOrd for InFlight {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for InFlight {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// A datagram as its receiver sees it.
#[derive(Clone)]
pub(super) struct ReceivedDatagram {
    pub(super) from: SocketAddr,
    pub(super) ecn: Option<EcnCodepoint>,
    pub(super) bytes: Bytes,
}

impl VirtualUdpNetwork {
    /// A network without sockets, with this clock and this model.
    pub fn new(clock: Clock, model: impl NetworkModel) -> Self {
        Self(Arc::new(Inner {
            clock,
            model: Mutex::new(Box::new(model)),
            state: Mutex::default(),
        }))
    }

    /// Registers a host name. Endpoints on this network never use the system's resolver.
    pub fn name(&self, host: &str, address: IpAddr) {
        self.state().names.insert(host.to_owned(), address);
    }

    /// Removes the socket at this address, like a power failure of its machine: it sends and
    /// receives nothing more, and the address is free. Returns whether there was one.
    pub fn power_off(&self, address: SocketAddr) -> bool {
        let mut state = self.state();
        state
            .ports
            .get_mut(&address)
            .is_some_and(|port| port.vacate().is_some())
    }

    /// Counters of all datagrams.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.state().counts
    }

    /// Binds a new socket to the address; returns the address bound and the socket's number.
    pub(super) fn open(&self, wanted: SocketAddr, room: usize) -> io::Result<(SocketAddr, u64)> {
        if wanted.ip().is_unspecified() || wanted.ip().is_multicast() {
            let reason = "expected the one address of the socket's machine";
            return Err(io::Error::new(ErrorKind::AddrNotAvailable, reason));
        }
        let mut state = self.state();
        let address = state.free(wanted)?;
        state.sockets += 1;
        let number = state.sockets;
        let now = self.0.clock.now();
        let port = state.ports.entry(address).or_default();
        let missed = port.drop_missed(now);
        port.owner = Some(number);
        port.room = room;
        state.counts.unreachable += missed;
        Ok((address, number))
    }

    /// Removes the socket with this number.
    pub(super) fn remove(&self, address: SocketAddr, number: u64) {
        if let Some(port) = self.state().owned(address, number) {
            port.vacate();
        }
    }

    /// Sends a datagram, if this socket still has its address.
    pub(super) fn send(&self, number: u64, to: SocketAddr, sent: ReceivedDatagram) {
        if self.state().owned(sent.from, number).is_none() {
            return;
        }
        let at = self.0.clock.now();
        let datagram = Datagram {
            at,
            from: sent.from,
            to,
            length: sent.bytes.len(),
        };
        let mut model = self.0.model.lock().unwrap_or_else(PoisonError::into_inner);
        let fate = model.fate(datagram);
        drop(model);
        self.0.clock.note_movement();
        let mut state = self.state();
        state.counts.sent += 1;
        let woken = match fate {
            DatagramFate::After(delay) => state.schedule(&self.0.clock, at, to, &[delay], sent),
            DatagramFate::Copies(delays) if !delays.is_empty() => {
                state.schedule(&self.0.clock, at, to, &delays, sent)
            }
            DatagramFate::Copies(_) | DatagramFate::Lost => {
                state.counts.lost += 1;
                None
            }
        };
        drop(state);
        if let Some(reader) = woken {
            reader.wake();
        }
    }

    /// Returns at most `count` datagrams that have arrived for this socket. If there are none, the
    /// waker is called at the next arrival.
    pub(super) fn read(
        &self,
        address: SocketAddr,
        number: u64,
        count: usize,
        waker: &Waker,
    ) -> Vec<ReceivedDatagram> {
        let now = self.0.clock.now();
        let mut state = self.state();
        let Some(port) = state.owned(address, number) else {
            return Vec::new();
        };
        let overflowed = port.receive_due(now);
        let found = port.take(count);
        if found.is_empty() {
            port.set_reader(&self.0.clock, waker);
        } else {
            self.0.clock.note_movement();
        }
        state.counts.overflowed += overflowed;
        state.counts.delivered += found.len() as u64;
        found
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SimulatedSockets for VirtualUdpNetwork {
    fn bind(&self, address: SocketAddr, buffer: usize) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        Ok(Arc::new(VirtualUdpSocket::bind(self, address, buffer)?))
    }

    fn lookup(&self, host: &str) -> io::Result<SocketAddr> {
        if let Ok(address) = host.parse() {
            return Ok(address);
        }
        let unknown = || io::Error::new(ErrorKind::NotFound, "no such name on this network");
        let (name, port) = host.rsplit_once(':').ok_or_else(unknown)?;
        let port = port.parse().map_err(|_| unknown())?;
        let state = self.state();
        let address = state.names.get(name).ok_or_else(unknown)?;
        Ok(SocketAddr::new(*address, port))
    }
}

impl fmt::Debug for VirtualUdpNetwork {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("VirtualUdpNetwork")
    }
}

impl State {
    fn owned(&mut self, address: SocketAddr, number: u64) -> Option<&mut Port> {
        let port = self.ports.get_mut(&address)?;
        (port.owner == Some(number)).then_some(port)
    }

    fn is_free(&self, address: SocketAddr) -> bool {
        let port = self.ports.get(&address);
        port.is_none_or(|port| port.owner.is_none())
    }

    /// The requested address; with port 0 the first free one.
    fn free(&self, mut wanted: SocketAddr) -> io::Result<SocketAddr> {
        if wanted.port() != 0 {
            return match self.is_free(wanted) {
                true => Ok(wanted),
                false => Err(ErrorKind::AddrInUse.into()),
            };
        }
        (PORT_FIRST..=u16::MAX)
            .map(|port| {
                wanted.set_port(port);
                wanted
            })
            .find(|address| self.is_free(*address))
            .ok_or_else(|| ErrorKind::AddrInUse.into())
    }

    /// Schedules a datagram, once for each delay. Returns the reader if it must be woken at once.
    fn schedule(
        &mut self,
        clock: &Clock,
        at: Instant,
        to: SocketAddr,
        delays: &[Duration],
        sent: ReceivedDatagram,
    ) -> Option<Waker> {
        let Some(port) = self.ports.get_mut(&to) else {
            self.counts.unreachable += 1;
            return None;
        };
        if port.owner.is_none() {
            self.counts.unreachable += port.drop_missed(at);
        }
        let copies = delays.len().min(COPIES_MAX);
        for (delay, datagram) in delays.iter().zip(repeat_n(sent, copies)) {
            if port.in_flight.len() >= IN_FLIGHT_MAX {
                self.counts.overflowed += 1;
                continue;
            }
            self.sequence += 1;
            port.in_flight.push(Reverse(InFlight {
                at: at + *delay,
                sequence: self.sequence,
                datagram,
            }));
        }
        port.set_alarm(clock)
    }
}

impl Port {
    /// Removes the owner and its unread datagrams.
    fn vacate(&mut self) -> Option<u64> {
        self.arrived.clear();
        self.arrived_bytes = 0;
        self.reader = None;
        self.owner.take()
    }

    /// Drops datagrams that arrived while the address had no socket; returns their number.
    fn drop_missed(&mut self, now: Instant) -> u64 {
        let mut missed = 0;
        while self
            .in_flight
            .peek()
            .is_some_and(|Reverse(next)| next.at < now)
        {
            self.in_flight.pop();
            missed += 1;
        }
        missed
    }

    /// Registers the reader until the next arrival.
    fn set_reader(&mut self, clock: &Clock, waker: &Waker) {
        self.reader = Some(Reader {
            waker: waker.clone(),
            alarm: None,
        });
        if let Some(reader) = self.set_alarm(clock) {
            reader.wake();
        }
    }

    /// Sets the reader's alarm for the next datagram, unless it wakes early enough. Returns the
    /// reader if the datagram is due. The sender sets the alarm: otherwise the reader would wake
    /// twice for each datagram.
    fn set_alarm(&mut self, clock: &Clock) -> Option<Waker> {
        let Reverse(next) = self.in_flight.peek()?;
        let reader = self.reader.as_mut()?;
        if reader
            .alarm
            .as_ref()
            .is_some_and(|alarm| alarm.at <= next.at)
        {
            return None;
        }
        let mut sleep = clock.sleep_until(next.at);
        // If the sender's task budget is used up, the reader is woken at once and sets its alarm
        // itself.
        let mut context = Context::from_waker(&reader.waker);
        if sleep.poll_unpin(&mut context).is_ready() {
            return self.reader.take().map(|reader| reader.waker);
        }
        let at = next.at;
        reader.alarm = Some(Alarm { at, _sleep: sleep });
        None
    }

    /// Moves due datagrams to the receive buffer; returns the number dropped.
    fn receive_due(&mut self, now: Instant) -> u64 {
        let mut overflowed = 0;
        while self
            .in_flight
            .peek()
            .is_some_and(|Reverse(next)| next.at <= now)
        {
            let Some(Reverse(next)) = self.in_flight.pop() else {
                break;
            };
            let cost = next.datagram.bytes.len() + DATAGRAM_COST;
            if self.arrived_bytes + cost > self.room {
                overflowed += 1;
                continue;
            }
            self.arrived_bytes += cost;
            self.arrived.push_back(next.datagram);
        }
        overflowed
    }

    fn take(&mut self, count: usize) -> Vec<ReceivedDatagram> {
        let count = count.min(self.arrived.len());
        let taken: Vec<ReceivedDatagram> = self.arrived.drain(..count).collect();
        let cost: usize = taken
            .iter()
            .map(|datagram| datagram.bytes.len() + DATAGRAM_COST)
            .sum();
        self.arrived_bytes -= cost;
        taken
    }
}
