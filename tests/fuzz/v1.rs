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
use crate::forms::form;
use crate::generate::generate;
use crate::rng::Rng;
use crate::target::{HeapLimit, Target, Verdict, rejected, same_again};

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
    let seeds = [
        &b"2\n{}\n\n1\nx"[..],
        b"9223372036854775808\nx",
        b"+1\nx",
        b" 1\nx",
        b"0\n",
    ];
    let recordio = form("v1 recordio", stream, |rng| Some(random_stream(rng)));
    let mut all = vec![recordio.with_seeds(seeds.map(<[u8]>::to_vec).into())];
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
    all.push(meaning::<
        protocol::QosCorrection,
        agent::module::QoSCorrection,
    >("correction"));
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
            return Ok(()); // `v1 ... call protobuf` is about these
        };
        let decoded = DECODED.enforce(bytes.len(), || decode(&call))?;
        decoded.map_or_else(|bad| rejected(&bad), |_| Ok(()))
    };
    let name = match who {
        "operator" => "master",
        who => who,
    };
    let seeds = golden(&format!("{name}::Call"), 1);
    Target::new(format!("v1 words of {who}"), check, |_| None).with_seeds(seeds)
}

/// Inputs of the golden test for this message: protobuf in line 1 of a case, JSON in line 2.
fn golden(name: &str, line: usize) -> Vec<Vec<u8>> {
    let lines: Vec<&str> = GOLDEN.lines().collect();
    let cases = lines.chunks(4).filter(|case| case[0].starts_with(name));
    let input = |case: &[&str]| match line {
        1 => corpus::input(case[1]),
        _ => Some(case[line].as_bytes().to_vec()),
    };
    cases.filter_map(input).collect()
}

/// Offer constraints, from bytes to a test of an agent.
fn offer_constraints() -> Target {
    let check = |bytes: &[u8]| -> Verdict {
        let read = |bytes: &[u8]| {
            let theirs: OfferConstraints = protobuf::read(bytes, Limits::default())?;
            convert::demands(Some(&theirs), &BTreeMap::new())
        };
        let demands = match MESSAGE.enforce(bytes.len(), || read(bytes))? {
            Err(bad) => return rejected(&bad),
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
                Err(bad) => return rejected(&bad),
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
        Ok(())
    };
    let generate = |rng: &mut Rng| {
        let demands: BTreeMap<String, Demand> = generate(rng)?;
        Some(protobuf::write(&convert::constraints(&demands)))
    };
    Target::new("v1 meaning of constraints", check, generate)
}

/// Protobuf and JSON of a message.
fn forms<M: Message + Default + PartialEq + 'static>(name: &'static str) -> [Target; 2] {
    let call = name.replace("::", " ").to_lowercase();
    let protobuf = Target::new(format!("v1 {call} protobuf"), in_protobuf::<M>, |_| None);
    let json = Target {
        text: true,
        ..Target::new(format!("v1 {call} json"), in_json::<M>, |_| None)
    };
    [
        protobuf.with_seeds(golden(name, 1)),
        json.with_seeds(golden(name, 2)),
    ]
}

fn in_protobuf<M: Message + Default + PartialEq>(bytes: &[u8]) -> Verdict {
    let read = |bytes: &[u8]| protobuf::read::<M>(bytes, Limits::default());
    match MESSAGE.enforce(bytes.len(), || read(bytes))? {
        Err(bad) => rejected(&bad),
        Ok(message) => same_again(&message, read(&protobuf::write(&message))),
    }
}

fn in_json<M: Message + Default + PartialEq>(text: &[u8]) -> Verdict {
    let read = |text: &[u8]| json::read::<M>(text, Limits::default());
    match MESSAGE.enforce(text.len(), || read(text))? {
        Err(bad) => rejected(&bad),
        // Writing sets the defaults of absent fields, so the second and third values are compared.
        Ok(message) => match read(&json::write(&message)) {
            Ok(again) => same_again(&again, read(&json::write(&again))),
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
            Err(bad) => rejected(&bad),
            Ok(ours) => match read(&protobuf::write(&Theirs::from(&ours))) {
                Ok(again) if again == ours => Ok(()),
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
    Target::new(format!("v1 meaning of {name}"), check, generate)
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
        Err(bad) => rejected(&bad),
        Ok(records) => {
            let written: Vec<u8> = records
                .iter()
                .flat_map(|record| recordio::encode(record))
                .collect();
            match decode(&mut std::iter::once(&written[..])) {
                Ok(again) if again == records => Ok(()),
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
