//! The ether: all sockets of a rehearsal, and the datagrams on their way between them.
//!
//! Hears datagrams from sockets and asks the wire for the fate of each. Remembers who has which address, what is under
//! way to it, what has arrived and was not read, who reads it and is woken when, and which names stand for which addresses.
//! Never lets anything grow without a bound: what does not fit is dropped, as any network does, and counted.

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
use quinn::udp::EcnCodepoint;
use runtime::{Clock, Instant, Sleep};

use super::{COPIES_MAX, Datagram, Fate, Wire};

/// The first port that is given to a socket which asks for any.
const PORT_FIRST: u16 = 49_152;
/// Datagrams that may be on their way to one address; further ones are dropped.
const COMING_MAX: usize = 65_536;
/// What a waiting datagram costs a receive buffer beside its bytes, as in a real system.
const DATAGRAM_COST: usize = 512;

/// A network in memory. Its clones are the same network; everything on it lives on one thread.
#[derive(Clone)]
pub struct Ether(Arc<Inner>);

struct Inner {
    clock: Clock,
    wire: Mutex<Box<dyn Wire>>,
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

/// What has become of all datagrams so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sent by any socket.
    pub sent: u64,
    /// Read by a socket, copies included.
    pub delivered: u64,
    /// Lost because the wire said so.
    pub lost: u64,
    /// Dropped because nobody has the address.
    pub unreachable: u64,
    /// Dropped because the receiver's buffer was full.
    pub overflowed: u64,
}

/// One address, whether or not a socket has it now: what is under way arrives at whoever has it then.
#[derive(Default)]
struct Port {
    owner: Option<u64>,
    /// Bytes that may wait unread.
    room: usize,
    coming: BinaryHeap<Reverse<Coming>>,
    arrived: VecDeque<Arrived>,
    arrived_bytes: usize,
    reader: Option<Reader>,
}

/// Who reads at an address, and sleeps.
struct Reader {
    waker: Waker,
    /// When it wakes; never, if nothing is under way.
    alarm: Option<Alarm>,
}

struct Alarm {
    at: Instant,
    /// It wakes the reader, as long as it is kept.
    _sleep: Sleep,
}

/// A datagram under way, ordered by its time and then by the order of sending.
struct Coming {
    at: Instant,
    sequence: u64,
    datagram: Arrived,
}

impl PartialEq for Coming {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}

impl Eq for Coming {}

impl PartialOrd for Coming {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Coming {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// A datagram as its receiver finds it.
#[derive(Clone)]
pub(super) struct Arrived {
    pub(super) from: SocketAddr,
    pub(super) ecn: Option<EcnCodepoint>,
    pub(super) bytes: Bytes,
}

impl Ether {
    /// An ether without sockets, whose datagrams fare as the wire says, by this clock's time.
    pub fn new(clock: Clock, wire: impl Wire) -> Self {
        Self(Arc::new(Inner {
            clock,
            wire: Mutex::new(Box::new(wire)),
            state: Mutex::default(),
        }))
    }

    /// Makes a host name stand for an address. Endpoints on an ether never ask the system's resolver.
    pub fn name(&self, host: &str, address: IpAddr) {
        self.state().names.insert(host.to_owned(), address);
    }

    /// Takes away the socket at this address, as if its machine had lost its power: what it sends from now on is lost,
    /// it hears nothing more, and the address is free. Says whether there was one.
    pub fn unplug(&self, address: SocketAddr) -> bool {
        let mut state = self.state();
        state
            .ports
            .get_mut(&address)
            .is_some_and(|port| port.vacate().is_some())
    }

    /// What has become of all datagrams so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.state().counts
    }

    /// The address that a text `HOST:PORT` means here.
    pub(crate) fn lookup(&self, host: &str) -> io::Result<SocketAddr> {
        if let Ok(address) = host.parse() {
            return Ok(address);
        }
        let unknown = || io::Error::new(ErrorKind::NotFound, "no such name on this ether");
        let (name, port) = host.rsplit_once(':').ok_or_else(unknown)?;
        let port = port.parse().map_err(|_| unknown())?;
        let state = self.state();
        let address = state.names.get(name).ok_or_else(unknown)?;
        Ok(SocketAddr::new(*address, port))
    }

    /// Gives the address to a new socket, and says which one it got and its number.
    pub(super) fn plug(&self, wanted: SocketAddr, room: usize) -> io::Result<(SocketAddr, u64)> {
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
        let missed = port.miss(now);
        port.owner = Some(number);
        port.room = room;
        state.counts.unreachable += missed;
        Ok((address, number))
    }

    /// The socket of this number is gone.
    pub(super) fn leave(&self, address: SocketAddr, number: u64) {
        if let Some(port) = self.state().owned(address, number) {
            port.vacate();
        }
    }

