//! Backpressure on a link whose receiver has no room, in virtual time.

use super::*;
use crate::testing::simulate_network;

/// Records handled messages, with a small mailbox.
struct Narrow {
    diary: Diary,
}

/// After this number it handles nothing for a minute.
const STALL: u32 = 0;

impl Actor for Narrow {
    type Context = Context<Self>;
}

impl Process for Narrow {
    const MAILBOX: u32 = 10;
    const MAILBOX_BYTES: u64 = 64 << 10;

    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<Note>(&Role::ALL);
        handlers.accept::<Load>(&Role::ALL);
        handlers.accept::<Count>(&Role::ALL);
        handlers.accept_local::<Watch>();
    }
}

impl Narrow {
    fn write(&self, line: String) -> usize {
        let mut diary = crate::lock(&self.diary);
        diary.push(line);
        diary.len()
    }
}

impl Handler<Note> for Narrow {
    type Result = ();
    fn handle(&mut self, Note(number): Note, ctx: &mut Context<Self>) {
        self.write(number.to_string());
        if number == STALL {
            let minute = fut::wrap_future::<_, Self>(ctx.clock().sleep(60 * SECOND));
            ctx.wait(minute);
        }
    }
}

impl Handler<Load> for Narrow {
    type Result = usize;
    fn handle(&mut self, Load(bytes): Load, _: &mut Context<Self>) -> usize {
        self.write(format!("load {}", bytes.len()))
    }
}

impl Handler<Count> for Narrow {
    type Result = usize;
    fn handle(&mut self, Count(number): Count, _: &mut Context<Self>) -> usize {
        self.write(number.to_string())
    }
}

impl Handler<Watch> for Narrow {
    type Result = ();
    fn handle(&mut self, Watch(pid): Watch, ctx: &mut Context<Self>) {
        ctx.link(&pid);
    }
}

impl Handler<Exited> for Narrow {
    type Result = ();
    fn handle(&mut self, Exited { pid, reason }: Exited, _: &mut Context<Self>) {
        self.write(format!("{} {reason}", pid.name()));
    }
}

/// A master linked to an agent with a narrow actor, that actor's diary and its pid.
fn narrow<F: Future<Output = ()>>(story: impl FnOnce(Node, Node, Diary, Pid) -> F) {
    simulate_network(|network| async move {
        let master = network.node("master", Role::Master, &Role::ALL);
        let agent = network.node("agent", Role::Agent, &Role::ALL);
        let diary = Diary::default();
        let actor = Narrow {
            diary: diary.clone(),
        };
        agent.spawn("narrow", actor).unwrap();
        let pid = master.find("agent", "narrow", SECOND).await.unwrap();
        story(master, agent, diary, pid).await;
    });
}

fn spawn(node: &Node, name: &str) -> (Handle<Diarist>, Diary) {
    let diary = Diary::default();
    let handle = node.spawn(name, Diarist::new(&diary)).unwrap();
    (handle, diary)
}

fn lines(numbers: impl IntoIterator<Item = u32>) -> Vec<String> {
    numbers
        .into_iter()
        .map(|number| number.to_string())
        .collect()
}

#[test]
fn tells_beyond_a_full_mailbox_arrive_before_the_question() {
    narrow(|master, _, diary, pid| async move {
        (1..=5000).for_each(|number| master.tell(&pid, Note(number)).unwrap());
        let asked = master.ask(&pid, Count(5001), SECOND);
        assert_eq!(asked.await, Ok(5001));
        assert_eq!(read(&diary), lines(1..=5001));
    });
}

#[test]
fn large_messages_wait_for_room_in_order() {
    narrow(|master, _, diary, pid| async move {
        let mut expected = Vec::new();
        for number in 1..=40 {
            for bytes in [5 << 10, 300 << 10] {
                master.tell(&pid, Note(number)).unwrap();
                master.tell(&pid, Load(vec![1; bytes])).unwrap();
                expected.extend([number.to_string(), format!("load {bytes}")]);
            }
        }
        let count = expected.len();
        let asked = master.ask(&pid, Count(99), SECOND).await;
        assert_eq!(asked, Ok(count + 1));
        expected.push("99".into());
        assert_eq!(read(&diary), expected);
    });
}

#[test]
fn a_full_mailbox_delays_no_other_actor() {
    narrow(|master, agent, diary, pid| async move {
        let (other, notes) = spawn(&agent, "diarist");
        let other = master.refer(other.pid());
        (0..5000).for_each(|number| master.tell(&pid, Note(number)).unwrap());
        assert_eq!(other.ask(Count(7), SECOND).await, Ok(1));
        assert_eq!((read(&notes), read(&diary)), (lines([7]), lines([STALL])));
    });
}

#[test]
fn an_exit_comes_after_tells_that_wait_for_room() {
    narrow(|master, agent, diary, pid| async move {
        let (teller, _) = spawn(&master, "diarist");
        let far = agent.refer(pid.clone());
        far.tell(Watch(teller.pid())).unwrap();
        agent.clock().settle().await;
        teller.tell(TellThem(pid, (1..=2000).collect())).unwrap();
        teller.stop();
        agent.clock().settle().await;
        let mut expected = lines(1..=2000);
        expected.push("diarist stopped".into());
        assert_eq!(read(&diary), expected);
    });
}

#[test]
fn a_mailbox_without_progress_ends_the_link() {
    narrow(|master, _, diary, pid| async move {
        let ended = master.ended(&pid);
        (0..=100).for_each(|number| master.tell(&pid, Note(number)).unwrap());
        let started = master.clock().now();
        let reason = "the mailbox of narrow had no room for 30s";
        assert_eq!(ended.await, Exit::NodeLost(reason.into()));
        assert_eq!(master.clock().now() - started, 30 * SECOND);
        // Messages that had room are handled, later ones are not.
        master.clock().advance(60 * SECOND).await;
        assert_eq!(read(&diary), lines(0..=10));
    });
}

#[test]
fn an_ended_actor_lets_go_of_waiting_tells() {
    narrow(|master, agent, diary, pid| async move {
        (0..=100).for_each(|number| master.tell(&pid, Note(number)).unwrap());
        let asked = master.ask(&pid, Count(101), 5 * SECOND);
        master.clock().settle().await;
        agent.stop_now(&pid);
        assert_eq!(asked.await, Err(AskError::Gone));
        assert_eq!(read(&diary), lines([STALL]));
        assert_eq!(master.peers().len(), 1, "the link stays");
    });
}
