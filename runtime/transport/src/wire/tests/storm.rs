//! A storm: a whole cluster comes back at once, and those who never left must not notice.

use std::cell::Cell;

use futures_util::future::{join, join_all};

use super::*;

const CROWD: u8 = 200;
const PINGERS: u8 = 20;
const HANDSHAKES_MAX: usize = 8;

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
        assert_eq!(seen.linked, u64::from(CROWD + PINGERS), "{seen:?}");
        assert_eq!((seen.under_way, seen.failed), (0, 0), "{seen:?}");
        assert_eq!(seen.refused, u64::from(refusals.get()), "{seen:?}");
        assert!(seen.refused > u64::from(CROWD / 2), "{seen:?}");
        assert_eq!(served.links(), usize::from(CROWD + PINGERS));
    });
}
