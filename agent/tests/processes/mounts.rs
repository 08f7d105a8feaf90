//! Containers with mounts, a root file system, capabilities and limits of their own, for real.
//! Needs root; skipped elsewhere.

use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use module_api::isolator::{
    CapabilitySets, LaunchPlan, Mount, MountSource, Namespaces, RootFilesystem,
};
use protocol::task::container::{LinuxCapabilities, RLimit, RLimitKind, SecretData, SoftHard};
use protocol::{Reason, TaskInfo, TaskState};

use super::{World, is_root, shell, with_plan};

/// The sandbox of a container with a root file system.
const SANDBOX: &str = "/mnt/mesos/sandbox";

fn skipped() -> bool {
    let skipped = !is_root();
    if skipped {
        println!("skipped: mounts need root");
    }
    skipped
}

fn mounted(mounts: Vec<Mount>) -> LaunchPlan {
    LaunchPlan {
        namespaces: Namespaces {
            mount: true,
            ..Namespaces::default()
        },
        mounts,
        ..LaunchPlan::default()
    }
}

fn mount(source: MountSource, target: &str) -> Mount {
    Mount {
        source,
        target: target.into(),
        is_read_only: false,
    }
}

/// Runs a script in a container with this plan. Returns its output, and the message of its end.
fn run(plan: LaunchPlan, task: TaskInfo) -> (String, TaskState, String) {
    with_plan(plan, |world: World| async move {
        world.master.run(vec![task]);
        let end = world.ends("t").await;
        assert!(world.processes().is_empty());
        let output = match end.reason {
            Some(Reason::ContainerLaunchFailed) => Vec::new(),
            _ => world.file("t", "stdout").await,
        };
        let output = String::from_utf8(output).unwrap();
        (output, end.state, end.message)
    })
}

/// A user of the host without rights.
fn as_nobody(mut task: TaskInfo) -> TaskInfo {
    task.command.as_mut().unwrap().user = Some("nobody".into());
    task
}

// Covers 5.5; 5.12 Isolation.
#[test]
fn volumes_are_seen_only_in_the_container() {
    if skipped() {
        return;
    }
    let host = tempfile::tempdir().unwrap();
    std::fs::write(host.path().join("there"), "from the host").unwrap();
    let at = tempfile::tempdir().unwrap();
    let read_only = Mount {
        is_read_only: true,
        ..mount(MountSource::Host(host.path().into()), "protected")
    };
    let plan = mounted(vec![
        mount(MountSource::Host(host.path().into()), "data/deep"),
        read_only,
        mount(
            MountSource::Sandbox("own".into()),
            at.path().to_str().unwrap(),
        ),
        mount(MountSource::Secret(SecretData(b"secret".to_vec())), "key"),
    ]);
    let script = format!(
        "cat data/deep/there; echo; echo new > data/deep/made; echo x > protected/y || echo refused; \
         echo here > {}/file; cat own/file; cat key; echo; stat -c '%a %U' key; \
         grep -c ' /.*/key ' /proc/self/mounts",
        at.path().display()
    );
    let (output, state, message) = run(plan, shell("t", &script));
    assert_eq!(state, TaskState::Finished, "{message}: {output}");
    let expected = "from the host\nrefused\nhere\nsecret\n400 root\n1\n";
    assert_eq!(output, expected);
    let made = std::fs::read_to_string(host.path().join("made")).unwrap();
    assert_eq!(made, "new\n");
    assert_eq!(
        std::fs::read_dir(at.path()).unwrap().count(),
        0,
        "only in the container"
    );
}

#[test]
fn memory_volume_has_its_size_and_owner() {
    if skipped() {
        return;
    }
    let memory = MountSource::Memory {
        bytes: Some(1 << 20),
        mode: 0o700,
    };
    let plan = mounted(vec![mount(memory, "fast")]);
    let script = "stat -c '%a %U' fast; head -c 2000000 /dev/zero > fast/file || echo full; \
        stat -c %s fast/file; cp /bin/true fast/; fast/true || echo inert; \
        grep -c ' /.*/fast tmpfs ' /proc/self/mounts";
    for (task, owner) in [
        (shell("t", script), "root"),
        (as_nobody(shell("t", script)), "nobody"),
    ] {
        let (output, state, message) = run(plan.clone(), task);
        assert_eq!(state, TaskState::Finished, "{message}: {output}");
        let expected = format!("700 {owner}\nfull\n1048576\ninert\n1\n");
        assert_eq!(output, expected);
    }
}

