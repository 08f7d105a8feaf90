//! A mass reconnection does not disturb linked peers. Also: the accept backlog.

use std::cell::Cell;

use futures_util::future::{join, join_all};

use super::*;

const PEERS: u8 = 200;
const PINGERS: u8 = 20;
const HANDSHAKES_MAX: usize = 8;
const WAITING_MAX: usize = 40;
const MILLISECOND: Duration = Duration::from_millis(1);

/// Dials until linked, with an agent's back-off.
async fn link(node: &Node, refusals: &Cell<u32>) {
    let (clock, mut chance) = (node.clock(), node.rng());
    let mut backoff = Backoff::new(SECOND, 60 * SECOND);
    while let Err(error) = node.connect("10.0.0.1:5050").await {
        let comes_back = matches!(error, runtime::ConnectError::Unreachable { .. });
        assert!(comes_back, "{}: {error}", node.id());
        refusals.set(refusals.get() + 1);
        clock.sleep(backoff.next(&mut chance)).await;
    }
}

#[test]
fn mass_reconnection_stays_bounded_and_delays_no_ping() {
    run_simulated(async {
        let network = VirtualUdpNetwork::new(Clock::paused(), |_: Datagram| {
            DatagramFate::After(Duration::from_millis(5))
        });
        let options = Options {
            handshakes_max: HANDSHAKES_MAX,
            handshakes_waiting_max: WAITING_MAX,
            ..Options::default()
        };
        let (master, served) = member_with(&network, "master-1", Role::Master, 1, 1, options);
        let notes = Notes::default();
        let _noter = master.spawn("noter", Noter(notes)).unwrap();
        let agent = |number: u8| {
            let name = format!("agent-{number}");
            member(&network, &name, Role::Agent, number, u64::from(number))
        };
        let mut pingers = Vec::new();
        for number in 2..2 + PINGERS {
            let (node, endpoint) = agent(number);
            let found = node.find("10.0.0.1:5050", "noter", 10 * SECOND).await;
            pingers.push((node, endpoint, found.unwrap()));
        }

        let peers: Vec<_> = (50..50 + PEERS).map(agent).collect();
        let (refusals, over) = (Cell::new(0), Cell::new(false));
        let storm = async {
            join_all(peers.iter().map(|(node, _)| link(node, &refusals))).await;
            over.set(true);
        };
        let pinging = join_all(pingers.iter().map(|(node, _, noter)| async {
            while !over.get() {
                let begun = node.clock().now();
                let answer = node.ask(noter, ReverseBytes(vec![1, 2]), SECOND).await;
                assert_eq!(answer, Ok(vec![2, 1]), "a ping of {} is missed", node.id());
                let took = node.clock().now() - begun;
                assert!(took < Duration::from_millis(100), "a ping took {took:?}");
                node.clock().sleep(Duration::from_millis(100)).await;
            }
        }));
        join(storm, pinging).await;

        let seen = served.handshakes();
        assert_eq!(seen.under_way_most, HANDSHAKES_MAX, "{seen:?}");
        assert_eq!(seen.waiting_most, WAITING_MAX, "{seen:?}");
        assert_eq!(seen.linked, u64::from(PEERS + PINGERS), "{seen:?}");
        assert_eq!((seen.under_way, seen.failed), (0, 0), "{seen:?}");
        assert_eq!(seen.refused, u64::from(refusals.get()), "{seen:?}");
        assert!(seen.refused > u64::from(PEERS / 2), "{seen:?}");
        assert_eq!(served.links(), usize::from(PEERS + PINGERS));
    });
}

/// All nodes dial the master at once until linked; returns the time.
async fn link_all<T>(clock: &Clock, peers: &[(Node, T)]) -> Duration {
    let begun = clock.now();
    let linking = peers.iter().map(|(node, _)| node.connect("10.0.0.1:5050"));
    for linked in join_all(linking).await {
        linked.unwrap();
    }
    clock.now() - begun
}

/// Delays every datagram by 5 ms.
fn near(_: Datagram) -> DatagramFate {
    DatagramFate::After(Duration::from_millis(5))
}

#[test]
fn waiting_peers_are_admitted_in_turn_without_retries() {
    run_simulated(async {
        let network = VirtualUdpNetwork::new(Clock::paused(), near);
        let options = Options {
            handshakes_max: HANDSHAKES_MAX,
            ..Options::default()
        };
        let (_master, served) = member_with(&network, "master-1", Role::Master, 1, 1, options);
        let agent = |number: u8| {
            let name = format!("agent-{number}");
            member(&network, &name, Role::Agent, number, u64::from(number))
        };
        let peers: Vec<_> = (50..50 + PEERS).map(agent).collect();
        let took = link_all(&Clock::paused(), &peers).await;
        assert!(took < SECOND, "25 turns of a few round trips: {took:?}");
        let seen = served.handshakes();
        assert_eq!(seen.under_way_most, HANDSHAKES_MAX, "{seen:?}");
        let waited = usize::from(PEERS) - HANDSHAKES_MAX;
        assert_eq!((seen.waiting_most, seen.refused), (waited, 0), "{seen:?}");
    });
}

