//! Shutting down: last words arrive, new dials are refused, and nobody waits for ever. On an ether, under virtual time.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::rehearsal::stage;

use super::*;
use crate::wire::{Datagram, Ether, Fate, Wire};

const SECOND: Duration = Duration::from_secs(1);

fn machine(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number], 5050))
}

fn on(ether: &Ether, name: &str, role: Role, number: u8, options: Options) -> Member {
    let identity = Authority::seeded(1).unwrap().issue(role, name).unwrap();
    let node = Node::builder(name)
        .seed(u64::from(number))
        .role(role)
        .accepts(&Role::ALL)
        .clock(Clock::paused())
        .build();
    let endpoint =
        Endpoint::bind_on(ether, node.clone(), &identity, machine(number), options).unwrap();
    let notes = Notes::default();
    let noter = node.spawn("noter", Noter(notes.clone())).unwrap();
    Member {
        node,
        endpoint,
        notes,
        noter,
    }
}

/// A network that takes 5 ms and loses one large datagram in a hundred. Small ones arrive: nobody repeats the word that
/// closes a connection, and who loses it hears of the end later and by another name.
fn lossy() -> impl Wire {
    let mut chance = SmallRng::seed_from_u64(3);
    move |datagram: Datagram| match chance.random_range(0..100) {
        0 if datagram.length > 500 => Fate::Lost,
        _ => Fate::After(Duration::from_millis(5)),
    }
}

fn patient() -> Options {
    Options {
        farewell_timeout: 60 * SECOND,
        ..Options::default()
    }
}

#[test]
fn whatever_was_told_before_a_shutdown_arrives_large_messages_too_and_then_the_reason() {
    stage(async {
        let ether = Ether::new(Clock::paused(), lossy());
        let master = on(&ether, "master-1", Role::Master, 1, patient());
        let agent = on(&ether, "agent-1", Role::Agent, 2, patient());
        let noter = agent.find_noter(&master).await;
        let back = master.find_noter(&agent).await;
        master.noter.tell(Watch(back)).unwrap();
        master.noter.ask(Turn(Vec::new()), PATIENCE).await.unwrap();
        let mut expected = Vec::new();
        for number in 0..200 {
            let length = match number % 15 {
                0 => 300_000, // more such than may be under way at once
                _ => 5_000,
            };
            agent.node.tell(&noter, large(number, length)).unwrap();
            expected.push(number.to_string());
        }
        agent.node.shutdown().await;
        agent.endpoint.close().await;
        let notes = master.hears(201).await;
        assert_eq!(notes[..200], expected);
        assert_eq!(
            notes[200],
            "exited noter NodeLost(\"closed by the peer: shutdown\")"
        );
        assert_eq!(master.endpoint.links(), 0);
    });
}

#[test]
fn who_shuts_down_takes_no_new_links_and_says_so() {
    stage(async {
        let ether = Ether::new(Clock::paused(), |_: Datagram| {
            Fate::After(Duration::from_millis(5))
        });
        let master = on(&ether, "master-1", Role::Master, 1, patient());
        let agent = on(&ether, "agent-1", Role::Agent, 2, patient());
        let other = on(&ether, "agent-2", Role::Agent, 3, patient());
        agent.find_noter(&master).await;
        let address = master.address();
        master.node.shutdown().await;
        // Between the node's end and its endpoint's, and then while the endpoint says its farewells.
        let error = other.node.connect(&address).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "10.0.0.1:5050 cannot be reached: the node is shutting down"
        );
        master.endpoint.shared.state().closing = true;
        let error = other.node.connect(&address).await.unwrap_err();
        assert!(
            error.to_string().contains("it takes no connections now"),
            "{error}"
        );
        let error = master.node.connect("10.0.0.3:5050").await.unwrap_err();
        assert_eq!(error, ConnectError::ShuttingDown);
        master.endpoint.close().await;
    });
}

#[test]
fn a_peer_that_cannot_be_reached_costs_a_shutdown_its_farewells_and_no_more() {
    stage(async {
        let cut = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = cut.clone();
        let ether = Ether::new(Clock::paused(), move |_: Datagram| {
            match seen.load(std::sync::atomic::Ordering::Relaxed) {
                true => Fate::Lost,
                false => Fate::After(Duration::from_millis(5)),
            }
        });
        let master = on(&ether, "master-1", Role::Master, 1, Options::default());
        let agent = on(&ether, "agent-1", Role::Agent, 2, Options::default());
        let noter = agent.find_noter(&master).await;
        cut.store(true, std::sync::atomic::Ordering::Relaxed);
        agent.node.tell(&noter, large(1, 1_000_000)).unwrap();
        let (clock, farewell) = (
            agent.node.clock().clone(),
            Options::default().farewell_timeout,
        );
        let before = clock.now();
        agent.node.shutdown().await;
        agent.endpoint.close().await;
        let took = clock.now() - before;
        assert!(took >= farewell && took < 3 * farewell + SECOND, "{took:?}");
    });
}
