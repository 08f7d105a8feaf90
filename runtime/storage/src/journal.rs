//! The write-ahead journal, which makes a commit of several changes atomic.
//!
//! Pure functions over bytes. sled makes one insertion atomic; its batches are not used, since
//! removals in them leak memory and disk space. So a commit of several changes is first written as
//! one entry into a slot of the journal, and counts once that entry is synced. Then its changes are
//! applied one by one, without a sync of their own: the next commit's sync covers them. After a
//! crash the store applies the entries of both slots again.
//!
//! There are two slots, used in turn, because an entry may be overwritten only when its changes are
//! certainly synced: those of a commit are covered by the sync of the next one, and its slot is
//! reused by the one after that. Numbers may have gaps: see `next_number`.
//!
//! A long entry takes several parts. Part 0 is written last: without it there is no entry. An
//! unreadable entry is reported as damage, never dropped.

use crate::changes::{Change, VALUE_BYTES_MAX};
use crate::error::StoreError;
use crate::record;

/// The slots of the journal.
pub(crate) const SLOTS: [u8; 2] = [0, 1];
const PUT: u8 = 1;
const REMOVE: u8 = 2;

/// A commit in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Every write of a store has a number, from 1.
    pub number: u64,
    /// At most one change per key.
    pub changes: Vec<Change>,
}

/// The slot of this commit.
pub fn slot(number: u64) -> u8 {
    SLOTS[(number % 2) as usize]
}

/// The number of the next commit, after the newest write and the newest journalled commit: the
/// first free one in the other slot.
pub(crate) fn next_number(newest: u64, journalled: u64) -> u64 {
    let next = newest + 1;
    match slot(next) == slot(journalled) {
        true => next + 1,
        false => next,
    }
}

/// The key of a part in the journal; the parts of a slot are neighbours.
pub fn part_key(slot: u8, part: u16) -> [u8; 3] {
    let [high, low] = part.to_be_bytes();
    [slot, high, low]
}

/// The sealed parts of this commit with their keys, in the order in which they must be written.
pub fn parts(number: u64, changes: &[Change]) -> Vec<([u8; 3], Vec<u8>)> {
    let body = encode(changes);
    let pieces: Vec<&[u8]> = body.chunks(VALUE_BYTES_MAX).collect();
    // 16 MiB of changes are some 170 pieces, far from the limit of u16.
    let count = u16::try_from(pieces.len()).unwrap_or(u16::MAX);
    let mut parts = Vec::with_capacity(pieces.len());
    for (part, piece) in (0..count).zip(pieces).rev() {
        let key = part_key(slot(number), part);
        let sealed = match part {
            0 => record::seal(&key, number, &[&count.to_be_bytes(), piece].concat()),
            _ => record::seal(&key, number, piece),
        };
        parts.push((key, sealed));
    }
    parts
}

/// The entry in this slot, read through `get`. `None`: there is none, or it is being overwritten;
/// then its changes are on the disk already.
pub fn read(
    slot: u8,
    get: impl Fn(&[u8]) -> Result<Option<Vec<u8>>, StoreError>,
) -> Result<Option<Entry>, StoreError> {
    let head_key = part_key(slot, 0);
    let Some(bytes) = get(&head_key)? else {
        return Ok(None);
    };
    let head = record::open(&head_key, &bytes)?;
    let number = head.epoch;
    let (count, piece) = (head.value.split_first_chunk::<2>())
        .ok_or_else(|| damaged(slot, 0, "the entry has no count of its parts"))?;
    let count = u16::from_be_bytes(*count);
    if count == 0 || self::slot(number) != slot {
        return Err(damaged(slot, 0, "the entry does not belong in its slot"));
    }
    let mut body = piece.to_vec();
    for part in 1..count {
        let key = part_key(slot, part);
        let bytes = get(&key)?.ok_or_else(|| damaged(slot, part, "a part is missing"))?;
        let piece = record::open(&key, &bytes)?;
        if piece.epoch > number {
            return Ok(None);
        }
        if piece.epoch < number {
            return Err(damaged(slot, part, "a part belongs to an older entry"));
        }
        body.extend_from_slice(piece.value);
    }
    let changes =
        decode(&body).ok_or_else(|| damaged(slot, 0, "the entry is not a list of changes"))?;
    Ok(Some(Entry { number, changes }))
}

/// Whether this change of journalled commit `number` must be applied again, when the key's record
/// was written at `written` (`None`: there is no record). A record that is as new or newer stays.
pub(crate) fn outstanding(number: u64, change: &Change, written: Option<u64>) -> bool {
    match (change, written) {
        (_, Some(epoch)) => epoch < number,
        (Change::Put { .. }, None) => true,
        (Change::Remove { .. }, None) => false,
    }
}

