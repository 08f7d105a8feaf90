//! The cost of compacting a full registry: how long it blocks the consensus thread and the disk,
//! compared with a copy of as many bytes and with a plain file.
//!
//! The registry is filled to its bounds: 64 MiB of framework data, and the agents of a large
//! cluster. No group is started.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Write as _};
use std::path::Path;

use consensus::log::{Entry, EntryKind, LogStore, Members, Snapshot, Write};
use consensus::machine::StateMachine;
use consensus::replica;
use consensus::store::StoredLog;
use master::registry::{RegistryMachine, RegistryOperation};
use protocol::message::state::{STATE_KEYS_MAX, STATE_VALUE_BYTES_MAX};
use protocol::{AgentId, AgentInfo, FrameworkId, FrameworkInfo};
use runtime::{Clock, Instant};

use meros::output::error::{CliError, Outcome};

/// Agents in the registry.
const AGENTS: u64 = 10_000;
/// Rounds; the worst counts.
const ROUNDS: u64 = 5;

/// The measured times.
#[derive(Clone, Copy, Debug)]
pub struct Full {
    /// Bytes of the snapshot.
    pub bytes: usize,
    /// Encoding it in memory, which delays heartbeats.
    pub stands_still_ms: f64,
    /// Copying as many bytes to new memory.
    pub copied_ms: f64,
    /// Writing and syncing it as a compaction, which delays this member's own writes.
    pub disk_ms: f64,
    /// Writing and syncing the bytes as a plain file.
    pub written_ms: f64,
}

impl Full {
    /// Measures with a log below this directory.
    pub fn measure(directory: &Path) -> Outcome<Self> {
        let clock = Clock::real();
        let timed = |begun: Instant| (clock.now() - begun).as_secs_f64() * 1000.0;
        let machine = full()?;
        let failed = |error: &dyn std::error::Error| CliError::because("a compaction", error);
        let mut store =
            StoredLog::open(directory.join("compacted")).map_err(|error| failed(&error))?;
        store.load().map_err(|error| failed(&error))?;
        let mut found = Self {
            bytes: 0,
            stands_still_ms: 0.0,
            copied_ms: 0.0,
            disk_ms: 0.0,
            written_ms: 0.0,
        };
        for index in 1..=ROUNDS {
            let begun = clock.now();
            let data = replica::content(&machine).map_err(|error| failed(&error))?;
            found.stands_still_ms = found.stands_still_ms.max(timed(begun));
            found.bytes = data.len();
            let begun = clock.now();
            black_box(data.to_vec());
            found.copied_ms = found.copied_ms.max(timed(begun));
            let begun = clock.now();
            plain(directory, &data).map_err(|error| failed(&error))?;
            found.written_ms = found.written_ms.max(timed(begun));
            let entry = Entry {
                term: 1,
                index,
                kind: EntryKind::Operation,
                data: Vec::new(),
                context: Vec::new(),
            };
            let write = Write {
                entries: vec![entry],
                ..Write::default()
            };
            store.write(&write).map_err(|error| failed(&error))?;
            let members = Members {
                voters: vec![1],
                ..Members::default()
            };
            let snapshot = Snapshot {
                index,
                term: 1,
                members,
                data,
            };
            let begun = clock.now();
            let kept = store.compact(&snapshot, index + 1);
            kept.map_err(|error| failed(&error))?;
            found.disk_ms = found.disk_ms.max(timed(begun));
        }
        Ok(found)
    }
}

/// Writes the bytes to a file and removes it.
fn plain(directory: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = directory.join("plain");
    let mut file = File::create(&path)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::remove_file(&path)
}

/// A registry of [`AGENTS`] agents, with framework data up to the bound.
fn full() -> Outcome<RegistryMachine> {
    let mut machine = RegistryMachine::new();
    let mut index = 0;
    let mut apply = |operation| {
        index += 1;
        machine.apply(index, operation)
    };
    let unusable = |error: &dyn std::error::Error| CliError::because("a full registry", error);
    let resources = "cpus:64;mem:262144;disk:1000000;ports:[31000-32000]";
    for number in 0..AGENTS {
        let id = AgentId::new(format!("agent-S{number}")).map_err(|error| unusable(&error))?;
        let info = AgentInfo {
            attributes: "rack:r1;os:linux"
                .parse()
                .map_err(|error| unusable(&error))?,
            id: Some(id),
            ..AgentInfo::new(
                format!("host-{number}.example.com"),
                resources.parse().map_err(|error| unusable(&error))?,
            )
        };
        apply(RegistryOperation::AdmitAgent { info }).map_err(|error| unusable(&error))?;
    }
    for framework in 0.. {
        let framework_id =
            FrameworkId::new(format!("framework-{framework}")).map_err(|error| unusable(&error))?;
        let mut info = FrameworkInfo::new("nobody", framework_id.as_str());
        info.id = Some(framework_id.clone());
        let deadline = None;
        apply(RegistryOperation::AdmitFramework { info, deadline })
            .map_err(|error| unusable(&error))?;
        for key in 0..STATE_KEYS_MAX {
            let change = RegistryOperation::ChangeFrameworkState {
                framework_id: framework_id.clone(),
                key: format!("key-{key}"),
                expected: None,
                value: Some(vec![7; STATE_VALUE_BYTES_MAX]),
            };
            if apply(change).is_err() {
                return Ok(machine); // It is full.
            }
        }
    }
    Ok(machine)
}
