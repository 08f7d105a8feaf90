//! The ping lane: pings and stop requests overtake all waiting messages; nothing else does.

use bytes::BytesMut;
use futures_util::FutureExt;

use super::*;
use crate::testing::{simulate, simulate_network};
use crate::{Dialled, Hello, Link};

/// A ping, numbered to show the order.
#[derive(Debug, Serialize, Deserialize)]
struct Beat(u32);

remote! { Beat = "test/beat" v1 lane Ping -> u32 }

/// Returns the record. Never crosses a wire.
struct Peek;

impl Message for Peek {
    type Result = usize;
}

/// Acts according to a note's number.
struct Patient {
    diary: Diary,
}

/// A note with this number makes it wait a second, ...
const WAIT: u32 = 1_000_001;
/// ... ping itself once, ...
const BEAT: u32 = 1_000_002;
/// ... stop itself at once, ...
const STOP_NOW: u32 = 1_000_003;
/// ... or stop after the queue.
const STOP: u32 = 1_000_004;

impl Patient {
    fn write(&self, line: String) {
        crate::lock(&self.diary).push(line);
    }
}

impl Actor for Patient {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Context<Self>) {
        self.write("started".into());
    }

    fn stopped(&mut self, _: &mut Context<Self>) {
        self.write("stopped".into());
    }
}

impl Process for Patient {
    const MAILBOX: u32 = 200_000;

    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<Note>(&Role::ALL);
        handlers.accept::<Count>(&Role::ALL);
        handlers.accept::<Beat>(&Role::ALL);
        handlers.accept_local::<Watch>();
        handlers.accept_urgent::<Peek>();
    }
}

impl Handler<Peek> for Patient {
    type Result = usize;
    fn handle(&mut self, _: Peek, _: &mut Context<Self>) -> usize {
        crate::lock(&self.diary).len()
    }
}

impl Handler<Note> for Patient {
    type Result = ();
    fn handle(&mut self, Note(number): Note, ctx: &mut Context<Self>) {
        let (node, pid) = (ctx.node().clone(), ctx.pid().clone());
        match number {
            WAIT => {
                let pause = fut::wrap_future::<_, Self>(ctx.clock().sleep(SECOND));
                ctx.wait(pause);
            }
            BEAT => node.tell(&pid, Beat(0)).unwrap(),
            STOP_NOW => node.stop_now(&pid),
            STOP => node.stop(&pid),
            _ => self.write(number.to_string()),
        }
    }
}

impl Handler<Count> for Patient {
    type Result = usize;
    fn handle(&mut self, Count(number): Count, _: &mut Context<Self>) -> usize {
        self.write(format!("count {number}"));
        number as usize
    }
}

impl Handler<Beat> for Patient {
    type Result = u32;
    fn handle(&mut self, Beat(number): Beat, ctx: &mut Context<Self>) -> u32 {
        let from = ctx.sender().map_or("", |_| "far ");
        self.write(format!("{from}beat {number}"));
        number
    }
}

impl Handler<Watch> for Patient {
    type Result = ();
    fn handle(&mut self, Watch(pid): Watch, ctx: &mut Context<Self>) {
        ctx.link(&pid);
    }
}

impl Handler<Exited> for Patient {
    type Result = ();
    fn handle(&mut self, Exited { pid, .. }: Exited, _: &mut Context<Self>) {
        self.write(format!("{} exited", pid.name()));
    }
}

fn patient(node: &Node) -> (Handle<Patient>, Diary) {
    let diary = Diary::default();
    let patient = Patient {
        diary: diary.clone(),
    };
    (node.spawn("patient", patient).unwrap(), diary)
}

fn lines<T: ToString>(range: impl IntoIterator<Item = T>) -> Vec<String> {
    range.into_iter().map(|line| line.to_string()).collect()
}

#[test]
fn ping_overtakes_a_hundred_thousand_messages() {
    simulate(|node| async move {
        let (patient, diary) = patient(&node);
        for number in 0..50_000 {
            patient.tell(Note(number)).unwrap();
            node.tell(&patient.pid(), Note(50_000 + number)).unwrap();
        }
        let beats = [1, 2, 3].map(|number| patient.ask(Beat(number), SECOND));
        let by_pid = node.ask(&patient.pid(), Beat(4), SECOND);
        patient.tell(Beat(5)).unwrap();
        for (beat, number) in beats.into_iter().zip(1..) {
            assert_eq!(beat.await, Ok(number));
        }
        assert_eq!(by_pid.await, Ok(4));
        let first = lines(["started", "beat 1", "beat 2", "beat 3", "beat 4", "beat 5"]);
        assert_eq!(read(&diary)[..6], first);
        node.clock().settle().await;
        let notes = (0..50_000).flat_map(|number| [number, 50_000 + number]);
        assert_eq!(read(&diary)[6..], lines(notes), "each lane keeps its order");
    });
}

