//! What services keep on their disks beside the registry's records: the agent's ledger and operations, the log and the snapshots of a group
//! of masters, and the dump of a registry.
//!
//! The store under them finds out damage by checksums, which have targets of their own (`record`, `journal`). What is fed here comes with the
//! right ones, as from another version or a damaged program: it is put together piece by piece, and whatever does not fit must be named.

use std::fmt::Write as _;
use std::sync::Arc;

use agent::OpenStore;
use agent::ledger::record::{AgentRecord, ContainerRecord, Entry, Found, Key, StateRecord, piece};
use agent::operations::checkpoint::{Checkpoint, Keeper};
use bytes::Bytes;
use consensus::dump::Dump;
use consensus::fuzzing;
use consensus::log::Loaded;
use consensus::machine::StateMachine;
use consensus::member::charter::{Chartered, Entered};
use consensus::member::roster::RosterChange;
use master::registry::{RegistryMachine, RegistryOperation};
use protocol::{ContainerId, FrameworkId, StatusUpdate, TaskInfo};
use runtime::codec::{decode, encode};
use storage::forgetful::ForgetfulDisk;
use storage::{Changes, Store, StoreError};

use crate::chance::Chance;
use crate::forms::form;
use crate::imagine::imagine;
use crate::target::{Heap, Judged, Shown, Target, body, same};

/// Records that are copied, kept in maps, and put together.
const RECORDS: Heap = Heap {
    per_byte: 300,
    beside: 64 << 10,
};

/// All of them.
pub fn targets() -> Vec<Target> {
    vec![
        body::<AgentRecord>("ledger/agent"),
        body::<ContainerRecord>("ledger/container"),
        body::<StateRecord>("ledger/state"),
        form("ledger", ledger, |chance| {
            Some(framed(&some_ledger(chance)?))
        }),
        form(
            "log turn",
            |bytes| reread("turn", bytes, fuzzing::reread_chunk),
            |chance| Some(turn(chance, 1, 0, 1).1),
        ),
        form(
            "log member",
            |bytes| reread("member", bytes, fuzzing::reread_meta),
            |chance| Some(member(chance, 1, None)),
        ),
        form("log", log, |chance| Some(framed(&some_log(chance)))),
        form("snapshot", snapshot, some_snapshot),
        body::<Vec<RegistryOperation>>("registry/operations").judged(registry_operations),
        form("operations checkpoint", checkpoint, some_checkpoint),
        form("registry dump", dump, |chance| Some(some_dump(chance))),
    ]
}

type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// Records as one input: the length of the key in one byte and the key, the length of the value in two and the value.
fn framed(records: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in records {
        let key = &key[..key.len().min(255)];
        let value = &value[..value.len().min(usize::from(u16::MAX))];
        bytes.push(key.len() as u8);
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(&(value.len() as u16).to_be_bytes());
        bytes.extend_from_slice(value);
    }
    bytes
}

/// The records in an input; what is cut off is as short as it is.
fn records(mut bytes: &[u8]) -> Records {
    let take = |length: usize, bytes: &mut &[u8]| {
        let (taken, rest) = bytes.split_at(length.min(bytes.len()));
        *bytes = rest;
        taken.to_vec()
    };
    let mut records = Records::new();
    while let Some((length, rest)) = bytes.split_first() {
        bytes = rest;
        let key = take(usize::from(*length), &mut bytes);
        let length = take(2, &mut bytes);
        let length = length
            .iter()
            .fold(0, |length, byte| length << 8 | usize::from(*byte));
        records.push((key, take(length, &mut bytes)));
    }
    records
}

fn ledger(bytes: &[u8]) -> Judged {
    let found = RECORDS.hold(bytes.len(), || Found::read(records(bytes)))?;
    let mut shape = String::new();
    for (key, problem) in &found.unreadable {
        let words = Shown::refused(problem)?;
        let _ = write!(shape, "U{}{:?} ", key.len(), words.features); // text takes whatever is written
    }
    let again = Found::read(kept(&found).map_err(|error| error.to_string())?);
    if !found.unreadable.is_empty() || !found.loose.is_empty() {
        // What is whole is the same without that.
        let (read, again) = (
            (&found.agent, &found.containers),
            (&again.agent, &again.containers),
        );
        if !same(&read, &again) {
            return Err(format!("read {read:?}, and once written {again:?}"));
        }
    } else if !same(&found, &again) {
        return Err(format!("read {found:?}, and once written {again:?}"));
    }
    match found.unreadable.first() {
        Some((_, problem)) => Shown::refused(&format_args!("a record: {problem} {shape}")),
        None => Ok(Shown::value(&found)),
    }
}