#[test]
fn repeated_attempts_cost_no_second_handshake() {
    run_simulated(async {
        // So far away that one handshake takes longer than a dialler's retry interval.
        let far = |_: Datagram| DatagramFate::After(Duration::from_millis(400));
        let network = VirtualUdpNetwork::new(Clock::paused(), far);
        let options = Options {
            handshakes_max: HANDSHAKES_MAX,
            handshake_timeout: 60 * SECOND,
            ..Options::default()
        };
        let member = |name: &str, role, number: u8| {
            let seed = u64::from(number);
            member_with(&network, name, role, number, seed, options.clone())
        };
        let (_master, served) = member("master-1", Role::Master, 1);
        let agent = |number: u8| member(&format!("agent-{number}"), Role::Agent, number);
        let peers: Vec<_> = (50..100).map(agent).collect();
        let clock = Clock::paused();
        let took = link_all(&clock, &peers).await;
        assert!(took > 6 * SECOND, "most have knocked again: {took:?}");
        clock.sleep(20 * SECOND).await;
        let seen = served.handshakes();
        assert_eq!((seen.linked, seen.refused), (50, 0), "{seen:?}");
        // Each waiting peer validated its address once, and its repeated attempts were ignored: 14
        // handshakes would be repeated if each validated it again, and 46 without the rule.
        assert_eq!((seen.retried, seen.failed), (42, 0), "{seen:?}");
    });
}

#[test]
fn overdue_waiting_peer_is_refused_and_holds_one_place() {
    run_simulated(async {
        // The peer in the only place receives nothing from the master, so that its handshake never
        // ends.
        let deaf = |datagram: Datagram| match datagram.to == address(2) {
            true => DatagramFate::Lost,
            false => near(datagram),
        };
        let network = VirtualUdpNetwork::new(Clock::paused(), deaf);
        let options = Options {
            handshakes_max: 1,
            handshakes_waiting_max: 1,
            handshake_timeout: 20 * SECOND,
            ..Options::default()
        };
        let (_master, served) = member_with(&network, "master-1", Role::Master, 1, 1, options);
        let patient = Options {
            handshake_timeout: 30 * SECOND,
            idle_timeout: 60 * SECOND,
            ..Options::default()
        };
        let dialler = |name, number: u8| {
            let seed = u64::from(number);
            member_with(&network, name, Role::Agent, number, seed, patient.clone())
        };
        let (stuck, _dialling) = dialler("agent-2", 2);
        let (agent, _dialling_too) = dialler("agent-3", 3);
        let clock = agent.clock().clone();
        let stuck = stuck.connect("10.0.0.1:5050");
        let waits = async {
            clock.sleep(Duration::from_millis(100)).await;
            let begun = clock.now();
            let error = agent.connect("10.0.0.1:5050").await.unwrap_err();
            let told = error.to_string();
            assert!(told.contains("takes no connections now"), "{told}");
            clock.now() - begun
        };
        let (stuck, waited) = join(stuck, waits).await;
        assert!(stuck.is_err());
        // Half of the handshake timeout, and two round trips: its address is validated first.
        assert_eq!(waited, 10 * SECOND + Duration::from_millis(20));
        let seen = served.handshakes();
        // The stuck peer dials again too, and never sees the Retry; the waiting one has the only
        // place in the backlog.
        assert_eq!((seen.waiting_most, seen.under_way_most), (1, 1), "{seen:?}");
        // After the stuck peer has given up, its place is free.
        clock.sleep(SECOND).await;
        agent.connect("10.0.0.1:5050").await.unwrap();
    });
}

#[test]
fn starting_host_is_reached_within_a_second() {
    for late in [300, 1100, 2500, 3200, 4900, 6100, 7300, 8900] {
        run_simulated(async {
            let late = Duration::from_millis(late);
            let network = VirtualUdpNetwork::new(Clock::paused(), near);
            let (agent, dialling) = member(&network, "agent-2", Role::Agent, 2, 2);
            let clock = agent.clock().clone();
            let dialled = async {
                agent.connect("10.0.0.1:5050").await.unwrap();
                clock.now()
            };
            let comes_up = async {
                clock.sleep(late).await;
                (
                    member(&network, "master-1", Role::Master, 1, 1),
                    clock.now(),
                )
            };
            let (linked, ((master, served), up)) = join(dialled, comes_up).await;
            let took = linked - up;
            assert!(took < SECOND + 100 * MILLISECOND, "{late:?}: {took:?}");
            clock.sleep(20 * SECOND).await;
            assert_eq!((dialling.links(), served.links()), (1, 1));
            assert_eq!(served.handshakes().linked, 1, "the other attempts are gone");
            assert_eq!(master.peers().len(), 1);
        });
    }
}

#[test]
fn sending_peers_learn_of_a_restart_at_once() {
    run_simulated(async {
        let network = VirtualUdpNetwork::new(Clock::paused(), near);
        let (first, served) = member(&network, "master-1", Role::Master, 1, 1);
        let _noter = first.spawn("noter", Noter(Notes::default())).unwrap();
        let mut peers = Vec::new();
        for number in 50..50 + PEERS {
            let name = format!("agent-{number}");
            let (node, endpoint) = member(&network, &name, Role::Agent, number, u64::from(number));
            let noter = node.find("10.0.0.1:5050", "noter", SECOND).await.unwrap();
            peers.push((node, endpoint, noter));
        }
        network.power_off(address(1));
        drop((served, first));
        let (_second, _served) = member(&network, "master-1", Role::Master, 1, 2);
        let begun = Clock::paused().now();
        let asking = peers
            .iter()
            .map(|(node, _, noter)| node.ask(noter, ReverseBytes(vec![1]), 10 * SECOND));
        for answer in join_all(asking).await {
            assert_eq!(answer, Err(AskError::Gone));
        }
        let took = Clock::paused().now() - begun;
        assert!(took < 100 * MILLISECOND, "{took:?}");
    });
}
