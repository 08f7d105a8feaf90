//! The device program of v2, which has no devices controller: the kernel asks it whether a process
//! of a group may open or make a device. Attached to the group of a container, it holds for all
//! groups below as well, and is gone with the group.

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use nix::libc::{self, c_long};

use super::controllers::devices::{AllowedDevice, program};
use super::files::FileError;

const BPF_PROG_LOAD: c_long = 5;
const BPF_PROG_ATTACH: c_long = 8;
const BPF_PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const BPF_CGROUP_DEVICE: u32 = 6;
/// The programs of the groups above and below hold as well.
const BPF_F_ALLOW_MULTI: u32 = 2;

/// `bpf_attr` of BPF_PROG_LOAD, up to the last field that is used.
#[repr(C)]
struct Load {
    kind: u32,
    length: u32,
    instructions: u64,
    license: u64,
}

/// `bpf_attr` of BPF_PROG_ATTACH.
#[repr(C)]
struct Attach {
    group: u32,
    program: u32,
    kind: u32,
    flags: u32,
}

/// The loaded program.
#[derive(Debug)]
pub struct DeviceProgram(OwnedFd);

impl DeviceProgram {
    /// Loads it, for these devices and those that are always allowed. Fails without the rights, and
    /// on a kernel without CONFIG_CGROUP_BPF.
    pub fn load(more: &[AllowedDevice]) -> io::Result<Self> {
        let instructions = program(more);
        let load = Load {
            kind: BPF_PROG_TYPE_CGROUP_DEVICE,
            length: u32::try_from(instructions.len()).map_err(io::Error::other)?,
            instructions: instructions.as_ptr() as u64,
            license: c"Apache-2.0".as_ptr() as u64,
        };
        let file = i32::try_from(bpf(BPF_PROG_LOAD, &load)?).map_err(io::Error::other)?;
        // SAFETY: the kernel has just made this descriptor for us.
        #[allow(unsafe_code)]
        Ok(Self(unsafe { OwnedFd::from_raw_fd(file) }))
    }

    /// Attaches it to a group of the unified tree.
    pub fn attach(&self, dir: &Path) -> Result<(), FileError> {
        let number = |file: &dyn AsRawFd| file.as_raw_fd().unsigned_abs();
        let attach = |group: File| {
            let attach = Attach {
                group: number(&group),
                program: number(&self.0),
                kind: BPF_CGROUP_DEVICE,
                flags: BPF_F_ALLOW_MULTI,
            };
            bpf(BPF_PROG_ATTACH, &attach)
        };
        let attached = File::open(dir).and_then(attach);
        let attached = attached.map_err(|error| FileError::new("limit devices of", dir, error));
        attached.map(|_| ())
    }
}

/// One of the two commands above, with its attributes.
fn bpf<T>(command: c_long, attributes: &T) -> io::Result<c_long> {
    // SAFETY: the kernel reads the attributes, of this size, and the memory behind their pointers,
    // which the callers own until it returns.
    #[allow(unsafe_code)]
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attributes),
            size_of::<T>(),
        )
    };
    match result {
        0.. => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}
