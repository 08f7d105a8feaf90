//! A malicious or faulty peer: everything that it sends is an error or is refused.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use super::*;
use crate::testing::{node as rehearsed, run_simulated};
use crate::wire::frame::{Frame, MessageFrame, Origin, Target, write_message, write_plain};
use crate::{AttachError, Dialled, Garbled, Hello, Link, NodeId, Outgoing};

pub(super) fn peer(name: &str, epoch: u64) -> Peer {
    Peer {
        node: NodeId::new(name, epoch),
        role: Role::Agent,
        address: String::new(),
    }
}

pub(super) fn hello(peer: &Peer) -> Hello {
    Hello {
        frames: Hello::FRAMES,
        node: peer.node.clone(),
        role: peer.role,
        accepts: Default::default(),
    }
}

/// A node with a diarist (incarnation 1), and a link to it that the test holds.
pub(super) fn victim() -> (Node, Diary, Link) {
    let node = rehearsed("victim")
        .role(Role::Master)
        .accepts(&[Role::Agent])
        .build();
    let diary = Diary::default();
    node.spawn("diarist", Diarist::new(&diary)).unwrap();
    let peer = peer("enemy", 5);
    let link = node
        .attach(peer.clone(), hello(&peer), Dialled::ByThem)
        .unwrap();
    (node, diary, link)
}

fn framed(inner: &[u8]) -> BytesMut {
    let mut bytes = BytesMut::from(&(inner.len() as u32).to_be_bytes()[..]);
    bytes.extend_from_slice(inner);
    bytes
}

pub(super) fn plain(frame: &Frame<'_>) -> BytesMut {
    let mut inner = BytesMut::new();
    write_plain(frame, &mut inner);
    framed(&inner)
}

/// The frame of a note to the diarist.
pub(super) fn note(from: Option<Origin<'_>>, body: &[u8]) -> BytesMut {
    let mut inner = BytesMut::new();
    let to = Target {
        incarnation: 1,
        name: "",
    };
    let (id, version) = (Note::ID, Note::VERSION);
    let message = MessageFrame {
        lane: Lane::Ordinary,
        id,
        version,
        to,
        from,
        correlation: None,
        body,
    };
    write_message(&message, &mut inner);
    inner.extend_from_slice(body);
    framed(&inner)
}

pub(super) fn reason(result: Result<(), Garbled>) -> String {
    result.unwrap_err().reason
}

#[test]
fn frames_are_taken_whole_however_the_bytes_were_cut() {
    run_simulated(async {
        let (node, diary, link) = victim();
        let mut all = note(None, &[1]);
        all.extend_from_slice(&note(None, &[2]));
        let mut arrived = BytesMut::new();
        for byte in all {
            arrived.extend_from_slice(&[byte]);
            link.deliver(&mut arrived).unwrap();
        }
        node.clock().settle().await;
        assert_eq!(
            (read(&diary), arrived.len()),
            (vec!["1".into(), "2".into()], 0)
        );
    });
}

#[test]
fn invalid_lengths_fail_before_the_bytes_arrive() {
    run_simulated(async {
        let (_node, _, link) = victim();
        let too_long = (16 << 20) + 1_u32;
        for length in [0, too_long, u32::MAX >> 1] {
            let mut bytes = BytesMut::from(&length.to_be_bytes()[..]);
            assert!(reason(link.deliver(&mut bytes)).contains("expected 1 to 16777216"));
        }
    });
}

#[test]
fn truncated_and_overlong_bodies_name_the_message() {
    run_simulated(async {
        let (node, diary, link) = victim();
        for body in [&[][..], &[1, 2], &[251], &[253, 0, 0, 0, 0, 0, 1, 0, 0]] {
            assert!(reason(link.deliver(&mut note(None, body))).starts_with("test/note v1 "));
        }
        node.clock().settle().await;
        assert_eq!(
            (read(&diary).len(), node.counters()["links/garbled"]),
            (0, 4.0)
        );
    });
}

#[test]
fn sender_of_another_node_is_garbled() {
    run_simulated(async {
        let (node, diary, link) = victim();
        let from = |epoch| {
            Some(Origin {
                epoch,
                actor: Target {
                    incarnation: 3,
                    name: "them",
                },
            })
        };
        link.deliver(&mut note(from(5), &[1])).unwrap();
        assert!(reason(link.deliver(&mut note(from(6), &[2]))).contains("epoch 0000000000000006"));
        node.clock().settle().await;
        assert_eq!(read(&diary), ["1"]);
    });
}

