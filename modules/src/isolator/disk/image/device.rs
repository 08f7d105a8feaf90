//! Loop devices, and the size of an ext4 file system.
//!
//! Blocking. Needs Linux 5.8 (`LOOP_CONFIGURE`), `/dev/loop-control` and CAP_SYS_ADMIN.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use nix::sys::stat::{major, minor};
use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};

/// Makes and names loop devices.
pub(super) const CONTROL: &str = "/dev/loop-control";
/// Attempts to take a free device: other processes take them, too.
const ATTEMPTS: usize = 64;
/// Directories of all block devices by name, and of all by number.
const BY_NAME: &str = "/sys/block";
const BY_NUMBER: &str = "/sys/dev/block";

const GET_FREE: libc::Ioctl = 0x4C82;
const SET_CAPACITY: libc::Ioctl = 0x4C07;
const GET_STATUS: Opcode = 0x4C05;
const CONFIGURE: Opcode = 0x4C0A;
const RESIZE: Opcode = opcode::write::<u64>(b'f', 16);
/// Where an ext4 file system has the low half of its number of blocks: enough for 16 TiB.
const BLOCKS_OFFSET: u64 = 1024 + 4;
/// The device is free again after its last use.
const AUTOCLEAR: u32 = 4;

/// `struct loop_config` of `linux/loop.h`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Config {
    file: u32,
    block_size: u32,
    info: Info,
    reserved: [u64; 8],
}

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Info {
    /// Device and inode of the file, then the number of the file if that is a device.
    ids: [u64; 3],
    offset: u64,
    size_limit: u64,
    number: u32,
    encryption: [u32; 2],
    flags: u32,
    names: [[u8; 64]; 2],
    key: [u8; 32],
    init: [u64; 2],
}

/// A device with a file as its content. Free again when neither this nor a mount uses it.
#[derive(Debug)]
pub(super) struct Device {
    /// Its path.
    pub path: PathBuf,
    file: File,
}

impl Device {
    /// Only a free one needs `write`.
    fn open(name: impl AsRef<Path>, write: bool) -> io::Result<Self> {
        let path = Path::new("/dev").join(name);
        let file = OpenOptions::new().read(true).write(write).open(&path)?;
        Ok(Self { path, file })
    }

    /// Whether this file is its content.
    fn contains(&self, image: &File) -> io::Result<bool> {
        // SAFETY: LOOP_GET_STATUS64 writes this structure.
        #[allow(unsafe_code)]
        let info = unsafe { ioctl(&self.file, Getter::<GET_STATUS, Info>::new()) };
        let metadata = image.metadata()?;
        match info {
            Ok(info) => Ok(info.ids[..2] == [metadata.dev(), metadata.ino()]),
            // It is free.
            Err(error) if error == rustix::io::Errno::NXIO => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes the present size of its file.
    pub fn take_size(&self) -> io::Result<()> {
        // SAFETY: LOOP_SET_CAPACITY has no argument.
        #[allow(unsafe_code)]
        let done = unsafe { libc::ioctl(self.file.as_raw_fd(), SET_CAPACITY) };
        Errno::result(done)?;
        Ok(())
    }

    /// Blocks of its ext4 file system. A mounted one has its superblock in the cache of the device.
    pub fn blocks(&self) -> io::Result<u64> {
        let mut number = [0; 4];
        self.file.read_exact_at(&mut number, BLOCKS_OFFSET)?;
        Ok(u32::from_le_bytes(number).into())
    }
}

/// The device that already has this file as its content, if one does. A second one for the same
/// file would have a cache of its own: two mounts would destroy the file system.
pub(super) fn attached(image: &File) -> io::Result<Option<Device>> {
    for entry in fs::read_dir(BY_NAME)? {
        let entry = entry?;
        if !entry.path().join("loop/backing_file").exists() {
            continue;
        }
        match Device::open(entry.file_name(), false) {
            Ok(device) if device.contains(image)? => return Ok(Some(device)),
            // Another container of the host uses one that has no file here.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(None)
}

/// The device with this content that is mounted on this directory.
pub(super) fn mounted(directory: &File, image: &File) -> io::Result<Device> {
    let number = directory.metadata()?.dev();
    let link = Path::new(BY_NUMBER).join(format!("{}:{}", major(number), minor(number)));
    let not_mounted = || io::Error::other("it is not mounted");
    let name = fs::read_link(link).map_err(|_| not_mounted())?;
    let device = Device::open(name.file_name().ok_or_else(not_mounted)?, false)?;
    match device.contains(image) {
        Ok(true) => Ok(device),
        _ => Err(not_mounted()),
    }
}

/// Attaches a file to a free device.
pub(super) fn attach(image: &File) -> io::Result<Device> {
    let control = OpenOptions::new().read(true).write(true).open(CONTROL)?;
    for _ in 0..ATTEMPTS {
        // SAFETY: LOOP_CTL_GET_FREE has no argument.
        #[allow(unsafe_code)]
        let number = unsafe { libc::ioctl(control.as_raw_fd(), GET_FREE) };
        let device = Device::open(format!("loop{}", Errno::result(number)?), true)?;
        match configure(&device.file, image) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
            Err(error) => return Err(error),
            Ok(()) => return Ok(device),
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

fn configure(device: &File, image: &File) -> io::Result<()> {
    let file = image.as_raw_fd().try_into().map_err(io::Error::other)?;
    let info = Info {
        ids: [0; 3],
        offset: 0,
        size_limit: 0,
        number: 0,
        encryption: [0; 2],
        flags: AUTOCLEAR,
        names: [[0; 64]; 2],
        key: [0; 32],
        init: [0; 2],
    };
    let config = Config {
        file,
        block_size: 0,
        info,
        reserved: [0; 8],
    };
    // SAFETY: LOOP_CONFIGURE reads this configuration.
    #[allow(unsafe_code)]
    let done = unsafe { ioctl(device, Setter::<CONFIGURE, Config>::new(config)) };
    Ok(done?)
}

/// Grows the mounted ext4 file system of this directory to so many blocks.
pub(super) fn grow(directory: impl AsFd, blocks: u64) -> io::Result<()> {
    // SAFETY: EXT4_IOC_RESIZE_FS reads a number.
    #[allow(unsafe_code)]
    let done = unsafe { ioctl(directory, Setter::<RESIZE, u64>::new(blocks)) };
    Ok(done?)
}
