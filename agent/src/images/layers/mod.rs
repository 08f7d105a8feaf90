//! Layers: applies the layers of an image, in order, to one directory that nothing else writes to.
//!
//! Every path is resolved by the kernel with the directory as its root (`RESOLVE_IN_ROOT`), so that
//! neither `..` nor any symbolic link of any layer leads out of it; a name with `..` is an error
//! all the same. The last component is never followed. Whiteouts remove only entries of lower
//! layers, wherever they stand in their own layer. Devices, pipes and sockets are left out:
//! containers get their own. Bytes, entries, names and depth are bounded.

mod remove;
mod stream;

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};
use rustix::fs::{
    self, AtFlags, CWD, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tar::EntryType;

use self::stream::{Budget, Stream};
use super::space::SpaceChecks;
use crate::fetcher::digest::Digest;

/// Most bytes of an entry's header with its extensions: names and extended attributes.
const HEADER_MAX: u64 = 1 << 20;
/// Most bytes of a name.
const NAME_MAX: usize = 4096;
/// Most directories above an entry, also through links.
const DEPTH_MAX: u16 = 256;
/// Most bytes of the names of all directories.
const DIRECTORY_NAMES_MAX: usize = 64 << 20;
/// Bytes copied at once.
const PIECE: usize = 128 << 10;
/// Every file begins a new block.
const BLOCK: u64 = 4096;

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Other names that begin so belong to file systems of former days.
const WHITEOUT_META: &[u8] = b".wh..wh.";

const NOFOLLOW: AtFlags = AtFlags::SYMLINK_NOFOLLOW;

/// Bounds on an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnpackBounds {
    /// Most bytes of all layers, uncompressed.
    pub bytes: u64,
    /// Most entries, with the directories above them.
    pub entries: u64,
}

impl Default for UnpackBounds {
    fn default() -> Self {
        Self {
            bytes: 64 << 30,
            entries: 2_000_000,
        }
    }
}

/// The size of an unpacked image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unpacked {
    /// Bytes on disk, estimated from the sizes of the entries.
    pub bytes: u64,
    /// Entries, also those that a later layer has removed.
    pub entries: u64,
    /// Devices, pipes and sockets that were left out.
    pub skipped: u64,
}

/// Applies layers to a directory.
pub struct Unpacker {
    root: OwnedFd,
    /// Whether it may set owners.
    sets_owners: bool,
    bounds: UnpackBounds,
    bytes_left: u64,
    made: Unpacked,
    space: SpaceChecks,
    /// The directories of the root above each directory, by inode.
    depths: FxHashMap<u64, u16>,
    /// The inodes that the present layer has made or named.
    added: FxHashSet<u64>,
    /// Directories whose mode and time are set at the end: entries may still come.
    directories: FxHashMap<u64, DirectoryEntry>,
    directory_names: usize,
    /// The last parent directory. Forgotten when anything on its path may have changed.
    parent: Option<(PathBuf, Rc<OwnedFd>)>,
    piece: Vec<u8>,
}

/// A directory as its entry states it.
struct DirectoryEntry {
    path: PathBuf,
    mode: u32,
    modified: u64,
}

/// The attributes of an entry.
struct Attributes {
    mode: u32,
    owner: Option<(Uid, Gid)>,
    modified: u64,
    extended: Vec<(OsString, Vec<u8>)>,
}

/// A problem in the words of an entry.
fn of_entry(name: &Path) -> impl Fn(&dyn std::fmt::Display) -> String {
    move |problem| {
        let shown: String = name.display().to_string().chars().take(200).collect();
        format!("entry `{shown}`: {problem}")
    }
}

