//! Tests of the decisions, and of the isolator on file systems with project quotas, where root can
//! mount them. `tests/guest/run` has a kernel that can.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use module_api::isolator::RootFilesystem;
use protocol::Reason;
use resources::{
    Annotations, DiskInfo, DiskSource, Name, Reservation, Resource, Resources, Scalar,
};
use runtime::testing::simulate;
use tokio::sync::mpsc;

use super::projects::range;
use super::*;

const MEBIBYTE: usize = 1 << 20;

/// Stands for the containerizer: passes the limitations on.
struct Containerizer(mpsc::UnboundedSender<ContainerLimited>);

impl Actor for Containerizer {
    type Context = Context<Self>;
}

impl Process for Containerizer {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept_local::<ContainerLimited>();
    }
}

impl Handler<ContainerLimited> for Containerizer {
    type Result = ();
    fn handle(&mut self, limited: ContainerLimited, _: &mut Context<Self>) {
        self.0.send(limited).unwrap();
    }
}

fn id(name: &str) -> ContainerId {
    ContainerId::new(name).unwrap()
}

fn volume(source: Option<DiskSource>) -> Resource {
    let annotations = Annotations {
        reservations: vec![Reservation::fixed("r".parse().unwrap())],
        disk: Some(Box::new(DiskInfo {
            source,
            ..DiskInfo::persistent("v", None, "data")
        })),
        ..Annotations::default()
    };
    Resource::annotated(Name::Disk, Scalar::whole(3), annotations).unwrap()
}

/// An isolator, with the limitations that it reports.
struct Started {
    isolator: IsolatorRef,
    limited: mpsc::UnboundedReceiver<ContainerLimited>,
    work_dir: PathBuf,
}

impl Started {
    async fn new(node: &Node, work_dir: &Path, kills: &str, running: &[&str]) -> Self {
        let (sender, limited) = mpsc::unbounded_channel();
        let containerizer = node.spawn("containerizer", Containerizer(sender)).unwrap();
        let given = Parameters::none("isolators")
            .with("work_dir", work_dir.display().to_string())
            .with("xfs_project_range", "[7001-7002,7004]")
            .with("enforce_container_disk_quota", "true")
            .with("xfs_kill_containers", kills);
        let registry = crate::registry();
        let isolator = registry.isolators(node, &["disk/xfs"], &given);
        let started = Self {
            isolator: isolator.unwrap().remove(0),
            limited,
            work_dir: work_dir.to_owned(),
        };
        let running = running.iter();
        let recover = RecoverContainers {
            containers: running.map(|name| started.config(name, "disk:2")).collect(),
            containerizer: containerizer.pid().clone(),
        };
        started.isolator.recover(recover).await.unwrap();
        started
    }

    fn sandbox(&self, name: &str) -> PathBuf {
        self.work_dir.join(name)
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

    /// Prepares a container with a new sandbox.
    async fn prepare(&self, name: &str) -> Result<(), String> {
        fs::create_dir_all(self.sandbox(name)).unwrap();
        let prepared = self.isolator.prepare(self.config(name, "disk:2")).await;
        prepared.map(drop).map_err(|error| error.to_string())
    }

    async fn used(&self, name: &str) -> usize {
        let measured = self.isolator.measure(vec![id(name)]).await.unwrap();
        measured[&id(name)].disk_used_bytes.unwrap() as usize
    }
}

fn resources(requests: &str) -> ContainerResources {
    ContainerResources {
        requests: Resources::parse(requests).unwrap(),
        ..ContainerResources::default()
    }
}

/// A new file system in a file, mounted.
pub(crate) struct Mounted(tempfile::TempDir);

impl Mounted {
    /// `None`, and a line with the reason, where it cannot be had.
    fn new(kind: &str, make: &[&str], option: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("image");
        let image = fs::File::create(&file).unwrap();
        image.set_len(320 * MEBIBYTE as u64).unwrap();
        let mounted = Self(directory);
        let [image, path] = [file, mounted.path()].map(|path| path.display().to_string());
        fs::create_dir(&path).unwrap();
        let options = format!("loop,{option}");
        let mount = ["mount", "-t", kind, "-o", &options, &image, &path];
        let program = format!("mkfs.{kind}");
        let make = [&[&program, "-q"], make, &[&image]].concat();
        for line in [make, mount.to_vec()] {
            let run = Command::new(line[0]).args(&line[1..]).output();
            let problem = match run {
                Ok(output) if output.status.success() => continue,
                Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
                Err(error) => error.to_string(),
            };
            let problem = problem.lines().next().unwrap_or_default();
            _ = writeln!(std::io::stderr(), "skipped: {}: {problem}", line.join(" "));
            return None;
        }
        Some(mounted)
    }

    pub(crate) fn xfs() -> Option<Self> {
        Self::new("xfs", &[], "pquota")
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().join("mounted")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        _ = Command::new("umount").arg(self.path()).output();
    }
}

fn write(path: &Path, mebibytes: usize) -> std::io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(&vec![1; mebibytes * MEBIBYTE])?;
    file.sync_all()
}

#[test]
fn range_has_small_numbers_without_zero() {
    let text = |text: &str| range(text).map(|range| range.to_string());
    assert_eq!(text("[5000-10000]").as_deref(), Some("[5000-10000]"));
    assert_eq!(text("[1-2,9-9]").as_deref(), Some("[1-2,9-9]"));
    for bad in ["", "5", "[0-5]", "[5-4294967296]", "{a}", "[1-2];cpus:1"] {
        assert_eq!(text(bad), None, "{bad}");
    }
}

