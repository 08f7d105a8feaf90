//! One node: order, bounds, patience, promises, timers, names.

use super::*;
use crate::testing::{node as rehearsed, run_simulated, simulate};
use crate::{ProcessInfo, SpawnError};

/// Runs a closure with the actor and its context.
#[derive(Message)]
#[rtype(result = "()")]
struct Do(Act);

type Act = Box<dyn FnOnce(&mut Diarist, &mut Context<Diarist>) + Send>;

impl Handler<Do> for Diarist {
    type Result = ();
    fn handle(&mut self, Do(act): Do, ctx: &mut Context<Self>) {
        act(self, ctx);
    }
}

fn act(act: impl FnOnce(&mut Diarist, &mut Context<Diarist>) + Send + 'static) -> Do {
    Do(Box::new(act))
}

fn numbers(range: std::ops::RangeInclusive<u32>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

// Covers 6.1 Process.
#[test]
fn tells_and_asks_of_one_sender_keep_order() {
    simulate(|node| async move {
        let diary = Diary::default();
        let diarist = node.spawn("diarist", Diarist::new(&diary)).unwrap();
        let mut asked = Vec::new();
        for number in (1..=60).step_by(3) {
            diarist.tell(Note(number)).unwrap();
            asked.push(diarist.ask(Count(number + 1), Patience::WhileLinked));
            node.tell(&diarist.pid(), Note(number + 2)).unwrap();
        }
        asked.reverse(); // The order of awaiting has no influence.
        for reply in asked {
            reply.await.unwrap();
        }
        node.clock().settle().await;
        assert_eq!(read(&diary), numbers(1..=60));
    });
}

#[test]
fn full_mailbox_refuses_until_emptied() {
    simulate(|node| async move {
        let diary = Diary::default();
        let diarist = node.spawn("diarist", Diarist::new(&diary)).unwrap();
        for number in 1..=100 {
            diarist.tell(Note(number)).unwrap();
        }
        assert_eq!(diarist.tell(Note(101)), Err(TellError::Full));
        assert_eq!(diarist.ask(Count(101), SECOND).await, Err(AskError::Full));
        assert_eq!(node.tell(&diarist.pid(), Note(101)), Err(TellError::Full));
        node.clock().settle().await;
        assert_eq!(diarist.ask(Count(101), SECOND).await, Ok(101));
    });
}

#[test]
fn tell_always_exceeds_the_bound_in_order() {
    simulate(|node| async move {
        let diary = Diary::default();
        let diarist = node.spawn("diarist", Diarist::new(&diary)).unwrap();
        for number in 1..=100 {
            diarist.tell(Note(number)).unwrap();
        }
        diarist.tell_always(Note(101));
        assert_eq!(diarist.tell(Note(102)), Err(TellError::Full));
        node.clock().settle().await;
        diarist.tell(Note(103)).unwrap();
        node.clock().settle().await;
        assert_eq!(read(&diary)[99..], ["100", "101", "103"]);
        assert_eq!(node.processes()[0].depth, 0);
    });
}

// Covers 6.2 States, discard.
#[test]
fn an_asker_waits_its_patience_and_no_longer() {
    simulate(|node| async move {
        let diarist = node.spawn("diarist", Diarist::default()).unwrap();
        let asked = node.clock().now();
        let late = AskError::Late { after: 5 * SECOND };
        assert_eq!(diarist.ask(Wait, 5 * SECOND).await, Err(late));
        assert_eq!(node.clock().now() - asked, 5 * SECOND);
    });
}

// Covers 6.2 States, discard.
#[test]
fn ask_is_handled_without_a_waiting_caller() {
    simulate(|node| async move {
        let diary = Diary::default();
        let diarist = node.spawn("diarist", Diarist::new(&diary)).unwrap();
        drop(diarist.ask(Count(1), SECOND));
        drop(node.ask(&diarist.pid(), Count(2), SECOND));
        node.clock().settle().await;
        assert_eq!(read(&diary), ["1", "2"]);
    });
}

// Covers 6.2 abandoned.
#[test]
fn promise_answers_later_or_fails_when_dropped() {
    simulate(|node| async move {
        let diarist = node.spawn("diarist", Diarist::default()).unwrap();
        let (kept, broken) = (diarist.ask(Wait, 9 * SECOND), diarist.ask(Wait, 9 * SECOND));
        let answer = act(|this, _| {
            drop(this.waiting.pop());
            this.waiting.pop().unwrap().answer(42);
        });
        diarist.tell(answer).unwrap();
        assert_eq!((kept.await, broken.await), (Ok(42), Err(AskError::Gone)));
    });
}

// Covers 6.2 Promise.set.
#[test]
fn promise_may_be_answered_before_the_handler_returns() {
    struct Prompt;
    impl Actor for Prompt {
        type Context = Context<Self>;
    }
    impl Process for Prompt {}
    impl Handler<Wait> for Prompt {
        type Result = Reply<u32>;
        fn handle(&mut self, _: Wait, _: &mut Context<Self>) -> Reply<u32> {
            let (promise, reply) = promise();
            promise.answer(7);
            reply
        }
    }
    simulate(|node| async move {
        let prompt = node.spawn("prompt", Prompt).unwrap();
        assert_eq!(prompt.ask(Wait, SECOND).await, Ok(7));
    });
}

// Covers 6.1 delay.
#[test]
fn timers_fire_in_order_until_cancelled() {
    simulate(|node| async move {
        let diary = Diary::default();
        let diarist = node.spawn("diarist", Diarist::new(&diary)).unwrap();
        let wind_up = act(|_, ctx| {
            let write = |line: &'static str| {
                move |this: &mut Diarist, ctx: &mut Context<Diarist>| {
                    let now = (ctx.clock().now().since_start()).as_secs();
                    this.write(format!("{line} {now}"));
                }
            };
            ctx.after(3 * SECOND, write("three"));
            ctx.after(SECOND, write("one"));
            let cancelled = ctx.after(2 * SECOND, write("never"));
            ctx.cancel(cancelled);
            let ticking = ctx.every(2 * SECOND, write("tick"));
            ctx.after(7 * SECOND, move |_, ctx| ctx.cancel(ticking));
            let clock = ctx.clock().clone();
            ctx.then(
                async move {
                    clock
                        .timeout(5 * SECOND, std::future::pending::<()>())
                        .await
                },
                |this, late, _| {
                    this.write(late.unwrap_err().to_string());
                },
            );
        });
        diarist.tell(wind_up).unwrap();
        node.clock().advance(60 * SECOND).await;
        let story = [
            "one 1",
            "tick 2",
            "three 3",
            "tick 4",
            "timed out after 5s",
            "tick 6",
        ];
        assert_eq!(read(&diary), story);
    });
}