// Covers W15 in part: that no page waits behind the mailbox, the snapshots, the batches and what is
// kept.
#[test]
fn urgent_ask_bypasses_a_full_mailbox() {
    simulate(|node| async move {
        let (patient, diary) = patient(&node);
        for number in 0..Patient::MAILBOX {
            patient.tell(Note(number)).unwrap();
        }
        assert_eq!(patient.tell(Note(0)), Err(TellError::Full));
        assert_eq!(patient.ask(Peek, SECOND).await, Ok(1), "it has started");
        node.clock().settle().await;
        assert_eq!(read(&diary).len(), 1 + Patient::MAILBOX as usize);
    });
}

#[test]
fn ping_is_handled_next_after_the_current_message() {
    simulate(|node| async move {
        let (patient, diary) = patient(&node);
        for number in [1, BEAT, 2, 3, BEAT, 4] {
            patient.tell(Note(number)).unwrap();
        }
        node.clock().settle().await;
        let story = ["started", "1", "beat 0", "2", "3", "beat 0", "4"];
        assert_eq!(read(&diary), story);
    });
}

#[test]
fn remote_ping_overtakes_all_messages() {
    simulate_network(|network| async move {
        let near = network.node("near", Role::Master, &[Role::Agent]);
        let far = network.node("far", Role::Agent, &[Role::Master]);
        let (patient, diary) = patient(&near);
        let pid = far.find("near", "patient", SECOND).await.unwrap();
        patient.tell(Note(WAIT)).unwrap();
        near.clock().settle().await;
        for number in 0..50_000 {
            patient.tell(Note(number)).unwrap();
        }
        for number in 50_000..100_000 {
            far.tell(&pid, Note(number)).unwrap();
        }
        let counted = far.ask(&pid, Count(9), 9 * SECOND);
        let beats = [1, 2, 3].map(|number| far.ask(&pid, Beat(number), 9 * SECOND));
        far.tell(&pid, Beat(4)).unwrap();
        far.tell(&pid, Beat(5)).unwrap();
        near.clock().settle().await;
        assert_eq!(read(&diary), ["started"], "it waits");
        assert_eq!(near.processes()[0].depth, 100_006);
        for (beat, number) in beats.into_iter().zip(1..) {
            assert_eq!(beat.await, Ok(number));
        }
        assert_eq!(counted.await, Ok(9));
        let mut story = lines(["started"]);
        story.extend((1..=5).map(|number| format!("far beat {number}")));
        story.extend(lines(0..100_000));
        story.push("count 9".into());
        assert_eq!(read(&diary), story);
    });
}

#[test]
fn ping_reply_waits_only_behind_pings() {
    simulate_network(|network| async move {
        let near = network.node("near", Role::Master, &[Role::Agent]);
        let far = network.node("far", Role::Agent, &[Role::Master]);
        let (patient, _diary) = patient(&far);
        let attach = |here: &Node, there: &Node, dialled| {
            let peer = Peer {
                node: there.id().clone(),
                role: there.role(),
                address: String::new(),
            };
            let hello = Hello::decode(&there.hello()).unwrap();
            here.attach(peer, hello, dialled).unwrap()
        };
        let near_end = attach(&near, &far, Dialled::ByUs);
        let far_end = attach(&far, &near, Dialled::ByThem);
        let taken = |end: &Link, lane| {
            let mut bytes = BytesMut::new();
            let _ = end.outgoing(lane, &mut bytes, 1 << 20).now_or_never();
            bytes
        };
        let asked = near.ask(&patient.pid(), Beat(7), SECOND);
        far_end.deliver(&mut taken(&near_end, Lane::Ping)).unwrap();
        far.clock().settle().await;
        assert!(taken(&far_end, Lane::Ordinary).is_empty());
        near_end.deliver(&mut taken(&far_end, Lane::Ping)).unwrap();
        assert_eq!(asked.await, Ok(7));
    });
}

#[test]
fn ping_overtakes_the_rest_of_a_batch() {
    simulate_network(|network| async move {
        let near = network.node("near", Role::Master, &[Role::Agent]);
        let far = network.node("far", Role::Agent, &[Role::Master]);
        let (_patient, diary) = patient(&near);
        let pid = far.find("near", "patient", SECOND).await.unwrap();
        for number in [1, 2, BEAT, 3, WAIT, 4, 5] {
            far.tell(&pid, Note(number)).unwrap();
        }
        near.clock().settle().await;
        near.tell(&pid, Beat(7)).unwrap(); // While it waits in the middle of the batch.
        near.clock().advance(2 * SECOND).await;
        let story = ["started", "1", "2", "beat 0", "3", "beat 7", "4", "5"];
        assert_eq!(read(&diary), story);
    });
}

