//! Placement: by the table in real time, and on one thread in virtual time.

use super::*;
use crate::Placement;
use crate::testing::{node as rehearsed, run_simulated};

fn thread() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

#[test]
fn run_at_uses_the_placement() {
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
        let crashed = node.run_at("http", || async { panic!("a page") }).unwrap();
        let crashed: Result<(), _> = crashed.await;
        assert!(crashed.is_err());
        assert_eq!(
            at("http").await,
            Ok("http".to_owned()),
            "its thread goes on"
        );
    });
}

#[test]
fn virtual_time_ignores_the_placement() {
    run_simulated(async {
        let node = rehearsed("node").placement(Placement::services()).build();
        let master = node.spawn("master", Diarist::default()).unwrap();
        assert_eq!(master.ask(Count(1), SECOND).await, Ok(1));
        assert_eq!(node.processes()[0].thread, "home");
        let here = node.run_at("http", || async { thread() }).unwrap().await;
        assert_eq!(here, Ok(thread()));
    });
}
