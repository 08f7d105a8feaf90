//! A network in memory: real hellos, frames, lanes and bulks, without any socket.
//!
//! It keeps the listeners by address and the severed pairs. All nodes must live on one thread. It
//! loses and delays nothing by itself; the simulator has a network that does.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, ready};
use std::sync::{Arc, Mutex};

use bytes::BytesMut;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::actor::exit::PROCESS_ENDED;
use crate::identity::{Peer, Role};
use crate::link::outbox::Outgoing;
use crate::link::{ConnectError, Dialer, Dialled, Hello, Link};
use crate::lock;
use crate::node::{Node, WeakNode};
use crate::testing;
use crate::wire::message::Lane;

/// Bytes carried at a time.
const BATCH: usize = 64 << 10;

/// A network. Clones are the same network.
#[derive(Clone, Default)]
pub struct Network(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    listeners: BTreeMap<String, WeakNode>,
    severed: BTreeSet<(String, String)>,
    /// Both ends of every link, by the addresses of its nodes.
    links: Vec<Wire>,
}

struct Wire {
    between: (String, String),
    ends: [Link; 2],
}

impl Network {
    /// An empty network.
    pub fn new() -> Self {
        Self::default()
    }

    /// A node under virtual time, reachable at its own name.
    pub fn node(&self, name: &str, role: Role, accepts: &[Role]) -> Node {
        let node = testing::node(name).role(role).accepts(accepts).build();
        self.join(&node, name);
        node
    }

    /// Makes the node reachable at this address, and lets it dial others.
    pub fn join(&self, node: &Node, address: &str) {
        node.set_dialer(self.place(node, address));
    }

    /// Makes the node reachable at this address, and returns the dialer for it: for a node with
    /// another dialer that delegates some addresses to this one.
    pub fn place(&self, node: &Node, address: &str) -> Arc<dyn Dialer> {
        lock(&self.0)
            .listeners
            .insert(address.to_owned(), node.downgrade());
        Arc::new(MemoryDialer {
            network: self.clone(),
            node: node.downgrade(),
            address: address.to_owned(),
        })
    }

    /// Disconnects the node at this address, as if its machine had died.
    pub fn leave(&self, address: &str) {
        self.leave_for(address, "connection lost");
    }

    /// Disconnects the node at this address, as if its process had ended and its machine had
    /// reported that.
    pub fn end_process(&self, address: &str) {
        self.leave_for(address, PROCESS_ENDED);
    }

    fn leave_for(&self, address: &str, reason: &str) {
        let lost = {
            let mut state = lock(&self.0);
            state.listeners.remove(address);
            take_wires(&mut state, |(one, other)| {
                one == address || other == address
            })
        };
        lost.iter()
            .flat_map(|wire| &wire.ends)
            .for_each(|end| end.close(reason));
    }

    /// Breaks the connection between two addresses, and refuses new ones until it is healed.
    pub fn sever(&self, one: &str, other: &str) {
        let pair = pair(one, other);
        let lost = {
            let mut state = lock(&self.0);
            state.severed.insert(pair.clone());
            take_wires(&mut state, |between| *between == pair)
        };
        lost.iter()
            .flat_map(|wire| &wire.ends)
            .for_each(|end| end.close("severed"));
    }

    /// Lets two addresses connect again.
    pub fn heal(&self, one: &str, other: &str) {
        lock(&self.0).severed.remove(&pair(one, other));
    }

    fn dial(
        &self,
        from: &Node,
        from_address: &str,
        to_address: &str,
    ) -> Result<Peer, ConnectError> {
        let unreachable = |reason: &str| ConnectError::Unreachable {
            address: to_address.to_owned(),
            reason: reason.to_owned(),
        };
        let between = pair(from_address, to_address);
        let to = {
            let state = lock(&self.0);
            if state.severed.contains(&between) {
                return Err(unreachable("severed"));
            }
            let listener = state.listeners.get(to_address).and_then(WeakNode::upgrade);
            listener.ok_or_else(|| unreachable("no listener"))?
        };
        let (peer, ends) = link(from, from_address, &to, to_address)?;
        let [here, there] = &ends;
        for (from, to) in [(here, there), (there, here)] {
            for lane in [Lane::Ordinary, Lane::Ping] {
                let carried = carry(lane, from.clone(), to.clone(), || ready(Ok(())), || true);
                tokio::task::spawn_local(carried);
            }
        }
        lock(&self.0).links.push(Wire { between, ends });
        Ok(peer)
    }
}