#[test]
fn mount_points_outside_of_the_sandbox_must_exist() {
    if skipped() {
        return;
    }
    let source = || MountSource::Sandbox("own".into());
    let plan = mounted(vec![mount(source(), "/no/such/place")]);
    let (_, state, message) = run(plan, shell("t", "true"));
    assert_eq!(state, TaskState::Failed);
    let expected = "Mount point '/no/such/place' is an absolute path. It must exist";
    assert!(message.contains(expected), "{message}");
    let missing = MountSource::Host("/no/such/source".into());
    let (_, _, message) = run(mounted(vec![mount(missing, "here")]), shell("t", "true"));
    let expected = "open the volume's source `/no/such/source`: No such file or directory";
    assert!(message.contains(expected), "{message}");
}

// Found by a reviewer: mount points were made in what volumes show of the host.
#[test]
fn nothing_is_made_in_what_a_volume_shows() {
    if skipped() {
        return;
    }
    let host = tempfile::tempdir().unwrap();
    let source = || MountSource::Host(host.path().into());
    let plan = mounted(vec![mount(source(), "data"), mount(source(), "data/new")]);
    let (_, state, message) = run(plan, shell("t", "true"));
    assert_eq!(state, TaskState::Failed);
    assert!(
        message.contains("make the mount point `data/new`"),
        "{message}"
    );
    assert_eq!(std::fs::read_dir(host.path()).unwrap().count(), 0);
}

// Found by a reviewer: the container init believed such a `/proc` and killed what it named.
#[test]
fn forged_proc_names_no_victims() {
    if skipped() {
        return;
    }
    let mut victim = Command::new("sleep").arg("98765").spawn().unwrap();
    let pid = victim.id();
    let plan = mounted(vec![mount(MountSource::Sandbox("p".into()), "/proc")]);
    let script = format!(
        "mkdir -p p/$PPID/task/1 p/{pid}; echo {pid} > p/$PPID/task/1/children; \
         echo \"{pid} (sleep) S $PPID {pid} {pid} 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 0 0 0\" > p/{pid}/stat; \
         (setsid sleep 98766 &); exit 0"
    );
    let (_, state, message) = run(plan, shell("t", &script));
    assert_eq!(state, TaskState::Finished, "{message}");
    assert_eq!(victim.try_wait().unwrap(), None, "it lives");
    victim.kill().unwrap();
    victim.wait().unwrap();
}

/// A root file system with a shell and a few programs of the host.
fn image(directory: &Path) -> PathBuf {
    let image = directory.join("image");
    for folder in ["bin", "etc", "tmp"] {
        std::fs::create_dir_all(image.join(folder)).unwrap();
    }
    std::fs::write(image.join("marker"), "image\n").unwrap();
    let mode = std::fs::Permissions::from_mode(0o1777);
    std::fs::set_permissions(image.join("tmp"), mode).unwrap();
    for program in ["sh", "cat", "ls", "id", "grep", "mkdir", "stat", "touch"] {
        let found = Path::new("/bin").join(program);
        let found = found.canonicalize().unwrap();
        std::fs::copy(&found, image.join("bin").join(program)).unwrap();
        let needs = Command::new("ldd").arg(&found).output().unwrap();
        let needs = String::from_utf8(needs.stdout).unwrap();
        for library in needs
            .split_whitespace()
            .filter(|word| word.starts_with('/'))
        {
            let copy = image.join(library.trim_start_matches('/'));
            std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
            std::fs::copy(library, copy).unwrap();
        }
    }
    image
}

fn rooted(directory: &Path) -> LaunchPlan {
    let scratch = directory.join("scratch");
    std::fs::create_dir_all(&scratch).unwrap();
    LaunchPlan {
        root: Some(RootFilesystem {
            image: image(directory),
            scratch,
            sandbox: SANDBOX.into(),
        }),
        namespaces: Namespaces {
            pid: true,
            ipc: true,
            mount: true,
            uts: true,
        },
        hostname: Some("box".into()),
        environment: [("MESOS_SANDBOX".to_owned(), SANDBOX.to_owned())].into(),
        ..LaunchPlan::default()
    }
}

