//! Batches: many tells in one read, which must behave exactly like tells sent one by one.

use actix::fut::ActorFutureExt;

use super::*;
use crate::testing::simulate_network;

/// Records a number, and acts according to it.
struct Moody {
    diary: Diary,
}

/// It waits a second after this number, ...
const WAIT_AFTER: u32 = 10;
/// ... requests its own stop after this one, ...
const STOP_AFTER: u32 = 1010;
/// ... and panics at this one.
const FALL_AT: u32 = 2010;

impl Actor for Moody {
    type Context = Context<Self>;
}

impl Process for Moody {
    const MAILBOX: u32 = 500;

    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<Note>(&Role::ALL);
        handlers.accept::<Count>(&Role::ALL);
    }
}

impl Moody {
    fn write(&self, line: String) -> usize {
        let mut diary = crate::lock(&self.diary);
        diary.push(line);
        diary.len()
    }
}

impl Handler<Note> for Moody {
    type Result = ();
    fn handle(&mut self, Note(number): Note, ctx: &mut Context<Self>) {
        assert!(number != FALL_AT, "crashed");
        let from = ctx
            .sender()
            .map_or("here", |sender| sender.peer.node.name())
            .to_owned();
        self.write(format!("{from} {number}"));
        match number {
            WAIT_AFTER => {
                let pause = fut::wrap_future::<_, Self>(ctx.clock().sleep(SECOND));
                ctx.wait(pause.map(|(), this, _| {
                    this.write("waited".into());
                }));
            }
            STOP_AFTER => ctx.stop(),
            _ => {}
        }
    }
}

impl Handler<Count> for Moody {
    type Result = usize;
    fn handle(&mut self, Count(number): Count, _: &mut Context<Self>) -> usize {
        self.write(format!("count {number}"))
    }
}

/// Runs a test with a master, an agent, and an actor of the agent with its record.
fn moody<F: Future<Output = ()>>(story: impl FnOnce(Node, Handle<Moody>, Diary, Pid) -> F) {
    simulate_network(|network| async move {
        let master = network.node("master", Role::Master, &[Role::Agent]);
        let agent = network.node("agent", Role::Agent, &[Role::Master]);
        let diary = Diary::default();
        let moody = agent
            .spawn(
                "moody",
                Moody {
                    diary: diary.clone(),
                },
            )
            .unwrap();
        let pid = master.find("agent", "moody", SECOND).await.unwrap();
        story(master, moody, diary, pid).await;
    });
}

fn from_master(numbers: impl IntoIterator<Item = u32>) -> Vec<String> {
    numbers
        .into_iter()
        .map(|number| format!("master {number}"))
        .collect()
}

#[test]
fn batch_longer_than_a_turn_keeps_order_and_sender() {
    moody(|master, _, diary, pid| async move {
        (100..500).for_each(|number| master.tell(&pid, Note(number)).unwrap());
        assert_eq!(master.ask(&pid, Count(1), SECOND).await, Ok(401));
        let mut expected = from_master(100..500);
        expected.push("count 1".into());
        assert_eq!(read(&diary), expected);
    });
}

#[test]
fn other_messages_between_tells_keep_their_place() {
    moody(|master, _, diary, pid| async move {
        let mut asked = Vec::new();
        let mut expected = Vec::new();
        for round in 0..10 {
            let numbers = 100 + 20 * round..120 + 20 * round;
            numbers
                .clone()
                .for_each(|number| master.tell(&pid, Note(number)).unwrap());
            asked.push(master.ask(&pid, Count(round), SECOND));
            expected.extend(from_master(numbers));
            expected.push(format!("count {round}"));
        }
        for reply in asked {
            assert!(reply.await.is_ok());
        }
        assert_eq!(read(&diary), expected);
    });
}

