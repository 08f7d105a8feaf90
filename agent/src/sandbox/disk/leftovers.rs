//! Leftovers: finds and removes the sandboxes of ended executors and directories set aside in
//! `meta`.
//!
//! Blocking. Removal times are decided in [`crate::sandbox::disk::removal_schedule`].

use std::collections::BTreeSet;
use std::fs::{self, DirEntry, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::RwLock;
use std::time::{Duration, UNIX_EPOCH};

use module_api::isolator::disk_image;
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use protocol::ContainerId;
use runtime::Timestamp;

use crate::host::removal::remove_tree;
use crate::sandbox::LATEST;

/// Directories from `slaves` to a sandbox: agent, `frameworks`, framework, `executors`, executor,
/// `runs`.
const LEVELS: usize = 6;

/// An unused directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Its path.
    pub path: PathBuf,
    /// Time since its last change.
    pub age: Duration,
}

/// The directory of all sandboxes.
fn slaves(work_dir: &Path) -> PathBuf {
    work_dir.join("slaves")
}

/// All sandboxes except those of `live` containers, of any agent id, and the directories set aside
/// in `meta`. Removes empty parents of sandboxes at once.
pub fn find(work_dir: &Path, live: &BTreeSet<ContainerId>, now: Timestamp) -> Vec<Leftover> {
    let mut found = Vec::new();
    let mut leftover = |entry: &DirEntry| {
        let path = entry.path();
        let age = age(entry, now).unwrap_or_else(|| {
            // The clock was ahead. Without this the age would begin anew in each process.
            if let Err(error) = touch(&path, now) {
                tracing::warn!(path = %path.display(), %error, "cannot set a modification time");
            }
            Duration::ZERO
        });
        found.push(Leftover { path, age });
    };
    for runs in runs_directories(work_dir) {
        let sandboxes = directories(&runs);
        for sandbox in &sandboxes {
            let name = sandbox.file_name();
            let is_live = name.to_str().and_then(|name| ContainerId::new(name).ok());
            if !is_live.is_some_and(|id| live.contains(&id)) {
                leftover(sandbox);
            }
        }
        if sandboxes.is_empty() {
            let _ = fs::remove_file(runs.join(LATEST));
            remove_empty(&runs);
        }
    }
    for entry in directories(&work_dir.join("meta")) {
        if entry.file_name().to_string_lossy().contains(".aside.") {
            leftover(&entry);
        }
    }
    found
}

/// The `runs` directories of all executors.
fn runs_directories(work_dir: &Path) -> impl Iterator<Item = PathBuf> {
    let below = |path: PathBuf, name: &'static str| {
        let entries = directories(&path).into_iter();
        entries.map(move |entry| entry.path().join(name))
    };
    let frameworks = below(slaves(work_dir), "frameworks");
    let executors = frameworks.flat_map(move |path| below(path, "executors"));
    executors.flat_map(move |path| below(path, "runs"))
}

/// The subdirectories, without links. Empty if unreadable.
fn directories(path: &Path) -> Vec<DirEntry> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if is_absent(&error) => return Vec::new(),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "skipping unreadable directory");
            return Vec::new();
        }
    };
    let is_directory = |entry: &DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.flatten().filter(is_directory).collect()
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// `None` for a time in the future.
fn age(entry: &DirEntry, now: Timestamp) -> Option<Duration> {
    let changed = entry.metadata().and_then(|metadata| metadata.modified());
    let since_epoch = changed
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let nanos = since_epoch.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    let changed = Timestamp::from_nanos(nanos.unwrap_or_default());
    (changed <= now).then(|| now.saturating_since(changed))
}

/// Removes these directories and empty parents of sandboxes; returns the result of each. Creators
/// of sandboxes hold `layout` for reading, so that their parents are not removed.
pub fn remove(work_dir: &Path, paths: &[PathBuf], layout: &RwLock<()>) -> Vec<Result<(), String>> {
    let remove = |path: &PathBuf| match remove_image(path).and_then(|()| remove_tree(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.to_string()),
        _ => {
            remove_parents(work_dir, path, layout);
            Ok(())
        }
    };
    paths.iter().map(remove).collect()
}

/// Unmounts the file system of a sandbox that has one of its own, and removes its image.
fn remove_image(sandbox: &Path) -> io::Result<()> {
    let image = disk_image(sandbox);
    if !image.exists() {
        return Ok(());
    }
    let flags = MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW;
    match umount2(sandbox, flags) {
        // It is not mounted, or gone.
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => fs::remove_file(image),
        Err(error) => Err(error.into()),
    }
}

