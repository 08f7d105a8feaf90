//! Taps: visible messages, and the fates of those held back.

use super::*;
use crate::observe::tap::{Fate, Kind, Passing, Probe, Tap, Way};
use crate::testing::{simulate, simulate_network};

/// Local only: it cannot be encoded.
#[derive(Message, Clone)]
#[rtype(result = "()")]
struct Whisper(u32);

impl Handler<Whisper> for Diarist {
    type Result = ();
    fn handle(&mut self, Whisper(number): Whisper, _: &mut Context<Self>) {
        self.write(format!("whisper {number}"));
    }
}

/// Records every message.
fn log(node: &Node) -> Diary {
    let seen = Diary::default();
    let log = seen.clone();
    node.set_tap(move |passing: &Passing<'_>| {
        let of = |pid: Option<&Pid>| pid.map_or("-".to_owned(), |pid| pid.name().to_owned());
        let name = passing.name.rsplit(['/', ':']).next().unwrap_or_default();
        let (way, kind) = (passing.way, passing.kind);
        let line = format!(
            "{way:?} {kind:?} {name} {}>{} {:?}",
            of(passing.from),
            of(passing.to),
            passing.encoded()
        );
        crate::lock(&log).push(line);
        Fate::Pass
    });
    seen
}

fn spawn(node: &Node, name: &str) -> (Handle<Diarist>, Diary) {
    let diary = Diary::default();
    (node.spawn(name, Diarist::new(&diary)).unwrap(), diary)
}

// Covers 6.3 Test tools.
#[test]
fn tap_sees_local_messages_until_cleared() {
    simulate(|node| async move {
        let (ann, _) = spawn(&node, "ann");
        let seen = log(&node);
        let (bob, _) = spawn(&node, "bob");
        ann.tell(TellThem(bob.pid(), vec![1])).unwrap();
        node.clock().settle().await;
        assert_eq!(bob.ask(Count(2), SECOND).await, Ok(2));
        bob.tell(Whisper(3)).unwrap();
        ann.tell(Watch(bob.pid())).unwrap();
        node.clock().settle().await;
        bob.stop();
        node.clock().settle().await;
        node.clear_tap();
        ann.tell(Note(4)).unwrap();
        let seen = read(&seen);
        assert!(
            seen[0].starts_with("Local Tell tell_them ->ann Some("),
            "{seen:?}"
        );
        assert_eq!(
            seen[1..4],
            [
                "Local Tell note ann>bob Some([1])",
                "Local Ask count ->bob Some([2])",
                "Local Tell Whisper ->bob None",
            ]
        );
        assert!(seen[4].starts_with("Local Tell watch"), "{seen:?}");
        assert_eq!(seen[5..], ["Local Exited Exited bob>ann None"]);
    });
}

#[test]
fn both_nodes_taps_see_a_crossing_message_once() {
    simulate_network(|network| async move {
        let master = network.node("master", Role::Master, &[Role::Agent]);
        let agent = network.node("agent", Role::Agent, &[Role::Master]);
        let (bob, _) = spawn(&master, "bob");
        let (here, there) = (log(&agent), log(&master));
        let pid = agent.find("master", "bob", SECOND).await.unwrap();
        agent.tell(&pid, Note(1)).unwrap();
        agent.tell(&pid, Note(2)).unwrap();
        assert_eq!(agent.ask(&pid, Count(3), SECOND).await, Ok(3));
        assert_eq!(
            read(&here),
            [
                "Outgoing Tell note ->bob Some([1])",
                "Outgoing Tell note ->bob Some([2])",
                "Outgoing Ask count ->bob Some([3])",
                "Incoming Reply count bob>- Some([3])",
            ]
        );
        assert_eq!(
            read(&there),
            [
                "Incoming Tell note ->bob Some([1])",
                "Incoming Tell note ->bob Some([2])",
                "Incoming Ask count ->bob Some([3])",
                "Outgoing Reply count bob>- Some([3])",
            ]
        );
        drop(bob);
    });
}