#[test]
fn agent_without_project_quotas_learns_how_to_get_them() {
    let reason = has_quotas(Path::new("/proc/missing")).unwrap_err();
    assert!(reason.contains("`/proc/missing`"), "{reason}");
    assert!(
        reason.contains("use XFS mounted with the option `pquota`"),
        "{reason}"
    );
}

#[test]
fn writable_layer_of_an_image_shares_the_quota() {
    let Some(mounted) = Mounted::xfs() else {
        return;
    };
    let work_dir = mounted.path().join("agent");
    simulate(|node| async move {
        let started = Started::new(&node, &work_dir, "false", &[]).await;
        let scratch = work_dir.join("provisioner/a");
        fs::create_dir_all(scratch.join("upper")).unwrap();
        fs::create_dir_all(started.sandbox("a")).unwrap();
        let root = RootFilesystem {
            image: "/image".into(),
            scratch: scratch.clone(),
            sandbox: "/mnt/mesos/sandbox".into(),
        };
        let config = ContainerConfig {
            root: Some(root),
            ..started.config("a", "disk:3")
        };
        started.isolator.prepare(config).await.unwrap();
        write(&scratch.join("upper/file"), 2).unwrap();
        write(&started.sandbox("a").join("file"), 2).unwrap_err();
    });
}

// Covers 5.5 in part: disk/xfs; S75.
#[test]
fn sandbox_takes_no_more_than_its_disk() {
    let Some(mounted) = Mounted::xfs() else {
        return;
    };
    let work_dir = mounted.path().join("agent");
    simulate(|node| async move {
        let started = Started::new(&node, &work_dir, "false", &[]).await;
        started.prepare("a").await.unwrap();
        let sandbox = started.sandbox("a");
        write(&sandbox.join("small"), 1).unwrap();
        let error = write(&sandbox.join("big"), 3).unwrap_err().kind();
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        assert!(matches!(error, QuotaExceeded | StorageFull), "{error}");
        let used = started.used("a").await;
        assert!((MEBIBYTE..=2 * MEBIBYTE).contains(&used), "{used}");
        let measured = started.isolator.measure(vec![id("a")]).await.unwrap();
        let limit = measured[&id("a")].disk_limit_bytes;
        assert_eq!(limit, Some(2 * MEBIBYTE as u64));

        // The limit follows the tasks. A volume has a limit of its own.
        let volumes = work_dir.join("volumes/roles/r/v");
        fs::create_dir_all(volumes.join("older")).unwrap();
        write(&volumes.join("older/file"), 2).unwrap();
        let mut more = resources("disk:6");
        more.requests.push(volume(None));
        let update = UpdateContainer {
            container_id: id("a"),
            resources: more,
        };
        started.isolator.update(update).await.unwrap();
        write(&sandbox.join("big"), 3).unwrap();
        write(&volumes.join("more"), 2).unwrap_err();

        assert_eq!(started.isolator.clean_up(id("a")).await, Ok(None));
        write(&sandbox.join("big"), 8).unwrap();
    });
}

#[test]
fn project_is_free_when_its_files_are_gone() {
    let Some(mounted) = Mounted::xfs() else {
        return;
    };
    let work_dir = mounted.path().join("agent");
    let again = work_dir.clone();
    simulate(|node| async move {
        let started = Started::new(&node, &work_dir, "false", &[]).await;
        for name in ["a", "b", "c"] {
            started.prepare(name).await.unwrap();
        }
        write(&started.sandbox("b").join("file"), 1).unwrap();
        let exhausted = started.prepare("d").await.unwrap_err();
        let expected = "Failed to assign project ID, range exhausted";
        assert!(exhausted.contains(expected), "{exhausted}");
        // Its files can be read for long.
        started.isolator.clean_up(id("a")).await.unwrap();
        assert!(started.prepare("d").await.is_err());
        fs::remove_dir_all(started.sandbox("a")).unwrap();
        // The kernel counts a removed directory a little longer.
        while let Err(error) = started.prepare("d").await {
            assert!(error.contains(expected), "{error}");
        }
    });
    // The next agent finds the projects on the disk.
    simulate(|node| async move {
        let started = Started::new(&node, &again, "false", &["b", "gone"]).await;
        assert!(started.used("b").await >= MEBIBYTE);
        assert!(started.prepare("e").await.is_err());
        write(&started.sandbox("b").join("big"), 3).unwrap_err();
    });
}

// Covers 5.5 in part: disk/xfs; 5.12 Isolation.
#[test]
fn container_beyond_its_quota_ends_with_the_words_of_mesos() {
    let ext4 = Mounted::new("ext4", &["-O", "quota,project"], "prjquota");
    let mounted = [Mounted::xfs(), ext4];
    for mounted in mounted.into_iter().flatten() {
        let work_dir = mounted.path().join("agent");
        simulate(|node| async move {
            let mut started = Started::new(&node, &work_dir, "true", &[]).await;
            started.prepare("a").await.unwrap();
            started.prepare("b").await.unwrap();
            write(&started.sandbox("a").join("big"), 3).unwrap();
            let limited = started.limited.recv().await.unwrap();
            assert_eq!(limited.container_id, id("a"));
            let limitation = limited.limitation;
            assert_eq!(limitation.reason, Reason::ContainerLimitationDisk);
            let message = limitation.message.clone();
            assert!(message.starts_with("Disk usage ("), "{message}");
            assert!(message.ends_with("B) exceeded quota (2MB)"), "{message}");
            node.clock().sleep(Duration::from_secs(40)).await;
            assert!(started.limited.try_recv().is_err(), "once");
            let end = started.isolator.clean_up(id("a")).await.unwrap();
            assert_eq!(end, Some(limitation));
            assert_eq!(started.isolator.clean_up(id("b")).await, Ok(None));
        });
    }
}
