//! Data that services store besides the registry's records: the agent's ledger and operations, the
//! log and snapshots of a group of masters, and registry dumps.
//!
//! The store detects damage by checksums, which have their own targets (`record`, `journal`).
//! Inputs here have valid checksums, as from another version or a faulty program: pieces are
//! combined, and everything that does not fit must be reported.

use std::sync::Arc;

use agent::OpenStore;
use agent::ledger::record::{
    AgentRecord, ContainerRecord, Entry, Key, StateRecord, StoredRecords, piece,
};
use agent::operations::checkpoint::{Checkpoint, OperationStore};
use bytes::Bytes;
use consensus::dump::Dump;
use consensus::log::{Loaded, LogError, LogStore};
use consensus::machine::StateMachine;
use consensus::member::address_book::AddressChange;
use consensus::member::metadata::{GroupMachine, GroupOperation};
use consensus::replica::seen::{self, Seen, Ticket};
use consensus::store::StoredLog;
use consensus::store::record::{self, Chunk, Meta, RecordType};
use master::registry::{RegistryMachine, RegistryOperation};
use protocol::{ContainerId, FrameworkId, StatusUpdate, TaskInfo};
use runtime::wire::codec::{decode, encode};
use storage::{Changes, Store, StoreError};
use testkit::disk::{SimulatedDisk, SimulatedStore};

use crate::forms::form;
use crate::generate::generate;
use crate::rng::Rng;
use crate::target::{HeapLimit, Target, Verdict, body, rejected, same, same_again};

/// Records are copied, stored in maps, and combined.
const RECORDS: HeapLimit = HeapLimit {
    per_byte: 300,
    fixed: 64 << 10,
};

/// All targets of this module.
pub fn targets() -> Vec<Target> {
    vec![
        body::<AgentRecord>("ledger/agent"),
        body::<ContainerRecord>("ledger/container"),
        body::<StateRecord>("ledger/state"),
        form("ledger", ledger, |rng| Some(framed(&random_ledger(rng)?))),
        form(
            "log turn",
            |bytes| reread("turn", bytes, reread_chunk),
            |rng| Some(turn(rng, 1, 0, 1).1),
        ),
        form(
            "log member",
            |bytes| reread("member", bytes, |bytes| Some(Meta::decode(bytes)?.encode())),
            |rng| Some(member(rng, 1, None)),
        ),
        form("log", log, |rng| Some(framed(&random_log(rng)))),
        form("snapshot", snapshot, random_snapshot),
        body::<Vec<RegistryOperation>>("registry/operations").with_check(registry_operations),
        form("operations checkpoint", checkpoint, random_checkpoint),
        form("registry dump", dump, |rng| Some(random_dump(rng))),
    ]
}

type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// Encodes records as one input: for each, the length of the key (one byte), the key, the length of
/// the value (two bytes), the value.
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

/// Decodes the records of an input; truncated ones are shortened.
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