/// Sees only messages that cross a link, and drops every note.
struct AtTheLink;

impl Tap for AtTheLink {
    fn fate(&self, passing: &Passing<'_>) -> Fate {
        match passing.is::<Note>() {
            Some(_) => Fate::Drop,
            None => Fate::Pass,
        }
    }

    fn sees_local(&self) -> bool {
        false
    }
}

#[test]
fn tap_may_ignore_local_messages() {
    simulate_network(|network| async move {
        let master = network.node("master", Role::Master, &[Role::Agent]);
        let agent = network.node("agent", Role::Agent, &[Role::Master]);
        let (bob, diary) = spawn(&master, "bob");
        master.set_tap(AtTheLink);
        bob.tell(Note(1)).unwrap();
        assert_eq!(bob.ask(Count(2), SECOND).await, Ok(2));
        let pid = agent.find("master", "bob", SECOND).await.unwrap();
        agent.tell(&pid, Note(3)).unwrap();
        assert_eq!(agent.ask(&pid, Count(4), SECOND).await, Ok(3));
        bob.tell(Note(5)).unwrap();
        master.clock().settle().await;
        assert_eq!(read(&diary), ["1", "2", "4", "5"]);
        // The next one does.
        let seen = log(&master);
        bob.tell(Note(6)).unwrap();
        assert_eq!(read(&seen), ["Local Tell note ->bob Some([6])"]);
    });
}

// Covers 6.3 Test tools.
#[test]
fn rules_apply_only_to_matching_messages() {
    simulate(|node| async move {
        let (ann, diary) = spawn(&node, "ann");
        let probe = Probe::on(&node);
        let all = probe.observe::<Note>(|_| true);
        probe.drop_next::<Note>(|Note(number)| *number == 1);
        probe.delay::<Note>(|Note(number)| *number == 2, SECOND);
        probe.duplicate::<Note>(|Note(number)| *number == 3);
        probe.duplicate::<Whisper>(|_| true);
        probe.reorder::<Note>(|Note(number)| *number == 4);
        for number in [1, 1, 2, 3, 4, 5] {
            ann.tell(Note(number)).unwrap();
        }
        ann.tell(Whisper(6)).unwrap();
        node.clock().settle().await;
        assert_eq!(
            read(&diary),
            ["1", "3", "3", "5", "4", "whisper 6", "whisper 6"]
        );
        node.clock().advance(SECOND).await;
        assert_eq!(read(&diary)[7..], ["2"]);
        assert_eq!(all.count(), 6);
    });
}

// Covers 6.3 Test tools.
#[test]
fn rules_apply_to_both_sides_of_a_link() {
    for tapped in [Way::Outgoing, Way::Incoming] {
        simulate_network(|network| async move {
            let master = network.node("master", Role::Master, &[Role::Agent]);
            let agent = network.node("agent", Role::Agent, &[Role::Master]);
            let (_bob, diary) = spawn(&master, "bob");
            let pid = agent.find("master", "bob", SECOND).await.unwrap();
            let probe = match tapped {
                Way::Outgoing => Probe::on(&agent),
                _ => Probe::on(&master),
            };
            probe.drop_next::<Note>(|Note(number)| *number == 1);
            probe.delay::<Note>(|Note(number)| *number == 2, SECOND);
            probe.duplicate::<Note>(|Note(number)| *number == 3);
            probe.reorder::<Note>(|Note(number)| *number == 4);
            for number in [1, 1, 2, 3, 4, 5] {
                agent.tell(&pid, Note(number)).unwrap();
            }
            master.clock().settle().await;
            assert_eq!(read(&diary), ["1", "3", "3", "5", "4"], "{tapped:?}");
            master.clock().advance(SECOND).await;
            assert_eq!(read(&diary)[5..], ["2"], "{tapped:?}");
        });
    }
}

