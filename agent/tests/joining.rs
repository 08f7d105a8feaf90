//! Registration, reregistration and failover of an agent; a deposed master can neither start nor
//! end tasks.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers may fall like the test"
)]

mod common;
mod fixture;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fixture::*;
use protocol::TaskState;
use protocol::message::registration::{
    AwaitLeader, DisownTasks, LeaderAnnounced, RegistrationRefused, ReregisterAgent, Reregistered,
    ShutDownAgent,
};
use protocol::message::task::ShutDownFramework;
use runtime::prelude::*;

/// SPEC 5.2.
#[test]
fn registration_is_retried_with_backoff() {
    let behavior = MasterBehavior {
        not_now: 6,
        ..MasterBehavior::default()
    };
    world(
        FixtureOptions {
            behavior,
            ..FixtureOptions::default()
        },
        |world| async move {
            world.advance(70).await;
            let received = world.master.received.lock().unwrap();
            let times: Vec<f64> = received
                .registrations
                .iter()
                .map(|(at, _)| at.as_secs_f64())
                .collect();
            assert_eq!(times.len(), 7, "six refusals and an admission: {times:?}");
            for (number, pause) in times.windows(2).map(|pair| pair[1] - pair[0]).enumerate() {
                let longest = f64::from(1_u32 << number).min(60.0);
                assert!(
                    pause > longest * 0.49 && pause < longest + 0.1,
                    "pause {number} is {pause}"
                );
            }
        },
    );
}

/// SPEC 5.2.
// Covers S131.
#[test]
fn agent_reregisters_after_lost_link_and_silence() {
    world(FixtureOptions::default(), |world| async move {
        world.master.run(vec![single("t")]);
        world.settle().await;
        world.network.sever("agent", "master");
        world.advance(10).await;
        assert_eq!(world.master.registrations(), 1);
        world.network.heal("agent", "master");
        world.advance(60).await;
        assert_eq!(world.master.registrations(), 2);
        {
            let received = world.master.received.lock().unwrap();
            let again = &received.registrations[1].1;
            assert_eq!(again.agent.id, Some(agent_id()));
            assert_eq!(
                (again.held.tasks.len(), again.held.tasks[0].state),
                (1, TaskState::Staging)
            );
            assert_eq!(again.held.frameworks, [framework()]);
        }
        // Pings keep the master; without them it is given up after 75 s.
        for _ in 0..4 {
            world.advance(15).await;
            world.master.ping(true).await;
        }
        assert_eq!(world.master.registrations(), 2);
        world.advance(74).await;
        assert_eq!(world.master.registrations(), 2);
        world.advance(3).await;
        assert_eq!(world.master.registrations(), 3);
        world.master.ping(false).await;
        world.advance(2).await;
        assert_eq!(
            world.master.registrations(),
            4,
            "a master that regards it as disconnected gets a registration"
        );
    });
}

/// A failover without handshakes.
// Covers P7.
#[test]
fn agent_keeps_links_to_all_masters() {
    let standbys = vec!["standby"];
    let options = FixtureOptions {
        standbys,
        ..FixtureOptions::default()
    };
    world(options, |world| async move {
        let linked = || {
            let peers = world.node.peers();
            let names = peers.iter().map(|peer| peer.node.name().to_owned());
            names.filter(|name| name != "agent").collect::<Vec<_>>()
        };
        world.advance(8).await;
        assert_eq!(linked(), ["master", "standby"]);
        world.network.sever("agent", "standby");
        world.advance(30).await;
        assert_eq!(linked(), ["master"]);
        world.network.heal("agent", "standby");
        world.advance(90).await;
        world.master.ping(true).await;
        assert_eq!(linked(), ["master", "standby"]);
    });
}

/// A dead master's link fails only when its next process answers: the message is repeated, and that
/// process closes the link.
#[test]
fn former_leader_gets_a_message_to_detect_dead_link() {
    let options = FixtureOptions {
        standbys: vec!["standby"],
        ..first_of_term_five()
    };
    world(options, |world| async move {
        world.settle().await;
        let next = second(&world, leads_under(6));
        let old = world.master.node.clone();
        let received = || old.links().iter().map(|link| link.frames_delivered).sum();
        world.advance(5).await;
        let before: u64 = received();
        world.advance(5).await;
        assert_eq!(received(), before, "an agent with a master is silent");
        announce(&world, &next, "second", 6).await;
        assert_eq!((next.registrations(), received()), (1, before + 1));
    });
}

