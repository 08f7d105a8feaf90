//! Carries out a launch plan in a container init, before it starts the program.
//!
//! Runs in the forked init: it joins control groups and changes the mounts of its own namespace.
//! Errors name the step, its object and the system error.

mod mounts;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

use module_api::isolator::{LaunchPlan, Namespaces};
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::Mode;

/// The control group of the container's processes without its init.
#[derive(Debug, Default)]
pub(super) struct ProcessCgroup {
    procs: Option<File>,
    kill: Option<File>,
}

impl ProcessCgroup {
    fn open(directory: &Path) -> Result<Self, String> {
        let open = |name: &str| OpenOptions::new().write(true).open(directory.join(name));
        let procs = open("cgroup.procs");
        let procs = procs.map_err(failed("open", &directory.join("cgroup.procs")))?;
        Ok(Self {
            procs: Some(procs),
            // Linux before 5.14 lacks it: processes are killed one by one.
            kill: open("cgroup.kill").ok(),
        })
    }

    /// The descriptor through which the program joins.
    pub(super) fn descriptor(&self) -> Option<RawFd> {
        self.procs.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Kills all its processes at once. Whether it could.
    pub(super) fn kill(&self) -> bool {
        let mut kill = self.kill.as_ref();
        kill.as_mut()
            .is_some_and(|kill| kill.write_all(b"1").is_ok())
    }
}

impl ProcessCgroup {
    /// The same group for a nested container, which does not kill the others in it.
    fn shared(&self) -> Result<Self, String> {
        let procs = self.procs.as_ref().map(File::try_clone).transpose();
        Ok(Self {
            procs: procs.map_err(|error| format!("copy a descriptor: {error}"))?,
            kill: None,
        })
    }
}

/// The flags of the fork that makes these namespaces.
pub(super) fn clone_flags(namespaces: Namespaces) -> CloneFlags {
    let Namespaces {
        pid,
        ipc,
        mount,
        uts,
    } = namespaces;
    let mut flags = CloneFlags::empty();
    flags.set(CloneFlags::CLONE_NEWPID, pid);
    flags.set(CloneFlags::CLONE_NEWIPC, ipc);
    flags.set(CloneFlags::CLONE_NEWUTS, uts);
    // `/proc` and `/dev/shm` of its own need mounts of its own.
    flags.set(CloneFlags::CLONE_NEWNS, mount || pid || ipc);
    flags
}

/// Isolates this process, which has been forked with [`clone_flags`]. Its working directory is the
/// sandbox before, and the one of the plan after. A nested container is in `outer` if it has no
/// control group of its own.
pub(super) fn enter(
    plan: &LaunchPlan,
    sandbox: &Path,
    outer: Option<&ProcessCgroup>,
) -> Result<ProcessCgroup, String> {
    // What is made for the container, its users may read.
    nix::sys::stat::umask(Mode::from_bits_truncate(0o022));
    for directory in &plan.cgroups {
        let procs = directory.join("cgroup.procs");
        let joined = std::fs::write(&procs, "0");
        joined.map_err(failed("join", &procs))?;
    }
    let processes = match &plan.process_cgroup {
        Some(directory) => ProcessCgroup::open(directory)?,
        None => outer
            .map(ProcessCgroup::shared)
            .transpose()?
            .unwrap_or_default(),
    };
    if let Some(score) = plan.oom_score_adj {
        let path = Path::new("/proc/self/oom_score_adj");
        std::fs::write(path, score.to_string()).map_err(failed("write", path))?;
    }
    if let Some(network) = &plan.network {
        let path = &network.namespace;
        let namespace = File::open(path).map_err(failed("open", path))?;
        setns(namespace, CloneFlags::CLONE_NEWNET).map_err(failed("enter", path))?;
    }
    if clone_flags(plan.namespaces).contains(CloneFlags::CLONE_NEWNS) {
        mounts::enter(plan, sandbox)?;
    }
    if let Some(hostname) = &plan.hostname {
        nix::unistd::sethostname(hostname)
            .map_err(failed("set the host name", hostname.as_ref()))?;
    }
    if plan.no_new_privileges {
        let set = nix::sys::prctl::set_no_new_privs();
        set.map_err(|error| format!("give up new privileges: {error}"))?;
    }
    Ok(processes)
}

fn failed<E: Into<io::Error>>(step: &str, what: &Path) -> impl FnOnce(E) -> String {
    move |error| format!("{step} `{}`: {}", what.display(), error.into())
}
