//! Where things run: by the table in real time, and on one thread in virtual time.

use super::*;
use crate::Placement;
use crate::rehearsal::{node as rehearsed, stage};

fn thread() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

#[test]
fn work_that_is_no_actor_runs_where_the_table_says_and_gives_its_output() {
    let runtime = actix_rt::Runtime::new().unwrap();
    runtime.block_on(async {
        let services = Placement::services();
        let node = Node::builder("node").placement(services).build();
        let at = |name: &str| node.run_at(name, || async { thread() }).unwrap();
        assert_eq!(at("http").await, Ok("http".to_owned()));
        assert_eq!(
            at("http/second").await,
            Ok("http".to_owned()),
            "and shares it"
        );
        assert_eq!(at("elsewhere").await, Ok(thread()));
        let fallen = node.run_at("http", || async { panic!("a page") }).unwrap();
        let fallen: Result<(), _> = fallen.await;
        assert!(fallen.is_err());
        assert_eq!(
            at("http").await,
            Ok("http".to_owned()),
            "its thread goes on"
        );
    });
}

#[test]
fn in_virtual_time_everything_runs_on_one_thread_whatever_the_table_says() {
    stage(async {
        let node = rehearsed("node").placement(Placement::services()).build();
        let master = node.spawn("master", Diarist::default()).unwrap();
        assert_eq!(master.ask(Count(1), SECOND).await, Ok(1));
        assert_eq!(node.processes()[0].thread, "home");
        let here = node.run_at("http", || async { thread() }).unwrap().await;
        assert_eq!(here, Ok(thread()));
    });
}