// Covers 5.5; 5.12 Images in part: the sandbox's path, users of the host.
#[test]
fn container_runs_in_its_own_root_file_system() {
    if skipped() {
        return;
    }
    let directory = tempfile::Builder::new().prefix("a,b:c").tempdir().unwrap();
    let plan = rooted(directory.path());
    // Does nothing on the host.
    let script = "cat /marker || exit 9; pwd; echo $MESOS_SANDBOX $PWD; ls /; id -u; \
        cat /proc/sys/kernel/hostname; echo > /written; echo changed > /marker; \
        echo x > /proc/sys/kernel/hostname || echo protected; ls /dev; echo in > inside; \
        cat /proc/kcore > /dev/null && ls -A /proc/acpi /sys/firmware; ls /proc/1/cwd/inside; \
        ls /mnt/..";
    let (output, state, message) = run(plan, shell("t", script));
    assert_eq!(state, TaskState::Finished, "{message}: {output}");
    let expected = format!("image\n{SANDBOX}\n{SANDBOX} {SANDBOX}\n");
    assert!(output.starts_with(&expected), "{output}");
    assert!(output.contains("\n0\nbox\nprotected\n"), "{output}");
    for device in ["null", "ptmx", "stdout", "urandom", "shm"] {
        assert!(
            output.contains(&format!("\n{device}\n")),
            "{device}: {output}"
        );
    }
    assert!(
        !output.contains("lost+found") && !output.contains("\nhome\n"),
        "{output}"
    );
    let image = directory.path().join("image");
    let text = std::fs::read_to_string(image.join("marker")).unwrap();
    assert_eq!(text, "image\n", "the image does not change");
    assert!(!image.join("written").exists() && !image.join("mnt").exists());
    assert!(directory.path().join("scratch/upper/written").exists());
    let host_mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!host_mounts.contains("overlay ") || !host_mounts.contains("a,b:c"));
}

#[test]
fn privileged_container_has_the_hosts_devices() {
    if skipped() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let plan = LaunchPlan {
        is_privileged: true,
        ..rooted(directory.path())
    };
    let script = "cat /marker || exit 9; ls /dev; echo box > /proc/sys/kernel/hostname && echo set";
    let (output, state, message) = run(plan, shell("t", script));
    assert_eq!(state, TaskState::Finished, "{message}: {output}");
    let is_device = |entry: &std::fs::DirEntry| {
        let kind = entry.file_type().unwrap();
        kind.is_char_device() || kind.is_block_device()
    };
    let of_host = std::fs::read_dir("/dev").unwrap().map(Result::unwrap);
    for device in of_host.filter(is_device) {
        let name = device.file_name().into_string().unwrap();
        assert!(output.contains(&format!("\n{name}\n")), "{name}: {output}");
    }
    assert!(output.contains("\nset\n"), "{output}");
}

#[test]
fn user_of_the_host_owns_its_sandbox_in_the_image() {
    if skipped() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let plan = rooted(directory.path());
    // The task must be able to execute the image's files.
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), open).unwrap();
    let script = "cat /marker || exit 9; id -u; touch mine /tmp/mine && stat -c %u mine; mkdir /new || echo refused";
    let (output, state, message) = run(plan, as_nobody(shell("t", script)));
    assert_eq!(state, TaskState::Finished, "{message}: {output}");
    assert_eq!(output, "image\n65534\n65534\nrefused\n");
}

/// Links in an image or a sandbox lead nowhere outside of it, also while mounts are made.
#[test]
fn hostile_links_make_nothing_on_the_host() {
    if skipped() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut plan = rooted(directory.path());
    let outside = directory.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let image = directory.path().join("image");
    symlink(&outside, image.join("mnt")).unwrap();
    symlink("../../../../outside", image.join("dev")).unwrap();
    symlink(&outside, image.join("data")).unwrap();
    plan.mounts = vec![mount(MountSource::Sandbox("own".into()), "/data/volume")];
    let (output, state, message) = run(plan, shell("t", "pwd"));
    // Where a link leads to exists in the image, or nothing is there to mount over.
    assert!(state.is_terminal(), "{output}");
    let is_sandbox = output == format!("{SANDBOX}\n");
    assert!(
        is_sandbox || message.contains("make `"),
        "{message}: {output}"
    );
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
}

