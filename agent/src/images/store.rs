//! The store of images on disk. Blocking.
//!
//! An image is unpacked below `staging` and gets its place by one rename; it leaves it the same
//! way. The rest of an interrupted pull or removal is removed at the next start. The index has
//! nothing that cannot be found again: a damaged one costs a question to the registry.
//!
//! A container does not wait until its image is on the disk, which may take seconds while others
//! write. An image is marked when it is; one without the mark is removed at the first start after a
//! reboot, since it may have lost content.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use storage::record;

use super::reference::Reference;
use super::retention::DiskSpace;
use super::space::space;
use super::unpacker::{BLOBS, TARGET, UnpackedImage};
use crate::fetcher::digest::Digest;
use crate::host::helper::Identity;
use crate::host::{procfs, removal};

const LOCK: &str = "lock";
const STAGING: &str = "staging";
const IMAGES: &str = "images";
const INDEX: &str = "index.json";
/// The description of an image, in its directory.
const DESCRIPTION: &str = "image.json";
/// Marks an image that is on the disk.
const SYNCED: &str = "synced";
/// The directory of an image while it is unpacked.
const IMAGE: &str = "image";
const ROOT: &str = "rootfs";

/// The store: also set-id programs of images are reached only by root, or by the agent's user.
const PRIVATE: u32 = 0o700;

/// The names and uses of images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// The image that each complete name meant when it was last pulled.
    pub names: BTreeMap<Reference, Digest>,
    /// The last use of each image, in nanoseconds since 1970.
    pub last_used: BTreeMap<Digest, u64>,
}

/// The description of an image.
#[derive(Debug, Serialize, Deserialize)]
struct Description {
    image: UnpackedImage,
    /// The boot of the host in which it was unpacked.
    boot: String,
}

/// The store, locked against other agents.
#[derive(Debug)]
pub struct Store {
    root: PathBuf,
    state: Mutex<State>,
    _lock: File,
}

#[derive(Debug, Default)]
struct State {
    next_name: u64,
    /// Images whose removal is decided. A pull that ends before takes its image back.
    doomed: BTreeSet<Digest>,
}

/// The content of a store at its start.
#[derive(Debug)]
pub struct Contents {
    /// Its images.
    pub images: Vec<UnpackedImage>,
    /// Those without a description. They are removed when no container uses them.
    pub damaged: Vec<Digest>,
    /// Their names and uses.
    pub index: Index,
}

/// A directory for one pull, which is removed with all that is left in it.
#[derive(Debug)]
pub struct Staging {
    path: PathBuf,
}

