//! The v1 API: RecordIO, JSON, protobuf, and what the messages mean in the words of the protocol.

use std::collections::BTreeMap;
use std::fmt::Debug;

use module_api::demand::{AgentTest, Looks};
use protocol::Demand;
use resources::{Invalid, ParseError};
use serde::de::DeserializeOwned;
use v1::schema::scheduler::OfferConstraints;
use v1::schema::{self, agent, executor, master, scheduler};
use v1::{Limits, Message, convert, json, protobuf, recordio};

use crate::chance::Chance;
use crate::corpus;
use crate::imagine::imagine;
use crate::target::{Heap, Judged, Shown, Target, same};

/// Two bytes may stand for a whole message in a list, and a list has room for twice what is in it and for four at least.
const MESSAGE: Heap = Heap {
    per_byte: 700,
    beside: 16 << 10,
};
/// A record of three bytes is a handle of some tens, in a list that doubles as it grows.
const STREAM: Heap = Heap {
    per_byte: 48,
    beside: 4 << 10,
};
/// What a call says, beside the call: as much again, with the names of fields in what is refused.
const WORDS: Heap = Heap {
    per_byte: 1500,
    beside: 16 << 10,
};
/// A compiled expression takes up to 32 KiB, each of the hundred that a framework may have; while it is read, a class of two bytes is all its ranges.
const EXPRESSIONS: Heap = Heap {
    per_byte: 16 << 10,
    beside: 1 << 20,
};
/// The longest record of a stream.
const RECORD_MAX: usize = 1 << 16;
/// The inputs of the crate's own golden test: a name, bytes, JSON, and an empty line.
const GOLDEN: &str = include_str!("../../runtime/v1/tests/golden.txt");

/// All of them.
pub fn targets() -> Vec<Target> {
    let mut all = vec![Target {
        name: "v1 recordio".to_owned(),
        text: false,
        weight: 4,
        seeds: [
            &b"2\n{}\n\n1\nx"[..],
            b"9223372036854775808\nx",
            b"+1\nx",
            b" 1\nx",
            b"0\n",
        ]
        .map(<[u8]>::to_vec)
        .into(),
        imagine: Box::new(|chance| Some(some_stream(chance))),
        judge: Box::new(stream),
    }];
    all.extend(forms::<scheduler::Call>("scheduler::Call"));
    all.extend(forms::<scheduler::Event>("scheduler::Event"));
    all.extend(forms::<executor::Call>("executor::Call"));
    all.extend(forms::<executor::Event>("executor::Event"));
    all.extend(forms::<master::Call>("master::Call"));
    all.extend(forms::<agent::Call>("agent::Call"));
    all.push(meaning::<protocol::TaskInfo, schema::TaskInfo>("task"));
    all.push(meaning::<protocol::TaskStatus, schema::TaskStatus>(
        "status",
    ));
    all.push(meaning::<protocol::FrameworkInfo, schema::FrameworkInfo>(
        "framework",
    ));
    all.push(meaning::<protocol::Operation, schema::OfferOperation>(
        "operation",
    ));
    all.push(meaning::<protocol::AgentInfo, schema::AgentInfo>("agent"));
    all.push(words("scheduler", |call: &scheduler::Call| {
        convert::scheduler::said(call).map_err(|bad| Invalid::new("call", bad, "a valid one"))
    }));
    all.push(words("executor", convert::executor::said));
    all.push(words("operator", convert::operator::said));
    all.push(offer_constraints());
    all
}

/// What a call says, in the words of the protocol.
fn words<Call: Message + Default + 'static, Said: Debug + 'static>(
    who: &str,
    said: fn(&Call) -> Result<Said, Invalid>,
) -> Target {
    let judge = move |bytes: &[u8]| -> Judged {
        let Ok(call) = protobuf::read::<Call>(bytes, Limits::default()) else {
            return Ok(Shown::default()); // `v1 ... call protobuf` is about these
        };
        match WORDS.hold(bytes.len(), || said(&call))? {
            Err(bad) => Shown::refused(&bad),
            Ok(said) => Ok(Shown::value(&said)),
        }
    };
    let name = match who {
        "operator" => "master",
        who => who,
    };
    Target {
        name: format!("v1 words of {who}"),
        text: false,
        weight: 2,
        seeds: golden(&format!("{name}::Call")),
        imagine: Box::new(|_| None),
        judge: Box::new(judge),
    }
}

