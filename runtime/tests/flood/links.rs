//! Floods of what waits at a link: its outgoing queue, the questions on it, and the rule that
//! closes it.

use bytes::BytesMut;
use runtime::prelude::*;
use runtime::testing::run_simulated;
use runtime::{Dialled, Hello, Link, Outgoing, testing};

use super::*;

/// Two nodes and both ends of a link between them, whose bytes only the test moves.
struct Apart {
    near: Node,
    far: Node,
    near_end: Link,
    far_end: Link,
}

impl Apart {
    fn new(outgoing_max: usize) -> Self {
        let node = |name: &str, role| {
            let node = testing::node(name).role(role).accepts(&Role::ALL);
            node.outgoing_max(outgoing_max).build()
        };
        let (near, far) = (node("near", Role::Master), node("far", Role::Agent));
        let attach = |here: &Node, there: &Node, dialled| {
            let peer = Peer {
                node: there.id().clone(),
                role: there.role(),
                address: String::new(),
            };
            let hello = Hello::decode(&there.hello()).unwrap();
            here.attach(peer, hello, dialled).unwrap()
        };
        Self {
            near_end: attach(&near, &far, Dialled::ByThem),
            far_end: attach(&far, &near, Dialled::ByUs),
            near,
            far,
        }
    }

    /// An actor on the near node that handles nothing.
    fn stalled(&self) -> Pid {
        let stalled = self.near.spawn("stalled", Stalled::default());
        stalled.unwrap().pid()
    }

    /// Carries from far to near all that was written there.
    async fn carry_to_near(&self) {
        let clock = self.near.clock();
        loop {
            let mut bytes = BytesMut::new();
            let taken = self.far_end.outgoing(Lane::Ordinary, &mut bytes, MIB);
            match clock.timeout(Duration::from_millis(1), taken).await {
                Ok(Outgoing::Batch) => self.near_end.deliver(&mut bytes).unwrap(),
                _ => return,
            }
        }
    }
}

// Covers W4.
#[test]
fn an_outgoing_queue_is_flooded_before_a_peer_that_reads_nothing() {
    let _alone = alone();
    run_simulated(async {
        let apart = Apart::new(4 * MIB);
        let pid = apart.stalled();
        let flood = |count: usize| {
            let told = (0..count).map(|_| apart.far.tell(&pid, Load(body())));
            told.filter(Result::is_err).count()
        };
        assert!(flood(8 * MIB / BODY) > 0);
        let gauge = Gauge::begin();
        assert_eq!(flood(FLOOD), FLOOD);
        gauge.check();
        assert_eq!(apart.far.tell(&pid, Load(body())), Err(TellError::Full));
        let full = apart.far.ask(&pid, Load(body()), SECOND).await;
        assert_eq!(full, Err(AskError::Full));
        let link = &apart.far.links()[0];
        assert!(link.queued_bytes <= 4 * MIB as u64, "{link:?}");
    });
}

// Covers W4.
#[test]
fn an_event_that_a_slow_peer_has_no_room_for_closes_its_link() {
    let _alone = alone();
    run_simulated(async {
        let apart = Apart::new(4 * MIB);
        let pid = apart.stalled();
        let ended = apart.far.ended(&pid);
        let gauge = Gauge::begin();
        let told = (0..FLOOD).map(|_| apart.far.tell(&pid, Event(body())));
        let refused: Vec<_> = told.filter_map(Result::err).collect();
        gauge.check();
        assert_eq!(refused[..2], [TellError::Full, TellError::Gone]);
        let closed = "the peer is too slow for flood/event";
        assert_eq!(ended.await, Exit::NodeLost(closed.into()));
        assert!(apart.far.links().is_empty());
    });
}

#[test]
fn replies_to_a_peer_that_reads_nothing_close_its_link() {
    let _alone = alone();
    run_simulated(async {
        let apart = Apart::new(4 * MIB);
        let pid = apart.stalled();
        let gauge = Gauge::begin();
        let mut asked = 0;
        while apart.near.links().len() == 1 && asked < FLOOD {
            for _ in 0..500 {
                drop(apart.far.ask(&pid, Echo(BODY), SECOND));
            }
            asked += 500;
            apart.carry_to_near().await;
        }
        gauge.check();
        assert!(asked < 9 * MIB / BODY, "{asked} replies of a KiB had room");
        assert_eq!(apart.near_end.closed().await, "the outgoing queue is full");
    });
}

#[test]
fn the_table_of_questions_is_flooded_by_an_asker_whose_peer_never_answers() {
    let _alone = alone();
    run_simulated(async {
        let apart = Apart::new(1 << 30);
        let pid = apart.stalled();
        let ask = || apart.far.ask(&pid, Echo(0), Patience::WhileLinked);
        let mut asked: Vec<_> = (0..65_536).map(|_| ask()).collect();
        let gauge = Gauge::begin();
        (0..10 * 65_536).for_each(|_| drop(ask()));
        gauge.check();
        assert_eq!(ask().await, Err(AskError::Full));
        assert_eq!(apart.far.links()[0].questions, 65_536);
        drop(asked.pop()); // Who waits no longer makes room.
        assert_eq!(apart.far.links()[0].questions, 65_535);
    });
}

#[test]
fn an_actor_that_answers_late_is_flooded_with_questions_and_hears_only_so_many() {
    let _alone = alone();
    run_simulated(async {
        let apart = Apart::new(1 << 30);
        let pid = apart.stalled();
        let flood = async |count: usize| {
            for number in 1..=count {
                drop(apart.far.ask(&pid, Never("x".repeat(100)), SECOND));
                if number % 500 == 0 {
                    apart.carry_to_near().await;
                    // What is refused is read, lest the link be closed for that.
                    let mut bytes = BytesMut::new();
                    let taken = apart.near_end.outgoing(Lane::Ordinary, &mut bytes, MIB);
                    let millisecond = Duration::from_millis(1);
                    let _ = apart.near.clock().timeout(millisecond, taken).await;
                }
            }
        };
        flood(66_000).await;
        let heard = || apart.near.processes()[0].handled.values().sum::<u64>();
        assert_eq!(heard(), 65_536);
        let gauge = Gauge::begin();
        flood(100_000).await;
        gauge.check();
        assert_eq!(heard(), 65_536);
    });
}

/// Is flooded by those who must keep up.
struct Strict;

impl Actor for Strict {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        let hour = fut::wrap_future::<_, Self>(ctx.clock().sleep(HOUR));
        ctx.wait(hour);
    }
}

impl Process for Strict {
    const MAILBOX: u32 = 100;
    const WHEN_FULL: WhenFull = WhenFull::CloseLink;

    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<Load>(&Role::ALL);
    }
}

impl Handler<Load> for Strict {
    type Result = usize;
    fn handle(&mut self, Load(text): Load, _: &mut Context<Self>) -> usize {
        text.len()
    }
}

// Covers W4.
#[test]
fn who_floods_an_actor_that_says_so_loses_its_link() {
    let _alone = alone();
    run_simulated(async {
        for in_a_run in [false, true] {
            let apart = Apart::new(4 * MIB);
            let strict = apart.near.spawn("strict", Strict).unwrap();
            for _ in 0..101 {
                apart.far.tell(&strict.pid(), Load("x".into())).unwrap();
                if !in_a_run {
                    apart.carry_to_near().await;
                }
            }
            apart.carry_to_near().await;
            assert_eq!(
                apart.near_end.closed().await,
                "the mailbox of strict is full"
            );
            assert_eq!(strict.tell(Load("x".into())), Err(TellError::Full));
        }
    });
}
