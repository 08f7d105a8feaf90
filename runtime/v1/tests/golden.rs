//! Golden bytes: the calls and events of each API, as protobuf and as JSON.
//!
//! `golden.txt` has three lines for each: type and name, bytes, JSON. The bytes were made from
//! Mesos' field numbers by another implementation of protobuf, and the JSON was written by hand.
//! Neither ever changes. Every call and every event is covered.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of it is tests")]

use std::collections::BTreeSet;
use std::fmt::Write;

use meros_v1::message::Enum;
use meros_v1::schema::{agent, executor, master, scheduler};
use meros_v1::{Limits, Message, json, protobuf};

const GOLDEN: &str = include_str!("golden.txt");

fn bytes_of(hex: &str) -> Vec<u8> {
    let pair = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(pair).collect()
}

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}

fn check<M: Message + Default + PartialEq>(name: &str, hex: &str, text: &str) {
    let from_bytes: M = protobuf::read(&bytes_of(hex), Limits::default())
        .unwrap_or_else(|bad| panic!("{name}: {bad}"));
    let from_text: M = json::read(text.as_bytes(), Limits::default())
        .unwrap_or_else(|bad| panic!("{name}: {bad}"));
    assert_eq!(hex_of(&protobuf::write(&from_bytes)), hex, "{name}");
    let written = String::from_utf8(json::write(&from_bytes)).unwrap();
    assert_eq!(written, text, "{name}");
    // The JSON has only the defaults of absent fields in addition.
    let again: M = json::read(written.as_bytes(), Limits::default()).unwrap();
    assert_eq!(again, from_text, "{name}");
}

/// SPEC 2.1-2.7.
// Covers 2.5 SUBSCRIBED, LAUNCH, KILL, ACKNOWLEDGED, MESSAGE, ERROR, SHUTDOWN, HEARTBEAT.
#[test]
fn calls_and_events_match_the_golden_file() {
    let (mut names, mut types) = (BTreeSet::new(), BTreeSet::new());
    let lines: Vec<&str> = GOLDEN.lines().collect();
    for case in lines.split(|line| line.is_empty()) {
        let [name, hex, text] = case else { continue };
        assert!(names.insert(name), "{name} comes twice");
        let of = name.split_once(' ').unwrap().0;
        let check = match of {
            "scheduler::Call" => check::<scheduler::Call>,
            "scheduler::Event" => check::<scheduler::Event>,
            "executor::Call" => check::<executor::Call>,
            "executor::Event" => check::<executor::Event>,
            "master::Call" => check::<master::Call>,
            "master::Response" => check::<master::Response>,
            "master::Event" => check::<master::Event>,
            "agent::Call" => check::<agent::Call>,
            "agent::Response" => check::<agent::Response>,
            "agent::ProcessIO" => check::<agent::ProcessIO>,
            other => panic!("{other} is not known"),
        };
        check(name, hex, text);
        let said: serde_json::Value = serde_json::from_str(text).unwrap();
        types.insert(format!("{of} {}", said["type"].as_str().unwrap()));
    }
    all_of::<scheduler::CallType>("scheduler::Call", &types);
    all_of::<scheduler::EventType>("scheduler::Event", &types);
    all_of::<executor::CallType>("executor::Call", &types);
    all_of::<executor::EventType>("executor::Event", &types);
    all_of::<master::CallType>("master::Call", &types);
    all_of::<master::EventType>("master::Event", &types);
    all_of::<agent::CallType>("agent::Call", &types);
}

/// Each type of call or event except `UNKNOWN` is covered.
fn all_of<T: Enum + 'static>(of: &str, types: &BTreeSet<String>) {
    for (_, _, name) in T::VALUES.iter().skip(1) {
        let wanted = format!("{of} {name}");
        assert!(types.contains(&wanted), "{wanted} is missing");
    }
}
