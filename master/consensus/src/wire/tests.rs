//! Packets round-trip, and invalid fields are rejected by name.

use super::*;

fn entry(index: u64, term: u64) -> Entry {
    Entry {
        term,
        index,
        kind: EntryKind::Operation,
        data: vec![1, 2, 3],
        context: vec![4; 24],
    }
}

fn append() -> Message {
    Message {
        log_term: 4,
        index: 10,
        entries: vec![entry(11, 4), entry(12, 5)],
        commit: 11,
        ..Message::plain(MessageKind::Append, 2, 1, 5)
    }
}

fn chunk() -> Chunk {
    Chunk {
        leader_term: 5,
        head: SnapshotHead {
            index: 9,
            term: 4,
            members: Members::of([1, 2, 3]),
            total: 10,
            crc: 7,
        },
        offset: 2,
        data: vec![0; 8],
    }
}

fn refused(message: Message) -> &'static str {
    match Packet::Raft(message).check(2, 1) {
        Err(Refused::Field { field, .. }) => field,
        other => panic!("{other:?}"),
    }
}

#[test]
fn valid_packets_survive_the_wire() {
    let received = Received {
        index: 9,
        term: 4,
        crc: 7,
        bytes: 10,
        refused: false,
    };
    for packet in [
        Packet::Raft(append()),
        Packet::Chunk(chunk()),
        Packet::Received(received),
    ] {
        packet.check(2, 1).unwrap();
        let bytes = runtime::wire::codec::encode(&packet).unwrap();
        assert_eq!(
            runtime::wire::codec::decode::<Packet>(&bytes).unwrap(),
            packet
        );
        assert!(bytes.len() <= packet.size() + 64);
    }
}

#[test]
fn sender_and_receiver_must_match() {
    assert!(Packet::Raft(append()).check(3, 1).is_err());
    assert!(Packet::Raft(append()).check(2, 3).is_err());
    assert!(
        Packet::Chunk(chunk()).check(1, 1).is_err(),
        "nobody speaks to itself"
    );
    assert!(Packet::Chunk(chunk()).check(0, 1).is_err());
}

#[test]
fn invalid_fields_are_refused_by_name() {
    let with = |change: fn(&mut Message)| {
        let mut message = append();
        change(&mut message);
        refused(message)
    };
    assert_eq!(with(|message| message.term = 0), "term");
    assert_eq!(with(|message| message.term = u64::MAX), "term");
    assert_eq!(with(|message| message.commit = u64::MAX), "commit");
    assert_eq!(
        with(|message| message.reject_hint = u64::MAX),
        "reject_hint"
    );
    assert_eq!(with(|message| message.index = 11), "entry index");
    assert_eq!(with(|message| message.log_term = 0), "log_term");
    assert_eq!(with(|message| message.log_term = 6), "log_term");
    assert_eq!(with(|message| message.entries[1].index = 13), "entry index");
    assert_eq!(with(|message| message.entries[1].term = 3), "entry term");
    assert_eq!(with(|message| message.entries[1].term = 6), "entry term");
    assert_eq!(
        with(|message| message.entries[0].data = vec![0; ENTRY_BYTES_MAX + 1]),
        "entry data"
    );
    assert_eq!(
        with(|message| message.entries[0].context = vec![0; 300]),
        "entry context"
    );
    assert_eq!(with(|message| message.context = vec![0; 300]), "context");
    assert_eq!(
        with(|message| message.kind = MessageKind::Heartbeat),
        "entries"
    );
    assert_eq!(
        with(|message| message.kind = MessageKind::ReadIndexIs),
        "entries"
    );
    assert_eq!(
        with(|message| message.kind = MessageKind::ReadIndex),
        "term"
    );
}

#[test]
fn invalid_member_lists_are_refused() {
    let members = |voters: &[u64], learners: &[u64], outgoing: &[u64], next: &[u64], auto_leave| {
        check_members(&Members {
            voters: voters.to_vec(),
            learners: learners.to_vec(),
            voters_outgoing: outgoing.to_vec(),
            learners_next: next.to_vec(),
            auto_leave,
        })
        .is_ok()
    };
    assert!(members(&[1, 2], &[3], &[], &[], false));
    assert!(members(&[1, 2], &[3], &[1, 4], &[4], true));
    assert!(!members(&[], &[3], &[], &[], false), "nobody votes");
    assert!(!members(&[1, 1], &[], &[], &[], false), "named twice");
    assert!(!members(&[0], &[], &[], &[], false), "no id");
    assert!(!members(&[1], &[1], &[], &[], false), "votes and does not");
    assert!(
        !members(&[1], &[2], &[2], &[], true),
        "votes until the change ends"
    );
    assert!(!members(&[1], &[], &[], &[2], false), "no change under way");
    assert!(!members(&[1], &[], &[], &[], true), "no change to end");
}

#[test]
fn invalid_chunks_are_refused() {
    let with = |change: fn(&mut Chunk)| {
        let mut piece = chunk();
        change(&mut piece);
        Packet::Chunk(piece).check(2, 1).is_err()
    };
    assert!(with(|piece| piece.offset = 3));
    assert!(with(|piece| piece.offset = u64::MAX));
    assert!(with(|piece| piece.head.index = 0));
    assert!(with(|piece| piece.head.term = 6));
    assert!(with(|piece| piece.head.members.voters.clear()));
    assert!(with(|piece| piece.data = vec![0; CHUNK_BYTES_MAX + 1]));
}