#[test]
fn waiting_actor_resumes_its_batch_afterwards() {
    moody(|master, moody, diary, pid| async move {
        (0..40).for_each(|number| master.tell(&pid, Note(number)).unwrap());
        master.clock().settle().await;
        assert_eq!(read(&diary), from_master(0..=WAIT_AFTER));
        // Messages sent meanwhile, locally or remotely, are handled afterwards.
        moody.tell(Note(99)).unwrap();
        (40..45).for_each(|number| master.tell(&pid, Note(number)).unwrap());
        master.clock().advance(SECOND).await;
        let mut expected = from_master(0..=WAIT_AFTER);
        expected.push("waited".into());
        expected.extend(from_master(WAIT_AFTER + 1..40));
        expected.push("here 99".into());
        expected.extend(from_master(40..45));
        assert_eq!(read(&diary), expected);
    });
}

#[test]
fn stopped_actor_drops_the_rest_of_its_batch() {
    moody(|master, moody, diary, pid| async move {
        let end = master.ended(&pid);
        (1000..1040).for_each(|number| master.tell(&pid, Note(number)).unwrap());
        assert_eq!(end.await, Exit::Stopped);
        assert_eq!(read(&diary), from_master(1000..=STOP_AFTER));
        assert_eq!(moody.tell(Note(1)), Err(TellError::Gone));
    });
}

#[test]
fn panicked_actor_drops_the_rest_of_its_batch() {
    moody(|master, _, diary, pid| async move {
        let end = master.ended(&pid);
        (2000..2040).for_each(|number| master.tell(&pid, Note(number)).unwrap());
        assert!(matches!(end.await, Exit::Panicked(words) if words.contains("crashed")));
        assert_eq!(read(&diary), from_master(2000..FALL_AT));
    });
}

#[test]
fn draining_actor_completes_its_batch() {
    moody(|master, moody, diary, pid| async move {
        (100..400).for_each(|number| master.tell(&pid, Note(number)).unwrap());
        master.clock().settle().await;
        let end = master.ended(&pid);
        (400..700).for_each(|number| master.tell(&pid, Note(number)).unwrap());
        // The batch is in the mailbox, and the actor is in its first turn.
        while read(&diary).len() <= 300 {
            tokio::task::yield_now().await;
        }
        moody.stop();
        assert_eq!(end.await, Exit::Stopped);
        assert_eq!(read(&diary), from_master(100..700));
    });
}

#[test]
fn a_run_above_the_bound_loses_nothing() {
    moody(|master, _, diary, pid| async move {
        (100..1000).for_each(|number| master.tell(&pid, Note(number)).unwrap());
        master.clock().settle().await;
        assert_eq!(read(&diary), from_master(100..1000));
        master.tell(&pid, Note(5)).unwrap();
        assert_eq!(master.ask(&pid, Count(1), SECOND).await, Ok(902));
    });
}

/// Sends for the test, within an actor's turn.
struct Speaker {
    to: Pid,
}

/// Tells these numbers, asks for the count, and tells them again.
#[derive(Message)]
#[rtype(result = "Result<(), TellError>")]
struct Speak(std::ops::Range<u32>);

impl Actor for Speaker {
    type Context = Context<Self>;
}

impl Process for Speaker {}

impl Handler<Speak> for Speaker {
    type Result = Result<(), TellError>;
    fn handle(&mut self, Speak(numbers): Speak, ctx: &mut Context<Self>) -> Self::Result {
        let node = ctx.node();
        numbers
            .clone()
            .try_for_each(|number| node.tell(&self.to, Note(number)))?;
        drop(node.ask(&self.to, Count(1), SECOND));
        numbers
            .clone()
            .try_for_each(|number| node.tell(&self.to, Note(number)))
    }
}

#[test]
fn messages_of_one_turn_keep_order_and_precede_the_exit() {
    moody(|master, _, diary, pid| async move {
        let speaker = master
            .spawn("speaker", Speaker { to: pid.clone() })
            .unwrap();
        let said = speaker.ask(Speak(100..150), SECOND).await;
        assert_eq!(said, Ok(Ok(())));
        speaker.stop();
        master.ended(&speaker.pid()).await;
        master.clock().settle().await;
        let mut expected = from_master(100..150);
        expected.push("count 1".into());
        expected.extend(from_master(100..150));
        assert_eq!(read(&diary), expected);
    });
}