#[test]
fn what_was_not_woken_is_not_polled() {
    use std::sync::atomic::{AtomicUsize, Ordering};

    simulate(|node| async move {
        let (diary, polls) = (Diary::default(), Arc::new(AtomicUsize::new(0)));
        let diarist = node.spawn("diarist", Diarist::new(&diary)).unwrap();
        let counted = polls.clone();
        let begin = act(move |_, ctx| {
            let asleep = std::future::poll_fn(move |_| {
                counted.fetch_add(1, Ordering::Relaxed);
                std::task::Poll::<()>::Pending
            });
            ctx.then(asleep, |_, (), _| ());
            ctx.after(SECOND, |this, ctx| {
                this.write("first");
                ctx.after(SECOND, |this, _| {
                    this.write("second, begun by the first");
                });
            });
        });
        diarist.tell(begin).unwrap();
        for number in 0..100 {
            diarist.tell(Note(number)).unwrap();
            node.clock().settle().await;
        }
        node.clock().advance(3 * SECOND).await;
        assert_eq!(polls.load(Ordering::Relaxed), 1);
        let errands = read(&diary).split_off(100);
        assert_eq!(errands, ["first", "second, begun by the first"]);
    });
}

#[test]
fn wall_time_can_jump_while_monotonic_time_goes_on() {
    simulate(|node| async move {
        let clock = node.clock();
        let (now, wall) = (clock.now(), clock.wall());
        clock.advance(10 * SECOND).await;
        assert_eq!(
            (clock.now() - now, clock.wall().saturating_since(wall)),
            (10 * SECOND, 10 * SECOND)
        );
        clock.set_wall_offset(-3_600_000_000_000);
        assert!(clock.wall() < wall && clock.now() > now);
    });
}

