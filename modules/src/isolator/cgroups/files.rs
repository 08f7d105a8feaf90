//! Control files and group directories. Every function blocks.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::{ContainerId, ResourceStatistics};
use runtime::Timestamp;
use rustc_hash::FxHashMap;
use rustix::fs::{XattrFlags, getxattr, setxattr};

use super::controllers::{Setting, value_of};
use crate::usage_history::UNCHANGED_MAX;

/// A failed operation on a control file or a group.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {}: {source}", path.display())]
pub struct FileError {
    /// The operation, for example `create`.
    pub doing: String,
    /// The file.
    pub path: PathBuf,
    /// The system's error.
    pub source: io::Error,
}

impl FileError {
    pub(super) fn new(doing: impl fmt::Display, path: &Path, source: io::Error) -> Self {
        Self {
            doing: doing.to_string(),
            path: path.to_owned(),
            source,
        }
    }

    /// Whether processes or child groups are still there, which may pass.
    pub fn is_busy(&self) -> bool {
        let error = self.source.raw_os_error().map(Errno::from_raw);
        matches!(error, Some(Errno::EBUSY | Errno::ENOTEMPTY))
    }
}

/// Creates a group; one that exists is fine.
pub fn create(dir: &Path) -> Result<(), FileError> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(FileError::new("create", dir, error))
        }
        _ => Ok(()),
    }
}

/// Writes a control file of the group. An optional one that does not exist is fine.
pub fn write(dir: &Path, setting: &Setting) -> Result<(), FileError> {
    let path = dir.join(setting.file);
    if setting.is_optional && !path.exists() {
        return Ok(());
    }
    fs::write(&path, &setting.value).map_err(|error| {
        // The kernel forbids new files here, which would be a misleading error.
        let error = match path.exists() {
            true => error,
            false => Errno::ENOENT.into(),
        };
        FileError::new(format_args!("write `{}` to", setting.value), &path, error)
    })
}

/// The text of a control file; empty if there is none.
pub fn read(dir: &Path, file: &str) -> String {
    // Control files have no size by which to choose a buffer, and most fit into this one.
    let mut text = String::with_capacity(4096);
    let read = File::open(dir.join(file)).and_then(|mut file| file.read_to_string(&mut text));
    match read {
        Ok(_) => text,
        Err(_) => String::new(),
    }
}

/// How long the statistics of a container are kept that uses no CPU time.
const IDLE_AGE: Duration = UNCHANGED_MAX.saturating_sub(Duration::from_secs(1));

/// The kept files of one container, and its last statistics.
#[derive(Debug, Default)]
struct ContainerFiles {
    files: Vec<(&'static str, File)>,
    /// Whether it has used CPU time between its last two measurements.
    runs: bool,
    /// The control file of the CPU time, and all statistics that were read with it.
    last: Option<(String, ResourceStatistics)>,
}

/// Control files that measurements read. Those that the next one will read stay open in between,
/// since opening one takes more than twice as long as reading it: the CPU time of each container,
/// and all files of those that use CPU time. The kernel needs a page for each.
#[derive(Debug)]
pub struct OpenFiles {
    containers: FxHashMap<ContainerId, ContainerFiles>,
    /// How many may still be opened and kept.
    left: u64,
    buffer: Vec<u8>,
}

impl OpenFiles {
    /// Keeps at most a quarter of the descriptors that this process may have.
    pub fn new() -> Self {
        let limit = getrlimit(Resource::RLIMIT_NOFILE);
        Self {
            containers: FxHashMap::default(),
            left: limit.map_or(0, |(soft, _)| soft / 4),
            buffer: vec![0; 16 << 10],
        }
    }

    /// The text of a control file; empty if there is none. The name, relative to the container's
    /// group in any tree, must be unique for the container. The first one is that of its CPU time.
    pub fn read(&mut self, container: &ContainerId, dir: &Path, name: &'static str) -> String {
        let own = self.containers.get(container);
        let mut known = own.into_iter().flat_map(|own| &own.files);
        if let Some((_, file)) = known.find(|(own, _)| *own == name) {
            return read_again(file, &mut self.buffer).unwrap_or_default();
        }
        let Ok(file) = File::open(dir.join(name)) else {
            return String::new();
        };
        let text = read_again(&file, &mut self.buffer).unwrap_or_default();
        let own = self.containers.entry(container.clone()).or_default();
        if self.left > 0 && (own.files.is_empty() || own.runs) {
            self.left -= 1;
            own.files.push((name, file));
        }
        text
    }

    /// The last statistics of a container, if it has used no CPU time since: its control file has
    /// this text again. After eight seconds they are out of date: the processes may wait for a
    /// disk, and the kernel may have reclaimed memory.
    pub fn unchanged(
        &mut self,
        container: &ContainerId,
        cpu_time: &str,
        now: Timestamp,
    ) -> Option<ResourceStatistics> {
        let own = self.containers.get_mut(container)?;
        let (text, last) = own.last.as_ref()?;
        own.runs = text != cpu_time;
        if !own.runs {
            let others = own.files.drain(1.min(own.files.len())..);
            self.left += others.len() as u64;
        }
        let is_new = now.saturating_since(last.timestamp) < IDLE_AGE;
        (!own.runs && is_new).then(|| ResourceStatistics {
            timestamp: now,
            ..last.clone()
        })
    }