#[test]
fn short_frames_are_read_byte_by_byte_and_at_once() {
    run_simulated(async {
        let (node, diary, link) = victim();
        let mut many = note(None, &[1]);
        for short in [&[0x80, 1, 2][..], &[0x80, 1, 3], &again(4), &[0x80, 1, 5]] {
            many.extend_from_slice(short);
        }
        let mut arrived = BytesMut::new();
        for byte in &many {
            arrived.extend_from_slice(&[*byte]);
            link.deliver(&mut arrived).unwrap();
        }
        node.clock().settle().await;
        let one_by_one = read(&diary);
        diary.lock().unwrap().clear();
        link.deliver(&mut many).unwrap();
        node.clock().settle().await;
        assert_eq!(read(&diary), one_by_one);
        assert_eq!(one_by_one.concat(), "12345");
    });
}

#[test]
fn short_frames_are_as_they_must_be_or_garbled() {
    run_simulated(async {
        let (_node, _, link) = victim();
        let deliver = |bytes: &[u8]| reason(link.deliver(&mut BytesMut::from(bytes)));
        assert!(deliver(&[0x80, 1, 2]).contains("no earlier header"));
        link.deliver(&mut note(None, &[1])).unwrap();
        assert!(deliver(&[0x90, 0]).contains("expected fewer than 4096"));
        assert!(deliver(&[0xff, 0xff, 0xff, 0xff]).contains("32767 bytes in a short frame"));
        assert!(deliver(&[0x80, 2, 1, 1]).starts_with("test/note v1 "));
        assert!(deliver(&[0x80, 1, 2, 0x80, 0]).starts_with("test/note v1 "));
    });
}

/// The frame of a note with an elided header.
fn again(body: u8) -> BytesMut {
    framed(&[11, body])
}

#[test]
fn elided_header_repeats_the_newest_tell() {
    run_simulated(async {
        let (node, diary, link) = victim();
        assert!(reason(link.deliver(&mut again(1))).contains("no earlier header"));
        for mut bytes in [note(None, &[2]), again(3), plain(&Frame::Ping), again(4)] {
            link.deliver(&mut bytes).unwrap();
        }
        let mut many = again(5);
        for more in [again(6), again(7), note(None, &[8]), again(9)] {
            many.extend_from_slice(&more);
        }
        link.deliver(&mut many).unwrap();
        node.clock().settle().await;
        assert_eq!(read(&diary), ["2", "3", "4", "5", "6", "7", "8", "9"]);
        let stranger = Origin {
            epoch: 6,
            actor: Target {
                incarnation: 3,
                name: "them",
            },
        };
        assert!(link.deliver(&mut note(Some(stranger), &[12])).is_err());
        for mut bytes in [again(13), {
            let mut two = again(14);
            two.extend_from_slice(&again(15));
            two
        }] {
            let reason = reason(link.deliver(&mut bytes));
            assert!(reason.contains("epoch 0000000000000006"), "{reason}");
        }
    });
}

#[test]
fn elided_tell_waits_for_a_bulk() {
    run_simulated(async {
        let (node, diary, link) = victim();
        let mut header = note(None, &[]).split_off(4);
        header[1..5].copy_from_slice(&Load::ID.to_be_bytes());
        link.deliver(&mut note(None, &[1])).unwrap();
        let announced = Frame::BulkAnnounce {
            token: 1,
            length: 3,
            header: &header,
        };
        link.deliver(&mut plain(&announced)).unwrap();
        let mut two = again(2);
        two.extend_from_slice(&again(3));
        link.deliver(&mut two).unwrap();
        node.clock().settle().await;
        assert_eq!(read(&diary), ["1"]);
        link.deliver_bulk(1, Bytes::from_static(&[2, 0, 0]))
            .unwrap();
        node.clock().settle().await;
        assert_eq!(read(&diary), ["1", "load 2", "2", "3"]);
    });
}

#[test]
fn unknown_kinds_statuses_and_left_over_bytes_are_garbled() {
    run_simulated(async {
        let (_node, _, link) = victim();
        let mut left_over = BytesMut::new();
        write_plain(&Frame::Ping, &mut left_over);
        left_over.extend_from_slice(b"x");
        for inner in [
            &[0][..],
            &[11],
            &[255],
            &[3, 0, 0, 0, 0, 0, 0, 0, 1, 9],
            &left_over,
            &[6, 1],
        ] {
            assert!(link.deliver(&mut framed(inner)).is_err(), "{inner:?}");
        }
    });
}

#[test]
fn peer_with_too_many_watches_is_disconnected() {
    run_simulated(async {
        let (node, _, link) = victim();
        for number in 0..65_536 {
            let name = &format!("diarist-{number}");
            let target = Target {
                incarnation: 1,
                name,
            };
            link.deliver(&mut plain(&Frame::Link(target))).unwrap();
            // A repeated watch counts once.
            link.deliver(&mut plain(&Frame::Link(target))).unwrap();
        }
        assert_eq!(node.links().len(), 1);
        let target = Target {
            incarnation: 1,
            name: "one more",
        };
        link.deliver(&mut plain(&Frame::Link(target))).unwrap();
        let reason = "the peer watches too many actors";
        assert_eq!(link.closed().await, reason);
        assert!(node.links().is_empty());
    });
}