/// A lost link is dialled again within three seconds, unless its master is unreachable.
// Covers P7.
#[test]
fn restarted_master_is_linked_before_it_leads() {
    let options = FixtureOptions {
        standbys: vec!["standby"],
        ..FixtureOptions::default()
    };
    world(options, |world| async move {
        let linked = || {
            let peers = world.node.peers();
            peers.iter().any(|peer| peer.node.name() == "standby")
        };
        world.advance(8).await;
        for _ in 0..10 {
            assert!(linked());
            world.network.sever("agent", "standby");
            world.network.heal("agent", "standby");
            world.advance(3).await;
        }
        assert!(linked());
    });
}

/// A new leader that answers "not now" a number of times, counted in `asked`.
struct NotReadyLeader {
    not_now: usize,
    asked: Arc<AtomicUsize>,
}

impl Actor for NotReadyLeader {
    type Context = Context<Self>;
}

impl Process for NotReadyLeader {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<ReregisterAgent>(&[Role::Agent]);
    }
}

impl Handler<ReregisterAgent> for NotReadyLeader {
    type Result = MessageResult<ReregisterAgent>;
    fn handle(&mut self, back: ReregisterAgent, _: &mut Context<Self>) -> Self::Result {
        let hesitates = self.asked.fetch_add(1, Ordering::Relaxed) < self.not_now;
        MessageResult(match back.agent.id {
            Some(id) if !hesitates => {
                let mut welcome = welcome(id);
                welcome.master.term = 2;
                Ok(Reregistered::Registered(welcome))
            }
            _ => Err(RegistrationRefused::NotNow {
                reason: "the master is reading its registry".into(),
            }),
        })
    }
}

/// S131: the others do not lead, and one of them may be dead without being known to be.
#[test]
fn new_leader_is_retried_before_others() {
    world(FixtureOptions::default(), |world| async move {
        world.settle().await;
        let next = world.network.node("next", Role::Master, &[Role::Agent]);
        let asked = Arc::new(AtomicUsize::new(0));
        let hesitant = NotReadyLeader {
            not_now: 5,
            asked: asked.clone(),
        };
        next.spawn("master", hesitant).unwrap();
        let agent = next.find("agent", "agent", Duration::from_secs(1)).await;
        let leads = LeaderAnnounced {
            address: "next".into(),
            term: 2,
        };
        next.tell(&agent.unwrap(), leads).unwrap();
        world.advance(1).await;
        assert_eq!(asked.load(Ordering::Relaxed), 6);
        world.advance(60).await;
        assert_eq!(asked.load(Ordering::Relaxed), 6, "it stays with it");
        assert_eq!(world.master.registrations(), 1);
    });
}

/// The discovery actor of a follower: names the leader that the test has set.
struct DiscoveryActor(Arc<Mutex<LeaderAnnounced>>);

impl Actor for DiscoveryActor {
    type Context = Context<Self>;
}

impl Process for DiscoveryActor {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<AwaitLeader>(&[Role::Agent]);
    }
}

impl Handler<AwaitLeader> for DiscoveryActor {
    type Result = MessageResult<AwaitLeader>;
    fn handle(&mut self, _: AwaitLeader, _: &mut Context<Self>) -> Self::Result {
        MessageResult(self.0.lock().unwrap().clone())
    }
}

/// The configured list is unchanged: a learned master is tried first after a lost link, then the
/// configured ones.
// Covers W6.
#[test]
fn follower_redirects_agent_to_the_leader() {
    let options = FixtureOptions {
        given: "follower",
        ..first_of_term_five()
    };
    world(options, |world| async move {
        let roles = [Role::Agent, Role::Master];
        let follower = world.network.node("follower", Role::Master, &roles);
        let leader = |address: &str, term| LeaderAnnounced {
            address: address.to_owned(),
            term,
        };
        let says = Arc::new(Mutex::new(leader("master", 5)));
        follower
            .spawn("office", DiscoveryActor(says.clone()))
            .unwrap();
        world.advance(2).await;
        assert_eq!(world.master.registrations(), 1);

        world.network.leave("follower");
        world.network.sever("agent", "master");
        world.network.heal("agent", "master");
        world.advance(2).await;
        assert_eq!(world.master.registrations(), 2, "no redirect is needed");

        world.network.join(&follower, "follower");
        world.network.leave("master");
        let next = second(&world, leads_under(6));
        *says.lock().unwrap() = leader("second", 6);
        world.advance(5).await;
        assert_eq!(next.registrations(), 1);
        assert_eq!(metric(&world, "slave/master_term").await, 6.0);
    });
}

