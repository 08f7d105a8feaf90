//! The guarantees of an actor's life cycle (SPEC 6.1: Process, Identity, spawn, terminate, wait).

use crate::testing::{node as rehearsed, run_simulated, simulate};
use crate::tests::*;

const RESTART: Supervision = Supervision::Restart {
    backoff: SECOND,
    backoff_max: SECOND,
    limit: 1,
};

/// Records each call of its life cycle.
struct Life {
    diary: Diary,
    /// The call that panics.
    falls_in: Option<&'static str>,
}

impl Life {
    fn new(diary: &Diary) -> Self {
        Self {
            diary: diary.clone(),
            falls_in: None,
        }
    }

    fn meets(&self, what: &'static str) {
        crate::lock(&self.diary).push(what.to_owned());
        assert!(self.falls_in != Some(what), "falls in {what}");
    }
}

impl Actor for Life {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Context<Self>) {
        self.meets("started");
    }

    fn stopping(&mut self, _: &mut Context<Self>) -> Running {
        self.meets("stopping");
        Running::Stop
    }

    fn stopped(&mut self, _: &mut Context<Self>) {
        self.meets("stopped");
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        crate::lock(&self.diary).push("dropped".to_owned());
    }
}

impl Process for Life {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<Note>(&[]);
    }
}

/// Runs this closure.
#[derive(Message)]
#[rtype(result = "()")]
struct Do(Act);

type Act = Box<dyn FnOnce(&mut Context<Life>) + Send>;

impl Handler<Do> for Life {
    type Result = ();
    fn handle(&mut self, Do(act): Do, ctx: &mut Context<Self>) {
        self.meets("act");
        act(ctx);
    }
}

impl Handler<Note> for Life {
    type Result = ();
    fn handle(&mut self, _: Note, _: &mut Context<Self>) {
        self.meets("note");
    }
}

fn act(act: impl FnOnce(&mut Context<Life>) + Send + 'static) -> Do {
    Do(Box::new(act))
}

/// Sends a note, ends the actor, and sends two more notes; returns its record.
fn met(end: impl FnOnce(&Node, &Handle<Life>)) -> Vec<String> {
    simulate(|node| async move {
        let diary = Diary::default();
        let life = node.spawn("life", Life::new(&diary)).unwrap();
        life.tell(Note(1)).unwrap();
        end(&node, &life);
        let _ = life.tell(Note(2));
        let _ = life.tell(Note(3));
        node.clock().settle().await;
        read(&diary)
    })
}

// Covers 6.1 Process.
#[test]
fn started_and_stopped_enclose_all_messages() {
    let after_the_queue = ["started", "note", "stopping", "stopped", "dropped"];
    assert_eq!(met(|_, life| life.stop()), after_the_queue);
    assert_eq!(met(|node, life| node.stop(&life.pid())), after_the_queue);
    let at_once = ["started", "stopping", "stopped", "dropped"];
    assert_eq!(met(|node, life| node.stop_now(&life.pid())), at_once);
    let by_itself = ["started", "note", "act", "stopping", "stopped", "dropped"];
    let stop = |ctx: &mut Context<Life>| ctx.stop();
    assert_eq!(met(|_, life| life.tell(act(stop)).unwrap()), by_itself);
    let terminated = ["started", "note", "act", "stopped", "dropped"];
    let terminate = |ctx: &mut Context<Life>| ctx.terminate();
    assert_eq!(
        met(|_, life| life.tell(act(terminate)).unwrap()),
        terminated
    );
}

#[test]
fn a_shutdown_stops_every_actor_in_the_same_way() {
    simulate(|node| async move {
        let diary = Diary::default();
        let life = node.spawn("life", Life::new(&diary)).unwrap();
        life.tell(Note(1)).unwrap();
        node.shutdown().await;
        let story = ["started", "note", "stopping", "stopped", "dropped"];
        assert_eq!(read(&diary), story);
    });
}

#[test]
fn panicked_actor_is_only_dropped() {
    for (falls_in, story) in [
        ("started", &["started", "dropped"][..]),
        ("note", &["started", "note", "dropped"]),
        ("stopping", &["started", "note", "stopping", "dropped"]),
        (
            "stopped",
            &["started", "note", "stopping", "stopped", "dropped"],
        ),
    ] {
        simulate(|node| async move {
            let diary = Diary::default();
            let mut fragile = Life::new(&diary);
            fragile.falls_in = Some(falls_in);
            let life = node.spawn("life", fragile).unwrap();
            let end = node.ended(&life.pid());
            let _ = life.tell(Note(1));
            life.stop();
            assert_eq!(end.await, Exit::Panicked(format!("falls in {falls_in}")));
            assert_eq!(read(&diary), story);
            node.spawn("life", Life::new(&diary))
                .expect("its name is free");
        });
    }
}

