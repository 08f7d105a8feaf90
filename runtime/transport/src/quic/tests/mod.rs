//! Tests of the QUIC transport with real sockets on the loopback.
//!
//! | module | contents |
//! |---|---|
//! | `hostile` | peers that must be refused, or violate the protocol |
//! | `liveness` | peers whose process is killed while their machine still answers |
//! | `renewal` | new certificates while links are open |
//! | `restarts` | nodes that crash, shut down, restart, and dial each other at once |
//! | `revoked` | certificates of another authority, and revoked ones |

use std::net::Ipv4Addr;
use std::time::Duration;

use runtime::prelude::*;
use testkit::{assert_contains, assert_matches, assert_starts};
use tokio::net::UdpSocket;

use super::*;
use crate::certificates::{Authority, Subject};
use testkit::recorder::*;

mod hostile;
mod liveness;
mod renewal;
mod restarts;
mod revoked;

const LOCALHOST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn quick() -> Options {
    Options {
        idle_timeout: Duration::from_millis(600),
        keep_alive: Duration::from_millis(100),
        handshake_timeout: Duration::from_secs(3),
        farewell_timeout: Duration::from_secs(10),
        ..Options::default()
    }
}

/// A node with an endpoint and a recorder.
struct Member {
    node: Node,
    endpoint: Endpoint,
    notes: Notes,
    noter: Handle<Noter>,
}

impl Member {
    /// Checks that this actor answers.
    async fn check_answer(&self, pid: &Pid) {
        let answer = self.node.ask(pid, ReverseBytes(vec![1, 2]), PATIENCE);
        assert_eq!(answer.await, Ok(vec![2, 1]));
    }

    fn with(authority: &Authority, name: &str, role: Role, options: Options) -> Self {
        Self::at(authority, name, role, options, LOCALHOST)
    }

    fn at(
        authority: &Authority,
        name: &str,
        role: Role,
        options: Options,
        address: SocketAddr,
    ) -> Self {
        let identity = authority.issue(role, name).unwrap();
        Self::showing(&identity, options, address)
    }

    /// A member with this identity.
    fn showing(identity: &Identity, options: Options, address: SocketAddr) -> Self {
        let Subject { role, name } = identity.subject().clone();
        let accepts = match role {
            Role::Master => &[Role::Master, Role::Agent, Role::Framework, Role::Operator][..],
            _ => &[Role::Master],
        };
        let node = Node::builder(name.as_str())
            .role(role)
            .accepts(accepts)
            .build();
        let endpoint = Endpoint::bind(node.clone(), identity, address, options).unwrap();
        let notes = Notes::default();
        let noter = node.spawn("noter", Noter(notes.clone())).unwrap();
        Self {
            node,
            endpoint,
            notes,
            noter,
        }
    }

    fn new(authority: &Authority, name: &str, role: Role) -> Self {
        Self::with(authority, name, role, quick())
    }

    fn address(&self) -> String {
        self.endpoint.address().unwrap().to_string()
    }

    async fn find_noter(&self, of: &Member) -> Pid {
        let address = match of.node.role() {
            Role::Master => of.address(),
            role => format!("{role}@{}", of.address()),
        };
        self.node.find(&address, "noter", PATIENCE).await.unwrap()
    }

    async fn hears(&self, count: usize) -> Vec<String> {
        let what = format!("{count} notes, there are {:?}", self.notes.all());
        eventually(self.node.clock(), &what, || self.notes.len() >= count).await;
        self.notes.all()
    }
}

fn master_and_agent() -> (Member, Member) {
    let authority = Authority::create().unwrap();
    let master = Member::new(&authority, "master-1", Role::Master);
    (master, Member::new(&authority, "agent-1", Role::Agent))
}

// Covers 6.1 Wire.
#[test]
fn tells_and_asks_cross_both_ways_in_order() {
    run_in_real_time(async {
        let (master, agent) = master_and_agent();
        let noter = agent.find_noter(&master).await;
        for number in 0..1000 {
            agent.node.tell(&noter, numbered(number)).unwrap();
        }
        assert_eq!(
            agent
                .node
                .ask(&noter, ReverseBytes(vec![1, 2, 3]), PATIENCE)
                .await,
            Ok(vec![3, 2, 1])
        );
        assert_eq!(
            master.notes.all(),
            (0..1000)
                .map(|number| number.to_string())
                .collect::<Vec<_>>()
        );
        // In the other direction on the same connection: the agent is linked at its own address.
        let back = master.find_noter(&agent).await;
        assert_eq!(
            master
                .node
                .ask(&back, ReverseBytes(vec![4, 5]), PATIENCE)
                .await,
            Ok(vec![5, 4])
        );
        assert_eq!((master.endpoint.links(), agent.endpoint.links()), (1, 1));
        assert_eq!(
            master.node.peers()[0].address,
            format!("agent@{}", agent.address())
        );
        let carried = agent.endpoint.traffic(master.node.id()).unwrap();
        assert!(carried.sent > 10_000, "a thousand tells: {carried:?}");
        assert!(
            (1000..carried.sent).contains(&carried.received),
            "{carried:?}"
        );
        assert_eq!(agent.endpoint.traffic(agent.node.id()), None);
    });
}

