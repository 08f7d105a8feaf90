//! The v1 API: RecordIO, JSON, protobuf, and conversions to types of the protocol.

use std::collections::BTreeMap;
use std::fmt::Debug;

use module_api::demand::{AgentProperties, AgentTest};
use protocol::Demand;
use resources::{Invalid, ParseError};
use serde::de::DeserializeOwned;
use v1::schema::scheduler::OfferConstraints;
use v1::schema::{self, agent, executor, master, scheduler};
use v1::{Limits, Message, convert, json, protobuf, recordio};

use crate::corpus;
use crate::generate::generate;
use crate::rng::Rng;
use crate::target::{HeapLimit, Observation, Target, Verdict, same};

/// Two bytes may stand for a whole message in a list, whose capacity is up to twice its length and
/// at least four.
const MESSAGE: HeapLimit = HeapLimit {
    per_byte: 700,
    fixed: 16 << 10,
};
/// A record of three bytes becomes a handle of some tens of bytes, in a list that doubles its
/// capacity.
const STREAM: HeapLimit = HeapLimit {
    per_byte: 48,
    fixed: 4 << 10,
};
/// Limit of a decoded call in addition to the call: the same again, and errors with field names.
const DECODED: HeapLimit = HeapLimit {
    per_byte: 1500,
    fixed: 16 << 10,
};
/// A compiled expression takes up to 32 KiB, and a framework may have one hundred. During parsing,
/// a class of two bytes becomes all its ranges.
const EXPRESSIONS: HeapLimit = HeapLimit {
    per_byte: 16 << 10,
    fixed: 1 << 20,
};
/// Maximum length of a stream's record.
const RECORD_MAX: usize = 1 << 16;
/// The golden test of the crate: per case a name, bytes, JSON, and an empty line.
const GOLDEN: &str = include_str!("../../runtime/v1/tests/golden.txt");

/// All targets of this module.
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
        generate: Box::new(|rng| Some(random_stream(rng))),
        check: Box::new(stream),
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
    all.push(decoded_call("scheduler", |call: &scheduler::Call| {
        convert::scheduler::to_protocol(call)
            .map_err(|bad| Invalid::new("call", bad, "a valid one"))
    }));
    all.push(decoded_call("executor", convert::executor::to_protocol));
    all.push(decoded_call("operator", convert::operator::to_protocol));
    all.push(offer_constraints());
    all
}

/// A call, decoded to types of the protocol.
fn decoded_call<Call: Message + Default + 'static, Decoded: Debug + 'static>(
    who: &str,
    decode: fn(&Call) -> Result<Decoded, Invalid>,
) -> Target {
    let check = move |bytes: &[u8]| -> Verdict {
        let Ok(call) = protobuf::read::<Call>(bytes, Limits::default()) else {
            return Ok(Observation::default()); // `v1 ... call protobuf` is about these
        };
        match DECODED.enforce(bytes.len(), || decode(&call))? {
            Err(bad) => Observation::rejected(&bad),
            Ok(decode) => Ok(Observation::value(&decode)),
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
        generate: Box::new(|_| None),
        check: Box::new(check),
    }
}

/// Protobuf inputs of the golden test for this message.
fn golden(name: &str) -> Vec<Vec<u8>> {
    let lines: Vec<&str> = GOLDEN.lines().collect();
    let cases = lines.chunks(4).filter(|case| case[0].starts_with(name));
    cases.filter_map(|case| corpus::input(case[1])).collect()
}

/// Offer constraints, from bytes to a test of an agent.
fn offer_constraints() -> Target {
    let check = |bytes: &[u8]| -> Verdict {
        let read = |bytes: &[u8]| {
            let theirs: OfferConstraints = protobuf::read(bytes, Limits::default())?;
            convert::demands(Some(&theirs), &BTreeMap::new())
        };
        let demands = match MESSAGE.enforce(bytes.len(), || read(bytes))? {
            Err(bad) => return Observation::rejected(&bad),
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
            match EXPRESSIONS.enforce(bytes.len(), || AgentTest::new(role, demand))? {
                Err(bad) => return Observation::rejected(&bad),
                Ok(test) => {
                    let (hostname, domain) = ("node-1", None);
                    EXPRESSIONS.enforce(bytes.len(), || {
                        test.passes(AgentProperties {
                            hostname,
                            attributes: &attributes,
                            domain,
                        })
                    })?;
                }
            }
        }
        Ok(Observation::value(&demands))
    };
    let generate = |rng: &mut Rng| {
        let demands: BTreeMap<String, Demand> = generate(rng)?;
        Some(protobuf::write(&convert::constraints(&demands)))
    };
    Target {
        name: "v1 meaning of constraints".to_owned(),
        text: false,
        weight: 2,
        seeds: Vec::new(),
        generate: Box::new(generate),
        check: Box::new(check),
    }
}

/// Protobuf and JSON of a message.
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
    let target = |form, text, seeds, check: fn(&[u8]) -> Verdict| Target {
        name: format!("v1 {} {form}", name.replace("::", " ").to_lowercase()),
        text,
        weight: 2,
        seeds,
        generate: Box::new(|_| None),
        check: Box::new(check),
    };
    [
        target("protobuf", false, bytes, in_protobuf::<M>),
        target("json", true, text, in_json::<M>),
    ]
}

