//! What an agent keeps of operations on its disk, and the directories of its volumes (SPEC 5.1).
//!
//! Blocking functions: call them beside the mailbox. The store is opened when there is something to keep, so that an agent without
//! operations has none. What is kept is one value, cut to the size of a record; it is written as a whole, all or nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::OperationUpdate;
use resources::{Conversion, Resources};
use runtime::codec;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use storage::sled_store::SledStore;
use storage::{Changes, Store, StoreError, VALUE_BYTES_MAX};

use super::volumes;

/// The first byte of what is kept.
const FORM: u8 = 2;
/// The first byte of what was kept before operations had serials.
const FORM_WITHOUT_SERIALS: u8 = 1;
const PREFIX: &[u8] = b"resources/";

/// What outlives an agent's process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// What operations have made: volumes, and what is dynamically reserved.
    pub made: Resources,
    /// The statuses of operations that their frameworks have not acknowledged.
    pub unacknowledged: Vec<OperationUpdate>,
    /// The serial of the newest operation that is over; 0 before the first.
    pub settled: u64,
}

/// [`Checkpoint`] as it was before operations had serials.
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
    /// The store refuses.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What is there was not written by this program.
    #[error("the checkpointed resources cannot be read: {0}")]
    Garbled(String),
}

/// What came of [`Keeper::replace`]. What went wrong is a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// The new is on the disk.
    Done,
    /// What was there before is.
    Not(String),
    /// One of the two is: what was there before must be written until that succeeds.
    InDoubt(String),
}

/// Opens the store of a simulated disk.
pub type OpenStore = Arc<dyn Fn() -> Result<Box<dyn Store>, StoreError> + Send + Sync>;

/// The store of an agent with this work directory.
pub fn directory(work_dir: &Path) -> PathBuf {
    work_dir.join("meta").join("resources")
}

/// Where an agent keeps what must outlive it.
pub struct Keeper {
    place: Place,
    store: Option<Box<dyn Store>>,
}

enum Place {
    /// In this work directory.
    Disk(PathBuf),
    /// On a simulated disk, where volumes have no directories.
    Rehearsed(OpenStore),
}

impl Keeper {
    /// Keeps it in this work directory.
    pub fn on_disk(work_dir: &Path) -> Self {
        Self {
            place: Place::Disk(work_dir.to_owned()),
            store: None,
        }
    }

    /// Keeps it in a store that is opened by this, and makes no directories.
    pub fn rehearsed(open: OpenStore) -> Self {
        Self {
            place: Place::Rehearsed(open),
            store: None,
        }
    }

    fn store(&mut self) -> Result<&mut Box<dyn Store>, StoreError> {
        let store = match self.store.take() {
            Some(store) => store,
            None => match &self.place {
                Place::Disk(work_dir) => Box::new(SledStore::open(directory(work_dir))?),
                Place::Rehearsed(open) => open()?,
            },
        };
        Ok(self.store.insert(store))
    }

