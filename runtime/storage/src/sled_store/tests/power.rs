//! A loss of power: any subset of the writes since the last sync survives, in any order.
//!
//! The test keeps the file's state before and after the writes between two syncs. A loss of power
//! leaves any mixture of the two, sector by sector: a disk may write unsynced data in any order.

use std::collections::BTreeMap;

use super::*;

const SECTOR: usize = 512;

/// The files of a store, by their names.
type Files = BTreeMap<String, Vec<u8>>;

/// A disk that keeps the directory's state at each of its last two syncs.
#[derive(Clone, Default)]
struct Camera {
    dir: PathBuf,
    taken: Arc<Mutex<[Files; 2]>>,
    on: Arc<Mutex<bool>>,
}

impl Disk for Camera {
    fn sync(&mut self, file: &File) -> io::Result<()> {
        file.sync_data()?;
        if *self.on.lock().unwrap() {
            let mut taken = self.taken.lock().unwrap();
            taken.swap(0, 1);
            taken[1] = files_of(&self.dir);
        }
        Ok(())
    }
}

fn files_of(dir: &Path) -> Files {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    entries
        .filter(|entry| entry.file_type().unwrap().is_file())
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect()
}

/// A deterministic random generator.
pub(super) struct Chance(pub(super) u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 27)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// The state of the disk when power is lost between these two syncs. One in `rarity` of the changed
/// sectors stays unchanged.
fn torn(before: &Files, after: &Files, chance: &mut Chance, rarity: u64) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("blobs")).unwrap();
    for (name, new) in after {
        let old = before.get(name).map_or(&[][..], Vec::as_slice);
        let mut bytes = new.clone();
        // The marker is not synced: its newest content, its last one or none may have reached the
        // disk.
        if name == "synced" {
            match chance.below(3) {
                0 => bytes = old.to_vec(),
                1 => bytes.fill(0),
                _ => {}
            }
        }
        if name == "db" {
            for at in (0..new.len()).step_by(SECTOR) {
                let sector = at..(at + SECTOR).min(new.len());
                let stays = match old.get(sector.clone()) {
                    Some(old) if *old == new[sector.clone()] => false,
                    _ => chance.below(rarity) == 0,
                };
                if stays {
                    for at in sector {
                        bytes[at] = old.get(at).copied().unwrap_or(0);
                    }
                }
            }
            if chance.below(3) == 0 {
                bytes.truncate(old.len().max(1));
            }
        }
        fs::write(dir.path().join(name), bytes).unwrap();
    }
    dir
}

const PART: usize = VALUE_BYTES_MAX - 4000;

/// Turn `number` of a log: sometimes with prepared parts, and with the removal of old ones.
fn turn(store: &mut impl Store, number: u32) {
    let mut changes = Changes::new();
    let parts = if number.is_multiple_of(3) { 4 } else { 0 };
    for part in 0..parts {
        store
            .prepare(
                format!("part/{number:04}/{part}").as_bytes(),
                &vec![number as u8; PART],
            )
            .unwrap();
    }
    changes.put(
        format!("turn/{number:04}"),
        vec![number as u8; 100 + 700 * (number as usize % 40)],
    );
    store.commit(changes).unwrap();
    if number.is_multiple_of(12) && number > 12 {
        let mut changes = Changes::new();
        for old in number - 24..number - 12 {
            changes.remove(format!("turn/{old:04}"));
            for part in 0..4 {
                changes.remove(format!("part/{old:04}/{part}"));
            }
        }
        changes.put("swept", (number - 12).to_string());
        store.commit(changes).unwrap();
    }
}

/// The range of turns in the records, which must be complete turns.
fn turns(found: &[Record]) -> (u32, u32) {
    let keys: Vec<&str> = found
        .iter()
        .map(|record| std::str::from_utf8(&record.key).unwrap())
        .collect();
    let swept = found.iter().find(|record| record.key == b"swept");
    let from = swept.map_or(1, |record| {
        std::str::from_utf8(&record.value).unwrap().parse().unwrap()
    });
    let last = keys
        .iter()
        .filter_map(|key| key.strip_prefix("turn/"))
        .next_back()
        .map_or(0, |number| number.parse().unwrap());
    for number in from.max(1)..=last {
        let turn = format!("turn/{number:04}");
        assert!(keys.contains(&turn.as_str()), "{turn} of {from}..={last}");
        let parts = if number % 3 == 0 { 4 } else { 0 };
        for part in 0..parts {
            let part = format!("part/{number:04}/{part}");
            let record = found.iter().find(|record| record.key == part.as_bytes());
            let value = &record.unwrap_or_else(|| panic!("{part} is missing")).value;
            assert_eq!(*value, vec![number as u8; PART]);
        }
    }
    (from, last)
}