    /// Sends a datagram, if this socket still has its address.
    pub(super) fn send(&self, number: u64, to: SocketAddr, sent: Arrived) {
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
        let mut wire = self.0.wire.lock().unwrap_or_else(PoisonError::into_inner);
        let fate = wire.fate(datagram);
        drop(wire);
        self.0.clock.note_movement();
        let mut state = self.state();
        state.counts.sent += 1;
        let woken = match fate {
            Fate::After(delay) => state.convey(&self.0.clock, at, to, &[delay], sent),
            Fate::Copies(delays) if !delays.is_empty() => {
                state.convey(&self.0.clock, at, to, &delays, sent)
            }
            Fate::Copies(_) | Fate::Lost => {
                state.counts.lost += 1;
                None
            }
        };
        drop(state);
        if let Some(reader) = woken {
            reader.wake();
        }
    }

    /// What the socket of this number finds now, at most `count` datagrams. Who finds none is woken when there is one.
    pub(super) fn read(
        &self,
        address: SocketAddr,
        number: u64,
        count: usize,
        waker: &Waker,
    ) -> Vec<Arrived> {
        let now = self.0.clock.now();
        let mut state = self.state();
        let Some(port) = state.owned(address, number) else {
            return Vec::new();
        };
        let overflowed = port.arrive(now);
        let found = port.take(count);
        if found.is_empty() {
            port.await_next(&self.0.clock, waker);
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

impl fmt::Debug for Ether {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Ether")
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

    /// The address wanted, or with port 0 the first free one.
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

    /// Puts a datagram under way, once for each delay; gives the reader that must wake for it at once.
    fn convey(
        &mut self,
        clock: &Clock,
        at: Instant,
        to: SocketAddr,
        delays: &[Duration],
        sent: Arrived,
    ) -> Option<Waker> {
        let Some(port) = self.ports.get_mut(&to) else {
            self.counts.unreachable += 1;
            return None;
        };
        if port.owner.is_none() {
            self.counts.unreachable += port.miss(at);
        }
        let copies = delays.len().min(COPIES_MAX);
        for (delay, datagram) in delays.iter().zip(repeat_n(sent, copies)) {
            if port.coming.len() >= COMING_MAX {
                self.counts.overflowed += 1;
                continue;
            }
            self.sequence += 1;
            port.coming.push(Reverse(Coming {
                at: at + *delay,
                sequence: self.sequence,
                datagram,
            }));
        }
        port.set_alarm(clock)
    }
}

impl Port {
    /// Nobody has it any more.
    fn vacate(&mut self) -> Option<u64> {
        self.arrived.clear();
        self.arrived_bytes = 0;
        self.reader = None;
        self.owner.take()
    }

    /// Forgets what came while nobody was there, and counts it.
    fn miss(&mut self, now: Instant) -> u64 {
        let mut missed = 0;
        while self
            .coming
            .peek()
            .is_some_and(|Reverse(next)| next.at < now)
        {
            self.coming.pop();
            missed += 1;
        }
        missed
    }

    /// Lets the reader sleep until the next datagram arrives.
    fn await_next(&mut self, clock: &Clock, waker: &Waker) {
        self.reader = Some(Reader {
            waker: waker.clone(),
            alarm: None,
        });
        if let Some(reader) = self.set_alarm(clock) {
            reader.wake();
        }
    }

    /// Sets the reader's alarm for the next datagram, unless it wakes early enough; gives the reader if it is time already. Whoever
    /// sends a datagram sets it: a reader that first woke to set its own would wake twice for each.
    fn set_alarm(&mut self, clock: &Clock) -> Option<Waker> {
        let Reverse(next) = self.coming.peek()?;
        let reader = self.reader.as_mut()?;
        if reader
            .alarm
            .as_ref()
            .is_some_and(|alarm| alarm.at <= next.at)
        {
            return None;
        }
        let mut sleep = clock.sleep_until(next.at);
        // A sender that has used up its turn has the reader woken at once, which then comes here itself.
        let mut context = Context::from_waker(&reader.waker);
        if sleep.poll_unpin(&mut context).is_ready() {
            return self.reader.take().map(|reader| reader.waker);
        }
        let at = next.at;
        reader.alarm = Some(Alarm { at, _sleep: sleep });
        None
    }

    /// Moves what is due into the receive buffer, and counts what found no room.
    fn arrive(&mut self, now: Instant) -> u64 {
        let mut overflowed = 0;
        while self
            .coming
            .peek()
            .is_some_and(|Reverse(next)| next.at <= now)
        {
            let Some(Reverse(next)) = self.coming.pop() else {
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

    fn take(&mut self, count: usize) -> Vec<Arrived> {
        let count = count.min(self.arrived.len());
        let taken: Vec<Arrived> = self.arrived.drain(..count).collect();
        let cost: usize = taken
            .iter()
            .map(|datagram| datagram.bytes.len() + DATAGRAM_COST)
            .sum();
        self.arrived_bytes -= cost;
        taken
    }
}