// Covers 6.1 Wire.
#[test]
fn the_ping_lane_is_a_stream_of_its_own() {
    run_in_real_time(async {
        let (master, agent) = master_and_agent();
        let noter = agent.find_noter(&master).await;
        agent.node.tell(&noter, Pinged(1)).unwrap();
        agent.node.tell(&noter, numbered(2)).unwrap();
        agent.node.tell(&noter, Pinged(3)).unwrap();
        let mut notes = master.hears(3).await;
        notes.sort();
        assert_eq!(notes, ["2", "ping 1", "ping 3"]);
    });
}

// Covers 6.1 Wire.
#[test]
fn large_messages_keep_their_order() {
    run_in_real_time(async {
        let (master, agent) = master_and_agent();
        let noter = agent.find_noter(&master).await;
        let mut expected = Vec::new();
        for number in 0..30 {
            let message = if number % 3 == 1 {
                large(number, 300_000 + 7000 * number as usize)
            } else {
                numbered(number)
            };
            agent.node.tell(&noter, message).unwrap();
            expected.push(number.to_string());
        }
        let long = vec![9; 3 << 20];
        assert_eq!(
            agent
                .node
                .ask(&noter, ReverseBytes(long.clone()), PATIENCE)
                .await,
            Ok(long)
        );
        assert_eq!(master.notes.all(), expected);
    });
}

#[test]
fn a_ping_overtakes_a_queue_of_large_messages() {
    run_in_real_time(async {
        let (master, agent) = master_and_agent();
        let noter = agent.find_noter(&master).await;
        for number in 0..10 {
            agent.node.tell(&noter, large(number, 1 << 20)).unwrap();
        }
        agent.node.tell(&noter, Pinged(0)).unwrap();
        let notes = master.hears(11).await;
        let place = notes.iter().position(|note| note == "ping 0").unwrap();
        assert!(
            place < 5,
            "the ping came after {place} of 10 messages of 1 MiB"
        );
    });
}

#[test]
fn unreachable_address_fails_within_the_timeout() {
    run_in_real_time(async {
        let (master, agent) = master_and_agent();
        let silent = UdpSocket::bind(LOCALHOST).await.unwrap();
        let options = Options {
            handshake_timeout: Duration::from_millis(200),
            ..quick()
        };
        let impatient = Member::with(
            &Authority::create().unwrap(),
            "agent-2",
            Role::Agent,
            options,
        );
        let error = impatient
            .node
            .connect(&silent.local_addr().unwrap().to_string())
            .await
            .unwrap_err();
        assert_matches!(error, ConnectError::Unreachable { .. });
        for (address, wanted) in [
            ("nonsense", "expected [ROLE@]HOST:PORT"),
            ("unix:/nowhere", "cannot be reached"),
        ] {
            let error = agent.node.connect(address).await.unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}, expected {wanted}");
        }
        drop(master);
    });
}

#[test]
fn an_identity_of_another_node_cannot_be_bound() {
    run_in_real_time(async {
        let node = Node::builder("agent-1").role(Role::Agent).build();
        let authority = Authority::create().unwrap();
        for identity in [
            authority.issue(Role::Agent, "agent-2"),
            authority.issue(Role::Master, "agent-1"),
        ] {
            let bound = Endpoint::bind(node.clone(), &identity.unwrap(), LOCALHOST, quick());
            let error = bound.err().unwrap().to_string();
            assert!(error.contains("expected meros://agent/agent-1"), "{error}");
        }
    });
}

#[test]
fn a_port_that_is_taken_is_told() {
    run_in_real_time(async {
        let (master, _) = master_and_agent();
        let node = Node::builder("agent-3").role(Role::Agent).build();
        let identity = Authority::create()
            .unwrap()
            .issue(Role::Agent, "agent-3")
            .unwrap();
        let taken = master.endpoint.address().unwrap();
        let error = Endpoint::bind(node, &identity, taken, quick())
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains(&taken.to_string()), "{error}");
    });
}
