//! Peers that say anything, at any time, and logs that hold anything: a member refuses, and never falls.

mod victim;
mod words;

use proptest::prelude::*;

use self::victim::{Victim, plain};
use self::words::{Event, event, loaded};
use crate::log::Loaded;
use crate::wire::{Message, MessageKind, Packet};

#[test]
fn a_follower_that_claims_more_than_the_leader_has_is_refused() {
    let mut victim = Victim::new(vec![1, 2, 3], Vec::new());
    victim.happen(Event::Ticks(20));
    victim.happen(Event::Elect);
    let status = victim.core.status();
    assert_eq!(status.now.role, crate::core::Role::Leader);
    let claim = Message {
        index: status.last + 1,
        ..plain(MessageKind::Appended, 2, status.now.term)
    };
    let refused = victim.core.step(2, Packet::Raft(claim)).unwrap_err();
    assert!(
        matches!(refused, crate::wire::Refused::Contradiction { from: 2, .. }),
        "{refused}"
    );
    assert_eq!(victim.core.status().refused, 1);
}

#[test]
fn a_leader_that_finds_in_its_log_that_it_was_removed_steps_down() {
    // As the codec writes it: one step, of the third kind, for member 1, and no context.
    for remove in [vec![1, 2, 1, 0], vec![2, 2, 1, 1, 4, 0]] {
        let mut victim = Victim::new(vec![1, 2, 3], Vec::new());
        victim.happen(Event::Follow(2, 0, remove));
        victim.settle();
        victim.happen(Event::Ticks(25));
        victim.happen(Event::Elect);
        assert_eq!(victim.core.status().now.role, crate::core::Role::Leader);
        for _ in 0..3 {
            victim.happen(Event::Propose);
            victim.happen(Event::Turn);
            victim.happen(Event::Accept(2));
            victim.happen(Event::Accept(3));
            victim.settle();
        }
        let status = victim.core.status();
        assert!(!status.members.voters.contains(&1));
        assert_ne!(status.now.role, crate::core::Role::Leader);
        victim.happen(Event::Ticks(100));
        victim.settle();
    }
}

#[test]
fn a_single_voter_does_not_lead_with_what_is_not_on_its_disk() {
    let mut victim = Victim::new(vec![1], Vec::new());
    victim.happen(Event::Follow(3, 1, Vec::new()));
    victim.happen(Event::HandOver(3));
    victim.happen(Event::Ticks(30));
    assert_ne!(victim.core.status().now.role, crate::core::Role::Leader);
    victim.settle();
    victim.happen(Event::Ticks(30));
    assert_eq!(victim.core.status().now.role, crate::core::Role::Leader);
}

fn cases(usual: u32) -> ProptestConfig {
    let asked = std::env::var("MEROS_HOSTILE_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok());
    ProptestConfig::with_cases(asked.unwrap_or(usual))
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn whatever_peers_say_a_voter_does_not_fall(size in 1..4u64, events in prop::collection::vec(event(), 1..80)) {
        let mut victim = Victim::new((1..=size).collect(), Vec::new());
        for event in events {
            victim.happen(event);
        }
        victim.settle();
    }

    #[test]
    fn whatever_peers_say_a_learner_does_not_fall(events in prop::collection::vec(event(), 1..80)) {
        let mut victim = Victim::new(vec![2, 3], vec![1]);
        for event in events {
            victim.happen(event);
        }
        victim.settle();
    }

    #[test]
    fn whatever_peers_say_a_newcomer_does_not_fall(events in prop::collection::vec(event(), 1..80)) {
        let mut victim = Victim::loaded(Loaded::default()).unwrap();
        for event in events {
            victim.happen(event);
        }
        victim.settle();
    }

    #[test]
    fn a_log_that_contradicts_itself_is_refused_and_any_other_can_be_lived_with(loaded in loaded(), events in prop::collection::vec(event(), 0..40)) {
        if let Some(mut victim) = Victim::loaded(loaded) {
            for event in events {
                victim.happen(event);
            }
            victim.settle();
        }
    }
}