impl Unpacker {
    /// Applies layers to `root`, an empty directory.
    pub fn new(root: &Path, bounds: UnpackBounds) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let root = fs::openat(CWD, root, flags, Mode::empty())?;
        let inode = fs::fstat(&root)?.st_ino;
        Ok(Self {
            root,
            sets_owners: nix::unistd::geteuid().is_root(),
            bounds,
            bytes_left: bounds.bytes,
            made: Unpacked::default(),
            space: SpaceChecks::default(),
            depths: FxHashMap::from_iter([(inode, 0)]),
            added: FxHashSet::default(),
            directories: FxHashMap::default(),
            directory_names: 0,
            parent: None,
            piece: vec![0; PIECE],
        })
    }

    /// Sets owners, or not: a process that is not root may have kept the capability.
    pub fn with_owners(mut self, sets_owners: bool) -> Self {
        self.sets_owners = sets_owners;
        self
    }

    /// Applies the next layer. Returns the digest of its uncompressed content.
    pub fn apply(&mut self, layer: impl BufRead) -> Result<Digest, String> {
        let text = |error: io::Error| error.to_string();
        self.added.clear();
        let budget = Budget::default();
        budget.set(HEADER_MAX);
        let stream = Stream::new(layer, self.bytes_left, budget.clone()).map_err(text)?;
        let mut archive = tar::Archive::new(stream);
        let mut entries = archive.entries().map_err(text)?;
        // Terminates with the layer, whose bytes are bounded.
        loop {
            budget.set(HEADER_MAX);
            let Some(entry) = entries.next() else { break };
            let mut entry = entry.map_err(text)?;
            budget.set(u64::MAX);
            if entry.header().entry_type() == tar::EntryType::GNUSparse {
                // Its zeros are in no layer, so that no bound would count them.
                let name = PathBuf::from(OsStr::from_bytes(&entry.path_bytes()));
                return Err(of_entry(&name)(&"a sparse file: expected a plain one"));
            }
            self.entry(&mut entry)?;
            io::copy(&mut entry, &mut io::sink()).map_err(text)?;
        }
        budget.set(u64::MAX);
        let mut stream = archive.into_inner();
        // The padding belongs to the digest.
        io::copy(&mut stream, &mut io::sink()).map_err(text)?;
        self.bytes_left = stream.left;
        Ok(stream.digest())
    }

    fn entry(&mut self, entry: &mut tar::Entry<'_, impl Read>) -> Result<(), String> {
        let name = PathBuf::from(OsStr::from_bytes(&entry.path_bytes()));
        let wrong = of_entry(&name);
        let path = inside(&name).map_err(|problem| wrong(&problem))?;
        self.count_entry().map_err(|problem| wrong(&problem))?;
        let Some(base) = path.file_name() else {
            return self.root_entry(entry).map_err(|problem| wrong(&problem));
        };
        let is_meta = |part: Component| {
            let part = part.as_os_str().as_bytes();
            part.starts_with(WHITEOUT_META) && part != OPAQUE
        };
        if path.components().any(is_meta) {
            return Ok(());
        }
        let parent = path.parent().unwrap_or(Path::new(""));
        let whiteout = base.as_bytes().strip_prefix(WHITEOUT);
        let done = match whiteout {
            Some(hidden) => self.whiteout(parent, base, OsStr::from_bytes(hidden)),
            None => self.add(&path, parent, base, entry),
        };
        done.map_err(|problem| wrong(&problem))
    }

    fn count_entry(&mut self) -> Result<(), String> {
        self.made.entries += 1;
        match self.made.entries > self.bounds.entries {
            true => Err(format!("is one more than {}", self.bounds.entries)),
            false => Ok(()),
        }
    }

    fn whiteout(&mut self, parent: &Path, base: &OsStr, hidden: &OsStr) -> Result<(), String> {
        if matches!(hidden.as_bytes(), b"" | b"." | b"..") {
            return Err("hides no name".to_owned());
        }
        let Some(parent) = self.open_directory(parent)? else {
            return Ok(());
        };
        let removed = match base.as_bytes() == OPAQUE {
            true => self.remove_children(parent.as_fd(), true, 0),
            false => self.remove(parent.as_fd(), hidden, true, 0),
        };
        removed.map_err(|error| error.to_string())
    }

    fn add(
        &mut self,
        path: &Path,
        parent: &Path,
        base: &OsStr,
        entry: &mut tar::Entry<'_, impl Read>,
    ) -> Result<(), String> {
        let kind = entry.header().entry_type();
        let is_old_directory = entry.path_bytes().ends_with(b"/");
        match kind {
            EntryType::XGlobalHeader => Ok(()),
            EntryType::Char | EntryType::Block | EntryType::Fifo => {
                self.made.skipped += 1;
                Ok(())
            }
            EntryType::Directory => self.directory(path, parent, base, entry),
            EntryType::Regular if is_old_directory => self.directory(path, parent, base, entry),
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.file(parent, base, entry)
            }
            EntryType::Symlink => self.symlink(parent, base, entry),
            EntryType::Link => self.hard_link(parent, base, entry),
            other => Err(format!("has the unknown type {other:?}")),
        }
    }

    /// The entry of the directory itself.
    fn root_entry(&mut self, entry: &mut tar::Entry<'_, impl Read>) -> Result<(), String> {
        if entry.header().entry_type() != EntryType::Directory {
            return Ok(());
        }
        let attributes = self.attributes(entry)?;
        let root = self.root.try_clone().map_err(|error| error.to_string())?;
        self.set(root.as_fd(), &attributes, false)?;
        self.remember(root.as_fd(), Path::new("."), &attributes)
    }

    fn directory(
        &mut self,
        path: &Path,
        parent: &Path,
        base: &OsStr,
        entry: &mut tar::Entry<'_, impl Read>,
    ) -> Result<(), String> {
        let attributes = self.attributes(entry)?;
        let parent = self.make_directories(parent)?;
        let text = |error: Errno| error.to_string();
        let made = match self.make_directory(parent.as_fd(), base)? {
            Some(made) => made,
            None => {
                self.remove(parent.as_fd(), base, false, 0).map_err(text)?;
                let made = self.make_directory(parent.as_fd(), base)?;
                made.ok_or("cannot be made")?
            }
        };
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = fs::openat(&made, ".", flags, Mode::empty()).map_err(text)?;
        self.set(made.as_fd(), &attributes, false)?;
        self.remember(made.as_fd(), path, &attributes)
    }

    /// Keeps mode and time of a directory for the end.
    fn remember(
        &mut self,
        directory: impl AsFd,
        path: &Path,
        attributes: &Attributes,
    ) -> Result<(), String> {
        let found = fs::fstat(directory).map_err(|error| error.to_string())?;
        self.added.insert(found.st_ino);
        self.directory_names += path.as_os_str().len();
        if self.directory_names > DIRECTORY_NAMES_MAX {
            return Err(format!(
                "the names of directories exceed {DIRECTORY_NAMES_MAX} bytes"
            ));
        }
        let entry = DirectoryEntry {
            path: path.to_owned(),
            mode: attributes.mode,
            modified: attributes.modified,
        };
        if let Some(old) = self.directories.insert(found.st_ino, entry) {
            self.directory_names -= old.path.as_os_str().len();
        }
        Ok(())
    }

    fn file(
        &mut self,
        parent: &Path,
        base: &OsStr,
        entry: &mut tar::Entry<'_, impl Read>,
    ) -> Result<(), String> {
        let attributes = self.attributes(entry)?;
        let parent = self.make_directories(parent)?;
        let text = |error: Errno| error.to_string();
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let create = || fs::openat(&parent, base, flags, Mode::RUSR | Mode::WUSR);
        let file = match create() {
            Err(Errno::EXIST) => {
                self.remove(parent.as_fd(), base, false, 0).map_err(text)?;
                create()
            }
            created => created,
        };
        let mut file = std::fs::File::from(file.map_err(text)?);
        let written = self.copy(entry, &mut file)?;
        self.made.bytes += written.next_multiple_of(BLOCK);
        self.added.insert(fs::fstat(&file).map_err(text)?.st_ino);
        self.set(file.as_fd(), &attributes, true)
    }

    /// A sparse file may be larger than its layer, so that its bytes are counted too.
    fn copy(&mut self, content: &mut impl Read, file: &mut std::fs::File) -> Result<u64, String> {
        let mut written = 0;
        // Terminates at the bound.
        loop {
            let count = content
                .read(&mut self.piece)
                .map_err(|error| error.to_string())?;
            if count == 0 {
                return Ok(written);
            }
            written += count as u64;
            if self.made.bytes + written > self.bounds.bytes {
                let bytes = self.bounds.bytes;
                return Err(format!("exceeds the {bytes} bytes that an image may have"));
            }
            let checked = self.space.add(&*file, count as u64);
            let all = checked.and_then(|()| file.write_all(&self.piece[..count]));
            all.map_err(|error| error.to_string())?;
        }
    }

    fn symlink(
        &mut self,
        parent: &Path,
        base: &OsStr,
        entry: &mut tar::Entry<'_, impl Read>,
    ) -> Result<(), String> {
        let target = entry.link_name_bytes().unwrap_or_default().into_owned();
        let attributes = self.attributes(entry)?;
        let parent = self.make_directories(parent)?;
        let text = |error: Errno| error.to_string();
        let create = || fs::symlinkat(OsStr::from_bytes(&target), &parent, base);
        match create() {
            Err(Errno::EXIST) => {
                self.remove(parent.as_fd(), base, false, 0).map_err(text)?;
                create().map_err(text)?;
            }
            created => created.map_err(text)?,
        }
        if let Some((uid, gid)) = attributes.owner {
            fs::chownat(&parent, base, Some(uid), Some(gid), NOFOLLOW).map_err(text)?;
        }
        fs::utimensat(&parent, base, &times(attributes.modified), NOFOLLOW).map_err(text)?;
        let made = fs::statat(&parent, base, NOFOLLOW).map_err(text)?;
        self.added.insert(made.st_ino);
        Ok(())
    }

    fn hard_link(
        &mut self,
        parent: &Path,
        base: &OsStr,
        entry: &mut tar::Entry<'_, impl Read>,
    ) -> Result<(), String> {
        let target = entry.link_name_bytes().unwrap_or_default().into_owned();
        let target = inside(Path::new(OsStr::from_bytes(&target)))?;
        let missing = || format!("is a link to no file `{}`", target.display());
        let name = target.file_name().ok_or_else(missing)?;
        let above = target.parent().unwrap_or(Path::new(""));
        let source = self.open_directory(above)?.ok_or_else(missing)?;
        let text = |error: Errno| error.to_string();
        let found = match fs::statat(&source, name, NOFOLLOW) {
            Ok(found) if !is_directory(&found) => found,
            Ok(_) | Err(Errno::NOENT) => return Err(missing()),
            Err(error) => return Err(text(error)),
        };
        let parent = self.make_directories(parent)?;
        self.added.insert(found.st_ino);
        let create = || fs::linkat(&source, name, &parent, base, AtFlags::empty());
        match create() {
            Err(Errno::EXIST) => {
                let now = fs::statat(&parent, base, NOFOLLOW).map_err(text)?;
                if now.st_ino == found.st_ino {
                    return Ok(());
                }
                self.remove(parent.as_fd(), base, false, 0).map_err(text)?;
                create().map_err(text)
            }
            created => created.map_err(text),
        }
    }

    fn attributes(&self, entry: &mut tar::Entry<'_, impl Read>) -> Result<Attributes, String> {
        let text = |error: io::Error| error.to_string();
        let header = entry.header();
        let fields = header.as_old();
        let mode = number(&fields.mode, header.mode().map(u64::from)).map_err(text)? & 0o7777;
        let modified = number(&fields.mtime, header.mtime()).map_err(text)?;
        let uid = number(&fields.uid, header.uid()).map_err(text)?;
        let gid = number(&fields.gid, header.gid()).map_err(text)?;
        // The largest number means "unchanged" to the kernel.
        let id = |id: u64| u32::try_from(id).ok().filter(|id| *id != u32::MAX);
        let owner = match (id(uid), id(gid)) {
            (Some(uid), Some(gid)) => (Uid::from_raw(uid), Gid::from_raw(gid)),
            _ => return Err(format!("has the owner {uid}:{gid}")),
        };
        let mut extended = Vec::new();
        for extension in entry.pax_extensions().map_err(text)?.into_iter().flatten() {
            let extension = extension.map_err(text)?;
            let name = extension.key_bytes().strip_prefix(b"SCHILY.xattr.");
            let is_kept = |name: &&[u8]| {
                *name == b"security.capability" && self.sets_owners || name.starts_with(b"user.")
            };
            if let Some(name) = name.filter(is_kept) {
                let name = OsStr::from_bytes(name).to_owned();
                extended.push((name, extension.value_bytes().to_vec()));
            }
        }
        Ok(Attributes {
            mode: mode as u32,
            owner: self.sets_owners.then_some(owner),
            modified,
            extended,
        })
    }

    /// Sets attributes of a file, or of a directory without its mode and time.
    fn set(&self, file: impl AsFd, attributes: &Attributes, is_file: bool) -> Result<(), String> {
        let text = |error: Errno| error.to_string();
        if let Some((uid, gid)) = attributes.owner {
            fs::fchown(&file, Some(uid), Some(gid)).map_err(text)?;
        }
        if is_file {
            // After the owner, whose change clears set-id bits.
            fs::fchmod(&file, Mode::from_raw_mode(attributes.mode)).map_err(text)?;
        }
        for (name, value) in &attributes.extended {
            match fs::fsetxattr(&file, name.as_os_str(), value, XattrFlags::empty()) {
                // Not every file system has them.
                Ok(()) | Err(Errno::OPNOTSUPP) => {}
                Err(error) => {
                    let name = name.display();
                    return Err(format!("extended attribute `{name}`: {error}"));
                }
            }
        }
        match is_file {
            true => fs::futimens(&file, &times(attributes.modified)).map_err(text),
            false => Ok(()),
        }
    }

    /// The directory of this path; `None` if there is none.
    fn open_directory(&mut self, path: &Path) -> Result<Option<Rc<OwnedFd>>, String> {
        if let Some((_, parent)) = self.parent.as_ref().filter(|(of, _)| of == path) {
            return Ok(Some(parent.clone()));
        }
        match self.resolve(path) {
            Ok(directory) => {
                let directory = Rc::new(directory);
                self.parent = Some((path.to_owned(), directory.clone()));
                Ok(Some(directory))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::NOTDIR) => Err("is below a file".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn resolve(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let path = match path.as_os_str().is_empty() {
            true => Path::new("."),
            false => path,
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        fs::openat2(&self.root, path, flags, Mode::empty(), within)
    }

    /// The directory of this path, made with all directories above it if necessary.
    fn make_directories(&mut self, path: &Path) -> Result<Rc<OwnedFd>, String> {
        if let Some(found) = self.open_directory(path)? {
            return Ok(found);
        }
        let (Some(above), Some(base)) = (path.parent(), path.file_name()) else {
            return Err("has no parent".to_owned());
        };
        // Terminates: paths have a bounded number of components.
        let above = self.make_directories(above)?;
        self.count_entry()?;
        let made = self.make_directory(above.as_fd(), base)?;
        let made = Rc::new(made.ok_or("is below a link that leads nowhere")?);
        self.parent = Some((path.to_owned(), made.clone()));
        Ok(made)
    }

    /// Makes a directory, or opens the one that is there. `None` if something else is there.
    fn make_directory(
        &mut self,
        parent: impl AsFd,
        base: &OsStr,
    ) -> Result<Option<OwnedFd>, String> {
        let text = |error: Errno| error.to_string();
        let is_new = match fs::mkdirat(&parent, base, Mode::from_raw_mode(0o755)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(text(error)),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = match fs::openat(&parent, base, flags, Mode::empty()) {
            Ok(directory) => directory,
            Err(Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            Err(error) => return Err(text(error)),
        };
        if is_new {
            self.made.bytes += BLOCK;
            let above = fs::fstat(&parent).map_err(text)?.st_ino;
            let depth = self.depths.get(&above).map_or(1, |depth| depth + 1);
            if depth > DEPTH_MAX {
                return Err(format!("is below more than {DEPTH_MAX} directories"));
            }
            let inode = fs::fstat(&directory).map_err(text)?.st_ino;
            self.depths.insert(inode, depth);
            self.added.insert(inode);
            if self.sets_owners {
                let (uid, gid) = (Some(Uid::ROOT), Some(Gid::ROOT));
                fs::chownat(&parent, base, uid, gid, NOFOLLOW).map_err(text)?;
            }
        }
        Ok(Some(directory))
    }

    /// Sets modes and times of directories.
    pub fn finish(mut self) -> Result<Unpacked, String> {
        let text = |error: Errno| error.to_string();
        let depths = std::mem::take(&mut self.depths);
        let mut directories: Vec<_> = std::mem::take(&mut self.directories).into_iter().collect();
        // The deepest first: a mode may close the way.
        directories.sort_by_key(|(inode, _)| std::cmp::Reverse(depths.get(inode).copied()));
        for (inode, entry) in directories {
            let Ok(found) = self.resolve(&entry.path) else {
                continue; // Below a link that a later layer has changed.
            };
            if fs::fstat(&found).map_err(text)?.st_ino != inode {
                continue;
            }
            let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
            let directory = fs::openat(&found, ".", flags, Mode::empty()).map_err(text)?;
            fs::fchmod(&directory, Mode::from_raw_mode(entry.mode)).map_err(text)?;
            fs::futimens(&directory, &times(entry.modified)).map_err(text)?;
        }
        Ok(self.made)
    }
}

/// The path of an entry below the root, without `.` and leading slashes.
fn inside(name: &Path) -> Result<PathBuf, String> {
    if name.as_os_str().len() > NAME_MAX {
        return Err(format!("has a name of more than {NAME_MAX} bytes"));
    }
    let mut inside = PathBuf::new();
    for component in name.components() {
        match component {
            Component::Normal(part) => inside.push(part),
            Component::CurDir | Component::RootDir => {}
            _ => return Err("has a name with `..`".to_owned()),
        }
    }
    match inside.components().count() > usize::from(DEPTH_MAX) {
        true => Err(format!("is below more than {DEPTH_MAX} directories")),
        false => Ok(inside),
    }
}

/// A number of a header. An empty field means zero.
fn number(field: &[u8], read: io::Result<u64>) -> io::Result<u64> {
    let is_empty = field.iter().all(|byte| matches!(byte, 0 | b' '));
    if is_empty { Ok(0) } else { read }
}

fn is_directory(found: &fs::Stat) -> bool {
    fs::FileType::from_raw_mode(found.st_mode) == fs::FileType::Directory
}

fn times(modified: u64) -> Timestamps {
    let time = Timespec {
        tv_sec: i64::try_from(modified).unwrap_or(i64::MAX),
        tv_nsec: 0,
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}

#[cfg(test)]
mod tests;
