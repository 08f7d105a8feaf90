//! The guarantees of links between actors (SPEC 6.1: link): exactly one `Exited` for each, after
//! any end, and never one about another actor. The transport detects a silent partition: see its
//! test `a_peer_that_dies_without_a_word_is_exited_once_after_the_idle_timeout`.

use bytes::BytesMut;

use crate::testing::memory::Network;
use crate::testing::{simulate, simulate_network};
use crate::tests::*;
use crate::wire::frame::{Frame, Target};
use crate::{Dialled, Outgoing};

/// An end of the watched actor, or of the way to it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Stops,
    StopsNow,
    Falls,
    FallsAndIsRestarted,
    ItsNodeShutsDown,
    TheyAreSevered,
    ItsNodeDies,
    ItsNodeConnectsAgain,
}

/// Links, ends the actor, and then causes every event that might notify a second time; returns the
/// notifications.
async fn heard(network: &Network, end: End, remotely: bool) -> Vec<String> {
    let there = network.node("there", Role::Agent, &Role::ALL);
    let here = match remotely {
        true => network.node("here", Role::Master, &Role::ALL),
        false => there.clone(),
    };
    let policy = match end {
        End::FallsAndIsRestarted => Supervision::Restart {
            backoff: SECOND,
            backoff_max: SECOND,
            limit: 1,
        },
        _ => Supervision::Stop,
    };
    let it = there.supervise("it", policy, Diarist::default).unwrap();
    let pid = match remotely {
        true => here.find("there", "it", SECOND).await.unwrap(),
        false => it.pid(),
    };
    let diary = Diary::default();
    let watcher = here.spawn("watcher", Diarist::new(&diary)).unwrap();
    watcher.tell(Watch(pid.clone())).unwrap();
    watcher.tell(Watch(pid.clone())).unwrap();
    here.clock().settle().await;
    match end {
        End::Stops => it.stop(),
        End::StopsNow => there.stop_now(&pid),
        End::Falls | End::FallsAndIsRestarted => it.tell(Fall).unwrap(),
        End::ItsNodeShutsDown => there.shutdown().await,
        End::TheyAreSevered => network.sever("here", "there"),
        End::ItsNodeDies => network.leave("there"),
        End::ItsNodeConnectsAgain => {
            // Both ends at once, as when only one of them has noticed a lost connection.
            let hello = |node: &Node| crate::Hello::decode(&node.hello()).unwrap();
            let peer = Peer {
                node: there.id().clone(),
                role: there.role(),
                address: "there".into(),
            };
            let again = here.attach(peer, hello(&there), crate::Dialled::ByUs);
            drop(again.unwrap());
        }
    }
    here.clock().advance(5 * SECOND).await;
    network.heal("here", "there");
    if let Ok(peer) = here.connect("there").await
        && let Ok(again) = here.find("there", "it", SECOND).await
    {
        assert_eq!((again.node(), peer.role), (there.id(), Role::Agent));
        let _ = here.tell(&again, Fall);
    }
    here.clock().advance(5 * SECOND).await;
    network.sever("here", "there");
    there.stop_now(&pid);
    here.clock().advance(5 * SECOND).await;
    read(&diary)
}

// Covers 6.1 link.
#[test]
fn any_end_is_notified_exactly_once() {
    for (end, told, everywhere) in [
        (End::Stops, "it stopped", true),
        (End::StopsNow, "it stopped", true),
        (End::Falls, "it panicked: told to fall", true),
        (End::FallsAndIsRestarted, "it panicked: told to fall", true),
        (End::ItsNodeShutsDown, "it stopped", false),
        (End::TheyAreSevered, "it node lost: severed", false),
        (End::ItsNodeDies, "it node lost: connection lost", false),
        (
            End::ItsNodeConnectsAgain,
            "it node lost: the peer connected again",
            false,
        ),
    ] {
        for remotely in [true, false]
            .into_iter()
            .filter(|remotely| *remotely || everywhere)
        {
            let heard =
                simulate_network(|network| async move { heard(&network, end, remotely).await });
            assert_eq!(heard, [told], "{end:?} remotely: {remotely}");
        }
    }
}

// Covers 6.1 link.
#[test]
fn restarted_node_is_independent_of_the_old_one() {
    simulate_network(|network| async move {
        let master = network.node("master", Role::Master, &Role::ALL);
        let start = |seed| {
            let builder = crate::testing::node("agent").seed(seed);
            let node = builder.role(Role::Agent).accepts(&Role::ALL).build();
            network.join(&node, "agent");
            let it = node.spawn("it", Diarist::default()).unwrap();
            (node, it)
        };
        let diary = Diary::default();
        let watcher = master.spawn("watcher", Diarist::new(&diary)).unwrap();
        let (first_node, _first) = start(1);
        let old = master.find("agent", "it", SECOND).await.unwrap();
        watcher.tell(Watch(old.clone())).unwrap();
        master.clock().settle().await;
        // The same incarnation number, so only the epoch differs.
        network.leave("agent");
        let (second_node, second) = start(2);
        let new = master.find("agent", "it", SECOND).await.unwrap();
        assert_eq!(
            (old.name(), old.incarnation()),
            (new.name(), new.incarnation())
        );
        assert_ne!(old, new);
        watcher.tell(Watch(new.clone())).unwrap();
        first_node.stop_now(&old);
        first_node.shutdown().await;
        master.clock().advance(SECOND).await;
        assert_eq!(read(&diary), ["it node lost: connection lost"]);
        assert_eq!(master.tell(&old, Note(1)), Err(TellError::Gone));
        assert_eq!(
            master.ask(&old, Count(1), SECOND).await,
            Err(AskError::Gone)
        );
        assert_eq!(master.ask(&new, Count(1), SECOND).await, Ok(1));
        second.stop();
        master.clock().advance(SECOND).await;
        assert_eq!(read(&diary)[1..], ["it stopped"]);
        drop(second_node);
    });
}