/// Restarts the age of this sandbox.
pub fn touch(sandbox: &Path, now: Timestamp) -> io::Result<()> {
    let now = UNIX_EPOCH + Duration::from_nanos(now.as_nanos());
    File::open(sandbox)?.set_modified(now)
}

fn remove_parents(work_dir: &Path, sandbox: &Path, layout: &RwLock<()>) {
    let (Some(runs), true) = (sandbox.parent(), sandbox.starts_with(slaves(work_dir))) else {
        return;
    };
    let _layout = layout.write();
    let latest = runs.join(LATEST);
    let target = fs::read_link(&latest).ok();
    if target.as_deref().map(Path::as_os_str) == sandbox.file_name() {
        let _ = fs::remove_file(latest);
    }
    remove_empty(runs);
}

/// Removes empty parents of sandboxes, from `runs` upwards.
fn remove_empty(runs: &Path) {
    let mut parents = runs.ancestors().take(LEVELS);
    while parents
        .next()
        .is_some_and(|path| fs::remove_dir(path).is_ok())
    {}
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;

    use protocol::{AgentId, ExecutorId, FrameworkId};

    use super::*;
    use crate::sandbox;
    use nix::fcntl::{OFlag, openat};
    use nix::mount::{MsFlags, mount};
    use nix::sys::stat::Mode;

    const LONG: Duration = Duration::from_secs(90);

    struct Fixture {
        root: tempfile::TempDir,
        layout: RwLock<()>,
    }

    impl Fixture {
        fn new() -> Self {
            Self {
                root: tempfile::tempdir().unwrap(),
                layout: RwLock::default(),
            }
        }

        fn work_dir(&self) -> &Path {
            self.root.path()
        }

        fn sandbox(&self, agent: &str, executor: &str, container: &str) -> PathBuf {
            let runs = sandbox::runs(
                self.work_dir(),
                &AgentId::new(agent).unwrap(),
                &FrameworkId::new("f").unwrap(),
                &ExecutorId::new(executor).unwrap(),
            );
            sandbox::create(&runs, &id(container), None).unwrap()
        }

        fn remove(&self, path: &Path) -> Result<(), String> {
            remove(self.work_dir(), &[path.to_owned()], &self.layout).remove(0)
        }

        fn found(&self, live: &[&str]) -> Vec<String> {
            let live = live.iter().map(|name| id(name)).collect();
            let found = find(self.work_dir(), &live, Timestamp::default()).into_iter();
            let name = |found: Leftover| found.path.file_name().unwrap().to_owned();
            let mut names: Vec<String> = found
                .map(|leftover| name(leftover).into_string().unwrap())
                .collect();
            names.sort();
            names
        }
    }

    fn id(name: &str) -> ContainerId {
        ContainerId::new(name).unwrap()
    }

    #[test]
    fn sandboxes_of_live_containers_are_no_leftovers() {
        let fixture = Fixture::new();
        for (agent, executor, container) in [
            ("now", "e", "ended"),
            ("now", "e", "live"),
            ("before", "x", "old"),
        ] {
            fixture.sandbox(agent, executor, container);
        }
        fs::create_dir_all(fixture.work_dir().join("meta/executors.aside.1")).unwrap();
        fs::create_dir_all(fixture.work_dir().join("meta/executors")).unwrap();
        fs::create_dir_all(fixture.work_dir().join("volumes/roles/r/v")).unwrap();
        assert_eq!(
            fixture.found(&["live"]),
            ["ended", "executors.aside.1", "old"]
        );
    }

    #[test]
    fn the_age_counts_from_the_last_change() {
        let fixture = Fixture::new();
        let path = fixture.sandbox("s", "e", "c");
        let changed = fs::metadata(path).unwrap().modified().unwrap();
        let changed = changed.duration_since(UNIX_EPOCH).unwrap();
        let now = Timestamp::default() + changed + Duration::from_secs(90);
        let found = find(fixture.work_dir(), &BTreeSet::new(), now);
        assert_eq!(found[0].age, Duration::from_secs(90));
    }

    #[test]
    fn a_removed_sandbox_takes_its_empty_parents_along() {
        let fixture = Fixture::new();
        let (first, second) = (
            fixture.sandbox("s", "e", "c1"),
            fixture.sandbox("s", "e", "c2"),
        );
        assert_eq!(fixture.remove(&first), Ok(()));
        let latest = second.parent().unwrap().join(LATEST);
        assert_eq!(fs::read_link(&latest).unwrap(), Path::new("c2"));
        assert_eq!(fixture.remove(&second), Ok(()));
        assert_eq!(fixture.remove(&second), Ok(()), "it is gone already");
        let left = fs::read_dir(slaves(fixture.work_dir())).unwrap();
        assert_eq!(left.count(), 0);
        assert!(fixture.sandbox("s", "e", "c3").is_dir(), "created again");
    }

    #[test]
    fn empty_parents_are_removed_at_the_start() {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox("s", "e", "c");
        fs::remove_dir_all(&sandbox).unwrap();
        assert_eq!(fixture.found(&[]), Vec::<String>::new());
        let left = fs::read_dir(slaves(fixture.work_dir())).unwrap();
        assert_eq!(left.count(), 0);
    }

    #[test]
    fn links_out_of_a_sandbox_are_not_followed() {
        let fixture = Fixture::new();
        let volume = fixture.work_dir().join("volumes/roles/r/v");
        fs::create_dir_all(&volume).unwrap();
        fs::write(volume.join("data"), "precious").unwrap();
        let sandbox = fixture.sandbox("s", "e", "c");
        symlink(&volume, sandbox.join("data")).unwrap();
        symlink(fixture.work_dir(), sandbox.join("stdout.1")).unwrap();
        symlink(&volume, sandbox.parent().unwrap().join("linked")).unwrap();
        assert_eq!(fixture.found(&[]), ["c"]);
        assert_eq!(fixture.remove(&sandbox), Ok(()));
        assert!(!sandbox.exists());
        assert_eq!(fs::read(volume.join("data")).unwrap(), b"precious");
    }

    #[test]
    fn file_system_of_a_sandbox_is_unmounted_and_its_image_removed() {
        let fixture = Fixture::new();
        let (own, plain) = (
            fixture.sandbox("s", "e", "c1"),
            fixture.sandbox("s", "e", "c2"),
        );
        for sandbox in [&own, &plain] {
            let kind = Some("tmpfs");
            if mount(kind, sandbox, kind, MsFlags::empty(), None::<&str>).is_err() {
                println!("skipped: mounts need root");
                return;
            }
        }
        fs::write(disk_image(&own), "").unwrap();
        fs::write(own.join("file"), "").unwrap();
        assert_eq!(fixture.found(&["c2"]), ["c1"]);
        assert_eq!(fixture.remove(&own), Ok(()));
        assert!(!own.exists() && !disk_image(&own).exists());
        // No other mount is touched.
        assert!(fixture.remove(&plain).unwrap_err().contains("is mounted"));
        umount2(&plain, MntFlags::MNT_DETACH).unwrap();
        assert_eq!(fixture.remove(&plain), Ok(()));
        assert!(!slaves(fixture.work_dir()).join("s").exists());
    }

    #[test]
    fn a_deep_tree_is_removed() {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox("s", "e", "c");
        let mut directory = File::open(&sandbox).unwrap();
        for _ in 0..5_000 {
            nix::sys::stat::mkdirat(directory.as_fd(), "d", Mode::S_IRWXU).unwrap();
            let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            let below = openat(directory.as_fd(), "d", flags, Mode::empty()).unwrap();
            directory = File::from(below);
        }
        drop(directory);
        fs::write(sandbox.join(".removed-1"), "in the way").unwrap();
        assert_eq!(fixture.remove(&sandbox), Ok(()));
        assert!(!sandbox.exists());
    }

    #[test]
    fn age_of_a_touched_sandbox_restarts() {
        let fixture = Fixture::new();
        let path = fixture.sandbox("s", "e", "c");
        let now = Timestamp::from_nanos(1_000_000_000_000);
        touch(&path, now).unwrap();
        let found = find(fixture.work_dir(), &BTreeSet::new(), now + LONG);
        assert_eq!(found[0].age, LONG);
        assert!(touch(&path.join("absent"), now).is_err());
        // The clock was ahead by a year, and is right again.
        touch(&path, now + LONG * 365 * 960).unwrap();
        for later in [Duration::ZERO, LONG] {
            let found = find(fixture.work_dir(), &BTreeSet::new(), now + later);
            assert_eq!(found[0].age, later);
        }
    }

    #[test]
    fn a_failed_removal_names_the_problem() {
        let fixture = Fixture::new();
        let file = fixture.work_dir().join("slaves");
        fs::write(&file, "").unwrap();
        assert!(fixture.remove(&file).is_err());
    }
}
