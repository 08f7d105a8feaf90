//! The forms of bytes below the messages: frames, hellos, the stream of a Unix socket, certificates, records on a disk, and what
//! an agent and its zygote say to each other.

use std::fmt::Debug;

use agent::procfs;
use agent::zygote::wire;
use runtime::rehearsal::{node, stage};
use runtime::{Hello, Role, codec};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::chance::Chance;
use crate::imagine::imagine;
use crate::link;
use crate::target::{BODY, Heap, Judged, Shown, Target, same};

/// Copies of the input and no more.
const COPIES: Heap = Heap {
    per_byte: 8,
    beside: 4 << 10,
};
/// A journal: a change of nine bytes is a value of some tens, in a list that doubles as it grows. As a line is of words, and as a
/// stream is of chunks of six bytes, all of which this test remembers.
const CHANGES: Heap = Heap {
    per_byte: 24,
    beside: 4 << 10,
};
/// JSON: an empty thing of two bytes is a value of some tens.
const JSON: Heap = Heap {
    per_byte: 200,
    beside: 8 << 10,
};
/// The key of the records that are spoilt.
const KEY: &[u8] = b"registry/agent/m-S1";

/// A form of bytes that is not the codec's.
pub fn form(
    name: &str,
    judge: impl Fn(&[u8]) -> Judged + 'static,
    imagine: impl Fn(&mut Chance) -> Option<Vec<u8>> + 'static,
) -> Target {
    Target {
        name: name.to_owned(),
        text: false,
        weight: 4,
        seeds: Vec::new(),
        imagine: Box::new(imagine),
        judge: Box::new(judge),
    }
}

/// All of them.
pub fn targets() -> Vec<Target> {
    vec![
        form("frame", frame, |chance| Some(link::frame(chance))),
        form("hello", hello, some_hello),
        form("unix stream", unix_stream, |chance| {
            Some(some_stream(chance))
        }),
        form("certificate", certificate, |_| None),
        form("record", record, |chance| {
            let (epoch, value) = (chance.number(), some_bytes(chance));
            Some(storage::fuzzing::seal(KEY, epoch, &value))
        }),
        form("journal", journal, |chance| Some(some_entry(chance))),
        form("process name", process_name, |chance| {
            let names = ["a) S 1 1 1 (b", ") ", " (", "(sd-pam)", "sleep\n1 (x) Z 1"];
            Some(chance.pick(&names).as_bytes().to_vec())
        }),
        form(
            "zygote request",
            zygote::<wire::Request>,
            some_line::<wire::Request>,
        ),
        form(
            "zygote report",
            zygote::<wire::Report>,
            some_line::<wire::Report>,
        ),
    ]
}

fn some_bytes(chance: &mut Chance) -> Vec<u8> {
    let length = chance.below(40);
    chance.bytes(length)
}

fn frame(bytes: &[u8]) -> Judged {
    match COPIES.hold(bytes.len(), || runtime::fuzzing::reread_frame(bytes))? {
        Err(garbled) => Shown::refused(&garbled),
        Ok(written) if written == bytes => Ok(Shown::value(&format_args!(
            "Kind{}",
            (b'A' + (bytes[0] & 0x0f)) as char
        ))),
        Ok(written) => Err(format!("read as a frame, and written as {written:02x?}")),
    }
}

fn hello(bytes: &[u8]) -> Judged {
    match BODY.hold(bytes.len(), || Hello::decode(bytes))? {
        Err(garbled) => Shown::refused(&garbled),
        Ok(hello) => {
            let written = codec::encode(&hello).map_err(|error| error.to_string())?;
            match Hello::decode(&written) {
                Ok(again) if again == hello => Ok(Shown::value(&hello)),
                other => Err(format!("read {hello:?}, and once written {other:?}")),
            }
        }
    }
}

fn some_hello(chance: &mut Chance) -> Option<Vec<u8>> {
    if chance.one_in(2) {
        return Some(stage(async {
            node("agent-1").role(Role::Agent).build().hello()
        }));
    }
    let mut hello: Hello = imagine(chance)?;
    hello.frames = Hello::FRAMES;
    codec::encode(&hello).ok()
}

fn unix_stream(bytes: &[u8]) -> Judged {
    let read = CHANGES.hold(bytes.len(), || transport::fuzzing::read_stream(bytes))?;
    let mut written = Vec::new();
    for (kind, body) in &read.chunks {
        written.push(*kind);
        written.extend_from_slice(&(body.len() as u32).to_be_bytes());
        written.extend_from_slice(body);
    }
    if !bytes.starts_with(&written) || written.len() + read.left != bytes.len() {
        return Err(format!("{read:?} is not what the bytes say"));
    }
    match read.garbled {
        Some(reason) => Shown::refused(&reason),
        None => Ok(Shown::value(&format_args!(
            "chunks: C{} bulks: B{}",
            "x".repeat(read.chunks.len().min(4)),
            "x".repeat(read.bulks.len().min(3))
        ))),
    }
}