#[test]
fn link_to_an_ended_incarnation_is_notified_at_once() {
    for remotely in [false, true] {
        simulate_network(|network| async move {
            let there = network.node("there", Role::Agent, &Role::ALL);
            let here = match remotely {
                true => network.node("here", Role::Master, &Role::ALL),
                false => there.clone(),
            };
            if remotely {
                here.connect("there").await.unwrap();
            }
            let first = there.spawn("it", Diarist::default()).unwrap();
            first.stop();
            here.clock().settle().await;
            let second = there.spawn("it", Diarist::default()).unwrap();
            let diary = Diary::default();
            let watcher = here.spawn("watcher", Diarist::new(&diary)).unwrap();
            watcher.tell(Watch(first.pid())).unwrap();
            watcher.tell(Watch(second.pid())).unwrap();
            here.clock().settle().await;
            assert_eq!(read(&diary), ["it no such process"]);
            second.stop();
            here.clock().settle().await;
            assert_eq!(read(&diary)[1..], ["it stopped"]);
        });
    }
}

#[test]
fn links_end_with_their_incarnation() {
    simulate(|node| async move {
        let policy = Supervision::Restart {
            backoff: SECOND,
            backoff_max: SECOND,
            limit: 1,
        };
        let diary = Diary::default();
        let written = diary.clone();
        let make = move || Diarist::new(&written);
        let watcher = node.supervise("watcher", policy, make).unwrap();
        let [one, other] =
            ["one", "other"].map(|name| node.spawn(name, Diarist::default()).unwrap());
        watcher.tell(Watch(one.pid())).unwrap();
        watcher.tell(Fall).unwrap();
        node.clock().advance(2 * SECOND).await;
        watcher.tell(Watch(other.pid())).unwrap();
        node.clock().settle().await;
        one.stop();
        other.stop();
        node.clock().settle().await;
        assert_eq!(read(&diary), ["other stopped"]);
    });
}

#[test]
fn self_links_and_mutual_links_end_cleanly() {
    simulate(|node| async move {
        let diaries = [Diary::default(), Diary::default()];
        let [one, other] = diaries
            .each_ref()
            .map(|diary| node.spawn_unnamed("it", Diarist::new(diary)).unwrap());
        one.tell(Watch(one.pid())).unwrap();
        one.tell(Watch(other.pid())).unwrap();
        other.tell(Watch(one.pid())).unwrap();
        node.clock().settle().await;
        one.stop();
        node.clock().settle().await;
        other.stop();
        node.clock().settle().await;
        assert_eq!(
            diaries.map(|diary| read(&diary)),
            [vec![], vec!["it(1) stopped".to_owned()]]
        );
        assert!(node.processes().is_empty());
    });
}

#[test]
fn crossing_connection_reports_losses_once() {
    for watcher_is_low in [true, false] {
        simulate_network(|network| async move {
            let low = network.node("low", Role::Master, &Role::ALL);
            let upper = network.node("upper", Role::Agent, &Role::ALL);
            let [(here, _), (there, address)] = match watcher_is_low {
                true => [(&low, "low"), (&upper, "upper")],
                false => [(&upper, "upper"), (&low, "low")],
            };
            upper.connect("low").await.unwrap();
            let it = there.spawn("it", Diarist::default()).unwrap();
            let diary = Diary::default();
            let watcher = here.spawn("watcher", Diarist::new(&diary)).unwrap();
            let pid = here.find(address, "it", SECOND).await.unwrap();
            watcher.tell(Watch(pid.clone())).unwrap();
            here.clock().settle().await;
            // Of two crossing connections, the one dialled by the lower node stays. This one is in
            // use already.
            network.join(&upper, "upper, again");
            low.connect("upper, again").await.unwrap();
            here.clock().settle().await;
            let took_over = "it node lost: another connection took over";
            assert_eq!(
                (read(&diary), low.peers().len()),
                (vec![took_over.into()], 1)
            );
            watcher.tell(Watch(pid)).unwrap();
            here.clock().settle().await;
            it.stop();
            here.clock().settle().await;
            assert_eq!(read(&diary)[1..], ["it stopped"]);
        });
    }
}

#[test]
fn watch_survives_a_crossing_connection() {
    simulate(|node| async move {
        let it = node.spawn("it", Diarist::default()).unwrap();
        let peer = crate::tests::hostile::peer("lower", 1);
        let hello = crate::tests::hostile::hello(&peer);
        let link = |to: &Pid| crate::tests::hostile::plain(&Frame::Link(Target::of(to)));
        let first = node
            .attach(peer.clone(), hello.clone(), Dialled::ByUs)
            .unwrap();
        first.deliver(&mut link(&it.pid())).unwrap();
        let second = node.attach(peer, hello, Dialled::ByThem).unwrap();
        assert_eq!(first.closed().await, "superseded by another connection");
        second.deliver(&mut link(&it.pid())).unwrap();
        it.stop();
        node.clock().settle().await;
        let mut told = BytesMut::new();
        let outgoing = second.outgoing(Lane::Ordinary, &mut told, 10_000).await;
        assert_eq!(outgoing, Outgoing::Batch);
        let exited = crate::tests::hostile::plain(&Frame::Exited {
            of: Target::of(&it.pid()),
            reason: Exit::Stopped,
        });
        assert_eq!(told, exited);
    });
}
