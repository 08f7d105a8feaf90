//! What an ether promises, and whole endpoints on it under virtual time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::prelude::*;
use runtime::rehearsal::stage;

use super::*;
use crate::testing::*;
use crate::{Authority, Backoff, Endpoint, Options};

const SECOND: Duration = Duration::from_secs(1);
const PING_INTERVAL: Duration = Duration::from_secs(15);

/// What a wire was asked and has answered.
type Trace = Arc<Mutex<Vec<(Datagram, Fate)>>>;

fn address(machine: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, machine], 5050))
}

/// Loses one datagram in a hundred, doubles one, takes 1 to 20 ms, and is cut for a minute after half an hour.
fn rough(seed: u64, trace: Trace) -> impl Wire {
    let mut chance = SmallRng::seed_from_u64(seed);
    move |datagram: Datagram| {
        let minute = datagram.at.since_start().as_secs() / 60;
        let fate = match chance.random_range(0..100) {
            _ if minute == 30 => Fate::Lost,
            0 => Fate::Lost,
            1 => Fate::Copies(vec![
                Duration::from_millis(chance.random_range(1..=20)),
                Duration::from_millis(chance.random_range(1..=20)),
            ]),
            _ => Fate::After(Duration::from_micros(chance.random_range(1_000..=20_000))),
        };
        trace.lock().unwrap().push((datagram, fate.clone()));
        fate
    }
}

fn member(ether: &Ether, name: &str, role: Role, machine: u8, seed: u64) -> (Node, Endpoint) {
    let authority = Authority::seeded(1).unwrap();
    let node = Node::builder(name)
        .role(role)
        .accepts(&Role::ALL)
        .seed(seed)
        .clock(Clock::paused())
        .build();
    let identity = authority.issue(role, name).unwrap();
    let options = Options::default();
    let endpoint =
        Endpoint::bind_on(ether, node.clone(), &identity, address(machine), options).unwrap();
    (node, endpoint)
}

/// An hour of two nodes: the agent pings the master every 15 s, and comes back whenever it has lost it.
fn an_hour(seed: u64) -> (Vec<(Datagram, Fate)>, Vec<String>) {
    let trace = Trace::default();
    let (notes, lost) = stage(async {
        let ether = Ether::new(Clock::paused(), rough(seed, trace.clone()));
        let (master, _served) = member(&ether, "master-1", Role::Master, 1, seed);
        let (agent, _dialling) = member(&ether, "agent-1", Role::Agent, 2, seed);
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
fn an_hour_of_a_rough_network_is_the_same_run_for_the_same_seed() {
    let (one, notes) = an_hour(7);
    let (again, notes_again) = an_hour(7);
    assert!(one.len() > 1000, "{} datagrams", one.len());
    assert!(notes.len() > 200, "{} pings", notes.len());
    for (number, (one, again)) in one.iter().zip(&again).enumerate() {
        assert_eq!(one, again, "datagram {number}");
    }
    assert_eq!(one.len(), again.len());
    assert_eq!(notes, notes_again);
    assert_ne!(one, an_hour(8).0);
}
