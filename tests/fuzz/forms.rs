//! Formats below the messages: frames, hellos, the stream of a Unix socket, certificates, stored
//! records, and the messages between an agent and its zygote.

use std::fmt::Debug;

use agent::host::procfs;
use agent::zygote::wire;
use bytes::BytesMut;
use runtime::testing::{node, run_simulated};
use runtime::wire::codec;
use runtime::wire::frame::Frame;
use runtime::{Garbled, Hello, Role};
use serde::Serialize;
use serde::de::DeserializeOwned;
use storage::{StoreError, journal, record};
use transport::unix::Bulks;
use transport::unix::chunk::{self, Kind};

use crate::generate::generate;
use crate::link;
use crate::rng::Rng;
use crate::target::{BODY, HeapLimit, Target, Verdict, rejected, same};

/// Limit for copies of the input.
const COPIES: HeapLimit = HeapLimit {
    per_byte: 8,
    fixed: 4 << 10,
};
/// Limit for journals, process lines and streams: a change of nine bytes becomes a value of some
/// tens of bytes in a list that doubles its capacity; similarly words of a line, and stream chunks
/// of six bytes, which the test stores.
const CHANGES: HeapLimit = HeapLimit {
    per_byte: 24,
    fixed: 4 << 10,
};
/// Limit for JSON: an empty object of two bytes becomes a value of some tens of bytes.
const JSON: HeapLimit = HeapLimit {
    per_byte: 200,
    fixed: 8 << 10,
};
/// The key of the tested records.
const KEY: &[u8] = b"registry/agent/m-S1";

/// A format other than the codec's, which has more inputs.
pub fn form(
    name: &str,
    check: impl Fn(&[u8]) -> Verdict + 'static,
    generate: impl Fn(&mut Rng) -> Option<Vec<u8>> + 'static,
) -> Target {
    Target {
        weight: 4,
        ..Target::new(name, check, generate)
    }
}

/// All targets of this module.
pub fn targets() -> Vec<Target> {
    vec![
        form("frame", frame, |rng| Some(link::frame(rng))),
        form("hello", hello, random_hello),
        form("unix stream", unix_stream, |rng| Some(random_stream(rng))),
        form("certificate", certificate, |_| None),
        form("record", record, |rng| {
            let (epoch, value) = (rng.number(), random_bytes(rng));
            Some(record::seal(KEY, epoch, &value))
        }),
        form("journal", journal, |rng| Some(random_entry(rng))),
        form("process name", process_name, |rng| {
            let names = ["a) S 1 1 1 (b", ") ", " (", "(sd-pam)", "sleep\n1 (x) Z 1"];
            Some(rng.pick(&names).as_bytes().to_vec())
        }),
        form(
            "zygote request",
            zygote::<wire::Request>,
            random_line::<wire::Request>,
        ),
        form(
            "zygote report",
            zygote::<wire::Report>,
            random_line::<wire::Report>,
        ),
    ]
}

fn random_bytes(rng: &mut Rng) -> Vec<u8> {
    let length = rng.below(40);
    rng.bytes(length)
}

fn frame(bytes: &[u8]) -> Verdict {
    let reread = || {
        let mut written = BytesMut::new();
        Frame::read(bytes)?.write(&mut written);
        Ok::<_, Garbled>(written)
    };
    match COPIES.enforce(bytes.len(), reread)? {
        Err(garbled) => rejected(&garbled),
        Ok(written) if written == bytes => Ok(()),
        Ok(written) => Err(format!("read as a frame, and written as {written:02x?}")),
    }
}

fn hello(bytes: &[u8]) -> Verdict {
    match BODY.enforce(bytes.len(), || Hello::decode(bytes))? {
        Err(garbled) => rejected(&garbled),
        Ok(hello) => {
            let written = codec::encode(&hello).map_err(|error| error.to_string())?;
            match Hello::decode(&written) {
                Ok(again) if again == hello => Ok(()),
                other => Err(format!("read {hello:?}, and once written {other:?}")),
            }
        }
    }
}

fn random_hello(rng: &mut Rng) -> Option<Vec<u8>> {
    if rng.one_in(2) {
        return Some(run_simulated(async {
            node("agent-1").role(Role::Agent).build().hello()
        }));
    }
    let mut hello: Hello = generate(rng)?;
    hello.frames = Hello::FRAMES;
    codec::encode(&hello).ok()
}

/// Reads all chunks of a Unix socket's stream and assembles its bulks.
fn unix_stream(bytes: &[u8]) -> Verdict {
    let mut written = Vec::new();
    let (mut buffer, mut bulks) = (BytesMut::from(bytes), Bulks::default());
    let mut read = || -> Result<(), String> {
        while let Some((kind, body)) = chunk::take(&mut buffer)? {
            written.push(kind as u8);
            written.extend_from_slice(&(body.len() as u32).to_be_bytes());
            written.extend_from_slice(&body);
            match kind {
                Kind::BulkBegin => bulks.begin(body)?,
                Kind::BulkPiece => drop(bulks.piece(body)?),
                _ => {}
            }
        }
        Ok(())
    };
    let read = CHANGES.enforce(bytes.len(), &mut read)?;
    if !bytes.starts_with(&written) || written.len() + buffer.len() != bytes.len() {
        return Err(format!("{written:02x?} is not what the bytes say"));
    }
    read.map_or_else(|reason| rejected(&reason), Ok)
}

