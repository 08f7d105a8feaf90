//! The laws of the charter.

use super::super::roster::RosterChange;
use super::*;
use crate::group::Ledger;

fn of(addresses: &[&str]) -> Roster {
    let addresses: Vec<String> = addresses.iter().map(|&one| one.to_owned()).collect();
    Roster::founding(&addresses)
}

#[test]
fn machine_and_seats_come_back_from_one_snapshot_and_a_strange_one_is_refused() {
    let mut chartered = Chartered::new(of(&["a", "b"]), Ledger::reading(2));
    chartered.apply(2, Entered::Machine((7, Vec::new())));
    let change = RosterChange::Take { id: 2, mark: 4 };
    chartered.apply(3, Entered::Roster(change));
    for form in [FIRST_FORM, 2] {
        chartered.apply(4, Entered::Form(form));
        comes_back(&chartered);
    }
}

fn comes_back(chartered: &Chartered<Ledger>) {
    let snapshot = chartered.snapshot().unwrap();
    let new = || Chartered::<Ledger>::new(Roster::default(), Ledger::reading(2));
    let mut again = new();
    again.restore(&snapshot).unwrap();
    let parts =
        |whole: &Chartered<Ledger>| (whole.roster.clone(), whole.form, whole.machine.clone());
    assert_eq!(parts(&again), parts(chartered));
    for length in 0..snapshot.len() {
        assert!(new().restore(&snapshot[..length]).is_err(), "{length}");
    }
}

/// The next member's number is one more.
#[test]
fn a_snapshot_whose_roster_could_not_be_counted_on_is_refused() {
    let holding = |highest, id| {
        let mut roster = of(&["a"]);
        roster.highest = highest;
        let seat = roster.seats[&1].clone();
        roster.seats.insert(id, seat);
        Chartered::new(roster, Ledger::default())
    };
    let mut chartered = Chartered::<Ledger>::default();
    let fits = holding(NUMBER_MAX, NUMBER_MAX).snapshot().unwrap();
    chartered.restore(&fits).unwrap();
    let address = "b".to_owned();
    let refused = chartered.roster.apply(RosterChange::Reserve { address });
    let refused = refused.unwrap_err();
    assert_eq!(refused, RosterRefused::NoSeat(NUMBER_MAX + 1));
    for (highest, id) in [(u64::MAX, 2), (2, u64::MAX)] {
        let refused = chartered.restore(&holding(highest, id).snapshot().unwrap());
        let expected = format!(
            "its roster names member {}, expected at most {NUMBER_MAX}",
            u64::MAX
        );
        assert_eq!(refused.unwrap_err().reason, expected);
    }
}

/// What logs and snapshots of groups hold that began before forms had numbers.
#[test]
fn the_first_form_is_written_as_if_there_were_no_others() {
    let chartered = Chartered::new(of(&["a"]), Ledger::default());
    let operation = Entered::Machine((7, vec![1, 2]));
    let clear = Entered::Roster(RosterChange::Clear { id: 3 });
    for entered in [operation, clear, Entered::Form(FIRST_FORM)] {
        let bytes = chartered.encode(&entered, FIRST_FORM).unwrap();
        assert_eq!(bytes, runtime::codec::encode(&entered).unwrap());
        assert_eq!(chartered.decode(&bytes, FIRST_FORM).unwrap(), entered);
    }
    assert!(chartered.snapshot().unwrap().starts_with(b"meros g1"));
    assert!(chartered.decode(&[], FIRST_FORM).is_err());
}

#[test]
fn a_form_that_is_not_read_here_is_refused_by_what_is_read() {
    let mut newer = Chartered::new(of(&["a"]), Ledger::reading(3));
    newer.apply(2, Entered::Form(3));
    newer.apply(3, Entered::Form(2));
    assert_eq!(newer.form, 3, "nobody goes back");
    let mut older = Chartered::new(of(&["a"]), Ledger::reading(2));
    let refused = older
        .restore(&newer.snapshot().unwrap())
        .unwrap_err()
        .reason;
    assert!(
        refused.contains("in form 3, and this version reads forms up to 2"),
        "{refused}"
    );
    let over = newer.encode(&Entered::Form(3), 2).unwrap();
    let refused = older.decode(&over, 2).unwrap_err().to_string();
    assert!(
        refused.contains("this version reads forms up to 2"),
        "{refused}"
    );
    assert!(
        older
            .decode(&newer.encode(&Entered::Form(2), 2).unwrap(), 2)
            .is_ok()
    );
    let mut form_0 = newer.snapshot().unwrap().to_vec();
    form_0[8..10].copy_from_slice(&[0, 0]);
    assert!(newer.restore(&form_0).is_err());
}

#[test]
fn a_form_is_agreed_upon_when_the_last_member_has_said_that_it_reads_it() {
    let members = Members {
        voters: vec![1, 2],
        learners: vec![3],
        voters_outgoing: vec![2, 4],
        ..Members::default()
    };
    let mut read = BTreeMap::from([(1, 3), (2, 2), (3, 4), (9, 1)]);
    assert_eq!(agreed_form(&members, &read), None, "nobody has heard of 4");
    read.insert(4, 3);
    assert_eq!(agreed_form(&members, &read), Some(2));
    read.insert(2, 7);
    assert_eq!(agreed_form(&members, &read), Some(3));
}