/// The pieces that would have been written of what was found.
fn kept(found: &Found) -> Result<Records, runtime::Garbled> {
    let mut entries = Vec::new();
    if let Some(agent) = &found.agent {
        entries.push(Entry::agent(agent)?);
    }
    for (id, container) in &found.containers {
        entries.push(Entry::container(id, &container.record)?);
        for (info, state) in &container.tasks {
            entries.push(Entry::task(id, info)?);
            entries.push(Entry::state(id, &info.task_id, state)?);
        }
    }
    for (number, update) in &found.updates {
        entries.push(Entry::update(*number, update)?);
    }
    Ok(pieces(entries, usize::MAX))
}

/// Entries as they stand in a store whose values have at most so many bytes.
fn pieces(entries: Vec<Entry>, most: usize) -> Records {
    let mut pieces = Records::new();
    for entry in entries {
        if let Entry::Put(key, bytes) = entry {
            let key = key.text();
            for (number, part) in bytes.chunks(most).enumerate() {
                pieces.push((piece(&key, number), part.to_vec()));
            }
        }
    }
    pieces.sort();
    pieces
}

fn some_ledger(chance: &mut Chance) -> Option<Records> {
    let mut entries = vec![Entry::agent(&imagine(chance)?).ok()?];
    for _ in 0..chance.below(3) {
        let id: ContainerId = imagine(chance)?;
        entries.push(Entry::container(&id, &imagine(chance)?).ok()?);
        for _ in 0..chance.below(3) {
            let info: TaskInfo = imagine(chance)?;
            let task = Entry::task(&id, &info).ok()?;
            entries.push(match task {
                Entry::Put(_, bytes) if chance.one_in(8) => {
                    Entry::Put(Key::Task(id.clone(), imagine(chance)?), bytes)
                }
                task => task,
            });
            if !chance.one_in(4) {
                entries.push(Entry::state(&id, &info.task_id, &imagine(chance)?).ok()?);
            }
        }
    }
    for _ in 0..chance.below(3) {
        let update: StatusUpdate = imagine(chance)?;
        entries.push(Entry::update(chance.number(), &update).ok()?);
    }
    let most = if chance.one_in(3) { 100 } else { usize::MAX };
    Some(pieces(entries, most))
}

/// What is read is written as the same bytes.
fn reread(what: &str, bytes: &[u8], reread: fn(&[u8]) -> Option<Vec<u8>>) -> Judged {
    match RECORDS.hold(bytes.len(), || reread(bytes))? {
        None => Shown::refused(&format_args!("no record of a {what}")),
        Some(written) if written == bytes => Ok(Shown::value(&format_args!(
            "Record{}",
            "x".repeat(bytes.len().min(200) / 20)
        ))),
        Some(written) => Err(format!("read, and written again as {written:02x?}")),
    }
}

fn log(bytes: &[u8]) -> Judged {
    match RECORDS.hold(bytes.len(), || fuzzing::load(&records(bytes)))? {
        Err(error) => Shown::refused(&error),
        Ok(loaded) => {
            whole(&loaded)?;
            let Loaded {
                identity,
                hard,
                snapshot,
                entries,
            } = loaded;
            let entries: Vec<_> = entries
                .iter()
                .map(|entry| (entry.kind, entry.data.len()))
                .collect();
            let shown = (identity, hard, snapshot.index, snapshot.data.len(), entries);
            Ok(Shown::value(&shown))
        }
    }
}

/// What raft must be able to rely on.
fn whole(loaded: &Loaded) -> Result<(), String> {
    let first = loaded.entries.first().map(|entry| entry.index);
    let expected = first.map(|first| first..=u64::MAX);
    let mut indexes = loaded.entries.iter().map(|entry| entry.index);
    if !expected
        .into_iter()
        .flatten()
        .zip(&mut indexes)
        .all(|(one, other)| one == other)
    {
        return Err(format!("the entries have a gap: {:?}", loaded.entries));
    }
    if first.is_some_and(|first| first > loaded.snapshot.index.saturating_add(1)) {
        return Err("entries are missing behind the snapshot".to_owned());
    }
    let last = loaded.entries.last().map_or(0, |entry| entry.index);
    if loaded.hard.commit > last.max(loaded.snapshot.index) {
        return Err(format!("{:?} is beyond the end, {last}", loaded.hard));
    }
    Ok(())
}

