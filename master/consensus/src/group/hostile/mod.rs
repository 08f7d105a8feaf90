//! Arbitrary packets at any time, and arbitrary logs: a member rejects them and never panics.

mod packets;
mod victim;

use proptest::prelude::*;
use testkit::assert_matches;

use self::packets::{Event, event, loaded};
use self::victim::{Victim, plain};
use crate::log::Loaded;
use crate::wire::{Message, MessageKind, Packet};

#[test]
fn acknowledgement_beyond_the_log_is_refused() {
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
    assert_matches!(refused, crate::wire::Refused::Contradiction { from: 2, .. });
    assert_eq!(victim.core.status().refused, 1);
}

#[test]
fn leader_steps_down_on_its_own_removal() {
    // As encoded: one step, of the third kind, for member 1, and no context.
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
fn single_voter_does_not_lead_with_an_unsynced_log() {
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
    fn voter_survives_any_packets(size in 1..4u64, events in prop::collection::vec(event(), 1..80)) {
        let mut victim = Victim::new((1..=size).collect(), Vec::new());
        for event in events {
            victim.happen(event);
        }
        victim.settle();
    }

    #[test]
    fn learner_survives_any_packets(events in prop::collection::vec(event(), 1..80)) {
        let mut victim = Victim::new(vec![2, 3], vec![1]);
        for event in events {
            victim.happen(event);
        }
        victim.settle();
    }

    #[test]
    fn newcomer_survives_any_packets(events in prop::collection::vec(event(), 1..80)) {
        let mut victim = Victim::loaded(Loaded::default()).unwrap();
        for event in events {
            victim.happen(event);
        }
        victim.settle();
    }

    #[test]
    fn any_log_is_refused_or_usable(loaded in loaded(), events in prop::collection::vec(event(), 0..40)) {
        if let Some(mut victim) = Victim::loaded(loaded) {
            for event in events {
                victim.happen(event);
            }
            victim.settle();
        }
    }
}
