//! Whole endpoints on a network in memory, in virtual time.
//!
//! | module | contents |
//! |---|---|
//! | `bulks` | bulks that wait for permits |
//! | `reconnection` | many peers dial at once; the accept backlog |
//! | `shutdown` | queued messages arrive, and every wait is bounded |

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::prelude::*;
use runtime::testing::run_simulated;

use testkit::assert_contains;
use testkit::recorder::*;
use testkit::virtual_udp::{Datagram, DatagramFate, NetworkModel, VirtualUdpNetwork};
use transport::{Authority, Backoff, Endpoint, Options};

mod bulks;
mod reconnection;
mod shutdown;

const SECOND: Duration = Duration::from_secs(1);
const PING_INTERVAL: Duration = Duration::from_secs(15);

/// The datagrams that a model saw, and its decisions.
type Trace = Arc<Mutex<Vec<(Datagram, DatagramFate)>>>;

fn address(machine: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, machine], 5050))
}

/// Loses one datagram in a hundred, doubles one, has delays of 1 to 20 ms, and loses everything in
/// the 30th minute.
fn rough(seed: u64, trace: Trace) -> impl NetworkModel {
    let mut chance = SmallRng::seed_from_u64(seed);
    move |datagram: Datagram| {
        let minute = datagram.at.since_start().as_secs() / 60;
        let fate = match chance.random_range(0..100) {
            _ if minute == 30 => DatagramFate::Lost,
            0 => DatagramFate::Lost,
            1 => DatagramFate::Copies(vec![
                Duration::from_millis(chance.random_range(1..=20)),
                Duration::from_millis(chance.random_range(1..=20)),
            ]),
            _ => DatagramFate::After(Duration::from_micros(chance.random_range(1_000..=20_000))),
        };
        trace.lock().unwrap().push((datagram, fate.clone()));
        fate
    }
}

fn member(
    network: &VirtualUdpNetwork,
    name: &str,
    role: Role,
    machine: u8,
    seed: u64,
) -> (Node, Endpoint) {
    let options = Options::default();
    member_with(network, name, role, machine, seed, options)
}

fn member_with(
    network: &VirtualUdpNetwork,
    name: &str,
    role: Role,
    machine: u8,
    seed: u64,
    options: Options,
) -> (Node, Endpoint) {
    member_at(network, name, role, address(machine), seed, options)
}

fn member_at(
    network: &VirtualUdpNetwork,
    name: &str,
    role: Role,
    address: SocketAddr,
    seed: u64,
    options: Options,
) -> (Node, Endpoint) {
    let authority = Authority::seeded(1).unwrap();
    let node = Node::builder(name)
        .role(role)
        .accepts(&Role::ALL)
        .seed(seed)
        .clock(Clock::paused())
        .build();
    let identity = authority.issue(role, name).unwrap();
    let endpoint =
        Endpoint::bind_on(network.clone(), node.clone(), &identity, address, options).unwrap();
    (node, endpoint)
}

/// One hour of two nodes: the agent pings the master every 15 s, and reconnects after a loss.
fn an_hour(seed: u64) -> (Vec<(Datagram, DatagramFate)>, Vec<String>) {
    let trace = Trace::default();
    let (notes, lost) = run_simulated(async {
        let network = VirtualUdpNetwork::new(Clock::paused(), rough(seed, trace.clone()));
        let (master, _served) = member(&network, "master-1", Role::Master, 1, seed);
        let (agent, _dialling) = member(&network, "agent-1", Role::Agent, 2, seed);
        let notes = Notes::default();
        let _noter = master.spawn("noter", Noter(notes.clone())).unwrap();
        let (clock, mut chance) = (agent.clock().clone(), agent.rng());
        let mut backoff = Backoff::new(SECOND, 10 * SECOND);
        let (mut number, mut lost) = (0, 0);
        let goes_on = || clock.now().since_start() < 3600 * SECOND;
        while goes_on() {
            let found = agent
                .find(&address(1).to_string(), "noter", 5 * SECOND)
                .await;
            let Ok(noter) = found else {
                clock.sleep(backoff.next(&mut chance)).await;
                continue;
            };
            backoff.reset();
            while goes_on() && agent.tell(&noter, Pinged(number)).is_ok() {
                number += 1;
                clock.sleep(PING_INTERVAL).await;
            }
            lost += u64::from(goes_on());
        }
        (notes.all(), lost)
    });
    assert_eq!(
        lost, 1,
        "the partition ends the link, and nothing else does"
    );
    let trace = std::mem::take(&mut *trace.lock().unwrap());
    (trace, notes)
}

