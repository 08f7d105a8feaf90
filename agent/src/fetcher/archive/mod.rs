//! Extraction of archives into a directory that nothing else writes to.
//!
//! Entries stay inside the directory: absolute names, `..` and links that lead out are refused. So
//! are entries below a link, devices, pipes and set-id bits. Bytes and entries are bounded, since a
//! small archive may contain a huge file.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use nix::libc;
use serde::{Deserialize, Serialize};
use tar::EntryType;

use super::plan::ArchiveKind;

/// Most bytes of a link's target in a zip archive.
const TARGET_MAX: u64 = 4096;

/// Bounds on the extracted files of one container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtractionBounds {
    /// Most bytes of all files.
    pub bytes: u64,
    /// Most entries.
    pub entries: u64,
}

impl Default for ExtractionBounds {
    fn default() -> Self {
        Self {
            bytes: 64 << 30,
            entries: 1_000_000,
        }
    }
}

/// Extracts archives into one directory, within common bounds.
#[derive(Debug)]
pub struct Extractor {
    root: PathBuf,
    left: ExtractionBounds,
    bounds: ExtractionBounds,
}

/// An entry's content.
enum Content<'a> {
    Directory,
    File(&'a mut dyn Read),
    Symlink(PathBuf),
    HardLink(PathBuf),
}

impl Extractor {
    /// Extracts into `root`.
    pub fn new(root: &Path, bounds: ExtractionBounds) -> Self {
        Self {
            root: root.to_owned(),
            left: bounds,
            bounds,
        }
    }

    /// Extracts all entries of an archive. An error names the entry.
    pub fn extract(&mut self, archive: &Path, kind: ArchiveKind) -> Result<(), String> {
        let file = File::open(archive).map_err(|error| error.to_string())?;
        let file = BufReader::new(file);
        match kind {
            ArchiveKind::Tar => self.untar(file),
            ArchiveKind::TarGz => self.untar(flate2::bufread::MultiGzDecoder::new(file)),
            ArchiveKind::TarBz2 => self.untar(bzip2::bufread::MultiBzDecoder::new(file)),
            ArchiveKind::TarXz => self.untar(lzma_rust2::XzReader::new(file, true)),
            ArchiveKind::Zip => self.unzip(file),
        }
    }

    /// Decompresses a gzip file to a file of the directory.
    pub fn decompress(&mut self, archive: &Path, name: &str) -> Result<(), String> {
        let file = File::open(archive).map_err(|error| error.to_string())?;
        let mut content = flate2::bufread::MultiGzDecoder::new(BufReader::new(file));
        self.add(Path::new(name), 0o644, Content::File(&mut content))
    }

