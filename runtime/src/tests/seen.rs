//! The visible state of actors and links: numbers in virtual time, and a blocked thread in real
//! time.

use std::collections::BTreeMap;

use super::*;
use crate::testing::{simulate, simulate_network};
use crate::{Clock, LinkInfo, MessageInfo, Place, Placement, ProcessInfo};

fn info(node: &Node, name: &str) -> ProcessInfo {
    let infos = node.processes().into_iter();
    infos.into_iter().find(|info| info.name == name).unwrap()
}

/// Waits ten seconds after each note, and takes a second of virtual time for each count.
struct Slow;

impl Actor for Slow {
    type Context = Context<Self>;
}

impl Process for Slow {
    const MAILBOX: u32 = 3;
}

impl Handler<Note> for Slow {
    type Result = ();
    fn handle(&mut self, Note(_): Note, ctx: &mut Context<Self>) {
        let pause = fut::wrap_future::<_, Self>(ctx.clock().sleep(10 * SECOND));
        ctx.wait(pause);
        ctx.after(60 * SECOND, |_, _| ());
    }
}

impl Handler<Count> for Slow {
    type Result = usize;
    fn handle(&mut self, _: Count, _: &mut Context<Self>) -> usize {
        0
    }
}

#[test]
fn stalled_actor_shows_depth_age_and_refusals() {
    simulate(|node| async move {
        let clock = node.clock();
        clock.advance(100 * SECOND).await;
        let slow = node.spawn("slow", Slow).unwrap();
        assert_eq!(info(&node, "slow").oldest, Duration::ZERO);
        (0..2).for_each(|number| slow.tell(Note(number)).unwrap());
        clock.advance(4 * SECOND).await;
        drop(slow.ask(Count(1), SECOND));
        slow.tell(Note(3)).unwrap();
        assert_eq!(slow.tell(Note(4)), Err(TellError::Full));
        clock.advance(2 * SECOND).await;
        let seen = info(&node, "slow");
        assert_eq!((seen.depth, seen.refused, seen.errands), (3, 1, 1));
        // The second note was sent right after the first, before that was taken out.
        assert_eq!((seen.oldest, seen.age), (6 * SECOND, 6 * SECOND));
        let [
            MessageInfo {
                message,
                handled: 1,
                per_second,
                ..
            },
        ] = &seen.messages[..]
        else {
            panic!("{:?}", seen.messages)
        };
        assert_eq!(message, std::any::type_name::<Note>());
        assert!((per_second - 1.0 / 6.0).abs() < 1e-9 && seen.per_second == *per_second);
        // Ten seconds later it has handled one more; the ask and the last note wait.
        clock.advance(6 * SECOND).await;
        let seen = info(&node, "slow");
        assert_eq!(
            (seen.depth, seen.errands, seen.thread.as_str()),
            (2, 2, "home")
        );
        assert!(
            (seen.per_second - 1.0 / 6.0).abs() < 1e-9,
            "one since the last look"
        );
        clock.advance(100 * SECOND).await;
        let seen = info(&node, "slow");
        assert_eq!(
            (seen.depth, seen.errands, seen.oldest),
            (0, 0, Duration::ZERO)
        );
        let counters = node.counters();
        let of = |what: &str| counters[&format!("process/slow/{what}")];
        assert_eq!(
            (of("handled"), of("refused"), of("blocked")),
            (4.0, 1.0, 0.0)
        );
        assert_eq!(
            (of("message/Note/handled"), of("message/Count/handled")),
            (3.0, 1.0)
        );
        assert_eq!(of("oldest_secs"), 0.0);
    });
}

#[test]
fn a_ping_that_waits_counts_for_depth_and_age() {
    simulate(|node| async move {
        let diarist = node.spawn("diarist", Diarist::default()).unwrap();
        node.clock().settle().await;
        diarist.tell(Ping).unwrap();
        let seen = info(&node, "diarist");
        assert_eq!((seen.depth, seen.oldest), (1, Duration::ZERO));
        node.clock().settle().await;
        let seen = info(&node, "diarist");
        assert_eq!((seen.depth, seen.handled.values().sum::<u64>()), (0, 1));
    });
}