#[test]
fn however_many_pings_come_the_mailbox_has_its_turn() {
    simulate(|node| async move {
        let (patient, diary) = patient(&node);
        (1..=20).for_each(|number| patient.tell(Note(number)).unwrap());
        (0..1024).for_each(|number| patient.tell(Beat(number)).unwrap());
        assert_eq!(patient.tell(Beat(1024)), Err(TellError::Full));
        let full = patient.ask(Beat(1024), SECOND).await;
        assert_eq!(full, Err(AskError::Full));
        node.clock().settle().await;
        let diary = read(&diary);
        let first_note = diary.iter().position(|line| line == "1");
        assert!(first_note.is_some_and(|at| at <= 40), "{first_note:?}");
        let of = |beats: bool| {
            let lines = diary
                .iter()
                .filter(|line| line.starts_with("beat") == beats);
            lines.cloned().collect::<Vec<_>>()
        };
        let beats: Vec<_> = (0..1024).map(|number| format!("beat {number}")).collect();
        assert_eq!(of(true), beats);
        assert_eq!(of(false)[1..], lines(1..=20));
    });
}

// Covers 6.1 terminate.
#[test]
fn stop_now_precedes_the_next_message() {
    simulate_network(|network| async move {
        let near = network.node("near", Role::Master, &[Role::Agent]);
        let far = network.node("far", Role::Agent, &[Role::Master]);
        let (patient, diary) = patient(&near);
        let pid = far.find("near", "patient", SECOND).await.unwrap();
        let ended = near.ended(&pid);
        // One by one, ...
        [1, 2, STOP_NOW, 3]
            .into_iter()
            .for_each(|number| patient.tell(Note(number)).unwrap());
        let beat = patient.ask(Beat(1), SECOND);
        near.clock().settle().await;
        assert_eq!(ended.await, Exit::Stopped);
        assert_eq!(beat.await, Ok(1));
        assert_eq!(read(&diary), ["started", "beat 1", "1", "2", "stopped"]);
        // ... in a batch, and with waiting pings.
        crate::lock(&diary).clear();
        let (patient, diary) = self::patient(&near);
        let pid = far.find("near", "patient", SECOND).await.unwrap();
        for number in [1, WAIT, BEAT, STOP_NOW, 3] {
            far.tell(&pid, Note(number)).unwrap();
        }
        near.clock().settle().await;
        near.stop_now(&pid);
        let beat = patient.ask(Beat(2), SECOND);
        near.clock().advance(2 * SECOND).await;
        assert_eq!(beat.await, Err(AskError::Gone));
        assert_eq!(read(&diary), ["started", "1", "stopped"]);
    });
}

#[test]
fn stop_now_precedes_the_next_timer() {
    simulate(|node| async move {
        #[derive(Default)]
        struct Busy(Diary);
        impl Actor for Busy {
            type Context = Context<Self>;
            fn started(&mut self, ctx: &mut Context<Self>) {
                for number in 0..100 {
                    ctx.after(SECOND, move |this: &mut Self, ctx| {
                        crate::lock(&this.0).push(number.to_string());
                        if number == 10 {
                            ctx.node().stop_now(ctx.pid());
                        }
                    });
                }
            }
        }
        impl Process for Busy {}
        let diary = Diary::default();
        node.spawn("busy", Busy(diary.clone())).unwrap();
        node.clock().advance(2 * SECOND).await;
        assert_eq!(read(&diary), lines(0..=10));
    });
}

#[test]
fn draining_actor_handles_earlier_pings() {
    simulate(|node| async move {
        let (patient, diary) = patient(&node);
        let ended = node.ended(&patient.pid());
        [1, WAIT, 2]
            .into_iter()
            .for_each(|number| patient.tell(Note(number)).unwrap());
        node.clock().settle().await;
        let beat = patient.ask(Beat(1), 9 * SECOND);
        patient.stop();
        assert_eq!(patient.tell(Beat(2)), Err(TellError::Gone));
        assert_eq!((beat.await, ended.await), (Ok(1), Exit::Stopped));
        assert_eq!(read(&diary), ["started", "1", "beat 1", "2", "stopped"]);
    });
}

#[test]
fn ping_fails_when_its_actor_panics() {
    simulate(|node| async move {
        let diarist = node.spawn("diarist", Diarist::default()).unwrap();
        diarist.tell(Fall).unwrap();
        let before = diarist.ask(Ping, SECOND);
        node.clock().settle().await;
        assert_eq!(before.await, Ok(1), "it gets ahead of the fall");
        assert_eq!(diarist.ask(Ping, SECOND).await, Err(AskError::Gone));
    });
}

// Covers 6.1 Mailbox.
#[test]
fn an_exit_never_overtakes_what_its_actor_sent_before() {
    simulate(|node| async move {
        struct Source(Handle<Patient>);
        impl Actor for Source {
            type Context = Context<Self>;
            fn started(&mut self, ctx: &mut Context<Self>) {
                (0..1000).for_each(|number| self.0.tell(Note(number)).unwrap());
                self.0.tell(Beat(1)).unwrap();
                ctx.stop();
            }
        }
        impl Process for Source {}
        let (patient, diary) = patient(&node);
        let source = node.spawn("source", Source(patient.clone())).unwrap();
        patient.tell(Watch(source.pid())).unwrap();
        patient.tell(Note(WAIT)).unwrap();
        node.clock().advance(3 * SECOND).await;
        let mut story = lines(["started", "beat 1"]);
        story.extend(lines(0..1000));
        story.push("source exited".into());
        assert_eq!(read(&diary), story);
    });
}
