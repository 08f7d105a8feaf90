//! The encoding of the log's records: fixed bytes, and rejection of anything else.

use proptest::prelude::*;
use testkit::assert_contains;

use super::*;

fn entry(index: u64, data: &[u8]) -> Entry {
    Entry {
        term: 2,
        index,
        kind: EntryKind::Membership,
        data: data.to_vec(),
        context: b"c".to_vec(),
    }
}

fn chunk() -> Chunk {
    Chunk {
        number: 9,
        previous: 8,
        hard: HardState {
            term: 2,
            vote: 1,
            commit: 4,
        },
        first: 5,
        count: 1,
        parts: Parts::default(),
    }
}

fn meta() -> Meta {
    Meta {
        number: 7,
        identity: Some(Identity { id: 1, group: 2 }),
        hard: chunk().hard,
        floor: 3,
        snapshot: Some(Pointer {
            number: 6,
            index: 4,
            term: 2,
            parts: Parts {
                count: 1,
                length: 3,
                crc: 5,
            },
            members: Members {
                voters: vec![1, 2, 3],
                learners: vec![4],
                voters_outgoing: Vec::new(),
                learners_next: vec![5],
                auto_leave: true,
            },
        }),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A released version never changes: these bytes must remain readable.
#[test]
fn the_golden_bytes_of_version_1() {
    let entries = [entry(5, b"d")];
    let inline = encode_entries(&entries).unwrap();
    let body = chunk().encode(&inline);
    let golden = "00000000000000090000000000000008\
                  000000000000000200000000000000010000000000000004\
                  000000000000000500000001\
                  00000000000000000000000000000000\
                  00000000000000020100000001000000016463";
    assert_eq!(hex(&body), golden);
    let sealed = seal(b"key", RecordType::Chunk, b"body");
    assert_eq!(hex(&sealed), "6501e2832894626f6479");
    let golden = "0000000000000007\
                  0100000000000000010000000000000002\
                  000000000000000200000000000000010000000000000004\
                  0000000000000003\
                  01000000000000000600000000000000040000000000000002\
                  00000001000000000000000300000005\
                  00000003000000000000000100000000000000020000000000000003\
                  000000010000000000000004\
                  00000000\
                  000000010000000000000005\
                  01";
    assert_eq!(hex(&meta().encode()), golden);
}

#[test]
fn encoded_records_are_decoded() {
    let entries = [entry(5, b"d")];
    let inline = encode_entries(&entries).unwrap();
    let body = chunk().encode(&inline);
    let (found, rest) = Chunk::decode(&body).unwrap();
    assert_eq!(found, chunk());
    let mut read = Vec::new();
    decode_entries(5, 1, rest, &mut read).unwrap();
    assert_eq!(read, entries);
    assert_eq!(Meta::decode(&meta().encode()), Some(meta()));
    assert_eq!(
        Meta::decode(&Meta::default().encode()),
        Some(Meta::default())
    );
}

#[test]
fn newer_version_or_other_type_is_refused() {
    let key = super::super::keys::META;
    let mut sealed = seal(key, RecordType::Meta, b"body");
    sealed[1] = 2;
    let sum = checksum(b'm', 2, key, b"body");
    sealed[2..6].copy_from_slice(&sum.to_be_bytes());
    let error = open(key, RecordType::Meta, &sealed)
        .unwrap_err()
        .to_string();
    let expected = "the log is damaged at the member's own record: its record type has version 2, and this program knows \
                    only 1: start the newer one";
    assert!(error.starts_with(expected), "{error}");
    let error = open(key, RecordType::Part, &seal(key, RecordType::Meta, b"body")).unwrap_err();
    assert_contains!(
        error.to_string(),
        "its record type is 0x6d, and 0x70 was expected"
    );
}

#[test]
fn contradictory_chunk_is_refused() {
    let bad = [
        Chunk {
            first: 0,
            ..chunk()
        },
        Chunk {
            previous: 9,
            ..chunk()
        },
        Chunk {
            first: u64::MAX,
            ..chunk()
        },
    ];
    for chunk in bad {
        assert_eq!(Chunk::decode(&chunk.encode(&[])), None);
    }
    let mut elsewhere = chunk();
    elsewhere.parts.count = 1;
    assert!(Chunk::decode(&elsewhere.encode(&[])).is_some());
    assert_eq!(Chunk::decode(&elsewhere.encode(b"and here")), None);
}

proptest! {
    #[test]
    fn entries_survive_their_encoding(
        list in prop::collection::vec((any::<u64>(), 0..3u8, any::<Vec<u8>>(), any::<Vec<u8>>()), 0..8),
        first in 1..u64::MAX / 2,
    ) {
        let entries: Vec<Entry> = (first..)
            .zip(list)
            .map(|(index, (term, kind, data, context))| Entry {
                term,
                index,
                kind: match kind {
                    0 => EntryKind::Operation,
                    1 => EntryKind::Membership,
                    _ => EntryKind::JointMembership,
                },
                data,
                context,
            })
            .collect();
        let bytes = encode_entries(&entries).unwrap();
        prop_assert_eq!(bytes.len(), entries_bytes(&entries));
        let mut read = Vec::new();
        prop_assert!(decode_entries(first, entries.len() as u32, &bytes, &mut read).is_some());
        prop_assert_eq!(read, entries);
    }

    #[test]
    fn decoding_never_panics_and_round_trips(bytes: Vec<u8>, count: u32) {
        let _ = open(b"key", RecordType::Chunk, &bytes);
        let _ = decode_entries(u64::MAX, count, &bytes, &mut Vec::new());
        if let Some((chunk, inline)) = Chunk::decode(&bytes) {
            prop_assert_eq!(chunk.encode(inline), bytes.clone());
        }
        if let Some(meta) = Meta::decode(&bytes) {
            prop_assert_eq!(meta.encode(), bytes);
        }
    }

    #[test]
    fn one_flipped_bit_is_always_found(body: Vec<u8>, at in any::<prop::sample::Index>(), bit in 0..8u8) {
        let mut sealed = seal(b"key", RecordType::Part, &body);
        let at = at.index(sealed.len());
        sealed[at] ^= 1 << bit;
        prop_assert!(open(b"key", RecordType::Part, &sealed).is_err());
    }
}
