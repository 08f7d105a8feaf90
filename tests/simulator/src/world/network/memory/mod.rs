//! An in-memory network of streams over the links of `runtime::testing::memory`, with faults: one
//! batch in flight per direction and lane.
//!
//! A stream loses nothing and keeps its order: a lost packet is repeated later, and a connection
//! breaks after too many losses, or when one side has received nothing for [`SILENCE_MAX`].
//! Addresses that begin with `unix:` stay within one machine and have no network faults.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use runtime::testing::memory::{carry, link};
use runtime::{Clock, ConnectError, Dialer, Lane, Link, Node, NodeId, Peer};

use super::SharedNetwork;

/// A connection is lost after this silence: the real transport's default.
pub const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Maximum time of a dial: the real transport's default.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);
/// A lost packet is repeated after this time, which doubles with each loss.
const RESEND_AFTER: Duration = Duration::from_millis(200);
/// A connection breaks after this number of losses in a row.
const LOSSES_MAX: u32 = 6;
/// The reason of such a break.
const LOST: &str = "too many packets were lost";
/// Prefix of addresses within one machine.
const LOCAL: &str = "unix:";

/// The network. Clones share it.
#[derive(Clone)]
pub struct Memory(Arc<Shared>);

struct Shared {
    shared_network: SharedNetwork,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    listeners: BTreeMap<String, Place>,
    /// The addresses at which each node listens.
    addresses: BTreeMap<NodeId, Vec<String>>,
    wires: BTreeMap<u64, Wire>,
    of_node: BTreeMap<NodeId, BTreeSet<u64>>,
    /// Link ends whose other node has crashed, by that node's machine.
    orphans: BTreeMap<String, Vec<Link>>,
    wires_made: u64,
}

/// A node on its machine.
#[derive(Clone)]
struct Place {
    node: Node,
    machine: Arc<str>,
}

/// A connection.
struct Wire {
    /// Whether both ends are on one machine.
    local: bool,
    ends: [End; 2],
}

struct End {
    node: NodeId,
    machine: Arc<str>,
    link: Link,
}

/// One direction of a connection.
#[derive(Clone)]
struct Way {
    wire: u64,
    local: bool,
    from: Arc<str>,
    to: Arc<str>,
}

