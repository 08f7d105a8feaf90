//! Exits, restarts and stops.

use super::*;
use crate::SpawnError;
use crate::testing::{node as rehearsed, run_simulated, simulate};

const RESTART: Supervision = Supervision::Restart {
    backoff: SECOND,
    backoff_max: Duration::from_secs(4),
    limit: 3,
};

/// A diarist that watches the given pids.
async fn watcher(node: &Node, diary: &Diary, watched: &[&Pid]) -> Handle<Diarist> {
    let handle = node.spawn_unnamed("watcher", Diarist::new(diary)).unwrap();
    for pid in watched {
        handle.tell(Watch((*pid).clone())).unwrap();
    }
    node.clock().settle().await;
    handle
}

// Covers W3 in part: panics in the runtime and bad input at the master.
#[test]
fn panic_reaches_others_once_as_exited() {
    simulate(|node| async move {
        let (diary, pid) = (
            Diary::default(),
            node.spawn("crashed", Diarist::default()).unwrap().pid(),
        );
        let watcher = watcher(&node, &diary, &[&pid, &pid]).await;
        node.tell(&pid, Fall).unwrap();
        node.clock().settle().await;
        assert_eq!(read(&diary), ["crashed panicked: told to fall"]);
        assert_eq!(
            watcher.ask(Count(1), SECOND).await,
            Ok(2),
            "its neighbour goes on"
        );
    });
}

// Covers 6.1 defer.
#[test]
fn timer_and_future_panics_end_their_actor() {
    struct Fragile(bool);
    impl Actor for Fragile {
        type Context = Context<Self>;
        fn started(&mut self, ctx: &mut Context<Self>) {
            if self.0 {
                ctx.after(SECOND, |_, _| panic!("in a timer"));
            } else {
                ctx.then(async { panic!("in a future") }, |_, (), _| {});
            }
        }
    }
    impl Process for Fragile {}
    simulate(|node| async move {
        let ends = [true, false].map(|in_a_timer| {
            let pid = node
                .spawn_unnamed("fragile", Fragile(in_a_timer))
                .unwrap()
                .pid();
            node.ended(&pid)
        });
        let [timer, future] = ends;
        assert_eq!(timer.await, Exit::Panicked("in a timer".into()));
        assert_eq!(future.await, Exit::Panicked("in a future".into()));
    });
}

#[test]
fn exited_comes_after_everything_the_actor_had_sent() {
    simulate(|node| async move {
        let (diary, talker) = (
            Diary::default(),
            node.spawn("talker", Diarist::default()).unwrap(),
        );
        let watcher = watcher(&node, &diary, &[&talker.pid()]).await;
        talker.tell(TellThem(watcher.pid(), vec![1, 2, 3])).unwrap();
        talker.stop();
        node.clock().settle().await;
        assert_eq!(read(&diary), ["1", "2", "3", "talker stopped"]);
    });
}

#[test]
fn a_link_to_nobody_ends_at_once() {
    simulate(|node| async move {
        let diary = Diary::default();
        let nobody = Pid::new("nobody", node.id().clone(), 99);
        let nameless = Pid::new("nameless", node.id().clone(), 0);
        let elsewhere = Pid::new("elsewhere", crate::NodeId::new("far", 1), 1);
        watcher(&node, &diary, &[&nobody, &nameless, &elsewhere]).await;
        let told = [
            "nobody no such process",
            "nameless no such process",
            "elsewhere node lost: not connected",
        ];
        assert_eq!(read(&diary), told);
    });
}

#[test]
fn who_unlinked_hears_nothing_and_the_others_still_do() {
    simulate(|node| async move {
        let pid = node.spawn("it", Diarist::default()).unwrap().pid();
        let diaries = [Diary::default(), Diary::default()];
        let one = watcher(&node, &diaries[0], &[&pid]).await;
        let _other = watcher(&node, &diaries[1], &[&pid]).await;
        one.tell(Unwatch(pid.clone())).unwrap();
        node.clock().settle().await;
        node.stop_now(&pid);
        node.clock().settle().await;
        assert_eq!(
            diaries.map(|diary| read(&diary)),
            [vec![], vec!["it stopped".to_owned()]]
        );
    });
}

#[test]
fn lookup_address_watches_the_current_owner() {
    simulate(|node| async move {
        let it = node.spawn("it", Diarist::default()).unwrap();
        let (diary, address) = (Diary::default(), Pid::new("it", node.id().clone(), 0));
        watcher(&node, &diary, &[&address]).await;
        it.stop();
        node.clock().settle().await;
        assert_eq!(read(&diary), ["it stopped"]);
    });
}

// Covers 6.1 terminate.
#[test]
fn stop_handles_the_queue_first_and_takes_nothing_more() {
    simulate(|node| async move {
        let diary = Diary::default();
        let diarist = node.spawn("diarist", Diarist::new(&diary)).unwrap();
        (1..=3).for_each(|number| diarist.tell(Note(number)).unwrap());
        let asked = diarist.ask(Count(4), SECOND);
        diarist.stop();
        assert_eq!(diarist.tell(Note(5)), Err(TellError::Gone));
        assert_eq!(asked.await, Ok(4));
        node.clock().settle().await;
        assert_eq!(read(&diary), ["1", "2", "3", "4"]);
        assert_eq!(node.whereis("diarist"), None);
    });
}

