//! The allocator with sorters that are hostile, restart, or never reply.

use std::collections::BTreeMap;
use std::time::Duration;

use module_api::allocator::AgentRemoved;
use module_api::sorter::{Advice, Slate};
use module_api::{AllocatorRef, Fault, SorterRef};
use modules::allocator::Allocator;
use modules::sorter::{Drf, SortPolicy, Sorter};
use runtime::prelude::*;
use runtime::testing::simulate;

use crate::cluster::{Cluster, agent, counts, lines, subscribed};

const SECOND: Duration = Duration::from_secs(1);

/// An allocator with a sorter of this policy.
fn over<P: SortPolicy + Send>(node: &Node, policy: P) -> AllocatorRef {
    let sorter = node.spawn("sorter", Sorter::new(policy)).unwrap();
    allocator_over(node, SorterRef::new(sorter.refer()))
}

fn allocator_over(node: &Node, sorter: SorterRef) -> AllocatorRef {
    let allocator = Allocator::new(sorter, None, node.rng());
    AllocatorRef::new(node.spawn("allocator", allocator).unwrap().refer())
}

/// Advises every room for every client, including rooms and clients that do not exist.
struct Hostile;

impl SortPolicy for Hostile {
    fn advise(&mut self, slate: Slate) -> Result<Vec<Advice>, Fault> {
        let rooms = 0..u32::try_from(slate.rooms.len()).unwrap() + 2;
        let clients = [u32::MAX, 7, 0, 1, 0, 0];
        Ok(rooms
            .flat_map(|room| clients.map(|client| Advice { room, client }))
            .collect())
    }
}

// Covers S87.
#[test]
fn hostile_sorter_never_over_commits() {
    simulate(|node| async move {
        let cluster = Cluster::around(&node, over(&node, Hostile), &[]);
        cluster.framework("f1", "*", &[]);
        cluster.framework("f2", "*", &[]);
        for name in ["a1", "a2"] {
            cluster.agent(name, "cpus:4;mem:100");
        }
        cluster.wait(10 * SECOND).await;
        let mut grants = lines(&cluster.granted().await);
        grants.sort();
        assert_eq!(grants, ["f1 a1 cpus:4;mem:100", "f1 a2 cpus:4;mem:100"]);
    });
}

/// Gives correct advice, but only after losing its state twice and panicking once.
struct Frail {
    inner: Drf,
    slates: u32,
}

impl SortPolicy for Frail {
    fn advise(&mut self, slate: Slate) -> Result<Vec<Advice>, Fault> {
        self.slates += 1;
        match self.slates {
            2 | 4 => self.inner = Drf::default(),
            5 => panic!("the sorter falls, as this test wants it"),
            _ => {}
        }
        self.inner.advise(slate)
    }
}

#[test]
fn restarted_sorter_gets_the_full_state() {
    simulate(|node| async move {
        let again = Supervision::Restart {
            backoff: Duration::from_millis(50),
            backoff_max: SECOND,
            limit: 9,
        };
        let make = || {
            Sorter::new(Frail {
                inner: Drf::default(),
                slates: 0,
            })
        };
        node.supervise("sorter", again, make).unwrap();
        let sorter = SorterRef::new(node.refer(Pid::new("sorter", node.id().clone(), 0)));
        let cluster = Cluster::around(&node, allocator_over(&node, sorter), &[("b", 2.0)]);
        cluster.framework("f1", "a", &[]);
        cluster.framework("f2", "b", &[]);
        for name in 0..12 {
            cluster.agent(&format!("a{name}"), "cpus:1;mem:100");
            cluster.wait(3 * SECOND).await;
        }
        let expected = [("f1".to_owned(), 4), ("f2".to_owned(), 8)];
        assert_eq!(counts(&cluster.granted().await), BTreeMap::from(expected));
    });
}

/// Never replies.
struct Silent(Vec<Promise<Result<Vec<Advice>, Fault>>>);

impl Actor for Silent {
    type Context = Context<Self>;
}

impl Process for Silent {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept_local::<Slate>();
    }
}

impl Handler<Slate> for Silent {
    type Result = Reply<Result<Vec<Advice>, Fault>>;

    fn handle(&mut self, _: Slate, _: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        self.0.push(promise);
        reply
    }
}

#[test]
fn silent_sorter_times_out() {
    simulate(|node| async move {
        let silent = node.spawn("sorter", Silent(Vec::new())).unwrap();
        let sorter = SorterRef::new(silent.refer());
        let cluster = Cluster::around(&node, allocator_over(&node, sorter), &[]);
        cluster.framework("f1", "a", &[]);
        cluster.agent("a1", "cpus:1;mem:100");
        cluster.wait(30 * SECOND).await;
        assert_eq!(cluster.granted().await, []);
        cluster.allocator.tell(subscribed("f2", "b", &[])).unwrap();
        cluster
            .allocator
            .tell(AgentRemoved {
                agent_id: agent("a1"),
            })
            .unwrap();
        cluster.wait(30 * SECOND).await;
    });
}