    /// What was kept last; nothing if nothing ever was.
    pub fn read(&mut self) -> Result<Checkpoint, CheckpointError> {
        if let (None, Place::Disk(work_dir)) = (&self.store, &self.place)
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

    /// Keeps this from now on. It is on the disk when this returns.
    pub fn write(&mut self, checkpoint: &Checkpoint) -> Result<(), CheckpointError> {
        let written = self.try_write(checkpoint);
        if written.is_err() {
            // A store that failed is closed: the next time it is opened anew, and all is written again.
            self.store = None;
        }
        written
    }

    /// Keeps `after` in place of `before`. Where that fails, nobody knows which of them is on the disk: `before` is written once more, so
    /// that what is said to have failed is not found by the next process.
    pub fn replace(&mut self, before: &Checkpoint, after: &Checkpoint) -> Replaced {
        let Err(error) = self.write(after) else {
            return Replaced::Done;
        };
        match self.write(before) {
            Ok(()) => Replaced::Not(error.to_string()),
            Err(again) => {
                tracing::error!(%error, %again, "nobody knows what is kept of operations, until it can be written again");
                Replaced::InDoubt(error.to_string())
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

    /// Makes the directories of the volumes that this creates. What lies in their way is from a volume that ended.
    pub fn before(&self, conversion: &Conversion) -> Result<(), String> {
        match (conversion, &self.place) {
            (Conversion::Create { volumes }, Place::Disk(work_dir)) => volumes
                .iter()
                .try_for_each(|volume| volumes::make(work_dir, volume)),
            _ => Ok(()),
        }
    }

    /// Removes the directories of the volumes that this has destroyed. What cannot be removed is logged: it is nobody's any more.
    pub fn after(&self, conversion: &Conversion) {
        if let (Conversion::Destroy { volumes }, Place::Disk(work_dir)) = (conversion, &self.place)
        {
            for volume in volumes {
                if let Err(problem) = volumes::remove(work_dir, volume) {
                    tracing::error!(problem, "a volume that was destroyed is still there");
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
    use storage::forgetful::{Failure, ForgetfulDisk};

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
    fn what_was_kept_before_operations_had_serials_is_read() {
        let disk = ForgetfulDisk::new();
        let kept = checkpoint(2);
        let mut bytes = vec![FORM_WITHOUT_SERIALS];
        let older = (kept.made.clone(), kept.unacknowledged.clone());
        bytes.extend(codec::encode(&older).unwrap());
        let mut changes = Changes::new();
        changes.put(key(0), bytes);
        disk.open().unwrap().commit(changes).unwrap();
        let open: OpenStore = Arc::new(move || Ok(Box::new(disk.open()?)));
        let mut keeper = Keeper::rehearsed(open);
        let expected = Checkpoint {
            settled: 0,
            ..kept.clone()
        };
        assert_eq!(keeper.read().unwrap(), expected);
        keeper.write(&kept).unwrap();
        assert_eq!(keeper.read().unwrap(), kept);
    }

    #[test]
    fn what_is_kept_is_found_by_the_next_process_whether_it_is_large_or_small() {
        let work_dir = tempfile::tempdir().unwrap();
        for reservations in [4_000, 3, 0] {
            let mut keeper = Keeper::on_disk(work_dir.path());
            keeper.write(&checkpoint(reservations)).unwrap();
            drop(keeper);
            let mut next = Keeper::on_disk(work_dir.path());
            assert_eq!(next.read().unwrap(), checkpoint(reservations));
        }
    }

    #[test]
    fn what_could_not_be_kept_is_not_found_by_the_next_process() {
        let disk = ForgetfulDisk::new();
        let opened = disk.clone();
        let open: OpenStore = Arc::new(move || Ok(Box::new(opened.open()?)));
        let mut keeper = Keeper::rehearsed(open.clone());
        let (before, after) = (checkpoint(1), checkpoint(2));
        keeper.write(&before).unwrap();
        // It is written, and nobody knows.
        disk.fail_next(Failure::Sync("the disk did not answer".to_owned()));
        let replaced = keeper.replace(&before, &after);
        assert!(matches!(replaced, Replaced::Not(_)), "{replaced:?}");
        drop(keeper);
        let mut next = Keeper::rehearsed(open);
        assert_eq!(next.read().unwrap(), before);
        // Nor can it be put back.
        let sync = || Failure::Sync("the disk did not answer".to_owned());
        disk.fail_next(sync());
        disk.fail_next(Failure::Full);
        let replaced = next.replace(&before, &after);
        assert!(matches!(replaced, Replaced::InDoubt(_)), "{replaced:?}");
    }

    #[test]
    fn an_agent_without_operations_keeps_nothing() {
        let work_dir = tempfile::tempdir().unwrap();
        let mut keeper = Keeper::on_disk(work_dir.path());
        assert_eq!(keeper.read().unwrap(), Checkpoint::default());
        assert!(!work_dir.path().join("meta").exists());
    }
}