#[test]
fn rough_network_run_is_reproducible_from_its_seed() {
    let (one, notes) = an_hour(7);
    let (again, notes_again) = an_hour(7);
    assert!(one.len() > 500, "{} datagrams", one.len());
    assert!(notes.len() > 200, "{} pings", notes.len());
    for (number, (one, again)) in one.iter().zip(&again).enumerate() {
        assert_eq!(one, again, "datagram {number}");
    }
    assert_eq!(one.len(), again.len());
    assert_eq!(notes, notes_again);
    assert_ne!(one, an_hour(8).0);
}

/// Delays every datagram by one millisecond.
fn calm(_: Datagram) -> DatagramFate {
    DatagramFate::After(Duration::from_millis(1))
}

#[test]
fn messages_arrive_once_and_in_order_on_a_bad_network() {
    for seed in 0..6 {
        run_simulated(async {
            let mut chance = SmallRng::seed_from_u64(seed);
            let bad = move |_: Datagram| match chance.random_range(0..10) {
                0 | 1 => DatagramFate::Lost,
                2 => {
                    DatagramFate::Copies(vec![Duration::from_millis(chance.random_range(0..50)); 3])
                }
                _ => DatagramFate::After(Duration::from_millis(chance.random_range(0..50))),
            };
            let network = VirtualUdpNetwork::new(Clock::paused(), bad);
            let (master, _served) = member(&network, "master-1", Role::Master, 1, seed);
            let (agent, _dialling) = member(&network, "agent-1", Role::Agent, 2, seed);
            let notes = Notes::default();
            let _noter = master.spawn("noter", Noter(notes.clone())).unwrap();
            let found = agent.find(&address(1).to_string(), "noter", 60 * SECOND);
            let noter = found.await.unwrap();
            let mut expected = Vec::new();
            for number in 0..40 {
                let length = if number % 10 == 9 { 300_000 } else { 300 };
                agent.tell(&noter, large(number, length)).unwrap();
                expected.push(number.to_string());
            }
            let answer = agent
                .ask(&noter, ReverseBytes(vec![1, 2]), 600 * SECOND)
                .await;
            assert_eq!(answer, Ok(vec![2, 1]), "seed {seed}");
            assert_eq!(notes.all(), expected, "seed {seed}");
        });
    }
}

// Covers 6.1 link.
#[test]
fn power_failure_is_noticed_by_timeout_and_restart_by_reset() {
    run_simulated(async {
        let network = VirtualUdpNetwork::new(Clock::paused(), calm);
        let (master, served) = member(&network, "master-1", Role::Master, 1, 1);
        let (agent, _dialling) = member(&network, "agent-1", Role::Agent, 2, 1);
        let notes = Notes::default();
        let _theirs = master.spawn("noter", Noter(Notes::default())).unwrap();
        let watcher = agent.spawn("noter", Noter(notes.clone())).unwrap();
        let clock = agent.clock().clone();
        let find = || agent.find("10.0.0.1:5050", "noter", 10 * SECOND);
        watcher.tell(Watch(find().await.unwrap())).unwrap();
        watcher.ask(ReverseBytes(Vec::new()), SECOND).await.unwrap();
        assert!(network.power_off(address(1)));
        assert!(!network.power_off(address(1)), "it is unplugged already");
        drop((served, master));
        let before = clock.now();
        while notes.is_empty() {
            clock.sleep(SECOND).await;
        }
        let took = clock.now() - before;
        assert!(notes.all()[0].starts_with("exited noter NodeLost(\"no sign of life"));
        // 30 s after the first unanswered keep-alive, or after the last received datagram.
        assert!(took > 29 * SECOND && took < 42 * SECOND, "{took:?}");

        let (second, served) = member(&network, "master-1", Role::Master, 1, 2);
        let _theirs = second.spawn("noter", Noter(Notes::default())).unwrap();
        watcher.tell(Watch(find().await.unwrap())).unwrap();
        watcher.ask(ReverseBytes(Vec::new()), SECOND).await.unwrap();
        network.power_off(address(1));
        drop((served, second));
        let (_third, _served) = member(&network, "master-1", Role::Master, 1, 3);
        let before = clock.now();
        eventually(&clock, "the restart is told", || notes.len() == 2).await;
        let took = clock.now() - before;
        assert!(took < 11 * SECOND, "a keep-alive is enough: {took:?}");
        assert_eq!(
            notes.all()[1],
            "exited noter NodeLost(\"the peer has restarted\")"
        );
    });
}