impl Memory {
    /// A network without nodes.
    pub fn new(shared_network: SharedNetwork, clock: Clock) -> Self {
        Self(Arc::new(Shared {
            shared_network,
            clock,
            state: Mutex::default(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the node reachable at this address of this machine; returns its dialer. Peers of an
    /// earlier node of the machine learn of its end.
    pub fn place(&self, node: &Node, machine: &str, address: &str) -> Arc<dyn Dialer> {
        let place = Place {
            node: node.clone(),
            machine: machine.into(),
        };
        let orphans = {
            let mut state = self.state();
            let addresses = state.addresses.entry(node.id().clone()).or_default();
            addresses.push(address.to_owned());
            state.listeners.insert(address.to_owned(), place);
            match address.starts_with(LOCAL) {
                true => None,
                false => state.orphans.remove(machine),
            }
        };
        for orphan in orphans.into_iter().flatten() {
            orphan.close("the node was started again");
        }
        Arc::new(MemoryDialer {
            network: self.clone(),
            address: address.to_owned(),
        })
    }

    /// Removes a crashed node: its addresses are free. Peers on its machine notice at once, others
    /// after too much silence or at its restart.
    pub fn gone(&self, node: &NodeId) {
        let (at_once, later) = {
            let mut state = self.state();
            state.unlisten(node);
            let (mut at_once, mut later) = (Vec::new(), Vec::new());
            for number in state.of_node.get(node).cloned().unwrap_or_default() {
                let Some(wire) = state.forget(number) else {
                    continue;
                };
                let [one, other] = wire.ends;
                let (own, far) = match one.node == *node {
                    true => (one, other),
                    false => (other, one),
                };
                at_once.push(own.link);
                match wire.local {
                    true => at_once.push(far.link),
                    false => later.push((own.machine, far.link)),
                }
            }
            for (machine, link) in &later {
                let orphans = state.orphans.entry(machine.to_string()).or_default();
                orphans.push(link.clone());
            }
            (at_once, later)
        };
        at_once
            .iter()
            .for_each(|link| link.close("connection lost"));
        if later.is_empty() {
            return;
        }
        let network = self.clone();
        tokio::spawn(async move {
            network.0.clock.sleep(SILENCE_MAX).await;
            for (machine, link) in later {
                link.close("timed out");
                network.state().forget_orphan(&machine, &link);
            }
        });
    }

    /// Removes a node after its shutdown: its addresses are free.
    pub fn leave(&self, node: &NodeId) {
        self.state().unlisten(node);
    }

    /// Nothing passes from one machine to the other from now on. If it stays so, the connections
    /// between them break silently: first on the receiving side, then on the other one, when
    /// nothing is acknowledged or when it learns that its peer is gone.
    pub fn watch_silence(&self, from: &str, to: &str) {
        let Some(blockade) = self
            .0
            .shared_network
            .look(|faults| faults.blocked(from, to))
        else {
            return;
        };
        let (network, from, to) = (self.clone(), from.to_owned(), to.to_owned());
        tokio::spawn(async move {
            let Shared {
                shared_network,
                clock,
                ..
            } = &*network.0;
            clock.sleep(SILENCE_MAX).await;
            if shared_network.look(|faults| faults.blocked(&from, &to)) != Some(blockade) {
                return;
            }
            let lost = network.state().forget_between(&from, &to);
            for (_, receiver) in &lost {
                receiver.close("timed out");
            }
            let both_ways = shared_network.look(|faults| faults.blocked(&to, &from).is_some());
            if !both_ways {
                let open =
                    shared_network.until(|faults| faults.blocked(&from, &to) != Some(blockade));
                let _ = clock.timeout(SILENCE_MAX, open).await; // whichever comes first
            }
            for (sender, _) in &lost {
                sender.close("timed out");
            }
        });
    }

    /// Waits until one packet has passed; returns whether it did.
    async fn pass(&self, way: &Way) -> bool {
        if way.local || self.0.shared_network.look(|faults| faults.is_calm()) {
            return true;
        }
        let mut losses = 0;
        loop {
            let open = |faults: &super::faults::NetworkFaults| {
                faults.blocked(&way.from, &way.to).is_none() && !faults.reads_nothing(&way.to)
            };
            self.0.shared_network.until(open).await;
            let passage = self.0.shared_network.passage(&way.from, &way.to);
            if !passage.wait.is_zero() {
                self.0.clock.sleep(passage.wait).await;
                // A node that reads nothing now gets it later.
                let reads = |faults: &super::faults::NetworkFaults| !faults.reads_nothing(&way.to);
                self.0.shared_network.until(reads).await;
            }
            if !passage.lost {
                return true;
            }
            losses += 1;
            if losses > LOSSES_MAX {
                return false;
            }
            self.0.clock.sleep(RESEND_AFTER * (1 << losses)).await;
        }
    }

    async fn dial(&self, from: &str, to: &str) -> Result<Peer, ConnectError> {
        let unreachable = |reason: &str| ConnectError::Unreachable {
            address: to.to_owned(),
            reason: reason.to_owned(),
        };
        let local = to.starts_with(LOCAL);
        let find = |address: &str| self.state().listeners.get(address).cloned();
        let ours = find(from).ok_or(ConnectError::ShuttingDown)?;
        if !local {
            let machine = find(to).map(|place| place.machine);
            let handshake = async {
                let Some(machine) = machine else {
                    return std::future::pending().await;
                };
                let there = Way {
                    wire: 0,
                    local,
                    from: ours.machine.clone(),
                    to: machine.clone(),
                };
                let back = Way {
                    from: machine,
                    to: ours.machine.clone(),
                    ..there.clone()
                };
                self.pass(&there).await && self.pass(&back).await
            };
            match self.0.clock.timeout(HANDSHAKE_PATIENCE, handshake).await {
                Ok(true) => {}
                Ok(false) => return Err(unreachable(LOST)),
                Err(late) => return Err(unreachable(&late.to_string())),
            }
        }
        let theirs = find(to).ok_or_else(|| unreachable("nobody listens"))?;
        self.join(from, &ours, to, &theirs, local)
    }

    /// Links two nodes that have connected.
    fn join(
        &self,
        from: &str,
        ours: &Place,
        to: &str,
        theirs: &Place,
        local: bool,
    ) -> Result<Peer, ConnectError> {
        let (peer, [here, there]) = link(&ours.node, from, &theirs.node, to)?;
        let mut state = self.state();
        state.wires_made += 1;
        let way = Way {
            wire: state.wires_made,
            local,
            from: ours.machine.clone(),
            to: theirs.machine.clone(),
        };
        let back = Way {
            from: theirs.machine.clone(),
            to: ours.machine.clone(),
            ..way.clone()
        };
        let end = |place: &Place, link: &Link| End {
            node: place.node.id().clone(),
            machine: place.machine.clone(),
            link: link.clone(),
        };
        let ends = [end(ours, &here), end(theirs, &there)];
        for end in &ends {
            let numbers = state.of_node.entry(end.node.clone()).or_default();
            numbers.insert(way.wire);
        }
        state.wires.insert(way.wire, Wire { local, ends });
        drop(state);
        for (way, from, to) in [(way, &here, &there), (back, &there, &here)] {
            for lane in [Lane::Ordinary, Lane::Ping] {
                let (network, way, from) = (self.clone(), way.clone(), from.clone());
                tokio::spawn(network.carry(way, lane, from, to.clone()));
            }
        }
        Ok(peer)
    }

    /// Carries one lane in one direction until the link closes.
    async fn carry(self, way: Way, lane: Lane, from: Link, to: Link) {
        let pass = || {
            let (network, way) = (self.clone(), way.clone());
            async move {
                let passed = network.pass(&way).await;
                passed.then_some(()).ok_or_else(|| LOST.to_owned())
            }
        };
        // A crashed node is not reported here.
        let farewell = || self.state().forget(way.wire).is_some();
        carry(lane, from, to, pass, farewell).await;
    }
}

impl State {
    /// Removes the node's addresses, except those that another node has taken since.
    fn unlisten(&mut self, node: &NodeId) {
        for address in self.addresses.remove(node).unwrap_or_default() {
            let place = self.listeners.get(&address);
            if place.is_some_and(|place| place.node.id() == node) {
                self.listeners.remove(&address);
            }
        }
    }

    fn forget(&mut self, number: u64) -> Option<Wire> {
        let wire = self.wires.remove(&number)?;
        for end in &wire.ends {
            if let Some(numbers) = self.of_node.get_mut(&end.node) {
                numbers.remove(&number);
                if numbers.is_empty() {
                    self.of_node.remove(&end.node);
                }
            }
        }
        Some(wire)
    }

    /// Removes all connections between two machines; returns their ends, the first machine's first.
    fn forget_between(&mut self, one: &str, other: &str) -> Vec<(Link, Link)> {
        let between = |wire: &Wire| {
            let [first, second] = wire.ends.each_ref().map(|end| &*end.machine);
            (first, second) == (one, other) || (first, second) == (other, one)
        };
        let numbers: Vec<u64> = self
            .wires
            .iter()
            .filter(|(_, wire)| between(wire))
            .map(|(number, _)| *number)
            .collect();
        let wires = numbers.into_iter().filter_map(|number| self.forget(number));
        wires
            .map(
                |Wire {
                     ends: [first, second],
                     ..
                 }| match &*first.machine == one {
                    true => (first.link, second.link),
                    false => (second.link, first.link),
                },
            )
            .collect()
    }

    fn forget_orphan(&mut self, machine: &str, link: &Link) {
        if let Some(orphans) = self.orphans.get_mut(machine) {
            orphans.retain(|orphan| orphan.peer().node != link.peer().node);
            if orphans.is_empty() {
                self.orphans.remove(machine);
            }
        }
    }
}

struct MemoryDialer {
    network: Memory,
    address: String,
}

impl Dialer for MemoryDialer {
    fn dial(&self, address: String) -> BoxFuture<'static, Result<Peer, ConnectError>> {
        let (network, from) = (self.network.clone(), self.address.clone());
        // The expected role may precede the address, which suffices here.
        let to = match address.split_once('@') {
            Some((_, to)) => to.to_owned(),
            None => address,
        };
        async move { network.dial(&from, &to).await }.boxed()
    }
}

#[cfg(test)]
mod tests;