fn in_protobuf<M: Message + Default + PartialEq>(bytes: &[u8]) -> Verdict {
    let read = |bytes: &[u8]| protobuf::read::<M>(bytes, Limits::default());
    match MESSAGE.enforce(bytes.len(), || read(bytes))? {
        Err(bad) => Observation::rejected(&bad),
        Ok(message) => match read(&protobuf::write(&message)) {
            Ok(again) if same(&again, &message) => Ok(Observation::value(&message)),
            other => Err(format!("read {message:?}, and once written {other:?}")),
        },
    }
}

fn in_json<M: Message + Default + PartialEq>(text: &[u8]) -> Verdict {
    let read = |text: &[u8]| json::read::<M>(text, Limits::default());
    match MESSAGE.enforce(text.len(), || read(text))? {
        Err(bad) => Observation::rejected(&bad),
        // Writing sets the defaults of absent fields, so the second and third values are compared.
        Ok(message) => match read(&json::write(&message)) {
            Ok(again) => match read(&json::write(&again)) {
                Ok(third) if same(&third, &again) => Ok(Observation::value(&message)),
                other => Err(format!("read {again:?}, and once written {other:?}")),
            },
            Err(bad) => Err(format!(
                "read {message:?}, which once written is refused: {bad}"
            )),
        },
    }
}

/// A foreign message that converts to our type is equal after writing and reading.
fn meaning<Ours, Theirs>(name: &str) -> Target
where
    Ours: Debug
        + PartialEq
        + DeserializeOwned
        + for<'a> TryFrom<&'a Theirs, Error = Invalid>
        + 'static,
    Theirs: Message + Default + for<'a> From<&'a Ours>,
{
    let check = |bytes: &[u8]| -> Verdict {
        let read = |bytes: &[u8]| {
            let theirs: Theirs = protobuf::read(bytes, Limits::default())?;
            Ours::try_from(&theirs)
        };
        match read(bytes) {
            Err(bad) => Observation::rejected(&bad),
            Ok(ours) => match read(&protobuf::write(&Theirs::from(&ours))) {
                Ok(again) if again == ours => Ok(Observation::value(&ours)),
                other => Err(format!("read {ours:?}, and once written {other:?}")),
            },
        }
    };
    let generate = |rng: &mut Rng| {
        let ours: Ours = generate(rng)?;
        // A resource with copies is written once per copy.
        let few = !format!("{ours:?}").contains("copies");
        few.then(|| protobuf::write(&Theirs::from(&ours)))
    };
    Target {
        name: format!("v1 meaning of {name}"),
        text: false,
        weight: 2,
        seeds: Vec::new(),
        generate: Box::new(generate),
        check: Box::new(check),
    }
}

fn stream(bytes: &[u8]) -> Verdict {
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
    let whole = STREAM.enforce(bytes.len(), || decode(&mut std::iter::once(bytes)))?;
    if decode(&mut bytes.chunks(1)) != whole {
        return Err("read byte by byte it is something else".to_owned());
    }
    match whole {
        Err(bad) => Observation::rejected(&bad),
        Ok(records) => {
            let written: Vec<u8> = records
                .iter()
                .flat_map(|record| recordio::encode(record))
                .collect();
            match decode(&mut std::iter::once(&written[..])) {
                Ok(again) if again == records => Ok(Observation::value(&format_args!(
                    "Records{}",
                    "x".repeat(records.len().min(4))
                ))),
                other => Err(format!("read {records:?}, and once written {other:?}")),
            }
        }
    }
}

fn random_stream(rng: &mut Rng) -> Vec<u8> {
    let mut stream = Vec::new();
    for _ in 0..1 + rng.below(4) {
        let length = 1 + rng.below(40);
        stream.extend_from_slice(&recordio::encode(&rng.bytes(length)));
    }
    stream
}