#[test]
fn dropped_end_future_removes_its_watch() {
    run_simulated(async {
        let (node, _, _link) = victim();
        let pid = node.whereis("diarist").unwrap();
        for _ in 0..100 {
            drop(node.ended(&pid));
        }
        let kept = node.ended(&pid);
        assert_eq!(node.watches().count(), 1);
        node.stop(&pid);
        assert_eq!((kept.await, node.watches().count()), (Exit::Stopped, 0));
    });
}

#[test]
fn bulks_must_be_announced_once_and_come_as_announced() {
    run_simulated(async {
        let (node, diary, link) = victim();
        let mut header = BytesMut::new();
        let to = Target {
            incarnation: 1,
            name: "",
        };
        let (id, version) = (Load::ID, Load::VERSION);
        let message = MessageFrame {
            lane: Lane::Ordinary,
            id,
            version,
            to,
            from: None,
            correlation: None,
            body: &[],
        };
        write_message(&message, &mut header);
        let announce = |token, length| {
            plain(&Frame::BulkAnnounce {
                token,
                length,
                header: &header,
            })
        };
        // Load is a Vec<u8>: one byte of length, then the bytes. The second comes before the first.
        link.deliver(&mut announce(1, 3)).unwrap();
        link.deliver(&mut note(None, &[8])).unwrap();
        link.deliver_bulk(2, Bytes::from_static(&[1, 0])).unwrap();
        link.deliver(&mut announce(2, 2)).unwrap();
        link.deliver(&mut note(None, &[9])).unwrap();
        node.clock().settle().await;
        assert_eq!(
            read(&diary),
            Vec::<String>::new(),
            "everything waits for the first bulk"
        );
        link.deliver_bulk(1, Bytes::from_static(&[2, 0, 0]))
            .unwrap();
        node.clock().settle().await;
        assert_eq!(read(&diary), ["load 2", "8", "load 1", "9"]);

        link.deliver(&mut announce(3, 2)).unwrap();
        assert!(reason(link.deliver(&mut announce(3, 2))).contains("announced twice"));
        assert!(
            reason(link.deliver_bulk(3, Bytes::from_static(&[0]))).contains("announced were 2")
        );
        assert!(reason(link.deliver(&mut announce(4, u64::MAX))).contains("expected at most"));
        let of_a_link = plain(&Frame::BulkAnnounce {
            token: 5,
            length: 1,
            header: &[10],
        });
        assert!(reason(link.deliver(&mut of_a_link.clone())).contains("bulk announced for"));
    });
}

#[test]
fn unsolicited_frames_have_no_effect() {
    run_simulated(async {
        let (node, diary, link) = victim();
        let nobody = Target {
            incarnation: 77,
            name: "nobody",
        };
        for frame in [
            Frame::Reply {
                correlation: 9,
                outcome: Ok(b"?"),
            },
            Frame::Found {
                correlation: 9,
                incarnation: 1,
            },
            Frame::Exited {
                of: nobody,
                reason: Exit::Stopped,
            },
            Frame::Unlink(nobody),
            Frame::Link(nobody),
            Frame::Ping,
        ] {
            link.deliver(&mut plain(&frame)).unwrap();
        }
        node.clock().settle().await;
        assert_eq!(read(&diary), Vec::<String>::new());
        let mut answer = BytesMut::new();
        assert_eq!(
            link.outgoing(Lane::Ordinary, &mut answer, 1000).await,
            Outgoing::Batch
        );
        assert_eq!(
            Frame::read(&answer[4..]),
            Ok(Frame::Exited {
                of: nobody,
                reason: Exit::NoProcess
            })
        );
    });
}

#[test]
fn hello_must_match_the_authenticated_peer() {
    run_simulated(async {
        let (node, _, _link) = victim();
        let (enemy, other) = (peer("enemy", 6), peer("other", 6));
        let mismatch = node
            .attach(enemy.clone(), hello(&other), Dialled::ByThem)
            .unwrap_err();
        assert!(
            matches!(mismatch, AttachError::Mismatch { .. }),
            "{mismatch}"
        );
        let myself = Peer {
            node: node.id().clone(),
            ..enemy.clone()
        };
        assert_eq!(
            node.attach(myself.clone(), hello(&myself), Dialled::ByUs)
                .unwrap_err(),
            AttachError::Myself
        );
        let module = Peer {
            role: Role::Module,
            ..enemy
        };
        let wrong = node
            .attach(module.clone(), hello(&module), Dialled::ByUs)
            .unwrap_err();
        assert_eq!(wrong, AttachError::WrongRole { role: Role::Module });
    });
}

