//! Any faults in any order: the group stays right throughout, and goes on when they end.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use rand::Rng as _;

use super::*;

/// Something happens to the group.
#[derive(Clone, Copy, Debug)]
enum Event {
    Weather(Weather),
    Propose,
    ProposeMany,
    Read,
    Fall,
    FallLeader,
    Restart,
    Start,
    Isolate,
    /// One direction between two members is cut.
    CutOneWay,
    Rejoin,
    Transfer,
    Unreachable,
    Pass(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let weather = (0..40u32, 0..20u32, 0..6u64, 0..5u64).prop_map(|(loss, twice, delay, disk)| {
        Event::Weather(Weather {
            loss,
            twice,
            delay,
            disk,
        })
    });
    prop_oneof![
        2 => weather,
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

impl Group {
    fn any(&mut self) -> u64 {
        let ids: Vec<u64> = self.members.keys().copied().collect();
        ids[self.rng.random_range(0..ids.len())]
    }

    fn happen(&mut self, event: Event) {
        let (one, other) = (self.any(), self.any());
        match event {
            Event::Weather(weather) => self.weather = weather,
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
            Event::Fall => self.fall(one),
            Event::FallLeader => {
                if let Some(leader) = self.leader() {
                    self.fuse = Some((leader, self.rng.random_range(1..12)));
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
    fn whatever_happens_to_three_nothing_acknowledged_is_lost_and_they_go_on(seed in any::<u64>(), events in prop::collection::vec(event(), 0..120)) {
        live(seed, 3, &events);
    }

    #[test]
    fn whatever_happens_to_five_nothing_acknowledged_is_lost_and_they_go_on(seed in any::<u64>(), events in prop::collection::vec(event(), 0..120)) {
        live(seed, 5, &events);
    }
}

/// For a longer search: `MEROS_SEEDS=20000 cargo test -p meros-consensus --release many_seeds -- --ignored`.
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
        let events = prop::collection::vec(event(), 20..160)
            .new_tree(&mut runner)
            .unwrap()
            .current();
        let result = std::panic::catch_unwind(|| live(seed, 3 + 2 * (seed % 2), &events));
        assert!(result.is_ok(), "seed {seed}");
    }
}
