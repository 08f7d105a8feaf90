//! The checkpoint of operations, and the directories of volumes.
//!
//! Blocking. The store is created at the first write, so an agent without operations has none. The
//! checkpoint is one value, split into records and written atomically.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::OperationUpdate;
use resources::{Conversion, Resources};
use runtime::wire::codec;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use storage::sled_store::SledStore;
use storage::{Changes, Store, StoreError, VALUE_BYTES_MAX};

use super::volumes;

/// The first byte of a checkpoint: its format version.
const FORM: u8 = 2;
/// The format before operations had serials.
const FORM_WITHOUT_SERIALS: u8 = 1;
const PREFIX: &[u8] = b"resources/";

/// State of operations that survives a restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Resources made by operations: volumes and dynamic reservations.
    pub made: Resources,
    /// Operation statuses that their frameworks have not acknowledged.
    pub unacknowledged: Vec<OperationUpdate>,
    /// The serial of the newest finished operation; 0 before the first.
    pub settled: u64,
}

/// [`Checkpoint`] before operations had serials.
#[derive(Deserialize)]
struct WithoutSerials {
    made: Resources,
    unacknowledged: Vec<OperationUpdate>,
}

impl From<WithoutSerials> for Checkpoint {
    fn from(older: WithoutSerials) -> Self {
        Self {
            made: older.made,
            unacknowledged: older.unacknowledged,
            settled: 0,
        }
    }
}

/// Why a checkpoint cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The content is invalid.
    #[error("the checkpointed resources cannot be read: {0}")]
    Garbled(String),
}

/// The result of [`OperationStore::replace`], with an error text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplaceOutcome {
    /// The new checkpoint is on disk.
    Replaced,
    /// The old checkpoint is on disk.
    Unchanged(String),
    /// Unknown: either may be on disk. The old one must be rewritten until that succeeds.
    InDoubt(String),
}

/// Opens the store of a simulated disk.
pub type OpenStore = Arc<dyn Fn() -> Result<Box<dyn Store>, StoreError> + Send + Sync>;

/// The store's directory.
pub fn directory(work_dir: &Path) -> PathBuf {
    work_dir.join("meta").join("resources")
}

/// The store of the checkpoint.
pub struct OperationStore {
    location: Location,
    store: Option<Box<dyn Store>>,
}

enum Location {
    /// In this work directory.
    Disk(PathBuf),
    /// On a simulated disk, without volume directories.
    Simulated(OpenStore),
}

impl OperationStore {
    /// A store in this work directory.
    pub fn on_disk(work_dir: &Path) -> Self {
        Self {
            location: Location::Disk(work_dir.to_owned()),
            store: None,
        }
    }

    /// A store on a simulated disk; creates no directories.
    pub fn simulated(open: OpenStore) -> Self {
        Self {
            location: Location::Simulated(open),
            store: None,
        }
    }

    fn store(&mut self) -> Result<&mut Box<dyn Store>, StoreError> {
        let store = match self.store.take() {
            Some(store) => store,
            None => match &self.location {
                Location::Disk(work_dir) => Box::new(SledStore::open(directory(work_dir))?),
                Location::Simulated(open) => open()?,
            },
        };
        Ok(self.store.insert(store))
    }

    /// Reads the checkpoint. Empty if there is none.
    pub fn read(&mut self) -> Result<Checkpoint, CheckpointError> {
        if let (None, Location::Disk(work_dir)) = (&self.store, &self.location)
            && !directory(work_dir).exists()
        {
            return Ok(Checkpoint::default());
        }
        let records = self.store()?.scan(PREFIX)?;
        let bytes: Vec<u8> = records
            .into_iter()
            .flat_map(|record| record.value)
            .collect();
        match bytes.split_first() {
            None => Ok(Checkpoint::default()),
            Some((&FORM, body)) => decode(body),
            Some((&FORM_WITHOUT_SERIALS, body)) => {
                decode::<WithoutSerials>(body).map(Checkpoint::from)
            }
            Some((form, _)) => {
                let problem = format!("it has form {form}, expected {FORM}");
                Err(CheckpointError::Garbled(problem))
            }
        }
    }

    /// Writes the checkpoint; durable on return.
    pub fn write(&mut self, checkpoint: &Checkpoint) -> Result<(), CheckpointError> {
        let written = self.try_write(checkpoint);
        if written.is_err() {
            // Closes a failed store. The next write opens it anew and writes everything.
            self.store = None;
        }
        written
    }

    /// Replaces `before` by `after`. After a failure either may be on disk, so `before` is
    /// rewritten: an operation reported as failed must not be found by the next process.
    pub fn replace(&mut self, before: &Checkpoint, after: &Checkpoint) -> ReplaceOutcome {
        let Err(error) = self.write(after) else {
            return ReplaceOutcome::Replaced;
        };
        match self.write(before) {
            Ok(()) => ReplaceOutcome::Unchanged(error.to_string()),
            Err(again) => {
                tracing::error!(%error, %again, "checkpoint of operations in doubt until it can be rewritten");
                ReplaceOutcome::InDoubt(error.to_string())
            }
        }
    }

