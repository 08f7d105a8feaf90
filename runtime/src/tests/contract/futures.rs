//! Every ask ends (SPEC 6.1: dispatch; 6.2: Futures) with its reply or with an error.

use crate::testing::simulate_network;
use crate::tests::*;

const RESTART: Supervision = Supervision::Restart {
    backoff: SECOND,
    backoff_max: SECOND,
    limit: 9,
};

/// Is answered in one of several ways, or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Way {
    AtOnce,
    FallInTheHandler,
    FallInAFuture,
    FallInAnActorFuture,
    /// Beside the mailbox, after this many milliseconds.
    Later(u64),
    LetGo,
    Never,
    StopAtOnce,
}

#[derive(Debug, Serialize, Deserialize)]
struct Plain(Way);
#[derive(Debug, Serialize, Deserialize)]
struct InAFuture(Way);
#[derive(Debug, Serialize, Deserialize)]
struct InAnActorFuture(Way);
#[derive(Debug, Serialize, Deserialize)]
struct Promised(Way);

remote! {
    Plain = "test/plain" v1 -> u32;
    InAFuture = "test/in_a_future" v1 -> u32;
    InAnActorFuture = "test/in_an_actor_future" v1 -> u32;
    Promised = "test/promised" v1 -> u32;
}

#[derive(Default)]
struct Oracle {
    kept: Vec<Promise<u32>>,
    heard: u32,
}

impl Actor for Oracle {
    type Context = Context<Self>;
}

impl Process for Oracle {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<Plain>(&Role::ALL);
        handlers.accept::<InAFuture>(&Role::ALL);
        handlers.accept::<InAnActorFuture>(&Role::ALL);
        handlers.accept::<Promised>(&Role::ALL);
    }
}

impl Handler<Plain> for Oracle {
    type Result = u32;
    fn handle(&mut self, Plain(way): Plain, ctx: &mut Context<Self>) -> u32 {
        self.heard += 1;
        match way {
            Way::FallInTheHandler => panic!("told to fall"),
            Way::StopAtOnce => ctx.stop(),
            _ => {}
        }
        self.heard
    }
}

impl Handler<InAFuture> for Oracle {
    type Result = ResponseFuture<u32>;
    fn handle(&mut self, InAFuture(way): InAFuture, ctx: &mut Context<Self>) -> Self::Result {
        let clock = ctx.clock().clone();
        Box::pin(async move {
            match way {
                Way::FallInAFuture => panic!("told to fall"),
                Way::Later(millis) => clock.sleep(Duration::from_millis(millis)).await,
                Way::Never => std::future::pending().await,
                _ => {}
            }
            7
        })
    }
}

impl Handler<InAnActorFuture> for Oracle {
    type Result = ResponseActFuture<Self, u32>;
    fn handle(
        &mut self,
        InAnActorFuture(way): InAnActorFuture,
        ctx: &mut Context<Self>,
    ) -> Self::Result {
        let clock = ctx.clock().clone();
        let wait = async move {
            match way {
                Way::FallInAFuture => panic!("told to fall"),
                Way::Later(millis) => clock.sleep(Duration::from_millis(millis)).await,
                Way::Never => std::future::pending().await,
                _ => {}
            }
        };
        Box::pin(wait.into_actor(self).map(move |(), this, _| {
            assert!(way != Way::FallInAnActorFuture, "told to fall");
            this.heard += 1;
            this.heard
        }))
    }
}

impl Handler<Promised> for Oracle {
    type Result = Reply<u32>;
    fn handle(&mut self, Promised(way): Promised, _: &mut Context<Self>) -> Reply<u32> {
        let (promise, reply) = promise();
        match way {
            Way::AtOnce => promise.answer(1),
            Way::LetGo => drop(promise),
            _ => self.kept.push(promise),
        }
        reply
    }
}

/// The event that hits the actor while asks are open.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Falls,
    FallsInAFuture,
    StoppedNow,
    Stopped,
    NodeShutsDown,
    Severed,
    NodeLeaves,
    AskersNodeShutsDown,
}

