//! Tests of in-memory streams: which nodes learn of a loss, and when.

use std::sync::{Arc, Mutex};

use runtime::prelude::*;
use runtime::testing::{self, run_simulated};

use super::*;
use crate::world::network::faults::PacketFaults;

const SECOND: Duration = Duration::from_secs(1);

/// Watches an actor of another node and records the time and reason of its end.
struct Watcher {
    watched: Pid,
    ends: Ends,
}

type Ends = Arc<Mutex<Vec<(u64, String)>>>;

impl Actor for Watcher {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        ctx.link(&self.watched);
    }
}

impl Process for Watcher {}

impl Handler<Exited> for Watcher {
    type Result = ();

    fn handle(&mut self, exited: Exited, ctx: &mut Context<Self>) {
        let at = ctx.clock().now().since_start().as_secs();
        self.ends
            .lock()
            .unwrap()
            .push((at, exited.reason.to_string()));
    }
}

/// Two nodes on separate machines, each of which watches an actor of the other.
struct Pair {
    network: Memory,
    nodes: [Node; 2],
    ends: [Ends; 2],
}

async fn linked() -> Pair {
    let clock = Clock::paused();
    let network = Memory::new(SharedNetwork::new(7), clock);
    let nodes = ["a", "b"].map(|name| {
        let node = testing::node(name).accepts(&Role::ALL).build();
        node.set_dialer(network.place(&node, name, name));
        node
    });
    nodes[0].connect("b").await.unwrap();
    let ends = [Ends::default(), Ends::default()];
    for (here, there) in [(0, 1), (1, 0)] {
        let ends = ends[here].clone();
        let watched = Pid::new("watcher", nodes[there].id().clone(), 0);
        nodes[here]
            .spawn("watcher", Watcher { watched, ends })
            .unwrap();
    }
    nodes[0].clock().settle().await;
    Pair {
        network,
        nodes,
        ends,
    }
}

impl Pair {
    async fn advance(&self, duration: Duration) {
        self.nodes[0].clock().advance(duration).await;
    }

    fn ends(&self) -> [Vec<(u64, String)>; 2] {
        self.ends
            .each_ref()
            .map(|ends| ends.lock().unwrap().clone())
    }
}

fn timed_out(at: u64) -> Vec<(u64, String)> {
    vec![(at, Exit::NodeLost("timed out".into()).to_string())]
}

#[test]
fn blocked_path_breaks_both_ends_in_order() {
    run_simulated(async {
        let pair = linked().await;
        pair.network
            .0
            .shared_network
            .change(|faults| faults.block("a", "b"));
        pair.network.watch_silence("a", "b");
        pair.advance(29 * SECOND).await;
        assert_eq!(pair.ends(), [vec![], vec![]]);
        pair.advance(40 * SECOND).await;
        assert_eq!(pair.ends(), [timed_out(60), timed_out(30)]);
    });
}

#[test]
fn short_block_breaks_nothing() {
    run_simulated(async {
        let pair = linked().await;
        let shared_network = pair.network.0.shared_network.clone();
        shared_network.change(|faults| faults.block("a", "b"));
        pair.network.watch_silence("a", "b");
        pair.advance(20 * SECOND).await;
        shared_network.change(|faults| faults.open("a", "b"));
        pair.advance(60 * SECOND).await;
        assert_eq!(pair.ends(), [vec![], vec![]]);
    });
}

#[test]
fn crash_is_noticed_after_silence_or_restart() {
    run_simulated(async {
        let pair = linked().await;
        pair.network.gone(pair.nodes[1].id());
        pair.advance(29 * SECOND).await;
        assert_eq!(pair.ends()[0], []);
        pair.advance(2 * SECOND).await;
        assert_eq!(pair.ends()[0], timed_out(30));

        let pair = linked().await;
        pair.network.gone(pair.nodes[1].id());
        pair.advance(5 * SECOND).await;
        let again = testing::node("b").accepts(&Role::ALL).seed(8).build();
        again.set_dialer(pair.network.place(&again, "b", "b"));
        pair.advance(SECOND).await;
        let reason = Exit::NodeLost("the node was started again".into());
        assert_eq!(pair.ends()[0], [(5, reason.to_string())]);
    });
}

#[test]
fn slow_reader_gets_everything_later_in_order() {
    run_simulated(async {
        let pair = linked().await;
        let shared_network = pair.network.0.shared_network.clone();
        shared_network.change(|faults| faults.stop_reading("b", 50 * SECOND));
        let asked = pair.nodes[0].find("b", "watcher", 100 * SECOND);
        let found = tokio::task::spawn_local(asked);
        pair.advance(49 * SECOND).await;
        assert!(!found.is_finished());
        shared_network.change(|faults| faults.resume_reading("b", 50 * SECOND));
        pair.advance(SECOND).await;
        assert!(found.await.unwrap().is_ok());
        assert_eq!(pair.ends(), [vec![], vec![]]);
    });
}

#[test]
fn stream_with_total_loss_breaks() {
    run_simulated(async {
        let pair = linked().await;
        let lossy = PacketFaults {
            loss: 1000,
            ..PacketFaults::default()
        };
        pair.network
            .0
            .shared_network
            .change(|faults| faults.add_packet_faults("a", lossy));
        let asked = pair.nodes[0].find("b", "nobody", 100 * SECOND);
        let found = tokio::task::spawn_local(asked);
        pair.advance(60 * SECOND).await;
        assert_eq!(found.await.unwrap(), Err(AskError::Gone));
        assert!(pair.ends().iter().all(|ends| ends.len() == 1));
    });
}

#[test]
fn dial_without_listener_fails() {
    run_simulated(async {
        let pair = linked().await;
        let clock = pair.nodes[0].clock().clone();
        let before = clock.now();
        assert!(pair.nodes[0].connect("unix:/c").await.is_err());
        assert_eq!(clock.now() - before, Duration::ZERO);
        assert!(pair.nodes[0].connect("c").await.is_err());
        assert_eq!(clock.now() - before, HANDSHAKE_PATIENCE);
    });
}