/// The inputs of the crate's golden test that are such a message, in protobuf.
fn golden(name: &str) -> Vec<Vec<u8>> {
    let lines: Vec<&str> = GOLDEN.lines().collect();
    let cases = lines.chunks(4).filter(|case| case[0].starts_with(name));
    cases.filter_map(|case| corpus::input(case[1])).collect()
}

/// Offer constraints, from their bytes to a test of an agent.
fn offer_constraints() -> Target {
    let judge = |bytes: &[u8]| -> Judged {
        let read = |bytes: &[u8]| {
            let theirs: OfferConstraints = protobuf::read(bytes, Limits::default())?;
            convert::demands(Some(&theirs), &BTreeMap::new())
        };
        let demands = match MESSAGE.hold(bytes.len(), || read(bytes))? {
            Err(bad) => return Shown::refused(&bad),
            Ok(demands) => demands,
        };
        match read(&protobuf::write(&convert::constraints(&demands))) {
            Ok(again) if again == demands => {}
            other => return Err(format!("read {demands:?}, and once written {other:?}")),
        }
        let attributes = "rack:rack-2;cores:[1-4];weight:1.5"
            .parse()
            .map_err(|error: ParseError| error.to_string())?;
        for (role, demand) in &demands {
            match EXPRESSIONS.hold(bytes.len(), || AgentTest::new(role, demand))? {
                Err(bad) => return Shown::refused(&bad),
                Ok(test) => {
                    let (hostname, domain) = ("node-1", None);
                    EXPRESSIONS.hold(bytes.len(), || {
                        test.passes(Looks {
                            hostname,
                            attributes: &attributes,
                            domain,
                        })
                    })?;
                }
            }
        }
        Ok(Shown::value(&demands))
    };
    let imagine = |chance: &mut Chance| {
        let demands: BTreeMap<String, Demand> = imagine(chance)?;
        Some(protobuf::write(&convert::constraints(&demands)))
    };
    Target {
        name: "v1 meaning of constraints".to_owned(),
        text: false,
        weight: 2,
        seeds: Vec::new(),
        imagine: Box::new(imagine),
        judge: Box::new(judge),
    }
}

/// Both forms of a message.
fn forms<M: Message + Default + PartialEq + 'static>(name: &'static str) -> [Target; 2] {
    let lines: Vec<&str> = GOLDEN.lines().collect();
    let golden = |line: usize| {
        let cases = lines.chunks(4).filter(|case| case[0].starts_with(name));
        cases.map(|case| case[line]).collect::<Vec<_>>()
    };
    let hex = |hex: &str| -> Vec<u8> {
        let pair = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap_or_default();
        (0..hex.len()).step_by(2).map(pair).collect()
    };
    let bytes: Vec<Vec<u8>> = golden(1).into_iter().map(hex).collect();
    let text: Vec<Vec<u8>> = golden(2)
        .into_iter()
        .map(|text| text.as_bytes().to_vec())
        .collect();
    let target = |form, text, seeds, judge: fn(&[u8]) -> Judged| Target {
        name: format!("v1 {} {form}", name.replace("::", " ").to_lowercase()),
        text,
        weight: 2,
        seeds,
        imagine: Box::new(|_| None),
        judge: Box::new(judge),
    };
    [
        target("protobuf", false, bytes, in_protobuf::<M>),
        target("json", true, text, in_json::<M>),
    ]
}

