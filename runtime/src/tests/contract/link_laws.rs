//! Properties of links (SPEC 6.1: link) under any events: every link is notified once, and no
//! removed one.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::NodeId;
use crate::actor::watch::{Change, Watcher, Watches};
use crate::testing::memory::Network;
use crate::testing::simulate_network;
use crate::tests::*;

/// An event for the table of watches; nodes have two actors each.
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
    fn remaining_watches_are_notified_exactly_once(events in events()) {
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

#[derive(Clone, Copy, Debug)]
enum Step {
    Link,
    Settle,
    Fall,
    Sever,
    /// One of them dials, from its own address or a second one, so that dials cross.
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

/// Records its links and notifications.
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

/// Links repeatedly during all events, until everything has ended; returns the record.
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
            Step::Fall => drop(it.tell(Fall)), // It may be between two incarnations.
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

    // Covers 6.1 link.
    #[test]
    fn every_link_is_notified_exactly_once(steps in steps()) {
        let diary = simulate_network(|network| async move { links(&network, &steps).await });
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