#[test]
fn panic_in_drop_is_a_panic_of_the_actor() {
    struct Sour;
    impl Drop for Sour {
        fn drop(&mut self) {
            panic!("in a drop");
        }
    }
    struct Holder(#[allow(dead_code, reason = "held to be dropped")] Sour);
    impl Actor for Holder {
        type Context = Context<Self>;
    }
    impl Process for Holder {}
    simulate(|node| async move {
        let holder = node.spawn("holder", Holder(Sour)).unwrap();
        holder.stop();
        let end = node.ended(&holder.pid()).await;
        assert_eq!(end, Exit::Panicked("in a drop".into()));
        assert!(node.processes().is_empty());
    });
}

// Covers 6.1 Identity.
#[test]
fn unnamed_actor_gets_the_first_free_number() {
    simulate(|node| async move {
        node.spawn("task(2)", Diarist::default()).unwrap();
        let names = [(); 3].map(|()| {
            let task = node.spawn_unnamed("task", Diarist::default()).unwrap();
            task.pid().name().to_owned()
        });
        assert_eq!(names, ["task(1)", "task(3)", "task(4)"]);
    });
}

// Covers 6.1 Identity.
#[test]
fn pids_and_epochs_are_unique() {
    simulate(|node| async move {
        let mut pids = std::collections::BTreeSet::new();
        for _ in 0..10 {
            let it = node.spawn("it", Diarist::default()).unwrap();
            assert!(pids.insert(it.pid()));
            it.stop();
            node.clock().settle().await;
            assert_eq!(node.tell(&it.pid(), Note(1)), Err(TellError::Gone));
        }
    });
    run_simulated(async {
        let starts = [1, 2].map(|seed| rehearsed("master").seed(seed).build());
        assert_eq!(starts[0].id().name(), starts[1].id().name());
        assert_ne!(starts[0].id(), starts[1].id());
    });
}

// Covers 6.1 wait.
#[test]
fn every_waiter_sees_the_end() {
    simulate(|node| async move {
        let diary = Diary::default();
        let life = node.spawn("life", Life::new(&diary)).unwrap();
        let pid = life.pid();
        let ends = [node.ended(&pid), node.ended(&pid)];
        // It may await its own end: it continues, and the waiting future ends with it.
        let own = pid.clone();
        life.tell(act(move |ctx| {
            let end = ctx.node().ended(&own);
            ctx.then(end, |life: &mut Life, _, _| life.meets("its own end"));
        }))
        .unwrap();
        life.tell(Note(1)).unwrap();
        life.stop();
        for end in ends {
            assert_eq!(end.await, Exit::Stopped);
        }
        assert_eq!(node.ended(&pid).await, Exit::NoProcess);
        assert!(!read(&diary).contains(&"its own end".to_owned()));
    });
}

// Covers 6.1 spawn.
#[test]
fn restart_begins_with_fresh_state() {
    simulate(|node| async move {
        let (diary, neighbour) = (
            Diary::default(),
            node.spawn("it", Diarist::default()).unwrap(),
        );
        let written = diary.clone();
        let make = move || Life::new(&written);
        let life = node.supervise("life", RESTART, make).unwrap();
        let watched = neighbour.pid();
        life.tell(act(move |ctx| {
            ctx.after(3 * SECOND, |life: &mut Life, _| life.meets("an old timer"));
            ctx.every(SECOND, |life: &mut Life, _| life.meets("an old interval"));
            let end = ctx.node().ended(&watched);
            ctx.then(end, |life: &mut Life, _, _| life.meets("an old future"));
            ctx.notify(Note(0));
        }))
        .unwrap();
        life.tell(act(|_| panic!("told to fall"))).unwrap();
        life.tell(Note(1)).unwrap();
        node.clock().advance(SECOND).await;
        neighbour.stop();
        life.tell(Note(2)).unwrap();
        node.clock().advance(10 * SECOND).await;
        let story = ["started", "act", "act", "dropped", "started", "note"];
        assert_eq!(read(&diary), story);
    });
}

// Covers 6.1 spawn.
#[test]
fn restart_limit_ends_the_actor_for_good() {
    simulate(|node| async move {
        let life = node.supervise("it", RESTART, Diarist::default).unwrap();
        let end = node.ended(&life.pid());
        life.tell(Fall).unwrap();
        assert_eq!(end.await, Exit::Panicked("told to fall".into()));
        node.clock().advance(SECOND).await;
        let last = node.ended(&life.pid());
        life.tell(Fall).unwrap();
        assert_eq!(last.await, Exit::Panicked("told to fall".into()));
        assert_eq!(life.tell(Note(1)), Err(TellError::Gone));
        assert!(!life.is_alive());
        assert_eq!(node.whereis("it"), None);
    });
}

#[test]
fn actor_may_refuse_stop_but_not_stop_now() {
    struct Stubborn;
    impl Actor for Stubborn {
        type Context = Context<Self>;
        fn stopping(&mut self, _: &mut Context<Self>) -> Running {
            Running::Continue
        }
    }
    impl Process for Stubborn {}
    simulate(|node| async move {
        let stubborn = node.spawn("stubborn", Stubborn).unwrap();
        stubborn.stop();
        node.clock().settle().await;
        assert_eq!(node.processes().len(), 1);
        let asked = node.clock().now();
        node.shutdown().await;
        assert_eq!((node.clock().now() - asked).as_secs(), 10);
        assert!(node.processes().is_empty());
    });
}