// Covers 5.12 Isolation in part: capabilities.
#[test]
fn effective_capabilities_are_all_that_a_container_has() {
    if skipped() {
        return;
    }
    let net_raw = LinuxCapabilities(1 << 13);
    let plan = LaunchPlan {
        capabilities: Some(CapabilitySets {
            effective: Some(net_raw),
            bounding: net_raw,
        }),
        ..LaunchPlan::default()
    };
    let script = "grep Cap /proc/self/status";
    for task in [shell("t", script), as_nobody(shell("t", script))] {
        let (output, state, message) = run(plan.clone(), task);
        assert_eq!(state, TaskState::Finished, "{message}");
        let sets: Vec<&str> = output.lines().collect();
        assert_eq!(sets.len(), 5, "{output}");
        for set in sets {
            assert!(set.ends_with("0000000000002000"), "{output}");
        }
    }
    let none = LaunchPlan {
        capabilities: Some(CapabilitySets {
            effective: None,
            bounding: net_raw,
        }),
        ..LaunchPlan::default()
    };
    let (output, ..) = run(
        none,
        as_nobody(shell("t", "grep -E 'Cap(Eff|Bnd)' /proc/self/status")),
    );
    let expected = "CapEff:\t0000000000000000\nCapBnd:\t0000000000002000\n";
    assert_eq!(output, expected);
}

/// A filter, in the encoding of a plan: the call of this number fails with `EPERM`.
fn refuse_call(number: u32) -> Vec<u8> {
    let load_number = (0x20_u16, 0_u8, 0_u8, 0_u32);
    let is_it = (0x15, 0, 1, number);
    let (refuse, allow) = ((0x06, 0, 0, 0x0005_0001), (0x06, 0, 0, 0x7fff_0000));
    let mut bytes = Vec::new();
    for (code, yes, no, value) in [load_number, is_it, refuse, allow] {
        bytes.extend(code.to_ne_bytes());
        bytes.extend([yes, no]);
        bytes.extend(value.to_ne_bytes());
    }
    bytes
}

// Covers 5.5 in part: linux/seccomp.
#[test]
fn filtered_system_calls_fail_in_the_container_only() {
    if skipped() {
        return;
    }
    let plan = LaunchPlan {
        seccomp: vec![refuse_call(nix::libc::SYS_uname as u32)],
        ..LaunchPlan::default()
    };
    let script = "uname || echo refused; grep Seccomp: /proc/self/status";
    for task in [shell("t", script), as_nobody(shell("t", script))] {
        let (output, state, message) = run(plan.clone(), task);
        assert_eq!(state, TaskState::Finished, "{message}");
        assert_eq!(output, "refused\nSeccomp:\t2\n");
    }
}

// Covers 5.5 in part: posix/rlimits.
#[test]
fn processes_have_the_limits_of_their_container() {
    if skipped() {
        return;
    }
    let limit = |kind, soft, hard| RLimit {
        kind,
        limits: Some(SoftHard { soft, hard }),
    };
    let plan = LaunchPlan {
        rlimits: vec![
            limit(RLimitKind::Nofile, 100, 200),
            limit(RLimitKind::Fsize, 4096, 4096),
            RLimit {
                kind: RLimitKind::Cpu,
                limits: None,
            },
        ],
        ..LaunchPlan::default()
    };
    let script = "ulimit -n; ulimit -Hn; grep 'Max cpu time' /proc/self/limits; \
        head -c 8192 /dev/zero > big; stat -c %s big";
    let (output, state, message) = run(plan, shell("t", script));
    assert_eq!(state, TaskState::Finished, "{message}");
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines[..2], ["100", "200"]);
    assert!(lines[2].contains("unlimited"), "{output}");
    assert_eq!(lines[3], "4096", "a larger file is cut");
}