#[test]
fn lost_ask_ends_by_patience_or_after_a_minute() {
    simulate_network(|network| async move {
        let master = network.node("master", Role::Master, &[Role::Agent]);
        let agent = network.node("agent", Role::Agent, &[Role::Master]);
        let (bob, diary) = spawn(&master, "bob");
        let pid = agent.find("master", "bob", SECOND).await.unwrap();
        let late = Err(AskError::Late { after: SECOND });
        let at = |node: &Node| node.clock().now();
        for node in [&agent, &master] {
            let lost = Probe::on(node).drop_all::<Count>(|_| true);
            assert_eq!(agent.ask(&pid, Count(1), SECOND).await, late);
            let asked = at(&agent);
            let answer = agent.ask(&pid, Count(2), Patience::WhileLinked).await;
            assert_eq!(answer, Err(AskError::Gone));
            assert_eq!((at(&agent) - asked).as_secs(), 60);
            assert_eq!(lost.count(), 2);
            node.clear_tap();
        }
        Probe::on(&master).drop_all::<Count>(|_| true);
        assert_eq!(bob.ask(Count(3), SECOND).await, late);
        let answer = bob.ask(Count(4), Patience::WhileLinked).await;
        assert_eq!(answer, Err(AskError::Gone));
        assert_eq!(read(&diary), [""; 0]);
    });
}

#[test]
fn lost_replies_differ_from_lost_asks() {
    simulate_network(|network| async move {
        let master = network.node("master", Role::Master, &[Role::Agent]);
        let agent = network.node("agent", Role::Agent, &[Role::Master]);
        let (_bob, diary) = spawn(&master, "bob");
        let pid = agent.find("master", "bob", SECOND).await.unwrap();
        let reply = |passing: &Passing<'_>| passing.kind == Kind::Reply;
        for node in [&agent, &master] {
            let rules = [
                |passing: &Passing<'_>| passing.is::<usize>().map(|_| Fate::Drop),
                |passing: &Passing<'_>| passing.is::<usize>().map(|_| Fate::Delay(2 * SECOND)),
                |passing: &Passing<'_>| passing.is::<usize>().map(|_| Fate::Duplicate),
            ];
            let mut answers = Vec::new();
            for rule in rules {
                let probe = Probe::on(node);
                probe.rule(move |passing| rule(passing).filter(|_| reply(passing)));
                answers.push(agent.ask(&pid, Count(0), 3 * SECOND).await.is_ok());
            }
            assert_eq!(answers, [false, true, true]);
            node.clear_tap();
        }
        assert_eq!(read(&diary), ["0"; 6]);
    });
}