/// The key and the body of a turn with some entries, the first of which has this index, and how many they are.
fn turn(chance: &mut Chance, number: u64, previous: u64, first: u64) -> (Vec<u8>, Vec<u8>, u64) {
    let mut body = Vec::new();
    let count = chance.below(4) as u64;
    for field in [
        number,
        previous,
        number,
        chance.number() % 4,
        first - 1,
        first,
    ] {
        body.extend_from_slice(&field.to_be_bytes());
    }
    body.extend_from_slice(&(count as u32).to_be_bytes());
    body.extend_from_slice(&[0; 16]); // no parts
    for _ in 0..count {
        let (data, context) = (chance.below(20), chance.below(4));
        body.extend_from_slice(&number.to_be_bytes());
        body.push(chance.below(3) as u8);
        body.extend_from_slice(&(data as u32).to_be_bytes());
        body.extend_from_slice(&(context as u32).to_be_bytes());
        body.extend(chance.bytes(data + context));
    }
    ([b"e", &first.to_be_bytes()[..]].concat(), body, count)
}

/// The body of the member's own record, which may point at a snapshot of the index before the log's first in a part that holds this.
fn member(chance: &mut Chance, number: u64, snapshot: Option<&[u8]>) -> Vec<u8> {
    let mut body = number.to_be_bytes().to_vec();
    let identity = chance.one_in(2);
    body.push(u8::from(identity));
    if identity {
        body.extend([1_u64, chance.number()].map(u64::to_be_bytes).concat());
    }
    body.extend([0_u8; 24]); // promises
    body.extend(0_u64.to_be_bytes()); // the floor
    body.push(u8::from(snapshot.is_some()));
    if let Some(content) = snapshot {
        body.extend([1_u64, 0, 1].map(u64::to_be_bytes).concat());
        body.extend(1_u32.to_be_bytes());
        body.extend((content.len() as u64).to_be_bytes());
        body.extend(fuzzing::sum(content).to_be_bytes());
        for _ in 0..4 {
            let members = chance.below(3) as u32;
            body.extend(members.to_be_bytes());
            body.extend((0..u64::from(members)).flat_map(u64::to_be_bytes));
        }
        body.push(chance.below(2) as u8);
    }
    body
}

fn some_log(chance: &mut Chance) -> Records {
    let mut log = Records::new();
    if chance.one_in(2) {
        let content = chance.bytes(10);
        let snapshot = chance.one_in(2).then_some(&content[..]);
        log.push((b"a".to_vec(), member(chance, 1, snapshot)));
        if snapshot.is_some() {
            let key = [b"b", &1_u64.to_be_bytes()[..], &0_u32.to_be_bytes()].concat();
            log.push((key, content));
        }
    }
    let (mut first, mut previous) = (1, 0);
    for number in 2..2 + chance.below(4) as u64 {
        let (key, body, count) = turn(chance, number, previous, first);
        log.push((key, body));
        (first, previous) = (first + count, number);
    }
    log
}

type Group = Chartered<RegistryMachine>;

/// What the leader sends to a member that is far behind: what is taken can be gone on with, and is the same once written.
fn snapshot(bytes: &[u8]) -> Judged {
    let read = |bytes: &[u8]| -> Result<(Vec<u8>, Group), String> {
        let (_, machine) = fuzzing::reread_snapshot(bytes)?;
        let mut group = Group::default();
        group.restore(machine).map_err(|error| error.to_string())?;
        Ok((machine.to_vec(), group))
    };
    match RECORDS.hold(bytes.len(), || read(bytes))? {
        Err(problem) => Shown::refused(&format_args!("a snapshot: {problem}")),
        Ok((_, mut group)) => {
            let (seen, _) = fuzzing::reread_snapshot(bytes)?;
            let (again, _) = fuzzing::reread_snapshot(&seen)?;
            let mut other = Group::default();
            let restored = other.restore(&write(&group)?);
            restored.map_err(|error| format!("what was read is refused once written: {error}"))?;
            if again != seen || !same(&group, &other) {
                return Err(format!("read {group:?}, and once written {other:?}"));
            }
            let shown = Shown::value(&group);
            go_on(&mut group);
            Ok(shown)
        }
    }
}

fn write(machine: &impl StateMachine) -> Result<Bytes, String> {
    let written = machine.snapshot();
    written.map_err(|garbled| format!("what was read cannot be written: {garbled}"))
}

