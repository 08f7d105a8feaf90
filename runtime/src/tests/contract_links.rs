//! What is promised of links between actors (SPEC 6.1: link): exactly one `Exited` for each, whatever ends it, and never one
//! that is about somebody else. A silent partition is noticed by the transport: see its test
//! `a_peer_that_dies_without_a_word_is_exited_once_after_the_idle_timeout`.

use std::collections::{BTreeMap, BTreeSet};

use bytes::BytesMut;
use proptest::prelude::*;

use super::*;
use crate::frame::{Frame, Target};
use crate::memory::Network;
use crate::rehearsal::{rehearse, rehearse_network};
use crate::watch::{Change, Watcher, Watches};
use crate::{Dialled, NodeId, Outgoing};

/// What can end the one who is watched, or the way to it.
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

/// Links, lets it end, and lets everything happen afterwards that might tell it once more; gives what the watcher heard.
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
            // Both ends at once, as when a connection was lost that only one of them has noticed.
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

#[test]
fn a_link_is_told_of_an_end_exactly_once_whatever_the_end_is() {
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
                rehearse_network(|network| async move { heard(&network, end, remotely).await });
            assert_eq!(heard, [told], "{end:?} remotely: {remotely}");
        }
    }
}

#[test]
fn a_node_that_comes_back_under_a_new_epoch_is_another_and_the_old_end_says_nothing_of_it() {
    rehearse_network(|network| async move {
        let master = network.node("master", Role::Master, &Role::ALL);
        let start = |seed| {
            let builder = crate::rehearsal::node("agent").seed(seed);
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
        // The same incarnation number, so that only the epoch tells them apart.
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
fn a_link_to_a_former_life_is_told_at_once_and_the_next_life_is_linked_by_itself() {
    for remotely in [false, true] {
        rehearse_network(|network| async move {
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
fn the_links_of_a_former_life_are_not_those_of_the_next() {
    rehearse(|node| async move {
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
fn who_links_to_itself_or_to_each_other_ends_in_peace() {
    rehearse(|node| async move {
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

/// Something that happens to the table of watches; nodes have two actors each.
#[derive(Clone, Copy, Debug)]
enum Event {
    Add(u64, u64),
    Remove(u64, u64),
    WatcherEnds(u64),
    Ends(u64),
    NodeLost(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let (watcher, target, node) = (0..4_u64, 0..6_u64, 0..3_u64);
    let event = prop_oneof![
        6 => (watcher.clone(), target.clone()).prop_map(|(watcher, target)| Event::Add(watcher, target)),
        2 => (watcher.clone(), target.clone()).prop_map(|(watcher, target)| Event::Remove(watcher, target)),
        1 => watcher.prop_map(Event::WatcherEnds),
        2 => target.prop_map(Event::Ends),
        1 => node.prop_map(Event::NodeLost),
    ];
    prop::collection::vec(event, 0..100)
}

fn pid(target: u64) -> Pid {
    Pid::new("it", NodeId::new("node", target / 2), target + 1)
}

proptest! {
    #[test]
    fn of_all_watches_those_still_there_are_told_once_and_no_other(events in events()) {
        let watches = Watches::default();
        let told: Arc<Mutex<BTreeMap<(u64, u64), u32>>> = Arc::default();
        let mut expected: BTreeMap<(u64, u64), u32> = BTreeMap::new();
        let mut model: BTreeSet<(u64, u64)> = BTreeSet::new();
        let watched = |model: &BTreeSet<(u64, u64)>, target| model.iter().any(|watch| watch.1 == target);
        for event in events {
            let ended = |model: &mut BTreeSet<(u64, u64)>, ends: &dyn Fn(u64) -> bool, expected: &mut BTreeMap<_, u32>| {
                model.retain(|watch| {
                    let stays = !ends(watch.1);
                    if !stays {
                        *expected.entry(*watch).or_default() += 1;
                    }
                    stays
                });
            };
            match event {
                Event::Add(watcher, target) => {
                    let told = told.clone();
                    let notify = Box::new(move |exited: Exited| {
                        assert_eq!(exited.pid, pid(target));
                        *crate::lock(&told).entry((watcher, target)).or_default() += 1;
                    });
                    let first = !watched(&model, target);
                    model.insert((watcher, target));
                    let change = watches.add(Watcher::Actor(watcher), pid(target), pid(target), notify);
                    prop_assert_eq!(matches!(change, Ok(Change::Edge)), first);
                }
                Event::Remove(watcher, target) => {
                    let was = model.remove(&(watcher, target));
                    let removed = watches.remove(&Watcher::Actor(watcher), &pid(target));
                    let last = was && !watched(&model, target);
                    prop_assert_eq!(removed.as_ref().is_some(), was);
                    prop_assert_eq!(removed.is_some_and(|(_, change, _)| change == Change::Edge), last);
                }
                Event::WatcherEnds(watcher) => {
                    let before: Vec<u64> = model.iter().filter(|watch| watch.0 == watcher).map(|watch| watch.1).collect();
                    model.retain(|watch| watch.0 != watcher);
                    let alone: BTreeSet<Pid> = before.into_iter().filter(|target| !watched(&model, *target)).map(pid).collect();
                    let unwatched: BTreeSet<Pid> = watches.forget(&Watcher::Actor(watcher)).into_iter().collect();
                    prop_assert_eq!(unwatched, alone);
                }
                Event::Ends(target) => {
                    ended(&mut model, &|other| other == target, &mut expected);
                    watches.ended(&pid(target), &Exit::Stopped);
                }
                Event::NodeLost(node) => {
                    ended(&mut model, &|target| target / 2 == node, &mut expected);
                    watches.node_lost(&NodeId::new("node", node), "lost");
                }
            }
            prop_assert_eq!(&*crate::lock(&told), &expected);
        }
        for node in 0..3 {
            let there: BTreeSet<Pid> = watches.targets_on(&NodeId::new("node", node)).into_iter().collect();
            let expected: BTreeSet<Pid> = model.iter().map(|watch| watch.1).filter(|target| target / 2 == node).map(pid).collect();
            prop_assert_eq!(there, expected);
        }
    }
}

#[test]
fn what_a_crossing_connection_may_have_lost_is_told_to_both_sides_once() {
    for watcher_is_low in [true, false] {
        rehearse_network(|network| async move {
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
            // Of two that cross the one stays that the lower node dialled. This one has been used already.
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
fn a_peers_link_outlives_the_connection_it_was_made_over_when_a_crossing_one_takes_over() {
    rehearse(|node| async move {
        let it = node.spawn("it", Diarist::default()).unwrap();
        let peer = super::hostile::peer("lower", 1);
        let hello = super::hostile::hello(&peer);
        let link = |to: &Pid| super::hostile::plain(&Frame::Link(Target::of(to)));
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
        let exited = super::hostile::plain(&Frame::Exited {
            of: Target::of(&it.pid()),
            reason: Exit::Stopped,
        });
        assert_eq!(told, exited);
    });
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Link,
    Settle,
    Fall,
    Sever,
    /// One of them dials, by an address of its own that may be a second one, so that dials cross.
    Connect {
        by_us: bool,
        again: bool,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => Just(Step::Link),
        3 => Just(Step::Settle),
        1 => Just(Step::Fall),
        1 => Just(Step::Sever),
        3 => any::<(bool, bool)>().prop_map(|(by_us, again)| Step::Connect { by_us, again }),
    ];
    prop::collection::vec(step, 1..60)
}

/// Writes down when it links and what it is told.
struct Linker(Diary);

impl Actor for Linker {
    type Context = Context<Self>;
}

impl Process for Linker {}

impl Handler<Watch> for Linker {
    type Result = ();
    fn handle(&mut self, Watch(pid): Watch, ctx: &mut Context<Self>) {
        crate::lock(&self.0).push(format!("links {}", pid.incarnation()));
        ctx.link(&pid);
    }
}

impl Handler<Exited> for Linker {
    type Result = ();
    fn handle(&mut self, Exited { pid, .. }: Exited, _: &mut Context<Self>) {
        crate::lock(&self.0).push(format!("told {}", pid.incarnation()));
    }
}

/// Links again and again while everything happens, until everything has ended; gives what was written.
async fn links(network: &Network, steps: &[Step]) -> Vec<String> {
    let here = network.node("here", Role::Master, &Role::ALL);
    let there = network.node("there", Role::Agent, &Role::ALL);
    network.join(&here, "here, again");
    network.join(&there, "there, again");
    let addresses =
        ["here", "here, again"].map(|one| ["there", "there, again"].map(|other| (one, other)));
    let policy = Supervision::Restart {
        backoff: Duration::ZERO,
        backoff_max: Duration::ZERO,
        limit: u32::MAX,
    };
    let it = there.supervise("it", policy, Diarist::default).unwrap();
    let diary = Diary::default();
    let linker = here.spawn("linker", Linker(diary.clone())).unwrap();
    let sever = || {
        for (one, other) in addresses.into_iter().flatten() {
            network.sever(one, other);
            network.heal(one, other);
        }
    };
    for step in steps {
        match step {
            Step::Link => linker.tell(Watch(it.pid())).unwrap(),
            Step::Settle => here.clock().settle().await,
            Step::Fall => drop(it.tell(Fall)), // It may be between two lives.
            Step::Sever => sever(),
            Step::Connect { by_us, again } => {
                let _ = match (by_us, again) {
                    (true, false) => here.connect("there").await,
                    (true, true) => here.connect("there, again").await,
                    (false, false) => there.connect("here").await,
                    (false, true) => there.connect("here, again").await,
                };
            }
        }
    }
    here.clock().settle().await;
    it.stop();
    here.clock().settle().await;
    read(&diary)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_link_is_told_in_the_end_and_never_more_often_than_it_was_made(steps in steps()) {
        let diary = rehearse_network(|network| async move { links(&network, &steps).await });
        let mut open: BTreeMap<&str, (u32, bool)> = BTreeMap::new();
        for line in &diary {
            let (what, life) = line.split_once(' ').unwrap();
            let (links, told) = open.entry(life).or_default();
            if what == "links" {
                (*links, *told) = (*links + 1, false);
            } else {
                prop_assert!(*links > 0, "told without a link: {:?}", diary);
                (*links, *told) = (*links - 1, true);
            }
        }
        prop_assert!(open.values().all(|(_, told)| *told), "never told: {:?}", diary);
    }
}