fn encode(changes: &[Change]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut text = |tag: &[u8], part: &[u8]| {
        bytes.extend_from_slice(tag);
        bytes.extend_from_slice(&(part.len() as u32).to_be_bytes());
        bytes.extend_from_slice(part);
    };
    for change in changes {
        match change {
            Change::Put { key, value } => {
                text(&[PUT], key);
                text(&[], value);
            }
            Change::Remove { key } => text(&[REMOVE], key),
        }
    }
    bytes
}

fn decode(mut bytes: &[u8]) -> Option<Vec<Change>> {
    fn text<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (text, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        *bytes = rest;
        Some(text)
    }
    let mut changes = Vec::new();
    while let Some((&tag, rest)) = bytes.split_first() {
        bytes = rest;
        let key = text(&mut bytes)?.to_vec();
        changes.push(match tag {
            PUT => Change::Put {
                key,
                value: text(&mut bytes)?.to_vec(),
            },
            REMOVE => Change::Remove { key },
            _ => return None,
        });
    }
    Some(changes)
}

fn damaged(slot: u8, part: u16, reason: &str) -> StoreError {
    let key = format!("journal/{slot}/{part}");
    StoreError::Damaged {
        key,
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use testkit::assert_matches;

    use proptest::prelude::*;

    use super::*;

    type Slots = BTreeMap<Vec<u8>, Vec<u8>>;

    fn put(key: &str, value: impl Into<Vec<u8>>) -> Change {
        Change::Put {
            key: key.into(),
            value: value.into(),
        }
    }

    fn long(fill: u8) -> Vec<Change> {
        (0..3)
            .map(|key| put(&key.to_string(), vec![fill; VALUE_BYTES_MAX]))
            .collect()
    }

    fn found(slots: &Slots, slot: u8) -> Result<Option<Entry>, StoreError> {
        read(slot, |key| Ok(slots.get(key).cloned()))
    }

    #[test]
    fn without_its_head_a_long_entry_does_not_exist() {
        let parts = parts(1, &long(1));
        assert_eq!(parts.len(), 4);
        let mut slots = Slots::new();
        for (key, bytes) in parts {
            assert_eq!(found(&slots, 1), Ok(None));
            slots.insert(key.to_vec(), bytes);
        }
        assert_eq!(
            found(&slots, 1),
            Ok(Some(Entry {
                number: 1,
                changes: long(1)
            }))
        );
    }

    #[test]
    fn partly_overwritten_entry_does_not_count() {
        let mut slots = Slots::new();
        slots.extend(
            parts(1, &long(1))
                .into_iter()
                .map(|(key, bytes)| (key.to_vec(), bytes)),
        );
        let newer = parts(3, &long(3));
        let head = newer.len() - 1;
        for (at, (key, bytes)) in newer.into_iter().enumerate() {
            slots.insert(key.to_vec(), bytes);
            let expected = (at == head).then(|| Entry {
                number: 3,
                changes: long(3),
            });
            assert_eq!(found(&slots, 1), Ok(expected));
        }
    }

    #[test]
    fn lost_or_damaged_part_is_named() {
        let whole: Slots = parts(1, &long(1))
            .into_iter()
            .map(|(key, bytes)| (key.to_vec(), bytes))
            .collect();
        let mut lost = whole.clone();
        lost.remove(&part_key(1, 2)[..]);
        assert_eq!(
            found(&lost, 1).unwrap_err().to_string(),
            "the record \"journal/1/2\" is damaged: a part is missing"
        );
        let mut flipped = whole;
        flipped.get_mut(&part_key(1, 1)[..]).unwrap()[500] ^= 1;
        assert_matches!(found(&flipped, 1), Err(StoreError::Damaged { .. }));
    }

    #[test]
    fn successive_commits_use_the_slots_in_turn() {
        let mut journalled = 0;
        for writes_between in [0, 1, 2, 3, 0, 0, 5] {
            let number = next_number(journalled + writes_between, journalled);
            assert!(number > journalled + writes_between);
            assert_ne!(slot(number), slot(journalled));
            journalled = number;
        }
    }

    #[test]
    fn a_record_that_is_newer_than_the_entry_stays() {
        let remove = Change::Remove { key: b"k".to_vec() };
        assert!(outstanding(3, &put("k", "v"), None));
        assert!(outstanding(3, &put("k", "v"), Some(2)));
        assert!(!outstanding(3, &put("k", "v"), Some(3)));
        assert!(outstanding(3, &remove, Some(2)));
        assert!(!outstanding(3, &remove, Some(3)));
        assert!(!outstanding(3, &remove, None));
    }

    proptest! {
        #[test]
        fn changes_survive_their_encoding(list: Vec<(Vec<u8>, Option<Vec<u8>>)>) {
            let changes: Vec<Change> = list
                .into_iter()
                .map(|(key, value)| match value {
                    Some(value) => Change::Put { key, value },
                    None => Change::Remove { key },
                })
                .collect();
            prop_assert_eq!(decode(&encode(&changes)), Some(changes));
        }

        #[test]
        fn no_bytes_make_decoding_panic(bytes: Vec<u8>) {
            let _ = decode(&bytes);
        }
    }
}