#[test]
fn names_resolve_on_the_network_and_unix_uses_the_local_dialer() {
    run_simulated(async {
        let network = VirtualUdpNetwork::new(Clock::paused(), calm);
        let (master, _served) = member(&network, "master-1", Role::Master, 1, 1);
        let (agent, dialling) = member(&network, "agent-1", Role::Agent, 2, 1);
        network.name("master-1.example", address(1).ip());
        let peer = agent.connect("master-1.example:5050").await.unwrap();
        assert_eq!(peer.node, *master.id());
        let error = agent.connect("localhost:5050").await.unwrap_err();
        assert!(error.to_string().contains("no such name"), "{error}");
        let error = agent.connect("unix:/run/executor").await.unwrap_err();
        assert!(error.to_string().contains("no dialer was given"), "{error}");

        let machine = runtime::testing::memory::Network::new();
        let executor = machine.node("unix:/run/executor", Role::Executor, &Role::ALL);
        dialling.set_local_dialer(machine.place(&agent, "agent-1"));
        let peer = agent.connect("unix:/run/executor").await.unwrap();
        assert_eq!(peer.node, *executor.id());
        assert_eq!(agent.peers().len(), 2);
    });
}

#[test]
fn certificates_are_validated_by_the_virtual_clock() {
    run_simulated(async {
        let network = VirtualUdpNetwork::new(Clock::paused(), calm);
        let (_master, _served) = member(&network, "master-1", Role::Master, 1, 1);
        let (early, _dialling) = member(&network, "agent-1", Role::Agent, 2, 1);
        let before_validity = -55 * 365 * 24 * 3600 * 1_000_000_000_i64;
        early.clock().set_wall_offset(before_validity);
        let error = early.connect("10.0.0.1:5050").await.unwrap_err();
        assert!(error.to_string().contains("not valid yet"), "{error}");
        early.clock().set_wall_offset(0);
        early.connect("10.0.0.1:5050").await.unwrap();
    });
}

#[test]
fn ipv6_machines_reach_each_other_and_ipv4_ones() {
    run_simulated(async {
        let network = VirtualUdpNetwork::new(Clock::paused(), calm);
        let (master, _served) = member(&network, "master-1", Role::Master, 1, 1);
        let six = |name: &str, role, address: &str| {
            let address = address.parse().unwrap();
            member_at(&network, name, role, address, 1, Options::default())
        };
        let (other, _served_too) = six("master-2", Role::Master, "[fd00::1]:5050");
        let (agent, _dialling) = six("agent-1", Role::Agent, "[fd00::2]:5050");
        let peer = agent.connect("[fd00::1]:5050").await.unwrap();
        assert_eq!(peer.node, *other.id());
        let peer = agent.connect("10.0.0.1:5050").await.unwrap();
        assert_eq!(
            (peer.node, peer.address.as_str()),
            (master.id().clone(), "10.0.0.1:5050")
        );
    });
}
