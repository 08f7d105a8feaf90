//! Bugs of a group of masters: in what its members say to each other, and in what a deposed one had said.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use consensus::log::{Entry, EntryKind};
use consensus::member::PacketSent;
use consensus::wire::{Message, MessageKind, Packet};
use protocol::message::task::RunTasks;
use simulator::checkers::{Deposed, Group, Registry};
use simulator::{Fault, Forged, Meddling, Scenario, Spoken};

use super::{calm, check};

/// Operations of the registry are longer than this, and those of a roster shorter.
const LONG_ENTRY: usize = 60;
/// A group has found itself when its leader has been heard so often.
const HEARTBEATS: u32 = 60;
/// And has something to read after so many messages with entries.
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

/// The entries that a leader sends are changed on their way; `change` says how, and whether to this follower.
fn entries(spoken: &Spoken<'_>, change: impl FnOnce(&str, &mut Vec<Entry>) -> bool) -> Meddling {
    let Some(sent) = spoken.is::<PacketSent>() else {
        return Meddling::Pass;
    };
    let mut sent = sent.clone();
    let changed = match &mut sent.packet {
        Packet::Raft(message) => change(spoken.to, &mut message.entries),
        _ => false,
    };
    match changed {
        true => Meddling::Instead(Forged::new(sent)),
        false => Meddling::Pass,
    }
}

/// One follower is sent other entries than the others.
#[test]
fn members_whose_logs_differ_are_found() {
    check(&group(), Group::default(), "committed entry", |spoken| {
        entries(spoken, |to, entries| {
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

/// Followers write an operation that they know already in the place of every other one, so that the next leader lacks what was
/// acknowledged.
#[test]
fn an_acknowledged_operation_that_is_lost_is_found() {
    let mut first: Option<Vec<u8>> = None;
    check(
        &group(),
        Registry::default(),
        "not linearizable",
        move |spoken| {
            entries(spoken, |_, entries| {
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

/// What a packet of the group says is changed on its way; `change` says how, and whether.
fn packets(spoken: &Spoken<'_>, change: impl FnOnce(&mut Packet) -> bool) -> Meddling {
    let Some(sent) = spoken.is::<PacketSent>() else {
        return Meddling::Pass;
    };
    let mut sent = sent.clone();
    match change(&mut sent.packet) {
        true => Meddling::Instead(Forged::new(sent)),
        false => Meddling::Pass,
    }
}

/// A leader hands over to both followers at once, and nobody refuses anybody a vote.
#[test]
fn two_leaders_of_one_term_are_found() {
    let (mut heartbeats, mut told) = (0, BTreeSet::new());
    let words = "both lead in term";
    check(&group(), Group::default(), words, move |spoken| {
        packets(spoken, |packet| {
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

/// What a follower is sent as a snapshot is not what its leader holds.
#[test]
fn members_that_hold_different_things_are_found() {
    let fault: Fault = "10secs+90secs crash follower".parse().unwrap();
    let scenario = Scenario {
        duration: Duration::from_secs(120),
        faults: Some(vec![fault]),
        ..group()
    };
    let mut sums = BTreeMap::new();
    let words = "holds something else";
    check(&scenario, Group::default(), words, move |spoken| {
        packets(spoken, |packet| match packet {
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

/// One follower is sent nothing new, and may read all the same.
#[test]
fn a_read_of_what_was_there_before_is_found() {
    let (mut appends, mut behind) = (0, None);
    let words = "not linearizable";
    check(&group(), Registry::default(), words, move |spoken| {
        let sent = spoken.is::<PacketSent>();
        let Some(Packet::Raft(message)) = sent.map(|sent| &sent.packet) else {
            return Meddling::Pass;
        };
        if message.kind == MessageKind::Append && !message.entries.is_empty() {
            appends += 1;
            if appends > APPENDS {
                behind.get_or_insert(message.to);
            }
        }
        if behind != Some(message.to) {
            return Meddling::Pass;
        }
        match message.kind {
            MessageKind::Append if !message.entries.is_empty() => Meddling::Drop,
            MessageKind::ReadIndexIs => packets(spoken, |packet| match packet {
                Packet::Raft(message) => {
                    message.index = 1;
                    true
                }
                _ => false,
            }),
            _ => Meddling::Pass,
        }
    });
}

/// A new leader passes on what the old one had sent to an agent in vain.
#[test]
fn what_a_deposed_master_wanted_started_is_found() {
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
    check(&scenario, Deposed::default(), words, move |spoken| {
        let run = spoken.is::<RunTasks>();
        let Some(run) = run.filter(|_| spoken.to == "agent-2") else {
            return Meddling::Pass;
        };
        match &last {
            Some((master, old)) if master != spoken.from => {
                let mut old = old.clone();
                for task in &mut old.tasks {
                    task.agent_id = run.tasks[0].agent_id.clone();
                }
                Meddling::Also(Forged::new(old))
            }
            _ => {
                last = Some((spoken.from.to_owned(), run.clone()));
                Meddling::Pass
            }
        }
    });
}
