//! The real transport on sockets in memory: each datagram fares as the weather says.
//!
//! Remembers which machine has which address, and the cluster's authority, whose keys come from a fixed seed. Every connection
//! is real QUIC with TLS; only what is under the sockets is simulated.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::{Clock, Instant, Node, Role};
use transport::wire::{Datagram, Ether, Fate, Wire};
use transport::{Authority, Endpoint, Options};

use super::Air;
use crate::world::STANDBY;

/// Every node listens at this port of its own machine.
const PORT: u16 = 5050;
/// The seed of the authority's keys: they are no secret, and certificates of one length spare the hash a dependence on chance.
const AUTHORITY_SEED: u64 = 1;
/// In calm weather a datagram takes between these times, in microseconds.
const CALM: std::ops::RangeInclusive<u64> = 200..=1500;

/// Which machine has which address.
type Machines = Arc<Mutex<BTreeMap<IpAddr, Arc<str>>>>;

/// The real transport over simulated datagrams. Clones are the same network.
#[derive(Clone)]
pub struct Quic {
    ether: Ether,
    machines: Machines,
    authority: Arc<Authority>,
}

/// Why a node has no place on the network.
#[derive(Debug, thiserror::Error)]
pub enum NoPlace {
    /// No certificate.
    #[error(transparent)]
    Certificate(#[from] transport::CertificateError),
    /// No socket.
    #[error(transparent)]
    Bind(#[from] transport::BindError),
}

impl Quic {
    /// A network with nobody on it.
    pub fn new(air: Air, clock: Clock, seed: u64) -> Result<Self, NoPlace> {
        let machines = Machines::default();
        let wire = WeatherWire {
            air,
            machines: machines.clone(),
            rng: SmallRng::seed_from_u64(seed),
        };
        Ok(Self {
            ether: Ether::new(clock, wire),
            machines,
            authority: Arc::new(Authority::seeded(AUTHORITY_SEED)?),
        })
    }

    /// Puts a node on the network, on the machine of its own name.
    pub fn place(&self, node: &Node, name: &str) -> Result<Endpoint, NoPlace> {
        let address = address(name);
        self.machines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(address.ip(), name.into());
        let identity = self.authority.issue(node.role(), name)?;
        let options = Options::default();
        Ok(Endpoint::bind_on(
            &self.ether,
            node.clone(),
            &identity,
            address,
            options,
        )?)
    }

    /// Nothing that the machine's socket sends from now on arrives anywhere, and it hears nothing more.
    pub fn unplug(&self, name: &str) {
        self.ether.unplug(address(name));
    }
}

/// The address of a machine: `agent-7` is the seventh of its kind.
pub fn address(name: &str) -> SocketAddr {
    let (kind, number) = match name.rsplit_once('-') {
        Some((kind, number)) => (kind, number.parse().unwrap_or(0)),
        None => (name, 0_u32),
    };
    let net = match kind.parse() {
        Ok(Role::Agent) => 1,
        Ok(Role::Framework) => 2,
        _ if kind == STANDBY => 3,
        _ => 0,
    };
    let [_, high, middle, low] = number.wrapping_add(1).to_be_bytes();
    let ip = Ipv4Addr::new(10, net << 4 | high & 0x0F, middle, low);
    SocketAddr::from((ip, PORT))
}

/// Asks the weather about each datagram.
struct WeatherWire {
    air: Air,
    machines: Machines,
    rng: SmallRng,
}

impl WeatherWire {
    fn machine(&self, address: SocketAddr) -> Arc<str> {
        let machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
        machines
            .get(&address.ip())
            .cloned()
            .unwrap_or_else(|| "".into())
    }
}

impl Wire for WeatherWire {
    fn fate(&mut self, datagram: Datagram) -> Fate {
        let calm = Duration::from_micros(self.rng.random_range(CALM));
        if self.air.look(|weather| weather.is_calm()) {
            return Fate::After(calm);
        }
        let (from, to) = (self.machine(datagram.from), self.machine(datagram.to));
        let passage = self.air.passage(&from, &to);
        if passage.lost {
            return Fate::Lost;
        }
        // Who reads nothing finds everything when it reads again, as far as its buffer has room.
        let deaf_until = self.air.look(|weather| weather.deaf_until(&to));
        let now = datagram.at - Instant::default();
        let deaf = deaf_until.map_or(Duration::ZERO, |until| until.saturating_sub(now));
        let wait = deaf + passage.wait + calm;
        match passage.again {
            None => Fate::After(wait),
            Some(later) => Fate::Copies(vec![wait, wait + later]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_machine_has_an_address_of_its_own() {
        let names = (1..=300)
            .flat_map(|number| [format!("agent-{number}"), format!("framework-{number}")])
            .chain(["master".to_owned()]);
        let addresses: BTreeSet<_> = names.map(|name| address(&name)).collect();
        assert_eq!(addresses.len(), 601);
        assert_eq!(address("master"), SocketAddr::from(([10, 0, 0, 1], PORT)));
    }
}