impl Store {
    /// Opens or makes a store, and removes the rest of interrupted work.
    pub fn open(root: &Path) -> io::Result<(Self, Contents)> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(PRIVATE).create(root)?;
        fs::set_permissions(root, Permissions::from_mode(PRIVATE))?;
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(false).write(true).mode(0o600);
        let lock = options.open(root.join(LOCK))?;
        lock.try_lock()
            .map_err(|_| io::Error::other("another agent uses this store of images"))?;
        if root.join(STAGING).exists() {
            remove_tree(&root.join(STAGING))?;
        }
        builder.create(root.join(STAGING))?;
        builder.create(root.join(IMAGES))?;
        let store = Self {
            root: root.to_owned(),
            state: Mutex::default(),
            _lock: lock,
        };
        let contents = store.read()?;
        Ok((store, contents))
    }

    fn read(&self) -> io::Result<Contents> {
        let (mut images, mut damaged) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(self.root.join(IMAGES))? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let digest = name.and_then(Digest::of_file_name);
            let read = read_json(&path.join(DESCRIPTION), DESCRIPTION);
            let is_whole = |found: &Description| {
                let is_on_disk = found.boot == procfs::boot_id() || path.join(SYNCED).exists();
                is_on_disk && Some(&found.image.config.digest) == digest.as_ref()
            };
            match read {
                Ok(found) if is_whole(&found) => images.push(found.image),
                read => {
                    let error = read.as_ref().err().map(ToString::to_string);
                    tracing::warn!(path = %path.display(), ?error, "removing a damaged image");
                    match digest.filter(|_| read.is_err() && path.join(SYNCED).exists()) {
                        // Its content is whole, and a container may use it.
                        Some(digest) => damaged.push(digest),
                        None => self.remove_path(&path)?,
                    }
                }
            }
        }
        let path = self.root.join(INDEX);
        let index = match read_json(&path, INDEX) {
            Ok(index) => index,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Index::default(),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "forgetting a damaged index");
                Index::default()
            }
        };
        Ok(Contents {
            images,
            damaged,
            index,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn staging_path(&self) -> PathBuf {
        let mut state = self.state();
        state.next_name += 1;
        self.root.join(STAGING).join(state.next_name.to_string())
    }

    /// The root directory of an image.
    pub fn root_of(&self, image: &Digest) -> PathBuf {
        self.path_of(image).join(ROOT)
    }

    fn path_of(&self, image: &Digest) -> PathBuf {
        self.root.join(IMAGES).join(image.file_name())
    }

    /// Makes a directory for a pull by a puller of this user.
    pub fn stage(&self, puller: &Identity) -> io::Result<Staging> {
        let path = self.staging_path();
        let mut builder = DirBuilder::new();
        builder.mode(PRIVATE).create(&path)?;
        let staging = Staging { path };
        builder.create(staging.blobs())?;
        if let Some((uid, gid, _)) = puller {
            chown(staging.blobs(), Some(*uid), Some(*gid))?;
        }
        builder.create(staging.path.join(IMAGE))?;
        // The mode of the container's root directory, if no layer has an entry for it.
        builder.mode(0o755).create(staging.path.join(TARGET))?;
        fs::set_permissions(staging.path.join(TARGET), Permissions::from_mode(0o755))?;
        Ok(staging)
    }

    /// Gives an unpacked image its place. An image that is there already stays.
    pub fn commit(&self, staging: &Staging, image: &UnpackedImage) -> io::Result<()> {
        let unpacked = staging.path.join(IMAGE);
        let description = Description {
            image: image.clone(),
            boot: procfs::boot_id(),
        };
        write_json(&unpacked.join(DESCRIPTION), DESCRIPTION, &description)?;
        let place = self.path_of(&image.config.digest);
        let mut state = self.state();
        state.doomed.remove(&image.config.digest);
        match place.exists() {
            // Its description may be damaged.
            true => fs::rename(unpacked.join(DESCRIPTION), place.join(DESCRIPTION)),
            false => fs::rename(&unpacked, &place),
        }
    }

    /// Writes an image to the disk, and marks it.
    pub fn sync(&self, image: &Digest) -> io::Result<()> {
        let place = self.path_of(image);
        rustix::fs::syncfs(File::open(&place)?)?;
        File::create(place.join(SYNCED))?.sync_all()
    }

    /// Decides the removal of an image, which [`remove`](Self::remove) carries out.
    pub fn doom(&self, image: &Digest) {
        self.state().doomed.insert(image.clone());
    }

    /// Takes back the removal of an image. Whether it is still there.
    pub fn take_back(&self, image: &Digest) -> bool {
        let mut state = self.state();
        state.doomed.remove(image);
        self.path_of(image).exists()
    }

    /// Removes an image, unless it was pulled again.
    pub fn remove(&self, image: &Digest) -> io::Result<()> {
        let aside = self.staging_path();
        {
            let mut state = self.state();
            if !state.doomed.remove(image) {
                return Ok(());
            }
            fs::rename(self.path_of(image), &aside)?;
        }
        remove_tree(&aside)
    }

    fn remove_path(&self, path: &Path) -> io::Result<()> {
        let aside = self.staging_path();
        fs::rename(path, &aside)?;
        remove_tree(&aside)
    }

    /// Writes the index.
    pub fn write_index(&self, index: &Index) -> io::Result<()> {
        let new = self.root.join(format!("{INDEX}.new"));
        write_json(&new, INDEX, index)?;
        fs::rename(new, self.root.join(INDEX))
    }

    /// The space on its disk.
    pub fn space(&self) -> io::Result<DiskSpace> {
        space(File::open(&self.root)?)
    }
}

impl Staging {
    /// The directory of an unpacker.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of a puller.
    pub fn blobs(&self) -> PathBuf {
        self.path.join(BLOBS)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Err(error) = remove_tree(&self.path) {
            let path = self.path.display();
            tracing::warn!(%path, %error, "staging directory of an image not removed");
        }
    }
}

/// Reads JSON after a checksum, which also covers the name of the kind of file.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path, name: &str) -> io::Result<T> {
    let bytes = fs::read(path)?;
    let opened = record::open(name.as_bytes(), &bytes).map_err(io::Error::other)?;
    Ok(serde_json::from_slice(opened.value)?)
}

/// Writes JSON after a checksum.
pub(super) fn write_json(path: &Path, name: &str, value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(value)?;
    fs::write(path, record::seal(name.as_bytes(), 0, &text))
}

/// Removes a directory with all below it. Without root's rights, modes of the image may forbid it:
/// then they are changed.
fn remove_tree(path: &Path) -> io::Result<()> {
    match removal::remove_tree(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_directories(path)?;
            removal::remove_tree(path)
        }
        removed => removed,
    }
}

