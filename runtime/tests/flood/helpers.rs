//! A flood of jobs for a blocked thread.

use std::sync::mpsc;

use runtime::{Placement, SpawnError};

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
            let reason = "its queue of 262144 jobs is full".to_owned();
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
