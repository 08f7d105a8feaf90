//! An agent and its masters: how it comes to one, comes back, and follows the next; what a deposed one says starts nothing and ends
//! nothing (DESIGN 5).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers may fall like the test"
)]

mod common;
mod stage;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use protocol::TaskState;
use protocol::message::registration::{
    AwaitLeader, DisownTasks, LeaderAnnounced, RegistrationRefused, ReregisterAgent, Reregistered,
    ShutDownAgent,
};
use protocol::message::task::ShutDownFramework;
use runtime::prelude::*;
use stage::*;

/// SPEC 5.2.
#[test]
fn registration_is_tried_again_with_growing_pauses() {
    let manners = Manners {
        not_now: 6,
        ..Manners::default()
    };
    world(
        Cast {
            manners,
            ..Cast::default()
        },
        |world| async move {
            world.advance(70).await;
            let heard = world.master.heard.lock().unwrap();
            let times: Vec<f64> = heard
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
#[test]
fn an_agent_comes_back_with_its_id_and_tasks_after_a_lost_link_and_after_silence() {
    world(Cast::default(), |world| async move {
        world.master.run(vec![shell("t")]);
        world.settle().await;
        world.network.sever("agent", "master");
        world.advance(10).await;
        assert_eq!(world.master.registrations(), 1);
        world.network.heal("agent", "master");
        world.advance(60).await;
        assert_eq!(world.master.registrations(), 2);
        {
            let heard = world.master.heard.lock().unwrap();
            let again = &heard.registrations[1].1;
            assert_eq!(again.agent.id, Some(agent_id()));
            assert_eq!(
                (again.held.tasks.len(), again.held.tasks[0].state),
                (1, TaskState::Staging)
            );
            assert_eq!(again.held.frameworks, [framework()]);
        }
        // Pings keep it; without them it looks for a master after 75 s.
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
            "a master that does not hold it for connected is told again"
        );
    });
}

/// A failover in which nobody needs a handshake.
#[test]
fn an_agent_keeps_a_link_to_each_master_and_dials_one_again_that_was_lost() {
    let standbys = vec!["standby"];
    let cast = Cast {
        standbys,
        ..Cast::default()
    };
    world(cast, |world| async move {
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

/// Of a dead one nothing comes back before its next life is there: what was said is said again, and lets that one end the link.
#[test]
fn a_master_that_leads_no_more_is_told_something_so_that_its_link_is_found_dead_if_it_is() {
    let cast = Cast {
        standbys: vec!["standby"],
        ..first_of_term_five()
    };
    world(cast, |world| async move {
        world.settle().await;
        let next = second(&world, leads_under(6));
        let old = world.master.node.clone();
        let heard = || old.links().iter().map(|link| link.frames_delivered).sum();
        world.advance(5).await;
        let before: u64 = heard();
        world.advance(5).await;
        assert_eq!(heard(), before, "an agent with a master is silent");
        announce(&world, &next, "second", 6).await;
        assert_eq!((next.registrations(), heard()), (1, before + 1));
    });
}

/// A link that was lost is dialled again within three seconds, unless its master cannot be reached.
#[test]
fn a_restarted_master_has_its_links_again_before_it_may_come_to_lead() {
    let cast = Cast {
        standbys: vec!["standby"],
        ..Cast::default()
    };
    world(cast, |world| async move {
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

/// A new leader that says not now so often, counted in `asked`.
struct Hesitant {
    not_now: usize,
    asked: Arc<AtomicUsize>,
}

impl Actor for Hesitant {
    type Context = Context<Self>;
}

impl Process for Hesitant {
    fn hears(ears: &mut Ears<Self>) {
        ears.hear::<ReregisterAgent>(&[Role::Agent]);
    }
}

impl Handler<ReregisterAgent> for Hesitant {
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

/// S131: the others do not lead, and one of them may be dead and not known to be.
#[test]
fn a_new_leader_that_says_not_now_is_asked_again_soon_and_before_any_other() {
    world(Cast::default(), |world| async move {
        world.settle().await;
        let next = world.network.node("next", Role::Master, &[Role::Agent]);
        let asked = Arc::new(AtomicUsize::new(0));
        let hesitant = Hesitant {
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

/// Who tells, at a master that does not lead, who does: the newest that the story has named.
struct Office(Arc<Mutex<LeaderAnnounced>>);

impl Actor for Office {
    type Context = Context<Self>;
}

impl Process for Office {
    fn hears(ears: &mut Ears<Self>) {
        ears.hear::<AwaitLeader>(&[Role::Agent]);
    }
}

impl Handler<AwaitLeader> for Office {
    type Result = MessageResult<AwaitLeader>;
    fn handle(&mut self, _: AwaitLeader, _: &mut Context<Self>) -> Self::Result {
        MessageResult(self.0.lock().unwrap().clone())
    }
}

/// The list stays what it was: a master that the agent has only learned of is tried first when its link is lost, and then those given.
#[test]
fn an_agent_that_is_given_only_a_master_that_does_not_lead_is_led_to_the_one_that_does() {
    let cast = Cast {
        given: "follower",
        ..first_of_term_five()
    };
    world(cast, |world| async move {
        let roles = [Role::Agent, Role::Master];
        let follower = world.network.node("follower", Role::Master, &roles);
        let leader = |address: &str, term| LeaderAnnounced {
            address: address.to_owned(),
            term,
        };
        let says = Arc::new(Mutex::new(leader("master", 5)));
        follower.spawn("office", Office(says.clone())).unwrap();
        world.advance(2).await;
        assert_eq!(world.master.registrations(), 1);

        world.network.leave("follower");
        world.network.sever("agent", "master");
        world.network.heal("agent", "master");
        world.advance(2).await;
        assert_eq!(
            world.master.registrations(),
            2,
            "it needs nobody to lead it"
        );

        world.network.join(&follower, "follower");
        world.network.leave("master");
        let next = second(&world, leads_under(6));
        *says.lock().unwrap() = leader("second", 6);
        world.advance(5).await;
        assert_eq!(next.registrations(), 1);
        assert_eq!(metric(&world, "slave/master_term").await, 6.0);
    });
}

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