/// Links two nodes as after the handshake of a transport. Returns the called peer and the two ends,
/// the caller's first; [`carry`] must run for each lane in each direction.
pub fn link(
    from: &Node,
    from_address: &str,
    to: &Node,
    to_address: &str,
) -> Result<(Peer, [Link; 2]), ConnectError> {
    let refused = |reason: String| ConnectError::Refused {
        address: to_address.to_owned(),
        reason,
    };
    let hello_of =
        |node: &Node| Hello::decode(&node.hello()).map_err(|error| refused(error.to_string()));
    let (caller, called) = (hello_of(from)?, hello_of(to)?);
    let peer_of = |hello: &Hello, address: &str| Peer {
        node: hello.node.clone(),
        role: hello.role,
        address: address.to_owned(),
    };
    let peer = peer_of(&called, to_address);
    let here = from.attach(peer.clone(), called, Dialled::ByUs);
    let there = to.attach(peer_of(&caller, from_address), caller, Dialled::ByThem);
    match (here, there) {
        (Ok(here), Ok(there)) => Ok((peer, [here, there])),
        (Err(error), _) => Err(refused(error.to_string())),
        (Ok(link), Err(error)) => {
            link.close(&error.to_string());
            Err(refused(error.to_string()))
        }
    }
}

/// Carries one lane from one end to the other until one of them closes. Each batch waits for
/// `pass`, whose error breaks the connection. The other end learns of the close if `farewell`
/// returns true.
pub async fn carry<F: Future<Output = Result<(), String>>>(
    lane: Lane,
    from: Link,
    to: Link,
    pass: impl Fn() -> F,
    farewell: impl FnOnce() -> bool,
) {
    let (mut taken, mut arrived) = (BytesMut::new(), BytesMut::new());
    loop {
        let outgoing = from.outgoing(lane, &mut taken, BATCH).await;
        let delivered = match (pass().await, outgoing) {
            (Err(reason), _) => Err(reason),
            (Ok(()), Outgoing::Batch) => {
                arrived.extend_from_slice(&taken);
                taken.clear();
                to.deliver(&mut arrived).map_err(|error| error.to_string())
            }
            (Ok(()), Outgoing::Bulk { token, bytes }) => {
                let delivered = to.deliver_bulk(token, bytes);
                delivered.map_err(|error| error.to_string())
            }
            (Ok(()), Outgoing::Closed) => break,
        };
        if let Err(reason) = delivered {
            to.close(&reason);
            from.close(&reason);
            break;
        }
        to.room(lane).await;
    }
    if lane == Lane::Ordinary {
        let reason = from.closed().await;
        if farewell() {
            to.decoded().await; // messages received before the end are delivered
            to.close(&reason);
        }
    }
}

fn pair(one: &str, other: &str) -> (String, String) {
    let (low, high) = if one < other {
        (one, other)
    } else {
        (other, one)
    };
    (low.to_owned(), high.to_owned())
}

fn take_wires(state: &mut State, lost: impl Fn(&(String, String)) -> bool) -> Vec<Wire> {
    state
        .links
        .extract_if(.., |wire| lost(&wire.between))
        .collect()
}

struct MemoryDialer {
    network: Network,
    node: WeakNode,
    address: String,
}

impl Dialer for MemoryDialer {
    fn dial(&self, address: String) -> BoxFuture<'static, Result<Peer, ConnectError>> {
        let (network, node, from) = (
            self.network.clone(),
            self.node.clone(),
            self.address.clone(),
        );
        async move {
            let node = node.upgrade().ok_or(ConnectError::ShuttingDown)?;
            network.dial(&node, &from, &address)
        }
        .boxed()
    }
}