fn leads_under(term: u64) -> MasterBehavior {
    MasterBehavior {
        term,
        ..MasterBehavior::default()
    }
}

fn first_of_term_five() -> FixtureOptions {
    FixtureOptions {
        behavior: leads_under(5),
        ..FixtureOptions::default()
    }
}

/// Another master, at the address `second`.
fn second(world: &World, behavior: MasterBehavior) -> Master {
    let node = world.network.node("second", Role::Master, &[Role::Agent]);
    Master::start(&node, behavior)
}

/// This master announces a leader, wherever the agent is registered.
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
    world.launcher.launched.lock().unwrap().len()
}

/// S131: any late message of a deposed leader.
// Covers S131.
#[test]
fn deposed_master_is_refused_and_informed() {
    world(first_of_term_five(), |world| async move {
        world.master.run(vec![single("steady")]);
        world.settle().await;
        let (_executor, script) = world.executor(0).await;
        let next = second(&world, leads_under(6));
        announce(&world, &next, "second", 6).await;
        assert_eq!(next.registrations(), 1, "it left the old one at once");
        let received = world.master.received.lock().unwrap().updates.len();

        world.master.run(vec![single("late")]);
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
        assert_eq!(script.received(), ["subscribed steady", "launch steady"]);
        assert_eq!(
            (next.registrations(), world.master.registrations()),
            (1, 1),
            "the agent stays where it is"
        );
        {
            let old = world.master.received.lock().unwrap();
            assert_eq!(old.terms_seen, [6], "it is informed once");
            assert_eq!(old.updates.len(), received);
        }
        assert_eq!(metric(&world, "slave/master_messages_refused").await, 7.0);
        assert_eq!(metric(&world, "slave/master_term").await, 6.0);

        next.run(vec![single("next")]);
        next.kill("steady");
        world.settle().await;
        assert_eq!(launched(&world), 2);
        assert_eq!(next.last("steady").unwrap().status.state, TaskState::Killed);
    });
}

#[test]
fn announcement_applies_only_for_a_later_term() {
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

/// The answering master must confirm its lead, for which it needs a majority.
#[test]
fn registration_names_the_newest_term_seen() {
    world(first_of_term_five(), |world| async move {
        let next = second(&world, leads_under(6));
        announce(&world, &next, "second", 6).await;
        assert_eq!(next.registrations(), 1);
        world.network.leave("second");
        world.advance(10).await;
        let received = world.master.received.lock().unwrap();
        let seen: Vec<u64> = received
            .registrations
            .iter()
            .map(|(_, all)| all.term_seen)
            .collect();
        assert_eq!(seen, [0, 6]);
        assert_eq!(received.returns[0].term_seen, 6);
    });
}

/// Sent before the agent knew the new leader; the answer arrives afterwards.
#[test]
fn answer_of_an_overtaken_master_is_ignored() {
    let behavior = MasterBehavior {
        compares_by_hand: true,
        ..leads_under(5)
    };
    let options = FixtureOptions {
        behavior,
        ..FixtureOptions::default()
    };
    world(options, |world| async move {
        world.master.ping(false).await;
        world.advance(2).await;
        assert_eq!(world.master.received.lock().unwrap().waiting.len(), 1);
        let next = second(&world, leads_under(6));
        announce(&world, &next, "second", 6).await;
        assert_eq!(next.registrations(), 1);
        let mut welcome = welcome(agent_id());
        welcome.master.term = 5;
        world.master.answer(Reregistered::Registered(welcome));
        world.settle().await;
        world.master.run(vec![single("late")]);
        next.run(vec![single("next")]);
        world.settle().await;
        let launched = world.launcher.launched.lock().unwrap();
        assert_eq!(launched[0].environment["MESOS_EXECUTOR_ID"], "next");
        assert_eq!(launched.len(), 1);
    });
}
