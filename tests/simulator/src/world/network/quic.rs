//! The real transport on in-memory sockets, with faults for each datagram.
//!
//! Every connection is real QUIC with TLS; only the sockets are simulated. The keys of the
//! cluster's authority come from a fixed seed.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::{Clock, Instant, Node, Role};
use testkit::virtual_udp::{Datagram, DatagramFate, NetworkModel, VirtualUdpNetwork};
use transport::{Authority, Endpoint, Options};

use super::SharedNetwork;
use crate::world::STANDBY;

/// The port of every node on its machine.
const PORT: u16 = 5050;
/// Seed of the authority's keys. They are not secret, and certificates of constant length keep the
/// hash independent of randomness.
const AUTHORITY_SEED: u64 = 1;
/// Delay of a datagram without faults, in microseconds.
const CALM: std::ops::RangeInclusive<u64> = 200..=1500;

/// The addresses of machines.
type Machines = Arc<Mutex<BTreeMap<IpAddr, Arc<str>>>>;

/// The real transport over simulated datagrams. Clones share the network.
#[derive(Clone)]
pub struct Quic {
    network: VirtualUdpNetwork,
    machines: Machines,
    authority: Arc<Authority>,
}

/// The reason why a node is not on the network.
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
    /// A network without nodes.
    pub fn new(shared_network: SharedNetwork, clock: Clock, seed: u64) -> Result<Self, NoPlace> {
        let machines = Machines::default();
        let model = FaultyNetworkModel {
            shared_network,
            machines: machines.clone(),
            rng: SmallRng::seed_from_u64(seed),
        };
        Ok(Self {
            network: VirtualUdpNetwork::new(clock, model),
            machines,
            authority: Arc::new(Authority::seeded(AUTHORITY_SEED)?),
        })
    }

    /// Attaches a node, on the machine of its name.
    pub fn place(&self, node: &Node, name: &str) -> Result<Endpoint, NoPlace> {
        let address = address(name);
        self.machines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(address.ip(), name.into());
        let identity = self.authority.issue(node.role(), name)?;
        let options = Options::default();
        Ok(Endpoint::bind_on(
            self.network.clone(),
            node.clone(),
            &identity,
            address,
            options,
        )?)
    }

    /// Drops everything that the machine's socket sends and receives from now on.
    pub fn power_off(&self, name: &str) {
        self.network.power_off(address(name));
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

/// Applies the network's faults to each datagram.
struct FaultyNetworkModel {
    shared_network: SharedNetwork,
    machines: Machines,
    rng: SmallRng,
}

impl FaultyNetworkModel {
    fn machine(&self, address: SocketAddr) -> Arc<str> {
        let machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
        machines
            .get(&address.ip())
            .cloned()
            .unwrap_or_else(|| "".into())
    }
}

impl NetworkModel for FaultyNetworkModel {
    fn fate(&mut self, datagram: Datagram) -> DatagramFate {
        let calm = Duration::from_micros(self.rng.random_range(CALM));
        if self.shared_network.look(|faults| faults.is_calm()) {
            return DatagramFate::After(calm);
        }
        let (from, to) = (self.machine(datagram.from), self.machine(datagram.to));
        let passage = self.shared_network.passage(&from, &to);
        if passage.lost {
            return DatagramFate::Lost;
        }
        // A node that reads nothing gets everything later, as far as its buffer has room.
        let not_reading_until = self
            .shared_network
            .look(|faults| faults.not_reading_until(&to));
        let now = datagram.at - Instant::default();
        let not_reading =
            not_reading_until.map_or(Duration::ZERO, |until| until.saturating_sub(now));
        let wait = not_reading + passage.wait + calm;
        match passage.again {
            None => DatagramFate::After(wait),
            Some(later) => DatagramFate::Copies(vec![wait, wait + later]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn machine_addresses_are_unique() {
        let names = (1..=300)
            .flat_map(|number| [format!("agent-{number}"), format!("framework-{number}")])
            .chain(["master".to_owned()]);
        let addresses: BTreeSet<_> = names.map(|name| address(&name)).collect();
        assert_eq!(addresses.len(), 601);
        assert_eq!(address("master"), SocketAddr::from(([10, 0, 0, 1], PORT)));
    }
}
