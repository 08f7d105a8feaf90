//! Tests of the isolator with real loop devices, where root can have them.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use module_api::isolator::{ContainerConfig, disk_image};
use nix::mount::{MntFlags, umount2};
use resources::Resources;
use runtime::testing::simulate;

use super::*;

const MEBIBYTE: usize = 1 << 20;
const NOBODY: u32 = 65534;

/// Stands for the containerizer: nothing is sent to it.
struct Containerizer;

impl Actor for Containerizer {
    type Context = Context<Self>;
}

impl Process for Containerizer {}

/// A work directory with sandboxes.
struct WorkDir(tempfile::TempDir);

impl WorkDir {
    /// `None`, and a line with the reason, where there are no loop devices.
    fn new() -> Option<Self> {
        let work_dir = Self(tempfile::tempdir().unwrap());
        let trial = work_dir.make("trial");
        match mkfs().and_then(|mkfs| files::make(&mkfs, &trial, 1)) {
            Ok(_) => {
                work_dir.unmount("trial");
                fs::remove_file(disk_image(&trial)).unwrap();
                Some(work_dir)
            }
            Err(reason) => {
                let reason = format!("skipped: no file systems on loop devices: {reason}");
                _ = writeln!(std::io::stderr(), "{reason}");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn runs(&self) -> PathBuf {
        self.path().join("slaves/s/frameworks/f/executors/e/runs")
    }

    fn sandbox(&self, name: &str) -> PathBuf {
        self.runs().join(name)
    }

    fn unmount(&self, name: &str) {
        umount2(&self.sandbox(name), MntFlags::MNT_DETACH).unwrap();
    }

    /// A sandbox as the agent makes it.
    fn make(&self, name: &str) -> PathBuf {
        let sandbox = self.sandbox(name);
        fs::create_dir_all(sandbox.join("data")).unwrap();
        fs::write(sandbox.join("stdout"), "").unwrap();
        std::os::unix::fs::symlink("/volumes/v", sandbox.join("data/v")).unwrap();
        for (path, mode) in [("stdout", 0o640), ("data", 0o700), ("", 0o750)] {
            let path = sandbox.join(path);
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            std::os::unix::fs::chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        sandbox
    }

    fn config(&self, name: &str, requests: &str) -> ContainerConfig {
        ContainerConfig {
            container_id: id(name),
            sandbox: self.sandbox(name),
            user: None,
            shares_limits: false,
            is_command: true,
            resources: resources(requests),
            container: None,
            root: None,
        }
    }

    /// An isolator that has recovered these containers.
    async fn start(&self, node: &Node, running: &[&str]) -> IsolatorRef {
        let containerizer = node.spawn_unnamed("containerizer", Containerizer).unwrap();
        let path = self.path().display().to_string();
        let given = Parameters::none("isolators").with("work_dir", path);
        let isolator = crate::registry().isolators(node, &["disk/loop"], &given);
        let isolator = isolator.unwrap().remove(0);
        let running = running.iter();
        let recover = RecoverContainers {
            containers: running.map(|name| self.config(name, "disk:8")).collect(),
            containerizer: containerizer.pid().clone(),
        };
        isolator.recover(recover).await.unwrap();
        isolator
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        for entry in fs::read_dir(self.runs()).into_iter().flatten().flatten() {
            let _ = umount2(&entry.path(), MntFlags::MNT_DETACH); // Perhaps not mounted.
        }
    }
}

fn id(name: &str) -> ContainerId {
    ContainerId::new(name).unwrap()
}

fn resources(requests: &str) -> ContainerResources {
    ContainerResources {
        requests: Resources::parse(requests).unwrap(),
        ..ContainerResources::default()
    }
}

fn write(path: &Path, mebibytes: usize) -> std::io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(&vec![1; mebibytes * MEBIBYTE])?;
    file.sync_all()
}

/// Whether this process has CAP_SYS_RESOURCE, without which ext4 does not grow.
fn can_grow() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let bits = lines.find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(bits.trim(), 16).unwrap() & (1 << 24) != 0
}

fn owner_and_mode(path: &Path) -> (u32, u32) {
    let metadata = path.symlink_metadata().unwrap();
    (metadata.uid(), metadata.mode() & 0o7777)
}

// Covers 5.5 in part: a hard limit of disk.
#[test]
fn sandbox_takes_no_more_than_its_file_system() {
    let Some(work_dir) = WorkDir::new() else {
        return;
    };
    simulate(|node| async move {
        let isolator = work_dir.start(&node, &[]).await;
        let (sandbox, other) = (work_dir.make("a"), work_dir.make("b"));
        for (name, requests) in [("a", "cpus:1;disk:8"), ("b", "cpus:1")] {
            let prepared = isolator.prepare(work_dir.config(name, requests)).await;
            assert_eq!(prepared, Ok(LaunchPlan::default()));
        }
        let device = |path: &Path| path.metadata().unwrap().dev();
        assert_ne!(device(&sandbox), device(&work_dir.runs()));
        assert_eq!(device(&other), device(&work_dir.runs()), "it has no `disk`");
        assert_eq!(owner_and_mode(&sandbox), (NOBODY, 0o750));
        assert_eq!(owner_and_mode(&sandbox.join("stdout")), (NOBODY, 0o640));
        assert_eq!(owner_and_mode(&sandbox.join("data")), (NOBODY, 0o700));
        let link = fs::read_link(sandbox.join("data/v")).unwrap();
        assert_eq!(link, Path::new("/volumes/v"));
        assert_eq!(fs::read_dir(&sandbox).unwrap().count(), 2);

        write(&sandbox.join("small"), 4).unwrap();
        let error = write(&sandbox.join("big"), 8).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        write(&other.join("big"), 16).unwrap();
        let measured = isolator.measure(vec![id("a"), id("b")]).await.unwrap();
        assert_eq!(measured.len(), 1);
        let megabytes = |bytes: Option<u64>| bytes.unwrap() as usize / MEBIBYTE;
        assert_eq!(megabytes(measured[&id("a")].disk_limit_bytes), 8);
        assert!((6..=8).contains(&megabytes(measured[&id("a")].disk_used_bytes)));

        // The limit follows the tasks, upwards.
        for requests in ["disk:64", "disk:16"] {
            let update = UpdateContainer {
                container_id: id("a"),
                resources: resources(requests),
            };
            let updated = isolator.update(update).await;
            if can_grow() {
                updated.unwrap();
            } else if let Err(error) = updated {
                let error = error.to_string();
                assert!(error.contains("not permitted"), "{error}");
            }
        }
        if can_grow() {
            write(&sandbox.join("big"), 40).unwrap();
            write(&sandbox.join("more"), 40).unwrap_err();
        } else {
            _ = writeln!(std::io::stderr(), "skipped: growth needs CAP_SYS_RESOURCE");
        }

        assert_eq!(isolator.clean_up(id("a")).await, Ok(None));
        let kept = fs::metadata(sandbox.join("small")).unwrap().len();
        assert_eq!(kept as usize, 4 * MEBIBYTE, "it can be read");
    });
}

#[test]
fn kept_sandboxes_are_mounted_again_and_orphans_removed() {
    let Some(work_dir) = WorkDir::new() else {
        return;
    };
    let work_dir = Arc::new(work_dir);
    let again = Arc::clone(&work_dir);
    simulate(|node| async move {
        let isolator = work_dir.start(&node, &[]).await;
        for name in ["live", "kept"] {
            let sandbox = work_dir.make(name);
            let config = work_dir.config(name, "disk:8");
            isolator.prepare(config).await.unwrap();
            fs::write(sandbox.join("stdout"), name).unwrap();
            // A task may make what a new file system has.
            fs::create_dir(sandbox.join("lost+found")).unwrap();
        }
    });
    let work_dir = again;
    // As after a reboot.
    work_dir.unmount("kept");
    // A growth failed after its first step.
    let image = disk_image(&work_dir.sandbox("live"));
    let longer = fs::File::options().write(true).open(image).unwrap();
    longer.set_len(16 << 20).unwrap();
    let orphan = disk_image(&work_dir.sandbox("gone"));
    let unfinished = work_dir.runs().join(".kept.unfinished");
    for path in [&orphan, &unfinished] {
        fs::write(path, "").unwrap();
    }
    // A container keeps the mount that its operator removed.
    let held = fs::File::open(work_dir.sandbox("live").join("stdout")).unwrap();
    work_dir.unmount("live");
    simulate(|node| async move {
        let isolator = work_dir.start(&node, &["live"]).await;
        let again = work_dir.sandbox("live").metadata().unwrap().dev();
        assert_eq!(
            again,
            held.metadata().unwrap().dev(),
            "one device for a file"
        );
        for name in ["live", "kept"] {
            let output = fs::read_to_string(work_dir.sandbox(name).join("stdout"));
            assert_eq!(output.unwrap(), name);
            assert!(work_dir.sandbox(name).join("lost+found").exists());
        }
        assert!(!orphan.exists() && !unfinished.exists());
        let measured = isolator
            .measure(vec![id("live"), id("kept")])
            .await
            .unwrap();
        assert_eq!(measured.len(), 1, "those that live");
        assert_eq!(measured[&id("live")].disk_limit_bytes, Some(8 << 20));
    });
}