    fn untar(&mut self, reader: impl Read) -> Result<(), String> {
        let mut archive = tar::Archive::new(reader);
        let entries = archive.entries().map_err(|error| error.to_string())?;
        for entry in entries {
            let mut entry = entry.map_err(|error| error.to_string())?;
            let of_entry = |error: io::Error| format!("entry of the archive: {error}");
            let name = entry.path().map_err(of_entry)?.into_owned();
            let mode = entry.header().mode().map_err(of_entry)?;
            let target = entry.link_name().map_err(of_entry)?;
            let target = target.map(|target| target.into_owned()).unwrap_or_default();
            let kind = entry.header().entry_type();
            let content = match kind {
                EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                    Content::File(&mut entry)
                }
                EntryType::Directory => Content::Directory,
                EntryType::Symlink => Content::Symlink(target),
                EntryType::Link => Content::HardLink(target),
                EntryType::XGlobalHeader => continue,
                _ => {
                    let name = name.display();
                    return Err(format!(
                        "entry `{name}` is neither a file nor a directory nor a link"
                    ));
                }
            };
            self.add(&name, mode, content)?;
        }
        Ok(())
    }

    fn unzip(&mut self, reader: BufReader<File>) -> Result<(), String> {
        let mut archive = zip::ZipArchive::new(reader).map_err(|error| error.to_string())?;
        for index in 0..archive.len() {
            let mut entry = archive.by_index(index).map_err(|error| error.to_string())?;
            let name = entry.name().map_err(|error| error.to_string())?;
            let name = PathBuf::from(name.into_owned());
            let mode = entry.unix_mode();
            let kind = mode.map_or(0, |mode| mode & libc::S_IFMT);
            let content = match kind {
                _ if entry.is_dir() => Content::Directory,
                libc::S_IFLNK => {
                    let mut target = Vec::new();
                    let read = entry.by_ref().take(TARGET_MAX).read_to_end(&mut target);
                    read.map_err(|error| format!("entry `{}`: {error}", name.display()))?;
                    Content::Symlink(std::ffi::OsStr::from_bytes(&target).into())
                }
                0 | libc::S_IFREG => Content::File(&mut entry),
                _ => {
                    let name = name.display();
                    return Err(format!(
                        "entry `{name}` is neither a file nor a directory nor a link"
                    ));
                }
            };
            let is_directory = matches!(content, Content::Directory);
            let usual = if is_directory { 0o755 } else { 0o644 };
            self.add(&name, mode.unwrap_or(usual) & 0o7777, content)?;
        }
        Ok(())
    }

    fn add(&mut self, name: &Path, mode: u32, content: Content) -> Result<(), String> {
        let named = |problem: &str| format!("entry `{}` {problem}", name.display());
        let ExtractionBounds { bytes, entries } = self.bounds;
        self.left.entries = { self.left.entries.checked_sub(1) }
            .ok_or_else(|| named(&format!("is one more than {entries}")))?;
        if mode & 0o6000 != 0 {
            return Err(named("has a set-user-ID or set-group-ID bit"));
        }
        let inside = inside(name).ok_or_else(|| named("has a name outside the sandbox"))?;
        if inside.as_os_str().is_empty() {
            return Ok(()); // The directory itself.
        }
        if ["stdout", "stderr"]
            .iter()
            .any(|own| inside == Path::new(own))
        {
            return Err(named("has the name of the task's output"));
        }
        let failed = |error: io::Error| named(&format!("cannot be extracted: {error}"));
        if self.has_link(&inside).map_err(failed)? {
            return Err(named("is below a link"));
        }
        let path = self.root.join(&inside);
        let parent = path.parent().unwrap_or(&self.root);
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o755).create(parent);
        made.map_err(failed)?;
        match content {
            Content::Directory => {
                let is_directory = fs::symlink_metadata(&path).is_ok_and(|now| now.is_dir());
                if !is_directory {
                    remove(&path)
                        .and_then(|()| fs::create_dir(&path))
                        .map_err(failed)?;
                }
                // The owner must be able to write further entries.
                let mode = Permissions::from_mode(mode & 0o777 | 0o700);
                fs::set_permissions(&path, mode).map_err(failed)
            }
            Content::File(content) => {
                remove(&path).map_err(failed)?;
                let mut options = OpenOptions::new();
                let created = options.write(true).create_new(true).mode(0o600).open(&path);
                let mut file = created.map_err(failed)?;
                // One byte more shows that the bound is exceeded.
                let mut content = content.take(self.left.bytes.saturating_add(1));
                let written = io::copy(&mut content, &mut file).map_err(failed)?;
                self.left.bytes = { self.left.bytes.checked_sub(written) }.ok_or_else(|| {
                    named(&format!("exceeds the {bytes} bytes that may be extracted"))
                })?;
                let mode = Permissions::from_mode(mode & 0o777);
                file.set_permissions(mode).map_err(failed)
            }
            Content::Symlink(target) => {
                if !stays_inside(&inside, &target) {
                    return Err(named("is a link out of the sandbox"));
                }
                remove(&path)
                    .and_then(|()| symlink(&target, &path))
                    .map_err(failed)
            }
            Content::HardLink(target) => {
                let source = match crate::fetcher::archive::inside(&target) {
                    Some(source) if !self.has_link(&source).map_err(failed)? => source,
                    _ => return Err(named("is a link out of the sandbox")),
                };
                let source = self.root.join(source);
                let is_file = fs::symlink_metadata(&source).is_ok_and(|now| now.is_file());
                if !is_file {
                    return Err(named("is a link to no file"));
                }
                if source == path {
                    return Ok(());
                }
                remove(&path)
                    .and_then(|()| fs::hard_link(&source, &path))
                    .map_err(failed)
            }
        }
    }

    /// Whether a directory above this path is a link: its entries could be anywhere.
    fn has_link(&self, inside: &Path) -> io::Result<bool> {
        let above = inside.ancestors().skip(1);
        for parent in above.filter(|parent| !parent.as_os_str().is_empty()) {
            match fs::symlink_metadata(self.root.join(parent)) {
                Ok(found) if found.is_symlink() => return Ok(true),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

/// Removes a file or link that an entry replaces.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// The path of an entry below the root; `None` if it may be elsewhere.
fn inside(name: &Path) -> Option<PathBuf> {
    let mut inside = PathBuf::new();
    for component in name.components() {
        match component {
            Component::Normal(part) => inside.push(part),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(inside)
}

/// Whether a symbolic link at `inside` leads nowhere else, even through other links. So `..` is
/// allowed only at the target's start, where all directories are known to be no links.
fn stays_inside(inside: &Path, target: &Path) -> bool {
    let mut depth = inside.components().count() - 1;
    let mut components = target.components().peekable();
    while components.next_if_eq(&Component::ParentDir).is_some() {
        match depth.checked_sub(1) {
            Some(less) => depth = less,
            None => return false,
        }
    }
    let is_usual = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    components.all(is_usual) && !target.as_os_str().is_empty()
}

#[cfg(test)]
mod tests;
