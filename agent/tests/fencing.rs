//! Two masters and one agent: what a deposed one says starts nothing and ends nothing (DESIGN 5).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers may fall like the test"
)]

mod common;
mod stage;

use protocol::message::registration::{DisownTasks, LeaderAnnounced, ShutDownAgent};
use protocol::message::task::ShutDownFramework;
use protocol::{TaskState, message::registration::Reregistered};
use runtime::prelude::*;
use stage::*;

fn leads_under(term: u64) -> Manners {
    Manners {
        term,
        ..Manners::default()
    }
}

fn first_of_term_five() -> Cast {
    Cast {
        manners: leads_under(5),
        ..Cast::default()
    }
}

/// Another master, at the address `second`.
fn second(world: &World, manners: Manners) -> Master {
    let node = world.network.node("second", Role::Master, &[Role::Agent]);
    Master::start(&node, manners)
}

/// That master, wherever the agent is registered, announces this.
async fn announce(world: &World, by: &Master, address: &str, term: u64) {
    let agent = by
        .node
        .find("agent", "agent", std::time::Duration::from_secs(1));
    let leader = LeaderAnnounced {
        address: address.to_owned(),
        term,
    };
    by.node.tell(&agent.await.unwrap(), leader).unwrap();
    world.settle().await;
}

async fn metric(world: &World, name: &str) -> f64 {
    world.agent.counters().await.unwrap()[name]
}

fn launched(world: &World) -> usize {
    world.stage.launched.lock().unwrap().len()
}

/// S131: whatever a deposed leader still says, once it goes on.
#[test]
fn a_deposed_master_starts_and_ends_nothing_and_is_told() {
    world(first_of_term_five(), |world| async move {
        world.master.run(vec![shell("steady")]);
        world.settle().await;
        let (_executor, script) = world.executor(0).await;
        let next = second(&world, leads_under(6));
        announce(&world, &next, "second", 6).await;
        assert_eq!(next.registrations(), 1, "it left the old one at once");
        let heard = world.master.heard.lock().unwrap().updates.len();

        world.master.run(vec![shell("late")]);
        world.master.kill("steady");
        world.master.tell(DisownTasks {
            tasks: vec![(framework_id(), task_id("steady"))],
        });
        world.master.tell(ShutDownFramework {
            framework_id: framework_id(),
        });
        world.master.tell(ShutDownAgent {
            reason: "a rumour".to_owned(),
        });
        world.master.ping(false).await;
        announce(&world, &world.master, "master", 5).await;
        world.advance(1).await;
        assert_eq!(launched(&world), 1, "nothing of it was started");
        assert_eq!(script.heard(), ["subscribed steady", "launch steady"]);
        assert_eq!(
            (next.registrations(), world.master.registrations()),
            (1, 1),
            "the agent stays where it is"
        );
        {
            let old = world.master.heard.lock().unwrap();
            assert_eq!(old.terms_seen, [6], "it is told once");
            assert_eq!(old.updates.len(), heard);
        }
        assert_eq!(metric(&world, "slave/master_messages_refused").await, 7.0);
        assert_eq!(metric(&world, "slave/master_term").await, 6.0);

        next.run(vec![shell("next")]);
        next.kill("steady");
        world.settle().await;
        assert_eq!(launched(&world), 2);
        assert_eq!(next.last("steady").unwrap().status.state, TaskState::Killed);
    });
}

#[test]
fn an_announcement_moves_an_agent_only_to_a_later_term() {
    world(first_of_term_five(), |world| async move {
        let other = second(&world, leads_under(4));
        for term in [0, 4, 5] {
            announce(&world, &other, "second", term).await;
        }
        assert_eq!(other.registrations(), 0);
        announce(&world, &world.master, "master", 5).await;
        assert_eq!(
            world.master.registrations(),
            1,
            "its own master's is no news"
        );
        assert_eq!(metric(&world, "slave/master_messages_refused").await, 3.0);
        assert_eq!(metric(&world, "slave/master_term").await, 5.0);
    });
}

/// The one that answers is asked whether it still leads: it can only say so if a majority does.
#[test]
fn who_has_lost_its_master_names_the_newest_term_to_the_one_that_it_asks() {
    world(first_of_term_five(), |world| async move {
        let next = second(&world, leads_under(6));
        announce(&world, &next, "second", 6).await;
        assert_eq!(next.registrations(), 1);
        world.network.leave("second");
        world.advance(10).await;
        let heard = world.master.heard.lock().unwrap();
        let seen: Vec<u64> = heard
            .registrations
            .iter()
            .map(|(_, all)| all.term_seen)
            .collect();
        assert_eq!(seen, [0, 6]);
        assert_eq!(heard.returns[0].term_seen, 6);
    });
}

/// It was asked before the agent knew better, and answers afterwards.
#[test]
fn an_answer_that_was_overtaken_by_a_new_leader_binds_nobody() {
    let manners = Manners {
        compares_by_hand: true,
        ..leads_under(5)
    };
    let cast = Cast {
        manners,
        ..Cast::default()
    };
    world(cast, |world| async move {
        world.master.ping(false).await;
        world.advance(2).await;
        assert_eq!(world.master.heard.lock().unwrap().waiting.len(), 1);
        let next = second(&world, leads_under(6));
        announce(&world, &next, "second", 6).await;
        assert_eq!(next.registrations(), 1);
        let mut welcome = welcome(agent_id());
        welcome.master.term = 5;
        world.master.answer(Reregistered::Registered(welcome));
        world.settle().await;
        world.master.run(vec![shell("late")]);
        next.run(vec![shell("next")]);
        world.settle().await;
        let launched = world.stage.launched.lock().unwrap();
        assert_eq!(launched[0].environment["MESOS_EXECUTOR_ID"], "next");
        assert_eq!(launched.len(), 1);
    });
}
