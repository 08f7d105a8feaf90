//! Floods of what waits beside actors: jobs for a thread, places at a limiter, operations in a sequence.

use std::sync::mpsc;

use runtime::{Placement, RateLimiter, Sequence, SequenceError, SpawnError};

use super::*;

#[test]
fn a_thread_that_is_blocked_is_flooded_with_jobs() {
    let _alone = alone();
    let runtime = actix_rt::Runtime::new().unwrap();
    runtime.block_on(async {
        let services = Placement::services();
        let node = Node::builder("node").placement(services).build();
        let (release, released) = mpsc::channel::<()>();
        let (blocks, blocked) = mpsc::channel();
        let blocking = node.run_at("http", || async move {
            blocks.send(()).unwrap();
            released.recv()
        });
        blocked.recv().unwrap();
        let flood = |count: usize| {
            let begun = (0..count).map(|_| node.run_at("http", || async {}).err());
            begun.flatten().count()
        };
        let jobs = 1 << 18;
        assert_eq!(flood(jobs + 10), 10);
        let gauge = Gauge::begin();
        assert_eq!(flood(10 * jobs), 10 * jobs);
        gauge.check();
        // An actor that cannot be begun leaves no trace, least of all its name.
        for _ in 0..2 {
            let refused = node.spawn("http", Stalled::default()).err();
            let reason = "262144 jobs wait for it already".to_owned();
            let name = "http".to_owned();
            assert_eq!(refused, Some(SpawnError::NoThread { name, reason }));
        }
        release.send(()).unwrap();
        assert_eq!(blocking.unwrap().await, Ok(Ok(())));
        while node.spawn("http", Stalled::default()).is_err() {
            std::thread::yield_now(); // It has as many to run as there are places.
        }
    });
}

#[test]
fn a_limiter_is_flooded_by_those_who_wait_and_do_not_look() {
    let _alone = alone();
    rehearse(|node| async move {
        let limiter = RateLimiter::new(node.clock(), 1, HOUR, 1000).unwrap();
        let mut places = Vec::new();
        let mut flood = |count: usize| {
            let taken = (0..count).filter_map(|_| limiter.acquire().ok());
            places.extend(taken);
        };
        flood(2000);
        let gauge = Gauge::begin();
        flood(100_000);
        gauge.check();
        assert_eq!((places.len(), limiter.waiting()), (1000, 1000));
        node.clock().advance(10 * HOUR).await;
        assert!(limiter.acquire().is_err(), "nobody has left");
        places.truncate(500);
        assert!(limiter.acquire().is_ok());
    });
}

#[test]
fn a_sequence_is_flooded_while_its_first_operation_does_not_end() {
    let _alone = alone();
    rehearse(|node| async move {
        let sequence = Sequence::new(&node, 1000);
        let clock = node.clock().clone();
        let first = sequence.run(move || async move { clock.sleep(HOUR).await });
        node.clock().settle().await;
        let mut turns = Vec::new();
        let mut flood = |count: usize| {
            for _ in 0..count {
                let load = body();
                turns.push(sequence.run(move || async move { load.len() }));
                turns.truncate(2000); // Who was refused knows it.
            }
        };
        flood(2000);
        let gauge = Gauge::begin();
        flood(FLOOD);
        gauge.check();
        let full = SequenceError::Full { bound: 1000 };
        assert_eq!(sequence.run(|| async {}).await, Err(full.clone()));
        first.await.unwrap();
        let mut heard = Vec::new();
        for turn in turns {
            heard.push(turn.await);
        }
        let (done, refused) = heard.split_at(1000);
        assert!(done.iter().all(|done| *done == Ok(BODY)));
        assert!(refused.iter().all(|refused| *refused == Err(full.clone())));
    });
}
