//! What a compaction of a full registry costs: how long the thread of the consensus stands still, and how long the disk is busy; beside a copy of
//! as many bytes, and a plain file of them.
//!
//! The registry is as full as its bounds allow: 64 MiB of what frameworks keep, and agents of a large cluster. No group is
//! started.

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

use crate::failure::{Failure, Outcome};

/// The agents that it knows of.
const AGENTS: u64 = 10_000;
/// How often each is done; the worst counts.
const ROUNDS: u64 = 5;

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub struct Full {
    /// Bytes of the snapshot.
    pub bytes: usize,
    /// To write it all down in memory, which holds up heartbeats.
    pub stands_still_ms: f64,
    /// To copy as many bytes to where none were.
    pub copied_ms: f64,
    /// To put them on the disk as a compaction, synced, which holds up this member's own writes.
    pub disk_ms: f64,
    /// To write them into a new file, synced.
    pub written_ms: f64,
}

impl Full {
    /// Measures, with a log below this directory.
    pub fn measure(directory: &Path) -> Outcome<Self> {
        let clock = Clock::real();
        let timed = |begun: Instant| (clock.now() - begun).as_secs_f64() * 1000.0;
        let machine = full()?;
        let failed = |error: &dyn std::error::Error| Failure::because("a compaction", error);
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

/// Into a file that is thrown away.
fn plain(directory: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = directory.join("plain");
    let mut file = File::create(&path)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::remove_file(&path)
}

/// A registry of [`AGENTS`], whose frameworks keep as much as they may.
fn full() -> Outcome<RegistryMachine> {
    let mut machine = RegistryMachine::new();
    let mut index = 0;
    let mut apply = |operation| {
        index += 1;
        machine.apply(index, operation)
    };
    let unusable = |error: &dyn std::error::Error| Failure::because("a full registry", error);
    let resources = "cpus:64;mem:262144;disk:1000000;ports:[31000-32000]";
    for number in 0..AGENTS {
        let id = AgentId::new(format!("agent-S{number}")).map_err(|error| unusable(&error))?;
        let info = AgentInfo {
            hostname: format!("host-{number}.example.com"),
            port: 5051,
            resources: resources.parse().map_err(|error| unusable(&error))?,
            attributes: "rack:r1;os:linux"
                .parse()
                .map_err(|error| unusable(&error))?,
            domain: None,
            id: Some(id),
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
