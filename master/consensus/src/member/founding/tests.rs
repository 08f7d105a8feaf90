//! What an empty directory concludes from what it is told.

use super::*;

const FIVE: [&str; 5] = ["a", "b", "c", "d", "e"];

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// The verdict of the first of so many founders, after these answers of the others in their order.
fn verdict(founders: usize, answers: &[Option<Acquainted>]) -> Verdict {
    let list = names(&FIVE[..founders]);
    let mut acquaintance = Acquaintance::new("a", &list);
    for (name, answer) in list[1..].iter().zip(answers) {
        if let Some(answer) = answer {
            acquaintance.heard(name.clone(), answer.clone());
        }
    }
    acquaintance.verdict()
}

fn founds(verdict: &Verdict) -> bool {
    matches!(
        verdict,
        Verdict::Begin {
            first: First::Founding(..),
            ..
        }
    )
}

fn empty(founders: usize) -> Option<Acquainted> {
    let group = group_of(&names(&FIVE[..founders]));
    Some(Acquainted::Empty { group })
}

fn untouched(founders: usize) -> Option<Acquainted> {
    let group = group_of(&names(&FIVE[..founders]));
    Some(Acquainted::Untouched { group })
}

#[test]
fn whoever_took_part_before_finds_a_trace_among_the_others_it_waits_for() {
    // Any majority with this member, and any set of others that lets it found, have somebody in common.
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
fn a_group_is_founded_when_enough_others_are_untouched() {
    assert!(founds(&verdict(1, &[])));
    assert!(!founds(&verdict(3, &[empty(3), None])));
    assert!(founds(&verdict(3, &[empty(3), untouched(3)])));
    assert!(founds(&verdict(5, &[None, empty(5), empty(5), empty(5)])));
    assert!(!founds(&verdict(5, &[None, None, empty(5), empty(5)])));
}

#[test]
fn all_founders_of_one_list_make_one_group_under_different_numbers() {
    let mut identities = Vec::new();
    let orders = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]];
    for (me, order) in ["a", "b", "c"].iter().zip(orders) {
        let mut acquaintance = Acquaintance::new(me, &names(&order));
        for other in acquaintance.to_ask() {
            let group = acquaintance.group();
            acquaintance.heard(other, Acquainted::Empty { group });
        }
        let Verdict::Begin { identity, first } = acquaintance.verdict() else {
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
fn one_that_lives_is_enough_to_found_nothing() {
    let lives = Some(Acquainted::Lives { leader: None });
    let found = verdict(5, &[empty(5), empty(5), empty(5), lives]);
    assert_eq!(
        found,
        Verdict::Wait {
            reason: "the group at e lives: waiting for its leader".to_owned()
        }
    );
}

#[test]
fn the_leader_that_is_named_is_asked_too() {
    let mut acquaintance = Acquaintance::new("x", &names(&["a"]));
    let leader = Some("far".to_owned());
    acquaintance.heard("a".to_owned(), Acquainted::Lives { leader });
    assert_eq!(
        acquaintance.to_ask(),
        BTreeSet::from(["a".into(), "far".into()])
    );
}

#[test]
fn a_seat_begins_with_the_vote_given_to_its_leader() {
    let seat = |id, term, leader| {
        Some(Acquainted::Seated {
            id,
            group: 9,
            term,
            leader,
        })
    };
    let Verdict::Begin { identity, first } = verdict(3, &[None, seat(4, 6, 2)]) else {
        panic!("it does not begin");
    };
    assert_eq!(identity, Identity { id: 4, group: 9 });
    let First::Vote(write) = first else {
        panic!("it founds");
    };
    let hard = write.hard.unwrap();
    assert_eq!((hard.term, hard.vote, hard.commit), (6, 2, 0));
    for nonsense in [
        seat(0, 6, 2),
        seat(4, 0, 2),
        seat(4, u64::MAX, 2),
        seat(2, 6, 2),
    ] {
        assert!(matches!(
            verdict(3, &[None, nonsense]),
            Verdict::Wait { .. }
        ));
    }
}

#[test]
fn a_seat_that_another_directory_has_taken_is_refused_whatever_the_others_say() {
    let taken = Some(Acquainted::Taken {
        reason: "lost".to_owned(),
    });
    let refused = Verdict::Refuse {
        reason: "lost".to_owned(),
    };
    assert_eq!(verdict(3, &[taken, empty(3)]), refused);
}
