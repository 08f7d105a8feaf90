//! Every question ends (SPEC 6.1: dispatch; 6.2: Futures): with its reply or with an error, never by silence.

use super::*;
use crate::rehearsal::rehearse_network;

const RESTART: Supervision = Supervision::Restart {
    backoff: SECOND,
    backoff_max: SECOND,
    limit: 9,
};

/// Answers in a way of its own, or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Way {
    AtOnce,
    FallInTheHandler,
    FallInAFuture,
    FallInAnActorFuture,
    /// Beside the mailbox, after so many milliseconds.
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
    fn hears(ears: &mut Ears<Self>) {
        ears.hear::<Plain>(&Role::ALL);
        ears.hear::<InAFuture>(&Role::ALL);
        ears.hear::<InAnActorFuture>(&Role::ALL);
        ears.hear::<Promised>(&Role::ALL);
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

/// What happens to the actor while questions are under way.
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

/// Asks everything that is not answered by itself, ends it, and gives what became of the questions.
fn outcomes(end: End, remotely: bool) -> Vec<Result<u32, AskError>> {
    rehearse_network(|network| async move {
        let here = network.node("here", Role::Master, &Role::ALL);
        let there = network.node("there", Role::Agent, &Role::ALL);
        let oracle = there.supervise("oracle", RESTART, Oracle::default).unwrap();
        let (asker, pid) = match remotely {
            true => (
                here.clone(),
                here.find("there", "oracle", SECOND).await.unwrap(),
            ),
            false => (there.clone(), oracle.pid()),
        };
        let patience = Patience::WhileLinked;
        let promised = asker.ask(&pid, Promised(Way::Never), patience);
        let in_an_actor_future = asker.ask(&pid, InAnActorFuture(Way::Never), patience);
        let in_a_future = asker.ask(&pid, InAFuture(Way::Never), patience);
        there.clock().settle().await;
        let before = there.clock().now();
        match end {
            End::Falls => asker.tell(&pid, Plain(Way::FallInTheHandler)).unwrap(),
            End::FallsInAFuture => asker.tell(&pid, InAFuture(Way::FallInAFuture)).unwrap(),
            _ => {}
        }
        there.clock().settle().await;
        let queued = match end {
            End::Falls | End::FallsInAFuture => asker.ask(&pid, Plain(Way::AtOnce), patience),
            _ => {
                // Something that keeps it from its queue.
                asker.ask(&pid, Promised(Way::Never), patience)
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

#[test]
fn whatever_ends_an_actor_ends_its_questions_with_an_error_here_and_across_a_link() {
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
fn whatever_ends_a_connection_ends_the_questions_that_wait_on_it() {
    for end in [End::Severed, End::NodeLeaves, End::AskersNodeShutsDown] {
        assert_eq!(outcomes(end, true), vec![Err(AskError::Gone); 4], "{end:?}");
    }
}

#[test]
fn a_panic_in_the_future_of_a_handler_is_a_panic_of_the_actor_and_it_is_restarted() {
    for (remotely, act_future) in [(false, false), (true, false), (false, true), (true, true)] {
        rehearse_network(|network| async move {
            let here = network.node("here", Role::Master, &Role::ALL);
            let there = network.node("there", Role::Agent, &Role::ALL);
            let oracle = there.supervise("oracle", RESTART, Oracle::default).unwrap();
            let far = here.find("there", "oracle", SECOND).await.unwrap();
            let asker = if remotely { &here } else { &there };
            let end = here.ended(&far);
            let asked = match act_future {
                true => asker.ask(&far, InAnActorFuture(Way::FallInAnActorFuture), SECOND),
                false => asker.ask(&far, InAFuture(Way::FallInAFuture), SECOND),
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
fn the_future_of_a_handler_ends_even_after_its_actor_and_a_panic_of_it_then_hurts_nobody() {
    rehearse_network(|network| async move {
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

/// Falls one second after it was asked.
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

#[test]
fn while_a_handler_waits_its_mailbox_is_open_and_replies_come_as_they_are_ready() {
    rehearse_network(|network| async move {
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
fn a_question_whose_handler_stops_the_actor_is_still_answered_and_the_next_is_not() {
    rehearse_network(|network| async move {
        let node = network.node("node", Role::Master, &Role::ALL);
        let oracle = node.spawn("oracle", Oracle::default()).unwrap();
        let last = oracle.ask(Plain(Way::StopAtOnce), Patience::WhileLinked);
        let late = oracle.ask(Plain(Way::AtOnce), Patience::WhileLinked);
        assert_eq!((last.await, late.await), (Ok(1), Err(AskError::Gone)));
    });
}

#[test]
fn a_promise_that_is_let_go_is_gone_at_once_here_and_across_a_link() {
    rehearse_network(|network| async move {
        let here = network.node("here", Role::Master, &Role::ALL);
        let there = network.node("there", Role::Agent, &Role::ALL);
        there.spawn("oracle", Oracle::default()).unwrap();
        let pid = here.find("there", "oracle", SECOND).await.unwrap();
        for asker in [&here, &there] {
            let kept = asker.ask(&pid, Promised(Way::AtOnce), SECOND).await;
            let let_go = asker
                .ask(&pid, Promised(Way::LetGo), Patience::WhileLinked)
                .await;
            assert_eq!((kept, let_go), (Ok(1), Err(AskError::Gone)));
        }
    });
}

#[test]
fn whoever_holds_a_promise_sees_that_its_asker_lost_patience() {
    rehearse_network(|network| async move {
        let node = network.node("node", Role::Master, &Role::ALL);
        let keeper = node.spawn("keeper", Keeper(None)).unwrap();
        let asked = keeper.ask(Promised(Way::Never), SECOND);
        node.clock().settle().await;
        assert_eq!(keeper.ask(IsAwaited, SECOND).await, Ok(true));
        assert_eq!(asked.await, Err(AskError::Late { after: SECOND }));
        assert_eq!(keeper.ask(IsAwaited, SECOND).await, Ok(false));
    });
}

/// Does anybody wait for what you promised?
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
