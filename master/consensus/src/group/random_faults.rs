//! Random faults in random order: the invariants always hold, and the group recovers afterwards.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use rand::Rng as _;

use super::*;

/// An event in a run.
#[derive(Clone, Copy, Debug)]
enum Event {
    Faults(Faults),
    Propose,
    ProposeMany,
    Read,
    Fall,
    FallLeader,
    Restart,
    Start,
    Isolate,
    /// Cuts one direction between two members.
    CutOneWay,
    Rejoin,
    Transfer,
    Unreachable,
    Pass(u64),
    Learner(u64),
    Promote(u64),
    Remove(u64),
    Swap(u64, u64),
}

fn event() -> impl Strategy<Value = Event> {
    // Some disks are slower than an election, so several writes' worth waits behind each write.
    let disk = prop_oneof![3 => 0..5u64, 1 => 5..60u64];
    let faults = (0..40u32, 0..20u32, 0..6u64, disk).prop_map(|(loss, twice, delay, disk)| {
        Event::Faults(Faults {
            loss,
            twice,
            delay,
            disk,
        })
    });
    prop_oneof![
        2 => faults,
        6 => Just(Event::Propose),
        3 => Just(Event::ProposeMany),
        3 => Just(Event::Read),
        1 => Just(Event::Fall),
        1 => Just(Event::FallLeader),
        1 => Just(Event::Restart),
        2 => Just(Event::Start),
        1 => Just(Event::Isolate),
        1 => Just(Event::CutOneWay),
        2 => Just(Event::Rejoin),
        1 => Just(Event::Transfer),
        1 => Just(Event::Unreachable),
        6 => (1..25u64).prop_map(Event::Pass),
    ]
}

/// As `event`, with membership changes.
fn moving() -> impl Strategy<Value = Event> {
    let id = || 1..7u64;
    let change = prop_oneof![
        2 => id().prop_map(Event::Learner),
        2 => id().prop_map(Event::Promote),
        1 => id().prop_map(Event::Remove),
        1 => (id(), id()).prop_map(|(one, other)| Event::Swap(one, other)),
    ];
    prop_oneof![2 => event(), 1 => change]
}

impl Group {
    fn change_somehow(&mut self, change: MembershipChange) {
        if let Some(leader) = self.leader() {
            let _ = self.replica(leader).change(&change);
            self.pump(leader);
        }
    }

    fn any(&mut self) -> u64 {
        let ids: Vec<u64> = self.members.keys().copied().collect();
        ids[self.rng.random_range(0..ids.len())]
    }

    fn happen(&mut self, event: Event) {
        let (one, other) = (self.any(), self.any());
        match event {
            Event::Faults(faults) => self.faults = faults,
            Event::Propose | Event::ProposeMany => {
                let count = if matches!(event, Event::Propose) {
                    1
                } else {
                    30
                };
                if let Some(leader) = self.leader() {
                    for _ in 0..count {
                        let _ = self.propose(leader);
                    }
                    self.pump(leader);
                }
            }
            Event::Read if self.is_up(one) => self.read(one),
            Event::Fall => self.power_off(one),
            Event::FallLeader => {
                if let Some(leader) = self.leader() {
                    self.crash_countdown = Some((leader, self.rng.random_range(1..12)));
                }
            }
            Event::Restart if self.is_up(one) => self.restart(one),
            Event::Start if !self.is_up(one) => self.start(one),
            Event::Isolate => self.isolate(&[one, other]),
            Event::CutOneWay => {
                self.cut.insert((one, other));
            }
            Event::Rejoin => self.cut.clear(),
            Event::Transfer => {
                if let Some(leader) = self.leader() {
                    let _ = self.replica(leader).transfer(one);
                    self.pump(leader);
                }
            }
            Event::Unreachable if self.is_up(one) => self.replica(one).unreachable(other),
            Event::Learner(id) => {
                // Its directory already exists; it starts empty, or continues.
                self.change_somehow(MembershipChange::AddLearner(id));
            }
            Event::Promote(id) => self.change_somehow(MembershipChange::Promote(id)),
            Event::Remove(id) => self.change_somehow(MembershipChange::Remove(id)),
            Event::Swap(one, other) => self.change_somehow(MembershipChange::Swap {
                promote: vec![one],
                remove: vec![other],
            }),
            Event::Pass(ticks) => self.ticks(ticks),
            _ => {}
        }
    }
}

fn live(seed: u64, size: u64, events: &[Event]) {
    let mut group = Group::new(seed, size);
    for event in events {
        group.happen(*event);
    }
    group.settle();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn three_members_survive_any_faults(seed in any::<u64>(), events in prop::collection::vec(event(), 0..120)) {
        live(seed, 3, &events);
    }

    #[test]
    fn five_members_survive_any_faults(seed in any::<u64>(), events in prop::collection::vec(event(), 0..120)) {
        live(seed, 5, &events);
    }

    #[test]
    fn changing_members_survive_any_faults(seed in any::<u64>(), events in prop::collection::vec(moving(), 0..160)) {
        live_and_move(seed, &events);
    }
}

fn live_and_move(seed: u64, events: &[Event]) {
    let mut group = Group::new(seed, 3);
    for id in 4..7 {
        group.put(id);
        group.start(id);
    }
    for event in events {
        group.happen(*event);
    }
    group.settle();
}

/// For a longer search: `MEROS_SEEDS=20000 cargo test -p meros-consensus --release many_seeds --
/// --ignored`.
#[test]
#[ignore = "as many seeds as asked for"]
fn many_seeds() {
    let count = std::env::var("MEROS_SEEDS")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(1_000);
    for seed in 0..count {
        let mut runner = proptest::test_runner::TestRunner::new_with_rng(
            ProptestConfig::default(),
            proptest::test_runner::TestRng::from_seed(
                proptest::test_runner::RngAlgorithm::ChaCha,
                &{
                    let mut bytes = [0; 32];
                    bytes[..8].copy_from_slice(&u64::to_be_bytes(seed));
                    bytes
                },
            ),
        );
        let moves = seed % 3 == 2;
        let events = prop::collection::vec(
            if moves {
                moving().boxed()
            } else {
                event().boxed()
            },
            20..160,
        )
        .new_tree(&mut runner)
        .unwrap()
        .current();
        let result = std::panic::catch_unwind(|| {
            if moves {
                live_and_move(seed, &events)
            } else {
                live(seed, 3 + 2 * (seed % 2), &events)
            }
        });
        assert!(result.is_ok(), "seed {seed}");
    }
}