fn in_protobuf<M: Message + Default + PartialEq>(bytes: &[u8]) -> Judged {
    let read = |bytes: &[u8]| protobuf::read::<M>(bytes, Limits::default());
    match MESSAGE.hold(bytes.len(), || read(bytes))? {
        Err(bad) => Shown::refused(&bad),
        Ok(message) => match read(&protobuf::write(&message)) {
            Ok(again) if same(&again, &message) => Ok(Shown::value(&message)),
            other => Err(format!("read {message:?}, and once written {other:?}")),
        },
    }
}

fn in_json<M: Message + Default + PartialEq>(text: &[u8]) -> Judged {
    let read = |text: &[u8]| json::read::<M>(text, Limits::default());
    match MESSAGE.hold(text.len(), || read(text))? {
        Err(bad) => Shown::refused(&bad),
        // Writing says what absent fields mean, so it is the second reading that gives the same as the third.
        Ok(message) => match read(&json::write(&message)) {
            Ok(again) => match read(&json::write(&again)) {
                Ok(third) if same(&third, &again) => Ok(Shown::value(&message)),
                other => Err(format!("read {again:?}, and once written {other:?}")),
            },
            Err(bad) => Err(format!(
                "read {message:?}, which once written is refused: {bad}"
            )),
        },
    }
}

/// A message of a stranger that means something here means the same once it was written and read again.
fn meaning<Ours, Theirs>(name: &str) -> Target
where
    Ours: Debug
        + PartialEq
        + DeserializeOwned
        + for<'a> TryFrom<&'a Theirs, Error = Invalid>
        + 'static,
    Theirs: Message + Default + for<'a> From<&'a Ours>,
{
    let judge = |bytes: &[u8]| -> Judged {
        let read = |bytes: &[u8]| {
            let theirs: Theirs = protobuf::read(bytes, Limits::default())?;
            Ours::try_from(&theirs)
        };
        match read(bytes) {
            Err(bad) => Shown::refused(&bad),
            Ok(ours) => match read(&protobuf::write(&Theirs::from(&ours))) {
                Ok(again) if again == ours => Ok(Shown::value(&ours)),
                other => Err(format!("read {ours:?}, and once written {other:?}")),
            },
        }
    };
    let imagine = |chance: &mut Chance| {
        let ours: Ours = imagine(chance)?;
        // What is held many times is written as often.
        let few = !format!("{ours:?}").contains("copies");
        few.then(|| protobuf::write(&Theirs::from(&ours)))
    };
    Target {
        name: format!("v1 meaning of {name}"),
        text: false,
        weight: 2,
        seeds: Vec::new(),
        imagine: Box::new(imagine),
        judge: Box::new(judge),
    }
}

fn stream(bytes: &[u8]) -> Judged {
    let decode = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let mut decoder = recordio::Decoder::new(RECORD_MAX);
        let mut records = Vec::new();
        for mut piece in pieces {
            while let Some(record) = decoder.next(&mut piece)? {
                records.push(record);
            }
        }
        decoder.end().map(|()| records)
    };
    let whole = STREAM.hold(bytes.len(), || decode(&mut std::iter::once(bytes)))?;
    if decode(&mut bytes.chunks(1)) != whole {
        return Err("read byte by byte it is something else".to_owned());
    }
    match whole {
        Err(bad) => Shown::refused(&bad),
        Ok(records) => {
            let written: Vec<u8> = records
                .iter()
                .flat_map(|record| recordio::encode(record))
                .collect();
            match decode(&mut std::iter::once(&written[..])) {
                Ok(again) if again == records => Ok(Shown::value(&format_args!(
                    "Records{}",
                    "x".repeat(records.len().min(4))
                ))),
                other => Err(format!("read {records:?}, and once written {other:?}")),
            }
        }
    }
}

fn some_stream(chance: &mut Chance) -> Vec<u8> {
    let mut stream = Vec::new();
    for _ in 0..1 + chance.below(4) {
        let length = 1 + chance.below(40);
        stream.extend_from_slice(&recordio::encode(&chance.bytes(length)));
    }
    stream
}