/// The next changes, whatever they come to.
fn go_on(group: &mut Group) {
    let address = "node-9:5050".to_owned();
    let change = RosterChange::Reserve { address };
    group.apply(1, Entered::Roster(change));
    if let Ok(framework_id) = FrameworkId::new("m-0000") {
        let operation = RegistryOperation::RemoveFramework { framework_id };
        group.apply(2, Entered::Machine(operation));
    }
}

fn some_snapshot(chance: &mut Chance) -> Option<Vec<u8>> {
    let mut group = Group::new(imagine(chance)?, RegistryMachine::new());
    for index in 0..chance.below(6) {
        let operation: RegistryOperation = imagine(chance)?;
        group.apply(index as u64, Entered::Machine(operation));
    }
    let proposals = chance.below(4) as u64;
    let snapshot = fuzzing::write_snapshot(proposals, &group.snapshot().ok()?);
    Some(snapshot.ok()?.into())
}

/// Changes of the registry, as another master has proposed them: whatever they come to is whole in a snapshot.
fn registry_operations(bytes: &[u8]) -> Judged {
    let operations: Vec<RegistryOperation> = match RECORDS.hold(bytes.len(), || decode(bytes))? {
        Err(garbled) => return Shown::refused(&garbled),
        Ok(operations) => operations,
    };
    let mut machine = RegistryMachine::new();
    let mut answers = Vec::new();
    for (index, operation) in (1..).zip(operations) {
        answers.push(machine.apply(index, operation));
    }
    let mut again = RegistryMachine::new();
    let restored = again.restore(&write(&machine)?);
    restored.map_err(|error| format!("what was applied is refused once written: {error}"))?;
    if !same(&machine, &again) {
        return Err(format!("applied {machine:?}, and once written {again:?}"));
    }
    for answer in &answers {
        if let Err(refused) = answer {
            Shown::refused(refused)?;
        }
    }
    Ok(Shown::value(&(machine, answers)))
}

/// What an agent keeps of operations, in its form and in the one before.
fn checkpoint(bytes: &[u8]) -> Judged {
    let disk = ForgetfulDisk::new();
    let stored = || -> Result<(), StoreError> {
        let mut changes = Changes::new();
        changes.put(*b"resources/00000000", bytes);
        disk.open()?.commit(changes)
    };
    stored().map_err(|error| error.to_string())?;
    let opened = disk.clone();
    let open: OpenStore = Arc::new(move || Ok(Box::new(opened.open()?)));
    let mut keeper = Keeper::rehearsed(open);
    match RECORDS.hold(bytes.len(), || keeper.read())? {
        Err(error) => Shown::refused(&error),
        Ok(read) => {
            let written = keeper.write(&read).and_then(|()| keeper.read());
            match written {
                Ok(again) if same(&read, &again) => Ok(Shown::value(&read)),
                other => Err(format!("read {read:?}, and once written {other:?}")),
            }
        }
    }
}

fn some_checkpoint(chance: &mut Chance) -> Option<Vec<u8>> {
    let Checkpoint {
        made,
        unacknowledged,
        settled,
    } = imagine(chance)?;
    let (form, body) = match chance.one_in(2) {
        true => (1, encode(&(made, unacknowledged))),
        false => (2, encode(&(made, unacknowledged, settled))),
    };
    Some([vec![form], body.ok()?].concat())
}

fn dump(bytes: &[u8]) -> Judged {
    let judge = |bytes: &[u8]| match RECORDS.hold(bytes.len(), || fuzzing::reread_dump(bytes))? {
        Err(fault) => Shown::refused(&fault),
        Ok(written) if written == bytes => Ok(Shown::value(&"Dump")),
        Ok(written) => Err(format!("read, and written again as {written:02x?}")),
    };
    let mut mended = bytes.to_vec();
    fuzzing::mend_dump(&mut mended);
    let (as_it_is, mended) = (judge(bytes)?, judge(&mended)?);
    Ok(Shown {
        features: [as_it_is.features, mended.features].concat(),
        taken: as_it_is.taken,
    })
}

fn some_dump(chance: &mut Chance) -> Vec<u8> {
    let (names, content) = (chance.below(20), chance.below(100));
    fuzzing::write_dump(&Dump {
        group: chance.number(),
        index: chance.number(),
        term: chance.number(),
        names: Bytes::from(chance.bytes(names)),
        content: Bytes::from(chance.bytes(content)),
    })
}