#[test]
fn crossing_dials_keep_one_link_silently() {
    run_simulated(async {
        let (node, _, first) = victim();
        let (watcher, diary) = (Diary::default(), Diary::default());
        let handle = node.spawn("watcher", Diarist::new(&diary)).unwrap();
        let theirs = Pid::new("theirs", first.peer().node.clone(), 4);
        handle.tell(Watch(theirs.clone())).unwrap();
        node.clock().settle().await;
        let mut taken = BytesMut::new();
        first.outgoing(Lane::Ordinary, &mut taken, 1000).await;
        // "enemy" is lower than "victim", so the connection that it dialled stays.
        let duplicate = node
            .attach(first.peer().clone(), hello(first.peer()), Dialled::ByUs)
            .unwrap_err();
        assert_eq!(
            duplicate,
            AttachError::Duplicate {
                node: first.peer().node.clone()
            }
        );

        let low = Peer {
            node: NodeId::new("zero", 1),
            ..first.peer().clone()
        };
        let ours = node
            .attach(low.clone(), hello(&low), Dialled::ByUs)
            .unwrap();
        let held = node.ask(
            &Pid::new("x", low.node.clone(), 1),
            Wait,
            Patience::WhileLinked,
        );
        drop(held);
        drop(watcher);
        assert_eq!(
            node.attach(low.clone(), hello(&low), Dialled::ByThem)
                .unwrap_err(),
            AttachError::Duplicate {
                node: low.node.clone()
            }
        );
        let high = Peer {
            node: NodeId::new("aaa", 1),
            ..low
        };
        let superseded = node
            .attach(high.clone(), hello(&high), Dialled::ByUs)
            .unwrap();
        let there = Pid::new("there", high.node.clone(), 1);
        handle.tell(Watch(there.clone())).unwrap();
        node.clock().settle().await;
        let waiting = node.ask(&there, Wait, SECOND);
        let kept = node
            .attach(high.clone(), hello(&high), Dialled::ByThem)
            .unwrap();
        assert_eq!(
            superseded.closed().await,
            "superseded by another connection"
        );
        node.clock().settle().await;
        assert_eq!(read(&diary), Vec::<String>::new());
        // Unsent frames move to the new connection, and the ask stays open.
        let mut carried = BytesMut::new();
        assert_eq!(
            kept.outgoing(Lane::Ordinary, &mut carried, 10_000).await,
            Outgoing::Batch
        );
        assert!(carried.windows(5).any(|window| window == b"there"));
        assert_eq!(waiting.await, Err(AskError::Late { after: SECOND }));
        kept.close("tested");
        node.clock().settle().await;
        assert_eq!(read(&diary), ["there node lost: tested"]);
        drop((first, ours));
        node.clock().settle().await;
        assert_eq!(
            read(&diary)[1..],
            ["theirs node lost: dropped by the transport"]
        );
    });
}

#[test]
fn hellos_of_another_form_or_size_are_refused() {
    let good = hello(&peer("them", 1));
    let bytes = crate::wire::codec::encode(&good).unwrap();
    assert_eq!(Hello::decode(&bytes), Ok(good.clone()));
    let newer = crate::wire::codec::encode(&Hello { frames: 3, ..good }).unwrap();
    assert!(
        Hello::decode(&newer)
            .unwrap_err()
            .reason
            .contains("speaks frames 3")
    );
    assert!(Hello::decode(&vec![0; Hello::LENGTH_MAX + 1]).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>, kind in 0..12_u8, token in 0..3_u64) {
        run_simulated(async {
            let (_node, _, link) = victim();
            let _ = link.deliver(&mut BytesMut::from(&bytes[..]));
            let _ = link.deliver(&mut framed(&bytes));
            let _ = link.deliver(&mut framed(&[&[kind], &bytes[..]].concat()));
            let _ = link.deliver(&mut note(None, &bytes));
            let _ = link.deliver(&mut plain(&Frame::BulkAnnounce { token, length: bytes.len() as u64, header: &bytes }));
            let _ = link.deliver_bulk(token, bytes.clone().into());
            let _ = Hello::decode(&bytes);
        });
    }

    #[test]
    fn decoded_frames_round_trip(bytes: Vec<u8>, kind in 1..11_u8) {
        let bytes = [&[kind], &bytes[..]].concat();
        if let Ok(frame) = Frame::read(&bytes)
            && !matches!(frame, Frame::Message(_) | Frame::Reply { outcome: Ok(_), .. })
        {
            let mut written = BytesMut::new();
            write_plain(&frame, &mut written);
            prop_assert_eq!(&written[..], &bytes[..]);
        }
    }
}