#[test]
fn duplicated_ask_is_answered_once() {
    simulate_network(|network| async move {
        let master = network.node("master", Role::Master, &[Role::Agent]);
        let agent = network.node("agent", Role::Agent, &[Role::Master]);
        let (bob, diary) = spawn(&master, "bob");
        let pid = agent.find("master", "bob", SECOND).await.unwrap();
        for node in [&agent, &master] {
            node.set_tap(|_: &Passing<'_>| Fate::Duplicate);
            assert!(agent.ask(&pid, Count(1), SECOND).await.is_ok());
            node.set_tap(|_: &Passing<'_>| Fate::Delay(SECOND));
            assert!(agent.ask(&pid, Count(2), 3 * SECOND).await.is_ok());
            node.clear_tap();
        }
        master.set_tap(|_: &Passing<'_>| Fate::Duplicate);
        assert!(bob.ask(Count(3), SECOND).await.is_ok());
        master.set_tap(|_: &Passing<'_>| Fate::Delay(SECOND));
        assert!(bob.ask(Count(4), 2 * SECOND).await.is_ok());
        let expected = ["1", "1", "2", "1", "1", "2", "3", "3", "4"];
        assert_eq!(read(&diary), expected);
    });
}

#[test]
fn swapped_message_is_delivered_alone_after_a_minute() {
    simulate(|node| async move {
        let (ann, diary) = spawn(&node, "ann");
        Probe::on(&node).reorder::<Note>(|_| true);
        ann.tell(Note(1)).unwrap();
        node.clock().advance(59 * SECOND).await;
        assert_eq!(read(&diary), [""; 0]);
        node.clock().advance(SECOND).await;
        assert_eq!(read(&diary), ["1"]);
    });
}

#[test]
fn restarted_actor_stays_tapped() {
    simulate(|node| async move {
        let diary = Diary::default();
        let policy = Supervision::Restart {
            backoff: SECOND,
            backoff_max: SECOND,
            limit: 1,
        };
        let written = diary.clone();
        let make = move || Diarist::new(&written);
        let ann = node.supervise("ann", policy, make).unwrap();
        let notes = Probe::on(&node).collect::<Note>(|_| true);
        ann.tell(Fall).unwrap();
        node.clock().advance(2 * SECOND).await;
        ann.tell(Note(5)).unwrap();
        assert_eq!(notes.next().await, Note(5));
        node.clear_tap();
        ann.tell(Note(6)).unwrap();
        node.clock().settle().await;
        assert_eq!(
            (notes.count(), read(&diary)),
            (1, vec!["5".into(), "6".into()])
        );
    });
}

#[test]
fn a_tapped_mailbox_keeps_its_bound_and_its_end() {
    simulate(|node| async move {
        let (ann, _) = spawn(&node, "ann");
        let _probe = Probe::on(&node);
        for number in 0..100 {
            ann.tell(Note(number)).unwrap();
        }
        assert_eq!(ann.tell(Note(100)), Err(TellError::Full));
        assert_eq!(node.processes()[0].depth, 100);
        node.clock().settle().await;
        ann.tell(Note(101)).unwrap();
        ann.stop();
        node.clock().settle().await;
        assert_eq!(ann.tell(Note(102)), Err(TellError::Gone));
        assert_eq!(ann.ask(Count(1), SECOND).await, Err(AskError::Gone));
    });
}

#[test]
fn tap_sees_sequenced_messages_at_both_ends() {
    simulate_network(|network| async move {
        let master = network.node("master", Role::Master, &[Role::Agent]);
        let agent = network.node("agent", Role::Agent, &[Role::Master]);
        let desk = master.spawn("desk", Desk::default()).unwrap();
        let (here, there) = (log(&agent), log(&master));
        let courier = agent
            .reliable_sender(crate::delivery::Bounds::default())
            .unwrap();
        let first = courier.send(Note(1)).unwrap();
        let pid = agent.find("master", "desk", SECOND).await.unwrap();
        courier.retarget(&pid);
        assert_eq!(first.await, Ok(()));
        assert_eq!(courier.send(Note(2)).unwrap().await, Ok(()));
        let numbered = |log: &Diary| {
            let mut lines = read(log);
            lines.retain(|line| line.contains(" Sequenced note "));
            lines
        };
        assert_eq!(
            numbered(&here),
            [
                "Outgoing Sequenced note ->- Some([1])",
                "Outgoing Sequenced note ->desk Some([2])",
            ]
        );
        assert_eq!(numbered(&there).len(), 2);
        assert!(numbered(&there)[0].ends_with(">desk Some([1])"));
        drop(desk);
    });
}

/// Accepts notes in envelopes.
#[derive(Default)]
struct Desk(crate::delivery::DedupReceiver);

impl Actor for Desk {
    type Context = Context<Self>;
}

impl Process for Desk {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<crate::delivery::Sequenced>(&Role::ALL);
        handlers.accept::<Note>(&Role::ALL);
    }
}

impl Handler<crate::delivery::Sequenced> for Desk {
    type Result = MessageResult<crate::delivery::Sequenced>;
    fn handle(
        &mut self,
        numbered: crate::delivery::Sequenced,
        ctx: &mut Context<Self>,
    ) -> Self::Result {
        let taken = crate::delivery::take(self, |desk| &mut desk.0, numbered, ctx);
        MessageResult(taken)
    }
}

impl Handler<Note> for Desk {
    type Result = ();
    fn handle(&mut self, _: Note, _: &mut Context<Self>) {}
}