#[test]
fn links_are_seen_with_what_waits_on_them() {
    simulate_network(|network| async move {
        let master = network.node("master", Role::Master, &[Role::Agent]);
        let agent = network.node("agent", Role::Agent, &[Role::Master]);
        let diarist = master.spawn("diarist", Diarist::default()).unwrap();
        let pid = agent.find("master", "diarist", SECOND).await.unwrap();
        assert_eq!(pid, diarist.pid());
        agent.clock().advance(5 * SECOND).await;
        let waits = agent.ask(&pid, Wait, 9 * SECOND);
        let [link] = &agent.links()[..] else {
            panic!("one link")
        };
        let LinkInfo {
            peer,
            role,
            address,
            dialled,
            age,
            queued_bytes,
            frames_sent,
            questions,
            ..
        } = link;
        assert_eq!((peer, *role), (&master.id().to_string(), Role::Master));
        assert_eq!(
            (address.as_str(), *dialled, *age),
            ("master", true, 5 * SECOND)
        );
        assert!(*queued_bytes > 0);
        assert_eq!((*frames_sent, *questions), (2, 1));
        agent.clock().settle().await;
        assert_eq!(agent.links()[0].queued_bytes, 0);
        let there = &master.links()[0];
        assert_eq!((there.frames_delivered, there.dialled), (2, false));
        let counters = agent.counters();
        assert_eq!(counters["link/master/questions"], 1.0);
        drop(waits);
    });
}

/// Per-link metrics of ten thousand agents would be sixty thousand series, replaced at each agent
/// restart.
#[test]
fn link_metrics_sum_by_role_and_survive_links() {
    simulate_network(|network| async move {
        let master = network.node("master", Role::Master, &[Role::Agent, Role::Framework]);
        master.spawn("diarist", Diarist::default()).unwrap();
        let mut others = Vec::new();
        for (name, role, told) in [
            ("one", Role::Agent, 1),
            ("two", Role::Agent, 2),
            ("driver", Role::Framework, 3),
        ] {
            let node = network.node(name, role, &[Role::Master]);
            let pid = node.find("master", "diarist", SECOND).await.unwrap();
            (0..told).for_each(|number| node.tell(&pid, Note(number)).unwrap());
            others.push(node);
        }
        master.clock().settle().await;
        let of_links = || {
            let counters = master.counters().into_iter();
            let of_links = counters.filter(|(name, _)| name.starts_with("link/"));
            of_links.collect::<BTreeMap<_, _>>()
        };
        let seen = of_links();
        let names: Vec<_> = seen.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "link/agent/frames_delivered",
                "link/agent/frames_sent",
                "link/agent/linked",
                "link/agent/questions",
                "link/agent/queued_bytes",
                "link/agent/queued_bytes_max",
                "link/agent/said_older",
                "link/framework/frames_delivered",
                "link/framework/frames_sent",
                "link/framework/linked",
                "link/framework/questions",
                "link/framework/queued_bytes",
                "link/framework/queued_bytes_max",
                "link/framework/said_older",
            ]
        );
        // Each looked a name up first.
        let carried = |seen: &BTreeMap<String, f64>| {
            ["frames_delivered", "frames_sent"].map(|what| seen[&format!("link/agent/{what}")])
        };
        assert_eq!(
            (seen["link/agent/linked"], carried(&seen)),
            (2.0, [5.0, 2.0])
        );
        assert_eq!(seen["link/framework/frames_delivered"], 4.0);
        others[0].shutdown().await;
        master.clock().settle().await;
        let seen = of_links();
        assert_eq!(
            (seen["link/agent/linked"], carried(&seen)),
            (1.0, [5.0, 2.0])
        );
    });
}

#[test]
fn counts_continue_across_restarts() {
    simulate(|node| async move {
        let policy = Supervision::Restart {
            backoff: 4 * SECOND,
            backoff_max: 4 * SECOND,
            limit: 9,
        };
        let handle = node.supervise("phoenix", policy, Diarist::default).unwrap();
        let counts = || {
            let seen = info(&node, "phoenix");
            let message = |name: &str| {
                let mut found = seen.messages.iter();
                let found = found.find(|message| message.message.ends_with(name));
                found.map_or(0, |message| message.handled)
            };
            (message("::Note"), message("::Fall"), seen.restarts)
        };
        (0..5).for_each(|number| handle.tell(Note(number)).unwrap());
        handle.tell(Fall).unwrap();
        handle.tell(Note(5)).unwrap(); // lost with that incarnation
        node.clock().advance(SECOND).await;
        let seen = info(&node, "phoenix");
        assert_eq!(seen.returns_in, Some(3 * SECOND));
        assert_eq!((seen.depth, seen.age), (0, Duration::ZERO));
        assert_eq!(counts(), (5, 1, 0));
        assert_eq!(node.counters()["process/phoenix/handled"], 6.0);
        node.clock().advance(3 * SECOND).await;
        let seen = info(&node, "phoenix");
        assert_eq!((seen.returns_in, seen.pid), (None, handle.pid()));
        assert_eq!(counts(), (5, 1, 1));
        // The types arrive in another order now.
        handle.tell(Fall).unwrap();
        node.clock().advance(4 * SECOND).await;
        handle.tell(Note(6)).unwrap();
        node.clock().advance(2 * SECOND).await;
        assert_eq!(counts(), (6, 2, 2));
        assert_eq!(info(&node, "phoenix").messages.len(), 2);
        let rate = info(&node, "phoenix").per_second;
        assert!((rate - 0.8).abs() < 1e-9, "{rate}: eight in ten seconds");
    });
}

