//! Floods of acknowledged delivery: a courier without a receiver, before one that hears nothing,
//! and a receiver of very many couriers.

use runtime::delivery::{self, Bounds, DedupReceiver, DeliveryError, ReliableSender, Sequenced};
use runtime::wire::codec;

use super::*;

const BOUNDS: Bounds = Bounds {
    messages: 100_000,
    bytes: 4 * MIB,
    age: Duration::from_secs(420),
};

/// Remember this; an order whose receiver must hear it.
#[derive(Serialize, Deserialize)]
struct Order(String);

remote! {
    Order = "flood/order" v1;
}

/// Hears what is numbered, once it is no longer stalled.
#[derive(Default)]
struct Clerk {
    incoming: DedupReceiver,
    heard: u64,
}

impl Actor for Clerk {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        let hour = fut::wrap_future::<_, Self>(ctx.clock().sleep(HOUR));
        ctx.wait(hour);
    }
}

impl Process for Clerk {
    const MAILBOX: u32 = 1000;
    const MAILBOX_BYTES: u64 = 4 << 20;

    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<Sequenced>(&Role::ALL);
        handlers.accept::<Order>(&Role::ALL);
    }
}

impl Handler<Sequenced> for Clerk {
    type Result = MessageResult<Sequenced>;
    fn handle(&mut self, numbered: Sequenced, ctx: &mut Context<Self>) -> Self::Result {
        let taken = delivery::take(self, |clerk| &mut clerk.incoming, numbered, ctx);
        MessageResult(taken)
    }
}

impl Handler<Order> for Clerk {
    type Result = ();
    fn handle(&mut self, Order(text): Order, _: &mut Context<Self>) {
        assert_eq!(text.len(), BODY);
        self.heard += 1;
    }
}

/// Gives it so many orders; gives how many it did not take, each of them told so.
fn flood(courier: &ReliableSender, count: usize) -> usize {
    let given = (0..count).map(|_| courier.send(Order(body())).err());
    let refused = given.flatten().inspect(|why| {
        assert!(matches!(why, DeliveryError::Full { .. }), "{why}");
    });
    refused.count()
}

#[test]
fn a_courier_without_a_receiver_is_flooded_and_says_so() {
    let _alone = alone();
    simulate(|node| async move {
        let courier = node.reliable_sender(BOUNDS).unwrap();
        let first = courier.send(Order(body())).unwrap();
        assert!(flood(&courier, 8 * MIB / BODY) > 0);
        let gauge = Gauge::begin();
        assert_eq!(flood(&courier, FLOOD), FLOOD);
        gauge.check();
        let waiting = courier.waiting();
        assert!(waiting * BODY <= BOUNDS.bytes, "{waiting} wait");
        // What is too old makes room, and is told as loudly.
        node.clock().advance(BOUNDS.age).await;
        let after = BOUNDS.age;
        assert_eq!(first.await, Err(DeliveryError::Expired { after }));
        assert_eq!((courier.waiting(), flood(&courier, 1)), (0, 0));
    });
}

// Covers 6.1 Mailbox.
#[test]
fn a_courier_is_flooded_before_a_receiver_that_hears_nothing_and_sends_again_all_the_while() {
    let _alone = alone();
    simulate_network(|network| async move {
        let near = network.node("near", Role::Master, &[Role::Agent]);
        let far = network.node("far", Role::Agent, &[Role::Master]);
        near.spawn("clerk", Clerk::default()).unwrap();
        let pid = far.find("near", "clerk", SECOND).await.unwrap();
        let courier = far.reliable_sender(BOUNDS).unwrap();
        courier.retarget(&pid);
        let minutes = async |count: u64| {
            let mut refused = 0;
            for _ in 0..count {
                refused += flood(&courier, FLOOD / 8);
                near.clock().advance(Duration::from_secs(60)).await;
            }
            refused
        };
        assert!(minutes(20).await > 0);
        let gauge = Gauge::begin();
        assert!(minutes(30).await > 2 * FLOOD);
        gauge.check();
        let resent = far.counters()["delivery/resent"];
        assert!(resent > 0.0, "what is not acknowledged is sent again");
        // When the hour is over what still waits is heard, and the mailbox is empty.
        assert!(minutes(8).await > 0);
        near.clock().advance(HOUR / 4).await;
        let handled = far.counters()["delivery/delivered"];
        assert!(handled > 0.0);
        assert_eq!((courier.waiting(), near.processes()[0].depth), (0, 0));
    });
}

#[test]
fn a_receiver_is_flooded_by_ever_new_couriers_and_remembers_no_more_than_it_may() {
    let _alone = alone();
    simulate(|node| async move {
        let clerk = node.spawn("clerk", Clerk::default()).unwrap();
        node.clock().advance(HOUR).await;
        // Its stream, the lowest number that is waited for, the first here, and nothing.
        let envelope = |stream: u64| -> Sequenced {
            let nothing: Vec<Option<u8>> = Vec::new();
            let bytes = codec::encode(&(clerk.pid(), stream, 1_u64, 1_u64, nothing)).unwrap();
            codec::decode(&bytes).unwrap()
        };
        let flood = async |streams: std::ops::Range<u64>| {
            let (mut taken, streams) = (0, Vec::from_iter(streams));
            for some in streams.chunks(500) {
                let ask = |stream: &u64| clerk.ask(envelope(*stream), Patience::WhileLinked);
                let asked: Vec<_> = some.iter().map(ask).collect();
                for answer in asked {
                    taken += u32::from(answer.await.unwrap().is_ok());
                }
            }
            taken
        };
        assert_eq!(flood(0..70_000).await, 70_000);
        let gauge = Gauge::begin();
        assert_eq!(flood(70_000..170_000).await, 100_000);
        gauge.check();
    });
}