#[test]
fn timers_follow_a_drifting_clock() {
    simulate(|node| async move {
        let (other, clock) = (node.clock(), Clock::paused());
        let (began, wall) = (other.now(), clock.wall());
        clock.set_drift(-200_000);
        clock.sleep(8 * SECOND).await;
        assert_eq!(
            (other.now() - began, clock.now().since_start()),
            (10 * SECOND, 8 * SECOND)
        );
        assert_eq!(clock.wall().saturating_since(wall), 8 * SECOND);
        clock.set_drift(250_000);
        clock.sleep(5 * SECOND).await;
        assert_eq!(other.now() - began, 14 * SECOND);
        // A timer set while the clock was fast must not fire early when it is slow.
        let until = clock.now() + 10 * SECOND;
        let timer = clock.sleep(10 * SECOND);
        clock.set_drift(-500_000);
        timer.await;
        assert_eq!((other.now() - began, clock.now()), (34 * SECOND, until));
        clock.set_drift(0);
        clock.sleep(SECOND).await;
        assert_eq!(other.now() - began, 35 * SECOND);
    });
}

// Covers 6.1 Identity.
#[test]
fn name_is_reusable_after_its_actor_ended() {
    simulate(|node| async move {
        let first = node.spawn("it", Diarist::default()).unwrap();
        let taken = SpawnError::NameTaken { name: "it".into() };
        assert_eq!(node.spawn("it", Diarist::default()).unwrap_err(), taken);
        first.stop();
        assert_eq!(node.ended(&first.pid()).await, Exit::Stopped);
        let second = node.spawn("it", Diarist::default()).unwrap();
        assert_eq!(node.whereis("it"), Some(second.pid()));
        assert_ne!(first.pid(), second.pid());
        assert_eq!(node.tell(&first.pid(), Note(1)), Err(TellError::Gone));
    });
}

#[test]
fn names_that_cannot_stand_in_a_pid_are_refused() {
    simulate(|node| async move {
        for name in ["", "a b", "a@b", "a#1", "a\n", &"x".repeat(256)] {
            let refused = SpawnError::BadName { name: name.into() };
            assert_eq!(node.spawn(name, Diarist::default()).unwrap_err(), refused);
        }
        let unnamed = [(); 2].map(|()| {
            node.spawn_unnamed("child", Diarist::default())
                .unwrap()
                .pid()
        });
        assert_eq!(
            unnamed.map(|pid| pid.name().to_owned()),
            ["child(1)", "child(2)"]
        );
    });
}

#[test]
fn two_message_names_with_one_id_are_refused() {
    // Two words with the same 32-bit FNV-1a hash.
    #[derive(Serialize, Deserialize)]
    struct Costarring;
    #[derive(Serialize, Deserialize)]
    struct Liquid;
    remote! { Costarring = "costarring" v1; Liquid = "liquid" v1 }
    struct Hears<const LIQUID: bool>;
    impl<const LIQUID: bool> Actor for Hears<LIQUID> {
        type Context = Context<Self>;
    }
    impl<const LIQUID: bool> Handler<Costarring> for Hears<LIQUID> {
        type Result = ();
        fn handle(&mut self, _: Costarring, _: &mut Context<Self>) {}
    }
    impl<const LIQUID: bool> Handler<Liquid> for Hears<LIQUID> {
        type Result = ();
        fn handle(&mut self, _: Liquid, _: &mut Context<Self>) {}
    }
    impl<const LIQUID: bool> Process for Hears<LIQUID> {
        fn accepts(handlers: &mut RemoteHandlers<Self>) {
            if LIQUID {
                handlers.accept_local::<Liquid>()
            } else {
                handlers.accept_local::<Costarring>()
            }
        }
    }
    simulate(|node| async move {
        node.spawn("one", Hears::<false>).unwrap();
        let refused = node.spawn("other", Hears::<true>).unwrap_err();
        let (one, other) = ("costarring", "liquid");
        assert_eq!(
            refused,
            SpawnError::MessageIdTaken {
                id: Liquid::ID,
                one,
                other
            }
        );
    });
}

// Covers 6.1 send, install, delegate.
#[test]
fn a_message_not_heard_is_refused_by_pid() {
    simulate(|node| async move {
        let diarist = node.spawn("diarist", Diarist::default()).unwrap();
        let refused = node.tell(&diarist.pid(), NotAccepted);
        let reason = "test/unheard v1 is not accepted".to_owned();
        assert_eq!(refused, Err(TellError::Refused { reason }));
    });
}

#[test]
fn a_busy_actor_lets_its_neighbours_have_their_turn() {
    struct Busy;
    impl Actor for Busy {
        type Context = Context<Self>;
    }
    impl Process for Busy {}
    impl Handler<Note> for Busy {
        type Result = ();
        fn handle(&mut self, Note(left): Note, ctx: &mut Context<Self>) {
            if left > 0 {
                ctx.handle().tell(Note(left - 1)).unwrap();
            }
        }
    }
    simulate(|node| async move {
        let (busy, neighbour) = (
            node.spawn("busy", Busy).unwrap(),
            node.spawn("it", Diarist::default()).unwrap(),
        );
        busy.tell(Note(1_000_000)).unwrap();
        neighbour.ask(Count(1), SECOND).await.unwrap();
        let handled: u64 = node.processes()[0].handled.values().sum();
        assert!(handled < 20_000, "{handled} messages came first");
    });
}