/// Blocks the thread until released.
#[derive(Message)]
#[rtype(result = "()")]
struct Block(std::sync::mpsc::Receiver<()>);

/// As `Block`, in a timer.
#[derive(Message)]
#[rtype(result = "()")]
struct BlockLater(std::sync::mpsc::Receiver<()>);

/// As `Block`, in the handler's response future.
#[derive(Message)]
#[rtype(result = "()")]
struct BlockInFuture(std::sync::mpsc::Receiver<()>);

struct Blocker;

impl Actor for Blocker {
    type Context = Context<Self>;
}

impl Process for Blocker {}

impl Handler<Block> for Blocker {
    type Result = ();
    fn handle(&mut self, Block(until): Block, _: &mut Context<Self>) {
        let _ = until.recv(); // Released, or the test has failed.
    }
}

impl Handler<BlockLater> for Blocker {
    type Result = ();
    fn handle(&mut self, BlockLater(until): BlockLater, ctx: &mut Context<Self>) {
        ctx.after(Duration::ZERO, move |_, _| {
            let _ = until.recv(); // As above.
        });
    }
}

impl Handler<BlockInFuture> for Blocker {
    type Result = ResponseFuture<()>;
    fn handle(
        &mut self,
        BlockInFuture(until): BlockInFuture,
        _: &mut Context<Self>,
    ) -> Self::Result {
        Box::pin(async move {
            let _ = until.recv(); // As above.
        })
    }
}

/// Polls in real time until this holds.
async fn until(look: impl Fn() -> bool) {
    let clock = Clock::real();
    while !look() {
        clock.sleep(Duration::from_millis(5)).await;
    }
}

// Covers W5; 6.1 Scheduling.
#[test]
fn blocking_actor_is_reported_with_its_message_type() {
    let runtime = actix_rt::Runtime::new().unwrap();
    runtime.block_on(async {
        let placement = Placement::here().put("blocker", Place::OwnThread);
        let node = Node::builder("node").placement(placement).build();
        let blocker = node.spawn("blocker", Blocker).unwrap();
        let neighbour = node.spawn("neighbour", Diarist::default()).unwrap();
        let (release, blocked) = std::sync::mpsc::channel();
        let (release_later, blocked_later) = std::sync::mpsc::channel();
        blocker.tell(Block(blocked)).unwrap();
        blocker.tell(BlockLater(blocked_later)).unwrap();
        let seen = || info(&node, "blocker");
        let blocks_at = |what: &str| seen().blocked_at.is_some_and(|at| at.ends_with(what));
        until(|| blocks_at("::Block")).await;
        let (first, longest) = (seen().blocked, seen().blocked_longest);
        until(|| seen().blocked_longest > 2 * longest).await;
        assert_eq!(seen().blocked, first, "one block is counted once");
        assert!(seen().depth == 1 && seen().oldest >= Duration::from_millis(100));
        assert_eq!(seen().thread, "blocker");
        neighbour.ask(Count(1), 60 * SECOND).await.unwrap();
        release.send(()).unwrap();
        until(|| blocks_at("a timer or future")).await;
        assert!(seen().blocked > first);
        let counted = || node.counters()["process/blocker/blocked"];
        assert!(counted() > f64::from(first));
        release_later.send(()).unwrap();
        until(|| seen().errands == 0).await;
        let before = seen().blocked;
        let (release_in_future, blocked_in_future) = std::sync::mpsc::channel();
        blocker.tell(BlockInFuture(blocked_in_future)).unwrap();
        until(|| seen().blocked > before).await;
        assert_eq!(seen().errands, 1);
        release_in_future.send(()).unwrap();
        until(|| seen().errands == 0).await;
    });
}