fn random_stream(rng: &mut Rng) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut chunk = |kind: u8, body: &[u8]| {
        stream.push(kind);
        stream.extend_from_slice(&(body.len() as u32).to_be_bytes());
        stream.extend_from_slice(body);
    };
    for _ in 0..1 + rng.below(4) {
        let kind = 1 + rng.below(6) as u8;
        let body = random_bytes(rng);
        if kind != 4 && kind != 5 {
            chunk(kind, &body);
            continue;
        }
        let token = (rng.below(3) as u64).to_be_bytes();
        let length = (body.len() as u64).to_be_bytes();
        chunk(4, &[token, length].concat());
        chunk(5, &[&token[..], &body].concat());
    }
    stream
}

fn certificate(bytes: &[u8]) -> Verdict {
    match COPIES.enforce(bytes.len(), || transport::Subject::of(bytes))? {
        Err(reason) => rejected(&reason),
        Ok(subject) => {
            let text = subject.to_string();
            let expected = format!("meros://{}/{}", subject.role, subject.name);
            let found = bytes
                .windows(text.len())
                .any(|part| part == text.as_bytes());
            match found && text == expected {
                true => Ok(()),
                false => Err(format!("{text} does not stand in the certificate")),
            }
        }
    }
}

fn record(bytes: &[u8]) -> Verdict {
    let reseal = || {
        let opened = record::open(KEY, bytes)?;
        Ok::<_, StoreError>(record::seal(KEY, opened.epoch, opened.value))
    };
    match COPIES.enforce(bytes.len(), reseal)? {
        Err(error) => rejected(&error),
        Ok(sealed) if sealed == bytes => Ok(()),
        Ok(sealed) => Err(format!("opened, and sealed again as {sealed:02x?}")),
    }
}

/// An entry of the journal with these bytes as the body of its only part.
fn journal(bytes: &[u8]) -> Verdict {
    const NUMBER: u64 = 2;
    let slot = journal::slot(NUMBER);
    let key = journal::part_key(slot, 0);
    let sealed = record::seal(&key, NUMBER, bytes);
    let reread = || {
        let get = |asked: &[u8]| Ok((asked == key).then(|| sealed.clone()));
        let entry = journal::read(slot, get)?;
        Ok::<_, StoreError>(entry.map(|entry| journal::parts(entry.number, &entry.changes)))
    };
    match CHANGES.enforce(bytes.len(), reread)? {
        Err(error) => rejected(&error),
        Ok(Some(parts)) if parts == [(key, sealed.clone())] => Ok(()),
        // A commit without changes is not journalled, but can be read.
        Ok(Some(parts)) if parts.is_empty() && bytes == [0, 1] => Ok(()),
        Ok(other) => Err(format!("read, and written again as {other:02x?}")),
    }
}

fn random_entry(rng: &mut Rng) -> Vec<u8> {
    let mut entry = vec![0, 1];
    for _ in 0..rng.below(4) {
        let put = rng.one_in(2);
        entry.push(if put { 1 } else { 2 });
        for _ in 0..1 + usize::from(put) {
            let bytes = random_bytes(rng);
            entry.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
            entry.extend_from_slice(&bytes);
        }
    }
    entry
}

/// A process name is part of the line with the parent's pid, and must not be parsed as such.
fn process_name(name: &[u8]) -> Verdict {
    let name = String::from_utf8_lossy(name);
    let head = format!("42 ({name}) ");
    let line = format!("{head}S 7 42 43 0 -1 0 0 0 0 0 5 6 7 8 20 0 3 0 99 1000 50 0");
    let parse = |line: &str| CHANGES.enforce(line.len(), || procfs::parse_stat(line));
    let process = parse(&line)?;
    let expected = procfs::Process {
        pid: 42,
        parent: 7,
        group: 42,
        session: 43,
        zombie: false,
        user_ticks: 12,
        system_ticks: 14,
        threads: 3,
        resident_pages: 50,
    };
    if process != Some(expected) {
        return Err(format!("{line:?} was read as {process:?}"));
    }
    match parse(&name)? {
        None => rejected(&"no line of a process"),
        Some(_) => Ok(()),
    }
}

fn zygote<M: Serialize + DeserializeOwned + Debug>(bytes: &[u8]) -> Verdict {
    let mut arrived = bytes.to_vec();
    match JSON.enforce(bytes.len(), || wire::decode::<M>(&mut arrived))? {
        Err(error) => rejected(&error),
        Ok(None) if arrived == bytes => Ok(()),
        Ok(None) => Err("bytes were taken though no message is whole".to_owned()),
        Ok(Some(message)) => {
            let mut written = wire::encode(&message)
                .map_err(|error| format!("{message:?} was read and cannot be written: {error}"))?;
            match wire::decode::<M>(&mut written) {
                Ok(Some(again)) if same(&message, &again) && written.is_empty() => Ok(()),
                other => Err(format!("read {message:?}, and once written {other:?}")),
            }
        }
    }
}

fn random_line<M: Serialize + DeserializeOwned>(rng: &mut Rng) -> Option<Vec<u8>> {
    wire::encode(&generate::<M>(rng)?).ok()
}
