//! A work directory belongs to one zygote: a new one waits for an earlier one, and kills what that
//! has left behind.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::poll::{PollTimeout, poll};

use super::{KILL_ATTEMPTS_MAX, SWEEP_INTERVAL, kill_all};
use crate::host::procfs;

/// Locked by the zygote while any process of its agent may run.
const LOCK: &str = "launcher.lock";

/// Waits for an earlier zygote to end, and kills its leftovers if it was killed.
pub(super) fn take_over(work_dir: &Path) -> io::Result<File> {
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(work_dir.join(LOCK))?;
    let mut attempts = 0;
    while let Err(error) = lock.try_lock() {
        attempts += 1;
        match error {
            std::fs::TryLockError::WouldBlock if attempts < KILL_ATTEMPTS_MAX => pause(),
            std::fs::TryLockError::WouldBlock => {
                return Err(io::Error::other(
                    "an earlier agent's launcher still holds launcher.lock",
                ));
            }
            std::fs::TryLockError::Error(error) => return Err(error),
        }
    }
    for _ in 0..KILL_ATTEMPTS_MAX {
        let leftovers = leftovers(work_dir)?;
        if leftovers.is_empty() {
            return Ok(lock);
        }
        kill_all(&leftovers);
        pause();
    }
    Err(io::Error::other(format!(
        "cannot kill processes of an earlier agent: {:?}",
        leftovers(work_dir)?
    )))
}

/// Processes with a container of this work directory in their environment, and their descendants.
fn leftovers(work_dir: &Path) -> io::Result<BTreeSet<i32>> {
    let processes = procfs::processes()?;
    let of_this_agent = |pid: i32| {
        let sandbox = procfs::variable(pid, "MESOS_SANDBOX");
        sandbox.is_some_and(|sandbox| Path::new(&sandbox).starts_with(work_dir))
            && procfs::variable(pid, "MEROS_CONTAINER_ID").is_some()
    };
    let alive = processes
        .iter()
        .filter(|process| !process.zombie)
        .map(|process| process.pid);
    let roots: Vec<i32> = alive.filter(|&pid| of_this_agent(pid)).collect();
    let mut all = procfs::descendants(&processes, &roots);
    all.extend(roots);
    all.remove(&nix::unistd::getpid().as_raw());
    Ok(all)
}

/// Whether no process of any agent runs in this work directory.
pub fn is_over(work_dir: &Path) -> bool {
    match File::open(work_dir.join(LOCK)) {
        Ok(lock) => !matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)),
        Err(_) => true,
    }
}

fn pause() {
    let _ = poll(&mut [], PollTimeout::from(SWEEP_INTERVAL));
}