/// Sends every kind of open ask, ends the actor, and returns the outcomes.
fn outcomes(end: End, remotely: bool) -> Vec<Result<u32, AskError>> {
    simulate_network(|network| async move {
        let here = network.node("here", Role::Master, &Role::ALL);
        let there = network.node("there", Role::Agent, &Role::ALL);
        let oracle = there.supervise("oracle", RESTART, Oracle::default).unwrap();
        let (caller, pid) = match remotely {
            true => (
                here.clone(),
                here.find("there", "oracle", SECOND).await.unwrap(),
            ),
            false => (there.clone(), oracle.pid()),
        };
        let patience = Patience::WhileLinked;
        let promised = caller.ask(&pid, Promised(Way::Never), patience);
        let in_an_actor_future = caller.ask(&pid, InAnActorFuture(Way::Never), patience);
        let in_a_future = caller.ask(&pid, InAFuture(Way::Never), patience);
        there.clock().settle().await;
        let before = there.clock().now();
        match end {
            End::Falls => caller.tell(&pid, Plain(Way::FallInTheHandler)).unwrap(),
            End::FallsInAFuture => caller.tell(&pid, InAFuture(Way::FallInAFuture)).unwrap(),
            _ => {}
        }
        there.clock().settle().await;
        let queued = match end {
            End::Falls | End::FallsInAFuture => caller.ask(&pid, Plain(Way::AtOnce), patience),
            _ => {
                // Blocks its mailbox.
                caller.ask(&pid, Promised(Way::Never), patience)
            }
        };
        match end {
            End::StoppedNow => there.stop_now(&pid),
            End::Stopped => there.stop(&pid),
            End::NodeShutsDown => there.shutdown().await,
            End::Severed => network.sever("here", "there"),
            End::NodeLeaves => network.leave("there"),
            End::AskersNodeShutsDown => here.shutdown().await,
            End::Falls | End::FallsInAFuture => {}
        }
        let mut outcomes = Vec::new();
        for asked in [promised, in_an_actor_future, in_a_future, queued] {
            let asked = here.clock().timeout(3600 * SECOND, asked);
            outcomes.push(asked.await.expect("it hangs"));
        }
        assert!(
            here.clock().now() - before < 30 * SECOND,
            "{end:?} took long"
        );
        outcomes
    })
}

// Covers 6.1 dispatch.
#[test]
fn any_actor_end_fails_its_open_asks() {
    let ends = [
        End::Falls,
        End::FallsInAFuture,
        End::StoppedNow,
        End::Stopped,
        End::NodeShutsDown,
    ];
    for (end, remotely) in ends.into_iter().flat_map(|end| [(end, false), (end, true)]) {
        let gone = vec![Err(AskError::Gone); 4];
        assert_eq!(
            outcomes(end, remotely),
            gone,
            "{end:?} remotely: {remotely}"
        );
    }
}

#[test]
fn any_link_end_fails_its_open_asks() {
    for end in [End::Severed, End::NodeLeaves, End::AskersNodeShutsDown] {
        assert_eq!(outcomes(end, true), vec![Err(AskError::Gone); 4], "{end:?}");
    }
}

#[test]
fn panic_in_a_response_future_restarts_the_actor() {
    for (remotely, act_future) in [(false, false), (true, false), (false, true), (true, true)] {
        simulate_network(|network| async move {
            let here = network.node("here", Role::Master, &Role::ALL);
            let there = network.node("there", Role::Agent, &Role::ALL);
            let oracle = there.supervise("oracle", RESTART, Oracle::default).unwrap();
            let far = here.find("there", "oracle", SECOND).await.unwrap();
            let caller = if remotely { &here } else { &there };
            let end = here.ended(&far);
            let asked = match act_future {
                true => caller.ask(&far, InAnActorFuture(Way::FallInAnActorFuture), SECOND),
                false => caller.ask(&far, InAFuture(Way::FallInAFuture), SECOND),
            };
            assert_eq!(asked.await, Err(AskError::Gone));
            assert_eq!(end.await, Exit::Panicked("told to fall".into()));
            there.clock().advance(2 * SECOND).await;
            assert_eq!(there.processes()[0].restarts, 1);
            assert_eq!(oracle.ask(Plain(Way::AtOnce), SECOND).await, Ok(1));
        });
    }
}

#[test]
fn response_future_may_outlive_its_actor() {
    simulate_network(|network| async move {
        let node = network.node("node", Role::Master, &Role::ALL);
        let oracle = node.spawn("oracle", Oracle::default()).unwrap();
        let asked = oracle.ask(InAFuture(Way::Later(1000)), 2 * SECOND);
        oracle.stop();
        assert_eq!(asked.await, Ok(7));
        let late = node.spawn("late", LateFall).unwrap();
        let asked = late.ask(Plain(Way::Later(0)), 2 * SECOND);
        late.stop();
        let end = node.ended(&late.pid());
        assert_eq!(end.await, Exit::Stopped);
        let heir = node.spawn("late", LateFall).unwrap();
        assert_eq!(asked.await, Err(AskError::Gone));
        node.clock().advance(SECOND).await;
        assert!(heir.is_alive());
    });
}

