//! The decisions of an empty directory.

use testkit::assert_matches;

use super::*;

const FIVE: [&str; 5] = ["a", "b", "c", "d", "e"];

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// The decision of the first founder, after these answers of the others in order.
fn decision(founders: usize, answers: &[Option<Introduced>]) -> BootstrapDecision {
    let list = names(&FIVE[..founders]);
    let mut introductions = Introductions::new("a", &list, 7);
    for (name, answer) in list[1..].iter().zip(answers) {
        if let Some(answer) = answer {
            introductions.answered(name.clone(), answer.clone());
        }
    }
    introductions.decision()
}

fn founds(decision: &BootstrapDecision) -> bool {
    matches!(
        decision,
        BootstrapDecision::Begin {
            first: InitialState::Founding(..),
            ..
        }
    )
}

fn empty(founders: usize) -> Option<Introduced> {
    let group = group_of(&names(&FIVE[..founders]));
    Some(Introduced::Empty { group })
}

fn untouched(founders: usize) -> Option<Introduced> {
    let group = group_of(&names(&FIVE[..founders]));
    Some(Introduced::Untouched { group })
}

#[test]
fn founding_quorum_meets_every_majority() {
    // Any majority with this member and any set of others that allows founding have a common
    // member.
    for founders in 1..=9_usize {
        let others = founders - 1;
        let accomplices = (founders / 2 + 1) - 1;
        let needed = needed(founders);
        assert!(needed <= others);
        assert!(
            accomplices == 0 || needed + accomplices > others,
            "{founders} founders"
        );
    }
}

#[test]
fn founding_needs_enough_untouched_founders() {
    assert!(founds(&decision(1, &[])));
    assert!(!founds(&decision(3, &[empty(3), None])));
    assert!(founds(&decision(3, &[empty(3), untouched(3)])));
    assert!(founds(&decision(5, &[None, empty(5), empty(5), empty(5)])));
    assert!(!founds(&decision(5, &[None, None, empty(5), empty(5)])));
}

#[test]
fn founders_of_one_list_make_one_group() {
    let mut identities = Vec::new();
    let orders = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]];
    for (me, order) in ["a", "b", "c"].iter().zip(orders) {
        let mut introductions = Introductions::new(me, &names(&order), 7);
        for other in introductions.addresses_to_ask() {
            let group = introductions.group();
            introductions.answered(other, Introduced::Empty { group });
        }
        let BootstrapDecision::Begin { identity, first } = introductions.decision() else {
            panic!("{me} does not found");
        };
        identities.push((identity.id, identity.group, first));
    }
    assert_eq!(
        identities.iter().map(|one| one.0).collect::<Vec<_>>(),
        [1, 2, 3]
    );
    assert!(
        identities
            .iter()
            .all(|one| one.1 == identities[0].1 && one.2 == identities[0].2)
    );
    assert_ne!(group_of(&names(&["ab"])), group_of(&names(&["a", "b"])));
}

#[test]
fn each_directory_of_a_lone_founder_is_its_own_group() {
    for initial in [&[][..], &["a"]] {
        for mark in [7, 8] {
            let alone = Introductions::new("a", &names(initial), mark);
            assert!(alone.addresses_to_ask().is_empty());
            let BootstrapDecision::Begin { identity, .. } = alone.decision() else {
                panic!("it does not found");
            };
            let (id, group) = (1, mark);
            assert_eq!(identity, Identity { id, group });
        }
    }
}

#[test]
fn running_group_prevents_founding() {
    let running = Some(Introduced::Running { leader: None });
    let found = decision(5, &[empty(5), empty(5), empty(5), running]);
    assert_eq!(
        found,
        BootstrapDecision::Wait {
            reason: "the group at e is running: waiting for its leader".to_owned()
        }
    );
}

#[test]
fn reported_leader_is_asked() {
    let mut introductions = Introductions::new("x", &names(&["a"]), 7);
    let leader = Some("far".to_owned());
    introductions.answered("a".to_owned(), Introduced::Running { leader });
    assert_eq!(
        introductions.addresses_to_ask(),
        BTreeSet::from(["a".into(), "far".into()])
    );
}

#[test]
fn admitted_member_starts_with_a_vote_for_its_leader() {
    let admitted = |id, term, leader| {
        Some(Introduced::Admitted {
            id,
            group: 9,
            term,
            leader,
        })
    };
    let BootstrapDecision::Begin { identity, first } = decision(3, &[None, admitted(4, 6, 2)])
    else {
        panic!("it does not begin");
    };
    assert_eq!(identity, Identity { id: 4, group: 9 });
    let InitialState::Vote(write) = first else {
        panic!("it founds");
    };
    let hard = write.hard.unwrap();
    assert_eq!((hard.term, hard.vote, hard.commit), (6, 2, 0));
    for nonsense in [
        admitted(0, 6, 2),
        admitted(4, 0, 2),
        admitted(4, u64::MAX, 2),
        admitted(2, 6, 2),
    ] {
        assert_matches!(
            decision(3, &[None, nonsense]),
            BootstrapDecision::Wait { .. }
        );
    }
}

#[test]
fn entry_taken_by_another_directory_is_refused() {
    let taken = Some(Introduced::Taken {
        reason: "lost".to_owned(),
    });
    let refused = BootstrapDecision::Refuse {
        reason: "lost".to_owned(),
    };
    assert_eq!(decision(3, &[taken, empty(3)]), refused);
}
