//! Disks of simulated machines, for the master's registry and the agents' stores.
//!
//! Each has two stores: one of a master or of an agent's operations, and the ledger of containers
//! on an agent. The duration of writes is simulated by the node's blocking work. No file of the
//! real machine is used.

use std::ops::Deref;
use std::path::Path;

use agent::Sandboxes;
use agent::sandbox::ReadError;
use protocol::ContainerId;
use protocol::message::operator::FileChunk;
use storage::StoreError;
use testkit::disk::{SimulatedDisk, SimulatedStore};

/// One machine's disk. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Disk(SimulatedDisk);

impl Disk {
    /// Opens the store of an agent's ledger.
    pub fn open_executors(&self) -> Result<SimulatedStore, StoreError> {
        self.open_named("executors")
    }
}

impl Deref for Disk {
    type Target = SimulatedDisk;

    fn deref(&self) -> &SimulatedDisk {
        &self.0
    }
}

impl Sandboxes for Disk {
    fn create(&self, _: &Path, _: &ContainerId, _: Option<&str>) -> Result<(), String> {
        match self.fails_now() {
            true => Err("the disk refuses".to_owned()),
            false => Ok(()),
        }
    }

    /// Simulated tasks write nothing.
    fn read(&self, _: &Path, _: &str, _: u64, _: u32) -> Result<FileChunk, ReadError> {
        Err(ReadError::NotFound)
    }
}