// Covers 6.1 terminate.
#[test]
fn stop_now_fails_queued_asks() {
    simulate(|node| async move {
        let diary = Diary::default();
        let diarist = node.spawn("diarist", Diarist::new(&diary)).unwrap();
        diarist.tell(Note(1)).unwrap();
        let asked = diarist.ask(Count(2), Patience::WhileLinked);
        node.stop_now(&diarist.pid());
        assert_eq!(asked.await, Err(AskError::Gone));
        assert_eq!(read(&diary), Vec::<String>::new());
    });
}

#[test]
fn open_ask_fails_when_its_actor_panics() {
    simulate(|node| async move {
        let diarist = node.spawn("diarist", Diarist::default()).unwrap();
        let (waiting, queued) = (diarist.ask(Wait, Patience::WhileLinked), {
            diarist.tell(Fall).unwrap();
            diarist.ask(Count(1), Patience::WhileLinked)
        });
        assert_eq!(
            (waiting.await, queued.await),
            (Err(AskError::Gone), Err(AskError::Gone))
        );
        assert_eq!(diarist.tell(Note(1)), Err(TellError::Gone));
    });
}

// Covers W3 in part: panics in the runtime and bad input at the master.
#[test]
fn supervised_actor_restarts_after_its_delay() {
    simulate(|node| async move {
        let diary = Diary::default();
        let theirs = diary.clone();
        let handle = node
            .supervise("phoenix", RESTART, move || Diarist::new(&theirs))
            .unwrap();
        let first = handle.pid();
        handle.tell(Fall).unwrap();
        node.clock().settle().await;
        assert_eq!(
            (handle.tell(Note(1)), node.whereis("phoenix")),
            (Err(TellError::Gone), None)
        );
        let taken = SpawnError::NameTaken {
            name: "phoenix".into(),
        };
        assert_eq!(
            node.spawn("phoenix", Diarist::default()).unwrap_err(),
            taken
        );

        node.clock().advance(SECOND).await;
        assert_eq!(handle.ask(Count(2), SECOND).await, Ok(1));
        assert_eq!(node.whereis("phoenix"), Some(handle.pid()));
        assert_ne!(handle.pid(), first);
        assert_eq!(
            node.tell(&first, Note(3)),
            Err(TellError::Gone),
            "the old pid stays dead"
        );
        assert_eq!(node.processes()[0].restarts, 1);
    });
}

// Covers 6.1 spawn.
#[test]
fn delays_grow_and_a_healthy_incarnation_resets_them() {
    simulate(|node| async move {
        let born = Diary::default();
        let (theirs, clock) = (born.clone(), node.clock().clone());
        let handle = node
            .supervise("phoenix", RESTART, move || {
                crate::lock(&theirs).push(clock.now().since_start().as_secs().to_string());
                Diarist::default()
            })
            .unwrap();
        node.clock().advance(10 * SECOND).await; // Healthy: longer than the maximum delay.
        for _ in 0..40 {
            let _ = handle.tell(Fall);
            node.clock().advance(SECOND / 4).await;
        }
        assert_eq!(read(&born), ["0", "11", "13", "17"]);
        assert_eq!(node.whereis("phoenix"), None);
        node.spawn("phoenix", Diarist::default())
            .expect("the name is free again");
    });
}

#[test]
fn panic_in_the_constructor_is_restarted() {
    simulate(|node| async move {
        let mut tries = 0;
        let handle = node
            .supervise("late", RESTART, move || {
                tries += 1;
                assert!(tries > 2, "not yet");
                Diarist::default()
            })
            .unwrap();
        node.clock().advance(10 * SECOND).await;
        assert_eq!(handle.ask(Count(1), SECOND).await, Ok(1));
    });
}

#[test]
fn stop_during_the_restart_delay_is_final() {
    simulate(|node| async move {
        let handle = node
            .supervise("phoenix", RESTART, Diarist::default)
            .unwrap();
        handle.tell(Fall).unwrap();
        node.clock().settle().await;
        handle.stop();
        node.clock().advance(60 * SECOND).await;
        assert_eq!(
            (handle.tell(Note(1)), node.whereis("phoenix")),
            (Err(TellError::Gone), None)
        );
        node.spawn("phoenix", Diarist::default())
            .expect("the name is free again");
    });
}

// Covers 6.1 spawn.
#[test]
fn end_process_policy_ends_the_process() {
    run_simulated(async {
        let ended = Diary::default();
        let theirs = ended.clone();
        let node = rehearsed("node")
            .end_process(move |why| crate::lock(&theirs).push(why.to_owned()))
            .build();
        let registrar = node
            .supervise("registrar", Supervision::EndProcess, Diarist::default)
            .unwrap();
        let pid = registrar.pid();
        registrar.tell(Fall).unwrap();
        node.clock().settle().await;
        assert_eq!(read(&ended), [format!("{pid} panicked: told to fall")]);
    });
}

#[test]
fn shutdown_handles_every_queue_and_then_nobody_is_left() {
    simulate(|node| async move {
        let diaries = [Diary::default(), Diary::default()];
        let handles = diaries
            .each_ref()
            .map(|diary| node.spawn_unnamed("it", Diarist::new(diary)).unwrap());
        let crashed = node
            .supervise("crashed", RESTART, Diarist::default)
            .unwrap();
        crashed.tell(Fall).unwrap();
        node.clock().settle().await;
        handles
            .iter()
            .for_each(|handle| handle.tell(Note(1)).unwrap());
        node.shutdown().await;
        assert!(node.processes().is_empty());
        assert_eq!(diaries.map(|diary| read(&diary)), [["1"], ["1"]]);
        assert_eq!(
            node.spawn("late", Diarist::default()).unwrap_err(),
            SpawnError::ShuttingDown
        );
    });
}
