//! A storm: a whole cluster comes back at once, and those who never left must not notice. And who waits at the door.

use std::cell::Cell;

use futures_util::future::{join, join_all};

use super::*;

const CROWD: u8 = 200;
const PINGERS: u8 = 20;
const HANDSHAKES_MAX: usize = 8;
const WAITING_MAX: usize = 40;
const MILLISECOND: Duration = Duration::from_millis(1);

/// As agents do: again and again, with waits that grow.
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
fn a_storm_of_reconnects_passes_its_bound_never_and_costs_the_connected_no_ping() {
    stage(async {
        let ether = Ether::new(Clock::paused(), |_: Datagram| {
            Fate::After(Duration::from_millis(5))
        });
        let options = Options {
            handshakes_max: HANDSHAKES_MAX,
            handshakes_waiting_max: WAITING_MAX,
            ..Options::default()
        };
        let (master, served) = member_with(&ether, "master-1", Role::Master, 1, 1, options);
        let notes = Notes::default();
        let _noter = master.spawn("noter", Noter(notes)).unwrap();
        let agent = |number: u8| {
            let name = format!("agent-{number}");
            member(&ether, &name, Role::Agent, number, u64::from(number))
        };
        let mut pingers = Vec::new();
        for number in 2..2 + PINGERS {
            let (node, endpoint) = agent(number);
            let found = node.find("10.0.0.1:5050", "noter", 10 * SECOND).await;
            pingers.push((node, endpoint, found.unwrap()));
        }

        let crowd: Vec<_> = (50..50 + CROWD).map(agent).collect();
        let (refusals, over) = (Cell::new(0), Cell::new(false));
        let storm = async {
            join_all(crowd.iter().map(|(node, _)| link(node, &refusals))).await;
            over.set(true);
        };
        let pinging = join_all(pingers.iter().map(|(node, _, noter)| async {
            while !over.get() {
                let begun = node.clock().now();
                let answer = node.ask(noter, Turn(vec![1, 2]), SECOND).await;
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
        assert_eq!(seen.linked, u64::from(CROWD + PINGERS), "{seen:?}");
        assert_eq!((seen.under_way, seen.failed), (0, 0), "{seen:?}");
        assert_eq!(seen.refused, u64::from(refusals.get()), "{seen:?}");
        assert!(seen.refused > u64::from(CROWD / 2), "{seen:?}");
        assert_eq!(served.links(), usize::from(CROWD + PINGERS));
    });
}

/// All of them dial the master at once, and each has its link; gives how long that took.
async fn link_all<T>(clock: &Clock, crowd: &[(Node, T)]) -> Duration {
    let begun = clock.now();
    let linking = crowd.iter().map(|(node, _)| node.connect("10.0.0.1:5050"));
    for linked in join_all(linking).await {
        linked.unwrap();
    }
    clock.now() - begun
}

/// The other end of the wire takes 5 ms to reach.
fn near(_: Datagram) -> Fate {
    Fate::After(Duration::from_millis(5))
}

#[test]
fn a_crowd_that_finds_places_to_wait_is_let_in_by_turns_and_nobody_comes_twice() {
    stage(async {
        let ether = Ether::new(Clock::paused(), near);
        let options = Options {
            handshakes_max: HANDSHAKES_MAX,
            ..Options::default()
        };
        let (_master, served) = member_with(&ether, "master-1", Role::Master, 1, 1, options);
        let agent = |number: u8| {
            let name = format!("agent-{number}");
            member(&ether, &name, Role::Agent, number, u64::from(number))
        };
        let crowd: Vec<_> = (50..50 + CROWD).map(agent).collect();
        let took = link_all(&Clock::paused(), &crowd).await;
        assert!(took < SECOND, "25 turns of a few round trips: {took:?}");
        let seen = served.handshakes();
        assert_eq!(seen.under_way_most, HANDSHAKES_MAX, "{seen:?}");
        let waited = usize::from(CROWD) - HANDSHAKES_MAX;
        assert_eq!((seen.waiting_most, seen.refused), (waited, 0), "{seen:?}");
    });
}

#[test]
fn who_knocks_again_while_it_waits_or_is_being_served_costs_no_second_handshake() {
    stage(async {
        // So far away that a turn takes longer than a dialler is silent.
        let far = |_: Datagram| Fate::After(Duration::from_millis(400));
        let ether = Ether::new(Clock::paused(), far);
        let options = Options {
            handshakes_max: HANDSHAKES_MAX,
            handshake_timeout: 60 * SECOND,
            ..Options::default()
        };
        let member = |name: &str, role, number: u8| {
            let seed = u64::from(number);
            member_with(&ether, name, role, number, seed, options.clone())
        };
        let (_master, served) = member("master-1", Role::Master, 1);
        let agent = |number: u8| member(&format!("agent-{number}"), Role::Agent, number);
        let crowd: Vec<_> = (50..100).map(agent).collect();
        let clock = Clock::paused();
        let took = link_all(&clock, &crowd).await;
        assert!(took > 6 * SECOND, "most have knocked again: {took:?}");
        clock.sleep(20 * SECOND).await;
        let seen = served.handshakes();
        assert_eq!((seen.linked, seen.refused), (50, 0), "{seen:?}");
        // Each that waits has shown once whose its address is, and of its other attempts nothing became: 14 handshakes where they
        // could show it as well, and 46 without the rule.
        assert_eq!((seen.retried, seen.failed), (42, 0), "{seen:?}");
    });
}

#[test]
fn who_waits_in_vain_is_sent_away_in_time_and_holds_one_place_however_often_it_knocks() {
    stage(async {
        // Who holds the only place hears nothing of the master, so that its handshake never ends.
        let deaf = |datagram: Datagram| match datagram.to == address(2) {
            true => Fate::Lost,
            false => near(datagram),
        };
        let ether = Ether::new(Clock::paused(), deaf);
        let options = Options {
            handshakes_max: 1,
            handshakes_waiting_max: 1,
            handshake_timeout: 20 * SECOND,
            ..Options::default()
        };
        let (_master, served) = member_with(&ether, "master-1", Role::Master, 1, 1, options);
        let patient = Options {
            handshake_timeout: 30 * SECOND,
            idle_timeout: 60 * SECOND,
            ..Options::default()
        };
        let dialler = |name, number: u8| {
            let seed = u64::from(number);
            member_with(&ether, name, Role::Agent, number, seed, patient.clone())
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
        // Half of the time that a handshake may take, and the way there and back, twice: it has shown its address first.
        assert_eq!(waited, 10 * SECOND + Duration::from_millis(20));
        let seen = served.handshakes();
        // The one that is stuck knocks as well, but hears nobody ask whose address that is; and the one that waits, in the only place.
        assert_eq!((seen.waiting_most, seen.under_way_most), (1, 1), "{seen:?}");
        // When that has given up there is room again.
        clock.sleep(SECOND).await;
        agent.connect("10.0.0.1:5050").await.unwrap();
    });
}

#[test]
fn a_host_that_comes_up_while_it_is_dialled_is_reached_within_about_a_second() {
    for late in [300, 1100, 2500, 3200, 4900, 6100, 7300, 8900] {
        stage(async {
            let late = Duration::from_millis(late);
            let ether = Ether::new(Clock::paused(), near);
            let (agent, dialling) = member(&ether, "agent-2", Role::Agent, 2, 2);
            let clock = agent.clock().clone();
            let dialled = async {
                agent.connect("10.0.0.1:5050").await.unwrap();
                clock.now()
            };
            let comes_up = async {
                clock.sleep(late).await;
                (member(&ether, "master-1", Role::Master, 1, 1), clock.now())
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
fn all_peers_of_a_host_that_has_restarted_learn_of_it_at_once_when_they_speak() {
    stage(async {
        let ether = Ether::new(Clock::paused(), near);
        let (first, served) = member(&ether, "master-1", Role::Master, 1, 1);
        let _noter = first.spawn("noter", Noter(Notes::default())).unwrap();
        let mut peers = Vec::new();
        for number in 50..50 + CROWD {
            let name = format!("agent-{number}");
            let (node, endpoint) = member(&ether, &name, Role::Agent, number, u64::from(number));
            let noter = node.find("10.0.0.1:5050", "noter", SECOND).await.unwrap();
            peers.push((node, endpoint, noter));
        }
        ether.unplug(address(1));
        drop((served, first));
        let (_second, _served) = member(&ether, "master-1", Role::Master, 1, 2);
        let begun = Clock::paused().now();
        let asking = peers
            .iter()
            .map(|(node, _, noter)| node.ask(noter, Turn(vec![1]), 10 * SECOND));
        for answer in join_all(asking).await {
            assert_eq!(answer, Err(AskError::Gone));
        }
        let took = Clock::paused().now() - begun;
        assert!(took < 100 * MILLISECOND, "{took:?}");
    });
}
