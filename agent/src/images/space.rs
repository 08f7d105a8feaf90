//! Free space that pulls leave on the disk of the store: the agent and its tasks need it, too.

use std::io;
use std::os::fd::AsFd;

use nix::sys::statvfs::fstatvfs;
use protocol::text::bytes;

use super::retention::DiskSpace;

/// Most bytes that stay free.
const MARGIN_MAX: u64 = 1 << 30;
/// On a small disk, its part that stays free: one of so many.
const MARGIN_PART: u64 = 20;
/// Bytes written between two checks.
const STEP: u64 = 1 << 20;

/// The space on the disk of a file or directory. Blocking.
pub fn space(file: impl AsFd) -> io::Result<DiskSpace> {
    let disk = fstatvfs(file)?;
    Ok(DiskSpace {
        total: disk.blocks() * disk.fragment_size(),
        free: disk.blocks_available() * disk.fragment_size(),
    })
}

/// Fails if `needed` bytes more would leave too few free.
pub fn check(disk: DiskSpace, needed: u64) -> Result<(), String> {
    let margin = (disk.total / MARGIN_PART).min(MARGIN_MAX);
    if needed.saturating_add(margin) <= disk.free {
        return Ok(());
    }
    let [needed, free, margin] = [needed, disk.free, margin].map(bytes::format);
    Err(format!(
        "the disk of the image store is full: needs {needed} and {margin} that stay free, {free} is free"
    ))
}

/// Checks the space while an image is written.
#[derive(Debug, Default)]
pub struct SpaceChecks {
    /// Bytes since the last check.
    unchecked: u64,
}

impl SpaceChecks {
    /// So many bytes are about to be written to this file, or into this directory. Blocking.
    pub fn add(&mut self, file: impl AsFd, bytes: u64) -> io::Result<()> {
        self.unchecked += bytes;
        if self.unchecked < STEP {
            return Ok(());
        }
        let needed = std::mem::take(&mut self.unchecked);
        check(space(file)?, needed).map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_of_the_disk_stays_free() {
        let disk = |total: u64, free: u64| DiskSpace {
            total: total << 20,
            free: free << 20,
        };
        assert_eq!(check(disk(1000, 60), 10 << 20), Ok(()));
        let problem = check(disk(1000, 60), 11 << 20).unwrap_err();
        let expected = "needs 11MB and 50MB that stay free, 60MB is free";
        assert!(problem.ends_with(expected), "{problem}");
        // A large disk.
        assert_eq!(check(disk(1 << 30, 1025), 1 << 20), Ok(()));
        assert!(check(disk(1 << 30, 1025), 2 << 20).is_err());
        assert!(check(disk(1 << 30, 1025), u64::MAX).is_err());
    }

    #[test]
    fn space_is_checked_in_steps() {
        // A file system without space.
        let full = std::fs::File::open("/proc").unwrap();
        let mut checks = SpaceChecks::default();
        assert!(checks.add(&full, STEP - 1).is_ok());
        assert!(checks.add(&full, 1).is_err());
        assert!(checks.add(&full, 1).is_ok());
    }
}