fn open_directories(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        fs::set_permissions(path, Permissions::from_mode(PRIVATE))?;
        for entry in fs::read_dir(path)? {
            open_directories(&entry?.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::layers::Unpacked;
    use crate::images::manifest::ImageConfig;

    fn image(name: &str) -> UnpackedImage {
        let json = format!(r#"{{"config":{{"User":"{name}"}},"rootfs":{{"diff_ids":[]}}}}"#);
        UnpackedImage {
            config: ImageConfig::read(json.as_bytes()).unwrap().0,
            size: Unpacked::default(),
        }
    }

    fn add(store: &Store, image: &UnpackedImage) {
        let staging = store.stage(&None).unwrap();
        fs::write(staging.path().join(TARGET).join("f"), "1").unwrap();
        store.commit(&staging, image).unwrap();
    }

    fn names(path: &Path) -> Vec<String> {
        let entries = fs::read_dir(path).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn images_are_found_again_and_interrupted_work_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("store");
        let (store, contents) = Store::open(&root).unwrap();
        assert!(contents.images.is_empty());
        assert!(
            Store::open(&root)
                .unwrap_err()
                .to_string()
                .contains("another agent")
        );
        add(&store, &image("a"));
        add(&store, &image("b"));
        // A pull and a removal that were killed, and damage.
        std::mem::forget(store.stage(&None).unwrap());
        fs::create_dir_all(root.join("staging/9/deep")).unwrap();
        fs::set_permissions(root.join("staging/9"), Permissions::from_mode(0o000)).unwrap();
        fs::write(
            root.join(IMAGES)
                .join(image("b").config.digest.file_name())
                .join(DESCRIPTION),
            "{",
        )
        .unwrap();
        fs::write(root.join(INDEX), "[").unwrap();
        drop(store);
        let (store, contents) = Store::open(&root).unwrap();
        assert_eq!(
            (contents.images, contents.index),
            (vec![image("a")], Index::default())
        );
        assert!(store.root_of(&image("a").config.digest).join("f").exists());
        assert_eq!(names(&root.join(STAGING)), [""; 0]);
        assert_eq!(names(&root.join(IMAGES)).len(), 1);
        let mode = fs::metadata(&root).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, PRIVATE);
    }

    #[test]
    fn image_that_is_pulled_again_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(directory.path()).unwrap();
        let (image, digest) = (image("a"), image("a").config.digest);
        add(&store, &image);
        store.doom(&digest);
        add(&store, &image);
        store.remove(&digest).unwrap();
        assert!(store.root_of(&digest).exists());
        store.doom(&digest);
        store.remove(&digest).unwrap();
        assert!(!store.root_of(&digest).exists());
        add(&store, &image);
        assert!(store.root_of(&digest).exists());
        assert_eq!(names(&directory.path().join(STAGING)), [""; 0]);
    }

    #[test]
    fn image_that_may_have_lost_content_is_removed_after_a_reboot() {
        let directory = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(directory.path()).unwrap();
        for name in ["synced", "not"] {
            add(&store, &image(name));
        }
        store.sync(&image("synced").config.digest).unwrap();
        for name in ["synced", "not"] {
            let path = store.path_of(&image(name).config.digest).join(DESCRIPTION);
            let description = Description {
                image: image(name),
                boot: "earlier".to_owned(),
            };
            write_json(&path, DESCRIPTION, &description).unwrap();
        }
        drop(store);
        let (_, contents) = Store::open(directory.path()).unwrap();
        assert_eq!(contents.images, [image("synced")]);
    }

    #[test]
    fn damage_at_any_byte_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(directory.path()).unwrap();
        add(&store, &image("a"));
        let name = Reference::parse("a").unwrap().complete();
        let index = Index {
            names: BTreeMap::from([(name, image("a").config.digest)]),
            last_used: BTreeMap::from([(image("a").config.digest, 5)]),
        };
        store.write_index(&index).unwrap();
        let place = store.path_of(&image("a").config.digest);
        drop(store);
        let files = [directory.path().join(INDEX), place.join(DESCRIPTION)];
        for (is_index, path) in [(true, &files[0]), (false, &files[1])] {
            let whole = fs::read(path).unwrap();
            let images = match is_index {
                true => vec![image("a")],
                false => Vec::new(),
            };
            for at in 0..2 * whole.len() {
                let mut damaged = whole.clone();
                match at < whole.len() {
                    true => damaged[at] ^= 1,
                    false => damaged.truncate(at - whole.len()),
                }
                fs::write(path, damaged).unwrap();
                // Content that is on the disk stays until it is known that no container uses it.
                fs::write(place.join(SYNCED), "").unwrap();
                let (store, contents) = Store::open(directory.path()).unwrap();
                let expected = match is_index {
                    true => Index::default(),
                    false => index.clone(),
                };
                assert_eq!(
                    (&contents.images, contents.index),
                    (&images, expected),
                    "{at}"
                );
                let digests: Vec<Digest> = match is_index {
                    true => Vec::new(),
                    false => vec![image("a").config.digest],
                };
                assert_eq!(contents.damaged, digests, "byte {at}");
                assert!(store.root_of(&image("a").config.digest).join("f").exists());
            }
            fs::write(path, whole).unwrap();
        }
        // Another pull of it mends the description.
        fs::write(&files[1], "").unwrap();
        let (store, _) = Store::open(directory.path()).unwrap();
        add(&store, &image("a"));
        drop(store);
        let (_, contents) = Store::open(directory.path()).unwrap();
        assert_eq!(
            (contents.images, contents.damaged),
            (vec![image("a")], Vec::new())
        );
    }

    #[test]
    fn index_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(directory.path()).unwrap();
        let name = Reference::parse("a").unwrap().complete();
        let index = Index {
            names: BTreeMap::from([(name, Digest::of(b"1"))]),
            last_used: BTreeMap::from([(Digest::of(b"1"), 5)]),
        };
        store.write_index(&index).unwrap();
        drop(store);
        assert_eq!(Store::open(directory.path()).unwrap().1.index, index);
    }
}
