//! The laws of the seats.

use super::*;

fn of(addresses: &[&str]) -> Roster {
    let addresses: Vec<String> = addresses.iter().map(|&one| one.to_owned()).collect();
    Roster::founding(&addresses)
}

fn reserve(roster: &mut Roster, address: &str) -> Result<u64, RosterRefused> {
    let address = address.to_owned();
    roster.apply(RosterChange::Reserve { address })
}

#[test]
fn a_seat_is_reserved_once_and_its_number_is_never_given_again() {
    let mut roster = of(&["a", "b"]);
    assert_eq!(reserve(&mut roster, "c"), Ok(3));
    assert_eq!(reserve(&mut roster, "c"), Ok(3));
    assert_eq!(roster.apply(RosterChange::Clear { id: 3 }), Ok(3));
    assert_eq!(reserve(&mut roster, "c"), Ok(4));
    assert_eq!(
        reserve(&mut roster, ""),
        Err(RosterRefused::Address(String::new()))
    );
}

#[test]
fn a_seat_is_taken_by_one_directory_only() {
    let mut roster = of(&["a"]);
    let mut take = |mark| roster.apply(RosterChange::Take { id: 1, mark });
    assert_eq!(take(7), Ok(1));
    assert_eq!(take(7), Ok(1));
    let taken = take(8).unwrap_err().to_string();
    assert!(
        taken.ends_with("Run `meros masters remove 1`, and then `meros masters add a`"),
        "{taken}"
    );
    let occupied = reserve(&mut roster, "a").unwrap_err();
    assert_eq!(occupied.to_string(), "master 1 is at a already");
    assert_eq!(
        roster.apply(RosterChange::Take { id: 2, mark: 7 }),
        Err(RosterRefused::NoSeat(2))
    );
}

#[test]
fn seats_have_a_bound() {
    let mut roster = Roster::default();
    for n in 0..SEATS_MAX {
        reserve(&mut roster, &format!("host-{n}")).unwrap();
    }
    assert_eq!(reserve(&mut roster, "one more"), Err(RosterRefused::Full));
}

#[test]
fn the_leader_notes_who_took_part_where_it_is_and_who_is_a_member_no_more() {
    let mut roster = of(&["a", "b", "c"]);
    for id in [1, 3] {
        roster.apply(RosterChange::Take { id, mark: 9 }).unwrap();
    }
    let members = Members {
        voters: vec![1, 2, 8],
        ..Members::default()
    };
    let present = [(1, "a"), (2, "b"), (8, "new")];
    let present = present.map(|(id, address)| (id, address.to_owned())).into();
    let chores = roster.chores(&members, &present);
    for change in chores {
        roster.apply(change).unwrap();
    }
    let seats: Vec<(u64, &str, u64)> = (roster.seats.iter())
        .map(|(id, seat)| (*id, seat.address.as_str(), seat.mark))
        .collect();
    assert_eq!(seats, [(1, "a", 9), (2, "b", FOUNDER), (8, "new", FOUNDER)]);
    assert_eq!(roster.highest, 8);
    assert!(roster.chores(&members, &present).is_empty());
    let twin = BTreeMap::from([(2, "a".to_owned())]);
    assert!(roster.chores(&members, &twin).is_empty());
}

#[test]
fn a_number_is_dismissed_from_its_removal_on_and_never_before_it_was_a_members() {
    let mut roster = of(&["a"]);
    let without = Members {
        voters: vec![1],
        ..Members::default()
    };
    let with = Members {
        learners: vec![2],
        ..without.clone()
    };
    assert!(!roster.is_dismissed(2, &without), "not reserved yet");
    reserve(&mut roster, "b").unwrap();
    assert!(!roster.is_dismissed(2, &without), "reserved");
    assert!(!roster.is_dismissed(2, &with));
    roster.apply(RosterChange::Take { id: 2, mark: 5 }).unwrap();
    assert!(!roster.is_dismissed(2, &with));
    assert!(roster.is_dismissed(2, &without), "removed");
    roster.apply(RosterChange::Clear { id: 2 }).unwrap();
    assert!(roster.is_dismissed(2, &without), "and cleared");
    assert!(!roster.is_dismissed(1, &without) && !roster.is_dismissed(3, &without));
}