    fn try_write(&mut self, checkpoint: &Checkpoint) -> Result<(), CheckpointError> {
        let body = codec::encode(checkpoint);
        let body = body.map_err(|error| CheckpointError::Garbled(error.to_string()))?;
        let mut bytes = vec![FORM];
        bytes.extend_from_slice(&body);
        let store = self.store()?;
        let mut changes = Changes::new();
        let pieces: Vec<&[u8]> = bytes.chunks(VALUE_BYTES_MAX).collect();
        for record in store.scan(PREFIX)?.into_iter().skip(pieces.len()) {
            changes.remove(record.key);
        }
        for (number, piece) in pieces.into_iter().enumerate() {
            changes.put(key(number), piece);
        }
        Ok(store.commit(changes)?)
    }

    /// Creates the directories of created volumes. Replaces leftovers of an earlier volume.
    pub fn before(&self, conversion: &Conversion) -> Result<(), String> {
        match (conversion, &self.location) {
            (Conversion::Create { volumes }, Location::Disk(work_dir)) => volumes
                .iter()
                .try_for_each(|volume| volumes::make(work_dir, volume)),
            _ => Ok(()),
        }
    }

    /// Removes the directories of destroyed volumes. Failures are only logged.
    pub fn after(&self, conversion: &Conversion) {
        if let (Conversion::Destroy { volumes }, Location::Disk(work_dir)) =
            (conversion, &self.location)
        {
            for volume in volumes {
                if let Err(problem) = volumes::remove(work_dir, volume) {
                    tracing::error!(problem, "cannot delete a destroyed volume");
                }
            }
        }
    }
}

fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, CheckpointError> {
    codec::decode(body).map_err(|error| CheckpointError::Garbled(error.to_string()))
}

fn key(number: usize) -> Vec<u8> {
    [PREFIX, format!("{number:08}").as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use resources::Reservation;
    use testkit::disk::{Failure, SimulatedDisk};

    fn checkpoint(reservations: usize) -> Checkpoint {
        let one = |number: usize| {
            let role = format!("role-{number:05}").parse().unwrap();
            let cpus = Resources::parse("cpus:1").unwrap();
            cpus.push_reservation(&Reservation::dynamic(role, Some("ops")))
                .unwrap()
        };
        Checkpoint {
            made: (0..reservations).map(one).collect(),
            unacknowledged: Vec::new(),
            settled: reservations as u64,
        }
    }

    #[test]
    fn checkpoint_without_serials_is_readable() {
        let disk = SimulatedDisk::new();
        let kept = checkpoint(2);
        let mut bytes = vec![FORM_WITHOUT_SERIALS];
        let older = (kept.made.clone(), kept.unacknowledged.clone());
        bytes.extend(codec::encode(&older).unwrap());
        let mut changes = Changes::new();
        changes.put(key(0), bytes);
        disk.open().unwrap().commit(changes).unwrap();
        let open: OpenStore = Arc::new(move || Ok(Box::new(disk.open()?)));
        let mut store = OperationStore::simulated(open);
        let expected = Checkpoint {
            settled: 0,
            ..kept.clone()
        };
        assert_eq!(store.read().unwrap(), expected);
        store.write(&kept).unwrap();
        assert_eq!(store.read().unwrap(), kept);
    }

    #[test]
    fn checkpoints_of_any_size_are_found_again() {
        let work_dir = tempfile::tempdir().unwrap();
        for reservations in [4_000, 3, 0] {
            let mut store = OperationStore::on_disk(work_dir.path());
            store.write(&checkpoint(reservations)).unwrap();
            drop(store);
            let mut next = OperationStore::on_disk(work_dir.path());
            assert_eq!(next.read().unwrap(), checkpoint(reservations));
        }
    }

    #[test]
    fn failed_checkpoint_is_not_found_by_the_next_process() {
        let disk = SimulatedDisk::new();
        let opened = disk.clone();
        let open: OpenStore = Arc::new(move || Ok(Box::new(opened.open()?)));
        let mut store = OperationStore::simulated(open.clone());
        let (before, after) = (checkpoint(1), checkpoint(2));
        store.write(&before).unwrap();
        // Written, but the sync failed.
        disk.fail_next(Failure::Sync("the disk did not answer".to_owned()));
        let replaced = store.replace(&before, &after);
        assert!(
            matches!(replaced, ReplaceOutcome::Unchanged(_)),
            "{replaced:?}"
        );
        drop(store);
        let mut next = OperationStore::simulated(open);
        assert_eq!(next.read().unwrap(), before);
        // The rewrite fails too.
        let sync = || Failure::Sync("the disk did not answer".to_owned());
        disk.fail_next(sync());
        disk.fail_next(Failure::Full);
        let replaced = next.replace(&before, &after);
        assert!(
            matches!(replaced, ReplaceOutcome::InDoubt(_)),
            "{replaced:?}"
        );
    }

    #[test]
    fn agent_without_operations_stores_nothing() {
        let work_dir = tempfile::tempdir().unwrap();
        let mut store = OperationStore::on_disk(work_dir.path());
        assert_eq!(store.read().unwrap(), Checkpoint::default());
        assert!(!work_dir.path().join("meta").exists());
    }
}