fn power_is_lost(seed: u64, turns_before: u32, rarity: u64) {
    let dir = tempfile::tempdir().unwrap();
    let camera = Camera {
        dir: dir.path().to_owned(),
        ..Camera::default()
    };
    let mut store = SledStore::open_with(dir.path(), Box::new(camera.clone())).unwrap();
    let mut chance = Chance(seed);
    for number in 1..=turns_before {
        turn(&mut store, number);
    }
    *camera.on.lock().unwrap() = true;
    camera.taken.lock().unwrap()[1] = files_of(dir.path());
    for number in turns_before + 1..turns_before + 7 {
        turn(&mut store, number);
        let [before, after] = camera.taken.lock().unwrap().clone();
        let torn = torn(&before, &after, &mut chance, rarity);
        let found = SledStore::open(torn.path());
        let found = found.unwrap_or_else(|error| panic!("seed {seed}, turn {number}: {error}"));
        let (_, last) = turns(&found.scan(b"").unwrap());
        assert!(
            last == number || last + 1 == number,
            "seed {seed}: {last} of {number}"
        );
    }
}

#[test]
fn power_loss_keeps_acknowledged_commits_atomic() {
    for seed in 0..6 {
        power_is_lost(seed, 3 + seed as u32, 1 + seed % 4 * 3);
    }
}

#[test]
fn power_loss_during_space_reuse_loses_no_commit() {
    power_is_lost(1, 110, 3);
}

/// Between any two syncs sled must not overwrite the only synced copy of a record, however much is
/// prepared. With a sync only at the commit it did, and acknowledged records were lost.
#[test]
fn power_loss_during_prepares_loses_no_commit() {
    let dir = tempfile::tempdir().unwrap();
    let camera = Camera {
        dir: dir.path().to_owned(),
        ..Camera::default()
    };
    let mut store = SledStore::open_with(dir.path(), Box::new(camera.clone())).unwrap();
    for number in 1..=120 {
        turn(&mut store, number);
    }
    let (first, last) = turns(&store.scan(b"").unwrap());
    *camera.on.lock().unwrap() = true;
    camera.taken.lock().unwrap()[1] = files_of(dir.path());
    let mut chance = Chance(1);
    for part in 0..240 {
        let key = format!("bulk/{part:04}");
        store.prepare(key.as_bytes(), &[part as u8; PART]).unwrap();
        if part % 40 != 39 {
            continue;
        }
        let synced = camera.taken.lock().unwrap()[1].clone();
        let torn = torn(&synced, &files_of(dir.path()), &mut chance, 2);
        let found = SledStore::open(torn.path());
        let found = found.unwrap_or_else(|error| panic!("part {part}: {error}"));
        let found = found.scan(b"").unwrap();
        assert_eq!(turns(&found), (first, last), "part {part}");
    }
}

#[test]
fn prepare_needs_no_sync_and_precedes_its_commit() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Watched::default();
    let mut store = SledStore::open_with(dir.path(), Box::new(disk.clone())).unwrap();
    disk.seen.lock().unwrap().clear();
    store.prepare(b"part/1", &[1; 1000]).unwrap();
    store.prepare(b"part/2", &[2; 10]).unwrap();
    assert_eq!(store.get(b"part/2"), Ok(Some(vec![2; 10])));
    store.commit(put("whole", "two parts")).unwrap();
    assert_eq!(*disk.seen.lock().unwrap(), "wwws");
    let too_large = store.prepare(b"part/3", &[0; VALUE_BYTES_MAX + 1]);
    assert!(matches!(too_large, Err(StoreError::TooLarge { .. })));
    assert_eq!(store.prepare(b"", b"1"), Err(StoreError::BadKey));
    drop(store);
    let store = SledStore::open(dir.path()).unwrap();
    assert_eq!(store.scan(b"part/").unwrap().len(), 2);
}

#[test]
fn killed_prepare_leaves_no_partial_commit() {
    let dir = tempfile::tempdir().unwrap();
    let copies = Arc::<Mutex<Vec<TempDir>>>::default();
    let disk = Watched {
        dir: dir.path().to_owned(),
        copies: Some(copies.clone()),
        ..Watched::default()
    };
    let mut store = SledStore::open_with(dir.path(), Box::new(disk)).unwrap();
    for number in 1..=13 {
        turn(&mut store, number);
        for copy in std::mem::take(&mut *copies.lock().unwrap()) {
            let found = SledStore::open(copy.path()).unwrap().scan(b"").unwrap();
            let (_, last) = turns(&found);
            assert!(last == number || last + 1 == number);
        }
    }
}

#[test]
fn disk_bytes_match_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = SledStore::open(dir.path()).unwrap();
    for number in 1..=30 {
        turn(&mut store, number);
    }
    let log = fs::metadata(dir.path().join("db")).unwrap();
    let others = 64 * 1024;
    assert!(store.disk_bytes() >= log.blocks() * 512);
    assert!(store.disk_bytes() <= log.blocks() * 512 + others);
}
