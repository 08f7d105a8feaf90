//! Project quotas of a file system.
//!
//! Blocking. A project is a number on files and directories, zero for none; new files get that of
//! their directory. The kernel counts the files and the space of each project, and refuses what
//! would exceed its hard limit. XFS and ext4 have them. Needs Linux 5.14.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::libc::{self, Q_GETQUOTA, Q_SETQUOTA, c_int, dqblk};
use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};

/// The kind of quota, of those of users, groups and projects.
const PROJECTS: c_int = 2;
/// Asks whether quotas of a kind are counted. Not in `libc`.
const Q_GETINFO: c_int = 0x80_0005;
/// Limits are in these units.
const BLOCK: u64 = 1024;

/// A project of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Project {
    /// The space that it takes, in bytes.
    pub used: u64,
    /// The number of its files and directories.
    pub files: u64,
    /// The space beyond which its owner is warned, in bytes; zero for none.
    pub soft: u64,
    /// The space that it cannot exceed, in bytes; zero for none.
    pub hard: u64,
}

/// Fails unless projects are counted on the file system of this directory.
pub(super) fn are_counted(directory: BorrowedFd<'_>) -> io::Result<()> {
    quotactl(directory, Q_GETINFO, 0, &mut empty())
}

/// The project with this number. One that was never used is empty.
pub(super) fn project(directory: BorrowedFd<'_>, number: u32) -> io::Result<Project> {
    let mut data = empty();
    match quotactl(directory, Q_GETQUOTA, number, &mut data) {
        // XFS has no record of it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Project::default()),
        done => done.map(|()| Project {
            used: data.dqb_curspace,
            files: data.dqb_curinodes,
            soft: data.dqb_bsoftlimit.saturating_mul(BLOCK),
            hard: data.dqb_bhardlimit.saturating_mul(BLOCK),
        }),
    }
}

/// Sets the limits of the project with this number.
pub(super) fn limit(
    directory: BorrowedFd<'_>,
    number: u32,
    soft: u64,
    hard: u64,
) -> io::Result<()> {
    let mut data = dqblk {
        dqb_bsoftlimit: soft.div_ceil(BLOCK),
        dqb_bhardlimit: hard.div_ceil(BLOCK),
        dqb_valid: libc::QIF_BLIMITS,
        ..empty()
    };
    quotactl(directory, Q_SETQUOTA, number, &mut data)
}

fn empty() -> dqblk {
    dqblk {
        dqb_bhardlimit: 0,
        dqb_bsoftlimit: 0,
        dqb_curspace: 0,
        dqb_ihardlimit: 0,
        dqb_isoftlimit: 0,
        dqb_curinodes: 0,
        dqb_btime: 0,
        dqb_itime: 0,
        dqb_valid: 0,
    }
}

/// One of the three commands above.
fn quotactl(
    directory: BorrowedFd<'_>,
    command: c_int,
    number: u32,
    data: &mut dqblk,
) -> io::Result<()> {
    let command = libc::QCMD(command, PROJECTS);
    let file = directory.as_raw_fd();
    // SAFETY: the kernel reads or writes a `dqblk`, or for Q_GETINFO 24 bytes of it, whose numbers
    // may have any value.
    #[allow(unsafe_code)]
    let result =
        unsafe { libc::syscall(libc::SYS_quotactl_fd, file, command, number, &raw mut *data) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `struct fsxattr` of `linux/fs.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copy_on_write_extent_size: u32,
    padding: [u8; 8],
}

/// What is made in the directory gets its project.
const INHERIT: u32 = 0x200;
const GET: Opcode = opcode::read::<Attributes>(b'X', 31);
const SET: Opcode = opcode::write::<Attributes>(b'X', 32);

/// The project of a file or directory.
pub(super) fn project_of(file: impl AsFd) -> io::Result<u32> {
    Ok(attributes(file.as_fd())?.project)
}

/// Gives a file or directory to a project.
pub(super) fn assign(file: impl AsFd, project: u32, is_directory: bool) -> io::Result<()> {
    let mut attributes = attributes(file.as_fd())?;
    attributes.project = project;
    if is_directory {
        attributes.flags |= INHERIT;
    }
    // SAFETY: FS_IOC_FSSETXATTR reads these attributes.
    #[allow(unsafe_code)]
    let set = unsafe { ioctl(file, Setter::<SET, Attributes>::new(attributes)) };
    Ok(set?)
}

fn attributes(file: BorrowedFd<'_>) -> io::Result<Attributes> {
    // SAFETY: FS_IOC_FSGETXATTR writes these attributes, whose numbers may have any value.
    #[allow(unsafe_code)]
    let got = unsafe { ioctl(file, Getter::<GET, Attributes>::new()) };
    Ok(got?)
}