/// Panics one second after the ask.
struct LateFall;

impl Actor for LateFall {
    type Context = Context<Self>;
}

impl Process for LateFall {}

impl Handler<Plain> for LateFall {
    type Result = ResponseFuture<u32>;
    fn handle(&mut self, _: Plain, ctx: &mut Context<Self>) -> Self::Result {
        let clock = ctx.clock().clone();
        Box::pin(async move {
            clock.sleep(SECOND).await;
            panic!("nobody is left to fall")
        })
    }
}

// Covers 6.1 defer.
#[test]
fn mailbox_stays_open_while_a_handler_waits() {
    simulate_network(|network| async move {
        let node = network.node("node", Role::Master, &Role::ALL);
        let oracle = node.spawn("oracle", Oracle::default()).unwrap();
        let slow = oracle.ask(InAnActorFuture(Way::Later(2000)), 9 * SECOND);
        let quick = oracle.ask(InAFuture(Way::Later(1000)), 9 * SECOND);
        let start = node.clock().now();
        assert_eq!(oracle.ask(Plain(Way::AtOnce), SECOND).await, Ok(1));
        assert_eq!(node.clock().now(), start);
        assert_eq!((quick.await, node.clock().now() - start), (Ok(7), SECOND));
        assert_eq!(
            (slow.await, node.clock().now() - start),
            (Ok(2), 2 * SECOND)
        );
    });
}

#[test]
fn ask_that_stops_the_actor_is_answered() {
    simulate_network(|network| async move {
        let node = network.node("node", Role::Master, &Role::ALL);
        let oracle = node.spawn("oracle", Oracle::default()).unwrap();
        let last = oracle.ask(Plain(Way::StopAtOnce), Patience::WhileLinked);
        let late = oracle.ask(Plain(Way::AtOnce), Patience::WhileLinked);
        assert_eq!((last.await, late.await), (Ok(1), Err(AskError::Gone)));
    });
}

// Covers 6.2 abandoned.
#[test]
fn dropped_promise_fails_with_gone_at_once() {
    simulate_network(|network| async move {
        let here = network.node("here", Role::Master, &Role::ALL);
        let there = network.node("there", Role::Agent, &Role::ALL);
        there.spawn("oracle", Oracle::default()).unwrap();
        let pid = here.find("there", "oracle", SECOND).await.unwrap();
        for caller in [&here, &there] {
            let kept = caller.ask(&pid, Promised(Way::AtOnce), SECOND).await;
            let let_go = caller
                .ask(&pid, Promised(Way::LetGo), Patience::WhileLinked)
                .await;
            assert_eq!((kept, let_go), (Ok(1), Err(AskError::Gone)));
        }
    });
}

// Covers 6.2 States, discard.
#[test]
fn promise_detects_that_its_caller_left() {
    simulate_network(|network| async move {
        let node = network.node("node", Role::Master, &Role::ALL);
        let keeper = node.spawn("keeper", Keeper(None)).unwrap();
        let asked = keeper.ask(Promised(Way::Never), SECOND);
        node.clock().settle().await;
        assert_eq!(keeper.ask(IsAwaited, SECOND).await, Ok(true));
        assert_eq!(asked.await, Err(AskError::Late { after: SECOND }));
        assert_eq!(keeper.ask(IsAwaited, SECOND).await, Ok(false));
    });
}

/// Returns whether a caller still waits for the promise.
#[derive(Message)]
#[rtype(result = "bool")]
struct IsAwaited;

struct Keeper(Option<Promise<u32>>);

impl Actor for Keeper {
    type Context = Context<Self>;
}

impl Process for Keeper {}

impl Handler<Promised> for Keeper {
    type Result = Reply<u32>;
    fn handle(&mut self, _: Promised, _: &mut Context<Self>) -> Reply<u32> {
        let (promise, reply) = promise();
        self.0 = Some(promise);
        reply
    }
}

impl Handler<IsAwaited> for Keeper {
    type Result = bool;
    fn handle(&mut self, _: IsAwaited, _: &mut Context<Self>) -> bool {
        self.0.as_ref().is_some_and(Promise::is_awaited)
    }
}
