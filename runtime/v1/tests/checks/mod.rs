//! Checks of round trips through the v1 API.

use std::fmt::Debug;

use meros_v1::{Invalid, Limits, Message, json, protobuf};

use crate::chance::Chance;

/// From our type to the message, through both encodings, and back.
pub fn check<Ours, Theirs>(
    make: impl Fn(&mut Chance) -> Ours,
    write: impl Fn(&Ours) -> Theirs,
    read: impl Fn(&Theirs) -> Result<Ours, Invalid>,
) where
    Ours: Debug + PartialEq,
    Theirs: Message + Default + PartialEq,
{
    for seed in 0..300 {
        let ours = make(&mut Chance(seed));
        let written = write(&ours);
        let bytes = protobuf::write(&written);
        let from_bytes: Theirs = protobuf::read(&bytes, Limits::default())
            .unwrap_or_else(|bad| panic!("seed {seed}: {bad}\n{ours:?}"));
        assert_eq!(from_bytes, written, "seed {seed}");
        let text = json::write(&written);
        let from_text: Theirs = json::read(&text, Limits::default())
            .unwrap_or_else(|bad| panic!("seed {seed}: {bad}\n{ours:?}"));
        for theirs in [from_bytes, from_text] {
            let again = read(&theirs).unwrap_or_else(|bad| panic!("seed {seed}: {bad}\n{ours:?}"));
            assert_eq!(again, ours, "seed {seed}");
        }
    }
}

/// The same by `From` and `TryFrom`.
pub fn check_type<Ours, Theirs>(make: impl Fn(&mut Chance) -> Ours)
where
    Ours: Debug + PartialEq + for<'a> TryFrom<&'a Theirs, Error = Invalid>,
    Theirs: Message + Default + PartialEq + for<'a> From<&'a Ours>,
{
    check(
        make,
        |ours| Theirs::from(ours),
        |theirs: &Theirs| Ours::try_from(theirs),
    );
}