fn ledger(bytes: &[u8]) -> Verdict {
    let found = RECORDS.enforce(bytes.len(), || StoredRecords::read(records(bytes)))?;
    for (_, problem) in &found.unreadable {
        rejected(problem)?;
    }
    let again = StoredRecords::read(kept(&found).map_err(|error| error.to_string())?);
    if !found.unreadable.is_empty() || !found.orphaned.is_empty() {
        // Valid parts do not depend on invalid ones.
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
    Ok(())
}

/// The records that would be written for these contents.
fn kept(found: &StoredRecords) -> Result<Records, runtime::Garbled> {
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

/// Entries as stored with a maximum value size.
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

fn random_ledger(rng: &mut Rng) -> Option<Records> {
    let mut entries = vec![Entry::agent(&generate(rng)?).ok()?];
    for _ in 0..rng.below(3) {
        let id: ContainerId = generate(rng)?;
        entries.push(Entry::container(&id, &generate(rng)?).ok()?);
        for _ in 0..rng.below(3) {
            let info: TaskInfo = generate(rng)?;
            let task = Entry::task(&id, &info).ok()?;
            entries.push(match task {
                Entry::Put(_, bytes) if rng.one_in(8) => {
                    Entry::Put(Key::Task(id.clone(), generate(rng)?), bytes)
                }
                task => task,
            });
            if !rng.one_in(4) {
                entries.push(Entry::state(&id, &info.task_id, &generate(rng)?).ok()?);
            }
        }
    }
    for _ in 0..rng.below(3) {
        let update: StatusUpdate = generate(rng)?;
        entries.push(Entry::update(rng.number(), &update).ok()?);
    }
    let most = if rng.one_in(3) { 100 } else { usize::MAX };
    Some(pieces(entries, most))
}

/// A decoded record is encoded as the same bytes.
fn reread(what: &str, bytes: &[u8], reread: fn(&[u8]) -> Option<Vec<u8>>) -> Verdict {
    match RECORDS.enforce(bytes.len(), || reread(bytes))? {
        None => rejected(&format_args!("no record of a {what}")),
        Some(written) if written == bytes => Ok(()),
        Some(written) => Err(format!("read, and written again as {written:02x?}")),
    }
}

/// A turn's record with its entries, decoded and encoded again.
fn reread_chunk(body: &[u8]) -> Option<Vec<u8>> {
    let (chunk, inline) = Chunk::decode(body)?;
    if chunk.parts.count > 0 {
        return Some(chunk.encode(&[]));
    }
    let mut entries = Vec::new();
    record::decode_entries(chunk.first, chunk.count, inline, &mut entries)?;
    Some(chunk.encode(&record::encode_entries(&entries).ok()?))
}

/// Loads a log with these bodies under these keys, each with a valid checksum. Skips keys that are
/// not a log's.
fn load(records: Records) -> Result<Loaded, LogError> {
    let mut store = SimulatedStore::default();
    for (key, body) in records {
        let record_type = match (key.first(), key.len()) {
            (Some(b'a'), 1) => RecordType::Meta,
            (Some(b'b'), 13) => RecordType::Part,
            (Some(b'e'), 9) => RecordType::Chunk,
            _ => continue,
        };
        let sealed = record::seal(&key, record_type, &body);
        let mut changes = Changes::new();
        changes.put(key, sealed);
        store.commit(changes).map_err(|error| LogError::Disk {
            reason: error.to_string(),
        })?;
    }
    StoredLog::new(store).load()
}

fn log(bytes: &[u8]) -> Verdict {
    match RECORDS.enforce(bytes.len(), || load(records(bytes)))? {
        Err(error) => rejected(&error),
        Ok(loaded) => whole(&loaded),
    }
}

/// The invariants that Raft relies on.
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

/// Key, body and number of entries of a log chunk whose first entry has this index.
fn turn(rng: &mut Rng, number: u64, previous: u64, first: u64) -> (Vec<u8>, Vec<u8>, u64) {
    let mut body = Vec::new();
    let count = rng.below(4) as u64;
    for field in [number, previous, number, rng.number() % 4, first - 1, first] {
        body.extend_from_slice(&field.to_be_bytes());
    }
    body.extend_from_slice(&(count as u32).to_be_bytes());
    body.extend_from_slice(&[0; 16]); // no parts
    for _ in 0..count {
        let (data, context) = (rng.below(20), rng.below(4));
        body.extend_from_slice(&number.to_be_bytes());
        body.push(rng.below(3) as u8);
        body.extend_from_slice(&(data as u32).to_be_bytes());
        body.extend_from_slice(&(context as u32).to_be_bytes());
        body.extend(rng.bytes(data + context));
    }
    ([b"e", &first.to_be_bytes()[..]].concat(), body, count)
}

/// Body of the member's own record, optionally with a snapshot of the index before the first log
/// entry, whose content is this.
fn member(rng: &mut Rng, number: u64, snapshot: Option<&[u8]>) -> Vec<u8> {
    let mut body = number.to_be_bytes().to_vec();
    let identity = rng.one_in(2);
    body.push(u8::from(identity));
    if identity {
        body.extend([1_u64, rng.number()].map(u64::to_be_bytes).concat());
    }
    body.extend([0_u8; 24]); // promises
    body.extend(0_u64.to_be_bytes()); // the floor
    body.push(u8::from(snapshot.is_some()));
    if let Some(content) = snapshot {
        body.extend([1_u64, 0, 1].map(u64::to_be_bytes).concat());
        body.extend(1_u32.to_be_bytes());
        body.extend((content.len() as u64).to_be_bytes());
        body.extend(crc32c::crc32c(content).to_be_bytes());
        for _ in 0..4 {
            let members = rng.below(3) as u32;
            body.extend(members.to_be_bytes());
            body.extend((0..u64::from(members)).flat_map(u64::to_be_bytes));
        }
        body.push(rng.below(2) as u8);
    }
    body
}

fn random_log(rng: &mut Rng) -> Records {
    let mut log = Records::new();
    if rng.one_in(2) {
        let content = rng.bytes(10);
        let snapshot = rng.one_in(2).then_some(&content[..]);
        log.push((b"a".to_vec(), member(rng, 1, snapshot)));
        if snapshot.is_some() {
            let key = [b"b", &1_u64.to_be_bytes()[..], &0_u32.to_be_bytes()].concat();
            log.push((key, content));
        }
    }
    let (mut first, mut previous) = (1, 0);
    for number in 2..2 + rng.below(4) as u64 {
        let (key, body, count) = turn(rng, number, previous, first);
        log.push((key, body));
        (first, previous) = (first + count, number);
    }
    log
}

type Group = GroupMachine<RegistryMachine>;

/// A snapshot for a member that is far behind: after decoding, it is usable and is encoded as the
/// same value.
fn snapshot(bytes: &[u8]) -> Verdict {
    let read = |bytes: &[u8]| -> Result<(Seen, Group), String> {
        let (seen, machine) = seen::unpack(bytes)?;
        let mut group = Group::default();
        group.restore(machine).map_err(|error| error.to_string())?;
        Ok((seen, group))
    };
    match RECORDS.enforce(bytes.len(), || read(bytes))? {
        Err(problem) => rejected(&format_args!("a snapshot: {problem}")),
        Ok((seen, mut group)) => {
            let packed = pack(&seen, b"").ok_or("what was read cannot be written")?;
            let (again, _) = seen::unpack(&packed)?;
            let mut other = Group::default();
            let restored = other.restore(&write(&group)?);
            restored.map_err(|error| format!("what was read is refused once written: {error}"))?;
            if again != seen || !same(&group, &other) {
                return Err(format!("read {group:?}, and once written {other:?}"));
            }
            apply_more(&mut group);
            Ok(())
        }
    }
}

fn write(machine: &impl StateMachine) -> Result<Bytes, String> {
    let written = machine.snapshot();
    written.map_err(|garbled| format!("what was read cannot be written: {garbled}"))
}

/// Applies further changes, regardless of their results.
fn apply_more(group: &mut Group) {
    let address = "node-9:5050".to_owned();
    let change = AddressChange::Reserve { address };
    group.apply(1, GroupOperation::Address(change));
    if let Ok(framework_id) = FrameworkId::new("m-0000") {
        let operation = RegistryOperation::RemoveFramework { framework_id };
        group.apply(2, GroupOperation::Machine(operation));
    }
}

fn random_snapshot(rng: &mut Rng) -> Option<Vec<u8>> {
    let mut group = Group::new(generate(rng)?, RegistryMachine::new());
    for index in 0..rng.below(6) {
        let operation: RegistryOperation = generate(rng)?;
        group.apply(index as u64, GroupOperation::Machine(operation));
    }
    let mut seen = Seen::default();
    for sequence in 0..rng.below(4) as u64 {
        let (member, incarnation) = (1, 1);
        let ticket = Ticket {
            member,
            incarnation,
            sequence,
        };
        seen.add(ticket, sequence + 1);
    }
    Some(pack(&seen, &group.snapshot().ok()?)?.into())
}

fn pack(seen: &Seen, machine: &[u8]) -> Option<Bytes> {
    let packed = seen::pack(seen, |into| {
        into.extend_from_slice(machine);
        Ok(())
    });
    packed.ok()
}

/// Registry operations of another master: their results are complete in a snapshot.
fn registry_operations(bytes: &[u8]) -> Verdict {
    let operations: Vec<RegistryOperation> = match RECORDS.enforce(bytes.len(), || decode(bytes))? {
        Err(garbled) => return rejected(&garbled),
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
            rejected(refused)?;
        }
    }
    Ok(())
}

/// The agent's checkpoint of operations, in the current and the previous format.
fn checkpoint(bytes: &[u8]) -> Verdict {
    let disk = SimulatedDisk::new();
    let stored = || -> Result<(), StoreError> {
        let mut changes = Changes::new();
        changes.put(*b"resources/00000000", bytes);
        disk.open()?.commit(changes)
    };
    stored().map_err(|error| error.to_string())?;
    let opened = disk.clone();
    let open: OpenStore = Arc::new(move || Ok(Box::new(opened.open()?)));
    let mut store = OperationStore::simulated(open);
    match RECORDS.enforce(bytes.len(), || store.read())? {
        Err(error) => rejected(&error),
        Ok(read) => {
            let written = store.write(&read).and_then(|()| store.read());
            same_again(&read, written)
        }
    }
}

fn random_checkpoint(rng: &mut Rng) -> Option<Vec<u8>> {
    let Checkpoint {
        made,
        unacknowledged,
        settled,
    } = generate(rng)?;
    let (form, body) = match rng.one_in(2) {
        true => (1, encode(&(made, unacknowledged))),
        false => (2, encode(&(made, unacknowledged, settled))),
    };
    Some([vec![form], body.ok()?].concat())
}

fn dump(bytes: &[u8]) -> Verdict {
    let check = |bytes: &[u8]| match RECORDS.enforce(bytes.len(), || Dump::decode(bytes))? {
        Err(fault) => rejected(&fault),
        Ok(dump) if dump.encode() == bytes => Ok(()),
        Ok(dump) => Err(format!("read {dump:?}, which is written as other bytes")),
    };
    let mut mended = bytes.to_vec();
    correct_checksums(&mut mended);
    check(bytes)?;
    check(&mended)
}

fn random_dump(rng: &mut Rng) -> Vec<u8> {
    let (names, content) = (rng.below(20), rng.below(100));
    let dump = Dump {
        group: rng.number(),
        index: rng.number(),
        term: rng.number(),
        names: Bytes::from(rng.bytes(names)),
        content: Bytes::from(rng.bytes(content)),
    };
    dump.encode()
}

/// Corrects the checksum at the end of a dump's header, and the one at the end of the file.
fn correct_checksums(bytes: &mut [u8]) {
    const HEADER_BYTES: usize = 50;
    for end in [HEADER_BYTES, bytes.len().max(HEADER_BYTES + 4)] {
        let part = bytes.get_mut(..end).and_then(<[u8]>::split_last_chunk_mut);
        if let Some((before, sum)) = part {
            *sum = crc32c::crc32c(before).to_be_bytes();
        }
    }
}

#[test]
fn corrected_checksums_make_a_dump_readable() {
    let mut bytes = random_dump(&mut Rng::new(7));
    let written = bytes.clone();
    bytes[12] ^= 1;
    assert!(Dump::decode(&bytes).is_err());
    bytes[12] ^= 1;
    bytes[47] ^= 1; // the checksum itself
    correct_checksums(&mut bytes);
    assert_eq!(bytes, written);
    bytes[12] ^= 1;
    correct_checksums(&mut bytes);
    assert!(Dump::decode(&bytes).is_ok());
}
