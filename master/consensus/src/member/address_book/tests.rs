//! Tests of the address book.

use super::*;

fn of(addresses: &[&str]) -> AddressBook {
    let addresses: Vec<String> = addresses.iter().map(|&one| one.to_owned()).collect();
    AddressBook::founding(&addresses)
}

fn reserve(address_book: &mut AddressBook, address: &str) -> Result<u64, AddressRefused> {
    let address = address.to_owned();
    address_book.apply(AddressChange::Reserve { address })
}

#[test]
fn numbers_are_never_reused() {
    let mut address_book = of(&["a", "b"]);
    assert_eq!(reserve(&mut address_book, "c"), Ok(3));
    assert_eq!(reserve(&mut address_book, "c"), Ok(3));
    assert_eq!(address_book.apply(AddressChange::Clear { id: 3 }), Ok(3));
    assert_eq!(reserve(&mut address_book, "c"), Ok(4));
    assert_eq!(
        reserve(&mut address_book, ""),
        Err(AddressRefused::Address(String::new()))
    );
}

#[test]
fn entry_is_taken_by_one_directory() {
    let mut address_book = of(&["a"]);
    let mut take = |mark| address_book.apply(AddressChange::Take { id: 1, mark });
    assert_eq!(take(7), Ok(1));
    assert_eq!(take(7), Ok(1));
    let taken = take(8).unwrap_err().to_string();
    assert!(
        taken.ends_with("Run `meros masters remove 1`, and then `meros masters add a`"),
        "{taken}"
    );
    let occupied = reserve(&mut address_book, "a").unwrap_err();
    assert_eq!(occupied.to_string(), "master 1 is at a already");
    assert_eq!(
        address_book.apply(AddressChange::Take { id: 2, mark: 7 }),
        Err(AddressRefused::NotMember(2))
    );
}

#[test]
fn entries_are_bounded() {
    let mut address_book = AddressBook::default();
    for n in 0..ENTRIES_MAX {
        reserve(&mut address_book, &format!("host-{n}")).unwrap();
    }
    assert_eq!(
        reserve(&mut address_book, "one more"),
        Err(AddressRefused::Full)
    );
}

#[test]
fn leader_maintains_the_address_book() {
    let mut address_book = of(&["a", "b", "c"]);
    for id in [1, 3] {
        address_book
            .apply(AddressChange::Take { id, mark: 9 })
            .unwrap();
    }
    let members = Members::of([1, 2, 8]);
    let present = [(1, "a"), (2, "b"), (8, "new")];
    let present = present.map(|(id, address)| (id, address.to_owned())).into();
    let housekeeping = address_book.housekeeping(&members, &present);
    for change in housekeeping {
        address_book.apply(change).unwrap();
    }
    let entries: Vec<(u64, &str, u64)> = (address_book.entries.iter())
        .map(|(id, entry)| (*id, entry.address.as_str(), entry.mark))
        .collect();
    assert_eq!(
        entries,
        [(1, "a", 9), (2, "b", FOUNDER), (8, "new", FOUNDER)]
    );
    assert_eq!(address_book.highest, 8);
    assert!(address_book.housekeeping(&members, &present).is_empty());
    let duplicate = BTreeMap::from([(2, "a".to_owned())]);
    assert!(address_book.housekeeping(&members, &duplicate).is_empty());
}

#[test]
fn only_former_members_count_as_removed() {
    let mut address_book = of(&["a"]);
    let without = Members::of([1]);
    let with = Members {
        learners: vec![2],
        ..without.clone()
    };
    assert!(!address_book.was_removed(2, &without), "not reserved yet");
    reserve(&mut address_book, "b").unwrap();
    assert!(!address_book.was_removed(2, &without), "reserved");
    assert!(!address_book.was_removed(2, &with));
    address_book
        .apply(AddressChange::Take { id: 2, mark: 5 })
        .unwrap();
    assert!(!address_book.was_removed(2, &with));
    assert!(address_book.was_removed(2, &without), "removed");
    address_book.apply(AddressChange::Clear { id: 2 }).unwrap();
    assert!(address_book.was_removed(2, &without), "and cleared");
    assert!(!address_book.was_removed(1, &without) && !address_book.was_removed(3, &without));
}