#[test]
fn actors_are_seen_from_outside() {
    simulate(|node| async move {
        let diarist = node.spawn("diarist", Diarist::default()).unwrap();
        diarist.ask(Count(1), SECOND).await.unwrap();
        diarist.ask(Count(2), SECOND).await.unwrap();
        diarist.tell(Note(3)).unwrap();
        let infos = node.processes();
        let [
            ProcessInfo {
                name,
                pid,
                depth,
                handled,
                restarts,
                ..
            },
        ] = &infos[..]
        else {
            panic!("{infos:?}")
        };
        assert_eq!(
            (name.as_str(), pid, *depth, *restarts),
            ("diarist", &diarist.pid(), 1, 0)
        );
        assert_eq!(
            handled
                .iter()
                .map(|(name, count)| (name.as_str(), *count))
                .collect::<Vec<_>>(),
            [(std::any::type_name::<Count>(), 2)]
        );
        let counters = node.counters();
        assert_eq!(
            (
                counters["process/diarist/depth"],
                counters["process/diarist/handled"]
            ),
            (1.0, 2.0)
        );
    });
}

#[test]
fn slow_blocking_work_takes_virtual_time() {
    simulate(|node| async move {
        node.slow_blocking(4 * SECOND);
        let (started, clock) = (node.clock().now(), node.clock().clone());
        let done = node.blocking(move || clock.now()).await.unwrap();
        assert_eq!(done - started, 2 * SECOND);
        assert_eq!(node.clock().now() - started, 4 * SECOND);
    });
}

// Covers 6.1 async, subprocess, io.
#[test]
fn blocking_work_returns_and_its_panic_is_an_error() {
    simulate(|node| async move {
        assert_eq!(node.blocking(|| 6 * 7).await, Ok(42));
        let crashed: Result<(), _> = node.blocking(|| panic!("disk")).await;
        assert_eq!(crashed.unwrap_err().reason, "disk");
    });
}

#[test]
fn one_seed_gives_one_stream_of_chance() {
    use rand::Rng;
    let draw = || {
        run_simulated(async {
            let node = rehearsed("node").build();
            let (mut one, mut two) = (node.rng(), node.rng());
            (
                node.id().clone(),
                one.random::<u64>(),
                two.random::<u64>(),
                node.fresh_uuid(),
                node.secret(),
            )
        })
    };
    let (first, second) = (draw(), draw());
    assert_eq!(first, second);
    assert_ne!(first.1, first.2);
    assert_eq!(
        (first.3[6] >> 4, first.3[8] >> 6),
        (4, 2),
        "a version 4 UUID"
    );
}

#[test]
fn a_secret_of_a_real_node_follows_from_nothing() {
    run_simulated(async {
        let node = Node::builder("node").build();
        let secrets: std::collections::BTreeSet<_> = (0..1000).map(|_| node.secret()).collect();
        assert_eq!(secrets.len(), 1000);
        // Each bit is set about half of the time: it contains no version.
        for bit in 0..128 {
            let set = secrets
                .iter()
                .filter(|secret| secret[bit / 8] >> (bit % 8) & 1 == 1);
            assert!((300..700).contains(&set.count()), "{bit}");
        }
    });
}

#[test]
fn actor_on_its_own_thread_behaves_the_same() {
    let runtime = actix_rt::Runtime::new().unwrap();
    runtime.block_on(async {
        let placement = crate::Placement::here().put("far", crate::Place::OwnThread);
        let node = Node::builder("node").placement(placement).build();
        let diary = Diary::default();
        let diarist = node.spawn("far/diarist", Diarist::new(&diary)).unwrap();
        let thread = Arc::new(Mutex::new(String::new()));
        let seen = thread.clone();
        diarist
            .tell(act(move |_, _| {
                *crate::lock(&seen) = std::thread::current().name().unwrap().to_owned()
            }))
            .unwrap();
        assert_eq!(diarist.ask(Count(1), 60 * SECOND).await, Ok(1));
        assert_eq!(*crate::lock(&thread), "far");
        node.shutdown().await;
        assert_eq!(diarist.tell(Note(2)), Err(TellError::Gone));
    });
}
