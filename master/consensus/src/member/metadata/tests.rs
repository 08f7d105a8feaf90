//! Tests of the group metadata.

use testkit::assert_contains;

use super::super::address_book::AddressChange;
use super::*;
use crate::group::Ledger;

fn of(addresses: &[&str]) -> AddressBook {
    let addresses: Vec<String> = addresses.iter().map(|&one| one.to_owned()).collect();
    AddressBook::founding(&addresses)
}

#[test]
fn snapshot_restores_machine_and_addresses() {
    let mut group = GroupMachine::new(of(&["a", "b"]), Ledger::reading(2));
    group.apply(2, GroupOperation::Machine((7, Vec::new())));
    let change = AddressChange::Take { id: 2, mark: 4 };
    group.apply(3, GroupOperation::Address(change));
    for format in [FIRST_FORMAT, 2] {
        group.apply(4, GroupOperation::Format(format));
        comes_back(&group);
    }
}

fn comes_back(group: &GroupMachine<Ledger>) {
    let snapshot = group.snapshot().unwrap();
    let new = || GroupMachine::<Ledger>::new(AddressBook::default(), Ledger::reading(2));
    let mut again = new();
    again.restore(&snapshot).unwrap();
    let parts = |whole: &GroupMachine<Ledger>| {
        (
            whole.address_book.clone(),
            whole.format,
            whole.machine.clone(),
        )
    };
    assert_eq!(parts(&again), parts(group));
    for length in 0..snapshot.len() {
        assert!(new().restore(&snapshot[..length]).is_err(), "{length}");
    }
}

/// The next member's number is one higher.
#[test]
fn snapshot_with_invalid_numbers_is_refused() {
    let holding = |highest, id| {
        let mut address_book = of(&["a"]);
        address_book.highest = highest;
        let entry = address_book.entries[&1].clone();
        address_book.entries.insert(id, entry);
        GroupMachine::new(address_book, Ledger::default())
    };
    let mut group = GroupMachine::<Ledger>::default();
    let fits = holding(NUMBER_MAX, NUMBER_MAX).snapshot().unwrap();
    group.restore(&fits).unwrap();
    let address = "b".to_owned();
    let refused = group.address_book.apply(AddressChange::Reserve { address });
    let refused = refused.unwrap_err();
    assert_eq!(refused, AddressRefused::NotMember(NUMBER_MAX + 1));
    for (highest, id) in [(u64::MAX, 2), (2, u64::MAX)] {
        let refused = group.restore(&holding(highest, id).snapshot().unwrap());
        let expected = format!(
            "its address book names member {}, expected at most {NUMBER_MAX}",
            u64::MAX
        );
        assert_eq!(refused.unwrap_err().reason, expected);
    }
}

/// Logs and snapshots of groups older than format numbers.
#[test]
fn first_format_has_no_format_number() {
    let group = GroupMachine::new(of(&["a"]), Ledger::default());
    let operation = GroupOperation::Machine((7, vec![1, 2]));
    let clear = GroupOperation::Address(AddressChange::Clear { id: 3 });
    for operation in [operation, clear, GroupOperation::Format(FIRST_FORMAT)] {
        let bytes = group.encode(&operation, FIRST_FORMAT).unwrap();
        assert_eq!(bytes, runtime::wire::codec::encode(&operation).unwrap());
        assert_eq!(group.decode(&bytes, FIRST_FORMAT).unwrap(), operation);
    }
    assert!(group.snapshot().unwrap().starts_with(b"meros g1"));
    assert!(group.decode(&[], FIRST_FORMAT).is_err());
}

#[test]
fn unknown_format_is_refused() {
    let mut newer = GroupMachine::new(of(&["a"]), Ledger::reading(3));
    newer.apply(2, GroupOperation::Format(3));
    newer.apply(3, GroupOperation::Format(2));
    assert_eq!(newer.format, 3, "nobody goes back");
    let mut older = GroupMachine::new(of(&["a"]), Ledger::reading(2));
    let refused = older
        .restore(&newer.snapshot().unwrap())
        .unwrap_err()
        .reason;
    assert_contains!(
        refused,
        "in format 3, and this version reads formats up to 2"
    );
    let over = newer.encode(&GroupOperation::Format(3), 2).unwrap();
    let refused = older.decode(&over, 2).unwrap_err().to_string();
    assert_contains!(refused, "this version reads formats up to 2");
    assert!(
        older
            .decode(&newer.encode(&GroupOperation::Format(2), 2).unwrap(), 2)
            .is_ok()
    );
    let mut format_0 = newer.snapshot().unwrap().to_vec();
    format_0[8..10].copy_from_slice(&[0, 0]);
    assert!(newer.restore(&format_0).is_err());
}

#[test]
fn agreed_format_needs_every_member() {
    let members = Members {
        learners: vec![3],
        voters_outgoing: vec![2, 4],
        ..Members::of([1, 2])
    };
    let mut read = BTreeMap::from([(1, 3), (2, 2), (3, 4), (9, 1)]);
    assert_eq!(agreed_format(&members, &read), None, "4 sent nothing yet");
    read.insert(4, 3);
    assert_eq!(agreed_format(&members, &read), Some(2));
    read.insert(2, 7);
    assert_eq!(agreed_format(&members, &read), Some(3));
}
