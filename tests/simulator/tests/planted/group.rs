//! Planted bugs of a group of masters: in its members' messages, and in those of a deposed master.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use consensus::log::{Entry, EntryKind};
use consensus::member::PacketSent;
use consensus::wire::{Message, MessageKind, Packet};
use protocol::message::task::RunTasks;
use simulator::checkers::{Deposed, Group, Registry};
use simulator::{Fault, Forged, Scenario, SeenMessage, Tampering};

use super::{calm, check};

/// Registry operations are longer than this, and membership changes shorter.
const LONG_ENTRY: usize = 60;
/// A group is established after this number of heartbeats of its leader.
const HEARTBEATS: u32 = 60;
/// Its log has entries to read after this number of messages with entries.
const APPENDS: u32 = 30;

/// Three masters, of which the leader is gone for a while.
fn group() -> Scenario {
    let fault: Fault = "60secs+10secs crash leader".parse().unwrap();
    Scenario {
        masters: 3,
        frameworks: 2,
        duration: Duration::from_secs(90),
        faults: Some(vec![fault]),
        ..calm()
    }
}

/// Changes the entries in a leader's messages; `change` decides how, and for which follower.
fn entries(
    observed: &SeenMessage<'_>,
    change: impl FnOnce(&str, &mut Vec<Entry>) -> bool,
) -> Tampering {
    let Some(sent) = observed.is::<PacketSent>() else {
        return Tampering::Pass;
    };
    let mut sent = sent.clone();
    let changed = match &mut sent.packet {
        Packet::Raft(message) => change(observed.to, &mut message.entries),
        _ => false,
    };
    match changed {
        true => Tampering::Instead(Forged::new(sent)),
        false => Tampering::Pass,
    }
}

/// One follower gets other entries than the others.
#[test]
fn diverging_logs_are_found() {
    check(&group(), Group::default(), "committed entry", |observed| {
        entries(observed, |to, entries| {
            let named = entries.iter_mut().filter(|entry| !entry.context.is_empty());
            let mut changed = false;
            for entry in named.filter(|_| to == "master-2" || to == "master-3") {
                // Each follower gets its own.
                entry.context.extend(to.as_bytes());
                changed = true;
            }
            changed
        })
    });
}

/// Followers replace every second operation by a known one, so that the next leader lacks
/// acknowledged ones.
#[test]
fn lost_acknowledged_operation_is_found() {
    let mut first: Option<Vec<u8>> = None;
    check(
        &group(),
        Registry::default(),
        "not linearizable",
        move |observed| {
            entries(observed, |_, entries| {
                let operations = entries.iter_mut().filter(|entry| {
                    entry.kind == EntryKind::Operation && entry.data.len() > LONG_ENTRY
                });
                let mut changed = false;
                for entry in operations {
                    let first = first.get_or_insert_with(|| entry.data.clone());
                    changed |= entry.data != *first;
                    entry.data.clone_from(first);
                }
                changed
            })
        },
    );
}

/// Changes a packet of the group; `change` decides how, and which.
fn packets(observed: &SeenMessage<'_>, change: impl FnOnce(&mut Packet) -> bool) -> Tampering {
    let Some(sent) = observed.is::<PacketSent>() else {
        return Tampering::Pass;
    };
    let mut sent = sent.clone();
    match change(&mut sent.packet) {
        true => Tampering::Instead(Forged::new(sent)),
        false => Tampering::Pass,
    }
}

/// A leader hands over to both followers at once, and every vote is granted.
#[test]
fn two_leaders_in_one_term_are_found() {
    let (mut heartbeats, mut told) = (0, BTreeSet::new());
    let words = "both lead in term";
    check(&group(), Group::default(), words, move |observed| {
        packets(observed, |packet| {
            let Packet::Raft(message) = packet else {
                return false;
            };
            match message.kind {
                MessageKind::Heartbeat => {
                    heartbeats += 1;
                    if heartbeats <= HEARTBEATS || !told.insert(message.to) {
                        return false;
                    }
                    *message = Message {
                        kind: MessageKind::TimeoutNow,
                        commit: 0,
                        context: Vec::new(),
                        ..message.clone()
                    };
                    true
                }
                MessageKind::Voted => std::mem::take(&mut message.reject),
                _ => false,
            }
        })
    });
}

/// A follower's snapshot differs from its leader's state.
#[test]
fn diverging_members_are_found() {
    let fault: Fault = "10secs+90secs crash follower".parse().unwrap();
    let scenario = Scenario {
        duration: Duration::from_secs(120),
        faults: Some(vec![fault]),
        ..group()
    };
    let mut sums = BTreeMap::new();
    let words = "holds something else";
    check(&scenario, Group::default(), words, move |observed| {
        packets(observed, |packet| match packet {
            Packet::Chunk(chunk) => {
                let name = b"agent-1";
                let mut places = chunk.data.windows(name.len());
                let Some(at) = places.position(|place| place == name) else {
                    return false;
                };
                assert_eq!(
                    chunk.data.len() as u64,
                    chunk.head.total,
                    "more than one piece"
                );
                chunk.data[at + name.len() - 1] = b'9';
                let sum = crc32c::crc32c(&chunk.data);
                sums.insert(sum, std::mem::replace(&mut chunk.head.crc, sum));
                true
            }
            Packet::Received(received) => match sums.get(&received.crc) {
                Some(sum) => {
                    received.crc = *sum;
                    true
                }
                None => false,
            },
            Packet::Raft(_) => false,
        })
    });
}

/// One follower gets nothing new, and may still read.
#[test]
fn stale_read_is_found() {
    let (mut appends, mut behind) = (0, None);
    let words = "not linearizable";
    check(&group(), Registry::default(), words, move |observed| {
        let sent = observed.is::<PacketSent>();
        let Some(Packet::Raft(message)) = sent.map(|sent| &sent.packet) else {
            return Tampering::Pass;
        };
        if message.kind == MessageKind::Append && !message.entries.is_empty() {
            appends += 1;
            if appends > APPENDS {
                behind.get_or_insert(message.to);
            }
        }
        if behind != Some(message.to) {
            return Tampering::Pass;
        }
        match message.kind {
            MessageKind::Append if !message.entries.is_empty() => Tampering::Drop,
            MessageKind::ReadIndexIs => packets(observed, |packet| match packet {
                Packet::Raft(message) => {
                    message.index = 1;
                    true
                }
                _ => false,
            }),
            _ => Tampering::Pass,
        }
    });
}

/// A new leader forwards the launches that the old one had sent in vain.
#[test]
fn deposed_masters_launch_is_found() {
    let faults = [
        "20secs+70secs one_way leader agent-2",
        "60secs+20secs crash leader",
    ];
    let scenario = Scenario {
        faults: Some(faults.map(|fault| fault.parse().unwrap()).to_vec()),
        ..group()
    };
    let mut last: Option<(String, RunTasks)> = None;
    let words = "for the master of term";
    check(&scenario, Deposed::default(), words, move |observed| {
        let run = observed.is::<RunTasks>();
        let Some(run) = run.filter(|_| observed.to == "agent-2") else {
            return Tampering::Pass;
        };
        match &last {
            Some((master, old)) if master != observed.from => {
                let mut old = old.clone();
                for task in &mut old.tasks {
                    task.agent_id = run.tasks[0].agent_id.clone();
                }
                Tampering::Also(Forged::new(old))
            }
            _ => {
                last = Some((observed.from.to_owned(), run.clone()));
                Tampering::Pass
            }
        }
    });
}