    /// Keeps statistics beside the text of the CPU time that was read before them. Without CPU time
    /// they are not kept: it may not be counted.
    pub fn keep(&mut self, container: &ContainerId, cpu_time: String, found: &ResourceStatistics) {
        let has_run = cpu_time.bytes().any(|byte| (b'1'..=b'9').contains(&byte));
        if has_run {
            let own = self.containers.entry(container.clone()).or_default();
            own.last = Some((cpu_time, found.clone()));
        }
    }

    /// Closes the files of all containers but these.
    pub fn retain(&mut self, is_kept: impl Fn(&ContainerId) -> bool) {
        self.containers.retain(|container, own| {
            let keeps = is_kept(container);
            if !keeps {
                self.left += own.files.len() as u64;
            }
            keeps
        });
    }
}

/// Reads a file from its start.
fn read_again(file: &File, buffer: &mut [u8]) -> io::Result<String> {
    let mut bytes = Vec::with_capacity(2048);
    // Terminates with the file: the kernel bounds a control file.
    loop {
        match file.read_at(buffer, bytes.len() as u64)? {
            0 => return String::from_utf8(bytes).map_err(io::Error::other),
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    }
}

/// The directories in this one; none if it does not exist.
pub fn children(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let is_dir = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let entries = entries.flatten().filter(is_dir);
    entries.map(|entry| entry.path()).collect()
}

/// Copies the CPUs and memory nodes of the parent, without which no process can join a v1 group.
pub fn inherit_cpuset(dir: &Path) -> Result<(), FileError> {
    let Some(parent) = dir.parent() else {
        return Ok(());
    };
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if read(dir, file).trim().is_empty() {
            let value = read(parent, file).trim().to_owned();
            write(dir, &Setting::new(file, value))?;
        }
    }
    Ok(())
}

/// Enables these controllers in the children of a v2 group.
pub fn enable(dir: &Path, controllers: &[&str]) -> Result<(), FileError> {
    const FILE: &str = "cgroup.subtree_control";
    let enabled = read(dir, FILE);
    let is_missing = |name: &&&str| !enabled.split_whitespace().any(|own| own == **name);
    let missing = controllers.iter().filter(is_missing);
    let value: Vec<String> = missing.map(|name| format!("+{name}")).collect();
    if value.is_empty() {
        return Ok(());
    }
    let value = value.join(" ");
    let written = write(dir, &Setting::new(FILE, value));
    written.map_err(|error| match error.is_busy() {
        true => FileError {
            source: io::Error::other(
                "processes are in this group: move them, the agent perhaps, into a child group",
            ),
            ..error
        },
        false => error,
    })
}

/// Whether processes are in a group or its child groups.
pub fn is_populated(dir: &Path) -> bool {
    match value_of(&read(dir, "cgroup.events"), "populated") {
        Some(populated) => populated > 0,
        None => {
            !read(dir, "cgroup.procs").trim().is_empty()
                || children(dir).iter().any(|child| is_populated(child))
        }
    }
}

/// Extended attributes that mark the root of an agent. Like the group, they are gone after a
/// reboot. The second is for an agent without CAP_SYS_ADMIN, on Linux 5.7 or later.
const MARKS: [&str; 2] = ["trusted.meros", "user.meros"];

/// Marks a group as the root of an agent.
pub fn mark(dir: &Path) -> io::Result<()> {
    let set = |name| setxattr(dir, name, b"root", XattrFlags::empty());
    let [trusted, user] = MARKS;
    Ok(set(trusted).or_else(|_| set(user))?)
}

/// Whether a group has been marked as the root of an agent.
pub fn is_marked(dir: &Path) -> bool {
    let mut value = [0; 16];
    let mut marks = MARKS.iter();
    marks.any(|name| getxattr(dir, *name, &mut value).is_ok())
}

/// Kills all processes of a group and of its child groups. Those that start meanwhile may survive
/// where there is no `cgroup.kill`, so the caller repeats it.
pub fn kill_all(dir: &Path) {
    let at_once = Setting::new("cgroup.kill", 1);
    if dir.join(at_once.file).exists() && write(dir, &at_once).is_ok() {
        return;
    }
    let own = nix::unistd::getpid();
    for line in read(dir, "cgroup.procs").lines() {
        // A process of another pid namespace is listed as 0, which would be this process' group.
        let pid = line.parse().map(Pid::from_raw);
        if let Ok(pid) = pid.map_err(drop).and_then(|pid| match pid {
            pid if pid.as_raw() > 1 && pid != own => Ok(pid),
            _ => Err(()),
        }) {
            // It may have ended.
            _ = kill(pid, Signal::SIGKILL);
        }
    }
    for child in children(dir) {
        kill_all(&child);
    }
}

/// Removes a group and its child groups; one that is gone is fine.
pub fn remove(dir: &Path) -> Result<(), FileError> {
    for child in children(dir) {
        remove(&child)?;
    }
    match fs::remove_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(FileError::new("remove", dir, error))
        }
        _ => Ok(()),
    }
}
