//! The guarantees of time (SPEC 6.1: delay; 6.3: Clock, Timers).

use proptest::prelude::*;

use crate::testing::simulate;
use crate::tests::*;

/// Starts all given timers, and records those that fire.
struct Alarm {
    millis: Vec<u64>,
    fired: Arc<Mutex<Vec<(usize, Duration)>>>,
}

impl Actor for Alarm {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        let start = ctx.clock().now();
        for (index, millis) in self.millis.clone().into_iter().enumerate() {
            ctx.after(
                Duration::from_millis(millis),
                move |alarm: &mut Self, ctx| {
                    crate::lock(&alarm.fired).push((index, ctx.clock().now() - start));
                },
            );
        }
    }
}

impl Process for Alarm {}

fn fired(millis: Vec<u64>) -> Vec<(usize, Duration)> {
    simulate(|node| async move {
        let fired = Arc::default();
        let alarm = Alarm {
            millis,
            fired: Arc::clone(&fired),
        };
        let _alarm = node.spawn("alarm", alarm).unwrap();
        node.clock().advance(Duration::from_secs(3600)).await;
        let fired = crate::lock(&fired);
        fired.clone()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // Covers 6.3 Timers.
    #[test]
    fn timers_fire_in_order_of_expiry(
        millis in prop::collection::vec(0..2_000_u64, 0..60),
    ) {
        let mut expected: Vec<(usize, Duration)> = millis.iter().copied().map(Duration::from_millis).enumerate().collect();
        expected.sort_by_key(|(_, due)| *due);
        prop_assert_eq!(fired(millis), expected);
    }
}

// Covers 6.3 Clock.
#[test]
fn time_advances_only_when_idle() {
    simulate(|node| async move {
        // A chain of ten thousand messages takes no virtual time, and settle waits for all of it.
        let diary = Diary::default();
        let it = node.spawn("it", Diarist::new(&diary)).unwrap();
        let (before, pid) = (node.clock().now(), it.pid());
        for _ in 0..100 {
            it.tell(TellThem(pid.clone(), vec![])).unwrap();
            node.clock().settle().await;
            it.tell(TellThem(pid.clone(), (0..100).collect()))
                .unwrap_or(());
            node.clock().settle().await;
        }
        assert_eq!(read(&diary).len(), 100 * 100);
        assert_eq!(node.clock().now(), before);
    });
}

// Covers 6.3 Clock.
#[test]
fn advance_completes_each_timer_before_the_next() {
    simulate(|node| async move {
        let diary = Diary::default();
        let it = node.spawn("it", Diarist::new(&diary)).unwrap();
        let timers = node.spawn("timers", Timers(it.clone())).unwrap();
        node.clock()
            .advance(2 * SECOND - Duration::from_millis(1))
            .await;
        assert_eq!(read(&diary), ["1", "11"]);
        node.clock().advance(Duration::from_millis(1)).await;
        assert_eq!(read(&diary), ["1", "11", "2", "12"]);
        drop(timers);
    });
}

/// Sends a note after one second and one after two, each with a second one as its consequence.
struct Timers(Handle<Diarist>);

impl Actor for Timers {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        for number in [2, 1] {
            ctx.after(number * SECOND, move |timers: &mut Self, ctx| {
                timers.0.tell(Note(number)).unwrap();
                let later = ctx.clock().sleep(Duration::ZERO);
                ctx.then(later, move |timers: &mut Self, (), _| {
                    timers.0.tell(Note(10 + number)).unwrap();
                });
            });
        }
    }
}

impl Process for Timers {}

// Covers 6.1 delay.
#[test]
fn cancelled_timer_never_fires() {
    struct Canceller(Diary);
    impl Actor for Canceller {
        type Context = Context<Self>;
        fn started(&mut self, ctx: &mut Context<Self>) {
            let say = |what: &'static str| {
                move |this: &mut Self, _: &mut Context<Self>| {
                    crate::lock(&this.0).push(what.to_owned());
                }
            };
            let cancelled = ctx.after(SECOND, say("cancelled"));
            let kept = ctx.after(SECOND, say("kept"));
            let future = ctx.then(std::future::ready(()), move |this, (), ctx| {
                say("future")(this, ctx);
            });
            ctx.cancel(cancelled);
            ctx.cancel(cancelled); // Twice has no further effect.
            ctx.cancel(future); // It was ready, and still does not complete.
            assert!(ctx.is_pending(kept) && !ctx.is_pending(cancelled) && !ctx.is_pending(future));
            ctx.after(2 * SECOND, move |this: &mut Self, ctx| {
                ctx.cancel(kept); // Too late, and harmless.
                assert!(!ctx.is_pending(kept));
                say("over")(this, ctx);
            });
        }
    }
    impl Process for Canceller {}
    simulate(|node| async move {
        let diary = Diary::default();
        let _it = node.spawn("canceller", Canceller(diary.clone())).unwrap();
        node.clock().advance(10 * SECOND).await;
        assert_eq!(read(&diary), ["kept", "over"]);
    });
}

#[test]
fn the_timers_of_who_has_stopped_do_not_fire() {
    simulate(|node| async move {
        let fired = Arc::default();
        let alarm = Alarm {
            millis: vec![1000, 3000],
            fired: Arc::clone(&fired),
        };
        let alarm = node.spawn("alarm", alarm).unwrap();
        node.clock().advance(2 * SECOND).await;
        alarm.stop();
        node.clock().advance(60 * SECOND).await;
        assert_eq!(*crate::lock(&fired), [(0, SECOND)]);
    });
}