fn some_stream(chance: &mut Chance) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut chunk = |kind: u8, body: &[u8]| {
        stream.push(kind);
        stream.extend_from_slice(&(body.len() as u32).to_be_bytes());
        stream.extend_from_slice(body);
    };
    for _ in 0..1 + chance.below(4) {
        let kind = 1 + chance.below(6) as u8;
        let body = some_bytes(chance);
        if kind != 4 && kind != 5 {
            chunk(kind, &body);
            continue;
        }
        let token = (chance.below(3) as u64).to_be_bytes();
        let length = (body.len() as u64).to_be_bytes();
        chunk(4, &[token, length].concat());
        chunk(5, &[&token[..], &body].concat());
    }
    stream
}

fn certificate(bytes: &[u8]) -> Judged {
    match COPIES.hold(bytes.len(), || transport::Subject::of(bytes))? {
        Err(reason) => Shown::refused(&reason),
        Ok(subject) => {
            let text = subject.to_string();
            let expected = format!("meros://{}/{}", subject.role, subject.name);
            let found = bytes
                .windows(text.len())
                .any(|part| part == text.as_bytes());
            match found && text == expected {
                true => Ok(Shown::value(&subject)),
                false => Err(format!("{text} does not stand in the certificate")),
            }
        }
    }
}

fn record(bytes: &[u8]) -> Judged {
    match COPIES.hold(bytes.len(), || storage::fuzzing::reseal(KEY, bytes))? {
        Err(error) => Shown::refused(&error),
        Ok(sealed) if sealed == bytes => Ok(Shown::value(&"Record")),
        Ok(sealed) => Err(format!("opened, and sealed again as {sealed:02x?}")),
    }
}

fn journal(bytes: &[u8]) -> Judged {
    match CHANGES.hold(bytes.len(), || storage::fuzzing::reread_journal(bytes))? {
        Err(error) => Shown::refused(&error),
        Ok(None) => Err("a head that stands in its slot was read as no entry".to_owned()),
        Ok(Some(written)) if written == bytes => Ok(Shown::value(&"Entry")),
        Ok(Some(written)) => Err(format!("read, and written again as {written:02x?}")),
    }
}

fn some_entry(chance: &mut Chance) -> Vec<u8> {
    let mut entry = vec![0, 1];
    for _ in 0..chance.below(4) {
        let put = chance.one_in(2);
        entry.push(if put { 1 } else { 2 });
        for _ in 0..1 + usize::from(put) {
            let bytes = some_bytes(chance);
            entry.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
            entry.extend_from_slice(&bytes);
        }
    }
    entry
}

/// What a task calls itself stands within the line that says who its parent is, and must not be taken for it.
fn process_name(name: &[u8]) -> Judged {
    let name = String::from_utf8_lossy(name);
    let head = format!("42 ({name}) ");
    let line = format!("{head}S 7 42 43 0 -1 0 0 0 0 0 5 6 7 8 20 0 3 0 99 1000 50 0");
    let parse = |line: &str| CHANGES.hold(line.len(), || procfs::parse_stat(line));
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
        None => Shown::refused(&"no line of a process"),
        Some(process) => Ok(Shown::value(&process)),
    }
}

fn zygote<M: Serialize + DeserializeOwned + Debug>(bytes: &[u8]) -> Judged {
    let mut arrived = bytes.to_vec();
    match JSON.hold(bytes.len(), || wire::decode::<M>(&mut arrived))? {
        Err(error) => Shown::refused(&error),
        Ok(None) if arrived == bytes => Ok(Shown::value(&"Wanting")),
        Ok(None) => Err("bytes were taken though no message is whole".to_owned()),
        Ok(Some(message)) => {
            let mut written = wire::encode(&message)
                .map_err(|error| format!("{message:?} was read and cannot be written: {error}"))?;
            match wire::decode::<M>(&mut written) {
                Ok(Some(again)) if same(&message, &again) && written.is_empty() => {
                    Ok(Shown::value(&message))
                }
                other => Err(format!("read {message:?}, and once written {other:?}")),
            }
        }
    }
}

fn some_line<M: Serialize + DeserializeOwned>(chance: &mut Chance) -> Option<Vec<u8>> {
    wire::encode(&imagine::<M>(chance)?).ok()
}
